//! A disk that keeps what is looked at of what is written to it, and counts what all of it would take.
//!
//! Of a record nobody looks at more than its seal and the identity behind that, so that is kept, and
//! a read fills in no more. Most of a replay went into moving the rest.
//!
//! An access costs the disk's latency, less where it begins near to where the last one ended because
//! the disk has read on or need not move, and its transfer. The disk does one thing at a time. The
//! program waits for a read and for the write before it; while a write goes on it runs, until it wants
//! the disk again.

use std::cell::RefCell;
use std::rc::Rc;

use zpager_store::{BLOCK_BYTES, Blocks, CLUSTER_BYTES, Errno};

use crate::cost::Disk;
use crate::lengths::{Identity, SEAL};

/// What begins so near to where the last access ended goes on with it.
const NEAR_BYTES: u64 = 64 << 10;
/// A record's seal and what it covers; no record is shorter.
const HEAD_BYTES: usize = SEAL.record_bytes(Identity::BYTES);

/// What went over the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) writes: u64,
    pub(crate) written_bytes: u64,
    /// Time that the program waited for it.
    pub(crate) waited_ns: u64,
}

/// Counts accesses without data.
#[derive(Debug, Clone)]
pub(crate) struct Arm {
    disk: Disk,
    /// Where the last access ended.
    at_byte: u64,
    /// When the disk has done what it was asked.
    idle_at_ns: u64,
    /// What the program did meanwhile, without waiting.
    own_ns: u64,
    pub(crate) traffic: Traffic,
}

impl Arm {
    /// A disk at rest.
    pub(crate) fn new(disk: Disk) -> Self {
        let at_byte = u64::MAX;
        Arm { disk, at_byte, idle_at_ns: 0, own_ns: 0, traffic: Traffic::default() }
    }

    /// Tells what the program has done so far without waiting for the disk.
    pub(crate) fn set_own_ns(&mut self, own_ns: u64) {
        self.own_ns = own_ns;
    }

    /// Modelled time.
    pub(crate) fn now_ns(&self) -> u64 {
        self.own_ns + self.traffic.waited_ns
    }

    /// One read, for which the program waits.
    pub(crate) fn read(&mut self, offset_bytes: u64, bytes: u64) {
        self.traffic.reads += 1;
        self.traffic.read_bytes += bytes;
        self.access(offset_bytes, bytes, self.disk.read_ns);
        self.settle();
    }

    /// One write, which goes on while the program runs.
    pub(crate) fn begin_write(&mut self, offset_bytes: u64, bytes: u64) {
        self.settle();
        self.traffic.writes += 1;
        self.traffic.written_bytes += bytes;
        self.access(offset_bytes, bytes, self.disk.write_ns);
    }

    /// Waits until the disk has nothing to do.
    pub(crate) fn settle(&mut self) {
        self.traffic.waited_ns += self.idle_at_ns.saturating_sub(self.now_ns());
    }

    fn access(&mut self, offset_bytes: u64, bytes: u64, latency_ns: u64) {
        let is_next = offset_bytes.abs_diff(self.at_byte) <= NEAR_BYTES;
        let latency_ns = if is_next { self.disk.next_ns } else { latency_ns };
        let began_ns = self.idle_at_ns.max(self.now_ns());
        self.idle_at_ns = began_ns + latency_ns + self.disk.transfer_ns(bytes);
        self.at_byte = offset_bytes + bytes;
    }
}

/// Blocks of a modelled disk. Copies are the same disk.
#[derive(Debug, Clone)]
pub(crate) struct DiskBlocks(Rc<RefCell<Contents>>);

#[derive(Debug)]
struct Contents {
    arm: Arm,
    /// By their numbers.
    clusters: Vec<Cluster>,
}

/// What is kept of a cluster.
#[derive(Debug, Clone, Default)]
struct Cluster {
    /// How its records begin, ascending.
    heads: Vec<Head>,
    /// How much of it was written.
    written_bytes: usize,
}

/// All of a record that anybody looks at.
#[derive(Debug, Clone, Copy)]
struct Head {
    /// Where it lies in the cluster.
    at_byte: usize,
    bytes: [u8; HEAD_BYTES],
}

