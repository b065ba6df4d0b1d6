//! A lock that sleeps in the kernel, for code without libc.
//!
//! Source: Drepper, "Futexes Are Tricky", mutex 2. It spins for a moment first,
//! as what it guards takes a few microseconds.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::syscall::{checked, nr};

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const WAITED_FOR: u32 = 2;
const SPINS: u32 = 100;

/// A value behind a lock.
#[derive(Debug)]
pub struct Lock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands the value to one thread at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The right to use the value; dropping it unlocks.
#[derive(Debug)]
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Lock<T> {
    /// A free lock around `value`.
    pub const fn new(value: T) -> Self {
        Lock { state: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Waits for the lock. Not reentrant: the caller has every signal blocked.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        if self.state.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_err() {
            self.lock_contended();
        }
        Guard { lock: self }
    }

    #[cold]
    fn lock_contended(&self) {
        for _ in 0..SPINS {
            if self.state.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_ok() {
                return;
            }
            core::hint::spin_loop();
        }
        while self.state.swap(WAITED_FOR, Acquire) != FREE {
            let word = self.state.as_ptr() as usize;
            let wait = nr::FUTEX_WAIT as usize | nr::FUTEX_PRIVATE_FLAG as usize;
            // SAFETY: the word outlives the call; a wake or a changed value ends it.
            let _ = unsafe { checked(nr::__NR_futex, [word, wait, WAITED_FOR as usize, 0]) };
        }
    }

    fn unlock(&self) {
        if self.state.swap(FREE, Release) == WAITED_FOR {
            let word = self.state.as_ptr() as usize;
            let wake = nr::FUTEX_WAKE as usize | nr::FUTEX_PRIVATE_FLAG as usize;
            // SAFETY: waking waiters changes no memory.
            let _ = unsafe { checked(nr::__NR_futex, [word, wake, 1]) };
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard's thread holds the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard's thread holds the lock.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.lock.unlock();
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn two_threads_add_up() {
        static SUM: Lock<u64> = Lock::new(0);
        let add = || (0..100_000).for_each(|_| *SUM.lock() += 1);
        std::thread::scope(|scope| {
            scope.spawn(add);
            scope.spawn(add);
        });
        assert_eq!(*SUM.lock(), 200_000);
    }
}
