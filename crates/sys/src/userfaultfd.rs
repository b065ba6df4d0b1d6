//! userfaultfd: faults on absent pages become SIGBUS in the faulting thread, and
//! pages are put in, lifted out and write-protected by ioctl.
//!
//! Source: Documentation/admin-guide/mm/userfaultfd.rst, ioctl_userfaultfd(2).
//! Opened with `UFFD_USER_MODE_ONLY`, which an ordinary user may.

use crate::PAGE_BYTES;
use crate::file::Fd;
use crate::syscall::{Errno, checked, nr};

const ENOSYS: Errno = Errno(38);
const UFFD_USER_MODE_ONLY: usize = 1;
const API: u64 = 0xaa;
const FEATURE_SIGBUS: u64 = 1 << 7;
const FEATURE_WRITE_PROTECT: u64 = 1;
/// Register faults on pages that are not there.
const MODE_MISSING: u64 = 1;
/// Register faults on pages that are write-protected.
const MODE_WRITE_PROTECT: u64 = 2;
const UFFDIO_API: usize = 0xc018_aa3f;
const UFFDIO_REGISTER: usize = 0xc020_aa00;
const UFFDIO_UNREGISTER: usize = 0x8010_aa01;
const UFFDIO_COPY: usize = 0xc028_aa03;
const UFFDIO_ZEROPAGE: usize = 0xc020_aa04;
const UFFDIO_MOVE: usize = 0xc028_aa05;
const UFFDIO_WRITEPROTECT: usize = 0xc018_aa06;
const MOVE_BIT: u32 = 5;
/// Put copies in write-protected.
const COPY_WRITE_PROTECT: u64 = 1 << 1;

/// One userfaultfd of this process.
#[derive(Debug, Clone, Copy)]
pub struct Userfaultfd {
    fd: Fd,
}

impl Userfaultfd {
    /// Opens one at a descriptor of at least `least_fd`.
    ///
    /// # Errors
    /// `ENOSYS`, `EPERM` where it may not be used, `EINVAL` where the kernel is too old.
    pub fn open(least_fd: usize) -> Result<Self, Errno> {
        let flags = nr::O_CLOEXEC as usize | nr::O_NONBLOCK as usize | UFFD_USER_MODE_ONLY;
        // SAFETY: opens a descriptor.
        let fd = Fd(unsafe { checked(nr::__NR_userfaultfd, [flags]) }? as i32).moved_up(least_fd);
        let mut api = [API, FEATURE_SIGBUS | FEATURE_WRITE_PROTECT, 0];
        let this = Userfaultfd { fd };
        // SAFETY: the struct uffdio_api is three words.
        unsafe { this.ioctl(UFFDIO_API, api.as_mut_ptr()) }?;
        Ok(this)
    }

    /// Whether there is such a call at all.
    pub fn is_known() -> bool {
        const NO_FLAGS: usize = usize::MAX;
        // SAFETY: such flags are refused, whoever asks.
        let refused = unsafe { checked(nr::__NR_userfaultfd, [NO_FLAGS]) };
        refused != Err(ENOSYS)
    }

    /// The descriptor.
    pub fn fd(&self) -> Fd {
        self.fd
    }

    /// # Safety
    /// `argument` is the struct that `request` takes, with what it names the caller's to change.
    unsafe fn ioctl(&self, request: usize, argument: *mut u64) -> Result<usize, Errno> {
        // SAFETY: the caller's promise.
        unsafe { checked(nr::__NR_ioctl, [self.fd.0 as usize, request, argument as usize]) }
    }

    /// Has faults in `start..start + bytes` reported. Gives whether pages can be moved.
    ///
    /// # Errors
    /// `EINVAL` where the range is not private anonymous memory, `EBUSY` where another has it.
    pub fn register(&self, start: usize, bytes: usize) -> Result<bool, Errno> {
        let mode = MODE_MISSING | MODE_WRITE_PROTECT;
        let mut argument = [start as u64, bytes as u64, mode, 0];
        // SAFETY: the struct uffdio_register is four words; absent pages of the range are served from now on.
        unsafe { self.ioctl(UFFDIO_REGISTER, argument.as_mut_ptr()) }?;
        Ok(argument[3] & (1 << MOVE_BIT) != 0)
    }

