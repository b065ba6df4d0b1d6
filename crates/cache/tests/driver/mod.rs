//! An engine driven as the pager drives it, by a memory that is a map.
//!
//! Every page that comes in is compared with what it was when it went out.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::AtomicU64;

use zpager_cache::{
    Cache, Coder, Departed, Engine, Entry, Leavers, PageNumber, Placed, Run, SpillError, Store,
    Written,
};
use zpager_policy::{Ahead, Design, SLOTS, Sample, Sampler, Shares, Step};
use zpager_pool::Heap;
use zpager_store::{CLUSTER_BYTES, Clusters, Memory};

const PAGE_BYTES: usize = 4096;
const LIFT_PAGES: usize = 32;
const FUTILE_MAX: u32 = 8;
/// Pages that a program may have.
pub(crate) const PAGES: u64 = 4096;
/// Made-up times: what is measured must not change from run to run.
const FAULT_TICKS: u64 = 10;
const WRITE_TICKS: u64 = 500;
const READ_TICKS: u64 = 200;

/// What happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) hits: u64,
    pub(crate) fresh_faults: u64,
    pub(crate) compressed_faults: u64,
    pub(crate) store_faults: u64,
    pub(crate) swapped_out_pages: usize,
    pub(crate) swapped_in_pages: usize,
    pub(crate) store_writes: usize,
    pub(crate) store_written_bytes: usize,
    pub(crate) store_reads: u32,
    pub(crate) store_read_bytes: usize,
    pub(crate) spilled_pages: usize,
    /// Those that were written before they had to leave, and pages that came back from there without
    /// a read.
    pub(crate) ahead_pages: usize,
    pub(crate) shelved_pages: usize,
    /// Times that the user was to be told of a full store.
    pub(crate) full_reports: usize,
}

/// A coder of pages that can be compared.
pub(crate) trait Kept: Coder<Page: Clone> {
    /// The page of a program that has not written it.
    fn zero() -> Self::Page;
    fn is_same(one: &Self::Page, other: &Self::Page) -> bool;
}

/// All of the memory may leave.
struct Everything {
    count: u64,
}

impl Leavers for Everything {
    fn range(&self, from: PageNumber) -> Option<Range<PageNumber>> {
        (from < PAGES).then_some(0..PAGES)
    }
    fn may_leave(&self, _page: PageNumber, _frame: u32) -> Result<(), PageNumber> {
        Ok(())
    }
    fn count(&self) -> u64 {
        self.count
    }
}

/// A program's memory of [`PAGES`] pages, of which so many are resident as fit a budget.
pub(crate) struct Driver<C: Coder> {
    pub(crate) engine: Engine<Heap, Memory, C>,
    ahead: Ahead,
    resident: BTreeMap<PageNumber, C::Page>,
    budget_bytes: usize,
    now_ticks: u64,
    pub(crate) counts: Counts,
}

impl<C: Kept> Driver<C> {
    pub(crate) fn new(design: &Design, budget_bytes: usize, store_bytes: usize) -> Self {
        let words = Clusters::words_for(store_bytes as u64);
        let words: &'static [AtomicU64] =
            Box::leak((0..words).map(|_| AtomicU64::new(0)).collect());
        let store = (store_bytes >= CLUSTER_BYTES)
            .then(|| Store { blocks: Memory::default(), clusters: Clusters::new(words) });
        let cache = Cache::new(Heap, design, budget_bytes, store).expect("heap");
        let slots: &'static mut [Sample] = Box::leak(vec![Sample::default(); SLOTS].into());
        let sampler = Sampler::new(slots, (budget_bytes / PAGE_BYTES * 2) as u64);
        Driver {
            engine: Engine::new(cache, design, sampler, budget_bytes as u64),
            ahead: Ahead::default(),
            resident: BTreeMap::new(),
            budget_bytes,
            now_ticks: 0,
            counts: Counts::default(),
        }
    }

    /// The program reads a page: what it finds.
    pub(crate) fn read(&mut self, page: PageNumber) -> &C::Page {
        if self.engine.cache.index.get(page).is_resident() {
            self.counts.hits += 1;
        } else {
            self.fault(page);
        }
        &self.resident[&page]
    }

    /// The program writes a whole page.
    pub(crate) fn write(&mut self, page: PageNumber, content: C::Page) {
        self.read(page);
        self.resident.insert(page, content);
    }

    /// The program gives a page back.
    pub(crate) fn forget(&mut self, page: PageNumber) {
        self.resident.remove(&page);
        self.engine.cache.forget(page);
    }

