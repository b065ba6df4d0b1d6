//! The clean cache against its disk: one that keeps what was flushed and may forget the rest, fails
//! to read, to write and to flush, and cannot make zeros of its own. Whatever a client reads is what
//! the disk has.
//!
//! The seed is taken from ZPAGER_SEED, or fixed; it is printed.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use zpager_device::{Arena, CleanCache, Disk, Refused, Setup, Target, Worker};
use zpager_policy::{DesignId, Settings};
use zpager_seed::{Random, seed};
use zpager_store::Errno;

const MIB: u64 = 1 << 20;
const BLOCK_BYTES: usize = 4096;
const EIO: Errno = Errno(5);
/// Most bytes of one step.
const STEP_BYTES_MAX: u64 = 40 << 10;

/// What is written to the disk.
trait Noise {
    fn data(&mut self, bytes: u64) -> Vec<u8>;
}

impl Noise for Random {
    /// Blocks that shrink, do not, or are one word again and again.
    fn data(&mut self, bytes: u64) -> Vec<u8> {
        let mut data = vec![0; bytes as usize];
        for block in data.chunks_mut(BLOCK_BYTES) {
            let kind = self.u64(..4);
            let word = self.u64(..3) as u8;
            for chunk in block.chunks_mut(4) {
                match kind {
                    0 => chunk.iter_mut().for_each(|byte| *byte = self.u64(..256) as u8),
                    1 => chunk.fill(word),
                    _ => chunk[0] = self.u64(..256) as u8,
                }
            }
        }
        data
    }
}

/// What fails: one of so many, or none where that is 0.
#[derive(Clone, Copy, Default)]
struct Faults {
    reads_one_in: u64,
    writes_one_in: u64,
    syncs_one_in: u64,
    has_no_zeros: bool,
}

/// A disk with a cache of its own, as disks have.
struct Volatile {
    state: Mutex<State>,
    faults: Faults,
    /// Calls take turns at random, for as long as clients work at the same time.
    is_shared: bool,
    turns: AtomicU64,
    /// So many of the next syncs fail.
    syncs_that_fail: AtomicU64,
    is_syncing: AtomicBool,
}

struct State {
    /// What is read.
    now: Vec<u8>,
    /// What a loss of power leaves.
    durable: Vec<u8>,
    random: Random,
}

impl Volatile {
    fn new(size_bytes: u64, faults: Faults) -> Self {
        let content = Random::with_seed(seed(2003)).data(size_bytes);
        let random = Random::with_seed(seed(2003) ^ 77);
        let state = State { now: content.clone(), durable: content, random };
        Volatile {
            state: Mutex::new(state),
            faults,
            is_shared: false,
            turns: AtomicU64::new(1),
            syncs_that_fail: AtomicU64::new(0),
            is_syncing: AtomicBool::new(false),
        }
    }

    fn fails(&self, one_in: u64) -> bool {
        one_in > 0 && self.state.lock().expect("alive").random.u64(..one_in) == 0
    }

    /// Lets others do something in between.
    fn pass(&self) {
        if self.is_shared {
            let turn = self.turns.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
            if turn >> 62 == 0 {
                std::thread::yield_now();
            }
        }
    }

    fn now(&self, range: Range<usize>) -> Vec<u8> {
        self.state.lock().expect("alive").now[range].to_vec()
    }

    /// Loses power: of each block that was written since, either is left.
    fn lose_power(&self) -> Vec<u8> {
        let state = &mut *self.state.lock().expect("alive");
        let mut left = state.durable.clone();
        for (left, now) in left.chunks_mut(BLOCK_BYTES).zip(state.now.chunks(BLOCK_BYTES)) {
            if state.random.u64(..2) == 0 {
                left.copy_from_slice(now);
            }
        }
        left
    }
}

fn check_aligned(offset_bytes: u64, bytes: u64) {
    assert!(offset_bytes.is_multiple_of(4096) && bytes.is_multiple_of(4096) && bytes > 0);
}

