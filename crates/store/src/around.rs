//! Reading around: records that left together and are wanted near each other in time, but not in
//! the order in which they lie, come with one read of their cluster.
//!
//! Source: mm/swap_state.c of Linux, `swap_cluster_readahead`: neighbours in the swap file were
//! evicted at about the same time. Against cervera (1999), where what is read beside the page is
//! forgotten.
//!
//! A read of a cluster in which one of the last few reads was, too, reads all of it into a window,
//! from which what follows is copied. That pays or it does not: each such read takes credit, each
//! copy gives some back. A window holds a cluster in one generation, which is written once, before
//! its first read.
//!
//! On a disk that takes long to begin, reading on costs next to nothing. There a cluster is read with
//! the first read in it, as long as there is credit.
//!
//! One window does for one program. Several programs, each in clusters of its own, would take it from
//! each other; so there is one more when a cluster is wanted that was let go for another, as far as
//! there is room.
//!
//! Bad for: pairs of records that are wanted together and never again; the credit bounds the loss.

use core::cell::{Cell, RefCell};

use crate::{Blocks, CLUSTER_BYTES, Clusters, Errno, Transfer};

/// Most windows.
pub const WINDOWS_MAX: usize = 8;
/// What reading a cluster costs, what each copy from it brings, and what a read brings for which a
/// cluster was not read although it might have paid.
const COST: u32 = 16;
const GAIN: u32 = 4;
const MISSED_GAIN: u32 = 1;
/// The cost where reading on costs next to nothing.
const COST_SWEEPING: u32 = 2;
/// Most that is saved up.
const CREDIT_MAX: u32 = 16 * COST;
/// No cluster has this number.
const NOWHERE: u32 = u32::MAX;

/// A cluster in RAM.
#[derive(Debug, Clone, Copy)]
struct Window {
    cluster: u32,
    generation: u32,
    /// How much of it is there.
    bytes: usize,
    /// At which read it served last.
    turn: u64,
}

impl Window {
    fn holds(&self, cluster: u32, generation: u32, end: usize) -> bool {
        self.cluster == cluster && self.generation == generation && end <= self.bytes
    }
}

/// The last few clusters that something happened to.
#[derive(Debug, Clone, Copy)]
struct Recent {
    clusters: [u32; WINDOWS_MAX],
    next: usize,
}

impl Recent {
    const NONE: Recent = Recent { clusters: [NOWHERE; WINDOWS_MAX], next: 0 };

    /// One more, in the place of the oldest of `most`.
    fn add(&mut self, cluster: u32, most: usize) {
        self.clusters[self.next % most] = cluster;
        self.next = (self.next + 1) % most;
    }

    /// Whether it is one of them; it is no longer.
    fn take(&mut self, cluster: u32) -> bool {
        let found = self.clusters.iter_mut().find(|recent| **recent == cluster);
        found.map(|recent| *recent = NOWHERE).is_some()
    }
}

/// What becomes of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// What is wanted is here.
    Copied,
    /// All of the cluster is read.
    Whole,
    /// What is wanted is read, and no more.
    Alone,
}

/// What is remembered between reads.
#[derive(Debug, Clone, Copy)]
pub struct Around {
    windows: [Option<Window>; WINDOWS_MAX],
    /// How many of them, from the first on, have been in use.
    used_windows: usize,
    /// Where reads were that no window served.
    missed: Recent,
    /// What was in a window and was let go for another.
    replaced: Recent,
    turn: u64,
    credit: u32,
    /// Whether the disk takes so long to begin that reading on costs next to nothing.
    is_sweeping: bool,
}

impl Around {
    /// Nothing read so far.
    pub const NEW: Around = Around {
        windows: [None; WINDOWS_MAX],
        used_windows: 0,
        missed: Recent::NONE,
        replaced: Recent::NONE,
        turn: 0,
        credit: 2 * COST,
        is_sweeping: false,
    };

    /// The windows' bytes are gone.
    pub fn forget(&mut self) {
        self.windows = [None; WINDOWS_MAX];
        self.used_windows = 0;
    }

    /// Of the buffer so much, from its beginning on, was written to.
    pub fn used_bytes(&self) -> usize {
        self.used_windows * CLUSTER_BYTES
    }

