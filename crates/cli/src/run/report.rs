//! What the user is told: warnings while the program runs, then a line and a file of statistics.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde::Serialize;
use zpager_store::BLOCK_BYTES;
use zpager_wire::{Control, EventKind, RemoteCounts, Usage};

use super::budget::{Budget, Source};
use super::config::Configuration;
use super::remote::RemoteStore;
use super::session::Session;
use super::status::Exit;
use crate::result_file;
use crate::size;
use crate::stderr;

/// What a run may have beyond its budget without a word.
const EXCESS_BYTES_MIN: u64 = 4 << 20;

/// Where warnings go.
#[derive(Debug)]
pub(crate) struct Notices {
    quiet: bool,
}

impl Notices {
    /// Warnings are printed unless `quiet`.
    pub(crate) fn new(quiet: bool) -> Self {
        Notices { quiet }
    }

    /// Tells the user of something that ended a program, or is lost; also when quiet.
    pub(crate) fn error(&mut self, message: &str) {
        stderr::tell(message);
    }

    /// Tells the user of something that is not as it should be and does not end the run.
    pub(crate) fn warn(&mut self, message: &str) {
        if !self.quiet {
            stderr::tell(format_args!("warning: {message}"));
        }
    }
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// How the program ended.
    pub(crate) exit: Exit,
    /// How long it ran.
    pub(crate) elapsed: Duration,
    /// The highest sum of the tree's anonymous memory that was seen before the budget came near.
    pub(crate) peak_unmanaged_bytes: u64,
    /// The most that the tree's shared memory was seen to take, where it was much.
    pub(crate) peak_shared_bytes: u64,
    /// The lowest and the highest that the budget was.
    pub(crate) budget_range_bytes: RangeInclusive<u64>,
    /// What a read from the store was expected to take before there was one; 0 where that was not known.
    pub(crate) expected_read_ns: u64,
    /// The pools when they were seen at their largest.
    pub(crate) pool: PoolSeen,
}

/// What the pools of all processes held at one moment.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct PoolSeen {
    /// Their memory.
    pub(crate) held_bytes: u64,
    /// The compressed pages in it.
    pub(crate) payload_bytes: u64,
}

impl PoolSeen {
    /// Takes the pools as they are now where they are larger than before.
    pub(crate) fn look(&mut self, usage: &Usage) {
        let held_bytes = usage.pool_bytes.load(Relaxed);
        if held_bytes > self.held_bytes {
            *self = PoolSeen { held_bytes, payload_bytes: usage.payload_bytes.load(Relaxed) };
        }
    }
}

/// The statistics of a run; `docs/statistics.md` documents every key.
#[derive(Debug, Serialize)]
struct Statistics {
    budget_bytes: u64,
    lowest_budget_bytes: u64,
    highest_budget_bytes: u64,
    peak_bytes: u64,
    peak_resident_bytes: u64,
    peak_pool_bytes: u64,
    peak_metadata_bytes: u64,
    peak_unmanaged_bytes: u64,
    peak_shared_bytes: u64,
    managed_bytes: u64,
    managed_processes: u64,
    waste_bytes: u64,
    swapped_out_pages: u64,
    swapped_in_pages: u64,
    prefetched_pages: u64,
    same_filled_pages: u64,
    incompressible_pages: u64,
    dense_pages: u64,
    repeats_pages: u64,
    spilled_pages: u64,
    faults: Faults,
    dispatched_calls: u64,
    original_bytes: u64,
    compressed_bytes: u64,
    store: Store,
    codec: &'static str,
    exit: Exit,
    elapsed_seconds: f64,
}

/// Faults by what served them.
#[derive(Debug, Serialize)]
struct Faults {
    fresh: u64,
    compressed: u64,
    spilled: u64,
    clean: u64,
}

/// What the store did; `remote_` is of the servers alone.
#[derive(Debug, Serialize)]
struct Store {
    page_bytes: u64,
    recompressed_pages: u64,
    recompressed_saved_bytes: u64,
    written_bytes: u64,
    read_bytes: u64,
    writes: u64,
    reads: u64,
    foretold_reads: u64,
    foretold_used_reads: u64,
    clean_drops: u64,
    ahead_pages: u64,
    ahead_returned_pages: u64,
    file_bytes: u64,
    /// What is in the file at its fullest, as pages, to what it took there.
    capacity_gain: f64,
    expected_read_ns: u64,
    remote_written_bytes: u64,
    remote_read_bytes: u64,
    remote_writes: u64,
    remote_reads: u64,
    remote_peak_bytes: u64,
    remote_failures: u64,
    remote_reconnects: u64,
    remote_lost_clusters: u64,
}

