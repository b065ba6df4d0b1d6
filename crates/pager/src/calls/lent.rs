//! Pages that the kernel has after a call: `vmsplice` leaves them in a pipe, `MSG_ZEROCOPY` on their
//! way to a network. It counts references to them but does not pin them, so that they can be
//! swapped out meanwhile. What they held then stays what is read from the pipe or sent, as the RAM
//! of a page that was swapped out is given back, not used again ([`crate::spares`]).
//!
//! Sources: vmsplice(2); Documentation/networking/msg_zerocopy.rst; fs/splice.c of Linux
//! (`iter_to_pipe`, which fills the pipe once and returns).
//!
//! Bad case: a program that changes a page that is in a pipe, or that it still has after a gift, and
//! counts on the reader to see the change; it does only while the page has not been swapped out.

use zpager_sys::signal::Context;
use zpager_sys::syscall::{self, nr};

use super::Outcome;
use super::stream::MSG_ZEROCOPY;
use super::transfer::{VECTOR_BYTES, VECTORS_MAX};
use crate::hold::{Sure, Window};
use crate::process::Process;
use crate::threads::Thread;

const F_GETPIPE_SZ: usize = 1032;

impl Process {
    /// `vmsplice`: descriptor, vectors, their number, flags. No more of them than the pipe takes is
    /// held.
    pub(super) fn splice_call(&mut self, thread: &mut Thread, context: &Context) -> Outcome {
        let [pipe, vectors, count, ..] = context.registers.arguments();
        let count = count.min(VECTORS_MAX);
        self.lends_pages = true;
        // SAFETY: asks for the pipe's size.
        let size = unsafe { syscall::call(nr::__NR_fcntl, [pipe, F_GETPIPE_SZ, 0, 0, 0, 0]) };
        let mut left = usize::try_from(size).unwrap_or(0);
        self.hold(thread, vectors, count * VECTOR_BYTES);
        let mut window = Window::new(Some(Sure::of(thread, context)));
        for at in 0..count {
            let words = self.peek_words_through(&mut window, vectors + at * VECTOR_BYTES);
            let Some([address, bytes]) = words else { break };
            let bytes = bytes.min(left);
            self.hold(thread, address, bytes);
            left -= bytes;
        }
        Outcome::GoOn
    }

    /// Notes what a call that sends does with its pages.
    pub(super) fn note_flags(&mut self, flags: usize) {
        self.lends_pages |= flags & MSG_ZEROCOPY != 0;
    }
}
