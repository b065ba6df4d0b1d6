//! A pool of cells of 1, 2 or 4 neighbouring pages, filled by best fit and moved together when full.
//!
//! Source: castro (Castro, do Lago and Da Silva, 2003), sections 2.1 (cells, best fit by final free
//! space, compaction of a cell before the pool grows), 2.3.3 (how many pages) and 3 (an empty cell
//! is released at once; the pages of a cell are moved to other cells to free it). There two pages
//! did best. Unlike there, objects start at multiples of 16 bytes, a cell holds at most 15 of them
//! a page, and whoever owns the handles says when cells are to be freed by moving what they hold.
//!
//! The final free space of a cell is the stretch at its end that holds no object; its free space
//! is all of it that holds none. An object goes to the cell with the least final free space that
//! has room for it, else to the one with the least free space, whose objects are moved to its
//! beginning, else to a new cell. What is freed between two objects is not used before that; what
//! is freed before the final free space becomes part of it, with the gaps that come before.
//! A handle names a cell and a slot in its table, so that it survives the moving within the cell.
//!
//! Invariants:
//! - an object lies in one cell; the objects of a cell do not overlap and end at or before its
//!   final free space, and one ends there;
//! - `held_bytes` = touched pages of all cells that hold an object;
//! - a cell that holds an object and has a free slot stands in `by_final` under its final free space
//!   and in `by_free` under its free space, unless that is 0; while a compaction empties it, it
//!   stands in `evacuating` instead.
//!
//! Cost: finding a cell takes at most 17 words; compacting one moves at most 16 KiB; planning a
//! compaction looks at every cell once, and for what it moves at one number for each 16 bytes of a
//! cell.
//!
//! Bad for: cells of one page with objects longer than half of it, each of which has a cell of its
//! own; objects shorter than 256 bytes, of which a cell runs out of slots before it is full; owners
//! that remove and insert objects of many lengths in turn, who pay with moved bytes.

mod bins;
mod plan;
mod slots;
#[cfg(test)]
mod tests;

use crate::lists::{Frames, List};
use crate::objects::{Objects, PAGE_BYTES, assert_length};
use crate::words::{Words, ram_bytes};
use crate::{Fragmentation, Handle, OBJECT_BYTES_MAX, Pool, Space, SpaceSource};
use bins::Bins;
use plan::Plan;
use slots::{PAGE_SLOTS, Place, SLOTS_MAX, Slots};

const GRAIN_BYTES: usize = Handle::GRAIN_BYTES;
const PAGE_GRAINS: usize = PAGE_BYTES / GRAIN_BYTES;
/// Pages of the longest cells.
const CELL_PAGES_MAX: usize = 4;
/// A compaction is worth it when free space grew by one part in so many of the RAM held...
const GROWN_PART: usize = 16;
/// ...and at least so much, since the last compaction.
const GROWN_BYTES_MIN: usize = 64 << 10;
/// Cells whose objects have no room elsewhere before a compaction looks at no more.
const MISFITS_MAX: usize = 32;

/// What is known of one cell.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    /// Grains up to its final free space.
    filled: usize,
    /// Grains of its objects.
    taken: usize,
    objects: usize,
    /// Pages that hold RAM, from the first.
    touched_pages: usize,
    /// Whether a compaction empties it.
    evacuating: bool,
}

impl Cell {
    fn unpack(word: u64) -> Self {
        let field = |shift: u32| (word >> shift) as usize & 0xfff;
        Self {
            filled: field(0),
            taken: field(12),
            objects: field(24),
            touched_pages: field(36),
            evacuating: word >> 63 != 0,
        }
    }

    fn pack(self) -> u64 {
        let fields = [self.filled, self.taken, self.objects, self.touched_pages];
        let word = fields.iter().rfold(0, |word, &field| word << 12 | field as u64);
        word | u64::from(self.evacuating) << 63
    }
}

/// A [`Pool`] of cells of 1, 2 or 4 pages, as in castro's compressed cache.
#[derive(Debug)]
pub struct Cells<S> {
    objects: Objects<S>,
    cell_pages: usize,
    frames: Frames,
    cells: Words<S>,
    slots: Slots<S>,
    /// Cells by their final free space.
    by_final: Bins<S>,
    /// Cells by their free space.
    by_free: Bins<S>,
    evacuating: List,
    plan: Plan<S>,
    /// Whether a compaction was ever planned.
    has_planned: bool,
    /// Bytes of the grains of all objects.
    taken_bytes: usize,
    payload_bytes: usize,
    /// Free RAM that the last compaction left, or less if there was less since.
    settled_bytes: usize,
}

