//! Managing a process by guard pages, where userfaultfd is forbidden.
//!
//! What is away, or was never there, is a guard: who touches it gets a SIGSEGV, and its handler brings the page in.
//! Lifting copies pages, and puts guards in their place; bringing in takes a guard away and writes what was there.
//! Where other threads run, the stretch of memory may not be accessed at all from before its pages are read until
//! guards are in their place, and a page not from before its guard is taken away until it is written. Threads that
//! fault there meanwhile find it as it should be once they have the lock.
//!
//! Source: madvise(2), `MADV_GUARD_INSTALL`, Linux 6.13; mm/madvise.c. [`zpager_sys::guards`] has the calls.
//!
//! Invariants, under the lock:
//! - a page of a region that may be accessed and is not resident has a guard, but for one that the kernel had mapped
//!   when the region was taken in and told nothing of: such a page is never written by the pager;
//! - fresh pages become resident by the guard being taken away, so that what is there stays as it is;
//! - no page is clean. One that is in a frame ([`crate::sharing`]) is in memory that is read-only (`shut`) though its
//!   region says otherwise, and with it others may be: who writes one of these has them opened;
//! - a stretch that is made inaccessible has no page that is held for a call, and ends as it was, or shut;
//! - a page that a device may write is not lifted: it would be parted from the one that the program sees
//!   ([`crate::calls`], pins.rs);
//! - pages of a region without any access need no guards: they get them before the program may access them.
//!
//! Bad for: a mapping of many times the budget of which little is used. Each guard takes eight bytes of page tables,
//! so such a mapping is left alone. And for relatives that write in random order to what they have in common: each
//! page that is opened by itself is a mapping of its own, of which the kernel allows some 65,000.

use zpager_sys::guards::{self, Takes, Taking};
use zpager_sys::pagemap::Pagemap;
use zpager_sys::process::Part;
use zpager_sys::signal::SEGV_PKUERR;
use zpager_sys::syscall::checked;
use zpager_sys::{Errno, PAGE_BYTES, nr};

use crate::fault::{TRIES_MAX, fail};
use crate::maps;
use crate::process::Process;
use crate::regions::{Pages, Region, bytes_of};
use crate::start::open_pagemap;
use crate::stretches::GAP_PAGES_MAX;
use crate::swapout::LIFT_PAGES;
use crate::threads::Thread;
use crate::unmanage::has_page;
use crate::watch::Watch;

const ENOMEM: Errno = Errno(12);
const EOPNOTSUPP: Errno = Errno(95);
/// A mapping with more pages that are not there than this many times the budget is left alone.
const BUDGETS_MAX: u64 = 64;
/// So many faults in a row on a page that is there are not looked at.
const IDLE_FAULTS: u32 = 1024;
/// Pages to each side that are opened with one that is written.
const NEIGHBOURS: u64 = 64;
/// Bits of a page fault's error code: a write, the fetch of an instruction.
const FAULT_WRITE: usize = 1 << 1;
const FAULT_FETCH: usize = 1 << 4;

impl Process {
    pub(crate) fn is_guarded(&self) -> bool {
        self.watch.is_by_guards()
    }

    /// Takes memory into management that was mapped just now and has no pages yet.
    pub(crate) fn manage_fresh(&mut self, pages: Pages, protection: u32) {
        if self.manage(pages.clone(), protection) {
            self.cover_fresh(pages, protection);
        }
    }

    /// Puts guards in place of managed pages of which none is there. Where they cannot be, or would be too many, the
    /// pages leave management.
    pub(crate) fn cover_fresh(&mut self, pages: Pages, protection: u32) {
        if !self.is_guarded() || protection == nr::PROT_NONE || pages.is_empty() {
            return;
        }
        let (start, bytes) = bytes_of(&pages);
        let is_much = bytes > self.guarded_bytes_max();
        // SAFETY: there is nothing to miss.
        if is_much || unsafe { guards::install(start, bytes) }.is_err() {
            self.unmanage(pages);
        }
    }

    fn guarded_bytes_max(&self) -> usize {
        self.control.settings.budget_bytes.saturating_mul(BUDGETS_MAX) as usize
    }

