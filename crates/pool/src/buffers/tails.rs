//! The first buffer with enough room at its end, in few steps.
//!
//! One byte a buffer, the grains of room, and above each 8 of them one byte with the most of any,
//! up to a single word. Zero means "no room": memory that was never touched describes buffers that
//! are not there.
//!
//! Invariant: every byte above the lowest level is the maximum of the word below it.

use crate::words::{Words, ram_bytes};
use crate::{Space, SpaceSource};

/// Bytes of a word.
const FANOUT: usize = 8;
/// Levels that suffice for 2^28 buffers.
const LEVELS_MAX: usize = 10;

/// The room at the end of every buffer.
#[derive(Debug)]
pub(super) struct Tails<S> {
    words: Words<S>,
    /// Index of the first word of each level, the lowest level being the buffers.
    level_words: [usize; LEVELS_MAX],
    levels: usize,
}

impl<S: Space> Tails<S> {
    /// For so many buffers, none of which has room.
    pub(super) fn reserve<Source: SpaceSource<Space = S>>(
        source: &Source,
        buffers: usize,
    ) -> Option<Self> {
        let mut lengths = [buffers.div_ceil(FANOUT); LEVELS_MAX];
        let mut levels = 1;
        while lengths[levels - 1] > 1 {
            lengths[levels] = lengths[levels - 1].div_ceil(FANOUT);
            levels += 1;
        }
        // From the top: the upper levels are short, and share their page with the first buffers.
        let mut level_words = [0; LEVELS_MAX];
        let mut words = 0;
        for level in (0..levels).rev() {
            level_words[level] = words;
            words += lengths[level];
        }
        Some(Self { words: Words::reserve(source, words)?, level_words, levels })
    }

    /// The first buffer with room for so many grains, 1 or more.
    pub(super) fn first_with(&self, grains: usize) -> Option<usize> {
        let mut index = 0;
        for level in (0..self.levels).rev() {
            let word = self.words.get(self.level_words[level] + index);
            let with_room = |room: u8| usize::from(room) >= grains;
            index = index * FANOUT + word.to_le_bytes().into_iter().position(with_room)?;
        }
        Some(index)
    }

    /// The most room of any buffer, in grains.
    pub(super) fn longest(&self) -> usize {
        maximum(self.words.get(0)).into()
    }

    /// Notes a buffer's room in grains, less than 256.
    pub(super) fn set(&mut self, buffer: usize, grains: usize) {
        let (mut index, mut room) = (buffer, grains as u8);
        for level in 0..self.levels {
            let at = self.level_words[level] + index / FANOUT;
            let mut bytes = self.words.get(at).to_le_bytes();
            if core::mem::replace(&mut bytes[index % FANOUT], room) == room {
                return;
            }
            let word = u64::from_le_bytes(bytes);
            self.words.set(at, word);
            (index, room) = (index / FANOUT, maximum(word));
        }
    }

    /// RAM touched when no buffer from `touched` on was ever used, in bytes.
    pub(super) fn metadata_bytes(&self, touched: usize) -> usize {
        ram_bytes(if touched > 0 { self.level_words[0] + touched.div_ceil(FANOUT) } else { 0 })
    }
}

fn maximum(word: u64) -> u8 {
    word.to_le_bytes().into_iter().fold(0, u8::max)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::Heap;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn as_a_plain_array(
            buffers in 1usize..700,
            steps in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 1usize..=256), 1..300),
        ) {
            let mut rooms = std::vec![0u8; buffers];
            let mut tails = Tails::reserve(&Heap, buffers).unwrap();
            for (buffer, room, wanted) in steps {
                let buffer = buffer.index(buffers);
                rooms[buffer] = room;
                tails.set(buffer, room.into());
                let expected = rooms.iter().position(|&room| usize::from(room) >= wanted);
                prop_assert_eq!(tails.first_with(wanted), expected);
                prop_assert_eq!(tails.longest(), usize::from(*rooms.iter().max().unwrap()));
            }
        }
    }

    #[test]
    fn the_longest_space_fits_the_levels() {
        assert!(FANOUT.pow(LEVELS_MAX as u32) >= crate::objects::PAGES_MAX);
    }
}
