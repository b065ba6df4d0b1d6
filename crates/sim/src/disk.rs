//! A disk that keeps what is written to it and counts what that would take.
//!
//! An access costs the disk's latency, less where it begins near to where the last one ended because
//! the disk has read on or need not move, and its transfer. One access at a time: the engine waits
//! for each.

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
    /// Time that it took.
    pub(crate) busy_ns: u64,
}

/// Counts accesses without data.
#[derive(Debug)]
pub(crate) struct Arm {
    disk: Disk,
    /// Where the last access ended.
    at_byte: u64,
    pub(crate) traffic: Traffic,
}

impl Arm {
    /// A disk at rest.
    pub(crate) fn new(disk: Disk) -> Self {
        Arm { disk, at_byte: u64::MAX, traffic: Traffic::default() }
    }

    /// One read.
    pub(crate) fn read(&mut self, offset_bytes: u64, bytes: u64) {
        self.traffic.reads += 1;
        self.traffic.read_bytes += bytes;
        self.access(offset_bytes, bytes, self.disk.read_ns);
    }

    /// One write.
    pub(crate) fn write(&mut self, offset_bytes: u64, bytes: u64) {
        self.traffic.writes += 1;
        self.traffic.written_bytes += bytes;
        self.access(offset_bytes, bytes, self.disk.write_ns);
    }

    fn access(&mut self, offset_bytes: u64, bytes: u64, latency_ns: u64) {
        let is_next = offset_bytes.abs_diff(self.at_byte) <= NEAR_BYTES;
        let latency_ns = if is_next { self.disk.next_ns } else { latency_ns };
        self.traffic.busy_ns += latency_ns + self.disk.transfer_ns(bytes);
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
        disk.arm.write(offset_bytes, data.len() as u64);
        disk.each_part(offset_bytes, data.len(), |part, at| {
            part.copy_from_slice(&data[at..at + part.len()]);
        });
        Ok(())
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
        assert_eq!(traffic.busy_ns, disk.write_ns + disk.next_ns + 2 * disk.read_ns + transfer_ns);
        assert_eq!((traffic.reads, traffic.writes), (2, 2));
        assert_eq!((traffic.read_bytes, traffic.written_bytes), (24576, 24576));
        blocks.punch(0, 2 * CLUSTER_BYTES as u64);
        assert_eq!(blocks.0.borrow().spare.len(), 2);
        blocks.write_at(0, &data).expect("written");
        blocks.read_at(0, &mut back).expect("read");
        assert_eq!((back, blocks.0.borrow().spare.len()), (data, 1));
    }
}
