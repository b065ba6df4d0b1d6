//! Several stores in a row, which are one to all who use them.
//!
//! Source: swapon(8): areas with priorities, of which the next is used when one is full. The
//! clusters of the first store have the first numbers, and so on; the lowest free cluster is
//! claimed, which lies in the first store that has room ([`Clusters::claim`]).
//!
//! A cluster whose write fails keeps its number, which its records are known by, and is written to
//! a spare cluster of another store; [`Clusters`] remembers where it went. So nobody has to find and
//! change the records, and processes that share them since a fork need not agree on anything.
//!
//! Invariants: a store whose write failed gets no other one while there is room elsewhere, but
//! serves reads. A cluster moves once all of it is in the spare one, so that a relative that has
//! the same records and reads them meanwhile finds them in either place. A spare cluster has one
//! reference, that of the cluster which moved there, and is free when that is.
//!
//! Bad for: a store that fails when it is nearly empty: its numbers stay in use for spare clusters
//! elsewhere, each of which then takes a number of two stores and is written while the program waits.

use core::cell::Cell;
use core::ops::Range;

use crate::{Blocks, CLUSTER_BYTES, Clusters, Errno, FilePlace};

/// Stores in a row, at most.
pub const STORES_MAX: usize = 8;

/// Stores one after the other.
#[derive(Debug)]
pub struct Stores<'a, B> {
    row: [Option<Part<B>>; STORES_MAX],
    clusters: Clusters<'a>,
    /// One bit for each whose last write failed.
    failed: Cell<u32>,
    /// A failure that nobody was told of so far.
    untold: Cell<Option<(usize, Errno)>>,
    /// Which has the write that goes on, if one does.
    writing: Cell<usize>,
    /// Why one that went on was not written, until it is written elsewhere.
    unsettled: Cell<Option<(usize, Errno)>>,
}

/// One of them.
#[derive(Debug)]
struct Part<B> {
    clusters: Range<u32>,
    blocks: B,
}

/// Whole clusters in a store of `limit_bytes`, in bytes.
const fn whole_bytes(limit_bytes: u64) -> u64 {
    limit_bytes / CLUSTER_BYTES as u64 * CLUSTER_BYTES as u64
}

/// How long a row of stores with these limits is, in bytes: what [`Clusters::words_for`] wants.
pub fn row_bytes(limits_bytes: impl IntoIterator<Item = u64>) -> u64 {
    limits_bytes.into_iter().map(whole_bytes).sum()
}

impl<'a, B> Stores<'a, B> {
    /// `stores`, at most [`STORES_MAX`], each with its limit in bytes, the one to be filled first
    /// before the others. `clusters` are those of the whole row ([`row_bytes`]).
    pub fn new(clusters: Clusters<'a>, stores: impl IntoIterator<Item = (u64, B)>) -> Self {
        let mut row = [const { None }; STORES_MAX];
        let mut first = 0;
        for (part, (limit_bytes, blocks)) in row.iter_mut().zip(stores) {
            let end = first + (limit_bytes / CLUSTER_BYTES as u64) as u32;
            *part = Some(Part { clusters: first..end, blocks });
            first = end;
        }
        debug_assert!(first as usize <= clusters.total_clusters());
        let (failed, untold, writing) = (Cell::new(0), Cell::new(None), Cell::new(0));
        Stores { row, clusters, failed, untold, writing, unsettled: Cell::new(None) }
    }

    /// The clusters of the whole row.
    pub fn clusters(&self) -> Clusters<'a> {
        self.clusters
    }

    /// What lies behind each store.
    pub fn blocks(&self) -> impl Iterator<Item = &B> {
        self.row.iter().flatten().map(|part| &part.blocks)
    }

    /// The store that failed, and why, where another one took over and this was not asked since.
    pub fn take_failure(&self) -> Option<(usize, Errno)> {
        self.untold.take()
    }

    /// The store that has an offset of the row at present, and where.
    pub fn find(&self, offset_bytes: u64) -> Option<(&B, u64)> {
        self.locate(offset_bytes).map(|(_, part, at)| (&part.blocks, at))
    }

    fn has_failed(&self, store: usize) -> bool {
        self.failed.get() & (1 << store) != 0
    }

    /// The store in which an offset of the row lies at present, and where there.
    fn locate(&self, offset_bytes: u64) -> Option<(usize, &Part<B>, u64)> {
        let cluster = (offset_bytes / CLUSTER_BYTES as u64) as u32;
        let cluster = self.clusters.moved(cluster).unwrap_or(cluster);
        let mut parts = self.row.iter().flatten().enumerate();
        let (store, part) = parts.find(|(_, part)| part.clusters.contains(&cluster))?;
        Some((store, part, part.offset_bytes(cluster) + offset_bytes % CLUSTER_BYTES as u64))
    }
}

impl<B> Part<B> {
    fn offset_bytes(&self, cluster: u32) -> u64 {
        u64::from(cluster - self.clusters.start) * CLUSTER_BYTES as u64
    }
}

const EIO: Errno = Errno(5);

