//! What makes bytes of a page, and a page of bytes.
//!
//! [`Codecs`] does it with the codecs. A simulator has no contents, only the lengths that a page has
//! under each codec: its bytes mean nothing, but there are as many of them, so that the pool and the
//! store do all that they would do.

use zpager_codec::{CodecId, Corrupt, Page, compress, decompress, same_filled};

/// Makes bytes of pages and pages of bytes.
///
/// The implementer guarantees that [`decompress`](Coder::decompress) gives the page back that
/// [`compress`](Coder::compress) or [`raw`](Coder::raw) (codec [`CodecId::Copy`]) made bytes of.
pub trait Coder {
    /// What is known of a page's content.
    type Page;

    /// The word that all words of the page equal, if there is one.
    fn same_filled(page: &Self::Page) -> Option<u64>;

    /// Makes the page of which all words equal `word`.
    fn fill(word: u64, page: &mut Self::Page);

    /// Writes the page to the start of `output` and gives the length; `None` if it does not fit.
    /// `scratch` is as for [`zpager_codec::compress`].
    fn compress(
        codec: CodecId,
        page: &Self::Page,
        output: &mut [u8],
        scratch: &mut [u8],
    ) -> Option<usize>;

    /// The page as it is.
    fn raw(page: &Self::Page) -> &[u8; 4096];

    /// Makes of `data` what [`raw`](Coder::raw) gives.
    ///
    /// # Errors
    /// As [`decompress`](Coder::decompress).
    fn expand(
        codec: CodecId,
        data: &[u8],
        raw: &mut Page,
        scratch: &mut [u8],
    ) -> Result<(), Corrupt>;

    /// As [`compress`](Coder::compress) of a page that [`expand`](Coder::expand) has made; `None` also
    /// where it is not known what it becomes.
    fn recompress(
        codec: CodecId,
        raw: &Page,
        output: &mut [u8],
        scratch: &mut [u8],
    ) -> Option<usize>;

    /// Makes the page of all of `data`. `scratch` is as for [`zpager_codec::decompress`].
    ///
    /// # Errors
    /// [`Corrupt`] if `data` is not what the codec wrote.
    fn decompress(
        codec: CodecId,
        data: &[u8],
        page: &mut Self::Page,
        scratch: &mut [u8],
    ) -> Result<(), Corrupt>;
}

/// The codecs themselves.
#[derive(Debug, Clone, Copy)]
pub enum Codecs {}

impl Coder for Codecs {
    type Page = Page;

    #[inline]
    fn same_filled(page: &Page) -> Option<u64> {
        same_filled(page)
    }

    #[inline]
    fn fill(word: u64, page: &mut Page) {
        page.words_mut().fill(word);
    }

    #[inline]
    fn compress(
        codec: CodecId,
        page: &Page,
        output: &mut [u8],
        scratch: &mut [u8],
    ) -> Option<usize> {
        compress(codec, page, output, scratch)
    }

    #[inline]
    fn raw(page: &Page) -> &[u8; 4096] {
        &page.0
    }

    fn expand(
        codec: CodecId,
        data: &[u8],
        raw: &mut Page,
        scratch: &mut [u8],
    ) -> Result<(), Corrupt> {
        decompress(codec, data, raw, scratch)
    }

    fn recompress(
        codec: CodecId,
        raw: &Page,
        output: &mut [u8],
        scratch: &mut [u8],
    ) -> Option<usize> {
        compress(codec, raw, output, scratch)
    }

    #[inline]
    fn decompress(
        codec: CodecId,
        data: &[u8],
        page: &mut Page,
        scratch: &mut [u8],
    ) -> Result<(), Corrupt> {
        decompress(codec, data, page, scratch)
    }
}
