//! Taking memory into management, and out of it.
//!
//! Out of it goes what the kernel touches behind the program's back: the stacks
//! and thread control blocks of threads (restartable sequences, the id cleared at
//! exit, robust lists), locked memory, and memory with a meaning of its own to
//! fork.

use zpager_sys::pagemap::Pagemap;
use zpager_sys::syscall::{checked, nr};
use zpager_sys::{Errno, PAGE_BYTES, guards};

use crate::copies::Keep;
use crate::fault::fail;
use crate::hold::pages_of;
use crate::maps;
use crate::process::Process;
use crate::regions::{Pages, Region, bytes_of};
use crate::start::open_pagemap;
use crate::watch::Watch;

/// Of memory that was there before smaller pieces are left alone, unless they are much together: they are
/// the variables of shared objects as a rule, a libc's own among them, to which the kernel writes when a
/// thread ends.
pub(crate) const MANAGED_BYTES_MIN: usize = 64 * 1024;
/// What lies around a thread pointer: the static TLS below it, the first part of the control block above,
/// which in glibc has the thread's id and its list of robust mutexes.
const BELOW_POINTER_BYTES: usize = PAGE_BYTES;
const ABOVE_POINTER_BYTES: usize = 736 + ROBUST_HEAD_BYTES;
/// `struct robust_list_head`.
pub(crate) const ROBUST_HEAD_BYTES: usize = 24;
const PR_GET_TID_ADDRESS: usize = 40;
/// Pages whose presence is asked at a time.
const ADOPTED_PAGES: usize = 512;

impl Process {
    /// Takes private anonymous memory into management, with what it holds. Gives whether it is managed now.
    pub(crate) fn manage(&mut self, pages: Pages, protection: u32) -> bool {
        let (start, bytes) = bytes_of(&pages);
        if start >= 1 << 47 || pages.is_empty() || self.regions.overlaps(&pages) {
            return false;
        }
        // SAFETY: advice that changes no contents. A huge page would come and go as a whole.
        let _ = unsafe { checked(nr::__NR_madvise, [start, bytes, nr::MADV_NOHUGEPAGE as usize]) };
        if self.watch.register(start, bytes).is_err() {
            return false;
        }
        if !self.regions.add(pages, protection) {
            self.let_go_of(start, bytes);
            return false;
        }
        true
    }

    /// Has the kernel serve a range by itself again, all of which that was away is there.
    fn let_go_of(&self, start: usize, bytes: usize) {
        match self.watch {
            Watch::Userfaultfd(uffd) => uffd.unregister(start, bytes),
            // SAFETY: what has a guard still was never written.
            Watch::Guards(_) => drop(unsafe { guards::remove(start, bytes) }),
        }
    }

    /// Takes into management what has come to a managed mapping that grows down (`MAP_GROWSDOWN`), if
    /// `page` is in it: the kernel extends such a mapping by itself when it is touched below its start,
    /// and what it is registered for holds there as well.
    pub(crate) fn manage_grown(&mut self, page: u64) -> Option<Region> {
        let above = self.regions.all().get(self.regions.first_after(page)).copied()?;
        let line = maps::anonymous_at(page as usize * PAGE_BYTES)?;
        let start = (line.start / PAGE_BYTES) as u64;
        let grown = start..above.start;
        if above.start >= (line.end / PAGE_BYTES) as u64 || !grown.contains(&page) {
            return None;
        }
        if self.regions.overlaps(&grown) || !self.regions.add(grown.clone(), line.protection) {
            return None;
        }
        self.regions.set_in_child(grown.clone(), above.in_child);
        self.note_present(grown, open_pagemap().ok().as_ref());
        self.regions.find(page)
    }

