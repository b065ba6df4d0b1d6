//! Clean copies: a page that came back from the store stays there, too, until it is written. If it
//! leaves before, nothing has to be compressed or written.
//!
//! Source: the swap cache of Linux (mm/swap_state.c), in which a page that was read keeps its slot as
//! long as it is clean and slots are not scarce.
//!
//! Invariants: a clean page is write-protected by whoever owns the program's memory, who says first
//! that it is to be written ([`Cache::written`]). Its record is what the page is. One whose copy was
//! given up stays protected, and its entry says so, until it is written.
//!
//! A copy is a cache. It takes no RAM, as its place is in the page's entry. It takes room in the
//! store, so all are given up before the store is said to be full, and those in the emptiest
//! clusters when these are cleaned.
//!
//! Bad for: several processes, of which one is full of copies and does nothing, when another one
//! needs the store: it heeds that only when it reads from there, or RAM is asked of it.

use zpager_pool::SpaceSource;
use zpager_store::{Blocks, Place};

use super::{Cache, SpillError};
use crate::coder::Coder;
use crate::entry::{Entry, PageNumber, State};
use crate::index::PAGE_NUMBER_END;

/// So many pages come back from a store that was full before one is kept there again: giving all up
/// takes a walk over the index.
const FULL_PAUSE_PAGES: usize = 4096;

impl<M: SpaceSource + Copy, B: Blocks, C: Coder> Cache<M, B, C> {
    /// Whether a page that comes back keeps its copy at `place`.
    pub(super) fn may_keep(&mut self, place: Place) -> bool {
        self.heed_relatives();
        let paused = self.copies_pause > 0;
        self.copies_pause = self.copies_pause.saturating_sub(1);
        self.rules.keeps_copies && !paused && Entry::can_be_clean(place)
    }

    /// Has a page that came back, and is write-protected, be clean; it came in at `turn`.
    pub fn keep_copy(&mut self, page: PageNumber, turn: u16) {
        if let State::Spilled { codec, place } = self.index.get(page).state() {
            self.enter(page, State::Clean { turn: turn as u8, codec, place });
            self.copies += 1;
            self.copies_turn = turn;
            self.has_protected = true;
        }
    }

    /// Whether a page may be protected because it is clean, or was.
    pub fn has_protected(&self) -> bool {
        self.has_protected
    }

    /// Says that no page is: [`Cache::written`] was called for each.
    pub fn end_protection(&mut self) {
        debug_assert!(self.copies == 0);
        self.has_protected = false;
    }

    /// Has a clean page that leaves be in the store alone. False where it is not clean, or the store
    /// fails at present, so that it is better not relied on.
    pub fn drop_clean(&mut self, page: PageNumber) -> bool {
        let State::Clean { codec, place, .. } = self.index.get(page).state() else { return false };
        if self.pause.left > 0 && matches!(self.pause.error, SpillError::Io(_)) {
            return false;
        }
        self.copies -= 1;
        self.enter(page, State::Spilled { codec, place });
        true
    }

    /// Has a page be written that was clean, or is protected as it was: it is neither any more. Gives
    /// whether it was clean.
    pub fn written(&mut self, page: PageNumber) -> bool {
        let was_clean = self.give_up(page);
        let entry = self.index.get(page);
        if entry.is_protected() {
            let entered = self.index.set(page, entry.with_protection(false));
            debug_assert!(entered, "a resident page has an entry");
        }
        was_clean
    }

    /// Gives a clean page's copy up; the page stays protected. False where it has none.
    pub(super) fn give_up(&mut self, page: PageNumber) -> bool {
        let clean = self.index.get(page);
        let (State::Clean { .. }, Some(turn)) = (clean.state(), clean.arrival(self.copies_turn))
        else {
            return false;
        };
        let entry = Entry::new(State::Resident { turn, frame: 0 }).with_protection(true);
        let entered = self.index.set(page, entry);
        debug_assert!(entered, "a resident page has an entry");
        self.free(clean);
        true
    }

    /// Gives all copies up, as the store has no room; false where there are none.
    pub fn give_up_copies(&mut self) -> bool {
        if self.copies == 0 {
            return false;
        }
        let mut at = 0;
        while self.copies > 0
            && let Some(page) = self.index.next_known(at, PAGE_NUMBER_END)
        {
            self.give_up(page);
            at = page + 1;
        }
        self.copies_pause = FULL_PAUSE_PAGES;
        true
    }

    /// Gives all copies up if a relative has found the store full.
    pub fn heed_relatives(&mut self) {
        let Some(wanted) = self.store.as_ref().map(|store| store.clusters.wanted()) else { return };
        if wanted != self.wanted {
            self.wanted = wanted;
            self.copies_pause = FULL_PAUSE_PAGES;
            self.give_up_copies();
        }
    }

    /// Clean pages.
    pub fn clean_pages(&self) -> usize {
        self.copies
    }
}
