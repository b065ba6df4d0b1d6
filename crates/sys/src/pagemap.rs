//! What the page tables alone know: which pages are there, and which are guard pages
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

/// `_IOWR('f', 16, struct pm_scan_arg)`
const PAGEMAP_SCAN: usize = 0xc060_6610;
/// Ranges that are asked for at a time.
const RANGES: usize = 32;

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

/// Calls `each` for every run of guard pages of this process in `range`, in ascending order.
/// Nothing where the kernel does not tell.
pub fn each_guard(range: Range<usize>, each: impl FnMut(Range<usize>)) {
    each_run(range, nr::PAGE_IS_GUARD.into(), each);
}

/// Calls `each` for every run of pages of this process in `range` that are in RAM, in ascending
/// order. False, after as many as it told of, where the kernel does not tell.
#[must_use]
pub fn each_present(range: Range<usize>, each: impl FnMut(Range<usize>)) -> bool {
    each_run(range, nr::PAGE_IS_PRESENT.into(), each)
}

/// Calls `each` for every run of pages of a category; false where the kernel does not tell of all.
fn each_run(range: Range<usize>, category: u64, mut each: impl FnMut(Range<usize>)) -> bool {
    let Ok(pagemap) = Fd::open(b"/proc/self/pagemap\0", nr::O_RDONLY) else { return false };
    let mut start = range.start;
    while start < range.end {
        let mut found = [Found { start: 0, end: 0, categories: 0 }; RANGES];
        let mut scan = Scan {
            bytes: size_of::<Scan>() as u64,
            start: start as u64,
            end: range.end as u64,
            ranges: found.as_mut_ptr() as u64,
            range_count: RANGES as u64,
            all_of: category,
            told: category,
            ..Scan::default()
        };
        let arguments = [pagemap.0 as usize, PAGEMAP_SCAN, (&raw mut scan) as usize];
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
    pagemap.close();
    start >= range.end
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::PAGE_BYTES;
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
        each_guard(start..start + bytes, |range| found.push(range));
        // Linux 6.13 does not tell.
        assert!(found.is_empty() || found == wanted, "{found:x?}");
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
        if each_present(start..start + BYTES, |range| found.push(range)) {
            assert!(found == wanted, "{found:x?}");
        }
    }
}
