//! Pages of running processes: their private anonymous writable memory, as it lies in RAM.
//!
//! Sources: proc(5), `/proc/PID/maps` and `mem`. Invariant: only pages whose entries ([`PageEntries`]) show them
//! present are read, so that nothing is faulted in and nothing changes in the process, but for a
//! page that it drops between the two looks. The process is not stopped: a page that it writes at
//! that moment is read half old, half new.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use libc::pid_t;
use zpager_codec::Page;

use super::sample::{Drawing, Reservoir, Sample};
use crate::failure::Failure;
use crate::page_entries::{PRESENT, PageEntries, SWAPPED};
use crate::proc_text;

/// The memory of one process.
#[derive(Debug)]
pub(super) struct Memory {
    regions: Vec<Range<u64>>,
    entries: PageEntries,
    memory: File,
}

impl Memory {
    /// Opens the memory of a process.
    ///
    /// # Errors
    /// It is gone, or this user may not read it.
    pub(super) fn open(pid: pid_t) -> io::Result<Self> {
        let maps = proc_text::read(format!("/proc/{pid}/maps"))?;
        let regions = maps.lines().filter_map(anonymous_region).collect();
        let memory = File::open(format!("/proc/{pid}/mem"))?;
        Ok(Memory { regions, entries: PageEntries::open(pid)?, memory })
    }

    /// Tells of every page that is present or swapped.
    fn each_page(&self, mut tell: impl FnMut(u64, Residence)) -> io::Result<()> {
        self.entries.each(self.regions.iter().cloned(), |address, entry| {
            if let Some(residence) = Residence::of(entry) {
                tell(address, residence);
            }
        })
    }

    fn read(&self, address: u64) -> io::Result<Page> {
        let mut page = Page::ZERO;
        self.memory.read_exact_at(&mut page.0, address)?;
        Ok(page)
    }
}

/// Where a page is.
#[derive(Debug, PartialEq, Eq)]
enum Residence {
    Present,
    Swapped,
}

impl Residence {
    fn of(entry: u64) -> Option<Self> {
        match (entry & PRESENT != 0, entry & SWAPPED != 0) {
            (true, _) => Some(Residence::Present),
            (false, true) => Some(Residence::Swapped),
            (false, false) => None,
        }
    }
}

