//! Whether a process's pool takes a denser codec, which takes more time.
//!
//! Of shorter pages a pool holds more, so each stays longer: for as many departures more as the denser
//! codec leaves pages shorter by. A page that is wanted from the store sooner than that would have been in
//! the pool, and speaks for the denser codec with what a read costs. Once that is in use, a page speaks for it
//! that is served from the pool after it would have left with the fast one. Against it stands what the codec
//! takes longer, for each page that leaves and each fault that the pool serves. Both are counted, for pages
//! that a sampler follows, and weighed as they were measured.
//!
//! Nor is it taken, or kept, where the same room would cost less if resident memory gave it up.
//!
//! A [cheap](DensePool::cheap) one takes little more time. It is not only for reads, but for fewer faults: what is
//! gained of the pool may be resident memory's. A page that becomes resident leaves the pool besides, so that grows
//! by more than is gained: where pages of 4096 bytes are left 2048, by twice as much.
//!
//! All reads speak for either where there would be room for what the store has. Where there are too few to say
//! anything the decision is put off: one may take as long as all else that happens meanwhile.
//!
//! Without a store nothing can be read, and what leaves resident memory stays: the denser codec is taken
//! when little more can leave, as the budget is not held otherwise.
//!
//! How much shorter pages become, and what that takes, is known from one page in [`TRY_PAGES`], of which
//! both codecs make bytes. That is done where it could pay, also after the first such pages did not become
//! shorter: where reads of which a pool of twice as many pages would have spared some take their part of the
//! time of all faults.
//!
//! Source: castro (2003), 2.3 (benefit against expense); [`crate::Split`] for distances and for what resident
//! memory is worth.
//!
//! Bad case: a program just above the memory in which the fast codec holds all of it, whose pages once were
//! read from the store: it is given up only after it has cost as much as many reads.

use crate::shares::{PAGE_BYTES, Shares};
use crate::split::Prices;
use crate::tried::{Choice, Tried};

/// Of one page in so many both codecs make bytes, while that could pay.
pub const TRY_PAGES: u32 = 128;

/// Of pages that were not tried the denser codec may leave this part.
const GUESS_PART: u64 = 2;
/// What could be spared is this part of what faults that the pool serves take, before pages are tried.
const PROMISE_PART: u64 = 4;
/// Wants in the sample that say something.
const WANTS_MIN: u64 = 4;
/// While there are fewer, though some, all of what happened is kept for so many decisions: a read may take as long as
/// all faults that the pool serves meanwhile.
const WAIT_TERMS: u32 = 64;
/// A page takes this part of the time to be decoded that coding it takes.
const DECODING_PART: u64 = 2;
/// What is spared has to be so many times what is taken, to begin; by a codec that takes little, as much.
const MARGIN_TIMES: u64 = 2;
const CHEAP_MARGIN_TIMES: u64 = 1;
/// It is given up when it has taken more than it has spared by what reading this part of the pages would
/// cost that leave the pool then: what is not wanted now may be wanted later, all at once.
const REGRET_PART: u64 = 2;
/// Without a store it is taken when less than this part of the memory is resident, and kept until with the fast
/// codec more than that other part would be.
const SHORT_PART: usize = 8;
const ROOMY_PART: usize = 4;
/// Resident memory grows by so many times what is gained, at most.
const GAIN_TIMES_MAX: usize = 16;
/// Faults are as many times as many, at most, by the fast codec.
const MORE_FAULTS_MAX: u64 = 4;
/// So much of resident memory would be left, at least, without what is gained.
const LEFT_PART: u64 = 4;
/// One fault, as wants of resident memory are counted.
const FAULT: u64 = 256;
/// Part of the evidence that is left after a decision.
const EVIDENCE_PART: u64 = 2;

/// What happened lately.
#[derive(Debug, Clone, Copy, Default)]
struct Evidence {
    /// Pages that a codec made bytes of.
    coded_pages: u64,
    /// Faults that the pool served.
    pool_faults: u64,
    /// Those of a sampled page that one codec serves from the pool, and the other from the store.
    wants: u64,
    /// Reads that each speak for the denser codec, as it would have room for all, of any page.
    all_reads: u64,
    /// Those that the pool serves, and that would not happen were what is gained resident memory's; or that
    /// would happen besides, were it taken from there. In parts of [`FAULT`].
    resident_wants: u64,
}