impl Disk for Volatile {
    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        check_aligned(offset_bytes, data.len() as u64);
        assert!(data.as_ptr().addr().is_multiple_of(BLOCK_BYTES), "not aligned");
        self.pass();
        if self.fails(self.faults.reads_one_in) {
            data.fill(0xee);
            return Err(EIO);
        }
        let start = offset_bytes as usize;
        data.copy_from_slice(&self.now(start..start + data.len()));
        self.pass();
        Ok(())
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> Result<(), Errno> {
        check_aligned(offset_bytes, data.len() as u64);
        self.pass();
        let is_failing = self.fails(self.faults.writes_one_in);
        let state = &mut *self.state.lock().expect("alive");
        // One that fails may have done some of it.
        let done =
            if is_failing { state.random.u64(..data.len() as u64) as usize } else { data.len() };
        let start = offset_bytes as usize;
        state.now[start..start + done].copy_from_slice(&data[..done]);
        if is_failing { Err(EIO) } else { Ok(()) }
    }

    fn zero(&self, offset_bytes: u64, bytes: u64, _: bool) -> Result<bool, Errno> {
        check_aligned(offset_bytes, bytes);
        if self.faults.has_no_zeros {
            return Ok(false);
        }
        if self.fails(self.faults.writes_one_in) {
            return Err(EIO);
        }
        let range = offset_bytes as usize..(offset_bytes + bytes) as usize;
        self.state.lock().expect("alive").now[range].fill(0);
        Ok(true)
    }

    /// One that fails has lost some of what was written since the last one, for everybody.
    fn sync(&self) -> Result<(), Errno> {
        assert!(!self.is_syncing.swap(true, Ordering::Relaxed), "two at once");
        let fail_one = |left: u64| left.checked_sub(1);
        let must_fail =
            self.syncs_that_fail.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fail_one);
        let is_failing = must_fail.is_ok() || self.fails(self.faults.syncs_one_in);
        if is_failing {
            let left = self.lose_power();
            let state = &mut *self.state.lock().expect("alive");
            state.now.clone_from(&left);
            state.durable = left;
        } else {
            let state = &mut *self.state.lock().expect("alive");
            state.durable.clone_from(&state.now);
        }
        self.pass();
        self.is_syncing.store(false, Ordering::Relaxed);
        if is_failing { Err(EIO) } else { Ok(()) }
    }
}

type Small = CleanCache<Arena, Volatile>;

fn cache(id: DesignId, disk: Volatile, size_bytes: u64) -> Small {
    let (memory_bytes, memory_bytes_max) = (8 * MIB, 16 * MIB);
    let settings = Settings::of(id);
    let setup = Setup { size_bytes, memory_bytes, memory_bytes_max, ahead_bytes: None, settings };
    CleanCache::new(Arena, &setup, disk).expect("address space")
}

/// Reads block by block; each is what the disk has, or cannot be read.
fn check(cache: &Small, worker: &mut Worker, offset_bytes: u64, bytes: u64) -> u64 {
    let (mut at, end, mut failed) = (offset_bytes, offset_bytes + bytes, 0);
    while at < end {
        let step = Worker::piece_bytes(at, (end - at) as usize);
        match cache.read(worker, at, step) {
            Ok(data) => {
                let there = cache.disk().now(at as usize..at as usize + step);
                assert!(data == there, "not what the disk has at {at}");
            }
            Err(refused) => {
                assert_eq!(refused, Refused::Io);
                failed += 1;
            }
        }
        at += step as u64;
    }
    failed
}

fn write(
    cache: &Small,
    worker: &mut Worker,
    offset_bytes: u64,
    data: &[u8],
) -> Result<(), Refused> {
    let mut done = 0;
    while done < data.len() {
        let at = offset_bytes + done as u64;
        let step = Worker::piece_bytes(at, data.len() - done);
        worker.slot(at, step).copy_from_slice(&data[done..done + step]);
        cache.write(worker, at, step)?;
        done += step;
    }
    Ok(())
}

/// What happened.
#[derive(Debug, Default)]
struct Tally {
    failed: u64,
    flushed: u64,
}

