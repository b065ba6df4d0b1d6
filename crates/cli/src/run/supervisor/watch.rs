//! When the budget comes near, and when to look for it next.
//!
//! As long as the tree holds less than the threshold nothing is registered and no
//! call is dispatched; the only cost is looking now and then. The next look comes
//! before memory that grows at its fastest could reach the threshold. What it costs is
//! the processor's time, not how long others kept it from it: a look that came late would
//! else put the next one off, until the program has used all that it may.
//!
//! Source: sched_setattr(2); Linux, Documentation/scheduler/sched-eevdf.rst.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::tree::Tree;

/// How fast the memory of a tree grows at most: the kernel has to clear every page.
const GROWTH_BYTES_PER_SECOND: u64 = 4 << 30;

/// Bounds of the time between two looks.
const MIN_INTERVAL: Duration = Duration::from_micros(500);
const MAX_INTERVAL: Duration = Duration::from_millis(50);

/// A look may take this part of the time until the next: a tenth of one processor at most.
const COST_FACTOR: u32 = 9;

/// How much of the processor it wants at a time, and how much rather than others.
const TURN: Duration = Duration::from_micros(100);
const NICE: i32 = -10;

/// Looks at the tree until the budget comes near.
#[derive(Debug)]
pub(crate) struct Watch {
    threshold_bytes: u64,
    /// The sum that was seen last.
    sum_bytes: u64,
    /// The highest sum seen.
    peak_bytes: u64,
}

/// What a look showed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// The budget has come near.
    Near,
    /// It has not; look again after this time.
    Far(Duration),
}

impl Watch {
    /// Watches for three quarters of the budget: far above the half that has to cost nothing, and
    /// the last quarter is what a tree may grow by while it is being entered.
    pub(crate) fn new(budget_bytes: u64) -> Self {
        Watch { threshold_bytes: near_bytes(budget_bytes), sum_bytes: 0, peak_bytes: 0 }
    }

    /// Watches for three quarters of another budget.
    pub(crate) fn set_budget(&mut self, budget_bytes: u64) {
        self.threshold_bytes = near_bytes(budget_bytes);
    }

    /// The sum that was seen last.
    pub(crate) fn sum_bytes(&self) -> u64 {
        self.sum_bytes
    }

    /// The highest sum seen.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    /// Looks at the tree, which fills so many bytes more in a moment that nobody can stop.
    pub(crate) fn look(&mut self, tree: &mut Tree, coming_bytes: u64) -> Look {
        let began = processor_time();
        tree.refresh();
        let mut sum_bytes = tree.anonymous_bytes();
        if sum_bytes + coming_bytes >= self.threshold_bytes && tree.has_several() {
            sum_bytes = tree.proportional_bytes();
        }
        self.judge(sum_bytes, coming_bytes, processor_time().saturating_sub(began))
    }

    fn judge(&mut self, sum_bytes: u64, coming_bytes: u64, cost: Duration) -> Look {
        self.sum_bytes = sum_bytes;
        self.peak_bytes = self.peak_bytes.max(sum_bytes);
        match self.threshold_bytes.checked_sub(sum_bytes + coming_bytes) {
            None | Some(0) => Look::Near,
            Some(distance_bytes) => Look::Far(interval(distance_bytes).max(cost * COST_FACTOR)),
        }
    }
}

/// From how many bytes on a budget is near.
fn near_bytes(budget_bytes: u64) -> u64 {
    budget_bytes - budget_bytes / 4
}

/// The processor's time that this thread has had.
pub(super) fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Has this thread come soon when it wakes on a busy machine, as far as that is permitted: in the
/// turn that others may have before, a program fills some ten MiB.
pub(crate) fn come_soon() {
    let set = |nice: i32| {
        let attributes = libc::sched_attr {
            size: size_of::<libc::sched_attr>() as u32,
            sched_policy: libc::SCHED_OTHER as u32,
            sched_flags: 0,
            sched_nice: nice,
            sched_priority: 0,
            // Before Linux 6.12 this says nothing.
            sched_runtime: TURN.as_nanos() as u64,
            sched_deadline: 0,
            sched_period: 0,
        };
        // SAFETY: the attributes are whole, and of this thread alone.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) == 0 }
    };
    // SAFETY: it asks about this thread alone.
    let is_real_time =
        matches!(unsafe { libc::sched_getscheduler(0) }, libc::SCHED_FIFO | libc::SCHED_RR);
    if !is_real_time && !set(NICE) {
        let own = rustix::process::getpriority_process(None).unwrap_or(0);
        // It comes when it comes.
        let _ = set(own);
    }
}

/// How long memory takes at least to grow by `distance_bytes`, within bounds.
fn interval(distance_bytes: u64) -> Duration {
    let nanoseconds =
        u128::from(distance_bytes) * 1_000_000_000 / u128::from(GROWTH_BYTES_PER_SECOND);
    let nanoseconds = u64::try_from(nanoseconds).unwrap_or(u64::MAX);
    Duration::from_nanos(nanoseconds).clamp(MIN_INTERVAL, MAX_INTERVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn half_the_budget_is_far_and_three_quarters_are_near() {
        let mut watch = Watch::new(100 * MIB);
        assert!(matches!(watch.judge(50 * MIB, 0, Duration::ZERO), Look::Far(_)));
        assert!(matches!(watch.judge(75 * MIB - 1, 0, Duration::ZERO), Look::Far(_)));
        assert_eq!(watch.judge(75 * MIB, 0, Duration::ZERO), Look::Near);
        assert_eq!(watch.judge(25 * MIB, 50 * MIB, Duration::ZERO), Look::Near);
        assert_eq!(watch.judge(200 * MIB, 0, Duration::ZERO), Look::Near);
        assert_eq!(watch.peak_bytes(), 200 * MIB);
    }

    #[test]
    fn the_fastest_growth_is_seen_before_the_budget_is_used_up() {
        let budget_bytes = 64 * MIB;
        let mut watch = Watch::new(budget_bytes);
        let (mut sum_bytes, mut looks) = (0u64, 0);
        while let Look::Far(pause) = watch.judge(sum_bytes, 0, Duration::ZERO) {
            sum_bytes += (pause.as_secs_f64() * GROWTH_BYTES_PER_SECOND as f64) as u64;
            looks += 1;
            assert!(looks < 100);
        }
        assert!(sum_bytes < budget_bytes, "{sum_bytes}");
    }

    #[test]
    fn a_look_that_is_held_up_costs_nothing_meanwhile() {
        let began = processor_time();
        std::thread::sleep(Duration::from_millis(50));
        assert!(processor_time() - began < Duration::from_millis(25));
    }

    #[test]
    fn coming_soon_changes_this_thread_alone() {
        let here = std::thread::spawn(|| {
            come_soon();
            // SAFETY: it asks about this thread alone.
            unsafe { libc::sched_getscheduler(0) }
        });
        assert_eq!(here.join().expect("a thread"), libc::SCHED_OTHER);
        let nice_of_process = rustix::process::getpriority_process(None).expect("readable");
        assert_ne!(nice_of_process, NICE, "the others have what they had");
    }

    #[test]
    fn intervals_are_bounded_and_leave_the_processor_alone() {
        assert_eq!(interval(0), MIN_INTERVAL);
        assert_eq!(interval(u64::MAX), MAX_INTERVAL);
        assert_eq!(interval(40 * MIB).as_millis(), 9);
        let mut watch = Watch::new(100 * MIB);
        let slow = Duration::from_millis(20);
        assert_eq!(watch.judge(70 * MIB, 0, slow), Look::Far(slow * COST_FACTOR));
    }
}
