//! What a thread needs to make bytes of blocks and blocks of bytes, beside others.

use std::time::Duration;

use zpager_cache::{Codecs, Coder, Coding, Content, Seen};
use zpager_codec::{CodecId, Corrupt, PAGE_BYTES, Page};
use zpager_policy::{Choice, Tried};

use crate::dense::Dense;
use crate::encoder::Encoder;

/// Blocks that are moved at a time.
pub(crate) const PIECE_BLOCKS: usize = 16;
/// Most bytes of a piece of a request; one that begins within a block has fewer.
pub(crate) const PIECE_BYTES: usize = PIECE_BLOCKS * PAGE_BYTES;

const BLOCK_BYTES: u64 = PAGE_BYTES as u64;

/// Buffers of one thread.
pub struct Worker {
    /// The design's own codec.
    encoder: Encoder,
    /// The denser one, where the design has one.
    dense: Option<Dense>,
    /// The blocks of a piece, as the client has them.
    pages: Box<[Page]>,
    /// The same as the cache has them.
    coded: Box<[Page]>,
    seen: [Seen; PIECE_BLOCKS],
    /// How long the answer to what was written is to wait.
    pause: Duration,
    /// Of how many flushes that failed it was told, or they had failed before it came.
    failed_flushes: u64,
}

impl Worker {
    /// Buffers for what `coding` does, and for the denser codec.
    pub(crate) fn new(coding: Coding, dense_codec: Option<CodecId>) -> Self {
        let pages = || vec![Page::ZERO; PIECE_BLOCKS].into_boxed_slice();
        Worker {
            encoder: Encoder::new(coding),
            dense: dense_codec.map(|codec| Dense::new(codec, coding)),
            pages: pages(),
            coded: pages(),
            seen: [Seen::Absent; PIECE_BLOCKS],
            pause: Duration::ZERO,
            failed_flushes: 0,
        }
    }

    /// RAM that one takes whose design has these codecs.
    pub(crate) fn held_bytes(codec: CodecId, dense_codec: Option<CodecId>) -> usize {
        2 * PIECE_BYTES + Encoder::held_bytes(codec) + dense_codec.map_or(0, Dense::held_bytes)
    }

    /// Has the denser codec take no more memory of the thread that will use it.
    pub(crate) fn touch(&mut self) {
        if let Some(dense) = &mut self.dense {
            dense.touch();
        }
    }

    /// Says what is wanted of the denser codec from now on.
    pub(crate) fn choose(&mut self, choice: Choice) {
        if let Some(dense) = &mut self.dense {
            dense.choice = choice;
        }
    }

    /// What came of trying both codecs since the last call.
    pub(crate) fn take_tried(&mut self) -> Tried {
        self.dense.as_mut().map_or(Tried::default(), Dense::take_tried)
    }

    /// How long the answer to all that was written since the last call is to wait, as space runs short.
    pub fn take_pause(&mut self) -> Duration {
        std::mem::take(&mut self.pause)
    }

    /// Has it wait longer.
    pub(crate) fn add_pause(&mut self, pause: Duration) {
        self.pause += pause;
    }

    /// Notes that it knows of so many flushes that failed; whether it knew before.
    pub(crate) fn note_failed_flushes(&mut self, failed_flushes: u64) -> bool {
        std::mem::replace(&mut self.failed_flushes, failed_flushes) == failed_flushes
    }

    /// How many bytes from `offset_bytes` on, at most `bytes`, are moved in one go.
    pub fn piece_bytes(offset_bytes: u64, bytes: usize) -> usize {
        bytes.min(PIECE_BYTES - (offset_bytes % BLOCK_BYTES) as usize)
    }

    /// Where the bytes of a piece are: go before [`Target::write`](crate::Target::write), and come to
    /// by [`Target::read`](crate::Target::read).
    pub fn slot(&mut self, offset_bytes: u64, bytes: usize) -> &mut [u8] {
        let within = (offset_bytes % BLOCK_BYTES) as usize;
        &mut self.bytes_mut()[within..within + bytes]
    }

