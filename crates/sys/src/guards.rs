//! Guard pages: an access to one is a SIGSEGV in the thread that makes it, and an error in a call of the kernel's,
//! until the guard is taken away or the page is unmapped.
//!
//! Where userfaultfd is forbidden, as in most containers, they stand for pages that are not there: installing one
//! drops the page that was there, and costs no mapping of its own. What comes in is written by way of the process's
//! own memory file, which reaches memory that its threads may not access at the time.
//!
//! Source: madvise(2), `MADV_GUARD_INSTALL` and `MADV_GUARD_REMOVE`, Linux 6.13 (mm/madvise.c); proc_pid_mem(5)
//! (fs/proc/base.c, `proc_mem_foll_force`).

use crate::file::Fd;
use crate::mapping::Mapping;
use crate::process::Part;
use crate::syscall::{Errno, checked, nr};
use crate::{PAGE_BYTES, process};

const INSTALL: usize = nr::MADV_GUARD_INSTALL as usize;
const REMOVE: usize = nr::MADV_GUARD_REMOVE as usize;

/// Puts guards in place of the pages of a range, and drops what they hold.
///
/// # Errors
/// `EINVAL` where the kernel has none, or not in such memory; `ENOMEM` where a part is not mapped.
///
/// # Safety
/// The program must not miss what the pages hold.
pub unsafe fn install(start: usize, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { checked(nr::__NR_madvise, [start, bytes, INSTALL]) }.map(|_| ())
}

/// The same for parts of this process's memory, `at_once` where process_madvise(2) may be called; gives how many
/// bytes, in the order of the parts, up to the first page where there can be none.
///
/// # Safety
/// As for [`install`].
unsafe fn install_parts(parts: &[Part], at_once: bool) -> usize {
    // SAFETY: the caller's promise.
    let mut done = if at_once { unsafe { process::advise_parts(parts, INSTALL) } } else { 0 };
    let first = parts_within(parts, done).len();
    for &[start, bytes] in &parts[first..] {
        // SAFETY: the caller's promise.
        let installs = |start, bytes| unsafe { install(start, bytes) }.is_ok();
        // What is refused as a whole was done as far as the page that is.
        let pages = (start..start + bytes).step_by(PAGE_BYTES);
        let installed = match installs(start, bytes) {
            true => bytes,
            false => pages.take_while(|page| installs(*page, PAGE_BYTES)).count() * PAGE_BYTES,
        };
        done += installed;
        if installed < bytes {
            break;
        }
    }
    done
}

/// Takes the guards of a range away. Where one was, memory reads as zeros; pages that are there stay.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// Zeros are what the program must find where guards are.
pub unsafe fn remove(start: usize, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { checked(nr::__NR_madvise, [start, bytes, REMOVE]) }.map(|_| ())
}

/// Changes what may be done with a range.
///
/// # Errors
/// The kernel's: `ENOMEM` where it would be one mapping too many.
///
/// # Safety
/// Threads that access it meanwhile are served.
pub unsafe fn protect(start: usize, bytes: usize, protection: u32) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { checked(nr::__NR_mprotect, [start, bytes, protection as usize]) }.map(|_| ())
}

/// A process's own memory, written past its protection.
#[derive(Debug, Clone, Copy)]
pub struct OwnMemory(Fd);

impl OwnMemory {
    /// That of this process, at a descriptor of at least `least_fd`.
    ///
    /// # Errors
    /// There is no `/proc`, or the process may not open what is its own there.
    pub fn open(least_fd: usize) -> Result<Self, Errno> {
        // By the calling thread: the first one may have ended.
        Fd::open(b"/proc/thread-self/mem\0", nr::O_RDWR).map(|fd| OwnMemory(fd.moved_up(least_fd)))
    }

    /// The descriptor.
    pub fn fd(&self) -> Fd {
        self.0
    }

    /// Puts copies of `bytes` from `source` in where there are guards at `target`. Other threads find guards or the
    /// copies; where there are none (`is_alone`) that takes fewer calls. Afterwards `protection` holds there.
    ///
    /// # Errors
    /// The kernel's; guards are there still.
    ///
    /// # Safety
    /// `source` is readable for `bytes`, and its bytes are what the program must find at `target`. Threads that
    /// access the range meanwhile are served.
    pub unsafe fn put(
        &self,
        (target, bytes): (usize, usize),
        source: *const u8,
        protection: u32,
        is_alone: bool,
    ) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        let data = unsafe { core::slice::from_raw_parts(source, bytes) };
        // SAFETY: the caller's promise; nobody sees the zeros between the guards and the copies.
        unsafe {
            if !is_alone {
                protect(target, bytes, nr::PROT_NONE)?;
            }
            let outcome =
                remove(target, bytes).and_then(|()| self.0.write_all_at(target as u64, data));
            let outcome = outcome.or_else(|error| install(target, bytes).and(Err(error)));
            if !is_alone {
                protect(target, bytes, protection)?;
            }
            outcome
        }
    }
}

