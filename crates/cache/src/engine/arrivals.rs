//! Bringing pages in: which come with a fault, and what the fault tells of the split.

use core::convert::Infallible;
use core::ops::Range;

use zpager_codec::{CodecId, PAGE_BYTES};
use zpager_policy::{Ahead, ReadTicks, Size, Window};
use zpager_pool::SpaceSource;
use zpager_store::Blocks;

use super::{BATCH_PAGES, Engine};
use crate::cache::{Cache, Lost, Reads, Seen};
use crate::coder::Coder;
use crate::entry::{History, PageNumber, State};

/// Pages that come together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// How many, from the first on.
    pub pages: usize,
    /// Whether nothing is known of them: they come as zeros.
    pub is_fresh: bool,
}

/// What came back from the cache.
#[derive(Debug, Clone, Copy)]
pub struct Came {
    /// What it cost.
    pub reads: Reads,
    /// How hot each of the pages is, for [`Engine::arrive`].
    pub heats: [u8; BATCH_PAGES],
    /// How many pages have left since the first of them did, if it is in the sample.
    distance: Option<u64>,
    /// Whether that one lay in the store as it was.
    is_raw: bool,
}

impl Came {
    /// Whether the store was read.
    pub fn is_from_store(&self) -> bool {
        self.reads.spilled_pages > 0
    }
}

impl<M: SpaceSource + Copy, B: Blocks, C: Coder> Engine<M, B, C> {
    /// The pages to bring in for a fault at `page`, which is not resident, within `region`: the
    /// first and how many at most. `ahead` is the thread's.
    pub fn window(
        &self,
        ahead: &mut Ahead,
        page: PageNumber,
        region: Range<PageNumber>,
    ) -> (PageNumber, usize) {
        let is_spilled = matches!(self.cache.index.get(page).state(), State::Spilled { .. });
        let most = self.window_max;
        let (first, pages) = match ahead.window(page, is_spilled, |page| self.came_lately(page)) {
            Window::Up(pages) => (page, most.min(pages as u64).min(region.end - page)),
            Window::Down(pages) => {
                self.window_below(page, most.min(pages as u64).min(page + 1 - region.start))
            }
        };
        (first, pages as usize)
    }

    /// The pages, at most `most`, that end with `page` and are in the same case: the first and their count.
    fn window_below(&self, page: PageNumber, most: u64) -> (PageNumber, u64) {
        let is_fresh = self.cache.index.get(page).is_absent();
        let is_alike = |at: &u64| {
            let entry = self.cache.index.get(page - at);
            !entry.is_resident() && entry.is_absent() == is_fresh
        };
        let pages = 1 + (1..most).take_while(is_alike).count() as u64;
        (page + 1 - pages, pages)
    }

    /// The pages from `page` on, which is not resident, that are in the same case as it: at most
    /// `most` and at least one.
    pub fn run(&self, page: PageNumber, most: usize) -> Run {
        let is_fresh = self.cache.index.get(page).is_absent();
        let mut pages = 1;
        while pages < most.min(BATCH_PAGES) {
            let entry = self.cache.index.get(page + pages as u64);
            if entry.is_resident() || entry.is_absent() != is_fresh {
                break;
            }
            pages += 1;
        }
        Run { pages, is_fresh }
    }

    /// Brings back pages from `page` on into `pages`, at most [`BATCH_PAGES`]. They are in no tier
    /// then, but that with `may_keep` some may still be in the store ([`Self::keeps_copy`]); each
    /// becomes resident by [`Self::arrive`].
    ///
    /// # Errors
    /// As [`crate::Cache::swap_in`].
    pub fn swap_in(
        &mut self,
        page: PageNumber,
        pages: &mut [C::Page],
        may_keep: bool,
    ) -> Result<Came, Lost> {
        let state = self.cache.index.get(page).state();
        let is_raw = matches!(state, State::Spilled { codec: CodecId::Copy, .. });
        let keep = may_keep && self.copies.keeps();
        self.bring_back(page, pages.len(), is_raw, |cache| cache.swap_in(page, pages, keep))
    }