impl Statistics {
    fn gather(
        control: &Control,
        remotes: &[&RemoteCounts],
        budget: &Budget,
        codec: &'static str,
        ended: &Ended,
    ) -> Self {
        let Control { usage, counters, .. } = control;
        let value = |cell: &AtomicU64| cell.load(Relaxed);
        let sum = |count: fn(&RemoteCounts) -> &AtomicU64| -> u64 {
            remotes.iter().map(|counts| value(count(counts))).sum()
        };
        Statistics {
            budget_bytes: budget.bytes,
            lowest_budget_bytes: *ended.budget_range_bytes.start(),
            highest_budget_bytes: *ended.budget_range_bytes.end(),
            peak_bytes: value(&usage.peak_bytes),
            peak_resident_bytes: value(&usage.peak_resident_bytes),
            peak_pool_bytes: value(&usage.peak_pool_bytes),
            peak_metadata_bytes: value(&usage.peak_metadata_bytes),
            peak_unmanaged_bytes: ended.peak_unmanaged_bytes,
            peak_shared_bytes: ended.peak_shared_bytes,
            managed_bytes: value(&usage.peak_managed_bytes),
            managed_processes: value(&counters.managed_processes),
            waste_bytes: ended.pool.held_bytes.saturating_sub(ended.pool.payload_bytes),
            swapped_out_pages: value(&counters.swapped_out_pages),
            swapped_in_pages: value(&counters.swapped_in_pages),
            prefetched_pages: value(&counters.prefetched_pages),
            same_filled_pages: value(&counters.same_filled_pages),
            incompressible_pages: value(&counters.incompressible_pages),
            dense_pages: value(&counters.dense_pages),
            repeats_pages: value(&counters.repeats_pages),
            spilled_pages: value(&counters.spilled_pages),
            faults: Faults {
                fresh: value(&counters.fresh_faults),
                compressed: value(&counters.compressed_faults),
                spilled: value(&counters.spilled_faults),
                clean: value(&counters.clean_faults),
            },
            dispatched_calls: value(&counters.dispatched_calls),
            original_bytes: value(&counters.original_bytes),
            compressed_bytes: value(&counters.compressed_bytes),
            store: Store {
                page_bytes: value(&counters.store_page_bytes),
                recompressed_pages: value(&counters.recompressed_pages),
                recompressed_saved_bytes: value(&counters.recompressed_saved_bytes),
                written_bytes: value(&counters.store_written_bytes),
                read_bytes: value(&counters.store_read_bytes),
                writes: value(&counters.store_writes),
                reads: value(&counters.store_reads),
                foretold_reads: value(&counters.foretold_reads),
                foretold_used_reads: value(&counters.foretold_used),
                clean_drops: value(&counters.clean_drops),
                ahead_pages: value(&counters.ahead_pages),
                ahead_returned_pages: value(&counters.shelved_pages),
                file_bytes: value(&counters.store_file_bytes),
                capacity_gain: capacity_gain(
                    value(&usage.peak_stored_pages),
                    value(&counters.store_file_bytes),
                ),
                expected_read_ns: ended.expected_read_ns,
                remote_written_bytes: sum(|counts| &counts.written_bytes),
                remote_read_bytes: sum(|counts| &counts.read_bytes),
                remote_writes: sum(|counts| &counts.writes),
                remote_reads: sum(|counts| &counts.reads),
                remote_peak_bytes: sum(|counts| &counts.peak_bytes),
                remote_failures: sum(|counts| &counts.failures),
                remote_reconnects: sum(|counts| &counts.reconnects),
                remote_lost_clusters: sum(|counts| &counts.lost_clusters),
            },
            codec,
            exit: ended.exit,
            elapsed_seconds: ended.elapsed.as_secs_f64(),
        }
    }

    /// What the run had at the most, be it before it was managed or since.
    fn most_bytes(&self) -> u64 {
        self.peak_bytes.max(self.peak_unmanaged_bytes)
    }

