//! A clean cache: compressed copies of a disk's blocks in RAM, in front of that disk.
//!
//! Source: castro (2003), 2.3.4 and 4: clean pages of files are compressed too, and whether that is
//! worth while is watched ([`Switch`]). hp (2001), 3, puts the same under a file system.
//!
//! A block that is read or written is compressed and kept; when memory is used up those leave that
//! were not wanted for longest. While too few come back none is kept anew, until the disk is asked for
//! such as would have been.
//!
//! Invariants: the disk has every block. A write is on its way to the disk before it is answered, and
//! a flush is answered once the disk says that all of it is there. A copy is what the disk had after
//! the last write to the block, or there is none: it is gone before the write begins, and comes back
//! only if no other write went on beside it ([`Writers`]). Where the disk fails to write there is none.
//! Where it fails to flush none is left at all, as nobody knows what it has. The disk says so once,
//! whoever asks, so every connection is told when it flushes next: what it wrote may be what is lost.
//!
//! Lock order: `parts` or `flushing`, then `shared`. The disk is read, written and flushed, and bytes are
//! made of blocks and blocks of bytes, outside of `shared`; a change of parts of blocks has the disk to
//! itself, as it is a read and a write.
//!
//! Bad case: data that are read once; they are compressed for nothing until that is noticed, a few
//! hundred blocks long. Writes of parts of blocks.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use zpager_cache::{Coding, Departed, Engine, Placed, Reads};
use zpager_codec::{PAGE_BYTES, Page};
use zpager_command::size::display;
use zpager_policy::{CleanPages, Design, DesignId, Leaving, SLOTS, Settings, Switch};
use zpager_pool::SpaceSource;
use zpager_store::Errno;

use crate::device::{
    BLOCK_BYTES, FORGET_BLOCKS, GROWTH_BYTES, Setup, blocks_of, check_memory, engine, engine_bytes,
    planned_blocks, shown,
};
use crate::disk::Disk;
use crate::nbd::BUFFERS_BYTES;
use crate::reads::{Made, Plan, Wanted, What, buffer_pages};
use crate::samples::Samples;
use crate::statistics::{Counters, Status};
use crate::swap_file::SwapFile;
use crate::target::{Refused, Target};
use crate::worker::{PIECE_BLOCKS, PIECE_BYTES, Worker};
use crate::writers::{Ticket, Writers};

/// Blocks that leave for one that comes, at most: those of a slab whose others are in use, and more.
const RELEASES_MAX: u32 = 1 << 12;
/// Blocks that leave for one that a pool of its own limit does not take.
const TRIES_MAX: u32 = 64;

const ENOSPC: Errno = Errno(28);

/// A disk, and compressed copies of some of its blocks.
pub struct CleanCache<M: SpaceSource, D> {
    size_bytes: u64,
    memory_bytes_max: u64,
    coding: Coding,
    disk: D,
    /// Of buffers for what each connection has read of the disk beside its other requests.
    buffer_pages: usize,
    /// Held by whoever writes whole blocks, and exclusively by whoever changes parts of some.
    parts: RwLock<()>,
    /// Held by whoever flushes, so that a failure is known to all before another flush succeeds.
    flushing: Mutex<()>,
    shared: Mutex<Shared<M>>,
}

/// What is under the lock.
struct Shared<M: SpaceSource> {
    engine: Box<Engine<M, SwapFile>>,
    /// Whether blocks are worth keeping; without one they always are.
    switch: Option<Switch>,
    writers: Writers,
    memory_bytes: u64,
    connections: usize,
    /// What each of them takes.
    connection_bytes: usize,
    counters: Counters,
    /// How many flushes the disk has failed.
    failed_flushes: u64,
    /// Of `engine`, and gone after it.
    _samples: Samples<M::Space>,
}

/// Castro's switch, by what the design says of clean pages or else by castro's own figures.
fn switch(design: &Design, memory_bytes: usize) -> Option<Switch> {
    let castro = || Design::new(&Settings::of(DesignId::Castro), memory_bytes).clean_pages;
    let is_castro = design.id == DesignId::Castro;
    match if is_castro { design.clean_pages } else { castro() } {
        CleanPages::Compressed | CleanPages::Kept => None,
        CleanPages::Switched(evidence) => Some(Switch::new(evidence)),
    }
}

