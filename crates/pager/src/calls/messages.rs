//! `sendmmsg` and `recvmmsg`: several messages with one call, as many of them at
//! a time as may be held; the program sees one call.
//!
//! Like the pieces of [`super::stream`], each part is made by the program's thread
//! from a stub that leads to the trap of [`stubs`]. A message is never cut: one
//! that is larger than a piece is held whole. What the kernel counts is added up,
//! and a part that does fewer than it was asked for ends the call, as do, between
//! two parts, what ends the kernel's own loop: out-of-band data, and a time that
//! has run out. The kernel keeps the rest of the time where the program gave it.
//!
//! Source: sendmmsg(2), recvmmsg(2); net/socket.c of Linux (`do_recvmmsg`).
//!
//! Bad case: an error in the first message of a later part. The call returns what
//! was done, and the error is not told by the next one.

use zpager_sys::signal::{Context, Registers};
use zpager_sys::syscall::nr;

use super::Outcome;
use crate::hold::{Sure, Window};
use crate::process::Process;
use crate::stubs;
use crate::threads::Thread;

/// More the kernel does not send with one call.
const SENT_MAX: usize = 1024;
/// `struct mmsghdr`: `struct msghdr` and a length.
const STEP_BYTES: usize = 64;
const EINTR: isize = -4;
const MSG_OOB: usize = 1;
const MSG_DONTWAIT: usize = 0x40;
const MSG_WAITFORONE: usize = 0x1_0000;
/// Words of `struct msghdr`.
const VECTORS: usize = 2;
const VECTOR_COUNT: usize = 3;
const FLAGS: usize = 6;
/// What a message has held besides its vectors: header, name, list of vectors, control data; and
/// the call its time.
const HOLDS_BESIDES: usize = 5;

/// A call that is made in parts, between two of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Messages {
    /// The program's registers at the call; its `rip` is behind the `syscall`.
    before: Registers,
    /// Messages done, and asked for with the part that is under way.
    done: usize,
    asked: usize,
    /// A signal of the pager's own may have ended the part early.
    pub(crate) is_disturbed: bool,
}

impl Messages {
    fn receives(&self) -> bool {
        self.before.rax as u32 == nr::__NR_recvmmsg
    }

    fn count(&self) -> usize {
        let asked = self.before.arguments()[2] as u32 as usize;
        if self.receives() { asked } else { asked.min(SENT_MAX) }
    }

    fn at(&self, message: usize) -> usize {
        self.before.arguments()[1].wrapping_add(message * STEP_BYTES)
    }

    /// Where the program has the time that the call may take, if it has one.
    fn time(&self) -> Option<usize> {
        let time = self.before.arguments()[4];
        (self.receives() && time != 0).then_some(time)
    }
}

impl Process {
    /// `sendmmsg`, `recvmmsg`: descriptor, messages, their number, flags, time.
    pub(super) fn messages_call(&mut self, thread: &mut Thread, context: &mut Context) -> Outcome {
        let before = context.registers;
        self.note_flags(before.arguments()[3]);
        let messages = Messages { before, done: 0, asked: 0, is_disturbed: false };
        let sure = Sure::of(thread, context);
        let asked = self.hold_messages(thread, sure, &messages);
        if asked == messages.count() {
            return Outcome::GoOn;
        }
        thread.messages = Some(messages);
        self.next_messages(thread, context, asked);
        Outcome::Arranged
    }

    /// Holds the next messages, as many as may be held at a time but one at least; gives how many.
    fn hold_messages(&mut self, thread: &mut Thread, sure: Sure, messages: &Messages) -> usize {
        if let Some(time) = messages.time() {
            self.hold(thread, time, 2 * size_of::<usize>());
        }
        let (mut headers, mut lists) = (Window::new(Some(sure)), Window::new(Some(sure)));
        let mut bytes = 0;
        for message in messages.done..messages.count() {
            let at = messages.at(message);
            // The kernel stops at one that cannot be read.
            let Some(header) = self.peek_words_through(&mut headers, at) else { break };
            bytes += self.managed_bytes(&mut lists, header[VECTORS], header[VECTOR_COUNT]);
            let holds = header[VECTOR_COUNT].saturating_add(HOLDS_BESIDES);
            let is_first = message == messages.done;
            if !is_first && (bytes > self.piece_bytes() || holds > thread.holds_left()) {
                return message - messages.done;
            }
            self.hold(thread, at, STEP_BYTES);
            self.hold_named(thread, &mut lists, header);
        }
        messages.count() - messages.done
    }

