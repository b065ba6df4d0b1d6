//! Which pages of the pool one write takes, and in what form.
//!
//! Source: castro (2003), 2.3.2 (the order in which they came); cervera (1999), 3.4 (those in full
//! buffers); hp (2001), 3, and zswap (2012) for pages that leave uncompressed.

use zpager_codec::{CodecId, PAGE_BYTES};
use zpager_policy::StoreLayout;
use zpager_pool::{Buffers, Handle, Pool, SpaceSource};
use zpager_store::{Blocks, CLUSTER_BYTES};

use super::{Cache, SpillError, in_pool, outputs};
use crate::coder::Coder;
use crate::entry::{Entry, PageNumber};

/// As much leaves at a time without a write, for which nothing has to be gathered.
const COPIED_BYTES: usize = 4 * PAGE_BYTES;

/// What one write takes, or what leaves without one.
#[derive(Debug, Clone, Copy, Default)]
struct Gathered {
    pages: usize,
    /// Bytes of those of them that are in the store already.
    copied_bytes: usize,
}

impl<M: SpaceSource + Copy, B: Blocks, C: Coder> Cache<M, B, C> {
    /// Moves the pages whose turn it is to the open batch until that is full or there are no more of
    /// them; gives how many.
    pub(super) fn gather_leaving(&mut self) -> Result<usize, SpillError> {
        if self.pool.buffers().is_some() {
            return self.gather_cleaned();
        }
        let raw_first = self.raw_pages * PAGE_BYTES >= CLUSTER_BYTES
            || self.compressed_pages * 2 < self.raw_pages;
        let mut gathered = Gathered::default();
        for raw in [raw_first, !raw_first] {
            let is_short = self.writer.open_bytes() < self.rules.write_bytes_min;
            if gathered.pages == 0 || gathered.copied_bytes == 0 && is_short {
                self.gather_oldest(raw, &mut gathered)?;
            }
        }
        Ok(gathered.pages)
    }

    /// Moves the oldest pages of an order. Those that are in the store already leave without that, not many at a
    /// time; ahead of need they stay, and so does what would leave after them.
    fn gather_oldest(&mut self, raw: bool, gathered: &mut Gathered) -> Result<(), SpillError> {
        while gathered.copied_bytes < COPIED_BYTES {
            let order = if raw { &mut self.raw } else { &mut self.compressed };
            let Some(oldest) = order.peek() else { break };
            if let Some(found) = in_pool(&self.index, oldest, order.pages) {
                if self.shelves && self.needs_no_write(oldest.page()) {
                    break;
                } else if self.leave_by_copy(oldest.page()) || self.leave_by_relative(oldest.page())
                {
                    gathered.copied_bytes += found.2;
                    self.writer.count_copied();
                } else if !self.gather(oldest.page(), found)? {
                    break;
                }
                gathered.pages += 1;
            }
            let order = if raw { &mut self.raw } else { &mut self.compressed };
            order.pop();
        }
        Ok(())
    }

    /// Moves the pages of buffers that are being cleaned; chooses buffers first if none is.
    fn gather_cleaned(&mut self) -> Result<usize, SpillError> {
        if let Some(buffers) = self.pool.buffers_mut()
            && !buffers.is_cleaning()
        {
            buffers.begin_cleaning();
            self.compressed.watched = 0;
        }
        let positions = self.compressed.positions();
        let mut pages = 0;
        for position in positions.start.max(self.compressed.watched)..positions.end {
            let ordered = self.compressed.at(position);
            let found = in_pool(&self.index, ordered, self.compressed.pages);
            let is_cleaned = |handle| {
                self.pool.buffers().is_some_and(|buffers| buffers.is_being_cleaned(handle))
            };
            let Some(found) = found.filter(|found| is_cleaned(found.3)) else { continue };
            if !self.gather(ordered.page(), found)? {
                self.compressed.watched = position;
                return Ok(pages);
            }
            pages += 1;
        }
        self.compressed.watched = positions.end;
        Ok(pages)
    }

    /// Moves one page; false when the batch has no room for it.
    fn gather(
        &mut self,
        page: PageNumber,
        (pooled, codec, len, handle): (Entry, CodecId, usize, Handle),
    ) -> Result<bool, SpillError> {
        let is_plain = self.rules.layout == StoreLayout::Plain && codec != CodecId::Copy;
        let bytes = if is_plain { PAGE_BYTES } else { len };
        let attempt = self.recoder().and_then(|recoder| recoder.begin(codec, bytes));
        let is_expanded = is_plain || attempt.is_some();
        let scratch = if is_expanded { self.scratch_of(codec) } else { &mut [] };
        // SAFETY: the buffers are this cache's alone.
        let [plain, pieces] = unsafe { outputs(&self.output) };
        let data = self.pool.read(handle, len, &mut pieces.0);
        // What cannot be expanded goes as it is, to be told to the program that wants it.
        let is_expanded = is_expanded && C::expand(codec, data, plain, scratch).is_ok();
        let (codec, data) =
            if is_plain && is_expanded { (CodecId::Copy, &plain.0[..]) } else { (codec, data) };
        let recoder = self.recoder.as_mut().filter(|_| is_expanded);
        let dense = recoder.zip(attempt).and_then(|(recoder, attempt)| {
            let dense = recoder.recode::<C>(attempt, data.len(), plain)?;
            Some((recoder.codec, dense))
        });
        let saved_bytes = dense.map(|(_, dense)| data.len() - dense.len());
        let (codec, data) = dense.unwrap_or((codec, data));
        if !self.writer.fits(data.len()) {
            return Ok(false);
        }
        let store = self.store.as_ref().ok_or(SpillError::NoStore)?;
        let place = self.writer.push(store, data).inspect_err(|&error| self.pause.begin(error))?;
        saved_bytes.into_iter().for_each(|bytes| self.writer.count_recompressed(bytes));
        self.leave_pool(pooled);
        self.enter_spilled(page, codec, place);
        if pooled.has_note() {
            self.tell_relatives(page, codec, place);
        }
        Ok(true)
    }

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
