//! Pages that stay in the cache while they are read, and are replaced by others: a block device's.
//!
//! Source: hp (2001), 3, a block device that compresses what the kernel swaps to it. A program's page
//! leaves the cache when it comes back, as it is resident then; of a device's block the kernel may
//! ask again without having written it anew.
//!
//! Bytes are made of a page, and a page of bytes, by the caller ([`crate::Coding`]), so that this is
//! short.
//!
//! Invariant: a page that cannot be replaced is what it was. The new bytes have their place before
//! the old ones lose theirs.
//!
//! Bad case: a full cache, in which the place of the old bytes is not had for the new ones.

use zpager_codec::{CodecId, PAGE_BYTES};
use zpager_policy::StoreLayout;
use zpager_pool::{Pool, SpaceSource};
use zpager_store::{Blocks, CLUSTER_BYTES};

use super::reading::lost;
use super::{Cache, Lost, Placed, Reads, in_pool, outputs};
use crate::coder::Coder;
use crate::entry::{Entry, PageNumber, State};

/// What a page is to be.
#[derive(Debug, Clone, Copy)]
pub enum Content<'a> {
    /// All words equal this one.
    Filled(u64),
    /// What the codec made of it, or for [`CodecId::Copy`] the page as it is.
    Coded(CodecId, &'a [u8]),
}

/// What a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// It was never written, or was forgotten.
    Absent,
    /// All words equal this one.
    Filled(u64),
    /// The codec made so many bytes of it.
    Coded(CodecId, usize),
}

impl<M: SpaceSource + Copy, B: Blocks, C: Coder> Cache<M, B, C> {
    /// Has page `number` be `content`, whatever it was. With [`Placed::NoRoom`] it is what it was;
    /// for a same-filled page there may still be room in its bytes.
    pub fn replace(&mut self, number: PageNumber, content: Content<'_>) -> Placed {
        let old = self.index.get(number);
        // The index has room for it from here on.
        let on_its_way = Entry::new(State::Resident { turn: 0, frame: 0 });
        if old.is_absent() && !self.index.set(number, on_its_way) {
            return Placed::NoRoom;
        }
        let placed = match content {
            Content::Filled(word) if self.place_filled(number, word) => Placed::SameFilled,
            Content::Filled(_) => Placed::NoRoom,
            Content::Coded(codec, bytes) => self.place_coded(number, codec, bytes),
        };
        match placed {
            Placed::NoRoom if old.is_absent() => self.forget(number),
            Placed::NoRoom => {}
            _ => self.free(number, old),
        }
        placed
    }

    /// What page `number` is, its bytes at the start of `bytes` where there are some. It stays where
    /// it is, and what was read from the store is added to `reads`.
    ///
    /// # Errors
    /// [`Lost`] when it cannot be had; it is where it was, and another try may succeed.
    pub fn look(
        &mut self,
        number: PageNumber,
        bytes: &mut [u8; PAGE_BYTES],
        reads: &mut Reads,
    ) -> Result<Seen, Lost> {
        reads.pages += 1;
        match self.index.get(number).state() {
            State::Absent | State::Resident { .. } | State::Clean { .. } => Ok(Seen::Absent),
            State::SameFilled { fill } => Ok(Seen::Filled(self.fills.value(fill))),
            State::Compressed { codec, len, handle } => {
                self.has_coded = true;
                // SAFETY: the output is this cache's alone.
                let [_, pieces] = unsafe { outputs(&self.output) };
                bytes[..len].copy_from_slice(self.pool.read(handle, len, &mut pieces.0));
                Ok(Seen::Coded(codec, len))
            }
            State::Spilled { codec, place } => {
                let is_shelved = self.is_shelved(place);
                let mut outcome = Err(Lost::Corrupt);
                self.read_records(&[place], reads, |_, data| {
                    outcome = data.map_err(lost).map(|data| {
                        bytes[..data.len()].copy_from_slice(data);
                        data.len()
                    });
                })?;
                reads.count_stored(1, is_shelved);
                Ok(Seen::Coded(codec, outcome?))
            }
        }
    }

    /// Forgets the oldest compressed page in the pool; gives its number.
    pub(crate) fn release_oldest(&mut self) -> Option<PageNumber> {
        while let Some(oldest) = self.compressed.pop() {
            if in_pool(&self.index, oldest, self.compressed.pages).is_none() {
                continue;
            }
            self.forget(oldest.page());
            self.compact_if_due();
            return Some(oldest.page());
        }
        None
    }

    /// How many bytes a page takes of the pool.
    pub fn pooled_bytes(&self, number: PageNumber) -> usize {
        match self.index.get(number).state() {
            State::Compressed { len, .. } => len,
            _ => 0,
        }
    }

    /// What the records of pages take that are in the store, or on their way there.
    pub fn spilled_bytes(&self) -> u64 {
        self.held.all_bytes()
    }

    /// The most that a page takes there.
    pub fn record_bytes_max(&self) -> usize {
        self.held.bytes_max()
    }

    /// What is left of the store for this cache, which is the only one; 0 where there is none. Where records
    /// share blocks it is what no cluster was claimed for, and what pages may yet look to fit.
    pub fn store_left_bytes(&self) -> u64 {
        let clusters = self.store.as_ref().map_or(0, |store| store.clusters.total_clusters());
        let left_bytes = ((clusters * CLUSTER_BYTES) as u64).saturating_sub(self.spilled_bytes());
        if self.rules.layout != StoreLayout::Blocks {
            return left_bytes;
        }
        let free_bytes = clusters.saturating_sub(self.held.clusters()) * CLUSTER_BYTES;
        let records = self.rules.records_max(clusters).saturating_sub(self.held.all_records());
        let most_bytes = records.saturating_mul(PAGE_BYTES);
        left_bytes.min((free_bytes + self.writer.unfilled_bytes()).min(most_bytes) as u64)
    }

    /// Pages that are in the store, or on their way there, and nowhere else.
    pub(crate) fn away_pages(&self) -> usize {
        self.spilled_pages().saturating_sub(self.copies + self.copied)
    }

    /// Pages that are in the store, or on their way there.
    pub fn spilled_pages(&self) -> usize {
        self.held.all_records()
    }
}
