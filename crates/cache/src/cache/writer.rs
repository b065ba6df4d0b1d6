//! The way of records to the store: one cluster is filled while the one before is written.
//!
//! Source: [`zpager_store::Batch`], [`zpager_store::Behind`].
//!
//! Invariants: the buffer that is filled is not the one whose write goes on; a cluster that a
//! relative has a copy of since a fork gets no more records.

use zpager_policy::StoreLayout;
use zpager_pool::Space;
use zpager_store::{
    BLOCK_BYTES, Batch, Behind, Blocks, CLUSTER_BYTES, Errno, Place, ReadBehind, Seal,
};

use super::{Outgoing, SpillError, Store, bytes_mut};

/// The buffers, the batch that is filled and the write that goes on.
pub(super) struct Writer<S> {
    buffers: [S; 2],
    layout: StoreLayout,
    seal: Seal<'static>,
    /// How much of each holds RAM.
    used_bytes: [usize; 2],
    /// Which is filled, or will be; the other one's write may go on.
    filled: usize,
    open: Option<Batch>,
    /// Whether the open batch gets no more records.
    is_sealed: bool,
    behind: Behind,
    /// What went to the store since that was asked for.
    outgoing: Outgoing,
    /// Where the store ends of which this process knows.
    end_bytes: u64,
}

impl<S: Space> Writer<S> {
    /// Each of the buffers is [`CLUSTER_BYTES`] long.
    pub(super) fn new(buffers: [S; 2], layout: StoreLayout, seal: Seal<'static>) -> Self {
        Writer {
            buffers,
            layout,
            seal,
            used_bytes: [0; 2],
            filled: 0,
            open: None,
            is_sealed: false,
            behind: Behind::NONE,
            outgoing: Outgoing::default(),
            end_bytes: 0,
        }
    }

    /// The batch that is filled, claimed if there is none.
    pub(super) fn open<B>(&mut self, store: &Store<B>) -> Option<Batch> {
        self.open = self.open.or_else(|| Batch::begin(store.clusters));
        self.open
    }

    /// Where in its cluster a record of `len` bytes begins that follows `used_bytes` of others.
    fn start(&self, used_bytes: usize, len: usize) -> usize {
        let next_block = used_bytes.next_multiple_of(BLOCK_BYTES);
        let is_split = used_bytes + self.seal.record_bytes(len) > next_block;
        match self.layout {
            StoreLayout::Padded => next_block,
            StoreLayout::Blocks if is_split => next_block,
            StoreLayout::Packed | StoreLayout::Plain | StoreLayout::Blocks => used_bytes,
        }
    }

    /// Whether the open batch has room for a record of `len` bytes.
    pub(super) fn fits(&self, len: usize) -> bool {
        let end_bytes = self.start(self.open_bytes(), len) + self.seal.record_bytes(len);
        !self.is_sealed && end_bytes <= CLUSTER_BYTES
    }

    /// Bytes of the open batch that are taken.
    pub(super) fn open_bytes(&self) -> usize {
        self.open.map_or(0, |batch| batch.used_bytes())
    }

    /// Bytes that are still to be filled of a batch that has records.
    pub(super) fn unfilled_bytes(&self) -> usize {
        if self.open_bytes() > 0 { CLUSTER_BYTES - self.open_bytes() } else { 0 }
    }

    /// Adds a record, and writes the batch before when that is full.
    ///
    /// # Errors
    /// [`SpillError::Full`], [`SpillError::Io`]; the record is not added.
    pub(super) fn push<B: Blocks>(
        &mut self,
        store: &Store<B>,
        data: &[u8],
    ) -> Result<Place, SpillError> {
        if !self.fits(data.len()) {
            self.finish(store).map_err(SpillError::Io)?;
        }
        let mut batch = self.open(store).ok_or(SpillError::Full)?;
        // SAFETY: the buffer that is filled is borrowed here and in `finish` alone.
        let buffer = unsafe { bytes_mut(&self.buffers[self.filled], CLUSTER_BYTES) };
        batch.fill_to(buffer, self.start(batch.used_bytes(), data.len()));
        let place = batch.push(store.clusters, buffer, data).ok_or(SpillError::Full)?;
        let start = (place.offset_bytes() - batch.start_bytes()) as usize;
        store.blocks.gathered(place.offset_bytes(), &buffer[start..batch.used_bytes()]);
        self.open = Some(batch);
        let used_bytes = &mut self.used_bytes[self.filled];
        *used_bytes = batch.used_bytes().max(*used_bytes);
        Ok(place)
    }

