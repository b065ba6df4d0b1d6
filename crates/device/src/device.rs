//! The blocks of the device: block n is page n of the engine, and all of them are swapped out.
//!
//! One lock guards the engine. Bytes are made of blocks, and blocks of bytes, outside of it, a piece
//! of a request at a time; under it they are only moved. The store is read without it as well ([`early`]),
//! but what is read around a block.
//!
//! Memory: the pool, all metadata, and what the connections take stay within what was granted, with
//! a margin for what one block more may need and for a cluster that comes back from a full store.
//! When that is used up the oldest blocks leave for the store; when that is full too a block is
//! refused. A part is kept for blocks that are written again and do not become longer, as a full
//! device could otherwise never be written to.
//!
//! Once [`Target::keep_memory`] was called the pool keeps RAM ahead of what it holds ([`ahead`]), some of
//! which it leaves to programs where that pays ([`share`]). Where the thread that takes it is behind, blocks
//! leave for the store rather than have the kernel asked by whoever serves it.
//!
//! Invariants: a block that was refused is what it was, and so are all others. A block of zeros is
//! nothing at all. A block that is trimmed has left pool and store when the call returns.
//!
//! Bad case: writes of parts of blocks, each of which is read, changed and made bytes of again, all
//! under the lock.

mod ahead;
mod early;
mod search;
mod share;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use zpager_cache::{
    Cache, Coding, Content, Departed, Engine, Placed, Reads, SpillError, State, Store, Written,
};
use zpager_codec::{CodecId, PAGE_BYTES};
use zpager_command::size::display;
use zpager_policy::{
    Density, Design, GIVE_WAY_SLOTS, GiveWay, Holding, SLOTS, Sample, Sampler, Seeks, Settings,
};
use zpager_pool::SpaceSource;
use zpager_store::{Blocks, CLUSTER_BYTES, Clusters};

use crate::moment::Moment;
use crate::nbd::BUFFERS_BYTES;
use crate::reads::{Made, Plan, buffer_pages};
use crate::samples::Samples;
use crate::shortage::{Room, Shortage};
use crate::statistics::{Counters, Status};
use crate::target::{Refused, Target};
use crate::worker::{PIECE_BLOCKS, Worker};
use early::read_now;
use search::Search;

/// Of a pool all that it may hold.
const ALL_PERCENT: usize = 100;
/// The largest device: as far as the index of one process reaches.
pub const SIZE_BYTES_MAX: u64 = 1 << 40;
/// The least memory: tables, the store's buffers, and a pool in front of them.
pub const MEMORY_BYTES_MIN: u64 = 8 << 20;

pub(crate) const BLOCK_BYTES: u64 = PAGE_BYTES as u64;
/// The most that one block more may need: a slab, a page of the index, of each order and of tables.
pub(crate) const GROWTH_BYTES: usize = 64 << 10;
/// The least RAM that a pool may take ahead of what it holds.
pub const AHEAD_BYTES_MIN: u64 = 1 << 20;
/// Of a device that is larger, so many times its memory are taken to be in use at a time.
const USED_PART: u64 = 8;
/// Clusters that are read around in take this part of the memory at most, or are one.
const AROUND_PART: usize = 16;
/// Kept for blocks that are written again.
const RESERVE_BYTES: usize = 128 << 10;
/// Writes to the store in one search for room.
const SPILLS_MAX: u32 = 1 << 16;
/// Writes to the store for a block that a pool of its own limit does not take.
const TRIES_MAX: u32 = 4;
/// A store is nearly full when less than this part of it is left.
const SCARCE_PART: u64 = 8;
/// Blocks of a request that are looked at for what is to be read: some pieces.
const PLANNED_BLOCKS_MAX: u64 = 64;
/// Blocks that are forgotten in one go.
pub(crate) const FORGET_BLOCKS: u64 = 1 << 14;

/// What a device is made of.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Its size, a multiple of 4096 and at most [`SIZE_BYTES_MAX`].
    pub size_bytes: u64,
    /// What pool, metadata and connections may take together, at least [`MEMORY_BYTES_MIN`].
    pub memory_bytes: u64,
    /// To what that may be set later.
    pub memory_bytes_max: u64,
    /// How much of the memory is taken ahead of what is held, at least [`AHEAD_BYTES_MIN`]; `None`: all.
    pub ahead_bytes: Option<u64>,
    /// The design and its parameters.
    pub settings: Settings,
}

