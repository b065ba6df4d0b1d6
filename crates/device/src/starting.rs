//! Memory that only starting took, given back before the server's memory is locked, and code that is there
//! before it is needed.
//!
//! What is locked stays (mlockall(2)), and on a small machine it is missed: of a server in a guest of
//! 64 MiB it was 4 MiB, of its code that reads the command line and so on, of the heap and of the stack
//! that took.
//!
//! Where all code is a small part of the machine it is locked as a whole. Elsewhere each page is read from
//! its file when it is wanted first, without those around it, which would be locked as well; and so that
//! nothing has to be read while memory is short, what will be wanted is wanted before ([`crate::rehearsal`]).
//!
//! Source: madvise(2), MADV_DONTNEED and MADV_RANDOM; posix_fadvise(2); mlock(2); malloc_trim(3);
//! proc_pid_smaps(5). That a fault maps what else is in the page cache near it: `do_fault_around` in
//! mm/memory.c of Linux.
//!
//! Invariant: only what is read again from its file when it is wanted, or what nobody uses, is given
//! back: parts of files that cannot be written to and were not, and the part of the first thread's
//! stack that no function has.

use std::fs;
use std::ops::Range;

use rustix::fs::{Advice as FileAdvice, fadvise};
use rustix::mm::{Advice, madvise, mlock};
use zpager_sys::process::value_bytes;

const PAGE_BYTES: usize = 4096;
/// Below the caller's frame, for what it calls next.
const STACK_KEPT_BYTES: usize = 16 << 10;
/// All code is locked where it is this part of the machine's memory at most.
const CODE_PART: u64 = 64;

/// What this process has in RAM, and may do without.
#[derive(Debug, Default, PartialEq, Eq)]
struct Unneeded<'a> {
    stack: Option<Range<usize>>,
    /// Code and constants, as they are in their files, and the names of these.
    code: Vec<(Range<usize>, &'a str)>,
}

/// Gives back what this process has of heap and stack and does not use. Of its code and constants it locks all, or
/// has in RAM, where they are too much for this machine, those alone that `rehearse` uses. The rest is locked afterwards.
pub(crate) fn settle(rehearse: impl FnOnce()) {
    // Where the kernel does not tell there is nothing to be done.
    let mappings = fs::read("/proc/self/smaps").unwrap_or_default();
    let machine = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    // Names of files may be anything.
    let mappings = String::from_utf8_lossy(&mappings);
    let here = 0_u8;
    let unneeded = Unneeded::find(&mappings, (&raw const here).addr());
    let most_bytes = value_bytes(&machine, "MemTotal:").unwrap_or(0) / CODE_PART;
    if unneeded.code_bytes() > most_bytes {
        unneeded.have_code_read_anew();
        rehearse();
    } else {
        unneeded.lock_code();
    }
    unneeded.stack.iter().for_each(give_back);
    trim_heap();
}

/// Has the C library give back what is free of the heap.
fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Gives back a part of what [`Unneeded`] has.
fn give_back(range: &Range<usize>) {
    let start = std::ptr::with_exposed_provenance_mut(range.start);
    // SAFETY: what nobody has written to is read from its file again; below the frame and what is
    // kept for calls nothing of the stack is in use.
    let _ = unsafe { madvise(start, range.len(), Advice::LinuxDontNeed) };
}

impl<'a> Unneeded<'a> {
    /// What a caller with this frame may do without, of the mappings in the text of /proc/PID/smaps.
    fn find(mappings: &'a str, frame: usize) -> Self {
        let mut found = Unneeded::default();
        let mut last = None;
        for line in mappings.lines() {
            if let Some(mapping) = Mapping::read(line) {
                last = Some(mapping);
            } else if let (Some(mapping), Some(own)) = (&last, line.strip_prefix("Anonymous:")) {
                found.add(mapping, own.trim() == "0 kB", frame);
            }
        }
        found
    }

    /// `is_as_in_file`: no page of the mapping was written to.
    fn add(&mut self, mapping: &Mapping<'a>, is_as_in_file: bool, frame: usize) {
        let Mapping { range, rights, name } = mapping;
        let is_read_only = matches!(*rights, "r-xp" | "r--p");
        if *name == "[stack]" && range.contains(&frame) {
            let end = frame.saturating_sub(STACK_KEPT_BYTES) / PAGE_BYTES * PAGE_BYTES;
            self.stack = (range.start < end).then_some(range.start..end);
        } else if is_read_only && is_as_in_file && name.starts_with('/') {
            self.code.push((range.clone(), name));
        }
    }

    fn code_bytes(&self) -> u64 {
        self.code.iter().map(|(range, _)| range.len() as u64).sum()
    }

    fn lock_code(&self) {
        for (range, _) in &self.code {
            let start = std::ptr::with_exposed_provenance_mut(range.start);
            // SAFETY: a mapping of this process. Where it is not permitted the rest will not be, which is told.
            let _ = unsafe { mlock(start, range.len()) };
        }
    }

    /// Has each page of the code be read from its file when it is wanted next, by itself. What another process has of
    /// the file stays in the page cache, and comes with what is near it.
    fn have_code_read_anew(&self) {
        for (range, _) in &self.code {
            let start = std::ptr::with_exposed_provenance_mut(range.start);
            // SAFETY: advice about a mapping of this process, that changes nothing in it.
            let _ = unsafe { madvise(start, range.len(), Advice::Random) };
            give_back(range);
        }
        let mut names: Vec<&str> = self.code.iter().map(|(_, name)| *name).collect();
        names.dedup();
        for file in names.into_iter().filter_map(|name| fs::File::open(name).ok()) {
            // Where it stays it takes what it took.
            let _ = fadvise(&file, 0, None, FileAdvice::DontNeed);
        }
    }
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
        let file = "/usr/bin/zpager";
        let code = [0x55c9_5d19_2000..0x55c9_5d48_f000, 0x55c9_5d48_f000..0x55c9_5d8e_f000];
        let code = Vec::from(code.map(|range| (range, file)));
        let of_another_thread = Unneeded { stack: None, code: code.clone() };
        let of_the_first = Unneeded { stack: Some(0x7ffe_0000_0000..0x7ffe_000f_c000), code };
        assert_eq!(of_the_first.code_bytes(), 0x75_d000);
        assert_eq!(Unneeded::find(MAPPINGS, 0x7ffe_0010_0123), of_the_first);
        assert_eq!(Unneeded::find(MAPPINGS, 0x7f4a_19a3_2123), of_another_thread);
        assert_eq!(Unneeded::find("", 0), Unneeded::default());
    }

    #[test]
    fn a_process_goes_on_without_its_code() {
        let before = b"all of it".to_vec();
        let mappings = fs::read_to_string("/proc/self/smaps").expect("there");
        Unneeded::find(&mappings, 0).have_code_read_anew();
        settle(|| ());
        assert_eq!(before, b"all of it");
    }
}
