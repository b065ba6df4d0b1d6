//! Calls that change the address space. Each is made with the lock held: the
//! kernel's answer first, then what is known of the pages.
//!
//! Source: mmap(2), mremap(2), mprotect(2), madvise(2), brk(2), mlock(2).

use zpager_sys::PAGE_BYTES;
use zpager_sys::signal::Context;
use zpager_sys::syscall::{self, nr};
use zpager_sys::{Errno, mapping, process};

use super::Outcome;
use super::transfer::{VECTOR_BYTES, VECTORS_MAX, some_or};
use crate::copies::Keep;
use crate::fault::fail;
use crate::hold::{Window, pages_of};
use crate::maps;
use crate::process::Process;
use crate::regions::{Pages, Region};
use crate::threads::Thread;
use crate::unmanage::MANAGED_BYTES_MIN;

const EFAULT: Errno = Errno(14);
const EINVAL: Errno = Errno(22);
const ENOMEM: Errno = Errno(12);
/// Mappings that the kernel treats in a way of its own.
const SPECIAL: u32 = nr::MAP_GROWSDOWN | nr::MAP_STACK | nr::MAP_HUGETLB | nr::MAP_LOCKED;
const MAP_FIXED: usize = nr::MAP_FIXED as usize;
const MAP_POPULATE: usize = nr::MAP_POPULATE as usize;
const PROTECTION_MASK: usize = 7;
/// At most this part of the budget can be locked or populated at once.
const LOCKED_PART: usize = 4;

/// Most parts of a mapping that were left alone, of which it is made whole again.
const GAPS_MAX: usize = 256;

fn page_end(address: usize) -> usize {
    address.saturating_add(PAGE_BYTES - 1) & !(PAGE_BYTES - 1)
}

/// Whether another process may give the advice: it changes no contents.
fn is_about_others(advice: usize) -> bool {
    matches!(
        advice as u32,
        nr::MADV_COLD | nr::MADV_PAGEOUT | nr::MADV_WILLNEED | nr::MADV_COLLAPSE
    )
}

fn is_private_anonymous(flags: usize) -> bool {
    let wanted = (nr::MAP_PRIVATE | nr::MAP_ANONYMOUS) as usize;
    flags & wanted == wanted && flags & SPECIAL as usize == 0
}

impl Process {
    pub(super) fn memory_call(&mut self, thread: &mut Thread, context: &Context) -> Outcome {
        let number = context.registers.rax as u32;
        let arguments = context.registers.arguments();
        let outcome = match number {
            nr::__NR_mmap => self.map(arguments),
            nr::__NR_munmap => self.unmap(arguments),
            nr::__NR_mremap => self.remap(arguments),
            nr::__NR_mprotect | nr::__NR_pkey_mprotect => self.protect(number, arguments),
            nr::__NR_madvise => self.advise(thread, arguments),
            nr::__NR_process_madvise => self.advise_vectors(thread, arguments),
            nr::__NR_brk => self.move_break(arguments[0]),
            nr::__NR_mlock | nr::__NR_mlock2 => self.lock_memory(arguments),
            // Current memory may be larger than the budget: as if the limit of locked memory forbade it.
            nr::__NR_mlockall => Outcome::Done(ENOMEM.as_result()),
            _ => self.across_call(thread, number, arguments),
        };
        self.publish();
        outcome
    }

    /// Makes a call now.
    pub(super) fn make(&self, number: u32, arguments: [usize; 6]) -> Result<usize, Errno> {
        // SAFETY: the program's own call; what it changes is brought up to date by the caller.
        syscall::result(unsafe { syscall::call(number, arguments) })
    }

    /// What lay at `pages` is gone, and so is its management.
    pub(super) fn dropped(&mut self, pages: Pages) {
        self.forget(pages.clone());
        if !self.regions.remove(pages.clone()) {
            fail(ENOMEM, pages.start as usize * PAGE_BYTES);
        }
    }

    /// After a mapping at a given place was refused: before that the kernel may have unmapped what was
    /// there, by its version and by who refused. Asks it what still is.
    pub(super) fn drop_unmapped(&mut self, pages: Pages) {
        if !self.regions.overlaps(&pages) {
            return;
        }
        let mut from = pages.start;
        let outcome = maps::each_line(|line| {
            let mapped = pages_of(line.start, line.end - line.start);
            let hole_end = mapped.start.min(pages.end);
            if from < hole_end {
                self.dropped(from..hole_end);
            }
            from = from.max(mapped.end);
        });
        if from < pages.end {
            match outcome {
                Ok(()) => self.dropped(from..pages.end),
                // Nobody tells, where there is no `/proc`.
                Err(_) => self.unmanage(from..pages.end),
            }
        }
    }

