//! The statistics that `zpager run --stats FILE` writes, as far as tests look at them.

use serde::Deserialize;

/// Bytes that `peak_bytes` may always lie above the budget.
const SLACK_BYTES: u64 = 4 << 20;

/// One run's statistics; the keys are documented for users in `docs/statistics.md`.
#[derive(Debug, Clone, Deserialize)]
pub struct Stats {
    /// What was asked for.
    pub budget_bytes: u64,
    /// The least that it was.
    pub lowest_budget_bytes: u64,
    /// The most that it was.
    pub highest_budget_bytes: u64,
    /// Highest sum of managed resident pages, pool and metadata.
    pub peak_bytes: u64,
    /// The most shared memory that was seen, where it was much.
    pub peak_shared_bytes: u64,
    /// Highest sum of managed resident pages.
    pub peak_resident_bytes: u64,
    /// Highest size of the pool.
    pub peak_pool_bytes: u64,
    /// Highest size of zpager's own data.
    pub peak_metadata_bytes: u64,
    /// Managed address space.
    pub managed_bytes: u64,
    /// Pages lifted out of the program.
    pub swapped_out_pages: u64,
    /// Pages brought back.
    pub swapped_in_pages: u64,
    /// Pages brought in before they were asked for.
    pub prefetched_pages: u64,
    /// Pages found same-filled.
    pub same_filled_pages: u64,
    /// Pages that no codec made smaller.
    pub incompressible_pages: u64,
    /// Pages that the denser codec made smaller.
    pub dense_pages: u64,
    /// Pages that the second codec made smaller.
    pub repeats_pages: u64,
    /// Pages that left RAM for the store and were written there.
    pub spilled_pages: u64,
    /// Faults by what served them.
    pub faults: Faults,
    /// System calls seen.
    pub dispatched_calls: u64,
    /// What the compressed pages became.
    pub compressed_bytes: u64,
    /// Bytes of the pages that were compressed.
    pub original_bytes: u64,
    /// What the swap file did.
    pub store: StoreStats,
    /// The codec's name.
    pub codec: String,
    /// How long the program ran.
    pub elapsed_seconds: f64,
}

/// Faults by what served them.
#[derive(Debug, Clone, Deserialize)]
pub struct Faults {
    /// A page never written before.
    pub fresh: u64,
    /// From RAM.
    pub compressed: u64,
    /// From the store.
    pub spilled: u64,
    /// A page that was in the store as it was, and is written.
    pub clean: u64,
}

/// What the swap file did.
#[derive(Debug, Clone, Deserialize)]
pub struct StoreStats {
    /// Lengths of the pages that left for it.
    pub page_bytes: u64,
    /// Those of them that were compressed once more when they left.
    pub recompressed_pages: u64,
    /// What that saved.
    pub recompressed_saved_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Reads.
    pub reads: u64,
    /// Reads that pointers foretold.
    pub foretold_reads: u64,
    /// Those whose page was wanted.
    pub foretold_used_reads: u64,
    /// Pages that left as they were in the store already.
    pub clean_drops: u64,
    /// Pages written before their RAM was needed.
    pub ahead_pages: u64,
    /// Pages that came back from RAM after that.
    pub ahead_returned_pages: u64,
    /// Highest length of the file.
    pub file_bytes: u64,
    /// Pages in the file at its fullest, as bytes, over its length.
    pub capacity_gain: f64,
    /// What a read was expected to take before there was one, in nanoseconds.
    pub expected_read_ns: u64,
    /// Clusters that a server took.
    pub remote_writes: u64,
    /// Their bytes.
    pub remote_written_bytes: u64,
    /// Parts of clusters that it gave.
    pub remote_reads: u64,
    /// Most bytes that it held.
    pub remote_peak_bytes: u64,
    /// Requests that it refused or did not answer.
    pub remote_failures: u64,
    /// Clusters that it has lost.
    pub remote_lost_clusters: u64,
}

impl Stats {
    /// Faults of every kind.
    pub fn all_faults(&self) -> u64 {
        self.faults.fresh + self.faults.compressed + self.faults.spilled
    }

    /// Whether pages went out and came back: the program was under pressure and managed.
    pub fn is_pressed(&self) -> bool {
        self.swapped_out_pages > 0 && self.swapped_in_pages > 0 && self.all_faults() > 0
    }

    /// The most that `peak_bytes` may be: the budget and 2 % or 4 MiB, whichever is more.
    pub fn peak_limit_bytes(&self) -> u64 {
        self.highest_budget_bytes + (self.highest_budget_bytes / 50).max(SLACK_BYTES)
    }

    /// Whether the budget was held.
    pub fn is_within_budget(&self) -> bool {
        self.peak_bytes <= self.peak_limit_bytes()
    }
}
