//! Which pages of the object space are taken, as runs of 1 to 8 pages.
//!
//! The space is cut into frames of 8 pages and a run never crosses a frame. For each length of run
//! a bitmap says which frames lack a free run so long, with summaries of 64 to 1 above it, so the
//! lowest frame that has one is found in as many steps as there are levels (at most 5). Zero means
//! "has one": memory that was never touched describes a free space.
//!
//! Invariants: a frame's bit for length k is set exactly when its free pages have no run of k; a
//! summary bit is set exactly when its word below is all ones; `starts` is a subset of `taken`.
//!
//! Bound: a run is refused only when no frame has one, and then at least one page in eight is
//! taken, so an address space 8 times as large as the RAM wanted never refuses. First fit from the
//! bottom stays far from that: with random churn the pool's tests use 1.2 times what is held.

use super::classes::SPAN_PAGES_MAX;
use crate::{Space, SpaceSource, words::Words};

/// Pages of a frame.
const FRAME_PAGES: usize = SPAN_PAGES_MAX;
/// Levels of summaries that suffice for 2^28 pages.
const LEVELS_MAX: usize = 5;
/// Words that describe 64 frames: 8 bitmaps of lacking runs, then a byte a frame of taken pages,
/// then a byte a frame of first pages of runs.
const GROUP_WORDS: usize = 24;
const TAKEN_WORD: usize = 8;
const STARTS_WORD: usize = 16;

/// The runs of one space.
#[derive(Debug)]
pub(super) struct Runs<S> {
    words: Words<S>,
    frames: usize,
    /// Index of the first word of each level; level 0 is the groups.
    level_words: [usize; LEVELS_MAX],
    levels: usize,
    /// Frames below this one may have been touched, no other was.
    touched_frames: usize,
}

impl<S: Space> Runs<S> {
    /// All of `pages` free; pages beyond the last whole frame are never used.
    pub(super) fn reserve<Source: SpaceSource<Space = S>>(
        source: &Source,
        pages: usize,
    ) -> Option<Self> {
        let frames = pages / FRAME_PAGES;
        let groups = frames.div_ceil(64);
        let mut level_groups = [groups; LEVELS_MAX];
        let mut levels = 1;
        while level_groups[levels - 1] > 1 {
            level_groups[levels] = level_groups[levels - 1].div_ceil(64);
            levels += 1;
        }
        // Summaries first, from the top: they are few, and share their page with the first groups.
        let mut level_words = [0; LEVELS_MAX];
        let mut words = 0;
        for level in (1..levels).rev() {
            level_words[level] = words;
            words += level_groups[level] * FRAME_PAGES;
        }
        level_words[0] = words;
        words += groups * GROUP_WORDS;
        let words = Words::reserve(source, words.max(1))?;
        Some(Self { words, frames, level_words, levels, touched_frames: 0 })
    }

    /// Takes `pages` neighbours, 1 to 8, as low as there are: the number of the first.
    pub(super) fn take(&mut self, pages: usize) -> Option<usize> {
        let frame = self.lowest_frame_with(pages)?;
        let taken = self.byte(TAKEN_WORD, frame);
        let first = run_starts(taken, pages).trailing_zeros() as usize;
        self.touched_frames = self.touched_frames.max(frame + 1);
        self.set_taken(frame, taken, taken | mask(pages) << first);
        let starts = self.byte(STARTS_WORD, frame);
        self.set_byte(STARTS_WORD, frame, starts | 1 << first);
        Some(frame * FRAME_PAGES + first)
    }

    /// Gives a run back, whole.
    pub(super) fn give_back(&mut self, first_page: usize, pages: usize) {
        let (frame, first) = (first_page / FRAME_PAGES, first_page % FRAME_PAGES);
        let (taken, starts) = (self.byte(TAKEN_WORD, frame), self.byte(STARTS_WORD, frame));
        let run = mask(pages) << first;
        debug_assert!(taken & run == run && starts & run == 1 << first, "no run to give back");
        self.set_taken(frame, taken, taken & !run);
        self.set_byte(STARTS_WORD, frame, starts & !run);
    }

    /// First page of the run that holds `page`.
    #[inline]
    pub(super) fn start_of(&self, page: usize) -> usize {
        let (frame, within) = (page / FRAME_PAGES, page % FRAME_PAGES);
        let starts_up_to = self.byte(STARTS_WORD, frame) & (2u8 << within).wrapping_sub(1);
        assert!(starts_up_to != 0, "no object in page {page}");
        frame * FRAME_PAGES + starts_up_to.ilog2() as usize
    }

    /// RAM touched by the description, in bytes.
    pub(super) fn metadata_bytes(&self) -> usize {
        let words = self.level_words[0] + self.touched_frames.div_ceil(64) * GROUP_WORDS;
        (words * 8).next_multiple_of(4096)
    }

    /// Frames of which any page may have been used, from the lowest.
    pub(super) fn touched_pages(&self) -> usize {
        self.touched_frames * FRAME_PAGES
    }