    /// Writes the open batch. The write before has ended then, but this one may go on. Gives the
    /// cluster and what is written there, if something is.
    pub(super) fn finish<B: Blocks>(
        &mut self,
        store: &Store<B>,
    ) -> Result<Option<(u32, &[u8])>, Errno> {
        self.settle(store)?;
        let Some(batch) = self.open else { return Ok(None) };
        let written_from = self.filled;
        // SAFETY: as in `push`; the other buffer is filled next, until the write is settled.
        let written = unsafe {
            let buffer = bytes_mut(&self.buffers[self.filled], CLUSTER_BYTES);
            batch.finish(&store.blocks, store.clusters, buffer, &mut self.behind)
        };
        let bytes = written.inspect_err(|_| self.is_sealed = true)?;
        (self.open, self.is_sealed) = (None, false);
        if self.behind.batch().is_some() {
            self.filled = 1 - self.filled;
        }
        if bytes > 0 {
            self.end_bytes = self.end_bytes.max(batch.start_bytes() + bytes as u64);
            self.outgoing.writes += 1;
            self.outgoing.bytes += bytes;
        }
        let written = &content(&self.buffers[written_from])[..bytes];
        Ok((bytes > 0).then_some((batch.cluster(), written)))
    }

    /// Whether a write goes on, so that the next one would wait for it.
    pub(super) fn is_writing<B: Blocks>(&self, store: &Store<B>) -> bool {
        let is_begun = self.behind.batch().is_some() && !self.behind.has_failed();
        is_begun && store.blocks.is_writing()
    }

    /// Waits for the write that goes on; tries one again that failed.
    pub(super) fn settle<B: Blocks>(&mut self, store: &Store<B>) -> Result<(), Errno> {
        self.behind.settle(&store.blocks, store.clusters, content(&self.buffers[1 - self.filled]))
    }

    /// Has everything be in the store.
    pub(super) fn flush<B: Blocks>(&mut self, store: &Store<B>) -> Result<(), Errno> {
        let flushed = self.finish(store).map(drop).and_then(|()| self.settle(store));
        flushed.inspect_err(|_| self.is_sealed = self.open.is_some())
    }

    /// Before a fork: what could not be written is the child's as well from now on.
    pub(super) fn share(&mut self) {
        if let Some(batch) = &mut self.open {
            batch.share();
        }
    }

    /// The clusters that are not in the store yet, and have a reference more than their records.
    pub(super) fn unwritten(&self) -> impl Iterator<Item = u32> {
        [self.open, self.behind.batch()].into_iter().flatten().map(|batch| batch.cluster())
    }

    /// The store with what is not written yet.
    pub(super) fn reading<'a, B>(&'a self, blocks: &'a B) -> ReadBehind<'a, B> {
        let with = |batch: Option<Batch>, at: usize| {
            batch.map(|batch| (batch.cluster(), content(&self.buffers[at])))
        };
        let unwritten = [with(self.open, self.filled), with(self.behind.batch(), 1 - self.filled)];
        ReadBehind::new(blocks, unwritten)
    }

    /// What went to the store since the last call.
    pub(super) fn take_outgoing(&mut self) -> Outgoing {
        let outgoing = Outgoing { end_bytes: self.end_bytes, ..self.outgoing };
        self.outgoing = Outgoing::default();
        outgoing
    }

    /// Notes a page that left for the store.
    pub(super) fn count_page(&mut self, place: Place) {
        self.outgoing.pages += 1;
        self.outgoing.page_bytes += place.len();
    }

    /// Notes a page that was there already.
    pub(super) fn count_copied(&mut self) {
        self.outgoing.copied_pages += 1;
    }

    /// Notes that it was compressed once more, to so many bytes less.
    pub(super) fn count_recompressed(&mut self, saved_bytes: usize) {
        self.outgoing.recompressed_pages += 1;
        self.outgoing.recompressed_saved_bytes += saved_bytes;
    }

    /// Whether something was written since that was asked for.
    pub(super) fn has_written(&self) -> bool {
        self.outgoing.writes > 0
    }

    /// A relative has written a record there.
    pub(super) fn know_end(&mut self, place: Place) {
        let end_bytes = place.offset_bytes() + self.seal.record_bytes(place.len()) as u64;
        self.end_bytes = self.end_bytes.max(end_bytes.next_multiple_of(BLOCK_BYTES as u64));
    }

    /// Where the store ends as far as this process knows.
    pub(super) fn end_bytes(&self) -> u64 {
        self.end_bytes
    }

    /// Gives back the buffers of which more than `bytes_max` was used and that hold nothing.
    pub(super) fn trim(&mut self, bytes_max: usize) {
        let holds = [self.open, self.behind.batch()].map(|batch| batch.is_some());
        for (at, buffer) in self.buffers.iter().enumerate() {
            let is_needed = holds[usize::from(at != self.filled)];
            if self.used_bytes[at] > bytes_max && !is_needed {
                buffer.release(0, buffer.bytes());
                self.used_bytes[at] = 0;
            }
        }
    }

    /// Both buffers.
    pub(super) fn buffers(&self) -> &[S; 2] {
        &self.buffers
    }

    /// RAM of the buffers.
    pub(super) fn held_bytes(&self) -> usize {
        self.used_bytes.iter().map(|bytes| bytes.next_multiple_of(BLOCK_BYTES)).sum()
    }
}

/// What lies in a buffer.
fn content(buffer: &impl Space) -> &[u8] {
    assert!(CLUSTER_BYTES <= buffer.bytes());
    // SAFETY: within the space; no record is added while the caller's borrow of the writer lasts.
    unsafe { core::slice::from_raw_parts(buffer.base(), CLUSTER_BYTES) }
}
