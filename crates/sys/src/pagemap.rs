//! What the page tables alone know: which pages are there, which others have, too, and which are guard pages
//! (`MADV_GUARD_INSTALL`, Linux 6.13).
//!
//! Source: Documentation/admin-guide/mm/pagemap.rst (`PAGEMAP_SCAN`, Linux 6.7). Where there are no
//! page tables nothing is walked, so that terabytes of shadow memory, reserved and not touched, take
//! no time; mincore(2) writes a byte for each page of them. Linux 6.13 has guard pages and does not tell.
//!
//! Bad case: pages that are there one by one: a call for every 32 of them.

use core::ops::Range;

use crate::file::Fd;
use crate::syscall::{checked, nr};
use crate::{Errno, PAGE_BYTES};

/// `_IOWR('f', 16, struct pm_scan_arg)`
const PAGEMAP_SCAN: usize = 0xc060_6610;
/// Ranges that are asked for at a time.
const RANGES: usize = 32;
/// Entries that are read at a time, and what they say of a page.
const ENTRIES: usize = 512;
const PRESENT: u64 = 1 << 63;
/// It is of a file or of shared memory.
const FILE: u64 = 1 << 61;
/// It is mapped once.
const EXCLUSIVE: u64 = 1 << 56;

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct Scan {
    bytes: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    ranges: u64,
    range_count: u64,
    pages_max: u64,
    inverted: u64,
    all_of: u64,
    any_of: u64,
    told: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Found {
    start: u64,
    end: u64,
    categories: u64,
}

/// A process's page tables, as the kernel tells of them.
#[derive(Debug)]
pub struct Pagemap(Fd);

impl Pagemap {
    /// Those of this process.
    ///
    /// # Errors
    /// There is no `/proc`, or the process may not open what is its own there, having changed its user.
    pub fn open() -> Result<Self, Errno> {
        // By the calling thread: the first one, whose are those of the process, may have ended.
        Fd::open(b"/proc/thread-self/pagemap\0", nr::O_RDONLY).map(Pagemap)
    }

    /// Those of the process whose `pagemap` this is, which is closed in the end.
    pub fn of(file: Fd) -> Self {
        Pagemap(file)
    }

    /// Calls `each` for every run of guard pages in `range`, in ascending order. Nothing where the kernel
    /// does not tell.
    pub fn each_guard(&self, range: Range<usize>, each: impl FnMut(Range<usize>)) {
        self.each_run(range, nr::PAGE_IS_GUARD.into(), each);
    }

    /// Calls `each` for every run of pages in `range` that are in RAM, in ascending order. False, after
    /// as many as it told of, where the kernel does not tell.
    #[must_use]
    pub fn each_present(&self, range: Range<usize>, each: impl FnMut(Range<usize>)) -> bool {
        self.each_run(range, nr::PAGE_IS_PRESENT.into(), each)
    }

    /// Calls `each` for every run of pages in `range`, all of which is mapped, that are neither in RAM nor swapped out,
    /// nor guard pages, in ascending order. False, after as many as it told of, where the kernel does not tell.
    #[must_use]
    pub fn each_absent(&self, range: Range<usize>, each: impl FnMut(Range<usize>)) -> bool {
        let there = u64::from(nr::PAGE_IS_PRESENT | nr::PAGE_IS_SWAPPED);
        self.each_run_of(range, there, there, each)
    }

    /// Calls `each` for every run of anonymous pages in `range` that are in RAM and that other processes
    /// have as well, in ascending order. Nothing where the kernel does not tell.
    pub fn each_common(&self, range: Range<usize>, mut each: impl FnMut(Range<usize>)) {
        let _ = self.each_present(range, |run| {
            for start in run.clone().step_by(ENTRIES * PAGE_BYTES) {
                let pages = (run.end - start).div_ceil(PAGE_BYTES).min(ENTRIES);
                self.each_common_of(start, pages, &mut each);
            }
        });
    }

    /// [`Self::each_common`] of so many pages that are in RAM.
    fn each_common_of(&self, start: usize, pages: usize, each: &mut impl FnMut(Range<usize>)) {
        const ENTRY_BYTES: usize = size_of::<u64>();
        let mut bytes = [0u8; ENTRIES * ENTRY_BYTES];
        let told = &mut bytes[..pages * ENTRY_BYTES];
        if self.0.read_exact_at((start / PAGE_BYTES * ENTRY_BYTES) as u64, told).is_err() {
            return;
        }
        let (entries, _) = told.as_chunks::<ENTRY_BYTES>();
        let is_common = |at: &usize| {
            let entry = u64::from_ne_bytes(entries[*at]);
            entry & (PRESENT | FILE | EXCLUSIVE) == PRESENT
        };
        let mut at = 0;
        while at < pages {
            let length = (at..pages).take_while(is_common).count();
            if length > 0 {
                each(start + at * PAGE_BYTES..start + (at + length) * PAGE_BYTES);
            }
            at += length.max(1);
        }
    }

    /// Calls `each` for every run of pages of a category; false where the kernel does not tell of all.
    fn each_run(&self, range: Range<usize>, category: u64, each: impl FnMut(Range<usize>)) -> bool {
        self.each_run_of(range, category, 0, each)
    }

    /// The same for pages of all categories that are given, or of none of those that are `inverted`.
    fn each_run_of(
        &self,
        range: Range<usize>,
        categories: u64,
        inverted: u64,
        mut each: impl FnMut(Range<usize>),
    ) -> bool {
        let mut start = range.start;
        while start < range.end {
            let mut found = [Found { start: 0, end: 0, categories: 0 }; RANGES];
            let mut scan = Scan {
                bytes: size_of::<Scan>() as u64,
                start: start as u64,
                end: range.end as u64,
                ranges: found.as_mut_ptr() as u64,
                range_count: RANGES as u64,
                inverted,
                all_of: categories,
                told: categories,
                ..Scan::default()
            };
            let arguments = [self.0.0 as usize, PAGEMAP_SCAN, (&raw mut scan) as usize];
            // SAFETY: the kernel writes the end of its walk, and at most so many ranges.
            let Ok(count) = (unsafe { checked(nr::__NR_ioctl, arguments) }) else { break };
            for run in &found[..count.min(RANGES)] {
                each(run.start as usize..run.end as usize);
            }
            if scan.walk_end as usize <= start {
                break;
            }
            start = scan.walk_end as usize;
        }
        start >= range.end
    }
}

impl Drop for Pagemap {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    #[test]
    fn guard_pages_are_found_and_others_are_not() {
        const MADV_GUARD_INSTALL: usize = 102;
        let pages = 4 * RANGES;
        let bytes = pages * PAGE_BYTES;
        let area = crate::mapping::Mapping::reserve(bytes).expect("address space");
        let start = area.start();
        let guard = |page: usize| start + page * PAGE_BYTES..start + (page + 1) * PAGE_BYTES;
        let wanted: Vec<_> = (0..pages).step_by(2).map(guard).collect();
        for range in &wanted {
            let arguments = [range.start, PAGE_BYTES, MADV_GUARD_INSTALL];
            // SAFETY: pages of our own.
            if unsafe { checked(nr::__NR_madvise, arguments) }.is_err() {
                std::println!("skipped: the kernel has no guard pages");
                return;
            }
        }
        let mut found = Vec::new();
        Pagemap::open()
            .expect("its own")
            .each_guard(start..start + bytes, |range| found.push(range));
        // Linux 6.13 does not tell.
        assert!(found.is_empty() || found == wanted, "{found:x?}");
    }

    #[test]
    fn pages_that_are_neither_there_nor_guarded_are_found() {
        let area =
            crate::mapping::Mapping::reserve(3 * RANGES * PAGE_BYTES).expect("address space");
        let page = |at: usize| area.start() + at * PAGE_BYTES;
        let all = page(0)..page(3 * RANGES);
        let absent = || {
            let mut found = Vec::new();
            let is_told =
                Pagemap::open().expect("its own").each_absent(all.clone(), |run| found.push(run));
            is_told.then_some(found)
        };
        let Some(untouched) = absent() else {
            std::println!("skipped: the kernel does not tell");
            return;
        };
        assert_eq!(untouched, core::slice::from_ref(&all));
        // Every third page is touched, and of those behind them the last has a guard, where there are any.
        for at in (0..3 * RANGES).step_by(3) {
            // SAFETY: memory of our own.
            unsafe { (page(at) as *mut u8).write_volatile(1) };
        }
        let last = 3 * RANGES - 1;
        // SAFETY: nothing is there.
        let is_guarded = unsafe { crate::guards::install(page(last), PAGE_BYTES) }.is_ok();
        let mut wanted: Vec<_> = (0..RANGES).map(|at| page(3 * at + 1)..page(3 * at + 3)).collect();
        wanted[RANGES - 1].end -= usize::from(is_guarded) * PAGE_BYTES;
        assert_eq!(absent(), Some(wanted));
    }

    #[test]
    fn pages_that_were_touched_are_found_in_terabytes_that_were_not() {
        const BYTES: usize = 4 << 40;
        let area = crate::mapping::Mapping::reserve(BYTES).expect("address space");
        let start = area.start();
        // More than are told at a time, and two side by side.
        let touched: Vec<_> =
            (0..=2 * RANGES).map(|at| start + at * (BYTES / 100)).map(|at| at & !4095).collect();
        let wanted: Vec<_> = touched.iter().map(|at| *at..*at + 2 * PAGE_BYTES).collect();
        for at in touched.iter().flat_map(|at| [*at, at + PAGE_BYTES]) {
            // SAFETY: memory of our own.
            unsafe { (at as *mut u8).write_volatile(1) };
        }
        let mut found = Vec::new();
        if Pagemap::open()
            .expect("its own")
            .each_present(start..start + BYTES, |range| found.push(range))
        {
            assert!(found == wanted, "{found:x?}");
        }
    }

    #[test]
    fn pages_that_a_forked_process_has_as_well_are_found_until_they_are_written() {
        let area = crate::mapping::Mapping::reserve(8 * PAGE_BYTES).expect("address space");
        let write = |page: usize| {
            // SAFETY: memory of our own.
            unsafe { ((area.start() + page * PAGE_BYTES) as *mut u8).write_volatile(1) };
        };
        let pagemap = Pagemap::open().expect("its own");
        let common = || {
            let mut found = Vec::new();
            pagemap.each_common(area.start()..area.start() + area.bytes(), |range| {
                found.push([range.start, range.end].map(|at| (at - area.start()) / PAGE_BYTES));
            });
            found
        };
        [0, 1, 2, 3, 6].into_iter().for_each(write);
        assert!(common().is_empty());
        // SAFETY: the child calls the kernel alone.
        let child = unsafe { checked(nr::__NR_fork, []) }.expect("a child");
        if child == 0 {
            loop {
                crate::process::nap(1_000_000_000);
            }
        }
        write(1);
        let found = common();
        // SAFETY: the child of before, which nobody else waits for.
        unsafe {
            checked(nr::__NR_kill, [child, 9]).expect("it is there");
            checked(nr::__NR_wait4, [child, 0, 0, 0]).expect("it has ended");
        }
        let is_told = pagemap.each_present(area.start()..area.start() + PAGE_BYTES, |_| {});
        assert!(!is_told || found == [[0, 1], [2, 4], [6, 7]], "{found:?}");
    }
}
