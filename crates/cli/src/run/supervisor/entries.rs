//! Which processes have to be entered once the budget has come near, and which not.
//!
//! From the moment [`Control::pressure`](zpager_wire::Control::pressure) is set, programs that
//! start manage themselves, and children of managed processes are the agent's matter. To be
//! entered are the processes that were there before, and children that they made before they
//! were entered themselves. Whatever holds no slot for a while is tried as well.
//!
//! A program into which no loader brings the agent does not manage itself: a statically linked one, one
//! of another user, who may not open it, one whose variables somebody cleared. It is given the agent
//! and entered, also where all others manage themselves from their start. A process of the run becomes
//! one by execve(2), with the slot of the program that it was: it does not answer
//! ([`Request::answers`](zpager_wire::Request)) from just before that call on.
//!
//! Bad for many static programs that end within a few milliseconds: they are stopped for nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use libc::pid_t;
use zpager_wire::{Control, EventKind};

use super::shares::is_gone;
use super::tree::{Tree, anonymous_bytes_of};
use crate::run::enter::{self, Entrance, Outcome};

/// How long a process may be on its way to managing itself.
const PATIENCE: Duration = Duration::from_millis(250);

/// Bounds of the time until the next attempt, and the first time while a program is expected that has
/// to be entered before it fills much.
const EXPECTING_RETRY: Duration = Duration::from_micros(100);
const MIN_RETRY: Duration = Duration::from_millis(2);
const MAX_RETRY: Duration = Duration::from_millis(250);

/// A process that is not managed yet.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    since: Instant,
    /// It is known that nobody but the supervisor will have it managed.
    sure: bool,
}

/// Which programs do not manage themselves in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All that were there before the budget came near.
    All,
    /// Those alone into which no loader brings the agent.
    Agentless,
}

/// The processes of a run, by what is still to be done with them.
#[derive(Debug)]
pub(crate) struct Entries {
    entrance: Entrance,
    scope: Scope,
    candidates: BTreeMap<pid_t, Candidate>,
    /// Entered, or found impossible to enter.
    settled: BTreeSet<pid_t>,
    retry: Duration,
}

impl Entries {
    /// Prepares to enter processes.
    pub(crate) fn new(entrance: Entrance, scope: Scope) -> Self {
        let (candidates, settled) = (BTreeMap::new(), BTreeSet::new());
        Entries { entrance, scope, candidates, settled, retry: MIN_RETRY }
    }

    /// Notes all processes of the tree as to be entered, when the budget has come near.
    pub(crate) fn begin(&mut self, tree: &Tree) {
        for (pid, _) in tree.processes() {
            self.add(pid, true);
        }
    }

    /// A process runs another program in a moment: the next attempts are to come soon again.
    pub(crate) fn expect_execution(&mut self) {
        self.retry = EXPECTING_RETRY / 2;
    }

    fn add(&mut self, pid: pid_t, sure: bool) {
        if !self.settled.contains(&pid) {
            let candidate = Candidate { since: Instant::now(), sure };
            self.candidates.entry(pid).or_insert(candidate).sure |= sure;
        }
    }

    /// Enters what can be entered; gives the time until the next attempt, if there is to be one.
    pub(crate) fn step(&mut self, tree: &mut Tree, control: &Control) -> Option<Duration> {
        self.entrance.release_stragglers();
        if tree.refresh() {
            self.find_new(tree);
        }
        self.find_executing(tree, control);
        self.drop_managed(tree, control);
        let due = self.due(tree, control);
        let mut progress = false;
        for (pid, outcome) in self.entrance.enter(&due, tree, control) {
            progress |= self.settle(pid, outcome, control);
        }
        if self.candidates.is_empty() && !self.entrance.has_stragglers() {
            self.retry = MIN_RETRY;
            return None;
        }
        self.retry = if progress { MIN_RETRY } else { (self.retry * 2).min(MAX_RETRY) };
        Some(self.retry)
    }