impl DiskBlocks {
    /// An empty disk.
    pub(crate) fn new(disk: Disk) -> Self {
        let contents = Contents { arm: Arm::new(disk), clusters: Vec::new() };
        DiskBlocks(Rc::new(RefCell::new(contents)))
    }

    /// What went over it so far.
    pub(crate) fn traffic(&self) -> Traffic {
        self.0.borrow().arm.traffic
    }

    /// See [`Arm::set_own_ns`].
    pub(crate) fn set_own_ns(&self, own_ns: u64) {
        self.0.borrow_mut().arm.set_own_ns(own_ns);
    }

    /// Modelled time.
    pub(crate) fn now_ns(&self) -> u64 {
        self.0.borrow().arm.now_ns()
    }
}

impl Contents {
    /// The cluster at an offset, and where in it that is.
    fn cluster(&mut self, offset_bytes: u64) -> (&mut Cluster, usize) {
        let number = offset_bytes as usize / CLUSTER_BYTES;
        if number >= self.clusters.len() {
            self.clusters.resize(number + 1, Cluster::default());
        }
        (&mut self.clusters[number], offset_bytes as usize % CLUSTER_BYTES)
    }

    /// Begins a write; its data are there at once.
    fn begin_write(&mut self, offset_bytes: u64, bytes: usize) {
        self.arm.begin_write(offset_bytes, bytes as u64);
        let (cluster, at_byte) = self.cluster(offset_bytes);
        cluster.written_bytes = cluster.written_bytes.max(at_byte + bytes);
    }
}

impl Cluster {
    /// Nothing is known of it any more.
    fn clear(&mut self) {
        self.heads.clear();
        self.written_bytes = 0;
    }

    /// Fills in what was written from `at_byte` on, as far as `data` reaches.
    fn read(&self, at_byte: usize, data: &mut [u8]) {
        let end_byte = self.written_bytes.min(at_byte + data.len());
        let first = self.heads.partition_point(|head| head.at_byte < at_byte);
        let is_there = |head: &&Head| head.at_byte + HEAD_BYTES <= end_byte;
        for head in self.heads[first..].iter().take_while(is_there) {
            data[head.at_byte - at_byte..][..HEAD_BYTES].copy_from_slice(&head.bytes);
        }
    }
}

impl Blocks for DiskBlocks {
    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> Result<(), Errno> {
        let mut disk = self.0.borrow_mut();
        disk.begin_write(offset_bytes, data.len());
        disk.arm.settle();
        Ok(())
    }

    fn gathered(&self, offset_bytes: u64, record: &[u8]) {
        let mut disk = self.0.borrow_mut();
        let (cluster, at_byte) = disk.cluster(offset_bytes);
        if at_byte == 0 {
            cluster.clear();
        }
        debug_assert!(cluster.heads.last().is_none_or(|last| last.at_byte < at_byte));
        let bytes = *record.first_chunk().expect("no record is shorter");
        cluster.heads.push(Head { at_byte, bytes });
    }

    unsafe fn begin_write(&self, offset_bytes: u64, data: &[u8]) -> Result<bool, Errno> {
        self.0.borrow_mut().begin_write(offset_bytes, data.len());
        Ok(true)
    }

    fn settle(&self) -> Result<(), Errno> {
        self.0.borrow_mut().arm.settle();
        Ok(())
    }

