//! A store that goes wrong, from a seed, for tests.
//!
//! The nth operation does the same in every run with one seed, if the operations come in one order.

extern crate std;
use crate::{BLOCK_BYTES, Blocks, CLUSTER_BYTES, Errno};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::vec::Vec;

const EIO: Errno = Errno(5);
const ENOSPC: Errno = Errno(28);
/// Operations that a delayed one is behind at most.
const DELAY_MAX: u64 = 16;
/// How much longer a delayed read takes.
const READ_DELAY: Duration = Duration::from_micros(200);

/// A store in front of another, in which on average one operation in `one_in` goes wrong.
#[derive(Debug)]
pub struct Faulting<B> {
    inner: B,
    seed: u64,
    one_in: u64,
    only_refuses: bool,
    operations: AtomicU64,
    faults: AtomicU64,
    late: Mutex<Vec<Late>>,
}

/// What goes wrong. All but the first two report success. Space that is given back is kept, or given
/// back late, or that of another cluster is.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// Nothing is transferred and an error reported.
    Fails,
    /// The first blocks are transferred and an error reported.
    StopsShort,
    /// The first blocks are transferred.
    Shortens,
    /// Nothing is transferred.
    Loses,
    /// Some blocks are transferred.
    Tears,
    /// One bit is turned.
    Corrupts,
    /// The data of another place are transferred; a write goes there.
    Misdirects,
    /// A write is done only after some more operations, a read takes longer.
    Delays,
}

/// What was told to be done and is not.
#[derive(Debug)]
struct Late {
    /// Number of the operation before which it is done.
    due: u64,
    offset_bytes: u64,
    /// What is written; `None` gives space back.
    data: Option<Vec<u8>>,
    /// How much.
    bytes: usize,
}

impl<B> Faulting<B> {
    /// `one_in` is at least 1; 0 never goes wrong.
    pub fn new(inner: B, seed: u64, one_in: u64) -> Self {
        let [operations, faults] = [0, 0].map(AtomicU64::new);
        let (only_refuses, late) = (false, Mutex::default());
        Self { inner, seed, one_in, only_refuses, operations, faults, late }
    }

    /// The same where nothing but a write goes wrong, and that is always told: no record may be lost.
    pub fn refusing(inner: B, seed: u64, one_in: u64) -> Self {
        Self { only_refuses: true, ..Self::new(inner, seed, one_in) }
    }

    /// Operations that went wrong so far.
    pub fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    /// The store behind.
    pub fn inner(&self) -> &B {
        &self.inner
    }

    /// What this operation does wrong, and a number for its particulars.
    fn next_fault(&self, is_write: bool) -> Option<(Fault, u64)> {
        if self.only_refuses && !is_write {
            return None;
        }
        let operation = self.operations.fetch_add(1, Ordering::Relaxed);
        let drawn = mixed(self.seed ^ mixed(operation));
        if self.one_in == 0 || !drawn.is_multiple_of(self.one_in) {
            return None;
        }
        self.faults.fetch_add(1, Ordering::Relaxed);
        let particulars = mixed(drawn);
        let kinds = if self.only_refuses { 2 } else { 8 };
        let fault = match particulars % kinds {
            0 => Fault::Fails,
            1 => Fault::StopsShort,
            2 => Fault::Shortens,
            3 => Fault::Loses,
            4 => Fault::Tears,
            5 => Fault::Corrupts,
            6 => Fault::Misdirects,
            _ => Fault::Delays,
        };
        Some((fault, mixed(particulars)))
    }
}

/// SplitMix64's mixing step: one number to another that looks drawn by chance.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// Turns one bit.
fn corrupt(data: &mut [u8], particulars: u64) {
    let bit = particulars as usize % (data.len() * 8);
    data[bit / 8] ^= 1 << (bit % 8);
}

/// Blocks of `data` that a shortened transfer still does: fewer than there are.
fn kept_blocks(data: &[u8], particulars: u64) -> usize {
    particulars as usize % (data.len() / BLOCK_BYTES)
}

/// A block-aligned copy of `data` and where it starts in the vector.
fn aligned_copy(data: &[u8]) -> (Vec<u8>, usize) {
    let mut copy = std::vec![0; data.len() + BLOCK_BYTES];
    let start = copy.as_ptr().align_offset(BLOCK_BYTES);
    copy[start..start + data.len()].copy_from_slice(data);
    (copy, start)
}

