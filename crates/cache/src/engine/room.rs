//! Making room: what leaves next, a resident page or a compressed one.

use zpager_codec::PAGE_BYTES;
use zpager_policy::{Change, DensePool, List, Loss, Sampler, Shares, Size, Split, Step};
use zpager_pool::SpaceSource;
use zpager_store::{Blocks, CLUSTER_BYTES};

use super::Engine;
use crate::cache::{Cache, Cleaned, Condensed, Outgoing, SpillError};
use crate::coder::Coder;

/// Pages of the pool among which one in the sample is sought.
const OLDEST_MAX: usize = 1024;

/// However small a pool is to be, it has room for pages on their way to the store.
const LIMIT_MIN: usize = 64 * 1024;

/// What went to the store, with what it took to make room there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Pages that left the pool, or why none did. With 0 RAM was gained of pages that had left it.
    pub outcome: Result<usize, SpillError>,
    /// Pages that left for the store, and writes to it.
    pub outgoing: Outgoing,
    /// Reads from the store.
    pub reads: u32,
    /// Bytes read.
    pub read_bytes: usize,
}

impl Written {
    const NOTHING: Written = Written {
        outcome: Err(SpillError::Nothing),
        outgoing: Outgoing::NONE,
        reads: 0,
        read_bytes: 0,
    };
}

impl<M: SpaceSource + Copy, B: Blocks, C: Coder> Engine<M, B, C> {
    /// What to do next to make room, and instead if that gives nothing.
    pub fn steps(&mut self, shares: &Shares) -> [Step; 2] {
        if matches!(&self.size, Size::Split(split) if split.is_due(&self.sampler)) {
            self.decide_codecs(shares);
            self.move_border(shares);
        }
        if let Some(percent) = self.write_ahead_percent {
            let share_bytes = self.size.pool_share_bytes(shares);
            self.write_ahead_bytes = share_bytes.map_or(usize::MAX, |bytes| bytes / 100 * percent);
        }
        let step = self.next_step(shares);
        let instead = match step {
            Step::SwapOut => Step::Spill,
            // Without the store it is as if there were none: rather too much RAM than no progress.
            Step::Spill => self.next_step(&Shares { has_store: false, ..*shares }),
            Step::Nothing => Step::Nothing,
        };
        [step, instead]
    }

    fn move_border(&mut self, shares: &Shares) {
        let Size::Split(split) = &mut self.size else { return };
        let pages = self.cache.pooled_pages();
        let (lost_pages, percent) = lost(pages, shares);
        // The order has some that are not in the pool any more.
        let skipped = in_proportion(lost_pages, self.cache.ordered_pages(), pages);
        let oldest = self.cache.oldest().take(OLDEST_MAX);
        let next_age = age_but(&self.cache, &self.sampler, skipped);
        split.move_border(shares, &self.sampler, oldest, Loss { next_age, percent });
    }

    /// Decides which codecs make bytes of pages from now on. Of the second one that stays as it is while
    /// the denser one has all pages.
    fn decide_codecs(&mut self, shares: &Shares) {
        let Size::Split(split) = &self.size else { return };
        let (cache, sampler) = (&mut self.cache, &self.sampler);
        let spilled_bytes = cache.away_pages() * cache.mean_page_bytes();
        if let Some(repeats) = self.repeats.as_mut().filter(|_| !cache.is_dense()) {
            decide(repeats, cache.take_sought(), shares, split, sampler, spilled_bytes);
            cache.choose_repeats(repeats.choice());
            set_surplus(repeats, cache, sampler);
        }
        if let Some(density) = &mut self.density {
            decide(density, cache.take_condensed(), shares, split, sampler, spilled_bytes);
            cache.choose_density(density.choice());
            set_surplus(density, cache, sampler);
        }
    }

    fn next_step(&mut self, shares: &Shares) -> Step {
        let cache = &self.cache;
        self.size.next_step(shares, |percent| cache.should_clean_buffers(percent))
    }

    /// RAM that belongs to the pool alone although it does not use it, in bytes.
    pub fn unused_bytes(&self) -> usize {
        match self.cache.has_store() {
            true => self.size.unused_bytes(self.cache.pool_bytes()),
            false => 0,
        }
    }

