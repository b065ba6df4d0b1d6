//! Spilled pages in the memory of another machine, by way of the run's helper.
//!
//! Source: [`zpager_wire::Requests`]. A write goes on while the program does; a read waits for the
//! server as long as the run's patience allows, since the page is lost otherwise.
//!
//! Invariant: a write is of the process whose memory this is, whichever of those that share it begins
//! it, and whichever comes to ask how it ended; so is a read that was asked for ahead of need.
//!
//! Bad for: programs that wait for many pages one after the other which nothing foretells, each of which takes the
//! network's time to come.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use zpager_store::{Blocks, CLUSTER_BYTES, Errno};
use zpager_sys::file::Fd;
use zpager_wire::{Asked, Remote, Requests, Ticket};

use crate::identity;

/// The write that goes on, by its ticket's number.
static WRITE: AtomicU64 = AtomicU64::new(0);

/// The clusters of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RemoteMemory {
    requests: Requests<'static>,
}

impl RemoteMemory {
    /// Those that are asked for in the mapping of `file`.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Safety
    /// The file is what the command has made for this.
    pub(crate) unsafe fn open(file: Fd) -> Result<Self, zpager_sys::Errno> {
        let base = file.map_shared(file.length_bytes()?)?;
        // SAFETY: the command has made the mapping that long and written its start; it stays.
        let requests = unsafe { Requests::behind(&*base.cast::<Remote>()) };
        // Left by the program that this process was before.
        let pid = identity::run_pid();
        requests.free_all_of(|owner| owner == pid);
        Ok(RemoteMemory { requests })
    }

    /// How much the server may be given, in bytes.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.requests.remote.limit_bytes()
    }

    /// In a forked child: no write goes on.
    pub(crate) fn become_copy() {
        WRITE.store(0, Relaxed);
    }

    /// Reads as [`Blocks::read_at`] for one who has another copy.
    pub(crate) fn read_if_up(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        let (cluster, start) = place(offset_bytes);
        errno(self.requests.read_if_up(identity::asking_pid(), cluster, start, data))
    }

    /// Begins to read so many bytes ahead of need; `None` where that would take something from others, or the server
    /// does not answer.
    pub(crate) fn ask(&self, offset_bytes: u64, bytes: usize) -> Option<AskedPart> {
        let (cluster, start) = place(offset_bytes);
        let asked = self.requests.begin_read(identity::run_pid(), cluster, start, bytes).ok()?;
        Some(AskedPart { requests: self.requests, asked })
    }
}

/// A part of a cluster that was asked for ahead of need. It takes room from others until it is taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AskedPart {
    requests: Requests<'static>,
    asked: Asked,
}

impl AskedPart {
    /// Whether [`AskedPart::take`] would not wait.
    pub(crate) fn is_answered(&self) -> bool {
        self.requests.is_answered(self.asked)
    }

    /// Waits for it, and puts it into a buffer of as many bytes; whether it came.
    pub(crate) fn take(self, data: &mut [u8]) -> bool {
        self.requests.end_read(self.asked, data).is_ok()
    }
}

impl Blocks for RemoteMemory {
    unsafe fn begin_write(&self, offset_bytes: u64, data: &[u8]) -> Result<bool, Errno> {
        let (cluster, _) = place(offset_bytes);
        let ticket = errno(self.requests.begin_write(identity::run_pid(), cluster, data))?;
        WRITE.store(ticket.raw(), Relaxed);
        Ok(true)
    }
    fn settle(&self) -> Result<(), Errno> {
        match Ticket::from_raw(WRITE.swap(0, Relaxed)) {
            Some(ticket) => errno(self.requests.settle(ticket)),
            None => Ok(()),
        }
    }
    fn is_writing(&self) -> bool {
        let ticket = Ticket::from_raw(WRITE.load(Relaxed));
        ticket.is_some_and(|ticket| !self.requests.has_ended(ticket))
    }
    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> Result<(), Errno> {
        // SAFETY: the data are copied before the call returns.
        unsafe { self.begin_write(offset_bytes, data) }?;
        self.settle()
    }
    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        let (cluster, start) = place(offset_bytes);
        errno(self.requests.read(identity::asking_pid(), cluster, start, data))
    }
    fn punch(&self, offset_bytes: u64, _bytes: u64) {
        // A cluster is given back as a whole.
        self.requests.discard(place(offset_bytes).0);
    }
}

/// The cluster, and where in it.
fn place(offset_bytes: u64) -> (u32, usize) {
    let cluster_bytes = CLUSTER_BYTES as u64;
    ((offset_bytes / cluster_bytes) as u32, (offset_bytes % cluster_bytes) as usize)
}

fn errno<T>(outcome: Result<T, zpager_sys::Errno>) -> Result<T, Errno> {
    outcome.map_err(|error| Errno(error.0))
}
