//! Whether a block device makes bytes of its blocks by a denser codec, which takes more time.
//!
//! While everything has room in the pool, time is what counts. Once the pool is nearly full, what a
//! block is shorter by has others stay there: each spares a write to the store, and reads where it is
//! wanted. So the denser codec is taken as soon as the pool is nearly full, before anything is known of
//! reads, and given up where it takes longer than the reads that it spares would. Without a store, or
//! with one that is nearly full, it is what there is still room for, and stays: a block that is written
//! again as it was is to be no longer than it was.
//!
//! Of one block in [`TRY_EVERY`] both codecs make bytes, and blocks of these, which says how much
//! shorter blocks become and what that takes. By the part that they become shorter by, fewer leave for
//! the store, and each that leaves was read from there so often as those were that did.
//!
//! Source: castro (2003), 2.3 (benefit against expense); recompression in Linux's zram
//! (Documentation/admin-guide/blockdev/zram.rst), where the user says when.
//!
//! Bad case: blocks that are written once and never wanted, from which the codec is known not to pay
//! only after the pool was filled twice.

use zpager_codec::CodecId;

use crate::tried::{Choice, Tried};

/// The denser codec.
pub const DENSE_CODEC: CodecId = CodecId::Zstd;
/// While the pool is nearly full, of one block in so many both codecs make bytes.
pub const TRY_EVERY: u32 = 64;

/// The pool is nearly full from this part on, and not any more where the fast codec would take less
/// than half of it.
const FULL_PERCENT: u64 = 75;
const ROOMY_PERCENT: u64 = 50;
/// A term: this part of the blocks in the pool went through a codec, and so many at least.
const TERM_PART: u64 = 4;
const TERM_MIN: u64 = 1024;
/// Terms in a row in which it did not pay, before it is given up: two fillings of the pool.
const LOSSES_MAX: u32 = 8;
/// What is spared has to be so much more than what is taken, in parts of the latter, to begin.
const MARGIN_PART: u64 = 4;

/// What a device holds.
#[derive(Debug, Clone, Copy)]
pub struct Holding {
    /// The pool.
    pub pool_bytes: u64,
    /// What it may come to.
    pub pool_bytes_max: u64,
    /// Blocks in it.
    pub pooled_blocks: u64,
    /// Blocks in the store.
    pub spilled_blocks: u64,
    /// Whether that has room for more.
    pub may_spill: bool,
}

/// What happened since the last decision.
#[derive(Debug, Clone, Copy, Default)]
struct Term {
    /// Blocks that bytes were made of, and blocks made of bytes.
    coded_blocks: u64,
    decoded_blocks: u64,
    /// Blocks that left the pool for the store, and waiting for those that are there.
    spilled_blocks: u64,
    store_read_ns: u64,
}

/// Decides it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Density {
    is_dense: bool,
    is_tight: bool,
    tried: Tried,
    term: Term,
    /// Terms in a row in which the denser codec did not pay.
    losses: u32,
}

impl Term {
    fn is_over(&self, holding: &Holding) -> bool {
        let blocks = (holding.pooled_blocks / TERM_PART).max(TERM_MIN);
        self.coded_blocks + self.decoded_blocks >= blocks
    }
}

impl Density {
    /// What is wanted of the denser codec.
    pub fn choice(&self) -> Choice {
        Choice { is_dense: self.is_dense, tries: self.is_tight }
    }

    /// Notes that bytes were made of so many blocks, and with which of them both codecs were tried.
    pub fn coded(&mut self, blocks: u64, tried: Tried) {
        self.term.coded_blocks += blocks;
        self.tried.add(tried);
    }

    /// Notes that so many blocks were wanted, for which the store was waited for.
    pub fn decoded(&mut self, blocks: u64, store_read_ns: u64) {
        self.term.decoded_blocks += blocks;
        self.term.store_read_ns += store_read_ns;
    }

    /// Notes that so many blocks left the pool for the store.
    pub fn spilled(&mut self, blocks: u64) {
        self.term.spilled_blocks += blocks;
    }

    /// Decides anew, as the device stands.
    pub fn look(&mut self, holding: &Holding) {
        let is_tight = self.is_tight_with(holding);
        if is_tight != self.is_tight {
            let is_dense = is_tight && !(self.tried.is_in_vain() && holding.may_spill);
            *self = Density { is_dense, is_tight, tried: self.tried, ..Density::default() };
        } else if is_tight && !holding.may_spill {
            self.is_dense = true;
        } else if is_tight && self.term.is_over(holding) {
            self.decide(holding);
            self.term = Term::default();
        }
    }

    fn is_tight_with(&self, holding: &Holding) -> bool {
        let percent = if self.is_tight { ROOMY_PERCENT } else { FULL_PERCENT };
        holding.spilled_blocks > 0 || self.would_fill(holding, percent)
    }

    /// Whether what is in the pool would take so many percent of it, were it all the fast codec's.
    fn would_fill(&self, holding: &Holding, percent: u64) -> bool {
        let fast_bytes = match self.is_dense {
            true => self.tried.as_fast(holding.pool_bytes),
            false => holding.pool_bytes,
        };
        fast_bytes >= holding.pool_bytes_max / 100 * percent
    }