impl<B: Blocks> Faulting<B> {
    /// Has something be done later.
    fn put_off(&self, particulars: u64, offset_bytes: u64, data: Option<Vec<u8>>, bytes: usize) {
        let due = self.operations.load(Ordering::Relaxed) + 1 + particulars % DELAY_MAX;
        self.late.lock().unwrap().push(Late { due, offset_bytes, data, bytes });
    }

    /// Does what is due before the next operation.
    fn catch_up(&self) {
        let now = self.operations.load(Ordering::Relaxed);
        let mut late = self.late.lock().unwrap();
        for Late { offset_bytes, data, bytes, .. } in late.extract_if(.., |late| late.due <= now) {
            match data {
                Some(data) => {
                    let (copy, start) = aligned_copy(&data);
                    // Nobody is there to be told that it fails.
                    let _ = self.inner.write_at(offset_bytes, &copy[start..start + bytes]);
                }
                None => self.inner.punch(offset_bytes, bytes as u64),
            }
        }
    }
}

impl<B: Blocks> Blocks for Faulting<B> {
    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> Result<(), Errno> {
        self.catch_up();
        let Some((fault, particulars)) = self.next_fault(true) else {
            return self.inner.write_at(offset_bytes, data);
        };
        let write_part = |first: usize, blocks: usize| {
            let part = &data[first * BLOCK_BYTES..][..blocks * BLOCK_BYTES];
            if part.is_empty() {
                return Ok(());
            }
            self.inner.write_at(offset_bytes + (first * BLOCK_BYTES) as u64, part)
        };
        match fault {
            Fault::Fails => Err(if particulars.is_multiple_of(2) { EIO } else { ENOSPC }),
            Fault::StopsShort => {
                write_part(0, kept_blocks(data, particulars))?;
                Err(ENOSPC)
            }
            Fault::Shortens => write_part(0, kept_blocks(data, particulars)),
            Fault::Loses => Ok(()),
            Fault::Tears => (0..data.len() / BLOCK_BYTES)
                .filter(|block| mixed(particulars ^ *block as u64).is_multiple_of(2))
                .try_for_each(|block| write_part(block, 1)),
            Fault::Corrupts => {
                let (mut copy, start) = aligned_copy(data);
                let copy = &mut copy[start..start + data.len()];
                corrupt(copy, particulars);
                self.inner.write_at(offset_bytes, copy)
            }
            Fault::Misdirects => self.inner.write_at(offset_bytes ^ BLOCK_BYTES as u64, data),
            Fault::Delays => {
                self.put_off(particulars, offset_bytes, Some(data.to_vec()), data.len());
                Ok(())
            }
        }
    }

    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        self.catch_up();
        let Some((fault, particulars)) = self.next_fault(false) else {
            return self.inner.read_at(offset_bytes, data);
        };
        match fault {
            Fault::Fails => Err(EIO),
            Fault::StopsShort | Fault::Shortens => {
                let kept = kept_blocks(data, particulars) * BLOCK_BYTES;
                if kept > 0 {
                    self.inner.read_at(offset_bytes, &mut data[..kept])?;
                }
                if matches!(fault, Fault::Shortens) { Ok(()) } else { Err(EIO) }
            }
            Fault::Loses => Ok(()),
            Fault::Tears => {
                self.inner.read_at(offset_bytes, data)?;
                let block = kept_blocks(data, particulars);
                data[block * BLOCK_BYTES..][..BLOCK_BYTES].fill(0);
                Ok(())
            }
            Fault::Corrupts => {
                self.inner.read_at(offset_bytes, data)?;
                corrupt(data, particulars);
                Ok(())
            }
            Fault::Misdirects => self.inner.read_at(offset_bytes ^ BLOCK_BYTES as u64, data),
            Fault::Delays => {
                std::thread::sleep(READ_DELAY);
                self.inner.read_at(offset_bytes, data)
            }
        }
    }

    fn punch(&self, offset_bytes: u64, bytes: u64) {
        match self.next_fault(false) {
            None => self.inner.punch(offset_bytes, bytes),
            Some((Fault::Misdirects, _)) => {
                self.inner.punch(offset_bytes ^ CLUSTER_BYTES as u64, bytes);
            }
            Some((Fault::Delays, particulars)) => {
                self.put_off(particulars, offset_bytes, None, bytes as usize);
            }
            Some(_) => {}
        }
    }
}
