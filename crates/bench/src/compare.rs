//! `zpager bench run`: each workload under each rival, with the same total memory.
//!
//! For a workload: its input is made; a free run gives the right output, the peak
//! and the time; a share is sought for each rival (see [`crate::limit`]); then all
//! rivals run once, all once more, and so on, so that whatever else goes on in the
//! machine meets them alike.

use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};

use crate::limit::{self, Share, Trial};
use crate::options::RunOptions;
use crate::report::{self, Figures, Row};
use crate::rivals::{Rival, RivalName, Terms};
use crate::session::{Run, Session, UNSTEADY};
use crate::tell;
use crate::workloads::{Divisor, Job, Output, Workload};

/// Failures in sequence after which a rival is given up.
const MAX_FAILURES: u32 = 2;

/// How many times as long a run may take on a slow disk.
const SLOW_DISK_PATIENCE: f64 = 10.0;

/// Compares, prints the table and writes the JSON file.
///
/// # Errors
/// When the bench itself fails or is interrupted; everything is put back.
pub(crate) fn run(options: &RunOptions) -> Result<()> {
    let mut session = Session::open(&options.common, options.disk_iops)?;
    announce(options, &session);
    let compared = compare_all(options, &mut session);
    let closed = session.close();
    let rows = compared?;
    closed?;
    report::print(&report::table(&rows))
}

/// Tells the user what is about to be changed.
fn announce(options: &RunOptions, session: &Session) {
    tell("zpager bench changes this machine while it runs, and puts everything back:");
    tell("  every run: makes a memory cgroup");
    if let Some(disk) = &session.slow_disk {
        tell(format_args!("  every run: {}", disk.announcement()));
    }
    for name in &options.rivals {
        for change in name.rival().changes(&session.surroundings) {
            tell(format_args!("  {}: {change}", name.rival().name()));
        }
    }
}

fn compare_all(options: &RunOptions, session: &mut Session) -> Result<Vec<Row>> {
    let own = options.common.own();
    let workloads = options.common.workloads(own.as_ref());
    let progress = Progress::new(workloads.len() * options.rivals.len() * options.runs as usize);
    let mut rows = Vec::new();
    for workload in workloads {
        rows.extend(compare(options, session, workload, &progress)?);
        if let Some(path) = &options.common.json {
            report::write_json(&rows, path)?;
        }
    }
    progress.bar.finish_and_clear();
    Ok(rows)
}

/// A bar on a terminal, nothing elsewhere.
struct Progress {
    bar: ProgressBar,
}

impl Progress {
    fn new(runs: usize) -> Self {
        let bar = ProgressBar::new(runs as u64);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress { bar }
    }

    fn say(&self, workload: &dyn Workload, rival: &str, what: &str) {
        self.bar.set_message(format!("{}: {rival}: {what}", workload.name()));
    }
}

/// What a free run of the workload showed.
struct Free {
    /// Of the right output, unless that is another each time.
    digest: Option<u128>,
    peak_bytes: u64,
    time_out: Duration,
}

/// All rivals at one workload.
struct Race<'a> {
    options: &'a RunOptions,
    session: &'a mut Session,
    workload: &'a dyn Workload,
    job: &'a Job,
    free: Free,
    progress: &'a Progress,
    /// The share of the last rival with a pool of the kernel's.
    pool_share_bytes: Option<u64>,
}

/// One rival in the race.
struct Candidate {
    rival: &'static dyn Rival,
    terms: Terms,
    row: Row,
    figures: Vec<Figures>,
    failures: u32,
    /// Failures since the last run that ended well.
    failures_in_sequence: u32,
    has_right_output: bool,
}

fn compare(
    options: &RunOptions,
    session: &mut Session,
    workload: &dyn Workload,
    progress: &Progress,
) -> Result<Vec<Row>> {
    if let Some(missing) = workload.missing() {
        progress.bar.inc(options.rivals.len() as u64 * u64::from(options.runs));
        return Ok(options
            .rivals
            .iter()
            .map(|name| absent_row(workload, *name, &missing))
            .collect());
    }
    progress.say(workload, "none", "making the input");
    let job = session.prepare(workload)?;
    progress.say(workload, "none", "measuring the need");
    let free = measure_free(options, session, workload, &job)?;
    let mut race =
        Race { options, session, workload, job: &job, free, progress, pool_share_bytes: None };
    let rows = race.run()?;
    session.forget(workload)?;
    Ok(rows)
}

