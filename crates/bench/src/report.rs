//! The figures of a comparison: one row for each workload under each rival, as
//! JSON and as a table. The keys are documented in `docs/benchmarks.md`.

use std::fmt::Display;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::disk::Traffic;
use crate::statistics::{median, range};

/// Prints lines; a reader who has seen enough, such as `head`, is no failure.
///
/// # Errors
/// The standard output's.
pub(crate) fn print(lines: &impl Display) -> Result<()> {
    match writeln!(io::stdout(), "{lines}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("standard output")
        }
        _ => Ok(()),
    }
}

/// One workload under one rival.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Row {
    /// Name of the workload.
    pub workload: String,
    /// Name of the rival.
    pub rival: String,
    /// What program, pool and metadata may take together.
    pub memory_bytes: u64,
    /// The hard limit of the program's cgroup; nothing without a limit.
    pub limit_bytes: Option<u64>,
    /// What zpager was told to hold.
    pub budget_bytes: Option<u64>,
    /// Highest physical memory of any run: cgroup and pool.
    pub peak_bytes: u64,
    /// Time of a run, start to end.
    pub seconds_median: Option<f64>,
    /// The fastest run.
    pub seconds_min: Option<f64>,
    /// The slowest run.
    pub seconds_max: Option<f64>,
    /// Runs that ended well.
    pub runs: usize,
    /// Whether every run ended well, with the output of the unlimited one.
    pub output_ok: bool,
    /// Median of the faults for which a page had to be brought back.
    pub faults: u64,
    /// Median time of a fault, where the workload measures it.
    pub ns_per_fault_median: Option<f64>,
    /// Median time of the visit of a page, where the workload measures it.
    pub ns_per_access_median: Option<f64>,
    /// Median of the reads from the disk that swap files and stores lie on.
    pub disk_reads: Option<u64>,
    /// Median of the bytes read from it.
    pub disk_read_bytes: Option<u64>,
    /// Median of the writes to it.
    pub disk_writes: Option<u64>,
    /// Median of the bytes written to it.
    pub disk_written_bytes: Option<u64>,
    /// What a reader has to know.
    pub note: String,
}

/// Figures of one run that ended well.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Figures {
    /// Time from start to end.
    pub seconds: f64,
    /// Highest physical memory.
    pub peak_bytes: u64,
    /// Faults for which a page had to be brought back.
    pub faults: u64,
    /// Time of a fault.
    pub ns_per_fault: Option<f64>,
    /// Time of the visit of a page.
    pub ns_per_access: Option<f64>,
    /// What went to the disk and came from it.
    pub traffic: Option<Traffic>,
}

impl Row {
    /// Puts the medians and extremes of `runs` into the row.
    pub(crate) fn set_figures(&mut self, runs: &[Figures]) {
        let column =
            |of: fn(&Figures) -> Option<f64>| runs.iter().filter_map(of).collect::<Vec<_>>();
        let seconds = column(|run| Some(run.seconds));
        let extremes = range(&seconds);
        self.seconds_median = median(&seconds);
        self.seconds_min = extremes.map(|(least, _)| least);
        self.seconds_max = extremes.map(|(_, most)| most);
        self.runs = runs.len();
        self.peak_bytes = runs.iter().map(|run| run.peak_bytes).max().unwrap_or(0);
        self.faults = median(&column(|run| Some(run.faults as f64))).unwrap_or(0.0) as u64;
        self.ns_per_fault_median = median(&column(|run| run.ns_per_fault));
        self.ns_per_access_median = median(&column(|run| run.ns_per_access));
        let disk = |of: fn(&Traffic) -> u64| {
            let counts: Vec<_> =
                runs.iter().filter_map(|run| Some(of(run.traffic.as_ref()?) as f64)).collect();
            median(&counts).map(|count| count as u64)
        };
        self.disk_reads = disk(|traffic| traffic.reads);
        self.disk_read_bytes = disk(|traffic| traffic.read_bytes);
        self.disk_writes = disk(|traffic| traffic.writes);
        self.disk_written_bytes = disk(|traffic| traffic.written_bytes);
    }
}

