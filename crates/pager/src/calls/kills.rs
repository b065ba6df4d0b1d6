//! Killing a process that has this memory, as who made it with `clone` and `CLONE_VM` does.
//!
//! Who is killed with the process's lock leaves behind what nobody knows to be whole, and everybody else is ended
//! ([`crate::process`]). So who kills has the lock meanwhile, beside which nothing flies or departs, until the
//! other one has no part in this memory any more.
//!
//! Source: kill(2), tkill(2), kcmp(2).
//!
//! Bad case: one that is killed by somebody else, by a pidfd, or with its whole group, may have the lock.

use core::sync::atomic::Ordering::Relaxed;

use zpager_sys::process;
use zpager_sys::signal::{Context, SIGKILL};
use zpager_sys::syscall::{self, nr};

use super::Outcome;
use crate::process::Process;
use crate::threads::{IS_SHARED, Thread};

/// Until it is gone: it ends as soon as it runs, and only takes long where the kernel works for it.
const NAPS_MAX: u32 = 200;
const NAP_NANOSECONDS: u64 = 50_000;

impl Process {
    /// `kill`, `tkill`, `tgkill`: whom, of the last one which thread of it, the signal.
    pub(super) fn kill_call(&mut self, thread: &mut Thread, context: &mut Context) -> Outcome {
        let arguments = context.registers.arguments();
        let number = context.registers.rax as u32;
        let target = arguments[0] as i32;
        let signal = arguments[if number == nr::__NR_tgkill { 2 } else { 1 }] as u32;
        let strikes = signal == SIGKILL && target > 0 && target != thread.pid;
        if !strikes || !IS_SHARED.load(Relaxed) || !process::shares_memory(target) {
            return self.plain_call(thread, context);
        }
        // SAFETY: the program's own call, which names no memory.
        let result = unsafe { syscall::call(number, arguments) };
        let mut naps = 0;
        while result == 0 && naps < NAPS_MAX && process::shares_memory(target) {
            process::nap(NAP_NANOSECONDS);
            naps += 1;
        }
        Outcome::Done(result)
    }
}