    /// Puts guards where no pages are in a managed range that no thread can access at the moment. What cannot have them
    /// leaves management.
    pub(crate) fn cover_absent(&mut self, pages: Pages, pagemap: Option<&Pagemap>) {
        if !self.is_guarded() {
            return;
        }
        let (start, bytes) = bytes_of(&pages);
        let mut is_covered = true;
        let mut left_bytes = self.guarded_bytes_max();
        let is_told = pagemap.is_some_and(|pagemap| {
            pagemap.each_absent(start..start + bytes, |run| {
                match left_bytes.checked_sub(run.len()) {
                    // SAFETY: no page is there.
                    Some(left) if unsafe { guards::install(run.start, run.len()) }.is_ok() => {
                        left_bytes = left;
                    }
                    _ => is_covered = false,
                }
            })
        });
        if !is_told || !is_covered {
            self.unmanage(pages);
        }
    }

    /// Takes pages out of management that are guards of the program's own, and stay such.
    pub(crate) fn leave_guards(&mut self, pages: Pages) {
        self.forget(pages.clone());
        if !self.is_guarded() {
            self.unmanage(pages);
        } else if !self.regions.remove(pages.clone()) {
            fail(ENOMEM, pages.start as usize * PAGE_BYTES);
        }
    }

    /// Drops what a part of a region holds: as if it were new. One that may not be accessed gets its guards later.
    pub(crate) fn drop_guarded(&mut self, part: &Region) -> Result<usize, Errno> {
        let (start, bytes) = part.bytes();
        let advice = self.advice_to_drop(part);
        // SAFETY: the program gives it up.
        unsafe { checked(nr::__NR_madvise, [start, bytes, advice as usize]) }?;
        self.forget(part.pages());
        Ok(0)
    }

    /// By what advice the pages of a region are dropped so that who touches one faults.
    pub(crate) fn advice_to_drop(&self, region: &Region) -> u32 {
        match self.is_guarded() && region.protection != nr::PROT_NONE {
            true => nr::MADV_GUARD_INSTALL,
            false => nr::MADV_DONTNEED,
        }
    }

    /// Before a range may be accessed: those parts of it that may not be get guards where nothing is.
    pub(crate) fn cover_inaccessible(&mut self, pages: &Pages) {
        let mut from = pages.start;
        while self.is_guarded()
            && let Some(part) = self.regions.first_part(&(from..pages.end))
        {
            from = part.end;
            if part.protection == nr::PROT_NONE {
                self.cover_absent(part.pages(), open_pagemap().ok().as_ref());
            }
        }
    }

    /// Advice that drops pages, or takes guards away. Of managed memory the latter has none of the program's; the rest
    /// is for the kernel, which reports what it finds wrong.
    pub(crate) fn advise_guarded(&mut self, pages: Pages, advice: u32) -> Result<usize, Errno> {
        let mut outcome = Ok(0);
        let mut from = pages.start;
        while from < pages.end {
            let part = self.regions.first_part(&(from..pages.end));
            let end = part.map_or(pages.end, |part| part.start);
            if from < end {
                let (start, bytes) = bytes_of(&(from..end));
                // SAFETY: the program's own call, of memory that is not managed.
                let told = unsafe { checked(nr::__NR_madvise, [start, bytes, advice as usize]) };
                outcome = outcome.and(told);
            }
            let Some(part) = part else { break };
            from = part.end;
            if advice != nr::MADV_GUARD_REMOVE {
                outcome = outcome.and(self.drop_guarded(&part));
            }
        }
        outcome
    }

    /// Whether a SIGSEGV with this code, at `address`, by an access of such an error code, may have come of a guard or of
    /// what is being done about one: it is allowed by the region's protection.
    pub(crate) fn may_be_of_guard(&self, code: i32, address: usize, error: usize) -> bool {
        let wanted = match error & (FAULT_WRITE | FAULT_FETCH) {
            0 => nr::PROT_READ,
            FAULT_WRITE => nr::PROT_WRITE,
            _ => nr::PROT_EXEC,
        };
        // On x86 what can be written or executed can be read.
        let gives = |protection: u32| match wanted {
            nr::PROT_READ => protection != nr::PROT_NONE,
            _ => protection & wanted != 0,
        };
        let region = self.regions.find((address / PAGE_BYTES) as u64);
        code != SEGV_PKUERR && region.is_some_and(|region| gives(region.protection))
    }

    /// A fault on a page that is there: it was on its way, or what may be done with it was about to change. Once in a
    /// while the kernel is asked whether that is so; false where the access is not allowed.
    pub(crate) fn may_be_tried_again(
        &mut self,
        thread: &mut Thread,
        page: u64,
        is_write: bool,
    ) -> bool {
        let (last, count) = thread.idle_fault;
        thread.idle_fault = (page, if last == page { count.wrapping_add(1) } else { 1 });
        if last != page || !count.is_multiple_of(IDLE_FAULTS) {
            return true;
        }
        let Some(line) = maps::anonymous_at(page as usize * PAGE_BYTES) else { return true };
        let wanted = if is_write { nr::PROT_WRITE } else { !0 };
        let is_allowed = line.protection & wanted != 0;
        if !is_allowed {
            self.regions.protect(page..page + 1, line.protection);
        }
        is_allowed
    }

