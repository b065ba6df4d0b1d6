//! Reading from the store beside other threads, which neither wait for that nor hold it up.
//!
//! Whoever faults on a page in the store sees under the lock what would be read for it, reads that into a
//! buffer without the lock, and is then served as if it had just come ([`zpager_store::Early`]). It is
//! the one kind of fault that takes the lock twice, which is little beside a read. On a disk that serves
//! many reads at a time, threads wait for theirs at the same time.
//!
//! Source: ours; mm/memory.c of Linux, `do_swap_page`, looks at the page's entry again in the same way.
//!
//! Invariants: a buffer that has an owner is that thread's; the others, and who owns which, are the
//! lock holder's. What was read is believed only while its cluster is of the same generation.
//!
//! Bad for: faults of several threads on one page, of which each reads it. A thread beside which no other
//! faults would copy what it reads once more, and so holds the lock.

use zpager_cache::State;
use zpager_store::Early;
use zpager_sys::mapping::Mapping;
use zpager_sys::processor::ticks;
use zpager_sys::{Errno, PAGE_BYTES};

use crate::account::count;
use crate::own::OneStore;
use crate::process::{OwnCache, Process};
use crate::threads::{Thread, is_gone};

/// Threads that read at the same time, at most. Nobody waits for one that holds the lock while it reads but those
/// for whom there is no buffer.
const READERS_MAX: usize = 32;
/// The same of a server, which answers so many at a time.
const SERVER_READERS_MAX: usize = 8;
/// The part of the budget that buffers take at most.
const BUDGET_PART: u64 = 32;

/// The owner of a buffer that is nobody's.
const NOBODY: u32 = 0;

/// The buffers.
pub(crate) struct EarlyReads {
    buffers: Mapping,
    bytes_max: usize,
    /// Numbers of the threads that read into them.
    owners: [u32; READERS_MAX],
    /// How much of each was ever used.
    used_bytes: [usize; READERS_MAX],
    /// What the read took that is being made use of.
    read_ticks: u64,
}

/// A read that is to be made without the lock.
pub(crate) struct Pending {
    at: usize,
    early: Early,
    store: OneStore,
    /// Where in that store.
    offset_bytes: u64,
    buffer: &'static mut [u8],
    is_read: bool,
    ticks: u64,
}

impl EarlyReads {
    /// Of a run with this budget.
    pub(crate) fn new(budget_bytes: u64) -> Result<Self, Errno> {
        Ok(EarlyReads {
            buffers: Mapping::reserve(READERS_MAX * OwnCache::READ_BYTES)?,
            bytes_max: (budget_bytes / BUDGET_PART) as usize,
            owners: [NOBODY; READERS_MAX],
            used_bytes: [0; READERS_MAX],
            read_ticks: 0,
        })
    }

    /// RAM of the buffers.
    pub(crate) fn held_bytes(&self) -> usize {
        self.used_bytes.iter().sum()
    }

    /// In a forked child, which has one thread: nobody reads.
    pub(crate) fn become_copy(&mut self) {
        self.owners = [NOBODY; READERS_MAX];
        self.trim();
    }

    /// Gives back the buffers that nobody reads into.
    pub(crate) fn trim(&mut self) {
        for at in 0..READERS_MAX {
            if self.owners[at] == NOBODY && self.used_bytes[at] > 0 {
                self.buffers.release(at * OwnCache::READ_BYTES, self.used_bytes[at]);
                self.used_bytes[at] = 0;
            }
        }
    }

    /// What reads take at present, of the time that one took.
    pub(crate) fn read_ticks(&self) -> u64 {
        self.read_ticks
    }

    fn readers(&self) -> usize {
        self.owners.iter().filter(|owner| **owner != NOBODY).count()
    }

    /// One of the first buffers that is nobody's, or that of a thread that was killed with its process.
    fn find(&self, first: usize, asking: u32) -> Option<usize> {
        let owners = &self.owners[..first];
        let free = owners.iter().position(|owner| *owner == NOBODY);
        free.or_else(|| owners.iter().position(|owner| is_gone(*owner, asking)))
    }

