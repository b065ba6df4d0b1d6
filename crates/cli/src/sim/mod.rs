//! `zpager sim`: a trace replayed through designs, at several memory sizes, in modelled time.
//!
//! Flags become a checked [`Configuration`] before the trace is read; a first pass over the trace
//! numbers its pages and finds out whether it is sound; then each design serves all of it at each
//! size ([`contest`]), and what came out is told ([`table`]), drawn ([`plot`]) and written ([`row`]).
//!
//! Invariant: nothing is written before everything was replayed.

mod config;
mod contest;
mod plot;
mod row;
mod table;

use std::process::ExitCode;
use std::time::Instant;

use crate::args::SimArguments;
use crate::failure::Failure;
use crate::result_file;
use config::Configuration;
use contest::Contest;
use row::Row;

/// Replays a trace and gives the exit status.
///
/// # Errors
/// Arguments that are wrong, a trace that cannot be read, results that cannot be written.
pub(crate) fn main(arguments: SimArguments) -> Result<ExitCode, Failure> {
    let configuration = Configuration::check(arguments)?;
    let mut contest = Contest::open(&configuration)?;
    let began = Instant::now();
    let rows: Vec<Row> = contest.replay_all()?;
    let seconds = began.elapsed().as_secs_f64();
    if let Some(file) = &configuration.json {
        result_file::write("--json", file, &row::to_json(&rows))?;
    }
    if let Some(file) = &configuration.plot {
        let title = format!("{}, {}", contest.title(), configuration.disk.name);
        result_file::write("--plot", file, &plot::draw(&title, &rows)?)?;
    }
    let rate = contest.replayed_references() as f64 / seconds.max(1e-9) / 1e6;
    crate::stderr::tell(format_args!("{rate:.1} million references a second"));
    crate::print(&table::render(&contest.summary(), &configuration, &rows))
}
