//! Where the device keeps its tables and its pool: mappings that take RAM where they are touched.
//!
//! Once all memory is locked (mlockall(2)), the kernel gives a part back by
//! `MADV_DONTNEED_LOCKED` alone, or on Linux before 5.18 after it was unlocked.

use std::ffi::c_void;
use std::ptr::null_mut;

use rustix::mm::{
    Advice, MapFlags, MlockFlags, ProtFlags, madvise, mlock_with, mmap_anonymous, munlock, munmap,
};
use zpager_pool::{Space, SpaceSource};

const PAGE_BYTES: usize = 4096;

/// Makes mappings that take RAM where they are touched.
#[derive(Debug, Clone, Copy)]
pub struct Arena;

/// A mapping of its own.
#[derive(Debug)]
pub struct Stretch {
    base: *mut u8,
    bytes: usize,
}

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
        let stretch = Stretch { base: base.ok()?.cast(), bytes };
        // Huge pages would take RAM that nobody touched, and what clients wrote is nobody's business.
        for advice in [Advice::LinuxNoHugepage, Advice::LinuxDontDump] {
            // SAFETY: advice about the mapping just made; a kernel that knows it not refuses harmlessly.
            let _ = unsafe { madvise(stretch.base.cast(), bytes, advice) };
        }
        Some(stretch)
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
        assert!(offset.is_multiple_of(PAGE_BYTES) && bytes.is_multiple_of(PAGE_BYTES));
        assert!(bytes <= self.bytes && offset <= self.bytes - bytes);
        // SAFETY: within the mapping, by the assertions.
        let from = unsafe { self.base.add(offset) }.cast();
        // SAFETY: within the mapping, whose owner wants nothing of the part any more.
        unsafe {
            if madvise(from, bytes, Advice::LinuxDontneedLocked).is_err() {
                release_unlocked(from, bytes);
            }
        }
    }
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