impl<M: SpaceSource + Copy, D: Disk> CleanCache<M, D> {
    /// Nothing of `disk`, which is as long as the setup says. `None` when `source` has no room.
    pub fn new(source: M, setup: &Setup, disk: D) -> Option<Self> {
        let mut design = Design::new(&setup.settings, setup.memory_bytes as usize);
        // There is no store in which some blocks would be better off than others.
        design.leaving = Leaving::Oldest;
        let is_file = disk.file_place(0).is_some();
        let buffer_pages = if is_file { buffer_pages(setup.memory_bytes) } else { 0 };
        let samples = Samples::reserve(&source, SLOTS)?;
        // SAFETY: once; the engine is gone before.
        let engine = engine(source, &design, setup, None, unsafe { samples.empty() })?;
        Some(CleanCache {
            size_bytes: setup.size_bytes,
            memory_bytes_max: setup.memory_bytes_max,
            coding: Coding::new(&design),
            disk,
            buffer_pages,
            parts: RwLock::new(()),
            flushing: Mutex::new(()),
            shared: Mutex::new(Shared {
                engine,
                switch: switch(&design, setup.memory_bytes as usize),
                writers: Writers::new(),
                memory_bytes: setup.memory_bytes,
                connections: 0,
                connection_bytes: Worker::held_bytes(design.codec, None)
                    + BUFFERS_BYTES
                    + buffer_pages * PAGE_BYTES,
                counters: Counters::default(),
                failed_flushes: 0,
                _samples: samples,
            }),
        })
    }

    /// The disk.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    fn lock(&self) -> MutexGuard<'_, Shared<M>> {
        // A panic ends the process, so nobody ever finds the lock poisoned.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads those blocks of a piece that are missing.
    fn read_missing(
        &self,
        worker: &mut Worker,
        blocks: &Range<u64>,
        missing: &[bool; PIECE_BLOCKS],
    ) -> Result<(), Errno> {
        let count = (blocks.end - blocks.start) as usize;
        let mut at = 0;
        while at < count {
            let run = (at..count).take_while(|at| missing[*at]).count();
            if run > 0 {
                let bytes = &mut worker.bytes_mut()[at * PAGE_BYTES..(at + run) * PAGE_BYTES];
                let outcome = self.disk.read_at((blocks.start + at as u64) * BLOCK_BYTES, bytes);
                self.lock().count_read(bytes.len(), outcome)?;
            }
            at += run.max(1);
        }
        Ok(())
    }

    /// Has the parts of blocks at either end of a piece be whole, as the disk has the rest of them.
    fn complete(
        &self,
        worker: &mut Worker,
        blocks: &Range<u64>,
        bytes: Range<u64>,
    ) -> Result<(), Errno> {
        let last = blocks.end - 1;
        let ends = [blocks.start, last].into_iter().take(if last > blocks.start { 2 } else { 1 });
        for block in ends {
            let (start, end) = (block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES);
            if bytes.start <= start && bytes.end >= end {
                continue;
            }
            let mut old = Page::ZERO;
            let outcome = self.disk.read_at(start, &mut old.0);
            self.lock().count_read(PAGE_BYTES, outcome)?;
            let page = worker.page_mut((block - blocks.start) as usize);
            let head = bytes.start.saturating_sub(start) as usize;
            let tail = (bytes.end.min(end) - start) as usize;
            page.0[..head].copy_from_slice(&old.0[..head]);
            page.0[tail..].copy_from_slice(&old.0[tail..]);
        }
        Ok(())
    }

    /// Writes whole blocks that are in the worker.
    fn write_blocks(&self, worker: &mut Worker, blocks: &Range<u64>) -> Result<(), Errno> {
        let count = (blocks.end - blocks.start) as usize;
        let (ticket, compresses) = {
            let mut shared = self.lock();
            (shared.begin_write(blocks), shared.compresses())
        };
        let data = &worker.bytes_mut()[..count * PAGE_BYTES];
        let outcome = self.disk.write_at(blocks.start * BLOCK_BYTES, data);
        if compresses && outcome.is_ok() {
            (0..count).for_each(|at| worker.encode_in_full(at));
        }
        let mut shared = self.lock();
        shared.end_write(blocks, count * PAGE_BYTES, outcome)?;
        for (at, block) in blocks.clone().enumerate() {
            match compresses {
                true => shared.keep(worker, at, block, ticket, blocks),
                false => shared.drop_clean(block),
            }
        }
        Ok(())
    }

