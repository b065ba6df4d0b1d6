//! The expense and the profit list of a cache (castro, 2003, 3): the order in which pages leave, as
//! [`Line`], with each page's list in its entry.
//!
//! A page that came back to its old place stands twice in the order. It is counted once: where it
//! has the list already that it would get, it is passed over.

use zpager_policy::{Line, List};
use zpager_pool::{Pool, SpaceSource};
use zpager_store::Blocks;

use super::{Cache, in_pool};
use crate::coder::Coder;
use crate::entry::{PageNumber, State};
use crate::index::Index;
use crate::order::Order;

/// The compressed pages in their order.
struct InOrder<'a, M: SpaceSource> {
    order: &'a Order<M::Space>,
    index: &'a mut Index<M>,
}

impl<M: SpaceSource> InOrder<'_, M> {
    fn is_in(&self, position: usize, list: List) -> bool {
        let found = in_pool(self.index, self.order.at(position), self.order.pages);
        found.is_some_and(|(entry, ..)| entry.list() == list)
    }
}

impl<M: SpaceSource> Line for InOrder<'_, M> {
    fn before(&self, position: u64) -> Option<u64> {
        let positions = self.order.positions();
        let end = positions.end.min(position as usize);
        let found = (positions.start..end).rev().find(|at| self.is_in(*at, List::Profit));
        found.map(|at| at as u64)
    }

    fn at_or_after(&self, position: u64) -> Option<u64> {
        let positions = self.order.positions();
        let start = positions.start.max(position as usize);
        let found = (start..positions.end).find(|at| self.is_in(*at, List::Expense));
        found.map(|at| at as u64)
    }

    fn set_list(&mut self, position: u64, list: List) {
        let page = self.order.at(position as usize).page();
        let entered = self.index.set(page, self.index.get(page).with_list(list));
        debug_assert!(entered, "a compressed page is in the index");
    }
}

impl<M: SpaceSource + Copy, B: Blocks, C: Coder> Cache<M, B, C> {
    /// The list of a page, if it is in the pool.
    pub(crate) fn list(&self, page: PageNumber) -> Option<List> {
        let entry = self.index.get(page);
        matches!(entry.state(), State::Compressed { .. }).then(|| entry.list())
    }

    /// Moves the border between the lists towards where it should be.
    pub(crate) fn settle_lists(&mut self) {
        let order = &mut self.compressed;
        // Behind the border there is nothing to pass over again and again.
        let start = order.positions().start.max(order.watched);
        self.lists.renumbered(start as u64);
        self.lists.settle(&mut InOrder { order, index: &mut self.index }, self.pool.held_bytes());
        order.watched = self.lists.border() as usize;
    }

    /// Makes the pool smaller by moving what lies in it together; gives by how many bytes.
    pub(crate) fn free_cells(&mut self) -> usize {
        let held_bytes = self.pool.held_bytes();
        self.compact();
        held_bytes.saturating_sub(self.pool.held_bytes())
    }

    /// What the pages in the pool are compressed to on the mean.
    pub(crate) fn mean_page_bytes(&self) -> usize {
        self.pool.payload_bytes() / (self.raw_pages + self.compressed_pages).max(1)
    }
}
