//! Requests of asynchronous I/O: what `io_submit` is given.
//!
//! The kernel takes the pages of a direct transfer before the call returns, and holds them until
//! it is done; one that goes by way of the file cache is done by then. So a request's buffers have
//! to be there during the call, as those of a read or a write. While the kernel holds a page
//! `UFFDIO_MOVE` refuses it. Where pages are lifted by copying nothing refuses that: there the
//! buffers leave management.
//!
//! More requests with one call than a thread can hold pages for are submitted in parts, with all
//! signals blocked; the program sees one call.
//!
//! Sources: io_submit(2), include/uapi/linux/aio_abi.h.
//!
//! Bad case: a request of more vectors than can be held; it may fail with `EFAULT`.

use zpager_sys::signal::Context;
use zpager_sys::syscall::{self, nr};

use super::Outcome;
use super::transfer::{CALL_BYTES_MAX, VECTOR_BYTES, VECTORS_MAX, some_or};
use crate::hold::{Window, pages_of};
use crate::process::{Lift, Process};
use crate::threads::Thread;

/// `struct iocb`, and the words of it: what is asked in the low half, where, how much.
const REQUEST_BYTES: usize = 64;
const REQUEST_WORDS: usize = 5;
const ASKED: usize = 2;
const BUFFER: usize = 3;
const LENGTH: usize = 4;
/// What a request holds besides its vectors: its place in the list, itself, and its list of vectors
/// or its buffer.
const HOLDS_BESIDES: usize = 3;
const IOCB_CMD_PREAD: u16 = 0;
const IOCB_CMD_PWRITE: u16 = 1;
const IOCB_CMD_PREADV: u16 = 7;
const IOCB_CMD_PWRITEV: u16 = 8;

/// A call that is made in parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Submission {
    context: usize,
    count: isize,
    list: usize,
}

impl Submission {
    /// Where the pointer to a request is.
    fn place(&self, at: isize) -> usize {
        self.list.wrapping_add(at as usize * size_of::<usize>())
    }

    /// Submits all; gives what the whole call returns.
    pub(super) fn submit(&self, thread: &mut Thread) -> isize {
        let mut done = 0;
        while done < self.count {
            thread.let_go();
            let held = Process::with(|process| process.hold_requests(thread, self, done));
            let part = held.unwrap_or(self.count - done);
            let arguments = [self.context, part as usize, self.place(done), 0, 0, 0];
            // SAFETY: a part of the program's own call, with its buffers held.
            let submitted = unsafe { syscall::call(nr::__NR_io_submit, arguments) };
            if submitted < 0 {
                return some_or(done as usize, submitted);
            }
            done += submitted;
            if submitted < part {
                break;
            }
        }
        done
    }
}

impl Process {
    /// `io_submit`: the context, how many requests, where the pointers to them are.
    pub(super) fn submit_call(&mut self, thread: &mut Thread, context: &Context) -> Outcome {
        let [context, count, list, ..] = context.registers.arguments();
        let submission = Submission { context, count: count as isize, list };
        self.may_pin = true;
        if self.hold_requests(thread, &submission, 0) == submission.count {
            return Outcome::GoOn;
        }
        Outcome::Submission(submission)
    }

    /// Holds the requests from number `first` on, as many as may be held at a time but one at least;
    /// gives how many, and all of them where one cannot be read, at which the kernel stops.
    fn hold_requests(
        &mut self,
        thread: &mut Thread,
        submission: &Submission,
        first: isize,
    ) -> isize {
        let (mut places, mut requests) = (Window::new(None), Window::new(None));
        for at in first..submission.count {
            let place = submission.place(at);
            let request = self.peek_words_through(&mut places, place);
            let Some([request]) = request else { break };
            let words = self.peek_words_through(&mut requests, request);
            let Some(words): Option<[usize; REQUEST_WORDS]> = words else { break };
            let vectors = match words[ASKED] as u16 {
                IOCB_CMD_PREADV | IOCB_CMD_PWRITEV => words[LENGTH].min(VECTORS_MAX),
                _ => 0,
            };
            if at > first && thread.holds_left() < HOLDS_BESIDES + vectors {
                return at - first;
            }
            self.hold_unless_held(thread, place, size_of::<usize>());
            // The kernel writes a key into it.
            self.hold_unless_held(thread, request, REQUEST_BYTES);
            self.hold_request(thread, words);
        }
        submission.count - first
    }

    /// Has the buffers of a request be there, and stay.
    fn hold_request(&mut self, thread: &mut Thread, words: [usize; REQUEST_WORDS]) {
        let (buffer, length) = (words[BUFFER], words[LENGTH]);
        match words[ASKED] as u16 {
            IOCB_CMD_PREAD | IOCB_CMD_PWRITE => self.hold_transfer(thread, buffer, length),
            IOCB_CMD_PREADV | IOCB_CMD_PWRITEV => {
                let vectors = length.min(VECTORS_MAX);
                self.hold_unless_held(thread, buffer, vectors * VECTOR_BYTES);
                let mut window = Window::new(None);
                for at in 0..vectors {
                    let place = buffer + at * VECTOR_BYTES;
                    let words = self.peek_words_through(&mut window, place);
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