impl<S: Space> Cells<S> {
    /// An empty pool of cells of `cell_pages`, which are 1, 2 or 4, whose objects lie in
    /// `space_bytes` of address space, which costs nothing until used. It is the most that the
    /// pool can come to hold.
    /// `None`: the source gave none, more than a [`Handle`] can tell apart was asked for, or cells
    /// of another length.
    pub fn reserve<Source: SpaceSource<Space = S>>(
        source: &Source,
        space_bytes: usize,
        cell_pages: usize,
    ) -> Option<Self> {
        if ![1, 2, CELL_PAGES_MAX].contains(&cell_pages) {
            return None;
        }
        let cells = space_bytes.div_ceil(cell_pages * PAGE_BYTES);
        let keys = cell_pages * PAGE_GRAINS;
        Some(Self {
            objects: Objects::reserve(source, cells.checked_mul(cell_pages)?)?,
            cell_pages,
            frames: Frames::new(cells),
            cells: Words::reserve(source, cells)?,
            slots: Slots::reserve(source, cells, cell_pages)?,
            by_final: Bins::reserve(source, cells, keys)?,
            by_free: Bins::reserve(source, cells, keys)?,
            evacuating: List::default(),
            plan: Plan::reserve(source, keys)?,
            has_planned: false,
            taken_bytes: 0,
            payload_bytes: 0,
            settled_bytes: 0,
        })
    }

    /// Where the objects lie.
    pub fn objects(&self) -> &S {
        self.objects.space()
    }

    fn cell_grains(&self) -> usize {
        self.cell_pages * PAGE_GRAINS
    }

    /// Offset in bytes of a grain of a cell.
    fn offset_bytes(&self, cell: usize, grain: usize) -> usize {
        (cell * self.cell_grains() + grain) * GRAIN_BYTES
    }

    /// The cell and the slot that a handle names.
    fn slot_of(&self, handle: Handle) -> (usize, usize) {
        let number = handle.raw() as usize;
        (number / self.cell_grains(), number % self.cell_grains())
    }

    /// RAM held that belongs to no object.
    fn free_bytes(&self) -> usize {
        self.objects.held_bytes() - self.taken_bytes
    }

    fn cell(&self, cell: usize) -> Cell {
        Cell::unpack(self.cells.get(cell))
    }

    /// The final free space and the free space that a cell offers, in grains; 0 for none.
    fn offered(&self, known: Cell) -> (usize, usize) {
        let has_slot = known.objects < self.cell_pages * PAGE_SLOTS;
        match has_slot && known.objects > 0 && !known.evacuating {
            true => (self.cell_grains() - known.filled, self.cell_grains() - known.taken),
            false => (0, 0),
        }
    }

    /// Changes what is known of a cell, and where it stands with it.
    fn set_cell(&mut self, cell: usize, after: Cell) {
        let before = self.cell(cell);
        self.cells.set(cell, after.pack());
        let (final_before, free_before) = self.offered(before);
        let (final_after, free_after) = self.offered(after);
        self.by_final.change(cell, final_before, final_after);
        self.by_free.change(cell, free_before, free_after);
    }

    /// Pages that a cell would be the first to touch if it were filled up to a grain.
    fn pages_to_touch(&self, cell: usize, filled: usize) -> usize {
        filled.div_ceil(PAGE_GRAINS).saturating_sub(self.cell(cell).touched_pages)
    }

    /// Whether a cell may be filled up to a grain below the limit.
    fn may_fill(&self, cell: usize, filled: usize) -> bool {
        self.objects.may_hold(self.pages_to_touch(cell, filled))
    }

    /// A cell with so much final free space, if need be after moving its objects together.
    fn roomy_cell(&mut self, grains: usize) -> Option<usize> {
        if let Some(cell) = self.by_final.least(grains)
            && self.may_fill(cell, self.cell(cell).filled + grains)
        {
            return Some(cell);
        }
        let cell = self.by_free.least(grains)?;
        self.may_fill(cell, self.cell(cell).taken + grains).then(|| {
            self.compact_cell(cell);
            cell
        })
    }

