//! Whether pages that come back from the store keep their copies there.
//!
//! A page that was not written since leaves again without a write, by its copy. That saves what a
//! departure costs else: the codec, the way to the store, waiting for a disk that is slower, and reads
//! that wait for the disk meanwhile. But the page is write-protected until then, and one that is
//! written after all costs a fault more. Copies are kept as long as one in four is used, which pays
//! on a disk that is never waited for; and as long as departures and faults, measured as the program
//! runs, say that fewer do.
//!
//! A page that shrinks and leaves by its copy does not go by way of the pool, from which it would come
//! back for a small part of what a read takes. Where pages are wanted before as many others have left
//! as the pool holds, and those reads take more time than is saved, such pages go to the pool with their
//! copies, and leave that without a write.
//!
//! Source: the swap cache of Linux, where a clean page keeps its slot (mm/swap_state.c); there the
//! first write costs a fault, too (`do_swap_page`, mm/memory.c).
//!
//! Bad for: a program that reads each page before it writes it. One run in sixteen tries whether it
//! still does.

/// Of pages that came together, one run in so many keeps its copies where they do not pay; and for so many
/// that are read one does not leave by way of the pool where the others do.
const TRIED_PART: u32 = 16;
/// Pages that were read count for so many such at most.
const READ_MAX: u32 = 8 * TRIED_PART;
/// Writes that say nothing yet.
const WRITTEN_MIN: u32 = 64;
/// When so many pages were judged by, older ones count half.
const JUDGED_MAX: u32 = 1024;
/// So many written for each one used pay in any case: measured, a departure saved is worth 16 us on a
/// disk that takes writes as fast as they come, as others have it for themselves, and a fault takes 4.
const WRITTEN_A_DROP: u32 = 3;
/// What a fault takes in all by what its handler sees of it: the signal and the return from it
/// take 2 us, the handler 1.
const FAULT_FACTOR: u64 = 3;
/// Part of a new measurement in a mean.
const MEAN_SHIFT: u32 = 4;

/// What has become of copies, and what things cost, in ticks of the caller's.
#[derive(Debug, Clone, Copy, Default)]
pub struct Copies {
    /// Pages that left by their copies at once, or by way of the pool, and that were written.
    dropped: u32,
    spared: u32,
    written: u32,
    /// Pages that left by their copies and were wanted so soon that the pool would have had them.
    missed: u32,
    /// What a page costs that leaves without a copy, and what the handler takes for a write.
    departure_ticks: u64,
    write_ticks: u64,
    /// What reading a page takes that the pool would have had.
    read_ticks: u64,
    /// Runs that came while copies did not pay.
    runs: u32,
    /// Pages that were read since one did not go by way of the pool.
    read: u32,
}

impl Copies {
    /// Whether the copies of a run of pages that come back now are kept.
    pub fn keeps(&mut self) -> bool {
        if self.pay() {
            return true;
        }
        self.runs = self.runs.wrapping_add(1);
        self.runs.is_multiple_of(TRIED_PART)
    }

    fn pay(&self) -> bool {
        let used = self.dropped + self.spared;
        let cost = u64::from(self.written) * self.write_ticks * FAULT_FACTOR;
        let are_few = self.written < WRITTEN_MIN.max(used * WRITTEN_A_DROP);
        are_few || cost <= u64::from(used) * self.departure_ticks
    }

    /// Whether a page that shrinks, and has a copy, leaves by way of the pool.
    pub fn goes_by_pool(&mut self) -> bool {
        let gain = u64::from(self.dropped) * self.departure_ticks;
        if u64::from(self.missed) * self.read_ticks <= gain {
            return false;
        }
        let is_tried = self.read >= TRIED_PART;
        self.read -= if is_tried { TRIED_PART } else { 0 };
        !is_tried
    }

    /// Pages were read from the store.
    pub fn read(&mut self, pages: usize) {
        self.read = (self.read + pages as u32).min(READ_MAX);
    }

