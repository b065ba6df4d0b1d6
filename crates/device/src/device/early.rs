//! Reading from the store beside other connections, which neither wait for that nor hold it up.
//!
//! Who wants blocks that are in the store sees under the lock what would be read for them, reads that into
//! his own buffers without the lock, and then looks at the blocks as if it had just come
//! ([`zpager_store::Early`]). Blocks of a request that lie one behind the other come with one read.
//!
//! Bad case: blocks that are written or trimmed meanwhile; what was read is of no use then.

use std::os::fd::BorrowedFd;

use rustix::io::{Errno, pread};
use zpager_cache::State;
use zpager_pool::SpaceSource;
use zpager_store::{Blocks, Early, FilePlace};

use super::Shared;
use crate::moment::Moment;
use crate::target::Refused;
use crate::worker::{PIECE_BYTES, Worker};

/// A read that is to be made without the lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Planned {
    early: Early,
    place: FilePlace,
}

/// One that was made, into the worker's pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Made {
    early: Early,
    is_whole: bool,
    wall_ns: u64,
    cpu_ns: u64,
}

impl Planned {
    /// Makes it. Where it fails it is as if it had not been made: the block's own read then says why.
    pub(super) fn make(self, worker: &mut Worker) -> Made {
        let began = Moment::now();
        // SAFETY: the store's files stay open as long as the device serves.
        let file = unsafe { BorrowedFd::borrow_raw(self.place.descriptor) };
        let buffer = &mut worker.bytes_mut()[..self.early.bytes()];
        let mut done = 0;
        while done < buffer.len() {
            match pread(file, &mut buffer[done..], self.place.offset_bytes + done as u64) {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        let is_whole = done == buffer.len();
        let (wall_ns, cpu_ns) = began.elapsed_ns();
        Made { early: self.early, is_whole, wall_ns, cpu_ns }
    }
}

impl<M: SpaceSource + Copy, B: Blocks> Shared<M, B> {
    /// The read that looking at `block` and at most `most` in all begins with, if it begins with one.
    pub(super) fn plan_read(&self, block: u64, most: usize) -> Option<Planned> {
        let state = self.engine.cache.index.get(block).state();
        if !matches!(state, State::Spilled { .. }) {
            return None;
        }
        let cache = &self.engine.cache;
        let early = cache.plan_read(block, most, PIECE_BYTES)?;
        Some(Planned { early, place: cache.store_blocks()?.file_place(early.offset_bytes())? })
    }

    /// Looks at the blocks that were read for, of which `block` is the worker's `at`; gives how many they
    /// are.
    pub(super) fn look_at_read(
        &mut self,
        worker: &mut Worker,
        at: usize,
        block: u64,
        made: &Made,
    ) -> Result<usize, Refused> {
        let records = made.early.records();
        if made.is_whole {
            let pages = &worker.bytes_mut()[..made.early.bytes()];
            // SAFETY: the worker's pages outlive `end_read` below, before which nobody writes to them:
            // looking at a block changes what the worker has of it, and no page.
            let data = unsafe { std::slice::from_raw_parts(pages.as_ptr(), pages.len()) };
            self.engine.cache.begin_read(made.early, data);
            self.note_read(made.wall_ns, made.cpu_ns);
        }
        let before = self.counters;
        let looks = (0..records).try_for_each(|i| self.look(worker, at + i, block + i as u64));
        if self.engine.cache.end_read() {
            // They were all in one.
            self.counters.store_reads = before.store_reads + 1;
            self.counters.store_read_bytes = before.store_read_bytes + made.early.bytes() as u64;
        }
        looks.map(|()| records)
    }
}