    /// [`Process::put`] where guards stand for pages; zeros are there already.
    pub(crate) fn put_guarded(&mut self, page: u64, source: *const u8, heats: &[u8]) {
        let is_fresh = source == self.zeros.base().cast_const();
        let mut done = 0;
        let mut most = heats.len();
        let mut tries = 0;
        while done < heats.len() {
            let first = page + done as u64;
            let pages = (heats.len() - done).min(most);
            let (target, bytes) = (first as usize * PAGE_BYTES, pages * PAGE_BYTES);
            // SAFETY: the source holds that many pages.
            let outcome = unsafe {
                match is_fresh {
                    true => guards::remove(target, bytes),
                    false => self.write_over(target, source.add(done * PAGE_BYTES), bytes),
                }
            };
            match outcome {
                Ok(()) => {
                    for (at, &heat) in heats.iter().enumerate().skip(done).take(pages) {
                        self.note_resident(page + at as u64, heat);
                    }
                    done += pages;
                    tries = 0;
                }
                Err(_) if most > 1 => most = 1,
                // Not mapped at all: nobody can want the page.
                Err(_) if has_page(first).is_err() => {
                    self.forget(first..first + 1);
                    done += 1;
                }
                Err(_) if tries < TRIES_MAX => tries += 1,
                Err(error) => fail(error, target),
            }
        }
    }

    /// Before a call that begins a thread: without the memory file no page could be brought in beside it.
    pub(crate) fn is_without_file(&self) -> bool {
        matches!(self.watch, Watch::Guards(None))
    }

    /// Whether nobody can see what happens to this memory: neither threads nor processes of the run, which may read and
    /// write it by process_vm_readv(2) and the like.
    fn is_unobserved(&self) -> bool {
        self.threads.was_always_one() && self.control.processes.count() <= 1
    }

    /// Puts copies of `bytes` from `source` in where there are guards at `target`.
    ///
    /// # Safety
    /// As for [`guards::OwnMemory::put`].
    unsafe fn write_over(
        &self,
        target: usize,
        source: *const u8,
        bytes: usize,
    ) -> Result<(), Errno> {
        let Watch::Guards(memory) = self.watch else { return Err(EOPNOTSUPP) };
        let region = self.regions.find((target / PAGE_BYTES) as u64);
        let Some(Region { protection, .. }) = region else { return Err(ENOMEM) };
        let is_alone = self.is_unobserved();
        // SAFETY: the caller's promise; a thread that faults there waits for the lock, and without the file there is
        // one thread.
        unsafe {
            match memory {
                Some(memory) => memory.put((target, bytes), source, protection, is_alone),
                None => {
                    let is_writable = protection & nr::PROT_WRITE != 0 && !self.has_shut;
                    guards::put_openly((target, bytes), source, protection, is_writable)
                }
            }
        }
    }

    /// What may hold in a part of a region: where a page of it is in a frame all of it is read-only.
    fn present_protection(&self, region: &Region, pages: &Pages) -> u32 {
        let is_shared = self.shared_pages > 0 && self.has_frames(pages);
        region.protection & if is_shared { !nr::PROT_WRITE } else { !0 }
    }

    /// Has nobody write some pages without a fault. What is not managed, or cannot be written, stays as it is.
    pub(crate) fn shut(&mut self, pages: Pages) -> bool {
        self.has_shut = true;
        self.protect_parts(pages, !nr::PROT_WRITE)
    }

    /// Lets some pages be written, as far as their regions say so.
    pub(crate) fn open(&mut self, pages: Pages) -> bool {
        !self.has_shut || self.protect_parts(pages, !0)
    }

    fn protect_parts(&mut self, pages: Pages, mask: u32) -> bool {
        let mut is_done = true;
        let mut from = pages.start;
        while let Some(part) = self.regions.first_part(&(from..pages.end)) {
            from = part.end;
            let (start, bytes) = part.bytes();
            // SAFETY: a thread that writes there meanwhile faults, and waits for the lock.
            is_done &= !part.is_writable()
                || unsafe { guards::protect(start, bytes, part.protection & mask) }.is_ok();
        }
        is_done
    }

