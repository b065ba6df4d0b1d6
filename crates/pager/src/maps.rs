//! The mappings of this process, from `/proc/thread-self/maps`; from `smaps` what is advised of them.
//!
//! Source: Documentation/filesystems/proc.rst, 1.1. Read piece by piece into a
//! buffer of the caller's; lines are judged one at a time.

use zpager_sys::file::Fd;
use zpager_sys::{Errno, nr};

use crate::regions::InChild;
use crate::start::open_maps;
use crate::unmanage::MANAGED_BYTES_MIN;

/// One line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// `PROT_*`.
    pub(crate) protection: u32,
    pub(crate) kind: Kind,
}

impl Line {
    /// Whether it is left alone as a rule.
    pub(crate) fn is_small(&self) -> bool {
        self.end - self.start < MANAGED_BYTES_MIN
    }
}

/// What a mapping is, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Private memory without a file: the heap, malloc's mappings, zeroed data, stacks of threads.
    PrivateAnonymous,
    /// What the kernel or a device shares with the program: rings and registers, by which it may be told
    /// of other memory.
    Device,
    /// The entries of an io_uring(7).
    RingEntries,
    /// Anything else.
    Other,
}

/// From where in a ring its entries are mapped, `IORING_OFF_SQES`.
const RING_ENTRIES_OFFSET: &[u8] = b"10000000";

/// Room for some lines; the kernel gives whole lines as long as one fits.
const BUFFER_BYTES: usize = 4096;

/// Calls `each` for every mapping, in ascending order.
///
/// # Errors
/// The kernel's, when `/proc` cannot be read.
pub(crate) fn each_line(mut each: impl FnMut(Line)) -> Result<(), Errno> {
    each_text(open_maps()?, |text| {
        if let Some(line) = parse(text) {
            each(line);
        }
    })
}

/// Calls `each` for every mapping with what a forked child gets of it, for which the kernel goes through all
/// pages that are there.
///
/// # Errors
/// The kernel's, when `/proc` cannot be read.
pub(crate) fn each_in_child(mut each: impl FnMut(Line, InChild)) -> Result<(), Errno> {
    let mut about = None;
    each_text(Fd::open(b"/proc/thread-self/smaps\0", nr::O_RDONLY)?, |text| {
        if let Some(flags) = text.strip_prefix(b"VmFlags:") {
            about.take().into_iter().for_each(|line| each(line, in_child_by(flags)));
        } else {
            about = parse(text).or(about);
        }
    })
}

/// By the flags of a mapping as `smaps` has them.
fn in_child_by(flags: &[u8]) -> InChild {
    let has = |flag: &[u8]| flags.split(|&byte| byte == b' ').any(|found| found == flag);
    InChild { is_dropped: has(b"dc"), is_wiped: has(b"wf") }
}

/// Calls `each` for every line of a file, and closes it.
fn each_text(file: Fd, mut each: impl FnMut(&[u8])) -> Result<(), Errno> {
    let mut buffer = [0u8; BUFFER_BYTES];
    let mut kept = 0;
    let outcome = loop {
        let read = match file.read(&mut buffer[kept..]) {
            Ok(0) => break Ok(()),
            Ok(read) => read,
            Err(error) => break Err(error),
        };
        let filled = kept + read;
        let mut start = 0;
        while let Some(length) = buffer[start..filled].iter().position(|&byte| byte == b'\n') {
            each(&buffer[start..start + length]);
            start += length + 1;
        }
        buffer.copy_within(start..filled, 0);
        // A line longer than the buffer is a very long path: no anonymous memory; its end parses as nothing.
        kept = if filled - start == BUFFER_BYTES { 0 } else { filled - start };
    };
    file.close();
    outcome
}

/// `start-end perms offset device inode path`.
fn parse(line: &[u8]) -> Option<Line> {
    let mut fields = line.split(|&byte| byte == b' ').filter(|field| !field.is_empty());
    let mut range = fields.next()?.split(|&byte| byte == b'-');
    let (start, end) = (hexadecimal(range.next()?)?, hexadecimal(range.next()?)?);
    let (permissions, offset) = (fields.next()?, fields.next()?);
    let inode = fields.nth(1)?;
    let name = fields.next().unwrap_or(b"");
    let anonymous_name = name.is_empty() || name == b"[heap]" || name.starts_with(b"[anon:");
    let is_private = permissions.get(3) == Some(&b'p');
    let kind = if is_private && inode == b"0" && anonymous_name {
        Kind::PrivateAnonymous
    } else if name == b"anon_inode:[io_uring]" && offset == RING_ENTRIES_OFFSET {
        Kind::RingEntries
    } else if is_device(name) {
        Kind::Device
    } else {
        Kind::Other
    };
    let bit = |at: usize, letter: u8, bit: u32| {
        if permissions.get(at) == Some(&letter) { bit } else { 0 }
    };
    let protection =
        bit(0, b'r', nr::PROT_READ) | bit(1, b'w', nr::PROT_WRITE) | bit(2, b'x', nr::PROT_EXEC);
    Some(Line { start, end, protection, kind })
}

