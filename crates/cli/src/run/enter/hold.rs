//! All threads of a process, stopped at once.
//!
//! Threads are seized and interrupted until a listing brings no new one; those of several
//! processes before any of them is waited for, so that none goes on at the others' expense. A thread
//! that cannot stop, such as one that waits in vfork(2) for its child, makes the
//! attempt fail after a bounded time: the others go on at once, the one that is
//! still running stays seized and is let go as soon as it stops.
//!
//! An execve(2) may begin between the seizing of two other threads. To seize the second waits in the kernel for
//! its end then, and it for the first, until somebody takes note of the end of that: a thread of this process
//! does meanwhile ([`noting_ends`]), as any of them may that the tracer is one of.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use libc::{c_int, pid_t};
use zpager_sys::process::{self, field};

use super::ptrace::{self, Report};
use super::thread::{Common, StoppedThread, Trouble};
use crate::run::living::{self, is_ending, state_of};

/// How long to wait before asking which threads sleep where they cannot be stopped, and then how
/// long all that are left may sleep on.
const SLEEPING_LIMIT: Duration = Duration::from_millis(30);

/// How long to wait for threads that want to run: each has to come to a processor to stop.
const RUNNING_LIMIT: Duration = Duration::from_secs(2);

/// How long to wait before taking note of ends while threads are being seized, which takes some microseconds each.
const NOTING_INTERVAL: Duration = Duration::from_millis(10);
const NOTING_STACK_BYTES: usize = 64 << 10;

/// How long to sleep between two looks at threads that were asked to stop.
const LOOK_INTERVAL: Duration = Duration::from_micros(100);

/// Threads that were seized in a failed attempt and have not stopped yet.
#[derive(Debug, Default)]
pub(crate) struct Stragglers {
    /// Thread and process ids.
    pids: BTreeMap<pid_t, pid_t>,
}

impl Stragglers {
    /// Whether there are any.
    pub(crate) fn is_empty(&self) -> bool {
        self.pids.is_empty()
    }

    /// Lets go of those that have stopped by now.
    pub(crate) fn release_stopped(&mut self) {
        self.pids.retain(|tid, pid| match ptrace::look(*tid) {
            Report::Nothing => true,
            report => {
                let_go(*pid, *tid, report, &mut Common::of(*pid));
                false
            }
        });
    }

    /// Takes a report of waitpid(2) about a straggler that somebody else waited for; false when
    /// it is about another process. A thread that ran execve(2) meanwhile is known by its process's id.
    pub(crate) fn take(&mut self, tid: pid_t, status: c_int) -> bool {
        match self.pids.remove(&tid) {
            Some(pid) => let_go(pid, tid, ptrace::report_of(status), &mut Common::of(pid)),
            None if ptrace::report_of(status) == Report::Halted => drop(ptrace::detach(tid, 0)),
            None => return false,
        }
        true
    }
}

/// Lets a thread go on that was stopped and not entered.
fn let_go(pid: pid_t, tid: pid_t, report: Report, common: &mut Common) {
    match StoppedThread::read(pid, tid, report) {
        Ok(thread) => thread.release(pid, common),
        // One that cannot be read is gone as a rule, and goes on with its signal where it is not.
        Err(_) => drop(ptrace::detach(tid, report.signal())),
    }
}

/// A process of which every thread stands still.
pub(crate) struct Hold {
    pid: pid_t,
    /// The leader first, if it is alive; never empty.
    pub(crate) threads: Vec<StoppedThread>,
}

impl Hold {
    /// Lets every thread go on.
    pub(crate) fn release(self) {
        let mut common = Common::of(self.pid);
        for thread in self.threads {
            thread.release(self.pid, &mut common);
        }
    }
}

/// A process on its way to standing still.
pub(crate) struct Stopping {
    pid: pid_t,
    began: Instant,
    /// Seized and asked to stop; the value is the process id.
    running: BTreeMap<pid_t, pid_t>,
    /// Since when all of them were found asleep, and none has stopped.
    asleep_since: Option<Instant>,
    /// Stopped, and how.
    stopped: BTreeMap<pid_t, Report>,
}

impl Stopping {
    /// Asks the threads of `pid` to stop.
    pub(crate) fn begin(pid: pid_t, stragglers: &mut Stragglers) -> Self {
        let mut stopping = Stopping {
            pid,
            began: Instant::now(),
            running: BTreeMap::new(),
            asleep_since: None,
            stopped: BTreeMap::new(),
        };
        // What the system refuses now it refuses again when they are waited for.
        let _ = stopping.seize_new(stragglers);
        stopping
    }

    /// Waits until every thread has stopped.
    ///
    /// # Errors
    /// [`Trouble::Lost`] when a thread does not stop in time; the process goes on as if nothing
    /// had happened, and another attempt may succeed. Otherwise what the system refused.
    pub(crate) fn finish(mut self, stragglers: &mut Stragglers) -> Result<Hold, Trouble> {
        let all_stopped = self.stop_all(stragglers);
        stragglers.pids.append(&mut self.running);
        match all_stopped.and_then(|()| self.read_all()) {
            Ok(threads) => Ok(Hold { pid: self.pid, threads }),
            Err(trouble) => {
                let mut common = Common::of(self.pid);
                for (tid, report) in self.stopped {
                    let_go(self.pid, tid, report, &mut common);
                }
                Err(trouble)
            }
        }
    }

