//! Pages of other processes of the run, for `process_vm_readv` and
//! `process_vm_writev`: what is swapped out there is asked for.
//!
//! The other process is sent a signal of the pager's own; whichever of its threads
//! takes it brings the pages in and keeps them until it enters the pager again.
//! Two processes that ask each other at the same time serve each other while they
//! wait, and give room to each other, without which neither may bring anything in. See [`zpager_wire::Request`].
//!
//! Bad case: a process that is stopped, or ends, or does not come to handle
//! signals: it is waited for for a moment, and then the call fails as for memory
//! that is not there.

use core::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, SeqCst},
};

use zpager_sys::syscall::{checked, nr};
use zpager_sys::{PAGE_BYTES, signal};
use zpager_wire::{BRING_IN, ProcessSlot, Processes, Request};

use crate::copies::Keep;
use crate::hold::pages_of;
use crate::identity;
use crate::process::Process;
use crate::threads::Thread;

/// Bytes that are asked for at a time.
pub(super) const ASKED_BYTES_MAX: usize = 64 * PAGE_BYTES;
/// Waits of a millisecond for a request to be free, or to be served.
const WAITS_MAX: u32 = 500;
const WAITS_A_SIGNAL: u32 = 50;
/// The same for a signal to be sent.
const SENDING_MAX: u32 = 10;
/// The last bits of a request's state; above them is the process that asks, as the run calls it: threads of
/// one process take it one after the other, and ids of others mean nothing in another pid namespace.
const TAKEN: u32 = 1;
const ASKED: u32 = 2;
const SERVED: u32 = 3;
const PHASE_BITS: u32 = 2;
const PHASES: u32 = 3;

/// A request in the hands of the thread that asks.
struct Asking<'a> {
    request: &'a Request,
    processes: &'a Processes,
    pid: i32,
    /// Its process, where the state has it.
    asker: u32,
}

/// Has the process `pid` bring in what of `start..start + bytes` it manages; false where it does
/// not answer. Called without the lock.
pub(super) fn ask(thread: &mut Thread, pid: i32, start: usize, bytes: usize) -> bool {
    let find = |process: &mut Process| Some((process.neighbour(pid)?, process.control));
    let Some(Some((slot, control))) = Process::with(find) else { return false };
    let (request, processes) = (&slot.request, &control.processes);
    let asker = (identity::run_pid() as u32) << PHASE_BITS;
    let asking = Asking { request, processes, pid, asker };
    if !asking.take(thread) {
        return false;
    }
    asking.ask(start, bytes);
    let is_served = asking.wait(thread);
    asking.let_go();
    is_served
}

impl Asking<'_> {
    /// Waits for the request to be free, and takes it.
    fn take(&self, thread: &mut Thread) -> bool {
        let state = &self.request.state;
        for _ in 0..WAITS_MAX {
            let taken = state.compare_exchange(0, self.asker | TAKEN, AcqRel, Acquire);
            let Err(found) = taken else { return true };
            // Who was killed while it asked has left it as it was.
            let is_left = !self.is_managed((found >> PHASE_BITS) as i32);
            let mine = self.asker | TAKEN;
            if is_left && state.compare_exchange(found, mine, AcqRel, Acquire).is_ok() {
                return true;
            }
            wait_a_moment(state, found);
            serve_own(thread);
        }
        false
    }

    /// Frees the request, which is somebody else's where this one was taken for gone.
    fn let_go(&self) {
        let state = &self.request.state;
        for phase in [ASKED, SERVED] {
            let _ = state.compare_exchange(self.asker | phase, 0, SeqCst, Relaxed);
        }
        wake(state);
    }

    /// Whether a process of the run is there.
    fn is_managed(&self, run_pid: i32) -> bool {
        self.processes.in_use().any(|slot| slot.pid.load(Relaxed) == run_pid)
    }

    /// Says what is wanted.
    fn ask(&self, start: usize, bytes: usize) {
        let request = self.request;
        request.start.store(start as u64, Relaxed);
        request.bytes.store(bytes.min(ASKED_BYTES_MAX) as u64, Relaxed);
        request.state.store(self.asker | ASKED, SeqCst);
    }

    /// Sends the signal; false where nobody would handle it.
    fn send(&self) -> bool {
        let request = self.request;
        request.sending.store(1, SeqCst);
        let is_sent =
            request.answers.load(SeqCst) != 0 && signal::queue(self.pid, signal::SIGURG, BRING_IN);
        request.sending.store(0, SeqCst);
        is_sent
    }

    fn wait(&self, thread: &mut Thread) -> bool {
        let state = &self.request.state;
        for waits in 0..WAITS_MAX {
            // Again from time to time: the kernel drops it while another SIGURG waits.
            if waits % WAITS_A_SIGNAL == 0 && !self.send() {
                return false;
            }
            match state.load(Acquire) {
                now if now == self.asker | ASKED => wait_a_moment(state, now),
                now => return now == self.asker | SERVED,
            }
            serve_own(thread);
        }
        false
    }
}

/// What the run wants of this process meanwhile: the other one may wait for just that.
fn serve_own(thread: &mut Thread) {
    Process::with(|process| process.serve_run(thread));
}

/// Waits until the word is another, or for a millisecond.
fn wait_a_moment(word: &AtomicU32, value: u32) {
    let moment = [0u64, 1_000_000];
    let wait = nr::FUTEX_WAIT as usize;
    let arguments = [word.as_ptr() as usize, wait, value as usize, moment.as_ptr() as usize];
    // SAFETY: the word lies in the run's control block, which stays mapped.
    let _ = unsafe { checked(nr::__NR_futex, arguments) };
}

fn wake(word: &AtomicU32) {
    let arguments = [word.as_ptr() as usize, nr::FUTEX_WAKE as usize, i32::MAX as usize];
    // SAFETY: waking waiters changes no memory.
    let _ = unsafe { checked(nr::__NR_futex, arguments) };
}

impl Process {
    /// The slot of another managed process of the run, by the id that the calling thread knows.
    pub(super) fn neighbour(&self, pid: i32) -> Option<&'static ProcessSlot> {
        let is_seen = self.caller_is_seen();
        self.relatives().find(|slot| is_seen && identity::is_of(slot, pid))
    }

    /// Brings in what another process wants of this one.
    pub(crate) fn serve_request(&mut self, thread: &mut Thread) {
        let request = &self.slot.request;
        let state = request.state.load(SeqCst);
        if state & PHASES != ASKED {
            return;
        }
        let (start, bytes) = (request.start.load(Relaxed), request.bytes.load(Relaxed));
        let pages = pages_of(start as usize, (bytes as usize).min(ASKED_BYTES_MAX));
        thread.lend(pages.clone());
        // It may be there to be written.
        self.make_resident(pages.clone(), Keep::Nothing);
        self.make_own(&pages);
        self.publish();
        // Who asked may have given up.
        let served = state & !PHASES | SERVED;
        let _ = request.state.compare_exchange(state, served, SeqCst, Relaxed);
        wake(&request.state);
    }

    /// From now on nobody is sent a signal by another process of the run; what was sent is gone.
    pub(super) fn stop_answering(&mut self) {
        let request = &self.slot.request;
        request.answers.store(0, SeqCst);
        for _ in 0..SENDING_MAX {
            if request.sending.load(SeqCst) == 0 {
                break;
            }
            wait_a_moment(&request.sending, 1);
        }
        signal::take(signal::SIGURG);
    }

    /// Has other processes of the run ask again.
    pub(crate) fn answer(&self) {
        self.slot.request.answers.store(1, SeqCst);
    }
}
