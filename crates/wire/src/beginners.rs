//! Programs that begin while nothing is managed yet.
//!
//! Many that begin at the same time can fill the budget before the supervisor comes to see it, and take the
//! processors from it. So only a few may begin until it has looked; the others call it, and sleep until it has.
//!
//! Source: futex(2). Invariant: `left` is negative where somebody sleeps; each look sets it anew.

use core::sync::atomic::{
    AtomicI32, AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use zpager_sys::futex;

/// Longest sleep, and how often one looks whether there is room.
const PATIENCE_NS: u64 = 1_000_000_000;
const TURNS_MAX: usize = 1000;

/// Who may begin.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Beginners {
    /// How many until the next look.
    left: AtomicI32,
    /// How many looks there were. Those that have to wait sleep on it.
    looks: AtomicU32,
}

impl Beginners {
    /// As many programs more as `count` may begin until this is said again.
    pub fn admit(&self, count: u32) {
        let before = self.left.swap(i32::try_from(count).unwrap_or(i32::MAX), AcqRel);
        self.looks.fetch_add(1, Release);
        if before < 0 {
            futex::wake(&self.looks);
        }
    }

    /// How many may begin still.
    pub fn left(&self) -> u32 {
        u32::try_from(self.left.load(Relaxed)).unwrap_or(0)
    }

    /// Waits until a program may begin; `call` calls the supervisor. False where that does not come.
    pub fn wait(&self, call: impl Fn()) -> bool {
        self.wait_at_most(PATIENCE_NS, call)
    }

    fn wait_at_most(&self, most_ns: u64, call: impl Fn()) -> bool {
        for _ in 0..TURNS_MAX {
            // Before it is taken: a look in between ends the sleep at once.
            let looks = self.looks.load(Acquire);
            if self.left.fetch_sub(1, AcqRel) > 0 {
                return true;
            }
            call();
            if futex::wait(&self.looks, looks, most_ns) {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use core::sync::atomic::AtomicUsize;
    use std::thread;
    use std::time::{Duration, Instant};

    #[test]
    fn only_so_many_begin_until_the_next_look() {
        const PROGRAMS: usize = 40;
        let beginners = Beginners::default();
        let [begun, called] = [0, 0].map(AtomicUsize::new);
        let call = || {
            called.fetch_add(1, Relaxed);
        };
        beginners.admit(7);
        thread::scope(|scope| {
            for _ in 0..PROGRAMS {
                scope.spawn(|| {
                    assert!(beginners.wait_at_most(3_600_000_000_000, call));
                    begun.fetch_add(1, Relaxed);
                });
            }
            let (mut admitted, began) = (7, Instant::now());
            while admitted < PROGRAMS {
                assert!(begun.load(Relaxed) <= admitted);
                if begun.load(Relaxed) == admitted && called.load(Relaxed) > 0 {
                    admitted += 3;
                    beginners.admit(3);
                }
                assert!(began.elapsed() < Duration::from_secs(60), "{begun:?} of {admitted}");
                thread::yield_now();
            }
        });
        assert_eq!(begun.load(Relaxed), PROGRAMS);
    }

    #[test]
    fn nobody_waits_for_ever() {
        let beginners = Beginners::default();
        assert!(!beginners.wait(|| {}));
        assert_eq!(beginners.left(), 0);
    }
}
