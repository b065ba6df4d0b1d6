//! Where the cache's RAM comes from, and where its spilled pages go.

use zpager_pool::{Space, SpaceSource};
use zpager_store::{Blocks, Errno};
use zpager_sys::file::Fd;
use zpager_sys::mapping::Mapping;
use zpager_sys::signal;

const EFBIG: zpager_sys::Errno = zpager_sys::Errno(27);
/// Pauses before a failed read is made again, in milliseconds: the page is lost for good otherwise.
const READ_PAUSES_MS: [u64; 4] = [1, 4, 16, 64];
const SIGXFSZ: u32 = 25;

/// Mappings of zpager's own as a source of space.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Own;

/// One of them.
#[derive(Debug)]
pub(crate) struct OwnSpace(pub(crate) Mapping);

impl SpaceSource for Own {
    type Space = OwnSpace;
    fn reserve(&self, bytes: usize) -> Option<OwnSpace> {
        Mapping::reserve(bytes).ok().map(OwnSpace)
    }
}

// SAFETY: a private anonymous mapping, page aligned, never unmapped; a released part reads as zeros.
unsafe impl Space for OwnSpace {
    fn base(&self) -> *mut u8 {
        self.0.base()
    }
    fn bytes(&self) -> usize {
        self.0.bytes()
    }
    fn release(&self, offset: usize, bytes: usize) {
        self.0.release(offset, bytes);
    }
}

/// The run's swap file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SwapFile(pub(crate) Fd);

impl Blocks for SwapFile {
    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> Result<(), Errno> {
        let outcome = self.0.write_all_at(offset_bytes, data);
        if outcome == Err(EFBIG) {
            // The limit of the program's files is ours too; its signal is not the program's concern.
            signal::discard(SIGXFSZ);
        }
        outcome.map_err(|error| Errno(error.0))
    }
    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        again(&READ_PAUSES_MS, || self.0.read_exact_at(offset_bytes, data))
            .map_err(|error| Errno(error.0))
    }
    fn punch(&self, offset_bytes: u64, bytes: u64) {
        self.0.punch(offset_bytes, bytes);
    }
}

/// Does `work` until it succeeds, once more after each pause; gives the last outcome.
fn again<T, E>(pauses_ms: &[u64], mut work: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    for &pause_ms in pauses_ms {
        match work() {
            Ok(value) => return Ok(value),
            Err(_) => zpager_sys::process::pause_ms(pause_ms),
        }
    }
    work()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_is_done_again_and_no_more_often_than_told() {
        let failing = |failures: u32| {
            let mut tries = 0;
            let outcome = again(&[0, 1, 0], || {
                tries += 1;
                if tries > failures { Ok(()) } else { Err(tries) }
            });
            (outcome, tries)
        };
        assert_eq!(failing(0), (Ok(()), 1));
        assert_eq!(failing(3), (Ok(()), 4));
        assert_eq!(failing(9), (Err(4), 4));
    }
}