    /// Anonymous memory of processes that are still to be managed.
    pub(crate) fn pending_bytes(&self) -> u64 {
        self.candidates.keys().copied().map(anonymous_bytes_of).sum()
    }

    /// Notes processes that were not there before; those of an unmanaged parent are sure.
    fn find_new(&mut self, tree: &Tree) {
        self.settled.retain(|pid| tree.contains(*pid));
        for (pid, parent) in tree.processes() {
            let parent_is_candidate = self.candidates.contains_key(&parent);
            self.add(pid, parent_is_candidate);
        }
    }

    /// Notes processes that run another program soon, or have done so with the slot that they had.
    fn find_executing(&mut self, tree: &Tree, control: &Control) {
        for pid in slots(control, false).filter(|pid| tree.contains(*pid)) {
            self.settled.remove(&pid);
            self.add(pid, false);
        }
    }

    /// Forgets processes that manage themselves or are gone.
    fn drop_managed(&mut self, tree: &Tree, control: &Control) {
        let managed: BTreeSet<pid_t> = slots(control, true).collect();
        self.candidates.retain(|pid, _| tree.contains(*pid) && !managed.contains(pid));
    }

    /// The candidates to try now. One that has another's memory, as after vfork(2), is on its way once it
    /// has a program of its own.
    fn due(&mut self, tree: &Tree, control: &Control) -> Vec<pid_t> {
        let with_slots: BTreeSet<pid_t> = slots(control, false).collect();
        let (shared, apart): (Vec<_>, Vec<_>) =
            self.candidates.iter_mut().partition(|(pid, _)| tree.is_shared(**pid));
        shared.into_iter().for_each(|(_, found)| found.since = Instant::now());
        let due = apart.into_iter().filter(|(pid, found)| {
            let (waited, sure) = (found.since.elapsed(), found.sure && self.scope == Scope::All);
            match self.entrance.is_in(**pid) {
                false => true,
                true if enter::is_static(**pid) => true,
                // It is about to manage itself, or its execve fails.
                true if with_slots.contains(pid) => false,
                true => sure || waited > PATIENCE,
            }
        });
        due.map(|(pid, _)| *pid).collect()
    }

    /// Notes what became of an attempt to enter a process; whether that settled it.
    fn settle(&mut self, pid: pid_t, outcome: Outcome, control: &Control) -> bool {
        match outcome {
            Outcome::Later => return false,
            Outcome::NoAgent if self.candidates[&pid].since.elapsed() < PATIENCE => return false,
            // What has ended has nothing in its image.
            Outcome::NoAgent if is_gone(pid) => {}
            Outcome::NoAgent => control.events.note(EventKind::NotManaged, pid, 0, 0),
            Outcome::Sandboxed => control.events.note(EventKind::Sandboxed, pid, 0, 0),
            Outcome::HasRing => control.events.note(EventKind::HasRing, pid, 0, 0),
            Outcome::Impossible(error) => {
                control.events.note(EventKind::NotManaged, pid, u64::from(error.unsigned_abs()), 0);
            }
            Outcome::Broken => control.events.note(EventKind::AgentFailed, pid, 0, 0),
            Outcome::Entered { children } => {
                for child in children {
                    self.add(child, true);
                }
            }
            Outcome::Managed | Outcome::Gone => {}
        }
        self.candidates.remove(&pid);
        self.settled.insert(pid);
        true
    }

    /// Whether a wait status is about a thread that was to be entered, which is then dealt with.
    pub(crate) fn take(&mut self, pid: pid_t, status: libc::c_int) -> bool {
        self.entrance.take(pid, status)
    }
}

/// The processes that have slots and answer, or do not.
fn slots(control: &Control, answers: bool) -> impl Iterator<Item = pid_t> {
    let in_use = control.processes.in_use();
    let found = in_use.filter(move |slot| (slot.request.answers.load(Relaxed) != 0) == answers);
    found.map(|slot| slot.pid.load(Relaxed))
}
