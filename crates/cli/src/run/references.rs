//! Giving back what processes of a run held of the store that ended without doing so, or became
//! other programs, and the disk's blocks of what is free in it.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

use rustix::fs::FallocateFlags;
use rustix::mm::{MapFlags, ProtFlags};
use zpager_store::{Blocks, CLUSTER_BYTES, Clusters, Errno, References, Stores};

use super::stores::{OpenServer, OpenStore, OpenStores};

/// How long the supervisor gives space back before it looks after other things.
const PUNCHING_MAX: Duration = Duration::from_millis(5);

impl OpenStores {
    /// Gives back what the process in slot `process` has noted; only forgets it where another
    /// process may use it still.
    pub(crate) fn give_back(&self, process: usize, is_lent: bool) {
        let (offset, bytes) = References::place(self.limit_bytes, process);
        let Ok(table) = Mapped::new(&self.clusters, offset, bytes) else {
            // The space is lost to the run.
            return;
        };
        // SAFETY: the file was made to hold so many words, and the agents only ever use them as
        // atomics.
        let table = unsafe { table.words::<AtomicU32>() };
        let references = References::new(table);
        match is_lent {
            true => references.forget(),
            false => references.give_back(self.map.clusters(), &self.holes()),
        }
    }

    /// Has the disk have back what is free and was written before, for a little while; whether more is left.
    pub(crate) fn punch_free(&self) -> bool {
        let began = Instant::now();
        let goes_on = || began.elapsed() < PUNCHING_MAX;
        self.map.clusters().punch_free(&self.holes(), goes_on)
    }

    /// The stores, as one who only gives space back uses them.
    fn holes(&self) -> Stores<'_, OneOfRow<'_>> {
        let files = self.row.iter();
        let mut row: Vec<_> =
            files.map(|store| (store.limit_bytes, OneOfRow::File(Holes(store)))).collect();
        for server in &self.servers {
            let limit_bytes = server.remote.limit_bytes();
            row.insert(server.place, (limit_bytes, OneOfRow::Server(Worthless(server))));
        }
        Stores::new(self.map.clusters(), row)
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

/// What the agents know of the clusters ([`Clusters::new`]).
#[derive(Debug)]
pub(super) struct ClusterMap(Mapped);

impl ClusterMap {
    /// The map in a new file. Where there are servers the blocks of a cluster are given back as soon as it is free,
    /// as a server's are paid for, else later, by [`OpenStores::punch_free`].
    pub(super) fn begin(
        file: &OwnedFd,
        limit_bytes: u64,
        has_servers: bool,
    ) -> rustix::io::Result<Self> {
        let bytes = Clusters::words_for(limit_bytes) * size_of::<AtomicU64>();
        let map = ClusterMap(Mapped::new(file, 0, bytes)?);
        match has_servers {
            true => map.clusters().keep_none(),
            false => map.clusters().punch_later(),
        }
        Ok(map)
    }

    fn clusters(&self) -> Clusters<'_> {
        // SAFETY: the file was made to hold so many words, and the agents only ever use them as atomics.
        Clusters::new(unsafe { self.0.words() })
    }
}

/// A part of a file, mapped and shared.
#[derive(Debug)]
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

    /// What is mapped, as words.
    ///
    /// # Safety
    /// The file is as long, and everybody uses it as such atomic words.
    unsafe fn words<T>(&self) -> &[T] {
        // SAFETY: mapped, and aligned to a page; the rest is the caller's promise.
        unsafe {
            std::slice::from_raw_parts(self.start.as_ptr().cast(), self.bytes / size_of::<T>())
        }
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
        let clusters = store.map.clusters();
        let [first, second] = [0, 1].map(|_| clusters.claim().expect("a free cluster"));
        clusters.publish(first, 3);
        clusters.publish(second, 5);
        for (process, is_lent) in [(1023, false), (4, true)] {
            let (offset, bytes) = References::place(limit_bytes, process);
            let table = Mapped::new(&store.clusters, offset, bytes).expect("mapped");
            // SAFETY: the file was made to hold so many words.
            let table = unsafe { table.words::<AtomicU32>() };
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
