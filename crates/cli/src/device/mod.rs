//! `zpager device`: a compressed block device for the whole machine to swap to, and speaking with
//! whoever serves one.
//!
//! Flags become a checked [`Configuration`](zpager_device::Configuration) before anything is opened;
//! `crates/device` does the rest.

mod config;
mod disk;
mod table;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use zpager_device::control::{Command, Reply, ask};
use zpager_device::{Status, serve};

use crate::args::{DeviceCommand, PlaceArguments, ServeArguments, StatusArguments};
use crate::failure::{Failure, OrFail};
use crate::run::Environment;
use crate::run::report::Notices;
use crate::size;

/// Does what is wanted and gives the exit status.
///
/// # Errors
/// Arguments that are wrong, or why it was not done.
pub(crate) fn main(command: DeviceCommand) -> Result<ExitCode, Failure> {
    match command {
        DeviceCommand::Serve(arguments) => serve_until_stopped(*arguments),
        DeviceCommand::Status(arguments) => show_status(arguments),
        DeviceCommand::Set(arguments) => {
            let command = config::check_change(&arguments.change)?;
            done(&arguments.place, command)
        }
        DeviceCommand::Stop(arguments) => {
            done(&arguments.place, Command::Stop { force: arguments.force })
        }
    }
}

fn serve_until_stopped(arguments: ServeArguments) -> Result<ExitCode, Failure> {
    let mut notices = Notices::new(arguments.quiet);
    let configuration = config::check(arguments, &Environment::of_this_process(), &mut notices)?;
    let size_bytes = configuration.setup.size_bytes;
    let ready = |address: &str| {
        // Whoever started it may not listen.
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "zpager: {} at {address}", size::display(size_bytes));
        let _ = out.flush();
    };
    serve(configuration, &mut |warning| notices.warn(warning), ready).map_err(Failure::own)?;
    Ok(ExitCode::SUCCESS)
}

fn show_status(arguments: StatusArguments) -> Result<ExitCode, Failure> {
    let status = ask_status(&arguments.place)?;
    let text = if arguments.prometheus {
        table::to_prometheus(&status)
    } else if arguments.json {
        let mut text = serde_json::to_string_pretty(&status).or_fail("--json")?;
        text.push('\n');
        text
    } else {
        table::render(&status)
    };
    crate::print(&text)
}

fn ask_status(place: &PlaceArguments) -> Result<Status, Failure> {
    match ask(&socket(place)?, Command::Status).map_err(Failure::own)? {
        Reply::Status(status) => Ok(*status),
        other => Err(Failure::own(format!("not a status: {other:?}"))),
    }
}

/// Has the server do something that has no answer.
fn done(place: &PlaceArguments, command: Command) -> Result<ExitCode, Failure> {
    ask(&socket(place)?, command).map_err(Failure::own)?;
    Ok(ExitCode::SUCCESS)
}

/// The device's socket.
fn socket(place: &PlaceArguments) -> Result<PathBuf, Failure> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty());
    let runtime = runtime.map(PathBuf::from);
    let socket = place.socket.clone().or_else(|| zpager_device::default_socket(runtime.as_deref()));
    socket.ok_or_else(|| Failure::own("no XDG_RUNTIME_DIR: give --socket PATH"))
}
