//! All that the server does to blocks, done once before it serves, to a device that nobody has.
//!
//! Where a machine is too small for all code to be locked ([`crate::starting`]) each page of it is read from its file
//! when it is wanted first. That takes a page; and where none is free, and those who could make some wait for
//! this very server, it goes on for ever. So what will be wanted is wanted before: blocks of many kinds are
//! written, in whole and in part, until pool and store are full, read early and late, trimmed, and written again.
//!
//! Bad case: what only a failing store does, and commands to the server. Their code is read when it is wanted.

use std::ops::Range;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use zpager_store::{Cipher, KEY_BYTES};

use crate::dense::kinds_of_pages;
use crate::device::{BLOCK_BYTES, MEMORY_BYTES_MIN, Setup};
use crate::disk::DiskFile;
use crate::reads::{Made, Reads, Waiting};
use crate::server::Behind;
use crate::swap_file::StoreParts;
use crate::target::Target;
use crate::worker::{PIECE_BYTES, Worker};

/// More than pool and store have room for.
const SIZE_BYTES: u64 = 16 << 20;
const STORE_BYTES: u64 = 2 << 20;
/// So much of a block may be noise if it is to shrink.
const MOST_NOISE_BYTES: usize = 3072;
/// As often something is read at a time.
const READS: usize = 256;
/// What most reads are of.
const HOT_BYTES: u64 = SIZE_BYTES / 16;
/// What is trimmed at a time.
const TRIMMED_BYTES: u64 = 1 << 20;

/// What lies behind a device of the same kind as the one that is to be served.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Memory,
    Store { is_encrypted: bool },
    Disk,
}

/// How to make a device of that kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rehearsal {
    setup: Setup,
    kind: Kind,
}

impl Rehearsal {
    pub(crate) fn of(setup: &Setup, behind: &Behind) -> Self {
        let kind = match behind {
            Behind::Stores { row, .. } if row.is_empty() => Kind::Memory,
            Behind::Stores { cipher, .. } => Kind::Store { is_encrypted: cipher.is_some() },
            Behind::Disk(_) => Kind::Disk,
        };
        let memory_bytes = MEMORY_BYTES_MIN;
        let setup = Setup {
            size_bytes: SIZE_BYTES,
            memory_bytes,
            memory_bytes_max: memory_bytes,
            ..*setup
        };
        Rehearsal { setup, kind }
    }

    /// What is made, and what lies behind it; `None` where the kernel gives no file in memory.
    pub(crate) fn parts(&self) -> Option<(Setup, Behind)> {
        let file = |bytes| {
            let file = memfd_create("zpager-rehearsal", MemfdFlags::CLOEXEC).ok()?;
            ftruncate(&file, bytes).ok()?;
            Some(file)
        };
        let behind = match self.kind {
            Kind::Memory => Behind::Stores { row: Vec::new(), cipher: None },
            Kind::Store { is_encrypted } => {
                let (file, limit_bytes, start_bytes) = (file(STORE_BYTES)?, STORE_BYTES, 0);
                // What is written here is nobody's, and nobody reads it.
                let cipher = is_encrypted.then(|| Box::new(Cipher::new(&[0; KEY_BYTES], 0)));
                Behind::Stores { row: vec![StoreParts { file, limit_bytes, start_bytes }], cipher }
            }
            Kind::Disk => Behind::Disk(DiskFile::new(file(SIZE_BYTES)?)),
        };
        Some((self.setup, behind))
    }
}

/// Does all of it to a device.
pub(crate) fn rehearse(target: &dyn Target) {
    let Some(mut worker) = target.connect() else { return };
    worker.touch();
    // Where there is less it goes on with less.
    let _ = target.keep_memory();
    let mut random = fastrand::Rng::with_seed(1);
    write_all(target, &mut worker, &mut random, MOST_NOISE_BYTES);
    target.keep_once();
    read_some(target, &mut worker, &mut random);
    for start in (0..SIZE_BYTES).step_by(2 * TRIMMED_BYTES as usize) {
        let _ = target.trim(start + TRIMMED_BYTES, TRIMMED_BYTES);
        let _ = target.write_zeroes(&mut worker, start + 1, BLOCK_BYTES, true);
    }
    read_some(target, &mut worker, &mut random);
    // Blocks that do not shrink, which leave for the store first: before, there were none.
    write_all(target, &mut worker, &mut random, BLOCK_BYTES as usize);
    let _ = target.flush(&mut worker);
    target.disconnect(worker);
}