    /// A cell without objects.
    fn start_cell(&mut self, grains: usize) -> Option<usize> {
        let pages = grains.div_ceil(PAGE_GRAINS);
        if !self.objects.may_hold(pages) {
            return None;
        }
        self.frames.take(self.by_free.links_mut())
    }

    /// Gives the RAM of a cell back whose last object has gone.
    fn end_cell(&mut self, cell: usize, known: Cell) {
        if known.evacuating {
            self.by_free.links_mut().unlink(&mut self.evacuating, cell);
        }
        self.set_cell(cell, Cell::default());
        self.frames.give_back(self.by_free.links_mut(), cell);
        self.objects.release(cell * self.cell_pages, known.touched_pages);
    }

    /// Takes so many grains of a cell that has them as final free space: the slot and the place.
    fn take_place(&mut self, cell: usize, grains: usize) -> (usize, Place) {
        let known = self.cell(cell);
        let place = Place { start: known.filled, grains };
        let slot = self.slots.take(cell, place);
        let touched_pages = self.pages_to_touch(cell, place.end());
        self.objects.hold(touched_pages);
        self.taken_bytes += grains * GRAIN_BYTES;
        let after = Cell {
            filled: place.end(),
            taken: known.taken + grains,
            objects: known.objects + 1,
            touched_pages: known.touched_pages + touched_pages,
            ..known
        };
        self.set_cell(cell, after);
        (slot, place)
    }

    /// Makes a slot and its place free.
    fn give_place_back(&mut self, cell: usize, slot: usize) {
        let place = self.slots.give_back(cell, slot);
        self.taken_bytes -= place.grains * GRAIN_BYTES;
        let before = self.cell(cell);
        let mut after =
            Cell { taken: before.taken - place.grains, objects: before.objects - 1, ..before };
        if after.objects == 0 {
            return self.end_cell(cell, before);
        }
        if place.end() == before.filled {
            let ends = self.slots.places(cell).map(|(_, place)| place.end());
            after.filled = ends.max().unwrap_or(0);
        }
        self.set_cell(cell, after);
    }

    /// Moves all objects of a cell to its beginning, in the order they lie in.
    fn compact_cell(&mut self, cell: usize) {
        let mut sorted = [(Place::default(), 0); SLOTS_MAX];
        let mut objects = 0;
        for (slot, place) in self.slots.places(cell) {
            sorted[objects] = (place, slot);
            objects += 1;
        }
        sorted[..objects].sort_unstable_by_key(|(place, _)| place.start);
        let mut filled = 0;
        for &(place, slot) in &sorted[..objects] {
            if place.start > filled {
                let from_bytes = self.offset_bytes(cell, place.start);
                let to_bytes = self.offset_bytes(cell, filled);
                self.objects.copy(from_bytes, to_bytes, place.grains * GRAIN_BYTES);
                self.slots.set(cell, slot, Place { start: filled, ..place });
            }
            filled += place.grains;
        }
        self.set_cell(cell, Cell { filled, ..self.cell(cell) });
    }

    /// Begins or ends the evacuation of one cell.
    fn set_evacuating(&mut self, cell: usize, evacuating: bool) {
        let after = Cell { evacuating, ..self.cell(cell) };
        if evacuating {
            self.set_cell(cell, after);
            self.by_free.links_mut().push(&mut self.evacuating, cell);
        } else {
            self.by_free.links_mut().unlink(&mut self.evacuating, cell);
            self.set_cell(cell, after);
        }
    }

    /// Chooses the sparsest cells as long as the others have room for what they hold.
    fn choose_sparse_cells(&mut self) {
        let mut misfits = 0;
        for free in (1..=self.cell_grains()).rev() {
            let mut next = self.by_free.first(free);
            for _ in 0..self.frames.touched() {
                let Some(cell) = next else { break };
                next = self.by_free.links().next(cell);
                let places = self.slots.places(cell).map(|(_, place)| place);
                if self.plan.evacuate(free, places) {
                    self.set_evacuating(cell, true);
                } else {
                    misfits += 1;
                }
                if misfits == MISFITS_MAX {
                    return;
                }
            }
        }
    }

