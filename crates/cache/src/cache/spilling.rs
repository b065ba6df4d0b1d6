//! The way to the store: what leaves the pool, in clusters, before its RAM is needed or when it is.
//!
//! Source: cervera (1999), 3 (many pages a write); castro (2003), 2.3 (order of leaving).
//!
//! Invariant: what the store does not take stays in RAM. After it was full, or failed, it is left alone for
//! a while.

use zpager_codec::PAGE_BYTES;
use zpager_pool::{Pool, SpaceSource};
use zpager_store::{Batch, Blocks, Place};

use super::shelf::Shelf;
use super::{Cache, SpillError};
use crate::coder::Coder;

/// Spills not even tried after the store was found full, as looking for room costs a walk.
const FULL_PAUSE: u32 = 256;
/// The same after a write failed, at first; twice as many after each further failure, up to a bound.
const FAILURE_PAUSE: u32 = 64;
const FAILURE_PAUSE_MAX: u32 = 1 << 16;

/// Spills that are not tried, because one failed.
#[derive(Debug)]
pub(super) struct Pause {
    pub(super) left: u32,
    /// How long the pause after the next failed write is.
    after_failure: u32,
    /// Why.
    pub(super) error: SpillError,
}

impl Pause {
    pub(super) const NONE: Pause =
        Pause { left: 0, after_failure: FAILURE_PAUSE, error: SpillError::Nothing };

    pub(super) fn is_of_full_store(&self) -> bool {
        self.left > 0 && self.error == SpillError::Full
    }

    pub(super) fn begin(&mut self, error: SpillError) {
        self.error = error;
        self.left = FULL_PAUSE;
        if let SpillError::Io(_) = error {
            self.left = self.after_failure;
            self.after_failure = (self.after_failure * 2).min(FAILURE_PAUSE_MAX);
        }
    }
}

impl<M: SpaceSource + Copy, B: Blocks, C: Coder> Cache<M, B, C> {
    /// Adds a record to what leaves for the store, which is full when it has no clean copies either.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Place, SpillError> {
        if !self.writer.fits(bytes.len()) {
            self.finish_timed()?;
        }
        let store = self.store.as_ref().ok_or(SpillError::NoStore)?;
        let pushed = self.writer.push(store, bytes);
        if pushed != Err(SpillError::Full) || !self.give_up_copies() {
            return pushed;
        }
        let store = self.store.as_ref().ok_or(SpillError::NoStore)?;
        self.writer.push(store, bytes)
    }

    /// The batch that is filled; `None` where the store is full and has no clean copies either.
    pub(super) fn open_batch(&mut self) -> Option<Batch> {
        let opened = self.writer.open(self.store.as_ref()?);
        if opened.is_some() || !self.give_up_copies() {
            return opened;
        }
        self.writer.open(self.store.as_ref()?)
    }

    /// After an error: nothing is tried for a while, and relatives are told of a full store.
    pub(super) fn begin_pause(&mut self, error: SpillError) {
        self.pause.begin(error);
        if let (SpillError::Full, Some(store)) = (error, &self.store) {
            store.clusters.want();
        }
    }

    /// Has pages of the pool whose turn it is leave for the store, until a cluster is full and is
    /// written; gives how many.
    ///
    /// # Errors
    /// [`SpillError`].
    pub fn spill(&mut self) -> Result<usize, SpillError> {
        if self.store.is_none() {
            return Err(SpillError::NoStore);
        }
        if self.pause.left > 0 {
            self.pause.left -= 1;
            return Err(self.pause.error);
        }
        if self.pool.payload_bytes() < self.rules.write_bytes_min {
            return Err(SpillError::Nothing);
        }
        self.decide_recompression();
        if !self.writer.fits(PAGE_BYTES) {
            self.finish_batch()?;
        } else if self.is_virtual_store_full() {
            self.pause.begin(SpillError::Full);
            return Err(SpillError::Full);
        }
        if self.open_batch().is_none() {
            self.begin_pause(SpillError::Full);
            return Err(SpillError::Full);
        }
        let gathered = self.gather_leaving().inspect_err(|_| self.end_cleaning())?;
        if self.writer.open_bytes() >= self.rules.write_bytes_min {
            self.finish_batch().inspect_err(|_| self.end_cleaning())?;
        }
        self.compact_if_due();
        if gathered > 0 { Ok(gathered) } else { Err(SpillError::Nothing) }
    }

    /// [`Cache::spill`] before RAM is needed: what is written stays there until [`Cache::unshelve`]
    /// makes room. Waits for no write that goes on.
    ///
    /// # Errors
    /// As [`Cache::spill`]; [`SpillError::Nothing`] also where not [`Cache::can_spill_ahead`].
    pub fn spill_ahead(&mut self) -> Result<usize, SpillError> {
        if !self.can_spill_ahead() {
            return Err(SpillError::Nothing);
        }
        self.shelves = true;
        let spilled = self.spill();
        self.shelves = false;
        spilled
    }

    /// Whether the design writes ahead, and nothing speaks against a write now.
    pub fn can_spill_ahead(&self) -> bool {
        self.shelf.is_some() && self.pause.left == 0 && !self.is_writing()
    }

    /// Whether a write goes on that the next one would wait for.
    pub fn is_writing(&self) -> bool {
        self.store.as_ref().is_some_and(|store| self.writer.is_writing(store))
    }

    /// Has the oldest cluster that is in the store and in RAM be in the store alone; how many bytes
    /// that gives.
    pub fn unshelve(&mut self) -> usize {
        self.shelf.as_mut().map_or(0, Shelf::forget_oldest)
    }

    /// Writes the open batch.
    pub(super) fn finish_batch(&mut self) -> Result<(), SpillError> {
        self.finish_timed().inspect_err(|&error| self.pause.begin(error))?;
        self.pause = Pause::NONE;
        Ok(())
    }

    /// Has everything that left for the store be there.
    ///
    /// # Errors
    /// [`SpillError::Io`]; what is not there stays in RAM, and nothing is lost.
    pub fn flush(&mut self) -> Result<(), SpillError> {
        let Some(store) = &self.store else { return Ok(()) };
        // One of which all records were freed meanwhile is room once it is written.
        let makes_room = self.writer.unwritten().any(|cluster| self.held.records(cluster) == 0);
        let flushed = self.writer.flush(store).map_err(SpillError::Io);
        if makes_room && flushed.is_ok() && self.pause.is_of_full_store() {
            self.pause.left = 0;
        }
        flushed.inspect_err(|&error| self.pause.begin(error))
    }

    /// The clusters that are on their way to the store; each has a reference more than its records.
    pub fn unwritten_clusters(&self) -> impl Iterator<Item = u32> {
        self.writer.unwritten()
    }
}
