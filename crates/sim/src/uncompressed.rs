//! The pseudo-design `none`: no compression. Least recently used pages leave for a raw store.
//!
//! Source: mm/vmscan.c, mm/swap_state.c of Linux: pages leave in batches of 32, dirty ones with one
//! write to neighbouring slots; a page that comes back keeps its slot until it is written, and leaves
//! without a write until then. What is fetched ahead is chosen as in the engine, and each run of
//! neighbouring slots is one read.
//!
//! References are seen, also those to resident pages: this is true least recently used, which no
//! kernel can have, and so an upper bound of what one may do.
//!
//! Bad case: a loop over more pages than are resident.

use std::ops::Range;

use zpager_policy::{Ahead, Window};

use crate::cost::{Disk, is_near};
use crate::disk::Arm;
use crate::outcome::Outcome;
use crate::replay::{Lost, Memory};
use crate::survey::Layout;
use crate::trace::Reference;

const PAGE_BYTES: u64 = 4096;
/// Pages that leave together, and slots that are neighbours.
const BATCH_PAGES: usize = 32;
/// What is known of a page, in bytes.
const ENTRY_BYTES: u64 = 8;
/// One fault brings in at most this part of the budget.
const WINDOW_PART: u64 = 256;
/// A page that came within this part of the resident pages came lately.
const LATELY_PART: u64 = 4;
const NOWHERE: u32 = u32::MAX;

/// What is known of a page.
#[derive(Debug, Clone, Copy)]
struct Page {
    /// Neighbours in the order of use, while it is resident.
    newer: u32,
    older: u32,
    /// Its slot in the store, which holds what it was when it last left.
    slot: u32,
    is_resident: bool,
    /// It was written since its slot was.
    is_dirty: bool,
    is_known: bool,
    /// Arrivals when it came.
    came_at: u64,
}

const ABSENT: Page = Page {
    newer: NOWHERE,
    older: NOWHERE,
    slot: NOWHERE,
    is_resident: false,
    is_dirty: false,
    is_known: false,
    came_at: 0,
};

/// Resident pages in the order of use, and slots in a store.
#[derive(Debug)]
pub struct Uncompressed<'a> {
    layout: &'a Layout,
    budget_bytes: u64,
    pages: Vec<Page>,
    newest: u32,
    oldest: u32,
    /// Whether faults are served: the program came near its budget.
    is_managed: bool,
    resident_pages: u64,
    known_pages: u64,
    arrivals: u64,
    ahead: Ahead,
    slots: Slots,
    arm: Arm,
    outcome: Outcome,
}

impl<'a> Uncompressed<'a> {
    /// Nothing resident, a store on `disk`.
    pub fn new(layout: &'a Layout, budget_bytes: u64, disk: Disk) -> Self {
        Uncompressed {
            layout,
            budget_bytes,
            pages: vec![ABSENT; layout.end() as usize],
            newest: NOWHERE,
            oldest: NOWHERE,
            is_managed: false,
            resident_pages: 0,
            known_pages: 0,
            arrivals: 0,
            ahead: Ahead::default(),
            slots: Slots::default(),
            arm: Arm::new(disk),
            outcome: Outcome::default(),
        }
    }

    fn fault(&mut self, page: u64) {
        let is_fresh = !self.pages[page as usize].is_known;
        let (first, pages) = self.window(page, is_fresh);
        let entry_bytes = if is_fresh { ENTRY_BYTES } else { 0 };
        self.make_room(pages * (PAGE_BYTES + entry_bytes));
        self.outcome.ledger.fault(pages);
        if is_fresh {
            self.outcome.fresh_faults += 1;
        } else {
            self.outcome.spilled_faults += 1;
            self.outcome.swapped_in_pages += pages;
            self.read(first, pages);
        }
        for page in first..first + pages {
            self.arrive(page as u32);
        }
        self.ahead.fetched(first, pages as usize);
    }

    /// The pages to bring in: the first, and how many.
    fn window(&mut self, page: u64, is_fresh: bool) -> (u64, u64) {
        let region = self.layout.region(page);
        let most = (self.budget_bytes / PAGE_BYTES / WINDOW_PART).max(1);
        let lately = self.arrivals.saturating_sub(self.resident_pages / LATELY_PART);
        let pages = &self.pages;
        let came_lately = |page: u64| {
            let page = pages.get(page as usize);
            page.is_some_and(|page| page.is_resident && page.came_at >= lately)
        };
        let is_alike = |page: u64| {
            let page = pages[page as usize];
            !page.is_resident && page.is_known != is_fresh
        };
        match self.ahead.window(page, !is_fresh, came_lately) {
            Window::Up(window) => {
                let most = most.min(window as u64).min(region.end - page);
                (page, 1 + (1..most).take_while(|at| is_alike(page + at)).count() as u64)
            }
            Window::Down(window) => {
                let most = most.min(window as u64).min(page + 1 - region.start);
                let pages = 1 + (1..most).take_while(|at| is_alike(page - at)).count() as u64;
                (page + 1 - pages, pages)
            }
        }
    }

    /// Reads pages that are in the store, with one read for each run of neighbouring slots.
    fn read(&mut self, first: u64, pages: u64) {
        self.arm.set_own_ns(self.outcome.ledger.total_ns());
        let pages = &self.pages[first as usize..(first + pages) as usize];
        for run in pages.chunk_by(|page, next| page.slot.checked_add(1) == Some(next.slot)) {
            let offset_bytes = u64::from(run[0].slot) * PAGE_BYTES;
            self.arm.read(offset_bytes, run.len() as u64 * PAGE_BYTES);
        }
    }

