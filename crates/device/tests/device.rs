//! The device against a plain vector, under every design, with stores that are there, full, failing
//! or absent, in little memory.
//!
//! The seed is taken from ZPAGER_SEED, or fixed; it is printed.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use zpager_cache::Store;
use zpager_device::{Device, PAUSE_MAX, Refused, Setup, Target, Worker};
use zpager_policy::{DesignId, Settings};
use zpager_pool::Heap;
use zpager_seed::{Random, random};
use zpager_store::{Blocks, Clusters, Errno, Faulting, Memory};

const MIB: u64 = 1 << 20;
const BLOCK_BYTES: u64 = 4096;
/// Most bytes of one step.
const STEP_BYTES_MAX: u64 = 40 << 10;

/// What is written to the device.
trait Noise {
    fn data_into(&mut self, data: &mut [u8]);
}

impl Noise for Random {
    /// Data of one of several kinds: some shrink, some do not, some are one word again and again.
    fn data_into(&mut self, data: &mut [u8]) {
        let kind = self.u64(..6);
        let word = self.u64(..3) * 0x0101_0101;
        for chunk in data.chunks_mut(8) {
            let value = match kind {
                0 | 1 => self.u64(..),
                2 => word,
                _ => self.u64(..256) << 8 | 0x5500_0000,
            };
            chunk.copy_from_slice(&value.to_le_bytes()[..chunk.len()]);
        }
    }
}

/// What lies behind a device.
enum Behind {
    Nothing,
    Good(u64),
    Failing(u64),
}

type Faulty = Faulting<Memory>;
type Small = Device<Heap, Faulty>;

fn device(id: DesignId, size_bytes: u64, behind: &Behind) -> Small {
    let (store_bytes, one_in) = match behind {
        Behind::Nothing => (0, 0),
        Behind::Good(bytes) => (*bytes, 0),
        Behind::Failing(bytes) => (*bytes, 4),
    };
    let words: &'static [AtomicU64] =
        (0..Clusters::words_for(store_bytes)).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak();
    let store = (store_bytes > 0).then(|| Store {
        blocks: Faulting::new(Memory::default(), 7, one_in),
        clusters: Clusters::new(words),
    });
    let setup = Setup {
        size_bytes,
        memory_bytes: 8 * MIB,
        memory_bytes_max: 16 * MIB,
        ahead_bytes: None,
        settings: Settings::of(id),
    };
    Device::new(Heap, &setup, store).expect("heap")
}

/// A device, what it should hold, and what may not be read any more as the store failed.
struct Pair {
    device: Small,
    worker: Option<Worker>,
    model: Vec<u8>,
    refused: u64,
    lost: u64,
}

impl Pair {
    fn new(id: DesignId, size_bytes: u64, behind: &Behind) -> Self {
        let device = device(id, size_bytes, behind);
        let worker = device.connect();
        assert!(worker.is_some(), "the first is always let in");
        let model = vec![0; size_bytes as usize];
        Pair { device, worker, model, refused: 0, lost: 0 }
    }

    fn worker(&mut self) -> (&Small, &mut Worker) {
        (&self.device, self.worker.as_mut().expect("connected"))
    }

    /// Reads block by block; what the store has lost may be missing, and is never wrong.
    fn check(&mut self, offset_bytes: u64, bytes: u64) {
        let mut at = offset_bytes;
        while at < offset_bytes + bytes {
            let left = (offset_bytes + bytes - at) as usize;
            let step = left.min((BLOCK_BYTES - at % BLOCK_BYTES) as usize);
            let (device, worker) = self.worker();
            match device.read(worker, at, step).map(<[u8]>::to_vec) {
                Ok(data) => {
                    let expected = &self.model[at as usize..at as usize + step];
                    assert!(data == expected, "other bytes at {at}");
                }
                Err(refused) => {
                    assert_eq!(refused, Refused::Io);
                    self.lost += 1;
                }
            }
            at += step as u64;
        }
    }

