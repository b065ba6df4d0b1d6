//! Where the RAM of a pool, an index or a queue comes from.
//!
//! The engine makes no system call and has no allocator: whoever builds it
//! hands it stretches of address space that cost nothing until touched.

use core::ops::Range;

/// A fixed stretch of address space that is zero until written and costs RAM
/// only where it was touched.
///
/// # Safety
/// `base()` is aligned to 4096 and stays the same; `bytes()` from it stay
/// readable and writable, and belong to this value alone, for its lifetime.
/// After `release(offset, bytes)` that part reads as zeros again.
pub unsafe trait Space {
    /// Start of the stretch.
    fn base(&self) -> *mut u8;
    /// Length of the stretch, a multiple of 4096.
    fn bytes(&self) -> usize;
    /// Gives the RAM of a part back. `offset` and `bytes` are multiples of 4096 within the stretch.
    fn release(&self, offset: usize, bytes: usize);
    /// The same of a stretch that [`SpaceSource::reserve_objects`] gave, in which nobody reads what
    /// was not written: it may read as anything afterwards.
    #[inline]
    fn release_objects(&self, offset: usize, bytes: usize) {
        self.release(offset, bytes);
    }
    /// Told before a part of the stretch is written that [`SpaceSource::reserve_objects`] gave.
    fn before_write(&self, _offset: usize, _bytes: usize) {}
    /// RAM of the stretch that others have too, in bytes: what is written there is copied first.
    fn shared_bytes(&self) -> usize {
        0
    }
    /// How many of the first `bytes` bytes of an object that lies in the stretch are worth keeping:
    /// all, but where whoever put it there looks at no more. The others may be anything.
    #[inline]
    fn kept_bytes(&self, bytes: usize) -> usize {
        bytes
    }
    /// Told how many bytes of RAM a stretch that [`SpaceSource::reserve_objects`] gave is to have,
    /// whatever of it is in use, and to keep from now on. What is too much it gives back.
    fn keep(&self, _bytes: usize) {}
    /// A part of what is missing then, in bytes from `base()`. The caller is to have RAM for it, at its
    /// leisure, and to tell of it by [`Space::taken`].
    fn missing(&self) -> Option<Range<usize>> {
        None
    }
    /// Told whether a part that was missing has its RAM now. Where it has not, no more is wanted than there
    /// is. Gives how many bytes of RAM there are.
    fn taken(&self, _part: Range<usize>, _has_ram: bool) -> usize {
        0
    }
}

/// A source of [`Space`].
pub trait SpaceSource {
    /// What it gives.
    type Space: Space;
    /// Sets aside `bytes` (rounded up to 4096) of address space; `None` when there is none.
    fn reserve(&self, bytes: usize) -> Option<Self::Space>;
    /// The same for what a pool keeps its objects in. Most of the RAM is there, so a source may
    /// want to know of every write.
    fn reserve_objects(&self, bytes: usize) -> Option<Self::Space> {
        self.reserve(bytes)
    }
}

#[cfg(any(test, feature = "heap"))]
pub use heap::{Heap, HeapSpace};

/// A source for tests and tools: ordinary heap memory.
#[cfg(any(test, feature = "heap"))]
mod heap {
    extern crate std;
    use super::{Space, SpaceSource};
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    const PAGE: usize = 4096;

    /// Makes [`HeapSpace`].
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Heap;

    /// A stretch of heap memory.
    #[derive(Debug)]
    pub struct HeapSpace {
        base: *mut u8,
        layout: Layout,
    }

    // SAFETY: the allocation is owned by the value, like a Vec's.
    unsafe impl Send for HeapSpace {}

    impl SpaceSource for Heap {
        type Space = HeapSpace;

        fn reserve(&self, bytes: usize) -> Option<HeapSpace> {
            let layout = Layout::from_size_align(bytes.next_multiple_of(PAGE), PAGE).ok()?;
            assert!(layout.size() > 0, "an empty stretch");
            // SAFETY: the layout is not empty.
            let base = unsafe { alloc_zeroed(layout) };
            (!base.is_null()).then_some(HeapSpace { base, layout })
        }
    }

    // SAFETY: one zeroed allocation, page aligned, owned until drop; release writes zeros.
    unsafe impl Space for HeapSpace {
        fn base(&self) -> *mut u8 {
            self.base
        }

        fn bytes(&self) -> usize {
            self.layout.size()
        }

        fn release(&self, offset: usize, bytes: usize) {
            assert!(offset.is_multiple_of(PAGE) && bytes.is_multiple_of(PAGE));
            assert!(offset + bytes <= self.bytes());
            // SAFETY: within the allocation, by the assertion.
            unsafe { self.base.add(offset).write_bytes(0, bytes) }
        }
    }

    impl Drop for HeapSpace {
        fn drop(&mut self) {
            // SAFETY: allocated in `reserve` with this layout.
            unsafe { dealloc(self.base, self.layout) }
        }
    }
}
