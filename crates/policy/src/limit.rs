//! How large the pool may become: a part of memory, and once it was that large, less for a while.
//!
//! Source: zswap (2012): `max_pool_percent`, the most of memory that the pool may take; mm/zswap.c
//! of Linux 5.7 and later: `accept_threshold_percent`, the part of that to which it shrinks, by
//! writing its least recently used pages, before it takes pages again. Without the second a pool
//! at its limit would take one page, refuse the next and write one in turn.
//!
//! Unlike there, writing is not left to another thread, so no page is refused for want of room and
//! goes to the store past older ones. One that hardly becomes shorter goes there as it is, with
//! others of its kind, by way of the pool.
//!
//! Bad case: as any fixed bound: what suits one program starves another; and data that does not
//! compress fills the pool and leaves it as it came.

use crate::fixed::Fixed;
use crate::shares::{Shares, Step};

/// A pool of at most so many bytes.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    max_bytes: usize,
    accept_bytes: usize,
    /// Whether the pool was at its limit and is still above what it has to shrink to.
    was_full: bool,
    /// Whether a page did not fit since something was written.
    lacks_room: bool,
}

impl Limit {
    /// A pool of at most `max_pool_percent` of the budget; once it is that large it shrinks to
    /// `accept_threshold_percent` of that.
    pub const fn new(
        max_pool_percent: usize,
        accept_threshold_percent: usize,
        budget_bytes: usize,
    ) -> Self {
        let max_bytes = Fixed::of_share(max_pool_percent, budget_bytes).size_bytes();
        let accept_bytes = Fixed::of_share(accept_threshold_percent, max_bytes).size_bytes();
        Limit { max_bytes, accept_bytes, was_full: false, lacks_room: false }
    }

    /// What the pool may hold at most.
    pub const fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// Whether a pool that holds `pool_bytes` takes one more page.
    pub fn accepts(&mut self, pool_bytes: usize) -> bool {
        if pool_bytes >= self.max_bytes {
            self.was_full = true;
        } else if pool_bytes <= self.accept_bytes {
            self.was_full = false;
        }
        !self.was_full
    }

    /// Notes that the pool had no room for a page: it is as large as it may become.
    pub fn refused(&mut self) {
        (self.was_full, self.lacks_room) = (true, true);
    }

    /// Notes that pages left the pool for the store.
    pub fn spilled(&mut self) {
        self.lacks_room = false;
    }

    /// The next step of a process that holds `shares` and has to give.
    pub fn next_step(&mut self, shares: &Shares) -> Step {
        let accepts = self.accepts(shares.pool_bytes);
        shares.step(!accepts || self.lacks_room || shares.is_full_of_raw())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn steps(limit: &mut Limit, pool_bytes: usize) -> Step {
        let resident_bytes = 100 * MIB - pool_bytes;
        limit.next_step(&Shares {
            resident_bytes,
            pool_bytes,
            has_store: true,
            ..Shares::default()
        })
    }

    #[test]
    fn a_pool_that_was_full_shrinks_to_the_threshold_before_it_grows() {
        let mut limit = Limit::new(20, 90, 100 * MIB);
        assert_eq!(limit.max_bytes(), 20 * MIB);
        assert_eq!(steps(&mut limit, 20 * MIB - 4096), Step::SwapOut);
        for pool_bytes in [20 * MIB, 19 * MIB, 18 * MIB + 4096] {
            assert_eq!(steps(&mut limit, pool_bytes), Step::Spill, "{pool_bytes}");
        }
        for pool_bytes in [18 * MIB, 19 * MIB, 20 * MIB - 4096] {
            assert_eq!(steps(&mut limit, pool_bytes), Step::SwapOut, "{pool_bytes}");
        }
        assert_eq!(steps(&mut limit, 21 * MIB), Step::Spill);
    }

    #[test]
    fn a_threshold_of_all_of_it_is_no_hysteresis() {
        let mut limit = Limit::new(20, 100, 100 * MIB);
        assert_eq!(steps(&mut limit, 20 * MIB), Step::Spill);
        assert_eq!(steps(&mut limit, 20 * MIB - 4096), Step::SwapOut);
    }

    #[test]
    fn a_page_that_does_not_fit_is_made_room_for_whatever_the_threshold() {
        let mut limit = Limit::new(20, 100, 100 * MIB);
        limit.refused();
        assert_eq!(steps(&mut limit, 20 * MIB - 4096), Step::Spill);
        limit.spilled();
        assert_eq!(steps(&mut limit, 19 * MIB), Step::SwapOut);
        // With one, it shrinks to that.
        let mut limit = Limit::new(20, 90, 100 * MIB);
        limit.refused();
        limit.spilled();
        assert_eq!(steps(&mut limit, 19 * MIB), Step::Spill);
    }

    #[test]
    fn a_pool_of_nothing_takes_nothing() {
        let mut limit = Limit::new(0, 90, 100 * MIB);
        assert!(!limit.accepts(0));
    }
}
