//! Where the device keeps its tables and its pool: mappings that take RAM where they are touched, or,
//! for a pool that is told to, before ([`Kept`]).
//!
//! RAM that is to be kept is taken ([`take`]) by whoever asked, without the lock of the pool: the kernel
//! may have none before the pool was written to. Its pages count as kept from then on; those that were
//! used and given back in between are looked for afterwards.
//!
//! Once all memory is locked (mlockall(2)), the kernel gives a part back by
//! `MADV_DONTNEED_LOCKED` alone, or on Linux before 5.18 after it was unlocked.

use std::cell::RefCell;
use std::ffi::c_void;
use std::ops::Range;
use std::ptr::null_mut;

use rustix::mm::{
    Advice, MapFlags, MlockFlags, ProtFlags, madvise, mlock, mlock_with, mmap_anonymous, munlock,
    munmap,
};
use zpager_pool::{Space, SpaceSource};

use crate::kept::{Bits, Kept};

const PAGE_BYTES: usize = 4096;
/// Pages that are taken in one go: no more than a kernel has free beyond its reserve that is about to
/// make more so.
const TAKE_PAGES: usize = 16;
pub(crate) const TAKE_BYTES: usize = TAKE_PAGES * PAGE_BYTES;

/// Makes mappings that take RAM where they are touched.
#[derive(Debug, Clone, Copy)]
pub struct Arena;

/// A mapping of its own.
#[derive(Debug)]
pub struct Stretch {
    base: *mut u8,
    bytes: usize,
    /// Which of its pages have RAM, where that is to be known.
    kept: Option<Box<RefCell<Kept<Row>>>>,
}

/// Words, all zero at first.
#[derive(Debug)]
struct Row(Stretch);

// SAFETY: the mapping is the value's alone, whatever thread that is on.
unsafe impl Send for Stretch {}

impl SpaceSource for Arena {
    type Space = Stretch;

    fn reserve(&self, bytes: usize) -> Option<Stretch> {
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping that replaces nothing.
        let base =
            unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) };
        let stretch = Stretch { base: base.ok()?.cast(), bytes, kept: None };
        // Huge pages would take RAM that nobody touched, and what clients wrote is nobody's business.
        for advice in [Advice::LinuxNoHugepage, Advice::LinuxDontDump] {
            // SAFETY: advice about the mapping just made; a kernel that knows it not refuses harmlessly.
            let _ = unsafe { madvise(stretch.base.cast(), bytes, advice) };
        }
        Some(stretch)
    }

    fn reserve_objects(&self, bytes: usize) -> Option<Stretch> {
        let pages = bytes.div_ceil(PAGE_BYTES);
        let row = || self.reserve(pages.div_ceil(8)).map(Row);
        let kept = Kept::new(pages, [row()?, row()?, row()?]);
        let mut stretch = self.reserve(bytes)?;
        stretch.kept = Some(Box::new(RefCell::new(kept)));
        Some(stretch)
    }
}

impl Row {
    fn at(&self, word: usize) -> *mut u64 {
        assert!(word < self.0.bytes / size_of::<u64>());
        // SAFETY: within the stretch, by the assertion.
        unsafe { self.0.base.cast::<u64>().add(word) }
    }
}

impl Bits for Row {
    fn word(&self, at: usize) -> u64 {
        // SAFETY: a word of the stretch, which is this value's alone.
        unsafe { self.at(at).read() }
    }

    fn set_word(&mut self, at: usize, word: u64) {
        // SAFETY: as above.
        unsafe { self.at(at).write(word) }
    }
}

impl Stretch {
    /// Where a part is, which lies within the mapping.
    fn part(&self, offset: usize, bytes: usize) -> *mut c_void {
        assert!(offset.is_multiple_of(PAGE_BYTES) && bytes.is_multiple_of(PAGE_BYTES));
        assert!(bytes <= self.bytes && offset <= self.bytes - bytes);
        // SAFETY: within the mapping, by the assertions.
        unsafe { self.base.add(offset) }.cast()
    }

    /// Gives the RAM of a part back, which is zero afterwards.
    fn give_back(&self, offset: usize, bytes: usize) {
        let from = self.part(offset, bytes);
        // SAFETY: within the mapping, whose owner wants nothing of the part any more.
        unsafe {
            if madvise(from, bytes, Advice::LinuxDontneedLocked).is_err() {
                release_unlocked(from, bytes);
            }
        }
    }

    fn give_page_back(&self, page: usize) {
        self.give_back(page * PAGE_BYTES, PAGE_BYTES);
    }
}