impl Evidence {
    /// What is left of it after a decision.
    fn fade(&mut self) {
        let Evidence { coded_pages, pool_faults, wants, all_reads, resident_wants } = self;
        for evidence in [coded_pages, pool_faults, wants, all_reads, resident_wants] {
            *evidence /= EVIDENCE_PART;
        }
    }
}

/// Decides it.
#[derive(Debug, Clone, Copy, Default)]
pub struct DensePool {
    choice: Choice,
    tried: Tried,
    evidence: Evidence,
    /// Departures after which pages would leave the pool with the fast codec, where that is known.
    fast_age: Option<u64>,
    /// How many pages would have left by then.
    surplus_pages: u64,
    /// Resident pages, and by how many these are more by what is gained, or would be.
    resident_pages: u64,
    gained_pages: u64,
    /// Whether there would be room for all that is in the store.
    would_hold_all: bool,
    /// One page in so many is in the sample.
    rate: u64,
    /// Decisions that were put off.
    waited_terms: u32,
    /// Time that it has taken more than it has spared.
    lost_ticks: u64,
    /// Whether the codec takes little more time.
    is_cheap: bool,
}

impl DensePool {
    /// For a codec that takes little more time, so that little is lost by a wrong decision.
    pub fn cheap() -> Self {
        DensePool { is_cheap: true, ..DensePool::default() }
    }

    /// What is wanted of the denser codec.
    pub fn choice(&self) -> Choice {
        self.choice
    }

    /// Notes that bytes were made of so many pages, and with which of them both codecs were tried.
    pub fn coded(&mut self, pages: u64, tried: Tried) {
        self.evidence.coded_pages += pages;
        self.tried.add(tried);
    }

    /// Of so many pages in the pool those for which there would be no room with the fast codec.
    pub fn surplus_pages(&self, pages: usize) -> usize {
        pages.saturating_sub(self.tried.as_dense(pages as u64) as usize)
    }

    /// Notes how many these are, and after how many departures the oldest of the others left.
    pub fn set_surplus(&mut self, pages: usize, age: Option<u64>) {
        self.surplus_pages = pages as u64;
        self.fast_age = age.or(self.fast_age);
    }

    /// Notes a fault that the pool served, of a page that left `distance` departures ago.
    pub fn pool_fault(&mut self, distance: Option<u64>) {
        self.evidence.pool_faults += 1;
        let is_spared = distance.zip(self.fast_age).is_some_and(|(distance, age)| distance >= age);
        self.evidence.wants += u64::from(self.choice.is_dense && is_spared);
        self.evidence.resident_wants += distance.map_or(0, |distance| self.spared(distance));
    }

    /// How many faults at such a distance, in parts of [`FAULT`], are spared by what resident memory has gained,
    /// or would be: a page is missed once in as many departures as there are resident pages and it has been
    /// away for, as [`Split`](crate::Split) has it.
    fn spared(&self, distance: u64) -> u64 {
        let pages = match self.choice.is_dense {
            true => {
                let left_pages = self.resident_pages.saturating_sub(self.gained_pages);
                left_pages.max(self.resident_pages / LEFT_PART)
            }
            false => self.resident_pages + self.gained_pages,
        };
        FAULT * self.gained_pages / (pages + distance).max(1)
    }

    /// So many departures with the denser codec, in departures with the fast one: these are more, as there are
    /// more faults.
    fn as_many_faults(&self, departures: u64) -> u64 {
        let faults = FAULT * self.evidence.pool_faults.max(1);
        let left = faults.saturating_sub(self.evidence.resident_wants * self.rate);
        departures * faults / left.max(faults / MORE_FAULTS_MAX)
    }