    fn is_writing(&self) -> bool {
        let arm = &self.0.borrow().arm;
        arm.idle_at_ns > arm.now_ns()
    }

    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        let mut disk = self.0.borrow_mut();
        disk.arm.read(offset_bytes, data.len() as u64);
        let (cluster, at_byte) = disk.cluster(offset_bytes);
        cluster.read(at_byte, data);
        Ok(())
    }

    fn punch(&self, offset_bytes: u64, bytes: u64) {
        debug_assert!(offset_bytes.is_multiple_of(BLOCK_BYTES as u64));
        let cluster_bytes = CLUSTER_BYTES as u64;
        let whole = offset_bytes.div_ceil(cluster_bytes)..(offset_bytes + bytes) / cluster_bytes;
        let mut disk = self.0.borrow_mut();
        for cluster in whole {
            if let Some(punched) = disk.clusters.get_mut(cluster as usize) {
                punched.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::DISKS;

    /// A read of a block: how records begin that lie at some of its bytes.
    fn heads(blocks: &DiskBlocks, offset_bytes: u64, at_bytes: [usize; 2]) -> [u8; 2] {
        let mut block = [0; BLOCK_BYTES];
        blocks.read_at(offset_bytes, &mut block).expect("read");
        at_bytes.map(|at| block[at])
    }

    #[test]
    fn records_come_back_and_time_passes() {
        let disk = DISKS[1];
        let blocks = DiskBlocks::new(disk);
        let cluster_bytes = CLUSTER_BYTES as u64;
        let ats = [0, 400, BLOCK_BYTES - HEAD_BYTES, BLOCK_BYTES];
        for (at, tag) in ats.into_iter().zip(1..) {
            blocks.gathered(cluster_bytes + at as u64, &[tag; 5 * HEAD_BYTES]);
        }
        assert_eq!(heads(&blocks, cluster_bytes, [0, 400]), [0; 2], "not written so far");
        blocks.write_at(cluster_bytes, &[0; 2 * BLOCK_BYTES]).expect("written");
        assert_eq!(heads(&blocks, cluster_bytes, [0, 400]), [1, 2]);
        assert_eq!(heads(&blocks, cluster_bytes, [0, ats[2]]), [1, 3]);
        assert_eq!(heads(&blocks, cluster_bytes + BLOCK_BYTES as u64, [0, 400]), [4, 0]);
        let block_ns = disk.transfer_ns(BLOCK_BYTES as u64);
        let write_ns = disk.next_ns + disk.transfer_ns(2 * BLOCK_BYTES as u64);
        let traffic = blocks.traffic();
        let reads_ns = disk.read_ns + 3 * disk.next_ns + 4 * block_ns;
        assert_eq!(traffic.waited_ns, reads_ns + write_ns);
        assert_eq!((traffic.reads, traffic.writes), (4, 1));
        assert_eq!((traffic.read_bytes, traffic.written_bytes), (4 * 4096, 8192));
        blocks.punch(0, 2 * cluster_bytes);
        assert_eq!(heads(&blocks, cluster_bytes, [0, 400]), [0; 2]);
    }

    #[test]
    fn a_cluster_in_its_next_life_has_nothing_of_the_one_before() {
        let blocks = DiskBlocks::new(DISKS[1]);
        for (at, tag) in [(0, 1), (400, 2)] {
            blocks.gathered(at, &[tag; HEAD_BYTES]);
        }
        blocks.write_at(0, &[0; BLOCK_BYTES]).expect("written");
        blocks.gathered(0, &[3; HEAD_BYTES]);
        assert_eq!(heads(&blocks, 0, [0, 400]), [0; 2], "not written so far");
        blocks.write_at(0, &[0; BLOCK_BYTES]).expect("written");
        assert_eq!(heads(&blocks, 0, [0, 400]), [3, 0]);
    }

    #[test]
    fn a_write_goes_on_until_the_disk_is_wanted_again() {
        let disk = DISKS[1];
        let mut arm = Arm::new(disk);
        let write_ns = disk.write_ns + disk.transfer_ns(1 << 20);
        arm.begin_write(0, 1 << 20);
        assert_eq!((arm.now_ns(), arm.traffic.waited_ns), (0, 0));
        // Half of it goes by while the program works.
        arm.set_own_ns(write_ns / 2);
        arm.read(1 << 40, 4096);
        let read_ns = disk.read_ns + disk.transfer_ns(4096);
        assert_eq!(arm.now_ns(), write_ns + read_ns);
        arm.begin_write(0, 1 << 20);
        arm.set_own_ns(10 * write_ns);
        arm.settle();
        assert_eq!(arm.traffic.waited_ns, write_ns - write_ns / 2 + read_ns);
    }
}
