//! How long pages are away before they are wanted again, from a sample of them.
//!
//! Source: Waldspurger, Park, Garthwaite and Ahmad, Efficient MRC Construction
//! with SHARDS (FAST 2015), 3: a page belongs to the sample if a hash of its
//! number says so, so that all of its departures and returns are seen or none.
//! The program's accesses to resident pages cannot be seen at all; what can be
//! seen is that a page left, and after how many other departures it was missed.
//!
//! The table is direct-mapped: of two sampled pages in one slot the later one stays.
//!
//! Bad case: a working set of fewer pages than one in the sampling rate.

/// Slots in the table.
pub const SLOTS: usize = 2048;

/// A sampled page and when it left.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sample {
    /// The page's number plus one; zero is an empty slot.
    key: u64,
    /// Departures before its own.
    left_at: u64,
}

/// The departures of sampled pages.
#[derive(Debug)]
pub struct Sampler<'a> {
    slots: &'a mut [Sample],
    /// One page in two to the power of this is sampled.
    rate_bits: u32,
    departures: u64,
}

impl<'a> Sampler<'a> {
    /// A sampler for a program of which about `pages` pages are away at a time.
    /// `slots` are [`SLOTS`] empty ones.
    pub fn new(slots: &'a mut [Sample], pages: u64) -> Self {
        let rate_bits = (pages / (slots.len() as u64 / 2).max(1)).max(1).ilog2();
        Sampler { slots, rate_bits, departures: 0 }
    }

    /// One page in so many is in the sample.
    pub fn rate(&self) -> u64 {
        1 << self.rate_bits
    }

    /// Departures so far.
    pub fn departures(&self) -> u64 {
        self.departures
    }

    /// Notes that a page leaves resident memory.
    pub fn leaves(&mut self, page: u64) {
        self.note(page);
        self.pass();
    }

    /// Notes that a page leaves, or not before now, without counting that.
    pub fn note(&mut self, page: u64) {
        if let Some(slot) = self.slot(page) {
            self.slots[slot] = Sample { key: page + 1, left_at: self.departures };
        }
    }

    /// Counts a departure.
    pub fn pass(&mut self) {
        self.departures += 1;
    }

    /// How many pages have left since `page` did; `None` if it is not in the sample.
    pub fn distance(&self, page: u64) -> Option<u64> {
        let sample = &self.slots[self.slot(page)?];
        (sample.key == page + 1).then(|| self.departures - sample.left_at)
    }

    /// Where a page is noted, if it is sampled.
    fn slot(&self, page: u64) -> Option<usize> {
        // Fibonacci hashing: the upper bits of the product depend on all of the number.
        let hash = page.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let is_sampled = hash >> 40 & ((1 << self.rate_bits) - 1) == 0;
        is_sampled.then(|| (hash >> 48) as usize % self.slots.len())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec;

    #[test]
    fn distances_are_counted_in_departures() {
        let mut slots = vec![Sample::default(); SLOTS];
        let mut sampler = Sampler::new(&mut slots, 100);
        sampler.leaves(7);
        sampler.leaves(8);
        assert_eq!(sampler.distance(7), Some(2));
        assert_eq!(sampler.distance(8), Some(1));
        assert_eq!(sampler.distance(9), None);
        sampler.leaves(7);
        assert_eq!(sampler.distance(7), Some(1));
    }

    #[test]
    fn the_sample_is_a_fair_share() {
        let mut slots = vec![Sample::default(); SLOTS];
        let pages = 1 << 20;
        let mut sampler = Sampler::new(&mut slots, pages);
        (0..pages).for_each(|page| sampler.leaves(page));
        let known = (0..pages).filter(|&page| sampler.distance(page).is_some()).count();
        assert!((SLOTS / 4..=SLOTS).contains(&known), "{known} of {pages}");
    }
}