    /// Lets a page be written that is in no frame, and with it neighbours that are in none, so that mappings
    /// become few again.
    pub(crate) fn open_around(&mut self, region: &Region, page: u64) {
        if !self.has_shut {
            return;
        }
        let is_free = |at: &u64| self.frame_of(*at).is_none();
        let low = page.saturating_sub(NEIGHBOURS).max(region.start);
        let high = (page + NEIGHBOURS).min(region.end);
        let below = (low..page).rev().take_while(is_free).count() as u64;
        let above = (page..high).take_while(is_free).count() as u64;
        if !self.open(page - below..page + above) {
            // Mappings have run out: all of it becomes one.
            self.open_all(&region.pages());
        }
    }

    /// Before the kernel writes pages that are in no frame.
    pub(crate) fn open_for_kernel(&mut self, pages: &Pages) {
        if !self.open(pages.clone()) {
            self.open_all(pages);
        }
    }

    /// Lets all of a range be written; what was in frames is counted as the process's own.
    pub(crate) fn open_all(&mut self, pages: &Pages) {
        if !self.has_shut {
            return;
        }
        self.disown_frames(pages.clone());
        if !self.open(pages.clone()) {
            fail(ENOMEM, pages.start as usize * PAGE_BYTES);
        }
    }

    /// Swaps out at most [`LIFT_PAGES`] resident pages, in ascending order; gives how many were lifted.
    pub(crate) fn swap_out_guarded(&mut self, victims: &[u64]) -> usize {
        let mut count = 0;
        let mut rest = if self.may_pin_unseen { &[] } else { victims };
        while !rest.is_empty() {
            let (region, length) = self.stretch_of(rest);
            let (stretch, behind) = rest.split_at(length);
            let taken = region.map_or(0, |region| self.lift_guarded(&region, stretch));
            stretch[taken..].iter().for_each(|&page| self.rejuvenate(page));
            count += taken;
            rest = behind;
        }
        self.write_ahead();
        count
    }

    /// The region of the first of `victims`, which are not empty, and how many of them can be lifted with it.
    fn stretch_of(&self, victims: &[u64]) -> (Option<Region>, usize) {
        let region = self.regions.find(victims[0]);
        let end = region.map_or(0, |region| region.end);
        let pairs = victims.windows(2);
        let near =
            pairs.take_while(|pair| pair[1] < end && pair[1] - pair[0] <= GAP_PAGES_MAX).count();
        (region, self.before_hold(&victims[..1 + near]))
    }

    /// Swaps out the first of some pages that can be taken; gives how many.
    fn lift_guarded(&mut self, region: &Region, victims: &[u64]) -> usize {
        let contents = &mut Self::pages_of(&self.incoming)[..victims.len()];
        self.incoming_pages_max = self.incoming_pages_max.max(victims.len());
        let mut runs = [Part::default(); LIFT_PAGES];
        let parts = runs_of(victims, &mut runs);
        let stretch = victims[0]..victims[victims.len() - 1] + 1;
        let (start, bytes) = bytes_of(&stretch);
        let takes = Takes {
            range: [start, bytes],
            parts,
            protection: self.present_protection(region, &stretch),
            is_alone: self.is_unobserved(),
            at_once: self.drops_parts,
        };
        // SAFETY: there is a page of the contents for each; what they hold comes back at the next fault, for which
        // other threads wait.
        let pages = match unsafe { takes.take(contents.as_mut_ptr().cast()) } {
            Ok(bytes) => bytes / PAGE_BYTES,
            Err(Taking::Refused(_)) => 0,
            Err(Taking::Stuck(error)) => fail(error, start),
        };
        self.store_lifted(&victims[..pages], contents);
        pages
    }
}

/// The runs of neighbours that some pages in ascending order are, of which there are no more than places.
fn runs_of<'a>(pages: &[u64], runs: &'a mut [Part; LIFT_PAGES]) -> &'a [Part] {
    let mut count = 0;
    for run in pages.chunk_by(|one, next| one + 1 == *next).take(LIFT_PAGES) {
        runs[count] = [run[0] as usize * PAGE_BYTES, run.len() * PAGE_BYTES];
        count += 1;
    }
    &runs[..count]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_part() {
        let mut runs = [Part::default(); LIFT_PAGES];
        assert_eq!(runs_of(&[], &mut runs), &[] as &[Part]);
        let parts = runs_of(&[3, 4, 5, 7, 9, 10], &mut runs);
        assert_eq!(
            parts,
            [[3, 3], [7, 1], [9, 2]].map(|part| part.map(|pages| pages * PAGE_BYTES))
        );
    }
}
