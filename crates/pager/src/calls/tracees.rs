//! `PTRACE_TRACEME`: a process that is to be traced from the next program on.
//!
//! One that is traced stops at each of its signals, and while its memory is managed it gets some for its calls
//! and its faults. Who traces it may wait for nothing but the program: gdb does in a vfork(2), lldb for the end
//! of a pipe. So this is done as late as can be: right before the program is begun, when nothing in this memory
//! is used any more, before a signal is sent, by which it may mean to stop itself, where it faults or meets a
//! breakpoint, which it then does once more, or when it leaves management. The program begins without the agent, as
//! it would stop for that all the time, too. One that only wants to know whether it is traced goes on.
//!
//! Who sends a signal may go on as it is for its tracer, who may keep all signals from it, zpager's as well. So it
//! leaves management then, unless much of it is swapped out.
//!
//! Source: ptrace(2).
//!
//! Bad case: a program that is not begun although it could have been, as its format is none: it stops at its next
//! call. Who is stopped by another's signal after it has asked is not traced yet. A breakpoint in the two bytes of
//! `int 3` is not known from one in the byte of `int3`.

use zpager_sys::signal::{
    Action, Context, Info, Registers, SI_KERNEL, SIG_DFL, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP,
};
use zpager_sys::syscall::{checked, nr};
use zpager_sys::{Errno, process};
use zpager_wire::EventKind;

use super::Outcome;
use crate::process::Process;
use crate::signals::install;
use crate::threads::Thread;

const EPERM: Errno = Errno(1);
pub(super) const PTRACE_TRACEME: usize = 0;
const X_OK: usize = 1;
/// `int3`, behind which the processor is then.
const BREAKPOINT_BYTES: usize = 1;
/// How much of the budget may come in for one that leaves management to be traced: such a part.
const LEAVING_PART: u64 = 8;
/// What a program causes by itself, of which its tracer is to know.
const CAUSED: [u32; 5] = [SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV];

impl Process {
    /// The call itself. As ever it fails where it was made before.
    pub(super) fn ask_to_be_traced(&mut self, thread: &mut Thread) -> Outcome {
        if thread.asks_to_be_traced || process::is_traced() {
            return Outcome::Done(EPERM.as_result());
        }
        thread.asks_to_be_traced = true;
        for signal in CAUSED {
            let asked = self.actions[signal as usize];
            if may_be_handled(signal, &asked) {
                // A handler that the kernel refuses is one that it does not call: as before, the default acts.
                let _ = install(signal, &asked);
            }
        }
        Outcome::Done(0)
    }

    /// Has a thread be traced, if it asked for that, before a call that sends a signal; gives what becomes of the call
    /// where the process leaves management for that.
    #[inline]
    pub(super) fn be_traced_before(
        &mut self,
        thread: &mut Thread,
        context: &mut Context,
    ) -> Option<Outcome> {
        if !thread.asks_to_be_traced || !sends_signal(context.registers.rax as u32) {
            return None;
        }
        let outcome = match self.stored_bytes() <= self.control.settings.budget_bytes / LEAVING_PART
        {
            true => self.leave_for(thread, context, EventKind::Traced),
            false => Outcome::GoOn,
        };
        if matches!(outcome, Outcome::GoOn) {
            thread.be_traced();
            return None;
        }
        Some(outcome)
    }
}

/// Whether the kernel has our handler for a signal for which the program has none, if that has asked to be traced.
pub(super) fn may_be_handled(signal: u32, asked: &Action) -> bool {
    CAUSED.contains(&signal) && asked.handler == SIG_DFL
}

impl Thread {
    /// Has it be traced, if it asked for that, where it has caused a signal: it does so once more, for its tracer.
    pub(crate) fn be_traced_at(&mut self, info: &Info, registers: &mut Registers) -> bool {
        let signal = info.signal as u32;
        if !self.asks_to_be_traced || info.code <= 0 || !CAUSED.contains(&signal) {
            return false;
        }
        if signal == SIGTRAP && info.code == SI_KERNEL {
            registers.rip -= BREAKPOINT_BYTES;
        }
        self.be_traced();
        true
    }

    /// Has it be traced, if it asked for that, before the program at `path` is begun, if there is one; for
    /// `execveat`, to which the path is not all, that is not looked at.
    pub(super) fn be_traced_in_program(&mut self, path: usize, is_at: bool) {
        let can_begin = || {
            // SAFETY: the path is the program's, and held; nothing is written.
            let asked = unsafe { checked(nr::__NR_access, [path, X_OK]) };
            asked.is_ok()
        };
        if self.asks_to_be_traced && (is_at || can_begin()) {
            self.be_traced();
        }
    }

    /// Has it be traced, if it asked for that.
    pub(super) fn be_traced(&mut self) {
        if core::mem::take(&mut self.asks_to_be_traced) {
            // SAFETY: no memory is touched. One that cannot be traced is not.
            let _ = unsafe { checked(nr::__NR_ptrace, [PTRACE_TRACEME]) };
        }
    }
}

fn sends_signal(number: u32) -> bool {
    matches!(
        number,
        nr::__NR_kill
            | nr::__NR_tkill
            | nr::__NR_tgkill
            | nr::__NR_rt_sigqueueinfo
            | nr::__NR_rt_tgsigqueueinfo
            | nr::__NR_pidfd_send_signal
    )
}
