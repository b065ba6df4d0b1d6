//! A lock that sleeps in the kernel, for code without libc, and that knows its owner.
//!
//! Source: Drepper, "Futexes Are Tricky", mutex 2; the owner's number in the word as in
//! Documentation/locking/robust-futexes.rst. It spins for a moment first, as what it
//! guards takes a few microseconds.
//!
//! An owner can be killed while it has the lock, where it is not of the process that
//! waits. So who has waited for long asks whether the owner is gone. If so the lock is
//! abandoned for good: nobody knows what state the value is in.
//!
//! Invariant: the word is an owner's number, with a bit set while somebody may sleep. A
//! killed owner's stays, so what a waiter found gone is abandoned only while it is there.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::syscall::{checked, nr};

const FREE: u32 = 0;
const WAITED_FOR: u32 = 1 << 31;
const ABANDONED: u32 = WAITED_FOR - 1;
const SPINS: u32 = 100;
/// How long somebody sleeps before it asks for the owner.
const SLEEP_NANOSECONDS: usize = 100_000_000;

/// A value behind a lock.
#[derive(Debug)]
pub struct Lock<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands the value to one thread at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The right to use the value; dropping it unlocks.
#[derive(Debug)]
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
}

/// Who had the lock is gone with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abandoned;

impl<T> Lock<T> {
    /// A free lock around `value`.
    pub const fn new(value: T) -> Self {
        Lock { word: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Waits for the lock. Not reentrant: no handler of a signal that comes meanwhile may ask for it.
    ///
    /// `owner` is the caller's number, neither 0 nor more than 30 bits, which nobody else has.
    /// `is_gone` says whether another one is gone and cannot unlock any more; where it does not
    /// know, it is not.
    ///
    /// # Errors
    /// The value is nobody's any more.
    #[inline]
    pub fn lock(
        &self,
        owner: u32,
        is_gone: impl Fn(u32) -> bool,
    ) -> Result<Guard<'_, T>, Abandoned> {
        debug_assert!(owner != FREE && owner < ABANDONED);
        match self.try_lock(owner) {
            Some(guard) => Ok(guard),
            None => self.lock_contended(owner, is_gone).map(|()| Guard { lock: self }),
        }
    }

    /// The lock, if it is free. `owner` is as for [`Lock::lock`].
    #[inline]
    pub fn try_lock(&self, owner: u32) -> Option<Guard<'_, T>> {
        debug_assert!(owner != FREE && owner < ABANDONED);
        let taken = self.word.compare_exchange(FREE, owner, Acquire, Relaxed);
        taken.ok().map(|_| Guard { lock: self })
    }

    #[cold]
    fn lock_contended(&self, owner: u32, is_gone: impl Fn(u32) -> bool) -> Result<(), Abandoned> {
        for _ in 0..SPINS {
            if self.word.compare_exchange(FREE, owner, Acquire, Relaxed).is_ok() {
                return Ok(());
            }
            core::hint::spin_loop();
        }
        // Others may sleep as well, from now on.
        let waited_for = owner | WAITED_FOR;
        while self.word.compare_exchange(FREE, waited_for, Acquire, Relaxed).is_err() {
            let seen = self.word.load(Relaxed);
            if seen == ABANDONED {
                return Err(Abandoned);
            }
            let sleeping = seen | WAITED_FOR;
            let is_there = seen != FREE
                && (seen == sleeping
                    || self.word.compare_exchange(seen, sleeping, Relaxed, Relaxed).is_ok());
            if is_there && self.sleep(sleeping) && is_gone(sleeping & !WAITED_FOR) {
                self.abandon(sleeping & !WAITED_FOR);
            }
        }
        Ok(())
    }

    /// Sleeps while the word is `seen`; gives whether it has been for the whole time.
    fn sleep(&self, seen: u32) -> bool {
        const ETIMEDOUT: i32 = 110;
        let (word, time) = (self.word.as_ptr() as usize, [0, SLEEP_NANOSECONDS]);
        let wait = nr::FUTEX_WAIT as usize | nr::FUTEX_PRIVATE_FLAG as usize;
        let arguments = [word, wait, seen as usize, time.as_ptr() as usize];
        // SAFETY: the word and the time outlive the call; a wake, a changed value or the time ends it.
        let slept = unsafe { checked(nr::__NR_futex, arguments) };
        slept.is_err_and(|error| error.0 == ETIMEDOUT)
    }

    /// Who has the lock: for the one who has it.
    pub fn owner(&self) -> u32 {
        self.word.load(Relaxed) & !WAITED_FOR
    }

    /// Says that `owner` is gone: if it has the lock, that is abandoned.
    pub fn abandon(&self, owner: u32) {
        let seen = self.word.load(Relaxed);
        if seen & !WAITED_FOR == owner
            && self.word.compare_exchange(seen, ABANDONED, Relaxed, Relaxed).is_ok()
        {
            self.wake(i32::MAX as usize);
        }
    }

    fn unlock(&self) {
        // One that is killed here wakes nobody, but nobody sleeps for long either.
        if self.word.swap(FREE, Release) & WAITED_FOR != 0 {
            self.wake(1);
        }
    }

    fn wake(&self, most: usize) {
        let word = self.word.as_ptr() as usize;
        let wake = nr::FUTEX_WAKE as usize | nr::FUTEX_PRIVATE_FLAG as usize;
        // SAFETY: waking waiters changes no memory.
        let _ = unsafe { checked(nr::__NR_futex, [word, wake, most]) };
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
        let add = |owner| {
            for _ in 0..100_000 {
                *SUM.lock(owner, |_| false).expect("nobody is killed") += 1;
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| add(1));
            scope.spawn(|| add(2));
        });
        assert_eq!(*SUM.lock(1, |_| false).expect("nobody is killed"), 200_000);
    }

    #[test]
    fn a_lock_whose_owner_is_gone_is_nobodys() {
        static VALUE: Lock<u64> = Lock::new(0);
        core::mem::forget(VALUE.lock(7, |_| false));
        std::thread::scope(|scope| {
            for waiter in [1, 2] {
                scope.spawn(move || {
                    let outcome = VALUE.lock(waiter, |owner| owner == 7);
                    assert_eq!(outcome.err(), Some(Abandoned));
                });
            }
        });
        assert_eq!(VALUE.lock(3, |_| false).err(), Some(Abandoned));
    }

    #[test]
    fn an_owner_that_is_there_is_waited_for() {
        static VALUE: Lock<u64> = Lock::new(0);
        let mut guard = VALUE.lock(7, |_| false).expect("free");
        let asked = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let is_gone = |_| {
                    asked.fetch_add(1, Relaxed);
                    false
                };
                assert_eq!(*VALUE.lock(1, is_gone).expect("it was unlocked"), 5);
            });
            while asked.load(Relaxed) < 2 {
                std::thread::yield_now();
            }
            // Of one that has no lock nothing is abandoned.
            VALUE.abandon(1);
            *guard = 5;
            drop(guard);
        });
    }
}