// SAFETY: the mapping is zero at first, page aligned, this value's alone, and stays until it is
// dropped; what is released is zero again.
unsafe impl Space for Stretch {
    fn base(&self) -> *mut u8 {
        self.base
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn release(&self, offset: usize, bytes: usize) {
        let Some(mut kept) =
            self.kept.as_ref().map(|kept| kept.borrow_mut()).filter(|kept| kept.is_on())
        else {
            return self.give_back(offset, bytes);
        };
        let from = self.part(offset, bytes);
        // SAFETY: the part, of which its owner wants nothing any more.
        unsafe { from.cast::<u8>().write_bytes(0, bytes) };
        for page in pages_of(offset, bytes) {
            if kept.end_use(page) {
                self.give_page_back(page);
            }
        }
    }

    fn before_write(&self, offset: usize, bytes: usize) {
        let Some(kept) = &self.kept else { return };
        let mut kept = kept.borrow_mut();
        if kept.is_on() {
            for page in pages_of(offset, bytes) {
                if let Some(given) = kept.begin_use(page) {
                    self.give_page_back(given);
                }
            }
        }
    }

    fn keep(&self, bytes: usize) {
        let Some(kept) = &self.kept else { return };
        let mut kept = kept.borrow_mut();
        kept.want(bytes / PAGE_BYTES);
        while let Some(page) = kept.surplus() {
            self.give_page_back(page);
        }
    }

    fn missing(&self) -> Option<Range<usize>> {
        let mut kept = self.kept.as_ref()?.borrow_mut();
        let missing = kept.missing(TAKE_PAGES)?;
        Some(missing.start * PAGE_BYTES..missing.end * PAGE_BYTES)
    }

    fn taken(&self, part: Range<usize>, has_ram: bool) -> usize {
        let Some(kept) = &self.kept else { return 0 };
        let mut kept = kept.borrow_mut();
        for page in pages_of(part.start, part.len()) {
            if !kept.came(page, has_ram) {
                self.give_page_back(page);
            }
        }
        if !has_ram {
            kept.settle();
        }
        kept.resident_pages() * PAGE_BYTES
    }
}

/// Has `bytes` from `from` on have RAM, whatever others do with them meanwhile. False where it is not to
/// be had.
///
/// # Safety
/// Whole pages of a [`Stretch`] that lives.
pub(crate) unsafe fn take(from: *mut u8, bytes: usize) -> bool {
    // SAFETY: the caller's promise; neither changes what is there.
    unsafe {
        match madvise(from.cast(), bytes, Advice::LinuxPopulateWrite) {
            // Linux before 5.14: what is locked anew has all of its RAM.
            Err(rustix::io::Errno::INVAL) => mlock(from.cast(), bytes).is_ok(),
            outcome => outcome.is_ok(),
        }
    }
}

/// The pages of a part.
fn pages_of(offset: usize, bytes: usize) -> Range<usize> {
    offset / PAGE_BYTES..(offset + bytes).div_ceil(PAGE_BYTES)
}

/// Gives pages back on a kernel that does not do it with locked ones; they are zero afterwards.
///
/// # Safety
/// Whole pages of a private anonymous mapping, of which nothing is wanted any more.
unsafe fn release_unlocked(from: *mut c_void, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let was_locked = madvise(from, bytes, Advice::LinuxDontNeed).is_err();
        let is_given = !was_locked
            || munlock(from, bytes).is_ok() && madvise(from, bytes, Advice::LinuxDontNeed).is_ok();
        if !is_given {
            from.cast::<u8>().write_bytes(0, bytes);
        }
        if was_locked {
            // What cannot be locked again is memory as any other's.
            let _ = mlock_with(from, bytes, MlockFlags::ONFAULT);
        }
    }
}

