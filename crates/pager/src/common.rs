//! Giving pages that relatives have too while there are pages of one's own.
//!
//! Own pages that go round and round are what the process works with ([`zpager_policy::Common`]): some of
//! those in frames ([`crate::sharing`]) are given then. A frame is marked that was given by somebody, and the
//! relatives are asked, which give what is marked before anything else: RAM is gained by the last of them.
//!
//! Invariant: what is given in advance, before there is room for the copies, is a few batches.
//!
//! Lock order: that of [`crate::sharing`].
//!
//! Bad case: pages with many holders, each of which has its own copy in the store.

use core::sync::atomic::Ordering::Relaxed;

use zpager_wire::UNASKED;

use crate::process::Process;
use crate::swapout::{ADVANCE_TURNS_MAX, HOLDERS_FEW_MAX, Whose};

impl Process {
    /// Where own pages go round and round, gives some of those that relatives have too, and has them do the same.
    pub(crate) fn give_common(&mut self) {
        let mut gave = 0;
        for _ in 0..ADVANCE_TURNS_MAX {
            if self.common.wanted(self.resident_pages, self.shared_pages) == 0 {
                break;
            }
            let has_store = self.engine.cache.has_store();
            let most_holders = if has_store { HOLDERS_FEW_MAX } else { self.holders_few() };
            match self.swap_out(Whose::Shared(most_holders)) {
                0 => self.common.has_none(),
                pages => gave += pages,
            }
        }
        if gave > 0 {
            self.publish();
            self.ask_to_give_common();
        }
    }

    /// Gives what relatives have given already, until there is room: it is gained once the last of them has.
    pub(crate) fn give_after_relatives(&mut self, bytes: i64) {
        let times_given = self.tables.frames.times_given();
        while self.followed_times_given != times_given && self.room_bytes() < bytes {
            if self.swap_out(Whose::Given) == 0 {
                self.followed_times_given = times_given;
            }
            self.publish();
        }
    }

    /// Notes for relatives, and to see what comes back, that pages are given.
    pub(crate) fn note_given(&mut self, pages: &[u64]) {
        for &page in pages {
            if let Some(frame) = self.frame_of(page) {
                self.tables.frames.give(frame);
                self.common.gives(page);
            }
        }
    }

    /// Asks all relatives that have pages in common with others, who may be left with those that were given.
    fn ask_to_give_common(&self) {
        self.relatives()
            .filter(|slot| slot.shared_bytes.load(Relaxed) > 0)
            .filter(|slot| slot.give_back.load(Relaxed) == UNASKED)
            .for_each(|slot| self.ask(slot));
    }
}
