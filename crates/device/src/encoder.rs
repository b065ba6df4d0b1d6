//! One codec of a worker's, with the memory that it works in.
//!
//! Each codec has a scratch of its own, as those that keep their state there make it anew after each
//! other's use. All of it is touched at once: what was touched is locked.

use std::hint::black_box;

use zpager_cache::{Codecs, Coder, Coding, Seen};
use zpager_codec::{CodecId, Corrupt, PAGE_BYTES, Page, SCRATCH_ALIGN_BYTES, scratch_bytes};
use zpager_policy::Made;

/// The codec.
pub(crate) struct Encoder {
    coding: Coding,
    scratch: Box<[u8]>,
}

impl Encoder {
    /// With the codec of `coding` alone: a second one is for a process's pages.
    pub(crate) fn new(coding: Coding) -> Self {
        let mut scratch = vec![0; Self::held_bytes(coding.codec())].into_boxed_slice();
        // Not what nobody has touched.
        black_box(&mut scratch[..]).fill(0);
        Encoder { coding: coding.with_codec(coding.codec()), scratch }
    }

    /// RAM that one takes.
    pub(crate) fn held_bytes(codec: CodecId) -> usize {
        scratch_bytes(codec) + SCRATCH_ALIGN_BYTES
    }

    pub(crate) fn codec(&self) -> CodecId {
        self.coding.codec()
    }

    /// The word that all words of a block equal, if such blocks are kept apart.
    pub(crate) fn fill(&self, page: &Page) -> Option<u64> {
        self.coding.fill::<Codecs>(page)
    }

    /// Makes bytes of a block; says what they are, or that the block is to be kept as it is.
    pub(crate) fn encode(&mut self, page: &Page, output: &mut Page) -> Seen {
        let scratch = aligned(&mut self.scratch);
        match self.coding.compress::<Codecs>(page, &mut output.0, scratch) {
            Some((codec, len)) => Seen::Coded(codec, len),
            None => Seen::Coded(CodecId::Copy, PAGE_BYTES),
        }
    }

    /// The same whatever became of the blocks before.
    pub(crate) fn encode_anew(&mut self, page: &Page, output: &mut Page) -> Seen {
        self.coding = self.coding.with_codec(self.codec());
        self.encode(page, output)
    }

    /// Makes a block of bytes that this codec made, or one that needs no scratch.
    pub(crate) fn decode(
        &mut self,
        codec: CodecId,
        bytes: &[u8],
        page: &mut Page,
    ) -> Result<(), Corrupt> {
        Codecs::decompress(codec, bytes, page, aligned(&mut self.scratch))
    }

    /// Makes bytes of a block, and a block of them, by the time that the thread had a processor.
    pub(crate) fn measure(&mut self, page: &Page, spare: &mut [Page; 2]) -> Made {
        let (codec, scratch) = (self.coding.codec(), aligned(&mut self.scratch));
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
            coding_ticks: coded_ns - began_ns,
            decoding_ticks: processor_ns() - coded_ns,
        }
    }
}

fn aligned(scratch: &mut [u8]) -> &mut [u8] {
    let start = scratch.as_ptr().align_offset(SCRATCH_ALIGN_BYTES);
    &mut scratch[start..]
}

/// How long this thread had a processor.
fn processor_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
