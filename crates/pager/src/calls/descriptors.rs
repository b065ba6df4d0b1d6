//! The pager's own descriptors, which are not there for the program: a program that closes or asks
//! for every number there may be finds what it would find without the pager.
//!
//! Source: close_range(2), fcntl(2), stat(2). Only `/proc/self/fd` shows them.

use zpager_sys::Errno;
use zpager_sys::syscall::{self, nr};

use super::Outcome;
use crate::process::Process;

const EBADF: Errno = Errno(9);
const CLONE_FILES: usize = 0x400;
const CLOSE_RANGE_UNSHARE: usize = 2;
const AT_EMPTY_PATH: usize = 0x1000;

impl Process {
    /// What a call on one of the pager's descriptors gives; `None` where it is about others.
    pub(super) fn own_descriptor_call(
        &self,
        number: u32,
        arguments: [usize; 6],
    ) -> Option<Outcome> {
        let [first, second, third, fourth, ..] = arguments;
        let owns = |fd: usize| self.owns_descriptor(fd as i32);
        let is_own = match number {
            nr::__NR_close | nr::__NR_dup | nr::__NR_fcntl | nr::__NR_fstat => owns(first),
            nr::__NR_dup2 | nr::__NR_dup3 => owns(first) || owns(second),
            nr::__NR_newfstatat => fourth & AT_EMPTY_PATH != 0 && owns(first),
            nr::__NR_statx => third & AT_EMPTY_PATH != 0 && owns(first),
            _ => false,
        };
        is_own.then(|| Outcome::Done(EBADF.as_result()))
    }

    /// Closes around the pager's own descriptors.
    pub(super) fn close_range(&mut self, first: usize, last: usize, flags: usize) -> Outcome {
        let (first, last) = (first as u32 as usize, last as u32 as usize);
        let mut ours = self.own_descriptors().map(|fd| fd as u32 as usize);
        ours.sort_unstable();
        if !ours.iter().any(|fd| (first..=last).contains(fd)) || first > last {
            return Outcome::GoOn;
        }
        let mut from = first;
        let mut result = 0;
        if flags & CLOSE_RANGE_UNSHARE != 0 {
            // SAFETY: what the call does first; the descriptors of other threads stay open.
            result = unsafe { syscall::call(nr::__NR_unshare, [CLONE_FILES, 0, 0, 0, 0, 0]) };
        }
        for end in ours.into_iter().filter(|fd| (first..=last).contains(fd)).chain([last + 1]) {
            if from < end && result == 0 {
                // SAFETY: the program's own descriptors.
                result =
                    unsafe { syscall::call(nr::__NR_close_range, [from, end - 1, flags, 0, 0, 0]) };
            }
            from = end + 1;
        }
        Outcome::Done(result)
    }
}
