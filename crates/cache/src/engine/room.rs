//! Making room: what leaves next, a resident page or a compressed one.

use zpager_policy::{Shares, Step};
use zpager_pool::SpaceSource;
use zpager_store::Blocks;

use super::Engine;
use crate::cache::SpillError;
use crate::coder::Coder;

/// Pages of the pool among which one in the sample is sought.
const OLDEST_MAX: usize = 1024;

/// What spilling moved, with what it took to make room in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Pages that left RAM, or why none did.
    pub outcome: Result<usize, SpillError>,
    /// Writes to the store.
    pub writes: usize,
    /// Bytes written.
    pub written_bytes: usize,
    /// Where the last of the writes ends in the store.
    pub end_bytes: u64,
    /// Reads from the store.
    pub reads: u32,
    /// Bytes read.
    pub read_bytes: usize,
}

impl<M: SpaceSource + Copy, B: Blocks, C: Coder> Engine<M, B, C> {
    /// What to do next to make room, and instead if that gives nothing.
    pub fn steps(&mut self, shares: &Shares) -> [Step; 2] {
        if self.split.is_due(&self.sampler) {
            let oldest = self.cache.oldest().take(OLDEST_MAX);
            self.split.move_border(shares, &self.sampler, oldest);
        }
        let step = self.split.next_step(shares);
        let instead = match step {
            Step::SwapOut => Step::Spill,
            // Without the store it is as if there were none: rather too much RAM than no progress.
            Step::Spill => self.split.next_step(&Shares { has_store: false, ..*shares }),
            Step::Nothing => Step::Nothing,
        };
        [step, instead]
    }

    /// Writes the oldest compressed pages to the store, which is cleaned first if much of it holds
    /// nothing any more. The caller says afterwards how long it took: [`Self::spilled`].
    pub fn spill(&mut self) -> Written {
        let mut written = Written {
            outcome: Err(SpillError::Nothing),
            writes: 0,
            written_bytes: 0,
            end_bytes: 0,
            reads: 0,
            read_bytes: 0,
        };
        self.clean(&mut written);
        let mut outcome = self.cache.spill();
        if outcome == Err(SpillError::Full) && self.clean(&mut written) {
            outcome = self.cache.spill();
        }
        written.outcome = outcome.map(|spilled| {
            written.writes += 1;
            written.written_bytes += spilled.written_bytes;
            written.end_bytes = written.end_bytes.max(spilled.end_bytes);
            spilled.pages
        });
        written
    }

    /// Makes room in the store; gives whether it did. A failed write pauses spilling with the same
    /// error, which the caller is thus told.
    fn clean(&mut self, written: &mut Written) -> bool {
        let Ok(cleaned) = self.cache.clean() else { return false };
        written.writes += usize::from(cleaned.written_bytes > 0);
        written.written_bytes += cleaned.written_bytes;
        written.end_bytes = written.end_bytes.max(cleaned.end_bytes);
        written.reads += cleaned.reads;
        written.read_bytes += cleaned.read_bytes;
        true
    }

    /// Notes that a spill took `ticks`.
    pub fn spilled(&mut self, written: &Written, ticks: u64) {
        self.spill_ticks = self.spill_ticks.wrapping_add(ticks);
        if let Ok(pages) = written.outcome {
            self.split.spilled(pages, ticks);
        }
    }
}