    fn write(&mut self, offset_bytes: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let at = offset_bytes + done as u64;
            let step = Worker::piece_bytes(at, data.len() - done);
            let part = &data[done..done + step];
            let (device, worker) = self.worker();
            worker.slot(at, step).copy_from_slice(part);
            match device.write(worker, at, step) {
                Ok(()) => self.model[at as usize..at as usize + step].copy_from_slice(part),
                Err(_) => return self.take_over(at, part),
            }
            done += step;
        }
    }

    /// After a write that was refused: each block is as before or as written.
    fn take_over(&mut self, offset_bytes: u64, data: &[u8]) {
        self.refused += 1;
        let mut done = 0;
        while done < data.len() {
            let at = offset_bytes + done as u64;
            let step = (data.len() - done).min((BLOCK_BYTES - at % BLOCK_BYTES) as usize);
            let part = &data[done..done + step];
            let (device, worker) = self.worker();
            if let Ok(found) = device.read(worker, at, step).map(<[u8]>::to_vec) {
                let model = &mut self.model[at as usize..at as usize + step];
                assert!(found == part || found == model, "neither old nor new at {at}");
                model.copy_from_slice(&found);
            }
            done += step;
        }
    }

    fn step(&mut self, random: &mut Random) {
        let size_bytes = self.model.len() as u64;
        let unit = if random.u64(..3) == 0 { 1 } else { BLOCK_BYTES };
        let bytes = (1 + random.u64(..STEP_BYTES_MAX)).next_multiple_of(unit);
        let offset_bytes = random.u64(..(size_bytes - bytes) / unit + 1) * unit;
        let range = offset_bytes as usize..(offset_bytes + bytes) as usize;
        match random.u64(..12) {
            0..5 => self.check(offset_bytes, bytes),
            5..10 => {
                let mut data = vec![0; bytes as usize];
                data.chunks_mut(BLOCK_BYTES as usize).for_each(|block| random.data_into(block));
                self.write(offset_bytes, &data);
            }
            10 => {
                assert_eq!(self.device.trim(offset_bytes, bytes), Ok(()));
                let first = range.start.next_multiple_of(BLOCK_BYTES as usize);
                let end = range.end / BLOCK_BYTES as usize * BLOCK_BYTES as usize;
                if first < end {
                    self.model[first..end].fill(0);
                }
            }
            _ => {
                let (device, worker) = self.worker();
                match device.write_zeroes(worker, offset_bytes, bytes, true) {
                    Ok(()) => self.model[range].fill(0),
                    Err(_) => self.take_over(offset_bytes, &vec![0; bytes as usize]),
                }
            }
        }
        let status = self.device.status();
        assert!(status.held_bytes <= status.memory_bytes, "too much: {status:?}");
    }

    /// Everything is freed by one trim.
    fn empty(&mut self) {
        assert_eq!(self.device.trim(0, self.model.len() as u64), Ok(()));
        let status = self.device.status();
        assert_eq!((status.blocks, status.payload_bytes, status.spilled_blocks), (0, 0, 0));
        assert!(status.pool_bytes <= 128 << 10, "a pool of nothing: {status:?}");
        self.model.fill(0);
        self.check(0, 64 * BLOCK_BYTES);
    }
}

fn run(id: DesignId, size_bytes: u64, behind: &Behind, steps: u32) -> Pair {
    println!("{id:?}, {size_bytes} bytes, {steps} steps");
    let (mut pair, mut random) = (Pair::new(id, size_bytes, behind), random(1999));
    for _ in 0..steps {
        pair.step(&mut random);
    }
    pair.check(0, size_bytes);
    pair
}

