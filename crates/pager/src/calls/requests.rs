//! Requests of asynchronous I/O: what `io_submit` is given.
//!
//! The kernel takes the pages of a direct transfer before the call returns, and holds them until
//! it is done; one that goes by way of the file cache is done by then. So a request's buffers have
//! to be there during the call, as those of a read or a write. While the kernel holds a page
//! `UFFDIO_MOVE` refuses it. Where pages are lifted by copying nothing refuses that: there the
//! buffers leave management.
//!
//! Sources: io_submit(2), include/uapi/linux/aio_abi.h.
//!
//! Bad case: more requests with one call than a thread can hold pages for; the last ones may fail
//! with `EFAULT`.

use zpager_sys::signal::Context;

use super::Outcome;
use super::transfer::{CALL_BYTES_MAX, VECTORS_MAX};
use crate::hold::pages_of;
use crate::process::{Lift, Process};
use crate::threads::Thread;

/// `struct iocb`, and the words of it: what is asked in the low half, where, how much.
const REQUEST_BYTES: usize = 64;
const REQUEST_WORDS: usize = 5;
const ASKED: usize = 2;
const BUFFER: usize = 3;
const LENGTH: usize = 4;
/// Most requests of one call that are looked at.
const REQUESTS_MAX: usize = 1 << 12;
const IOCB_CMD_PREAD: u16 = 0;
const IOCB_CMD_PWRITE: u16 = 1;
const IOCB_CMD_PREADV: u16 = 7;
const IOCB_CMD_PWRITEV: u16 = 8;
const VECTOR_BYTES: usize = 16;

impl Process {
    /// `io_submit`: the context, how many requests, where the pointers to them are.
    pub(super) fn submit_call(&mut self, thread: &mut Thread, context: &Context) -> Outcome {
        let [_, count, list, ..] = context.registers.arguments();
        let count = count.min(REQUESTS_MAX);
        self.hold(thread, list, count * size_of::<usize>());
        for at in 0..count {
            let Some([request]) = self.peek_words(list + at * size_of::<usize>()) else { break };
            // The kernel writes a key into it.
            self.hold_unless_held(thread, request, REQUEST_BYTES);
            let Some(words) = self.peek_words::<REQUEST_WORDS>(request) else { break };
            self.hold_request(thread, words);
        }
        Outcome::GoOn
    }

    /// Has the buffers of a request be there, and stay.
    fn hold_request(&mut self, thread: &mut Thread, words: [usize; REQUEST_WORDS]) {
        let (buffer, length) = (words[BUFFER], words[LENGTH]);
        match words[ASKED] as u16 {
            IOCB_CMD_PREAD | IOCB_CMD_PWRITE => self.hold_transfer(thread, buffer, length),
            IOCB_CMD_PREADV | IOCB_CMD_PWRITEV => {
                let vectors = length.min(VECTORS_MAX);
                self.hold_unless_held(thread, buffer, vectors * VECTOR_BYTES);
                for at in 0..vectors {
                    let words = self.peek_words(buffer + at * VECTOR_BYTES);
                    let Some([address, bytes]) = words else { return };
                    self.hold_transfer(thread, address, bytes);
                }
            }
            _ => {}
        }
    }

    fn hold_transfer(&mut self, thread: &mut Thread, address: usize, bytes: usize) {
        let bytes = bytes.min(CALL_BYTES_MAX);
        match self.lift {
            Lift::Move => self.hold_unless_held(thread, address, bytes),
            Lift::Copy => self.unmanage(pages_of(address, bytes)),
        }
    }

    /// Holds a buffer that may lie with others in pages that are held already.
    fn hold_unless_held(&mut self, thread: &mut Thread, address: usize, bytes: usize) {
        let pages = pages_of(address, bytes);
        let is_within = |&(start, end): &(u64, u64)| start <= pages.start && pages.end <= end;
        // The first is what is lent to another process, which may only read it.
        if !thread.held().iter().skip(1).any(is_within) {
            self.hold(thread, address, bytes);
        }
    }
}
