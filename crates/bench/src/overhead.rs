//! `zpager bench overhead`: what zpager costs a program that fits its budget.
//!
//! The budget is twice the program's own peak. Runs come in pairs, one free and
//! one under zpager, and which comes first alternates, so that drift of the
//! machine falls on both alike. The result is the median of the pairs' ratios, of
//! time on the clock and of processor time; the latter is the steadier one.

use std::io::{Write as _, stderr};
use std::time::Duration;

use anyhow::{Context, Result};
use comfy_table::{Table, presets};
use serde::Serialize;

use crate::options::OverheadOptions;
use crate::report;
use crate::rivals::{RivalName, Terms};
use crate::session::{Run, Session, UNSTEADY};
use crate::statistics::{median, range};
use crate::tell;
use crate::workloads::{Job, Workload};

/// Longer than any workload takes.
const TIME_OUT: Duration = Duration::from_secs(3600);

/// The pairs of one workload.
#[derive(Debug, Clone, Default, Serialize)]
struct Row {
    workload: String,
    /// What zpager was given: twice the need.
    budget_bytes: u64,
    pairs: usize,
    seconds_free_median: Option<f64>,
    seconds_zpager_median: Option<f64>,
    /// Median over the pairs of time under zpager by free time.
    seconds_ratio_median: Option<f64>,
    seconds_ratio_min: Option<f64>,
    seconds_ratio_max: Option<f64>,
    /// The same of processor time, user and system.
    cpu_ratio_median: Option<f64>,
    /// Most bytes of address space that were managed in any run.
    managed_bytes: u64,
    /// Most calls that were dispatched in any run.
    dispatched_calls: u64,
    output_ok: bool,
    note: String,
}

/// Measures, prints the table and writes the JSON file.
///
/// # Errors
/// When the bench itself fails or is interrupted; everything is put back.
pub(crate) fn run(options: &OverheadOptions) -> Result<()> {
    let mut session = Session::open(&options.common, None)?;
    tell("zpager bench makes a memory cgroup for every run, and removes it.");
    let own = options.common.own();
    let measured: Result<Vec<Row>> = options
        .common
        .workloads(own.as_ref())
        .into_iter()
        .map(|workload| measure(options, &mut session, workload))
        .collect();
    let closed = session.close();
    let rows = measured?;
    closed?;
    if let Some(path) = &options.common.json {
        report::write_json(&rows, path)?;
    }
    report::print(&table(&rows))
}

fn measure(
    options: &OverheadOptions,
    session: &mut Session,
    workload: &dyn Workload,
) -> Result<Row> {
    let row = Row { workload: workload.name().into(), ..Row::default() };
    if let Some(missing) = workload.missing() {
        return Ok(Row { note: missing, ..row });
    }
    let job = session.prepare(workload)?;
    let (free, digest) = session.run_free(&job)?;
    free.output().map_err(anyhow::Error::msg).with_context(|| workload.name().to_owned())?;
    let given_bytes = free.account.peak_bytes * 2;
    let terms = Terms { total_bytes: 0, given_bytes, need_bytes: 0, is_search: true };
    let mut pairs = Pairs::default();
    for pair in 0..options.pairs {
        let _ = write!(stderr(), "\r{}: pair {} of {} ", workload.name(), pair + 1, options.pairs);
        let order = if pair % 2 == 0 {
            [RivalName::None, RivalName::Zpager]
        } else {
            [RivalName::Zpager, RivalName::None]
        };
        for name in order {
            let run = once(session, &job, name, terms)?;
            let output = run.output().map_err(anyhow::Error::msg);
            let output = output.with_context(|| workload.name().to_owned())?;
            pairs.is_unproven |= digest != Some(output.digest);
            pairs.take(name, &run);
        }
    }
    tell("");
    session.forget(workload)?;
    let note = digest.map_or(UNSTEADY, |_| "").to_owned();
    Ok(pairs.row(Row { budget_bytes: terms.given_bytes, note, ..row }))
}

