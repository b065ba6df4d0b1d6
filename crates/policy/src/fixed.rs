//! How large the pool is: always the same.
//!
//! Source: hp (2001), 3: the driver takes its memory when it is loaded and takes no more, however
//! badly pages compress, as the system is short of memory already; figures 9 and 10 vary the part
//! of memory from 0 to 75 %, with the best results at 10 to 30 %. cervera (1999), 3.6, sets the
//! size in bytes; its cleaning is in [`Cleaning`](crate::Cleaning).
//!
//! The pool's memory is lost to resident pages whether it is used or not: what it does not hold
//! counts as held.
//!
//! Bad case: any size is too small for one program and too large for another: too small, and what
//! it would have kept goes to the store; too large, and the pages in use do not fit what is left.

use crate::shares::{Shares, Step};

/// A pool of so many bytes.
#[derive(Debug, Clone, Copy)]
pub struct Fixed {
    size_bytes: usize,
    is_full: bool,
}

impl Fixed {
    /// A pool of `size_bytes`.
    pub const fn of_bytes(size_bytes: usize) -> Self {
        Fixed { size_bytes, is_full: false }
    }

    /// A pool of `percent` of the budget.
    pub const fn of_share(percent: usize, budget_bytes: usize) -> Self {
        // In this order, as the product of a large budget would not fit.
        Self::of_bytes(budget_bytes / 100 * percent + budget_bytes % 100 * percent / 100)
    }

    /// What the pool may hold.
    pub const fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// What belongs to the pool while it holds `pool_bytes`, and nobody else may use.
    pub const fn unused_bytes(&self, pool_bytes: usize) -> usize {
        self.size_bytes.saturating_sub(pool_bytes)
    }

    /// Notes that the pool had no room for a page.
    pub fn refused(&mut self) {
        self.is_full = true;
    }

    /// Notes that pages left the pool for the store.
    pub fn spilled(&mut self) {
        self.is_full = false;
    }

    /// Whether the next thing to do is to write, for want of room.
    pub(crate) fn is_too_small(&self, shares: &Shares) -> bool {
        self.is_full || shares.pool_bytes > self.size_bytes
    }

    /// The next step of a process that holds `shares` and has to give.
    pub fn next_step(&self, shares: &Shares) -> Step {
        shares.step(self.is_too_small(shares))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn a_share_is_of_the_budget() {
        assert_eq!(Fixed::of_share(25, 64 * MIB).size_bytes(), 16 * MIB);
        assert_eq!(Fixed::of_share(0, 64 * MIB).size_bytes(), 0);
        assert_eq!(Fixed::of_share(75, 1 << 62).size_bytes(), 3 << 60);
        assert_eq!(Fixed::of_share(50, 99).size_bytes(), 49);
    }

    #[test]
    fn nothing_leaves_for_the_store_while_there_is_room() {
        let mut fixed = Fixed::of_bytes(MIB);
        let mut shares = Shares {
            resident_bytes: 8 * MIB,
            pool_bytes: MIB,
            has_store: true,
            ..Shares::default()
        };
        assert_eq!(fixed.next_step(&shares), Step::SwapOut);
        fixed.refused();
        assert_eq!(fixed.next_step(&shares), Step::Spill);
        fixed.spilled();
        assert_eq!(fixed.next_step(&shares), Step::SwapOut);
        shares.pool_bytes += 4096;
        assert_eq!(fixed.next_step(&shares), Step::Spill);
    }

    #[test]
    fn what_the_pool_does_not_hold_is_lost_all_the_same() {
        let fixed = Fixed::of_bytes(MIB);
        assert_eq!(fixed.unused_bytes(0), MIB);
        assert_eq!(fixed.unused_bytes(MIB - 4096), 4096);
        assert_eq!(fixed.unused_bytes(2 * MIB), 0);
    }
}
