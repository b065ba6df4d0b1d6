//! What a thread needs to make bytes of blocks and blocks of bytes, beside others.

use std::time::Duration;

use zpager_cache::{Codecs, Coder, Coding, Content, Seen};
use zpager_codec::{CodecId, Corrupt, PAGE_BYTES, Page, SCRATCH_ALIGN_BYTES, scratch_bytes};

/// Blocks that are moved at a time.
pub(crate) const PIECE_BLOCKS: usize = 16;
/// Most bytes of a piece of a request; one that begins within a block has fewer.
pub(crate) const PIECE_BYTES: usize = PIECE_BLOCKS * PAGE_BYTES;

const BLOCK_BYTES: u64 = PAGE_BYTES as u64;

/// Buffers of one thread.
pub struct Worker {
    coding: Coding,
    /// The blocks of a piece, as the client has them.
    pages: Box<[Page]>,
    /// The same as the cache has them.
    coded: Box<[Page]>,
    seen: [Seen; PIECE_BLOCKS],
    scratch: Box<[u8]>,
    /// How long the answer to what was written is to wait.
    pause: Duration,
}

impl Worker {
    /// Buffers for what `coding` does.
    pub(crate) fn new(coding: Coding) -> Self {
        let pages = || vec![Page::ZERO; PIECE_BLOCKS].into_boxed_slice();
        let scratch = vec![0; scratch_length(coding.codec())].into_boxed_slice();
        Worker {
            coding,
            pages: pages(),
            coded: pages(),
            seen: [Seen::Absent; PIECE_BLOCKS],
            scratch,
            pause: Duration::ZERO,
        }
    }

    /// RAM that one takes whose design has this codec.
    pub(crate) fn held_bytes(codec: CodecId) -> usize {
        2 * PIECE_BYTES + scratch_length(codec)
    }

    /// How long the answer to all that was written since the last call is to wait, as space runs short.
    pub fn take_pause(&mut self) -> Duration {
        std::mem::take(&mut self.pause)
    }

    /// Has it wait longer.
    pub(crate) fn add_pause(&mut self, pause: Duration) {
        self.pause += pause;
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

    /// Makes bytes of a block.
    pub(crate) fn encode(&mut self, at: usize) {
        self.seen[at] = match zpager_codec::same_filled(&self.pages[at]) {
            Some(0) => Seen::Filled(0),
            _ => match self.coding.fill::<Codecs>(&self.pages[at]) {
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
        let scratch = aligned(&mut self.scratch);
        let (page, output) = (&self.pages[at], &mut self.coded[at].0);
        match self.coding.compress::<Codecs>(page, output, scratch) {
            Some(len) => Seen::Coded(self.coding.codec(), len),
            None => Seen::Coded(CodecId::Copy, PAGE_BYTES),
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
                let scratch = aligned(&mut self.scratch);
                Codecs::decompress(codec, &self.coded[at].0[..len], page, scratch)?;
            }
        }
        Ok(())
    }
}

/// Scratch of the design's codec, which is that of all blocks that are not kept as they are.
fn scratch_length(codec: CodecId) -> usize {
    scratch_bytes(codec) + SCRATCH_ALIGN_BYTES
}

fn aligned(scratch: &mut [u8]) -> &mut [u8] {
    let start = scratch.as_ptr().align_offset(SCRATCH_ALIGN_BYTES);
    &mut scratch[start..]
}
