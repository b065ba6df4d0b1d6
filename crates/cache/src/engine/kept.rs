//! The blocks of a device: nothing is resident, all of it is in the cache.

use zpager_codec::{CodecId, PAGE_BYTES};
use zpager_policy::Size;
use zpager_pool::SpaceSource;
use zpager_store::Blocks;

use super::{Departed, Engine};
use crate::cache::{Content, Lost, Placed, Reads, Seen};
use crate::coder::Coder;
use crate::entry::{History, PageNumber, State};

/// Of a page in the pool that was wanted since it came there.
const WANTED: History = History { left: 0, heat: 1 };

impl<M: SpaceSource + Copy, B: Blocks, C: Coder> Engine<M, B, C> {
    /// Has page `number` be `content`, and adds what became of it to `departed`. With
    /// [`Placed::NoRoom`] it is what it was; see [`crate::Cache::replace`].
    pub fn replace(
        &mut self,
        number: PageNumber,
        content: Content<'_>,
        departed: &mut Departed,
    ) -> Placed {
        let placed = self.cache.replace(number, content);
        if self.count(placed, departed) {
            self.sampler.leaves(number);
            self.settle_lists();
        }
        placed
    }

    /// What page `number` is; it stays where it is. See [`crate::Cache::look`].
    ///
    /// # Errors
    /// As there.
    pub fn look(
        &mut self,
        number: PageNumber,
        bytes: &mut [u8; PAGE_BYTES],
        reads: &mut Reads,
    ) -> Result<Seen, Lost> {
        let list = self.cache.list(number);
        let seen = self.cache.look(number, bytes, reads)?;
        if self.promotes() {
            self.wanted(number);
        }
        if let Some(list) = list {
            self.read_list(list);
            self.settle_lists();
        }
        Ok(seen)
    }

    /// Whether pages that were looked at may come back from the store, by
    /// [`Promotion`](zpager_policy::Promotion): where the design goes by what it measures.
    fn promotes(&self) -> bool {
        self.cache.has_store() && matches!(self.size, Size::Split(_))
    }

    /// Notes that a page was wanted.
    fn wanted(&mut self, number: PageNumber) {
        let (distance, entry) = (self.sampler.distance(number), self.cache.index.get(number));
        let is_soon = match entry.state() {
            State::Spilled { .. } => {
                distance.map(|distance| distance < self.cache.pooled_pages() as u64)
            }
            State::Compressed { .. } if entry.history().heat == WANTED.heat => {
                distance.map(|_| true)
            }
            State::Compressed { .. } => {
                self.promoted(number);
                None
            }
            _ => return,
        };
        if let Some(is_soon) = is_soon {
            self.promotion.wanted(is_soon);
        }
        self.sampler.leaves(number);
    }

    /// Whether page `number`, which was looked at, is in the store and would better be in the pool
    /// again. A page that does not shrink takes as much there as with who wanted it.
    pub fn should_promote(&self, number: PageNumber) -> bool {
        self.promotes() && self.promotion.pays() && {
            let state = self.cache.index.get(number).state();
            matches!(state, State::Spilled { codec, .. } if codec != CodecId::Copy)
        }
    }

    /// Notes that a page in the pool was wanted, now or before it came back there.
    pub fn promoted(&mut self, number: PageNumber) {
        self.cache.replace_entry(number, self.cache.index.get(number).with_history(WANTED));
    }

    /// Has pages be what they were before they were written, and everything that they took be free;
    /// gives how many were known.
    pub fn forget(&mut self, pages: core::ops::Range<PageNumber>) -> u64 {
        let mut forgotten = 0;
        let mut from = pages.start;
        while let Some(page) = self.cache.index.next_known(from, pages.end) {
            self.cache.forget(page);
            forgotten += 1;
            from = page + 1;
        }
        if forgotten > 0 {
            self.cache.index.release_unused(pages.start, pages.end);
            self.settle_lists();
        }
        forgotten
    }

    /// Forgets the page that has been in the pool for longest, of which there is another copy; gives
    /// its number, or `None` when none waits there.
    ///
    /// A design by which some pages leave before their turn has an order of its own for these
    /// ([`Leaving`](zpager_policy::Leaving)); they are not found.
    pub fn release_oldest(&mut self) -> Option<PageNumber> {
        let page = self.cache.release_oldest()?;
        self.cache.index.release_unused(page, page + 1);
        self.settle_lists();
        Some(page)
    }
}