    fn decide(&mut self, holding: &Holding) {
        if !self.tried.is_known() {
            return;
        }
        let taken_ns = self.taken_ns();
        let pays = match (self.tried.is_in_vain(), self.spared_ns()) {
            (true, _) => false,
            (false, None) => self.would_fill(holding, ROOMY_PERCENT),
            (false, Some(spared_ns)) if self.is_dense => spared_ns >= taken_ns,
            (false, Some(spared_ns)) => spared_ns > taken_ns + taken_ns / MARGIN_PART,
        };
        self.losses = if pays { 0 } else { self.losses + 1 };
        self.is_dense = pays || self.is_dense && self.losses < LOSSES_MAX;
    }

    /// Time that the denser codec takes more in a term.
    fn taken_ns(&self) -> u64 {
        self.term.coded_blocks * self.tried.more_coding_ticks()
            + self.term.decoded_blocks * self.tried.more_decoding_ticks()
    }

    /// Waiting for the store that it spares, or would spare, in a term; `None` where nothing left for
    /// the store.
    fn spared_ns(&self) -> Option<u64> {
        let Term { coded_blocks, spilled_blocks, store_read_ns, .. } = self.term;
        let fast_bytes = self.tried.fast.bytes;
        let gain_bytes = fast_bytes.saturating_sub(self.tried.dense.bytes);
        let kept_blocks = (coded_blocks * gain_bytes / fast_bytes.max(1)).min(spilled_blocks);
        let whole = u128::from(store_read_ns) * u128::from(kept_blocks);
        whole.checked_div(u128::from(spilled_blocks)).map(|spared_ns| spared_ns as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tried::Made;

    /// Blocks of 2000 bytes that the denser codec halves, by ten times the time.
    const TRIED: Tried = Tried {
        pages: 16,
        fast: Made { bytes: 32_000, coding_ticks: 32_000, decoding_ticks: 16_000 },
        dense: Made { bytes: 16_000, coding_ticks: 320_000, decoding_ticks: 160_000 },
    };

    fn holding(percent: u64, spilled_blocks: u64) -> Holding {
        Holding {
            pool_bytes: percent * 10_000,
            pool_bytes_max: 1_000_000,
            pooled_blocks: 400,
            spilled_blocks,
            may_spill: true,
        }
    }

    /// A term in which half of the blocks were read, each with so much waiting for the store, and as many
    /// left for it as came.
    fn term_of(density: &mut Density, wait_ns: u64, holding: &Holding) {
        density.coded(TERM_MIN / 2, Tried::default());
        density.spilled(TERM_MIN / 2);
        density.decoded(TERM_MIN / 2, TERM_MIN / 2 * wait_ns);
        density.look(holding);
    }

    fn full() -> Density {
        let mut density = Density::default();
        density.coded(0, TRIED);
        density.look(&holding(100, 400));
        assert!(density.choice().is_dense);
        density
    }

    #[test]
    fn it_begins_when_the_pool_is_nearly_full_and_ends_when_all_has_room_again() {
        let mut density = Density::default();
        for (percent, spilled_blocks, is_dense) in [
            (0, 0, false),
            (74, 0, false),
            (75, 0, true),
            (60, 0, true),
            (49, 0, false),
            (74, 0, false),
            (10, 1, true),
            (10, 0, false),
        ] {
            density.look(&holding(percent, spilled_blocks));
            assert_eq!(
                density.choice().is_dense,
                is_dense,
                "{percent} %, {spilled_blocks} spilled"
            );
        }
        // What is half as long now would be as long as before.
        let mut density = full();
        density.look(&holding(26, 0));
        assert!(density.choice().is_dense);
        density.look(&holding(24, 0));
        assert!(!density.choice().is_dense);
    }

    #[test]
    fn it_stays_while_it_spares_more_than_it_takes() {
        let mut density = full();
        (0..100).for_each(|_| term_of(&mut density, 1_000_000, &holding(100, 400)));
        assert!(density.choice().is_dense);
        for turn in 1..=LOSSES_MAX {
            term_of(&mut density, 0, &holding(100, 400));
            assert_eq!(density.choice().is_dense, turn < LOSSES_MAX);
        }
        // A block takes 18 us more on its way out and 9 on its way back; half as many would leave.
        term_of(&mut density, 60_000, &holding(100, 400));
        assert!(!density.choice().is_dense);
        term_of(&mut density, 70_000, &holding(100, 400));
        assert!(density.choice().is_dense);
    }

    #[test]
    fn it_is_given_up_where_little_is_left_in_the_pool_and_nothing_leaves() {
        let mut density = full();
        for turn in 1..=LOSSES_MAX {
            density.coded(TERM_MIN, Tried::default());
            density.look(&holding(20, 400));
            assert_eq!(density.choice().is_dense, turn < LOSSES_MAX);
        }
    }

    #[test]
    fn it_is_given_up_where_blocks_become_no_shorter() {
        let mut density = full();
        let alike = Tried { dense: Made { bytes: 30_000, ..TRIED.dense }, ..TRIED };
        (0..100).for_each(|_| density.coded(0, alike));
        (0..LOSSES_MAX).for_each(|_| term_of(&mut density, 1_000_000, &holding(100, 400)));
        assert!(!density.choice().is_dense);
    }

    #[test]
    fn without_room_in_a_store_it_stays() {
        let mut density = full();
        let alone = Holding { may_spill: false, ..holding(100, 400) };
        (0..100).for_each(|_| term_of(&mut density, 0, &alone));
        assert!(density.choice().is_dense);
    }
}
