//! What reads from the store will take, measured before there is one.
//!
//! `default` weighs resident memory against the pool by what a page takes, and while all fits the pool nothing else
//! tells: without it a disk that seeks for 8 ms is taken for one that answers in 0.1. By what a cluster takes beside
//! that it knows such a disk from the first read on. A swap file is empty then. So a few blocks are read, past the page
//! cache, of another file of the same file system: zpager's executable or the program's, else one that is written for
//! it; of a device, from itself. Of a server it is known from the read by which it was tried.
//!
//! Source: [`zpager_policy::Split`] and [`zpager_policy::Seeks`] for what is done with it.
//!
//! Bad case: a file system without an executable on a disk that still has in its own memory what was just
//! written. What is said is corrected by the first reads from the store.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;

use libc::pid_t;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::rand::{GetRandomFlags, getrandom};
use zpager_remote::{ReadTime, ReadsBegan};
use zpager_store::{BLOCK_BYTES, CLUSTER_BYTES};
use zpager_wire::ExpectedReads;

use super::{Block, OpenStores, file};

/// Reads of a block, one after the other: so many that a disk of few operations a second shows it, which may
/// let the first ones pass. Fewer do where they take long, and of clusters, which are read after them.
const READS_MAX: u64 = 32;
const READS_MIN: u64 = 5;
const ENOUGH_NS: u64 = 50_000_000;
/// What is smaller may lie in one track, or in the disk's own memory as a whole.
const SOURCE_BYTES: u64 = 1 << 20;
/// The stack of a thread that has one block on it.
const STACK_BYTES: usize = 64 << 10;

/// What reads take.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ReadTimes {
    page: ReadTime,
    /// Of a whole cluster.
    cluster: ReadTime,
}

/// The measurement of one run.
#[derive(Debug)]
pub(crate) enum Probe {
    /// Nothing was asked for.
    Idle,
    /// A thread measures.
    Measuring(Receiver<ReadTimes>),
    /// It was told, or cannot be had.
    Told(ReadTimes),
}

impl Probe {
    /// Measures the store that is filled first: begins to at the first call, and writes to `expected`
    /// what came of it as soon as that is known. `program` runs.
    pub(crate) fn step(&mut self, stores: &OpenStores, program: pid_t, expected: &ExpectedReads) {
        *self = match self {
            Probe::Idle => Probe::begin(stores, program),
            Probe::Measuring(outcome) => match outcome.try_recv() {
                Err(TryRecvError::Empty) => return,
                outcome => Probe::Told(outcome.unwrap_or_default()),
            },
            Probe::Told(_) => return,
        };
        if let Probe::Told(told) = self {
            expected.page_ticks.store(told.page.ticks, Relaxed);
            expected.cluster_ticks.store(told.cluster.ticks, Relaxed);
        }
    }

    fn begin(stores: &OpenStores, program: pid_t) -> Self {
        match stores.first_server() {
            Some(server) => {
                let page = server.remote.read_time();
                Probe::Told(ReadTimes { page, ..ReadTimes::default() })
            }
            None => Disk::of(stores, program)
                .and_then(measure)
                .map_or(Probe::Told(ReadTimes::default()), Probe::Measuring),
        }
    }

    /// What was told of a page so far, in nanoseconds; 0 where nothing was.
    pub(crate) fn told_ns(&self) -> u64 {
        match self {
            Probe::Told(told) => told.page.ns,
            Probe::Idle | Probe::Measuring(_) => 0,
        }
    }
}

/// Has a thread measure it, which nobody waits for: a disk may not answer.
fn measure(disk: Disk) -> Option<Receiver<ReadTimes>> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let reader = thread::Builder::new().stack_size(STACK_BYTES);
    let read = move || disk.source()?.measure().map(|measured| sender.send(measured));
    reader.spawn(read).is_ok().then_some(receiver)
}

/// The disk of a store.
#[derive(Debug)]
enum Disk {
    /// It is the store.
    Whole(Source),
    /// A file in this directory is.
    Below { directory: PathBuf, device: u64, program: pid_t },
}

impl Disk {
    /// That of the first store that is no server; `None` where it has a page cache before it.
    fn of(stores: &OpenStores, program: pid_t) -> Option<Self> {
        let store = stores.row.first().filter(|store| store.direct)?;
        if let Some(directory) = store.directory.clone() {
            let device = rustix::fs::fstat(&store.file).ok()?.st_dev;
            return Some(Disk::Below { directory, device, program });
        }
        let file = store.file.try_clone().ok()?;
        let (start_bytes, bytes) = (store.start_bytes, store.limit_bytes);
        Some(Disk::Whole(Source { file, start_bytes, bytes }))
    }

    /// What of it can be read.
    fn source(self) -> Option<Source> {
        match self {
            Disk::Whole(source) => Some(source),
            Disk::Below { directory, device, program } => {
                let executables = ["/proc/self/exe".to_owned(), format!("/proc/{program}/exe")];
                let mut sources = executables.iter().map(|path| Source::beside(device, path));
                sources.find_map(|source| source).or_else(|| Source::written(&directory))
            }
        }
    }
}

