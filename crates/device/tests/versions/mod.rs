//! Blocks of which each version can be told, and a device that has most of them in its store.

use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::AtomicU64;

use zpager_cache::Store;
use zpager_device::{Arena, Device, Setup, SwapFile};
use zpager_policy::{DesignId, Settings};
use zpager_store::{Clusters, Stores};

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const BLOCK_BYTES: u64 = 4096;
pub(crate) const BLOCKS: u64 = 24 * MIB / BLOCK_BYTES;
/// Blocks that are wanted again soon, so that some of them go back to the pool.
pub(crate) const WARM_BLOCKS: u64 = 3 * MIB / BLOCK_BYTES;
const STORE_BYTES: u64 = 64 * MIB;

pub(crate) type Swap = Device<Arena, Stores<'static, SwapFile>>;

pub(crate) fn device(id: DesignId) -> Swap {
    let words = (0..Clusters::words_for(STORE_BYTES)).map(|_| AtomicU64::new(0));
    let clusters = Clusters::new(words.collect::<Vec<_>>().leak());
    let blocks = Stores::new(clusters, [(STORE_BYTES, SwapFile::new(store_file(), 0))]);
    let setup = Setup {
        size_bytes: BLOCKS * BLOCK_BYTES,
        memory_bytes: 10 * MIB,
        memory_bytes_max: 10 * MIB,
        ahead_bytes: None,
        settings: Settings::of(id),
    };
    Device::new(Arena, &setup, Some(Store { blocks, clusters })).expect("address space")
}

/// A file without a name, of which each read is the disk's where that can be, and takes its time.
pub(crate) fn store_file() -> OwnedFd {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store");
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    let direct = options.clone().custom_flags(libc::O_DIRECT).open(&path);
    direct.or_else(|_| options.open(&path)).expect("a file").into()
}

/// What a block is in a version of it, which its first word tells: mostly noise. Zeros are the first.
pub(crate) fn fill(data: &mut [u8], block: u64, version: u32) {
    let mut noise = fastrand::Rng::with_seed(block << 32 | u64::from(version));
    noise.fill(data);
    data[..4].copy_from_slice(&version.to_le_bytes());
    // Some shrink a little.
    data[3000..].fill(block as u8);
    if version == 0 {
        data.fill(0);
    }
}

/// The version that a block is, all of it.
pub(crate) fn version_of(data: &[u8], block: u64) -> u32 {
    let version = u32::from_le_bytes(*data.first_chunk().expect("a block"));
    let mut expected = vec![0; BLOCK_BYTES as usize];
    fill(&mut expected, block, version);
    assert!(data == expected, "block {block} is no version of it");
    version
}
