//! How a process shares its part of the budget between resident and compressed
//! memory, and what it does next when it has too much.
//!
//! Every byte that the pool loses to resident pages spares some faults served
//! from the pool and makes others go to the store. Which is worth more depends on
//! the program, so both are counted, for pages that a sampler follows.
//!
//! A page stays resident for about as many departures as there are resident pages,
//! R, and is missed d departures after its own, so it is missed once in R + d. With
//! a margin m of resident memory more it would be missed once in R + m + d: a fault
//! speaks for more resident memory with m / (R + m + d) of what one costs that the pool serves. What a read
//! costs more, which a page in the store is spared then, is that much less lost to the pool, see below. A page
//! that is wanted so late that a pool smaller by the margin would have spilled it, or
//! a larger one would have kept it, speaks for the pool with all of a fault. How late that
//! is the pool's order tells: where pages are wanted at random few grow old, and the oldest
//! sixteenth of them has much more than a sixteenth of the age of the oldest. Of the pages in that
//! margin resident memory would keep as many as fit it as they are: a pool whose pages hardly shrink loses hardly
//! any ([`Loss`]). A page that
//! does not shrink takes as much of the pool as of resident memory: wanted from the store,
//! it speaks for resident memory, with what that fault cost. Each kind is weighed with what
//! it was measured to cost, and the border moves a step to the better side.
//!
//! What was not seen is not taken for nothing. Of an old pool hardly anything is wanted, until
//! the program goes on to something else, and then one read may cost as much as thousands of
//! faults served from the pool. So a few faults a term speak for the pool in any case, which
//! is little where a read costs little; and fewer, down to an eighth, the longer nothing of the
//! oldest was wanted.
//!
//! Source: castro (2003), 2.3.3 (a cache that grows while its benefit exceeds its
//! expense); Waldspurger and others (2015) for the sample.
//!
//! Bad case: phases shorter than a quarter of the resident pages leaving.

use crate::sample::Sampler;
use crate::shares::{PAGE_BYTES, Shares, Step};

/// The border is kept in parts of so many.
const PARTS: u32 = 256;
/// Where it starts, and between what it moves while there is a store.
const PART_FIRST: u32 = PARTS / 4;
const PART_MIN: u32 = PARTS / 16;
const PART_MAX: u32 = PARTS * 15 / 16;
/// How far it moves at a time.
const PART_STEP: u32 = PARTS / 32;
/// A "somewhat" larger or smaller share: this part of the sum, but half of the pool at most, as what
/// it is worth as a whole says little about a part of it; and no less than a trace.
const MARGIN_PART: usize = 16;
const MARGIN_POOL_PART: usize = 2;
const MARGIN_MIN_PART: usize = 128;
/// Of less than this part of what is resident it is not known what it is worth.
const LEFT_PART: usize = 4;
/// Part of the resident pages that leave between two moves.
const TERM_PART: u64 = 4;
/// Departures between two moves at least.
const TERM_MIN: u64 = 512;
/// Faults served from the pool that one from the store is taken to cost before one was measured.
const STORE_FAULTS_GUESS: u64 = 12;
/// Faults a term that count for the pool, were it all of memory, although none was seen: one for so
/// many pages of a margin, and so many at most.
const UNSEEN_PAGES: u64 = 64;
const UNSEEN: u64 = 4;
/// So many terms in which none was seen make half as many of them.
const QUIET_TERMS: u64 = 32;
/// More than so many say nothing more: what was not wanted for long may be wanted all at once.
const QUIET_TERMS_MAX: u64 = 7 * QUIET_TERMS;
/// Part of the evidence that is left after a move, and so for how many terms all of it stands.
const EVIDENCE_PART: u64 = 2;
/// One fault, as evidence is counted.
const FAULT: u64 = 256;
/// A mean takes in this part of every new value.
const MEAN_PART: i64 = 32;

/// A mean in which the past fades.
#[derive(Debug, Clone, Copy, Default)]
struct Mean(u64);

impl Mean {
    fn add(&mut self, value: u64) {
        let change = (value as i64).wrapping_sub(self.0 as i64) / MEAN_PART;
        self.0 = if self.0 == 0 { value } else { self.0.wrapping_add_signed(change) };
    }
}

