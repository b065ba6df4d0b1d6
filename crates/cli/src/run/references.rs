//! Giving back what processes of a run held of the store that ended without doing so, or became
//! other programs.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::FallocateFlags;
use rustix::mm::{MapFlags, ProtFlags};
use zpager_store::{Blocks, Clusters, Errno, References};

use super::store_file::StoreFile;

impl StoreFile {
    /// Gives back what the process in slot `process` has noted; only forgets it where another
    /// process may use it still.
    pub(crate) fn give_back(&self, process: usize, is_lent: bool) {
        let words = Clusters::words_for(self.limit_bytes);
        let (offset, bytes) = References::place(self.limit_bytes, process);
        let clusters = Mapped::new(&self.clusters, 0, words * size_of::<AtomicU64>());
        let (Ok(clusters), Ok(table)) = (clusters, Mapped::new(&self.clusters, offset, bytes))
        else {
            // The space is lost to the run.
            return;
        };
        // SAFETY: the file was made to hold so many words, and the agents only ever use them as
        // atomics.
        let (clusters, table) = unsafe {
            (
                std::slice::from_raw_parts(clusters.start.as_ptr().cast::<AtomicU64>(), words),
                std::slice::from_raw_parts(
                    table.start.as_ptr().cast::<AtomicU32>(),
                    bytes / size_of::<AtomicU32>(),
                ),
            )
        };
        let references = References::new(table);
        match is_lent {
            true => references.forget(),
            false => references.give_back(Clusters::new(clusters), &Holes(&self.file)),
        }
    }
}

/// The swap file, as one who only gives space back uses it.
struct Holes<'a>(&'a OwnedFd);

impl Blocks for Holes<'_> {
    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), Errno> {
        Err(Errno(libc::EBADF))
    }
    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<(), Errno> {
        Err(Errno(libc::EBADF))
    }
    fn punch(&self, offset_bytes: u64, bytes: u64) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // A file system that cannot keeps the space until the cluster is written again.
        let _ = rustix::fs::fallocate(self.0, flags, offset_bytes, bytes);
    }
}

/// A part of a file, mapped and shared.
struct Mapped {
    start: NonNull<u8>,
    bytes: usize,
}

impl Mapped {
    fn new(file: &OwnedFd, offset: u64, bytes: usize) -> rustix::io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let anywhere = std::ptr::null_mut();
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe {
            rustix::mm::mmap(anywhere, bytes, protection, MapFlags::SHARED, file, offset)
        }?;
        let start = NonNull::new(start.cast()).expect("mmap gives no null");
        Ok(Mapped { start, bytes })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping is this object's own. Failure would only leave it mapped.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::config::StoreChoice;
    use crate::run::report::Notices;
    use crate::run::store_file;
    use std::sync::atomic::Ordering::Relaxed;
    use zpager_store::CLUSTER_BYTES;

    #[test]
    fn references_of_the_dead_come_back_unless_they_are_lent() {
        let limit_bytes = 8 * CLUSTER_BYTES as u64;
        let choice = StoreChoice::Directory(std::env::temp_dir());
        let store = store_file::open(&choice, Some(limit_bytes), &mut Notices::new(true));
        let store = store.expect("a store").expect("a store");
        let map = |offset, bytes| Mapped::new(&store.clusters, offset, bytes).expect("mapped");
        let words = map(0, Clusters::words_for(limit_bytes) * size_of::<AtomicU64>());
        // SAFETY: within the mapping.
        let clusters = Clusters::new(unsafe {
            std::slice::from_raw_parts(
                words.start.as_ptr().cast(),
                Clusters::words_for(limit_bytes),
            )
        });
        let [first, second] = [0, 1].map(|_| clusters.claim().expect("a free cluster"));
        clusters.publish(first, 3);
        clusters.publish(second, 5);
        for (process, is_lent) in [(1023, false), (4, true)] {
            let (offset, bytes) = References::place(limit_bytes, process);
            let table = map(offset, bytes);
            // SAFETY: within the mapping.
            let table: &[AtomicU32] =
                unsafe { std::slice::from_raw_parts(table.start.as_ptr().cast(), bytes / 4) };
            let references = References::new(table);
            references.note(second, 2);
            references.note(first, 3);
            store.give_back(process, is_lent);
            assert!(table.iter().all(|word| word.load(Relaxed) == 0));
            assert_eq!((clusters.references(first), clusters.references(second)), (0, 3));
        }
        assert_eq!(clusters.used_clusters(), 1);
    }
}
