//! The signals of a supervisor: all are blocked and taken one at a time, with a timeout.
//!
//! What somebody sent to zpager is meant for the program and is passed on. What
//! the terminal sends (Ctrl-C, Ctrl-Z, hang-up) reaches the whole foreground
//! group, the program included, and is not doubled (signal(7), sigaction(2):
//! `si_code` tells the two apart).

use std::time::Duration;

use libc::{c_int, pid_t, siginfo_t, sigset_t};

use crate::run::living::state_of;

/// Signals that a fault raises: blocking them would turn a fault of zpager's own into a silent end.
const FAULTS: [c_int; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
];

/// `si_code` of signals that the kernel sends by itself.
const SI_KERNEL: c_int = 0x80;

/// The value that travels with a SIGURG of this process to itself.
const CALLS: usize = 0x7a70_6578;

/// The supervisor's hold on its signals.
#[derive(Clone, Copy)]
pub(crate) struct Signals {
    taken: sigset_t,
    original: sigset_t,
}

impl Signals {
    /// Blocks everything that can be waited for in the calling thread.
    pub(crate) fn block() -> Self {
        // SAFETY: both sets are plain data and are filled by the calls below before they are used.
        unsafe {
            let mut taken: sigset_t = std::mem::zeroed();
            let mut original: sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut taken);
            for signal in FAULTS {
                libc::sigdelset(&mut taken, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &taken, &mut original);
            Signals { taken, original }
        }
    }

    /// Gives the calling thread back the mask it had before [`Signals::block`]; safe between
    /// fork(2) and execve(2).
    pub(crate) fn restore(&self) {
        // SAFETY: `original` was filled by pthread_sigmask in `block`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.original, std::ptr::null_mut()) };
    }

    /// The next signal, or `None` when none came in time.
    pub(crate) fn wait(&self, timeout: Duration) -> Option<siginfo_t> {
        let timeout = libc::timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // SAFETY: the set is filled, and `info` may be written in full by the kernel.
        unsafe {
            let mut info: siginfo_t = std::mem::zeroed();
            (libc::sigtimedwait(&self.taken, &mut info, &timeout) > 0).then_some(info)
        }
    }
}

/// Whether the signal is one of [`tell_of_call`].
pub(crate) fn is_call(info: &siginfo_t) -> bool {
    // SAFETY: for SI_QUEUE the kernel filled in the sender and the value.
    info.si_signo == libc::SIGURG
        && info.si_code == libc::SI_QUEUE
        && unsafe { info.si_pid() == libc::getpid() && info.si_value().sival_ptr.addr() == CALLS }
}

/// Tells a thread of this process, which waits for signals, that a process of the run has called.
pub(super) fn tell_of_call(waiting: pid_t) {
    let pid = std::process::id().cast_signed();
    zpager_sys::signal::queue_for_thread(pid, waiting, zpager_sys::signal::SIGURG, CALLS);
}

/// Passes a signal on to process `pid` if it was sent to this process alone.
pub(crate) fn pass_on(info: &siginfo_t, pid: pid_t) {
    let signal = info.si_signo;
    match info.si_code {
        // SAFETY: a signal to a child that has not been waited for reaches that child or nobody;
        // for SI_QUEUE the kernel filled in the value that si_value reads.
        libc::SI_QUEUE => unsafe {
            libc::sigqueue(pid, signal, info.si_value());
        },
        // The kernel's answer to what this process wrote itself, where nobody reads any more.
        // SAFETY: for these two the kernel filled in the sender, and getpid has no preconditions.
        libc::SI_USER | libc::SI_TKILL if unsafe { info.si_pid() == libc::getpid() } => {}
        // A continuation sent to the whole group has reached the program already.
        libc::SI_USER | libc::SI_TKILL if signal != libc::SIGCONT || is_stopped(pid) => {
            // SAFETY: as above.
            unsafe { libc::kill(pid, signal) };
        }
        // An alarm(2) that was set before zpager was executed is meant for the program.
        SI_KERNEL if signal == libc::SIGALRM => {
            // SAFETY: as above.
            unsafe { libc::kill(pid, signal) };
        }
        _ => {}
    }
}

/// Whether a process is stopped by job control (proc(5), the state in `/proc/PID/stat`).
fn is_stopped(pid: pid_t) -> bool {
    state_of(pid, pid) == Some('T')
}

/// Stops this process, so that a shell sees the whole job stopped; returns once it is continued.
pub(crate) fn stop_too() {
    // SAFETY: SIGSTOP to this process itself.
    unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
}
