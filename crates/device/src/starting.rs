//! Memory that only starting took, given back before the server's memory is locked.
//!
//! What is locked stays (mlockall(2)), and on a small machine it is missed: of a server in a guest of
//! 64 MiB it was 2 MiB, of its code that reads the command line and so on, and of the stack that took.
//!
//! Source: madvise(2), MADV_DONTNEED; proc_pid_smaps(5).
//!
//! Invariant: only what is read again from its file when it is wanted, or what nobody uses, is given
//! back: parts of files that cannot be written to and were not, and the part of the first thread's
//! stack that no function has.

use std::fs;
use std::ops::Range;

use rustix::mm::{Advice, madvise};

const PAGE_BYTES: usize = 4096;
/// Below the caller's frame, for what it calls next.
const STACK_KEPT_BYTES: usize = 64 << 10;

/// Gives back what this process has of its code and constants in RAM, and the stack that is not in use.
pub(crate) fn give_back() {
    // Where the kernel does not tell there is nothing to be done.
    let mappings = fs::read("/proc/self/smaps").unwrap_or_default();
    // Names of files may be anything.
    let mappings = String::from_utf8_lossy(&mappings);
    let here = 0_u8;
    for range in unneeded(&mappings, (&raw const here).addr()) {
        let start = std::ptr::with_exposed_provenance_mut(range.start);
        // SAFETY: what nobody has written to is read from its file again; below the frame and what is
        // kept for calls nothing of the stack is in use.
        let _ = unsafe { madvise(start, range.len(), Advice::LinuxDontNeed) };
    }
}

/// What a caller with this frame can give back of the mappings in the text of /proc/PID/smaps.
fn unneeded(mappings: &str, frame: usize) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut last = None;
    for line in mappings.lines() {
        if let Some(mapping) = Mapping::read(line) {
            last = Some(mapping);
        } else if let Some(own) = line.strip_prefix("Anonymous:") {
            let mapping = last.take();
            found.extend(mapping.and_then(|mapping| mapping.unneeded(own.trim() == "0 kB", frame)));
        }
    }
    found
}

/// The first line of a mapping.
struct Mapping<'a> {
    range: Range<usize>,
    rights: &'a str,
    name: &'a str,
}

impl<'a> Mapping<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        let range = address(start)?..address(end)?;
        let (rights, name) = (fields.next()?, fields.nth(3).unwrap_or_default());
        Some(Mapping { range, rights, name })
    }

    /// `is_as_in_file`: no page of it was written to.
    fn unneeded(self, is_as_in_file: bool, frame: usize) -> Option<Range<usize>> {
        if self.name == "[stack]" && self.range.contains(&frame) {
            let end = frame.saturating_sub(STACK_KEPT_BYTES) / PAGE_BYTES * PAGE_BYTES;
            return (self.range.start < end).then_some(self.range.start..end);
        }
        let is_read_only = matches!(self.rights, "r-xp" | "r--p");
        (is_read_only && is_as_in_file && self.name.starts_with('/')).then_some(self.range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPPINGS: &str = "\
55c95d192000-55c95d48f000 r--p 00000000 08:01 123  /usr/bin/zpager
Rss:                 680 kB
Anonymous:             0 kB
VmFlags: rd mr mw me
55c95d48f000-55c95d8ef000 r-xp 002fd000 08:01 123  /usr/bin/zpager
Rss:                2432 kB
Anonymous:             0 kB
55c95d8ef000-55c95d912000 r--p 0075c000 08:01 123  /usr/bin/zpager
Anonymous:           140 kB
55c95d912000-55c95d914000 rw-p 0077f000 08:01 123  /usr/bin/zpager
Anonymous:             0 kB
7f4a19a32000-7f64a27f9000 rw-p 00000000 00:00 0
Anonymous:          4996 kB
7f64a27fb000-7f64a2821000 r--s 00000000 08:01 124  /var/tmp/data
Anonymous:             0 kB
7ffe00000000-7ffe00110000 rw-p 00000000 00:00 0    [stack]
Anonymous:          1104 kB
7ffe51600000-7ffe51602000 r-xp 00000000 00:00 0    [vdso]
Anonymous:             0 kB
";

    #[test]
    fn what_is_as_in_its_file_and_unused_stack_are_not_needed() {
        let files = [0x55c9_5d19_2000..0x55c9_5d48_f000, 0x55c9_5d48_f000..0x55c9_5d8e_f000];
        let stack = 0x7ffe_0000_0000..0x7ffe_000f_0000;
        assert_eq!(unneeded(MAPPINGS, 0x7ffe_0010_0123), [&files[..], &[stack]].concat());
        assert_eq!(unneeded(MAPPINGS, 0x7f4a_19a3_2123), files, "another thread's frame");
        assert_eq!(unneeded("", 0), []);
    }

    #[test]
    fn a_process_goes_on_without_its_code() {
        let before = b"all of it".to_vec();
        give_back();
        assert_eq!(before, b"all of it");
    }
}