    fn arrive(&mut self, number: u32) {
        let page = &mut self.pages[number as usize];
        self.known_pages += u64::from(!page.is_known);
        page.is_known = true;
        page.is_resident = true;
        page.came_at = self.arrivals;
        // What the store does not have cannot leave without a write.
        page.is_dirty = page.slot == NOWHERE;
        self.arrivals += 1;
        self.resident_pages += 1;
        self.link(number);
        self.outcome.peak_bytes = self.outcome.peak_bytes.max(self.held_bytes());
    }

    fn held_bytes(&self) -> u64 {
        self.resident_pages * PAGE_BYTES + self.known_pages * ENTRY_BYTES
    }

    fn make_room(&mut self, bytes: u64) {
        while self.held_bytes() + bytes > self.budget_bytes && self.resident_pages > 0 {
            self.swap_out();
        }
    }

    /// Swaps out a batch of the pages that were used longest ago.
    fn swap_out(&mut self) {
        let mut leaving = Vec::with_capacity(BATCH_PAGES);
        while leaving.len() < BATCH_PAGES && self.oldest != NOWHERE {
            let number = self.oldest;
            self.unlink(number);
            self.pages[number as usize].is_resident = false;
            self.resident_pages -= 1;
            leaving.push(u64::from(number));
        }
        leaving.sort_unstable();
        self.outcome.swapped_out_pages += leaving.len() as u64;
        self.outcome.ledger.lift(&leaving);
        leaving.retain(|&number| self.pages[number as usize].is_dirty);
        let Some(first) = self.slots.claim(leaving.len() as u32) else { return };
        self.arm.set_own_ns(self.outcome.ledger.total_ns());
        self.arm.begin_write(u64::from(first) * PAGE_BYTES, leaving.len() as u64 * PAGE_BYTES);
        for (slot, number) in (first..).zip(leaving) {
            let page = &mut self.pages[number as usize];
            page.slot = slot;
            page.is_dirty = false;
        }
    }

    /// Puts a page in as the newest.
    fn link(&mut self, number: u32) {
        self.pages[number as usize].older = self.newest;
        self.pages[number as usize].newer = NOWHERE;
        match self.newest {
            NOWHERE => self.oldest = number,
            newest => self.pages[newest as usize].newer = number,
        }
        self.newest = number;
    }

    fn unlink(&mut self, number: u32) {
        let Page { newer, older, .. } = self.pages[number as usize];
        match newer {
            NOWHERE => self.newest = older,
            newer => self.pages[newer as usize].older = older,
        }
        match older {
            NOWHERE => self.oldest = newer,
            older => self.pages[older as usize].newer = newer,
        }
    }

    fn give_slot(&mut self, number: u32) {
        let slot = std::mem::replace(&mut self.pages[number as usize].slot, NOWHERE);
        if slot != NOWHERE {
            self.slots.free(slot);
        }
    }
}

impl Memory for Uncompressed<'_> {
    #[inline]
    fn reference(&mut self, page: u64, reference: &Reference<'_>) -> Result<(), Lost> {
        let number = page as u32;
        self.outcome.references += 1;
        match self.pages[page as usize].is_resident {
            true => self.outcome.resident_hits += 1,
            false if self.is_managed => self.fault(page),
            false => {
                self.outcome.fresh_faults += 1;
                self.arrive(number);
                self.is_managed = is_near(self.held_bytes(), self.budget_bytes);
            }
        }
        if self.newest != number {
            self.unlink(number);
            self.link(number);
        }
        if reference.is_written && !self.pages[page as usize].is_dirty {
            self.pages[page as usize].is_dirty = true;
            self.give_slot(number);
        }
        Ok(())
    }

    fn release(&mut self, pages: Range<u64>) {
        for number in pages.start as u32..pages.end as u32 {
            let page = self.pages[number as usize];
            if page.is_resident {
                self.unlink(number);
                self.resident_pages -= 1;
            }
            self.give_slot(number);
            self.known_pages -= u64::from(page.is_known);
            self.pages[number as usize] = ABSENT;
        }
    }

    fn outcome(&self) -> Outcome {
        self.outcome.with(self.arm.traffic)
    }
}

/// Slots of the store, handed out in groups of neighbours.
#[derive(Debug, Default)]
struct Slots {
    /// Slots in use of each group.
    used: Vec<u8>,
    /// Groups without a slot in use, of which the last is taken first.
    free: Vec<u32>,
}

impl Slots {
    /// Takes `count` neighbouring slots, at most a group; the first of them. `None` for no slots.
    fn claim(&mut self, count: u32) -> Option<u32> {
        if count == 0 {
            return None;
        }
        let group = self.free.pop().unwrap_or(self.used.len() as u32);
        if group as usize == self.used.len() {
            self.used.push(0);
        }
        self.used[group as usize] = count as u8;
        Some(group * BATCH_PAGES as u32)
    }

    fn free(&mut self, slot: u32) {
        let group = slot / BATCH_PAGES as u32;
        let used = &mut self.used[group as usize];
        *used -= 1;
        if *used == 0 {
            self.free.push(group);
        }
    }
}
