//! Clean copies: which are kept, and what becomes of them; and pages of which relatives have put a copy into the
//! store.

use zpager_codec::CodecId;
use zpager_pool::SpaceSource;
use zpager_store::{Blocks, CommonPage};

use super::{Departed, Engine};
use crate::coder::Coder;
use crate::entry::{PageNumber, State};

impl<M: SpaceSource + Copy, B: Blocks, C: Coder> Engine<M, B, C> {
    /// Whether a page that came back by [`Self::swap_in`] and has not arrived is still in the store:
    /// it is to be write-protected, or else forgotten, before it arrives.
    pub fn keeps_copy(&self, page: PageNumber) -> bool {
        matches!(self.cache.index.get(page).state(), State::Spilled { .. })
    }

    /// Has a page that leaves be in the store alone, if it is there as it is and would not better be in the
    /// pool as well, and adds it to `departed`; false where it is not.
    pub fn drop_clean(&mut self, page: PageNumber, departed: &mut Departed) -> bool {
        let dropped = !self.goes_by_pool(page) && self.cache.drop_clean(page);
        if dropped {
            departed.pages += 1;
            departed.clean += 1;
            self.copies.dropped();
            self.sampler.leaves(page);
        }
        dropped
    }

    /// Has a page that leaves, and that relatives have by this name, be in the store alone, if one of them has put it
    /// there, and adds it to `departed`; false where none has.
    pub fn leave_for_common(
        &mut self,
        page: PageNumber,
        name: CommonPage,
        departed: &mut Departed,
    ) -> bool {
        let has_left = self.cache.leave_for_common(page, name);
        if has_left {
            departed.pages += 1;
            departed.clean += 1;
            self.sampler.leaves(page);
        }
        has_left
    }

    /// Has a page leave for the store at once, as in [`Cache::spill_common`](crate::Cache::spill_common), and adds it to
    /// `departed`; false where it has not left.
    pub fn spill_common(
        &mut self,
        page: PageNumber,
        contents: &C::Page,
        name: CommonPage,
        departed: &mut Departed,
    ) -> bool {
        let placed = self.cache.spill_common(page, contents, name);
        let has_left = placed.is_some_and(|placed| self.count(placed, departed));
        if has_left {
            self.sampler.leaves(page);
        }
        has_left
    }

    /// The pool has no page for long that does not shrink.
    fn goes_by_pool(&mut self, page: PageNumber) -> bool {
        let state = self.cache.index.get(page).state();
        let shrinks = matches!(state, State::Clean { codec, .. } if codec != CodecId::Copy);
        shrinks && self.copies.goes_by_pool()
    }

    /// Notes that a protected page is written from now on, by a program that waits for that as long
    /// as `ticks` says; 0 where nobody waits.
    pub fn written(&mut self, page: PageNumber, ticks: u64) {
        if self.cache.written(page) && ticks > 0 {
            self.copies.written(ticks);
        }
    }

    /// Notes that a batch of pages was swapped out in `ticks`, with what went to the store.
    pub fn left(&mut self, departed: &Departed, ticks: u64) {
        self.copies.departed(departed.pages - departed.clean, ticks);
    }
}
