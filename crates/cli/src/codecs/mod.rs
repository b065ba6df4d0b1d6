//! `zpager codecs`: what each codec does to the user's own pages.
//!
//! Source: hp, section 4 and figures 5 to 7: histograms of compression ratio, decompression and
//! compression time over the pages of one application, for each codec. Flags become a checked
//! [`Configuration`] before anything is started; the pages are drawn ([`mod@file`], [`process`],
//! [`program`]), every codec works on all of them ([`measure`]), and what came out is told
//! ([`table`], [`advice`]), drawn ([`plot`]) and written ([`row`]).
//!
//! Invariant: nothing is written before everything was measured, and every page that a codec
//! took was restored and compared.

mod advice;
mod config;
mod file;
mod histogram;
mod measure;
mod plot;
mod process;
mod program;
mod row;
mod sample;
mod table;

use std::process::ExitCode;

use crate::args::CodecsArguments;
use crate::failure::Failure;
use crate::result_file;
pub(crate) use config::check_codecs;
use config::{Configuration, Source};
use row::Row;
use sample::Sample;

/// Compares the codecs and gives the exit status.
///
/// # Errors
/// Arguments that are wrong, pages that cannot be had, results that cannot be written.
pub(crate) fn main(arguments: CodecsArguments) -> Result<ExitCode, Failure> {
    let configuration = Configuration::check(arguments)?;
    let sample = take(&configuration)?;
    let results = measure::measure(&configuration.codecs, &sample.pages)?;
    let rows: Vec<Row> = results.iter().map(|result| Row::of(result, &sample)).collect();
    if let Some(file) = &configuration.json {
        result_file::write("--json", file, &row::to_json(&rows))?;
    }
    if let Some(file) = &configuration.plot {
        let title = format!("{}: {}", configuration.source, sample.summary());
        result_file::write("--plot", file, &plot::draw(&title, &results)?)?;
    }
    let mut text = format!("{}, seed {}\n", sample.summary(), configuration.drawing.seed);
    text.push_str(&table::render(&rows, &results));
    text.push_str(&advice::sentence(&rows));
    crate::print(&text)
}

/// Draws the pages.
fn take(configuration: &Configuration) -> Result<Sample, Failure> {
    let sample = match &configuration.source {
        Source::File(file) => file::take(file, configuration.drawing)?,
        Source::Process(pid) => process::take(*pid, configuration.drawing)?,
        Source::Program(words) => program::take(words, configuration.drawing)?,
    };
    for note in &sample.notes {
        crate::stderr::tell(note);
    }
    Ok(sample)
}