/// One step at random. Most are at the start of the disk, so that much is read again.
fn step(cache: &Small, worker: &mut Worker, random: &mut Random, tally: &mut Tally) {
    let size_bytes = cache.size_bytes();
    let unit = if random.u64(..3) == 0 { 1 } else { BLOCK_BYTES as u64 };
    let bytes = (1 + random.u64(..STEP_BYTES_MAX)).next_multiple_of(unit);
    let part_bytes = if random.u64(..4) > 0 { size_bytes / 8 } else { size_bytes };
    let offset_bytes = random.u64(..(part_bytes - bytes) / unit + 1) * unit;
    let range = offset_bytes as usize..(offset_bytes + bytes) as usize;
    let outcome = match random.u64(..24) {
        0..14 => {
            tally.failed += check(cache, worker, offset_bytes, bytes);
            Ok(())
        }
        14..20 => {
            let data = random.data(bytes);
            let written = write(cache, worker, offset_bytes, &data);
            assert!(written.is_err() || cache.disk().now(range) == data, "not on the disk");
            written
        }
        20 => cache.trim(offset_bytes, bytes),
        21 | 22 => {
            let zeroed = cache.write_zeroes(worker, offset_bytes, bytes, random.u64(..2) == 0);
            let are_zeros = || cache.disk().now(range).iter().all(|byte| *byte == 0);
            assert!(zeroed.is_err() || are_zeros(), "not zeros on the disk");
            zeroed
        }
        _ => {
            let flushed = cache.flush(worker);
            if flushed.is_ok() {
                tally.flushed += 1;
                let state = cache.disk().state.lock().expect("alive");
                assert!(state.now == state.durable, "not flushed");
            }
            flushed
        }
    };
    tally.failed += u64::from(outcome.is_err());
    tally.failed += check(cache, worker, offset_bytes, bytes);
    let status = cache.status();
    assert!(status.held_bytes <= status.memory_bytes, "too much: {status:?}");
}

fn run(id: DesignId, size_bytes: u64, faults: Faults, steps: u32) -> (Small, Tally) {
    let cache = cache(id, Volatile::new(size_bytes, faults), size_bytes);
    let mut worker = cache.connect().expect("the first is always let in");
    let (mut random, mut tally) = (Random::with_seed(seed(2003)), Tally::default());
    for _ in 0..steps {
        step(&cache, &mut worker, &mut random, &mut tally);
    }
    tally.failed += check(&cache, &mut worker, 0, size_bytes);
    cache.disconnect(worker);
    (cache, tally)
}

#[test]
fn every_block_is_what_the_disk_has_whatever_the_design() {
    for id in DesignId::ALL {
        for has_no_zeros in [false, true] {
            let faults = Faults { has_no_zeros, ..Faults::default() };
            let (cache, tally) = run(id, 24 * MIB, faults, 1200);
            let status = cache.status();
            assert!(tally.failed == 0 && tally.flushed > 20, "{id:?}: {tally:?}");
            let counters = status.counters;
            assert!(counters.hits > 1000 && counters.released_blocks > 100, "{id:?}: {status:?}");
            assert!(counters.store_reads > 500 && status.pooled_blocks > 100, "{id:?}: {status:?}");
            assert_eq!((counters.read_errors, counters.store_errors), (0, 0));
        }
    }
}

#[test]
fn what_the_disk_refuses_is_told_and_never_served() {
    let faults = [
        Faults { reads_one_in: 10, ..Faults::default() },
        Faults { writes_one_in: 4, ..Faults::default() },
        Faults { syncs_one_in: 2, ..Faults::default() },
        Faults { reads_one_in: 20, writes_one_in: 10, syncs_one_in: 4, has_no_zeros: true },
    ];
    for faults in faults {
        let (cache, tally) = run(DesignId::Default, 16 * MIB, faults, 2000);
        let status = cache.status();
        assert!(tally.failed > 20 && status.counters.hits > 1000, "{tally:?} {status:?}");
    }
}

