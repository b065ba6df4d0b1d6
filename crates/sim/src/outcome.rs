//! What a replay came to.

use crate::cost::Ledger;
use crate::disk::Traffic;

/// Counts of one design at one budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// References in the trace.
    pub references: u64,
    /// Those to pages that were resident.
    pub resident_hits: u64,
    /// Those to pages that came out of RAM: compressed or same-filled.
    pub compressed_hits: u64,
    /// Those for which the store was read.
    pub spilled_faults: u64,
    /// Those to pages of which nothing was known: they came as zeros.
    pub fresh_faults: u64,
    /// Reads from the store, and their bytes.
    pub store_reads: u64,
    /// See `store_reads`.
    pub store_read_bytes: u64,
    /// Writes to the store, and their bytes.
    pub store_writes: u64,
    /// See `store_writes`.
    pub store_written_bytes: u64,
    /// Pages that left resident memory.
    pub swapped_out_pages: u64,
    /// Pages that came back, also ahead of their use.
    pub swapped_in_pages: u64,
    /// Pages swapped out of which all words were equal.
    pub same_filled_pages: u64,
    /// Pages swapped out that did not shrink enough.
    pub incompressible_pages: u64,
    /// The highest sum of resident pages, pool and metadata.
    pub peak_bytes: u64,
    /// Modelled time.
    pub ledger: Ledger,
}

impl Outcome {
    /// The same with what went over the disk.
    pub(crate) fn with(self, traffic: Traffic) -> Outcome {
        Outcome {
            store_reads: traffic.reads,
            store_read_bytes: traffic.read_bytes,
            store_writes: traffic.writes,
            store_written_bytes: traffic.written_bytes,
            ledger: Ledger { store_ns: traffic.waited_ns, ..self.ledger },
            ..self
        }
    }
}
