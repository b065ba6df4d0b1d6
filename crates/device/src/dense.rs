//! A worker's denser codec, beside the design's own.
//!
//! While the pool is nearly full both codecs are tried with some blocks.
//!
//! It is first wanted when memory is short, and who asks the kernel for some then, from a thread that
//! serves swap, waits for himself. So its scratch, its code and the stack it takes are touched before,
//! by the thread that will use them.
//!
//! Source: [`zpager_policy::Density`], which decides.

use zpager_cache::{Coding, Seen};
use zpager_codec::{CodecId, PAGE_BYTES, Page};
use zpager_policy::{Choice, TRY_EVERY, Trials, Tried};

use crate::encoder::Encoder;

/// The codec, and what it works in.
pub(crate) struct Dense {
    pub(crate) encoder: Encoder,
    pub(crate) choice: Choice,
    /// What is made of a block apart from those of the piece, and a block that is made of that.
    spare: Box<[Page; 2]>,
    trials: Trials,
    tried: Tried,
}

impl Dense {
    /// One that is not chosen, which does else what `coding` does.
    pub(crate) fn new(codec: CodecId, coding: Coding) -> Self {
        Dense {
            encoder: Encoder::new(coding.with_codec(codec)),
            choice: Choice::default(),
            spare: Box::new([Page::ZERO; 2]),
            trials: Trials::default(),
            tried: Tried::default(),
        }
    }

    /// Touches all that it takes to use it on this thread.
    pub(crate) fn touch(&mut self) {
        for page in kinds_of_pages().iter() {
            self.encoder.measure(page, &mut self.spare);
        }
    }

    /// RAM that it takes.
    pub(crate) fn held_bytes(codec: CodecId) -> usize {
        2 * PAGE_BYTES + Encoder::held_bytes(codec)
    }

    /// Whether it is chosen, and bytes of `codec` are such that it may make fewer of their block.
    pub(crate) fn is_wanted_for(&self, codec: CodecId) -> bool {
        self.choice.is_dense && codec != self.encoder.codec() && codec != CodecId::Copy
    }

    /// Bytes of a block; `None` where they are not worth while.
    pub(crate) fn encode_apart(&mut self, page: &Page) -> Option<&[u8]> {
        let output = &mut self.spare[0];
        match self.encoder.encode(page, output) {
            Seen::Coded(codec, len) if codec != CodecId::Copy => Some(&output.0[..len]),
            _ => None,
        }
    }

    /// Tries both codecs with a block if it is time to; `fast` is the design's own.
    pub(crate) fn try_both(&mut self, page: &Page, fast: &mut Encoder) {
        if !self.trials.is_next(self.choice, TRY_EVERY) {
            return;
        }
        let fast = fast.measure(page, &mut self.spare);
        let dense = self.encoder.measure(page, &mut self.spare);
        self.tried.add(Tried { pages: 1, fast, dense });
    }

    /// What came of it since the last call.
    pub(crate) fn take_tried(&mut self) -> Tried {
        std::mem::take(&mut self.tried)
    }
}

/// Pages with which a codec goes through most of its code: text, noise, and small numbers. They do not
/// lie on a thread's small stack.
pub(crate) fn kinds_of_pages() -> Box<[Page; 3]> {
    const WORDS: [&[u8]; 4] = [b"memory ", b"is compressed, ", b"and kept; ", b"what not, goes.\n"];
    let mut random = fastrand::Rng::with_seed(1);
    let mut pages = Box::new([Page::ZERO; 3]);
    let words = std::iter::repeat_with(|| WORDS[random.usize(..WORDS.len())]).flatten();
    pages[0].0.iter_mut().zip(words).for_each(|(byte, letter)| *byte = *letter);
    random.fill(&mut pages[1].0);
    pages[2].0.iter_mut().step_by(4).for_each(|byte| *byte = random.u8(..));
    pages
}

#[cfg(test)]
mod tests {
    use super::*;
    use zpager_policy::{Design, DesignId, Settings};

    #[test]
    fn one_block_in_many_is_tried_with_both_while_that_is_wanted() {
        let design = Design::new(&Settings::of(DesignId::Default), 1 << 30);
        let codec = design.dense_codec.expect("the default design has one");
        let coding = Coding::new(&design);
        let (mut dense, mut fast) = (Dense::new(codec, coding), Encoder::new(coding));
        let mut page = Page::ZERO;
        let text = "what is said twice is said once\n".bytes().cycle();
        page.0.iter_mut().zip(text).for_each(|(byte, letter)| *byte = letter);
        let mut try_some = |tries, times| {
            dense.choice.tries = tries;
            (0..times).for_each(|_| dense.try_both(&page, &mut fast));
            dense.take_tried()
        };
        assert_eq!(try_some(false, 10 * TRY_EVERY).pages, 0);
        let tried = try_some(true, 10 * TRY_EVERY);
        assert_eq!(tried.pages, 10);
        assert!(tried.dense.bytes < tried.fast.bytes, "{tried:?}");
        assert!(tried.dense.coding_ticks > 0 && tried.dense.decoding_ticks > 0);
    }
}
