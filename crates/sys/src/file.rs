//! Descriptors and positional I/O.

use crate::limits;
use crate::mapping::Mapping;
use crate::syscall::{Errno, checked, nr};

/// A descriptor of zpager's own. Never closed by dropping: the agent's descriptors last as long as their process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fd(pub i32);

const EMFILE: Errno = Errno(24);
/// `AT_FDCWD`.
const HERE: usize = -100isize as usize;

impl Fd {
    /// Opens `path`, which ends in a zero byte, close-on-exec.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(path: &[u8], flags: u32) -> Result<Fd, Errno> {
        debug_assert_eq!(path.last(), Some(&0));
        let flags = (flags | nr::O_CLOEXEC) as usize;
        // SAFETY: the path is a C string that outlives the call.
        let open = || unsafe { checked(nr::__NR_openat, [HERE, path.as_ptr() as usize, flags, 0]) };
        let fd = match open() {
            // The program has all that it may have.
            Err(EMFILE) => limits::with_descriptors(|_| open())?,
            outcome => outcome?,
        };
        Ok(Fd(fd as i32))
    }

    /// Closes the descriptor.
    pub fn close(self) {
        // SAFETY: the caller owns the descriptor and uses it no more.
        let _ = unsafe { checked(nr::__NR_close, [self.0 as usize]) };
    }

    /// A second descriptor of the same, close-on-exec, of a number of at least `least`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn duplicate(self, least: usize) -> Result<Fd, Errno> {
        let duplicate = nr::F_DUPFD_CLOEXEC as usize;
        // SAFETY: a duplicate of an own descriptor.
        let fd = unsafe { checked(nr::__NR_fcntl, [self.0 as usize, duplicate, least]) }?;
        Ok(Fd(fd as i32))
    }

    /// Moves the descriptor to a number of at least `least`, where programs seldom look.
    #[must_use]
    pub fn moved_up(self, least: usize) -> Fd {
        self.duplicate(least).inspect(|_| self.close()).unwrap_or(self)
    }

    /// Has it read from the file's beginning next.
    pub fn rewind(self) {
        // SAFETY: the position is the descriptor's own.
        let _ = unsafe { checked(nr::__NR_lseek, [self.0 as usize, 0, nr::SEEK_SET as usize]) };
    }

    /// Reads up to `buffer.len()` bytes at the file's position.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(self, buffer: &mut [u8]) -> Result<usize, Errno> {
        // SAFETY: the buffer is the caller's for the call.
        unsafe {
            checked(nr::__NR_read, [self.0 as usize, buffer.as_mut_ptr() as usize, buffer.len()])
        }
    }

    /// Reads the whole of `buffer` at `offset`.
    ///
    /// # Errors
    /// The kernel's; `EIO` where the file ends early.
    pub fn read_exact_at(self, offset: u64, buffer: &mut [u8]) -> Result<(), Errno> {
        let at = buffer.as_mut_ptr() as usize;
        // SAFETY: the kernel writes only within the buffer.
        unsafe { self.transfer(nr::__NR_pread64, offset, at, buffer.len()) }
    }

    /// Writes the whole of `data` at `offset`.
    ///
    /// # Errors
    /// The kernel's; `EIO` where nothing could be written.
    pub fn write_all_at(self, offset: u64, data: &[u8]) -> Result<(), Errno> {
        // SAFETY: the kernel only reads the data.
        unsafe { self.transfer(nr::__NR_pwrite64, offset, data.as_ptr() as usize, data.len()) }
    }

    /// Repeats a positional transfer until all bytes are done.
    ///
    /// # Safety
    /// `at..at + bytes` is memory that the call may read or write.
    unsafe fn transfer(
        self,
        number: u32,
        offset: u64,
        at: usize,
        bytes: usize,
    ) -> Result<(), Errno> {
        let mut done = 0;
        while done < bytes {
            let arguments = [self.0 as usize, at + done, bytes - done, offset as usize + done];
            // SAFETY: within the caller's memory.
            match unsafe { checked(number, arguments) } {
                Ok(0) => return Err(Errno(5)),
                Ok(moved) => done += moved,
                Err(Errno(4)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Gives the disk space of a part back, where the file system can.
    pub fn punch(self, offset: u64, bytes: u64) {
        const PUNCH_HOLE_KEEP_SIZE: usize = 0x02 | 0x01;
        let arguments = [self.0 as usize, PUNCH_HOLE_KEEP_SIZE, offset as usize, bytes as usize];
        // SAFETY: the range is the caller's.
        let _ = unsafe { checked(nr::__NR_fallocate, arguments) };
    }

    /// Maps the first `bytes` of the file, shared.
    ///
    /// # Errors
    /// The kernel's.
    pub fn map_shared(self, bytes: usize) -> Result<*mut u8, Errno> {
        let protection = (nr::PROT_READ | nr::PROT_WRITE) as usize;
        let arguments = [0, bytes, protection, nr::MAP_SHARED as usize, self.0 as usize, 0];
        limits::own_changes(bytes as i64);
        // SAFETY: a new mapping touches nothing that exists.
        let base = unsafe { checked(nr::__NR_mmap, arguments) }.inspect_err(|_| {
            limits::own_changes(-(bytes as i64));
        })?;
        Ok(base as *mut u8)
    }

    /// Maps the file from `offset`, a multiple of a page, shared, in place of `mapping`. Unlike
    /// [`Fd::map_shared`] it takes no hole that the program may have made.
    ///
    /// # Errors
    /// The kernel's; what was mapped there stays.
    ///
    /// # Safety
    /// Nothing of what was in the mapping is used any more.
    pub unsafe fn map_shared_over(self, mapping: &Mapping, offset: u64) -> Result<(), Errno> {
        let protection = (nr::PROT_READ | nr::PROT_WRITE) as usize;
        let flags = (nr::MAP_SHARED | nr::MAP_FIXED) as usize;
        let (at, bytes) = (mapping.start(), mapping.bytes());
        let arguments = [at, bytes, protection, flags, self.0 as usize, offset as usize];
        // SAFETY: the caller's promise.
        unsafe { checked(nr::__NR_mmap, arguments) }.map(|_| ())
    }

    /// Length of the file.
    ///
    /// # Errors
    /// The kernel's.
    pub fn length_bytes(self) -> Result<usize, Errno> {
        // SAFETY: SEEK_END on an own descriptor.
        unsafe { checked(nr::__NR_lseek, [self.0 as usize, 0, nr::SEEK_END as usize]) }
    }

    /// The user whose file it is.
    ///
    /// # Errors
    /// The kernel's.
    pub fn owner(self) -> Result<u32, Errno> {
        /// `st_uid` among the words of `struct stat`: in the upper half of the fourth, behind the mode.
        const OWNER: usize = 3;
        let mut status = [0u64; 18];
        // SAFETY: struct stat has that many words, which the kernel writes.
        unsafe { checked(nr::__NR_fstat, [self.0 as usize, status.as_mut_ptr() as usize]) }?;
        Ok((status[OWNER] >> 32) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_an_owner() {
        let own = Fd::open(b"/proc/self/environ\0", nr::O_RDONLY).expect("a file");
        assert_eq!(own.owner(), Ok(crate::process::user()));
        own.close();
        let root = Fd::open(b"/\0", nr::O_RDONLY).expect("a directory");
        assert_eq!(root.owner(), Ok(0));
        root.close();
    }
}