    fn fault(&mut self, page: PageNumber) {
        let (first, most) = self.engine.window(&mut self.ahead, page, 0..PAGES);
        let Run { pages, is_fresh } = self.engine.run(first, most);
        let began = self.engine.fault_began(self.now_ticks);
        self.now_ticks += FAULT_TICKS;
        self.make_room(pages);
        let came = match is_fresh {
            true => {
                self.counts.fresh_faults += 1;
                (first..first + pages as u64).for_each(|page| self.put(page, C::zero(), 0));
                pages
            }
            false => self.swap_in(first, pages, began),
        };
        assert!((first..first + came as u64).contains(&page), "the page that was wanted");
        self.ahead.fetched(first, came);
    }

    fn swap_in(&mut self, first: PageNumber, pages: usize, began: u64) -> usize {
        let mut incoming = vec![C::zero(); pages];
        let came =
            self.engine.swap_in(first, &mut incoming, false).expect("the store does not fail");
        let read_ticks = u64::from(came.reads.reads) * READ_TICKS;
        self.now_ticks += read_ticks;
        if came.is_from_store() {
            self.counts.store_faults += 1;
            self.engine.read_store(&came, read_ticks);
        } else {
            self.counts.compressed_faults += 1;
            self.engine.served(&came, began, self.now_ticks);
        }
        self.counts.swapped_in_pages += came.reads.pages;
        self.counts.shelved_pages += came.reads.shelved_pages;
        self.counts.store_reads += came.reads.reads;
        self.counts.store_read_bytes += came.reads.read_bytes;
        incoming.truncate(came.reads.pages);
        for (at, page) in incoming.into_iter().enumerate() {
            self.put(first + at as u64, page, came.heats[at]);
        }
        came.reads.pages
    }

    fn put(&mut self, page: PageNumber, content: C::Page, heat: u8) {
        assert!(self.engine.arrive(page, heat), "the index has room");
        assert!(self.resident.insert(page, content).is_none(), "it was not resident");
    }

    fn shares(&self) -> Shares {
        Shares {
            resident_bytes: self.resident.len() * PAGE_BYTES,
            pool_bytes: self.engine.cache.ram_bytes(),
            raw_bytes: self.engine.cache.raw_bytes(),
            has_store: self.engine.cache.has_store(),
        }
    }

    /// Resident pages and pool, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        let cache = &self.engine.cache;
        let pool_bytes = cache.ram_bytes() + self.engine.unused_bytes();
        self.resident.len() * PAGE_BYTES + pool_bytes
    }

    fn make_room(&mut self, pages: usize) {
        let mut futile = 0;
        while self.held_bytes() + pages * PAGE_BYTES > self.budget_bytes && futile < FUTILE_MAX {
            let [step, instead] = self.engine.steps(&self.shares());
            let gave = self.take(step) || self.take(instead);
            futile = if gave { 0 } else { futile + 1 };
        }
    }

    fn take(&mut self, step: Step) -> bool {
        match step {
            Step::SwapOut => self.swap_out(),
            Step::Spill => self.spill(),
            Step::Nothing => false,
        }
    }

    fn swap_out(&mut self) -> bool {
        let mut victims = [0; LIFT_PAGES];
        let everything = Everything { count: self.resident.len() as u64 };
        let count = self.engine.choose(&everything, &mut victims);
        let mut departed = Departed::default();
        for &victim in &victims[..count] {
            let content = self.resident.remove(&victim).expect("a victim is resident");
            let mut placed = self.engine.swap_out(victim, &content, &mut departed);
            if placed == Placed::NoRoom && self.spill() {
                placed = self.engine.swap_out(victim, &content, &mut departed);
            }
            if placed == Placed::NoRoom {
                assert!(self.engine.cache.index.set(victim, Entry::ABSENT));
                self.put(victim, content, 0);
            }
        }
        self.counts.swapped_out_pages += departed.pages;
        let written = self.engine.departed();
        let ticks = self.count_written(&written);
        self.engine.spilled(&written, ticks);
        self.counts.ahead_pages += written.outcome.unwrap_or(0);
        departed.pages > 0
    }

    fn spill(&mut self) -> bool {
        let written = self.engine.spill();
        let ticks = self.count_written(&written);
        self.engine.spilled(&written, ticks);
        written.outcome.is_ok()
    }

    /// Counts what went to the store, and lets the time pass that it took.
    fn count_written(&mut self, written: &Written) -> u64 {
        let ticks = written.outgoing.writes as u64 * WRITE_TICKS;
        self.now_ticks += ticks;
        self.counts.store_writes += written.outgoing.writes;
        self.counts.store_written_bytes += written.outgoing.bytes;
        self.counts.spilled_pages += written.outgoing.pages;
        let told = written.outgoing.refused.or(written.outcome.err());
        self.counts.full_reports += usize::from(told == Some(SpillError::Full));
        self.counts.store_reads += written.reads;
        self.counts.store_read_bytes += written.read_bytes;
        ticks
    }
}