/// Blocks that can be read.
#[derive(Debug)]
struct Source {
    file: OwnedFd,
    start_bytes: u64,
    bytes: u64,
}

impl Source {
    /// A file, if it is on that device.
    fn beside(device: u64, path: &str) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        let file = rustix::fs::openat(CWD, path, flags, Mode::empty()).ok()?;
        let found = rustix::fs::fstat(&file).ok()?;
        let bytes = found.st_size.cast_unsigned();
        let is_beside = found.st_dev == device && bytes >= SOURCE_BYTES;
        is_beside.then_some(Source { file, start_bytes: 0, bytes })
    }

    /// A file without a name, of random bytes.
    fn written(directory: &Path) -> Option<Self> {
        let file = file::open_unnamed(directory, OFlags::DIRECT).ok()?;
        let mut block = Block([0; BLOCK_BYTES]);
        getrandom(&mut block.0, GetRandomFlags::empty()).ok()?;
        let blocks = [IoSlice::new(&block.0); SOURCE_BYTES as usize / BLOCK_BYTES];
        let written = rustix::io::pwritev(&file, &blocks, 0);
        let source = Source { file, start_bytes: 0, bytes: SOURCE_BYTES };
        (written == Ok(SOURCE_BYTES as usize)).then_some(source)
    }

    /// What reads take, or at least those of a page.
    fn measure(&self) -> Option<ReadTimes> {
        const CLUSTER_BLOCKS: usize = CLUSTER_BYTES / BLOCK_BYTES;
        let page = self.measure_reads(1, READS_MAX)?;
        let cluster = self.measure_reads(CLUSTER_BLOCKS, READS_MIN).unwrap_or_default();
        Some(ReadTimes { page, cluster })
    }

    /// What reading so many blocks in a row takes, somewhere, on the average of `most` reads or fewer.
    fn measure_reads(&self, count: usize, most: u64) -> Option<ReadTime> {
        let mut blocks: Vec<_> = (0..count).map(|_| Block([0; BLOCK_BYTES])).collect();
        let mut buffer: Vec<_> =
            blocks.iter_mut().map(|block| IoSliceMut::new(&mut block.0)).collect();
        let began = ReadsBegan::now();
        let mut reads = 0;
        while reads < most && (reads < READS_MIN || began.elapsed_ns() < ENOUGH_NS) {
            self.read(&mut buffer)?;
            reads += 1;
        }
        Some(began.read_time(reads))
    }

    fn read(&self, buffer: &mut [IoSliceMut<'_>]) -> Option<()> {
        let mut random = [0; 8];
        getrandom(&mut random, GetRandomFlags::empty()).ok()?;
        let bytes = buffer.len() * BLOCK_BYTES;
        let starts = self.bytes.checked_sub(bytes as u64)? / BLOCK_BYTES as u64 + 1;
        let number = u64::from_ne_bytes(random) % starts;
        let at_bytes = self.start_bytes + number * BLOCK_BYTES as u64;
        let read = rustix::io::preadv(&self.file, buffer, at_bytes);
        (read == Ok(bytes)).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The directory of the test's own executable, and its device.
    fn here() -> (PathBuf, u64) {
        let executable = std::env::current_exe().expect("this runs");
        let directory = executable.parent().expect("somewhere").to_owned();
        let device = rustix::fs::stat(&directory).expect("it is there").st_dev;
        (directory, device)
    }

    #[test]
    fn an_executable_is_read_where_there_is_one_beside_the_store() {
        let (directory, device) = here();
        let program = std::process::id().cast_signed();
        let source = Disk::Below { directory, device, program }.source().expect("this executable");
        assert!(source.bytes > SOURCE_BYTES, "{source:?}");
        let ReadTimes { page, cluster } = source.measure().expect("it can be read");
        assert!(page.ticks > 0 && page.ns > 0 && cluster.ticks > 0);
    }

    #[test]
    fn elsewhere_a_file_is_written_and_nothing_is_left_of_it() {
        let (parent, device) = here();
        assert!(Source::beside(!device, "/proc/self/exe").is_none());
        let directory = parent.join(format!("zpager-probe-{}", std::process::id()));
        std::fs::create_dir(&directory).expect("a directory");
        let disk = Disk::Below { directory: directory.clone(), device: !device, program: 1 };
        let source = disk.source().expect("a file");
        assert_eq!(source.bytes, SOURCE_BYTES);
        assert!(source.measure().is_some_and(|measured| measured.page.ns > 0));
        let short = Source { bytes: CLUSTER_BYTES as u64 - 1, ..source };
        let measured = short.measure().expect("pages can be read");
        assert_eq!(measured.cluster, ReadTime::default());
        std::fs::remove_dir(&directory).expect("nothing is in it");
    }

    #[test]
    fn what_cannot_be_read_tells_nothing() {
        let file = std::fs::File::open("/dev/null").expect("always there").into();
        assert!(Source { file, start_bytes: 0, bytes: SOURCE_BYTES }.measure().is_none());
        let (_, device) = here();
        let directory = PathBuf::from("/nonexistent");
        assert!(Disk::Below { directory, device: !device, program: 1 }.source().is_none());
    }
}
