//! The blocks of a device: nothing is resident, all of it is in the cache.

use zpager_codec::PAGE_BYTES;
use zpager_pool::SpaceSource;
use zpager_store::Blocks;

use super::{Departed, Engine};
use crate::cache::{Content, Lost, Placed, Reads, Seen};
use crate::coder::Coder;
use crate::entry::PageNumber;

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
        if let Some(list) = list {
            self.read_list(list);
            self.settle_lists();
        }
        Ok(seen)
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
