//! Blocks in heap memory, for tests.

extern crate std;
use crate::{BLOCK_BYTES, Blocks, Errno};
use std::boxed::Box;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// A sparse row of blocks that reads as zeros where nothing was written.
#[derive(Debug, Default)]
pub struct Memory(Mutex<BTreeMap<u64, Box<[u8]>>>);

impl Memory {
    /// Blocks that were written and not punched since.
    pub fn held_blocks(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// Checks what [`Blocks`] promises its implementer.
fn check(offset_bytes: u64, data: &[u8]) {
    assert!(offset_bytes.is_multiple_of(BLOCK_BYTES as u64));
    assert!(data.len().is_multiple_of(BLOCK_BYTES) && !data.is_empty());
    assert!((data.as_ptr() as usize).is_multiple_of(BLOCK_BYTES));
}

impl Blocks for Memory {
    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> Result<(), Errno> {
        check(offset_bytes, data);
        let first = offset_bytes / BLOCK_BYTES as u64;
        let mut held = self.0.lock().unwrap();
        for (number, block) in (first..).zip(data.chunks(BLOCK_BYTES)) {
            held.insert(number, block.into());
        }
        Ok(())
    }

    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        check(offset_bytes, data);
        let first = offset_bytes / BLOCK_BYTES as u64;
        let held = self.0.lock().unwrap();
        for (number, block) in (first..).zip(data.chunks_mut(BLOCK_BYTES)) {
            match held.get(&number) {
                Some(bytes) => block.copy_from_slice(bytes),
                None => block.fill(0),
            }
        }
        Ok(())
    }

    fn punch(&self, offset_bytes: u64, bytes: u64) {
        let (first, block) = (offset_bytes / BLOCK_BYTES as u64, BLOCK_BYTES as u64);
        self.0.lock().unwrap().retain(|number, _| !(first..first + bytes / block).contains(number));
    }
}
