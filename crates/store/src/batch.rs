//! Records gathered into one cluster and written at once.
//!
//! Source: cervera (1999): compressed pages that leave memory together share blocks and leave in
//! one large contiguous write. Unlike there, a record may lie across two blocks: padding would cost
//! more bytes written than the second block costs to read.
//!
//! Bad for: a batch with few records, which still claims a whole cluster.

use crate::record::{RECORD_BYTES_MAX, record_bytes, write};
use crate::{BLOCK_BYTES, Blocks, CLUSTER_BYTES, Clusters, Errno, Place};

/// A claimed cluster that is being filled. Dropped unfinished, it gives the cluster back.
#[derive(Debug)]
pub struct Batch<'a> {
    clusters: Clusters<'a>,
    buffer: &'a mut [u8],
    cluster: u32,
    generation: u32,
    used_bytes: usize,
    records: u32,
    published: bool,
}

impl<'a> Batch<'a> {
    /// Claims a cluster and gathers its records in `buffer`, which is [`CLUSTER_BYTES`] long and
    /// aligned to [`BLOCK_BYTES`]. `None`: the store is full.
    pub fn begin(clusters: Clusters<'a>, buffer: &'a mut [u8]) -> Option<Self> {
        assert_eq!(buffer.len(), CLUSTER_BYTES);
        debug_assert!((buffer.as_ptr() as usize).is_multiple_of(BLOCK_BYTES));
        let cluster = clusters.claim()?;
        let generation = clusters.generation(cluster);
        let (used_bytes, records, published) = (0, 0, false);
        Some(Self { clusters, buffer, cluster, generation, used_bytes, records, published })
    }

    /// Adds a record of `data`, 1 to [`RECORD_BYTES_MAX`] bytes: where it will lie once the batch
    /// is finished. `None`: the cluster has no room for it.
    pub fn push(&mut self, data: &[u8]) -> Option<Place> {
        assert!((1..=RECORD_BYTES_MAX).contains(&data.len()), "a record of {} bytes", data.len());
        let end_bytes = self.used_bytes + record_bytes(data.len());
        if end_bytes > CLUSTER_BYTES {
            return None;
        }
        let place = Place::new(self.offset_bytes() + self.used_bytes as u64, data.len());
        write(&mut self.buffer[self.used_bytes..end_bytes], data, place, self.generation);
        self.used_bytes = end_bytes;
        self.records += 1;
        Some(place)
    }

    /// Has the next record begin a block.
    pub fn begin_block(&mut self) {
        let start_bytes = self.used_bytes.next_multiple_of(BLOCK_BYTES);
        self.buffer[self.used_bytes..start_bytes].fill(0);
        self.used_bytes = start_bytes;
    }

    /// Has a record of `len` bytes of data that comes next lie in one block, as far as it is not
    /// longer than one.
    pub fn begin_block_for(&mut self, len: usize) {
        let left_bytes = self.used_bytes.next_multiple_of(BLOCK_BYTES) - self.used_bytes;
        if record_bytes(len) > left_bytes {
            self.begin_block();
        }
    }

    /// The cluster that they will lie in.
    pub fn cluster(&self) -> u32 {
        self.cluster
    }

    /// Records gathered so far.
    pub fn records(&self) -> u32 {
        self.records
    }

    /// Bytes that the records gathered so far take.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Writes the records, whole blocks at once, and counts one reference for each: bytes written.
    /// A batch without records writes nothing.
    ///
    /// # Errors
    /// The cause of a failed write. The cluster is given back and none of the places is valid: the
    /// caller keeps its copies.
    pub fn finish(mut self, blocks: &impl Blocks) -> Result<usize, Errno> {
        if self.records == 0 {
            return Ok(0);
        }
        let written_bytes = self.used_bytes.next_multiple_of(BLOCK_BYTES);
        self.buffer[self.used_bytes..written_bytes].fill(0);
        let offset_bytes = self.offset_bytes();
        if let Err(errno) = blocks.write_at(offset_bytes, &self.buffer[..written_bytes]) {
            // What was written of it may be what fills the disk.
            blocks.punch(offset_bytes, CLUSTER_BYTES as u64);
            return Err(errno);
        }
        self.clusters.publish(self.cluster, self.records);
        self.published = true;
        Ok(written_bytes)
    }

    /// Gives the cluster back; none of the places is valid.
    pub fn abandon(self) {}

    fn offset_bytes(&self) -> u64 {
        u64::from(self.cluster) * CLUSTER_BYTES as u64
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if !self.published {
            self.clusters.release(self.cluster);
        }
    }
}
