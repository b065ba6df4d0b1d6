//! Calls about signals: answered from what is pretended.

use core::mem::offset_of;

use zpager_sys::Errno;
use zpager_sys::signal::{
    self, Action, AlternateStack, Context, Frame, SA_KEPT, SIG_IGN, SIGKILL, SIGNALS, SIGSTOP,
    SS_AUTODISARM, SS_DISABLE, SS_ONSTACK, fpstate_bytes, only, ours,
};
use zpager_sys::syscall::nr;

use super::Outcome;
use crate::parked::CARRIER;
use crate::process::Process;
use crate::signals::is_handler;
use crate::threads::Thread;

const EINVAL: Errno = Errno(22);
const EFAULT: Errno = Errno(14);
const EPERM: Errno = Errno(1);
const ENOMEM: Errno = Errno(12);
const MASK_BYTES: usize = 8;
const BLOCK: usize = 0;
const UNBLOCK: usize = 1;
const SET: usize = 2;
/// Smallest alternate stack that the kernel accepts.
const STACK_BYTES_MIN: usize = 2048;

impl Process {
    pub(super) fn signal_call(&mut self, thread: &mut Thread, context: &mut Context) -> Outcome {
        let result = match context.registers.rax as u32 {
            nr::__NR_rt_sigaction => self.action_call(thread, context),
            nr::__NR_rt_sigprocmask => self.mask_call(thread, context),
            nr::__NR_sigaltstack => self.alternate_call(thread, context),
            nr::__NR_rt_sigpending => self.pending_call(thread, context),
            _ => return self.return_call(thread, context),
        };
        Outcome::of(result.map(|()| 0))
    }

    /// Tells the program words, if it has a place for them.
    fn tell_words<const N: usize>(
        &mut self,
        thread: &mut Thread,
        context: &Context,
        place: usize,
        words: [usize; N],
    ) -> Result<(), Errno> {
        match place {
            0 => Ok(()),
            _ => self.write_words(thread, context, place, words),
        }
    }

    fn action_call(&mut self, thread: &mut Thread, context: &Context) -> Result<(), Errno> {
        let [signal, new, old, bytes, ..] = context.registers.arguments();
        if bytes != MASK_BYTES || signal == 0 || signal > SIGNALS {
            return Err(EINVAL);
        }
        let before = self.actions[signal];
        if new != 0 {
            let words: [usize; 4] = self.read_words(thread, context, new).ok_or(EFAULT)?;
            if signal == SIGKILL as usize || signal == SIGSTOP as usize {
                return Err(EINVAL);
            }
            let [handler, flags, restorer, mask] = words;
            let mask = mask as u64 & !(only(SIGKILL) | only(SIGSTOP));
            let asked = Action { handler, flags: flags as u64 & SA_KEPT, restorer, mask };
            let has_others = thread.has_other_actions(self);
            // The kernel has it already. To ignore a signal once more takes back what is pending of it.
            let is_known = asked == before && is_handler(&asked) && !has_others;
            if !is_known {
                self.set_action(signal as u32, &asked)?;
            }
            if has_others {
                // A child that only shares this memory has actions of its own, which it gives up
                // with the memory: posix_spawn() resets them before it runs the program.
                self.actions[signal] = before;
                let is_ignored = handler == SIG_IGN;
                let kind = only(signal as u32) & ours();
                thread.ignored = thread.ignored & !kind | if is_ignored { kind } else { 0 };
            }
        }
        let words = [before.handler, before.flags as usize, before.restorer, before.mask as usize];
        self.tell_words(thread, context, old, words)
    }

    fn mask_call(&mut self, thread: &mut Thread, context: &mut Context) -> Result<(), Errno> {
        let [how, new, old, bytes, ..] = context.registers.arguments();
        if bytes != MASK_BYTES {
            return Err(EINVAL);
        }
        let before = context.mask & !ours() | thread.pretended_mask;
        if new != 0 {
            let [asked] = self.read_words(thread, context, new).ok_or(EFAULT)?;
            let asked = asked as u64;
            let mask = match how {
                BLOCK => before | asked,
                UNBLOCK => before & !asked,
                SET => asked,
                _ => return Err(EINVAL),
            };
            self.pretend_mask(thread, mask);
            // The handler's return sets the mask.
            context.mask = mask & !(ours() | only(SIGKILL) | only(SIGSTOP));
        }
        self.tell_words(thread, context, old, [before as usize])
    }

