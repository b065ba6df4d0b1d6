//! Clusters on their way to the store: two buffers, of which one is filled while the other is written.
//!
//! Source: [`zpager_store::Behind`].
//!
//! Invariants: the buffer that is filled is not the one whose write goes on; only one write does.

use zpager_pool::Space;
use zpager_store::{
    BLOCK_BYTES, Batch, Behind, Blocks, CLUSTER_BYTES, Clusters, Errno, ReadBehind,
};

use super::{Store, bytes_mut};

/// The buffers and the write that goes on.
pub(super) struct Writer<S> {
    buffers: [S; 2],
    /// How much of each holds RAM.
    used_bytes: [usize; 2],
    /// Which is filled next; the other one's write may go on.
    next: usize,
    behind: Behind,
}

impl<S: Space> Writer<S> {
    /// Each of the buffers is [`CLUSTER_BYTES`] long.
    pub(super) fn new(buffers: [S; 2]) -> Self {
        Writer { buffers, used_bytes: [0; 2], next: 0, behind: Behind::NONE }
    }

    /// A batch in the buffer that is free. `None`: the store is full.
    ///
    /// # Safety
    /// There is no other batch.
    pub(super) unsafe fn begin(&self, clusters: Clusters<'static>) -> Option<Batch<'static>> {
        // SAFETY: the caller's promise, and no write goes on from this buffer.
        Batch::begin(clusters, unsafe { bytes_mut(&self.buffers[self.next], CLUSTER_BYTES) })
    }

    /// Writes a batch: bytes written. The write before has ended then, but this one may go on.
    pub(super) fn finish<B: Blocks>(
        &mut self,
        batch: Batch<'static>,
        store: &Store<B>,
    ) -> Result<usize, Errno> {
        self.settle(store)?;
        // SAFETY: the other buffer is filled next, until the write is settled.
        let written_bytes = unsafe { batch.finish_behind(&store.blocks, &mut self.behind) }?;
        if self.behind.cluster().is_some() {
            self.next = 1 - self.next;
        }
        Ok(written_bytes)
    }

    /// Notes that so much of the buffer that is filled next was used.
    pub(super) fn note_used(&mut self, bytes: usize) {
        self.used_bytes[self.next] = self.used_bytes[self.next].max(bytes);
    }

    /// Waits for the write that goes on; tries one again that failed.
    pub(super) fn settle<B: Blocks>(&mut self, store: &Store<B>) -> Result<(), Errno> {
        self.behind.settle(&store.blocks, store.clusters, written(&self.buffers[1 - self.next]))
    }

    /// Whether a write failed, and what it should have written is still here.
    pub(super) fn has_failed(&self) -> bool {
        self.behind.has_failed()
    }

    /// The cluster that is not in the store yet.
    pub(super) fn cluster(&self) -> Option<u32> {
        self.behind.cluster()
    }

    /// The store with what is not written yet.
    pub(super) fn reading<'a, B>(&'a self, blocks: &'a B) -> ReadBehind<'a, B> {
        self.behind.reading(blocks, written(&self.buffers[1 - self.next]))
    }

    /// Gives back the buffers of which more than `bytes_max` is used, but for one that is being written.
    pub(super) fn trim(&mut self, bytes_max: usize) {
        for (at, (buffer, used_bytes)) in self.buffers.iter().zip(&mut self.used_bytes).enumerate()
        {
            let is_written = at != self.next && self.behind.cluster().is_some();
            if *used_bytes > bytes_max && !is_written {
                buffer.release(0, buffer.bytes());
                *used_bytes = 0;
            }
        }
    }

    /// RAM of the buffers.
    pub(super) fn held_bytes(&self) -> usize {
        self.used_bytes.iter().map(|bytes| bytes.next_multiple_of(BLOCK_BYTES)).sum()
    }
}

/// What lies in a buffer that is not filled.
fn written(buffer: &impl Space) -> &[u8] {
    assert!(CLUSTER_BYTES <= buffer.bytes());
    // SAFETY: within the space, and nobody writes to this buffer while the caller's borrow lasts.
    unsafe { core::slice::from_raw_parts(buffer.base(), CLUSTER_BYTES) }
}
