//! How large the pool is: as large as what is read from it was worth.
//!
//! Source: castro (2003), 3 and figure 5. The pool grows without limit while it is found useful.
//! Reads from its [expense list](crate::Lists) are a sign that it is not: two in a row lock it to
//! growth, and a third makes it smaller, by moving what a cell holds to other cells or else by
//! letting the oldest compressed page go, whereupon the lock is off and counting begins again. A
//! read from the profit list shows that it is useful: the lock is off.
//!
//! The paper measures two variants beside this *reference* and says of them (4.4, Other
//! adaptability policies) that *aggressive* makes the pool smaller at each read from the expense
//! list, and that *sluggish* wants stronger evidence, without a number; here it is twice as much.
//!
//! While it is locked the pool keeps the RAM that it has: a page for which there is no room is
//! made room for by writing the oldest ones.
//!
//! Bad case: it counts reads and not what they cost. Where pages are used in any order and do not
//! shrink well, three in a row come from the expense list by chance again and again, and each time
//! pages go to the store that cost a hundred times as much to read from there.

use crate::lists::List;
use crate::shares::{Shares, Step};

/// How much evidence is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// The one of the paper's main results.
    Reference,
    /// Wants more evidence.
    Sluggish,
    /// Acts at once.
    Aggressive,
}

impl Variant {
    /// Every variant.
    pub const ALL: [Variant; 3] = [Variant::Reference, Variant::Sluggish, Variant::Aggressive];

    /// The paper's name for it.
    pub const fn name(self) -> &'static str {
        match self {
            Variant::Reference => "reference",
            Variant::Sluggish => "sluggish",
            Variant::Aggressive => "aggressive",
        }
    }

    /// Reads in a row from the expense list that lock the pool, and that make it smaller.
    const fn reads(self) -> (u32, u32) {
        match self {
            Variant::Reference => (2, 3),
            Variant::Sluggish => (4, 6),
            Variant::Aggressive => (1, 1),
        }
    }
}

/// What a read asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    None,
    /// Free a cell by moving what it holds; where that cannot be, let the oldest compressed page go.
    Shrink,
}

/// Whether the pool may grow.
#[derive(Debug, Clone, Copy)]
pub struct Adaptive {
    variant: Variant,
    /// Reads in a row from the expense list.
    in_a_row: u32,
    /// What the pool held when it was locked.
    locked_at_bytes: Option<usize>,
    is_full: bool,
}

impl Adaptive {
    /// A pool that was not read from yet: it may grow.
    pub const fn new(variant: Variant) -> Self {
        Adaptive { variant, in_a_row: 0, locked_at_bytes: None, is_full: false }
    }

    /// Notes that a page was read from `list` of a pool that holds `pool_bytes`.
    pub fn read(&mut self, list: List, pool_bytes: usize) -> Change {
        if list == List::Profit {
            self.unlock();
            return Change::None;
        }
        let (lock_at, shrink_at) = self.variant.reads();
        self.in_a_row += 1;
        if self.in_a_row >= shrink_at {
            self.unlock();
            return Change::Shrink;
        }
        if self.in_a_row >= lock_at && self.locked_at_bytes.is_none() {
            self.locked_at_bytes = Some(pool_bytes);
        }
        Change::None
    }

    fn unlock(&mut self) {
        (self.in_a_row, self.locked_at_bytes, self.is_full) = (0, None, false);
    }

    /// What the pool may hold, where there is a limit.
    pub fn limit_bytes(&self) -> Option<usize> {
        self.locked_at_bytes
    }

    /// Notes that the pool had no room for a page.
    pub fn refused(&mut self) {
        self.is_full = true;
    }

    /// Notes that pages left the pool for the store.
    pub fn spilled(&mut self) {
        self.is_full = false;
    }

    /// The next step of a process that holds `shares` and has to give.
    pub fn next_step(&self, shares: &Shares) -> Step {
        let is_over = self.locked_at_bytes.is_some_and(|limit| shares.pool_bytes > limit);
        shares.step(self.is_full || is_over)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const MIB: usize = 1 << 20;

    /// Reads from the lists that the letters name; gives after each `.`, `l` for locked or `s` for shrink.
    fn outcomes(variant: Variant, reads: &str) -> std::string::String {
        let mut adaptive = Adaptive::new(variant);
        let read = |letter: char| {
            let list = if letter == 'e' { List::Expense } else { List::Profit };
            match (adaptive.read(list, MIB), adaptive.limit_bytes()) {
                (Change::Shrink, limit) => {
                    assert_eq!(limit, None, "the lock is off after a shrink");
                    's'
                }
                (Change::None, Some(_)) => 'l',
                (Change::None, None) => '.',
            }
        };
        reads.chars().map(read).collect()
    }

    /// Figure 5.
    #[test]
    fn the_second_read_from_expense_locks_and_the_third_shrinks() {
        assert_eq!(outcomes(Variant::Reference, "eeeeee"), ".ls.ls");
        assert_eq!(outcomes(Variant::Reference, "eepeee"), ".l..ls");
        assert_eq!(outcomes(Variant::Reference, "epepep"), "......");
        assert_eq!(outcomes(Variant::Reference, "pppppp"), "......");
    }

    #[test]
    fn sluggish_waits_and_aggressive_does_not() {
        assert_eq!(outcomes(Variant::Sluggish, "eeeeeee"), "...lls.");
        assert_eq!(outcomes(Variant::Sluggish, "eeepeee"), ".......");
        assert_eq!(outcomes(Variant::Aggressive, "epee"), "s.ss");
    }

    #[test]
    fn a_locked_pool_keeps_its_size() {
        let mut adaptive = Adaptive::new(Variant::Reference);
        let mut shares = Shares {
            resident_bytes: 8 * MIB,
            pool_bytes: 4 * MIB,
            has_store: true,
            ..Shares::default()
        };
        assert_eq!(adaptive.next_step(&shares), Step::SwapOut);
        adaptive.read(List::Expense, shares.pool_bytes);
        adaptive.read(List::Expense, shares.pool_bytes);
        assert_eq!(adaptive.limit_bytes(), Some(4 * MIB));
        assert_eq!(adaptive.next_step(&shares), Step::SwapOut);
        adaptive.refused();
        assert_eq!(adaptive.next_step(&shares), Step::Spill);
        adaptive.spilled();
        shares.pool_bytes += 4096;
        assert_eq!(adaptive.next_step(&shares), Step::Spill);
        adaptive.read(List::Profit, shares.pool_bytes);
        assert_eq!(adaptive.next_step(&shares), Step::SwapOut);
    }

    proptest! {
        /// However reads come, a shrink has its evidence: so many in a row since the last action.
        #[test]
        fn evidence_is_counted_in_a_row(
            variant in prop::sample::select(Variant::ALL.to_vec()),
            reads in prop::collection::vec(any::<bool>(), 1..200),
        ) {
            let (lock_at, shrink_at) = variant.reads();
            let mut adaptive = Adaptive::new(variant);
            let mut since: Vec<List> = Vec::new();
            for is_expense in reads {
                let list = if is_expense { List::Expense } else { List::Profit };
                since.push(list);
                let run = since.iter().rev().take_while(|list| **list == List::Expense).count() as u32;
                let change = adaptive.read(list, MIB);
                prop_assert_eq!(change == Change::Shrink, run == shrink_at);
                prop_assert_eq!(adaptive.limit_bytes().is_some(), (lock_at..shrink_at).contains(&run));
                if change == Change::Shrink {
                    since.clear();
                }
            }
        }
    }
}
