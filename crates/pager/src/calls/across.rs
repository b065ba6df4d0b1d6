//! `process_vm_readv` and `process_vm_writev`: memory of this process by its own
//! id, and of others. Made in pieces, without the lock, so that both sides of a
//! large transfer are held within the budget; the program sees one call. What is
//! swapped out in another process of the run is asked for ([`super::neighbours`]).
//!
//! Source: process_vm_readv(2). The kernel does not wait in these calls, so that
//! no signal interrupts them.

use zpager_sys::process::{shares_memory, thread_exists};
use zpager_sys::syscall;

use super::Outcome;
use super::neighbours::{self, ASKED_BYTES_MAX};
use super::transfer::{CALL_BYTES_MAX, VECTOR_BYTES, VECTORS_MAX, some_or};
use crate::hold::{Window, peek_words};
use crate::process::Process;
use crate::threads::Thread;

const EFAULT: isize = -14;
/// Times in a row that pages were brought in and were gone again. Where two do this to each other, the one goes on
/// with its next piece, and may need the room, before the other has a processor.
const FUTILE_MAX: u32 = 64;

/// Where a transfer stands in a list of vectors.
#[derive(Debug, Clone, Copy)]
struct Vectors {
    list: usize,
    count: usize,
    vector: usize,
    within_bytes: usize,
}

impl Vectors {
    fn new(list: usize, count: usize) -> Self {
        Vectors { list, count, vector: 0, within_bytes: 0 }
    }

    /// The part that comes next: its address and length. `Some(None)` at the end, `None` where the
    /// list cannot be read.
    fn next(&mut self) -> Option<Option<(usize, usize)>> {
        while self.vector < self.count {
            let [address, bytes] = peek_words(self.list + self.vector * VECTOR_BYTES)?;
            if self.within_bytes < bytes {
                let at = address.wrapping_add(self.within_bytes);
                return Some(Some((at, bytes - self.within_bytes)));
            }
            self.vector += 1;
            self.within_bytes = 0;
        }
        Some(None)
    }
}

/// One of the two calls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Across {
    number: u32,
    process: usize,
    local: Vectors,
    remote: Vectors,
    /// The other process is this one.
    is_own: bool,
    /// The other process is managed in the same run.
    is_neighbour: bool,
    piece_bytes: usize,
}

impl Process {
    pub(super) fn across_call(
        &mut self,
        thread: &mut Thread,
        number: u32,
        arguments: [usize; 6],
    ) -> Outcome {
        let [process, local, local_count, remote, remote_count, flags] = arguments;
        // The kernel refuses these before it looks at any memory.
        if flags != 0 || local_count > VECTORS_MAX || remote_count > VECTORS_MAX {
            return Outcome::GoOn;
        }
        self.hold(thread, local, local_count * VECTOR_BYTES);
        self.hold(thread, remote, remote_count * VECTOR_BYTES);
        let is_own = self.has_memory_of(thread, process as i32);
        let (mut here, mut there) = (Window::new(None), Window::new(None));
        let remote_bytes =
            if is_own { self.managed_bytes(&mut there, remote, remote_count) } else { 0 };
        let local_bytes = self.managed_bytes(&mut here, local, local_count);
        let bytes = local_bytes.saturating_add(remote_bytes);
        let is_neighbour = !is_own && self.neighbour(process as i32).is_some();
        if !is_neighbour && bytes <= self.piece_bytes() {
            self.hold_vectors(thread, &mut here, [local, local_count], false);
            if is_own {
                self.hold_vectors(thread, &mut there, [remote, remote_count], false);
            }
            return Outcome::GoOn;
        }
        Outcome::Across(Across {
            number,
            process,
            local: Vectors::new(local, local_count),
            remote: Vectors::new(remote, remote_count),
            is_own,
            is_neighbour,
            piece_bytes: match is_neighbour {
                true => ASKED_BYTES_MAX,
                false => self.piece_bytes(),
            },
        })
    }

    /// Whether the thread or process `id` has this memory: also a child may share it, one too that
    /// has not run yet or is about to end. The kernel tells; what is managed has memory of its own.
    fn has_memory_of(&self, thread: &Thread, id: i32) -> bool {
        let is_thread = id == thread.pid || thread_exists(thread.pid, id);
        is_thread || self.neighbour(id).is_none() && shares_memory(id)
    }
}

impl Across {
    /// Makes the transfer; gives what the whole call returns.
    pub(super) fn transfer(mut self, thread: &mut Thread) -> isize {
        let mut done = 0;
        while done < CALL_BYTES_MAX {
            let (Some(local), Some(remote)) = (self.local.next(), self.remote.next()) else {
                return some_or(done, EFAULT);
            };
            let (Some((local, local_bytes)), Some((remote, remote_bytes))) = (local, remote) else {
                break;
            };
            let bytes =
                local_bytes.min(remote_bytes).min(self.piece_bytes).min(CALL_BYTES_MAX - done);
            thread.let_go();
            Process::with(|process| {
                process.hold(thread, local, bytes);
                if self.is_own {
                    process.hold(thread, remote, bytes);
                }
            });
            let moved = match self.is_neighbour {
                true => self.call_neighbour(thread, local, remote, bytes),
                false => self.call(local, remote, bytes),
            };
            if moved < 0 {
                return some_or(done, moved);
            }
            done += moved as usize;
            if (moved as usize) < bytes {
                break;
            }
            self.local.within_bytes += bytes;
            self.remote.within_bytes += bytes;
        }
        done as isize
    }

    /// A piece with a process whose pages may be swapped out.
    fn call_neighbour(
        &self,
        thread: &mut Thread,
        local: usize,
        remote: usize,
        bytes: usize,
    ) -> isize {
        let mut done = 0;
        let mut futile = 0;
        loop {
            let rest = bytes - done;
            let moved = self.call(local + done, remote + done, rest);
            if moved > 0 {
                done += moved as usize;
                futile = 0;
            } else if moved != EFAULT {
                return some_or(done, moved);
            }
            if done == bytes || futile == FUTILE_MAX {
                return some_or(done, EFAULT);
            }
            futile += 1;
            if !neighbours::ask(thread, self.process as i32, remote + done, bytes - done) {
                return some_or(done, EFAULT);
            }
        }
    }

    fn call(&self, local: usize, remote: usize, bytes: usize) -> isize {
        let (local, remote) = ([local, bytes], [remote, bytes]);
        let (local, remote) = (local.as_ptr() as usize, remote.as_ptr() as usize);
        // SAFETY: a piece of the program's own call, with its buffers held.
        unsafe { syscall::call(self.number, [self.process, local, 1, remote, 1, 0]) }
    }
}
