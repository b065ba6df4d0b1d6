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
//! ([`Request::answers`](zpager_wire::Request)) from just before that call on. Where it becomes one that cannot
//! be entered, what it had of the run is given back, and it is left alone until it runs yet another one.
//! A program that has threads before the agent is called asks to be entered, and waits for that.
//!
//! Bad for many static programs that end within a few milliseconds: they are stopped for nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use libc::pid_t;
use zpager_wire::{Control, EventKind, ProcessSlot};

use super::shares::is_gone;
use super::tree::{Tree, anonymous_bytes_of};
use crate::run::control::SharedControl;
use crate::run::enter::{self, Entrance, Outcome, Presence};
use crate::run::living::stat_of;

/// How long a process may be on its way to managing itself, but for the time in which the machine keeps it waiting.
const PATIENCE: Duration = Duration::from_millis(250);

/// How long at most, with that.
const MAX_PATIENCE: Duration = Duration::from_secs(10);

/// Bounds of the time until the next attempt, and the first time while a program is expected that has
/// to be entered before it fills much.
const EXPECTING_RETRY: Duration = Duration::from_micros(100);
const MIN_RETRY: Duration = Duration::from_millis(2);
const MAX_RETRY: Duration = Duration::from_millis(250);

/// The time until a process is tried again that did not stop, which doubles each time up to so long: all
/// of its other threads stand still meanwhile.
const ASLEEP_RETRY: Duration = Duration::from_millis(2);
const MAX_ASLEEP_RETRY: Duration = Duration::from_secs(1);

/// A process that is not managed yet.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    since: Instant,
    /// It is known that nobody but the supervisor will have it managed.
    sure: bool,
    /// When it did not stop, and for how long it is left alone then.
    asleep: Option<(Instant, Duration)>,
}

impl Candidate {
    /// It did not stop just now.
    fn put_off(&mut self, now: Instant) {
        let pause = self.asleep.map_or(ASLEEP_RETRY, |(_, pause)| pause * 2);
        self.asleep = Some((now, pause.min(MAX_ASLEEP_RETRY)));
    }

    /// Whether it is left alone for now.
    fn is_put_off(&self, now: Instant) -> bool {
        self.asleep.is_some_and(|(since, pause)| now < since + pause)
    }
}

/// Whether a process waits for a processor, of which it had little yet, or for a disk, from which it may be loaded.
fn is_kept_waiting(pid: pid_t) -> bool {
    stat_of(pid, pid).is_some_and(|stat| has_begun_slowly(&stat))
}

/// The same by its `stat` behind its name (proc_pid_stat(5), fields 3, 14 and 15, the latter in hundredths of a second).
fn has_begun_slowly(stat: &str) -> bool {
    let fields: Vec<&str> = stat.split_ascii_whitespace().collect();
    let ran = |field: usize| fields.get(field)?.parse::<u64>().ok();
    let ran_ms = ran(11).zip(ran(12)).map(|(user, system)| (user + system) * 10);
    match fields.first() {
        Some(&"D") => true,
        Some(&"R") => ran_ms.is_some_and(|ms| u128::from(ms) < PATIENCE.as_millis()),
        _ => false,
    }
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
    /// Entered, or found impossible to enter: those with what the kernel told the program that cannot be.
    settled: BTreeMap<pid_t, Option<Vec<u8>>>,
    retry: Duration,
}

impl Entries {
    /// Prepares to enter processes.
    pub(crate) fn new(entrance: Entrance, scope: Scope) -> Self {
        let (candidates, settled) = (BTreeMap::new(), BTreeMap::new());
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
        if !self.settled.contains_key(&pid) {
            let candidate = Candidate { since: Instant::now(), sure, asleep: None };
            self.candidates.entry(pid).or_insert(candidate).sure |= sure;
        }
    }

