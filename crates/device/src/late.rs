//! Answers that wait, as space runs short: whoever writes is slowed by them, and nobody else, as the
//! requests behind are done meanwhile.
//!
//! Each waits its own time after the one before, in the order of the writes.
//!
//! Bound: [`WAITING_MAX`] answers; a client that has more writes under way waits with all it wants
//! for the first of them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Most answers that wait: more than the kernel has requests under way, and QEMU.
const WAITING_MAX: usize = 256;

/// RAM of them.
pub(crate) const BYTES: usize = WAITING_MAX * size_of::<(Instant, u64)>();

/// The cookies of writes that were done and not answered, each with when it is to be.
#[derive(Debug)]
pub(crate) struct Late(VecDeque<(Instant, u64)>);

impl Late {
    pub(crate) fn new() -> Self {
        Late(VecDeque::with_capacity(WAITING_MAX))
    }

    pub(crate) fn is_full(&self) -> bool {
        self.0.len() == WAITING_MAX
    }

    /// Has an answer wait; there is a place for it.
    pub(crate) fn push(&mut self, now: Instant, pause: Duration, cookie: u64) {
        debug_assert!(!self.is_full());
        let from = self.0.back().map_or(now, |&(due, _)| due.max(now));
        self.0.push_back((from + pause, cookie));
    }

    /// How long the first has to wait.
    pub(crate) fn pause(&self, now: Instant) -> Option<Duration> {
        self.0.front().map(|&(due, _)| due.saturating_duration_since(now))
    }

    /// The first.
    pub(crate) fn pop(&mut self) -> Option<u64> {
        self.0.pop_front().map(|(_, cookie)| cookie)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_waits_its_time_after_the_one_before() {
        const STEP: Duration = Duration::from_secs(1);
        let (mut late, now) = (Late::new(), Instant::now());
        late.push(now, STEP, 1);
        late.push(now, 2 * STEP, 2);
        late.push(now + 10 * STEP, STEP, 3);
        for (cookie, due) in [(1, 1), (2, 3), (3, 11)] {
            assert_eq!(late.pause(now), Some(due * STEP));
            assert_eq!(late.pause(now + 20 * STEP), Some(Duration::ZERO));
            assert_eq!(late.pop(), Some(cookie));
        }
        assert_eq!((late.pause(now), late.pop()), (None, None));
    }
}
