//! The engine of one process: its cache, and everything that decides which pages are where.
//!
//! Whoever drives it owns the memory: it moves pages in and out of a program, or counts them as
//! moved, keeps to the budget, and measures time. The engine makes no system call, has no clock
//! (ticks are arguments, in any unit) and no threads.
//!
//! The way of a page:
//! ```text
//! fault:   window, run                  which pages come
//!          steps: swap out or spill     until there is room for them
//!          swap_in, arrive              the pages are resident
//!          read_store | served          what it cost
//! swap out: choose, drop_clean, swap_out  the pages are in the cache
//! write:    written                     a page is not in the store any more
//! spill:   spill, spilled               the oldest of the cache are in the store
//! ahead:   departed, spilled            they are there, and in RAM until that is needed
//! ```
//! A block device has no resident pages: its blocks are written by `replace` and read by `look`.
//!
//! Source: castro (2003), 2.3 for the shape: resident pages, compressed ones, and a border between.

mod arrivals;
mod copies;
mod kept;
mod residents;
mod room;

use zpager_policy::{
    Copies, DensePool, Design, PoolKind, Promotion, Replacement, Sampler, Seeks, Size, WINDOW_MAX,
};
use zpager_pool::SpaceSource;
use zpager_store::{Blocks, CLUSTER_BYTES};

use crate::cache::{Cache, Content, Placed};
use crate::coder::{Codecs, Coder};
use crate::entry::{History, PageNumber};
pub use arrivals::{Came, Run};
pub use residents::Leavers;
pub use room::Written;

/// Most pages that come with one fault.
pub const BATCH_PAGES: usize = WINDOW_MAX;

/// One fault brings in at most this part of the budget.
const WINDOW_PART: u64 = 256;
const PAGE_BYTES: u64 = 4096;

/// What became of a batch of pages that were swapped out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Departed {
    /// All of them.
    pub pages: usize,
    /// Those of which all words are equal.
    pub same_filled: usize,
    /// Those that lie in the pool as they were.
    pub incompressible: usize,
    /// Those that the codec made shorter, and how long they are now together.
    pub compressed: usize,
    /// See `compressed`.
    pub compressed_bytes: usize,
    /// Those of them of which the denser codec made bytes.
    pub dense: usize,
    /// Those of which the second codec did.
    pub second: usize,
    /// Those that were in the store already, as they were.
    pub clean: usize,
}

/// Cache and decisions of one process.
pub struct Engine<M: SpaceSource, B, C = Codecs> {
    /// The tiers, and what is known of every page.
    pub cache: Cache<M, B, C>,
    residents: Replacement,
    sampler: Sampler<'static>,
    size: Size,
    /// Whether a denser codec makes bytes of pages, where there is one.
    density: Option<DensePool>,
    /// Whether they are tried with a second one, where there is one.
    repeats: Option<DensePool>,
    copies: Copies,
    promotion: Promotion,
    seeks: Seeks,
    /// Whether something was written since room was there last.
    has_written: bool,
    /// Time that spilling has taken.
    spill_ticks: u64,
    /// Most pages that one fault brings in.
    window_max: u64,
    /// See [`Design::write_ahead_percent`].
    write_ahead_percent: Option<usize>,
    /// How much of the pool may hold what the store has not, when that was looked at last.
    write_ahead_bytes: usize,
    /// A cell of the pool, and how many an adaptive pool is to free.
    cell_bytes: usize,
    cells_to_free: usize,
}

impl<M: SpaceSource + Copy, B: Blocks, C: Coder> Engine<M, B, C> {
    /// An engine of a design on an empty cache of the same, for a process that may take
    /// `budget_bytes`; `sampler` has seen nothing yet.
    pub fn new(
        cache: Cache<M, B, C>,
        design: &Design,
        sampler: Sampler<'static>,
        budget_bytes: u64,
    ) -> Self {
        let density = cache.can_condense().then(DensePool::default);
        let repeats = cache.can_seek().then(DensePool::cheap);
        let window_max = (budget_bytes / PAGE_BYTES / WINDOW_PART).max(1);
        let mut engine = Engine {
            cache,
            residents: Replacement::new(design.residents),
            sampler,
            size: design.size,
            density,
            repeats,
            copies: Copies::default(),
            promotion: Promotion::default(),
            seeks: Seeks::new(CLUSTER_BYTES, budget_bytes),
            has_written: false,
            spill_ticks: 0,
            write_ahead_percent: design.write_ahead_percent,
            write_ahead_bytes: usize::MAX,
            window_max: window_max.min(design.read_ahead_pages as u64),
            cell_bytes: match design.pool {
                PoolKind::Cells(pages) => pages * PAGE_BYTES as usize,
                _ => PAGE_BYTES as usize,
            },
            cells_to_free: 0,
        };
        engine.limit_pool(true);
        engine
    }

    /// Takes the resident page `number`, whose content is `page`, into the cache, and adds what
    /// became of it to `departed`. With [`Placed::NoRoom`] it is resident as before.
    pub fn swap_out(
        &mut self,
        number: PageNumber,
        page: &C::Page,
        departed: &mut Departed,
    ) -> Placed {
        self.swap_out_made(number, page, None, departed)
    }

    /// The same with what was made of the page beside the cache; see [`Cache::swap_out_made`].
    pub fn swap_out_made(
        &mut self,
        number: PageNumber,
        page: &C::Page,
        made: Option<Content<'_>>,
        departed: &mut Departed,
    ) -> Placed {
        let heat = self.cache.index.get(number).history().heat;
        let placed = self.cache.swap_out_made(number, page, made);
        if self.count(placed, departed) {
            self.remember(number, heat);
            self.settle_lists();
        }
        placed
    }

    /// Counts a page that left; false where it did not.
    fn count(&mut self, placed: Placed, departed: &mut Departed) -> bool {
        match placed {
            Placed::SameFilled => departed.same_filled += 1,
            Placed::Incompressible => departed.incompressible += 1,
            Placed::Compressed(codec, len) => {
                departed.compressed += 1;
                departed.compressed_bytes += len;
                let is_dense = self.cache.is_dense();
                let is_second = !is_dense && codec != self.cache.coding().codec();
                departed.dense += usize::from(is_dense);
                departed.second += usize::from(is_second);
            }
            Placed::NoRoom => {
                self.size.refused();
                return false;
            }
        }
        departed.pages += 1;
        true
    }

    /// Remembers when a page left, and what it was like.
    fn remember(&mut self, page: PageNumber, heat: u8) {
        self.sampler.leaves(page);
        let history = History { left: self.residents.time(History::TIMES), heat };
        self.cache.replace_entry(page, self.cache.index.get(page).with_history(history));
    }
}
