//! Giving pages that relatives have too while there are pages of one's own.
//!
//! Own pages that go round and round are what the process works with ([`zpager_policy::Common`]): some of
//! those in frames ([`crate::sharing`]) are given then. A frame is marked that was given by somebody, and the
//! relatives are asked, which give what is marked before anything else: RAM is gained by the last of them.
//!
//! In the store there is one copy for all who give a page: a frame has a name for it, by which they find what one of
//! them has put there ([`zpager_store::CommonPages`]). Where as many compressed copies as there are holders would take
//! as much RAM as the page, it goes there at once, and relatives are asked once it is there.
//!
//! Invariants: what is given in advance, before there is room for the copies, is a few batches; nobody leaves a page
//! to a copy of which the content is another one.
//!
//! Lock order: that of [`crate::sharing`].
//!
//! Bad case: without a store, pages with many holders, of which nothing is gained; pages that relatives want that do not
//! give them by themselves, as who gives sees only what it wants itself.

use core::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};

use zpager_cache::Departed;
use zpager_codec::Page;
use zpager_store::{CommonPage, CommonPages};
use zpager_wire::{Frame, UNASKED};

use crate::process::Process;
use crate::swapout::{ADVANCE_TURNS_MAX, LIFT_PAGES, Whose};

/// As much as is given at a time.
const GIVEN_MAX: usize = ADVANCE_TURNS_MAX as usize * LIFT_PAGES;

/// Frames of pages that were given, of which relatives are still to be told.
#[derive(Debug)]
pub(crate) struct GivenFrames {
    raw: [u32; GIVEN_MAX],
    len: usize,
}

impl GivenFrames {
    pub(crate) const NONE: GivenFrames = GivenFrames { raw: [0; GIVEN_MAX], len: 0 };
}

/// A page that others have too.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Common {
    /// By which they know it.
    pub(crate) name: CommonPage,
    /// As many compressed copies as they are take as much RAM as it does.
    has_many: bool,
}

impl Process {
    /// Where own pages go round and round, gives some of those that relatives have too, and has them do the same.
    pub(crate) fn give_common(&mut self) {
        let mut gave = 0;
        for _ in 0..ADVANCE_TURNS_MAX {
            if self.common.wanted(self.resident_pages, self.shared_pages) == 0 {
                break;
            }
            let has_store = self.engine.cache.has_store();
            let most_holders = if has_store { u32::MAX } else { self.holders_few() };
            match self.swap_out(Whose::Shared(most_holders)) {
                0 => self.common.has_none(),
                pages => gave += pages,
            }
        }
        if gave > 0 {
            // They find only what is there.
            self.flush_store();
            self.tell_given();
            self.publish();
            self.ask_to_give_common();
        }
    }

    /// Gives what relatives have given already, until there is room: it is gained once the last of them has. Where
    /// there is a store, in which they have put it, as many batches in any case as one of them gives at a time.
    pub(crate) fn give_after_relatives(&mut self, bytes: i64) {
        let times_given = self.tables.frames.times_given();
        let mut turns = if self.engine.cache.has_store() { ADVANCE_TURNS_MAX } else { 0 };
        while self.followed_times_given != times_given && (turns > 0 || self.room_bytes() < bytes) {
            if self.swap_out(Whose::Given) == 0 {
                self.followed_times_given = times_given;
            }
            turns = turns.saturating_sub(1);
            self.publish();
        }
    }

    /// Notes, to see what comes back and for [`Self::tell_given`], that pages are given.
    pub(crate) fn note_given(&mut self, pages: &[u64]) {
        for &page in pages {
            if let Some(frame) = self.frame_of(page) {
                self.common.gives(page);
                if self.given_frames.len == GIVEN_MAX {
                    self.tell_given();
                }
                self.tables.frames.begin_giving(frame);
                self.given_frames.raw[self.given_frames.len] = frame.raw();
                self.given_frames.len += 1;
            }
        }
    }

    /// Tells relatives what was given. Those that give the same before it is in the store write it once more.
    pub(crate) fn tell_given(&mut self) {
        let given = &self.given_frames.raw[..self.given_frames.len];
        let frames = given.iter().filter_map(|raw| Frame::from_raw(*raw));
        frames.for_each(|frame| self.tables.frames.give(frame));
        self.given_frames.len = 0;
    }

    /// What a page in a frame is for those who have it, when it leaves with these contents; it is given a name where
    /// others have it still. `None` where it is known by none, or by one that stands for another content.
    pub(crate) fn common_page(&self, page: u64, contents: &Page) -> Option<Common> {
        if self.shared_pages == 0 || !self.engine.cache.has_store() {
            return None;
        }
        let frame = self.frame_of(page)?;
        let word = self.tables.frames.name(frame)?;
        let holders = self.tables.frames.holders(frame);
        let name = match word.load(Acquire) {
            0 if holders > 1 => self.give_name(word, contents)?,
            number => self.known_name(number, contents)?,
        };
        Some(Common { name, has_many: holders > self.holders_few() })
    }

    /// Has a page that others have too, and that is in no frame any more, be in the store where one of them has put it;
    /// or leave for it at once, where they are many. False where it is to go to the pool.
    pub(crate) fn leave_as_common(
        &mut self,
        page: u64,
        contents: &Page,
        common: Common,
        departed: &mut Departed,
    ) -> bool {
        let Common { name, has_many } = common;
        self.engine.leave_for_common(page, name, departed)
            || has_many && self.engine.spill_common(page, contents, name, departed)
    }

    pub(crate) fn common_pages(&self) -> CommonPages<'static> {
        CommonPages::new(self.tables.common)
    }

    fn give_name(&self, word: &AtomicU64, contents: &Page) -> Option<CommonPage> {
        let number = self.control.common_pages.fetch_add(1, Relaxed) + 1;
        let given = CommonPage::from_raw(number)?;
        if !self.common_pages().begin(given, &contents.0) {
            return None;
        }
        match word.compare_exchange(0, number, AcqRel, Acquire) {
            Ok(_) => Some(given),
            Err(number) => self.known_name(number, contents),
        }
    }

    /// The page of this number, if it has these contents.
    fn known_name(&self, number: u64, contents: &Page) -> Option<CommonPage> {
        let is_content = |name: &CommonPage| self.common_pages().is_content(*name, &contents.0);
        CommonPage::from_raw(number).filter(is_content)
    }

    /// Asks all relatives that have pages in common with others, who may be left with those that were given.
    fn ask_to_give_common(&self) {
        self.relatives()
            .filter(|slot| slot.shared_bytes.load(Relaxed) > 0)
            .filter(|slot| slot.give_back.load(Relaxed) == UNASKED)
            .for_each(|slot| self.ask(slot));
    }
}
