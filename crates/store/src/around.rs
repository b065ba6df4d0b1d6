//! Reading around: records that left together and are wanted near each other in time, but not in
//! the order in which they lie, come with one read of their cluster.
//!
//! Source: mm/swap_state.c of Linux, `swap_cluster_readahead`: neighbours in the swap file were
//! evicted at about the same time. Against cervera (1999), where what is read beside the page is
//! forgotten.
//!
//! The second read in a row that falls into a cluster reads all of it into a buffer, from which what
//! follows is copied. That pays or it does not: each such read takes credit, each copy gives some
//! back. The buffer holds a cluster in one generation, which is written once, before its first read.
//!
//! Bad for: pairs of records that are wanted together and never again; the credit bounds the loss.

use core::cell::{Cell, RefCell};

use crate::{Blocks, CLUSTER_BYTES, Clusters, Errno, Transfer};

/// What reading a cluster costs, what each copy from it brings, and what a read brings for which a
/// cluster was not read although it might have paid.
const COST: u32 = 16;
const GAIN: u32 = 4;
const MISSED_GAIN: u32 = 1;
/// Most that is saved up.
const CREDIT_MAX: u32 = 16 * COST;

/// What is remembered between reads.
#[derive(Debug, Clone, Copy)]
pub struct Around {
    /// The cluster in the buffer and its generation.
    held: Option<(u32, u32)>,
    /// How much of it is there.
    held_bytes: usize,
    /// Where the last read was that the buffer did not serve.
    last: Option<u32>,
    credit: u32,
}

impl Around {
    /// Nothing read so far.
    pub const NEW: Around = Around { held: None, held_bytes: 0, last: None, credit: 2 * COST };

    /// The buffer's bytes are gone.
    pub fn forget(&mut self) {
        self.held = None;
    }

    /// Whether the buffer holds something.
    pub fn holds(&self) -> bool {
        self.held.is_some()
    }
}

/// Blocks that are read around.
#[derive(Debug)]
pub struct ReadAround<'a, B> {
    blocks: &'a B,
    clusters: Clusters<'a>,
    /// Where the last write so far ends: nothing can be read from there on.
    end_bytes: u64,
    buffer: RefCell<&'a mut [u8]>,
    state: Cell<Around>,
    transfer: Cell<Transfer>,
}

impl<'a, B: Blocks> ReadAround<'a, B> {
    /// Reads `blocks`, of which `end_bytes` were written at most, by way of `buffer`, which is
    /// [`CLUSTER_BYTES`] long, aligned to [`BLOCK_BYTES`](crate::BLOCK_BYTES), and as it was when
    /// `state` was given.
    pub fn new(
        blocks: &'a B,
        clusters: Clusters<'a>,
        end_bytes: u64,
        buffer: &'a mut [u8],
        state: Around,
    ) -> Self {
        assert_eq!(buffer.len(), CLUSTER_BYTES);
        let (buffer, state) = (RefCell::new(buffer), Cell::new(state));
        Self { blocks, clusters, end_bytes, buffer, state, transfer: Cell::default() }
    }

    /// What is to be remembered, and what was really read.
    pub fn finish(self) -> (Around, Transfer) {
        (self.state.get(), self.transfer.get())
    }

    fn count(&self, bytes: usize) {
        let Transfer { reads, bytes: before } = self.transfer.get();
        self.transfer.set(Transfer { reads: reads + 1, bytes: before + bytes });
    }

    /// Reads the cluster that begins at `start_bytes`; gives how much there is of it.
    fn fill(&self, start_bytes: u64) -> Option<usize> {
        let bytes = (self.end_bytes - start_bytes).min(CLUSTER_BYTES as u64) as usize;
        self.count(bytes);
        let filled = self.blocks.read_at(start_bytes, &mut self.buffer.borrow_mut()[..bytes]);
        filled.is_ok().then_some(bytes)
    }
}

