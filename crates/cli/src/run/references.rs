//! Giving back what processes of a run held of the store that ended without doing so, or became
//! other programs.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::FallocateFlags;
use rustix::mm::{MapFlags, ProtFlags};
use zpager_store::{Blocks, CLUSTER_BYTES, Clusters, Errno, References, Stores};

use super::stores::{OpenServer, OpenStore, OpenStores};

impl OpenStores {
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
            false => {
                let clusters = Clusters::new(clusters);
                let files = self.row.iter();
                let mut row: Vec<_> =
                    files.map(|store| (store.limit_bytes, OneOfRow::File(Holes(store)))).collect();
                for server in &self.servers {
                    let limit_bytes = server.remote.limit_bytes();
                    row.insert(server.place, (limit_bytes, OneOfRow::Server(Worthless(server))));
                }
                references.give_back(clusters, &Stores::new(clusters, row));
            }
        }
    }
}

/// A store, as one who only gives space back uses it.
struct Holes<'a>(&'a OpenStore);

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
        let at = self.0.start_bytes + offset_bytes;
        let _ = rustix::fs::fallocate(&self.0.file, flags, at, bytes);
    }
}

/// A server's memory and its mirror in the same way.
struct Worthless<'a>(&'a OpenServer);

impl Blocks for Worthless<'_> {
    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), Errno> {
        Err(Errno(libc::EBADF))
    }
    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<(), Errno> {
        Err(Errno(libc::EBADF))
    }
    fn punch(&self, offset_bytes: u64, bytes: u64) {
        self.0.remote.requests().discard((offset_bytes / CLUSTER_BYTES as u64) as u32);
        if let Some(mirror) = &self.0.mirror {
            Holes(mirror).punch(offset_bytes, bytes);
        }
    }
}

/// One of several stores in the same way.
enum OneOfRow<'a> {
    File(Holes<'a>),
    Server(Worthless<'a>),
}

impl Blocks for OneOfRow<'_> {
    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), Errno> {
        Err(Errno(libc::EBADF))
    }
    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<(), Errno> {
        Err(Errno(libc::EBADF))
    }
    fn punch(&self, offset_bytes: u64, bytes: u64) {
        match self {
            OneOfRow::File(holes) => holes.punch(offset_bytes, bytes),
            OneOfRow::Server(worthless) => worthless.punch(offset_bytes, bytes),
        }
    }
}

/// The clusters of a new map are never kept once they are free.
pub(super) fn keep_none(clusters: &OwnedFd, limit_bytes: u64) -> rustix::io::Result<()> {
    let words = Clusters::words_for(limit_bytes);
    let mapped = Mapped::new(clusters, 0, words * size_of::<AtomicU64>())?;
    // SAFETY: the file was made to hold so many words.
    let words = unsafe { std::slice::from_raw_parts(mapped.start.as_ptr().cast(), words) };
    Clusters::new(words).keep_none();
    Ok(())
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
    use crate::run::report::Notices;
    use crate::run::stores::choice::{StoreChoice, Wanted};
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn references_of_the_dead_come_back_unless_they_are_lent() {
        let limit_bytes = 8 * CLUSTER_BYTES as u64;
        let choice = StoreChoice::Named(vec![Wanted::plain(std::env::temp_dir())]);
        let store = crate::run::stores::open(&choice, Some(limit_bytes), &mut Notices::new(true));
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