    /// Ends reporting for a range.
    pub fn unregister(&self, start: usize, bytes: usize) {
        let mut argument = [start as u64, bytes as u64];
        // SAFETY: the struct uffdio_range is two words.
        let _ = unsafe { self.ioctl(UFFDIO_UNREGISTER, argument.as_mut_ptr()) };
    }

    /// Puts copies of `bytes` from `source` in as the absent pages at `target`, write-protected or not.
    /// Gives how many bytes were put in before the first page that was there already or could not be put.
    ///
    /// # Errors
    /// `EEXIST` where the first page is there, `ENOENT` where the range is not mapped.
    ///
    /// # Safety
    /// `source` is readable for `bytes`, and its bytes are what the program must find at `target`.
    pub unsafe fn copy(
        &self,
        target: usize,
        source: *const u8,
        bytes: usize,
        protect: bool,
    ) -> Result<usize, Errno> {
        let mode = if protect { COPY_WRITE_PROTECT } else { 0 };
        let mut argument = [target as u64, source as u64, bytes as u64, mode, 0];
        // SAFETY: the struct uffdio_copy is five words; the caller's promise.
        let outcome = unsafe { self.ioctl(UFFDIO_COPY, argument.as_mut_ptr()) };
        partial(outcome, argument[4] as i64, bytes)
    }

    /// Puts the kernel's page of zeros in at `target`, where no page is.
    ///
    /// # Errors
    /// `EEXIST` where a page is there, `ENOENT` where the range is not mapped.
    ///
    /// # Safety
    /// Zeros are what the program must find at `target`, if no page is there.
    pub unsafe fn put_zeros(&self, target: usize) -> Result<(), Errno> {
        let mut argument = [target as u64, PAGE_BYTES as u64, 0, 0];
        // SAFETY: the struct uffdio_zeropage is four words; the caller's promise.
        unsafe { self.ioctl(UFFDIO_ZEROPAGE, argument.as_mut_ptr()) }.map(|_| ())
    }

    /// Moves the pages of `source` to the absent pages at `target`, atomically
    /// for every other thread. Gives how many bytes were moved before the first
    /// page that could not be.
    ///
    /// # Errors
    /// `EBUSY` where the first page is pinned or shared with another process, `ENOENT` where it is absent.
    ///
    /// # Safety
    /// The program must find no page at `source` until it is put back there.
    pub unsafe fn move_pages(
        &self,
        target: usize,
        source: usize,
        bytes: usize,
    ) -> Result<usize, Errno> {
        let mut argument = [target as u64, source as u64, bytes as u64, 0, 0];
        // SAFETY: the struct uffdio_move is five words; the caller's promise.
        let outcome = unsafe { self.ioctl(UFFDIO_MOVE, argument.as_mut_ptr()) };
        partial(outcome, argument[4] as i64, bytes)
    }

    /// Write-protects a range, or lets it be written again.
    ///
    /// # Errors
    /// The kernel's.
    pub fn write_protect(&self, start: usize, bytes: usize, protect: bool) -> Result<(), Errno> {
        let mut argument = [start as u64, bytes as u64, u64::from(protect)];
        // SAFETY: the struct uffdio_writeprotect is three words; writers wait in the fault handler.
        unsafe { self.ioctl(UFFDIO_WRITEPROTECT, argument.as_mut_ptr()) }.map(|_| ())
    }
}

/// What a copy or move did: all, a part, or nothing for a reason.
fn partial(outcome: Result<usize, Errno>, done: i64, bytes: usize) -> Result<usize, Errno> {
    match outcome {
        Ok(_) => Ok(bytes),
        Err(_) if done > 0 => Ok(done as usize),
        Err(error) => Err(error),
    }
}