impl<B: Blocks> Blocks for ReadAround<'_, B> {
    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> Result<(), Errno> {
        self.blocks.write_at(offset_bytes, data)
    }

    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        let cluster = (offset_bytes / CLUSTER_BYTES as u64) as u32;
        let within = (offset_bytes % CLUSTER_BYTES as u64) as usize;
        let start_bytes = offset_bytes - within as u64;
        let life = (cluster, self.clusters.generation(cluster));
        let mut state = self.state.get();
        let end = within + data.len();
        if state.held == Some(life) && end <= state.held_bytes {
            state.credit = (state.credit + GAIN).min(CREDIT_MAX);
            self.state.set(state);
            data.copy_from_slice(&self.buffer.borrow()[within..end]);
            return Ok(());
        }
        let is_near = state.last == Some(cluster);
        let is_inside = end <= CLUSTER_BYTES && start_bytes + end as u64 <= self.end_bytes;
        state.last = Some(cluster);
        if is_near && is_inside && state.credit >= COST {
            state.credit -= COST;
            state.held = None;
            if let Some(bytes) = self.fill(start_bytes) {
                (state.held, state.held_bytes) = (Some(life), bytes);
                self.state.set(state);
                data.copy_from_slice(&self.buffer.borrow()[within..end]);
                return Ok(());
            }
            // A bad block of another record: this one is read by itself.
        } else if is_near {
            state.credit += MISSED_GAIN;
        }
        self.state.set(state);
        self.count(data.len());
        self.blocks.read_at(offset_bytes, data)
    }

    fn read_copy_at(&self, copy: u32, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        self.count(data.len());
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
    use crate::{BLOCK_BYTES, Place, READ_BYTES_MIN, read_run};
    use std::vec::Vec;

    /// Writes a cluster of records that each hold their number.
    fn write_cluster(clusters: Clusters<'_>, memory: &Memory, first: u8) -> Vec<Place> {
        let mut buffer = Buffer::new(CLUSTER_BYTES);
        let mut batch = Writer::begin(clusters, buffer.get()).expect("room");
        let places = (first..first + 60).map(|i| batch.push(&[i; 4000]).expect("room")).collect();
        batch.finish(memory).expect("written");
        places
    }

    /// Reads one record; gives its first byte.
    fn read_one(
        around: &mut Around,
        window: &mut Buffer,
        (memory, clusters, end_bytes): (&Memory, Clusters<'_>, u64),
        place: Place,
    ) -> (u8, Transfer) {
        let mut buffer = Buffer::new(READ_BYTES_MIN);
        let reader = ReadAround::new(memory, clusters, end_bytes, window.get(), *around);
        let mut found = None;
        read_run(&reader, clusters, &[place], buffer.get(), |_, data| {
            let data = data.expect("the record");
            assert!(data.iter().all(|byte| *byte == data[0]));
            found = Some(data[0]);
        });
        let (state, transfer) = reader.finish();
        *around = state;
        (found.expect("one record"), transfer)
    }

    #[test]
    fn the_second_read_in_a_cluster_brings_all_of_it() {
        let words = words(4);
        let clusters = Clusters::new(&words);
        let memory = Memory::default();
        let places = write_cluster(clusters, &memory, 0);
        let store = (&memory, clusters, CLUSTER_BYTES as u64);
        let (mut around, mut window) = (Around::NEW, Buffer::new(CLUSTER_BYTES));
        let mut reads = 0;
        for i in [50, 3, 59, 0, 17, 18, 4] {
            let (found, transfer) = read_one(&mut around, &mut window, store, places[i]);
            assert_eq!(usize::from(found), i);
            reads += transfer.reads;
        }
        assert_eq!(reads, 2);
    }

    #[test]
    fn a_cluster_in_its_next_life_is_read_again() {
        let words = words(1);
        let clusters = Clusters::new(&words);
        let memory = Memory::default();
        let store = (&memory, clusters, CLUSTER_BYTES as u64);
        let (mut around, mut window) = (Around::NEW, Buffer::new(CLUSTER_BYTES));
        for life in 0..3 {
            let places = write_cluster(clusters, &memory, life * 60);
            for i in [5, 40, 41] {
                let (found, _) = read_one(&mut around, &mut window, store, places[i]);
                assert_eq!(usize::from(found), usize::from(life) * 60 + i);
            }
            assert!(around.holds());
            places.iter().for_each(|place| {
                clusters.drop_reference(place.cluster(), &memory);
            });
        }
    }

    #[test]
    fn reads_here_and_there_stop_reading_clusters() {
        const CLUSTERS: usize = 40;
        let words = words(CLUSTERS);
        let clusters = Clusters::new(&words);
        let memory = Memory::default();
        let places: Vec<_> =
            (0..CLUSTERS).map(|cluster| write_cluster(clusters, &memory, cluster as u8)).collect();
        let store = (&memory, clusters, (CLUSTERS * CLUSTER_BYTES) as u64);
        let (mut around, mut window) = (Around::NEW, Buffer::new(CLUSTER_BYTES));
        let mut bytes = 0;
        for turn in 0..400 {
            for i in [7, 30] {
                let cluster = turn % CLUSTERS;
                let place = places[cluster][i];
                let (found, transfer) = read_one(&mut around, &mut window, store, place);
                assert_eq!(usize::from(found), cluster + i);
                bytes += transfer.bytes;
            }
        }
        // Two blocks a record, and a cluster for one pair in seventeen at most.
        assert!(bytes <= 800 * 2 * BLOCK_BYTES + 27 * CLUSTER_BYTES, "{bytes}");
    }

    #[test]
    fn nothing_is_read_beyond_the_end() {
        let words = words(4);
        let clusters = Clusters::new(&words);
        let memory = Memory::default();
        let places = write_cluster(clusters, &memory, 0);
        let end_bytes = 20 * BLOCK_BYTES as u64;
        let (mut around, mut window) = (Around::NEW, Buffer::new(CLUSTER_BYTES));
        let mut read = |i: usize| {
            read_one(&mut around, &mut window, (&memory, clusters, end_bytes), places[i]).1.bytes
        };
        assert_eq!(read(1), 2 * BLOCK_BYTES);
        assert_eq!(read(2), 20 * BLOCK_BYTES);
        assert_eq!(read(10), 0);
        assert_eq!(read(30), 2 * BLOCK_BYTES);
    }
}
