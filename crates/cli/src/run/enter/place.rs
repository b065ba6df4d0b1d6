//! Putting the agent's image into a stopped process that no loader puts it into: what
//! ld.so(8) does with `LD_PRELOAD`, done by system calls that one of the process's own
//! threads is made to make.
//!
//! The thread runs a `syscall` that is written over some code of the process for a
//! moment; as all threads stand still nobody else comes by. Sources: ptrace(2); ELF,
//! "Program Loading"; [`Layout`] for what goes where.
//!
//! Invariant: a process into which the image could not be put is as it was before.
//! Bad for programs that are gone in a moment: it takes a dozen calls, two switches
//! of the processor each.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use libc::{c_long, pid_t};
use zpager_wire::Entry;

use super::layout::{Layout, PAGE_BYTES};
use super::thread::{StoppedThread, Trouble};
use super::{mappings, ptrace};

/// Where room is looked for: below the agent's own mappings, which begin 64 GiB higher
/// (`zpager_sys::mapping`), and far from where programs and their libraries lie.
const FIRST_BASE: u64 = 0x49f0_0000_0000;
const STEP_BYTES: u64 = 1 << 30;
/// Places that are tried.
const TRIES_MAX: u64 = 64;

/// `syscall; int3`, and nothing else in the word that is written over.
const CALL_CODE: [u8; 8] = [0x0f, 0x05, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc];

const READ_WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;

/// What a process is to be given.
#[derive(Debug, Clone, Copy)]
pub(super) struct Given<'a> {
    pub(super) layout: &'a Layout,
    /// The path by which other processes open the agent's file.
    pub(super) agent_path: &'a str,
    /// The supervisor's descriptor of the control block.
    pub(super) control_fd: i32,
}

/// Puts the image into process `pid`, of which `thread` is one and all stand still; gives where
/// it begins.
///
/// # Errors
/// What the kernel or the agent refused, or the process is gone.
pub(super) fn place(
    pid: pid_t,
    thread: &mut StoppedThread,
    maps: &str,
    given: Given<'_>,
) -> Result<u64, Trouble> {
    let site = mappings(maps).find(|found| found.is_code).ok_or(Trouble::Refused(libc::ENOEXEC))?;
    let memory = OpenOptions::new().write(true).open(format!("/proc/{pid}/mem"))?;
    let tid = thread.tid();
    let covered = ptrace::word(tid, site.start)?;
    ptrace::set_word(tid, site.start, u64::from_le_bytes(CALL_CODE))?;
    let mut caller = Caller { thread, site: site.start, memory };
    let placed = caller.place(given);
    ptrace::set_word(tid, site.start, covered)?;
    let base = placed?;
    let names = u64::from(std::process::id()) << 32 | u64::from(given.control_fd.cast_unsigned());
    let end = base + given.layout.span_bytes;
    thread.enter_with(base + given.layout.entry, Entry::Load, [base, end, names])?;
    Ok(base)
}

/// A thread that makes system calls for the supervisor.
struct Caller<'a> {
    thread: &'a mut StoppedThread,
    /// Where it makes them.
    site: u64,
    memory: File,
}

impl Caller<'_> {
    /// A call, with as many of its arguments as matter.
    fn call<const N: usize>(
        &mut self,
        number: c_long,
        arguments: [u64; N],
    ) -> Result<u64, Trouble> {
        const { assert!(N <= 6) };
        let mut all = [0; 6];
        all[..N].copy_from_slice(&arguments);
        self.thread.call(self.site, number, all)
    }

    fn place(&mut self, given: Given<'_>) -> Result<u64, Trouble> {
        let base = self.reserve(given.layout.span_bytes)?;
        match self.fill(base, given) {
            Ok(()) => Ok(base),
            Err(trouble) => {
                // What is lost already cannot be lost more.
                let _ = self.call(libc::SYS_munmap, [base, given.layout.span_bytes]);
                Err(trouble)
            }
        }
    }

    /// Address space for all of it.
    fn reserve(&mut self, bytes: u64) -> Result<u64, Trouble> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        for base in (0..TRIES_MAX).map(|at| FIRST_BASE + at * STEP_BYTES) {
            let arguments = [base, bytes, READ_WRITE, flags as u64, u64::MAX, 0];
            match self.call(libc::SYS_mmap, arguments) {
                Ok(_) => return Ok(base),
                Err(Trouble::Refused(libc::EEXIST)) => {}
                Err(trouble) => return Err(trouble),
            }
        }
        Err(Trouble::Refused(libc::ENOMEM))
    }

    fn fill(&mut self, base: u64, given: Given<'_>) -> Result<(), Trouble> {
        let path = [given.agent_path.as_bytes(), &[0]].concat();
        self.memory.write_all_at(&path, base)?;
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
        let here = i64::from(libc::AT_FDCWD).cast_unsigned();
        let file = self.call(libc::SYS_openat, [here, base, flags, 0])?;
        let mapped = self.map_segments(base, given.layout, file);
        let closed = self.call(libc::SYS_close, [file]);
        mapped.and(closed)?;
        for (page, bytes) in given.layout.patches(base) {
            self.memory.write_all_at(&bytes, base + page)?;
        }
        let sealed = &given.layout.sealed;
        if !sealed.is_empty() {
            let protection = libc::PROT_READ as u64;
            let bytes = sealed.end - sealed.start;
            self.call(libc::SYS_mprotect, [base + sealed.start, bytes, protection])?;
        }
        Ok(())
    }

    /// Maps the file's part of each segment over the reserved room. What is left is zeros, and
    /// between two segments nothing can be reached.
    fn map_segments(&mut self, base: u64, layout: &Layout, file: u64) -> Result<(), Trouble> {
        let mut end = 0;
        for segment in &layout.segments {
            let (pages, in_file) = (segment.pages(), segment.file_pages());
            if pages.start > end {
                let gap = [base + end, pages.start - end, libc::PROT_NONE as u64];
                self.call(libc::SYS_mprotect, gap)?;
            }
            end = pages.end;
            let offset = segment.file_offset - segment.file_offset % PAGE_BYTES;
            let bytes = in_file.end - in_file.start;
            let flags = (libc::MAP_PRIVATE | libc::MAP_FIXED) as u64;
            let at = base + in_file.start;
            let mapping = [at, bytes, segment.protection, flags, file, offset];
            self.call(libc::SYS_mmap, mapping)?;
            if !segment.is_writable() && in_file.end < end {
                let rest = [base + in_file.end, end - in_file.end, segment.protection];
                self.call(libc::SYS_mprotect, rest)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_ends_below_the_mappings_of_the_agent() {
        let mapping = zpager_sys::mapping::Mapping::reserve(4096).expect("room");
        assert!(FIRST_BASE + TRIES_MAX * STEP_BYTES <= mapping.start() as u64);
    }
}
