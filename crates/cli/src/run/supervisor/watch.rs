//! When the budget comes near, and when to look for it next.
//!
//! As long as the tree holds less than the threshold nothing is registered and no
//! call is dispatched; the only cost is looking now and then. The next look comes
//! before memory that grows at its fastest could reach the threshold, but for a look that
//! cost much, as at many processes: after that memory that grew as since the last one. What it costs is
//! the processor's time, not how long others kept it from it: a look that came late would
//! else put the next one off, until the program has used all that it may.
//!
//! Only a few programs begin until the next look ([`beginners`](super::beginners)).
//!
//! What several processes have in common counts once, and to count so takes the kernel long. Until that is due again
//! they are taken to hold as much more as each of them for itself, or as they had faults: one that writes what it
//! has in common with others gets a copy by one. The former is certain where none of them has been made meanwhile.
//!
//! Source: sched_setattr(2); Linux, Documentation/scheduler/sched-eevdf.rst.

use std::time::{Duration, Instant};

use libc::pid_t;
use rustix::time::{ClockId, clock_gettime};

use super::beginners::Beginners;
use super::tree::Tree;

/// How fast the memory of a tree grows at most: the kernel has to clear every page.
const GROWTH_BYTES_PER_SECOND: u64 = 4 << 30;

/// Bounds of the time between two looks.
const MIN_INTERVAL: Duration = Duration::from_micros(500);
const MAX_INTERVAL: Duration = Duration::from_millis(50);

/// A look may take this part of the time until the next: a tenth of one processor at most.
const COST_FACTOR: u32 = 9;

/// The same of counting what is in common, where the budget seems to have come near since, after so many times
/// in a row that it had not: the first is due at once.
const SOON_FACTORS: [u32; 4] = [0, 1, 2, 4];

/// How many times as fast as since the last look memory may grow until the next one.
const GROWTH_FACTOR: u64 = 2;

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
    /// How far the budget seemed to be.
    distance_bytes: u64,
    beginners: Beginners,
    growth: Growth,
    /// The last time that what several processes have in common was counted once.
    counted: Option<Counted>,
    /// How often it was in vain since the budget was not as near as it had seemed.
    counted_in_vain: usize,
}

/// How memory grows.
#[derive(Debug)]
struct Growth {
    seen: Instant,
    bytes: u64,
    bytes_per_second: u64,
}

/// What processes have each for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Apart {
    anonymous_bytes: u64,
    /// [`Tree::faulted_bytes`].
    faulted_bytes: u64,
}

/// What several processes hold.
#[derive(Debug)]
struct Counted {
    /// Which they are.
    processes: Vec<pid_t>,
    /// What they had each for itself, and together.
    apart: Apart,
    sum_bytes: u64,
    /// When it may be counted again: where it seems to have come near, and else.
    soon: Instant,
    due: Instant,
}

impl Growth {
    /// Takes note of the bytes that there are now.
    fn note(&mut self, bytes: u64, now: Instant) {
        let nanoseconds = (now - self.seen).as_nanos().max(1);
        let more_bytes = u128::from(bytes.saturating_sub(self.bytes));
        let bytes_per_second = u64::try_from(more_bytes * 1_000_000_000 / nanoseconds);
        *self = Growth { seen: now, bytes, bytes_per_second: bytes_per_second.unwrap_or(u64::MAX) };
    }
}

impl Apart {
    /// By how much they can have more, as far as that shows.
    fn most_since(self, before: Apart) -> u64 {
        let anonymous_bytes = self.anonymous_bytes.saturating_sub(before.anonymous_bytes);
        anonymous_bytes.max(self.faulted_bytes.saturating_sub(before.faulted_bytes))
    }
}

impl Counted {
    /// What was counted at a cost, after so many times `in_vain`, of processes that are not named.
    fn new(apart: Apart, sum_bytes: u64, now: Instant, cost: Duration, in_vain: usize) -> Self {
        let soon_factor = SOON_FACTORS[in_vain.min(SOON_FACTORS.len() - 1)];
        let [soon, due] = [soon_factor, COST_FACTOR].map(|factor| now + cost * factor);
        Counted { processes: Vec::new(), apart, sum_bytes, soon, due }
    }

    /// The same of the processes of a tree.
    fn of(self, tree: &Tree) -> Self {
        Counted { processes: tree.processes().map(|(pid, _)| pid).collect(), ..self }
    }

    /// Whether each process of a tree was there.
    fn has_all_of(&self, tree: &Tree) -> bool {
        tree.processes().all(|(pid, _)| self.processes.binary_search(&pid).is_ok())
    }
}