/// Writes any list of rows as a JSON array. The file is replaced as a whole, so
/// that it can be read while a long comparison goes on.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn write_json<R: Serialize>(rows: &[R], path: &Path) -> Result<()> {
    let mut text = serde_json::to_vec_pretty(rows)?;
    text.push(b'\n');
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".part");
    let write = || fs::write(&unfinished, text).and_then(|()| fs::rename(&unfinished, path));
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// The rows as a table for a person; times are compared with zpager's.
pub(crate) fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "workload", "rival", "memory", "peak", "seconds", "spread", "ratio", "faults", "ns/fault",
        "written", "writes", "read", "reads", "output", "note",
    ]);
    for row in rows {
        table.add_row([
            row.workload.clone(),
            row.rival.clone(),
            mebibytes(row.memory_bytes),
            mebibytes(row.peak_bytes),
            row.seconds_median.map_or("-".into(), |seconds| format!("{seconds:.2}")),
            spread(row),
            ratio(row, rows).map_or("-".into(), |ratio| format!("{ratio:.2}")),
            row.faults.to_string(),
            row.ns_per_fault_median.map_or("-".into(), |time| format!("{time:.0}")),
            row.disk_written_bytes.map_or("-".into(), mebibytes),
            count(row.disk_writes),
            row.disk_read_bytes.map_or("-".into(), mebibytes),
            count(row.disk_reads),
            if row.output_ok { "ok".into() } else { "-".into() },
            row.note.clone(),
        ]);
    }
    for column in 2..13 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn mebibytes(bytes: u64) -> String {
    if bytes == 0 { "-".into() } else { format!("{:.1} M", bytes as f64 / f64::from(1 << 20)) }
}

fn count(figure: Option<u64>) -> String {
    figure.map_or("-".into(), |figure| figure.to_string())
}

fn spread(row: &Row) -> String {
    match (row.seconds_min, row.seconds_max) {
        (Some(least), Some(most)) => format!("{least:.2}-{most:.2}"),
        _ => "-".into(),
    }
}

/// How many times as long as under zpager the workload took: by the fault where
/// that is measured, else by the run.
fn ratio(row: &Row, rows: &[Row]) -> Option<f64> {
    let zpager =
        rows.iter().find(|other| other.workload == row.workload && other.rival == "zpager")?;
    match (row.ns_per_fault_median, zpager.ns_per_fault_median) {
        (Some(time), Some(zpager_time)) => Some(time / zpager_time),
        _ => Some(row.seconds_median? / zpager.seconds_median?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(rival: &str, seconds: &[f64]) -> Row {
        let mut row = Row { workload: "sort".into(), rival: rival.into(), ..Row::default() };
        let runs: Vec<_> = seconds
            .iter()
            .map(|&seconds| Figures {
                seconds,
                peak_bytes: 5,
                faults: 9,
                traffic: Some(Traffic { writes: seconds as u64, ..Traffic::default() }),
                ..Figures::default()
            })
            .collect();
        row.set_figures(&runs);
        row
    }

    #[test]
    fn figures_are_medians_and_extremes() {
        let row = row("zram", &[4.0, 2.0, 3.0]);
        assert_eq!(row.seconds_median, Some(3.0));
        assert_eq!((row.seconds_min, row.seconds_max), (Some(2.0), Some(4.0)));
        assert_eq!((row.runs, row.peak_bytes, row.faults), (3, 5, 9));
        assert_eq!(row.ns_per_fault_median, None);
        assert_eq!((row.disk_writes, row.disk_reads), (Some(3), Some(0)));
    }

    #[test]
    fn a_row_without_runs_has_no_times() {
        let row = row("zram", &[]);
        assert_eq!((row.runs, row.seconds_median, row.disk_writes), (0, None, None));
        assert!(table(&[row]).to_string().contains("zram"));
    }

    #[test]
    fn the_ratio_is_to_zpager() {
        let rows = [row("disk", &[9.0]), row("zpager", &[3.0])];
        assert_eq!(ratio(&rows[0], &rows), Some(3.0));
        assert_eq!(ratio(&rows[0], &rows[..1]), None);
    }

    #[test]
    fn json_has_the_promised_keys() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("rows.json");
        write_json(&[row("zram", &[1.5])], &path).expect("written");
        let text = fs::read_to_string(&path).expect("read");
        let rows: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        for key in [
            "workload",
            "rival",
            "memory_bytes",
            "limit_bytes",
            "peak_bytes",
            "seconds_median",
            "seconds_min",
            "seconds_max",
            "runs",
            "output_ok",
            "faults",
            "note",
        ] {
            assert!(rows[0].get(key).is_some(), "{key}");
        }
        assert_eq!(rows[0]["seconds_median"], 1.5);
    }
}
