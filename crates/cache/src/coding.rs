//! How a design makes bytes of a page, apart from where they are kept.
//!
//! A cache has one of its own. Whoever has another makes bytes of pages beside it, without holding
//! up others that want the cache.
//!
//! Source: zswap (2012) for same-filled and incompressible pages. After many pages in a row that do
//! not shrink the codec only samples what follows. [`Repeats`] for a second codec, that pages are tried with of
//! which the first leaves much, while it is [said](Coding::seek) that this pays.
//!
//! Bad case: single compressible pages among many that are not.

use zpager_codec::{CodecId, PAGE_BYTES, scratch_bytes};
use zpager_policy::{Design, DesignId, Made, Repeats, Tried};

use crate::coder::Coder;

/// Pages in a row that do not shrink before not all are tried.
const IN_VAIN_MAX: u32 = 32;
/// Of which then one in so many is.
const TRY_EVERY: u32 = 8;

/// The choices of a design, and how the last pages did.
#[derive(Debug, Clone, Copy)]
pub struct Coding {
    codec: CodecId,
    second: Option<Second>,
    /// A page that does not become shorter is kept raw.
    compressed_bytes_max: usize,
    same_filled: bool,
    /// After many pages in a row that do not shrink, only some are tried.
    samples: bool,
    /// Pages in a row that did not shrink, or were not tried.
    in_vain: u32,
}

/// The second codec.
#[derive(Debug, Clone, Copy)]
struct Second {
    codec: CodecId,
    is_sought: bool,
    repeats: Repeats,
}

impl Second {
    fn new(codec: CodecId) -> Self {
        Second { codec, is_sought: false, repeats: Repeats::default() }
    }
}

impl Coding {
    /// As the design has it; nothing was tried yet.
    pub fn new(design: &Design) -> Self {
        Coding {
            codec: design.codec,
            second: design.repeats_codec.map(Second::new),
            compressed_bytes_max: design.compressed_bytes_max,
            same_filled: design.same_filled,
            samples: design.id == DesignId::Default,
            in_vain: 0,
        }
    }

    /// The same with another codec, of which nothing was tried yet, and no second.
    pub fn with_codec(self, codec: CodecId) -> Self {
        Coding { codec, second: None, in_vain: 0, ..self }
    }

    /// Whether both make the same of a page, but for what they have seen.
    pub fn is_like(&self, other: &Coding) -> bool {
        (self.codec, self.is_sought()) == (other.codec, other.is_sought())
    }

    /// Has pages be tried with the second codec, or not.
    pub fn seek(&mut self, is_sought: bool) {
        if let Some(second) = &mut self.second {
            second.is_sought = is_sought;
        }
    }

    /// Whether pages are tried with the second codec.
    pub fn is_sought(&self) -> bool {
        self.second.is_some_and(|second| second.is_sought)
    }

    /// Whether there is a second codec.
    pub fn has_second(&self) -> bool {
        self.second.is_some()
    }

    /// How much of a scratch [`Self::compress`] may need.
    pub fn scratch_bytes(&self) -> usize {
        scratch_bytes(self.codec).max(self.second.map_or(0, |second| scratch_bytes(second.codec)))
    }

    /// What compresses.
    pub fn codec(&self) -> CodecId {
        self.codec
    }

    /// The word that all words of the page equal, if the design keeps such pages apart.
    #[inline]
    pub fn fill<C: Coder>(&self, page: &C::Page) -> Option<u64> {
        if self.same_filled { C::same_filled(page) } else { None }
    }

    /// Writes the page to the start of `output`, which is as long as a page; gives the codec that did and the
    /// length, `None` when it is to be kept as it is. `scratch` is as for [`zpager_codec::compress`], of
    /// [`Self::scratch_bytes`].
    pub fn compress<C: Coder>(
        &mut self,
        page: &C::Page,
        output: &mut [u8],
        scratch: &mut [u8],
    ) -> Option<(CodecId, usize)> {
        let output = &mut output[..self.compressed_bytes_max];
        let compressed = match self.is_worth_trying() {
            true => self.try_codecs::<C>(page, output, scratch),
            false => None,
        };
        self.in_vain = if compressed.is_some() { 0 } else { self.in_vain.saturating_add(1) };
        compressed
    }

    fn try_codecs<C: Coder>(
        &mut self,
        page: &C::Page,
        output: &mut [u8],
        scratch: &mut [u8],
    ) -> Option<(CodecId, usize)> {
        let codec = self.codec;
        let mut first = C::compress(codec, page, output, scratch);
        if let Some(Second { codec, is_sought: true, repeats }) = &mut self.second
            && let Some(bytes_max) = repeats.next_bytes_max(first.unwrap_or(PAGE_BYTES))
        {
            let bytes_max = bytes_max.min(output.len());
            let len = C::compress(*codec, page, &mut output[..bytes_max], scratch);
            repeats.tried(len.is_some());
            if let Some(len) = len {
                return Some((*codec, len));
            }
            // It may have written over what the first did.
            first = first.and_then(|_| C::compress(self.codec, page, output, scratch));
        }
        first.map(|len| (codec, len))
    }

    /// What the first codec makes of a page, and what both do where the second is tried with it; `None` without
    /// a second. `output` and `scratch` are as for [`Self::compress`], `ticks` the time.
    pub fn compare<C: Coder>(
        &self,
        page: &C::Page,
        output: &mut [u8],
        scratch: &mut [u8],
        ticks: fn() -> u64,
    ) -> Option<Tried> {
        let second = self.second?;
        let began = ticks();
        let first_bytes = C::compress(self.codec, page, output, scratch).unwrap_or(PAGE_BYTES);
        let between = ticks();
        let second_bytes = Repeats::bytes_max(first_bytes).and_then(|bytes_max| {
            C::compress(second.codec, page, &mut output[..bytes_max], scratch)
        });
        let made = |bytes: usize, ended: u64| Made {
            bytes: bytes as u64,
            coding_ticks: ended.saturating_sub(began),
            decoding_ticks: 0,
        };
        let dense = made(second_bytes.unwrap_or(first_bytes), ticks());
        Some(Tried { pages: 1, fast: made(first_bytes, between), dense })
    }

    /// Whether the codec is worth its time: where page after page did not shrink, only some are tried.
    fn is_worth_trying(&self) -> bool {
        !self.samples || self.in_vain < IN_VAIN_MAX || self.in_vain.is_multiple_of(TRY_EVERY)
    }
}