    /// The bytes of the blocks, one behind the other.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = self.pages.len() * PAGE_BYTES;
        // SAFETY: pages are arrays of bytes that lie one behind the other.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast(), bytes) }
    }

    /// A block of the piece.
    pub(crate) fn page_mut(&mut self, at: usize) -> &mut Page {
        &mut self.pages[at]
    }

    /// Whether all bytes of a block are zero.
    pub(crate) fn is_zero(&self, at: usize) -> bool {
        self.seen[at] == Seen::Filled(0)
    }

    /// Whether the bytes of a block are the denser codec's.
    pub(crate) fn is_condensed(&self, at: usize) -> bool {
        let codec = self.dense.as_ref().map(|dense| dense.encoder.codec());
        matches!(self.seen[at], Seen::Coded(made_by, _) if Some(made_by) == codec)
    }

    /// Makes bytes of a block.
    pub(crate) fn encode(&mut self, at: usize) {
        self.seen[at] = match zpager_codec::same_filled(&self.pages[at]) {
            Some(0) => Seen::Filled(0),
            _ => match self.encoder.fill(&self.pages[at]) {
                Some(word) => Seen::Filled(word),
                None => self.compress(at),
            },
        };
    }

    /// Makes bytes of a block that the cache does not take as a same-filled one.
    pub(crate) fn encode_in_full(&mut self, at: usize) {
        self.seen[at] = self.compress(at);
    }

    fn compress(&mut self, at: usize) -> Seen {
        let (page, output) = (&self.pages[at], &mut self.coded[at]);
        if let Some(dense) = &mut self.dense {
            dense.try_both(page, &mut self.encoder);
        }
        match &mut self.dense {
            Some(dense) if dense.choice.is_dense => dense.encoder.encode(page, output),
            _ => self.encoder.encode(page, output),
        }
    }

    /// Has the codec that is not chosen make bytes of a block; false where there is none, or they are
    /// not worth while.
    pub(crate) fn encode_otherwise(&mut self, at: usize) -> bool {
        let (Seen::Coded(..), Some(dense)) = (self.seen[at], &mut self.dense) else { return false };
        let other = if dense.choice.is_dense { &mut self.encoder } else { &mut dense.encoder };
        self.seen[at] = other.encode_anew(&self.pages[at], &mut self.coded[at]);
        !matches!(self.seen[at], Seen::Coded(CodecId::Copy, _))
    }

    /// Has the denser codec make the bytes of a block that the cache had, if it is chosen and they are
    /// not its own. Where it cannot, they stay what they are.
    pub(crate) fn condense(&mut self, at: usize) {
        let Seen::Coded(codec, _) = self.seen[at] else { return };
        let is_wanted = self.dense.as_ref().is_some_and(|dense| dense.is_wanted_for(codec));
        if !is_wanted || self.decode(at).is_err() {
            return;
        }
        if let Some(dense) = &mut self.dense
            && let Some(bytes) = dense.encode_apart(&self.pages[at])
        {
            let len = bytes.len();
            self.coded[at].0[..len].copy_from_slice(bytes);
            self.seen[at] = Seen::Coded(dense.encoder.codec(), len);
        }
    }

    /// Notes that nothing is known of a block.
    pub(crate) fn miss(&mut self, at: usize) {
        self.seen[at] = Seen::Absent;
    }

    /// Whether the cache has nothing of a block.
    pub(crate) fn is_missing(&self, at: usize) -> bool {
        self.seen[at] == Seen::Absent
    }

    /// What the cache had of a block; `None` where that was nothing.
    pub(crate) fn seen(&self, at: usize) -> Option<Content<'_>> {
        match self.seen[at] {
            Seen::Absent => None,
            Seen::Filled(word) => Some(Content::Filled(word)),
            Seen::Coded(codec, len) => Some(Content::Coded(codec, &self.coded[at].0[..len])),
        }
    }

    /// What was made of a block; `None` where that is nothing.
    pub(crate) fn content(&self, at: usize) -> Option<Content<'_>> {
        match self.seen[at] {
            Seen::Coded(CodecId::Copy, _) => {
                Some(Content::Coded(CodecId::Copy, Codecs::raw(&self.pages[at])))
            }
            _ => self.seen(at),
        }
    }

    /// Where the cache writes what it has of a block, and says what that is.
    pub(crate) fn slot_mut(&mut self, at: usize) -> (&mut [u8; PAGE_BYTES], &mut Seen) {
        (&mut self.coded[at].0, &mut self.seen[at])
    }

    /// Makes a block of what the cache had of it.
    pub(crate) fn decode(&mut self, at: usize) -> Result<(), Corrupt> {
        let page = &mut self.pages[at];
        match self.seen[at] {
            Seen::Absent => page.0.fill(0),
            Seen::Filled(word) => Codecs::fill(word, page),
            Seen::Coded(codec, len) => {
                let encoder = match &mut self.dense {
                    Some(dense) if dense.encoder.codec() == codec => &mut dense.encoder,
                    _ => &mut self.encoder,
                };
                encoder.decode(codec, &self.coded[at].0[..len], page)?;
            }
        }
        Ok(())
    }
}
