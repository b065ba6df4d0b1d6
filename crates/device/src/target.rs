//! What the protocol needs of what it exports.
//!
//! A request is done in pieces ([`Worker::piece_bytes`]), each of which lies in the buffers of the
//! connection's own worker. Any number of connections may do so at the same time.

use zpager_cache::Lost;

use crate::device::BLOCK_BYTES;
use crate::reads::{Made, Plan};
use crate::statistics::Status;
use crate::worker::Worker;

/// Why something was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// There is no room for it.
    NoSpace,
    /// What lies behind the pool failed.
    Io,
}

impl From<Lost> for Refused {
    fn from(_: Lost) -> Self {
        Refused::Io
    }
}

/// A row of bytes that clients read and write.
pub trait Target {
    /// Its size.
    fn size_bytes(&self) -> u64;

    /// Buffers for one connection, if there is memory for them.
    fn connect(&self) -> Option<Worker>;

    /// Notes that a connection is gone, with its buffers.
    fn disconnect(&self, worker: Worker);

    /// Pages of buffers for what a connection has read beside its other requests; 0 where it has nothing read.
    fn buffer_pages(&self) -> usize {
        0
    }

    /// What is to be read of files before a range can be read without waiting for any, besides what was
    /// read for it already. A long range is looked at in part.
    fn plan(&self, offset_bytes: u64, bytes: usize, made: &Made<'_>) -> Plan {
        let _ = (offset_bytes, bytes, made);
        Plan::default()
    }

    /// Reads a piece into the worker; gives where its bytes are. What was read for it is not read again.
    ///
    /// # Errors
    /// [`Refused::Io`]; nothing of it was read.
    fn read_with<'a>(
        &self,
        worker: &'a mut Worker,
        offset_bytes: u64,
        bytes: usize,
        made: &Made<'_>,
    ) -> Result<&'a [u8], Refused>;

    /// Reads a piece of which nothing was read before.
    ///
    /// # Errors
    /// As [`Target::read_with`].
    fn read<'a>(
        &self,
        worker: &'a mut Worker,
        offset_bytes: u64,
        bytes: usize,
    ) -> Result<&'a [u8], Refused> {
        self.read_with(worker, offset_bytes, bytes, &Made::default())
    }

    /// Writes a piece that is in the worker ([`Worker::slot`]), which is told how long the answer is to
    /// wait ([`Worker::take_pause`]).
    ///
    /// # Errors
    /// [`Refused`]; some of its blocks may have been written.
    fn write(&self, worker: &mut Worker, offset_bytes: u64, bytes: usize) -> Result<(), Refused>;

    /// Notes that nobody wants the whole blocks of a range any more, so that what they took is free.
    ///
    /// # Errors
    /// [`Refused::Io`]; some of them may be gone.
    fn trim(&self, offset_bytes: u64, bytes: u64) -> Result<(), Refused>;

    /// Has whole blocks be zeros, which may take no room if `may_free`.
    ///
    /// # Errors
    /// [`Refused`]; a part of them may be.
    fn zero_blocks(
        &self,
        worker: &mut Worker,
        offset_bytes: u64,
        bytes: u64,
        may_free: bool,
    ) -> Result<(), Refused>;

    /// Has any range be zeros, of which it may keep no room if `may_free`.
    ///
    /// # Errors
    /// [`Refused`]; a part of it may be.
    fn write_zeroes(
        &self,
        worker: &mut Worker,
        offset_bytes: u64,
        bytes: u64,
        may_free: bool,
    ) -> Result<(), Refused> {
        let end_bytes = offset_bytes + bytes;
        let head_end = offset_bytes.next_multiple_of(BLOCK_BYTES).min(end_bytes);
        let tail_start = (end_bytes / BLOCK_BYTES * BLOCK_BYTES).max(head_end);
        for part in [offset_bytes..head_end, tail_start..end_bytes] {
            let part_bytes = (part.end - part.start) as usize;
            if part_bytes > 0 {
                worker.slot(part.start, part_bytes).fill(0);
                self.write(worker, part.start, part_bytes)?;
            }
        }
        self.zero_blocks(worker, head_end, tail_start - head_end, may_free)
    }

    /// Has all that was acknowledged be where it stays.
    ///
    /// # Errors
    /// [`Refused::Io`]; some of it may not be there. That another worker's flush failed is told to each,
    /// once.
    fn flush(&self, worker: &mut Worker) -> Result<(), Refused>;

    /// Takes the RAM that was granted, or so much of it as is to be taken ahead, and does not give it
    /// back before less is granted, so that a kernel that swaps to it need have none for what it writes.
    /// False where there was not enough.
    fn keep_memory(&self) -> bool;

    /// Takes RAM as what was taken ahead is used, and gives back what is not needed any more, for ever: it
    /// is for a thread of its own. Returns where there is nothing to do for it.
    fn keep_ahead(&self) {}

    /// Does once what that thread does.
    fn keep_once(&self) {}

    /// Grants another amount of memory. What does not fit any more leaves; connections are served in
    /// between.
    ///
    /// # Errors
    /// What is wrong; the memory is as it was.
    fn set_memory(&self, memory_bytes: u64) -> Result<(), String>;

    /// How often space began to run short.
    fn shortages(&self) -> u64 {
        0
    }

    /// Has blocks leave for the store when the pool holds so many percent of what it may, from now on.
    ///
    /// # Errors
    /// What is wrong; nothing has changed.
    fn set_threshold(&self, percent: u64) -> Result<(), String>;

    /// What it holds and has done.
    fn status(&self) -> Status;
}