    /// Enters what can be entered; gives the time until the next attempt, if there is to be one.
    pub(crate) fn step(&mut self, tree: &mut Tree, control: &SharedControl) -> Option<Duration> {
        self.entrance.release_stragglers();
        if tree.refresh() {
            self.find_new(tree);
        }
        self.find_executing(tree, control);
        self.find_executed();
        self.drop_managed(tree, control);
        let due = self.due(tree, control);
        let mut progress = false;
        for (pid, outcome) in self.entrance.enter(&due, tree, control) {
            if !self.is_awaited(pid) {
                // One of the others has forked it meanwhile.
                self.add(pid, true);
            }
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

    /// Whether a process is still to be managed.
    pub(crate) fn is_awaited(&self, pid: pid_t) -> bool {
        self.candidates.contains_key(&pid)
    }

    /// Notes processes that were not there before; those of an unmanaged parent are sure.
    fn find_new(&mut self, tree: &Tree) {
        self.settled.retain(|pid, _| tree.contains(*pid));
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

    /// Notes processes that run another program than the one that could not be entered.
    fn find_executed(&mut self) {
        let runs_another = |(pid, program): (&pid_t, &Option<Vec<u8>>)| {
            let program = program.as_ref()?;
            (enter::auxiliary_of(*pid) != *program).then_some(*pid)
        };
        let found: Vec<pid_t> = self.settled.iter().filter_map(runs_another).collect();
        for pid in found {
            self.settled.remove(&pid);
            self.add(pid, false);
        }
    }

    /// Forgets processes that manage themselves or are gone.
    fn drop_managed(&mut self, tree: &Tree, control: &Control) {
        let managed: BTreeSet<pid_t> = slots(control, true).collect();
        self.candidates.retain(|pid, _| tree.contains(*pid) && !managed.contains(pid));
    }

    /// The candidates to try now, and how far the agent is in each. One that has another's memory, as after
    /// vfork(2), is on its way once it has a program of its own.
    fn due(&mut self, tree: &Tree, control: &Control) -> Vec<(pid_t, Presence)> {
        let with_slots: BTreeSet<pid_t> = slots(control, false).collect();
        let sharing = tree.sharing(self.candidates.keys().copied());
        let (shared, apart): (Vec<_>, Vec<_>) =
            self.candidates.iter_mut().partition(|(pid, _)| sharing.contains(pid));
        shared.into_iter().for_each(|(_, found)| found.since = Instant::now());
        let seen =
            apart.into_iter().map(|(pid, found)| (*pid, self.entrance.presence_in(*pid), found));
        let due = seen.filter(|(pid, presence, found)| {
            let (waited, sure) = (found.since.elapsed(), found.sure && self.scope == Scope::All);
            match presence {
                _ if found.is_put_off(Instant::now()) => false,
                Presence::Absent => true,
                // It is about to manage itself, or its execve fails.
                Presence::Begun if with_slots.contains(pid) => false,
                Presence::Begun => sure || waited > PATIENCE || control.large_calls.has_of(*pid),
                // A constructor of another library may sleep, and is not to be disturbed.
                Presence::Mapped => waited > MAX_PATIENCE,
            }
        });
        due.map(|(pid, presence, _)| (pid, presence)).collect()
    }

    /// Notes what became of an attempt to enter a process; whether that settled it.
    fn settle(&mut self, pid: pid_t, outcome: Outcome, control: &SharedControl) -> bool {
        let is_impossible = !matches!(
            outcome,
            Outcome::Entered { .. } | Outcome::Managed | Outcome::Broken | Outcome::Gone
        );
        let note = |kind, error: i32| {
            control.events.note(kind, pid, u64::from(error.unsigned_abs()), 0);
        };
        match outcome {
            Outcome::Later => return false,
            Outcome::Asleep => {
                self.candidates.entry(pid).and_modify(|found| found.put_off(Instant::now()));
                return false;
            }
            Outcome::NoAgent | Outcome::NotPermitted if self.may_be_on_its_way(pid) => {
                return false;
            }
            // What has ended can be nothing.
            _ if is_impossible && is_gone(pid) => {}
            Outcome::NoAgent => note(EventKind::NotManaged, 0),
            Outcome::Sandboxed => note(EventKind::Sandboxed, 0),
            Outcome::HasRing => note(EventKind::HasRing, 0),
            Outcome::HasMachine => note(EventKind::HasMachine, 0),
            Outcome::NotPermitted => note(EventKind::NotManaged, libc::EPERM),
            Outcome::Impossible(error) => note(EventKind::NotManaged, error),
            Outcome::Broken => note(EventKind::AgentFailed, 0),
            Outcome::Entered { children } => {
                for child in children {
                    self.add(child, true);
                }
            }
            Outcome::Managed | Outcome::Gone => {}
        }
        self.candidates.remove(&pid);
        let program = is_impossible.then(|| enter::auxiliary_of(pid));
        if is_impossible {
            self.bury_program_before(pid, control);
        }
        self.settled.insert(pid, program);
        true
    }

    /// Whether a loader may still be about to bring the agent to a candidate, or to call it, or has done so by now.
    fn may_be_on_its_way(&self, pid: pid_t) -> bool {
        let Some(candidate) = self.candidates.get(&pid) else { return false };
        let waited = candidate.since.elapsed();
        let goes_on = || self.entrance.presence_in(pid) != Presence::Absent || is_kept_waiting(pid);
        waited < PATIENCE || waited < MAX_PATIENCE && goes_on()
    }

    /// Gives back what a process had as a program that was managed, where it is that no more: it has no agent.
    fn bury_program_before(&self, pid: pid_t, control: &SharedControl) {
        let is_its = |slot: &&ProcessSlot| {
            slot.pid.load(Relaxed) == pid && slot.request.answers.load(Relaxed) == 0
        };
        // Looked for first: one that it takes from now on is its next program's.
        let slots: Vec<&ProcessSlot> = control.processes.in_use().filter(is_its).collect();
        if self.entrance.presence_in(pid) == Presence::Absent {
            slots.into_iter().for_each(|slot| control.bury(&control.tables(), slot, pid));
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::image;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};
    use zpager_wire::Settings;

    /// A shell of another run, which nobody gives this one's agent to, and then a program of it.
    const ANOTHER_RUNS: &str =
        r#"ZPAGER_CONTROL=/proc/1/fd/0 sh -c 'echo $$; read line; exec sleep 100'; true"#;

    #[test]
    fn what_does_not_stop_is_tried_more_and_more_seldom() {
        let now = Instant::now();
        let mut candidate = Candidate { since: now, sure: true, asleep: None };
        assert!(!candidate.is_put_off(now));
        candidate.put_off(now);
        assert!(candidate.is_put_off(now) && !candidate.is_put_off(now + ASLEEP_RETRY));
        candidate.put_off(now);
        assert!(candidate.is_put_off(now + ASLEEP_RETRY));
        (0..40).for_each(|_| candidate.put_off(now));
        assert!(candidate.is_put_off(now + MAX_ASLEEP_RETRY / 2));
        assert!(!candidate.is_put_off(now + MAX_ASLEEP_RETRY));
    }

    #[test]
    fn only_the_machine_keeps_a_process_waiting_that_had_little_of_it() {
        let stat = |state: &str, user: u32, system: u32| {
            format!("{state} 1 7 7 0 -1 4194304 90 0 0 0 {user} {system} 0 0 20 0 1 0 5 9 9")
        };
        assert!(has_begun_slowly(&stat("R", 20, 4)) && !has_begun_slowly(&stat("R", 20, 5)));
        assert!(has_begun_slowly(&stat("D", 900, 0)) && !has_begun_slowly(&stat("S", 0, 0)));
        assert!(!has_begun_slowly("R 1") && !has_begun_slowly(""));
        assert!(!is_kept_waiting(0));
    }

    #[test]
    fn what_cannot_be_entered_has_nothing_and_is_left_alone_until_it_runs_another() {
        let mut parent = Command::new("sh")
            .args(["-c", ANOTHER_RUNS])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        let mut line = String::new();
        let output = parent.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut line).expect("its child");
        let pid: pid_t = line.trim().parse().expect("an id");

        let control = SharedControl::new(Settings::NONE).expect("a control block");
        let agent = image::unpack().expect("an agent");
        let entrance = Entrance::new(&agent, &control).expect("an entrance");
        let mut entries = Entries::new(entrance, Scope::Agentless);
        let mut tree = Tree::below(parent.id().cast_signed());
        // What it was before.
        let slot = control.processes.claim(pid).expect("a slot");
        slot.resident_bytes.store(4096, Relaxed);
        control.usage.resident_bytes.store(4096, Relaxed);

        assert!(entries.step(&mut tree, &control).is_some(), "it may be on its way");
        assert_eq!(control.usage.total_bytes(), 4096);
        std::thread::sleep(PATIENCE + Duration::from_millis(50));
        entries.step(&mut tree, &control);
        assert_eq!((control.usage.total_bytes(), control.processes.count()), (0, 0));
        assert_eq!(entries.step(&mut tree, &control), None, "nothing is to be tried again");

        let mut input = parent.stdin.take().expect("a pipe");
        input.write_all(b"\n").expect("it listens");
        let patience = Instant::now() + Duration::from_secs(10);
        while entries.step(&mut tree, &control).is_none() {
            assert!(Instant::now() < patience, "what it runs now is not tried");
        }
        // SAFETY: a signal to a child of this test's own.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        parent.wait().expect("its end");
    }
}
