//! A pool of size classes: objects of about one length share slabs of 1 to 8 pages.
//!
//! Source: zsmalloc (Linux mm/zsmalloc.c): classes of slots, slabs made of several pages so that
//! slots fill them, compaction that empties the sparsest slabs. Unlike there, a slab's pages are
//! neighbours, so an object is one slice; free slots are bits outside the objects; handles are
//! plain offsets, and the owner of the handles carries out a compaction.
//!
//! Invariants:
//! - `held_bytes` = touched pages of all slabs and of the kept empty runs;
//! - per class, `needed_slabs` = live objects / slots, rounded up;
//! - `surplus_bytes` = sum over classes of (slabs - needed_slabs) * slab bytes: exactly what a
//!   compaction can give back;
//! - a slab with free and taken slots stands in its class's `partial` list, or in `evacuating`
//!   while a compaction empties it; full slabs stand in none; empty ones are not kept as slabs.
//!
//! Cost: insert, get and remove take a bounded number of steps; a compaction visits the partly
//! filled slabs of the classes that have too many, and what its owner offers it.
//!
//! Bad for: pools of less than some MiB, where half a slab a class weighs; lengths that change all
//! the time, which leave sparse slabs behind and need compactions.

mod classes;
mod kept;
mod runs;
mod slabs;
#[cfg(test)]
mod tests;

use crate::objects::{Objects, PAGE_BYTES};
use crate::{Fragmentation, Handle, OBJECT_BYTES_MAX, Pool, Space, SpaceSource};
use classes::{CLASS, CLASSES, Class, SLOTS_MAX, class_of};
use kept::{KeptRun, KeptRuns};
use runs::Runs;
use slabs::{List, PAGES_MAX, Slabs};

/// A compaction is worth it when it gives back one part in so many of the RAM held...
const SURPLUS_PART: usize = 32;
/// ...and at least so much.
const SURPLUS_BYTES_MIN: usize = 64 << 10;

/// What is known of one class.
#[derive(Debug, Clone, Copy)]
struct Stock {
    partial: List,
    evacuating: List,
    slabs: usize,
    needed_slabs: usize,
    /// Live objects less those of `needed_slabs - 1` full slabs: 1 to the class's slots, or 0
    /// when there is none.
    in_last_needed: usize,
}

impl Stock {
    const EMPTY: Self = Self {
        partial: List::EMPTY,
        evacuating: List::EMPTY,
        slabs: 0,
        needed_slabs: 0,
        in_last_needed: 0,
    };

    /// Live objects.
    fn objects(&self, class: &Class) -> usize {
        self.needed_slabs.saturating_sub(1) * class.slots + self.in_last_needed
    }
}

/// A [`Pool`] in which objects of about one length share slabs of 1 to 8 pages, as in zsmalloc.
///
/// At most a tenth of what it holds is waste in pools of 8 MiB and more, if its owner compacts it
/// when [`Pool::should_compact`] says so.
#[derive(Debug)]
pub struct SizeClasses<S> {
    objects: Objects<S>,
    runs: Runs<S>,
    slabs: Slabs<S>,
    stocks: [Stock; CLASSES],
    kept: KeptRuns,
    payload_bytes: usize,
    surplus_bytes: usize,
}

impl<S: Space> SizeClasses<S> {
    /// An empty pool whose objects lie in `space_bytes` of address space, which costs nothing
    /// until used. Slabs leave gaps in it: mixed lengths use 1.2 times the RAM held, equal ones
    /// of 256 to 816 bytes twice as much and below 64 bytes three times. So four times the RAM
    /// that the pool may come to hold is plenty; eight times is enough for any order of calls.
    /// `None`: the source gave none, or more than a [`Handle`] can tell apart was asked for.
    pub fn reserve<Source: SpaceSource<Space = S>>(
        source: &Source,
        space_bytes: usize,
    ) -> Option<Self> {
        let pages = space_bytes.div_ceil(PAGE_BYTES);
        if pages > PAGES_MAX {
            return None;
        }
        Some(Self {
            objects: Objects::reserve(source, pages)?,
            runs: Runs::reserve(source, pages)?,
            slabs: Slabs::reserve(source, pages)?,
            stocks: [Stock::EMPTY; CLASSES],
            kept: KeptRuns::default(),
            payload_bytes: 0,
            surplus_bytes: 0,
        })
    }

