//! How many records one process holds of each cluster, where others can read it.
//!
//! A process that is killed, or becomes another program, gives nothing back. What it
//! has noted here somebody else can give back for it, once it is gone. The tables of
//! all processes lie behind the words of [`Clusters`] in the same file, one after
//! the other, with holes where nothing was noted.
//!
//! Invariant: a process notes at most what it has counted in the clusters: a record
//! more is counted first and noted then, a record less the other way round. Killed
//! between the two it leaves a reference behind that nobody gives back, never one
//! too few. So do a child between the fork and its first note, and the batch that
//! is being written.
//!
//! Bad for: nothing but address space, 4 bytes a cluster and process.

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, Release},
};

use crate::{Blocks, Clusters};

/// Tables begin at multiples of so many bytes.
const TABLE_ALIGN_BYTES: u64 = 4096;
/// Words before the clusters': one past the highest cluster that was ever noted.
const HEAD_WORDS: usize = 1;

/// One process's table.
#[derive(Debug, Clone, Copy)]
pub struct References<'a> {
    words: &'a [AtomicU32],
}

impl<'a> References<'a> {
    /// A table that notes nothing.
    pub const NONE: References<'static> = References { words: &[] };

    /// Where the table of process number `process` lies in the file of a store of `store_bytes`,
    /// and how long it is, in bytes.
    pub const fn place(store_bytes: u64, process: usize) -> (u64, usize) {
        let clusters_words = Clusters::words_for(store_bytes);
        let first =
            ((clusters_words * size_of::<AtomicU64>()) as u64).next_multiple_of(TABLE_ALIGN_BYTES);
        let bytes = ((HEAD_WORDS + clusters_words) as u64 * size_of::<AtomicU32>() as u64)
            .next_multiple_of(TABLE_ALIGN_BYTES);
        (first + process as u64 * bytes, bytes as usize)
    }

    /// The table in `words`, zero at first.
    pub const fn new(words: &'a [AtomicU32]) -> Self {
        References { words }
    }

    /// The words.
    pub const fn words(&self) -> &'a [AtomicU32] {
        self.words
    }

    /// Whether anything can be noted.
    pub const fn is_there(&self) -> bool {
        !self.words.is_empty()
    }

    /// Notes how many records the process holds of a cluster.
    pub fn note(&self, cluster: u32, records: u32) {
        if let Some(word) = self.words.get(HEAD_WORDS + cluster as usize) {
            // The process alone writes here, as long as it lives.
            if self.words[0].load(Relaxed) <= cluster {
                self.words[0].store(cluster + 1, Relaxed);
            }
            // After what was counted before, and before what will be.
            word.store(records, Release);
        }
    }

    /// Counts all that is noted one reference less for each record, in the name of a process that
    /// is gone or uses none any more; nothing is noted afterwards.
    pub fn give_back(&self, clusters: Clusters<'_>, blocks: &impl Blocks) {
        self.take_all(|cluster, records| {
            clusters.drop_references(cluster, records, blocks);
        });
    }

    /// Notes nothing any more, and leaves the references as they are.
    pub fn forget(&self) {
        self.take_all(|_, _| {});
    }

    fn take_all(&self, mut take: impl FnMut(u32, u32)) {
        let Some((end, words)) = self.words.split_first() else { return };
        let end = end.swap(0, Relaxed);
        for (cluster, word) in (0..end).zip(words) {
            let records = word.swap(0, Release);
            if records > 0 {
                take(cluster, records);
            }
        }
    }
}
