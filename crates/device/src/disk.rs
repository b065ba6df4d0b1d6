//! The disk behind a clean cache: a file or block device, whole blocks at a time.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{FallocateFlags, fallocate, fdatasync};
use zpager_store::{Errno, FilePlace};
use zpager_sys::file::Fd;

/// What a clean cache is in front of. Offsets and lengths are whole blocks of 4096 bytes, and buffers
/// are aligned to that.
pub trait Disk {
    /// Reads all of `data`.
    ///
    /// # Errors
    /// The system's.
    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno>;

    /// Where [`Disk::read_at`] would read in a file that others may read at the same time, if that is what it
    /// would do.
    fn file_place(&self, _offset_bytes: u64) -> Option<FilePlace> {
        None
    }

    /// Writes all of `data`; where it fails a part may have been written.
    ///
    /// # Errors
    /// The system's.
    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> Result<(), Errno>;

    /// Has a range be zeros, and take no room if `may_free`; false where the disk cannot do that, and
    /// nothing has changed.
    ///
    /// # Errors
    /// The system's; a part of it may be zeros.
    fn zero(&self, offset_bytes: u64, bytes: u64, may_free: bool) -> Result<bool, Errno>;

    /// Has all that was written and zeroed outlive the machine's power.
    ///
    /// # Errors
    /// The system's. What was written since the last success may be there or not, even after another
    /// success.
    fn sync(&self) -> Result<(), Errno>;
}

/// A file or block device.
#[derive(Debug)]
pub struct DiskFile {
    file: OwnedFd,
}

impl DiskFile {
    /// This file, open for reading and writing, past the kernel's cache where that can be.
    pub fn new(file: OwnedFd) -> Self {
        DiskFile { file }
    }

    fn fd(&self) -> Fd {
        Fd(self.file.as_raw_fd())
    }
}

fn errno(error: rustix::io::Errno) -> Errno {
    Errno(error.raw_os_error())
}

impl Disk for DiskFile {
    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        self.fd().read_exact_at(offset_bytes, data).map_err(|error| Errno(error.0))
    }

    fn file_place(&self, offset_bytes: u64) -> Option<FilePlace> {
        Some(FilePlace { descriptor: self.file.as_raw_fd(), offset_bytes })
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> Result<(), Errno> {
        self.fd().write_all_at(offset_bytes, data).map_err(|error| Errno(error.0))
    }

    fn zero(&self, offset_bytes: u64, bytes: u64, may_free: bool) -> Result<bool, Errno> {
        use rustix::io::Errno as Failed;
        let how = if may_free { FallocateFlags::PUNCH_HOLE } else { FallocateFlags::ZERO_RANGE };
        match fallocate(&self.file, how | FallocateFlags::KEEP_SIZE, offset_bytes, bytes) {
            Ok(()) => Ok(true),
            Err(Failed::OPNOTSUPP | Failed::NOSYS | Failed::INVAL | Failed::NODEV) => Ok(false),
            Err(error) => Err(errno(error)),
        }
    }

    fn sync(&self) -> Result<(), Errno> {
        fdatasync(&self.file).map_err(errno)
    }
}
