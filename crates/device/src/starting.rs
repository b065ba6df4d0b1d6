//! Memory that only starting took, given back before the server's memory is locked.
//!
//! What is locked stays (mlockall(2)), and on a small machine it is missed: of a server in a guest of
//! 64 MiB it was 5 MiB, of its code that reads the command line and so on, and of the stack that took.
//!
//! Source: madvise(2), MADV_DONTNEED; proc_pid_maps(5).
//!
//! Invariant: only what is read again from its file when it is wanted, or what nobody uses, is given
//! back: code, constants, and the part of the first thread's stack that no function has.

use std::fs;
use std::ops::Range;

use rustix::mm::{Advice, madvise};

const PAGE_BYTES: usize = 4096;
/// Below the caller's frame, for what it calls next.
const STACK_KEPT_BYTES: usize = 64 << 10;

/// Gives back what this process has of its code in RAM, and the stack that is not in use.
pub(crate) fn give_back() {
    // Where the kernel does not tell there is nothing to be done.
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let here = 0_u8;
    let frame = (&raw const here).addr();
    for range in maps.lines().filter_map(|line| unneeded(line, frame)) {
        // SAFETY: code that nobody has written to is read from its file again; below the frame and
        // what is kept for calls nothing of the stack is in use.
        let _ = unsafe {
            madvise(
                std::ptr::with_exposed_provenance_mut(range.start),
                range.len(),
                Advice::LinuxDontNeed,
            )
        };
    }
}

/// What can be given back of a mapping, told by its line, by a caller with this frame.
fn unneeded(line: &str, frame: usize) -> Option<Range<usize>> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    let range = address(start)?..address(end)?;
    let (rights, offset, name) = (fields.next()?, fields.next()?, fields.nth(2)?);
    match name {
        "[stack]" if range.contains(&frame) => {
            let end = frame.saturating_sub(STACK_KEPT_BYTES) / PAGE_BYTES * PAGE_BYTES;
            (range.start < end).then_some(range.start..end)
        }
        _ => {
            // What begins the file has its headers and constants; what the linker wrote to comes later.
            let is_unwritten = rights == "r-xp" || rights == "r--p" && offset == "00000000";
            (is_unwritten && name.starts_with('/')).then_some(range)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_unused_stack_are_not_needed() {
        let of = |line| unneeded(line, 0x7ffe_0010_0123);
        let code = "55c95d48f000-55c95d8ef000 r-xp 002fd000 08:01 123  /usr/bin/zpager";
        assert_eq!(of(code), Some(0x55c9_5d48_f000..0x55c9_5d8e_f000));
        let stack = "7ffe00000000-7ffe00110000 rw-p 00000000 00:00 0    [stack]";
        assert_eq!(of(stack), Some(0x7ffe_0000_0000..0x7ffe_000f_0000));
        let constants = "55c95d192000-55c95d48f000 r--p 00000000 08:01 123  /usr/bin/zpager";
        assert_eq!(of(constants), Some(0x55c9_5d19_2000..0x55c9_5d48_f000));
        for needed in [
            "55c95d8ef000-55c95d912000 r--p 0075c000 08:01 123  /usr/bin/zpager",
            "55c95d913000-55c95d915000 rwxp 00780000 08:01 123  /usr/bin/zpager",
            "7ffe00200000-7ffe00310000 rw-p 00000000 00:00 0    [stack]",
            "7ffe51600000-7ffe51602000 r-xp 00000000 00:00 0    [vdso]",
            "7f4a19a32000-7f64a27f9000 rw-p 00000000 00:00 0 ",
            "",
        ] {
            assert_eq!(of(needed), None, "{needed}");
        }
    }

    #[test]
    fn a_process_goes_on_without_its_code() {
        let before = b"all of it".to_vec();
        give_back();
        assert_eq!(before, b"all of it");
    }
}