/// Whether a mapping of this name is of a device, a socket, or a ring of asynchronous I/O.
fn is_device(name: &[u8]) -> bool {
    let is_below = |folder: &[u8]| name.starts_with(folder);
    is_below(b"/dev/") && !is_below(b"/dev/shm/") && !is_below(b"/dev/zero")
        || [b"anon_inode:".as_slice(), b"socket:", b"/[aio]"].into_iter().any(is_below)
}

fn hexadecimal(digits: &[u8]) -> Option<usize> {
    usize::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok()
}

/// The mapping that holds `address`, if it is private anonymous memory.
pub(crate) fn anonymous_at(address: usize) -> Option<Line> {
    let mut found = None;
    let outcome = each_line(|line| {
        if line.start <= address && address < line.end {
            found = Some(line);
        }
    });
    outcome.ok()?;
    found.filter(|line| line.kind == Kind::PrivateAnonymous)
}

/// Whether a range is not within one mapping; true as well when nobody can tell.
pub(crate) fn are_several(start: usize, bytes: usize) -> bool {
    let mut is_within = false;
    let outcome = each_line(|line| {
        is_within |= line.start <= start && start.saturating_add(bytes) <= line.end;
    });
    outcome.is_err() || !is_within
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_as_the_kernel_writes_them() {
        let heap =
            parse(b"55d0c7a000-55d0c9b000 rw-p 00000000 00:00 0                          [heap]");
        let rw = nr::PROT_READ | nr::PROT_WRITE;
        let expected = Line {
            start: 0x55_d0c7_a000,
            end: 0x55_d0c9_b000,
            protection: rw,
            kind: Kind::PrivateAnonymous,
        };
        assert_eq!(heap, Some(expected));
        let kinds: [(&[u8], Kind); 11] = [
            (b"7f00-8000 ---p 00000000 00:00 0", Kind::PrivateAnonymous),
            (b"7f00-8000 rw-s 00000000 00:01 1 /dev/zero (deleted)", Kind::Other),
            (b"7f00-8000 r-xp 00002000 fe:00 1234 /usr/lib/libc.so.6", Kind::Other),
            (b"7f00-8000 rw-p 00000000 00:00 0 [stack]", Kind::Other),
            (b"7f00-8000 rw-p 00000000 00:00 0 [anon:arena]", Kind::PrivateAnonymous),
            (b"7f00-8000 rw-s 00000000 00:1a 7 /dev/shm/queue", Kind::Other),
            (b"7f00-8000 rw-s 00000000 00:05 9 /dev/infiniband/uverbs0", Kind::Device),
            (b"7f00-8000 rw-s 00000000 00:0e 3 anon_inode:[io_uring]", Kind::Device),
            (b"7f00-8000 rw-s 10000000 00:0e 3 anon_inode:[io_uring]", Kind::RingEntries),
            (b"7f00-8000 rw-s 00000000 00:08 5 socket:[5]", Kind::Device),
            (b"7f00-8000 rw-s 00000000 00:0c 2 /[aio] (deleted)", Kind::Device),
        ];
        for (line, kind) in kinds {
            assert_eq!(parse(line).map(|line| line.kind), Some(kind));
        }
        assert_eq!(parse(b"not a line"), None);
    }

    #[test]
    fn this_process_has_a_stack_and_it_is_no_candidate() {
        let local = 0;
        let mut lines = 0;
        each_line(|_| lines += 1).unwrap();
        assert!(lines > 10);
        let _ = anonymous_at(core::ptr::from_ref(&local) as usize);
    }

    #[test]
    fn flags_say_what_a_child_gets() {
        assert!(in_child_by(b" rd wr mr mw me ac sd").is_copied());
        let (dropped, wiped) = (in_child_by(b" rd wr dc"), in_child_by(b" rd wr wf um "));
        assert!(dropped.is_dropped && !dropped.is_wiped);
        assert!(wiped.is_wiped && !wiped.is_dropped);
    }
}