    /// Has the disk make some of its blocks zeros; false where it cannot.
    fn zero(&self, blocks: &Range<u64>, may_free: bool) -> Result<bool, Errno> {
        let _whole = self.parts.read().unwrap_or_else(PoisonError::into_inner);
        self.lock().begin_write(blocks);
        let bytes = (blocks.end - blocks.start) * BLOCK_BYTES;
        let done = self.disk.zero(blocks.start * BLOCK_BYTES, bytes, may_free);
        let mut shared = self.lock();
        shared.end_write(blocks, 0, done.map(|_| ()))?;
        shared.counters.freed_blocks += if done == Ok(true) { bytes / BLOCK_BYTES } else { 0 };
        done
    }
}

/// The whole blocks of a range, some at a time.
fn chunks(offset_bytes: u64, bytes: u64) -> impl Iterator<Item = Range<u64>> {
    let first = offset_bytes.div_ceil(BLOCK_BYTES);
    let end = (offset_bytes + bytes) / BLOCK_BYTES;
    let step = FORGET_BLOCKS;
    (first..end).step_by(step as usize).map(move |start| start..end.min(start + step))
}

impl From<Errno> for Refused {
    fn from(error: Errno) -> Self {
        if error == ENOSPC { Refused::NoSpace } else { Refused::Io }
    }
}

impl<M: SpaceSource + Copy, D: Disk> Target for CleanCache<M, D> {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn connect(&self) -> Option<Worker> {
        let mut shared = self.lock();
        shared.connections += 1;
        // Room for the first is never given away.
        if !shared.make_room() && shared.connections > 1 {
            shared.connections -= 1;
            return None;
        }
        let mut worker = Worker::new(self.coding, None);
        worker.note_failed_flushes(shared.failed_flushes);
        Some(worker)
    }

    fn disconnect(&self, worker: Worker) {
        drop(worker);
        self.lock().connections -= 1;
    }

    fn buffer_pages(&self) -> usize {
        self.buffer_pages
    }

    fn plan(&self, offset_bytes: u64, bytes: usize, made: &Made<'_>) -> Plan {
        let mut plan = Plan::default();
        if self.buffer_pages == 0 {
            return plan;
        }
        let shared = self.lock();
        let Range { start: mut block, end } = planned_blocks(offset_bytes, bytes);
        while block < end && !plan.is_full() && !made.is_full() {
            let run_end = end.min(block + PIECE_BLOCKS as u64);
            let is_wanted = |block: &u64| {
                shared.is_missing(*block) && !made.iter().any(|read| read.what.has_block(*block))
            };
            let count = (block..run_end).take_while(is_wanted).count();
            let run = block..block + count as u64;
            if let Some(place) = self.disk.file_place(run.start * BLOCK_BYTES)
                && count > 0
            {
                let ticket = shared.writers.ticket(&run);
                plan.push(Wanted { what: What::Blocks { first: run.start, count, ticket }, place });
            }
            block = run.end.max(block + 1);
        }
        plan
    }

