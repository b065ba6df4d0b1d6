//! Whether clean pages are worth compressing.
//!
//! Source: castro (2003), 2.3.4. A clean page can be dropped: the store has it. Compressing it pays
//! only if it comes back before it leaves the pool. When many more clean pages leave the pool for
//! good than are read back, clean pages are dropped from then on without being compressed. The last
//! ones dropped so are remembered, and every page read from the store is looked for among them:
//! when many of those reads find one, clean pages are compressed again.
//!
//! The paper says that its figures were found by experiment and does not give them; here they are
//! parameters.
//!
//! Bad case: phases shorter than a term, of which it sees the mean.

/// How many dropped pages are remembered.
pub const DROPPED_MAX: usize = 256;
/// Pages released or reclaimed between two decisions to stop, and reads from the store between
/// two to start.
pub const TERM: u32 = 256;

/// No page; a slot of the ring that was not used yet.
const NONE: u64 = u64::MAX;

/// What decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evidence {
    /// Clean pages that leave the pool for good, for each one that is read back, beyond which it
    /// is not worth while.
    pub released_per_reclaimed: u32,
    /// Of a hundred pages read from the store, so many dropped lately make it worth while again.
    pub dropped_percent: u32,
}

/// The switch.
#[derive(Debug)]
pub struct Switch {
    evidence: Evidence,
    compresses: bool,
    reclaimed: u32,
    released: u32,
    reads: u32,
    reads_of_dropped: u32,
    dropped: [u64; DROPPED_MAX],
    next: usize,
}

impl Switch {
    /// Clean pages are compressed, until the evidence is against it.
    pub const fn new(evidence: Evidence) -> Self {
        Switch {
            evidence,
            compresses: true,
            reclaimed: 0,
            released: 0,
            reads: 0,
            reads_of_dropped: 0,
            dropped: [NONE; DROPPED_MAX],
            next: 0,
        }
    }

    /// Whether a clean page is to be compressed; otherwise it is dropped, and
    /// [`dropped`](Self::dropped) told of it.
    pub fn compresses(&self) -> bool {
        self.compresses
    }

    /// Notes that a clean page was read back from the pool.
    pub fn reclaimed(&mut self) {
        self.reclaimed += 1;
        self.weigh_pool();
    }

    /// Notes that a clean page left the pool and was not read back.
    pub fn released(&mut self) {
        self.released += 1;
        self.weigh_pool();
    }

    /// At the end of a term, stops compressing if it was not worth while.
    fn weigh_pool(&mut self) {
        if self.reclaimed + self.released < TERM {
            return;
        }
        let worth = self.reclaimed.saturating_mul(self.evidence.released_per_reclaimed);
        if self.compresses && self.released > worth {
            self.compresses = false;
            self.dropped = [NONE; DROPPED_MAX];
            (self.reads, self.reads_of_dropped) = (0, 0);
        }
        (self.reclaimed, self.released) = (0, 0);
    }

    /// Notes that clean `page` was dropped without being compressed.
    pub fn dropped(&mut self, page: u64) {
        self.dropped[self.next] = page;
        self.next = (self.next + 1) % DROPPED_MAX;
    }

    /// Notes that `page` was read from the store.
    pub fn read_from_store(&mut self, page: u64) {
        if self.compresses {
            return;
        }
        self.reads += 1;
        if let Some(slot) = self.dropped.iter_mut().find(|dropped| **dropped == page) {
            *slot = NONE;
            self.reads_of_dropped += 1;
        }
        if self.reads < TERM {
            return;
        }
        if self.reads_of_dropped * 100 >= self.reads * self.evidence.dropped_percent {
            self.compresses = true;
            (self.reclaimed, self.released) = (0, 0);
        }
        (self.reads, self.reads_of_dropped) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const EVIDENCE: Evidence = Evidence { released_per_reclaimed: 8, dropped_percent: 50 };

    fn stopped() -> Switch {
        let mut switch = Switch::new(EVIDENCE);
        (0..TERM).for_each(|_| switch.released());
        assert!(!switch.compresses());
        switch
    }

    /// Sort and PostMark (table 3): a pass over files that are not read again.
    #[test]
    fn pages_that_never_come_back_are_no_longer_compressed() {
        let mut switch = Switch::new(EVIDENCE);
        for page in 0..TERM {
            assert!(switch.compresses(), "{page}");
            switch.released();
        }
        assert!(!switch.compresses());
        // They are not read again either, so it stays so.
        for page in 0..10_000 {
            switch.dropped(page);
            switch.read_from_store(1_000_000 + page);
        }
        assert!(!switch.compresses());
    }

    #[test]
    fn pages_that_come_back_now_and_then_are_worth_it() {
        let mut switch = Switch::new(EVIDENCE);
        for turn in 0..10_000 {
            match turn % 8 {
                0 => switch.reclaimed(),
                _ => switch.released(),
            }
            assert!(switch.compresses());
        }
    }

    #[test]
    fn what_is_read_again_soon_after_it_was_dropped_is_compressed_again() {
        let mut switch = stopped();
        let mut page = 0;
        while !switch.compresses() {
            switch.dropped(page);
            // Every second read is of a page dropped a hundred pages ago.
            switch.read_from_store(if page % 2 == 0 { page.wrapping_sub(100) } else { 1 << 40 });
            page += 1;
            assert!(page < 4 * u64::from(TERM), "never");
        }
        assert!(page >= u64::from(TERM));
    }

    #[test]
    fn what_is_read_again_long_after_it_was_dropped_is_not() {
        let mut switch = stopped();
        for page in 0..10_000u64 {
            switch.dropped(page);
            switch.read_from_store(page.wrapping_sub(2 * DROPPED_MAX as u64));
        }
        assert!(!switch.compresses());
    }

    proptest! {
        #[test]
        fn it_remembers_the_last_ones_dropped_and_no_others(
            steps in prop::collection::vec((any::<bool>(), 0u64..600), 1..1500),
        ) {
            let mut switch = stopped();
            let mut model: VecDeque<Option<u64>> = VecDeque::new();
            let (mut reads, mut found) = (0, 0);
            for (is_read, page) in steps {
                if !is_read {
                    // A page that was dropped has to be read before it is dropped again.
                    if model.contains(&Some(page)) {
                        continue;
                    }
                    switch.dropped(page);
                    model.push_back(Some(page));
                    if model.len() > DROPPED_MAX {
                        model.pop_front();
                    }
                    continue;
                }
                switch.read_from_store(page);
                reads += 1;
                if let Some(dropped) = model.iter_mut().find(|dropped| **dropped == Some(page)) {
                    *dropped = None;
                    found += 1;
                }
                if reads == TERM {
                    prop_assert_eq!(switch.compresses(), found * 100 >= TERM * EVIDENCE.dropped_percent);
                    break;
                }
                prop_assert_eq!((switch.reads, switch.reads_of_dropped), (reads, found));
            }
        }
    }
}