    /// Registers a managed range again, after the kernel moved or copied it.
    pub(crate) fn register_again(&mut self, region: &Region) {
        let (start, bytes) = region.bytes();
        if let Err(error) = self.watch.register(start, bytes) {
            fail(error, start);
        }
        if region.in_child.is_wiped && region.protection != nr::PROT_NONE {
            self.cover_absent(region.pages(), open_pagemap().ok().as_ref());
        }
        // Guards and what is read-only come with the copy of a mapping.
        if !self.is_guarded() {
            self.protect_shared(region);
        }
    }

    /// Gives the program's pages and the pool to the kernel, which takes a while over them when the
    /// process ends: relatives would be using the same room by then. Other threads that touch a page
    /// wait for the lock until they are gone; what their calls hold stays.
    pub(crate) fn free_memory(&mut self) {
        for at in 0..self.regions.all().len() {
            let region = self.regions.all()[at];
            let (mut from, end) = (region.start, region.end);
            let advice = self.advice_to_drop(&region);
            while from < end {
                let (hold_start, hold_end) = self.next_hold(from, end).unwrap_or((end, end));
                let (start, bytes) = bytes_of(&(from..hold_start));
                // SAFETY: the program's own pages, which none of its threads will see again.
                let _ = unsafe { checked(nr::__NR_madvise, [start, bytes, advice as usize]) };
                from = hold_end;
            }
        }
        self.engine.cache.objects().release_all();
        self.drop_spares(self.spare_pages);
    }

    /// Notes which pages of a managed range are there already. Guard pages are left to the kernel:
    /// what is fetched ahead would take their place.
    pub(crate) fn adopt(&mut self, pages: Pages) {
        let (start, bytes) = bytes_of(&pages);
        // The program may have advised how it is to be read.
        self.keep_apart(start, bytes, false);
        let pagemap = open_pagemap().ok();
        if let Some(pagemap) = &pagemap {
            pagemap.each_guard(start..start + bytes, |guard| {
                self.leave_guards(pages_of(guard.start, guard.len()));
            });
        }
        let mut from = pages.start;
        while let Some(part) = self.regions.first_part(&(from..pages.end)) {
            from = part.end;
            self.note_present(part.pages(), pagemap.as_ref());
            if part.protection != nr::PROT_NONE {
                self.cover_absent(part.pages(), pagemap.as_ref());
            }
        }
    }

    fn note_present(&mut self, pages: Pages, pagemap: Option<&Pagemap>) {
        let (start, bytes) = bytes_of(&pages);
        let is_told = pagemap.is_some_and(|pagemap| {
            pagemap.each_present(start..start + bytes, |run| {
                pages_of(run.start, run.len()).for_each(|page| self.note_adopted(page));
            })
        });
        if !is_told {
            self.note_present_by_mincore(pages);
        }
    }

    /// [`Process::note_present`] before Linux 6.7, or without `/proc`.
    fn note_present_by_mincore(&mut self, pages: Pages) {
        let mut present = [0u8; ADOPTED_PAGES];
        let mut from = pages.start;
        while from < pages.end {
            let length = (pages.end - from).min(ADOPTED_PAGES as u64) as usize;
            let (start, bytes) = bytes_of(&(from..from + length as u64));
            // SAFETY: the kernel writes one byte a page.
            let asked =
                unsafe { checked(nr::__NR_mincore, [start, bytes, present.as_mut_ptr() as usize]) };
            if asked.is_ok() {
                for (at, _) in
                    present[..length].iter().enumerate().filter(|(_, byte)| **byte & 1 == 1)
                {
                    self.note_adopted(from + at as u64);
                }
            }
            from += length as u64;
        }
    }

    fn note_adopted(&mut self, page: u64) {
        if self.engine.adopt(page) {
            self.resident_pages += 1;
        }
        self.record_adopted(page);
    }

    /// Whether the kernel has a page there.
    pub(crate) fn is_present(&self, page: u64) -> bool {
        has_page(page) == Ok(true)
    }

