//! How much of its memory the pool leaves to programs.
//!
//! Source: [`zpager_policy::GiveWay`], which decides. What it is told of is what has come and left, and
//! what the machine has read from its swap areas: where that is little the device's clients are others.
//!
//! Invariant: what was given is taken back before a block is refused.

use zpager_codec::PAGE_BYTES;
use zpager_policy::{GiveWay, Standing};
use zpager_pool::SpaceSource;
use zpager_store::Blocks;

use super::{BLOCK_BYTES, Device, Shared};
use crate::free_memory::FreeMemory;
use crate::moment::server_ns;

/// Blocks of the pool among which the oldest in the sample is sought.
const OLDEST_MAX: usize = 1024;
/// The machine swaps to the device if it has read at least this part of the blocks from swap areas.
const OWN_PART: u64 = 2;

/// What the thread that watches the machine saw of it when it looked last.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    swapped_in_pages: u64,
    server_ns: u64,
}

impl Seen {
    pub(super) fn now(free: Option<&mut FreeMemory>) -> Self {
        let swapped_in_pages = free.map_or(0, FreeMemory::swapped_in_pages);
        Seen { swapped_in_pages, server_ns: server_ns() }
    }
}

impl<M: SpaceSource + Copy, B: Blocks> Device<M, B> {
    /// Has the pool leave to programs what pays, by what was seen since the machine was looked at last.
    pub(super) fn give_way(&self, free: &mut FreeMemory, last: &mut Seen) {
        let now = Seen::now(Some(free));
        let swapped_in_pages = now.swapped_in_pages.wrapping_sub(last.swapped_in_pages);
        let term_ns = now.server_ns.wrapping_sub(last.server_ns);
        *last = now;
        self.lock().decide_share(swapped_in_pages, term_ns);
        // What the store does not take stays, and with it the memory.
        if let Ok(mut shared) = self.make_fit() {
            shared.give_up();
        }
    }
}

impl<M: SpaceSource + Copy, B: Blocks> Shared<M, B> {
    /// What the pool leaves to programs of its memory.
    pub(super) fn given_bytes(&self) -> u64 {
        self.give_way.as_ref().map_or(0, |give_way| give_way.given_pages() * BLOCK_BYTES)
    }

    /// Leaves nothing to programs any more; whether it did.
    pub(super) fn take_back(&mut self) -> bool {
        let did = self.given_bytes() > 0;
        if let Some(give_way) = &mut self.give_way {
            give_way.take_back();
        }
        did
    }

    /// Whether it is time to look at the machine, and decide anew what the pool leaves to it. A pool that
    /// has no memory of its own gives none.
    pub(super) fn is_share_due(&self) -> bool {
        self.kept_bytes.is_some() && self.give_way.as_ref().is_some_and(GiveWay::is_due)
    }

