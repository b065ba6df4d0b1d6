//! `shmat` over memory that is there: what was managed is somebody else's then.
//!
//! Source: shmat(2). Only `SHM_REMAP` takes the place of mappings; how many bytes it takes is what
//! the segment has.

use zpager_sys::syscall::nr;
use zpager_sys::{Errno, PAGE_BYTES, mapping};

use super::Outcome;
use crate::hold::pages_of;
use crate::process::Process;

const EINVAL: Errno = Errno(22);
const SHM_REMAP: usize = 0x4000;
const IPC_STAT: usize = 2;
/// The words of `struct shmid_ds`, and which of them is the length of the segment.
const SEGMENT_WORDS: usize = 14;
const LENGTH: usize = 6;

impl Process {
    /// `shmat`: segment, address, flags.
    pub(super) fn attach(&mut self, arguments: [usize; 6]) -> Outcome {
        let [segment, address, flags, ..] = arguments;
        if flags & SHM_REMAP == 0 {
            return Outcome::GoOn;
        }
        let mut status = [0usize; SEGMENT_WORDS];
        let about = [segment, IPC_STAT, status.as_mut_ptr() as usize, 0, 0, 0];
        if let Err(error) = self.make(nr::__NR_shmctl, about) {
            return Outcome::Done(error.as_result());
        }
        let bytes = status[LENGTH];
        // The address may be rounded down to a page.
        if mapping::meets_own(address & !(PAGE_BYTES - 1), bytes) {
            return Outcome::Done(EINVAL.as_result());
        }
        let result = self.make(nr::__NR_shmat, arguments);
        match result {
            Ok(start) => self.dropped(pages_of(start, bytes)),
            Err(_) => self.drop_unmapped(pages_of(address, bytes)),
        }
        self.publish();
        Outcome::of(result)
    }
}