    fn read_with<'a>(
        &self,
        worker: &'a mut Worker,
        offset_bytes: u64,
        bytes: usize,
        made: &Made<'_>,
    ) -> Result<&'a [u8], Refused> {
        let blocks = blocks_of(offset_bytes, bytes, self.size_bytes);
        let count = (blocks.end - blocks.start) as usize;
        let (ticket, compresses) = {
            let mut shared = self.lock();
            shared.counters.reads += 1;
            shared.counters.read_bytes += bytes as u64;
            for read in made.iter().filter(|_| made.is_new) {
                shared.count_read(read.data.len(), Ok(()))?;
            }
            for (at, block) in blocks.clone().enumerate() {
                shared.look(worker, at, block);
            }
            (shared.writers.ticket(&blocks), shared.compresses())
        };
        // What was not here: whether it is still to be read, and of what ticket it is.
        let mut missing = [false; PIECE_BLOCKS];
        let mut came = [const { None }; PIECE_BLOCKS];
        for at in 0..count {
            if !worker.is_missing(at) {
                if worker.decode(at).is_err() {
                    self.lock().counters.read_errors += 1;
                    return Err(Refused::Io);
                }
                continue;
            }
            let block = blocks.start + at as u64;
            let its = made.iter().find_map(|read| read.block(block));
            missing[at] = its.is_none();
            came[at] = Some(its.map_or((ticket, blocks.clone()), |(data, ticket, run)| {
                worker.page_mut(at).0.copy_from_slice(data);
                (ticket, run)
            }));
        }
        if came.iter().any(Option::is_some) {
            self.read_missing(worker, &blocks, &missing)?;
            let came = || {
                blocks
                    .clone()
                    .enumerate()
                    .zip(&came)
                    .filter_map(|(it, of)| Some((it, of.as_ref()?)))
            };
            if compresses {
                came().for_each(|((at, _), _)| worker.encode_in_full(at));
            }
            let mut shared = self.lock();
            for ((at, block), (ticket, piece)) in came() {
                shared.note_read(block);
                match compresses {
                    true => shared.keep(worker, at, block, *ticket, piece),
                    false => shared.drop_clean(block),
                }
            }
        }
        Ok(worker.slot(offset_bytes, bytes))
    }

    fn write(&self, worker: &mut Worker, offset_bytes: u64, bytes: usize) -> Result<(), Refused> {
        let blocks = blocks_of(offset_bytes, bytes, self.size_bytes);
        let range = offset_bytes..offset_bytes + bytes as u64;
        {
            let mut shared = self.lock();
            shared.counters.writes += 1;
            shared.counters.written_bytes += bytes as u64;
        }
        let is_whole =
            range.start.is_multiple_of(BLOCK_BYTES) && range.end.is_multiple_of(BLOCK_BYTES);
        let outcome = if is_whole {
            let _whole = self.parts.read().unwrap_or_else(PoisonError::into_inner);
            self.write_blocks(worker, &blocks)
        } else {
            let _alone = self.parts.write().unwrap_or_else(PoisonError::into_inner);
            self.complete(worker, &blocks, range).and_then(|()| self.write_blocks(worker, &blocks))
        };
        outcome.inspect_err(|_| self.lock().counters.write_errors += 1)?;
        Ok(())
    }

    fn trim(&self, offset_bytes: u64, bytes: u64) -> Result<(), Refused> {
        self.lock().counters.trims += 1;
        for blocks in chunks(offset_bytes, bytes) {
            // A disk that cannot do it keeps them: nobody wants to know.
            self.zero(&blocks, true)?;
        }
        Ok(())
    }

    fn zero_blocks(
        &self,
        worker: &mut Worker,
        offset_bytes: u64,
        bytes: u64,
        may_free: bool,
    ) -> Result<(), Refused> {
        self.lock().counters.trims += 1;
        for blocks in chunks(offset_bytes, bytes) {
            if self.zero(&blocks, may_free)? {
                continue;
            }
            let (mut at, end) = (blocks.start * BLOCK_BYTES, blocks.end * BLOCK_BYTES);
            while at < end {
                let piece = ((end - at) as usize).min(PIECE_BYTES);
                worker.slot(at, piece).fill(0);
                self.write(worker, at, piece)?;
                at += piece as u64;
            }
        }
        Ok(())
    }

    fn flush(&self, worker: &mut Worker) -> Result<(), Refused> {
        self.lock().counters.flushes += 1;
        let _alone = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        let synced = self.disk.sync();
        let mut shared = self.lock();
        if synced.is_err() {
            shared.failed_flushes += 1;
            shared.forget_all(self.size_bytes / BLOCK_BYTES);
        }
        match worker.note_failed_flushes(shared.failed_flushes) {
            true => Ok(()),
            false => Err(Refused::Io),
        }
    }

    // What it holds is on the disk, and can go whenever room is needed.
    fn keep_memory(&self) -> bool {
        true
    }

    fn set_threshold(&self, percent: u64) -> Result<(), String> {
        Err(format!("threshold={percent}%: what is in front of a disk has no store of its own"))
    }

    fn set_memory(&self, memory_bytes: u64) -> Result<(), String> {
        check_memory(memory_bytes, self.memory_bytes_max)?;
        let before = std::mem::replace(&mut self.lock().memory_bytes, memory_bytes);
        loop {
            let mut shared = self.lock();
            if shared.fits() {
                return Ok(());
            }
            if !shared.release() {
                shared.memory_bytes = before;
                let held_bytes = shared.held_bytes();
                return Err(format!(
                    "{}: {} are in use",
                    shown(memory_bytes),
                    display(held_bytes as u64)
                ));
            }
        }
    }

    fn status(&self) -> Status {
        let shared = self.lock();
        let cache = &shared.engine.cache;
        let pooled_pages = cache.pooled_pages() as u64;
        Status {
            size_bytes: self.size_bytes,
            memory_bytes: shared.memory_bytes,
            held_bytes: shared.held_bytes() as u64,
            pool_bytes: cache.pool_bytes() as u64,
            kept_bytes: cache.pool_bytes() as u64,
            given_bytes: 0,
            payload_bytes: cache.payload_bytes() as u64,
            blocks: pooled_pages,
            pooled_blocks: pooled_pages,
            incompressible_blocks: (cache.raw_bytes() / PAGE_BYTES) as u64,
            spilled_blocks: 0,
            same_filled_blocks: 0,
            has_store: false,
            threshold_percent: 100,
            compresses_clean: shared.compresses(),
            is_dense: false,
            // The disk has room for every block.
            free_bytes: self.size_bytes,
            is_short: false,
            connections: shared.connections as u64,
            codec: self.coding.codec().name().to_owned(),
            counters: shared.counters,
        }
    }
}