fn once(session: &mut Session, job: &Job, name: RivalName, terms: Terms) -> Result<Run> {
    session.run(job, name.rival(), terms, TIME_OUT)?.map_err(anyhow::Error::msg)
}

#[derive(Debug, Default)]
struct Pairs {
    free: Vec<Times>,
    zpager: Vec<Times>,
    managed_bytes: u64,
    dispatched_calls: u64,
    /// Some output was not compared, or was wrong.
    is_unproven: bool,
}

#[derive(Debug, Clone, Copy)]
struct Times {
    seconds: f64,
    cpu_seconds: f64,
}

impl Pairs {
    fn take(&mut self, name: RivalName, run: &Run) {
        let side = if name == RivalName::Zpager { &mut self.zpager } else { &mut self.free };
        side.push(Times { seconds: run.finished.seconds, cpu_seconds: run.finished.cpu_seconds });
        if let Some(statistics) = &run.account.statistics {
            self.managed_bytes = self.managed_bytes.max(statistics.managed_bytes);
            self.dispatched_calls = self.dispatched_calls.max(statistics.dispatched_calls);
        }
    }

    fn ratios(&self, of: fn(&Times) -> f64) -> Vec<f64> {
        self.free.iter().zip(&self.zpager).map(|(free, zpager)| of(zpager) / of(free)).collect()
    }

    fn row(&self, row: Row) -> Row {
        let clock = self.ratios(|times| times.seconds);
        let extremes = range(&clock);
        let seconds = |side: &[Times]| side.iter().map(|times| times.seconds).collect::<Vec<_>>();
        Row {
            pairs: clock.len(),
            seconds_free_median: median(&seconds(&self.free)),
            seconds_zpager_median: median(&seconds(&self.zpager)),
            seconds_ratio_median: median(&clock),
            seconds_ratio_min: extremes.map(|(least, _)| least),
            seconds_ratio_max: extremes.map(|(_, most)| most),
            cpu_ratio_median: median(&self.ratios(|times| times.cpu_seconds)),
            managed_bytes: self.managed_bytes,
            dispatched_calls: self.dispatched_calls,
            output_ok: !self.is_unproven,
            ..row
        }
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "workload",
        "pairs",
        "free s",
        "zpager s",
        "ratio",
        "spread",
        "cpu ratio",
        "managed",
        "dispatched",
        "output",
        "note",
    ]);
    let figure = |figure: Option<f64>, digits: usize| {
        figure.map_or("-".to_owned(), |figure| format!("{figure:.digits$}"))
    };
    for row in rows {
        let least = figure(row.seconds_ratio_min, 3);
        let most = figure(row.seconds_ratio_max, 3);
        table.add_row([
            row.workload.clone(),
            row.pairs.to_string(),
            figure(row.seconds_free_median, 3),
            figure(row.seconds_zpager_median, 3),
            figure(row.seconds_ratio_median, 4),
            format!("{least}-{most}"),
            figure(row.cpu_ratio_median, 4),
            row.managed_bytes.to_string(),
            row.dispatched_calls.to_string(),
            if row.output_ok { "ok".into() } else { "-".to_owned() },
            row.note.clone(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_pairs() {
        let times = |seconds| Times { seconds, cpu_seconds: seconds * 2.0 };
        let pairs = Pairs {
            free: [1.0, 2.0, 4.0].map(times).to_vec(),
            zpager: [1.0, 2.2, 4.0].map(times).to_vec(),
            ..Pairs::default()
        };
        let row = pairs.row(Row::default());
        assert_eq!(row.seconds_ratio_median, Some(1.0));
        assert_eq!(row.seconds_ratio_max, Some(1.1));
        assert_eq!(row.cpu_ratio_median, Some(1.0));
        assert!(row.output_ok);
    }
}