    fn map(&mut self, mut arguments: [usize; 6]) -> Outcome {
        let [address, bytes, protection, flags, ..] = arguments;
        // However small: an allocator may have all of its memory in small mappings, as musl's has.
        let is_candidate = is_private_anonymous(flags);
        if is_candidate {
            // Populating managed memory would exceed the budget; it comes when it is touched.
            arguments[3] &= !MAP_POPULATE;
        }
        let is_fixed = flags & MAP_FIXED != 0;
        if is_fixed && mapping::meets_own(address, bytes) {
            return Outcome::Done(ENOMEM.as_result());
        }
        let result = self.make(nr::__NR_mmap, arguments);
        match result {
            Ok(start) => {
                let pages = pages_of(start, page_end(bytes));
                if is_fixed {
                    self.dropped(pages.clone());
                }
                if is_candidate {
                    self.manage_fresh(pages, (protection & PROTECTION_MASK) as u32);
                }
            }
            Err(_) if is_fixed => self.drop_unmapped(pages_of(address, page_end(bytes))),
            Err(_) => {}
        }
        Outcome::of(result)
    }

    fn unmap(&mut self, arguments: [usize; 6]) -> Outcome {
        let [start, bytes, ..] = arguments;
        if mapping::meets_own(start, bytes) {
            return Outcome::Done(EINVAL.as_result());
        }
        let result = self.make(nr::__NR_munmap, arguments);
        if result.is_ok() {
            self.dropped(pages_of(start, bytes));
        }
        Outcome::of(result)
    }

    fn remap(&mut self, arguments: [usize; 6]) -> Outcome {
        let [old, old_bytes, new_bytes, flags, ..] = arguments;
        let (old_bytes, new_bytes) = (page_end(old_bytes), page_end(new_bytes));
        // Without it anything may stand for the new address.
        let is_fixed = flags & nr::MREMAP_FIXED as usize != 0;
        let is_onto_own = is_fixed && mapping::meets_own(arguments[4], new_bytes);
        if is_onto_own || mapping::meets_own(old, old_bytes) {
            return Outcome::Done(EINVAL.as_result());
        }
        let from = pages_of(old, old_bytes);
        if self.is_guarded() {
            self.open_all(&from);
        } else {
            self.manage_gaps(&from);
        }
        // Linux 6.17 would move the first of several mappings and then refuse; before, it refused at once.
        if is_fixed && self.regions.overlaps(&from) && maps::are_several(old, old_bytes) {
            return Outcome::Done(EFAULT.as_result());
        }
        let is_managed = self.regions.overlaps(&from);
        if is_managed {
            self.end_copies(&from);
            self.keep_apart(old, old_bytes, true);
        }
        let result = self.make(nr::__NR_mremap, arguments);
        if is_managed && (result.is_err() || flags & nr::MREMAP_DONTUNMAP as usize != 0) {
            self.keep_apart(old, old_bytes, false);
        }
        let Ok(new) = result else {
            if is_fixed {
                self.drop_unmapped(pages_of(arguments[4], new_bytes));
                self.drop_unmapped(from);
            }
            return Outcome::of(result);
        };
        let to = pages_of(new, new_bytes);
        if is_fixed {
            self.dropped(to.clone());
        }
        match self.regions.first_part(&from) {
            None => self.remapped_unmanaged(new, to, old_bytes),
            Some(region) if new == old => {
                self.keep_apart(old, new_bytes, false);
                if to.end < from.end {
                    self.dropped(to.end..from.end);
                } else if from.end < to.end {
                    self.manage_fresh(from.end..to.end, region.protection);
                    self.regions.set_in_child(from.end..to.end, region.in_child);
                }
            }
            Some(region) => {
                let keeps_old = flags & nr::MREMAP_DONTUNMAP as usize != 0;
                self.moved(from, to, &region, keeps_old);
                self.keep_apart(new, new_bytes, false);
            }
        }
        Outcome::of(result)
    }

