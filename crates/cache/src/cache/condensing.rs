//! Compressing pages for the pool by codecs that leave fewer bytes and take more time: a denser one takes all of
//! them, a second one ([`Coding::seek`]) those that it makes much shorter.
//!
//! The denser one works in what pages are compressed in once more that leave for the store ([`super::recoding`]): what
//! is denser already is not compressed a third time.
//!
//! Source: [`zpager_policy::DensePool`], which decides of either.

use zpager_codec::{CodecId, PAGE_BYTES};
use zpager_policy::{Choice, Made, TRY_PAGES, Trials, Tried};
use zpager_pool::{Space, SpaceSource};
use zpager_store::Blocks;

use super::recoding::Recoder;
use super::{Cache, bytes_mut};
use crate::coder::Coder;
use crate::coding::Coding;

/// What is done about a codec, and what was.
#[derive(Debug, Clone, Copy, Default)]
struct Trying {
    choice: Choice,
    trials: Trials,
    /// Since this was asked last.
    coded: Condensed,
}

impl Trying {
    /// Counts a page of which bytes are made; whether the codec is to be tried with it.
    fn is_next(&mut self) -> bool {
        self.coded.pages += 1;
        self.trials.is_next(self.choice, TRY_PAGES)
    }
}

/// The denser codec.
#[derive(Debug, Clone, Copy)]
pub(super) struct Condensing {
    /// With it, and how the last pages did.
    coding: Coding,
    trying: Trying,
}

/// The second codec, which is in the cache's [`Coding`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Seeking {
    trying: Trying,
    /// The time, in ticks of any length.
    ticks: fn() -> u64,
}

/// Pages that were compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Condensed {
    /// By either codec.
    pub pages: u64,
    /// By both, one of them to see what it makes of them.
    pub tried: Tried,
}

impl<M: SpaceSource + Copy, B: Blocks, C: Coder> Cache<M, B, C> {
    /// Has the pool take pages by `codec`, too, where [`Cache::choose_density`] says so; not with another
    /// codec for what leaves for the store. `source` is as in [`Cache::new`], `ticks` the time.
    /// `None` when `source` has no room, and nothing has changed.
    pub fn condense(&mut self, source: M, codec: CodecId, ticks: fn() -> u64) -> Option<()> {
        if self.recoder.is_none() {
            self.recoder = Some(Recoder::idle(&source, codec, ticks)?);
        }
        let is_same = self.recoder.as_ref().is_some_and(|recoder| recoder.codec == codec);
        self.condensing = is_same.then(|| Condensing {
            coding: self.coding.with_codec(codec),
            trying: Trying::default(),
        });
        Some(())
    }

    /// Has pages be tried with the design's second codec, where [`Cache::choose_repeats`] says so. `ticks` is
    /// the time.
    pub fn seek_repeats(&mut self, ticks: fn() -> u64) {
        self.seeking =
            self.coding.has_second().then(|| Seeking { trying: Trying::default(), ticks });
    }

    /// Whether there is a second codec.
    pub fn can_seek(&self) -> bool {
        self.seeking.is_some()
    }

    /// Has pages be tried with it from now on, and both be compared with some, or not.
    pub fn choose_repeats(&mut self, choice: Choice) {
        let Some(seeking) = &mut self.seeking else { return };
        seeking.trying.choice = choice;
        self.coding.seek(choice.is_dense);
    }

    /// What was compressed since the last call, and what a second codec made of it.
    pub fn take_sought(&mut self) -> Condensed {
        let coded = self.seeking.as_mut().map(|seeking| &mut seeking.trying.coded);
        coded.map(core::mem::take).unwrap_or_default()
    }

    /// Whether there is a denser codec for the pool.
    pub fn can_condense(&self) -> bool {
        self.condensing.is_some()
    }

    /// Whether it makes bytes of pages at present.
    pub fn is_dense(&self) -> bool {
        self.condensing.is_some_and(|condensing| condensing.trying.choice.is_dense)
    }

    /// Has it make bytes of pages from now on, and both codecs be tried with some, or not.
    pub fn choose_density(&mut self, choice: Choice) {
        let Some(condensing) = &mut self.condensing else { return };
        let before = core::mem::replace(&mut condensing.trying.choice, choice);
        // The scratch is a part of a small budget.
        if before != choice && choice == Choice::default() {
            self.trim_recoder(0);
        }
    }

    /// What was compressed since the last call.
    pub fn take_condensed(&mut self) -> Condensed {
        let coded = self.condensing.as_mut().map(|condensing| &mut condensing.trying.coded);
        coded.map(core::mem::take).unwrap_or_default()
    }

    /// Makes bytes of a page, by the codec that is chosen; `None` when it is to be kept as it is.
    pub(super) fn compress(&mut self, page: &C::Page) -> Option<(CodecId, &'static [u8])> {
        self.compare_codecs(page);
        // SAFETY: the output and scratch spaces are this cache's alone.
        let (output, scratch) = unsafe {
            (bytes_mut(&self.output, PAGE_BYTES), bytes_mut(&self.scratch, self.scratch.bytes()))
        };
        let (coding, scratch) = match (&mut self.condensing, &mut self.recoder) {
            (Some(condensing), Some(recoder)) if condensing.trying.choice.is_dense => {
                (&mut condensing.coding, recoder.parts().1)
            }
            _ => (&mut self.coding, scratch),
        };
        let (codec, len) = coding.compress::<C>(page, output, scratch)?;
        Some((codec, &output[..len]))
    }

    /// Counts a page of which bytes are made, and compares codecs with it if it is time to.
    pub(super) fn compare_codecs(&mut self, page: &C::Page) {
        self.has_coded = true;
        self.compare_second(page);
        self.compare_dense(page);
    }

    fn compare_second(&mut self, page: &C::Page) {
        let Some(seeking) = &mut self.seeking else { return };
        if !seeking.trying.is_next() {
            return;
        }
        // SAFETY: the output and scratch spaces are this cache's alone.
        let (output, scratch) = unsafe {
            (bytes_mut(&self.output, PAGE_BYTES), bytes_mut(&self.scratch, self.scratch.bytes()))
        };
        let tried = self.coding.compare::<C>(page, output, scratch, seeking.ticks);
        seeking.trying.coded.tried.add(tried.unwrap_or_default());
    }

    fn compare_dense(&mut self, page: &C::Page) {
        let (Some(condensing), Some(recoder)) = (&mut self.condensing, &mut self.recoder) else {
            return;
        };
        if !condensing.trying.is_next() {
            return;
        }
        // SAFETY: the scratch space is this cache's alone.
        let scratch = unsafe { bytes_mut(&self.scratch, self.scratch.bytes()) };
        let (output, dense_scratch) = recoder.parts();
        let both = match self.coding.is_sought() {
            true => self.coding.compare::<C>(page, output, scratch, recoder.ticks),
            false => None,
        };
        let mut made = |codec, scratch: &mut [u8]| {
            let began = (recoder.ticks)();
            let len = C::compress(codec, page, output, scratch);
            let coding_ticks = (recoder.ticks)().saturating_sub(began);
            Made { bytes: len.unwrap_or(PAGE_BYTES) as u64, coding_ticks, decoding_ticks: 0 }
        };
        let fast = both.map_or_else(|| made(self.coding.codec(), scratch), |both| both.dense);
        let dense = made(recoder.codec, dense_scratch);
        condensing.trying.coded.tried.add(Tried { pages: 1, fast, dense });
    }
}
