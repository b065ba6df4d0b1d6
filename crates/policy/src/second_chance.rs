//! Pages that wait for a second chance: taken from the program, not compressed yet.
//!
//! Source: Babaoglu and Joy (SOSP 1981), 4: where the machine keeps no accessed bits, a page is
//! made invalid while it stays in memory, and a fault on it is the bit; Turner and Levy, Segmented
//! FIFO page replacement (SIGMETRICS 1981): the pages that leave a queue wait in a second, short
//! one from which they are cheaply had again.
//!
//! What is known of a page's use is its faults. So a victim is lifted out of the program and
//! waits, as it is, behind those lifted before. If the program wants it while it waits, it is
//! moved back without codec or pool, and is the youngest: it was in use. If its turn comes first
//! it is compressed. It costs a fault for every page in use that the order of arrival would have
//! let go, about 3 us instead of the 5 to 6 that compressing and restoring it takes, and as much
//! RAM as there are slots.
//!
//! Where a page's bytes wait is the caller's, who has a place for each slot. A page that was given
//! back leaves its slot empty until those before it have left.
//!
//! Bad case: programs that want nothing back so soon; for them the slots are RAM lost.

/// Most pages that may wait: looking for one takes a look at each.
pub const WAITING_MAX: usize = 256;

/// An empty slot; no page has this number.
const EMPTY: u64 = u64::MAX;

/// The waiting pages, in the order in which they came.
#[derive(Debug)]
pub struct SecondChance<'a> {
    slots: &'a mut [u64],
    /// The slot of the page that waits longest, or an empty one before it.
    first: usize,
    /// Slots from there on up to the youngest page's, empty ones too.
    length: usize,
    waiting: usize,
}

impl<'a> SecondChance<'a> {
    /// Nobody waits. As many pages may as there are `slots`, [`WAITING_MAX`] at most.
    pub fn new(slots: &'a mut [u64]) -> Self {
        assert!(slots.len() <= WAITING_MAX, "too many to look through");
        slots.fill(EMPTY);
        SecondChance { slots, first: 0, length: 0, waiting: 0 }
    }

    /// How many pages wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Lets `page` wait, which does not wait yet, and gives its slot. `None`: [`leave`](Self::leave) first.
    pub fn enter(&mut self, page: u64) -> Option<usize> {
        if self.length == self.slots.len() {
            return None;
        }
        let slot = (self.first + self.length) % self.slots.len();
        self.slots[slot] = page;
        self.length += 1;
        self.waiting += 1;
        Some(slot)
    }

    /// The page is wanted, or was given back by the program: it waits no more. Gives the slot
    /// where it did.
    pub fn take_back(&mut self, page: u64) -> Option<usize> {
        let slot = self.slots.iter().position(|&waiting| waiting == page)?;
        self.slots[slot] = EMPTY;
        self.waiting -= 1;
        self.skip_empty();
        Some(slot)
    }

    /// The page that waited longest, which is to be compressed, and its slot.
    pub fn leave(&mut self) -> Option<(u64, usize)> {
        self.skip_empty();
        if self.length == 0 {
            return None;
        }
        let slot = self.first;
        let page = core::mem::replace(&mut self.slots[slot], EMPTY);
        self.waiting -= 1;
        self.skip_empty();
        Some((page, slot))
    }

    fn skip_empty(&mut self) {
        while self.length > 0 && self.slots[self.first] == EMPTY {
            self.first = (self.first + 1) % self.slots.len();
            self.length -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn without_slots_nobody_waits() {
        let mut chance = SecondChance::new(&mut []);
        assert_eq!((chance.enter(1), chance.leave(), chance.take_back(1)), (None, None, None));
    }

    #[test]
    fn a_slot_is_used_again_when_those_before_it_have_left() {
        let mut slots = [0; 3];
        let mut chance = SecondChance::new(&mut slots);
        assert_eq!([7, 8, 9].map(|page| chance.enter(page)), [Some(0), Some(1), Some(2)]);
        assert_eq!(chance.take_back(8), Some(1));
        assert_eq!((chance.waiting(), chance.enter(10)), (2, None));
        assert_eq!(chance.leave(), Some((7, 0)));
        assert_eq!(chance.enter(10), Some(0));
        assert_eq!(chance.leave(), Some((9, 2)));
    }

    proptest! {
        #[test]
        fn behaves_as_a_queue_from_whose_middle_some_are_taken(
            capacity in 0usize..9,
            steps in prop::collection::vec((0u8..3, 0u64..12), 1..300),
        ) {
            let mut slots = std::vec![0; capacity];
            let mut chance = SecondChance::new(&mut slots);
            let mut model: VecDeque<(u64, usize)> = VecDeque::new();
            for (what, page) in steps {
                let at = model.iter().position(|&(waiting, _)| waiting == page);
                match what {
                    0 if at.is_none() => match chance.enter(page) {
                        Some(slot) => {
                            prop_assert!(slot < capacity);
                            prop_assert!(model.iter().all(|&(_, taken)| taken != slot));
                            model.push_back((page, slot));
                        }
                        // The slots from the oldest to the youngest page are all of them.
                        None => prop_assert!(capacity == 0 || !model.is_empty()),
                    },
                    1 => {
                        let expected = at.and_then(|at| model.remove(at)).map(|(_, slot)| slot);
                        prop_assert_eq!(chance.take_back(page), expected);
                    }
                    _ => prop_assert_eq!(chance.leave(), model.pop_front()),
                }
                prop_assert_eq!(chance.waiting(), model.len());
            }
        }
    }
}