    /// A slab of the class without objects: its first page.
    fn start_slab(&mut self, class_index: usize) -> Option<usize> {
        let class = &CLASS[class_index];
        let (slab, touched_pages) = match self.kept.take_for(class) {
            Some(kept) => (kept.first_page, kept.touched_pages),
            None => {
                // The first object touches one page: no slot is longer.
                self.make_room(1)?;
                (self.take_run(class.span_pages)?, 0)
            }
        };
        self.slabs.start(slab, class, touched_pages);
        self.stocks[class_index].slabs += 1;
        self.surplus_bytes += class.slab_bytes();
        Some(slab)
    }

    /// Sees to it that so many pages more may be held, at the cost of kept runs. `None`: they may not.
    fn make_room(&mut self, pages: usize) -> Option<()> {
        for _ in 0..=kept::RUNS_MAX {
            if self.objects.may_hold(pages) {
                return Some(());
            }
            self.release_oldest_kept()?;
        }
        None
    }

    /// Takes a run of address space, at the cost of kept ones when there is no other.
    fn take_run(&mut self, span_pages: usize) -> Option<usize> {
        for _ in 0..=kept::RUNS_MAX {
            if let Some(run) = self.runs.take(span_pages) {
                return Some(run);
            }
            self.release_oldest_kept()?;
        }
        None
    }

    /// A slab of the class that has a free slot, below the limit: its first page, and whether it
    /// stands in the partial list.
    #[inline]
    fn roomy_slab(&mut self, class_index: usize) -> Option<(usize, bool)> {
        let Some(slab) = self.stocks[class_index].partial.head() else {
            return Some((self.start_slab(class_index)?, false));
        };
        let class = &CLASS[class_index];
        if !self.objects.may_hold(class.pages) {
            self.make_room(self.slabs.pages_to_touch(slab, class))?;
        }
        Some((slab, true))
    }

    /// Turns an empty slab that stands in no list into a kept run.
    fn end_slab(&mut self, class_index: usize, slab: usize) {
        let class = &CLASS[class_index];
        self.stocks[class_index].slabs -= 1;
        self.surplus_bytes -= class.slab_bytes();
        let touched_pages = self.slabs.touched_pages(slab);
        for _ in 0..kept::RUNS_MAX {
            if !self.kept.has_room_for(touched_pages) {
                self.release_oldest_kept();
            }
        }
        let span_pages = class.span_pages;
        self.kept.put(KeptRun { first_page: slab, span_pages, touched_pages });
    }

    /// Gives the oldest kept run back to the space. `None`: none is kept.
    fn release_oldest_kept(&mut self) -> Option<()> {
        let run = self.kept.take_oldest()?;
        self.objects.release(run.first_page, run.touched_pages);
        self.runs.give_back(run.first_page, run.span_pages);
        Some(())
    }

    /// Takes a slot of a slab that has one; `listed` says whether it stands in the partial list.
    /// Offset of the slot in the object space.
    #[inline]
    fn take_slot(&mut self, class_index: usize, slab: usize, listed: bool) -> usize {
        let class = &CLASS[class_index];
        let taken = self.slabs.take_slot(slab, class);
        self.objects.hold(taken.touched_pages);
        let partial = &mut self.stocks[class_index].partial;
        match (listed, taken.full) {
            (true, true) => self.slabs.unlink(partial, slab),
            (false, false) => self.slabs.push(partial, slab),
            _ => {}
        }
        slab * PAGE_BYTES + taken.slot * class.slot_bytes
    }