    fn pending_call(&mut self, thread: &mut Thread, context: &Context) -> Result<(), Errno> {
        let [set, bytes, ..] = context.registers.arguments();
        if bytes != MASK_BYTES {
            return Err(EINVAL);
        }
        let carrier = if self.fd_signals != 0 { only(CARRIER) } else { 0 };
        let pending = signal::pending() & !(ours() | carrier) | self.parked_for(thread);
        self.tell_words(thread, context, set, [pending as usize])
    }

    fn alternate_call(&mut self, thread: &mut Thread, context: &Context) -> Result<(), Errno> {
        let [new, old, ..] = context.registers.arguments();
        let stack_pointer = context.registers.rsp;
        let before = thread.shown_alternate(stack_pointer);
        if new != 0 {
            let [start, flags, bytes] = self.read_words(thread, context, new).ok_or(EFAULT)?;
            let flags = flags as u32 as i32;
            thread.set_alternate(AlternateStack { start, flags, bytes }, stack_pointer)?;
        }
        let flags = before.flags as u32 as usize;
        self.tell_words(thread, context, old, [before.start, flags, before.bytes])
    }

    /// `rt_sigreturn`: the pager's own return restores what the program's frame says. A signal that
    /// comes before the program goes on so finds the thread where the frame has it.
    fn return_call(&mut self, thread: &mut Thread, context: &mut Context) -> Outcome {
        let frame = context.registers.rsp.wrapping_sub(size_of::<usize>());
        let Some(program) = self.peek_context(frame + offset_of!(Frame, context)) else {
            return Outcome::GoOn;
        };
        self.pretend_mask(thread, program.mask);
        // As Linux since 6.12: a stack that the handler itself is on stays. Nobody minds a wrong one.
        let _ = thread.set_alternate(program.stack, context.registers.rsp);
        if program.registers.fpstate != 0 {
            let address = program.registers.fpstate;
            self.hold(thread, address, FPSTATE_HEAD_BYTES);
            if self.peek(address, &mut [0u8; FPSTATE_HEAD_BYTES]) {
                // SAFETY: readable, by the probe.
                let bytes = unsafe { fpstate_bytes(address) };
                self.hold(thread, address, bytes);
            }
        }
        // The floating-point state is read where the program has it.
        *context = Context { mask: program.mask & !ours(), stack: context.stack, ..program };
        Outcome::Arranged
    }

    fn peek_context(&mut self, address: usize) -> Option<Context> {
        let mut bytes = [0u8; size_of::<Context>()];
        let is_readable = self.peek(address, &mut bytes);
        // SAFETY: plain numbers.
        is_readable.then(|| unsafe { bytes.as_ptr().cast::<Context>().read_unaligned() })
    }
}

impl Thread {
    /// The program's alternate stack as `sigaltstack` tells it at a stack pointer.
    fn shown_alternate(&self, stack_pointer: usize) -> AlternateStack {
        let mode = match &self.alternate {
            none if none.bytes == 0 => SS_DISABLE,
            stack if stack.is_used_at(stack_pointer) => SS_ONSTACK,
            _ => 0,
        };
        AlternateStack { flags: mode | self.alternate.flags & SS_AUTODISARM, ..self.alternate }
    }

    /// Sets it as `sigaltstack` does.
    fn set_alternate(&mut self, asked: AlternateStack, stack_pointer: usize) -> Result<(), Errno> {
        if self.alternate.is_used_at(stack_pointer) {
            return Err(EPERM);
        }
        self.alternate = match asked.flags & !SS_AUTODISARM {
            SS_DISABLE => AlternateStack { start: 0, bytes: 0, ..asked },
            0 | SS_ONSTACK if asked.bytes < STACK_BYTES_MIN => return Err(ENOMEM),
            0 | SS_ONSTACK => asked,
            _ => return Err(EINVAL),
        };
        Ok(())
    }
}

/// The part of the floating-point state that says how long it is.
const FPSTATE_HEAD_BYTES: usize = 512;