/// Faults on sampled pages that a move of the border would have changed, in parts of [`FAULT`].
#[derive(Debug, Clone, Copy, Default)]
struct Evidence {
    /// With more resident memory they would not have happened.
    resident_wants: u64,
    /// Served from the pool; with a smaller one they would have gone to the store.
    pool_needs: u64,
    /// Served from the store; with a larger pool they would not have been.
    pool_wants: u64,
    /// Served from the store, of pages that do not shrink; with more resident memory they would
    /// not have happened.
    raw_wants: u64,
}

impl Evidence {
    /// What is left of it after a move.
    fn fade(&mut self) {
        let Evidence { resident_wants, pool_needs, pool_wants, raw_wants } = self;
        for evidence in [resident_wants, pool_needs, pool_wants, raw_wants] {
            *evidence /= EVIDENCE_PART;
        }
    }
}

/// What faults cost, in the caller's unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prices {
    /// One that the pool serves, with what has to leave for it.
    pub pool_fault_ticks: u64,
    /// One of a page in the store, more than that.
    pub store_fault_ticks: u64,
}

/// What the pool would lose, were it smaller by [`Shares::margin_bytes`] and resident memory larger by as much, which
/// keeps as many pages as it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// How many pages have left since the one did that would be the pool's oldest then; `None` where that is not known.
    pub next_age: Option<u64>,
    /// The pages that would be lost, in percent of those that lie in the margin.
    pub percent: u64,
}

/// The border between resident and compressed memory.
#[derive(Debug, Clone, Copy)]
pub struct Split {
    /// Part of the sum that stays resident while something may be spilled, of [`PARTS`].
    part: u32,
    evidence: Evidence,
    /// A fault that the pool serves, with what has to leave for it; a read from the
    /// store; a page's share of a write. All in the caller's unit of time.
    pool_fault: Mean,
    store_read: Mean,
    page_write: Mean,
    /// What a read from the store is expected to take before there was one; 0 where that is not known.
    expected_read_ticks: u64,
    /// Departures after which the oldest page of the pool has not been missed.
    pool_age: Option<u64>,
    /// Resident pages, and margins, in departures.
    resident_pages: u64,
    resident_margin: u64,
    pool_margin: u64,
    moves_at: u64,
    /// Terms since a fault was seen that speaks for the pool.
    quiet_terms: u64,
    /// Whether the user set the border, so that it stays.
    is_set: bool,
}

impl Default for Split {
    fn default() -> Self {
        Split {
            part: PART_FIRST,
            evidence: Evidence::default(),
            pool_fault: Mean::default(),
            store_read: Mean::default(),
            page_write: Mean::default(),
            expected_read_ticks: 0,
            pool_age: None,
            resident_pages: 0,
            resident_margin: 0,
            pool_margin: 0,
            moves_at: 0,
            quiet_terms: 0,
            is_set: false,
        }
    }
}

impl Split {
    /// A border that stays where `percent` of the sum are resident, 1 to 99.
    pub fn at(percent: usize) -> Self {
        Split { part: PARTS * percent as u32 / 100, is_set: true, ..Split::default() }
    }

    /// Has a read from the store be expected to take so long until one was measured; 0 where nothing is known.
    pub fn expect_read(&mut self, ticks: u64) {
        self.expected_read_ticks = ticks;
    }

    /// Notes a fault that took `ticks` and was served from the pool; the page had been away for
    /// `distance` departures.
    pub fn pool_fault(&mut self, distance: Option<u64>, ticks: u64) {
        self.pool_fault.add(ticks);
        let Some(distance) = distance else { return };
        self.evidence.resident_wants += self.spared(distance);
        let last = self.pool_age.map(|age| age.saturating_sub(self.pool_margin));
        let is_needed = last.is_some_and(|last| distance > last);
        self.evidence.pool_needs += FAULT * u64::from(is_needed);
    }

    /// The part of a fault, at such a distance, that the margin of resident memory would spare.
    fn spared(&self, distance: u64) -> u64 {
        let period = self.resident_pages + self.resident_margin + distance;
        FAULT * self.resident_margin / period.max(1)
    }