/// A block device.
pub struct Device<M: SpaceSource, B> {
    size_bytes: u64,
    memory_bytes_max: u64,
    coding: Coding,
    /// Of buffers for what each connection has read of the store beside its other requests.
    buffer_pages: usize,
    shared: Mutex<Shared<M, B>>,
    /// Told when the pool keeps too little or too much ahead.
    uneven: Condvar,
    /// How often space began to run short: who lets clients in asks, and waits for nobody.
    shortages: AtomicU64,
}

/// What is under the lock.
struct Shared<M: SpaceSource, B> {
    engine: Box<Engine<M, B>>,
    memory_bytes: u64,
    /// RAM that the pool has, in use or ahead; `None`: nothing is taken ahead.
    kept_bytes: Option<usize>,
    /// So much of it ahead of what it holds; all there may be without.
    ahead_bytes: Option<usize>,
    connections: usize,
    /// What each of them takes.
    connection_bytes: usize,
    /// Blocks that are not zero.
    blocks: u64,
    counters: Counters,
    /// What the store may hold; 0 where there is none.
    store_bytes: u64,
    size_bytes: u64,
    shortage: Shortage,
    /// When the pool holds so many percent of what it may, blocks leave before they have to.
    threshold_percent: usize,
    /// The denser codec, where the design has one, and whether it makes bytes of blocks.
    dense_codec: Option<CodecId>,
    density: Density,
    /// How much of the memory is left to programs; `None` where it cannot be or is not to be.
    give_way: Option<GiveWay<'static>>,
    /// Whether the disk takes long to begin; `None` where the design reads no more than is wanted.
    seeks: Option<Seeks>,
    /// Of `engine` and `give_way`, and gone after them.
    samples: [Samples<M::Space>; 2],
}

impl<M: SpaceSource + Copy, B: Blocks> Device<M, B> {
    /// A device of zeros. `None` when `source` has no room.
    pub fn new(source: M, setup: &Setup, store: Option<Store<B>>) -> Option<Self> {
        let mut design = Design::new(&setup.settings, setup.memory_bytes as usize);
        // What is written ahead leaves the RAM as well, which the pool has taken for itself.
        let threshold_percent = design.write_ahead_percent.take().unwrap_or(ALL_PERCENT);
        let clusters = store.as_ref().map_or(0, |store| store.clusters.total_clusters());
        let buffer_pages = if clusters > 0 { buffer_pages(setup.memory_bytes) } else { 0 };
        let samples = Samples::reserve(&source, SLOTS)?;
        let given_samples = Samples::reserve(&source, GIVE_WAY_SLOTS)?;
        // SAFETY: once; the engine is gone before.
        let engine = engine(source, &design, setup, store, unsafe { samples.empty() })?;
        let mut shared = Shared {
            engine,
            memory_bytes: setup.memory_bytes,
            kept_bytes: None,
            ahead_bytes: setup.ahead_bytes.map(|bytes| bytes as usize),
            connections: 0,
            connection_bytes: Worker::held_bytes(design.codec, design.dense_codec)
                + BUFFERS_BYTES
                + buffer_pages * PAGE_BYTES,
            blocks: 0,
            counters: Counters::default(),
            store_bytes: (clusters * CLUSTER_BYTES) as u64,
            size_bytes: setup.size_bytes,
            shortage: Shortage::default(),
            threshold_percent,
            dense_codec: design.dense_codec,
            density: Density::default(),
            give_way: None,
            seeks: None,
            samples: [samples, given_samples],
        };
        if clusters > 0 && design.size.is_measured() {
            // SAFETY: once; `give_way` is gone before.
            let slots = unsafe { shared.samples[1].empty() };
            shared.give_way = Some(GiveWay::new(slots, shared.pool_pages_max()));
            shared.seeks = Some(Seeks::new(CLUSTER_BYTES, setup.memory_bytes));
        }
        Some(Device {
            size_bytes: setup.size_bytes,
            memory_bytes_max: setup.memory_bytes_max,
            coding: Coding::new(&design),
            buffer_pages,
            shared: Mutex::new(shared),
            uneven: Condvar::new(),
            shortages: AtomicU64::new(0),
        })
    }

