//! Pages that the kernel will touch during a system call: brought in, and kept
//! until the thread is back in its program.
//!
//! A hold is let go at the thread's next entry into the pager from its program,
//! not when the call returns: nothing has to run after the call.

use zpager_sys::PAGE_BYTES;

use crate::copies::Keep;
use crate::process::Process;
use crate::regions::Pages;
use crate::threads::Thread;

/// The pages of `bytes` at `address`.
pub(crate) fn pages_of(address: usize, bytes: usize) -> Pages {
    let end = address.saturating_add(bytes).min(1 << 47).div_ceil(PAGE_BYTES);
    (address / PAGE_BYTES) as u64..end as u64
}

impl Process {
    /// Whether a buffer lies in managed memory, in part at least.
    pub(crate) fn is_managed(&self, address: usize, bytes: usize) -> bool {
        bytes > 0 && address < 1 << 47 && self.regions.overlaps(&pages_of(address, bytes))
    }

    /// Brings a buffer in and keeps it for the thread's call.
    pub(crate) fn hold(&mut self, thread: &mut Thread, address: usize, bytes: usize) {
        if !self.is_managed(address, bytes) {
            return;
        }
        let pages = pages_of(address, bytes);
        thread.hold(pages.clone());
        self.make_resident(pages.clone(), Keep::Nothing);
        self.make_own(&pages);
    }

    /// Brings a buffer in that the kernel only reads, and keeps it for the thread's call.
    pub(crate) fn hold_to_read(&mut self, thread: &mut Thread, address: usize, bytes: usize) {
        if self.is_managed(address, bytes) {
            let pages = pages_of(address, bytes);
            thread.hold(pages.clone());
            self.make_resident(pages, Keep::Copies);
        }
    }

    /// Copies `out.len()` bytes of the program's memory, which may be absent or not mapped.
    pub(crate) fn peek(&mut self, address: usize, out: &mut [u8]) -> bool {
        if self.is_managed(address, out.len()) {
            self.make_resident(pages_of(address, out.len()), Keep::Copies);
        }
        zpager_sys::process::peek(address, out).is_ok()
    }

    /// Copies words of the program's memory.
    pub(crate) fn peek_words<const N: usize>(&mut self, address: usize) -> Option<[usize; N]> {
        words(|bytes| self.peek(address, bytes))
    }
}

/// Copies words of the program's memory, with the lock not held; they are there where the process has
/// left management.
pub(crate) fn peek_words<const N: usize>(address: usize) -> Option<[usize; N]> {
    Process::with(|process| process.peek_words(address))
        .unwrap_or_else(|| words(|bytes| zpager_sys::process::peek(address, bytes).is_ok()))
}

/// Words whose bytes something writes, if it does.
fn words<const N: usize>(write: impl FnOnce(&mut [u8]) -> bool) -> Option<[usize; N]> {
    let mut words = [0usize; N];
    // SAFETY: the words are plain bytes.
    let bytes = unsafe {
        core::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), size_of_val(&words))
    };
    write(bytes).then_some(words)
}
