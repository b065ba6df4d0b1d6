//! Which resident pages leave: a clock over the address space.
//!
//! Source: Corbató's clock (1968), with the age of a page in place of the
//! accessed bit, which a program cannot see of its own memory. The hand goes
//! round the managed pages in the order of their addresses and takes those that
//! have been resident for long enough: a quarter of a turn at least, so that a
//! page that came in just before the hand gets there stays for another round.
//!
//! What can be seen is how soon a page is wanted again after it left. One that
//! comes back before as many others have left as are resident was let go too early
//! (the refault distance of mm/workingset.c); it becomes hotter, and stays longer
//! the next time, up to four turns. No page becomes hotter while three in four are
//! kept already: in a loop over more memory than is resident some pages thus stay for
//! several rounds, while the others make way.
//!
//! Neighbours leave together, which makes lifting them several times cheaper
//! than one by one and lets them come back together.
//!
//! Bad case: a program whose hot pages change faster than the hand goes round.

/// Marks in a turn of the hand; ages are told apart this finely.
pub(crate) const MARKS_PER_TURN: u64 = 16;
/// Marks that a page of each heat stays at least.
const MARKS_MIN: [u16; 4] = [LATELY_MARKS, 12, 32, 64];
/// Marks ago that still are not long ago.
pub(crate) const LATELY_MARKS: u16 = 4;
/// Rounds after which age no longer protects.
const ROUNDS_MAX: u32 = 2;
/// Heats that are told apart.
const HEATS: u8 = MARKS_MIN.len() as u8;
/// Pages passed for each one wanted before the next hotter ones may leave at any age: what is
/// protected may not make the search long.
const PASSED_MAX: usize = 16;
/// More pages passed than so many for each one taken: there are hot ones enough.
const CROWDED: u64 = 3;
/// Marks in a unit of the time at which pages leave.
pub(crate) const MARKS_PER_TIME: u16 = 4;
/// A page is let go too early if it is wanted again within so many of these units: a turn.
const SOON: u8 = (MARKS_PER_TURN / MARKS_PER_TIME as u64) as u8;

/// When a page came in, and how it fared before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Age {
    /// [`Clock::mark`] when it came in.
    pub mark: u16,
    /// How often it was let go too early, 0 to 3.
    pub heat: u8,
}

/// What a policy sees of the managed memory.
pub trait Residents {
    /// The first resident page that may leave at or after `from`, and its age.
    fn next(&self, from: u64) -> Found;
    /// How many pages are resident.
    fn count(&self) -> u64;
}

/// What [`Residents::next`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// A resident page and its age.
    Page(u64, Age),
    /// Nothing up to the end of the address space.
    End,
}

/// The hand.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock {
    hand: u64,
    mark: u16,
    taken_since_mark: u64,
    passed_since_mark: u64,
    /// Whether the hand met few pages lately that may leave.
    is_crowded: bool,
    /// Whether pages have left.
    has_begun: bool,
}

impl Clock {
    /// The mark that a page gets which comes in now.
    pub fn mark(&self) -> u16 {
        self.mark
    }

    /// The time at which a page leaves now, modulo `times`, a power of two.
    pub fn time(&self, times: u8) -> u8 {
        (self.mark / MARKS_PER_TIME) as u8 % times
    }

    /// The heat of a page that left at time `left`, modulo `times`, with heat `heat`, and is wanted again now.
    pub fn heat(&self, left: u8, heat: u8, times: u8) -> u8 {
        let away = self.time(times).wrapping_sub(left) % times;
        match (away < SOON, self.is_crowded) {
            (true, false) => (heat + 1).min(HEATS - 1),
            (true, true) => heat,
            (false, _) => heat.saturating_sub(1),
        }
    }

    /// Whether a page that came in at `mark` did so not long ago.
    pub fn came_lately(&self, mark: u16) -> bool {
        self.mark.wrapping_sub(mark) < LATELY_MARKS
    }

    fn may_leave(&self, age: Age) -> bool {
        let least = MARKS_MIN[usize::from(age.heat.min(HEATS - 1))];
        self.mark.wrapping_sub(age.mark) >= least
    }