    /// Notes a fault for which the store was read for `ticks`, where the page lay as it was
    /// (`is_raw`) or compressed.
    pub fn store_fault(&mut self, distance: Option<u64>, is_raw: bool, ticks: u64) {
        self.store_read.add(ticks);
        let spared = distance.map_or(0, |distance| self.spared(distance));
        if is_raw {
            self.evidence.raw_wants += spared;
            return;
        }
        self.evidence.resident_wants += spared;
        let limit = self.pool_age.map(|age| age + self.pool_margin);
        let is_near = distance.zip(limit).is_some_and(|(distance, limit)| distance < limit);
        self.evidence.pool_wants += FAULT * u64::from(is_near);
    }

    /// Whether a page that has been away for `distance` departures would still be in the pool, had it
    /// gone there.
    pub fn would_have(&self, distance: Option<u64>) -> bool {
        distance.zip(self.pool_age).is_some_and(|(distance, age)| distance < age)
    }

    /// Departures after which the oldest page of the pool has not been missed, where that is known.
    pub fn pool_age(&self) -> Option<u64> {
        self.pool_age
    }

    /// What faults cost, as far as they were measured.
    pub fn prices(&self) -> Prices {
        Prices { pool_fault_ticks: self.pool_fault.0, store_fault_ticks: self.store_fault_ticks() }
    }

    /// What faults would have cost more, since the border moved last and as far as the sample has them, were
    /// resident memory smaller by `bytes`: what a margin is worth, for as many of them, and more so the
    /// less is left. `None` where that is less than a quarter.
    pub fn resident_worth_ticks(&self, shares: &Shares, bytes: usize) -> Option<u64> {
        let left_bytes = shares.resident_bytes.checked_sub(bytes)?;
        if left_bytes < shares.resident_bytes / LEFT_PART || left_bytes == 0 {
            return None;
        }
        let margin_bytes = self.resident_margin.max(1) as f64 * PAGE_BYTES as f64;
        let margins = bytes as f64 / margin_bytes;
        let dearer = shares.resident_bytes as f64 / left_bytes as f64;
        Some((self.resident_worth() as f64 / FAULT as f64 * margins * dearer) as u64)
    }

    /// What a margin more of resident memory would have spared, in ticks by [`FAULT`].
    fn resident_worth(&self) -> u64 {
        let Evidence { resident_wants, raw_wants, .. } = self.evidence;
        resident_wants * self.pool_fault.0 + raw_wants * self.store_fault_ticks()
    }

    /// Notes a write of `pages` to the store that took `ticks`.
    pub fn spilled(&mut self, pages: usize, ticks: u64) {
        self.page_write.add(ticks / pages.max(1) as u64);
    }

    /// Whether the user set the border.
    pub fn is_set(&self) -> bool {
        self.is_set
    }

    /// Whether enough pages have left for the next [`Self::move_border`].
    pub fn is_due(&self, sampler: &Sampler<'_>) -> bool {
        !self.is_set && sampler.departures() >= self.moves_at
    }

    /// Moves the border as the evidence says. `oldest` are pages that have been in the pool for longest.
    pub fn move_border(
        &mut self,
        shares: &Shares,
        sampler: &Sampler<'_>,
        mut oldest: impl Iterator<Item = u64>,
        loss: Loss,
    ) {
        let Evidence { pool_needs, pool_wants, .. } = self.evidence;
        let (store_fault_ticks, resident_worth) = (self.store_fault_ticks(), self.resident_worth());
        self.quiet_terms = match pool_needs.max(pool_wants) >= FAULT {
            true => 0,
            false => (self.quiet_terms + 1).min(QUIET_TERMS_MAX),
        };
        let unseen = unseen(shares, sampler) * QUIET_TERMS / (QUIET_TERMS + self.quiet_terms);
        let unseen = unseen * loss.percent / 100;
        let pool_worth = (pool_needs.max(pool_wants) + unseen) * store_fault_ticks;
        if resident_worth > pool_worth + pool_worth / 4 {
            self.part = (self.part + PART_STEP).min(PART_MAX);
        } else if pool_worth > resident_worth + resident_worth / 4 {
            self.part = (self.part - PART_STEP).max(PART_MIN);
        }
        self.evidence.fade();
        // Among many old pages there may be none of a sparse sample.
        let known = self.pool_age.filter(|_| shares.pool_bytes > 0);
        self.pool_age = oldest.find_map(|page| sampler.distance(page)).or(known);
        self.resident_pages = (shares.resident_bytes / PAGE_BYTES) as u64;
        let margin_bytes = shares.margin_bytes();
        self.resident_margin = (margin_bytes / PAGE_BYTES) as u64;
        let age = self.pool_age.unwrap_or(0);
        let even = u128::from(age) * margin_bytes as u128 / shares.pool_bytes.max(1) as u128;
        let even = even.min(u128::from(age)) as u64 * loss.percent / 100;
        self.pool_margin = loss.next_age.map_or(even, |next_age| age.saturating_sub(next_age));
        let term = self.resident_pages / TERM_PART;
        self.moves_at = sampler.departures() + term.max(TERM_MIN);
    }