    fn lowest_frame_with(&self, pages: usize) -> Option<usize> {
        let mut index = 0;
        for level in (0..self.levels).rev() {
            let word = self.words.get(self.bitmap_word(level, index, pages));
            if word == u64::MAX {
                return None;
            }
            index = index * 64 + word.trailing_ones() as usize;
        }
        // Bits beyond the last frame are never set, so they are found when no frame is left.
        (index < self.frames).then_some(index)
    }

    /// Notes a frame's taken pages and which runs it lacks now.
    fn set_taken(&mut self, frame: usize, before: u8, after: u8) {
        self.set_byte(TAKEN_WORD, frame, after);
        let (longest_before, longest_after) = (longest_run(before), longest_run(after));
        for pages in longest_after + 1..=longest_before {
            self.set_lacking(frame, pages);
        }
        for pages in longest_before + 1..=longest_after {
            self.clear_lacking(frame, pages);
        }
    }

    fn set_lacking(&mut self, frame: usize, pages: usize) {
        let mut index = frame;
        for level in 0..self.levels {
            let at = self.bitmap_word(level, index / 64, pages);
            let word = self.words.get(at) | 1 << (index % 64);
            self.words.set(at, word);
            if word != u64::MAX {
                return;
            }
            index /= 64;
        }
    }

    fn clear_lacking(&mut self, frame: usize, pages: usize) {
        let mut index = frame;
        for level in 0..self.levels {
            let at = self.bitmap_word(level, index / 64, pages);
            let word = self.words.get(at);
            self.words.set(at, word & !(1 << (index % 64)));
            if word != u64::MAX {
                return;
            }
            index /= 64;
        }
    }

    fn bitmap_word(&self, level: usize, group: usize, pages: usize) -> usize {
        let stride = if level == 0 { GROUP_WORDS } else { FRAME_PAGES };
        self.level_words[level] + group * stride + (pages - 1)
    }

    #[inline]
    fn byte(&self, kind_word: usize, frame: usize) -> u8 {
        (self.words.get(self.byte_word(kind_word, frame)) >> (frame % 8 * 8)) as u8
    }

    fn set_byte(&mut self, kind_word: usize, frame: usize, byte: u8) {
        let at = self.byte_word(kind_word, frame);
        let shift = frame % 8 * 8;
        let others = self.words.get(at) & !(0xff << shift);
        self.words.set(at, others | u64::from(byte) << shift);
    }

    #[inline]
    fn byte_word(&self, kind_word: usize, frame: usize) -> usize {
        self.level_words[0] + frame / 64 * GROUP_WORDS + kind_word + frame % 64 / 8
    }
}

/// As many ones as `pages`.
fn mask(pages: usize) -> u8 {
    (0xff_u16 >> (FRAME_PAGES - pages)) as u8
}

/// Ones where a run of `pages` free pages starts.
fn run_starts(taken: u8, pages: usize) -> u8 {
    (1..pages).fold(!taken, |starts, _| starts & (starts >> 1))
}

/// Pages of the longest free run.
fn longest_run(taken: u8) -> usize {
    let mut starts = !taken;
    let mut pages = 0;
    while starts != 0 {
        starts &= starts >> 1;
        pages += 1;
    }
    pages
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::Heap;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// The lowest place for a run, found by looking at every page.
    fn lowest(taken: &[bool], pages: usize) -> Option<usize> {
        (0..taken.len()).filter(|first| first % FRAME_PAGES + pages <= FRAME_PAGES).find(|&first| {
            taken[first..].len() >= pages && !taken[first..first + pages].contains(&true)
        })
    }

    proptest! {
        #[test]
        fn as_a_plain_array(
            frames in 1usize..70,
            steps in proptest::collection::vec((any::<bool>(), 1usize..=8, any::<prop::sample::Index>()), 1..600),
        ) {
            let mut taken = std::vec![false; frames * FRAME_PAGES];
            let mut runs = Runs::reserve(&Heap, taken.len()).unwrap();
            let mut live = Vec::new();
            for (take, pages, pick) in steps {
                if take || live.is_empty() {
                    let expected = lowest(&taken, pages);
                    prop_assert_eq!(runs.take(pages), expected);
                    if let Some(first) = expected {
                        taken[first..first + pages].fill(true);
                        live.push((first, pages));
                    }
                } else {
                    let (first, pages) = live.swap_remove(pick.index(live.len()));
                    runs.give_back(first, pages);
                    taken[first..first + pages].fill(false);
                }
                for &(first, pages) in &live {
                    prop_assert_eq!(runs.start_of(first + pages - 1), first);
                }
            }
        }
    }

    #[test]
    fn summaries_carry_over_many_levels() {
        let pages = 64 * 64 * 2 * FRAME_PAGES;
        let mut runs = Runs::reserve(&Heap, pages).unwrap();
        for first in (0..pages).step_by(8) {
            assert_eq!(runs.take(8), Some(first));
        }
        assert_eq!(runs.take(1), None);
        for first in [pages - 8, pages / 2, 64 * 8] {
            runs.give_back(first, 8);
            assert_eq!(runs.take(3), Some(first));
            assert_eq!(runs.take(5), Some(first + 3));
        }
        assert_eq!(runs.take(1), None);
    }
}