    /// What to say where the run had more than a budget may be exceeded by: 2 % or 4 MiB, whichever is more.
    fn excess(&self) -> Option<String> {
        let peak_bytes = self.most_bytes();
        let budget_bytes = self.highest_budget_bytes;
        let is_excess = peak_bytes > budget_bytes + (budget_bytes / 50).max(EXCESS_BYTES_MIN);
        is_excess.then(|| {
            format!(
                "the budget was exceeded: the run had {} at the most, {} of that zpager's own, which stays \
                 in RAM and grows with processes, threads and pages that lie far apart: raise --memory",
                size::display(peak_bytes),
                size::display(self.peak_metadata_bytes),
            )
        })
    }

    /// The run in one line.
    fn summary(&self, budget: &Budget) -> String {
        let seconds = self.elapsed_seconds;
        let budget = match &budget.source {
            Source::Asked => size::display(budget.bytes),
            chosen => {
                let differing = |bytes: u64, which: &str| match bytes == budget.bytes {
                    true => String::new(),
                    false => format!(", {} at the {which}", size::display(bytes)),
                };
                let lowest = differing(self.lowest_budget_bytes, "least");
                let highest = differing(self.highest_budget_bytes, "most");
                let start = size::display(budget.bytes);
                format!("{start}{lowest}{highest} ({chosen}, less a reserve)")
            }
        };
        let shared = match self.peak_shared_bytes {
            0 => String::new(),
            bytes => format!("; {} of shared memory besides", size::display(bytes)),
        };
        if self.managed_processes == 0 {
            let peak = size::display(self.peak_unmanaged_bytes);
            return format!("{seconds:.1} s, never managed: peak about {peak} of {budget}{shared}");
        }
        let ratio = match self.compressed_bytes {
            0 => String::new(),
            bytes => format!("; ratio {:.1}", self.original_bytes as f64 / bytes as f64),
        };
        format!(
            "{seconds:.1} s, peak {} of {budget}; {} pages out, {} in{ratio}; {} spilled{shared}",
            size::display(self.most_bytes()),
            self.swapped_out_pages,
            self.swapped_in_pages,
            size::display(self.store.written_bytes),
        )
    }
}

/// How many times its own length a file holds in pages; 0 without one.
fn capacity_gain(pages: u64, file_bytes: u64) -> f64 {
    match file_bytes {
        0 => 0.0,
        bytes => (pages * BLOCK_BYTES as u64) as f64 / bytes as f64,
    }
}

