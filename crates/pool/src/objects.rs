//! The space that a pool's objects lie in, and how much RAM it may hold.
//!
//! Invariant: `held_bytes` is the RAM of the pages that were held and not released since.

use crate::prefetch::prefetch;
use crate::{Handle, OBJECT_BYTES_MAX, Space, SpaceSource};

/// Bytes of a page.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Most pages whose objects a [`Handle`] tells apart.
pub(crate) const PAGES_MAX: usize = 1 << Handle::BITS >> (PAGE_BYTES / Handle::GRAIN_BYTES).ilog2();

/// Panics unless an object may have `len` bytes.
#[inline]
pub(crate) fn assert_length(len: usize) {
    assert!(len != 0 && len <= OBJECT_BYTES_MAX, "an object of {len} bytes");
}

/// Where a pool's objects lie.
#[derive(Debug)]
pub(crate) struct Objects<S> {
    space: S,
    limit_bytes: usize,
    held_bytes: usize,
}

impl<S: Space> Objects<S> {
    /// `None`: there is no such space, or handles would not tell its objects apart.
    pub(crate) fn reserve<Source: SpaceSource<Space = S>>(
        source: &Source,
        pages: usize,
    ) -> Option<Self> {
        if pages == 0 || pages > PAGES_MAX {
            return None;
        }
        let space = source.reserve_objects(pages * PAGE_BYTES)?;
        Some(Self { space, limit_bytes: usize::MAX, held_bytes: 0 })
    }

    pub(crate) fn space(&self) -> &S {
        &self.space
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    pub(crate) fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    pub(crate) fn set_limit_bytes(&mut self, limit_bytes: usize) {
        self.limit_bytes = limit_bytes;
    }

    /// Whether so many pages more may hold RAM. None more always may.
    pub(crate) fn may_hold(&self, pages: usize) -> bool {
        pages == 0 || self.held_bytes.saturating_add(pages * PAGE_BYTES) <= self.limit_bytes
    }

    /// Notes that so many pages more hold RAM.
    pub(crate) fn hold(&mut self, pages: usize) {
        self.held_bytes += pages * PAGE_BYTES;
    }

    /// Gives the RAM of pages that were held back.
    pub(crate) fn release(&mut self, first_page: usize, pages: usize) {
        self.space.release_objects(first_page * PAGE_BYTES, pages * PAGE_BYTES);
        self.held_bytes -= pages * PAGE_BYTES;
    }

    /// Checks that a stretch lies in the space and gives its address.
    #[inline]
    fn address(&self, offset_bytes: usize, len: usize) -> *mut u8 {
        assert!(len <= self.space.bytes() && offset_bytes <= self.space.bytes() - len);
        // SAFETY: within the space, by the assertion.
        unsafe { self.space.base().add(offset_bytes) }
    }

    #[inline]
    pub(crate) fn read(&self, offset_bytes: usize, len: usize) -> &[u8] {
        let address = self.address(offset_bytes, len);
        // SAFETY: the stretch lies in the space, which is initialised and belongs to self alone;
        // the shared borrow of self excludes a writer.
        unsafe { core::slice::from_raw_parts(address, len) }
    }

    #[inline]
    pub(crate) fn prefetch(&self, offset_bytes: usize, len: usize) {
        prefetch(self.space.base().wrapping_add(offset_bytes), self.space.kept_bytes(len));
    }

    #[inline]
    pub(crate) fn write(&mut self, offset_bytes: usize, bytes: &[u8]) {
        let address = self.address(offset_bytes, bytes.len());
        self.space.before_write(offset_bytes, bytes.len());
        let bytes = &bytes[..self.space.kept_bytes(bytes.len())];
        // SAFETY: the stretch lies in the space, which belongs to self alone, so that nobody else
        // reads or writes it and `bytes` lies elsewhere.
        unsafe { address.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }

    /// Copies an object to another stretch of the space, which may overlap its own.
    pub(crate) fn copy(&mut self, from_bytes: usize, to_bytes: usize, len: usize) {
        let (from, to) = (self.address(from_bytes, len), self.address(to_bytes, len));
        self.space.before_write(to_bytes, len);
        let kept_bytes = self.space.kept_bytes(len).min(len);
        // SAFETY: both stretches lie in the space, which belongs to self alone.
        unsafe { to.copy_from(from, kept_bytes) }
    }
}