/// The cache goes and the disk loses power, at some moment. What a flush was answered for is there,
/// or what was written over it since.
#[test]
fn what_was_flushed_outlives_a_loss_of_power() {
    const SIZE_BYTES: u64 = 4 * MIB;
    for turn in 0..20 {
        let cache =
            cache(DesignId::Default, Volatile::new(SIZE_BYTES, Faults::default()), SIZE_BYTES);
        let mut worker = cache.connect().expect("room");
        let mut random = Random::with_seed(seed(2003) + turn);
        let mut flushed = cache.disk().now(0..SIZE_BYTES as usize);
        let mut since: Vec<(usize, Vec<u8>)> = Vec::new();
        for _ in 0..1 + random.u64(..200) {
            if random.u64(..20) == 0 {
                cache.flush(&mut worker).expect("flushed");
                for (at, data) in since.drain(..) {
                    flushed[at..at + data.len()].copy_from_slice(&data);
                }
                continue;
            }
            let bytes = (1 + random.u64(..8)) * BLOCK_BYTES as u64;
            let data = random.data(bytes);
            let blocks = (SIZE_BYTES as usize - data.len()) / BLOCK_BYTES;
            let at = random.u64(..blocks as u64 + 1) as usize * BLOCK_BYTES;
            write(&cache, &mut worker, at as u64, &data).expect("written");
            since.push((at, data));
        }
        let left = cache.disk().lose_power();
        for (number, block) in left.chunks(BLOCK_BYTES).enumerate() {
            let at = number * BLOCK_BYTES;
            let is_it = |(start, data): &(usize, Vec<u8>)| {
                at.checked_sub(*start)
                    .and_then(|from| data.get(from..from + BLOCK_BYTES))
                    .is_some_and(|written| written == block)
            };
            let is_flushed = block == &flushed[at..at + BLOCK_BYTES];
            assert!(is_flushed || since.iter().any(is_it), "block {number} of turn {turn}");
        }
    }
}

/// A flush that fails may have lost what any client has written: each is told by its own next one, once.
#[test]
fn a_flush_that_fails_is_told_to_every_client() {
    let cache = cache(DesignId::Default, Volatile::new(MIB, Faults::default()), MIB);
    let mut workers: Vec<Worker> = (0..3).map(|_| cache.connect().expect("room")).collect();
    for (at, worker) in (0..).map(|block| block * BLOCK_BYTES as u64).zip(&mut workers) {
        worker.slot(at, BLOCK_BYTES).fill(7);
        cache.write(worker, at, BLOCK_BYTES).expect("written");
    }
    cache.disk().syncs_that_fail.store(1, Ordering::Relaxed);
    for expected in [Err(Refused::Io), Ok(()), Ok(())] {
        for worker in &mut workers {
            assert_eq!(cache.flush(worker), expected);
        }
        // What comes later has lost nothing.
        let mut late = cache.connect().expect("room");
        assert_eq!(cache.flush(&mut late), Ok(()));
        cache.disconnect(late);
    }
    let status = cache.status();
    assert_eq!((status.counters.flushes, status.counters.store_errors), (12, 1));
}

/// Whatever a client has written since it was told of a failure is there once a flush succeeds, however
/// those of others end in between.
#[test]
fn clients_that_flush_at_the_same_time_lose_nothing_untold() {
    const SIZE_BYTES: u64 = 2 * MIB;
    let faults = Faults { syncs_one_in: 3, ..Faults::default() };
    let mut disk = Volatile::new(SIZE_BYTES, faults);
    disk.is_shared = true;
    let cache = cache(DesignId::Default, disk, SIZE_BYTES);
    std::thread::scope(|scope| {
        for client in 0..4 {
            let cache = &cache;
            scope.spawn(move || {
                let mut worker = cache.connect().expect("room");
                for turn in 0..60 {
                    let at = (client * 60 + turn) * BLOCK_BYTES;
                    worker.slot(at as u64, BLOCK_BYTES).fill(turn as u8 + 1);
                    cache.write(&mut worker, at as u64, BLOCK_BYTES).expect("written");
                    if cache.flush(&mut worker).is_ok() {
                        let there = cache.disk().now(at..at + BLOCK_BYTES);
                        assert!(there == [turn as u8 + 1; BLOCK_BYTES], "lost, and nobody said so");
                    }
                }
            });
        }
    });
    assert!(cache.status().counters.store_errors > 0);
}

