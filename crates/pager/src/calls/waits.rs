//! Calls that wait: with a signal mask of their own, for signals, or for what a
//! signal that is none of the program's business must not end.
//!
//! Signals of ours are never blocked for real, and what of them is sent to the
//! program while it believes them to be blocked is parked ([`crate::parked`]). So
//! where one of these calls names them the kernel gets a mask without them, and
//! the call ends in the trap of [`stubs`], where the registers become the
//! program's again; what the mask means for them is done here.
//!
//! Sources: sigtimedwait(2), sigsuspend(2), ppoll(2), pselect(2), epoll_pwait(2).

use core::sync::atomic::Ordering::Relaxed;

use zpager_sys::process;
use zpager_sys::signal::{Context, Info, Mask, Registers, SIGKILL, SIGSTOP, only, ours};
use zpager_sys::syscall::nr;

use super::Outcome;
use super::sandbox::IS_LEAVING;
use super::time_limits::{FUTEX_OPERATION, slept_in_place, socket_limit_ns};
use crate::parked::CARRIER;
use crate::process::Process;
use crate::stubs;
use crate::threads::{Disturbed, Thread};

const EFAULT: isize = -14;
const EINTR: isize = -4;
const MASK_BYTES: usize = 8;

impl Process {
    /// Makes a call that may wait; its pointers are held.
    pub(super) fn waiting_call(&mut self, thread: &mut Thread, context: &mut Context) -> Outcome {
        thread.time_limit = self.time_limit(thread, context);
        if context.registers.rax as u32 == nr::__NR_rt_sigtimedwait {
            return self.timed_wait(thread, context);
        }
        let Some(mask) = self.temporary_mask(thread, context) else {
            return self.timed_call(thread, context);
        };
        while let Some((signal, info)) = self.take_parked(thread, !mask) {
            let number = context.registers.rax;
            context.registers.rax = EINTR as usize;
            if self.enter(thread, signal, &info, context, Some(mask)) {
                return Outcome::Arranged;
            }
            context.registers.rax = number;
        }
        thread.temporary_mask = Some(mask);
        let carrier = if self.fd_signals != 0 { only(CARRIER) } else { 0 };
        let kernel_mask = mask & !ours() | carrier;
        if kernel_mask == mask {
            return self.timed_call(thread, context);
        }
        thread.watch(context);
        thread.kernel_mask = [0, MASK_BYTES, kernel_mask as usize];
        thread.kernel_mask[0] = (&raw const thread.kernel_mask[2]) as usize;
        let (mask_and_length, mask) =
            ((&raw const thread.kernel_mask) as usize, thread.kernel_mask[0]);
        let registers = &mut context.registers;
        match registers.rax as u32 {
            nr::__NR_rt_sigsuspend => registers.rdi = mask,
            nr::__NR_ppoll => registers.r10 = mask,
            nr::__NR_pselect6 => registers.r9 = mask_and_length,
            _ => registers.r8 = mask,
        }
        Outcome::Arranged
    }

    /// A call without a mask of ours that may end by time. One that the kernel ends for a signal which somebody
    /// else takes then ends in the trap, where relatives send such: it is to keep its time ([`Thread::keep_time`]), or
    /// to have its memory show no such end.
    fn timed_call(&self, thread: &mut Thread, context: &mut Context) -> Outcome {
        let number = context.registers.rax as u32;
        let shows_ends = is_made_again(number)
            || slept_in_place(number, &context.registers.arguments()).is_some();
        let ends_for_others = thread.time_limit.is_some()
            && shows_ends
            && self.control.processes.count() > 1
            && !IS_LEAVING.load(Relaxed)
            && !self.threads.is_alone(thread);
        if !ends_for_others {
            return Outcome::GoOn;
        }
        thread.watch(context);
        Outcome::Arranged
    }

    /// The mask that a call has for as long as it waits (`ppoll`, `pselect6`, `epoll_pwait`,
    /// `rt_sigsuspend`), where its length is right.
    fn temporary_mask(&mut self, thread: &Thread, context: &Context) -> Option<Mask> {
        let arguments = context.registers.arguments();
        let (pointer, bytes) = match context.registers.rax as u32 {
            nr::__NR_rt_sigsuspend => (arguments[0], arguments[1]),
            nr::__NR_ppoll => (arguments[3], arguments[4]),
            nr::__NR_epoll_pwait | nr::__NR_epoll_pwait2 => (arguments[4], arguments[5]),
            nr::__NR_pselect6 if arguments[5] != 0 => {
                let [pointer, bytes] = self.read_words(thread, context, arguments[5])?;
                (pointer, bytes)
            }
            _ => return None,
        };
        if pointer == 0 || bytes != MASK_BYTES {
            return None;
        }
        let [mask] = self.read_words(thread, context, pointer)?;
        Some(mask as Mask & !(only(SIGKILL) | only(SIGSTOP)))
    }

    /// `rt_sigtimedwait`: the set, where to tell of the signal, the time, the length of the set.
    fn timed_wait(&mut self, thread: &mut Thread, context: &mut Context) -> Outcome {
        let [set, told, _, bytes, ..] = context.registers.arguments();
        let set = self.read_words(thread, context, set).filter(|_| bytes == MASK_BYTES);
        let Some([set]) = set else { return Outcome::GoOn };
        let wanted = set as Mask & ours();
        if wanted == 0 {
            return self.timed_call(thread, context);
        }
        if let Some((signal, info)) = self.take_parked(thread, wanted) {
            return Outcome::Done(tell(told, signal, &info));
        }
        thread.watch(context);
        thread.waits_for = wanted;
        let carrier = if self.fd_signals != 0 { only(CARRIER) } else { 0 };
        thread.kernel_mask[0] = (set as Mask & !(ours() | carrier)) as usize;
        context.registers.rdi = (&raw const thread.kernel_mask) as usize;
        Outcome::Arranged
    }