fn absent_row(workload: &dyn Workload, name: RivalName, missing: &str) -> Row {
    Row {
        workload: workload.name().into(),
        rival: name.rival().name().into(),
        note: missing.into(),
        ..Row::default()
    }
}

fn measure_free(
    options: &RunOptions,
    session: &mut Session,
    workload: &dyn Workload,
    job: &Job,
) -> Result<Free> {
    let (run, digest) = session.run_free(job)?;
    run.output()
        .map_err(anyhow::Error::msg)
        .with_context(|| format!("{} does not even run without a limit", workload.name()))?;
    let slowness = if options.disk_iops.is_some() { SLOW_DISK_PATIENCE } else { 1.0 };
    let patience = Duration::from_secs_f64(slowness * (30.0 + 30.0 * run.finished.seconds));
    Ok(Free {
        digest,
        peak_bytes: run.account.peak_bytes,
        time_out: options.time_out.map_or(patience, Duration::from_secs),
    })
}

impl Race<'_> {
    /// Shares first, then the runs in turn.
    fn run(&mut self) -> Result<Vec<Row>> {
        let names = &self.options.rivals;
        let mut candidates: Vec<_> =
            names.iter().map(|name| self.admit(name.rival())).collect::<Result<_>>()?;
        for round in 1..=self.options.runs {
            for candidate in &mut candidates {
                self.say(candidate.rival, &format!("run {round} of {}", self.options.runs));
                self.run_once(candidate)?;
                self.progress.bar.inc(1);
            }
        }
        Ok(candidates.into_iter().map(Candidate::into_row).collect())
    }

    fn say(&self, rival: &dyn Rival, what: &str) {
        self.progress.say(self.workload, rival.name(), what);
    }

    /// Finds the rival's share; one that has none does not run.
    fn admit(&mut self, rival: &'static dyn Rival) -> Result<Candidate> {
        let total_bytes = self.options.memory.of(self.free.peak_bytes);
        let terms = Terms {
            total_bytes,
            given_bytes: total_bytes,
            need_bytes: self.free.peak_bytes,
            is_search: true,
        };
        let share = if rival.seeks_share() {
            self.find_share(rival, terms)?
        } else {
            Share::Given { bytes: total_bytes }
        };
        let mut note = self.job.note.clone();
        if self.free.digest.is_none() {
            add_note(&mut note, UNSTEADY);
        }
        let (given_bytes, failures_in_sequence) = match share {
            Share::Given { bytes } => (bytes, 0),
            Share::None(reason) => {
                add_note(&mut note, &reason);
                (total_bytes, MAX_FAILURES)
            }
        };
        Ok(Candidate {
            rival,
            terms: Terms { given_bytes, is_search: false, ..terms },
            row: Row {
                workload: self.workload.name().into(),
                rival: rival.name().into(),
                memory_bytes: total_bytes,
                note,
                ..Row::default()
            },
            figures: Vec::new(),
            failures: 0,
            failures_in_sequence,
            has_right_output: true,
        })
    }

    fn find_share(&mut self, rival: &dyn Rival, terms: Terms) -> Result<Share> {
        let mut target = rival.target(terms.total_bytes);
        if rival.has_kernel_pool() {
            target.first_bytes = self.pool_share_bytes.unwrap_or(target.first_bytes);
        }
        let share = limit::find(target, |given_bytes| {
            self.say(rival, &format!("trying a share of {} MiB", given_bytes >> 20));
            let terms = Terms { given_bytes, ..terms };
            Ok(trial_of(self.session.run(self.job, rival, terms, self.free.time_out)?))
        })?;
        if let (Share::Given { bytes }, true) = (&share, rival.has_kernel_pool()) {
            self.pool_share_bytes = Some(*bytes);
        }
        Ok(share)
    }

    /// One run, unless the rival has been given up.
    fn run_once(&mut self, candidate: &mut Candidate) -> Result<()> {
        if candidate.failures_in_sequence >= MAX_FAILURES {
            return Ok(());
        }
        let Free { digest, time_out, .. } = self.free;
        let run = self.session.run(self.job, candidate.rival, candidate.terms, time_out)?;
        match run.and_then(|run| run.output().cloned().map(|output| (run, output))) {
            Ok((run, output)) => candidate.ended_well(&run, &output, digest),
            Err(reason) => candidate.failed(&reason),
        }
        Ok(())
    }
}