    /// What a page in the store costs more than one in the pool.
    fn store_fault_ticks(&self) -> u64 {
        match self.store_read.0 {
            0 if self.expected_read_ticks == 0 => self.pool_fault.0 * STORE_FAULTS_GUESS,
            0 => self.expected_read_ticks,
            read => read + self.page_write.0,
        }
    }

    /// What is the pool's of what a process holds, in bytes.
    pub fn pool_share_bytes(&self, shares: &Shares) -> usize {
        let sum = shares.resident_bytes + shares.pool_bytes;
        sum / PARTS as usize * (PARTS - self.part) as usize
    }

    /// The next step of a process that holds `shares` and has to give.
    pub fn next_step(&self, shares: &Shares) -> Step {
        let sum = shares.resident_bytes + shares.pool_bytes;
        let few_resident = shares.resident_bytes < sum / PARTS as usize * self.part as usize;
        shares.step(few_resident || shares.is_full_of_raw())
    }
}

impl Shares {
    /// A "somewhat" larger or smaller share.
    pub fn margin_bytes(&self) -> usize {
        let sum = self.resident_bytes + self.pool_bytes;
        (self.pool_bytes / MARGIN_POOL_PART).clamp(sum / MARGIN_MIN_PART, sum / MARGIN_PART)
    }
}