/// Writes blocks of many kinds everywhere, and parts of some. Those for which there is no room are refused.
fn write_all(
    target: &dyn Target,
    worker: &mut Worker,
    random: &mut fastrand::Rng,
    noise_bytes: usize,
) {
    let kinds = kinds_of_pages();
    let [text, _, numbers] = &*kinds;
    for start in (0..SIZE_BYTES).step_by(PIECE_BYTES) {
        let slot = worker.slot(start, PIECE_BYTES);
        for block in slot.chunks_mut(BLOCK_BYTES as usize) {
            match random.usize(..6) {
                0 => block.copy_from_slice(&text.0),
                1 | 2 => block.copy_from_slice(&numbers.0),
                3 => block.fill(random.u8(..2)),
                _ => random.fill(&mut block[..noise_bytes]),
            }
        }
        let _ = target.write(worker, start, PIECE_BYTES);
        let part = some_range(random, SIZE_BYTES);
        worker.slot(part.start, 1).fill(1);
        let _ = target.write(worker, part.start, 1);
        worker.take_pause();
    }
}

/// Reads blocks everywhere, and some of the first again and again.
fn read_some(target: &dyn Target, worker: &mut Worker, random: &mut fastrand::Rng) {
    let mut reads = Reads::new(target.buffer_pages());
    for number in 0..READS {
        let within_bytes = if number % 4 == 0 { SIZE_BYTES } else { HOT_BYTES };
        read(target, worker, &mut reads, &some_range(random, within_bytes));
    }
}

/// Blocks somewhere in the first so many bytes, or a part of one.
fn some_range(random: &mut fastrand::Rng, within_bytes: u64) -> Range<u64> {
    let blocks = random.u64(1..=4);
    let start = random.u64(..within_bytes / BLOCK_BYTES - blocks) * BLOCK_BYTES;
    start..start + if random.bool() { blocks * BLOCK_BYTES } else { 1 }
}

/// Reads as a connection does, in which others go on.
fn read(target: &dyn Target, worker: &mut Worker, reads: &mut Reads<u16>, range: &Range<u64>) {
    let bytes = (range.end - range.start) as usize;
    let plan = |made: &Made<'_>| target.plan(range.start, bytes, made);
    let mut next = Some(Waiting::new(0));
    while let Some(waiting) = next.take() {
        let Some(ready) = reads.put_off(waiting, true, plan) else {
            while next.is_none() && reads.wait() {
                next = reads.pop();
            }
            continue;
        };
        let made = reads.made(ready.own, true);
        // What was refused was not written, and is read as it was.
        let _ = target.read_with(worker, range.start, bytes, &made);
        reads.finish(&ready, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::make_served;
    use zpager_policy::{DesignId, Settings};

    /// It is worth something only while it comes to all that a full device does.
    #[test]
    fn pool_and_store_are_filled_and_read() {
        let setup = Setup {
            size_bytes: 1 << 30,
            memory_bytes: 1 << 30,
            memory_bytes_max: 1 << 30,
            ahead_bytes: None,
            settings: Settings::of(DesignId::Default),
        };
        for is_encrypted in [false, true] {
            let rehearsal = Rehearsal { kind: Kind::Store { is_encrypted }, ..of_memory(&setup) };
            let counters = rehearsed(&rehearsal).counters;
            assert!(counters.store_full > 0 && counters.read_errors == 0, "{counters:?}");
            assert!(counters.store_reads > 100 && counters.store_writes > 16, "{counters:?}");
            assert!(counters.dense_blocks > 100 && counters.freed_blocks > 1000, "{counters:?}");
            assert!(counters.promoted_blocks > 0, "{counters:?}");
        }
        let of_disk = Rehearsal { kind: Kind::Disk, ..of_memory(&setup) };
        let counters = rehearsed(&of_disk).counters;
        assert!(counters.hits > 100 && counters.released_blocks > 100, "{counters:?}");
        assert!(rehearsed(&of_memory(&setup)).counters.writes > 100);
    }

    fn of_memory(setup: &Setup) -> Rehearsal {
        Rehearsal::of(setup, &Behind::Stores { row: Vec::new(), cipher: None })
    }

    fn rehearsed(rehearsal: &Rehearsal) -> crate::statistics::Status {
        let (setup, behind) = rehearsal.parts().expect("a file in memory");
        let (device, _) = make_served(&setup, behind).expect("room");
        rehearse(&*device);
        device.status()
    }
}
