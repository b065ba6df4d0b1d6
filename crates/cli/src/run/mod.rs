//! `zpager run`: an unmodified program inside a fixed amount of memory.
//!
//! Flags become a checked [`Configuration`] before
//! anything is started; what the agents need is then set up
//! ([`session`]), the program is started, and [`supervisor`] stays with it until
//! it ends.

mod budget;
mod cgroup;
pub(crate) mod config;
mod control;
mod enter;
mod image;
mod kernel;
mod linkage;
mod living;
mod outer;
pub(crate) mod program;
mod references;
mod remote;
pub(crate) mod remote_helper;
pub(crate) mod report;
pub(crate) mod session;
pub(crate) mod status;
pub(crate) mod stores;
pub(crate) mod supervisor;

use std::os::fd::AsFd;
use std::process::ExitCode;

use crate::args::RunArguments;
use crate::failure::Failure;
use crate::trace::Recording;
pub(crate) use config::{Configuration, Environment};
use session::Session;
use status::Exit;

/// Runs the program and gives its exit status.
///
/// # Errors
/// What keeps the program from being run, before it was started.
pub(crate) fn main(arguments: RunArguments) -> Result<ExitCode, Failure> {
    let configuration = Configuration::check(arguments, &Environment::of_this_process())?;
    let mut notices = report::Notices::new(configuration.quiet);
    let watching = kernel::check(configuration.watching)?;
    let mut session = Session::set_up(&configuration, watching, None, &mut notices)?;
    let ended = supervisor::run(&session, &configuration, &mut notices, None);
    session.end();
    let ended = ended?;
    report::finish(&session, &configuration, &ended, &mut notices);
    Ok(ended.exit.leave())
}

/// Runs the program, whose agents tell what they see through `ring`, and gives how it ended.
///
/// # Errors
/// What keeps the program from being run, before it was started.
pub(crate) fn record(
    configuration: &Configuration,
    ring: &impl AsFd,
    recording: &mut Recording<'_>,
) -> Result<Exit, Failure> {
    let mut notices = report::Notices::new(configuration.quiet);
    let watching = kernel::check(configuration.watching)?;
    let ring = Some(ring.as_fd());
    let mut session = Session::set_up(configuration, watching, ring, &mut notices)?;
    let ended = supervisor::run(&session, configuration, &mut notices, Some(recording));
    session.end();
    Ok(ended?.exit)
}