/// Several clients at the same blocks: once all is quiet every block is read as the disk has it, and
/// what two of them wrote to either half of a block is both there.
#[test]
fn clients_at_the_same_time_find_what_the_disk_has() {
    const SIZE_BYTES: u64 = 2 * MIB;
    const CLIENTS: u64 = 4;
    for turn in 0..3 {
        let mut disk = Volatile::new(SIZE_BYTES, Faults::default());
        disk.is_shared = true;
        let cache = cache(DesignId::Default, disk, SIZE_BYTES);
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let cache = &cache;
                let mut random = Random::with_seed(seed(2003) + turn * CLIENTS + client);
                scope.spawn(move || {
                    let mut worker = cache.connect().expect("room");
                    for _ in 0..400 {
                        // Few blocks, so that they meet.
                        let at = random.u64(..24) * BLOCK_BYTES as u64;
                        let bytes = (1 + random.u64(..8)) as usize * BLOCK_BYTES;
                        match random.u64(..8) {
                            0..4 => {
                                cache.read(&mut worker, at, bytes).expect("readable");
                            }
                            4..7 => {
                                worker.slot(at, bytes).fill(random.u64(..256) as u8);
                                cache.write(&mut worker, at, bytes).expect("written");
                            }
                            _ => cache.trim(at, bytes as u64).expect("trimmed"),
                        }
                    }
                    let part_bytes = BLOCK_BYTES / CLIENTS as usize;
                    for block in 100..164 {
                        let at = block * BLOCK_BYTES as u64 + client * part_bytes as u64;
                        worker.slot(at, part_bytes).fill(client as u8 + 1);
                        cache.write(&mut worker, at, part_bytes).expect("written");
                    }
                    cache.disconnect(worker);
                });
            }
        });
        let mut worker = cache.connect().expect("room");
        // The second time from the cache.
        for _ in 0..2 {
            assert_eq!(check(&cache, &mut worker, 0, SIZE_BYTES), 0);
        }
        for block in 100..164 {
            let at = block * BLOCK_BYTES;
            let there = cache.disk().now(at..at + BLOCK_BYTES);
            let parts: Vec<u8> = there.chunks(BLOCK_BYTES / 4).map(|part| part[0]).collect();
            assert_eq!(parts, [1, 2, 3, 4], "of block {block}");
            assert!(
                there.chunks(BLOCK_BYTES / 4).all(|part| part.iter().all(|byte| *byte == part[0]))
            );
        }
    }
}

/// Castro's switch: passes over what does not fit stop it, and reading the same again starts it.
#[test]
fn blocks_that_do_not_come_back_are_kept_no_longer() {
    let size_bytes = 32 * MIB;
    let cache = cache(DesignId::Default, Volatile::new(size_bytes, Faults::default()), size_bytes);
    let mut worker = cache.connect().expect("room");
    assert!(cache.status().compresses_clean);
    check(&cache, &mut worker, 0, size_bytes);
    let status = cache.status();
    assert!(!status.compresses_clean && status.counters.dropped_blocks > 1000, "{status:?}");
    let again_bytes = 128 * BLOCK_BYTES as u64;
    for _ in 0..4 {
        check(&cache, &mut worker, size_bytes - again_bytes, again_bytes);
    }
    let status = cache.status();
    assert!(status.compresses_clean, "{status:?}");
    let hits = status.counters.hits;
    for _ in 0..2 {
        check(&cache, &mut worker, size_bytes - again_bytes, again_bytes);
    }
    let status = cache.status();
    assert!(status.counters.hits >= hits + 128, "{status:?}");
}

#[test]
fn memory_is_taken_and_given_back() {
    let size_bytes = 64 * MIB;
    let cache = cache(DesignId::Default, Volatile::new(size_bytes, Faults::default()), size_bytes);
    let mut worker = cache.connect().expect("room");
    assert!(cache.set_memory(MIB).is_err() && cache.set_memory(17 * MIB).is_err());
    cache.set_memory(16 * MIB).expect("in range");
    check(&cache, &mut worker, 0, size_bytes);
    assert!(cache.status().held_bytes > 12 * MIB, "{:?}", cache.status());
    cache.set_memory(8 * MIB).expect("in range");
    let status = cache.status();
    assert!(status.held_bytes <= 8 * MIB && status.pooled_blocks > 500, "{status:?}");
    check(&cache, &mut worker, 0, size_bytes);
    cache.trim(0, size_bytes).expect("trimmed");
    let status = cache.status();
    assert_eq!((status.blocks, status.payload_bytes), (0, 0), "{status:?}");
    assert!(status.pool_bytes <= 128 << 10, "{status:?}");
}