    /// Notes a fault for which the store was read, of a page that left `distance` departures ago, if it is in the
    /// sample; pages leave the pool after `age`.
    pub fn store_fault(&mut self, distance: Option<u64>, age: Option<u64>) {
        if self.choice.is_dense {
            return;
        }
        if self.would_hold_all {
            self.evidence.all_reads += 1;
            return;
        }
        let dense_age = age.map(|age| match self.is_of_use() {
            true => self.as_many_faults(self.tried.as_fast(age)),
            false => self.as_many_faults(age * GUESS_PART),
        });
        let is_near = distance.zip(dense_age).is_some_and(|(distance, age)| distance < age);
        self.evidence.wants += u64::from(is_near);
    }

    /// Of so many compressed bytes in the pool those that the denser codec spares, or would spare.
    pub fn gain_bytes(&self, bytes: usize) -> usize {
        let bytes = bytes as u64;
        let gain_bytes = match self.choice.is_dense {
            true => self.tried.as_fast(bytes).saturating_sub(bytes),
            false if !self.tried.is_known() => bytes / GUESS_PART,
            false => bytes.saturating_sub(self.tried.as_dense(bytes)),
        };
        gain_bytes as usize
    }

    /// By how much resident memory is larger, or would be, for [`Self::gain_bytes`].
    pub fn resident_gain_bytes(&self, gain_bytes: usize) -> usize {
        if !self.is_cheap {
            return gain_bytes;
        }
        let made = if self.choice.is_dense { &self.tried.fast } else { &self.tried.dense };
        let page_bytes = made.bytes.checked_div(self.tried.pages).map_or(0, |bytes| bytes as usize);
        let freed_bytes = PAGE_BYTES.saturating_sub(page_bytes).max(PAGE_BYTES / GAIN_TIMES_MAX);
        gain_bytes / freed_bytes * PAGE_BYTES
    }

    /// Notes how much is resident, what is gained of the pool, or would be, and what the pages in the store take
    /// as the pool has pages now.
    pub fn set_gain(&mut self, resident_bytes: usize, gain_bytes: usize, spilled_bytes: usize) {
        if self.is_cheap {
            self.resident_pages = (resident_bytes / PAGE_BYTES) as u64;
            self.gained_pages = (self.resident_gain_bytes(gain_bytes) / PAGE_BYTES) as u64;
        }
        self.would_hold_all = self.tried.as_dense(spilled_bytes as u64) <= gain_bytes as u64;
    }

    /// Decides anew; one page in `rate` is in the sample, as in `instead_ticks`: what faults would cost were
    /// [`Self::resident_gain_bytes`] taken from resident memory, where that can be.
    pub fn decide(&mut self, prices: &Prices, instead_ticks: Option<u64>, rate: u64) {
        self.rate = rate;
        if self.has_to_wait() {
            return;
        }
        let Evidence { coded_pages, pool_faults, wants, all_reads, resident_wants } = self.evidence;
        let is_of_use = self.is_of_use();
        let reads = if wants + all_reads >= WANTS_MIN { rate * wants + all_reads } else { 0 };
        let reads_ticks = reads * prices.store_fault_ticks;
        let reads_ticks = match instead_ticks.filter(|_| is_of_use) {
            Some(instead_ticks) => reads_ticks.min(rate * instead_ticks),
            None => reads_ticks,
        };
        let faults_ticks = rate * resident_wants * prices.pool_fault_ticks / FAULT;
        let spared_ticks = reads_ticks + faults_ticks;
        if is_of_use {
            let coded = coded_pages + pool_faults / DECODING_PART;
            let taken_ticks = coded * self.tried.more_coding_ticks();
            self.judge(spared_ticks, taken_ticks, prices.store_fault_ticks);
            // What pages are like may change.
            self.choice.tries = self.choice.is_dense || self.is_cheap;
        } else {
            let promise_ticks = pool_faults * prices.pool_fault_ticks / PROMISE_PART;
            let tries = self.is_cheap && self.tried.is_known() || spared_ticks > promise_ticks;
            self.choice = Choice { is_dense: false, tries };
            self.lost_ticks = 0;
        }
        self.evidence.fade();
    }

    /// Whether the denser codec is known to leave pages shorter. Where it did not, pages may be others by now.
    fn is_of_use(&self) -> bool {
        self.tried.is_known() && !self.tried.is_in_vain()
    }

