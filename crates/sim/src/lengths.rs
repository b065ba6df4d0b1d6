//! Pages without contents, for the cache: a page is its number and how often it was written, and
//! its compressed form is as many bytes as the trace says, of which the first tell which page it is.
//!
//! So the pool and the store do all that they would do, and a page that comes back as another one,
//! or as what it was before, is noticed.

use std::cell::Cell;

use zpager_cache::Coder;
use zpager_codec::{CodecId, Corrupt, Page};
use zpager_store::Seal;

use crate::contents::Size;
use crate::cost::codec_costs;

const PAGE_BYTES: usize = 4096;
/// The store's records hold what pages tell.
pub(crate) const SEAL: Seal<'_> = Seal::Head(Identity::BYTES);

/// Which page, and what it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity(u64);

impl Identity {
    /// Bits for how often a page was written.
    const VERSION_BITS: u32 = 28;

    /// All that a page's bytes tell, compressed or not: they begin with it.
    pub(crate) const BYTES: usize = size_of::<Self>();

    /// Page `page` after `version` writes.
    pub(crate) fn new(page: u64, version: u32) -> Self {
        Identity(page << Self::VERSION_BITS | u64::from(version) & ((1 << Self::VERSION_BITS) - 1))
    }
}

/// A page on its way out or in.
#[derive(Debug, Clone)]
pub(crate) struct LengthsPage {
    /// Begins with the identity.
    bytes: [u8; PAGE_BYTES],
    /// Whether every word is equal.
    is_same_filled: bool,
    /// What it shrinks to.
    length: u16,
    /// The same under the denser and the second codec, where there are such.
    others: [Option<(CodecId, u16)>; 2],
    /// Bytes of the identity that came back.
    known_bytes: usize,
}

thread_local! {
    /// What coding took on this thread. A codec is told of the page, and not of who replays.
    static CODING_NS: Cell<u64> = const { Cell::new(0) };
}

/// What coding took so far; replays of one thread do not overlap.
pub(crate) fn coding_ns() -> u64 {
    CODING_NS.get()
}

fn spend(ns: u64) {
    CODING_NS.set(CODING_NS.get() + ns);
}

impl LengthsPage {
    /// Nobody's.
    pub(crate) fn empty() -> Self {
        LengthsPage {
            bytes: [0; PAGE_BYTES],
            is_same_filled: true,
            length: 0,
            others: [None; 2],
            known_bytes: 0,
        }
    }

    /// Becomes a page that leaves; a page of zeros has `zeros_bytes` where a codec gets it. `others` is its
    /// size under other codecs.
    pub(crate) fn set(
        &mut self,
        identity: Identity,
        size: Size,
        others: [Option<(CodecId, Size)>; 2],
        zeros_bytes: u16,
    ) {
        let length = |size| match size {
            Size::SameFilled => zeros_bytes,
            Size::Bytes(bytes) => bytes,
        };
        self.bytes[..size_of::<Identity>()].copy_from_slice(&identity.0.to_le_bytes());
        self.is_same_filled = size == Size::SameFilled;
        self.length = length(size);
        self.others = others.map(|other| other.map(|(codec, size)| (codec, length(size))));
    }

    /// Whether what came back can be `identity`, of `size`.
    pub(crate) fn may_be(&self, identity: Identity, size: Size) -> bool {
        match self.is_same_filled {
            true => size == Size::SameFilled,
            false => identity.0.to_le_bytes()[..self.known_bytes] == self.bytes[..self.known_bytes],
        }
    }
}

/// The coder of such pages.
#[derive(Debug)]
pub(crate) enum Lengths {}

impl Coder for Lengths {
    type Page = LengthsPage;

    fn same_filled(page: &LengthsPage) -> Option<u64> {
        page.is_same_filled.then_some(0)
    }

    fn fill(_: u64, page: &mut LengthsPage) {
        page.is_same_filled = true;
    }

    fn compress(
        codec: CodecId,
        page: &LengthsPage,
        output: &mut [u8],
        _: &mut [u8],
    ) -> Option<usize> {
        spend(codec_costs(codec).compress_ns);
        let other = page.others.iter().flatten().find(|(other, _)| *other == codec);
        let length = other.map_or(page.length, |(_, length)| *length);
        let length = usize::from(length);
        if length > output.len() {
            return None;
        }
        let told_bytes = length.min(size_of::<Identity>());
        output[..told_bytes].copy_from_slice(&page.bytes[..told_bytes]);
        Some(length)
    }

    fn raw(page: &LengthsPage) -> &[u8; PAGE_BYTES] {
        &page.bytes
    }

    /// What it costs is counted by whoever spills.
    fn expand(_: CodecId, data: &[u8], raw: &mut Page, _: &mut [u8]) -> Result<(), Corrupt> {
        let told_bytes = data.len().min(size_of::<Identity>());
        raw.0[..told_bytes].copy_from_slice(&data[..told_bytes]);
        Ok(())
    }

    /// What lies in the pool does not tell how long the page would be under another codec.
    fn recompress(_: CodecId, _: &Page, _: &mut [u8], _: &mut [u8]) -> Option<usize> {
        None
    }

    fn decompress(
        codec: CodecId,
        data: &[u8],
        page: &mut LengthsPage,
        _: &mut [u8],
    ) -> Result<(), Corrupt> {
        spend(codec_costs(codec).decompress_ns);
        page.known_bytes = data.len().min(size_of::<Identity>());
        page.bytes[..page.known_bytes].copy_from_slice(&data[..page.known_bytes]);
        page.is_same_filled = false;
        Ok(())
    }
}