    /// What was left alone within a managed range has made several mappings of one, which the kernel would
    /// not move: takes it into management, too, unless the program has made them several itself.
    fn manage_gaps(&mut self, pages: &Pages) {
        let Some(region) = self.regions.first_part(pages) else { return };
        let mut gaps = [const { 0..0 }; GAPS_MAX];
        let mut count = 0;
        let mut from = pages.start;
        while from < pages.end {
            let next = self.regions.first_part(&(from..pages.end));
            let (start, end) = next.map_or((pages.end, pages.end), |part| (part.start, part.end));
            if from < start {
                let Some(gap) = gaps.get_mut(count) else { return };
                (*gap, count) = (from..start, count + 1);
            }
            from = end;
        }
        let gaps = &gaps[..count];
        for gap in gaps {
            if self.manage(gap.clone(), region.protection) {
                self.regions.set_in_child(gap.clone(), region.in_child);
                self.adopt(gap.clone());
            }
        }
        let (start, bytes) = Region { start: pages.start, end: pages.end, ..region }.bytes();
        if count > 0 && maps::are_several(start, bytes) {
            gaps.iter().for_each(|gap| self.unmanage(gap.clone()));
        }
    }

    /// The kernel ends the registration of whatever mapping the moved one becomes a part of, its
    /// neighbours at the target too (`mremap_userfaultfd_prep` after `copy_vma`). A mapping with
    /// another property does not become a part, and this one no other managed mapping has: it says how
    /// files are read, and is taken from those to which the program gives it.
    pub(crate) fn keep_apart(&self, start: usize, bytes: usize, apart: bool) {
        let advice = if apart { nr::MADV_RANDOM } else { nr::MADV_NORMAL };
        // Where it is refused nothing has changed.
        let _ = self.make(nr::__NR_madvise, [start, bytes, advice as usize, 0, 0, 0]);
    }

    /// A mapping that was too small to be managed may have become large.
    fn remapped_unmanaged(&mut self, start: usize, pages: Pages, old_bytes: usize) {
        let bytes = (pages.end - pages.start) as usize * PAGE_BYTES;
        // What threads may access cannot be taken in by guards, which would drop what they write meanwhile.
        if bytes < MANAGED_BYTES_MIN || bytes <= old_bytes || self.is_guarded() {
            return;
        }
        if let Some(line) = maps::anonymous_at(start)
            && self.manage(pages.clone(), line.protection)
        {
            self.adopt(pages);
        }
    }

    /// The kernel moved a managed range; what is known of its pages moves too.
    fn moved(&mut self, from: Pages, to: Pages, region: &Region, keeps_old: bool) {
        let Region { protection, in_child, .. } = *region;
        if !self.regions.remove(from.clone()) {
            fail(ENOMEM, from.start as usize * PAGE_BYTES);
        }
        let common = (to.end - to.start).min(from.end - from.start);
        let mut at = from.start;
        while let Some(page) = self.engine.cache.index.next_known(at, from.start + common) {
            if !self.engine.cache.rename(page, to.start + (page - from.start)) {
                fail(ENOMEM, page as usize * PAGE_BYTES);
            }
            at = page + 1;
        }
        self.record_moved(&from, &to);
        self.forget(from.clone());
        if !self.manage(to.clone(), protection) {
            fail(EINVAL, to.start as usize * PAGE_BYTES);
        }
        self.cover_fresh(to.start + common..to.end, protection);
        self.regions.set_in_child(to.clone(), in_child);
        if !self.is_guarded() {
            self.protect_shared(&Region { start: to.start, end: to.end, protection, in_child });
        }
        if keeps_old {
            self.manage_fresh(from.clone(), protection);
            self.regions.set_in_child(from, in_child);
        }
    }

    fn protect(&mut self, number: u32, arguments: [usize; 6]) -> Outcome {
        let [start, bytes, protection, ..] = arguments;
        if mapping::meets_own(start, bytes) {
            return Outcome::Done(ENOMEM.as_result());
        }
        let pages = pages_of(start, page_end(bytes));
        self.end_copies(&pages);
        self.open_all(&pages);
        if protection & PROTECTION_MASK != 0 {
            self.cover_inaccessible(&pages);
        }
        let result = self.make(number, arguments);
        if result.is_ok() {
            self.regions.protect(pages, (protection & PROTECTION_MASK) as u32);
        } else {
            self.protect_as_mapped(pages);
        }
        Outcome::of(result)
    }