    /// A call that ends in the trap has ended because of a signal which then came in no handler:
    /// the kernel woke this thread for it, and another one took it, blocks it in the program's eyes
    /// and parks it. What it has parked is delivered, or the call is made again.
    pub(super) fn wait_again(&mut self, thread: &mut Thread, context: &mut Context) -> bool {
        let is_disturbed = thread.executing.is_none()
            && is_interrupted(context)
            && !thread.end_by_socket_time(&mut context.registers);
        if is_disturbed {
            (context.registers.rax, context.registers.rip) = (thread.call, stubs::to_trap());
            thread.disturbed = Disturbed::Ended;
            thread.keep_time(context, None);
            self.deliver_parked(thread, context);
        }
        is_disturbed
    }

    /// A signal came for which the thread waits: its call is done, unless it is already.
    pub(crate) fn end_wait(
        &mut self,
        thread: &mut Thread,
        signal: u32,
        info: &Info,
        context: &mut Context,
    ) -> bool {
        let is_open = match stubs::at(context.registers.rip) {
            Some(stubs::At::Piece(is_made)) => !is_made || context.registers.rax as isize == EINTR,
            _ => false,
        };
        let is_ended = is_open && self.end_watched(thread, context);
        if is_ended {
            context.registers.rax = tell(context.registers.rsi, signal, info) as usize;
        }
        is_ended
    }

    /// Whether the thread was in a call that ends in the trap for its registers' sake: they are
    /// the program's again, with the result.
    pub(crate) fn end_watched(&mut self, thread: &mut Thread, context: &mut Context) -> bool {
        if context.registers.rax == 0 {
            thread.put_back_time();
        }
        let Some(before) = thread.watched.take() else { return false };
        (thread.time_limit, thread.waits_for) = (None, 0);
        let registers = &context.registers;
        let (rax, eflags, fpstate) = (registers.rax, registers.eflags, registers.fpstate);
        context.registers = Registers { rax, eflags, fpstate, ..before };
        // What came under the call's own mask.
        self.call_for_parked(thread);
        true
    }
}

impl Thread {
    /// Has the call end in the trap.
    pub(super) fn watch(&mut self, context: &mut Context) {
        self.watched = Some(context.registers);
        self.call = context.registers.rax;
        context.registers.rip = stubs::to_trap();
    }
}

/// Whether the call that the thread has made was ended by a signal.
pub(super) fn is_interrupted(context: &Context) -> bool {
    context.registers.rax as isize == EINTR
}

/// Whether a call that goes on in a stub is made again where it ends with `EINTR` and no handler
/// ran. The kernel does so itself for most, not for these: the waits that signal(7) says are never
/// restarted, as far as they end with `EINTR` at once, and sockets that have a time limit.
pub(super) fn is_made_again(number: u32) -> bool {
    matches!(
        number,
        nr::__NR_epoll_wait
            | nr::__NR_epoll_pwait
            | nr::__NR_epoll_pwait2
            | nr::__NR_rt_sigtimedwait
            | nr::__NR_semop
            | nr::__NR_semtimedop
            | nr::__NR_io_getevents
            | nr::__NR_accept
            | nr::__NR_accept4
            | nr::__NR_connect
            | nr::__NR_recvfrom
            | nr::__NR_recvmsg
            | nr::__NR_sendto
            | nr::__NR_sendmsg
    )
}

/// Whether a call may wait and, after a handler without `SA_RESTART`, ends with `EINTR` then (signal(7)), of those
/// that the kernel makes again after others.
pub(crate) fn may_wait(number: u32, arguments: &[usize; 6]) -> bool {
    match number {
        nr::__NR_futex => {
            let operation = arguments[1] as u32 & FUTEX_OPERATION;
            matches!(operation, nr::FUTEX_WAIT | nr::FUTEX_WAIT_BITSET)
        }
        nr::__NR_read
        | nr::__NR_readv
        | nr::__NR_write
        | nr::__NR_writev
        | nr::__NR_open
        | nr::__NR_openat
        | nr::__NR_ioctl
        | nr::__NR_wait4
        | nr::__NR_waitid
        | nr::__NR_fcntl
        | nr::__NR_flock
        | nr::__NR_mq_timedsend
        | nr::__NR_mq_timedreceive
        | nr::__NR_msgsnd
        | nr::__NR_msgrcv
        | nr::__NR_recvmmsg
        | nr::__NR_sendmmsg
        | nr::__NR_splice
        | nr::__NR_getrandom => true,
        _ => is_made_again(number),
    }
}

impl Process {
    /// Whether a call is a `read` or `write` about a socket that has a time limit, in a process of
    /// several threads. What else these calls may be about has `EINTR`s of its own.
    pub(super) fn is_timed_transfer(&self, thread: &Thread, context: &Context) -> bool {
        let number = context.registers.rax as u32;
        let is_transfer =
            matches!(number, nr::__NR_read | nr::__NR_readv | nr::__NR_write | nr::__NR_writev);
        is_transfer
            && !self.threads.is_alone(thread)
            && socket_limit_ns(number, context.registers.rdi).is_some()
    }
}

/// Tells the program of a signal at `address`, which is held; gives what the call returns.
fn tell(address: usize, signal: u32, info: &Info) -> isize {
    match address != 0 && process::poke(address, info).is_err() {
        true => EFAULT,
        false => signal as isize,
    }
}