/// What a look showed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// The budget has come near.
    Near,
    /// It may have, which cannot be told yet; look again after this time.
    Perhaps(Duration),
    /// It has not; look again after this time.
    Far(Duration),
}

impl Watch {
    /// Watches for three quarters of the budget: far above the half that has to cost nothing, and
    /// the last quarter is what a tree may grow by while it is being entered.
    pub(crate) fn new(budget_bytes: u64) -> Self {
        let threshold_bytes = near_bytes(budget_bytes);
        Watch {
            threshold_bytes,
            sum_bytes: 0,
            peak_bytes: 0,
            distance_bytes: threshold_bytes,
            beginners: Beginners::default(),
            growth: Growth { seen: Instant::now(), bytes: 0, bytes_per_second: 0 },
            counted: None,
            counted_in_vain: 0,
        }
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

    /// How many programs may begin until the next look, where so many are left of those that might until this one.
    pub(crate) fn admit(&mut self, left: u32) -> u32 {
        self.beginners.admit(self.threshold_bytes, self.distance_bytes, left)
    }

    /// Looks at the tree, which fills so many bytes more in a moment that nobody can stop.
    pub(crate) fn look(&mut self, tree: &mut Tree, coming_bytes: u64) -> Look {
        let began = processor_time();
        tree.refresh();
        let now = Instant::now();
        let processes = tree.anonymous_bytes();
        let (anonymous_bytes, new_bytes) =
            self.beginners.look(processes, self.threshold_bytes, now);
        self.growth.note(anonymous_bytes, now);
        let coming_bytes = coming_bytes + new_bytes;
        let has_common =
            anonymous_bytes + coming_bytes >= self.threshold_bytes && tree.has_several();
        let cost = processor_time().saturating_sub(began);
        if !has_common {
            self.counted = None;
            return self.judge(anonymous_bytes, coming_bytes, cost);
        }
        let apart = Apart { anonymous_bytes, faulted_bytes: tree.faulted_bytes() };
        let certain_bytes = self.certain_bytes(anonymous_bytes, tree);
        if let Some(sum_bytes) = certain_bytes
            && sum_bytes + coming_bytes >= self.threshold_bytes
        {
            return self.judge(sum_bytes, coming_bytes, cost);
        }
        if let Some(distance_bytes) = self.distance(apart, coming_bytes, Instant::now()) {
            self.distance_bytes = distance_bytes;
            let pause = self.pause(cost);
            return if distance_bytes == 0 { Look::Perhaps(pause) } else { Look::Far(pause) };
        }
        let sum_bytes = tree.proportional_bytes();
        let counting_cost = processor_time().saturating_sub(began);
        let now = Instant::now();
        self.counted_in_vain = self.times_in_vain(apart, sum_bytes);
        let counted = Counted::new(apart, sum_bytes, now, counting_cost, self.counted_in_vain);
        self.counted = Some(counted.of(tree));
        self.judge(sum_bytes, coming_bytes, cost)
    }

    /// How often in a row counting was in vain, once `sum_bytes` were: by far less than there seemed to be more.
    fn times_in_vain(&self, apart: Apart, sum_bytes: u64) -> usize {
        match &self.counted {
            Some(before) if sum_bytes < before.sum_bytes + apart.most_since(before.apart) / 2 => {
                self.counted_in_vain + 1
            }
            Some(_) => 0,
            None => self.counted_in_vain,
        }
    }

    /// What processes hold at least, where all of them were counted.
    fn certain_bytes(&self, anonymous_bytes: u64, tree: &Tree) -> Option<u64> {
        let counted = self.counted.as_ref().filter(|counted| counted.has_all_of(tree))?;
        Some(counted.sum_bytes + anonymous_bytes.saturating_sub(counted.apart.anonymous_bytes))
    }

    /// How far the budget seems to be while it is not time to count what processes have in common again.
    fn distance(&self, apart: Apart, coming_bytes: u64, now: Instant) -> Option<u64> {
        let counted = self.counted.as_ref()?;
        let more_bytes = apart.most_since(counted.apart);
        let sum_bytes = counted.sum_bytes + more_bytes + coming_bytes;
        let distance_bytes = self.threshold_bytes.saturating_sub(sum_bytes);
        let again = if distance_bytes == 0 { counted.soon } else { counted.due };
        (now < again).then_some(distance_bytes)
    }

    fn judge(&mut self, sum_bytes: u64, coming_bytes: u64, cost: Duration) -> Look {
        self.sum_bytes = sum_bytes;
        self.peak_bytes = self.peak_bytes.max(sum_bytes);
        self.distance_bytes = self.threshold_bytes.saturating_sub(sum_bytes + coming_bytes);
        if self.distance_bytes == 0 { Look::Near } else { Look::Far(self.pause(cost)) }
    }

    /// The time after a look that took `cost`.
    fn pause(&self, cost: Duration) -> Duration {
        let bytes_per_second = self.growth.bytes_per_second.saturating_mul(GROWTH_FACTOR);
        let as_before = growth_time(self.distance_bytes, bytes_per_second);
        (cost * COST_FACTOR).min(as_before.max(cost)).max(interval(self.distance_bytes))
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

/// How long memory takes to grow by `distance_bytes`.
fn growth_time(distance_bytes: u64, bytes_per_second: u64) -> Duration {
    let nanoseconds =
        u128::from(distance_bytes) * 1_000_000_000 / u128::from(bytes_per_second.max(1));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

/// The same where it grows at its fastest, within bounds.
fn interval(distance_bytes: u64) -> Duration {
    growth_time(distance_bytes, GROWTH_BYTES_PER_SECOND).clamp(MIN_INTERVAL, MAX_INTERVAL)
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
    fn a_costly_look_is_not_waited_for_while_memory_grows() {
        let (began, cost) = (Instant::now(), Duration::from_millis(2));
        let mut watch = Watch::new(100 * MIB);
        let mut look = |milliseconds, mib: u64| {
            watch.growth.note(mib * MIB, began + Duration::from_millis(milliseconds));
            match watch.judge(mib * MIB, 0, cost) {
                Look::Far(pause) => pause.as_micros(),
                other => panic!("{other:?}"),
            }
        };
        look(100, 20);
        assert_eq!(look(200, 20), 18_000, "nothing grows");
        assert_eq!(look(210, 30), 18_000, "a MiB each millisecond");
        assert_eq!(look(220, 50), 6_250, "25 MiB are as far as that, were it twice as fast");
        assert_eq!(look(230, 70), 2_000, "not more than half of the time");
    }

    #[test]
    fn what_is_in_common_is_counted_again_when_it_is_due_or_seems_near() {
        let began = Instant::now();
        let at = |milliseconds| began + Duration::from_millis(milliseconds);
        let mut watch = Watch::new(100 * MIB);
        assert_eq!(watch.distance(apart(200, 500), 0, began), None, "never counted so far");
        let cost = Duration::from_millis(1);
        watch.counted = Some(Counted::new(apart(200, 500), 40 * MIB, began, cost, 9));
        for (anonymous_mib, faulted_mib, coming_mib, milliseconds, distance_mib) in [
            (200, 500, 0, 0, Some(35)),
            (210, 500, 5, 8, Some(20)),
            (150, 500, 0, 8, Some(35)),
            (210, 500, 5, 9, None),
            // What was in common is copied.
            (200, 520, 0, 8, Some(15)),
            // As much more as there is room for.
            (235, 500, 0, 3, Some(0)),
            (235, 500, 0, 4, None),
            (300, 500, 0, 3, Some(0)),
            (200, 540, 0, 4, None),
            (210, 500, 25, 4, None),
        ] {
            let seen = apart(anonymous_mib, faulted_mib);
            let distance = watch.distance(seen, coming_mib * MIB, at(milliseconds));
            assert_eq!(distance, distance_mib.map(|mib| mib * MIB), "{seen:?}, {milliseconds}");
        }
    }

    fn apart(anonymous_mib: u64, faulted_mib: u64) -> Apart {
        Apart { anonymous_bytes: anonymous_mib * MIB, faulted_bytes: faulted_mib * MIB }
    }

    #[test]
    fn counting_in_vain_is_done_more_and_more_seldom() {
        let (now, cost) = (Instant::now(), Duration::from_millis(1));
        let mut watch = Watch::new(100 * MIB);
        let mut count = |faulted_mib: u64, sum_mib: u64| {
            let seen = apart(200, faulted_mib);
            watch.counted_in_vain = watch.times_in_vain(seen, sum_mib * MIB);
            let counted = Counted::new(seen, sum_mib * MIB, now, cost, watch.counted_in_vain);
            let pause = counted.soon - now;
            watch.counted = Some(counted);
            pause.as_millis()
        };
        assert_eq!(count(10, 40), 0, "the first");
        assert_eq!([count(50, 41), count(90, 45), count(130, 45), count(170, 44)], [1, 2, 4, 4]);
        assert_eq!(count(180, 50), 0, "as it seemed");
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
