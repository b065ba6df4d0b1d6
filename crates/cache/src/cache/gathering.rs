//! Which pages of the pool one write takes, and in what form.
//!
//! Source: castro (2003), 2.3.2 (the order in which they came); cervera (1999), 3.4 (those in full
//! buffers); hp (2001), 3, and zswap (2012) for pages that leave uncompressed.

use zpager_codec::{CodecId, Page};
use zpager_policy::StoreLayout;
use zpager_pool::{AnyPool, Buffers, Handle, Pool, SpaceSource};
use zpager_store::{Batch, Blocks, CLUSTER_BYTES, Place};

use super::{Cache, Leaving, in_pool};
use crate::coder::Coder;
use crate::entry::{Entry, PageNumber, State};
use crate::index::Index;
use crate::order::Order;

/// The pages of one write.
pub(super) struct Gathered<'a> {
    pub(super) batch: Batch<'static>,
    pub(super) leaving: &'a mut [Leaving],
    pub(super) count: usize,
    /// Where they start in the store.
    pub(super) start_bytes: u64,
    pub(super) layout: StoreLayout,
    /// A page that leaves uncompressed, and a compressed one that lies in pieces.
    pub(super) plain: &'a mut Page,
    pub(super) pieces: &'a mut Page,
    pub(super) scratch: &'a mut [u8],
}

impl Gathered<'_> {
    /// Takes the oldest pages of an order until the write is full or the order empty. Their
    /// entries say at once that they are spilled, so that a second entry in the order is stale.
    pub(super) fn take_oldest<C: Coder, M: SpaceSource>(
        &mut self,
        order: &mut Order<M::Space>,
        index: &mut Index<M>,
        pool: &AnyPool<M::Space>,
    ) {
        while let Some(oldest) = order.peek() {
            if let Some(found) = in_pool(index, oldest, order.pages)
                && !self.take::<C, M>(oldest.page(), found, index, pool)
            {
                return;
            }
            order.pop();
        }
    }

    /// Takes the pages of buffers that are being cleaned, until the write is full or there are no
    /// more of them; chooses buffers first if none is being cleaned.
    pub(super) fn take_cleaned<C: Coder, M: SpaceSource>(
        &mut self,
        order: &mut Order<M::Space>,
        index: &mut Index<M>,
        pool: &mut Buffers<M::Space>,
    ) {
        if !pool.is_cleaning() {
            pool.begin_cleaning();
            order.watched = 0;
        }
        let positions = order.positions();
        for position in positions.start.max(order.watched)..positions.end {
            let ordered = order.at(position);
            if let Some(found) = in_pool(index, ordered, order.pages)
                && pool.is_being_cleaned(found.3)
                && !self.take::<C, M>(ordered.page(), found, index, pool)
            {
                order.watched = position;
                return;
            }
        }
        order.watched = positions.end;
    }

    /// Takes one page; false when the write is full.
    fn take<C: Coder, M: SpaceSource>(
        &mut self,
        page: PageNumber,
        (pooled, codec, len, handle): (Entry, CodecId, usize, Handle),
        index: &mut Index<M>,
        pool: &impl Pool,
    ) -> bool {
        if self.count == self.leaving.len() {
            return false;
        }
        let data = pool.read(handle, len, &mut self.pieces.0);
        // What cannot be expanded goes as it is, to be told to the program that wants it.
        let is_plain = self.layout == StoreLayout::Plain
            && codec != CodecId::Copy
            && C::expand(codec, data, self.plain, self.scratch).is_ok();
        let (codec, data) =
            if is_plain { (CodecId::Copy, &self.plain.0[..]) } else { (codec, data) };
        let Some(place) = push(&mut self.batch, self.layout, data) else { return false };
        self.leaving[self.count] = Leaving { page, pooled };
        self.count += 1;
        self.start_bytes = u64::from(place.cluster()) * CLUSTER_BYTES as u64;
        let entered = index.set(page, Entry::new(State::Spilled { codec, place }));
        debug_assert!(entered, "a compressed page is in the index");
        true
    }
}

/// Adds a record where it lies as the layout says. `None`: there is no room for it.
fn push(batch: &mut Batch<'_>, layout: StoreLayout, data: &[u8]) -> Option<Place> {
    match layout {
        StoreLayout::Packed | StoreLayout::Plain => {}
        StoreLayout::Blocks => batch.begin_block_for(data.len()),
        StoreLayout::Padded => batch.begin_block(),
    }
    batch.push(data)
}

impl<M: SpaceSource + Copy, B: Blocks, C: Coder> Cache<M, B, C> {
    /// Whether more of the pool's buffers are to be written at once.
    pub(crate) fn is_cleaning(&self) -> bool {
        self.pool.buffers().is_some_and(Buffers::is_cleaning)
    }

    /// Whether so many percent of the pool's buffers are full (cervera, 3.4).
    pub(crate) fn should_clean_buffers(&self, threshold_percent: usize) -> bool {
        self.pool.buffers().is_some_and(|buffers| buffers.should_clean(threshold_percent))
    }

    /// After a write that failed: buffers are used again.
    pub(super) fn end_cleaning(&mut self) {
        if let Some(buffers) = self.pool.buffers_mut() {
            buffers.end_cleaning();
        }
    }

    /// Whether as many pages are in the store as are to look as if they fitted (cervera, 3.2).
    pub(super) fn is_virtual_store_full(&self) -> bool {
        let Some(store) = &self.store else { return false };
        self.held.all_records() >= self.rules.records_max(store.clusters.total_clusters())
    }

    /// What the pool may hold from now on.
    pub(crate) fn set_pool_limit(&mut self, limit_bytes: usize) {
        self.pool.set_limit_bytes(limit_bytes);
    }
}
