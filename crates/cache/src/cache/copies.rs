//! Clean copies: a page that came back from the store stays there, too, until it is written. If it
//! leaves before, nothing has to be compressed or written; or nothing written, where it goes by way of
//! the pool, from which it may come back as clean as it was.
//!
//! Source: the swap cache of Linux (mm/swap_state.c), in which a page that was read keeps its slot as
//! long as it is clean and slots are not scarce.
//!
//! Invariants: a clean page is write-protected by whoever owns the program's memory, who says first
//! that it is to be written ([`Cache::written`]). Its record is what the page is. One whose copy was
//! given up stays protected, and its entry says so, until it is written. A page of the pool has a note
//! where its entry says so, of a copy or of a name ([`super::common`]); else only one has that is on its way there.
//!
//! A copy is a cache. It takes no RAM while its page is resident, as its place is in the page's entry, and a
//! note in the index while that is in the pool. It takes room in the store, so all are given up before
//! the store is said to be full, and those in the emptiest clusters when these are cleaned.
//!
//! Bad for: several processes, of which one is full of copies and does nothing, when another one
//! needs the store: it heeds that only when it reads from there, or RAM is asked of it.

use zpager_codec::CodecId;
use zpager_pool::SpaceSource;
use zpager_store::{Blocks, Place};

