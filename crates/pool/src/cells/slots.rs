//! Where the objects of every cell lie: a table of slots, 15 for each page of a cell.
//!
//! A slot that was never set is free, as is one of no grains. Three slots fill a word.

use crate::words::{Words, ram_bytes};
use crate::{Space, SpaceSource};

/// Slots for each page of a cell.
pub(super) const PAGE_SLOTS: usize = PAGE_WORDS * WORD_SLOTS;
/// Most slots of a cell.
pub(super) const SLOTS_MAX: usize = PAGE_SLOTS * super::CELL_PAGES_MAX;
const PAGE_WORDS: usize = 5;
const WORD_SLOTS: usize = 3;
const SLOT_BITS: usize = 64 / WORD_SLOTS;
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;
/// Of a slot, those that tell the grains; the others tell the start.
const GRAINS_BITS: usize = 9;

/// A stretch of a cell, in grains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) start: usize,
    pub(super) grains: usize,
}

impl Place {
    pub(super) fn end(self) -> usize {
        self.start + self.grains
    }
}

/// The slots of all cells.
#[derive(Debug)]
pub(super) struct Slots<S> {
    words: Words<S>,
    cell_pages: usize,
}

impl<S: Space> Slots<S> {
    pub(super) fn reserve<Source: SpaceSource<Space = S>>(
        source: &Source,
        cells: usize,
        cell_pages: usize,
    ) -> Option<Self> {
        let words = Words::reserve(source, cells.checked_mul(cell_pages * PAGE_WORDS)?)?;
        Some(Self { words, cell_pages })
    }

    /// Slots of a cell.
    pub(super) fn of_cell(&self) -> usize {
        self.cell_pages * PAGE_SLOTS
    }

    /// Where the object of a slot lies. `None`: the slot is free.
    pub(super) fn get(&self, cell: usize, slot: usize) -> Option<Place> {
        let (word, shift) = self.at(cell, slot);
        let bits = (self.words.get(word) >> shift & SLOT_MASK) as usize;
        let place = Place { start: bits >> GRAINS_BITS, grains: bits & ((1 << GRAINS_BITS) - 1) };
        (place.grains > 0).then_some(place)
    }

    pub(super) fn set(&mut self, cell: usize, slot: usize, place: Place) {
        let (word, shift) = self.at(cell, slot);
        let others = self.words.get(word) & !(SLOT_MASK << shift);
        let bits = (place.start << GRAINS_BITS | place.grains) as u64;
        self.words.set(word, others | bits << shift);
    }

    /// Takes a free slot of a cell that has one.
    pub(super) fn take(&mut self, cell: usize, place: Place) -> usize {
        let slot = (0..self.of_cell()).find(|&slot| self.get(cell, slot).is_none());
        let slot = slot.expect("cells without a free slot offer nothing");
        self.set(cell, slot, place);
        slot
    }

    /// Makes a slot free: where its object lay.
    pub(super) fn give_back(&mut self, cell: usize, slot: usize) -> Place {
        let place = self.get(cell, slot).expect("the object was removed before");
        self.set(cell, slot, Place::default());
        place
    }

    /// The taken slots of a cell, and where their objects lie.
    pub(super) fn places(&self, cell: usize) -> impl Iterator<Item = (usize, Place)> {
        (0..self.of_cell()).filter_map(move |slot| Some((slot, self.get(cell, slot)?)))
    }

    /// RAM touched when no cell from `touched` on was ever used, in bytes.
    pub(super) fn metadata_bytes(&self, touched: usize) -> usize {
        ram_bytes(touched * self.cell_pages * PAGE_WORDS)
    }

    /// The word and the shift of a slot.
    fn at(&self, cell: usize, slot: usize) -> (usize, usize) {
        let word = cell * self.cell_pages * PAGE_WORDS + slot / WORD_SLOTS;
        (word, slot % WORD_SLOTS * SLOT_BITS)
    }
}
