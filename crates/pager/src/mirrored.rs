//! A server's memory of which a file may have a second copy: one store of the run's row.
//!
//! Of two copies one is enough for a write to have succeeded, and the server's is read first. What
//! it does not have, or does not give while it is gone, comes from the file; and each of the two is
//! asked for what did not come from the other one as it was written. So a server that is slow,
//! full or gone does not fail while its mirror takes what it does not; and only where neither does is
//! the next store of the row used.
//!
//! Bad for: two copies on a disk that is slower than the server; each write waits for both.

use core::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};

use zpager_store::{Blocks, Errno};

use crate::own::SwapFile;
use crate::remote::RemoteMemory;

/// The two, of which the second need not be there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MirroredMemory {
    pub(crate) remote: RemoteMemory,
    pub(crate) mirror: Option<SwapFile>,
}

/// Which of the two writes go on: the server's, the file's; and whether what does not go on is done.
static GOES_ON: [AtomicBool; 2] = [AtomicBool::new(false), AtomicBool::new(false)];
static IS_DONE: AtomicBool = AtomicBool::new(true);

/// Why the one or the other did not take or give what its fellow did, where nobody was told of that so
/// far.
static UNTOLD: [AtomicI32; 2] = [AtomicI32::new(0), AtomicI32::new(0)];

/// What stands for the outcome of a write that was not begun.
const NOT_BEGUN: Errno = Errno(0);
const ENODATA: Errno = Errno(61);
/// What came was not what was written.
const EBADMSG: Errno = Errno(74);
/// The number of the file's copy; the server's is any other.
const MIRROR: u32 = 0;

impl MirroredMemory {
    /// In a forked child: no write goes on.
    pub(crate) fn become_copy() {
        RemoteMemory::become_copy();
        GOES_ON.iter().for_each(|goes_on| goes_on.store(false, Relaxed));
        IS_DONE.store(true, Relaxed);
    }

    /// Why the server, and why its mirror, did not take or give what the other one did, where that came
    /// about since this was asked.
    pub(crate) fn take_failures() -> [Option<Errno>; 2] {
        UNTOLD.each_ref().map(|error| Some(Errno(error.swap(0, Relaxed))).filter(|it| it.0 != 0))
    }
}

impl Blocks for MirroredMemory {
    unsafe fn begin_write(&self, offset_bytes: u64, data: &[u8]) -> Result<bool, Errno> {
        // SAFETY: the caller's promise, here and below.
        unsafe {
            let Some(file) = self.mirror else {
                return self.remote.begin_write(offset_bytes, data);
            };
            let begun =
                [self.remote.begin_write(offset_bytes, data), file.begin_write(offset_bytes, data)];
            for (goes_on, begun) in GOES_ON.iter().zip(begun) {
                goes_on.store(begun == Ok(true), Relaxed);
            }
            IS_DONE.store(begun.contains(&Ok(false)), Relaxed);
            either(begun).map(|_| begun.contains(&Ok(true)))
        }
    }
    fn settle(&self) -> Result<(), Errno> {
        let Some(file) = self.mirror else { return self.remote.settle() };
        let goes_on = GOES_ON.each_ref().map(|goes_on| goes_on.swap(false, Relaxed));
        let other = if IS_DONE.swap(true, Relaxed) { Ok(()) } else { Err(NOT_BEGUN) };
        either([
            if goes_on[0] { self.remote.settle() } else { other },
            if goes_on[1] { file.settle() } else { other },
        ])
    }
    fn is_writing(&self) -> bool {
        let Some(file) = self.mirror else { return self.remote.is_writing() };
        let goes_on = GOES_ON.each_ref().map(|goes_on| goes_on.load(Relaxed));
        goes_on[0] && self.remote.is_writing() || goes_on[1] && file.is_writing()
    }
    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> Result<(), Errno> {
        let Some(file) = self.mirror else { return self.remote.write_at(offset_bytes, data) };
        either([self.remote.write_at(offset_bytes, data), file.write_at(offset_bytes, data)])
    }
    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        let Some(file) = self.mirror else { return self.remote.read_at(offset_bytes, data) };
        match self.remote.read_if_up(offset_bytes, data) {
            Ok(()) => Ok(()),
            Err(error) => either([Err(error), file.read_at(offset_bytes, data)]),
        }
    }
    fn read_copy_at(&self, copy: u32, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        match (self.mirror, copy) {
            (None, _) => Err(ENODATA),
            (Some(file), MIRROR) => either([Err(EBADMSG), file.read_at(offset_bytes, data)]),
            // Even if it does not answer now: nobody else has the page.
            (Some(_), _) => self.remote.read_at(offset_bytes, data),
        }
    }
    fn punch(&self, offset_bytes: u64, bytes: u64) {
        self.remote.punch(offset_bytes, bytes);
        if let Some(file) = self.mirror {
            file.punch(offset_bytes, bytes);
        }
    }
}

/// What succeeded of two, which is told of the other one; or why the second did not, or the first where
/// that was not begun.
fn either<T>(outcomes: [Result<T, Errno>; 2]) -> Result<T, Errno> {
    if outcomes.iter().any(Result::is_ok) {
        for (untold, outcome) in UNTOLD.iter().zip(&outcomes) {
            if let Err(error) = outcome
                && *error != NOT_BEGUN
            {
                untold.store(error.0, Relaxed);
            }
        }
    }
    let [first, second] = outcomes;
    first.or_else(|error| second.map_err(|last| if last == NOT_BEGUN { error } else { last }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_copy_is_enough_and_the_other_is_told_of_once() {
        let (full, down) = (Errno(28), Errno(112));
        assert_eq!(either([Ok(1), Ok(2)]), Ok(1));
        assert_eq!(either::<()>([Err(down), Err(full)]), Err(full));
        assert_eq!(either::<()>([Err(down), Err(NOT_BEGUN)]), Err(down));
        assert_eq!(MirroredMemory::take_failures(), [None, None]);
        assert_eq!(either([Ok(1), Err(full)]), Ok(1));
        // How the one that was begun ended says nothing about the other.
        assert_eq!(either([Ok(1), Err(NOT_BEGUN)]), Ok(1));
        assert_eq!(MirroredMemory::take_failures(), [None, Some(full)]);
        assert_eq!(either([Err(down), Ok(2)]), Ok(2));
        assert_eq!(MirroredMemory::take_failures(), [Some(down), None]);
        assert_eq!(MirroredMemory::take_failures(), [None, None]);
    }
}