impl<M: SpaceSource + Copy> Shared<M> {
    /// All that pool, metadata, buffers and connections take.
    fn held_bytes(&self) -> usize {
        engine_bytes(&self.engine)
            + size_of::<Option<Switch>>()
            + Writers::BYTES
            + self.connections.max(1) * self.connection_bytes
    }

    /// Whether what one block may need fits.
    fn fits(&self) -> bool {
        (self.held_bytes() + GROWTH_BYTES) as u64 <= self.memory_bytes
    }

    fn is_missing(&self, block: u64) -> bool {
        self.engine.cache.index.get(block).is_absent()
    }

    fn compresses(&self) -> bool {
        self.switch.as_ref().is_none_or(Switch::compresses)
    }

    /// Has the block leave that was not wanted for longest; false when there is none.
    fn release(&mut self) -> bool {
        let has_left = self.engine.release_oldest().is_some();
        if has_left {
            self.counters.released_blocks += 1;
            if let Some(switch) = &mut self.switch {
                switch.released();
            }
        }
        has_left
    }

    /// Has blocks leave until one more fits; gives whether it does.
    fn make_room(&mut self) -> bool {
        let mut tries = 0;
        while !self.fits() {
            if tries == RELEASES_MAX || !self.release() {
                return false;
            }
            tries += 1;
        }
        true
    }

    /// Takes what there is of a block into the worker, and has it be the last to leave.
    fn look(&mut self, worker: &mut Worker, at: usize, block: u64) {
        let (bytes, seen) = worker.slot_mut(at);
        // Nothing of it can be lost, as nothing is elsewhere.
        match self.engine.look(block, bytes, &mut Reads::default()) {
            Ok(found) => *seen = found,
            Err(_) => worker.miss(at),
        }
        let Some(content) = worker.seen(at) else { return };
        self.counters.hits += 1;
        if let Some(switch) = &mut self.switch {
            switch.reclaimed();
        }
        // Where there is no room it stays where it is.
        self.engine.replace(block, content, &mut Departed::default());
    }

    /// Counts a read from the disk.
    fn count_read(&mut self, bytes: usize, outcome: Result<(), Errno>) -> Result<(), Errno> {
        self.counters.store_reads += 1;
        self.counters.store_read_bytes += bytes as u64;
        outcome.inspect_err(|_| self.counters.read_errors += 1)
    }

    /// Notes that a block was read from the disk.
    fn note_read(&mut self, block: u64) {
        if let Some(switch) = &mut self.switch {
            switch.read_from_store(block);
        }
    }

    /// Notes that a block was not kept.
    fn drop_clean(&mut self, block: u64) {
        self.counters.dropped_blocks += 1;
        if let Some(switch) = &mut self.switch {
            switch.dropped(block);
        }
    }

