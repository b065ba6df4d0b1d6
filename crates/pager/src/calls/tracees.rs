//! `PTRACE_TRACEME`: a process that is to be traced from the next program on.
//!
//! One that is traced stops at each of its signals, and while its memory is managed it gets some for its calls
//! and its faults. Who traces it may wait for nothing but the program: gdb does in a vfork(2), lldb for the end
//! of a pipe. So this is done as late as can be: right before the program is begun, when nothing in this memory
//! is used any more, or before another call than those that lead to it, by which it may mean to stop. The program
//! begins without the agent, as it would stop for that all the time, too.
//!
//! Source: ptrace(2).
//!
//! Bad case: a program that is not begun although it could have been, as its format is none. It stops at its next
//! call.

use zpager_sys::signal::Registers;
use zpager_sys::syscall::{checked, nr};
use zpager_sys::{Errno, process};

use super::Outcome;
use crate::threads::Thread;

const EPERM: Errno = Errno(1);
pub(super) const PTRACE_TRACEME: usize = 0;
const AT_FDCWD: usize = -100isize as usize;
const X_OK: usize = 1;

impl Thread {
    /// The call itself. As ever it fails where it was made before.
    pub(super) fn ask_to_be_traced(&mut self) -> Outcome {
        if self.asks_to_be_traced || process::is_traced() {
            return Outcome::Done(EPERM.as_result());
        }
        self.asks_to_be_traced = true;
        Outcome::Done(0)
    }

    /// Has it be traced, if it asked for that and `number` is not one of the calls that lead to a program.
    #[inline]
    pub(super) fn be_traced_before(&mut self, number: u32) {
        if self.asks_to_be_traced && !leads_to_program(number) {
            self.be_traced();
        }
    }

    /// Has it be traced before the program is begun that `registers` ask for, if there is one.
    pub(super) fn be_traced_in_program(&mut self, registers: &Registers) {
        if !self.asks_to_be_traced {
            return;
        }
        let [path, ..] = registers.arguments();
        let can_begin = || {
            // SAFETY: the path is the program's, and held; nothing is written.
            let asked = unsafe { checked(nr::__NR_faccessat, [AT_FDCWD, path, X_OK]) };
            asked.is_ok()
        };
        if registers.rax as u32 == nr::__NR_execveat || can_begin() {
            self.be_traced();
        }
    }

    fn be_traced(&mut self) {
        self.asks_to_be_traced = false;
        // SAFETY: no memory is touched. One that cannot be traced is not.
        let _ = unsafe { checked(nr::__NR_ptrace, [PTRACE_TRACEME]) };
    }
}

/// Whether a call is one of those that a child makes before it begins a program.
fn leads_to_program(number: u32) -> bool {
    matches!(
        number,
        nr::__NR_ptrace
            | nr::__NR_execve
            | nr::__NR_execveat
            | nr::__NR_rt_sigaction
            | nr::__NR_rt_sigprocmask
            | nr::__NR_sigaltstack
            | nr::__NR_personality
            | nr::__NR_setpgid
            | nr::__NR_setsid
            | nr::__NR_getpid
            | nr::__NR_getppid
            | nr::__NR_gettid
            | nr::__NR_close
            | nr::__NR_close_range
            | nr::__NR_dup2
            | nr::__NR_dup3
            | nr::__NR_fcntl
            | nr::__NR_prctl
            | nr::__NR_prlimit64
            | nr::__NR_chdir
    )
}
