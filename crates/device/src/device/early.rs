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
use zpager_policy::GiveWay;
use zpager_pool::SpaceSource;
use zpager_store::{Blocks, Early};

use super::Shared;
use crate::moment::Moment;
use crate::reads::{Made, MadeRead, Plan, Wanted, What, read_at_once};
use crate::target::Refused;
use crate::worker::{PIECE_BYTES, Worker};

/// A block from the pool counts as no more than this where it says how long a fast disk may take
/// ([`zpager_policy::Seeks`]): on a processor so slow that it takes longer, disks are no slower for that.
const POOL_NS_MAX: u64 = 100_000;

/// Makes a read into the worker's pages, where it stays until the next one. Where it fails it is as if it had
/// not been made: the block's own read then says why.
pub(super) fn read_now(wanted: Wanted, worker: &mut Worker) -> Option<MadeRead<'static>> {
    let began = Moment::now();
    let buffer = &mut worker.bytes_mut()[..wanted.what.bytes()];
    let is_whole = read_at_once(wanted.place, buffer);
    // SAFETY: the worker's pages outlive whoever reads a piece into it, and until the next read nobody writes
    // to them: looking at a block changes what the worker has of it, and no page.
    let data = unsafe { std::slice::from_raw_parts(buffer.as_ptr(), buffer.len()) };
    let (disk_ns, cpu_ns) = began.elapsed_ns();
    is_whole.then_some(MadeRead { what: wanted.what, data, disk_ns, cpu_ns })
}

impl<M: SpaceSource + Copy, B: Blocks> Shared<M, B> {
    /// What is to be read for blocks besides what was made.
    pub(super) fn plan(&self, blocks: Range<u64>, made: &Made<'_>) -> Plan {
        let mut plan = Plan::default();
        let mut block = blocks.start;
        let cache = &self.engine.cache;
        while block < blocks.end && !plan.is_full() && !made.is_full() {
            let is_planned = |what: &What| {
                plan.iter().any(|wanted| wanted.what.contains(what))
                    || made.iter().any(|read| read.what.contains(what))
            };
            let most = (blocks.end - block) as usize;
            let spilled = matches!(cache.index.get(block).state(), State::Spilled { .. });
            let early = spilled.then(|| cache.plan_wide(block, most, PIECE_BYTES)).flatten();
            block += early.map_or(1, |early| early.records() as u64);
            if let Some(early) = early.filter(|early| !is_planned(&What::Records(*early)))
                && let Some(wanted) = self.locate(early)
            {
                plan.push(wanted);
            }
        }
        plan
    }

    fn locate(&self, early: Early) -> Option<Wanted> {
        let place = self.engine.cache.store_blocks()?.file_place(early.offset_bytes())?;
        Some(Wanted { what: What::Records(early), place })
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
        let has = |read: &MadeRead<'_>| matches!(read.what, What::Records(early) if early.covers(clusters, place));
        reads.find(|read| has(read)).copied()
    }