    /// Has the thread make the next part, of `asked` messages that are held.
    fn next_messages(&mut self, thread: &mut Thread, context: &mut Context, asked: usize) {
        let Some(messages) = thread.messages.as_mut() else { return };
        messages.asked = asked;
        let waits_no_more = messages.done > 0 && messages.receives();
        let registers = &mut context.registers;
        let (eflags, fpstate) = (registers.eflags, registers.fpstate);
        *registers = Registers { eflags, fpstate, ..messages.before };
        (registers.rsi, registers.rdx) = (messages.at(messages.done), asked);
        if waits_no_more && registers.r10 & MSG_WAITFORONE != 0 {
            registers.r10 |= MSG_DONTWAIT;
        }
        registers.rip = stubs::to_trap();
        thread.call = registers.rax;
    }

    /// A part has been made: has the thread make the next one, or ends the call. False where there
    /// is no such call.
    pub(super) fn messages_done(&mut self, thread: &mut Thread, context: &mut Context) -> bool {
        let result = context.registers.rax as isize;
        let goes_on = thread.count_messages(result);
        let Some(messages) = thread.messages else { return false };
        if goes_on && !self.is_last(&messages) {
            let sure = Sure::of(thread, context);
            let asked = self.hold_messages(thread, sure, &messages);
            self.next_messages(thread, context, asked);
        } else {
            thread.end_messages(context, result);
        }
        true
    }

    /// Whether nothing more is received after the last message, as out-of-band data came with it
    /// or the time has run out.
    fn is_last(&mut self, messages: &Messages) -> bool {
        let time = messages.time().and_then(|time| self.peek_words::<2>(time));
        let header = self.peek_words::<7>(messages.at(messages.done.saturating_sub(1)));
        let is_urgent = header.is_some_and(|header| header[FLAGS] & MSG_OOB != 0);
        time == Some([0, 0]) || messages.receives() && is_urgent
    }

    /// A signal of the program's came: in its terms the call is to be made yet, or done. False
    /// where there is no such call.
    pub(crate) fn interrupt_messages(
        &mut self,
        thread: &mut Thread,
        context: &mut Context,
        is_made: bool,
    ) -> bool {
        let result = if is_made { context.registers.rax as isize } else { EINTR };
        thread.count_messages(result);
        let Some(messages) = thread.messages else { return false };
        thread.end_messages(context, result);
        if !is_made && messages.done == 0 {
            // The kernel makes it again: from the program's own instruction.
            context.registers.rax = messages.before.rax;
            context.registers.rip -= stubs::SYSCALL_BYTES;
        }
        true
    }
}

impl Thread {
    /// Counts what a part did; gives whether another one follows.
    fn count_messages(&mut self, result: isize) -> bool {
        let Some(messages) = self.messages.as_mut() else { return false };
        let is_disturbed = core::mem::take(&mut messages.is_disturbed);
        if result <= 0 {
            return false;
        }
        messages.done += result as usize;
        let is_whole = result as usize >= messages.asked || is_disturbed;
        is_whole && messages.done < messages.count()
    }

    /// The program's registers are its own again, and have the result.
    fn end_messages(&mut self, context: &mut Context, result: isize) {
        let Some(messages) = self.messages.take() else { return };
        let (eflags, fpstate) = (context.registers.eflags, context.registers.fpstate);
        let rax = if messages.done > 0 { messages.done } else { result as usize };
        context.registers = Registers { rax, eflags, fpstate, ..messages.before };
    }
}
