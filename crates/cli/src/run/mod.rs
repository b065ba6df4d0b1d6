//! `zpager run`: an unmodified program inside a fixed amount of memory.
//!
//! Flags become a checked [`Configuration`] before
//! anything is started; what the agents need is then set up
//! ([`session`]), the program is started, and [`supervisor`] stays with it until
//! it ends.

mod budget;
mod cgroup;
mod config;
mod control;
mod enter;
mod image;
mod kernel;
pub(crate) mod program;
mod references;
mod report;
mod session;
pub(crate) mod stats_file;
pub(crate) mod status;
mod store_file;
pub(crate) mod supervisor;

use std::process::ExitCode;

use crate::args::RunArguments;
use crate::failure::Failure;
use config::{Configuration, Environment};
use session::Session;

/// Runs the program and gives its exit status.
///
/// # Errors
/// What keeps the program from being run, before it was started.
pub(crate) fn main(arguments: RunArguments) -> Result<ExitCode, Failure> {
    let configuration = Configuration::check(arguments, &Environment::of_this_process())?;
    let mut notices = report::Notices::new(configuration.quiet);
    kernel::check()?;
    let session = Session::set_up(&configuration, &mut notices)?;
    let ended = supervisor::run(&session, &configuration, &mut notices)?;
    report::finish(&session, &configuration, &ended)?;
    Ok(ended.exit.leave())
}
