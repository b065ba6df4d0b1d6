//! What lies behind the store of a run: stores in a row, of which a server's memory may be one; or that
//! alone, of which a file may have a second copy.
//!
//! Of two copies one is enough for a write to have succeeded, and the server's is read first. What
//! it does not have, or does not give while it is gone, comes from the file.
//!
//! Bad for: two copies on a disk that is slower than the server; each write waits for both.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use zpager_store::{Blocks, Errno};
use zpager_wire::STORES_MAX;

use crate::own::{OneStore, OwnStores, SwapFile};
use crate::remote::RemoteMemory;

/// The kinds.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a process has one, and no allocator")]
pub(crate) enum AnyBlocks {
    Row(OwnStores),
    /// With a mirror, which has the second copy.
    Remote(RemoteMemory, Option<SwapFile>),
}

/// Which of the two writes of mirrored blocks go on: the server's, the file's; and whether one is done.
static GOES_ON: [AtomicBool; 2] = [AtomicBool::new(false), AtomicBool::new(false)];
static IS_DONE: AtomicBool = AtomicBool::new(false);

/// What stands for the outcome of a write that was not begun.
const NOT_BEGUN: Errno = Errno(0);

impl AnyBlocks {
    /// In a forked child: no write goes on, and the parent's ways of writing are not there.
    pub(crate) fn become_copy() {
        SwapFile::become_copy();
        RemoteMemory::become_copy();
        GOES_ON.iter().for_each(|goes_on| goes_on.store(false, Relaxed));
    }

    /// The descriptors of all files; -1 where there are none.
    pub(crate) fn file_descriptors(&self) -> [i32; STORES_MAX] {
        let mut descriptors = [-1; STORES_MAX];
        match self {
            AnyBlocks::Row(stores) => {
                for (descriptor, store) in descriptors.iter_mut().zip(stores.blocks()) {
                    if let OneStore::File(file) = store {
                        *descriptor = file.fd.0;
                    }
                }
            }
            AnyBlocks::Remote(_, mirror) => {
                descriptors[0] = mirror.map_or(-1, |mirror| mirror.fd.0);
            }
        }
        descriptors
    }

    /// The store that failed, and why, where another one took over and this was not asked since.
    pub(crate) fn take_failure(&self) -> Option<(usize, Errno)> {
        match self {
            AnyBlocks::Row(stores) => stores.take_failure(),
            AnyBlocks::Remote(..) => None,
        }
    }
}

impl Blocks for AnyBlocks {
    unsafe fn begin_write(&self, offset_bytes: u64, data: &[u8]) -> Result<bool, Errno> {
        // SAFETY: the caller's promise, here and below.
        unsafe {
            match self {
                AnyBlocks::Row(stores) => stores.begin_write(offset_bytes, data),
                AnyBlocks::Remote(remote, None) => remote.begin_write(offset_bytes, data),
                AnyBlocks::Remote(remote, Some(file)) => {
                    let begun = [
                        remote.begin_write(offset_bytes, data),
                        file.begin_write(offset_bytes, data),
                    ];
                    for (goes_on, begun) in GOES_ON.iter().zip(begun) {
                        goes_on.store(begun == Ok(true), Relaxed);
                    }
                    IS_DONE.store(begun.contains(&Ok(false)), Relaxed);
                    either(begun).map(|_| begun.contains(&Ok(true)))
                }
            }
        }
    }
    fn settle(&self) -> Result<(), Errno> {
        match self {
            AnyBlocks::Row(stores) => stores.settle(),
            AnyBlocks::Remote(remote, None) => remote.settle(),
            AnyBlocks::Remote(remote, Some(file)) => {
                let goes_on = GOES_ON.each_ref().map(|goes_on| goes_on.swap(false, Relaxed));
                let settled = [
                    if goes_on[0] { remote.settle() } else { Err(NOT_BEGUN) },
                    if goes_on[1] { file.settle() } else { Err(NOT_BEGUN) },
                ];
                if IS_DONE.load(Relaxed) { Ok(()) } else { either(settled) }
            }
        }
    }
    fn is_writing(&self) -> bool {
        match self {
            AnyBlocks::Row(stores) => stores.is_writing(),
            AnyBlocks::Remote(remote, None) => remote.is_writing(),
            AnyBlocks::Remote(remote, Some(file)) => {
                let goes_on = GOES_ON.each_ref().map(|goes_on| goes_on.load(Relaxed));
                goes_on[0] && remote.is_writing() || goes_on[1] && file.is_writing()
            }
        }
    }
    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> Result<(), Errno> {
        match self {
            AnyBlocks::Row(stores) => stores.write_at(offset_bytes, data),
            AnyBlocks::Remote(remote, None) => remote.write_at(offset_bytes, data),
            AnyBlocks::Remote(remote, Some(file)) => {
                either([remote.write_at(offset_bytes, data), file.write_at(offset_bytes, data)])
            }
        }
    }
    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        match self {
            AnyBlocks::Row(stores) => stores.read_at(offset_bytes, data),
            AnyBlocks::Remote(remote, None) => remote.read_at(offset_bytes, data),
            AnyBlocks::Remote(remote, Some(file)) => {
                remote.read_if_up(offset_bytes, data).or_else(|_| file.read_at(offset_bytes, data))
            }
        }
    }
    fn punch(&self, offset_bytes: u64, bytes: u64) {
        match self {
            AnyBlocks::Row(stores) => stores.punch(offset_bytes, bytes),
            AnyBlocks::Remote(remote, mirror) => {
                remote.punch(offset_bytes, bytes);
                if let Some(file) = mirror {
                    file.punch(offset_bytes, bytes);
                }
            }
        }
    }
}

/// What succeeded of two, or why the second did not, or the first where that was not begun.
fn either<T>([first, second]: [Result<T, Errno>; 2]) -> Result<T, Errno> {
    first.or_else(|error| second.map_err(|last| if last == NOT_BEGUN { error } else { last }))
}