impl Candidate {
    fn failed(&mut self, reason: &str) {
        add_note(&mut self.row.note, reason);
        self.failures += 1;
        self.failures_in_sequence += 1;
    }

    fn ended_well(&mut self, run: &Run, output: &Output, right: Option<u128>) {
        self.failures_in_sequence = 0;
        self.row.limit_bytes = run.allowance.limit_bytes;
        self.row.budget_bytes = run.account.statistics.as_ref().map(|_| self.terms.given_bytes);
        add_note(&mut self.row.note, &run.note);
        self.has_right_output &= right == Some(output.digest);
        if right.is_some_and(|right| right != output.digest) {
            add_note(&mut self.row.note, "wrong output");
        }
        self.figures.push(figures(run, output));
    }

    fn into_row(mut self) -> Row {
        self.row.set_figures(&self.figures);
        self.row.output_ok =
            !self.figures.is_empty() && self.has_right_output && self.failures == 0;
        if self.failures > 0 && !self.figures.is_empty() {
            let runs = self.figures.len() + self.failures as usize;
            add_note(&mut self.row.note, &format!("{} of {runs} runs failed", self.failures));
        }
        self.row
    }
}

/// What a run tells the search; a rival that could not be set up held nothing.
fn trial_of(run: Result<Run, String>) -> Trial {
    match run {
        Err(reason) => Trial::Failed { reason, extra_bytes: 0 },
        Ok(run) => match run.output() {
            Ok(_) => Trial::Held { extra_bytes: run.account.extra_bytes },
            Err(reason) => Trial::Failed { reason, extra_bytes: run.finished.sampled_peak_bytes },
        },
    }
}

fn figures(run: &Run, output: &Output) -> Figures {
    let nanoseconds_per = |count: u64| {
        let seconds = output.passes?.seconds;
        (count > 0).then_some(seconds * 1e9 / count as f64)
    };
    // Only the kernel's faults of the passes are known of the kernel's rivals, and
    // only zpager's of the whole run of zpager; before the passes a program fills
    // its memory once, which brings no page back.
    let passes = output.passes;
    let faults = match run.account.statistics {
        Some(_) => run.account.faults,
        None => passes.map_or(0, |passes| passes.kernel_faults),
    };
    let divisor = passes.map_or(0, |passes| match passes.divisor {
        // Nothing was brought back: there was no fault to take a time.
        _ if run.account.faults == 0 => 0,
        Divisor::Faults => faults,
        Divisor::Accesses => passes.accesses,
    });
    Figures {
        seconds: run.finished.seconds,
        peak_bytes: run.account.peak_bytes,
        faults: run.account.faults,
        ns_per_fault: nanoseconds_per(divisor),
        ns_per_access: nanoseconds_per(passes.map_or(0, |passes| passes.accesses)),
        traffic: run.traffic,
    }
}

/// Adds to a note what it does not say yet.
fn add_note(note: &mut String, addition: &str) {
    if addition.is_empty() || note.contains(addition) {
        return;
    }
    if !note.is_empty() {
        note.push_str("; ");
    }
    note.push_str(addition);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_says_everything_once() {
        let mut note = String::new();
        for addition in ["lz4", "", "killed", "lz4", "killed"] {
            add_note(&mut note, addition);
        }
        assert_eq!(note, "lz4; killed");
    }
}
