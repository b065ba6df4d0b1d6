//! When to look again at what changes by itself: after a time that depends on what was seen, and not so
//! soon that looking takes more than a hundredth of one processor.

use std::time::{Duration, Instant};

use super::watch::processor_time;

/// A look may take this part of the time until the next.
const COST_FACTOR: u32 = 99;

/// Tells when to look.
#[derive(Debug)]
pub(super) struct Pace {
    due: Instant,
}

/// What the processor had done for this thread when a look began.
pub(super) struct Began(Duration);

impl Pace {
    /// The first look is due.
    pub(super) fn due() -> Self {
        Pace { due: Instant::now() }
    }

    /// Begins a look; `None` while none is due.
    pub(super) fn begin(&self) -> Option<Began> {
        self.pause().is_zero().then(|| Began(processor_time()))
    }

    /// Ends a look. The next is due after `interval`, or later where this one was costly.
    pub(super) fn end(&mut self, began: Began, interval: Duration) {
        let cost = processor_time().saturating_sub(began.0);
        self.due = Instant::now() + interval.max(cost * COST_FACTOR);
    }

    /// The time until a look is due.
    pub(super) fn pause(&self) -> Duration {
        self.due.saturating_duration_since(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_look_waits_for_its_interval_and_for_what_the_last_one_cost() {
        let mut pace = Pace::due();
        let began = pace.begin().expect("the first");
        pace.end(began, Duration::from_secs(9));
        assert!(pace.begin().is_none() && pace.pause() > Duration::from_secs(8));
        let costly = Began(processor_time());
        while processor_time() < costly.0 + Duration::from_millis(1) {
            std::hint::spin_loop();
        }
        pace.end(costly, Duration::ZERO);
        assert!(pace.pause() > Duration::from_millis(80));
    }
}