use super::{Cache, SpillError};
use crate::coder::Coder;
use crate::entry::{Entry, History, PageNumber, State};
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

    /// Has a page that came back, and is write-protected, be clean and as hot as `heat` says; it came in at
    /// `turn`.
    pub fn keep_copy(&mut self, page: PageNumber, turn: u16, heat: u8) {
        if let State::Spilled { codec, place } = self.index.get(page).state() {
            let clean = Entry::new(State::Clean { turn: turn as u8, codec, place });
            self.replace_entry(page, clean.with_history(History { left: 0, heat }));
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
        if self.is_store_failing() {
            return false;
        }
        self.copies -= 1;
        self.enter(page, State::Spilled { codec, place });
        true
    }

    pub(super) fn is_store_failing(&self) -> bool {
        self.pause.left > 0 && matches!(self.pause.error, SpillError::Io(_))
    }

    /// Notes the copy of a page that is about to leave for the pool, if it is clean; where it lies raw, which
    /// the pool would not have for long, or the store fails, it is given up. The page is not clean then. Gives
    /// whether one is noted, for [`Cache::settle_copy`].
    pub(super) fn note_copy(&mut self, page: PageNumber) -> bool {
        let clean = self.index.get(page);
        let State::Clean { codec, place, .. } = clean.state() else { return false };
        let note = Entry::new(State::Spilled { codec, place });
        if codec == CodecId::Copy || self.is_store_failing() || !self.index.set_note(page, note) {
            self.give_up(page);
            return false;
        }
        (self.copies, self.copied) = (self.copies - 1, self.copied + 1);
        self.set_protected(page, clean);
        true
    }

    /// Has a page that went to the pool have the copy that was noted, if it still is. One that went elsewhere,
    /// or could not leave, has none.
    pub(super) fn settle_copy(&mut self, page: PageNumber) {
        let entry = self.index.get(page);
        match entry.state() {
            State::Compressed { .. } if self.pooled_copy(page).is_some() => {
                self.replace_entry(page, entry.with_note(true));
            }
            _ => self.free_note(page),
        }
    }

    /// Has a page that comes back from the pool, where it was decoded, be in the store alone, if it is there as
    /// well and that is to be kept; false where not, and it is in the pool.
    pub(super) fn keep_pooled_copy(&mut self, page: PageNumber) -> bool {
        let has_note = self.index.get(page).has_note();
        let place = if has_note { self.pooled_copy(page) } else { None };
        place.is_some_and(|place| self.may_keep(place)) && self.leave_by_copy(page)
    }

    /// Has a page of the pool be in the store alone, if it is there as well; false where not.
    pub(super) fn leave_by_copy(&mut self, page: PageNumber) -> bool {
        let pooled = self.index.get(page);
        if !pooled.has_note() || self.pooled_copy(page).is_none() {
            return false;
        }
        self.replace_entry(page, self.index.note(page));
        self.forget_note(page);
        self.leave_pool(pooled);
        true
    }

    /// Gives the copy of a page up that is in the pool, or on its way there.
    fn give_up_pooled(&mut self, page: PageNumber) {
        let entry = self.index.get(page);
        if entry.has_note() {
            self.replace_entry(page, entry.with_note(false));
        }
        self.free_note(page);
    }

    /// Gives the copies of pages in the pool up whose places are `among` those.
    pub(super) fn give_up_pooled_where(&mut self, among: impl Fn(&mut Self, Place) -> bool) {
        let mut at = 0;
        while self.copied > 0
            && let Some(page) = self.index.next_note(at)
        {
            at = page + 1;
            if self.pooled_copy(page).is_some_and(|place| among(self, place)) {
                self.give_up_pooled(page);
            }
        }
    }

    /// Drops the note of a page that was in the pool, or on its way there, with the record that it names, if it
    /// names one.
    pub(super) fn free_note(&mut self, page: PageNumber) {
        let copy = self.pooled_copy(page);
        self.forget_note(page);
        copy.into_iter().for_each(|place| self.free_record(place));
    }

    /// Has the note that page `from` of the pool had be that of `to`, which it is now; without room for that
    /// it is dropped.
    pub(super) fn rename_note(&mut self, from: PageNumber, to: PageNumber) {
        let has_note = self.index.set_note(to, self.index.note(from));
        self.replace_entry(to, self.index.get(to).with_note(has_note));
        if has_note {
            self.copied += usize::from(self.pooled_copy(to).is_some());
            self.forget_note(from);
        } else {
            self.free_note(from);
        }
    }

    pub(super) fn forget_note(&mut self, page: PageNumber) {
        self.copied -= usize::from(self.pooled_copy(page).is_some());
        let cleared = self.index.set_note(page, Entry::ABSENT);
        debug_assert!(cleared, "clearing needs no room");
    }

    /// Has a page that was clean be none, and protected still.
    fn set_protected(&mut self, page: PageNumber, clean: Entry) {
        let turn = clean.arrival(self.copies_turn).unwrap_or(self.copies_turn);
        let entry = Entry::new(State::Resident { turn, frame: 0 }).with_protection(true);
        self.replace_entry(page, entry.with_history(clean.history()));
    }

    /// Has a page be written that was clean, or is protected as it was: it is neither any more. Gives
    /// whether it was clean.
    pub fn written(&mut self, page: PageNumber) -> bool {
        let was_clean = self.give_up(page);
        let entry = self.index.get(page);
        if entry.is_protected() {
            self.replace_entry(page, entry.with_protection(false));
        }
        was_clean
    }

    /// Gives a clean page's copy up; the page stays protected. False where it has none.
    pub(super) fn give_up(&mut self, page: PageNumber) -> bool {
        let clean = self.index.get(page);
        let State::Clean { place, .. } = clean.state() else { return false };
        self.set_protected(page, clean);
        self.copies -= 1;
        self.free_record(place);
        true
    }

    /// Gives all copies up, as the store has no room; false where there are none.
    pub fn give_up_copies(&mut self) -> bool {
        if self.copies + self.copied == 0 {
            return false;
        }
        self.give_up_pooled_where(|_, _| true);
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

    /// Pages of the pool that are in the store as well.
    pub fn copied_pages(&self) -> usize {
        self.copied
    }

    /// Where such a page is in the store.
    pub fn pooled_copy(&self, page: PageNumber) -> Option<Place> {
        match self.index.note(page).state() {
            State::Spilled { place, .. } => Some(place),
            _ => None,
        }
    }
}
