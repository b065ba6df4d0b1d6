//! Frames of pages that processes have in common which are entered together.
//!
//! Such a process may have been forked while nothing was managed. The kernel tells it which of its pages
//! others have too, and not who: a page at the same place in two processes, which others have in both, is
//! taken for the same. So each looks at a cell for the page, which the first gives a frame ([`Frames`]),
//! of which the others become holders, too.
//!
//! The cells lie in blocks by their addresses, in a table with open addressing. Each turn of entering has
//! a number of its own, and finds the blocks of others free.
//!
//! Invariant: one process at a time uses the table, as all that are entered stand still.
//!
//! Bad case: a page that some of a family have in common, and others of it another one at that place: they
//! are counted as one until they are written or leave. More memory apart than there are blocks: the
//! rest is counted once a process.
//!
//! [`Frames`]: crate::Frames

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Pages of a block.
const BLOCK_PAGES: usize = 512;
/// Blocks for each that the budget has room for, as they are seldom full.
const SPACIOUSNESS: usize = 4;
const BLOCKS_MIN: usize = 64;
/// Most places that are looked at.
const PROBES_MAX: usize = 64;
const TURN_AT: u32 = 32;

/// The table.
#[derive(Debug, Clone, Copy)]
pub struct Kin<'a> {
    /// The turn and the block's place among all blocks of an address space.
    keys: &'a [AtomicU64],
    cells: &'a [AtomicU32],
}

/// Blocks beside so many frames.
const fn blocks_for(frames: usize) -> usize {
    let blocks = frames / BLOCK_PAGES * SPACIOUSNESS;
    if blocks > BLOCKS_MIN { blocks } else { BLOCKS_MIN }
}

/// Bytes of the table beside so many frames, a multiple of 8.
pub(crate) const fn table_bytes(frames: usize) -> usize {
    blocks_for(frames) * (size_of::<u64>() + BLOCK_PAGES * size_of::<u32>())
}

impl<'a> Kin<'a> {
    /// The table at `start`, beside so many frames.
    ///
    /// # Safety
    /// [`table_bytes`] there are aligned to 8, zero at first, and used for nothing else.
    pub(crate) unsafe fn at(start: *const AtomicU64, frames: usize) -> Self {
        let blocks = blocks_for(frames);
        // SAFETY: the caller's promise.
        unsafe {
            let cells = start.add(blocks).cast();
            Kin {
                keys: core::slice::from_raw_parts(start, blocks),
                cells: core::slice::from_raw_parts(cells, blocks * BLOCK_PAGES),
            }
        }
    }

    /// A table without a block.
    pub(crate) const EMPTY: Self = Kin { keys: &[], cells: &[] };

    /// The cell of a page in a turn, with a frame's name as it was stored, or 0. `None`: there is no room.
    pub fn cell(&self, turn: u32, page: u64) -> Option<&'a AtomicU32> {
        let block = page / BLOCK_PAGES as u64;
        let key = u64::from(turn) << TURN_AT | block;
        if block >> TURN_AT != 0 || self.keys.is_empty() {
            return None;
        }
        let hash = (block.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        let probes = (0..PROBES_MAX.min(self.keys.len())).map(|at| (hash + at) % self.keys.len());
        for at in probes {
            let cells = &self.cells[at * BLOCK_PAGES..][..BLOCK_PAGES];
            let found = self.keys[at].load(Relaxed);
            if found != key && found >> TURN_AT == u64::from(turn) {
                continue;
            } else if found != key {
                cells.iter().for_each(|cell| cell.store(0, Relaxed));
                self.keys[at].store(key, Relaxed);
            }
            return Some(&cells[page as usize % BLOCK_PAGES]);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    #[test]
    fn each_turn_has_cells_of_its_own() {
        let words: Vec<AtomicU64> = (0..table_bytes(0) / 8).map(|_| AtomicU64::new(0)).collect();
        // SAFETY: as many words, for this alone.
        let kin = unsafe { Kin::at(words.as_ptr(), 0) };
        let mut random = 7u64;
        for turn in 1..=3 {
            let mut model: BTreeMap<u64, u32> = BTreeMap::new();
            for value in 1..5000 {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                // Twenty places, far apart, of two blocks or three.
                let page = (random >> 33) % 20 * 0x12_3457 + (random >> 20) % 600;
                let cell = kin.cell(turn, page).expect("fewer than there are blocks");
                assert_eq!(cell.load(Relaxed), model.get(&page).copied().unwrap_or(0));
                cell.store(value, Relaxed);
                model.insert(page, value);
            }
        }
        let places = (0..1000u64).filter(|at| kin.cell(9, at * BLOCK_PAGES as u64).is_some());
        assert_eq!(places.count(), BLOCKS_MIN, "the rest has no room");
        assert!(kin.cell(9, u64::MAX / 2).is_none());
    }
}
