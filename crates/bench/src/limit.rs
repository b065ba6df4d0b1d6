//! How much of the total each rival is given, so that all use the same total.
//!
//! A rival holds memory beyond what it is given: the kernel's pools lie outside
//! the program's cgroup, and a program under zpager has memory that zpager does
//! not manage. How much is known only from running the program. So `given` is
//! sought with `given + extra(given) = total`. Less given means more pages in
//! the pool, with a slope between 0 (nothing is swapped) and 1 (pages that do not
//! shrink), so the sum grows with `given` and a secant between brackets finds it.
//!
//! A share below [`LEAST_PART`] of the total is not tried: a program so far from
//! its need does nothing but wait for pages. Nor is a smaller one after a run that
//! failed while its sum was above the total: it could but fail too.
//!
//! Invariants: at most [`MAX_TRIALS`] runs, of which [`MAX_FAILURES`] fail; the
//! result was itself tried.
//! Bad on: programs whose pages do not compress, where no share fits, and those
//! whose need differs from run to run, where the result is as good as one run.

use anyhow::Result;

/// How many runs the search may take.
const MAX_TRIALS: u32 = 8;

/// How many of them may fail: each may take as long as the time-out.
const MAX_FAILURES: u32 = 2;

/// The least part of the total that is tried as a share.
const LEAST_PART: f64 = 0.125;

/// What one run at a share showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trial {
    /// The program ran to its end; the rival held this much beyond its share.
    Held {
        /// Bytes beyond the share, at their peak.
        extra_bytes: u64,
    },
    /// The program did not run to its end.
    Failed {
        /// Why not.
        reason: String,
        /// Bytes beyond the share, at their peak until then.
        extra_bytes: u64,
    },
}

/// The outcome of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Share {
    /// Given so much, the rival holds the total.
    Given {
        /// Bytes given.
        bytes: u64,
    },
    /// There is no share at which the program runs and the total is held.
    None(String),
}

/// What is sought.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    /// The total to be held.
    pub total_bytes: u64,
    /// How far the sum may be above or below it.
    pub tolerance_bytes: u64,
    /// The share that is tried first: the total, or what a like rival came to.
    pub first_bytes: u64,
}

#[derive(Clone, Copy)]
struct Point {
    given: f64,
    /// Sum less total.
    excess: f64,
}

/// Looks for the share of `target`, running `trial` at each share it considers.
///
/// # Errors
/// As `trial`: a failure of the bench itself, not of the rival.
pub(crate) fn find(target: Target, mut trial: impl FnMut(u64) -> Result<Trial>) -> Result<Share> {
    let total = target.total_bytes as f64;
    let mut search = Search::over(total);
    let mut given = target.first_bytes;
    for _ in 0..MAX_TRIALS {
        match trial(given)? {
            Trial::Held { extra_bytes } => {
                let excess = given as f64 + extra_bytes as f64 - total;
                if excess.abs() <= target.tolerance_bytes as f64 {
                    return Ok(Share::Given { bytes: given });
                }
                search.held(Point { given: given as f64, excess });
            }
            Trial::Failed { reason, extra_bytes } => {
                search.did_not_end(given as f64, reason);
                if given + extra_bytes > target.total_bytes {
                    break;
                }
            }
        }
        match search.next() {
            Some(next) => given = next as u64,
            None => break,
        }
    }
    Ok(search.conclude())
}

struct Search {
    total: f64,
    /// The largest share with a sum below the total.
    below: Option<Point>,
    /// The smallest share with a sum above the total.
    above: Option<Point>,
    /// The one before it.
    above_before: Option<Point>,
    /// The largest share at which the program failed.
    failed: f64,
    failures: u32,
    reason: String,
}

impl Search {
    fn over(total: f64) -> Self {
        Search {
            total,
            below: None,
            above: None,
            above_before: None,
            failed: 0.0,
            failures: 0,
            reason: String::new(),
        }
    }

    fn held(&mut self, point: Point) {
        if point.excess < 0.0 {
            self.below = Some(point);
        } else {
            self.above_before = self.above.replace(point);
        }
    }

    fn did_not_end(&mut self, given: f64, reason: String) {
        self.failed = self.failed.max(given);
        self.failures += 1;
        self.reason = reason;
    }

    /// The next share to try, or nothing where no better one can exist.
    fn next(&self) -> Option<f64> {
        let guess = match (self.below, self.above) {
            (None, None) => self.total,
            (Some(low), Some(high)) => crossing(low, high),
            (None, Some(high)) => self.below_all(high),
            (Some(low), None) => (low.given - low.excess).min(self.total),
        };
        if guess < self.total * LEAST_PART || self.failures >= MAX_FAILURES {
            return None;
        }
        if guess > self.failed {
            return Some(guess);
        }
        // Between a share that fails and one that is too large: once in the middle.
        self.above.map(|high| self.failed.midpoint(high.given))
    }

    /// Where the last two shares above the total point to. With one alone, or two
    /// that contradict the rule, the extra is taken for constant, which falls short
    /// where less given means a larger pool.
    fn below_all(&self, high: Point) -> f64 {
        let line = self.above_before.map(|higher| crossing(high, higher));
        let constant = high.given - high.excess;
        line.filter(|&guess| guess < constant).unwrap_or(constant)
    }