/// The same where there is no such file, of a process of one thread, in memory that can be written by now or not: what
/// other processes read there meanwhile may be zeros.
///
/// # Errors
/// As for [`OwnMemory::put`].
///
/// # Safety
/// As there.
pub unsafe fn put_openly(
    (target, bytes): (usize, usize),
    source: *const u8,
    protection: u32,
    is_writable: bool,
) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe {
        remove(target, bytes)?;
        let open = || protect(target, bytes, nr::PROT_READ | nr::PROT_WRITE);
        let outcome = if is_writable { Ok(()) } else { open() };
        let outcome = outcome.and_then(|()| process::poke_bytes(target, source, bytes));
        let outcome = outcome.or_else(|error| install(target, bytes).and(Err(error)));
        if !is_writable {
            protect(target, bytes, protection)?;
        }
        outcome
    }
}

/// What is to be taken, and how.
#[derive(Debug, Clone, Copy)]
pub struct Takes<'a> {
    /// Start and bytes of a range.
    pub range: Part,
    /// In ascending order, within it.
    pub parts: &'a [Part],
    /// What holds in the range, `PROT_*`.
    pub protection: u32,
    /// No other thread runs.
    pub is_alone: bool,
    /// process_madvise(2) may be called.
    pub at_once: bool,
}

impl Takes<'_> {
    /// Copies the first of the parts to `contents` and puts guards in their place; gives how many bytes. Other threads
    /// find what was there, or guards. Afterwards all is protected in the range as before.
    ///
    /// # Errors
    /// Nothing was taken, and why.
    ///
    /// # Safety
    /// `contents` is as long as the parts; what they held comes back before the program misses it. Threads that access
    /// the range meanwhile are served.
    pub unsafe fn take(&self, contents: *mut u8) -> Result<usize, Taking> {
        let [start, bytes] = self.range;
        // SAFETY: the caller's promise; what was read cannot be written until it is gone.
        unsafe {
            if !self.is_alone {
                protect(start, bytes, nr::PROT_READ).map_err(Taking::Refused)?;
            }
            let read = parts_within(self.parts, process::gather(self.parts, contents));
            let is_shut = self.is_alone || protect(start, bytes, nr::PROT_NONE).is_ok();
            let taken = if is_shut { install_parts(read, self.at_once) } else { 0 };
            if !self.is_alone {
                protect(start, bytes, self.protection).map_err(Taking::Stuck)?;
            }
            Ok(taken)
        }
    }
}

/// Why nothing could be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taking {
    /// The range could not be protected.
    Refused(Errno),
    /// Its protection could not be given back.
    Stuck(Errno),
}

/// The first of some parts that have at most so many bytes.
fn parts_within(parts: &[Part], bytes: usize) -> &[Part] {
    let mut left = bytes;
    let fits = |part: &&Part| left.checked_sub(part[1]).inspect(|rest| left = *rest).is_some();
    let count = parts.iter().take_while(fits).count();
    &parts[..count]
}

/// Whether this process can do without userfaultfd: tries all of it on a page of its own.
///
/// # Errors
/// What the kernel refused.
pub fn try_all() -> Result<(), Errno> {
    let page = Mapping::reserve(PAGE_BYTES)?;
    let memory = OwnMemory::open(0)?;
    let place = (page.start(), PAGE_BYTES);
    let written = [0xa5u8; PAGE_BYTES];
    let mut read = [0u8; PAGE_BYTES];
    let protection = nr::PROT_READ | nr::PROT_WRITE;
    // SAFETY: the page is this function's alone.
    let outcome = unsafe {
        install(place.0, place.1)
            .and_then(|()| memory.put(place, written.as_ptr(), protection, false))
            .and_then(|()| {
                let range = [place.0, place.1];
                let takes =
                    Takes { range, parts: &[range], protection, is_alone: false, at_once: false };
                let taken = takes.take(read.as_mut_ptr());
                taken.map_err(|(Taking::Refused(error) | Taking::Stuck(error))| error)
            })
    };
    memory.fd().close();
    match outcome {
        Ok(PAGE_BYTES) if read == written => Ok(()),
        Ok(_) => Err(Errno(5)),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_and_taken_is_what_was_there() {
        match try_all() {
            // Linux before 6.13.
            Err(Errno(22)) => {}
            outcome => assert_eq!(outcome, Ok(())),
        }
    }

    #[test]
    fn parts_are_counted_whole() {
        let parts = [[0, 4096], [8192, 4096], [65536, 4096]];
        assert_eq!(parts_within(&parts, 8192), &parts[..2]);
        assert_eq!(parts_within(&parts, 8191), &parts[..1]);
        assert_eq!(parts_within(&parts, 1 << 20), &parts);
    }
}