    /// Follows the free RAM downwards.
    fn note_free(&mut self) {
        self.settled_bytes = self.settled_bytes.min(self.free_bytes());
    }

    fn handle(&self, cell: usize, slot: usize) -> Handle {
        Handle::from_raw((cell * self.cell_grains() + slot) as u64)
    }
}

impl<S: Space> Pool for Cells<S> {
    fn insert(&mut self, bytes: &[u8]) -> Option<Handle> {
        assert_length(bytes.len());
        let grains = bytes.len().div_ceil(GRAIN_BYTES);
        let cell = match self.roomy_cell(grains) {
            Some(cell) => cell,
            None => self.start_cell(grains)?,
        };
        let (slot, place) = self.take_place(cell, grains);
        let offset_bytes = self.offset_bytes(cell, place.start);
        self.objects.write(offset_bytes, bytes);
        self.payload_bytes += bytes.len();
        self.note_free();
        Some(self.handle(cell, slot))
    }

    fn read<'a>(
        &'a self,
        handle: Handle,
        len: usize,
        _gathered: &'a mut [u8; OBJECT_BYTES_MAX],
    ) -> &'a [u8] {
        let (cell, slot) = self.slot_of(handle);
        let place = self.slots.get(cell, slot).expect("a removed object");
        debug_assert_eq!(place.grains, len.div_ceil(GRAIN_BYTES), "another length than inserted");
        self.objects.read(self.offset_bytes(cell, place.start), len)
    }

    fn remove(&mut self, handle: Handle, len: usize) {
        let (cell, slot) = self.slot_of(handle);
        self.give_place_back(cell, slot);
        self.payload_bytes -= len;
        self.note_free();
    }

    fn set_limit_bytes(&mut self, limit_bytes: usize) {
        self.objects.set_limit_bytes(limit_bytes);
    }

    fn held_bytes(&self) -> usize {
        self.objects.held_bytes()
    }

    fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    fn metadata_bytes(&self) -> usize {
        let touched = self.frames.touched();
        ram_bytes(touched)
            + self.slots.metadata_bytes(touched)
            + self.by_final.metadata_bytes(touched)
            + self.by_free.metadata_bytes(touched)
            + if self.has_planned { self.plan.metadata_bytes() } else { 0 }
    }

    fn fragmentation(&self) -> Fragmentation {
        let longest = self.by_free.longest() * GRAIN_BYTES;
        Fragmentation {
            internal_bytes: self.taken_bytes - self.payload_bytes,
            external_bytes: self.free_bytes(),
            largest_free_bytes: longest.min(OBJECT_BYTES_MAX),
        }
    }

    fn should_compact(&self) -> bool {
        let grown_bytes = self.free_bytes().saturating_sub(self.settled_bytes);
        grown_bytes >= GROWN_BYTES_MIN && grown_bytes > self.held_bytes() / GROWN_PART
    }

    fn begin_compaction(&mut self) -> bool {
        self.end_compaction();
        self.plan.clear();
        self.has_planned = true;
        for cell in 0..self.frames.touched() {
            let (_, free) = self.offered(self.cell(cell));
            self.plan.count(free);
        }
        self.choose_sparse_cells();
        self.evacuating.head().is_some()
    }

    fn relocate(&mut self, handle: Handle, len: usize) -> Option<Handle> {
        let (from_cell, from_slot) = self.slot_of(handle);
        if !self.cell(from_cell).evacuating {
            return None;
        }
        let to_cell = self.roomy_cell(len.div_ceil(GRAIN_BYTES))?;
        let from = self.slots.get(from_cell, from_slot)?;
        let (to_slot, to) = self.take_place(to_cell, from.grains);
        let from_bytes = self.offset_bytes(from_cell, from.start);
        self.objects.copy(from_bytes, self.offset_bytes(to_cell, to.start), len);
        self.give_place_back(from_cell, from_slot);
        Some(self.handle(to_cell, to_slot))
    }

    fn end_compaction(&mut self) {
        for _ in 0..self.frames.touched() {
            let Some(cell) = self.evacuating.head() else { break };
            self.set_evacuating(cell, false);
        }
        self.settled_bytes = self.free_bytes();
    }
}