    /// Keeps a block of a piece that is in the worker, if it is still what the disk has.
    fn keep(
        &mut self,
        worker: &Worker,
        at: usize,
        block: u64,
        ticket: Option<Ticket>,
        piece: &Range<u64>,
    ) {
        let Some(content) = worker.content(at) else { return };
        if !self.writers.holds(ticket, piece) || !self.make_room() {
            return;
        }
        let mut departed = Departed::default();
        let mut tries = 0;
        while self.engine.replace(block, content, &mut departed) == Placed::NoRoom
            && tries < TRIES_MAX
            && self.release()
        {
            tries += 1;
        }
    }

    /// Has no copy of blocks be there that are written from now on.
    fn begin_write(&mut self, blocks: &Range<u64>) -> Option<Ticket> {
        self.engine.forget(blocks.clone());
        self.writers.begin(blocks)
    }

    /// Counts a write that has ended.
    fn end_write(
        &mut self,
        blocks: &Range<u64>,
        bytes: usize,
        outcome: Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.writers.end(blocks);
        self.counters.store_writes += u64::from(bytes > 0);
        self.counters.store_written_bytes += bytes as u64;
        outcome.inspect_err(|_| self.counters.store_errors += 1)
    }

    /// Has no copy of anything be there.
    fn forget_all(&mut self, blocks: u64) {
        self.counters.store_errors += 1;
        self.writers.void_all();
        self.engine.forget(0..blocks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MEMORY_BYTES_MIN;
    use crate::disk::DiskFile;
    use crate::reads::{MadeRead, read_at_once};
    use crate::space::Arena;

    const BLOCKS: u64 = 256;
    const PIECE: usize = 4 * PAGE_BYTES;

    fn cache() -> CleanCache<Arena, DiskFile> {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(BLOCKS * BLOCK_BYTES).expect("a disk");
        let setup = Setup {
            size_bytes: BLOCKS * BLOCK_BYTES,
            memory_bytes: MEMORY_BYTES_MIN,
            memory_bytes_max: MEMORY_BYTES_MIN,
            ahead_bytes: None,
            settings: Settings::of(DesignId::Default),
        };
        let cache = CleanCache::new(Arena, &setup, DiskFile::new(file.into())).expect("room");
        let data = [7; PIECE];
        cache.disk.write_at(0, &data).expect("room");
        cache
    }

    /// Reads what is planned for the first piece, has `between` happen, and then reads the piece with that.
    fn read_late(
        cache: &CleanCache<Arena, DiskFile>,
        between: impl FnOnce(&mut Worker),
    ) -> (Vec<u8>, Vec<u8>) {
        let mut worker = cache.connect().expect("the first");
        let plan = cache.plan(0, PIECE, &Made::default());
        let wanted = *plan.iter().next().expect("nothing is here");
        let mut data = vec![0; wanted.what.bytes()];
        assert!(read_at_once(wanted.place, &mut data));
        between(&mut worker);
        let read = MadeRead { what: wanted.what, data: &data, disk_ns: 0, cpu_ns: 0 };
        let late = cache.read_with(&mut worker, 0, PIECE, &Made::of(&[read]));
        let late = late.expect("there").to_vec();
        let now = cache.read(&mut worker, 0, PIECE).expect("there").to_vec();
        cache.disconnect(worker);
        (late, now)
    }

    #[test]
    fn what_was_read_for_a_request_is_kept() {
        let cache = cache();
        let (late, now) = read_late(&cache, |_| {});
        assert!(late == [7; PIECE] && now == late);
        let counters = cache.status().counters;
        assert_eq!((counters.store_reads, counters.hits), (1, 4), "one read of four blocks");
        assert!(cache.plan(0, PIECE, &Made::default()).is_empty());
    }

    #[test]
    fn what_was_read_before_it_was_changed_is_not_kept() {
        for is_zeroed in [true, false] {
            let cache = cache();
            let (late, now) = read_late(&cache, |worker| {
                if is_zeroed {
                    cache.write_zeroes(worker, 0, PIECE as u64, false).expect("room");
                } else {
                    worker.slot(0, PIECE).fill(9);
                    cache.write(worker, 0, PIECE).expect("room");
                }
            });
            // Who asked before may have either.
            let new = if is_zeroed { 0 } else { 9 };
            assert!(late == [7; PIECE] || late == [new; PIECE]);
            assert!(now == [new; PIECE], "an old copy was kept");
        }
    }
}
