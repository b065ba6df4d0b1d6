//! Which resident pages leave: those that came in first.
//!
//! Source: Belady's FIFO (A study of replacement algorithms, 1966). The order is kept as castro
//! (2003), 2.3.2, keeps that of compressed pages: nothing that happens to a page while it is there
//! changes its turn.
//!
//! Arrivals are told apart by a mark of 16 bits, which a page gets when it comes in and keeps. A
//! mark passes for every sixteenth of the resident pages that left, and pages of one mark leave in
//! the order of their addresses: neighbours leave together, which makes lifting them cheaper. The
//! hand goes round the pages and takes those of the earliest mark; while it does it learns which
//! mark is next. So a page is looked at some sixteen times before it leaves.
//!
//! Invariant: no page leaves while one with an earlier mark may leave.
//!
//! Bad case: pages that are used all the time leave as often as those used once; a loop over a
//! little more than is resident misses at every page.

use crate::clock::{Found, LATELY_MARKS, MARKS_PER_TIME, MARKS_PER_TURN, Residents};

/// Rounds of one search: the rest of one, one that finds out which mark is the earliest, one that
/// takes it.
const ROUNDS_MAX: u32 = 3;

/// The hand, and which marks it takes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Arrival {
    hand: u64,
    mark: u16,
    /// Pages of this mark and earlier ones leave in this round.
    leaving: u16,
    /// The earliest mark that was passed in this round, or that pages can have which came in behind
    /// the hand.
    passed: u16,
    taken_since_mark: u64,
}

impl Arrival {
    /// The mark that a page gets which comes in now.
    pub fn mark(&self) -> u16 {
        self.mark
    }

    /// The time at which a page leaves now, modulo `times`, a power of two.
    pub fn time(&self, times: u8) -> u8 {
        (self.mark / MARKS_PER_TIME) as u8 % times
    }

    /// Whether a page that came in at `mark` did so not long ago.
    pub fn came_lately(&self, mark: u16) -> bool {
        self.age(mark) < LATELY_MARKS
    }

    fn age(&self, mark: u16) -> u16 {
        self.mark.wrapping_sub(mark)
    }

    /// Chooses pages to leave, in ascending runs, and gives how many were written to `victims`.
    pub fn take(&mut self, residents: &impl Residents, victims: &mut [u64]) -> usize {
        let steps_max = (residents.count() + 1) * u64::from(ROUNDS_MAX) + victims.len() as u64;
        let mut rounds = 0;
        let mut count = 0;
        for _ in 0..steps_max {
            if count == victims.len() {
                break;
            }
            match residents.next(self.hand) {
                Found::Page(page, age) => {
                    self.hand = page + 1;
                    if self.age(age.mark) >= self.age(self.leaving) {
                        victims[count] = page;
                        count += 1;
                    } else if self.age(age.mark) > self.age(self.passed) {
                        self.passed = age.mark;
                    }
                }
                Found::End => {
                    self.hand = 0;
                    (self.leaving, self.passed) = (self.passed, self.mark);
                    rounds += 1;
                    // Going on could choose the same pages twice.
                    if rounds == ROUNDS_MAX || count > 0 {
                        break;
                    }
                }
            }
        }
        self.advance(count as u64, residents.count());
        count
    }

    /// A mark passes for every sixteenth of the resident pages that was taken.
    fn advance(&mut self, taken: u64, resident: u64) {
        self.taken_since_mark += taken;
        if self.taken_since_mark * MARKS_PER_TURN >= resident {
            self.taken_since_mark = 0;
            self.mark = self.mark.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    /// Takes `wanted` victims out of `residents`; gives their marks.
    fn take(arrival: &mut Arrival, residents: &mut BTreeMap<u64, u16>, wanted: usize) -> Vec<u16> {
        let mut victims = [0; 32];
        let count = arrival.take(&*residents, &mut victims[..wanted]);
        let remove = |page: &u64| residents.remove(page).expect("a victim is resident, once");
        victims[..count].iter().map(remove).collect()
    }

    #[test]
    fn the_first_to_come_is_the_first_to_leave() {
        let mut arrival = Arrival::default();
        let mut residents = BTreeMap::new();
        let mut last = 0;
        for came in 0..5000u64 {
            if residents.len() >= 320 {
                for mark in take(&mut arrival, &mut residents, 4) {
                    assert!(mark >= last, "{mark} after {last}");
                    last = mark;
                }
            }
            // Scattered, so that the order of addresses says nothing.
            residents.insert(came * 7919 % 100_003, arrival.mark());
        }
        // All but the last sixteen or so marks have left.
        assert!(arrival.mark() - last < 20, "{last} of {}", arrival.mark());
    }

    #[test]
    fn a_page_in_use_leaves_with_the_others() {
        let mut arrival = Arrival::default();
        let mut residents: BTreeMap<u64, u16> = (0..64).map(|page| (page, 0)).collect();
        for _ in 0..8 {
            take(&mut arrival, &mut residents, 8);
        }
        assert!(residents.is_empty());
        assert!(take(&mut arrival, &mut residents, 8).is_empty());
    }

    #[test]
    fn pages_that_may_not_leave_do_not_end_the_others_turn() {
        // Marks 1, 2 and so on left long ago; what is there came in at mark 9.
        let mut arrival = Arrival { mark: 60, leaving: 1, ..Arrival::default() };
        let mut residents: BTreeMap<u64, u16> = (0..8).map(|page| (page, 9)).collect();
        assert_eq!(take(&mut arrival, &mut residents, 8), [9; 8]);
    }

    /// Not long before marks begin again.
    const START: u16 = u16::MAX - 9;

    proptest! {
        #[test]
        fn nothing_leaves_before_what_came_earlier(
            steps in prop::collection::vec((0u64..200, 0usize..8, any::<bool>()), 1..400),
        ) {
            let mut arrival = Arrival { hand: 0, mark: START, leaving: START, passed: START, taken_since_mark: 0 };
            let mut residents = BTreeMap::new();
            for (page, wanted, is_freed) in steps {
                if is_freed {
                    residents.remove(&(page / 2));
                }
                residents.entry(page).or_insert(arrival.mark());
                let there = residents.len();
                let now = arrival;
                let ages: Vec<u16> =
                    take(&mut arrival, &mut residents, wanted).iter().map(|&mark| now.age(mark)).collect();
                prop_assert!(ages.len() == wanted || ages.len() <= there);
                prop_assert!(wanted == 0 || !ages.is_empty(), "none of {there}");
                let oldest_left = residents.values().map(|&mark| now.age(mark)).max();
                prop_assert!(ages.iter().all(|age| Some(age) >= oldest_left.as_ref()));
            }
        }
    }
}