    /// After an error the kernel may have changed a part: asks it what holds now.
    fn protect_as_mapped(&mut self, pages: Pages) {
        if !self.regions.overlaps(&pages) {
            return;
        }
        let regions = &mut self.regions;
        let outcome = maps::each_line(|line| {
            let mapped = pages_of(line.start, line.end - line.start);
            let common = mapped.start.max(pages.start)..mapped.end.min(pages.end);
            if common.start < common.end {
                regions.protect(common, line.protection);
            }
        });
        if outcome.is_err() {
            // Nobody tells, where there is no `/proc`.
            self.unmanage(pages);
        }
    }

    fn advise(&mut self, thread: &mut Thread, arguments: [usize; 6]) -> Outcome {
        let [start, bytes, advice, ..] = arguments;
        if mapping::meets_own(start, bytes) {
            return Outcome::Done(ENOMEM.as_result());
        }
        let pages = pages_of(start, page_end(bytes));
        if !self.regions.overlaps(&pages) {
            return Outcome::GoOn;
        }
        match advice as u32 {
            nr::MADV_DONTNEED
            | nr::MADV_FREE
            | nr::MADV_DONTNEED_LOCKED
            | nr::MADV_GUARD_REMOVE
                if self.is_guarded() =>
            {
                Outcome::of(self.advise_guarded(pages, advice as u32))
            }
            nr::MADV_DONTNEED | nr::MADV_FREE | nr::MADV_DONTNEED_LOCKED => {
                let advice = match advice as u32 {
                    nr::MADV_FREE => nr::MADV_DONTNEED as usize,
                    _ => advice,
                };
                let result = self.make(nr::__NR_madvise, [start, bytes, advice, 0, 0, 0]);
                match result {
                    Ok(_) => self.forget(pages),
                    // Over a hole the kernel drops all that is mapped, and reports the hole.
                    Err(ENOMEM) => self.drop_again(pages),
                    // Refused, or ended at locked memory.
                    Err(_) => self.forget_missing(pages),
                }
                Outcome::of(result)
            }
            nr::MADV_RANDOM | nr::MADV_SEQUENTIAL => self.advise_reading(pages, arguments),
            nr::MADV_GUARD_INSTALL => self.guard(pages, arguments),
            // Managed memory has no huge pages, and it is not merged with other pages.
            nr::MADV_HUGEPAGE | nr::MADV_COLLAPSE | nr::MADV_MERGEABLE => Outcome::Done(0),
            nr::MADV_DONTFORK | nr::MADV_DOFORK | nr::MADV_WIPEONFORK | nr::MADV_KEEPONFORK => {
                self.advise_fork(arguments)
            }
            nr::MADV_POPULATE_READ | nr::MADV_POPULATE_WRITE => self.populate(thread, start, bytes),
            _ => Outcome::GoOn,
        }
    }

    /// `process_madvise`: process, vectors, their number, advice, flags. Linux 6.13 takes from the
    /// process itself what changes its memory: each vector is as a call of `madvise` then.
    fn advise_vectors(&mut self, thread: &mut Thread, arguments: [usize; 6]) -> Outcome {
        let [process, vectors, count, advice, flags, _] = arguments;
        self.hold(thread, vectors, count.min(VECTORS_MAX) * VECTOR_BYTES);
        if count > VECTORS_MAX || flags != 0 || is_about_others(advice) {
            return Outcome::GoOn;
        }
        if !process::is_own_descriptor(process) {
            return Outcome::Done(EINVAL.as_result());
        }
        let mut done_bytes = 0;
        let mut window = Window::new(None);
        for at in 0..count {
            let words = self.peek_words_through(&mut window, vectors + at * VECTOR_BYTES);
            let Some([start, bytes]) = words else {
                return Outcome::Done(some_or(done_bytes, EFAULT.as_result()));
            };
            let outcome = match self.advise(thread, [start, bytes, advice, 0, 0, 0]) {
                Outcome::Done(result) => result,
                // As the kernel would: it refuses some advice here that it takes there.
                _ => self.advise_vector(process, [start, bytes], advice),
            };
            if outcome < 0 {
                return Outcome::Done(some_or(done_bytes, outcome));
            }
            done_bytes += bytes;
        }
        Outcome::Done(done_bytes as isize)
    }