    /// Has blocks leave until all fits, others being served in between. Why they do not otherwise, if
    /// that is known.
    fn make_fit(&self) -> Result<MutexGuard<'_, Shared<M, B>>, Option<Refused>> {
        let mut search = Search::NEW;
        for _ in 0..SPILLS_MAX {
            let mut shared = self.lock();
            if shared.fits(RESERVE_BYTES) {
                return Ok(shared);
            }
            if let Err(refused) = shared.spill_for(&mut search) {
                return Err(Some(refused));
            }
        }
        Err(None)
    }

    /// Has those of the worker's blocks, from `first` on, be in the pool again that pay there; they were
    /// looked at since the lock was taken.
    fn promote(
        &self,
        shared: &mut Shared<M, B>,
        worker: &mut Worker,
        (first, looked_at): (u64, Range<usize>),
    ) {
        if shared.promote(worker, first, looked_at) {
            shared.give_up();
            self.even(shared);
        }
    }

    /// Has the thread that watches the machine look, if there is something to do for it.
    fn even(&self, shared: &Shared<M, B>) {
        if shared.is_uneven() || shared.is_share_due() {
            self.uneven.notify_one();
        }
    }

    /// Sees whether space runs short.
    fn watch(&self, shared: &mut Shared<M, B>) {
        let room = shared.room();
        shared.shortage.look(room);
        self.shortages.store(shared.shortage.times, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Shared<M, B>> {
        // A panic ends the process, so nobody ever finds the lock poisoned.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: SpaceSource + Copy, B: Blocks> Target for Device<M, B> {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn connect(&self) -> Option<Worker> {
        let mut shared = self.lock();
        shared.connections += 1;
        // Room for the first is never given away.
        if shared.connections > 1 && shared.make_room(RESERVE_BYTES).is_err() {
            shared.connections -= 1;
            return None;
        }
        shared.give_up();
        let mut worker = Worker::new(self.coding, shared.dense_codec);
        worker.choose(shared.density.choice());
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
        if self.buffer_pages == 0 {
            return Plan::default();
        }
        self.lock().plan(planned_blocks(offset_bytes, bytes), made)
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
        {
            let mut shared = self.lock();
            shared.counters.reads += 1;
            shared.counters.read_bytes += bytes as u64;
            made.iter().filter(|_| made.is_new).for_each(|read| shared.note_made(read));
            let (mut own, mut looked_at) = (None, 0);
            for (at, block) in blocks.clone().enumerate() {
                let mut read = shared.find_read(made.iter().chain(&own), block);
                if read.is_none()
                    && let Some(wanted) = shared.plan_read(block, count - at)
                {
                    self.promote(&mut shared, worker, (blocks.start, looked_at..at));
                    drop(shared);
                    own = read_now(wanted, worker);
                    shared = self.lock();
                    looked_at = at;
                    own.iter().for_each(|read| shared.note_made(read));
                    read = shared.find_read(own.iter(), block);
                }
                match read {
                    Some(read) => shared.look_at_read(worker, at, block, &read)?,
                    None => shared.look(worker, at, block)?,
                }
            }
            self.promote(&mut shared, worker, (blocks.start, looked_at..count));
            shared.look_at_density();
            worker.choose(shared.density.choice());
        }
        for at in 0..count {
            if worker.decode(at).is_err() {
                self.lock().counters.read_errors += 1;
                return Err(Refused::Io);
            }
        }
        Ok(worker.slot(offset_bytes, bytes))
    }

    fn write(&self, worker: &mut Worker, offset_bytes: u64, bytes: usize) -> Result<(), Refused> {
        let blocks = blocks_of(offset_bytes, bytes, self.size_bytes);
        let count = blocks.end - blocks.start;
        let end_bytes = offset_bytes + bytes as u64;
        let is_whole = |block: u64| {
            block * BLOCK_BYTES >= offset_bytes && (block + 1) * BLOCK_BYTES <= end_bytes
        };
        for (at, block) in blocks.clone().enumerate().filter(|(_, block)| is_whole(*block)) {
            debug_assert!(block < self.size_bytes / BLOCK_BYTES);
            worker.encode(at);
        }
        let mut shared = self.lock();
        let taken_bytes = shared.taken_bytes();
        shared.counters.writes += 1;
        shared.counters.written_bytes += bytes as u64;
        let mut outcome = Ok(());
        for (at, block) in blocks.enumerate() {
            outcome = match is_whole(block) {
                true => shared.put(worker, at, block),
                false => {
                    let start = offset_bytes.max(block * BLOCK_BYTES) % BLOCK_BYTES;
                    let part = start as usize..part_end(block, end_bytes);
                    shared.put_part(worker, at, block, part)
                }
            };
            if outcome.is_err() {
                shared.counters.write_errors += 1;
                break;
            }
        }
        let departed = shared.engine.departed();
        shared.note(&departed);
        shared.write_ahead();
        shared.give_up();
        self.watch(&mut shared);
        shared.density.coded(count, worker.take_tried());
        shared.look_at_density();
        worker.choose(shared.density.choice());
        if shared.taken_bytes() > taken_bytes && outcome.is_ok() {
            shared.slow(worker);
        }
        self.even(&shared);
        outcome
    }

    fn trim(&self, offset_bytes: u64, bytes: u64) -> Result<(), Refused> {
        let first = offset_bytes.div_ceil(BLOCK_BYTES);
        let end = (offset_bytes + bytes) / BLOCK_BYTES;
        let mut at = first;
        while at < end {
            let next = end.min(at + FORGET_BLOCKS);
            let mut shared = self.lock();
            let forgotten = shared.engine.forget(at..next);
            shared.blocks -= forgotten;
            shared.counters.freed_blocks += forgotten;
            at = next;
        }
        let mut shared = self.lock();
        shared.counters.trims += 1;
        self.watch(&mut shared);
        shared.look_at_density();
        self.even(&shared);
        Ok(())
    }

    // Zeros take no room either way.
    fn zero_blocks(
        &self,
        _: &mut Worker,
        offset_bytes: u64,
        bytes: u64,
        _: bool,
    ) -> Result<(), Refused> {
        self.trim(offset_bytes, bytes)
    }

    // What was acknowledged is there, as long as the server lives.
    fn flush(&self, _: &mut Worker) -> Result<(), Refused> {
        self.lock().counters.flushes += 1;
        Ok(())
    }

    fn keep_memory(&self) -> bool {
        {
            let mut shared = self.lock();
            shared.engine.cache.touch_buffers();
            shared.kept_bytes = Some(0);
        }
        self.keep(None).is_ok()
    }

    fn keep_ahead(&self) {
        self.go_on_keeping();
    }

    fn keep_once(&self) {
        self.look_once();
    }

    fn set_threshold(&self, percent: u64) -> Result<(), String> {
        let mut shared = self.lock();
        if !(1..=ALL_PERCENT as u64).contains(&percent) {
            return Err(format!("threshold={percent}%: give 1% to {ALL_PERCENT}%"));
        }
        if shared.store_bytes == 0 {
            return Err(format!("threshold={percent}%: there is no store"));
        }
        shared.threshold_percent = percent as usize;
        Ok(())
    }

    fn set_memory(&self, memory_bytes: u64) -> Result<(), String> {
        check_memory(memory_bytes, self.memory_bytes_max)?;
        let before = self.lock().bound(memory_bytes);
        match self.make_fit() {
            Ok(mut shared) => {
                if shared.kept_bytes.is_some() {
                    shared.engine.cache.touch_buffers();
                }
                shared.give_up();
                self.watch(&mut shared);
            }
            Err(refused) => {
                let mut shared = self.lock();
                shared.bound(before);
                let held_bytes = shared.held_bytes() as u64;
                let memory = shown(memory_bytes);
                return Err(match refused {
                    Some(Refused::NoSpace) => format!(
                        "{memory}: {} are held, and the store takes no more",
                        display(held_bytes)
                    ),
                    Some(Refused::Io) => {
                        format!("{memory}: {} are held, and the store fails", display(held_bytes))
                    }
                    None => format!("{memory}: it cannot be made so small now"),
                });
            }
        }
        self.keep_granted()
            .map_err(|_| format!("{}: there is not so much: give less", shown(memory_bytes)))
    }

    fn shortages(&self) -> u64 {
        self.shortages.load(Ordering::Relaxed)
    }

    fn status(&self) -> Status {
        let shared = self.lock();
        let cache = &shared.engine.cache;
        let pooled_pages = cache.pooled_pages() as u64;
        let spilled_pages = cache.spilled_pages() as u64;
        Status {
            size_bytes: self.size_bytes,
            memory_bytes: shared.memory_bytes,
            held_bytes: shared.held_bytes() as u64,
            pool_bytes: cache.pool_bytes() as u64,
            kept_bytes: shared.kept_bytes.unwrap_or(0).max(cache.pool_bytes()) as u64,
            given_bytes: shared.given_bytes(),
            payload_bytes: cache.payload_bytes() as u64,
            blocks: shared.blocks,
            pooled_blocks: pooled_pages,
            incompressible_blocks: (cache.raw_bytes() / PAGE_BYTES) as u64,
            spilled_blocks: spilled_pages,
            same_filled_blocks: shared.blocks.saturating_sub(pooled_pages + spilled_pages),
            has_store: shared.store_bytes > 0,
            threshold_percent: shared.threshold_percent as u64,
            compresses_clean: false,
            is_dense: shared.density.choice().is_dense,
            free_bytes: shared.room().left_bytes,
            is_short: shared.shortage.is_short,
            connections: shared.connections as u64,
            codec: self.coding.codec().name().to_owned(),
            counters: shared.counters,
        }
    }
}

/// The blocks of a piece of a device of `size_bytes`.
pub(crate) fn blocks_of(offset_bytes: u64, bytes: usize, size_bytes: u64) -> Range<u64> {
    let end_bytes = offset_bytes + bytes as u64;
    assert!(end_bytes <= size_bytes, "beyond the end");
    let blocks = offset_bytes / BLOCK_BYTES..end_bytes.div_ceil(BLOCK_BYTES);
    assert!(blocks.end - blocks.start <= PIECE_BLOCKS as u64, "more than a piece");
    blocks
}

/// The blocks of a range that are looked at for what is to be read.
pub(crate) fn planned_blocks(offset_bytes: u64, bytes: usize) -> Range<u64> {
    let first = offset_bytes / BLOCK_BYTES;
    let end = (offset_bytes + bytes as u64).div_ceil(BLOCK_BYTES);
    first..end.min(first + PLANNED_BLOCKS_MAX)
}

/// How a memory is told that was asked for.
pub(crate) fn shown(memory_bytes: u64) -> String {
    format!("memory={}", display(memory_bytes))
}

/// Whether a device can be given so much memory.
pub(crate) fn check_memory(memory_bytes: u64, most: u64) -> Result<(), String> {
    match (MEMORY_BYTES_MIN..=most).contains(&memory_bytes) {
        true => Ok(()),
        false => Err(format!(
            "{}: out of range: give from {} to {}",
            shown(memory_bytes),
            display(MEMORY_BYTES_MIN),
            display(most)
        )),
    }
}

/// RAM that pool and metadata of an engine take, the table of its sampler too.
pub(crate) fn engine_bytes<M: SpaceSource + Copy, B: Blocks>(engine: &Engine<M, B>) -> usize {
    let cache = &engine.cache;
    cache.pool_bytes()
        + cache.metadata_bytes()
        + cache.unused_buffer_bytes()
        + SLOTS * size_of::<Sample>()
}

/// RAM of clusters that are read around in.
fn around_bytes(memory_bytes: u64) -> usize {
    (memory_bytes as usize / AROUND_PART).max(CLUSTER_BYTES)
}

/// An engine of a design, with a cache that may grow to `memory_bytes_max`, and a sampler that works in `slots`, which are
/// [`SLOTS`] empty ones. `None` when `source` has no room.
pub(crate) fn engine<M: SpaceSource + Copy, B: Blocks>(
    source: M,
    design: &Design,
    setup: &Setup,
    store: Option<Store<B>>,
    slots: &'static mut [Sample],
) -> Option<Box<Engine<M, B>>> {
    let mut cache = Cache::new(source, design, setup.memory_bytes_max as usize, store)?;
    cache.bound_around(around_bytes(setup.memory_bytes));
    cache.keep_raw();
    // A machine seldom has all of its swap in use.
    let used_bytes = setup.size_bytes.min(setup.memory_bytes.saturating_mul(USED_PART));
    let sampler = Sampler::new(slots, used_bytes / BLOCK_BYTES);
    Some(Box::new(Engine::new(cache, design, sampler, setup.memory_bytes)))
}

/// Where within a block a range ends that ends at `end_bytes`.
fn part_end(block: u64, end_bytes: u64) -> usize {
    (end_bytes - block * BLOCK_BYTES).min(BLOCK_BYTES) as usize
}

impl<M: SpaceSource + Copy, B: Blocks> Shared<M, B> {
    /// Has pool and buffers take no more than `memory_bytes` from now on; gives what it was before.
    fn bound(&mut self, memory_bytes: u64) -> u64 {
        self.engine.cache.bound_around(around_bytes(memory_bytes));
        let before = std::mem::replace(&mut self.memory_bytes, memory_bytes);
        self.take_back();
        let pool_pages = self.pool_pages_max();
        if let Some(give_way) = &mut self.give_way {
            give_way.resize(pool_pages);
        }
        before
    }

    /// All that pool, metadata, buffers and connections take or may come to take.
    fn held_bytes(&self) -> usize {
        // The table of the store's clusters.
        let words = Clusters::words_for(self.counters.store_end_bytes);
        let sample_bytes =
            self.give_way.as_ref().map_or(0, |_| GIVE_WAY_SLOTS * size_of::<Sample>());
        engine_bytes(&self.engine)
            + sample_bytes
            + (words * size_of::<u64>()).next_multiple_of(PAGE_BYTES)
            + self.connections.max(1) * self.connection_bytes
    }

    /// What the pool may hold, as the rest stands.
    fn pool_bytes_max(&self) -> usize {
        let others_bytes = self.held_bytes() - self.engine.cache.pool_bytes() + GROWTH_BYTES;
        let memory_bytes = self.memory_bytes.saturating_sub(self.given_bytes());
        (memory_bytes as usize).saturating_sub(others_bytes) / PAGE_BYTES * PAGE_BYTES
    }

    fn pool_pages_max(&self) -> u64 {
        (self.pool_bytes_max() / PAGE_BYTES) as u64
    }

    /// What is held, and what has to stay free besides `reserve_bytes` before there is room for a block.
    fn claimed_bytes(&self, reserve_bytes: usize) -> u64 {
        let back_bytes = if self.store_bytes > 0 { CLUSTER_BYTES } else { 0 };
        (self.held_bytes() + GROWTH_BYTES + back_bytes + reserve_bytes) as u64
    }

    /// Whether what one block may need fits, besides `reserve_bytes`.
    fn fits(&self, reserve_bytes: usize) -> bool {
        self.claimed_bytes(reserve_bytes) + self.given_bytes() <= self.memory_bytes
    }

    /// What blocks take, of memory and of the store.
    fn taken_bytes(&self) -> u64 {
        let cache = &self.engine.cache;
        cache.payload_bytes() as u64 + cache.spilled_bytes()
    }

    /// The most that all of them take, where none shrinks.
    fn taken_bytes_max(&self) -> u64 {
        let block_bytes = match self.store_bytes {
            0 => PAGE_BYTES,
            _ => self.engine.cache.record_bytes_max(),
        };
        self.size_bytes / BLOCK_BYTES * block_bytes as u64
    }

    fn holding(&self) -> Holding {
        let cache = &self.engine.cache;
        Holding {
            pool_bytes: cache.pool_bytes() as u64,
            pool_bytes_max: self.pool_bytes_max() as u64,
            pooled_blocks: cache.pooled_pages() as u64,
            spilled_blocks: cache.spilled_pages() as u64,
            may_spill: cache.store_left_bytes() > self.store_bytes / SCARCE_PART,
        }
    }

    /// Decides anew which codec makes bytes of blocks.
    fn look_at_density(&mut self) {
        if self.dense_codec.is_some() {
            let holding = self.holding();
            self.density.look(&holding);
        }
    }

    fn room(&self) -> Room {
        let memory_bytes = self.memory_bytes.saturating_sub(self.claimed_bytes(RESERVE_BYTES));
        Room {
            whole_bytes: self.memory_bytes + self.store_bytes,
            left_bytes: memory_bytes + self.engine.cache.store_left_bytes(),
            wanted_bytes: self.taken_bytes_max().saturating_sub(self.taken_bytes()),
        }
    }

    /// Has the answer to a piece that took room wait, if space runs short.
    fn slow(&mut self, worker: &mut Worker) {
        let pause = self.shortage.pause(self.room());
        self.counters.throttled_writes += u64::from(!pause.is_zero());
        worker.add_pause(pause);
    }

    /// Has the oldest blocks leave for the store until it does, or nothing is gained by that.
    fn make_room(&mut self, reserve_bytes: usize) -> Result<(), Refused> {
        if self.is_exhausted() {
            // Nothing else needs the room, and where nothing can leave the kernel is asked for more.
            let _ = self.spill();
        }
        let mut search = Search::NEW;
        for _ in 0..SPILLS_MAX {
            if self.fits(reserve_bytes) {
                return Ok(());
            }
            self.spill_for(&mut search)?;
        }
        Err(Refused::NoSpace)
    }

    /// One round of a search for room; why there is to be no other.
    fn spill_for(&mut self, search: &mut Search) -> Result<(), Refused> {
        let goes_on = search.goes_on(self.engine.cache.payload_bytes());
        let spilled = if goes_on { self.spill() } else { Err(Refused::NoSpace) };
        spilled.or_else(|refused| if self.take_back() { Ok(()) } else { Err(refused) })
    }

    /// Has the oldest blocks leave before others need their room, as long as nobody waits for that.
    fn write_ahead(&mut self) {
        let most_bytes = self.pool_bytes_max() / ALL_PERCENT * self.threshold_percent;
        let is_due = self.threshold_percent < ALL_PERCENT
            && self.engine.cache.pool_bytes() > most_bytes
            && !self.engine.cache.is_writing();
        if is_due {
            // Nobody needs the room yet, and who does later is told why there is none.
            let _ = self.spill();
        }
    }

    fn spill(&mut self) -> Result<(), Refused> {
        let began = Moment::now();
        let written = self.engine.spill();
        self.used_store(began);
        self.note(&written);
        match written.outcome {
            Ok(_) => Ok(()),
            Err(SpillError::Io(_)) => Err(Refused::Io),
            Err(SpillError::NoStore | SpillError::Full | SpillError::Nothing) => {
                Err(Refused::NoSpace)
            }
        }
    }

    /// Notes what the store took since then; gives how long that was.
    fn used_store(&mut self, began: Moment) -> u64 {
        let (wall_ns, cpu_ns) = began.elapsed_ns();
        self.note_store(wall_ns, cpu_ns);
        wall_ns
    }

    fn note_store(&mut self, wall_ns: u64, cpu_ns: u64) {
        if let Some(give_way) = &mut self.give_way {
            give_way.used_store(cpu_ns, wall_ns.saturating_sub(cpu_ns));
        }
    }

    /// Notes what a read took that was made before the blocks were looked at.
    fn note_read(&mut self, wall_ns: u64, cpu_ns: u64) {
        self.note_store(wall_ns, cpu_ns);
        self.density.decoded(0, wall_ns);
    }

    /// Counts what went to the store.
    fn note(&mut self, written: &Written) {
        self.density.spilled(written.outgoing.pages as u64);
        let counters = &mut self.counters;
        counters.store_writes += written.outgoing.writes as u64;
        counters.store_written_bytes += written.outgoing.bytes as u64;
        counters.store_reads += u64::from(written.reads);
        counters.store_read_bytes += written.read_bytes as u64;
        counters.store_end_bytes = counters.store_end_bytes.max(written.outgoing.end_bytes);
        match written.outgoing.refused.or(written.outcome.err()) {
            Some(SpillError::Io(_)) => counters.store_errors += 1,
            Some(SpillError::Full) => counters.store_full += 1,
            Some(SpillError::NoStore | SpillError::Nothing) | None => {}
        }
    }

    /// Takes what the cache has of a block into the worker.
    fn look(&mut self, worker: &mut Worker, at: usize, block: u64) -> Result<(), Refused> {
        let mut reads = Reads::default();
        let (bytes, seen) = worker.slot_mut(at);
        let state = self.engine.cache.index.get(block).state();
        let began = matches!(state, State::Spilled { .. }).then(Moment::now);
        let found = self.engine.look(block, bytes, &mut reads);
        let waited_ns = began.map_or(0, |began| self.used_store(began));
        self.density.decoded(1, if reads.reads > 0 { waited_ns } else { 0 });
        if let Some(give_way) = self.give_way.as_mut().filter(|_| state != State::Absent) {
            give_way.comes(block, began.is_some());
        }
        self.counters.store_reads += u64::from(reads.reads);
        self.counters.store_read_bytes += reads.read_bytes as u64;
        self.counters.spilled_reads += reads.spilled_pages as u64;
        *seen = found.inspect_err(|_| self.counters.read_errors += 1)?;
        Ok(())
    }

    /// Has blocks of the worker's that were read from the store be in the pool again, where that pays
    /// and there is room; whether any is. The worker's first is `first`; what it has of them is what they
    /// are.
    fn promote(&mut self, worker: &mut Worker, first: u64, looked_at: Range<usize>) -> bool {
        let mut promoted = 0;
        for at in looked_at {
            let block = first + at as u64;
            if !self.engine.should_promote(block) {
                continue;
            }
            worker.condense(at);
            match self.place(worker, at, block) {
                Ok(Placed::NoRoom) | Err(_) => break,
                Ok(_) => {
                    self.engine.promoted(block);
                    promoted += 1;
                }
            }
        }
        self.counters.promoted_blocks += promoted;
        promoted > 0
    }

    /// Has a block be what was made of the worker's.
    fn put(&mut self, worker: &mut Worker, at: usize, block: u64) -> Result<(), Refused> {
        if worker.is_zero(at) {
            let forgotten = self.engine.forget(block..block + 1);
            self.blocks -= forgotten;
            return Ok(());
        }
        let was_zero = self.engine.cache.index.get(block).is_absent();
        let mut placed = self.place(worker, at, block);
        // A block that is written again as it was has its room, by the codec that it was written with.
        if placed.is_err() && !was_zero && worker.encode_otherwise(at) {
            placed = self.place(worker, at, block);
        }
        if placed? == Placed::NoRoom {
            // There is no place for the value: as any other block then.
            worker.encode_in_full(at);
            if self.place(worker, at, block)? == Placed::NoRoom {
                return Err(Refused::NoSpace);
            }
        }
        self.blocks += u64::from(was_zero);
        if let Some(give_way) = &mut self.give_way {
            give_way.leaves(block);
        }
        self.counters.dense_blocks += u64::from(worker.is_condensed(at));
        Ok(())
    }

    fn place(&mut self, worker: &Worker, at: usize, block: u64) -> Result<Placed, Refused> {
        let Some(content) = worker.content(at) else { return Ok(Placed::NoRoom) };
        let bytes = match content {
            Content::Filled(_) => 0,
            Content::Coded(_, bytes) => bytes.len(),
        };
        let is_known = !self.engine.cache.index.get(block).is_absent();
        if let Err(refused) = self.make_room(RESERVE_BYTES) {
            let is_no_longer = is_known && bytes <= self.engine.cache.pooled_bytes(block);
            if !is_no_longer || !self.fits(0) {
                return Err(refused);
            }
        }
        let mut departed = Departed::default();
        let mut placed = self.engine.replace(block, content, &mut departed);
        // A pool with a limit of its own has no room before something leaves it, or for as long as
        // nothing can the limit does not hold.
        let mut tries = 0;
        while placed == Placed::NoRoom && bytes > 0 && tries < TRIES_MAX {
            let spilled = self.spill();
            placed = self.engine.replace(block, content, &mut departed);
            if spilled.is_err() {
                break;
            }
            tries += 1;
        }
        Ok(placed)
    }

    /// Has a part of a block be what it is in the worker.
    fn put_part(
        &mut self,
        worker: &mut Worker,
        at: usize,
        block: u64,
        part: Range<usize>,
    ) -> Result<(), Refused> {
        let changed = worker.page_mut(at).clone();
        self.look(worker, at, block)?;
        if worker.decode(at).is_err() {
            self.counters.read_errors += 1;
            return Err(Refused::Io);
        }
        worker.page_mut(at).0[part.clone()].copy_from_slice(&changed.0[part]);
        worker.encode(at);
        self.put(worker, at, block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zpager_policy::DesignId;
    use zpager_store::Memory;

    use crate::space::Arena;

    #[test]
    fn who_asks_for_shortages_waits_for_nobody() {
        let setup = Setup {
            size_bytes: 64 << 20,
            memory_bytes: MEMORY_BYTES_MIN,
            memory_bytes_max: MEMORY_BYTES_MIN,
            ahead_bytes: None,
            settings: Settings::of(DesignId::Default),
        };
        let device = Device::<_, Memory>::new(Arena, &setup, None).expect("address space");
        let mut shared = device.lock();
        shared.memory_bytes = shared.claimed_bytes(RESERVE_BYTES);
        device.watch(&mut shared);
        assert_eq!(device.shortages(), 1);
    }
}