    /// Says whether reading on costs next to nothing from now on.
    pub fn set_sweeping(&mut self, is_sweeping: bool) {
        self.is_sweeping = is_sweeping;
    }

    /// What reading a cluster costs.
    fn cost(&self) -> u32 {
        if self.is_sweeping { COST_SWEEPING } else { COST }
    }

    /// What a read that ends at `end` within a cluster would do.
    pub fn expect(&self, clusters: Clusters<'_>, cluster: u32, end: usize) -> Expected {
        let generation = clusters.generation(cluster);
        let holds = |window: &Window| window.holds(cluster, generation, end);
        let is_near =
            [&self.missed, &self.replaced].iter().any(|it| it.clusters.contains(&cluster));
        if self.windows.iter().flatten().any(holds) {
            Expected::Copied
        } else if (is_near || self.is_sweeping) && self.credit >= self.cost() {
            Expected::Whole
        } else {
            Expected::Alone
        }
    }

    /// Notes a read in a cluster that was made by itself, before it could be known that another one would be,
    /// with room for `most` windows.
    pub fn note_alone(&mut self, cluster: u32, most: usize) {
        self.turn += 1;
        if self.missed.take(cluster) {
            self.earn(MISSED_GAIN);
        }
        self.missed.add(cluster, most);
    }

    fn earn(&mut self, credit: u32) {
        self.credit = (self.credit + credit).min(CREDIT_MAX);
    }

    /// The window that holds a cluster up to `end`.
    fn find(&mut self, cluster: u32, generation: u32, end: usize) -> Option<usize> {
        let holds = |window: &Window| window.holds(cluster, generation, end);
        let at = self.windows.iter().position(|window| window.as_ref().is_some_and(holds))?;
        if let Some(window) = &mut self.windows[at] {
            window.turn = self.turn;
        }
        Some(at)
    }

    /// Empties the window that one more cluster is to be read into, of `most`: the one that served
    /// longest ago, unless one holds nothing that is still there.
    fn make_room(&mut self, clusters: Clusters<'_>, is_one_more: bool, most: usize) -> usize {
        if self.used_windows == 0 || is_one_more && self.used_windows < most {
            self.used_windows += 1;
        }
        let is_there = |window: &Window| clusters.generation(window.cluster) == window.generation;
        let turn = |at: &usize| self.windows[*at].filter(is_there).map_or(0, |window| window.turn);
        let at = (0..self.used_windows).min_by_key(turn).unwrap_or(0);
        if let Some(window) = self.windows[at].take().filter(is_there) {
            self.replaced.add(window.cluster, most);
        }
        at
    }
}

/// The windows' bytes, and what they are.
#[derive(Debug)]
struct Windows<'a> {
    buffer: &'a mut [u8],
    state: &'a mut Around,
}

/// Blocks that are read around.
#[derive(Debug)]
pub struct ReadAround<'a, B> {
    blocks: &'a B,
    clusters: Clusters<'a>,
    /// Where the last write so far ends: nothing can be read from there on.
    end_bytes: u64,
    windows: RefCell<Windows<'a>>,
    transfer: Cell<Transfer>,
}

impl<'a, B: Blocks> ReadAround<'a, B> {
    /// Reads `blocks`, of which `end_bytes` were written at most, by way of `buffer`, which is one to
    /// [`WINDOWS_MAX`] times [`CLUSTER_BYTES`] long, aligned to [`BLOCK_BYTES`](crate::BLOCK_BYTES),
    /// and as it was when `state` was used last.
    pub fn new(
        blocks: &'a B,
        clusters: Clusters<'a>,
        end_bytes: u64,
        buffer: &'a mut [u8],
        state: &'a mut Around,
    ) -> Self {
        assert!(buffer.len().is_multiple_of(CLUSTER_BYTES));
        assert!((1..=WINDOWS_MAX).contains(&(buffer.len() / CLUSTER_BYTES)));
        let windows = RefCell::new(Windows { buffer, state });
        Self { blocks, clusters, end_bytes, windows, transfer: Cell::default() }
    }

    /// What was really read.
    pub fn transfer(&self) -> Transfer {
        self.transfer.get()
    }

    fn count(&self, bytes: usize) {
        let Transfer { reads, bytes: before } = self.transfer.get();
        self.transfer.set(Transfer { reads: reads + 1, bytes: before + bytes });
    }

