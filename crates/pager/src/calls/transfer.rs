//! Reads and writes. Small ones hold their buffers and go on; large ones into or
//! out of managed memory are made in pieces, so that a buffer larger than the
//! budget can be filled; the program sees one call.
//!
//! Those of regular files are made here, with all signals blocked: that is what
//! the kernel does by itself for them, whose transfers are not interrupted. At a
//! file's own position they are made whole as long as that takes a part of the
//! budget only: others may append to the file, or read by the same position, and
//! what each of them does with one call stays together.
//! Pieces of pipes and stream sockets are [`super::stream`]'s. A message that may
//! not be cut is made whole, and exceeds the budget rather than break.
//!
//! `getrandom` is a read as well, of no file.
//!
//! A transfer with a file of `/proc` at a position that is an address of managed
//! memory is one with `/proc/self/mem`: the memory there is held as well.
//!
//! Bad case: records longer than that part of the budget, which several processes append to a file at
//! the same time: pieces of them may alternate.

use zpager_sys::PAGE_BYTES;
use zpager_sys::signal::Context;
use zpager_sys::syscall::{self, nr};

use super::Outcome;
use super::stream::{Descriptor, descriptor};
use crate::hold::{Sure, Window, peek_words};
use crate::process::{MEMORY_FILES, Process};
use crate::threads::Thread;

const PIECE_BYTES_MAX: usize = 1 << 20;
const PIECE_BYTES_MIN: usize = 64 << 10;
/// Part of the budget that one piece may take.
const PIECE_PART: usize = 32;
/// Part of the budget that buffers of a device, and those of files together, may take whole.
const WHOLE_PART: usize = 2;
/// `IOV_MAX`.
pub(super) const VECTORS_MAX: usize = 1024;
/// `struct iovec`.
pub(super) const VECTOR_BYTES: usize = 16;
/// `MAX_RW_COUNT`: the kernel itself transfers no more in one call.
pub(super) const CALL_BYTES_MAX: usize = 0x7fff_f000;
const SEEK_CUR: usize = 1;
const EINVAL: isize = -22;
const EFAULT: isize = -14;

/// What memory is exchanged with.
#[derive(Debug, Clone, Copy)]
enum End {
    /// The file of a descriptor.
    File(usize),
    /// The kernel's random bytes, with the flags of the call.
    Random(usize),
}

/// A transfer, one buffer or several, at the file's position or at a given one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pieces {
    writes: bool,
    end: End,
    /// The buffer's address and length, or the vectors' address and number.
    at: usize,
    length: usize,
    is_vector: bool,
    /// Position in the file, if the call names one.
    offset: Option<usize>,
    /// Where in memory it begins, if the file may be `/proc/self/mem`.
    memory: Option<usize>,
    /// All that it takes is held.
    is_whole: bool,
    piece_bytes: usize,
}

