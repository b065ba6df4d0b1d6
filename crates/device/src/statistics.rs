//! What a device holds and has done: as JSON over the control socket, as a table and as Prometheus'
//! text for people and their tools.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// What it has done since it was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the table below says what each is")]
pub struct Counters {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub trims: u64,
    pub freed_blocks: u64,
    pub flushes: u64,
    pub read_errors: u64,
    pub write_errors: u64,
    pub hits: u64,
    pub released_blocks: u64,
    pub dropped_blocks: u64,
    pub spilled_reads: u64,
    pub promoted_blocks: u64,
    pub dense_blocks: u64,
    pub store_reads: u64,
    pub store_read_bytes: u64,
    pub store_writes: u64,
    pub store_written_bytes: u64,
    pub store_end_bytes: u64,
    pub store_errors: u64,
    pub store_full: u64,
    pub throttled_writes: u64,
}

/// What it holds, and what it has done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the table below says what each is")]
pub struct Status {
    pub size_bytes: u64,
    pub memory_bytes: u64,
    pub held_bytes: u64,
    pub pool_bytes: u64,
    pub kept_bytes: u64,
    pub given_bytes: u64,
    pub payload_bytes: u64,
    pub blocks: u64,
    pub pooled_blocks: u64,
    pub incompressible_blocks: u64,
    pub spilled_blocks: u64,
    pub same_filled_blocks: u64,
    pub has_store: bool,
    pub threshold_percent: u64,
    pub compresses_clean: bool,
    pub is_dense: bool,
    pub free_bytes: u64,
    pub is_short: bool,
    pub connections: u64,
    pub codec: String,
    pub counters: Counters,
}

/// A figure: its name, whether it only grows, what it is.
type Row = (&'static str, bool, &'static str, u64);

impl Status {
    /// Every figure.
    pub fn rows(&self) -> Vec<Row> {
        let Counters { reads, read_bytes, writes, written_bytes, trims, .. } = self.counters;
        let counters = &self.counters;
        vec![
            ("size_bytes", false, "size of the device", self.size_bytes),
            (
                "memory_bytes",
                false,
                "what pool, metadata and connections may take",
                self.memory_bytes,
            ),
            ("held_bytes", false, "what they take", self.held_bytes),
            ("pool_bytes", false, "RAM that the pool is in need of", self.pool_bytes),
            ("kept_bytes", false, "RAM that the pool has, some of it ahead", self.kept_bytes),
            ("given_bytes", false, "RAM that it leaves to programs", self.given_bytes),
            ("payload_bytes", false, "compressed blocks in it", self.payload_bytes),
            ("blocks", false, "blocks of 4096 bytes that are not zero", self.blocks),
            (
                "has_store",
                false,
                "whether blocks leave for a store when the memory is full",
                u64::from(self.has_store),
            ),
            (
                "threshold_percent",
                false,
                "of the memory in the pool, from which on they do",
                self.threshold_percent,
            ),
            ("pooled_blocks", false, "those in the pool", self.pooled_blocks),
            ("incompressible_blocks", false, "those there as they are", self.incompressible_blocks),
            ("spilled_blocks", false, "those in the store", self.spilled_blocks),
            ("same_filled_blocks", false, "those of one repeated word", self.same_filled_blocks),
            (
                "free_bytes",
                false,
                "what is left of memory and store for blocks that do not shrink",
                self.free_bytes,
            ),
            (
                "is_short",
                false,
                "whether that is so little that writes are delayed",
                u64::from(self.is_short),
            ),
            ("connections", false, "clients connected", self.connections),
            ("reads", true, "pieces of requests read, of 64 KiB at most", reads),
            ("read_bytes", true, "bytes read by clients", read_bytes),
            ("writes", true, "pieces of requests written, of 64 KiB at most", writes),
            ("written_bytes", true, "bytes written by clients", written_bytes),
            ("trims", true, "ranges trimmed or zeroed", trims),
            ("freed_blocks", true, "blocks that were freed so", counters.freed_blocks),
            ("flushes", true, "flushes", counters.flushes),
            ("read_errors", true, "blocks that could not be read", counters.read_errors),
            ("write_errors", true, "pieces that could not be kept", counters.write_errors),
            ("hits", true, "blocks read that a clean cache had", counters.hits),
            ("released_blocks", true, "blocks that left it", counters.released_blocks),
            ("dropped_blocks", true, "blocks it did not take", counters.dropped_blocks),
            (
                "compresses_clean",
                false,
                "whether it takes blocks at present",
                u64::from(self.compresses_clean),
            ),
            (
                "is_dense",
                false,
                "whether the denser codec compresses blocks at present",
                u64::from(self.is_dense),
            ),
            ("dense_blocks", true, "blocks written that it compressed", counters.dense_blocks),
            ("spilled_reads", true, "blocks read from the store", counters.spilled_reads),
            ("promoted_blocks", true, "those that went back to the pool", counters.promoted_blocks),
            ("store_reads", true, "reads from the store or disk", counters.store_reads),
            ("store_read_bytes", true, "bytes read from it", counters.store_read_bytes),
            ("store_writes", true, "writes to the store or disk", counters.store_writes),
            ("store_written_bytes", true, "bytes written to it", counters.store_written_bytes),
            ("store_end_bytes", false, "how far the store was used", counters.store_end_bytes),
            ("store_errors", true, "writes to it that failed", counters.store_errors),
            ("store_full", true, "writes for which the store was full", counters.store_full),
            (
                "throttled_writes",
                true,
                "pieces whose answer was delayed as space runs short",
                counters.throttled_writes,
            ),
        ]
    }

    /// Prometheus' text format, version 0.0.4.
    pub fn to_prometheus(&self) -> String {
        let mut text = String::new();
        for (name, is_counter, meaning, value) in self.rows() {
            let (kind, end) = if is_counter { ("counter", "_total") } else { ("gauge", "") };
            let name = format!("zpager_device_{name}{end}");
            let _ = writeln!(text, "# HELP {name} {meaning}\n# TYPE {name} {kind}\n{name} {value}");
        }
        text
    }
}
