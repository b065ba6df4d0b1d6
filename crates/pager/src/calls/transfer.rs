//! Reads and writes. Small ones hold their buffers and go on; large ones into or
//! out of managed memory are made in pieces, so that a buffer larger than the
//! budget can be filled; the program sees one call.
//!
//! Pieces are made with all signals blocked. That is what the kernel does by
//! itself for regular files, whose transfers are not interrupted. A large
//! transfer with a pipe or socket is made whole as long as half of the budget
//! holds its buffer, so that signals interrupt it as ever.

use zpager_sys::PAGE_BYTES;
use zpager_sys::signal::Context;
use zpager_sys::syscall::{self, nr};

use super::Outcome;
use crate::process::Process;
use crate::threads::Thread;

const PIECE_BYTES_MAX: usize = 1 << 20;
const PIECE_BYTES_MIN: usize = 64 << 10;
/// Part of the budget that one piece may take.
const PIECE_PART: usize = 32;
/// Part of the budget that a buffer of a pipe or socket may take whole.
const STREAM_PART: usize = 2;
/// `IOV_MAX`.
const VECTORS_MAX: usize = 1024;
/// `MAX_RW_COUNT`: the kernel itself transfers no more in one call.
const CALL_BYTES_MAX: usize = 0x7fff_f000;
const EINVAL: isize = -22;
const EFAULT: isize = -14;

/// A transfer, one buffer or several, at the file's position or at a given one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pieces {
    writes: bool,
    fd: usize,
    /// The buffer's address and length, or the vectors' address and number.
    at: usize,
    length: usize,
    is_vector: bool,
    /// Position in the file, if the call names one.
    offset: Option<usize>,
    piece_bytes: usize,
}

impl Process {
    fn piece_bytes(&self) -> usize {
        let part = self.control.settings.budget_bytes as usize / PIECE_PART;
        part.clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX) & !(PAGE_BYTES - 1)
    }

    pub(super) fn transfer_call(&mut self, thread: &mut Thread, context: &Context) -> Outcome {
        let number = context.registers.rax as u32;
        let [fd, at, length, offset, _, flags] = context.registers.arguments();
        let names_offset =
            !matches!(number, nr::__NR_read | nr::__NR_write | nr::__NR_readv | nr::__NR_writev);
        // preadv2 and pwritev2 take -1 for the file's position, and flags, which pieces cannot carry.
        let at_position = offset as isize == -1 && number >= nr::__NR_preadv2;
        let pieces = Pieces {
            writes: matches!(
                number,
                nr::__NR_write
                    | nr::__NR_writev
                    | nr::__NR_pwrite64
                    | nr::__NR_pwritev
                    | nr::__NR_pwritev2
            ),
            fd,
            at,
            length,
            is_vector: !matches!(
                number,
                nr::__NR_read | nr::__NR_write | nr::__NR_pread64 | nr::__NR_pwrite64
            ),
            offset: (names_offset && !at_position).then_some(offset),
            piece_bytes: self.piece_bytes(),
        };
        if pieces.is_vector {
            let bytes = self.hold_or_sum(thread, &pieces);
            let has_flags = number >= nr::__NR_preadv2 && flags != 0;
            if bytes <= pieces.piece_bytes || has_flags || !self.goes_in_pieces(&pieces, bytes) {
                thread.let_go();
                self.hold_vectors(thread, at, length, pieces.writes);
                return Outcome::GoOn;
            }
            thread.let_go();
            return Outcome::Transfer(pieces);
        }
        let is_large = length > pieces.piece_bytes && self.is_managed(at, length);
        if is_large && self.goes_in_pieces(&pieces, length) {
            return Outcome::Transfer(pieces);
        }
        self.hold_for(thread, at, length, pieces.writes);
        Outcome::GoOn
    }

    /// Sum of the lengths of vectors that lie in managed memory.
    fn hold_or_sum(&mut self, thread: &mut Thread, pieces: &Pieces) -> usize {
        self.hold_to_read(thread, pieces.at, pieces.length.min(VECTORS_MAX) * 16);
        let mut sum = 0usize;
        for at in 0..pieces.length.min(VECTORS_MAX) {
            if let Some([address, bytes]) = self.peek_words(pieces.at + at * 16)
                && self.is_managed(address, bytes)
            {
                sum = sum.saturating_add(bytes);
            }
        }
        sum
    }

    fn goes_in_pieces(&self, pieces: &Pieces, bytes: usize) -> bool {
        let whole_bytes_max = self.control.settings.budget_bytes as usize / STREAM_PART;
        bytes > whole_bytes_max || is_regular_file(pieces.fd)
    }

    /// Holds a buffer that the kernel only reads, if the call `writes` it to a file.
    fn hold_for(&mut self, thread: &mut Thread, at: usize, bytes: usize, writes: bool) {
        match writes {
            true => self.hold_to_read(thread, at, bytes),
            false => self.hold(thread, at, bytes),
        }
    }

    /// Holds the vectors at `at` and what they name; the kernel only reads that if the call `writes` it.
    pub(super) fn hold_vectors(
        &mut self,
        thread: &mut Thread,
        at: usize,
        vectors: usize,
        writes: bool,
    ) {
        let vectors = vectors.min(VECTORS_MAX);
        self.hold_to_read(thread, at, vectors * 16);
        for vector in 0..vectors {
            if let Some([address, bytes]) = self.peek_words(at + vector * 16) {
                self.hold_for(thread, address, bytes.min(CALL_BYTES_MAX), writes);
            }
        }
    }
}

