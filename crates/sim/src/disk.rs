//! A disk that keeps what is written to it and counts what that would take.
//!
//! An access costs the disk's latency, less where it begins near to where the last one ended because
//! the disk has read on or need not move, and its transfer. The disk does one thing at a time. The
//! program waits for a read and for the write before it; while a write goes on it runs, until it wants
//! the disk again.

use std::cell::RefCell;
use std::rc::Rc;

use zpager_store::{BLOCK_BYTES, Blocks, CLUSTER_BYTES, Errno};

use crate::cost::Disk;

/// What begins so near to where the last access ended goes on with it.
const NEAR_BYTES: u64 = 64 << 10;

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
    /// Clusters that were written and not punched since.
    clusters: Vec<Option<Box<[u8; CLUSTER_BYTES]>>>,
    /// What punched ones leave, for others.
    spare: Vec<Box<[u8; CLUSTER_BYTES]>>,
}

impl DiskBlocks {
    /// An empty disk.
    pub(crate) fn new(disk: Disk) -> Self {
        let contents = Contents { arm: Arm::new(disk), clusters: Vec::new(), spare: Vec::new() };
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
    /// The rest of the cluster at an offset; made where there is none, with any bytes.
    fn cluster(&mut self, offset_bytes: u64) -> &mut [u8] {
        let number = offset_bytes as usize / CLUSTER_BYTES;
        if number >= self.clusters.len() {
            self.clusters.resize_with(number + 1, || None);
        }
        let spare = &mut self.spare;
        let cluster =
            self.clusters[number].get_or_insert_with(|| spare.pop().unwrap_or_else(zeroed));
        &mut cluster[offset_bytes as usize % CLUSTER_BYTES..]
    }

    /// Begins a write; its data are there at once.
    fn put(&mut self, offset_bytes: u64, data: &[u8]) {
        self.arm.begin_write(offset_bytes, data.len() as u64);
        self.each_part(offset_bytes, data.len(), |part, at| {
            part.copy_from_slice(&data[at..at + part.len()]);
        });
    }

    /// Goes over the parts of a range that lie in one cluster each.
    fn each_part(
        &mut self,
        offset_bytes: u64,
        bytes: usize,
        mut act: impl FnMut(&mut [u8], usize),
    ) {
        let mut done = 0;
        while done < bytes {
            let part = self.cluster(offset_bytes + done as u64);
            let step = part.len().min(bytes - done);
            act(&mut part[..step], done);
            done += step;
        }
    }
}

fn zeroed() -> Box<[u8; CLUSTER_BYTES]> {
    vec![0; CLUSTER_BYTES].into_boxed_slice().try_into().expect("a cluster's length")
}

impl Blocks for DiskBlocks {
    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> Result<(), Errno> {
        let mut disk = self.0.borrow_mut();
        disk.put(offset_bytes, data);
        disk.arm.settle();
        Ok(())
    }

    unsafe fn begin_write(&self, offset_bytes: u64, data: &[u8]) -> Result<bool, Errno> {
        self.0.borrow_mut().put(offset_bytes, data);
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
        disk.each_part(offset_bytes, data.len(), |part, at| {
            data[at..at + part.len()].copy_from_slice(part);
        });
        Ok(())
    }

    fn punch(&self, offset_bytes: u64, bytes: u64) {
        debug_assert!(offset_bytes.is_multiple_of(BLOCK_BYTES as u64));
        let cluster_bytes = CLUSTER_BYTES as u64;
        let whole = offset_bytes.div_ceil(cluster_bytes)..(offset_bytes + bytes) / cluster_bytes;
        let mut disk = self.0.borrow_mut();
        for cluster in whole {
            let punched = disk.clusters.get_mut(cluster as usize).and_then(Option::take);
            disk.spare.extend(punched);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::DISKS;

    #[test]
    fn data_comes_back_and_time_passes() {
        let disk = DISKS[1];
        let blocks = DiskBlocks::new(disk);
        let data: Vec<u8> = (0..3 * BLOCK_BYTES).map(|at| at as u8).collect();
        let offset_bytes = (CLUSTER_BYTES - BLOCK_BYTES) as u64;
        blocks.write_at(offset_bytes, &data).expect("written");
        blocks.write_at(offset_bytes + data.len() as u64, &data).expect("written");
        let mut back = vec![0; data.len()];
        blocks.read_at(offset_bytes + CLUSTER_BYTES as u64, &mut back).expect("read");
        blocks.read_at(offset_bytes, &mut back).expect("read");
        assert_eq!(back, data);
        let transfer_ns = 4 * disk.transfer_ns(data.len() as u64);
        let traffic = blocks.traffic();
        assert_eq!(
            traffic.waited_ns,
            disk.write_ns + disk.next_ns + 2 * disk.read_ns + transfer_ns
        );
        assert_eq!((traffic.reads, traffic.writes), (2, 2));
        assert_eq!((traffic.read_bytes, traffic.written_bytes), (24576, 24576));
        blocks.punch(0, 2 * CLUSTER_BYTES as u64);
        assert_eq!(blocks.0.borrow().spare.len(), 2);
        blocks.write_at(0, &data).expect("written");
        blocks.read_at(0, &mut back).expect("read");
        assert_eq!((back, blocks.0.borrow().spare.len()), (data, 1));
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
