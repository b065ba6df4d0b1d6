//! Bringing pages back as they lie in the pool, to be decoded where the cache is not at hand.
//!
//! Source: ours. What a page is decoded with belongs to the cache, and takes as long as all else that
//! bringing it back needs of the cache; so its bytes are copied, and who wanted the page decodes it
//! while others use the cache.
//!
//! Not for what lies in the store, or is there as well, nor for a codec that keeps state.

use zpager_codec::{PAGE_BYTES, keeps_state};
use zpager_pool::SpaceSource;
use zpager_store::Blocks;

use super::{Cache, Reads, Seen};
use crate::coder::Coder;
use crate::entry::{PageNumber, State};

impl<M: SpaceSource + Copy, B: Blocks, C: Coder> Cache<M, B, C> {
    /// How many pages from `first` on, at most `most`, [`Cache::take`] can take.
    pub fn takeable(&self, first: PageNumber, most: usize) -> usize {
        let is_takeable = |at: &u64| {
            let entry = self.index.get(first + at);
            match entry.state() {
                State::SameFilled { .. } => true,
                State::Compressed { codec, .. } => !keeps_state(codec) && !entry.has_note(),
                _ => false,
            }
        };
        (0..most as u64).take_while(is_takeable).count()
    }

    /// Brings back as many pages from `first` on as `seen` has, all of them [takeable](Cache::takeable):
    /// `seen` says what they are, and `coded`, which has as many, gets their bytes. They are in no tier
    /// then; their entries are the caller's to replace.
    pub fn take(&mut self, first: PageNumber, coded: &mut [[u8; PAGE_BYTES]], seen: &mut [Seen]) {
        debug_assert_eq!(self.takeable(first, seen.len()), seen.len());
        let end = first + seen.len() as u64;
        for ((number, bytes), seen) in (first..).zip(coded).zip(seen) {
            if number + 1 < end {
                self.prefetch(number + 1);
            }
            // The store is not read, so nothing can be lost.
            *seen = self.look(number, bytes, &mut Reads::default()).unwrap_or(Seen::Absent);
            self.forget(number);
        }
    }
}
