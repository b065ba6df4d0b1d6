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
    /// Bytes of the identity that came back.
    known_bytes: usize,
    /// What coding it took.
    coding_ns: Cell<u64>,
}

impl LengthsPage {
    /// Nobody's.
    pub(crate) fn empty() -> Self {
        LengthsPage {
            bytes: [0; PAGE_BYTES],
            is_same_filled: true,
            length: 0,
            known_bytes: 0,
            coding_ns: Cell::new(0),
        }
    }

    /// Becomes a page that leaves; a page of zeros has `zeros_bytes` where a codec gets it.
    pub(crate) fn set(&mut self, identity: Identity, size: Size, zeros_bytes: u16) {
        self.bytes[..size_of::<Identity>()].copy_from_slice(&identity.0.to_le_bytes());
        self.is_same_filled = size == Size::SameFilled;
        self.length = match size {
            Size::SameFilled => zeros_bytes,
            Size::Bytes(bytes) => bytes,
        };
    }

    /// Whether what came back can be `identity`, of `size`.
    pub(crate) fn may_be(&self, identity: Identity, size: Size) -> bool {
        match self.is_same_filled {
            true => size == Size::SameFilled,
            false => identity.0.to_le_bytes()[..self.known_bytes] == self.bytes[..self.known_bytes],
        }
    }

    /// What coding took since this was asked last.
    pub(crate) fn take_coding_ns(&self) -> u64 {
        self.coding_ns.take()
    }

    fn spend(&self, ns: u64) {
        self.coding_ns.set(self.coding_ns.get() + ns);
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
        page.spend(codec_costs(codec).compress_ns);
        let length = usize::from(page.length);
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

    /// A trace has a page's length under the one codec that is replayed.
    fn recompress(_: CodecId, _: &Page, _: &mut [u8], _: &mut [u8]) -> Option<usize> {
        None
    }

    fn decompress(
        codec: CodecId,
        data: &[u8],
        page: &mut LengthsPage,
        _: &mut [u8],
    ) -> Result<(), Corrupt> {
        page.spend(codec_costs(codec).decompress_ns);
        page.known_bytes = data.len().min(size_of::<Identity>());
        page.bytes[..page.known_bytes].copy_from_slice(&data[..page.known_bytes]);
        page.is_same_filled = false;
        Ok(())
    }
}
