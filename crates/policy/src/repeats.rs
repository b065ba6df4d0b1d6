//! Which pages are tried with a second codec, that takes more time and finds what repeats anywhere in them.
//!
//! The codec for pages of programs compares words with words near by. Of text it leaves up to twice as much as
//! LZ4 does. Which pages are text is not known beforehand: candidates are those of which the first codec leaves
//! much, and pages that leave one after the other are alike. So candidates are tried while that wins,
//! and the more seldom the longer it has not.
//!
//! Whether any are tried is a matter of time for bytes, and decided as with any denser codec:
//! [`DensePool`](crate::DensePool).
//!
//! Source: ours; docs/codecs.md, "Text". castro (2003), 2.3, for benefit against expense.
//!
//! Bad case: text and pages without repetitions that leave by turns: the first codec works twice on those
//! with which the second was tried in vain.

/// Less of a page is not worth a second attempt.
const FIRST_BYTES_MIN: usize = crate::shares::PAGE_BYTES / 4;
/// The second codec leaves pages shorter by this part at least, or is not taken.
const GAIN_PART: usize = 8;
/// Candidates that pass between two that are tried, at most: an even number, as all are, so that of pages that
/// win by turns not always the same are tried.
const WAIT_MAX: u8 = 62;

/// Decides it, from page to page.
#[derive(Debug, Clone, Copy, Default)]
pub struct Repeats {
    /// Candidates that pass until the next is tried, and those that have.
    wait: u8,
    passed: u8,
}

impl Repeats {
    /// How many bytes the second codec may leave of a page of which the first leaves `first_bytes`, all of a
    /// page where it does not shrink; `None` where that is little as it is.
    pub fn bytes_max(first_bytes: usize) -> Option<usize> {
        (first_bytes >= FIRST_BYTES_MIN).then(|| first_bytes - first_bytes / GAIN_PART)
    }

    /// The same; `None` too where the page is not tried.
    pub fn next_bytes_max(&mut self, first_bytes: usize) -> Option<usize> {
        let bytes_max = Self::bytes_max(first_bytes)?;
        let is_tried = self.passed >= self.wait;
        self.passed = if is_tried { 0 } else { self.passed + 1 };
        is_tried.then_some(bytes_max)
    }

    /// Notes whether the second codec left no more than that.
    pub fn tried(&mut self, is_won: bool) {
        self.wait = if is_won { 0 } else { (2 * self.wait + 2).min(WAIT_MAX) };
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    /// How many of so many candidates are tried, where those are won of which this says so.
    fn tried(repeats: &mut Repeats, candidates: usize, is_won: impl Fn(usize) -> bool) -> usize {
        let is_tried = |&at: &usize| {
            let is_tried = repeats.next_bytes_max(2000).is_some();
            if is_tried {
                repeats.tried(is_won(at));
            }
            is_tried
        };
        (0..candidates).filter(is_tried).count()
    }

    #[test]
    fn what_wins_is_tried_and_what_does_not_more_and_more_seldom() {
        let mut repeats = Repeats::default();
        assert_eq!(tried(&mut repeats, 1000, |_| true), 1000);
        // The first six after 0, 2, 6, 14, 30 and 62 others, and one in 63 from then on.
        assert_eq!(tried(&mut repeats, 6 + 114 + 63 * 10, |_| false), 16);
        // What is text is known for it once one is tried.
        assert!(tried(&mut repeats, 163, |_| true) >= 100);
        // Where every second one wins half are tried, and of these two in three do.
        assert_eq!(tried(&mut repeats, 999, |at| at % 2 == 0), 500);
    }

    #[test]
    fn an_eighth_has_to_be_won_of_what_is_worth_it() {
        assert_eq!(Repeats::bytes_max(1023), None);
        assert_eq!(Repeats::bytes_max(2048), Some(1792));
        assert_eq!(Repeats::bytes_max(4096), Some(3584));
        let mut repeats = Repeats::default();
        repeats.tried(false);
        // Those that are no candidates do not count.
        let tried = [1023, 1023, 2048, 1023, 2048, 2048].map(|bytes| repeats.next_bytes_max(bytes));
        assert_eq!(tried, [None, None, None, None, None, Some(1792)]);
    }
}