    /// Chooses pages to leave, in ascending runs, and gives how many were written to `victims`.
    pub fn take(&mut self, residents: &impl Residents, victims: &mut [u64]) -> usize {
        let steps_max = residents.count() * u64::from(ROUNDS_MAX) + victims.len() as u64;
        if !self.has_begun {
            // What came before is older than what comes from now on.
            self.has_begun = true;
            self.mark = self.mark.wrapping_add(LATELY_MARKS);
        }
        let mut rounds = 0;
        let mut count = 0;
        let mut passed = 0;
        // Colder pages than this leave at any age.
        let mut least_heat = 0;
        for _ in 0..steps_max {
            if count == victims.len() {
                break;
            }
            match residents.next(self.hand) {
                Found::Page(page, age) => {
                    self.hand = page + 1;
                    if age.heat < least_heat || self.may_leave(age) {
                        victims[count] = page;
                        count += 1;
                        continue;
                    }
                    passed += 1;
                    self.passed_since_mark += 1;
                    if passed == PASSED_MAX * victims.len() {
                        passed = 0;
                        least_heat += 1;
                    }
                }
                Found::End => {
                    self.hand = 0;
                    rounds += 1;
                    // Going on could choose the same pages twice.
                    if rounds > ROUNDS_MAX || count > 0 {
                        break;
                    }
                    least_heat += HEATS / ROUNDS_MAX as u8;
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
            self.is_crowded = self.passed_since_mark > self.taken_since_mark * CROWDED;
            self.taken_since_mark = 0;
            self.passed_since_mark = 0;
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
            self.range(from..)
                .next()
                .map_or(Found::End, |(&page, &mark)| Found::Page(page, Age { mark, heat: 0 }))
        }
        fn count(&self) -> u64 {
            self.len() as u64
        }
    }

    #[test]
    fn old_pages_leave_in_order_of_address() {
        let mut clock = Clock { mark: 10, has_begun: true, ..Clock::default() };
        let residents: BTreeMap<u64, u16> = (0..100).map(|page| (page, 0)).collect();
        let mut victims = [0; 8];
        assert_eq!(clock.take(&residents, &mut victims), 8);
        assert_eq!(victims, [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn a_page_that_just_came_stays_while_others_are_older() {
        let mut clock = Clock { mark: 10, has_begun: true, ..Clock::default() };
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
    fn what_was_there_before_any_page_left_leaves_before_what_came_since() {
        let mut clock = Clock::default();
        let mut residents: BTreeMap<u64, u16> = (0..600).map(|page| (page, 0)).collect();
        let mut victims = [0; 32];
        let mut remove = |clock: &mut Clock, residents: &mut BTreeMap<u64, u16>| {
            let count = clock.take(&*residents, &mut victims);
            assert_eq!(count, 32);
            victims.iter().for_each(|page| assert!(residents.remove(page).is_some(), "{page}"));
            victims
        };
        assert!(
            remove(&mut clock, &mut residents).iter().eq(&(0..32).collect::<std::vec::Vec<u64>>())
        );
        residents.extend((32..64).map(|page| (1000 + page, clock.mark())));
        for _ in 0..4 {
            assert!(remove(&mut clock, &mut residents).iter().all(|&page| page < 600));
        }
    }

    #[test]
    fn nothing_to_take_ends() {
        assert_eq!(Clock::default().take(&BTreeMap::new(), &mut [0; 8]), 0);
    }

    /// Faults of a program that goes round `pages` pages of which `room` may be resident.
    fn faults_of_a_loop(pages: u64, room: usize, rounds: u64) -> u64 {
        const TIMES: u8 = 32;
        let mut clock = Clock::default();
        let mut residents = Hot::default();
        let mut left = BTreeMap::new();
        let mut faults = 0;
        for page in (0..rounds).flat_map(|_| 0..pages) {
            if residents.0.contains_key(&page) {
                continue;
            }
            faults += 1;
            if residents.0.len() >= room {
                let mut victims = [0; 32];
                let count = clock.take(&residents, &mut victims);
                for victim in &victims[..count] {
                    let age = residents.0.remove(victim).expect("a victim is resident");
                    left.insert(*victim, (clock.time(TIMES), age.heat));
                }
            }
            let heat = left.get(&page).map_or(0, |&(left, heat)| clock.heat(left, heat, TIMES));
            residents.0.insert(page, Age { mark: clock.mark(), heat });
        }
        faults
    }

    #[derive(Default)]
    struct Hot(BTreeMap<u64, Age>);

    impl Residents for Hot {
        fn next(&self, from: u64) -> Found {
            self.0.range(from..).next().map_or(Found::End, |(&page, &age)| Found::Page(page, age))
        }
        fn count(&self) -> u64 {
            self.0.len() as u64
        }
    }

    #[test]
    fn a_loop_larger_than_memory_keeps_some_of_it() {
        let (pages, rounds) = (1500, 40);
        let faults = faults_of_a_loop(pages, 1000, rounds);
        assert!(faults < pages * rounds * 3 / 4, "{faults}");
    }
}
