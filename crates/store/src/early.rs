//! Reading early: the blocks of a page are read before it is brought back, while others use what the
//! page is brought back by.
//!
//! Who wants a page sees under its lock what would be read first ([`Early`]), reads that without the
//! lock, and brings the page back as if nothing had been read; only that what would be read is copied
//! ([`ReadEarly`]). So many can wait for the store at a time, and nobody waits for another one's read.
//!
//! Source: mm/swap_state.c of Linux, where nobody holds the page tables' lock while a page is read, and
//! looks again afterwards whether it is still the one that is wanted.
//!
//! Invariant: a cluster is written once in one generation, before its first record is read, so what was
//! read of it is the same as long as the generation is. Of one that is not written yet nothing is to be
//! read early. What turned out to be of another generation is as if it had not been read.
//!
//! Bad for: pages that others bring back in the meantime; what was read is of no use then.

use core::cell::Cell;

use crate::read::run_range;
use crate::{Blocks, CLUSTER_BYTES, Clusters, Errno, Place};

/// Where a part of a store can be read by itself: in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilePlace {
    /// The file's descriptor, open as long as the store is used.
    pub descriptor: i32,
    /// Where in the file.
    pub offset_bytes: u64,
}

/// What bringing pages back would read first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Early {
    offset_bytes: u64,
    bytes: usize,
    cluster: u32,
    generation: u32,
    records: usize,
    is_whole: bool,
}

impl Early {
    /// What [`read_run`](crate::read_run) would read first of `places`, of which there is one at least,
    /// into a buffer of `buffer_bytes`.
    pub fn of(clusters: Clusters<'_>, places: &[Place], buffer_bytes: usize) -> Self {
        let (records, range) = run_range(clusters, places, buffer_bytes);
        let cluster = places[0].cluster();
        Early {
            offset_bytes: range.start,
            bytes: (range.end - range.start) as usize,
            cluster,
            generation: clusters.generation(cluster),
            records,
            is_whole: false,
        }
    }

    /// All of `cluster` up to so many of its bytes, as reading around it would read it.
    pub fn whole(clusters: Clusters<'_>, cluster: u32, bytes: usize) -> Self {
        Early {
            offset_bytes: u64::from(cluster) * CLUSTER_BYTES as u64,
            bytes,
            cluster,
            generation: clusters.generation(cluster),
            records: 1,
            is_whole: true,
        }
    }

    /// Whether it is all that was written of the cluster, and not what is wanted alone.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Whether it has all blocks of the record at `place`, in the cluster's present life.
    pub fn covers(&self, clusters: Clusters<'_>, place: Place) -> bool {
        place.cluster() == self.cluster && self.contains(&Early::of(clusters, &[place], 0))
    }

    /// Whether all of another one is in it.
    pub fn contains(&self, other: &Early) -> bool {
        let end = |early: &Early| early.offset_bytes + early.bytes as u64;
        (self.cluster, self.generation) == (other.cluster, other.generation)
            && self.offset_bytes <= other.offset_bytes
            && end(self) >= end(other)
    }

    /// So many of the places, from the first on, have their records in it.
    pub fn records(&self) -> usize {
        self.records
    }

    /// Where in the store.
    pub fn offset_bytes(&self) -> u64 {
        self.offset_bytes
    }

    /// How much.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Of which cluster.
    pub fn cluster(&self) -> u32 {
        self.cluster
    }

    /// How far within the cluster.
    pub fn end_in_cluster(&self) -> usize {
        (self.offset_bytes % CLUSTER_BYTES as u64) as usize + self.bytes
    }
}

/// Blocks of which some were read early.
#[derive(Debug)]
pub struct ReadEarly<'a, B> {
    blocks: &'a B,
    clusters: Clusters<'a>,
    read: Option<(Early, &'a [u8])>,
    was_used: Cell<bool>,
}

impl<'a, B> ReadEarly<'a, B> {
    /// `blocks`, with what was read of them early, if something was.
    pub fn new(blocks: &'a B, clusters: Clusters<'a>, read: Option<(Early, &'a [u8])>) -> Self {
        ReadEarly { blocks, clusters, read, was_used: Cell::new(false) }
    }

    /// Whether some of it was what was wanted.
    pub fn was_used(&self) -> bool {
        self.was_used.get()
    }

    /// The bytes from `offset_bytes` on, if they were read early and are what they were.
    fn find(&self, offset_bytes: u64, bytes: usize) -> Option<&'a [u8]> {
        let (early, data) = self.read?;
        let start = usize::try_from(offset_bytes.checked_sub(early.offset_bytes)?).ok()?;
        let is_same = self.clusters.generation(early.cluster) == early.generation;
        data[..early.bytes].get(start..start.checked_add(bytes)?).filter(|_| is_same)
    }
}

