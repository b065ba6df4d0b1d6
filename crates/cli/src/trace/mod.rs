//! `zpager trace`: the page references of an unmodified program, recorded.
//!
//! Source: castro (2003), 4.1. The program runs as under `zpager run`, managed from its first
//! instruction, in a window of a few resident pages. The agents tell what comes and leaves
//! through a ring ([`ring`]); it is put together ([`records`]) and written ([`output`]) while
//! the program runs ([`recording`]). The format is [`zpager_sim::trace`]'s.
//!
//! Bad case: a program that touches many pages in turn takes up to a few hundred times as long.

mod config;
mod lackey;
mod output;
mod progress;
mod recording;
mod records;
mod ring;

use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use zpager_sim::trace::Header;

use crate::args::TraceArguments;
use crate::failure::Failure;
use crate::run;
use config::Configuration;
pub(crate) use recording::Recording;
use ring::SharedRing;

/// Records the program and gives its exit status, or imports what another tool recorded.
///
/// # Errors
/// What keeps the program from being run, before it was started; a trace that could not be written.
pub(crate) fn main(arguments: TraceArguments) -> Result<ExitCode, Failure> {
    if arguments.lackey.is_some() {
        return lackey::main(arguments);
    }
    let configuration = Configuration::check(arguments, &run::Environment::of_this_process())?;
    let Configuration { window_pages, codecs, ring_words, .. } = &configuration;
    let ring = SharedRing::new(*window_pages, codecs, *ring_words)?;
    let (run, file) = (&configuration.run, &configuration.output);
    let mut recording =
        Recording::begin(ring.messages(), file, &header(&configuration), run.quiet)?;
    let exit = run::record(run, &ring, &mut recording)?;
    recording.finish()?;
    Ok(exit.leave())
}

fn header(configuration: &Configuration) -> Header {
    Header {
        page_bytes: zpager_codec::PAGE_BYTES as u32,
        window_pages: configuration.window_pages,
        origin: format!(
            "zpager {} trace: private anonymous memory of the program and all that it starts",
            env!("CARGO_PKG_VERSION")
        ),
        command: configuration.command.iter().map(|word| word.as_bytes().to_vec()).collect(),
        codecs: configuration.codecs.iter().map(|codec| codec.name().to_owned()).collect(),
    }
}