/// The addresses of a line of `maps` that is private writable memory without a file. Allocators
/// name theirs `[anon:...]` (prctl(2), `PR_SET_VMA_ANON_NAME`).
fn anonymous_region(line: &str) -> Option<Range<u64>> {
    let mut fields = line.split_ascii_whitespace();
    let (range, access) = (fields.next()?, fields.next()?);
    let (inode, name) = (fields.nth(2)?, fields.next());
    let is_heap = name.is_none_or(|name| name == "[heap]" || name.starts_with("[anon:"));
    if !access.starts_with("rw") || !access.ends_with('p') || inode != "0" || !is_heap {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    Some(u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
}

/// Draws pages of one process, which the user named.
///
/// # Errors
/// It is not there, may not be read, or has no memory of its own in RAM.
pub(super) fn take(pid: pid_t, drawing: Drawing) -> Result<Sample, Failure> {
    let wrong = |error: io::Error| refusal(pid, &error);
    let memory = Memory::open(pid).map_err(wrong)?;
    let sample = draw(&[memory], drawing).map_err(wrong)?;
    if sample.drawn_pages() == 0 {
        return Err(Failure::arguments(format!(
            "--pid {pid}: no private memory in RAM: give a process that has some and goes on running"
        )));
    }
    Ok(sample)
}

fn refusal(pid: pid_t, error: &io::Error) -> Failure {
    Failure::arguments(match error.raw_os_error() {
        // A thread of the kernel can be seen and has none to open.
        Some(libc::ENOENT | libc::ESRCH) if Path::new(&format!("/proc/{pid}")).exists() => {
            format!("--pid {pid}: it has no memory of its own: give a program that has")
        }
        Some(libc::ENOENT | libc::ESRCH) => {
            format!("--pid {pid}: no such process: give the id of one that is running")
        }
        Some(libc::EACCES | libc::EPERM) => format!(
            "--pid {pid}: its memory may not be read: be root, with all capabilities that it has, or let \
             zpager start the program: `zpager codecs -- PROGRAM`"
        ),
        _ => format!("--pid {pid}: its memory cannot be read: {error}: give another process"),
    })
}

/// Draws pages of several processes together.
///
/// # Errors
/// Pagemap cannot be read.
pub(super) fn draw(memories: &[Memory], drawing: Drawing) -> io::Result<Sample> {
    let mut reservoir = Reservoir::new(drawing);
    let mut swapped_pages = 0;
    for (process, memory) in memories.iter().enumerate() {
        memory.each_page(|address, residence| match residence {
            Residence::Present => reservoir.offer((process, address)),
            Residence::Swapped => swapped_pages += 1,
        })?;
    }
    let mut sample = Sample { offered_pages: reservoir.offered(), ..Sample::default() };
    let places = reservoir.into_places();
    let drawn_pages = places.len();
    for (process, address) in places {
        // What cannot be read any more has left the process meanwhile.
        if let Ok(page) = memories[process].read(address) {
            sample.add(page);
        }
    }
    sample.notes.extend(note_of(swapped_pages, "in the kernel's swap"));
    sample.notes.extend(note_of(drawn_pages - sample.drawn_pages(), "gone before they were read"));
    Ok(sample)
}

fn note_of(pages: usize, where_: &str) -> Option<String> {
    (pages > 0).then(|| format!("{pages} pages are left out: they are {where_}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use zpager_codec::PAGE_BYTES;

    #[test]
    fn only_private_memory_without_a_file_is_taken() {
        let taken = |line| anonymous_region(line).is_some();
        assert!(taken("55d000000000-55d000021000 rw-p 00000000 00:00 0    [heap]"));
        assert!(taken("7f0000000000-7f0000001000 rw-p 00000000 00:00 0    [anon:Go: heap]"));
        assert!(taken("7f0000000000-7f0000001000 rwxp 00000000 00:00 0"));
        assert!(!taken("7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0   [stack]"));
        assert!(!taken("7f0000000000-7f0000001000 r--p 00000000 00:00 0"));
        assert!(!taken("7f0000000000-7f0000001000 rw-s 00000000 00:01 9  /dev/zero (deleted)"));
        assert!(!taken("7f0000000000-7f0000001000 rw-p 00001000 08:01 77  /usr/lib/libc.so.6"));
        assert!(!taken(""));
        assert_eq!(anonymous_region("1000-3000 rw-p 00000000 00:00 0"), Some(0x1000..0x3000));
    }

    #[test]
    fn entries_of_pagemap_are_told_apart() {
        assert_eq!(Residence::of(0), None);
        assert_eq!(Residence::of(PRESENT | 1), Some(Residence::Present));
        assert_eq!(Residence::of(SWAPPED | 1), Some(Residence::Swapped));
    }

    /// Pages that were never touched stay absent.
    #[test]
    fn own_memory_is_read_where_it_is_present() {
        const PAGES: usize = 64;
        const RESERVED_PAGES: usize = 1 << 16;
        let mut block: Vec<Page> = Vec::with_capacity(RESERVED_PAGES);
        for number in 0..PAGES {
            let mut page = Page([number as u8; PAGE_BYTES]);
            page.0[..16].copy_from_slice(b"zpager-own-page!");
            block.push(page);
        }
        let start = block.as_ptr().addr() as u64;
        let reserved = start..start + (RESERVED_PAGES * PAGE_BYTES) as u64;
        let own = || Memory::open(std::process::id().cast_signed()).expect("own memory");
        let sample = draw(&[own()], Drawing { pages_max: 1 << 18, seed: 1 }).expect("drawn");
        // Copies that were made on the way may lie about besides.
        let own_pages = sample.pages.iter().filter(|page| page.0.starts_with(b"zpager-own-page!"));
        let numbers: BTreeSet<u8> = own_pages.map(|page| page.0[16]).collect();
        assert_eq!(numbers.len(), PAGES);
        let mut present_pages = 0;
        let count = |address, _| present_pages += usize::from(reserved.contains(&address));
        own().each_page(count).expect("read");
        assert!((PAGES..RESERVED_PAGES).contains(&present_pages), "{present_pages}");
    }

    #[test]
    fn a_process_that_is_not_there_is_told() {
        // Above every process id (proc(5), pid_max).
        let failure = take(1 << 23, Drawing { pages_max: 1, seed: 1 }).err().expect("not there");
        assert_eq!(failure.status, 2);
        assert!(failure.message.contains("no such process"), "{failure:?}");
        let denied = refusal(7, &io::Error::from_raw_os_error(libc::EACCES));
        assert!(denied.message.contains("may not be read"), "{denied:?}");
    }
}
