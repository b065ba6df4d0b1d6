//! The `zpager` command: flags are parsed, checked, and matched once.
//!
//! Every failure of zpager's own is one line, `zpager: what is wrong: what would
//! be right`, and one of the exit statuses of [`failure`].

// Whoever does not read what is told must not stop or end a program: see `stderr`.
#![deny(clippy::print_stderr)]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("zpager runs on Linux on x86-64");

mod args;
mod bench;
mod codecs;
mod designs;
mod device;
mod failure;
mod file_limit;
mod page_entries;
mod picture;
mod proc_text;
mod result_file;
mod run;
mod shared;
mod sim;
mod trace;

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use args::Action;
use failure::{Failure, OrFail};
use zpager_command::{size, stderr};

fn main() -> ExitCode {
    let action = args::parse(std::env::args_os());
    // The bench sees to that itself: some of its workloads are this command, which have what it was started with.
    if !matches!(action, Ok(Action::Bench(_))) {
        file_limit::outlive();
    }
    let result = match action {
        Ok(Action::Show(text)) => print(&text),
        Ok(Action::Run(arguments)) => run::main(arguments),
        Ok(Action::Bench(command)) => bench::main(command),
        Ok(Action::Codecs(arguments)) => codecs::main(arguments),
        Ok(Action::Designs(arguments)) => designs::main(arguments),
        Ok(Action::Device(command)) => device::main(command),
        Ok(Action::Sim(arguments)) => sim::main(arguments),
        Ok(Action::Trace(arguments)) => trace::main(arguments),
        Ok(Action::RemoteHelper) => run::remote_helper::main(),
        Err(failure) => Err(failure),
    };
    result.unwrap_or_else(|failure| failure.report())
}

/// Prints results; a reader who has seen enough, such as `head`, is no failure.
fn print(text: &str) -> Result<ExitCode, Failure> {
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).or_fail("standard output")
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}
