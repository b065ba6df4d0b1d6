//! Where the simulated caches keep their tables and their pool: mappings that take RAM where they
//! are touched.
//!
//! The pool is touched all over, a few bytes here and there, so its pages are huge ones where the
//! kernel has them: most of the time of a replay went into finding small ones.

use std::ffi::c_void;
use std::ptr::null_mut;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use zpager_pool::{Space, SpaceSource};

use crate::lengths::Identity;

const PAGE_BYTES: usize = 4096;
/// What is shorter is zeroed instead of given back: it is wanted again soon.
const GIVE_BACK_BYTES_MIN: usize = 2 << 20;

/// Makes [`Stretch`]es.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arena;

/// A mapping of its own.
#[derive(Debug)]
pub(crate) struct Stretch {
    base: *mut u8,
    bytes: usize,
}

impl SpaceSource for Arena {
    type Space = Stretch;

    fn reserve(&self, bytes: usize) -> Option<Stretch> {
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping that replaces nothing.
        let base =
            unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) };
        base.ok().map(|base| Stretch { base: base.cast(), bytes })
    }

    fn reserve_objects(&self, bytes: usize) -> Option<Stretch> {
        let stretch = self.reserve(bytes)?;
        // SAFETY: advice about a mapping of this process; a kernel that knows it not refuses harmlessly.
        let _ = unsafe { madvise(stretch.base.cast(), stretch.bytes, Advice::LinuxHugepage) };
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

    fn kept_bytes(&self, bytes: usize) -> usize {
        bytes.min(Identity::BYTES)
    }

    /// Nothing is given back: as much is put there again soon, as a rule.
    fn release_objects(&self, _offset: usize, _bytes: usize) {}

    fn release(&self, offset: usize, bytes: usize) {
        assert!(offset.is_multiple_of(PAGE_BYTES) && bytes.is_multiple_of(PAGE_BYTES));
        assert!(bytes <= self.bytes && offset <= self.bytes - bytes);
        // SAFETY: within the mapping, by the assertions.
        let from = unsafe { self.base.add(offset) };
        // SAFETY: as above; private anonymous memory reads as zeros afterwards.
        let is_given = bytes >= GIVE_BACK_BYTES_MIN
            && unsafe { madvise(from.cast::<c_void>(), bytes, Advice::LinuxDontNeed) }.is_ok();
        if !is_given {
            // SAFETY: as above.
            unsafe { from.write_bytes(0, bytes) };
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

    #[test]
    fn what_is_released_is_zero_and_the_rest_stays() {
        for bytes in [4 * PAGE_BYTES, 4 * GIVE_BACK_BYTES_MIN] {
            let stretch = Arena.reserve_objects(bytes).expect("room");
            assert_eq!(stretch.bytes(), bytes);
            // SAFETY: the stretch is this test's alone.
            let data = unsafe { std::slice::from_raw_parts_mut(stretch.base(), bytes) };
            assert!(data.iter().all(|byte| *byte == 0));
            data.fill(7);
            stretch.release(bytes / 4, bytes / 2);
            assert!(data[..bytes / 4].iter().chain(&data[bytes * 3 / 4..]).all(|byte| *byte == 7));
            assert!(data[bytes / 4..bytes * 3 / 4].iter().all(|byte| *byte == 0));
        }
    }
}