    fn stop_all(&mut self, stragglers: &mut Stragglers) -> Result<(), Trouble> {
        loop {
            // One that ran until now may have made another one that was not there to be found.
            let stood_still = self.running.is_empty();
            let found_new = self.seize_new(stragglers)?;
            self.collect();
            if stood_still && !found_new {
                return if self.stopped.is_empty() { Err(Trouble::Gone) } else { Ok(()) };
            }
            if self.takes_too_long(self.began.elapsed()) {
                return Err(Trouble::Lost);
            }
            if !self.running.is_empty() {
                thread::sleep(LOOK_INTERVAL);
            }
        }
    }

    /// Whether waiting for the threads that are still running is in vain.
    ///
    /// A thread may have stopped or been woken since the last look, and one that waits for a lock of the
    /// kernel sleeps until who has it, which may be another one that wants to run, comes to a processor:
    /// only where all sleep on one is lost.
    fn takes_too_long(&mut self, waited: Duration) -> bool {
        if waited <= SLEEPING_LIMIT {
            return false;
        }
        let sleeps = |tid: &pid_t| matches!(state_of(self.pid, *tid), Some('S' | 'D'));
        if self.running.is_empty() || !self.running.keys().all(sleeps) {
            self.asleep_since = None;
            return waited > RUNNING_LIMIT;
        }
        self.asleep_since.get_or_insert_with(Instant::now).elapsed() > SLEEPING_LIMIT
    }

    /// Seizes the threads that are not seized yet; whether there were any.
    fn seize_new(&mut self, stragglers: &mut Stragglers) -> Result<bool, Trouble> {
        let threads = threads_of(self.pid)?;
        // The kernel has a seizing wait for an execve(2) in the process, and that wait for them.
        note_ends(self.pid, &threads);
        let is_seized =
            |tid: &pid_t| self.running.contains_key(tid) || self.stopped.contains_key(tid);
        let new: Vec<_> = threads.iter().copied().filter(|tid| !is_seized(tid)).collect();
        match new.is_empty() {
            true => Ok(false),
            false => noting_ends(self.pid, &threads, || self.seize_each(&new, stragglers)),
        }
    }

    /// Seizes threads; whether there was one that is not ending.
    fn seize_each(&mut self, tids: &[pid_t], stragglers: &mut Stragglers) -> Result<bool, Trouble> {
        let before = self.running.len();
        for tid in tids {
            if stragglers.pids.remove(tid).is_some() || self.seize(*tid)? {
                self.running.insert(*tid, self.pid);
            }
        }
        Ok(self.running.len() > before)
    }

    /// Seizes one thread; false when it is ending.
    fn seize(&self, tid: pid_t) -> Result<bool, Trouble> {
        match seize_once(tid).and_then(|()| ptrace::interrupt(tid)) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
            Err(_) if is_ending(self.pid, tid) => Ok(false),
            Err(error) => Err(Trouble::System(error)),
        }
    }

    /// Notes which threads have stopped or ended.
    fn collect(&mut self) {
        let (running, stopped) = (self.running.len(), &mut self.stopped);
        self.running.retain(|tid, _| match ptrace::look(*tid) {
            Report::Nothing => true,
            Report::Gone => false,
            report => {
                stopped.insert(*tid, report);
                false
            }
        });
        if self.running.len() < running {
            self.asleep_since = None;
        }
    }

    /// Reads every stopped thread, the leader first; a thread that was killed meanwhile is left out.
    fn read_all(&mut self) -> Result<Vec<StoppedThread>, Trouble> {
        let mut threads = Vec::with_capacity(self.stopped.len());
        for (tid, report) in &self.stopped {
            match StoppedThread::read(self.pid, *tid, *report) {
                Ok(thread) => threads.push(thread),
                Err(Trouble::Gone) => {}
                Err(trouble) => return Err(trouble),
            }
        }
        threads.sort_by_key(|thread| thread.tid() != self.pid);
        if threads.is_empty() { Err(Trouble::Gone) } else { Ok(threads) }
    }
}

/// Takes note of the ends of those of a process's threads that this process has seized.
fn note_ends(pid: pid_t, threads: &[pid_t]) {
    threads.iter().filter(|tid| **tid != pid).for_each(|tid| ptrace::reap(*tid));
}

/// Does `work`, which may wait for an execve(2) in process `pid`, and takes note of the ends of these of its
/// threads meanwhile, for which that waits.
pub(super) fn noting_ends<R>(pid: pid_t, threads: &[pid_t], work: impl FnOnce() -> R) -> R {
    if threads.len() < 2 {
        return work();
    }
    let (goes_on, is_over) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let note = move || {
            while is_over.recv_timeout(NOTING_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                note_ends(pid, threads);
            }
        };
        // Without room for another thread it is done without, as such an execve(2) is rare.
        let noting = thread::Builder::new().stack_size(NOTING_STACK_BYTES);
        let _ = noting.spawn_scoped(scope, note);
        let result = work();
        drop(goes_on);
        result
    })
}

/// Seizes a thread that this one may have seized already, by another id: one that runs execve(2) in a process of
/// several threads takes the id of the first.
fn seize_once(tid: pid_t) -> io::Result<()> {
    match ptrace::seize(tid) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) && is_traced_here(tid) => Ok(()),
        seized => seized,
    }
}

/// Whether the calling thread traces a living thread (proc(5), `TracerPid`).
fn is_traced_here(tid: pid_t) -> bool {
    let status = super::status_of(tid);
    let tracer = field(&status, b"TracerPid:").trim().parse();
    tracer == Ok(process::tid()) && !is_ending(tid, tid)
}

/// The ids of a process's threads.
pub(super) fn threads_of(pid: pid_t) -> Result<Vec<pid_t>, Trouble> {
    living::threads_of(pid).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Trouble::Gone,
        _ => Trouble::System(error),
    })
}
