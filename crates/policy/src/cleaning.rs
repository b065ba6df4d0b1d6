//! When the buffers of compressed pages are written, and how large they are together.
//!
//! Source: cervera (1999), 3.4 and 3.6: a cache of fixed size; whenever a page does not fit, or a
//! given part of the buffers is full, all full buffers are written in one operation, or the one
//! that holds most where none is full. A buffer is full when it has less room than the mean of the
//! last 100 compressed sizes; which ones those are is known to the pool of buffers, and this is
//! what drives it.
//!
//! Bad case: a threshold of few buffers, which makes many small writes; a high one where several
//! programs wait for one long write; pages longer than half a buffer, of which the cache holds no
//! more than it takes from the program (the paper's fft: slower than without).

use crate::fixed::Fixed;
use crate::shares::{Shares, Step};

/// A pool of fixed size that is cleaned before it is full.
#[derive(Debug, Clone, Copy)]
pub struct Cleaning {
    /// The pool's size.
    pub size: Fixed,
    threshold_percent: usize,
}

impl Cleaning {
    /// Buffers of `size_bytes` together that are written when `threshold_percent` of them are full.
    pub const fn new(size_bytes: usize, threshold_percent: usize) -> Self {
        Cleaning { size: Fixed::of_bytes(size_bytes), threshold_percent }
    }

    /// The next step of a process that holds `shares` and has to give, or has put a page into the
    /// pool. `should_clean` tells whether so many percent of the buffers are full.
    pub fn next_step(&self, shares: &Shares, should_clean: impl FnOnce(usize) -> bool) -> Step {
        let is_due = self.size.is_too_small(shares) || should_clean(self.threshold_percent);
        shares.step(is_due)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;
    use zpager_pool::{Buffers, Handle, Heap, HeapSpace, Pool};

    /// A cache of buffers that counts its writes.
    struct Cache {
        rule: Cleaning,
        pool: Buffers<HeapSpace>,
        held: Vec<(Handle, usize)>,
        writes: usize,
        written_pages: usize,
    }

    impl Cache {
        fn new(size_bytes: usize, threshold_percent: usize) -> Self {
            let mut pool = Buffers::reserve(&Heap, 4 * size_bytes).expect("space");
            pool.set_limit_bytes(size_bytes);
            let rule = Cleaning::new(size_bytes, threshold_percent);
            Cache { rule, pool, held: Vec::new(), writes: 0, written_pages: 0 }
        }

        fn step(&self) -> Step {
            let shares = Shares {
                resident_bytes: 64 << 20,
                pool_bytes: self.pool.held_bytes(),
                has_store: true,
                ..Shares::default()
            };
            self.rule.next_step(&shares, |threshold| self.pool.should_clean(threshold))
        }

        fn insert(&mut self, len: usize) {
            let mut handle = self.pool.insert(&[7; 4096][..len]);
            if handle.is_none() {
                self.rule.size.refused();
                assert_eq!(self.step(), Step::Spill);
                self.clean();
                handle = self.pool.insert(&[7; 4096][..len]);
            }
            self.held.push((handle.expect("room after a cleaning"), len));
            if self.step() == Step::Spill {
                self.clean();
            }
        }

        fn clean(&mut self) {
            assert!(self.pool.begin_cleaning());
            let (written, kept): (Vec<_>, Vec<_>) =
                self.held.iter().partition(|(handle, _)| self.pool.is_being_cleaned(*handle));
            for (handle, len) in &written {
                self.pool.remove(*handle, *len);
            }
            self.pool.end_cleaning();
            self.rule.size.spilled();
            self.held = kept;
            self.writes += 1;
            self.written_pages += written.len();
        }
    }

    /// Pages a write, for pages of these lengths in turn.
    fn pages_a_write(threshold_percent: usize, lengths: &[usize]) -> usize {
        let mut cache = Cache::new(1 << 20, threshold_percent);
        lengths.iter().cycle().take(20_000).for_each(|&len| cache.insert(len));
        cache.written_pages / cache.writes
    }

    /// Figure 6: a small threshold writes little at a time.
    #[test]
    fn the_threshold_says_how_much_is_written_at_once() {
        let pages = [1, 10, 50, 70].map(|threshold| pages_a_write(threshold, &[1000, 1300, 700]));
        assert!(pages[0] < 20, "{pages:?}");
        assert!(pages.is_sorted_by(|less, more| less < more), "{pages:?}");
        assert!(pages[3] > 400, "{pages:?}");
    }

    /// 4.3: pages that do not shrink to half lie alone in their buffers.
    #[test]
    fn pages_longer_than_half_a_buffer_gain_nothing() {
        let mut cache = Cache::new(1 << 20, 50);
        for _ in 0..1000 {
            cache.insert(2600);
            assert!(cache.held.len() * 4096 <= 1 << 20);
        }
    }

    /// 3.4: when no buffer counts as full the one that holds most is written.
    #[test]
    fn a_page_that_does_not_fit_is_made_room_for() {
        let mut cache = Cache::new(16 * 4096, 70);
        for _ in 0..16 {
            cache.insert(2600);
        }
        // The mean is 2600 bytes and each buffer has 1496 left: all were full, and written.
        assert_eq!((cache.writes, cache.held.len()), (1, 4));
        let mut cache = Cache::new(4 * 4096, 70);
        for len in [100; 100].into_iter().chain([4096; 8]) {
            cache.insert(len);
        }
        assert!(cache.writes > 0 && cache.pool.held_bytes() <= 4 * 4096);
    }
}