    /// How much more RAM a free buffer takes that is to have so many bytes; `None` where that is too much.
    fn growth_bytes(&mut self, at: usize, bytes: usize) -> Option<usize> {
        if bytes <= self.used_bytes[at] {
            return Some(0);
        }
        if self.held_bytes() - self.used_bytes[at] + bytes > self.bytes_max {
            self.trim();
        }
        let growth_bytes = bytes - self.used_bytes[at];
        (self.held_bytes() + growth_bytes <= self.bytes_max).then_some(growth_bytes)
    }

    /// The first bytes of a buffer.
    fn buffer(&self, at: usize, bytes: usize) -> *mut [u8] {
        assert!(at < READERS_MAX && bytes <= OwnCache::READ_BYTES);
        // SAFETY: within the mapping.
        let base = unsafe { self.buffers.base().add(at * OwnCache::READ_BYTES) };
        core::ptr::slice_from_raw_parts_mut(base, bytes)
    }
}

impl Pending {
    /// Makes the read. It fails as if it had not been made: the page's own read then says why.
    pub(crate) fn read(&mut self) {
        let began = ticks();
        self.is_read = self.store.read_once(self.offset_bytes, self.buffer).is_ok();
        self.ticks = ticks().wrapping_sub(began);
    }
}

impl Process {
    /// The read that a fault at `page` of `thread` begins with, where it begins with one.
    pub(crate) fn plan_read(&mut self, thread: &Thread, page: u64) -> Option<Pending> {
        let State::Spilled { .. } = self.engine.cache.index.get(page).state() else { return None };
        if self.foretold.has(page) {
            return None;
        }
        let region = self.regions.find(page)?;
        // What the fault will expect of those to come is the same when it is served.
        let mut ahead = thread.ahead;
        let (first, most) = self.engine.window(&mut ahead, page, region.pages());
        let early = self.engine.cache.plan_read(first, most, OwnCache::READ_BYTES)?;
        let (store, offset_bytes) = self.engine.cache.store_blocks()?.find(early.offset_bytes())?;
        let store = *store;
        let readers_max = match store {
            OneStore::File(_) => READERS_MAX,
            OneStore::Server(_) => SERVER_READERS_MAX,
        };
        let at = self.early.find(readers_max, thread.number())?;
        let bytes = early.bytes().next_multiple_of(PAGE_BYTES);
        let growth_bytes = self.early.growth_bytes(at, bytes)?;
        self.early.owners[at] = thread.number();
        if growth_bytes > 0 {
            self.make_room_bytes(growth_bytes as i64);
            self.early.used_bytes[at] = bytes;
            self.publish();
        }
        // SAFETY: the buffer is its owner's alone until `serve_read`.
        let buffer = unsafe { &mut *self.early.buffer(at, early.bytes()) };
        Some(Pending { at, early, store, offset_bytes, buffer, is_read: false, ticks: 0 })
    }

    /// Serves the fault that `pending` was read for, as [`Process::serve_fault`] does.
    pub(crate) fn serve_read(
        &mut self,
        thread: &mut Thread,
        (address, is_write): (usize, bool),
        pending: Pending,
    ) -> bool {
        let Pending { at, early, buffer, is_read, ticks, .. } = pending;
        if is_read {
            self.engine.cache.begin_read(early, buffer);
            // Others waited for theirs at the same time.
            self.early.read_ticks = ticks / self.early.readers().max(1) as u64;
        }
        let is_served = self.serve(thread, address, is_write);
        if !self.engine.cache.end_read() && is_read {
            count(&self.control.counters.store_reads, 1);
            count(&self.control.counters.store_read_bytes, early.bytes());
        }
        self.early.read_ticks = 0;
        self.early.owners[at] = NOBODY;
        is_served
    }
}