impl Process {
    pub(super) fn piece_bytes(&self) -> usize {
        // Of a run that is recorded every buffer is longer than what is resident.
        let part = match self.recorder {
            None => self.control.settings.budget_bytes as usize / PIECE_PART,
            Some(_) => 0,
        };
        part.clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX) & !(PAGE_BYTES - 1)
    }

    pub(super) fn transfer_call(&mut self, thread: &mut Thread, context: &mut Context) -> Outcome {
        if let Some(outcome) = self.signal_read(thread, context) {
            return outcome;
        }
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
            end: End::File(fd),
            at,
            length,
            is_vector: !matches!(
                number,
                nr::__NR_read | nr::__NR_write | nr::__NR_pread64 | nr::__NR_pwrite64
            ),
            offset: (names_offset && !at_position).then_some(offset),
            memory: self.memory_position(fd, (names_offset && !at_position).then_some(offset)),
            is_whole: false,
            piece_bytes: self.piece_bytes(),
        };
        let new_window = || Window::new(Some(Sure::of(thread, context)));
        let mut window = pieces.is_vector.then(new_window);
        let bytes = match &mut window {
            Some(window) => self.managed_bytes(window, at, length),
            None if self.is_managed(at, length) => length,
            None => 0,
        };
        let has_flags = number >= nr::__NR_preadv2 && flags != 0;
        let bytes = match pieces.memory {
            None => bytes,
            Some(position) => {
                let all_bytes =
                    window.as_mut().map_or(length, |window| self.sum(window, at, length));
                if all_bytes <= pieces.piece_bytes {
                    self.hold(thread, position, all_bytes);
                }
                all_bytes
            }
        };
        if bytes > pieces.piece_bytes && !has_flags {
            match descriptor(fd) {
                Descriptor::File(file_bytes) => {
                    let window = window.as_mut();
                    let pieces = self.whole(thread, window, pieces, bytes, file_bytes);
                    return Outcome::Transfer(pieces);
                }
                Descriptor::MessageSocket => {}
                // With a place in the file it is none of these, and the kernel says so.
                _ if names_offset => {}
                Descriptor::Other if bytes <= self.whole_bytes_max() => {}
                kind => return self.begin_pieces(thread, context, kind, [0; 7]),
            }
        }
        match &mut window {
            Some(window) => self.hold_vectors(thread, window, [at, length], pieces.writes),
            None => self.hold_for(thread, at, length, pieces.writes),
        }
        Outcome::GoOn
    }

    /// `getrandom`: buffer, its length, flags.
    pub(super) fn random_call(&mut self, thread: &mut Thread, arguments: [usize; 6]) -> Outcome {
        let [at, length, flags, ..] = arguments;
        let piece_bytes = self.piece_bytes();
        if length <= piece_bytes || !self.is_managed(at, length) {
            self.hold(thread, at, length);
            return Outcome::GoOn;
        }
        Outcome::Transfer(Pieces {
            writes: false,
            end: End::Random(flags),
            at,
            length,
            is_vector: false,
            offset: None,
            memory: None,
            is_whole: false,
            piece_bytes,
        })
    }

    /// A transfer of `bytes` of managed memory with a file: with all of it held if it is at the file's
    /// own position and little enough. A call that has vectors has a window for them.
    fn whole(
        &mut self,
        thread: &mut Thread,
        window: Option<&mut Window>,
        pieces: Pieces,
        bytes: usize,
        file_bytes: usize,
    ) -> Pieces {
        let Pieces { at, writes, is_vector, piece_bytes, .. } = pieces;
        if pieces.offset.is_some() || pieces.memory.is_some() {
            return pieces;
        }
        // A buffer may be much longer than what there is to read.
        let left = if writes { CALL_BYTES_MAX } else { pieces.left_bytes(file_bytes) };
        let length = if is_vector { pieces.length } else { pieces.length.min(left) };
        let held_bytes = if is_vector { bytes } else { length };
        let most = left.min(self.file_bytes_max());
        if held_bytes <= piece_bytes || held_bytes > most {
            return pieces;
        }
        match window {
            Some(window) => self.hold_vectors(thread, window, [at, length], writes),
            None => self.hold_for(thread, at, length, writes),
        }
        Pieces { length, is_whole: true, ..pieces }
    }

    /// Most bytes that one more transfer with a file may hold. The run's processes have one budget, and
    /// so have the threads of each.
    fn file_bytes_max(&self) -> usize {
        // Of a run that is recorded every buffer is longer than what is resident.
        if self.recorder.is_some() {
            return 0;
        }
        let own_part = self.whole_bytes_max() / self.control.processes.count().max(1) as usize;
        own_part.saturating_sub(self.threads.held_pages() as usize * PAGE_BYTES)
    }

    /// The address of managed memory at which a file is read or written, if it may be one.
    fn memory_position(&self, fd: usize, offset: Option<usize>) -> Option<usize> {
        let position = match offset {
            None if self.memory_files[fd % MEMORY_FILES] == fd as i32 => position(fd)?,
            offset => offset?,
        };
        (self.is_managed(position, 1) && is_in_proc(fd)).then_some(position)
    }

    /// `lseek`: remembers files whose position is an address of managed memory.
    pub(super) fn seek_call(&mut self, context: &Context) -> Outcome {
        let [fd, offset, ..] = context.registers.arguments();
        if self.is_managed(offset, 1) {
            self.memory_files[fd % MEMORY_FILES] = fd as i32;
        }
        Outcome::GoOn
    }

    fn whole_bytes_max(&self) -> usize {
        self.control.settings.budget_bytes as usize / WHOLE_PART
    }

    /// Bytes of vectors that lie in managed memory.
    pub(super) fn managed_bytes(
        &mut self,
        window: &mut Window,
        vectors: usize,
        count: usize,
    ) -> usize {
        self.sum_of(window, vectors, count, Self::is_managed)
    }

    /// Bytes of vectors.
    fn sum(&mut self, window: &mut Window, vectors: usize, count: usize) -> usize {
        self.sum_of(window, vectors, count, |_, _, _| true)
    }

    /// Bytes of those vectors, given as address and length, that count.
    fn sum_of(
        &mut self,
        window: &mut Window,
        vectors: usize,
        count: usize,
        counts: impl Fn(&Self, usize, usize) -> bool,
    ) -> usize {
        let mut sum = 0usize;
        for at in 0..count.min(VECTORS_MAX) {
            if let Some([address, bytes]) =
                self.peek_words_through(window, vectors + at * VECTOR_BYTES)
                && counts(self, address, bytes)
            {
                sum = sum.saturating_add(bytes);
            }
        }
        sum
    }

    /// Holds a buffer that the kernel only reads, if the call `writes` it to a file.
    pub(super) fn hold_for(&mut self, thread: &mut Thread, at: usize, bytes: usize, writes: bool) {
        match writes {
            true => self.hold_to_read(thread, at, bytes),
            false => self.hold(thread, at, bytes),
        }
    }

    /// Holds so many vectors at an address and what they name; the kernel only reads that if the call `writes` it.
    pub(super) fn hold_vectors(
        &mut self,
        thread: &mut Thread,
        window: &mut Window,
        [at, vectors]: [usize; 2],
        writes: bool,
    ) {
        let vectors = vectors.min(VECTORS_MAX);
        self.hold_to_read(thread, at, vectors * VECTOR_BYTES);
        for vector in 0..vectors {
            let words = self.peek_words_through(window, at + vector * VECTOR_BYTES);
            if let Some([address, bytes]) = words {
                self.hold_for(thread, address, bytes.min(CALL_BYTES_MAX), writes);
            }
        }
    }
}

