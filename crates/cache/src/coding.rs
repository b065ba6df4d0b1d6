//! How a design makes bytes of a page, apart from where they are kept.
//!
//! A cache has one of its own. Whoever has another makes bytes of pages beside it, without holding
//! up others that want the cache.
//!
//! Source: zswap (2012) for same-filled and incompressible pages. After many pages in a row that do
//! not shrink the codec only samples what follows.
//!
//! Bad case: single compressible pages among many that are not.

use zpager_codec::CodecId;
use zpager_policy::{Design, DesignId};

use crate::coder::Coder;

/// Pages in a row that do not shrink before not all are tried.
const IN_VAIN_MAX: u32 = 32;
/// Of which then one in so many is.
const TRY_EVERY: u32 = 8;

/// The choices of a design, and how the last pages did.
#[derive(Debug, Clone, Copy)]
pub struct Coding {
    codec: CodecId,
    /// A page that does not become shorter is kept raw.
    compressed_bytes_max: usize,
    same_filled: bool,
    /// After many pages in a row that do not shrink, only some are tried.
    samples: bool,
    /// Pages in a row that did not shrink, or were not tried.
    in_vain: u32,
}

impl Coding {
    /// As the design has it; nothing was tried yet.
    pub fn new(design: &Design) -> Self {
        Coding {
            codec: design.codec,
            compressed_bytes_max: design.compressed_bytes_max,
            same_filled: design.same_filled,
            samples: design.id == DesignId::Default,
            in_vain: 0,
        }
    }

    /// The same with another codec, of which nothing was tried yet.
    pub fn with_codec(self, codec: CodecId) -> Self {
        Coding { codec, in_vain: 0, ..self }
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

    /// Writes the page to the start of `output`, which is as long as a page, and gives the length;
    /// `None` when it is to be kept as it is. `scratch` is as for [`zpager_codec::compress`].
    pub fn compress<C: Coder>(
        &mut self,
        page: &C::Page,
        output: &mut [u8],
        scratch: &mut [u8],
    ) -> Option<usize> {
        let output = &mut output[..self.compressed_bytes_max];
        let compressed = match self.is_worth_trying() {
            true => C::compress(self.codec, page, output, scratch),
            false => None,
        };
        self.in_vain = if compressed.is_some() { 0 } else { self.in_vain.saturating_add(1) };
        compressed
    }

    /// Whether the codec is worth its time: where page after page did not shrink, only some are tried.
    fn is_worth_trying(&self) -> bool {
        !self.samples || self.in_vain < IN_VAIN_MAX || self.in_vain.is_multiple_of(TRY_EVERY)
    }
}