impl<B: Blocks> Stores<'_, B> {
    /// Has `write` write what belongs to an offset of the row where it lies at present.
    ///
    /// # Errors
    /// The store, and why it failed; nothing where it had failed before and was not tried.
    fn write_here<T>(
        &self,
        offset_bytes: u64,
        write: impl FnOnce(&B, u64) -> Result<T, Errno>,
    ) -> Result<T, Option<(usize, Errno)>> {
        let Some((store, part, at)) = self.locate(offset_bytes) else { return Err(None) };
        if self.has_failed(store) {
            return Err(None);
        }
        self.writing.set(store);
        let written = write(&part.blocks, at).map_err(|errno| Some((store, errno)));
        self.note(store, written.is_ok());
        written
    }

    /// Writes what belongs to an offset of the row, the start of a cluster, to a spare cluster.
    fn write_elsewhere(
        &self,
        offset_bytes: u64,
        data: &[u8],
        mut failure: Option<(usize, Errno)>,
    ) -> Result<(), Errno> {
        let cluster = (offset_bytes / CLUSTER_BYTES as u64) as u32;
        let before = self.clusters.moved(cluster);
        let unsettled = self.unsettled.take();
        let is_unsettled = failure.is_none() && unsettled.is_some();
        failure = failure.or(unsettled);
        for (store, part) in self.row.iter().flatten().enumerate() {
            if self.has_failed(store) {
                continue;
            }
            let Some(spare) = self.clusters.claim_in(part.clusters.clone()) else { continue };
            let at = part.offset_bytes(spare);
            let written = part.blocks.write_at(at, data);
            self.note(store, written.is_ok());
            if let Err(errno) = written {
                // What was written of it may be what fills the disk.
                part.blocks.punch(at, CLUSTER_BYTES as u64);
                self.clusters.release(spare);
                failure.get_or_insert((store, errno));
                continue;
            }
            self.clusters.publish(spare, 1);
            if !self.clusters.move_to(cluster, before, spare) {
                // A relative has moved it, which has the same records.
                self.clusters.drop_reference(spare, self);
            }
            self.untold.set(failure.or(self.untold.get()));
            return Ok(());
        }
        if let Some((_, errno)) = failure.filter(|_| !is_unsettled) {
            return Err(errno);
        }
        // Nobody else has room: the store it belongs to may have come to itself.
        let (store, part, at) = self.locate(offset_bytes).ok_or(EIO)?;
        let written = part.blocks.write_at(at, data);
        self.note(store, written.is_ok());
        written
    }

    /// Remembers how a store's last write went.
    fn note(&self, store: usize, is_well: bool) {
        let others = self.failed.get() & !(1 << store);
        self.failed.set(others | u32::from(!is_well) << store);
    }
}

impl<B: Blocks> Blocks for Stores<'_, B> {
    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> Result<(), Errno> {
        self.write_here(offset_bytes, |blocks, at| blocks.write_at(at, data))
            .or_else(|failure| self.write_elsewhere(offset_bytes, data, failure))
    }

    unsafe fn begin_write(&self, offset_bytes: u64, data: &[u8]) -> Result<bool, Errno> {
        let begun = self.write_here(offset_bytes, |blocks, at| {
            // SAFETY: the caller's promise.
            unsafe { blocks.begin_write(at, data) }
        });
        begun.or_else(|failure| self.write_elsewhere(offset_bytes, data, failure).map(|()| false))
    }

    fn settle(&self) -> Result<(), Errno> {
        let store = self.writing.get();
        let settled = self.row[store].as_ref().map_or(Ok(()), |part| part.blocks.settle());
        settled.inspect_err(|&errno| {
            // Another one is to have it, and not who takes as long to refuse it once more.
            self.note(store, false);
            self.unsettled.set(Some((store, errno)));
        })
    }

    fn is_writing(&self) -> bool {
        self.row[self.writing.get()].as_ref().is_some_and(|part| part.blocks.is_writing())
    }

    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        let (_, part, at) = self.locate(offset_bytes).ok_or(EIO)?;
        part.blocks.read_at(at, data)
    }

    fn file_place(&self, offset_bytes: u64) -> Option<FilePlace> {
        let (blocks, at) = self.find(offset_bytes)?;
        blocks.file_place(at)
    }

    fn read_copy_at(&self, copy: u32, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        let (_, part, at) = self.locate(offset_bytes).ok_or(EIO)?;
        part.blocks.read_copy_at(copy, at, data)
    }

    fn punch(&self, offset_bytes: u64, bytes: u64) {
        if bytes <= CLUSTER_BYTES as u64 {
            if let Some((_, part, at)) = self.locate(offset_bytes) {
                part.blocks.punch(at, bytes);
            }
            return;
        }
        // Free ones, which lie where they belong.
        let first = (offset_bytes / CLUSTER_BYTES as u64) as u32;
        let end = first + (bytes / CLUSTER_BYTES as u64) as u32;
        for part in self.row.iter().flatten() {
            let (first, end) = (first.max(part.clusters.start), end.min(part.clusters.end));
            if first < end {
                let bytes = u64::from(end - first) * CLUSTER_BYTES as u64;
                part.blocks.punch(part.offset_bytes(first), bytes);
            }
        }
    }
}
