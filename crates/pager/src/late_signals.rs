//! Signals that come while a process forks.
//!
//! All signals are blocked in the pager, and to prepare a fork takes long where room is waited for. In the kernel none
//! comes in the midst of one (copy_process in kernel/fork.c): what the program does not block comes before, and what is
//! sent to several processes at once comes to the child as well. The same here: a fork is begun again after a signal
//! that the program does not block. Most libraries block all while they fork; what came meanwhile then is sent on to
//! the child, where it is of those that end or stop a whole group, and
//! - the kernel sent it, as it does for a terminal, to whose group the child belongs; or
//! - it ends the parent as soon as that does not block it any more: it is as if it had come before the fork.
//!
//! The child blocks all signals until it goes back to its program, so that what it has got already it does not get
//! twice.
//!
//! Invariant: a fork is begun again once, so that a program which is sent signals all the time gets on.
//!
//! Bad case: a signal that the parent handles, and that another process sends to its group. Nothing tells it from one
//! that is sent to the parent alone, which is not the child's.

use zpager_sys::signal::{self, Mask, SI_KERNEL, SIG_DFL, only, ours};

use crate::process::Process;
use crate::threads::Thread;

const SIGHUP: u32 = 1;
const SIGINT: u32 = 2;
const SIGQUIT: u32 = 3;
const SIGTERM: u32 = 15;
const SIGTSTP: u32 = 20;
/// What a terminal, a shell or a service manager sends to a group.
const GROUP_SIGNALS: [u32; 5] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP];

/// The signals that were pending when a fork began to be prepared, of those that the program blocks: another one has
/// come since it made the call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Earlier(Mask);

impl Earlier {
    /// Now, for a program that blocks `blocked`.
    pub(crate) fn look(blocked: Mask) -> Self {
        Earlier(signal::pending() & blocked)
    }

    fn late(self) -> Mask {
        signal::pending() & !self.0 & !ours()
    }

    /// Whether a signal has come that `thread`'s program, which blocks `blocked`, is to have before it forks.
    pub(crate) fn begins_again(self, thread: &mut Thread, blocked: Mask) -> bool {
        thread.forks_again = !thread.forks_again && self.late() & !blocked != 0;
        thread.forks_again
    }

    /// Sends those that have come to `thread`'s process and are its child's, too, on to that.
    pub(crate) fn send_on(self, process: &Process, thread: &Thread, child_pid: i32) {
        let late = self.late();
        // Those of one that only shares this memory are not known.
        let knows_actions = !thread.has_other_actions(process);
        let ends = |signal| {
            let is_default = process.actions[signal as usize].handler == SIG_DFL;
            signal != SIGTSTP && knows_actions && is_default
        };
        let is_childs = |&signal: &u32| {
            late & only(signal) != 0 && (ends(signal) || is_kernels(thread.pid, signal))
        };
        let childs = GROUP_SIGNALS.into_iter().filter(is_childs);
        childs.for_each(|signal| signal::send(child_pid, signal));
    }
}

/// Whether a signal that is pending for the process with this id was sent by the kernel.
fn is_kernels(pid: i32, signal: u32) -> bool {
    let taken = signal::take(signal);
    if let Some(info) = &taken {
        signal::send_on(pid, None, signal, info);
    }
    taken.is_some_and(|info| info.code == SI_KERNEL)
}
