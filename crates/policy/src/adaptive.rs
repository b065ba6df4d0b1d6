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
//! There a locked pool lets a page go for each that it has no room for, and so does a third read.
//! Pages written one by one would measure the disk's seeks. So what such a pool would have let go
//! by now is *owed*, and written when it is worth a write: the pool is larger than the paper's by
//! at most that, and as much is written. To write as much at once as soon as the pool is locked
//! is another rule, and a bad one: locks are many and short.
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
    /// Free a cell by moving what it holds; where that cannot be, the oldest compressed page is
    /// [owed](Adaptive::owe).
    Shrink,
}

/// Whether the pool may grow.
#[derive(Debug, Clone, Copy)]
pub struct Adaptive {
    variant: Variant,
    /// Reads in a row from the expense list.
    in_a_row: u32,
    /// What the pool held when it was locked, and what of its growth since then is owed.
    locked_at_bytes: Option<usize>,
    /// Compressed bytes that the pool should have let go by now.
    owed_bytes: usize,
    /// So many of them are worth a write.
    write_bytes: usize,
    is_full: bool,
}

impl Adaptive {
    /// A pool that was not read from yet: it may grow. `write_bytes` are worth a write to the store.
    pub const fn new(variant: Variant, write_bytes: usize) -> Self {
        Adaptive {
            variant,
            in_a_row: 0,
            locked_at_bytes: None,
            owed_bytes: 0,
            write_bytes,
            is_full: false,
        }
    }

    /// Notes that a page was read from `list` of a pool that holds `pool_bytes`.
    pub fn read(&mut self, list: List, pool_bytes: usize) -> Change {
        self.count_growth(pool_bytes);
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
        (self.in_a_row, self.locked_at_bytes) = (0, None);
    }

    /// By what a locked pool grew, pages should have left.
    fn count_growth(&mut self, pool_bytes: usize) {
        if let Some(locked_at_bytes) = &mut self.locked_at_bytes {
            self.owed_bytes += pool_bytes.saturating_sub(*locked_at_bytes);
            *locked_at_bytes = pool_bytes.max(*locked_at_bytes);
        }
    }

    /// Notes that pages of so many compressed bytes should leave.
    pub fn owe(&mut self, bytes: usize) {
        self.owed_bytes += bytes;
    }

    /// Notes that the pool had no room for a page.
    pub fn refused(&mut self) {
        self.is_full = true;
    }

    /// Notes that pages of so many compressed bytes left the pool for the store, which holds
    /// `pool_bytes` now.
    pub fn spilled(&mut self, released_bytes: usize, pool_bytes: usize) {
        self.owed_bytes = self.owed_bytes.saturating_sub(released_bytes);
        self.locked_at_bytes = self.locked_at_bytes.map(|_| pool_bytes);
        self.is_full = false;
    }

    /// The next step of a process that holds `shares` and has to give.
    pub fn next_step(&mut self, shares: &Shares) -> Step {
        self.count_growth(shares.pool_bytes);
        shares.step(self.is_full || self.owed_bytes >= self.write_bytes)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const MIB: usize = 1 << 20;
    const WRITE_BYTES: usize = 1 << 18;

    /// Reads from the lists that the letters name; gives after each `.`, `l` for locked or `s` for shrink.
    fn outcomes(variant: Variant, reads: &str) -> std::string::String {
        let mut adaptive = Adaptive::new(variant, WRITE_BYTES);
        let read = |letter: char| {
            let list = if letter == 'e' { List::Expense } else { List::Profit };
            match (adaptive.read(list, MIB), adaptive.locked_at_bytes) {
                (Change::Shrink, locked_at_bytes) => {
                    assert_eq!(locked_at_bytes, None, "the lock is off after a shrink");
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

    fn shares(pool_bytes: usize) -> Shares {
        Shares { resident_bytes: 8 * MIB, pool_bytes, has_store: true, ..Shares::default() }
    }

    #[test]
    fn what_a_locked_pool_grows_by_is_owed_and_written_when_it_is_worth_a_write() {
        let mut adaptive = Adaptive::new(Variant::Reference, WRITE_BYTES);
        let mut pool_bytes = 4 * MIB;
        assert_eq!(adaptive.next_step(&shares(pool_bytes)), Step::SwapOut);
        // Locks that last for little are counted together; what is between them is growth allowed.
        for locks in 1..=4 {
            adaptive.read(List::Expense, pool_bytes);
            adaptive.read(List::Expense, pool_bytes);
            pool_bytes += WRITE_BYTES / 4;
            let step = adaptive.next_step(&shares(pool_bytes));
            assert_eq!(step, if locks < 4 { Step::SwapOut } else { Step::Spill }, "{locks}");
            adaptive.read(List::Profit, pool_bytes);
            pool_bytes += WRITE_BYTES;
        }
        assert_eq!(adaptive.next_step(&shares(pool_bytes)), Step::Spill);
        adaptive.spilled(WRITE_BYTES, pool_bytes - WRITE_BYTES);
        assert_eq!(adaptive.next_step(&shares(pool_bytes - WRITE_BYTES)), Step::SwapOut);
    }

    #[test]
    fn a_pool_without_room_writes_whatever_is_owed() {
        let mut adaptive = Adaptive::new(Variant::Reference, WRITE_BYTES);
        adaptive.refused();
        assert_eq!(adaptive.next_step(&shares(MIB)), Step::Spill);
        adaptive.spilled(WRITE_BYTES, MIB - WRITE_BYTES);
        assert_eq!(adaptive.next_step(&shares(MIB - WRITE_BYTES)), Step::SwapOut);
    }

    proptest! {
        /// However reads come, a shrink has its evidence: so many in a row since the last action.
        #[test]
        fn evidence_is_counted_in_a_row(
            variant in prop::sample::select(Variant::ALL.to_vec()),
            reads in prop::collection::vec(any::<bool>(), 1..200),
        ) {
            let (lock_at, shrink_at) = variant.reads();
            let mut adaptive = Adaptive::new(variant, WRITE_BYTES);
            let mut since: Vec<List> = Vec::new();
            for is_expense in reads {
                let list = if is_expense { List::Expense } else { List::Profit };
                since.push(list);
                let run = since.iter().rev().take_while(|list| **list == List::Expense).count() as u32;
                let change = adaptive.read(list, MIB);
                prop_assert_eq!(change == Change::Shrink, run == shrink_at);
                prop_assert_eq!(adaptive.locked_at_bytes.is_some(), (lock_at..shrink_at).contains(&run));
                if change == Change::Shrink {
                    since.clear();
                }
            }
        }
    }
}
