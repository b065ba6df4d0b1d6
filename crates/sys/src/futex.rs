//! Sleeping on a word that other processes change, and the clock by which it ends.
//!
//! Source: futex(2), clock_gettime(2). The word may lie in memory that processes share.

use core::sync::atomic::AtomicU32;

use crate::Errno;
use crate::syscall::{checked, nr};

/// Nanoseconds of a second.
pub const SECOND_NS: u64 = 1_000_000_000;

const ETIMEDOUT: Errno = Errno(110);

/// Sleeps until the word is woken, unless it is not `seen` any more, and at most `most_ns`; whether it
/// slept that long. Also ends for no reason at all: the caller looks again.
pub fn wait(word: &AtomicU32, seen: u32, most_ns: u64) -> bool {
    let time = time(most_ns);
    let (at, wait) = (word.as_ptr() as usize, nr::FUTEX_WAIT as usize);
    let arguments = [at, wait, seen as usize, time.as_ptr() as usize];
    // SAFETY: the word and the time outlive the call, which changes neither.
    unsafe { checked(nr::__NR_futex, arguments) == Err(ETIMEDOUT) }
}

/// Wakes everybody who sleeps on the word.
pub fn wake(word: &AtomicU32) {
    let arguments = [word.as_ptr() as usize, nr::FUTEX_WAKE as usize, i32::MAX as usize];
    // SAFETY: waking changes no memory.
    let _ = unsafe { checked(nr::__NR_futex, arguments) };
}

/// A time as the kernel takes it: seconds and the nanoseconds of another one (`struct timespec`).
pub fn time(nanoseconds: u64) -> [u64; 2] {
    [nanoseconds / SECOND_NS, nanoseconds % SECOND_NS]
}

/// Time since the machine was started, without what it slept, in nanoseconds.
pub fn now_ns() -> u64 {
    let mut time = [0u64; 2];
    let arguments = [nr::CLOCK_MONOTONIC as usize, time.as_mut_ptr() as usize];
    // SAFETY: the kernel writes the two words.
    let _ = unsafe { checked(nr::__NR_clock_gettime, arguments) };
    time[0] * SECOND_NS + time[1]
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use core::sync::atomic::Ordering::Relaxed;

    #[test]
    fn a_sleep_ends_by_waking_by_change_and_by_time() {
        let word = AtomicU32::new(7);
        assert!(!wait(&word, 8, u64::MAX));
        let began = now_ns();
        assert!(wait(&word, 7, 2_000_000));
        assert!(now_ns() - began >= 2_000_000);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while word.load(Relaxed) == 7 {
                    wait(&word, 7, 3600 * SECOND_NS);
                }
            });
            word.store(9, Relaxed);
            wake(&word);
        });
    }
}
