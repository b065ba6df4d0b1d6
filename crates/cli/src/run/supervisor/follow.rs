//! `--memory auto`: a budget that follows what there is.
//!
//! It is settled before the program starts, with a reserve for what zpager does not manage
//! ([`crate::run::budget`]). Where that takes more - the program's shared memory, other processes of the
//! container, another run - the budget gives way, so that half of the reserve stays free, and comes back
//! as far as that is free again, up to what it was at the start. Where others leave more than there was
//! then, it rises past that, so that the whole of a reserve stays free. What the file cache takes does
//! not count: the kernel gives that up before it runs out. A budget that the user names stays.
//!
//! The next look comes before memory that grows fast could take half of what is free. What a process had
//! counts as held for a moment after its end, which the kernel takes to free it.
//! Bad case: memory that grows faster, or by more than the budget can give.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use libc::pid_t;
use zpager_wire::{Control, ProcessSlot};

use super::pace::Pace;
use crate::run::budget::{Budget, reserve_of, room_bytes};
use crate::run::cgroup::Groups;
use crate::run::config::MIN_BUDGET_BYTES;

/// How fast half of what is free is taken: by a program that fills pages.
const GROWTH_BYTES_PER_SECOND: u64 = 2 << 30;

/// Bounds of the time between two looks.
const MIN_INTERVAL: Duration = Duration::from_millis(5);
const MAX_INTERVAL: Duration = Duration::from_millis(250);

/// The part of the budget that stays whatever there is, so that the program goes on; not less than the
/// agent needs.
const LEAST_PART: u64 = 8;

/// How long the kernel may take to free what a process had.
const FREEING: Duration = Duration::from_millis(100);

/// A budget comes back by this part of what is free in a look, for others may want it as well.
const RISE_PART: u64 = 4;

/// Past the start it rises where it becomes more by this part at least.
const WORTHWHILE_PART: u64 = 16;

/// Follows what there is.
#[derive(Debug)]
pub(crate) struct Follow {
    groups: Groups,
    limits: Limits,
    ending: Ending,
    /// The lowest that the budget was while anything was managed.
    lowest_bytes: u64,
    highest_bytes: u64,
    /// Whether the budget is less than it has been.
    has_fallen: bool,
    pace: Pace,
}

/// What processes had that have ended lately.
#[derive(Debug, Default)]
struct Ending {
    /// What each process had at the last look.
    had_bytes: BTreeMap<pid_t, u64>,
    ended: Vec<(Instant, u64)>,
}

/// Between what the budget moves.
#[derive(Debug, Clone, Copy)]
struct Limits {
    start_bytes: u64,
    /// The most that it may become.
    most_bytes: u64,
    /// The reserve at the start.
    reserve_bytes: u64,
}

impl Follow {
    /// Follows from this budget on, if it is one that follows.
    pub(crate) fn from(budget: &Budget) -> Option<Self> {
        let Budget { bytes, most_bytes, reserve_bytes, .. } = *budget;
        let limits = Limits { start_bytes: bytes, most_bytes, reserve_bytes };
        (budget.reserve_bytes > 0).then(|| Follow {
            groups: Groups::find(),
            limits,
            ending: Ending::default(),
            lowest_bytes: bytes,
            highest_bytes: bytes,
            has_fallen: false,
            pace: Pace::due(),
        })
    }

    /// The lowest and the highest that the budget was.
    pub(crate) fn range_bytes(&self) -> RangeInclusive<u64> {
        self.lowest_bytes..=self.highest_bytes
    }

    /// Whether the budget is less than it has been, so that the run may hold more than it.
    pub(crate) fn has_fallen(&self) -> bool {
        self.has_fallen
    }

    /// The time until the next look.
    pub(crate) fn pause(&self) -> Duration {
        self.pace.pause()
    }

    /// Moves the budget, if it is time to look; whether it was. `unmanaged_bytes` tells what the run has
    /// of it that no agent counts yet.
    pub(crate) fn step(&mut self, control: &Control, unmanaged_bytes: impl Fn() -> u64) -> bool {
        let Some(began) = self.pace.begin() else { return false };
        let room_bytes = room_bytes(&self.groups);
        if let Some(room_bytes) = room_bytes {
            self.fit(control, unmanaged_bytes(), room_bytes);
        }
        let interval =
            room_bytes.map_or(MAX_INTERVAL, |room_bytes| self.limits.interval(room_bytes));
        self.pace.end(began, interval);
        true
    }

    /// Moves the budget to what fits.
    fn fit(&mut self, control: &Control, unmanaged_bytes: u64, room_bytes: u64) {
        let ending_bytes = self.ending.look(control, Instant::now());
        // A program can write over what agents count: the budget stays within its limits then.
        let held_bytes = [control.usage.total_bytes(), ending_bytes, unmanaged_bytes]
            .into_iter()
            .fold(0, u64::saturating_add);
        let before_bytes = control.budget_bytes.load(Relaxed);
        let budget_bytes = self.limits.budget_bytes(before_bytes, held_bytes, room_bytes);
        control.budget_bytes.store(budget_bytes, Relaxed);
        self.highest_bytes = self.highest_bytes.max(budget_bytes);
        self.has_fallen = budget_bytes < self.highest_bytes;
        if control.processes.count() > 0 {
            self.lowest_bytes = self.lowest_bytes.min(budget_bytes);
        }
    }
}