    /// Gives the slot at `offset_bytes` of the object space back, and its slab if it was the last.
    #[inline]
    fn give_slot_back(&mut self, class_index: usize, offset_bytes: usize) {
        let (slab, slot) = self.slot_of(class_index, offset_bytes);
        let given = self.slabs.give_slot_back(slab, &CLASS[class_index], slot);
        let stock = &mut self.stocks[class_index];
        let list = if given.evacuating { &mut stock.evacuating } else { &mut stock.partial };
        match (given.was_full, given.empty) {
            (true, false) => self.slabs.push(list, slab),
            (false, true) => self.slabs.unlink(list, slab),
            _ => {}
        }
        if given.empty {
            self.end_slab(class_index, slab);
        }
    }

    /// The slab and the slot that an offset of the object space lies in.
    #[inline]
    fn slot_of(&self, class_index: usize, offset_bytes: usize) -> (usize, usize) {
        let slab = self.runs.start_of(offset_bytes / PAGE_BYTES);
        let slot = CLASS[class_index].slot_at(offset_bytes - slab * PAGE_BYTES);
        debug_assert_eq!(
            slab * PAGE_BYTES + slot * CLASS[class_index].slot_bytes,
            offset_bytes,
            "a handle used with another length than inserted"
        );
        (slab, slot)
    }

    #[inline]
    fn count_in(&mut self, class_index: usize) {
        let (class, stock) = (&CLASS[class_index], &mut self.stocks[class_index]);
        if stock.in_last_needed == 0 || stock.in_last_needed == class.slots {
            stock.needed_slabs += 1;
            stock.in_last_needed = 0;
            self.surplus_bytes -= class.slab_bytes();
        }
        stock.in_last_needed += 1;
    }

    #[inline]
    fn count_out(&mut self, class_index: usize) {
        let (class, stock) = (&CLASS[class_index], &mut self.stocks[class_index]);
        stock.in_last_needed -= 1;
        if stock.in_last_needed == 0 {
            stock.needed_slabs -= 1;
            stock.in_last_needed = if stock.needed_slabs == 0 { 0 } else { class.slots };
            self.surplus_bytes += class.slab_bytes();
        }
    }

    /// Moves the class's sparsest slabs, as many as it has too many, to its evacuation list.
    /// What they hold fits the free slots of the others, because the others are enough for all.
    fn choose_sparse_slabs(&mut self, class_index: usize) {
        let (class, stock) = (&CLASS[class_index], self.stocks[class_index]);
        let mut wanted = stock.slabs - stock.needed_slabs;
        let mut chosen_by_used = [0usize; SLOTS_MAX];
        for slab in self.slabs.in_list(stock.partial).take(stock.slabs) {
            chosen_by_used[self.slabs.used_slots(slab, class)] += 1;
        }
        for slabs in &mut chosen_by_used {
            *slabs = (*slabs).min(wanted);
            wanted -= *slabs;
        }
        let mut next = stock.partial.head();
        for _ in 0..stock.slabs {
            let Some(slab) = next else { break };
            next = self.slabs.next(slab);
            let chosen = &mut chosen_by_used[self.slabs.used_slots(slab, class)];
            if *chosen > 0 {
                *chosen -= 1;
                self.change_list(class_index, slab, true);
            }
        }
    }

    /// Moves a partly filled slab between its class's two lists.
    fn change_list(&mut self, class_index: usize, slab: usize, evacuating: bool) {
        let Stock { partial, evacuating: leaving, .. } = &mut self.stocks[class_index];
        let (from, to) = if evacuating { (partial, leaving) } else { (leaving, partial) };
        self.slabs.unlink(from, slab);
        self.slabs.set_evacuating(slab, evacuating);
        self.slabs.push(to, slab);
    }

    /// Where the objects lie.
    pub fn objects(&self) -> &S {
        self.objects.space()
    }