/// Faults from the pool that are counted although none was seen, in the unit of the evidence. The
/// smaller the pool, the less can be wanted of it, and the smaller the margin, the less of that
/// would have been spilled with less memory.
fn unseen(shares: &Shares, sampler: &Sampler<'_>) -> u64 {
    let sum_bytes = (shares.resident_bytes + shares.pool_bytes) as u64;
    let margin_pages = sum_bytes / (MARGIN_PART * PAGE_BYTES) as u64;
    let part = FAULT * shares.pool_bytes as u64 / sum_bytes.max(1);
    let most = UNSEEN * UNSEEN_PAGES;
    let wants = part * margin_pages.min(most) / UNSEEN_PAGES;
    (EVIDENCE_PART * wants).div_ceil(sampler.rate())
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::sample::{SLOTS, Sample};
    use std::vec;

    const MIB: usize = 1 << 20;

    #[test]
    fn the_pool_grows_until_few_pages_are_resident() {
        let split = Split::default();
        let mut shares = Shares { resident_bytes: 8 * MIB, has_store: true, ..Shares::default() };
        assert_eq!(split.next_step(&shares), Step::SwapOut);
        shares.pool_bytes = 70 * MIB;
        assert_eq!(split.next_step(&shares), Step::Spill);
        shares.has_store = false;
        assert_eq!(split.next_step(&shares), Step::SwapOut);
        shares.pool_bytes = 200 * MIB;
        assert_eq!(split.next_step(&shares), Step::Nothing);
    }

    #[test]
    fn raw_pages_leave_at_once() {
        let shares =
            Shares { resident_bytes: 8 * MIB, raw_bytes: MIB, pool_bytes: MIB, has_store: true };
        assert_eq!(Split::default().next_step(&shares), Step::Spill);
    }

    /// What a smaller pool would have spilled its order tells, not its age alone.
    #[test]
    fn a_margin_is_as_old_as_the_pages_in_it() {
        let (resident_bytes, pool_bytes) = (4 * MIB, 4 * MIB);
        let shares = Shares { resident_bytes, pool_bytes, has_store: true, ..Shares::default() };
        let mut slots = vec![Sample::default(); SLOTS];
        let mut sampler = Sampler::new(&mut slots, 1000);
        (0..2000).for_each(|page| sampler.leaves(page));
        let needs = |next_age| {
            let mut split = Split::default();
            split.move_border(&shares, &sampler, 0..2000, Loss { next_age, percent: 100 });
            (800..1000).for_each(|page| split.pool_fault(sampler.distance(page), 100));
            split.evidence.pool_needs
        };
        assert_eq!(needs(None), 0);
        assert_eq!(needs(Some(1750)), 0);
        assert_eq!(needs(Some(1000)), 200 * FAULT);
    }

    #[test]
    fn the_last_pages_stay() {
        let shares = Shares { resident_bytes: 4096, ..Shares::default() };
        assert_eq!(Split::default().next_step(&shares), Step::Nothing);
    }

    /// Where pages come back from.
    enum From {
        Pool,
        Store { is_raw: bool },
    }

    /// How far the border of a process moves whose pages all left in order and come back as `missed`
    /// says; a read from the store takes `read_ticks`, a fault served from the pool 100.
    fn border_after(missed: impl Fn(u64) -> Option<From>, read_ticks: u64) -> i32 {
        border_of((4 * MIB, 4 * MIB), missed, read_ticks)
    }

    const ALL: Loss = Loss { next_age: None, percent: 100 };

    /// [`border_after`] of a process with such resident memory and such a pool.
    fn border_of(
        shares: (usize, usize),
        missed: impl Fn(u64) -> Option<From>,
        read_ticks: u64,
    ) -> i32 {
        border_where(ALL, shares, missed, read_ticks)
    }

    /// [`border_of`] a process whose pool would lose so much.
    fn border_where(
        loss: Loss,
        (resident_bytes, pool_bytes): (usize, usize),
        missed: impl Fn(u64) -> Option<From>,
        read_ticks: u64,
    ) -> i32 {
        let shares = Shares { resident_bytes, pool_bytes, has_store: true, ..Shares::default() };
        let mut slots = vec![Sample::default(); SLOTS];
        let mut sampler = Sampler::new(&mut slots, 1000);
        let mut split = Split::default();
        (0..2000).for_each(|page| sampler.leaves(page));
        split.spilled(64, 640);
        split.store_fault(None, false, read_ticks);
        split.move_border(&shares, &sampler, 0..2000, loss);
        let before = split.part;
        for page in 0..2000 {
            let distance = sampler.distance(page);
            match missed(page) {
                None => {}
                Some(From::Pool) => split.pool_fault(distance, 100),
                Some(From::Store { is_raw }) => split.store_fault(distance, is_raw, read_ticks),
            }
        }
        split.move_border(&shares, &sampler, 0..2000, loss);
        split.part.cast_signed() - before.cast_signed()
    }

    const STEP: i32 = PART_STEP.cast_signed();

    #[test]
    fn the_border_follows_what_is_missed() {
        // Missed just after they left: more of them should have stayed.
        let missed_soon = |page| (page > 1500).then_some(From::Pool);
        assert_eq!(border_after(missed_soon, 300), STEP);
        // And others when they just had been spilled.
        let from_store =
            |page, is_raw| (1000..1300).contains(&page).then_some(From::Store { is_raw });
        assert_eq!(border_after(|page| missed_soon(page).or(from_store(page, false)), 300), -STEP);
        // Raw ones take as much of the pool: they should have stayed resident.
        assert_eq!(border_after(|_| None, 300), -STEP);
        assert_eq!(border_after(|page| from_store(page, true), 300), STEP);
    }

    #[test]
    fn what_lies_in_the_store_would_stay_resident_as_well() {
        let (resident_bytes, pool_bytes) = (4 * MIB, 4 * MIB);
        let shares = Shares { resident_bytes, pool_bytes, has_store: true, ..Shares::default() };
        let mut slots = vec![Sample::default(); SLOTS];
        let mut sampler = Sampler::new(&mut slots, 1000);
        (0..2000).for_each(|page| sampler.leaves(page));
        let mut split = Split::default();
        split.move_border(&shares, &sampler, 1000..2000, ALL);
        // Too late for a larger pool, and for a larger resident memory by chance.
        (0..600).for_each(|page| split.store_fault(sampler.distance(page), false, 300));
        let Evidence { resident_wants, pool_wants, raw_wants, .. } = split.evidence;
        let known = (0..600).filter(|page| sampler.distance(*page).is_some()).count() as u64;
        let spared = |distance: u64| FAULT * 128 / (1024 + 128 + distance) * known;
        assert!((spared(2000)..=spared(1400)).contains(&resident_wants) && known > 0);
        assert_eq!((pool_wants, raw_wants), (0, 0));
    }

    #[test]
    fn a_read_takes_what_is_expected_until_one_was_measured() {
        let mut split = Split::default();
        split.pool_fault(None, 100);
        assert_eq!(split.prices().store_fault_ticks, 100 * STORE_FAULTS_GUESS);
        split.expect_read(8_000_000);
        assert_eq!(split.prices().store_fault_ticks, 8_000_000);
        split.store_fault(None, false, 300);
        assert_eq!(split.prices().store_fault_ticks, 300);
    }

    #[test]
    fn of_a_small_pool_its_older_half_is_looked_at() {
        let small = (31 * MIB, MIB);
        let missed_soon = |page| (page > 1200).then_some(From::Pool);
        assert_eq!(border_of(small, missed_soon, 300), STEP);
        let missed_late = |page| (page < 800).then_some(From::Pool);
        assert_eq!(border_of(small, missed_late, 300), -STEP);
    }

    #[test]
    fn the_smaller_a_pool_the_less_was_not_seen_of_it() {
        let mut slots = vec![Sample::default(); SLOTS];
        let sampler = Sampler::new(&mut slots, 1000);
        let unseen_of = |mib: usize| {
            let (resident_bytes, pool_bytes) = (mib * MIB / 2, mib * MIB / 2);
            unseen(&Shares { resident_bytes, pool_bytes, ..Shares::default() }, &sampler)
        };
        assert_eq!(unseen_of(64), EVIDENCE_PART * UNSEEN * FAULT / 2);
        assert_eq!([4, 8, 16].map(|mib| unseen_of(64) / unseen_of(mib)), [4, 2, 1]);
    }

    #[test]
    fn an_old_pool_is_not_given_away_where_a_read_costs_much() {
        let missed_soon = |page| (page > 1500).then_some(From::Pool);
        assert_eq!(border_after(missed_soon, 300), STEP);
        assert_eq!(border_after(missed_soon, 100_000), -STEP);
        // Of pages that hardly shrink resident memory would keep nearly all.
        let loss = Loss { next_age: None, percent: 0 };
        assert_eq!(border_where(loss, (4 * MIB, 4 * MIB), missed_soon, 100_000), STEP);
    }

    #[test]
    fn an_old_pool_is_given_away_when_nothing_of_it_is_wanted_for_long() {
        let half = Shares { resident_bytes: 4 * MIB, pool_bytes: 4 * MIB, ..Shares::default() };
        let shares = Shares { has_store: true, ..half };
        let mut slots = vec![Sample::default(); SLOTS];
        let mut sampler = Sampler::new(&mut slots, 1000);
        let mut split = Split { part: PARTS / 2, ..Split::default() };
        (0..2000).for_each(|page| sampler.leaves(page));
        split.spilled(64, 640);
        split.store_fault(None, false, 20_000);
        let mut moved = |terms: u64| {
            let before = split.part;
            for _ in 0..terms {
                (1500..2000).for_each(|page| split.pool_fault(sampler.distance(page), 100));
                split.move_border(&shares, &sampler, 0..2000, ALL);
            }
            split.part.cast_signed() - before.cast_signed()
        };
        assert!(moved(4) < 0);
        assert!(moved(QUIET_TERMS_MAX) > 0);
    }

    #[test]
    fn a_border_that_was_set_stays() {
        let split = Split::at(75);
        let mut slots = vec![Sample::default(); SLOTS];
        assert!(!split.is_due(&Sampler::new(&mut slots, 1000)));
        let shares = |resident_bytes| Shares {
            resident_bytes,
            pool_bytes: 8 * MIB - resident_bytes,
            has_store: true,
            ..Shares::default()
        };
        assert_eq!(split.next_step(&shares(6 * MIB)), Step::SwapOut);
        assert_eq!(split.pool_share_bytes(&shares(MIB)), 2 * MIB);
        assert_eq!(split.next_step(&shares(6 * MIB - 4096)), Step::Spill);
    }
}
