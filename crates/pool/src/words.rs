//! A table of 64-bit words in a [`Space`], for a pool's own descriptions.

use crate::prefetch::prefetch;
use crate::{Space, SpaceSource};

/// Words that are zero until set and cost RAM only where they were set.
#[derive(Debug)]
pub(crate) struct Words<S> {
    space: S,
}

impl<S: Space> Words<S> {
    /// Sets aside `count` words.
    pub(crate) fn reserve<Source: SpaceSource<Space = S>>(
        source: &Source,
        count: usize,
    ) -> Option<Self> {
        Some(Self { space: source.reserve(count.checked_mul(8)?)? })
    }

    #[inline]
    fn all(&self) -> &[u64] {
        // SAFETY: the space is aligned to 4096, initialised (zero until written), as long as it
        // says, and belongs to this value alone; the shared borrow of self excludes a writer.
        unsafe { core::slice::from_raw_parts(self.space.base().cast(), self.space.bytes() / 8) }
    }

    #[inline]
    fn all_mut(&mut self) -> &mut [u64] {
        // SAFETY: as in `all`; the exclusive borrow of self excludes every other user.
        unsafe { core::slice::from_raw_parts_mut(self.space.base().cast(), self.space.bytes() / 8) }
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> u64 {
        self.all()[index]
    }

    #[inline]
    pub(crate) fn prefetch(&self, index: usize) {
        prefetch(self.space.base().cast::<u64>().wrapping_add(index).cast(), size_of::<u64>());
    }

    #[inline]
    pub(crate) fn set(&mut self, index: usize, word: u64) {
        self.all_mut()[index] = word;
    }

    /// One half of a word, which counts as two.
    #[inline]
    pub(crate) fn half(&self, index: usize) -> u32 {
        (self.get(index / 2) >> (index % 2 * 32)) as u32
    }

    #[inline]
    pub(crate) fn set_half(&mut self, index: usize, half: u32) {
        let shift = index % 2 * 32;
        let other = self.get(index / 2) & !(u64::from(u32::MAX) << shift);
        self.set(index / 2, other | u64::from(half) << shift);
    }
}

/// RAM of a table of which so many words were set, from the first.
pub(crate) fn ram_bytes(words: usize) -> usize {
    (words * 8).next_multiple_of(4096)
}