    /// The object's bytes, which are contiguous in this pool.
    #[inline]
    pub fn get(&self, handle: Handle, len: usize) -> &[u8] {
        let offset_bytes = handle.offset_bytes();
        if cfg!(debug_assertions) {
            let class_index = class_of(len);
            let (slab, slot) = self.slot_of(class_index, offset_bytes);
            assert!(self.slabs.is_taken(slab, &CLASS[class_index], slot), "a removed object");
        }
        self.objects.read(offset_bytes, len)
    }
}

impl<S: Space> Pool for SizeClasses<S> {
    #[inline]
    fn insert(&mut self, bytes: &[u8]) -> Option<Handle> {
        let class_index = class_of(bytes.len());
        let (slab, listed) = self.roomy_slab(class_index)?;
        let offset_bytes = self.take_slot(class_index, slab, listed);
        self.objects.write(offset_bytes, bytes);
        self.count_in(class_index);
        self.payload_bytes += bytes.len();
        Some(Handle::at(offset_bytes))
    }

    #[inline]
    fn read<'a>(
        &'a self,
        handle: Handle,
        len: usize,
        _gathered: &'a mut [u8; OBJECT_BYTES_MAX],
    ) -> &'a [u8] {
        self.get(handle, len)
    }

    #[inline]
    fn prefetch(&self, handle: Handle, len: usize) {
        self.slabs.prefetch(handle.offset_bytes() / PAGE_BYTES);
        self.objects.prefetch(handle.offset_bytes(), len);
    }

    #[inline]
    fn remove(&mut self, handle: Handle, len: usize) {
        let class_index = class_of(len);
        self.count_out(class_index);
        self.give_slot_back(class_index, handle.offset_bytes());
        self.payload_bytes -= len;
    }

    /// A compaction does not ask for the limit.
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
        let slabs_bytes = (self.runs.touched_pages() * 8).next_multiple_of(PAGE_BYTES);
        self.runs.metadata_bytes() + slabs_bytes
    }

    fn fragmentation(&self) -> Fragmentation {
        let of_class = |(class, stock): (&Class, &Stock)| class.slot_bytes * stock.objects(class);
        let taken_bytes: usize = CLASS.iter().zip(&self.stocks).map(of_class).sum();
        let has_place = |(class, stock): &(&Class, &Stock)| {
            stock.partial.head().is_some() || self.kept.has_one_for(class)
        };
        let largest = CLASS.iter().zip(&self.stocks).rev().find(has_place);
        Fragmentation {
            internal_bytes: taken_bytes - self.payload_bytes,
            external_bytes: self.held_bytes() - taken_bytes,
            largest_free_bytes: largest.map_or(0, |(class, _)| class.slot_bytes),
        }
    }

    #[inline]
    fn should_compact(&self) -> bool {
        self.surplus_bytes >= SURPLUS_BYTES_MIN
            && self.surplus_bytes > self.held_bytes() / SURPLUS_PART
    }

    fn begin_compaction(&mut self) -> bool {
        self.end_compaction();
        for class_index in 0..CLASSES {
            if self.stocks[class_index].slabs > self.stocks[class_index].needed_slabs {
                self.choose_sparse_slabs(class_index);
            }
        }
        self.surplus_bytes > 0
    }

    fn relocate(&mut self, handle: Handle, len: usize) -> Option<Handle> {
        let (class_index, from_bytes) = (class_of(len), handle.offset_bytes());
        let (slab, _) = self.slot_of(class_index, from_bytes);
        if !self.slabs.is_evacuating(slab) {
            return None;
        }
        let roomy_slab = self.stocks[class_index].partial.head()?;
        let to_bytes = self.take_slot(class_index, roomy_slab, true);
        self.objects.copy(from_bytes, to_bytes, len);
        self.give_slot_back(class_index, from_bytes);
        Some(Handle::at(to_bytes))
    }

    fn end_compaction(&mut self) {
        for class_index in 0..CLASSES {
            for _ in 0..self.stocks[class_index].slabs {
                let Some(slab) = self.stocks[class_index].evacuating.head() else { break };
                self.change_list(class_index, slab, false);
            }
        }
    }
}