    /// The best that was tried: a sum below the total is honest, if wasteful.
    fn conclude(self) -> Share {
        match (self.below, self.above) {
            (Some(low), _) => Share::Given { bytes: low.given as u64 },
            (None, Some(high)) => {
                let mib = |bytes: f64| (bytes / f64::from(1 << 20)).round();
                let (given, sum) = (mib(high.given), mib(self.total + high.excess));
                let mut note =
                    format!("cannot hold the total: given {given} MiB it takes {sum} MiB");
                if !self.reason.is_empty() {
                    note = format!("{note}, given less: {}", self.reason);
                }
                Share::None(note)
            }
            (None, None) => Share::None(self.reason),
        }
    }
}

/// Where the straight line through two points has no excess.
fn crossing(low: Point, high: Point) -> f64 {
    low.given - low.excess * (high.given - low.given) / (high.excess - low.excess)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    /// A pool over a program of `need` bytes whose pages shrink to `ratio`.
    fn pool(need: u64, ratio: f64) -> impl Fn(u64) -> u64 {
        move |given| (need.saturating_sub(given) as f64 * ratio) as u64
    }

    fn search(total: u64, fails_below: u64, extra: impl Fn(u64) -> u64) -> (Share, u32) {
        let mut trials = 0;
        let target =
            Target { total_bytes: total, tolerance_bytes: total / 100, first_bytes: total };
        let share = find(target, |given| {
            trials += 1;
            Ok(if given < fails_below {
                Trial::Failed { reason: "killed".into(), extra_bytes: 0 }
            } else {
                Trial::Held { extra_bytes: extra(given) }
            })
        })
        .expect("no failure of the bench");
        (share, trials)
    }

    proptest! {
        #[test]
        fn the_sum_is_the_total(need in 64_u64..4096, ratio in 0.05_f64..0.7, part in 0.76_f64..1.0) {
            let need = need * MIB;
            let total = (need as f64 * part) as u64;
            let extra = pool(need, ratio);
            let (share, trials) = search(total, 0, &extra);
            prop_assert!(trials <= MAX_TRIALS);
            let Share::Given { bytes } = share else { panic!("{share:?}") };
            let sum = bytes + extra(bytes);
            prop_assert!(sum.abs_diff(total) <= total / 100, "{sum} is not {total}");
        }

        #[test]
        fn the_search_ends_whatever_the_runs_show(
            total in 1_u64..1 << 40, fails in 0_u64..1 << 40, extra in proptest::collection::vec(any::<u32>(), 8),
        ) {
            let at = std::cell::Cell::new(0);
            let (_, trials) = search(total, fails, |_| {
                at.set(at.get() + 1);
                u64::from(extra[(at.get() - 1) % extra.len()])
            });
            prop_assert!(trials <= MAX_TRIALS);
        }
    }

    #[test]
    fn a_constant_extra_takes_two_runs() {
        let (share, trials) = search(200 * MIB, 0, |_| 12 * MIB);
        assert_eq!(share, Share::Given { bytes: 188 * MIB });
        assert_eq!(trials, 2);
    }

    #[test]
    fn a_good_first_share_takes_one_run_and_a_bad_one_few() {
        let extra = pool(300 * MIB, 0.4);
        // given + 0.4 * (300 - given) = 150 at 50.
        for (first, most_trials) in [(50, 1), (45, 3), (90, 3)] {
            let target =
                Target { total_bytes: 150 * MIB, tolerance_bytes: MIB, first_bytes: first * MIB };
            let mut trials = 0;
            let share = find(target, |given| {
                trials += 1;
                Ok(Trial::Held { extra_bytes: extra(given) })
            });
            assert!(matches!(share, Ok(Share::Given { .. })), "{share:?}");
            assert!(trials <= most_trials, "{trials} from {first}");
        }
    }

    #[test]
    fn a_rival_that_is_always_killed_is_tried_once() {
        let (share, trials) = search(100 * MIB, u64::MAX, |_| 0);
        assert_eq!(share, Share::None("killed".into()));
        assert_eq!(trials, 1);
    }

    #[test]
    fn a_rival_that_needs_more_than_the_total_says_how_much() {
        let (share, _) = search(100 * MIB, 90 * MIB, pool(200 * MIB, 0.5));
        let Share::None(note) = share else { panic!("{share:?}") };
        assert!(note.ends_with("given less: killed"), "{note}");
    }

    #[test]
    fn a_share_just_above_the_failing_ones_is_found() {
        let (share, _) = search(100 * MIB, 70 * MIB, pool(150 * MIB, 0.4));
        // given + 0.4 * (150 - given) = 100 at 66.7, which fails: nothing fits.
        assert!(matches!(share, Share::None(_)), "{share:?}");
        let (share, _) = search(100 * MIB, 60 * MIB, pool(150 * MIB, 0.4));
        assert!(matches!(share, Share::Given { .. }), "{share:?}");
    }
}
