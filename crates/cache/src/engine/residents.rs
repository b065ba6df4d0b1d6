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
}

impl<M: SpaceSource, L: Leavers> Residents for View<'_, M, L> {
    #[inline]
    fn next(&self, from: u64) -> Found {
        let mut from = from;
        while let Some(range) = self.leavers.range(from) {
            from = from.max(range.start);
            while let Some((page, mark, frame, heat)) = self.index.next_resident(from, range.end) {
                match self.leavers.may_leave(page, frame) {
                    Ok(()) => return Found::Page(page, Age { mark, heat }),
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
        self.residents.take(&View { index: &self.cache.index, leavers }, victims)
    }

    /// Notes that a page which was absent or swapped in is resident, as hot as `heat` says. False
    /// when it was noted before, or the index has no room; it stays where it is for good then.
    #[must_use]
    pub fn arrive(&mut self, page: PageNumber, heat: u8) -> bool {
        if self.cache.index.get(page).is_resident() {
            return false;
        }
        let entry = Entry::new(State::Resident { turn: self.residents.mark(), frame: 0 });
        self.cache.index.set(page, entry.with_history(History { left: 0, heat }))
    }

    /// A resident page in frame `frame` that was chosen cannot leave now: it is not chosen again
    /// for a while.
    pub fn rejuvenate(&mut self, page: PageNumber, frame: u32) {
        self.enter(page, Entry::new(State::Resident { turn: self.residents.mark(), frame }));
    }

    /// Whether a page is resident and came in not long ago.
    pub(super) fn came_lately(&self, page: PageNumber) -> bool {
        match self.cache.index.get(page).state() {
            State::Resident { turn, .. } => self.residents.came_lately(turn),
            _ => false,
        }
    }
}