    /// Brings back as many pages from `page` on as `seen` has, at most [`BATCH_PAGES`], by
    /// [`crate::Cache::take`]; each becomes resident by [`Self::arrive`].
    pub fn take(
        &mut self,
        page: PageNumber,
        coded: &mut [[u8; PAGE_BYTES]],
        seen: &mut [Seen],
    ) -> Came {
        let pages = seen.len();
        let taken = self.bring_back(page, pages, false, |cache| {
            cache.take(page, coded, seen);
            Ok::<_, Infallible>(Reads { pages, ..Reads::default() })
        });
        let Ok(came) = taken;
        came
    }

    /// Has `bring` bring back at most so many pages from `page` on, of which the first lies in the store
    /// as it was or not.
    fn bring_back<E>(
        &mut self,
        page: PageNumber,
        pages: usize,
        is_raw: bool,
        bring: impl FnOnce(&mut Cache<M, B, C>) -> Result<Reads, E>,
    ) -> Result<Came, E> {
        let heats = self.heats(page, pages);
        let distance = self.sampler.distance(page);
        let list = self.cache.list(page);
        let reads = bring(&mut self.cache)?;
        if let Some(list) = list {
            self.read_list(list);
        }
        self.settle_lists();
        Ok(Came { reads, heats, distance, is_raw })
    }

    /// How hot the pages from `page` on are that are wanted again now.
    fn heats(&self, page: PageNumber, pages: usize) -> [u8; BATCH_PAGES] {
        let mut heats = [0; BATCH_PAGES];
        for (heat, page) in heats[..pages].iter_mut().zip(page..) {
            let entry = self.cache.index.get(page);
            let history = entry.history();
            // What came back from the store was away for long.
            if !matches!(entry.state(), State::Spilled { .. }) {
                *heat = self.residents.heat(history.left, history.heat, History::TIMES);
            }
        }
        heats
    }

    /// Has reads from the store be expected to take so long until some were measured.
    pub fn expect_reads(&mut self, expected: ReadTicks) {
        if let Size::Split(split) = &mut self.size {
            split.expect_read(expected.page);
            self.seeks.expect(expected);
        }
    }

    /// Notes that [`Self::swap_in`] took `ticks`, with reads from the store.
    pub fn read_store(&mut self, came: &Came, ticks: u64) {
        if let Size::Split(split) = &mut self.size {
            let pool_fault_ticks = split.prices().pool_fault_ticks;
            self.seeks.read(came.reads.reads, came.reads.read_bytes, ticks, pool_fault_ticks);
            self.cache.set_sweeping(self.seeks.are_dear());
            self.copies.read(came.reads.spilled_pages);
            if !came.is_raw && split.would_have(came.distance) {
                self.copies.missed(self.sampler.rate() as u32, ticks);
            }
            split.store_fault(came.distance, came.is_raw, ticks);
            for density in [&mut self.repeats, &mut self.density].into_iter().flatten() {
                if !came.is_raw {
                    density.store_fault(came.distance, split.pool_age());
                }
            }
        }
    }

    /// The moment at which a fault begins, for [`Self::served`].
    pub fn fault_began(&self, now_ticks: u64) -> u64 {
        now_ticks.wrapping_sub(self.spill_ticks)
    }

    /// Notes that a fault was served from the pool by now, with what had to leave for it.
    pub fn served(&mut self, came: &Came, began: u64, now_ticks: u64) {
        let taken = now_ticks.wrapping_sub(self.spill_ticks).wrapping_sub(began);
        if let Size::Split(split) = &mut self.size {
            split.pool_fault(came.distance, taken);
            for density in [&mut self.repeats, &mut self.density].into_iter().flatten() {
                density.pool_fault(came.distance);
            }
        }
    }
}
