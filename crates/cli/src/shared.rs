//! A mapping that the supervisor shares with all agents.
//!
//! It lives in a memfd: it has no name that could be left behind, and an agent
//! reaches it through `/proc/PID/fd/N` of the supervisor.

use std::mem::MaybeUninit;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};

use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::failure::{Failure, OrFail};
use crate::file_limit;

/// A `T`, with room behind it, mapped and shared.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    mapped: NonNull<T>,
    length_bytes: usize,
    memory: OwnedFd,
}

impl<T> Shared<T> {
    /// Puts `value` at the start of a mapping, as [`Shared::make`] has one made there.
    ///
    /// # Errors
    /// The system has no memory or no descriptor left.
    pub(crate) fn new(
        value: T,
        length_bytes: usize,
        name: &str,
        what: &str,
    ) -> Result<Self, Failure> {
        let put = |place: &mut MaybeUninit<T>| {
            place.write(value);
        };
        Self::make(put, length_bytes, name, what)
    }

    /// Has `make` write a value at the start of a mapping of `length_bytes`, zero otherwise, of a memfd
    /// called `name`; messages say `what` it is. What changes of it once it is shared is atomic.
    ///
    /// # Errors
    /// The system has no memory or no descriptor left.
    pub(crate) fn make(
        make: impl FnOnce(&mut MaybeUninit<T>),
        length_bytes: usize,
        name: &str,
        what: &str,
    ) -> Result<Self, Failure> {
        assert!(size_of::<T>() <= length_bytes && align_of::<T>() <= 4096);
        let memory = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)
            .or_fail(format_args!("making the shared {what}"))?;
        file_limit::beyond(&format!("sizing the shared {what}"), || {
            rustix::fs::ftruncate(&memory, length_bytes as u64)
        })?;
        let shared = Self::map(memory, length_bytes, what)?;
        // SAFETY: the mapping is writable, page-aligned and long enough, by the assertion, and nobody
        // else has it yet.
        make(unsafe { shared.mapped.cast::<MaybeUninit<T>>().as_mut() });
        Ok(shared)
    }

    /// Maps what another process of this run has made so, which it has at `path`.
    ///
    /// # Errors
    /// It is not there, or too short.
    ///
    /// # Safety
    /// A `T` was written there by [`Shared::new`] or [`Shared::make`].
    pub(crate) unsafe fn open(path: &str, what: &str) -> Result<Self, Failure> {
        let opening = || format!("opening the shared {what}");
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let memory = rustix::fs::open(path, flags, Mode::empty()).or_fail(opening())?;
        let length_bytes = rustix::fs::fstat(&memory).or_fail(opening())?.st_size as usize;
        match length_bytes >= size_of::<T>() {
            true => Self::map(memory, length_bytes, what),
            false => Err(Failure::own(format!("{}: it is too short", opening()))),
        }
    }

    fn map(memory: OwnedFd, length_bytes: usize, what: &str) -> Result<Self, Failure> {
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let address = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                length_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &memory,
                0,
            )
        }
        .or_fail(format_args!("mapping the shared {what}"))?;
        let mapped = NonNull::new(address.cast::<T>()).expect("mmap gives no null");
        Ok(Shared { mapped, length_bytes, memory })
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the value was written in `make` and stays mapped as long as `self`; whatever
        // changes after that is atomic, in this and every other process.
        unsafe { self.mapped.as_ref() }
    }
}

impl<T> AsFd for Shared<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is this object's own and no reference to it outlives the object.
        // Failure would only leave it mapped.
        let _ = unsafe { rustix::mm::munmap(self.mapped.as_ptr().cast(), self.length_bytes) };
    }
}
