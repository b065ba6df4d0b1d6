//! One budget for all processes of a run.
//!
//! Each process gives back its own pages when the shared sum reaches the budget.
//! That leaves two matters that no process can see to itself: the share of one that
//! was killed, and a process that needs room and has nothing left to give while
//! another holds much. The larger one is then asked to give back, as it is when the budget itself has
//! become less ([`super::follow`]).

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use libc::pid_t;
use zpager_sys::process::exists;
use zpager_wire::{ASKED, Control, GIVE_BACK, ProcessSlot, Tables, UNASKED};

use crate::run::living::{state_of, threads_of};

/// How often to look while several processes share the budget.
const SHARED_INTERVAL: Duration = Duration::from_millis(25);

/// How often to look while there is one at most: nobody starves then.
const SINGLE_INTERVAL: Duration = Duration::from_millis(250);

/// What was seen of the processes the last time.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// [`ProcessSlot::starved`] of each process.
    starved: BTreeMap<pid_t, u64>,
}

impl Shares {
    /// Takes back the shares of the dead and has the rich give to the starving, and to what is left of a
    /// budget that has fallen; gives the time until the next look.
    pub(crate) fn step(
        &mut self,
        control: &Control,
        tables: &Tables<'_>,
        has_fallen: bool,
    ) -> Duration {
        for slot in control.processes.in_use() {
            let pid = slot.pid.load(Relaxed);
            if is_gone(pid) {
                control.bury(tables, slot, pid);
            } else if slot.give_back.load(Relaxed) == ASKED {
                // Who asked could not signal it, or the signal met another one.
                remind(slot);
            }
        }
        let starving = self.note_starving(control);
        if is_full(control)
            && (has_fallen || !starving.is_empty())
            && let Some(slot) = richest(control, &starving)
        {
            ask(slot);
        }
        if self.starved.len() > 1 { SHARED_INTERVAL } else { SINGLE_INTERVAL }
    }

    /// The processes that wanted room in vain since the last look.
    fn note_starving(&mut self, control: &Control) -> Vec<pid_t> {
        let mut counts = BTreeMap::new();
        for slot in control.processes.in_use() {
            // One that forks has another slot, for its child.
            let count: &mut u64 = counts.entry(slot.pid.load(Relaxed)).or_default();
            *count = slot.starved.load(Relaxed).max(*count);
        }
        let before = |pid: &pid_t| self.starved.get(pid).copied().unwrap_or(0);
        let starving = counts.iter().filter(|(pid, count)| **count > before(pid));
        let starving = starving.map(|(pid, _)| *pid).collect();
        self.starved = counts;
        starving
    }
}

/// Whether the run has all of its budget, or more.
pub(crate) fn is_full(control: &Control) -> bool {
    control.room_bytes() <= 0
}

/// The process with the most resident bytes of those that do not starve themselves and have not
/// been asked already.
fn richest<'a>(control: &'a Control, starving: &[pid_t]) -> Option<&'a ProcessSlot> {
    control
        .processes
        .in_use()
        .filter(|slot| !starving.contains(&slot.pid.load(Relaxed)))
        .filter(|slot| slot.give_back.load(Relaxed) == UNASKED)
        .max_by_key(|slot| slot.held_bytes())
        .filter(|slot| slot.held_bytes() > 0)
}

/// Asks a process to give back pages until the sum fits.
fn ask(slot: &ProcessSlot) {
    slot.give_back.store(ASKED, Relaxed);
    remind(slot);
}

/// Tells a process that was asked, unless it is about to run another program, which may handle the signal.
fn remind(slot: &ProcessSlot) {
    if slot.request.answers.load(Relaxed) == 0 {
        return;
    }
    let value = libc::sigval { sival_ptr: std::ptr::without_provenance_mut(GIVE_BACK) };
    // SAFETY: a process with a slot has the agent's handler for SIGURG; one that is gone meanwhile, or
    // has become another program, gets nothing that does anything.
    unsafe { libc::sigqueue(slot.pid.load(Relaxed), libc::SIGURG, value) };
}

/// Whether a process has ended: it is not there, or it is a zombie without a living thread. One of which
/// `/proc` cannot be read, as for want of a descriptor or of memory, goes on as far as anybody knows:
/// what a living process has of the run must not be given to others.
pub(crate) fn is_gone(pid: pid_t) -> bool {
    if !exists(pid) {
        return true;
    }
    matches!(state_of(pid, pid), Some('Z' | 'X')) && threads_of(pid).is_ok_and(|all| all.len() <= 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zpager_wire::Settings;

    fn control(budget_bytes: u64) -> Box<Control> {
        Box::new(Control::new(Settings { budget_bytes, ..Settings::NONE }))
    }

    fn hold(control: &Control, pid: pid_t, resident_bytes: u64) -> &ProcessSlot {
        let slot = control.processes.claim(pid).expect("a slot");
        slot.resident_bytes.store(resident_bytes, Relaxed);
        control.usage.resident_bytes.fetch_add(resident_bytes, Relaxed);
        slot
    }

    #[test]
    fn the_share_of_a_killed_process_comes_back() {
        let control = control(1 << 20);
        let mut child = std::process::Command::new("/bin/true").spawn().expect("a child");
        hold(&control, child.id().cast_signed(), 4096);
        hold(&control, std::process::id().cast_signed(), 8192);
        child.wait().expect("its end");
        assert_eq!(
            Shares::default().step(&control, &Tables::empty(&control), false),
            SINGLE_INTERVAL
        );
        assert_eq!(control.usage.total_bytes(), 8192);
    }

    #[test]
    fn a_process_has_ended_when_it_is_a_zombie_and_not_before() {
        assert!(!is_gone(std::process::id().cast_signed()));
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("a child");
        let pid = child.id().cast_signed();
        assert!(!is_gone(pid));
        drop(child.stdin.take());
        let patience = std::time::Instant::now() + Duration::from_secs(10);
        while !is_gone(pid) {
            assert!(std::time::Instant::now() < patience, "a zombie is taken for alive");
        }
        child.wait().expect("its end");
        assert!(is_gone(pid));
    }

    #[test]
    fn the_richest_that_does_not_starve_is_chosen() {
        let control = control(1 << 20);
        let poor = hold(&control, 1, 4096);
        let richer = hold(&control, 2, 40960);
        hold(&control, 3, 8192);
        poor.starved.store(1, Relaxed);
        let mut shares = Shares::default();
        assert_eq!(shares.note_starving(&control), [1]);
        assert!(shares.note_starving(&control).is_empty());
        let pid = |slot: Option<&ProcessSlot>| slot.map(|slot| slot.pid.load(Relaxed));
        assert_eq!(pid(richest(&control, &[1])), Some(2));
        assert_eq!(pid(richest(&control, &[2])), Some(3));
        richer.give_back.store(ASKED, Relaxed);
        assert_eq!(pid(richest(&control, &[1])), Some(3));
        assert_eq!(pid(richest(&control, &[1, 2, 3])), None);
    }
}
