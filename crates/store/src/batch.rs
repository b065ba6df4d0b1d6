//! Records gathered into one cluster and written at once.
//!
//! Source: cervera (1999): compressed pages that leave memory together share blocks and leave in
//! one large contiguous write. Unlike there, a record may lie across two blocks: padding would cost
//! more bytes written than the second block costs to read.
//!
//! Invariants: a record counts as a reference from the moment it is gathered; the batch holds one
//! more, until its cluster is in the store, so that the cluster is nobody else's. Until then the
//! caller's buffer is the cluster, and reads are served from there ([`Behind`]). A relative that has
//! had a copy of both since a fork writes the same bytes there, and may have done so already: so
//! nobody gives back what lies in such a cluster while it has references.
//!
//! Bad for: a batch with few records, which still claims a whole cluster.

use crate::record::RECORD_BYTES_MAX;
use crate::{BLOCK_BYTES, Behind, Blocks, CLUSTER_BYTES, Clusters, Errno, Place};

/// A claimed cluster that is being filled, in a buffer of the caller's.
///
/// The buffer is the same at every call, [`CLUSTER_BYTES`] long and aligned to [`BLOCK_BYTES`].
#[derive(Debug, Clone, Copy)]
pub struct Batch {
    cluster: u32,
    generation: u32,
    used_bytes: usize,
    /// A relative has a copy, and its write may have ended well.
    is_shared: bool,
}

impl Batch {
    /// Claims a cluster. `None`: the store is full.
    pub fn begin(clusters: Clusters<'_>) -> Option<Self> {
        let cluster = clusters.claim()?;
        clusters.publish(cluster, 1);
        let generation = clusters.generation(cluster);
        Some(Self { cluster, generation, used_bytes: 0, is_shared: false })
    }

    /// Adds a record of `data`, 1 to [`RECORD_BYTES_MAX`] bytes, with a reference to it: where it
    /// lies. `None`: the cluster has no room for it.
    pub fn push(
        &mut self,
        clusters: Clusters<'_>,
        buffer: &mut [u8],
        data: &[u8],
    ) -> Option<Place> {
        assert!((1..=RECORD_BYTES_MAX).contains(&data.len()), "a record of {} bytes", data.len());
        debug_assert!(!self.is_shared, "a relative would write another record there");
        assert_eq!(buffer.len(), CLUSTER_BYTES);
        let end_bytes = self.used_bytes + clusters.seal().record_bytes(data.len());
        if end_bytes > CLUSTER_BYTES {
            return None;
        }
        let place = Place::new(self.start_bytes() + self.used_bytes as u64, data.len());
        let record = &mut buffer[self.used_bytes..end_bytes];
        clusters.seal().write(record, data, place, self.generation);
        self.used_bytes = end_bytes;
        clusters.add_reference(self.cluster);
        Some(place)
    }

    /// Has the next record begin at `start_bytes` of the cluster, which is not before the end of the
    /// last one.
    pub fn fill_to(&mut self, buffer: &mut [u8], start_bytes: usize) {
        buffer[self.used_bytes..start_bytes].fill(0);
        self.used_bytes = start_bytes;
    }

    /// A relative gets a copy of the batch and its buffer: neither adds another record.
    pub fn share(&mut self) {
        self.is_shared = true;
    }

    /// The cluster that the records lie in.
    pub fn cluster(&self) -> u32 {
        self.cluster
    }

    /// Where it starts in the store, in bytes.
    pub fn start_bytes(&self) -> u64 {
        u64::from(self.cluster) * CLUSTER_BYTES as u64
    }

    /// Bytes that the records gathered so far take.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Writes the records, whole blocks at once: bytes written. The write may go on behind what
    /// the caller does next; `behind`, in which none goes on before, knows of it then. A cluster in
    /// which nothing is alive is given back instead.
    ///
    /// # Errors
    /// The cause of a failed write. The buffer remains the cluster, and the batch may be finished again.
    ///
    /// # Safety
    /// The buffer stays where it is, and is not written to, until `behind` is settled.
    pub unsafe fn finish(
        &self,
        blocks: &impl Blocks,
        clusters: Clusters<'_>,
        buffer: &mut [u8],
        behind: &mut Behind,
    ) -> Result<usize, Errno> {
        if clusters.references(self.cluster) == 1 {
            clusters.drop_reference(self.cluster, blocks);
            return Ok(0);
        }
        let written_bytes = self.used_bytes.next_multiple_of(BLOCK_BYTES);
        buffer[self.used_bytes..written_bytes].fill(0);
        // SAFETY: the caller's promise.
        let begun = unsafe { blocks.begin_write(self.start_bytes(), &buffer[..written_bytes]) };
        let goes_on = begun.inspect_err(|_| {
            // What was written of it may be what fills the disk.
            if !self.is_shared {
                blocks.punch(self.start_bytes(), CLUSTER_BYTES as u64);
            }
        })?;
        if goes_on {
            behind.begin(*self, written_bytes);
        } else {
            clusters.note_written(self.cluster);
            clusters.drop_reference(self.cluster, blocks);
        }
        Ok(written_bytes)
    }
}