/// Prints the summary and writes the file of statistics. The program has ended, and its status counts:
/// what could not be written is told.
pub(crate) fn finish(
    session: &Session,
    configuration: &Configuration,
    ended: &Ended,
    notices: &mut Notices,
) {
    let codec = configuration.design.codec().name();
    let remotes: Vec<_> = session.remotes().map(RemoteStore::counts).collect();
    let statistics = Statistics::gather(&session.control, &remotes, &session.budget, codec, ended);
    let is_told = session.control.events.get(EventKind::BudgetExceeded).count.load(Relaxed) > 0;
    if let (false, Some(excess)) = (is_told, statistics.excess()) {
        notices.warn(&excess);
    }
    if !configuration.quiet {
        stderr::tell(statistics.summary(&session.budget));
    }
    if let Some(file) = &configuration.stats {
        let text = serde_json::to_string_pretty(&statistics).expect("plain values") + "\n";
        if let Err(failure) = result_file::write("--stats", file, &text) {
            notices.error(&failure.message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zpager_wire::Settings;

    fn statistics(exit: Exit, managed_processes: u64) -> Statistics {
        let asked = budget(Source::Asked);
        // SAFETY: settings are numbers only.
        let settings: Settings = unsafe { std::mem::zeroed() };
        let control = Box::new(Control::new(settings));
        control.counters.managed_processes.store(managed_processes, Relaxed);
        control.counters.original_bytes.store(300, Relaxed);
        control.counters.compressed_bytes.store(100, Relaxed);
        control.usage.peak_bytes.store(96 << 20, Relaxed);
        let mut pool = PoolSeen::default();
        for (held_bytes, payload_bytes) in [(4096, 4000), (40960, 40000), (8192, 1)] {
            control.usage.pool_bytes.store(held_bytes, Relaxed);
            control.usage.payload_bytes.store(payload_bytes, Relaxed);
            pool.look(&control.usage);
        }
        let elapsed = Duration::from_millis(3200);
        let ended = Ended {
            exit,
            elapsed,
            peak_unmanaged_bytes: 5 << 20,
            peak_shared_bytes: 0,
            expected_read_ns: 0,
            budget_range_bytes: asked.bytes..=asked.bytes,
            pool,
        };
        Statistics::gather(&control, &[], &asked, "lz4", &ended)
    }

    fn budget(source: Source) -> Budget {
        Budget { bytes: 96 << 20, most_bytes: 96 << 20, reserve_bytes: 0, source }
    }

    #[test]
    fn every_key_is_documented() {
        const DOCUMENTED: &str = include_str!("../../../../docs/statistics.md");
        let value = serde_json::to_value(statistics(Exit::Code(0), 1)).expect("JSON");
        for (key, value) in value.as_object().expect("an object") {
            match value.as_object().filter(|_| key != "exit") {
                None => assert!(DOCUMENTED.contains(&format!("| `{key}` |")), "{key}"),
                Some(inner) => {
                    for name in inner.keys() {
                        let whole = format!("{key}.{name}");
                        assert!(DOCUMENTED.contains(&format!("| `{whole}` |")), "{whole}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_end_is_told_apart() {
        let exit = |exit| serde_json::to_value(statistics(exit, 1)).expect("JSON")["exit"].clone();
        assert_eq!(exit(Exit::Code(3)), serde_json::json!({"code": 3}));
        assert_eq!(exit(Exit::Signal(9)), serde_json::json!({"signal": 9}));
    }

    #[test]
    fn waste_is_that_of_the_largest_pool() {
        assert_eq!(statistics(Exit::Code(0), 1).waste_bytes, 960);
    }

    #[test]
    fn more_than_the_budget_is_told() {
        let with_peak = |peak_bytes| Statistics { peak_bytes, ..statistics(Exit::Code(0), 1) };
        assert_eq!(with_peak(100 << 20).excess(), None);
        let told = with_peak((100 << 20) + 1).excess().expect("told");
        assert!(told.contains("had 100.0 MiB at the most") && !told.contains('\n'), "{told}");
        let far = Statistics { peak_unmanaged_bytes: 1 << 30, ..statistics(Exit::Code(0), 0) };
        assert!(far.excess().expect("told").contains("1.0 GiB"));
        let risen = Statistics { highest_budget_bytes: 1 << 30, ..with_peak(100 << 20) };
        assert_eq!(risen.excess(), None);
    }

    #[test]
    fn the_summary_is_one_line() {
        let managed = statistics(Exit::Code(0), 1).summary(&budget(Source::Asked));
        let expected =
            "3.2 s, peak 96.0 MiB of 96.0 MiB; 0 pages out, 0 in; ratio 3.0; 0 bytes spilled";
        assert_eq!(managed, expected);
        let late = Statistics { peak_unmanaged_bytes: 97 << 20, ..statistics(Exit::Code(0), 1) };
        assert!(late.summary(&budget(Source::Asked)).contains(", peak 97.0 MiB of 96.0 MiB;"));
        let far = statistics(Exit::Code(0), 0).summary(&budget(Source::Machine));
        assert!(far.starts_with("3.2 s, never managed: peak about 5.0 MiB of 96.0 MiB"), "{far}");
        assert!(far.contains("available memory"), "{far}");
        let lower = Statistics {
            lowest_budget_bytes: 64 << 20,
            peak_shared_bytes: 32 << 20,
            ..statistics(Exit::Code(0), 1)
        };
        let told = lower.summary(&budget(Source::Machine));
        assert!(told.contains("96.0 MiB, 64.0 MiB at the least (the machine's"), "{told}");
        assert!(told.ends_with("; 32.0 MiB of shared memory besides"), "{told}");
        let higher = Statistics { highest_budget_bytes: 128 << 20, ..statistics(Exit::Code(0), 1) };
        let told = higher.summary(&budget(Source::Machine));
        assert!(told.contains("96.0 MiB, 128.0 MiB at the most (the machine's"), "{told}");
    }
}
