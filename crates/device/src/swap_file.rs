//! The device's stores: files without a name or block devices, as those of `zpager run`.

use std::os::fd::{AsRawFd, OwnedFd};

use zpager_store::{Blocks, Errno, FilePlace};
use zpager_sys::aio::Transfers;
use zpager_sys::file::Fd;

/// An open file that nobody else writes to.
#[derive(Debug)]
pub struct StoreParts {
    /// The file or block device, open for reading and writing, in whole blocks where it was opened so.
    pub file: OwnedFd,
    /// How much it may hold.
    pub limit_bytes: u64,
    /// Where in it the store begins, in bytes.
    pub start_bytes: u64,
}

/// The file as a row of blocks.
#[derive(Debug)]
pub struct SwapFile {
    file: OwnedFd,
    start_bytes: u64,
    writes: Transfers,
}

impl SwapFile {
    /// Blocks of this file from `start_bytes`, a multiple of 4096.
    pub fn new(file: OwnedFd, start_bytes: u64) -> Self {
        SwapFile { file, start_bytes, writes: Transfers::new() }
    }

    fn fd(&self) -> Fd {
        Fd(self.file.as_raw_fd())
    }
}

impl Blocks for SwapFile {
    unsafe fn begin_write(&self, offset_bytes: u64, data: &[u8]) -> Result<bool, Errno> {
        // SAFETY: the caller's promise; one write goes on at a time.
        match unsafe { self.writes.begin_write(self.fd(), self.start_bytes + offset_bytes, data) } {
            Ok(goes_on) => Ok(goes_on),
            // Refused or failed: the plain way tells why, or does it.
            Err(_) => self.write_at(offset_bytes, data).map(|()| false),
        }
    }

    fn settle(&self) -> Result<(), Errno> {
        self.writes.settle().map_err(|error| Errno(error.0))
    }

    fn is_writing(&self) -> bool {
        !self.writes.has_ended()
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> Result<(), Errno> {
        let at = self.start_bytes + offset_bytes;
        self.fd().write_all_at(at, data).map_err(|error| Errno(error.0))
    }

    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        let at = self.start_bytes + offset_bytes;
        self.fd().read_exact_at(at, data).map_err(|error| Errno(error.0))
    }

    fn file_place(&self, offset_bytes: u64) -> Option<FilePlace> {
        let offset_bytes = self.start_bytes + offset_bytes;
        Some(FilePlace { descriptor: self.file.as_raw_fd(), offset_bytes })
    }

    fn punch(&self, offset_bytes: u64, bytes: u64) {
        self.fd().punch(self.start_bytes + offset_bytes, bytes);
    }
}