impl<B: Blocks> Blocks for ReadEarly<'_, B> {
    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> Result<(), Errno> {
        self.blocks.write_at(offset_bytes, data)
    }

    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        let Some(found) = self.find(offset_bytes, data.len()) else {
            return self.blocks.read_at(offset_bytes, data);
        };
        self.was_used.set(true);
        data.copy_from_slice(found);
        Ok(())
    }

    fn read_copy_at(&self, copy: u32, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        self.blocks.read_copy_at(copy, offset_bytes, data)
    }

    fn punch(&self, offset_bytes: u64, bytes: u64) {
        self.blocks.punch(offset_bytes, bytes);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::memory::Memory;
    use crate::tests::{Buffer, Writer, words};
    use crate::{READ_BYTES_MIN, read_run};
    use std::vec::Vec;

    /// Writes a cluster of records of 3000 bytes, each full of its number.
    fn write_cluster(clusters: Clusters<'_>, memory: &Memory, first: u8) -> Vec<Place> {
        let mut buffer = Buffer::new(CLUSTER_BYTES);
        let mut batch = Writer::begin(clusters, buffer.get()).expect("room");
        let places = (first..first + 40).map(|i| batch.push(&[i; 3000]).expect("room")).collect();
        batch.finish(memory).expect("written");
        places
    }

    /// Reads records; gives their first bytes, and whether what was read early was used.
    fn read_with(
        (memory, clusters): (&Memory, Clusters<'_>),
        places: &[Place],
        read: Option<(Early, &[u8])>,
    ) -> (Vec<u8>, bool) {
        let mut buffer = Buffer::new(16 * READ_BYTES_MIN);
        let blocks = ReadEarly::new(memory, clusters, read);
        let mut found = Vec::new();
        read_run(&blocks, clusters, places, buffer.get(), |_, data| {
            let data = data.expect("the record");
            assert!(data.iter().all(|byte| *byte == data[0]));
            found.push(data[0]);
        });
        (found, blocks.was_used())
    }

    fn read_early(memory: &Memory, early: &Early) -> Vec<u8> {
        let mut data = Buffer::new(early.bytes());
        memory.read_at(early.offset_bytes(), data.get()).expect("there");
        data.get().to_vec()
    }

    #[test]
    fn what_is_wanted_was_read_early_and_is_not_read_again() {
        let words = words(4);
        let clusters = Clusters::new(&words);
        let memory = Memory::default();
        let places = write_cluster(clusters, &memory, 0);
        let early = Early::of(clusters, &places[3..9], 16 * READ_BYTES_MIN);
        assert_eq!(early.records(), 6);
        let data = read_early(&memory, &early);
        // The store has nothing of it: all comes from what was read early.
        let other = Memory::default();
        other.write_at(0, Buffer::new(CLUSTER_BYTES).get()).expect("room");
        let (found, was_used) = read_with((&other, clusters), &places[3..9], Some((early, &data)));
        assert_eq!((found, was_used), (Vec::from([3, 4, 5, 6, 7, 8]), true));
        // A part of it, too; and what is beyond it comes from the store.
        let part = read_with((&other, clusters), &places[5..6], Some((early, &data)));
        assert_eq!(part, (Vec::from([5]), true));
        let beyond = read_with((&memory, clusters), &places[3..20], Some((early, &data)));
        assert_eq!(beyond, ((3..20).collect(), false));
    }

    #[test]
    fn what_was_read_of_another_generation_is_not_used() {
        let words = words(1);
        let clusters = Clusters::new(&words);
        let memory = Memory::default();
        let old = write_cluster(clusters, &memory, 0);
        let early = Early::of(clusters, &old[..4], 16 * READ_BYTES_MIN);
        let data = read_early(&memory, &early);
        for _ in &old {
            clusters.drop_reference(0, &memory);
        }
        let new = write_cluster(clusters, &memory, 100);
        assert_eq!(new[..4], old[..4], "the same places");
        let (found, was_used) = read_with((&memory, clusters), &new[..4], Some((early, &data)));
        assert_eq!((found, was_used), (Vec::from([100, 101, 102, 103]), false));
    }

    #[test]
    fn what_is_no_place_of_a_record_is_not_found() {
        let words = words(4);
        let clusters = Clusters::new(&words);
        let memory = Memory::default();
        let places = write_cluster(clusters, &memory, 0);
        let early = Early::of(clusters, &places[8..9], READ_BYTES_MIN);
        let data = read_early(&memory, &early);
        let blocks = ReadEarly::new(&memory, clusters, Some((early, &data)));
        assert!(blocks.find(early.offset_bytes(), early.bytes()).is_some());
        assert!(blocks.find(early.offset_bytes() - 1, 1).is_none());
        assert!(blocks.find(early.offset_bytes(), early.bytes() + 1).is_none());
        assert!(blocks.find(early.offset_bytes() + 1, usize::MAX).is_none());
        assert!(blocks.find(u64::MAX, 1).is_none());
    }
}