    /// Keeps the pool to what its design allows, or not while there is nowhere else for pages: a
    /// limit needs a store.
    pub(super) fn limit_pool(&mut self, limit: bool) {
        let limit = limit && self.cache.has_store();
        let limit_bytes = self.size.limit_bytes().filter(|_| limit);
        self.cache.set_pool_limit(limit_bytes.map_or(usize::MAX, |bytes| bytes.max(LIMIT_MIN)));
    }

    /// Notes that a page was read from the pool that was counted to `list`.
    pub(super) fn read_list(&mut self, list: List) {
        let Size::Adaptive(adaptive) = &mut self.size else { return };
        if adaptive.read(list, self.cache.pool_bytes()) == Change::Shrink {
            self.cells_to_free += 1;
        }
        // One at a time would take a look at all cells for each.
        if self.cells_to_free * self.cell_bytes >= CLUSTER_BYTES {
            let freed = self.cache.free_cells() / self.cell_bytes;
            let unfreed = core::mem::take(&mut self.cells_to_free).saturating_sub(freed);
            adaptive.owe(unfreed * self.cache.mean_page_bytes());
        }
    }

    /// Keeps the lists of an adaptive pool right.
    pub(super) fn settle_lists(&mut self) {
        if let Size::Adaptive(_) = self.size {
            self.cache.settle_lists();
        }
    }

    /// Notes that the room is there that was wanted, or cannot be made.
    pub fn found_room(&mut self) {
        self.has_written = false;
    }

    /// So much room is to be made besides what is wanted: none before something is written for it.
    pub fn more_room_bytes(&self) -> usize {
        if self.has_written { self.seeks.room_bytes() } else { 0 }
    }

    fn take_outgoing(&mut self) -> Outgoing {
        let outgoing = self.cache.take_outgoing();
        self.has_written |= outgoing.writes > 0;
        self.copies.spared(outgoing.copied_pages);
        outgoing
    }

    /// Makes room by what was written ahead, if there is some, of which nothing is counted then. Else
    /// writes compressed pages to the store, those whose turn it is, which is cleaned first if much
    /// of it holds nothing any more. The caller says afterwards how long it took: [`Self::spilled`].
    pub fn spill(&mut self) -> Written {
        if self.cache.unshelve() > 0 {
            return Written { outcome: Ok(0), ..Written::NOTHING };
        }
        self.write(Cache::spill)
    }

    /// Writes compressed pages by `spill`, with all that belongs to it.
    fn write(
        &mut self,
        spill: impl Fn(&mut Cache<M, B, C>) -> Result<usize, SpillError>,
    ) -> Written {
        let mut written = Written::NOTHING;
        self.clean(&mut written);
        let payload_bytes = self.cache.payload_bytes();
        written.outcome = spill(&mut self.cache);
        if written.outcome == Err(SpillError::Full) && self.clean(&mut written) {
            written.outcome = spill(&mut self.cache);
        }
        // Full buffers are written together, in as many writes as it takes.
        while let Ok(pages) = written.outcome
            && self.cache.is_cleaning()
            && let Ok(more) = spill(&mut self.cache)
        {
            written.outcome = Ok(pages + more);
        }
        match written.outcome {
            Ok(_) => {
                let released_bytes = payload_bytes.saturating_sub(self.cache.payload_bytes());
                self.size.spilled(released_bytes, self.cache.pool_bytes());
                self.limit_pool(true);
                self.settle_lists();
            }
            Err(SpillError::Nothing) => {}
            Err(_) => self.limit_pool(false),
        }
        written.outgoing = self.take_outgoing();
        written
    }

    /// After pages were swapped out, of which some may have left for the store at once: what went
    /// there, which is cleaned if much of it holds nothing any more. Where it is time to write ahead
    /// that is done, and the caller says how long it took: [`Self::spilled`].
    pub fn departed(&mut self) -> Written {
        if self.is_ahead_due() {
            return self.write(Cache::spill_ahead);
        }
        let mut written = Written::NOTHING;
        if self.cache.has_outgoing() {
            self.clean(&mut written);
        }
        written.outgoing = self.take_outgoing();
        written
    }

