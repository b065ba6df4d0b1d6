//! Writing behind: the program goes on while a cluster is filled and while it is written.
//!
//! Source: cervera (1999), 3: the cleaning of the cache goes on while the program runs; the
//! write-back of Linux, in which a page under write-back still serves reads.
//!
//! Invariants: one write at a time. Until it has ended well its buffer is the cluster, and the
//! batch's reference is the write's, so that the cluster is not claimed anew and written by two at
//! once. A write that failed is made again when it is settled the next time; its records are in RAM
//! until then, and no page is lost by it.
//!
//! Bad for: a disk that is slower than the program all the time: each write waits for the one before.

use crate::{Batch, Blocks, CLUSTER_BYTES, Clusters, Errno};

/// The write that goes on, if one does.
#[derive(Debug, Clone, Copy, Default)]
pub struct Behind(Option<Write>);

/// A write that has not ended well so far.
#[derive(Debug, Clone, Copy)]
struct Write {
    batch: Batch,
    bytes: usize,
    has_failed: bool,
}

impl Behind {
    /// Nothing goes on.
    pub const NONE: Behind = Behind(None);

    pub(crate) fn begin(&mut self, batch: Batch, bytes: usize) {
        debug_assert!(self.0.is_none(), "one write at a time");
        self.0 = Some(Write { batch, bytes, has_failed: false });
    }

    /// The batch that is not in the store yet.
    pub fn batch(&self) -> Option<Batch> {
        self.0.map(|write| write.batch)
    }

    /// Whether the write has failed, and is made again by [`Behind::settle`].
    pub fn has_failed(&self) -> bool {
        self.0.is_some_and(|write| write.has_failed)
    }

    /// Waits until the cluster is in the store. `buffer` is the batch's.
    ///
    /// # Errors
    /// The cause of a failed write. The buffer remains the cluster.
    pub fn settle(
        &mut self,
        blocks: &impl Blocks,
        clusters: Clusters<'_>,
        buffer: &[u8],
    ) -> Result<(), Errno> {
        let Some(write) = &mut self.0 else { return Ok(()) };
        let cluster = write.batch.cluster();
        let mut is_there = !write.has_failed && blocks.settle().is_ok();
        // With no reference but the write's own nobody wants what it has not written.
        if !is_there && clusters.references(cluster) > 1 {
            let again = blocks.write_at(write.batch.start_bytes(), &buffer[..write.bytes]);
            again.inspect_err(|_| write.has_failed = true)?;
            is_there = true;
        }
        if is_there {
            clusters.note_written(cluster);
        }
        self.0 = None;
        clusters.drop_reference(cluster, blocks);
        Ok(())
    }
}

/// Blocks with what is in buffers in place of the clusters that are not written yet.
#[derive(Debug)]
pub struct ReadBehind<'a, B> {
    blocks: &'a B,
    unwritten: [Option<(u32, &'a [u8])>; 2],
}

impl<'a, B> ReadBehind<'a, B> {
    /// `blocks` with two clusters that have not been written, or are in RAM as well, each with its bytes.
    pub fn new(blocks: &'a B, unwritten: [Option<(u32, &'a [u8])>; 2]) -> Self {
        ReadBehind { blocks, unwritten }
    }
}

impl<B: Blocks> Blocks for ReadBehind<'_, B> {
    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> Result<(), Errno> {
        self.blocks.write_at(offset_bytes, data)
    }

    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        let cluster = (offset_bytes / CLUSTER_BYTES as u64) as u32;
        let is_here = |(here, _): &&(u32, &[u8])| *here == cluster;
        let Some((_, buffer)) = self.unwritten.iter().flatten().find(is_here) else {
            return self.blocks.read_at(offset_bytes, data);
        };
        let within = (offset_bytes % CLUSTER_BYTES as u64) as usize;
        // A number that is no record's place can lead beyond the cluster's end.
        let there = buffer.get(within..within + data.len()).ok_or(Errno(5))?;
        data.copy_from_slice(there);
        Ok(())
    }

    fn read_copy_at(&self, copy: u32, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        self.blocks.read_copy_at(copy, offset_bytes, data)
    }

    fn punch(&self, offset_bytes: u64, bytes: u64) {
        self.blocks.punch(offset_bytes, bytes);
    }
}