impl Ending {
    /// What those had that have ended a moment ago.
    fn look(&mut self, control: &Control, now: Instant) -> u64 {
        let of = |slot: &ProcessSlot| {
            let resident_bytes = slot.resident_bytes.load(Relaxed);
            (slot.pid.load(Relaxed), resident_bytes.saturating_add(slot.pool_bytes.load(Relaxed)))
        };
        let has_bytes = control.processes.in_use().map(of).collect();
        let had_bytes = std::mem::replace(&mut self.had_bytes, has_bytes);
        let gone = had_bytes.into_iter().filter(|(pid, _)| !self.had_bytes.contains_key(pid));
        self.ended.extend(gone.map(|(_, bytes)| (now, bytes)));
        self.ended.retain(|(since, _)| now - *since < FREEING);
        self.ended.iter().map(|(_, bytes)| *bytes).fold(0, u64::saturating_add)
    }
}

impl Limits {
    /// The budget of a run that holds `held_bytes` of it, where `room_bytes` may be had besides.
    fn budget_bytes(self, before_bytes: u64, held_bytes: u64, room_bytes: u64) -> u64 {
        let Limits { start_bytes, most_bytes, .. } = self;
        let there_bytes = held_bytes.saturating_add(room_bytes);
        let reserve_bytes = self.reserve_bytes.max(reserve_of(there_bytes));
        let fits_bytes = there_bytes.saturating_sub(reserve_bytes / 2);
        let stays_bytes = before_bytes.clamp(fits_bytes.min(start_bytes), fits_bytes);
        let risen_bytes = there_bytes.saturating_sub(reserve_bytes);
        let is_worthwhile = risen_bytes > stays_bytes + stays_bytes / WORTHWHILE_PART;
        let least_bytes = MIN_BUDGET_BYTES.max(start_bytes / LEAST_PART).min(start_bytes);
        let bytes = if is_worthwhile { risen_bytes } else { stays_bytes };
        let bytes = bytes.clamp(least_bytes, most_bytes);
        match bytes.checked_sub(before_bytes) {
            Some(more_bytes) => before_bytes + more_bytes.div_ceil(RISE_PART),
            None => bytes,
        }
    }

    /// How long it takes at least until what is free may be gone, within bounds.
    fn interval(self, room_bytes: u64) -> Duration {
        let milliseconds = room_bytes / (GROWTH_BYTES_PER_SECOND / 1000);
        Duration::from_millis(milliseconds).clamp(MIN_INTERVAL, MAX_INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const LIMITS: Limits =
        Limits { start_bytes: 448 * MIB, most_bytes: 900 * MIB, reserve_bytes: 64 * MIB };

    #[test]
    fn it_gives_way_to_what_takes_the_reserve_and_comes_back() {
        let of = |before: u64, held: u64, room: u64| {
            LIMITS.budget_bytes(before * MIB, held * MIB, room * MIB) / MIB
        };
        // Of 512 MiB.
        assert_eq!(of(448, 0, 512), 448);
        assert_eq!(of(448, 448, 32), 448, "half of the reserve is taken");
        assert_eq!(of(448, 400, 40), 408, "72 MiB are taken by others");
        assert_eq!(of(448, 400, 0), 368);
        assert_eq!(of(448, 50, 2), 56, "an eighth stays");
        let mut budget = 408;
        for _ in 0..30 {
            let next = of(budget, budget, 480 - budget);
            assert!(budget <= next && next <= 448, "{budget} {next}");
            budget = next.max(budget);
        }
        assert!(budget >= 444, "{budget}");
    }

    #[test]
    fn it_rises_past_the_start_by_what_others_leave() {
        let of = |before: u64, held: u64, room: u64| {
            LIMITS.budget_bytes(before * MIB, held * MIB, room * MIB) / MIB
        };
        assert_eq!(of(448, 448, 64 + 28), 448, "not for a little");
        assert_eq!(of(448, 448, 64 + 40), 448 + 10);
        let mut budget = 448;
        for _ in 0..30 {
            budget = of(budget, 448, 2000);
        }
        assert!((845..=900).contains(&budget), "there is no more than that: {budget}");
        assert_eq!(of(900, 800, 150), 900, "half of the reserve is taken");
        assert_eq!(of(900, 800, 40), 840 - 42);
    }

    #[test]
    fn what_a_process_had_counts_for_a_moment_after_its_end() {
        let control = Box::new(Control::new(zpager_wire::Settings::NONE));
        let slot = control.processes.claim(7).expect("a slot");
        slot.resident_bytes.store(5 * MIB, Relaxed);
        let (now, mut ending) = (Instant::now(), Ending::default());
        assert_eq!(ending.look(&control, now), 0);
        slot.pid.store(0, Relaxed);
        assert_eq!(ending.look(&control, now), 5 * MIB);
        assert_eq!(ending.look(&control, now + FREEING / 2), 5 * MIB);
        assert_eq!(ending.look(&control, now + FREEING), 0);
    }

    #[test]
    fn looks_come_before_the_room_is_gone() {
        assert_eq!(LIMITS.interval(0), MIN_INTERVAL);
        assert_eq!(LIMITS.interval(64 * MIB).as_millis(), 31);
        assert_eq!(LIMITS.interval(u64::MAX), MAX_INTERVAL);
    }

    #[test]
    fn a_budget_that_was_asked_for_stays() {
        use crate::run::budget::Source;
        let budget = |reserve_bytes| Budget {
            bytes: MIB,
            most_bytes: MIB,
            reserve_bytes,
            source: Source::Asked,
        };
        assert!(Follow::from(&budget(0)).is_none());
        assert!(Follow::from(&budget(MIB)).is_some());
    }
}
