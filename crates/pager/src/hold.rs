//! Pages that the kernel will touch during a system call: brought in, and kept
//! until the thread is back in its program.
//!
//! A hold is let go at the thread's next entry into the pager from its program,
//! not when the call returns: nothing has to run after the call.
//!
//! Bad case: what is read of a call, or written for one about signals, in memory with a protection key that a handler
//! begins without (pkeys(7)), or with the stack pointer in the same page where there is no memory. It ends the program.

use zpager_sys::signal::Context;
use zpager_sys::{Errno, PAGE_BYTES};

use crate::copies::Keep;
use crate::process::Process;
use crate::regions::Pages;
use crate::threads::Thread;

/// What is copied at once of memory that is read one behind the other.
const WINDOW_BYTES: usize = 1024;

/// What of the program's memory is there as sure as the pager's own, as long as the lock is held: what is managed,
/// where no other thread can be just about to change that, and what the stack pointer of the thread that makes a call
/// points to, without which it could not go on. To ask the kernel to copy a few bytes takes as long as half a
/// call that is dispatched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sure {
    stack_page: u64,
    /// The thread's number.
    thread: u32,
}

impl Sure {
    /// While a thread makes a call.
    pub(crate) fn of(thread: &Thread, context: &Context) -> Self {
        let stack_page = (context.registers.rsp / PAGE_BYTES) as u64;
        Sure { stack_page, thread: thread.number() }
    }
}

/// A part of the program's memory, copied once for all that is read of it with the lock held.
pub(crate) struct Window {
    /// Where it lies: at a multiple of its size, so within one page.
    place: Option<usize>,
    bytes: [u8; WINDOW_BYTES],
    /// What is copied without the kernel.
    sure: Option<Sure>,
}

impl Window {
    pub(crate) fn new(sure: Option<Sure>) -> Self {
        Window { place: None, bytes: [0; WINDOW_BYTES], sure }
    }
}

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

    /// The bytes from `address` to the end of the window that it is in, which is moved there.
    pub(crate) fn peek_through<'a>(
        &mut self,
        window: &'a mut Window,
        address: usize,
    ) -> Option<&'a [u8]> {
        let offset = address % WINDOW_BYTES;
        let place = address - offset;
        if window.place != Some(place) {
            window.place = None;
            if !self.read(window.sure, place, &mut window.bytes) {
                return None;
            }
            window.place = Some(place);
        }
        Some(&window.bytes[offset..])
    }

    /// [`Process::peek`], without the kernel where it can be.
    fn read(&mut self, sure: Option<Sure>, address: usize, out: &mut [u8]) -> bool {
        let pages = pages_of(address, out.len());
        if !sure.is_some_and(|sure| self.is_sure(sure, &pages)) {
            return self.peek(address, out);
        }
        self.make_resident(pages, Keep::Copies);
        // SAFETY: it is there, to be read, and resident, and the pager's own memory lies elsewhere.
        unsafe { (address as *const u8).copy_to_nonoverlapping(out.as_mut_ptr(), out.len()) };
        true
    }

    /// Words through a window, or besides it where they cross its end.
    pub(crate) fn peek_words_through<const N: usize>(
        &mut self,
        window: &mut Window,
        address: usize,
    ) -> Option<[usize; N]> {
        words(|bytes| self.copy_through(window, address, bytes))
    }

    /// Copies bytes through a window, or besides it where they cross its end.
    pub(crate) fn copy_through(
        &mut self,
        window: &mut Window,
        address: usize,
        out: &mut [u8],
    ) -> bool {
        let Some(there) = self.peek_through(window, address) else { return false };
        match there.get(..out.len()) {
            Some(there) => out.copy_from_slice(there),
            None => return self.peek(address, out),
        }
        true
    }

    /// Copies words of the program's memory.
    pub(crate) fn peek_words<const N: usize>(&mut self, address: usize) -> Option<[usize; N]> {
        words(|bytes| self.peek(address, bytes))
    }

    /// The same of what a call of the thread is about: without the kernel where it can be.
    pub(crate) fn read_words<const N: usize>(
        &mut self,
        thread: &Thread,
        context: &Context,
        address: usize,
    ) -> Option<[usize; N]> {
        words(|bytes| self.read(Some(Sure::of(thread, context)), address, bytes))
    }

    /// Writes words that a call of the thread gives, to memory that may be absent or not mapped: without the kernel
    /// where it can be.
    pub(crate) fn write_words<const N: usize>(
        &mut self,
        thread: &mut Thread,
        context: &Context,
        address: usize,
        words: [usize; N],
    ) -> Result<(), Errno> {
        self.hold(thread, address, size_of_val(&words));
        if !self.is_sure(Sure::of(thread, context), &pages_of(address, size_of_val(&words))) {
            return zpager_sys::process::poke(address, &words);
        }
        // SAFETY: it is there, to be written, and held.
        unsafe { (address as *mut [usize; N]).write_unaligned(words) };
        Ok(())
    }

    /// Whether the pager may read and write a page of the program as its own memory.
    fn is_sure(&self, sure: Sure, pages: &Pages) -> bool {
        let is_on_stack = pages.start == sure.stack_page;
        pages.end == pages.start + 1
            && match self.regions.find(pages.start) {
                Some(region) => {
                    region.can_move() && (is_on_stack || self.threads.is_alone_with(sure.thread))
                }
                None => is_on_stack,
            }
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