/// Whether a descriptor is a regular file or a block device.
fn is_regular_file(fd: usize) -> bool {
    const MODE_WORD: usize = 6;
    const TYPE_MASK: u32 = 0o170_000;
    const REGULAR: u32 = 0o100_000;
    const BLOCK: u32 = 0o060_000;
    let mut status = [0u32; 36];
    let arguments = [fd, status.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: struct stat has 144 bytes.
    let result = unsafe { syscall::call(nr::__NR_fstat, arguments) };
    let kind = status[MODE_WORD] & TYPE_MASK;
    result == 0 && (kind == REGULAR || kind == BLOCK)
}

impl Pieces {
    /// Makes the transfer; gives what the whole call returns.
    pub(super) fn transfer(&self, thread: &mut Thread) -> isize {
        if !self.is_vector {
            return self.transfer_buffer(thread, self.at, self.length.min(CALL_BYTES_MAX), 0);
        }
        if self.length > VECTORS_MAX {
            return EINVAL;
        }
        let mut done = 0;
        for vector in 0..self.length {
            let words = Process::with(|process| process.peek_words(self.at + vector * 16));
            let Some(Some([address, bytes])) = words else { return some_or(done, EFAULT) };
            let bytes = bytes.min(CALL_BYTES_MAX - done);
            let moved = self.transfer_buffer(thread, address, bytes, done);
            if moved < 0 {
                return some_or(done, moved);
            }
            done += moved as usize;
            if (moved as usize) < bytes {
                break;
            }
        }
        done as isize
    }

    /// Transfers one buffer, `before` bytes of the call being done.
    fn transfer_buffer(
        &self,
        thread: &mut Thread,
        at: usize,
        bytes: usize,
        before: usize,
    ) -> isize {
        let mut done = 0;
        while done < bytes {
            let piece = self.piece_bytes.min(bytes - done);
            thread.let_go();
            Process::with(|process| process.hold_for(thread, at + done, piece, self.writes));
            let moved = self.call(at + done, piece, before + done);
            if moved < 0 {
                return some_or(done, moved);
            }
            done += moved as usize;
            if (moved as usize) < piece {
                break;
            }
        }
        done as isize
    }

    fn call(&self, at: usize, bytes: usize, done: usize) -> isize {
        let number = match (self.writes, self.offset) {
            (false, None) => nr::__NR_read,
            (false, Some(_)) => nr::__NR_pread64,
            (true, None) => nr::__NR_write,
            (true, Some(_)) => nr::__NR_pwrite64,
        };
        let offset = self.offset.map_or(0, |offset| offset + done);
        // SAFETY: a piece of the program's own call, with its buffer held.
        unsafe { syscall::call(number, [self.fd, at, bytes, offset, 0, 0]) }
    }
}

/// What was done before an error counts; the error comes with the next call.
fn some_or(done: usize, error: isize) -> isize {
    if done > 0 { done as isize } else { error }
}
