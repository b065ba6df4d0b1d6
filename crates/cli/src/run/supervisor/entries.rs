//! Which processes have to be entered once the budget has come near, and which not.
//!
//! From the moment [`Control::pressure`](zpager_wire::Control::pressure) is set, programs that
//! start manage themselves, and children of managed processes are the agent's matter. To be
//! entered are the processes that were there before, and children that they made before they
//! were entered themselves. Whatever holds no slot for a while is tried as well.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use libc::pid_t;
use zpager_wire::{Control, EventKind};

use super::tree::Tree;
use crate::run::enter::{Entrance, Outcome};

/// How long a process may be on its way to managing itself, or without the agent in its image.
const PATIENCE: Duration = Duration::from_millis(250);

/// Bounds of the time until the next attempt.
const MIN_RETRY: Duration = Duration::from_millis(2);
const MAX_RETRY: Duration = Duration::from_millis(250);

/// A process that is not managed yet.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    since: Instant,
    /// It is known that nobody but the supervisor will have it managed.
    sure: bool,
}

/// The processes of a run, by what is still to be done with them.
#[derive(Debug)]
pub(crate) struct Entries {
    entrance: Entrance,
    candidates: BTreeMap<pid_t, Candidate>,
    /// Entered, or found impossible to enter.
    settled: BTreeSet<pid_t>,
    retry: Duration,
}

impl Entries {
    /// Prepares to enter processes.
    pub(crate) fn new(entrance: Entrance) -> Self {
        let (candidates, settled) = (BTreeMap::new(), BTreeSet::new());
        Entries { entrance, candidates, settled, retry: MIN_RETRY }
    }

    /// Notes all processes of the tree as to be entered, when the budget has come near.
    pub(crate) fn begin(&mut self, tree: &Tree) {
        for (pid, _) in tree.processes() {
            self.add(pid, true);
        }
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
        self.drop_managed(tree, control);
        let mut progress = false;
        for pid in self.due() {
            progress |= self.attempt(pid, tree, control);
        }
        if self.candidates.is_empty() && !self.entrance.has_stragglers() {
            self.retry = MIN_RETRY;
            return None;
        }
        self.retry = if progress { MIN_RETRY } else { (self.retry * 2).min(MAX_RETRY) };
        Some(self.retry)
    }

    /// Notes processes that were not there before; those of an unmanaged parent are sure.
    fn find_new(&mut self, tree: &Tree) {
        self.settled.retain(|pid| tree.contains(*pid));
        for (pid, parent) in tree.processes() {
            let parent_is_candidate = self.candidates.contains_key(&parent);
            self.add(pid, parent_is_candidate);
        }
    }

    /// Forgets processes that manage themselves or are gone.
    fn drop_managed(&mut self, tree: &Tree, control: &Control) {
        let managed: BTreeSet<pid_t> =
            control.processes.in_use().map(|slot| slot.pid.load(Relaxed)).collect();
        self.candidates.retain(|pid, _| tree.contains(*pid) && !managed.contains(pid));
    }

    /// The candidates to try now.
    fn due(&self) -> Vec<pid_t> {
        let due = |candidate: &Candidate| candidate.sure || candidate.since.elapsed() > PATIENCE;
        self.candidates.iter().filter(|(_, found)| due(found)).map(|(pid, _)| *pid).collect()
    }

    /// Tries to enter one process; whether that settled it.
    fn attempt(&mut self, pid: pid_t, tree: &Tree, control: &Control) -> bool {
        let entry_offset = control.entry_offset.load(Relaxed);
        if entry_offset == 0 || tree.is_shared(pid) {
            return false;
        }
        let outcome = match self.entrance.is_sandboxed(pid) {
            true => Outcome::Sandboxed,
            false => self.entrance.enter(pid, entry_offset),
        };
        match outcome {
            Outcome::Later => return false,
            Outcome::NoAgent if self.candidates[&pid].since.elapsed() < PATIENCE => return false,
            Outcome::NoAgent => control.events.note(EventKind::NotManaged, pid, 0, 0),
            Outcome::Sandboxed => control.events.note(EventKind::Sandboxed, pid, 0, 0),
            Outcome::Impossible(error) => {
                control.events.note(EventKind::NotManaged, pid, u64::from(error.unsigned_abs()), 0);
            }
            Outcome::Broken => {
                control.events.note(EventKind::AgentFailed, pid, 0, 0);
                // SAFETY: the process was held a moment ago; it cannot go on.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
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
