//! Reading from the store beside others, who neither wait for that nor hold it up.
//!
//! Who wants blocks that are in the store sees under the lock what would be read for them, has that read
//! without the lock, and then looks at the blocks as if it had just come ([`zpager_store::Early`]): as a rule
//! all that a request wants, beside other requests of its connection ([`crate::reads`]), and what that left
//! one after the other into the pages of the worker. Blocks of a request that lie one behind the other come
//! with one read.
//!
//! Bad case: blocks that are written or trimmed meanwhile; what was read is of no use then.

use std::ops::Range;

use zpager_cache::State;
use zpager_pool::SpaceSource;
use zpager_store::{Blocks, Early};

use super::Shared;
use crate::moment::Moment;
use crate::reads::{Made, MadeRead, Plan, Wanted, read_at_once};
use crate::target::Refused;
use crate::worker::{PIECE_BYTES, Worker};

/// Blocks of a request that are looked at for what is to be read: some pieces.
pub(super) const PLANNED_BLOCKS_MAX: u64 = 64;

/// Makes a read into the worker's pages, where it stays until the next one. Where it fails it is as if it had
/// not been made: the block's own read then says why.
pub(super) fn read_now(wanted: Wanted, worker: &mut Worker) -> Option<MadeRead<'static>> {
    let began = Moment::now();
    let buffer = &mut worker.bytes_mut()[..wanted.early.bytes()];
    let is_whole = read_at_once(wanted.place, buffer);
    // SAFETY: the worker's pages outlive whoever reads a piece into it, and until the next read nobody writes
    // to them: looking at a block changes what the worker has of it, and no page.
    let data = unsafe { std::slice::from_raw_parts(buffer.as_ptr(), buffer.len()) };
    let (disk_ns, cpu_ns) = began.elapsed_ns();
    is_whole.then_some(MadeRead { early: wanted.early, data, disk_ns, cpu_ns })
}

impl<M: SpaceSource + Copy, B: Blocks> Shared<M, B> {
    /// What is to be read for blocks besides what was made.
    pub(super) fn plan(&self, blocks: Range<u64>, made: &Made<'_>) -> Plan {
        let mut plan = Plan::default();
        let mut block = blocks.start;
        let cache = &self.engine.cache;
        while block < blocks.end && !plan.is_full() && !made.is_full() {
            let planned = |early: &Early| {
                plan.iter().any(|wanted| wanted.early.contains(early))
                    || made.iter().any(|read| read.early.contains(early))
            };
            let most = (blocks.end - block) as usize;
            let spilled = matches!(cache.index.get(block).state(), State::Spilled { .. });
            let early = spilled.then(|| cache.plan_wide(block, most, PIECE_BYTES)).flatten();
            block += early.map_or(1, |early| early.records() as u64);
            if let Some(early) = early.filter(|early| !planned(early))
                && let Some(wanted) = self.locate(early)
            {
                plan.push(wanted);
            }
        }
        plan
    }

    fn locate(&self, early: Early) -> Option<Wanted> {
        let place = self.engine.cache.store_blocks()?.file_place(early.offset_bytes())?;
        Some(Wanted { early, place })
    }

    /// The read that looking at `block` and at most `most` in all begins with, if it begins with one that
    /// is not of many others, too.
    pub(super) fn plan_read(&self, block: u64, most: usize) -> Option<Wanted> {
        let state = self.engine.cache.index.get(block).state();
        if !matches!(state, State::Spilled { .. }) {
            return None;
        }
        self.locate(self.engine.cache.plan_read(block, most, PIECE_BYTES)?)
    }

    /// Of reads that were made the one that has a block, if that is in the store.
    pub(super) fn find_read<'a, 'b: 'a>(
        &self,
        mut reads: impl Iterator<Item = &'a MadeRead<'b>>,
        block: u64,
    ) -> Option<MadeRead<'b>> {
        let State::Spilled { place, .. } = self.engine.cache.index.get(block).state() else {
            return None;
        };
        let clusters = self.engine.cache.clusters()?;
        reads.find(|read| read.early.covers(clusters, place)).copied()
    }

    /// Counts a read that was made.
    pub(super) fn note_made(&mut self, read: &MadeRead<'_>) {
        self.counters.store_reads += 1;
        self.counters.store_read_bytes += read.early.bytes() as u64;
        self.note_read(read.disk_ns, read.cpu_ns);
        self.engine.cache.note_wide(&read.early);
    }

    /// Looks at a block that a read has.
    pub(super) fn look_at_read(
        &mut self,
        worker: &mut Worker,
        at: usize,
        block: u64,
        read: &MadeRead<'_>,
    ) -> Result<(), Refused> {
        // SAFETY: the bytes are borrowed until after `end_read` below.
        let data = unsafe { std::slice::from_raw_parts(read.data.as_ptr(), read.data.len()) };
        self.engine.cache.begin_wide(read.early, data);
        let before = self.counters;
        let looked = self.look(worker, at, block);
        if self.engine.cache.end_read() {
            // It was counted when it was made.
            self.counters.store_reads = before.store_reads;
            self.counters.store_read_bytes = before.store_read_bytes;
        }
        looked
    }
}