    /// Whether there is something to decide by, but not enough.
    fn has_to_wait(&mut self) -> bool {
        let is_little = (1..WANTS_MIN).contains(&(self.evidence.wants + self.evidence.all_reads));
        let waits = is_little && !self.is_cheap && !self.choice.is_dense;
        self.waited_terms = if waits { self.waited_terms + 1 } else { 0 };
        waits && self.waited_terms < WAIT_TERMS
    }

    /// Decides anew where there is no store.
    pub fn decide_alone(&mut self, shares: &Shares) {
        let gain_bytes = if self.choice.is_dense { self.gain_bytes(shares.pool_bytes) } else { 0 };
        let resident_bytes = shares.resident_bytes.saturating_sub(gain_bytes);
        let part = if self.choice.is_dense { ROOMY_PART } else { SHORT_PART };
        let is_short = resident_bytes < (shares.resident_bytes + shares.pool_bytes) / part;
        self.choice.tries = is_short;
        self.choice.is_dense = is_short && !self.tried.is_in_vain();
    }

    fn judge(&mut self, spared_ticks: u64, taken_ticks: u64, store_fault_ticks: u64) {
        let regret_ticks = self.surplus_pages * store_fault_ticks / REGRET_PART;
        let margin_times = if self.is_cheap { CHEAP_MARGIN_TIMES } else { MARGIN_TIMES };
        let pays = match self.choice.is_dense {
            true => {
                self.lost_ticks = (self.lost_ticks + taken_ticks).saturating_sub(spared_ticks);
                self.lost_ticks <= regret_ticks
            }
            false => spared_ticks > taken_ticks * margin_times,
        };
        self.choice.is_dense = pays;
        if !self.choice.is_dense {
            self.lost_ticks = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tried::Made;

    /// Pages of 2000 bytes that the denser codec halves, by ten times the time.
    const TRIED: Tried = Tried {
        pages: 16,
        fast: Made { bytes: 32_000, coding_ticks: 32_000, decoding_ticks: 0 },
        dense: Made { bytes: 16_000, coding_ticks: 320_000, decoding_ticks: 0 },
    };
    /// Coding a page takes 18,000 ticks more.
    const CHEAP: Prices = Prices { pool_fault_ticks: 10_000, store_fault_ticks: 100_000 };
    const DEAR: Prices = Prices { pool_fault_ticks: 10_000, store_fault_ticks: 10_000_000 };
    /// Departures after which pages leave the pool.
    const AGE: Option<u64> = Some(1000);

    /// A term of 500 departures and as many faults, of which so many read the store for a page that
    /// left `distance` departures ago.
    fn term(density: &mut DensePool, reads: u64, distance: u64, prices: &Prices) {
        density.coded(500, Tried::default());
        (0..500 - reads).for_each(|_| density.pool_fault(Some(10)));
        (0..reads).for_each(|_| density.store_fault(Some(distance), AGE));
        density.decide(prices, None, 1);
    }

    fn known() -> DensePool {
        let mut density = DensePool::default();
        density.coded(0, TRIED);
        density
    }

    fn dense() -> DensePool {
        let mut density = known();
        term(&mut density, 50, 1500, &DEAR);
        assert!(density.choice().is_dense);
        density.set_surplus(density.surplus_pages(400), Some(600));
        density
    }

    #[test]
    fn nothing_is_tried_while_reads_take_a_small_part_of_the_time() {
        let mut density = DensePool::default();
        term(&mut density, 10, 1500, &CHEAP);
        assert!(!density.choice().tries);
        term(&mut density, 10, 1500, &DEAR);
        assert!(density.choice().tries && !density.choice().is_dense);
        // Of twice the pages none of these would have been there.
        let mut density = DensePool::default();
        term(&mut density, 100, 2000, &DEAR);
        assert!(!density.choice().tries);
    }

    #[test]
    fn what_was_in_vain_is_tried_again() {
        let mut density = DensePool::default();
        let in_vain = Tried { dense: Made { bytes: 31_000, ..TRIED.dense }, ..TRIED };
        density.coded(0, in_vain);
        term(&mut density, 50, 1500, &DEAR);
        assert!(density.choice().tries && !density.choice().is_dense);
        (0..8).for_each(|_| term(&mut density, 50, 2000, &CHEAP));
        assert!(!density.choice().tries);
        // Pages have become others.
        (0..2).for_each(|_| density.coded(0, TRIED));
        term(&mut density, 50, 1500, &DEAR);
        assert!(density.choice().is_dense);
        density.coded(0, Tried { pages: 160, fast: TRIED.fast, dense: TRIED.fast });
        (0..9).for_each(|_| density.coded(0, in_vain));
        term(&mut density, 50, 1500, &DEAR);
        assert!(density.choice().tries && !density.choice().is_dense);
    }

    #[test]
    fn it_begins_where_it_spares_twice_what_it_takes() {
        // 500 pages and 490 faults of half as much: 13.4 million ticks.
        for (reads, distance, prices, is_dense) in [
            (2, 1500, DEAR, false),
            (10, 1500, CHEAP, false),
            (10, 1500, DEAR, true),
            (10, 1999, DEAR, true),
            (10, 2000, DEAR, false),
        ] {
            let mut density = known();
            term(&mut density, reads, distance, &prices);
            assert_eq!(density.choice().is_dense, is_dense, "{reads} reads at {distance}");
        }
    }

    #[test]
    fn it_does_not_begin_where_resident_memory_could_do_with_less() {
        let mut density = known();
        density.coded(500, Tried::default());
        (0..50).for_each(|_| density.store_fault(Some(1500), AGE));
        let mut other = density;
        density.decide(&DEAR, Some(1_000_000), 1);
        other.decide(&DEAR, Some(100_000_000), 1);
        assert_eq!((density.choice().is_dense, other.choice().is_dense), (false, true));
    }

    #[test]
    fn it_stays_while_the_fast_codec_would_have_let_go_what_is_wanted() {
        let mut density = dense();
        assert_eq!(density.gain_bytes(1000), 1000);
        for _ in 0..100 {
            density.coded(500, Tried::default());
            (0..10).for_each(|_| density.pool_fault(Some(700)));
            density.decide(&DEAR, None, 1);
            assert!(density.choice().is_dense);
        }
    }

    #[test]
    fn it_is_given_up_when_it_took_what_its_end_may_cost() {
        let mut density = dense();
        let mut terms = 0;
        while density.choice().is_dense {
            density.coded(500, Tried::default());
            (0..10).for_each(|_| density.pool_fault(Some(500)));
            density.decide(&DEAR, None, 1);
            terms += 1;
        }
        // Half of 200 reads of 10 ms, by 18 ms a term, which first comes to twice that.
        assert!((25..=60).contains(&terms), "{terms}");
    }

    #[test]
    fn without_a_store_it_is_taken_while_little_is_resident() {
        let mut density = known();
        for (resident_bytes, is_dense) in [
            (13_000, false),
            (12_000, true),
            // With the fast codec so much less of the hundred thousand would be resident.
            (59_000, true),
            (64_000, false),
        ] {
            let shares = Shares {
                resident_bytes,
                pool_bytes: 100_000 - resident_bytes,
                ..Shares::default()
            };
            density.decide_alone(&shares);
            assert_eq!(density.choice().is_dense, is_dense, "{resident_bytes}");
        }
    }

    #[test]
    fn it_is_not_taken_where_pages_become_no_shorter() {
        let mut density = DensePool::default();
        density.coded(0, Tried { dense: Made { bytes: 30_000, ..TRIED.dense }, ..TRIED });
        term(&mut density, 100, 1010, &DEAR);
        assert!(!density.choice().is_dense && density.choice().tries);
    }

    /// A cheap codec of which is known what [`TRIED`] says but for the time, 200 ticks a page, with so much
    /// resident, that would spare a MiB of the pool while 4 MiB are in the store.
    fn cheap(resident_bytes: usize) -> DensePool {
        let mut density = DensePool::cheap();
        let dense = Made { coding_ticks: 32_000 + 16 * 200, ..TRIED.dense };
        density.coded(0, Tried { dense, ..TRIED });
        density.set_gain(resident_bytes, MIB, 4 * MIB);
        density
    }

    const MIB: usize = 1 << 20;

    #[test]
    fn a_cheap_one_is_taken_for_fewer_faults() {
        // Where pages are 1000 bytes, a MiB of the pool has room for 338 more that are resident: with 256, more
        // than half of the faults after ten departures are spared.
        for (resident_bytes, is_dense) in [(MIB, true), (1000 * MIB, false)] {
            let mut density = cheap(resident_bytes);
            term(&mut density, 0, 0, &CHEAP);
            assert_eq!(density.choice().is_dense, is_dense, "{resident_bytes}");
            assert!(density.choice().tries);
        }
        // Another is for reads alone.
        let mut density = known();
        density.set_gain(MIB, MIB, 4 * MIB);
        term(&mut density, 0, 0, &CHEAP);
        assert!(!density.choice().is_dense);
    }

    #[test]
    fn all_reads_speak_for_a_cheap_one_by_which_all_would_have_room() {
        for (spilled_bytes, is_dense) in [(2 * MIB, true), (3 * MIB, false)] {
            let mut density = cheap(1000 * MIB);
            density.set_gain(1000 * MIB, MIB, spilled_bytes);
            term(&mut density, 50, 1_000_000, &CHEAP);
            assert_eq!(density.choice().is_dense, is_dense, "{spilled_bytes}");
        }
    }

    #[test]
    fn all_reads_speak_for_one_by_which_all_would_have_room() {
        for (spilled_bytes, is_dense) in [(2 * MIB, true), (3 * MIB, false)] {
            let mut density = known();
            density.set_gain(MIB, MIB, spilled_bytes);
            term(&mut density, 10, 1_000_000, &DEAR);
            assert_eq!(density.choice().is_dense, is_dense, "{spilled_bytes}");
        }
    }

    #[test]
    fn where_all_would_have_room_each_read_counts_once() {
        // 10 million ticks for 13.4 million that are taken, or ten times as many. If each stood for the 32 pages
        // of one in the sample, the former would be enough, too.
        for (prices, is_dense) in
            [(DEAR, true), (Prices { store_fault_ticks: 1_000_000, ..DEAR }, false)]
        {
            for distance in [None, Some(1_000_000)] {
                let mut density = known();
                density.set_gain(MIB, MIB, 2 * MIB);
                density.coded(500, Tried::default());
                (0..490).for_each(|_| density.pool_fault(Some(10)));
                (0..10).for_each(|_| density.store_fault(distance, AGE));
                density.decide(&prices, None, 32);
                assert_eq!(density.choice().is_dense, is_dense, "{distance:?}");
            }
        }
    }

    #[test]
    fn reads_that_are_few_and_dear_are_added_up() {
        // A read of 10 ms for 500 pages and as many faults, of 13.4 million ticks.
        let mut density = known();
        let terms = (1..).find(|_| {
            term(&mut density, 1, 1500, &Prices { store_fault_ticks: 100_000_000, ..DEAR });
            density.choice().is_dense
        });
        assert_eq!(terms, Some(WANTS_MIN as u32));
        // What is rarer than that is forgotten.
        let mut density = known();
        for _ in 0..8 {
            term(&mut density, 1, 1500, &DEAR);
            for _ in 0..WAIT_TERMS {
                term(&mut density, 0, 0, &DEAR);
            }
            assert!(!density.choice().is_dense);
        }
    }

    #[test]
    fn a_cheap_one_is_kept_while_resident_memory_would_be_much_less() {
        for (resident_bytes, is_dense) in [(MIB, true), (1000 * MIB, false)] {
            let mut density = cheap(MIB);
            term(&mut density, 0, 0, &CHEAP);
            for _ in 0..100 {
                density.set_gain(resident_bytes, MIB, 0);
                term(&mut density, 0, 0, &CHEAP);
            }
            assert_eq!(density.choice().is_dense, is_dense, "{resident_bytes}");
        }
    }
}