    /// Reads a cluster, if that is likely to pay; gives where in the buffer it begins.
    fn fill(&self, windows: &mut Windows<'_>, cluster: u32, end: usize) -> Option<usize> {
        let start_bytes = u64::from(cluster) * CLUSTER_BYTES as u64;
        let state = &mut *windows.state;
        let most = windows.buffer.len() / CLUSTER_BYTES;
        let was_replaced = state.replaced.take(cluster);
        let is_near = state.missed.take(cluster) || was_replaced;
        let is_inside = end <= CLUSTER_BYTES && start_bytes + end as u64 <= self.end_bytes;
        let is_likely = is_near || state.is_sweeping;
        if !(is_likely && is_inside && state.credit >= state.cost()) {
            if was_replaced {
                // With one more window this would have been a copy.
                state.replaced.add(cluster, most);
                state.earn(GAIN);
            } else if is_near {
                state.earn(MISSED_GAIN);
            }
            return None;
        }
        state.credit -= state.cost();
        let bytes = (self.end_bytes - start_bytes).min(CLUSTER_BYTES as u64) as usize;
        let at = state.make_room(self.clusters, was_replaced, most);
        let begin = at * CLUSTER_BYTES;
        self.count(bytes);
        // Where a block of another record is bad, this one is read by itself.
        self.blocks.read_at(start_bytes, &mut windows.buffer[begin..begin + bytes]).ok()?;
        let generation = self.clusters.generation(cluster);
        state.windows[at] = Some(Window { cluster, generation, bytes, turn: state.turn });
        Some(begin)
    }
}

