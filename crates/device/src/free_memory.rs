//! Whether the kernel has memory to give without making any, and what programs have of it.
//!
//! A thread that asks for memory when none is free makes some itself (direct reclaim): it has pages
//! written to swap, and tries again until there is some. A server of a swap device must not be where
//! that happens, whatever its priority: what is written to swap is written to it. So whoever takes
//! memory for it looks here before.
//!
//! Source: Documentation/admin-guide/sysctl/vm.rst of Linux (`min_free_kbytes`,
//! `lowmem_reserve_ratio`), proc_zoneinfo(5), proc_meminfo(5), proc_vmstat(5), sysinfo(2).
//!
//! What is free is asked of the kernel each time, for next to nothing. What of it stays with the kernel
//! is read when `vm.min_free_kbytes` has changed.
//!
//! Nor is memory taken that programs need more. What a pool holds serves them only while they have
//! enough of their own: with less they wait for page after page that they had a moment ago, however
//! quickly each comes. What they have is free, or in the kernel's lists of pages that it may take away.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use zpager_pool::{Space, SpaceSource};
use zpager_sys::process::value_bytes;

use crate::space::{Arena, Stretch};

const PAGE_BYTES: u64 = 4096;
const ZONES_PATH: &str = "/proc/zoneinfo";
const MEMORY_PATH: &str = "/proc/meminfo";
const EVENTS_PATH: &str = "/proc/vmstat";
const RESERVE_PATH: &str = "/proc/sys/vm/min_free_kbytes";
/// Longest text of all zones that is looked at.
const TEXT_BYTES: usize = 256 << 10;

/// Room for such a text, which takes RAM for as much as is read.
#[derive(Debug)]
struct Text(Stretch);

impl Text {
    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the whole stretch, initialised, and this value's alone.
        unsafe { std::slice::from_raw_parts_mut(self.0.base(), self.0.bytes()) }
    }
}

/// What tells it.
#[derive(Debug)]
pub(crate) struct FreeMemory {
    reserve: File,
    /// What the first file said when the second was read.
    reserve_text: [u8; 24],
    zones: File,
    memory: File,
    events: File,
    text: Text,
    kept_bytes: u64,
}

impl FreeMemory {
    /// Opens what is to be read.
    pub(crate) fn open() -> io::Result<FreeMemory> {
        Ok(FreeMemory {
            reserve: File::open(RESERVE_PATH)?,
            reserve_text: [0; 24],
            zones: File::open(ZONES_PATH)?,
            memory: File::open(MEMORY_PATH)?,
            events: File::open(EVENTS_PATH)?,
            text: Text(Arena.reserve(TEXT_BYTES).ok_or(io::ErrorKind::OutOfMemory)?),
            kept_bytes: 0,
        })
    }

    /// Whether so much may be taken.
    pub(crate) fn has(&mut self, bytes: u64) -> bool {
        self.look_at_reserve();
        let found = rustix::system::sysinfo();
        let free_bytes = found.freeram as u64 * u64::from(found.mem_unit);
        free_bytes >= self.kept_bytes + bytes
    }

    /// What programs and files have, or may have.
    pub(crate) fn programs_bytes(&mut self) -> u64 {
        sum_bytes(text_of(&self.memory, &mut self.text), &["MemFree:", "Active:", "Inactive:"])
    }

    /// Pages that this machine has read from its swap areas.
    pub(crate) fn swapped_in_pages(&mut self) -> u64 {
        swapped_in_pages(text_of(&self.events, &mut self.text)).unwrap_or(0)
    }

    /// Finds out what the kernel keeps, if that may have changed.
    fn look_at_reserve(&mut self) {
        let mut reserve_text = [0; 24];
        let is_read = self.reserve.read_at(&mut reserve_text, 0).is_ok();
        if !is_read || reserve_text == self.reserve_text {
            return;
        }
        self.reserve_text = reserve_text;
        self.kept_bytes = kept_pages(text_of(&self.zones, &mut self.text)) * PAGE_BYTES;
    }
}

/// What a file of the kernel says now.
fn text_of<'a>(file: &File, text: &'a mut Text) -> &'a str {
    let text = text.bytes_mut();
    let mut length = 0;
    while let Ok(more @ 1..) = file.read_at(&mut text[length..], length as u64) {
        length += more;
    }
    // They are ASCII.
    std::str::from_utf8(&text[..length]).unwrap_or_default()
}

/// Pages that programs do not get, of /proc/zoneinfo: of each zone its least, and what it keeps for
/// those who can use no other zone.
fn kept_pages(text: &str) -> u64 {
    let zones = text.split("Node ").skip(1);
    zones.map(|zone| zone_kept_pages(zone).unwrap_or(0)).sum()
}

fn zone_kept_pages(zone: &str) -> Option<u64> {
    let value = |name| zone.lines().find_map(|line| line.trim().strip_prefix(name));
    let number = |name| value(name)?.trim().parse::<u64>().ok();
    let protection = value("protection: (")?.trim_end_matches(')').rsplit(", ").next()?;
    Some((number("min ")? + protection.parse::<u64>().ok()?).min(number("managed ")?))
}

/// Values of /proc/meminfo together.
fn sum_bytes(meminfo: &str, names: &[&str]) -> u64 {
    names.iter().filter_map(|name| value_bytes(meminfo, name)).sum()
}

/// Of /proc/vmstat.
fn swapped_in_pages(vmstat: &str) -> Option<u64> {
    vmstat.lines().find_map(|line| line.strip_prefix("pswpin "))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONES: &str = "\
Node 0, zone      DMA
  per-node stats
      nr_inactive_anon 11
  pages free     3840
        boost    0
        min      10
        low      13
        high     16
        spanned  4095
        present  3998
        managed  3840
        protection: (0, 3019, 24090, 24090, 24090)
      nr_free_pages 3840
Node 0, zone   Normal
  pages free     700
        boost    0
        min      900
        low      1100
        high     1300
        managed  24000
        protection: (0, 0, 50, 50, 50)
Node 0, zone  Movable
  pages free     0
        min      0
        managed  0
        protection: (0, 0, 0, 0, 0)
";

    #[test]
    fn no_zone_keeps_more_than_it_has() {
        assert_eq!(kept_pages(ZONES), 3840 + 950);
        assert_eq!(kept_pages(""), 0);
    }

    #[test]
    fn what_is_locked_is_not_the_programs() {
        let text = "MemTotal: 9000 kB\nMemFree:   100 kB\nActive:    20 kB\nInactive:    3 kB\n\
                    Active(anon):   7 kB\nUnevictable:  4000 kB\n";
        let names = ["MemFree:", "Active:", "Inactive:"];
        assert_eq!(sum_bytes(text, &names), 123 << 10);
        assert_eq!(sum_bytes("", &names), 0);
    }

    #[test]
    fn pages_that_came_from_swap_are_counted_by_the_kernel() {
        assert_eq!(swapped_in_pages("pgpgin 12\npswpin 345\npswpout 6\n"), Some(345));
        assert_eq!(swapped_in_pages("pgpgin 12\n"), None);
    }

    #[test]
    fn this_machine_has_a_page_and_not_all_memory_there_could_be() {
        let mut free = FreeMemory::open().expect("both files");
        assert!(free.has(PAGE_BYTES));
        assert!(!free.has(1 << 60));
        assert!(free.kept_bytes > 0);
        assert!(free.programs_bytes() > 1 << 20);
    }
}
