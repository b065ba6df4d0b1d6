//! Entries of the page tables of a process, one a page, as `/proc/PID/pagemap` tells them.
//!
//! Source: Linux, Documentation/admin-guide/mm/pagemap.rst. Bad for terabytes of reserved memory, which it
//! walks page by page.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use libc::pid_t;

const PAGE_BYTES: u64 = 4096;
const ENTRY_BYTES: usize = 8;
/// Entries read at once.
const ENTRIES_MAX: usize = 1 << 13;

/// The page is in RAM.
pub(crate) const PRESENT: u64 = 1 << 63;
/// The page is in the kernel's swap.
pub(crate) const SWAPPED: u64 = 1 << 62;

/// The entries of one process.
#[derive(Debug)]
pub(crate) struct PageEntries(File);

impl PageEntries {
    /// Opens those of a process.
    ///
    /// # Errors
    /// It is gone, or this user may not read it.
    pub(crate) fn open(pid: pid_t) -> io::Result<Self> {
        File::open(format!("/proc/{pid}/pagemap")).map(PageEntries)
    }

    /// Tells of every page of ranges of addresses, which begin with pages, until the process has ended.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn each(
        &self,
        ranges: impl IntoIterator<Item = Range<u64>>,
        mut tell: impl FnMut(u64, u64),
    ) -> io::Result<()> {
        let mut entries = vec![0; ENTRIES_MAX * ENTRY_BYTES];
        for range in ranges {
            let mut address = range.start;
            while address < range.end {
                let left = (range.end - address).div_ceil(PAGE_BYTES) as usize;
                let room = left.min(ENTRIES_MAX) * ENTRY_BYTES;
                let from = address / PAGE_BYTES * ENTRY_BYTES as u64;
                let read_bytes = self.0.read_at(&mut entries[..room], from)?;
                if read_bytes < ENTRY_BYTES {
                    // The process has ended, and its memory with it.
                    return Ok(());
                }
                for entry in entries[..read_bytes].as_chunks().0 {
                    tell(address, u64::from_ne_bytes(*entry));
                    address += PAGE_BYTES;
                }
            }
        }
        Ok(())
    }
}