    /// Counts a read that was made.
    pub(super) fn note_made(&mut self, read: &MadeRead<'_>) {
        let What::Records(early) = &read.what else { return };
        self.counters.store_reads += 1;
        self.counters.store_read_bytes += early.bytes() as u64;
        self.note_read(read.disk_ns, read.cpu_ns);
        self.engine.cache.note_wide(early);
        if let Some(seeks) = &mut self.seeks {
            let pool_ns = self.give_way.as_ref().map_or(0, GiveWay::pool_ns);
            seeks.read(1, early.bytes(), read.disk_ns, pool_ns.min(POOL_NS_MAX));
            self.engine.cache.set_sweeping(seeks.are_dear());
        }
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
        if let What::Records(early) = read.what {
            self.engine.cache.begin_wide(early, data);
        }
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use zpager_cache::Store;
    use zpager_policy::{DesignId, Settings};
    use zpager_store::{CLUSTER_BYTES, Clusters, Stores};

    use super::super::{BLOCK_BYTES, Device, MEMORY_BYTES_MIN, Setup};
    use super::*;
    use crate::space::Arena;
    use crate::swap_file::SwapFile;
    use crate::target::Target;

    const BLOCKS: u64 = 4096;
    /// One that has left for the store.
    const BLOCK: u64 = 1000;

    /// A device of which half of the blocks are in the store.
    fn device() -> Device<Arena, Stores<'static, SwapFile>> {
        let store_bytes = 2 * BLOCKS * BLOCK_BYTES;
        let words = (0..Clusters::words_for(store_bytes)).map(|_| AtomicU64::new(0));
        let clusters = Clusters::new(words.collect::<Vec<_>>().leak());
        let file = tempfile::tempfile().expect("a file");
        let blocks = Stores::new(clusters, [(store_bytes, SwapFile::new(file.into(), 0))]);
        let setup = Setup {
            size_bytes: BLOCKS * BLOCK_BYTES,
            memory_bytes: MEMORY_BYTES_MIN,
            memory_bytes_max: 8 * MEMORY_BYTES_MIN,
            ahead_bytes: None,
            settings: Settings::of(DesignId::Default),
        };
        let device = Device::new(Arena, &setup, Some(Store { blocks, clusters })).expect("room");
        let mut worker = device.connect().expect("the first");
        for block in 0..BLOCKS {
            let at = block * BLOCK_BYTES;
            fastrand::Rng::with_seed(block).fill(worker.slot(at, BLOCK_BYTES as usize));
            device.write(&mut worker, at, BLOCK_BYTES as usize).expect("room");
        }
        device.disconnect(worker);
        device
    }

    /// How long the read is that a block needs.
    fn read_bytes(device: &impl Target, block: u64) -> usize {
        let plan = device.plan(block * BLOCK_BYTES, BLOCK_BYTES as usize, &Made::default());
        plan.iter().map(|wanted| wanted.what.bytes()).sum()
    }

    #[test]
    fn whole_clusters_are_read_of_a_disk_that_takes_long_to_begin() {
        let device = device();
        assert!((4096..=12288).contains(&read_bytes(&device, BLOCK)));
        let note = |read_ns: fn(usize) -> u64| {
            let mut shared = device.lock();
            let clusters = shared.engine.cache.clusters().expect("a store");
            for bytes in [8192, CLUSTER_BYTES].repeat(400) {
                let early = Early::whole(clusters, 1, bytes);
                let (what, disk_ns) = (What::Records(early), read_ns(bytes));
                let read = MadeRead { what, data: &[], disk_ns, cpu_ns: 0 };
                shared.note_made(&read);
            }
        };
        // 150 operations a second, of 100 MB/s.
        note(|bytes| 6_700_000 + bytes as u64 * 10);
        assert_eq!(read_bytes(&device, BLOCK), CLUSTER_BYTES);
        // 10,000 operations a second, of 600 MB/s.
        note(|bytes| 100_000 + bytes as u64 * 5 / 3);
        assert!((4096..=12288).contains(&read_bytes(&device, BLOCK)));
    }

    #[test]
    fn what_was_read_for_a_request_is_not_read_again() {
        let device = device();
        let mut worker = device.connect().expect("the first");
        let (at, bytes) = (BLOCK * BLOCK_BYTES, 16 * BLOCK_BYTES as usize);
        let plan = device.plan(at, bytes, &Made::default());
        let wanted = *plan.iter().next().expect("it is in the store");
        let mut buffer = vec![0; wanted.what.bytes()];
        assert!(read_at_once(wanted.place, &mut buffer));
        let read = MadeRead { what: wanted.what, data: &buffer, disk_ns: 1000, cpu_ns: 0 };
        let made = Made::of(&[read]);
        let left = device.plan(at, bytes, &made);
        assert!(left.iter().all(|other| !wanted.what.contains(&other.what)));
        let before = device.status().counters;
        let data = device.read_with(&mut worker, at, bytes, &made).expect("there");
        for (block, data) in (BLOCK..).zip(data.chunks(BLOCK_BYTES as usize)) {
            let mut expected = vec![0; BLOCK_BYTES as usize];
            fastrand::Rng::with_seed(block).fill(&mut expected);
            assert!(data == expected, "block {block}");
        }
        let after = device.status().counters;
        let reads = plan.iter().count() as u64;
        assert_eq!(after.store_reads - before.store_reads, reads, "{before:?}, {after:?}");
    }
}