impl<B: Blocks> Blocks for ReadAround<'_, B> {
    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> Result<(), Errno> {
        self.blocks.write_at(offset_bytes, data)
    }

    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        let cluster = (offset_bytes / CLUSTER_BYTES as u64) as u32;
        let within = (offset_bytes % CLUSTER_BYTES as u64) as usize;
        let end = within + data.len();
        let windows = &mut *self.windows.borrow_mut();
        windows.state.turn += 1;
        let found = windows.state.find(cluster, self.clusters.generation(cluster), end);
        if found.is_some() {
            windows.state.earn(GAIN);
        }
        let begin = found.map(|at| at * CLUSTER_BYTES);
        if let Some(begin) = begin.or_else(|| self.fill(windows, cluster, end)) {
            data.copy_from_slice(&windows.buffer[begin + within..begin + end]);
            return Ok(());
        }
        windows.state.missed.add(cluster, windows.buffer.len() / CLUSTER_BYTES);
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
    use crate::faulting::Faulting;
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

    /// Writes so many, the records of each beginning with its own number.
    fn write_clusters(clusters: Clusters<'_>, memory: &Memory, count: usize) -> Vec<Vec<Place>> {
        (0..count).map(|cluster| write_cluster(clusters, memory, cluster as u8)).collect()
    }

    /// Reads one record; gives its first byte.
    fn read_one(
        around: &mut Around,
        window: &mut Buffer,
        (memory, clusters, end_bytes): (&Memory, Clusters<'_>, u64),
        place: Place,
    ) -> (u8, Transfer) {
        let mut buffer = Buffer::new(READ_BYTES_MIN);
        let reader = ReadAround::new(memory, clusters, end_bytes, window.get(), around);
        let mut found = None;
        read_run(&reader, clusters, &[place], buffer.get(), |_, data| {
            let data = data.expect("the record");
            assert!(data.iter().all(|byte| *byte == data[0]));
            found = Some(data[0]);
        });
        let transfer = reader.transfer();
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

    /// Reads one record of each cluster; gives the reads, and how many bytes they had.
    fn reads_of_clusters(is_sweeping: bool) -> Transfer {
        const CLUSTERS: usize = 40;
        let words = words(CLUSTERS);
        let clusters = Clusters::new(&words);
        let memory = Memory::default();
        let places = write_clusters(clusters, &memory, CLUSTERS);
        let store = (&memory, clusters, (CLUSTERS * CLUSTER_BYTES) as u64);
        let (mut around, mut window) = (Around::NEW, Buffer::new(CLUSTER_BYTES));
        around.set_sweeping(is_sweeping);
        let mut all = Transfer::default();
        for (cluster, places) in places.iter().enumerate() {
            let (found, Transfer { reads, bytes }) =
                read_one(&mut around, &mut window, store, places[30]);
            assert_eq!(usize::from(found), cluster + 30);
            all.reads += reads;
            all.bytes += bytes;
        }
        all
    }

    #[test]
    fn a_disk_that_takes_long_to_begin_is_swept() {
        // What was saved up lasts for so many clusters, of which nothing else is wanted.
        let swept = reads_of_clusters(true);
        let credit_clusters = (2 * COST / COST_SWEEPING) as usize;
        let alone = 2 * BLOCK_BYTES;
        let bytes = credit_clusters * CLUSTER_BYTES + (40 - credit_clusters) * alone;
        assert_eq!(swept, Transfer { reads: 40, bytes });
        assert_eq!(reads_of_clusters(false), Transfer { reads: 40, bytes: 40 * alone });
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
            assert_eq!(around.used_bytes(), CLUSTER_BYTES);
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
        let places = write_clusters(clusters, &memory, CLUSTERS);
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

    /// Four programs go through a cluster each, in turns; gives how many reads that takes.
    fn reads_of_four_programs(windows: usize) -> u32 {
        const PROGRAMS: usize = 4;
        let words = words(PROGRAMS);
        let clusters = Clusters::new(&words);
        let memory = Memory::default();
        let places = write_clusters(clusters, &memory, PROGRAMS);
        let store = (&memory, clusters, (PROGRAMS * CLUSTER_BYTES) as u64);
        let (mut around, mut buffer) = (Around::NEW, Buffer::new(windows * CLUSTER_BYTES));
        let mut reads = 0;
        for turn in 0..60 {
            for (program, places) in places.iter().enumerate() {
                let i = turn * 17 % 60;
                let (found, transfer) = read_one(&mut around, &mut buffer, store, places[i]);
                assert_eq!(usize::from(found), program + i);
                reads += transfer.reads;
            }
        }
        reads
    }

    #[test]
    fn programs_at_once_have_a_window_each() {
        // Each reads twice; the first window goes from one to the next before there are others.
        let reads = reads_of_four_programs(4);
        assert!(reads <= 30, "{reads}");
        assert!(reads_of_four_programs(1) >= 200);
    }

    /// Reads of random records, from clusters that are given up and written anew, where one read in a
    /// hundred goes wrong.
    #[test]
    fn whatever_the_windows_hold_it_is_what_was_written() {
        const CLUSTERS: usize = 12;
        let mut random = zpager_seed::random(1969);
        for windows in 1..=WINDOWS_MAX {
            let words = words(CLUSTERS);
            let clusters = Clusters::new(&words);
            let failing = Faulting::new(Memory::default(), random.u64(..), 100);
            let memory = failing.inner();
            let mut written: Vec<_> =
                (0..CLUSTERS).map(|_| write_cluster(clusters, memory, 0)).collect();
            let mut firsts = [0; CLUSTERS];
            let mut around = Around::NEW;
            let mut buffer = Buffer::new(windows * CLUSTER_BYTES);
            let mut record = Buffer::new(READ_BYTES_MIN);
            let mut good = 0;
            for _ in 0..4000 {
                let at = if random.bool() { random.usize(..3) } else { random.usize(..CLUSTERS) };
                if random.u8(..100) == 0 {
                    for place in &written[at] {
                        clusters.drop_reference(place.cluster(), memory);
                    }
                    firsts[at] = random.u8(..190);
                    written[at] = write_cluster(clusters, memory, firsts[at]);
                }
                let i = random.usize(..60);
                let end_bytes = (CLUSTERS * CLUSTER_BYTES) as u64;
                let reader =
                    ReadAround::new(&failing, clusters, end_bytes, buffer.get(), &mut around);
                read_run(&reader, clusters, &[written[at][i]], record.get(), |_, data| {
                    let Ok(data) = data else { return };
                    assert!(data.iter().all(|byte| *byte == firsts[at] + i as u8));
                    good += 1;
                });
                if random.u16(..1000) == 0 {
                    buffer.get().fill(0);
                    around.forget();
                }
            }
            assert!(good > 3000, "{good}");
            assert!(around.used_bytes() <= windows * CLUSTER_BYTES);
        }
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