    fn advise_vector(&self, process: usize, vector: [usize; 2], advice: usize) -> isize {
        let at = vector.as_ptr() as usize;
        match self.make(nr::__NR_process_madvise, [process, at, 1, advice, 0, 0]) {
            Ok(_) => 0,
            Err(error) => error.as_result(),
        }
    }

    /// Leaves guard pages to the kernel (Linux 6.13, mm/madvise.c): they have no content, and what
    /// is fetched ahead would take their place.
    fn guard(&mut self, pages: Pages, arguments: [usize; 6]) -> Outcome {
        let result = self.make(nr::__NR_madvise, arguments);
        match result {
            Ok(_) => self.leave_guards(pages),
            Err(_) => self.forget_missing(pages),
        }
        Outcome::of(result)
    }

    /// How files are to be read: what is managed is none, and must not have it ([`Process::keep_apart`]).
    fn advise_reading(&mut self, pages: Pages, arguments: [usize; 6]) -> Outcome {
        let result = self.make(nr::__NR_madvise, arguments);
        let mut from = pages.start;
        while let Some(part) = self.regions.first_part(&(from..pages.end)) {
            let (start, bytes) = part.bytes();
            self.keep_apart(start, bytes, false);
            from = part.end;
        }
        Outcome::of(result)
    }

    /// Notes what a forked child is to get. Over a hole the kernel advises all that is mapped, and reports
    /// the hole.
    fn advise_fork(&mut self, arguments: [usize; 6]) -> Outcome {
        let [start, bytes, advice, ..] = arguments;
        let result = self.make(nr::__NR_madvise, arguments);
        if matches!(result, Ok(_) | Err(ENOMEM)) {
            self.regions.advise_fork(pages_of(start, page_end(bytes)), advice as u32);
        }
        Outcome::of(result)
    }

    /// Drops what is managed, and only that, so that what is known is sure.
    fn drop_again(&mut self, pages: Pages) {
        let mut from = pages.start;
        while let Some(part) = self.regions.first_part(&(from..pages.end)) {
            from = part.end;
            let (start, bytes) =
                (part.start as usize * PAGE_BYTES, (part.end - part.start) as usize * PAGE_BYTES);
            let drop = [start, bytes, nr::MADV_DONTNEED as usize, 0, 0, 0];
            if self.make(nr::__NR_madvise, drop).is_ok() {
                self.forget(part.pages());
            }
        }
    }

    /// Forgets resident pages that the kernel no longer has.
    fn forget_missing(&mut self, pages: Pages) {
        let mut from = pages.start;
        while let Some((page, ..)) = self.engine.cache.index.next_resident(from, pages.end) {
            if !self.is_present(page) {
                self.forget(page..page + 1);
            }
            from = page + 1;
        }
    }

    fn locked_bytes_max(&self) -> usize {
        self.control.settings.budget_bytes as usize / LOCKED_PART
    }

    /// Brings pages in; more than fit at once come and go.
    fn populate(&mut self, thread: &mut Thread, start: usize, bytes: usize) -> Outcome {
        if bytes <= self.locked_bytes_max() {
            self.hold(thread, start, bytes);
            return Outcome::GoOn;
        }
        self.make_resident(pages_of(start, bytes), Keep::Nothing);
        Outcome::Done(0)
    }

    fn move_break(&mut self, wanted: usize) -> Outcome {
        let before = self.program_break;
        let result = self.make(nr::__NR_brk, [wanted, 0, 0, 0, 0, 0]);
        if let Ok(now) = result {
            let (old, new) = (page_end(before), page_end(now));
            if new < old {
                self.dropped(pages_of(new, old - new));
            } else if new > old {
                self.manage_fresh(pages_of(old, new - old), nr::PROT_READ | nr::PROT_WRITE);
            }
            self.program_break = now;
        }
        Outcome::of(result)
    }

    /// Locked memory is left to the kernel, as long as it is little.
    fn lock_memory(&mut self, arguments: [usize; 6]) -> Outcome {
        let [start, bytes, ..] = arguments;
        if self.is_managed(start, bytes) {
            if bytes > self.locked_bytes_max() {
                return Outcome::Done(ENOMEM.as_result());
            }
            self.unmanage(pages_of(start, bytes));
        }
        Outcome::GoOn
    }
}
