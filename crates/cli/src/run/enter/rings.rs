//! Whether the kernel uses a process's memory by an io_uring(7) that it has had since before it was to be managed.
//!
//! What such a ring reads and writes is in no system call, and the kernel would find nothing where pages are
//! away; and its workers are threads of the process that cannot be entered. Rings made later are refused
//! by the agent.
//!
//! An event loop (libuv's) may have one only to change what it polls for, which is no use of memory to speak of.
//! What was asked for stays in the ring's entries when it is done.
//!
//! Sources: io_uring_setup(2), `IORING_OFF_SQES`; io_uring_enter(2), `struct io_uring_sqe`;
//! io_uring/io-wq.c and io_uring/sqpoll.c of Linux.
//!
//! Bad case: a ring that was not used for memory so far, and is afterwards: the process leaves management
//! then, all of its memory at once.

use std::fs::{DirEntry, File, read_dir, read_link};
use std::os::unix::fs::FileExt;

use libc::pid_t;

use crate::proc_text;
use crate::run::living::proc_file;

/// What a ring's descriptors and mappings are called.
const RING: &str = "anon_inode:[io_uring]";
/// Where in the ring its entries are mapped from, as in maps (proc(5)), and the bytes of one.
const ENTRIES_OFFSET: &str = "10000000";
const ENTRY_BYTES: usize = 64;
/// The most entries of a ring.
const ENTRIES_MAX: usize = 1 << 15;
/// Operations, the first byte of an entry, that use no memory or next to none: nothing, sync, poll, cancel,
/// close and epoll_ctl.
const HARMLESS: [u8; 7] = [0, 3, 6, 7, 14, 19, 29];

/// Whether it does, or may.
pub(super) fn uses_memory(pid: pid_t, maps: &str) -> bool {
    let mapped = || maps.lines().filter(|line| line.ends_with(RING));
    let is_ring = |file: DirEntry| read_link(file.path()).is_ok_and(|to| to.as_os_str() == RING);
    if mapped().next().is_none() && !entries_of(pid, "fd").any(is_ring) {
        return false;
    }
    let is_worker = |thread: DirEntry| {
        proc_text::read(thread.path().join("comm")).is_ok_and(|name| name.starts_with("iou-"))
    };
    let mut entries = mapped().filter_map(entries_at).peekable();
    entries.peek().is_none()
        || entries.any(|at| !are_harmless(pid, at))
        || entries_of(pid, "task").any(is_worker)
}

fn entries_of(pid: pid_t, folder: &str) -> impl Iterator<Item = DirEntry> {
    read_dir(proc_file(pid, folder)).into_iter().flatten().flatten()
}

/// Where the entries of a ring are, by a line of maps that is about them.
fn entries_at(line: &str) -> Option<(u64, usize)> {
    let mut fields = line.split(' ');
    let (start, end) = fields.next()?.split_once('-')?;
    fields.nth(1).filter(|offset| *offset == ENTRIES_OFFSET)?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = (address(start)?, address(end)?);
    Some((start, (end - start) as usize))
}

/// Whether nothing else was asked for by these entries.
fn are_harmless(pid: pid_t, (start, bytes): (u64, usize)) -> bool {
    let mut entries = vec![0; bytes.min(ENTRIES_MAX * ENTRY_BYTES)];
    let memory = File::open(proc_file(pid, "mem"));
    memory.and_then(|memory| memory.read_exact_at(&mut entries, start)).is_ok()
        && entries.chunks(ENTRY_BYTES).all(|entry| HARMLESS.contains(&entry[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found() {
        let line = "7f10-8f10 rw-s 10000000 00:0e 3      anon_inode:[io_uring]";
        assert_eq!(entries_at(line), Some((0x7f10, 0x1000)));
        assert_eq!(entries_at(&line.replace("10000000", "00000000")), None);
        assert!(!uses_memory(std::process::id().cast_signed(), ""));
    }
}
