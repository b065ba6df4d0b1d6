//! The `zpager` command: flags are parsed, checked, and matched once.
//!
//! Every failure of zpager's own is one line, `zpager: what is wrong: what would
//! be right`, and one of the exit statuses of [`failure`].

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("zpager runs on Linux on x86-64");

mod args;
mod codecs;
mod failure;
mod run;
mod size;
mod trace;

use std::process::ExitCode;

use args::Action;

fn main() -> ExitCode {
    let result = match args::parse(std::env::args_os()) {
        Ok(Action::Show(text)) => {
            print!("{text}");
            Ok(ExitCode::SUCCESS)
        }
        Ok(Action::Run(arguments)) => run::main(arguments),
        Ok(Action::Bench(command)) => Ok(zpager_bench::main(command)),
        Ok(Action::Codecs(arguments)) => codecs::main(arguments),
        Ok(Action::Trace(arguments)) => trace::main(arguments),
        Err(failure) => Err(failure),
    };
    result.unwrap_or_else(|failure| failure.report())
}