impl Drop for Stretch {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, which nobody borrows any more.
        let _ = unsafe { munmap(self.base.cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 8 * PAGE_BYTES;

    /// Fills a stretch, has `release` take its second quarter, and looks at all of it.
    fn check(is_locked: bool, release: impl FnOnce(&Stretch)) {
        let stretch = Arena.reserve(BYTES).expect("room");
        // SAFETY: the stretch is this test's alone.
        let data = unsafe { std::slice::from_raw_parts_mut(stretch.base(), BYTES) };
        assert!(data.iter().all(|byte| *byte == 0));
        data.fill(7);
        if is_locked {
            // SAFETY: as above; it stays as it is.
            let locked = unsafe { mlock_with(stretch.base().cast(), BYTES, MlockFlags::ONFAULT) };
            locked.expect("so little may be locked by anybody");
        }
        release(&stretch);
        assert!(data[..BYTES / 4].iter().chain(&data[BYTES / 2..]).all(|byte| *byte == 7));
        assert!(data[BYTES / 4..BYTES / 2].iter().all(|byte| *byte == 0));
    }

    /// How many pages have RAM.
    fn resident_pages(stretch: &Stretch) -> usize {
        let mut pages = vec![0u8; stretch.bytes() / PAGE_BYTES];
        // SAFETY: the mapping, and a byte for each of its pages.
        let seen =
            unsafe { libc::mincore(stretch.base().cast(), stretch.bytes(), pages.as_mut_ptr()) };
        assert_eq!(seen, 0);
        pages.iter().filter(|page| **page & 1 != 0).count()
    }

    /// Writes a page as a pool does.
    fn write(stretch: &Stretch, page: usize) {
        stretch.before_write(page * PAGE_BYTES, 1);
        // SAFETY: within the stretch, which is this test's alone.
        unsafe { stretch.base().add(page * PAGE_BYTES).write(7) };
    }

    /// Has so many pages be kept.
    fn keep(stretch: &Stretch, pages: usize) {
        stretch.keep(pages * PAGE_BYTES);
        while let Some(part) = stretch.missing() {
            // SAFETY: a part of the stretch.
            assert!(unsafe { take(stretch.base().add(part.start), part.len()) });
            stretch.taken(part, true);
        }
    }

    #[test]
    fn what_is_given_back_while_it_is_taken_has_no_ram() {
        let stretch = Arena.reserve_objects(64 * PAGE_BYTES).expect("room");
        stretch.keep(16 * PAGE_BYTES);
        let part = stretch.missing().expect("none is there");
        assert_eq!(part, 0..16 * PAGE_BYTES);
        write(&stretch, 2);
        stretch.keep(4 * PAGE_BYTES);
        assert_eq!(stretch.missing(), None, "less is wanted now");
        // SAFETY: a part of the stretch.
        assert!(unsafe { take(stretch.base().add(part.start), part.len()) });
        assert_eq!(stretch.taken(part, true), 4 * PAGE_BYTES);
        assert_eq!(resident_pages(&stretch), 4);
    }

    #[test]
    fn what_is_not_to_be_had_is_not_kept() {
        let stretch = Arena.reserve_objects(64 * PAGE_BYTES).expect("room");
        keep(&stretch, 4);
        stretch.keep(16 * PAGE_BYTES);
        let part = stretch.missing().expect("twelve are not there");
        write(&stretch, 5);
        // A spare one has made room for what was written.
        assert_eq!(stretch.taken(part, false), 4 * PAGE_BYTES);
        assert_eq!(stretch.missing(), None);
        assert_eq!(resident_pages(&stretch), 4);
        // SAFETY: within the stretch, which is this test's alone.
        assert_eq!(unsafe { stretch.base().add(5 * PAGE_BYTES).read() }, 7);
    }

    #[test]
    fn what_is_kept_is_there_whatever_is_written_and_released() {
        let stretch = Arena.reserve_objects(64 * PAGE_BYTES).expect("room");
        let resident = || resident_pages(&stretch);
        write(&stretch, 0);
        stretch.release(0, PAGE_BYTES);
        assert_eq!(resident(), 0, "without being asked it keeps nothing");
        keep(&stretch, 16);
        assert_eq!(resident(), 16);
        (0..8).for_each(|page| write(&stretch, page));
        stretch.release(0, 4 * PAGE_BYTES);
        assert_eq!(resident(), 16);
        // Beyond what has RAM: the rest makes room.
        (32..40).for_each(|page| write(&stretch, page));
        assert_eq!(resident(), 16);
        keep(&stretch, 14);
        assert_eq!(resident(), 14);
        // SAFETY: as in `write`.
        let data = unsafe { std::slice::from_raw_parts(stretch.base(), 64 * PAGE_BYTES) };
        let is_written = |page: usize| data[page * PAGE_BYTES] == 7;
        assert!(
            (0..64).all(
                |page| is_written(page) == ((4..8).contains(&page) || (32..40).contains(&page))
            )
        );
    }

    #[test]
    fn what_is_used_while_nothing_is_wanted_stays() {
        let stretch = Arena.reserve_objects(64 * PAGE_BYTES).expect("room");
        keep(&stretch, 4);
        write(&stretch, 0);
        stretch.keep(0);
        assert_eq!(resident_pages(&stretch), 1);
        write(&stretch, 9);
        stretch.release(0, PAGE_BYTES);
        assert_eq!(resident_pages(&stretch), 1);
        keep(&stretch, 16);
        stretch.keep(0);
        // SAFETY: within the stretch, which is this test's alone.
        let kept = unsafe { stretch.base().add(9 * PAGE_BYTES).read() };
        assert_eq!((resident_pages(&stretch), kept), (1, 7));
    }

    #[test]
    fn what_is_released_is_zero_and_the_rest_stays() {
        for is_locked in [false, true] {
            check(is_locked, |stretch| stretch.release(BYTES / 4, BYTES / 4));
            check(is_locked, |stretch| {
                // SAFETY: the second quarter, of which nothing is wanted any more.
                unsafe { release_unlocked(stretch.base().add(BYTES / 4).cast(), BYTES / 4) };
            });
        }
    }
}