    /// Decides what the pool leaves to programs, which have had so many pages read from swap areas in this
    /// term.
    pub(super) fn decide_share(&mut self, swapped_in_pages: u64, server_ns: u64) {
        let Some(give_way) = &mut self.give_way else { return };
        if swapped_in_pages < give_way.term_reads() / OWN_PART {
            return give_way.skip();
        }
        let cache = &self.engine.cache;
        let oldest = cache.oldest().take(OLDEST_MAX);
        let age = oldest.filter_map(|block| give_way.distance(block)).max();
        let pages = |bytes: usize| (bytes / PAGE_BYTES) as u64;
        give_way.decide(&Standing {
            taken_pages: pages(self.kept_bytes.unwrap_or(0).max(cache.pool_bytes())),
            used_pages: pages(cache.pool_bytes()),
            age: age.unwrap_or(cache.pooled_pages() as u64),
            server_ns,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use zpager_cache::Store;
    use zpager_policy::{DesignId, Settings};
    use zpager_seed::{Random, random};
    use zpager_store::{Clusters, Memory};

    use crate::device::Setup;
    use crate::space::Arena;
    use crate::target::Target;
    use crate::worker::Worker;

    const MIB: u64 = 1 << 20;
    const SIZE_BYTES: u64 = 64 * MIB;
    const MEMORY_BYTES: u64 = 12 * MIB;
    /// What a machine has read from its swap areas that swaps to the device alone.
    const ALL_PAGES: u64 = u64::MAX;

    /// A device that keeps its memory, with what it should hold.
    struct Swap {
        device: Device<Arena, Memory>,
        worker: Worker,
        random: Random,
        /// The seed of each block that was written.
        seeds: Vec<u64>,
    }

    /// A block half of which is noise.
    fn block_of(seed: u64) -> [u8; PAGE_BYTES] {
        let mut noise = fastrand::Rng::with_seed(seed);
        let mut block = [seed as u8; PAGE_BYTES];
        noise.fill(&mut block[..PAGE_BYTES / 2]);
        block
    }

    impl Swap {
        fn new(store_bytes: u64) -> Self {
            let words = (0..Clusters::words_for(store_bytes)).map(|_| AtomicU64::new(0));
            let clusters = Clusters::new(words.collect::<Vec<_>>().leak());
            let setup = Setup {
                size_bytes: SIZE_BYTES,
                memory_bytes: MEMORY_BYTES,
                memory_bytes_max: MEMORY_BYTES,
                ahead_bytes: None,
                settings: Settings::of(DesignId::Default),
            };
            let store = Store { blocks: Memory::default(), clusters };
            let device = Device::new(Arena, &setup, Some(store)).expect("address space");
            assert!(device.keep_memory());
            let worker = device.connect().expect("the first");
            Swap { device, worker, random: random(2003), seeds: Vec::new() }
        }

        /// Writes one block more; false where it is refused.
        fn write(&mut self) -> bool {
            let (at, seed) = (self.seeds.len() as u64 * BLOCK_BYTES, self.random.u64(..));
            self.worker.slot(at, PAGE_BYTES).copy_from_slice(&block_of(seed));
            let is_written = self.device.write(&mut self.worker, at, PAGE_BYTES).is_ok();
            if is_written {
                self.seeds.push(seed);
            }
            is_written
        }

        fn check(&mut self, block: usize) {
            let read = self.device.read(&mut self.worker, block as u64 * BLOCK_BYTES, PAGE_BYTES);
            assert!(read == Ok(&block_of(self.seeds[block])), "block {block}");
        }

        /// Reads what was written shortly before until it is time to decide, and decides.
        fn want_what_left_last(&mut self) {
            while !self.device.lock().is_share_due() {
                let back = self.random.u64(1..64) as usize;
                self.check(self.seeds.len() - back);
            }
            self.device.lock().decide_share(ALL_PAGES, 1_000_000_000);
            self.device.make_fit().expect("the store has room").give_up();
        }
    }

    #[test]
    fn what_is_given_to_programs_leaves_for_the_store_and_all_blocks_stay() {
        let mut swap = Swap::new(64 * MIB);
        (0..24 * MIB / BLOCK_BYTES).for_each(|_| assert!(swap.write()));
        for _ in 0..8 {
            // What is wanted again soon is what more memory would have kept.
            swap.seeds.truncate(swap.seeds.len() - 64);
            (0..64).for_each(|_| assert!(swap.write()));
            swap.want_what_left_last();
        }
        let status = swap.device.status();
        assert!(status.given_bytes > MEMORY_BYTES / 2, "{status:?}");
        assert!(status.kept_bytes + status.given_bytes <= MEMORY_BYTES, "{status:?}");
        (0..swap.seeds.len()).for_each(|block| swap.check(block));
    }

    #[test]
    fn what_was_given_is_taken_back_before_a_block_is_refused() {
        let mut swap = Swap::new(16 * MIB);
        (0..20 * MIB / BLOCK_BYTES).for_each(|_| assert!(swap.write()));
        swap.want_what_left_last();
        assert!(swap.device.status().given_bytes > 0);
        while swap.write() {
            let status = swap.device.status();
            assert!(status.blocks < SIZE_BYTES / BLOCK_BYTES, "it cannot hold all: {status:?}");
        }
        let status = swap.device.status();
        assert_eq!(status.given_bytes, 0);
        assert!(status.held_bytes + MIB > MEMORY_BYTES, "{status:?}");
        (0..swap.seeds.len()).for_each(|block| swap.check(block));
    }

    #[test]
    fn a_machine_that_swaps_elsewhere_is_given_nothing() {
        let mut swap = Swap::new(64 * MIB);
        (0..24 * MIB / BLOCK_BYTES).for_each(|_| assert!(swap.write()));
        while !swap.device.lock().is_share_due() {
            swap.check(swap.seeds.len() - 1);
        }
        swap.device.lock().decide_share(0, 1_000_000_000);
        assert_eq!(swap.device.status().given_bytes, 0);
        assert!(!swap.device.lock().is_share_due(), "a new term");
    }
}
