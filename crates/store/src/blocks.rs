//! What lies behind a store: a row of blocks that are read and written in place.

use crate::FilePlace;

/// The unit of reading and writing, in bytes; also how buffers are aligned.
pub const BLOCK_BYTES: usize = 4096;
/// The unit in which space is handed out, and the longest write, in bytes.
pub const CLUSTER_BYTES: usize = 256 * 1024;

/// Copies of what was written, at most.
pub const COPIES_MAX: u32 = 2;

const ENODATA: Errno = Errno(61);

/// The number by which Linux names an error, as in errno(3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

/// A file, a device or a remote memory.
///
/// The caller guarantees that offsets, lengths and the addresses of buffers are multiples of
/// [`BLOCK_BYTES`], so that an implementation may bypass the kernel's cache. The implementer
/// transfers all of the data or reports an error; after an error the blocks named may hold
/// anything. Data need not outlive the run.
pub trait Blocks {
    /// Writes `data` at `offset_bytes`.
    ///
    /// # Errors
    /// The cause when not all of it was written.
    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> Result<(), Errno>;

    /// Told of a record that is gathered, before the write that brings it to `offset_bytes`: a model that
    /// keeps no data but of records needs to know where they are. The first of a cluster lies at its
    /// start, the others follow in order.
    #[inline]
    fn gathered(&self, _offset_bytes: u64, _record: &[u8]) {}

    /// Begins to write `data` at `offset_bytes`: true when the write goes on by itself until
    /// [`Blocks::settle`] tells how it ended, false when it is done. One write at a time.
    ///
    /// # Errors
    /// The cause when nothing goes on and not all of it was written.
    ///
    /// # Safety
    /// Until the write is settled `data` stays where and as it is.
    unsafe fn begin_write(&self, offset_bytes: u64, data: &[u8]) -> Result<bool, Errno> {
        self.write_at(offset_bytes, data).map(|()| false)
    }

    /// Waits for the write that was begun, if one goes on.
    ///
    /// # Errors
    /// The cause when not all of it was written.
    fn settle(&self) -> Result<(), Errno> {
        Ok(())
    }

    /// Whether the write that was begun goes on still, so that [`Blocks::settle`] would wait. One that
    /// cannot tell says no.
    fn is_writing(&self) -> bool {
        false
    }

    /// Reads as much as `data` is long from `offset_bytes`.
    ///
    /// # Errors
    /// The cause when not all of it was read.
    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno>;

    /// Where [`Blocks::read_at`] would read in a file that others may read at the same time, if that is what
    /// it would do.
    fn file_place(&self, _offset_bytes: u64) -> Option<FilePlace> {
        None
    }

    /// Reads the same from one of several copies, by its number below [`COPIES_MAX`], since what
    /// [`Blocks::read_at`] gave was not what was written.
    ///
    /// # Errors
    /// The cause when not all of it was read; `ENODATA` of all copies where there is but one.
    fn read_copy_at(&self, copy: u32, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        let _ = (copy, offset_bytes, data);
        Err(ENODATA)
    }

    /// Says that a part, within a cluster or some whole ones, holds nothing of worth any more, so that its space
    /// can be given back. An implementation that cannot do so does nothing.
    fn punch(&self, offset_bytes: u64, bytes: u64);
}
