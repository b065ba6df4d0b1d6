//! Pages that a process shares with its relatives since a fork.
//!
//! A forked child's pages are its parent's until one of them writes; then the
//! kernel copies, and says nothing. So the child counts its part of what it got
//! as nothing at first, and asks the kernel from time to time how much is still
//! shared. Source: Documentation/filesystems/proc.rst, smaps_rollup.
//!
//! Bad case: a child that writes all of it between two questions.

use zpager_sys::file::Fd;
use zpager_sys::nr;

use crate::process::Process;

/// Entries into the pager between two questions; one costs about a millisecond for 100 MiB.
const ENTRIES: u32 = 1024;
const FIELD: &[u8] = b"Shared_Dirty:";

impl Process {
    /// Called at every entry; asks when it is time.
    pub(crate) fn recount_shared(&mut self) {
        if self.shared_bytes == 0 {
            return;
        }
        self.entries_until_recount = self.entries_until_recount.saturating_sub(1);
        if self.entries_until_recount == 0 {
            self.entries_until_recount = ENTRIES;
            self.shared_bytes = self.shared_bytes.min(shared_kib().unwrap_or(0) as usize * 1024);
        }
    }
}

fn shared_kib() -> Option<u64> {
    let file = Fd::open(b"/proc/self/smaps_rollup\0", nr::O_RDONLY).ok()?;
    let mut text = [0u8; 2048];
    let read = file.read(&mut text);
    file.close();
    let text = &text[..read.ok()?];
    let at = text.windows(FIELD.len()).position(|window| window == FIELD)? + FIELD.len();
    let digits = text[at..].iter().skip_while(|byte| **byte == b' ');
    let number = digits.take_while(|byte| byte.is_ascii_digit());
    Some(number.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}