    fn judge(&mut self) {
        if self.dropped + self.spared + self.written >= JUDGED_MAX {
            let counts = [&mut self.dropped, &mut self.spared, &mut self.written, &mut self.missed];
            counts.into_iter().for_each(|count| *count /= 2);
        }
    }

    /// A page left by its copy at once.
    pub fn dropped(&mut self) {
        self.dropped += 1;
        self.judge();
    }

    /// Pages left the pool by their copies.
    pub fn spared(&mut self, pages: usize) {
        for _ in 0..pages {
            self.spared += 1;
            self.judge();
        }
    }

    /// `pages` pages were wanted, and read in `ticks` each, that the pool would have had if they had
    /// not left by their copies.
    pub fn missed(&mut self, pages: u32, ticks: u64) {
        self.missed = self.missed.saturating_add(pages);
        self.read_ticks = mean(self.read_ticks, ticks);
    }

    /// A page was written that had a copy, which the handler noted in `ticks`.
    pub fn written(&mut self, ticks: u64) {
        self.written += 1;
        self.judge();
        self.write_ticks = mean(self.write_ticks, ticks);
    }

    /// `pages` pages left that had no copies, in `ticks` together.
    pub fn departed(&mut self, pages: usize, ticks: u64) {
        if let Some(each) = ticks.checked_div(pages as u64) {
            self.departure_ticks = mean(self.departure_ticks, each);
        }
    }
}

/// The mean with one more measurement, none of which may weigh too much: a program is stopped now
/// and then.
fn mean(before: u64, now: u64) -> u64 {
    match before {
        0 => now,
        _ => before - (before >> MEAN_SHIFT) + (now.min(before * 16) >> MEAN_SHIFT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies of which one in `dropped_part` leaves by its copy, where a departure costs as much as
    /// so many writes: how many runs in a thousand keep theirs.
    fn kept_of_thousand(dropped_part: u32, departure_ticks: u64) -> usize {
        let mut copies = Copies::default();
        let kept = (0..1000u32).filter(|turn| {
            copies.departed(1, departure_ticks);
            let keeps = copies.keeps();
            if keeps && turn % dropped_part == 0 {
                copies.dropped();
            } else if keeps {
                copies.written(1000);
            }
            keeps
        });
        kept.count()
    }

    #[test]
    fn copies_are_kept_where_they_pay() {
        assert_eq!(kept_of_thousand(1, 1000), 1000);
        assert_eq!(kept_of_thousand(3, 100), 1000);
        assert!(kept_of_thousand(8, 4000) < 250);
        assert_eq!(kept_of_thousand(8, 100_000), 1000);
    }

    #[test]
    fn what_does_not_pay_is_tried_again() {
        let mut copies = Copies::default();
        (0..WRITTEN_MIN).for_each(|_| copies.written(1000));
        copies.departed(10, 50_000);
        assert_eq!((0..160).filter(|_| copies.keeps()).count(), 10);
        (0..WRITTEN_MIN).for_each(|_| copies.dropped());
        assert!((0..160).all(|_| copies.keeps()));
    }

    #[test]
    fn pages_that_the_pool_would_have_had_leave_by_way_of_it() {
        let mut copies = Copies::default();
        copies.departed(100, 100_000);
        (0..100).for_each(|_| copies.dropped());
        // A read takes as long as a hundred departures: one in a hundred is as good as none.
        copies.missed(1, 100_000);
        assert!((0..160).all(|_| !copies.goes_by_pool()));
        copies.missed(1, 100_000);
        copies.read(32);
        assert_eq!((0..160).filter(|_| copies.goes_by_pool()).count(), 158);
        // They are kept as before, and what leaves the pool by its copy says nothing of the reads.
        copies.spared(100);
        assert!((0..16).all(|_| copies.keeps()));
        assert!((0..160).all(|_| copies.goes_by_pool()));
        (0..100).for_each(|_| copies.dropped());
        assert!((0..160).all(|_| !copies.goes_by_pool()));
    }
}