    /// Takes memory out of management; all of its pages are there afterwards.
    pub(crate) fn unmanage(&mut self, pages: Pages) {
        let mut from = pages.start;
        while let Some(part) = self.regions.first_part(&(from..pages.end)) {
            from = part.end;
            let part = part.pages();
            self.threads.kept = part.clone();
            self.bring_in_known(part.clone());
            self.end_copies(&part);
            self.open_all(&part);
            self.make_mergeable(part.start);
            let (start, bytes) = bytes_of(&part);
            if self.regions.remove(part.clone()) {
                self.let_go_of(start, bytes);
                self.forget(part);
            }
        }
        self.threads.kept = 0..0;
        self.publish();
    }

    /// What is left alone becomes a mapping of its own, and may be made one again with its neighbours, as
    /// before a `mremap`. The kernel refuses where both got their `anon_vma`, with the first page of each,
    /// when they were apart (mm/vma.c, `is_mergeable_anon_vma`): has it made before, with a page of what
    /// is left alone, all of which that is swapped out has been brought in.
    fn make_mergeable(&self, page: u64) {
        if let Watch::Userfaultfd(uffd) = self.watch {
            // SAFETY: a page that is not there was never written.
            let _ = unsafe { uffd.put_zeros(page as usize * PAGE_BYTES) };
        }
    }

    /// Brings in what is swapped out; pages that were never written stay away.
    fn bring_in_known(&mut self, pages: Pages) {
        let mut from = pages.start;
        while let Some(page) = self.engine.cache.index.next_known(from, pages.end) {
            if !self.engine.cache.index.get(page).is_resident() {
                self.make_resident(page..page + 1, Keep::Nothing);
            }
            from = page + 1;
        }
    }

    /// Leaves alone what the kernel touches of the calling thread, which was there before: of its id and
    /// its list of robust mutexes the kernel tells where they are, or where the libc has them is known. A
    /// thread that is made later names each of them in a call.
    pub(crate) fn spare_control_block(&mut self, pointer: usize, sequences: [usize; 2]) {
        if pointer != 0 {
            let start = pointer.saturating_sub(BELOW_POINTER_BYTES);
            self.unmanage(pages_of(start, BELOW_POINTER_BYTES + ABOVE_POINTER_BYTES));
        }
        let [start, bytes] = sequences;
        self.spare(start, bytes);
        let mut id_address = 0usize;
        let arguments = [PR_GET_TID_ADDRESS, (&raw mut id_address) as usize];
        // SAFETY: the kernel writes one word, or refuses where it does not tell.
        let _ = unsafe { checked(nr::__NR_prctl, arguments) };
        self.spare(id_address, size_of::<i32>());
        self.spare(robust_list_head(), ROBUST_HEAD_BYTES);
    }

    /// Leaves alone what the kernel touches at an address that it was told to remember.
    pub(crate) fn spare(&mut self, address: usize, bytes: usize) {
        if address != 0 {
            self.unmanage(pages_of(address, bytes.max(1)));
        }
    }
}

/// Whether the kernel has a page there.
///
/// # Errors
/// `ENOMEM` where nothing is mapped.
pub(crate) fn has_page(page: u64) -> Result<bool, Errno> {
    let mut present = 0u8;
    let arguments = [page as usize * PAGE_BYTES, PAGE_BYTES, (&raw mut present) as usize];
    // SAFETY: the kernel writes one byte.
    unsafe { checked(nr::__NR_mincore, arguments) }.map(|_| present & 1 == 1)
}

/// Where the calling thread's list of robust mutexes is, or 0 (get_robust_list(2)).
pub(crate) fn robust_list_head() -> usize {
    let (mut head, mut bytes) = (0usize, 0usize);
    let arguments = [0, (&raw mut head) as usize, (&raw mut bytes) as usize];
    // SAFETY: the kernel writes the two words.
    let _ = unsafe { checked(nr::__NR_get_robust_list, arguments) };
    head
}