    /// Whether the pool holds so much that the store has not that pages are to be written ahead, and
    /// nobody has to wait for that.
    fn is_ahead_due(&self) -> bool {
        self.cache.pool_bytes() > self.write_ahead_bytes && self.cache.can_spill_ahead()
    }

    /// Has everything that left for the store be there, before a fork or the end of the process.
    pub fn flush(&mut self) -> Written {
        let outcome = self.cache.flush().map(|()| 0);
        Written { outcome, outgoing: self.take_outgoing(), ..Written::NOTHING }
    }

    /// Makes room in the store; gives whether it did. A failed write pauses spilling with the same
    /// error, which the caller is thus told.
    fn clean(&mut self, written: &mut Written) -> bool {
        let mut cleaned = Cleaned::default();
        let outcome = self.cache.clean(&mut cleaned);
        written.reads += cleaned.reads;
        written.read_bytes += cleaned.read_bytes;
        outcome.is_ok()
    }

    /// Notes that a spill took `ticks`.
    pub fn spilled(&mut self, written: &Written, ticks: u64) {
        self.spill_ticks = self.spill_ticks.wrapping_add(ticks);
        if let (Size::Split(split), Ok(pages @ 1..)) = (&mut self.size, written.outcome) {
            split.spilled(pages, ticks);
        }
    }
}

/// Decides of a denser codec, with what it made of pages since the last time.
fn decide(
    density: &mut DensePool,
    condensed: Condensed,
    shares: &Shares,
    split: &Split,
    sampler: &Sampler<'_>,
    spilled_bytes: usize,
) {
    density.coded(condensed.pages, condensed.tried);
    if shares.has_store {
        let gain_bytes = density.gain_bytes(shares.pool_bytes.saturating_sub(shares.raw_bytes));
        let resident_bytes = density.resident_gain_bytes(gain_bytes);
        let instead_ticks = split.resident_worth_ticks(shares, resident_bytes);
        density.decide(&split.prices(), instead_ticks, sampler.rate());
        density.set_gain(shares.resident_bytes, gain_bytes, spilled_bytes);
    } else {
        density.decide_alone(shares);
    }
}

/// Notes which pages the pool would not have without it.
fn set_surplus<M: SpaceSource + Copy, B: Blocks, C: Coder>(
    density: &mut DensePool,
    cache: &Cache<M, B, C>,
    sampler: &Sampler<'_>,
) {
    let surplus = density.surplus_pages(cache.ordered_pages());
    density.set_surplus(surplus, age_but(cache, sampler, surplus));
}

/// How many of the `pages` of a pool would be lost, were it smaller by a margin, and their part of the margin's, in percent.
/// Resident memory would keep as many of them as it gets pages.
fn lost(pages: usize, shares: &Shares) -> (usize, u64) {
    let margin_bytes = shares.margin_bytes();
    let margin_pages = in_proportion(pages, margin_bytes, shares.pool_bytes);
    let lost_pages = margin_pages.saturating_sub(margin_bytes / PAGE_BYTES);
    (lost_pages, lost_pages as u64 * 100 / margin_pages.max(1) as u64)
}

/// As much of `count` as `part` is of `all`.
fn in_proportion(count: usize, part: usize, all: usize) -> usize {
    (count as u128 * part as u128 / all.max(1) as u128) as usize
}

/// How many pages have left since the oldest of the pool did, without so many of the oldest; as far as the
/// sample has it.
fn age_but<M: SpaceSource + Copy, B: Blocks, C: Coder>(
    cache: &Cache<M, B, C>,
    sampler: &Sampler<'_>,
    pages: usize,
) -> Option<u64> {
    cache.oldest_but(pages).take(OLDEST_MAX).find_map(|page| sampler.distance(page))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hardly_shrinks_is_hardly_lost() {
        let bytes = 1000 * PAGE_BYTES;
        let shares = Shares { resident_bytes: bytes, pool_bytes: bytes, ..Shares::default() };
        // The margin is an eighth of the pool: 125 pages' worth.
        assert_eq!(lost(2000, &shares), (125, 50));
        assert_eq!(lost(1120, &shares), (15, 10));
        assert_eq!(lost(1000, &shares), (0, 0));
        assert_eq!(lost(0, &shares), (0, 0));
    }
}
