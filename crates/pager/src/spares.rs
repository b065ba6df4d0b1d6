//! Physical pages that victims left behind, for the pages that come in next.
//!
//! What was lifted lies in staging until the cache has it; then its RAM is nobody's. Instead of
//! giving it to the kernel and asking for as much again at the next fault, the page that comes in is
//! decoded into it, while it is still in the processor's cache, and moved to its place: a fault
//! costs no allocation, no copy of a page and no page to be freed.
//!
//! Source: ours; ioctl_userfaultfd(2), `UFFDIO_MOVE`.
//!
//! Invariants: staging's first `spare_pages` pages are there, belong to this process alone, hold
//! nothing that is wanted, and are counted as metadata. There are none across a fork.
//!
//! Not in a process that has lent the kernel pages beyond a call: `UFFDIO_MOVE` lifts such a page,
//! and who has it would find in it what comes in next.
//!
//! Bad in a process of several threads, which has none: each move out of staging interrupts every
//! processor that runs one of them, where giving back many pages interrupts it once.

use zpager_codec::Page;
use zpager_sys::PAGE_BYTES;

use crate::process::{BATCH_PAGES, Lift, Process};
use crate::swapout::{LIFT_PAGES, is_there};

/// Most pages that are kept: as many as come in at once.
const SPARES_MAX: usize = BATCH_PAGES;
/// Fewest pages that are moved: after each move the processor looks up its page tables from the
/// root, which costs more than a copy saves.
const MOVED_MIN: usize = 4;
/// Pages of staging: behind the spares there is room for what is lifted.
pub(crate) const STAGING_PAGES: usize = SPARES_MAX + LIFT_PAGES;

/// How pages that come in get to their place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// As the last spares.
    Spares,
    /// As copies, for which there is room.
    Copy,
}

impl Process {
    /// Whether pages come in by way of spares.
    fn keeps_spares(&self) -> bool {
        self.lift == Lift::Move
            && !self.lends_pages
            && self.recorder.is_none()
            && self.threads.was_always_one()
            && self.keeps_buffers()
    }

    pub(crate) fn spare_bytes(&self) -> usize {
        self.spare_pages * PAGE_BYTES
    }

    /// Makes what was lifted and stored behind the spares a part of them, or gives it back.
    pub(crate) fn become_spares(&mut self, pages: usize) {
        self.spare_pages += pages;
        if !self.keeps_spares() {
            self.drop_spares(self.spare_pages);
        }
    }

    /// Has room for a whole lift behind the spares.
    pub(crate) fn limit_spares(&mut self) {
        self.drop_spares(self.spare_pages.saturating_sub(SPARES_MAX));
    }

    /// Gives all spares back unless there are `bytes` of room in the budget: one call for many
    /// pages costs hardly more than for one.
    pub(crate) fn give_spares(&mut self, bytes: i64) {
        if self.room_bytes() < bytes {
            self.drop_spares(self.spare_pages);
        }
    }

    /// Gives as many spares back as exceed the budget.
    fn fit_spares(&mut self) {
        let excess_bytes = self.room_bytes().min(0).unsigned_abs() as usize;
        self.drop_spares(excess_bytes.div_ceil(PAGE_BYTES).min(self.spare_pages));
    }

    pub(crate) fn drop_spares(&mut self, pages: usize) {
        if pages > 0 {
            self.spare_pages -= pages;
            self.staging.release(self.spare_bytes(), pages * PAGE_BYTES);
            self.publish();
        }
    }

    /// Makes room for `pages` pages that come in from `page` on, or finds spares for them.
    pub(crate) fn make_way(&mut self, page: u64, pages: usize) -> Way {
        let bytes = (pages * PAGE_BYTES) as i64;
        self.find_room(bytes);
        let can_move = || self.regions.find(page).is_some_and(|region| region.can_move());
        if pages >= MOVED_MIN && self.keeps_spares() && can_move() {
            self.fit_spares();
            if self.spare_pages >= pages {
                return Way::Spares;
            }
        }
        self.give_spares(bytes);
        Way::Copy
    }

    /// The last `pages` spares: those that were written last.
    pub(crate) fn last_spares(&self, pages: usize) -> &'static mut [Page] {
        &mut Self::pages_of(&self.staging)[self.spare_pages - pages..self.spare_pages]
    }

    /// Moves the first of the last `taken` spares to `page` and what follows it, as many as there are
    /// `heats`, and notes them as resident and as hot. The others are given back. There are spares
    /// only while the process has one thread, so that nobody writes a page before it is protected.
    pub(crate) fn put_spares(&mut self, page: u64, taken: usize, heats: &[u8]) {
        self.spare_pages -= taken;
        let source = self.staging.start() + self.spare_bytes();
        let (target, bytes) = (page as usize * PAGE_BYTES, heats.len() * PAGE_BYTES);
        // SAFETY: spares are nobody's but the holder's of the lock; these hold what the program must find.
        let outcome = unsafe { self.watch.move_pages(target, source, bytes) };
        let moved = match outcome {
            Ok(moved_bytes) if moved_bytes == bytes => heats.len(),
            // Whatever the call says of it, what has left is there.
            _ => (0..heats.len()).take_while(|at| !is_there(source + at * PAGE_BYTES)).count(),
        };
        self.protect_kept(page, moved);
        for (at, &heat) in heats[..moved].iter().enumerate() {
            self.note_resident(page + at as u64, heat);
        }
        if moved < taken {
            let rest = source + moved * PAGE_BYTES;
            self.put(page + moved as u64, rest as *const u8, &heats[moved..]);
            self.staging.release(rest - self.staging.start(), (taken - moved) * PAGE_BYTES);
        }
    }
}
