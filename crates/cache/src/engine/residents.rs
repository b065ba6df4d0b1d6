//! Which resident pages leave.

use zpager_policy::{Age, Found, Residents};
use zpager_pool::SpaceSource;
use zpager_store::Blocks;

use core::ops::Range;

use super::Engine;
use crate::coder::Coder;
use crate::entry::{Entry, History, PageNumber, State};
use crate::index::Index;

/// What the driver knows of resident pages: where they are, and which of them may leave.
pub trait Leavers {
    /// The first range of pages, some of which may leave, that ends after `from`.
    fn range(&self, from: PageNumber) -> Option<Range<PageNumber>>;

    /// Whether a resident page of such a range, in frame `frame`, may leave.
    ///
    /// # Errors
    /// It may not: the first page that is worth asking for next.
    fn may_leave(&self, page: PageNumber, frame: u32) -> Result<(), PageNumber>;

    /// How many pages are resident.
    fn count(&self) -> u64;
}

/// What the rule sees.
struct View<'a, M: SpaceSource, L> {
    index: &'a Index<M>,
    leavers: &'a L,
    /// The turn of the clock.
    now: u16,
}

impl<M: SpaceSource, L: Leavers> Residents for View<'_, M, L> {
    #[inline]
    fn next(&self, from: u64) -> Found {
        let mut from = from;
        while let Some(range) = self.leavers.range(from) {
            from = from.max(range.start);
            while let Some((page, entry)) = self.index.next_resident(from, range.end) {
                let Some(mark) = entry.arrival(self.now) else { break };
                match self.leavers.may_leave(page, entry.frame()) {
                    Ok(()) => return Found::Page(page, Age { mark, heat: entry.history().heat }),
                    Err(next) => from = next,
                }
            }
            from = from.max(range.end);
        }
        Found::End
    }

    fn count(&self) -> u64 {
        self.leavers.count()
    }
}

impl<M: SpaceSource + Copy, B: Blocks, C: Coder> Engine<M, B, C> {
    /// Chooses resident pages to leave, in ascending runs, and gives how many were written to
    /// `victims`.
    pub fn choose(&mut self, leavers: &impl Leavers, victims: &mut [PageNumber]) -> usize {
        let view = View { index: &self.cache.index, leavers, now: self.residents.mark() };
        self.residents.take(&view, victims)
    }

    /// Notes that a page which was absent or swapped in is resident, as hot as `heat` says. One that
    /// [`Self::keeps_copy`] is clean: the caller has write-protected it. False when it was noted
    /// before, or the index has no room; it stays where it is for good then.
    #[must_use]
    pub fn arrive(&mut self, page: PageNumber, heat: u8) -> bool {
        let before = self.cache.index.get(page);
        if before.is_resident() {
            return false;
        }
        if let State::Spilled { .. } = before.state() {
            self.cache.keep_copy(page, self.residents.mark(), heat);
            return true;
        }
        let entry = Entry::new(State::Resident { turn: self.residents.mark(), frame: 0 });
        self.cache.index.set(page, entry.with_history(History { left: 0, heat }))
    }

    /// [`Self::arrive`] of a page that the kernel had mapped before anything was known of it, perhaps
    /// as a part of a huge page.
    #[must_use]
    pub fn adopt(&mut self, page: PageNumber) -> bool {
        if !self.cache.index.get(page).is_absent() {
            return self.arrive(page, 0);
        }
        let entry = Entry::new(State::Resident { turn: self.residents.mark(), frame: 0 });
        self.cache.index.set(page, entry.with_doubt(true))
    }

    /// A resident page in frame `frame` that was chosen cannot leave now: it is not chosen again
    /// for a while.
    pub fn rejuvenate(&mut self, page: PageNumber, frame: u32) {
        let (before, turn) = (self.cache.index.get(page), self.residents.mark());
        self.cache.replace_entry(
            page,
            match before.state() {
                State::Clean { codec, place, .. } => {
                    Entry::new(State::Clean { turn: turn as u8, codec, place })
                }
                _ => {
                    let entry = Entry::new(State::Resident { turn, frame });
                    let entry = entry.with_protection(before.is_protected());
                    entry.with_doubt(before.may_be_huge())
                }
            },
        );
    }

    /// Whether a page is resident and came in not long ago.
    pub(super) fn came_lately(&self, page: PageNumber) -> bool {
        let turn = self.cache.index.get(page).arrival(self.residents.mark());
        turn.is_some_and(|turn| self.residents.came_lately(turn))
    }
}
