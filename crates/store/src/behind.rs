//! Writing behind: the program goes on while a cluster is being written.
//!
//! Source: cervera (1999), 3: the cleaning of the cache goes on while the program runs; the
//! write-back of Linux, in which a page under write-back still serves reads.
//!
//! Invariants: one write at a time. Until it has ended well its buffer is the cluster: reads are
//! served from there, and the write holds a reference, so that the cluster is not claimed anew and
//! written by two at once. A write that failed is made again when it is settled the next time; its
//! records are in RAM until then, and no page is lost by it.
//!
//! Bad for: a disk that is slower than the program all the time: each write waits for the one before.

use crate::{Blocks, CLUSTER_BYTES, Clusters, Errno};

/// The write that goes on, if one does.
#[derive(Debug, Clone, Copy, Default)]
pub struct Behind(Option<Write>);

/// A write that has not ended well so far.
#[derive(Debug, Clone, Copy)]
struct Write {
    offset_bytes: u64,
    bytes: usize,
    has_failed: bool,
}

impl Write {
    fn cluster(self) -> u32 {
        (self.offset_bytes / CLUSTER_BYTES as u64) as u32
    }
}

impl Behind {
    /// Nothing goes on.
    pub const NONE: Behind = Behind(None);

    pub(crate) fn note(&mut self, offset_bytes: u64, bytes: usize) {
        debug_assert!(self.0.is_none(), "one write at a time");
        self.0 = Some(Write { offset_bytes, bytes, has_failed: false });
    }

    /// The cluster that is not in the store yet.
    pub fn cluster(&self) -> Option<u32> {
        self.0.map(Write::cluster)
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
        let cluster = write.cluster();
        let has_ended = !write.has_failed && blocks.settle().is_ok();
        // With no reference but the write's own nobody wants what it has not written.
        if !has_ended && clusters.references(cluster) > 1 {
            let again = blocks.write_at(write.offset_bytes, &buffer[..write.bytes]);
            again.inspect_err(|_| write.has_failed = true)?;
        }
        self.0 = None;
        clusters.drop_reference(cluster, blocks);
        Ok(())
    }

    /// `blocks` with what is in `buffer`, the batch's, in place of what is not written yet.
    pub fn reading<'a, B>(&self, blocks: &'a B, buffer: &'a [u8]) -> ReadBehind<'a, B> {
        ReadBehind { blocks, buffer, write: self.0 }
    }
}

/// Blocks as they will be.
#[derive(Debug)]
pub struct ReadBehind<'a, B> {
    blocks: &'a B,
    buffer: &'a [u8],
    write: Option<Write>,
}

impl<B: Blocks> Blocks for ReadBehind<'_, B> {
    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> Result<(), Errno> {
        self.blocks.write_at(offset_bytes, data)
    }

    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        let cluster = (offset_bytes / CLUSTER_BYTES as u64) as u32;
        match self.write {
            Some(write) if write.cluster() == cluster => {
                // A read of the whole cluster goes beyond what was written of it.
                let written =
                    &self.buffer[(offset_bytes - write.offset_bytes) as usize..write.bytes];
                let (there, beyond) = data.split_at_mut(written.len().min(data.len()));
                there.copy_from_slice(&written[..there.len()]);
                beyond.fill(0);
                Ok(())
            }
            _ => self.blocks.read_at(offset_bytes, data),
        }
    }

    fn punch(&self, offset_bytes: u64, bytes: u64) {
        self.blocks.punch(offset_bytes, bytes);
    }
}