#[test]
fn every_block_is_what_was_written_whatever_the_design() {
    for id in DesignId::ALL {
        let mut pair = run(id, 32 * MIB, &Behind::Good(64 * MIB), 4000);
        let status = pair.device.status();
        assert_eq!((pair.refused, pair.lost), (0, 0), "{id:?}: {status:?}");
        assert!(status.counters.store_writes > 0, "{id:?}: {status:?}");
        pair.empty();
    }
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_else_is_lost() {
    for behind in [Behind::Nothing, Behind::Good(MIB)] {
        let mut pair = run(DesignId::Default, 32 * MIB, &behind, 4000);
        assert!(pair.refused > 50 && pair.lost == 0, "{} refused", pair.refused);
        // What is written once more as it is takes no more room.
        let refused = pair.refused;
        pair.empty();
        let data: Vec<u8> = (0..BLOCK_BYTES).map(|at| ((at * at) >> 3) as u8).collect();
        pair.write(5 * BLOCK_BYTES, &data);
        assert_eq!(pair.refused, refused, "there is room again");
        pair.check(0, MIB);
    }
}

#[test]
fn a_full_device_can_still_be_written_over() {
    let (mut pair, mut random) =
        (Pair::new(DesignId::Default, 64 * MIB, &Behind::Nothing), random(1999));
    let mut block = [0; BLOCK_BYTES as usize];
    let mut kept = Vec::new();
    for at in (0..64 * MIB).step_by(BLOCK_BYTES as usize) {
        block.chunks_mut(4).for_each(|word| word.copy_from_slice(&[random.u64(..256) as u8; 4]));
        let refused = pair.refused;
        pair.write(at, &block);
        if pair.refused > refused {
            break;
        }
        kept.push((at, block));
    }
    assert!(pair.refused == 1 && kept.len() > 1000, "{} kept", kept.len());
    for (at, block) in kept {
        pair.write(at, &block);
    }
    assert_eq!(pair.refused, 1);
    pair.check(0, 64 * MIB);
}

/// Whatever is behind it, and whether data shrink or not.
#[test]
fn what_runs_short_is_slowed_before_anything_is_refused() {
    for (behind, is_noise) in
        [(Behind::Nothing, true), (Behind::Nothing, false), (Behind::Good(6 * MIB), true)]
    {
        let mut pair = Pair::new(DesignId::Default, 128 * MIB, &behind);
        let mut random = random(1999);
        let (mut slowed, mut longest, mut at) = (0, Duration::ZERO, 0);
        while pair.refused == 0 {
            let mut block = [0; BLOCK_BYTES as usize];
            let step = if is_noise { 1 } else { 3 };
            block.iter_mut().step_by(step).for_each(|byte| *byte = random.u8(..));
            pair.write(at, &block);
            let pause = pair.worker().1.take_pause();
            let status = pair.device.status();
            assert!(
                pause <= PAUSE_MAX && (pause.is_zero() || status.is_short),
                "{pause:?}: {status:?}"
            );
            slowed += u64::from(!pause.is_zero());
            longest = longest.max(pause);
            at += BLOCK_BYTES;
        }
        let status = pair.device.status();
        println!("{slowed} of {} slowed, {longest:?} at most", at / BLOCK_BYTES);
        assert!(status.is_short && pair.device.shortages() == 1, "{status:?}");
        assert_eq!(status.counters.throttled_writes, slowed);
        // An eighth of it, in blocks, is more than that: noise takes all of each.
        assert!(slowed > 8 * MIB / 8 / BLOCK_BYTES / 2, "{slowed} slowed");
        assert!(longest > PAUSE_MAX / 2, "{longest:?} where nothing is left");
        pair.check(0, at);
        // Who takes no room does not wait: reads, zeros, what is written again, trims.
        pair.write(at, &[0; BLOCK_BYTES as usize]);
        let last = pair.model[(at - 2 * BLOCK_BYTES) as usize..][..BLOCK_BYTES as usize].to_vec();
        pair.write(at - 2 * BLOCK_BYTES, &last);
        assert_eq!(pair.worker().1.take_pause(), Duration::ZERO);
        let half = at / 2 / BLOCK_BYTES * BLOCK_BYTES;
        assert_eq!(pair.device.trim(0, half), Ok(()));
        pair.model[..half as usize].fill(0);
        let status = pair.device.status();
        assert!(!status.is_short, "{status:?}");
        pair.write(0, &last);
        assert_eq!(pair.worker().1.take_pause(), Duration::ZERO);
        assert_eq!(pair.device.status().counters.throttled_writes, slowed);
        pair.check(0, at);
    }
}

/// Whatever the design, and however many bytes of a block are noise: it runs short before it is full, and
/// what is refused then hardly has the store be read and written, as there is nothing to be had.
#[test]
fn what_is_full_says_so_before_and_refuses_at_once() {
    const REFUSED: u64 = 40;
    let kinds = [[1800, 1800], [3000, 1300], [4096, 4096]];
    for (id, noise) in DesignId::ALL.into_iter().flat_map(|id| kinds.map(|noise| (id, noise))) {
        let mut pair = Pair::new(id, 64 * MIB, &Behind::Good(6 * MIB));
        let (mut random, mut at) = (random(1999), 0);
        let mut write = |pair: &mut Pair| {
            let mut block = [0x55; BLOCK_BYTES as usize];
            block[..noise[(at / BLOCK_BYTES % 2) as usize]].fill_with(|| random.u8(..));
            pair.write(at, &block);
            at += BLOCK_BYTES;
        };
        while pair.refused == 0 {
            let was_short = pair.device.status().is_short;
            write(&mut pair);
            assert!(
                pair.refused == 0 || was_short,
                "{id:?}, {noise:?}: {:?}",
                pair.device.status()
            );
        }
        let before = pair.device.status();
        assert!(before.free_bytes < MIB / 2, "{id:?}, {noise:?}: {before:?}");
        (0..REFUSED).for_each(|_| write(&mut pair));
        let after = pair.device.status();
        assert!(pair.refused > REFUSED / 2, "{} refused by {id:?}, {noise:?}", pair.refused);
        let [reads, writes] = [
            after.counters.store_reads - before.counters.store_reads,
            after.counters.store_writes - before.counters.store_writes,
        ];
        println!("{id:?}, {noise:?}: {reads} reads, {writes} writes");
        assert!(reads.max(writes) <= 4 * REFUSED, "{id:?}, {noise:?}: {reads}, {writes}");
        assert_eq!(pair.device.shortages(), 1);
    }
}

#[test]
fn a_device_that_fits_whatever_comes_is_never_slowed() {
    let mut pair = Pair::new(DesignId::Default, 6 * MIB, &Behind::Nothing);
    let mut random = random(1999);
    for at in (0..6 * MIB).step_by(BLOCK_BYTES as usize) {
        let mut block = [0; BLOCK_BYTES as usize];
        block.iter_mut().for_each(|byte| *byte = random.u8(..));
        pair.write(at, &block);
    }
    assert_eq!((pair.refused, pair.device.shortages()), (0, 0), "{:?}", pair.device.status());
    assert_eq!(pair.worker().1.take_pause(), Duration::ZERO);
    pair.check(0, 6 * MIB);
}

#[test]
fn more_memory_ends_the_shortage() {
    let mut pair = Pair::new(DesignId::Default, 64 * MIB, &Behind::Nothing);
    let (mut random, mut at) = (random(1999), 0);
    while pair.refused == 0 {
        let mut block = [0; BLOCK_BYTES as usize];
        block.iter_mut().for_each(|byte| *byte = random.u8(..));
        pair.write(at, &block);
        at += BLOCK_BYTES;
    }
    assert!(pair.device.status().is_short);
    pair.device.set_memory(16 * MIB).expect("in range");
    let status = pair.device.status();
    assert!(!status.is_short && status.free_bytes > 7 * MIB, "{status:?}");
    pair.check(0, at);
}

#[test]
fn a_store_that_fails_never_gives_wrong_bytes() {
    let mut store_errors = 0;
    for id in [DesignId::Default, DesignId::Zswap] {
        let pair = run(id, 20 * MIB, &Behind::Failing(64 * MIB), 2500);
        let status = pair.device.status();
        store_errors += status.counters.store_errors;
        assert_eq!(status.counters.read_errors > 0, pair.lost > 0, "{status:?}");
    }
    assert!(store_errors > 0, "no write to the store failed");
}

#[test]
fn zeros_take_nothing_and_other_words_next_to_nothing() {
    let mut pair = Pair::new(DesignId::Default, 64 * MIB, &Behind::Nothing);
    let empty = pair.device.status();
    for at in (0..64 * MIB).step_by(MIB as usize) {
        pair.write(at, &vec![0; MIB as usize]);
    }
    let zeros = pair.device.status();
    assert_eq!((zeros.blocks, zeros.held_bytes), (0, empty.held_bytes));
    for at in (0..64 * MIB).step_by(MIB as usize) {
        pair.write(at, &vec![0xff; MIB as usize]);
    }
    let words = pair.device.status();
    assert_eq!((words.same_filled_blocks, words.pool_bytes), (64 * 256, 0));
    assert!(words.held_bytes <= empty.held_bytes + 64 * 256 * 8 + (16 << 10), "{words:?}");
    pair.check(0, 64 * MIB);
    pair.empty();
}

#[test]
fn memory_can_be_set_as_far_as_there_is_a_place_for_the_rest() {
    let mut pair = Pair::new(DesignId::Default, 64 * MIB, &Behind::Good(12 * MIB));
    assert!(pair.device.set_memory(MIB).is_err() && pair.device.set_memory(17 * MIB).is_err());
    pair.device.set_memory(16 * MIB).expect("in range");
    let mut random = random(1999);
    let mut at = 0;
    while pair.refused == 0 {
        let mut data = vec![0; 64 << 10];
        data.chunks_mut(2).for_each(|pair| pair[0] = random.u64(..256) as u8);
        pair.write(at, &data);
        at += 64 << 10;
    }
    let why = pair.device.set_memory(8 * MIB).expect_err("there is no place for it");
    assert!(why.contains("the store"), "{why}");
    assert_eq!(pair.device.status().memory_bytes, 16 * MIB);
    pair.check(0, 64 * MIB);
    assert_eq!(pair.device.trim(0, 24 * MIB), Ok(()));
    pair.model[..24 << 20].fill(0);
    pair.device.set_memory(8 * MIB).expect("there is now");
    let status = pair.device.status();
    assert!(status.held_bytes <= 8 * MIB, "{status:?}");
    pair.check(0, 64 * MIB);
}

/// Blocks leave once the pool is as full as the threshold says, a cluster with each write, and come back
/// as they were.
#[test]
fn blocks_leave_at_the_threshold() {
    let mut pair = Pair::new(DesignId::Default, 64 * MIB, &Behind::Good(64 * MIB));
    let mut random = random(1999);
    let mut fill = |pair: &mut Pair, range: std::ops::Range<u64>| {
        for at in range.step_by(64 << 10) {
            let mut data = vec![0; 64 << 10];
            data.chunks_mut(8).for_each(|word| word[0] = random.u64(..256) as u8);
            pair.write(at, &data);
        }
    };
    fill(&mut pair, 0..4 * MIB);
    let before = pair.device.status();
    assert_eq!(before.spilled_blocks, 0, "it is not full: {before:?}");
    for percent in [0, 101] {
        assert!(pair.device.set_threshold(percent).expect_err("out of range").contains("100%"));
    }
    pair.device.set_threshold(5).expect("in range");
    fill(&mut pair, 4 * MIB..8 * MIB);
    let status = pair.device.status();
    assert!(status.spilled_blocks > 0 && status.pool_bytes < before.pool_bytes, "{status:?}");
    pair.check(0, 8 * MIB);
    pair.device.set_threshold(100).expect("in range");
    let spilled_blocks = pair.device.status().spilled_blocks;
    fill(&mut pair, 8 * MIB..9 * MIB);
    assert_eq!(pair.device.status().spilled_blocks, spilled_blocks);
    let alone = Pair::new(DesignId::Default, MIB, &Behind::Nothing);
    assert!(alone.device.set_threshold(50).expect_err("nowhere").contains("no store"));
}

/// Memory of which nobody else has any use holds blocks that do not shrink, while there is room; what shrinks
/// comes before them then.
#[test]
fn what_does_not_shrink_stays_while_there_is_room() {
    const ROOM_BYTES: u64 = 6 * MIB;
    let mut pair = Pair::new(DesignId::Default, 64 * MIB, &Behind::Good(64 * MIB));
    let mut random = random(1999);
    let mut fill = |pair: &mut Pair, range: std::ops::Range<u64>, few: u64| {
        for at in range.step_by(64 << 10) {
            let words = (0..8 << 10).flat_map(|_| (random.u64(..) % few).to_le_bytes());
            pair.write(at, &words.collect::<Vec<_>>());
        }
    };
    let half_bytes = ROOM_BYTES / 2;
    fill(&mut pair, 0..half_bytes, u64::MAX);
    let status = pair.device.status();
    assert_eq!((status.spilled_blocks, status.counters.store_writes), (0, 0), "{status:?}");
    assert_eq!(status.incompressible_blocks, half_bytes / BLOCK_BYTES);
    fill(&mut pair, half_bytes..2 * ROOM_BYTES, u64::MAX);
    let status = pair.device.status();
    let held_bytes = status.incompressible_blocks * BLOCK_BYTES;
    assert!(status.spilled_blocks > 0 && held_bytes > half_bytes, "{status:?}");
    fill(&mut pair, 2 * ROOM_BYTES..4 * ROOM_BYTES, 1 << 16);
    let after = pair.device.status();
    let shrunk_blocks = after.pooled_blocks - after.incompressible_blocks;
    assert!(after.incompressible_blocks < status.incompressible_blocks / 2, "{after:?}");
    assert!(shrunk_blocks * BLOCK_BYTES >= 2 * ROOM_BYTES * 9 / 10, "{after:?}");
    pair.check(0, 64 * MIB);
}

#[test]
fn clients_come_and_go() {
    let pair = Pair::new(DesignId::Default, MIB, &Behind::Nothing);
    let before = pair.device.status();
    let workers: Vec<Worker> = (0..8).map_while(|_| pair.device.connect()).collect();
    assert_eq!(workers.len(), 8);
    let status = pair.device.status();
    assert!(status.held_bytes > before.held_bytes + 8 * (200 << 10), "{status:?}");
    workers.into_iter().for_each(|worker| pair.device.disconnect(worker));
    assert_eq!(pair.device.status().held_bytes, before.held_bytes);
}

/// A store whose every write fails: what fits RAM is kept, the rest is refused as an error.
#[test]
fn without_a_store_that_works_there_is_memory() {
    struct Broken;
    impl Blocks for Broken {
        fn write_at(&self, _: u64, _: &[u8]) -> Result<(), Errno> {
            Err(Errno(5))
        }
        fn read_at(&self, _: u64, _: &mut [u8]) -> Result<(), Errno> {
            Err(Errno(5))
        }
        fn punch(&self, _: u64, _: u64) {}
    }
    let words: &'static [AtomicU64] =
        (0..Clusters::words_for(64 * MIB)).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak();
    let settings = Settings::of(DesignId::Default);
    let (size_bytes, memory_bytes) = (64 * MIB, 8 * MIB);
    let setup = Setup {
        size_bytes,
        memory_bytes,
        memory_bytes_max: memory_bytes,
        ahead_bytes: None,
        settings,
    };
    let store = Store { blocks: Broken, clusters: Clusters::new(words) };
    let device = Device::new(Heap, &setup, Some(store)).expect("heap");
    let mut worker = device.connect().expect("the first");
    let mut random = random(1999);
    let mut kept = Vec::new();
    for at in (0..size_bytes).step_by(BLOCK_BYTES as usize) {
        let mut block = vec![0; BLOCK_BYTES as usize];
        block.chunks_mut(8).for_each(|word| word[0] = random.u64(..256) as u8);
        worker.slot(at, block.len()).copy_from_slice(&block);
        match device.write(&mut worker, at, block.len()) {
            Ok(()) => kept.push((at, block)),
            Err(refused) => assert_eq!(refused, Refused::Io, "at {at}"),
        }
    }
    assert!(kept.len() > 2000 && kept.len() < 16_000, "{} kept", kept.len());
    for (at, block) in kept {
        assert_eq!(device.read(&mut worker, at, block.len()), Ok(&block[..]));
    }
}

/// Blocks that shrink to somewhat less than half.
fn halves(random: &mut Random, data: &mut [u8]) {
    for pair in data.chunks_exact_mut(16) {
        pair[..8].copy_from_slice(&random.u64(..).to_le_bytes());
        pair[8..].fill(7);
    }
}

/// Reads blocks from the first to the last; gives how many came from the store by then, and how many
/// of them have gone back to the pool.
fn read_all(pair: &mut Pair, blocks: std::ops::Range<u64>) -> (u64, u64) {
    blocks.for_each(|block| pair.check(block * BLOCK_BYTES, BLOCK_BYTES));
    let counters = pair.device.status().counters;
    (counters.spilled_reads, counters.promoted_blocks)
}

#[test]
fn what_is_read_again_soon_goes_back_to_the_pool() {
    let mut random = random(2002);
    let size_bytes = 48 * MIB;
    let mut pair = Pair::new(DesignId::Default, size_bytes, &Behind::Good(64 * MIB));
    let mut data = vec![0; BLOCK_BYTES as usize];
    for block in 0..size_bytes / BLOCK_BYTES {
        halves(&mut random, &mut data);
        pair.write(block * BLOCK_BYTES, &data);
    }
    // All of it in turn: nothing is wanted again before it has left the pool.
    let all = 0..size_bytes / BLOCK_BYTES;
    let (first, _) = read_all(&mut pair, all.clone());
    let (second, promoted) = read_all(&mut pair, all.clone());
    assert!(second > first && promoted < (second - first) / 4, "{promoted} of {second}");
    // A part of it again and again.
    let hot = 0..2 * MIB / BLOCK_BYTES;
    for _ in 0..16 {
        read_all(&mut pair, hot.clone());
    }
    let (before, promoted) = read_all(&mut pair, hot.clone());
    assert!(promoted > 0, "{before} of the store");
    let (after, _) = read_all(&mut pair, hot);
    assert_eq!(after, before, "all of it is in the pool");
    read_all(&mut pair, all);
    assert_eq!((pair.refused, pair.lost), (0, 0));
}

/// Blocks half of which are words of few different bytes: a codec that counts bytes shortens them by
/// more than one that compares words.
fn few_letters(random: &mut Random, data: &mut [u8]) {
    for pair in data.chunks_exact_mut(16) {
        pair[..8].copy_from_slice(&(random.u64(..) & 0x0f0f_0f0f_0f0f_0f0f).to_le_bytes());
        pair[8..].fill(7);
    }
}

#[test]
fn a_pool_that_is_nearly_full_takes_what_a_denser_codec_makes() {
    let mut random = random(2026);
    let blocks = 48 * MIB / BLOCK_BYTES;
    let mut pair = Pair::new(DesignId::Default, 48 * MIB, &Behind::Good(64 * MIB));
    let mut data = vec![0; BLOCK_BYTES as usize];
    for block in 0..blocks {
        few_letters(&mut random, &mut data);
        pair.write(block * BLOCK_BYTES, &data);
        let status = pair.device.status();
        assert!(status.pool_bytes > 4 * MIB || status.counters.dense_blocks == 0, "{status:?}");
    }
    let status = pair.device.status();
    assert!(status.is_dense && status.counters.dense_blocks > blocks / 2, "{status:?}");
    // The first blocks left as the fast codec had made them, and come back as the denser one does.
    for _ in 0..16 {
        read_all(&mut pair, 0..MIB / BLOCK_BYTES);
    }
    assert!(pair.device.status().counters.promoted_blocks > 0);
    read_all(&mut pair, 0..blocks);
    assert_eq!((pair.refused, pair.lost), (0, 0));
    pair.empty();
    pair.write(0, &data);
    assert!(!pair.device.status().is_dense);
    pair.check(0, MIB);
}
