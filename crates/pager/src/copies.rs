//! Clean copies as the pager sees them: pages that are write-protected because they are in the store
//! as they are.
//!
//! Who writes one faults, the handler has the cache free its record, and only then the page can be
//! written: nothing has to be looked for when it leaves. That is userfaultfd's plain write-protection,
//! whose fault the pager serves. With `UFFD_FEATURE_WP_ASYNC` the kernel would serve it, for less than
//! half of the time, and `PAGEMAP_SCAN` would tell later; but that is a property of a userfaultfd as a
//! whole, and pages that are shared since a fork need faults ([`crate::sharing`]).
//!
//! Source: ioctl_userfaultfd(2), `UFFDIO_COPY_MODE_WP` and `UFFDIO_WRITEPROTECT`, Linux 5.7.
//!
//! Invariants, under the lock:
//! - a page whose entry is protected cannot be written, or is not there. Before anything is done that
//!   may take protection from pages, be it by a fork, mremap(2) or mprotect(2), they are not clean any
//!   more ([`Process::end_copies`]);
//! - so are pages that the kernel is going to write for a call, as it would not get to them
//!   ([`Process::make_own`]);
//! - a page that leaves is lifted before it is looked at, as any other: one that is pinned stays.
//!
//! Bad for: a program that forks often, as no copy outlives a fork. Who writes another process's
//! memory without asking it (a debugger) gets an error for such pages.

use zpager_sys::PAGE_BYTES;
use zpager_sys::processor::ticks;

use crate::account::count;
use crate::fault::fail;
use crate::process::Process;
use crate::regions::Pages;
use crate::watch::Watch;

/// What of pages that come in stays in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Nothing: they are about to be written.
    Nothing,
    /// What came from there, where that pays.
    Copies,
}

impl Process {
    pub(crate) fn is_protected(&self, page: u64) -> bool {
        self.engine.cache.index.get(page).is_protected()
    }

    /// How many pages from `page` on, at most `most`, are in the store still as it is, or are not as
    /// it is not, while they come in; and whether they are.
    pub(crate) fn kept_alike(&self, page: u64, most: usize) -> (usize, bool) {
        let is_kept = self.engine.keeps_copy(page);
        let is_alike = |at: &u64| self.engine.keeps_copy(page + at) == is_kept;
        (1 + (1..most as u64).take_while(is_alike).count(), is_kept)
    }

    /// Write-protects those of so many pages from `page` on, which were just put in, that are in the
    /// store still; no thread of the program runs. Where that is refused they are not in the store any more.
    pub(crate) fn protect_kept(&mut self, page: u64, pages: usize) {
        let mut done = 0;
        while done < pages {
            let first = page + done as u64;
            let (alike, is_kept) = self.kept_alike(first, pages - done);
            done += alike;
            let (start, bytes) = (first as usize * PAGE_BYTES, alike * PAGE_BYTES);
            if is_kept && self.watch.write_protect(start, bytes, true).is_err() {
                let _ = self.watch.write_protect(start, bytes, false);
                (first..).take(alike).for_each(|page| self.engine.cache.forget(page));
            }
        }
    }

    /// A write to a page that is protected because it is clean, or was.
    pub(crate) fn serve_write_to_clean(&mut self, page: u64) {
        let began = ticks();
        count(&self.control.counters.clean_faults, 1);
        let start = page as usize * PAGE_BYTES;
        if let Err(error) = self.watch.write_protect(start, PAGE_BYTES, false) {
            fail(error, start);
        }
        // Other threads may have written it by now, but nobody takes it for clean while the lock is held.
        self.engine.written(page, ticks().wrapping_sub(began).max(1));
    }

    /// Lets all pages of a range be written, and notes that they may be.
    pub(crate) fn end_copies(&mut self, pages: &Pages) {
        if !self.engine.cache.has_protected() {
            return;
        }
        let mut from = pages.start;
        while let Some((first, _)) =
            self.engine.cache.index.next_that(from, pages.end, zpager_cache::Entry::is_protected)
        {
            let rest = first..pages.end;
            let run = rest.take_while(|page| self.is_protected(*page)).count() as u64;
            from = first + run;
            (first..from).for_each(|page| self.engine.written(page, 0));
            end_protection(self.watch, &(first..from));
        }
    }

    /// Before a fork: all pages can be written, so that what is protected then is shared.
    pub(crate) fn end_all_copies(&mut self) {
        for at in 0..self.regions.all().len() {
            let pages = self.regions.all()[at].pages();
            self.end_copies(&pages);
        }
        self.engine.cache.end_protection();
    }
}

/// Lets pages be written that are not clean.
pub(crate) fn end_protection(watch: Watch, pages: &Pages) {
    let bytes = (pages.end - pages.start) as usize * PAGE_BYTES;
    if watch.write_protect(pages.start as usize * PAGE_BYTES, bytes, false).is_ok() {
        return;
    }
    // Not over the border of two mappings on kernels before 6.3.
    for page in pages.clone() {
        let start = page as usize * PAGE_BYTES;
        if let Err(error) = watch.write_protect(start, PAGE_BYTES, false) {
            fail(error, start);
        }
    }
}
