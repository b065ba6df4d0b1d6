//! A worker's denser codec, beside the design's own.
//!
//! It has a scratch of its own, as codecs that keep their state there make it anew after each other's
//! use. While the pool is nearly full both codecs are tried with some blocks, by the time that the
//! thread had a processor.
//!
//! It is first wanted when memory is short, and who asks the kernel for some then, from a thread that
//! serves swap, waits for himself. So its scratch, its code and the stack it takes are touched before,
//! by the thread that will use them: what was touched once is locked.
//!
//! Source: [`zpager_policy::Density`], which decides.

use std::hint::black_box;

use zpager_cache::{Codecs, Coder, Coding};
use zpager_codec::{CodecId, PAGE_BYTES, Page, SCRATCH_ALIGN_BYTES, scratch_bytes};
use zpager_policy::{Made, TRY_EVERY, Tried};

/// What is wanted of it at present.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Choice {
    /// It makes bytes of blocks.
    pub(crate) is_dense: bool,
    /// Both codecs are tried with some blocks.
    pub(crate) tries: bool,
}

/// The codec, and what it works in.
pub(crate) struct Dense {
    pub(crate) coding: Coding,
    pub(crate) scratch: Scratch,
    pub(crate) choice: Choice,
    /// What is made of a block apart from those of the piece, and a block that is made of that.
    spare: Box<[Page; 2]>,
    /// Blocks since both codecs were tried with one.
    untried: u32,
    tried: Tried,
}

/// Scratch of one codec.
pub(crate) struct Scratch(Box<[u8]>);

impl Scratch {
    pub(crate) fn new(codec: CodecId) -> Self {
        let mut scratch = vec![0; Self::held_bytes(codec)].into_boxed_slice();
        // Not what nobody has touched.
        black_box(&mut scratch[..]).fill(0);
        Scratch(scratch)
    }

    /// RAM that it takes.
    pub(crate) fn held_bytes(codec: CodecId) -> usize {
        scratch_bytes(codec) + SCRATCH_ALIGN_BYTES
    }

    pub(crate) fn aligned(&mut self) -> &mut [u8] {
        let start = self.0.as_ptr().align_offset(SCRATCH_ALIGN_BYTES);
        &mut self.0[start..]
    }
}

impl Dense {
    /// One that is not chosen, which does else what `coding` does.
    pub(crate) fn new(codec: CodecId, coding: Coding) -> Self {
        Dense {
            coding: coding.with_codec(codec),
            scratch: Scratch::new(codec),
            choice: Choice::default(),
            spare: Box::new([Page::ZERO; 2]),
            untried: 0,
            tried: Tried::default(),
        }
    }

    /// Touches all that it takes to use it on this thread.
    pub(crate) fn touch(&mut self) {
        for page in &kinds_of_pages() {
            make(self.coding.codec(), page, &mut self.spare, self.scratch.aligned());
        }
    }

    /// RAM that it takes.
    pub(crate) fn held_bytes(codec: CodecId) -> usize {
        2 * PAGE_BYTES + Scratch::held_bytes(codec)
    }

    /// Bytes of a block; `None` where they are not worth while.
    pub(crate) fn compress_apart(&mut self, page: &Page) -> Option<&[u8]> {
        let output = &mut self.spare[0].0;
        let len = self.coding.compress::<Codecs>(page, output, self.scratch.aligned())?;
        Some(&output[..len])
    }

    /// Tries both codecs with a block if it is time to; `fast` is the design's own.
    pub(crate) fn try_both(&mut self, page: &Page, fast: CodecId, fast_scratch: &mut [u8]) {
        self.untried += 1;
        if !self.choice.tries || self.untried < TRY_EVERY {
            return;
        }
        self.untried = 0;
        let fast = make(fast, page, &mut self.spare, fast_scratch);
        let dense = make(self.coding.codec(), page, &mut self.spare, self.scratch.aligned());
        self.tried.add(Tried { blocks: 1, fast, dense });
    }

    /// What came of it since the last call.
    pub(crate) fn take_tried(&mut self) -> Tried {
        std::mem::take(&mut self.tried)
    }
}

/// Pages with which a codec goes through most of its code: text, noise, and small numbers.
fn kinds_of_pages() -> [Page; 3] {
    const WORDS: [&[u8]; 4] = [b"memory ", b"is compressed, ", b"and kept; ", b"what not, goes.\n"];
    let mut random = fastrand::Rng::with_seed(1);
    let [mut text, mut noise, mut numbers] = [Page::ZERO; 3];
    let words = std::iter::repeat_with(|| WORDS[random.usize(..WORDS.len())]).flatten();
    text.0.iter_mut().zip(words).for_each(|(byte, letter)| *byte = *letter);
    random.fill(&mut noise.0);
    numbers.0.iter_mut().step_by(4).for_each(|byte| *byte = random.u8(..));
    [text, noise, numbers]
}

/// Makes bytes of a block, and a block of them.
fn make(codec: CodecId, page: &Page, spare: &mut [Page; 2], scratch: &mut [u8]) -> Made {
    let [output, back] = spare;
    let began_ns = processor_ns();
    let len = Codecs::compress(codec, page, &mut output.0, scratch);
    let coded_ns = processor_ns();
    if let Some(len) = len {
        let outcome = Codecs::decompress(codec, &output.0[..len], back, scratch);
        debug_assert!(outcome.is_ok() && back.0 == page.0);
    }
    Made {
        bytes: len.unwrap_or(PAGE_BYTES) as u64,
        coding_ns: coded_ns - began_ns,
        decoding_ns: processor_ns() - coded_ns,
    }
}

/// How long this thread had a processor.
fn processor_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use zpager_policy::{Design, DesignId, Settings};

    #[test]
    fn one_block_in_many_is_tried_with_both_while_that_is_wanted() {
        let design = Design::new(&Settings::of(DesignId::Default), 1 << 30);
        let codec = design.dense_codec.expect("the default design has one");
        let mut dense = Dense::new(codec, Coding::new(&design));
        let mut scratch = Scratch::new(design.codec);
        let mut page = Page::ZERO;
        let text = "what is said twice is said once\n".bytes().cycle();
        page.0.iter_mut().zip(text).for_each(|(byte, letter)| *byte = letter);
        let mut try_some = |tries, times| {
            dense.choice.tries = tries;
            (0..times).for_each(|_| dense.try_both(&page, design.codec, scratch.aligned()));
            dense.take_tried()
        };
        assert_eq!(try_some(false, 10 * TRY_EVERY).blocks, 0);
        let tried = try_some(true, 10 * TRY_EVERY);
        assert_eq!(tried.blocks, 10);
        assert!(tried.dense.bytes < tried.fast.bytes, "{tried:?}");
        assert!(tried.dense.coding_ns > 0 && tried.dense.decoding_ns > 0);
    }
}
