//! Which resident pages leave: a clock over the address space.
//!
//! Source: Corbató's clock (1968), with the age of a page in place of the
//! accessed bit, which a program cannot see of its own memory. The hand goes
//! round the managed pages in the order of their addresses and takes those that
//! have been resident for at least a quarter of a turn; a page that came in just
//! before the hand gets there stays for another round.
//!
//! Neighbours leave together, which makes lifting them several times cheaper
//! than one by one and lets them come back together.
//!
//! Bad case: a loop over more memory than is resident, as for every policy that
//! goes by age.

/// Marks in a turn of the hand; ages are told apart this finely.
const MARKS_PER_TURN: u64 = 16;
/// Marks that a page stays at least.
const MARKS_MIN: u16 = 4;
/// Rounds after which age no longer protects.
const ROUNDS_MAX: u32 = 2;

/// What the clock sees of the managed memory.
pub trait Residents {
    /// The first resident page that may leave at or after `from`, and the mark
    /// it came in at.
    fn next(&self, from: u64) -> Found;
    /// How many pages are resident.
    fn count(&self) -> u64;
}

/// What [`Residents::next`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// A resident page and its mark.
    Page(u64, u16),
    /// Nothing up to the end of the address space.
    End,
}

/// The hand.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock {
    hand: u64,
    mark: u16,
    taken_since_mark: u64,
}

impl Clock {
    /// The mark that a page gets which comes in now.
    pub fn mark(&self) -> u16 {
        self.mark
    }

    /// The mark of a page that is taken for older than all that come in from now on.
    pub fn old_mark(&self) -> u16 {
        self.mark.wrapping_sub(MARKS_MIN)
    }

    /// Whether a page that came in at `mark` is still kept for its age alone.
    pub fn is_young(&self, mark: u16) -> bool {
        self.mark.wrapping_sub(mark) < MARKS_MIN
    }

    /// Chooses pages to leave, in ascending runs, and gives how many were written to `victims`.
    pub fn take(&mut self, residents: &impl Residents, victims: &mut [u64]) -> usize {
        let steps_max = residents.count() * u64::from(ROUNDS_MAX) + victims.len() as u64;
        let mut rounds = 0;
        let mut count = 0;
        for _ in 0..steps_max {
            if count == victims.len() {
                break;
            }
            match residents.next(self.hand) {
                Found::Page(page, mark) => {
                    self.hand = page + 1;
                    if rounds >= ROUNDS_MAX || !self.is_young(mark) {
                        victims[count] = page;
                        count += 1;
                    }
                }
                Found::End => {
                    self.hand = 0;
                    rounds += 1;
                    if rounds > ROUNDS_MAX || count > 0 {
                        break;
                    }
                    // A whole round found nothing old enough: everything ages.
                    self.mark = self.mark.wrapping_add(MARKS_MIN);
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
    use std::collections::BTreeMap;

    impl Residents for BTreeMap<u64, u16> {
        fn next(&self, from: u64) -> Found {
            self.range(from..).next().map_or(Found::End, |(&page, &mark)| Found::Page(page, mark))
        }
        fn count(&self) -> u64 {
            self.len() as u64
        }
    }

    #[test]
    fn old_pages_leave_in_order_of_address() {
        let mut clock = Clock { mark: 10, ..Clock::default() };
        let residents: BTreeMap<u64, u16> = (0..100).map(|page| (page, 0)).collect();
        let mut victims = [0; 8];
        assert_eq!(clock.take(&residents, &mut victims), 8);
        assert_eq!(victims, [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn a_page_that_just_came_stays_while_others_are_older() {
        let mut clock = Clock { mark: 10, ..Clock::default() };
        let mut residents: BTreeMap<u64, u16> = (0..100).map(|page| (page, 0)).collect();
        residents.insert(3, 10);
        let mut victims = [0; 8];
        clock.take(&residents, &mut victims);
        assert!(!victims.contains(&3));
    }

    #[test]
    fn young_pages_leave_when_there_are_no_others() {
        let mut clock = Clock::default();
        let residents: BTreeMap<u64, u16> = (0..4).map(|page| (page, 0)).collect();
        assert!(clock.take(&residents, &mut [0; 8]) > 0);
    }

    #[test]
    fn nothing_to_take_ends() {
        assert_eq!(Clock::default().take(&BTreeMap::new(), &mut [0; 8]), 0);
    }
}
