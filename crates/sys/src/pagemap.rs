//! Guard pages (`MADV_GUARD_INSTALL`, Linux 6.13), which only the page tables know of.
//!
//! Source: Documentation/admin-guide/mm/pagemap.rst (`PAGEMAP_SCAN`). Linux 6.13 itself has them
//! and does not tell.

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
pub fn each_guard(range: Range<usize>, mut each: impl FnMut(Range<usize>)) {
    let Ok(pagemap) = Fd::open(b"/proc/self/pagemap\0", nr::O_RDONLY) else { return };
    let mut start = range.start;
    while start < range.end {
        let mut found = [Found { start: 0, end: 0, categories: 0 }; RANGES];
        let guard = u64::from(nr::PAGE_IS_GUARD);
        let mut scan = Scan {
            bytes: size_of::<Scan>() as u64,
            start: start as u64,
            end: range.end as u64,
            ranges: found.as_mut_ptr() as u64,
            range_count: RANGES as u64,
            all_of: guard,
            told: guard,
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
}