/// Where the next transfer with a file begins, if it has such a place.
fn position(fd: usize) -> Option<usize> {
    // SAFETY: asks for the position.
    let asked = unsafe { syscall::call(nr::__NR_lseek, [fd, 0, SEEK_CUR, 0, 0, 0]) };
    usize::try_from(asked).ok()
}

/// Whether a descriptor is a file of `/proc`.
fn is_in_proc(fd: usize) -> bool {
    const PROC_SUPER_MAGIC: u64 = 0x9fa0;
    let mut status = [0u64; 15];
    // SAFETY: struct statfs has 120 bytes, the first word of which is the type.
    let asked =
        unsafe { syscall::call(nr::__NR_fstatfs, [fd, status.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    asked == 0 && status[0] == PROC_SUPER_MAGIC
}

impl Pieces {
    /// Bytes from the position to the end of a file of so many, in whole pages: a direct read asks for
    /// whole blocks.
    fn left_bytes(&self, file_bytes: usize) -> usize {
        let End::File(fd) = self.end else { return 0 };
        let before = position(fd).unwrap_or(usize::MAX);
        file_bytes.saturating_sub(before).next_multiple_of(PAGE_BYTES)
    }

    /// Makes the transfer; gives what the whole call returns.
    pub(super) fn transfer(&self, thread: &mut Thread) -> isize {
        if self.is_whole {
            let moved = self.call(self.at, self.length, 0);
            // The program may go on for long without another call.
            thread.let_go();
            return moved;
        }
        if !self.is_vector {
            return self.transfer_buffer(thread, self.at, self.length.min(CALL_BYTES_MAX), 0);
        }
        if self.length > VECTORS_MAX {
            return EINVAL;
        }
        let mut done = 0;
        for vector in 0..self.length {
            let words = peek_words(self.at + vector * VECTOR_BYTES);
            let Some([address, bytes]) = words else { return some_or(done, EFAULT) };
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
            Process::with(|process| {
                process.hold_for(thread, at + done, piece, self.writes);
                if let Some(start) = self.memory {
                    process.hold_for(thread, start + before + done, piece, !self.writes);
                }
            });
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
        let fd = match self.end {
            End::File(fd) => fd,
            End::Random(flags) => {
                // SAFETY: as below.
                return unsafe { syscall::call(nr::__NR_getrandom, [at, bytes, flags, 0, 0, 0]) };
            }
        };
        let number = match (self.writes, self.offset, self.is_whole && self.is_vector) {
            (false, None, false) => nr::__NR_read,
            (false, None, true) => nr::__NR_readv,
            (false, Some(_), _) => nr::__NR_pread64,
            (true, None, false) => nr::__NR_write,
            (true, None, true) => nr::__NR_writev,
            (true, Some(_), _) => nr::__NR_pwrite64,
        };
        let offset = self.offset.map_or(0, |offset| offset + done);
        // SAFETY: the program's own call, or a piece of it, with its buffers held.
        unsafe { syscall::call(number, [fd, at, bytes, offset, 0, 0]) }
    }
}

/// What was done before an error counts; the error comes with the next call.
pub(super) fn some_or(done: usize, error: isize) -> isize {
    if done > 0 { done as isize } else { error }
}
