//! Putting the agent's image into a stopped process that no loader puts it into: what
//! ld.so(8) does with `LD_PRELOAD`, done by system calls that one of the process's own
//! threads is made to make.
//!
//! Sources: ELF, "Program Loading"; [`Layout`] for what goes where; [`Caller`] for the calls.
//!
//! Invariant: a process into which the image could not be put is as it was before.
//! Bad for programs that are gone in a moment: it takes a dozen calls, two switches
//! of the processor each.

use std::os::fd::RawFd;

use zpager_sys::mapping::WINDOW_STARTS;
use zpager_wire::{Entry, Known};

use super::At;
use super::caller::Caller;
use super::layout::{Layout, PAGE_BYTES};
use super::pass::Handed;
use super::thread::{StoppedThread, Trouble};

/// Where room is looked for: below the agent's own mappings, in the order of their windows.
const BASES: [u64; 2] =
    [WINDOW_STARTS[0] as u64 - ROOM_BYTES, WINDOW_STARTS[1] as u64 - ROOM_BYTES];
const ROOM_BYTES: u64 = 64 << 30;
const STEP_BYTES: u64 = 1 << 30;
/// Places that are tried from each of these on.
const TRIES_MAX: u64 = ROOM_BYTES / STEP_BYTES;

const READ_WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;

/// What a process is to be given.
#[derive(Debug, Clone, Copy)]
pub(super) struct Given<'a> {
    pub(super) layout: &'a Layout<'a>,
    /// The supervisor's descriptor of the agent's file, and the path by which others open it.
    pub(super) agent_fd: RawFd,
    pub(super) agent_path: &'a str,
    /// The supervisor's descriptor of the control block.
    pub(super) control_fd: RawFd,
    pub(super) known: Known,
    /// What it has been passed, where it may not open these.
    pub(super) handed: Option<&'a Handed>,
}

/// Puts the image into the process of `thread`, of which all stand still; gives where
/// it begins.
///
/// # Errors
/// What the kernel or the agent refused, or the process is gone.
pub(super) fn place(
    thread: &mut StoppedThread,
    maps: &str,
    given: Given<'_>,
) -> Result<u64, Trouble> {
    let mut caller = Caller::begin(thread, maps)?;
    let placed = Placing { caller: &mut caller, given }.place();
    caller.end()?;
    let base = placed?;
    let names = u64::from(std::process::id()) << 32 | u64::from(given.control_fd.cast_unsigned());
    let end = base + given.layout.span_bytes;
    let at = At {
        entry: base + given.layout.entry,
        passed: given.handed.map_or(0, Handed::table_address),
        known: given.known,
    };
    thread.enter_with(at, Entry::Load, [base, end, names])?;
    Ok(base)
}

/// The image on its way into a process.
struct Placing<'a, 'b> {
    caller: &'a mut Caller<'b>,
    given: Given<'a>,
}

impl Placing<'_, '_> {
    fn place(&mut self) -> Result<u64, Trouble> {
        let span_bytes = self.given.layout.span_bytes;
        let base = self.reserve(span_bytes)?;
        match self.fill(base) {
            Ok(()) => Ok(base),
            Err(trouble) => {
                // What is lost already cannot be lost more.
                let _ = self.caller.call(libc::SYS_munmap, [base, span_bytes]);
                Err(trouble)
            }
        }
    }

    /// Address space for all of it.
    fn reserve(&mut self, bytes: u64) -> Result<u64, Trouble> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let places = |base: u64| (0..TRIES_MAX).map(move |at| base + at * STEP_BYTES);
        for base in BASES.into_iter().flat_map(places) {
            let arguments = [base, bytes, READ_WRITE, flags as u64, u64::MAX, 0];
            match self.caller.call(libc::SYS_mmap, arguments) {
                Ok(_) => return Ok(base),
                Err(Trouble::Refused(libc::EEXIST)) => {}
                Err(trouble) => return Err(trouble),
            }
        }
        Err(Trouble::Refused(libc::ENOMEM))
    }

    fn fill(&mut self, base: u64) -> Result<(), Trouble> {
        let Given { layout, agent_fd, handed, .. } = self.given;
        match handed.and_then(|handed| handed.own(agent_fd)) {
            Some(file) => self.map_segments(base, file)?,
            None => {
                let file = self.open_agent(base)?;
                let mapped = self.map_segments(base, file);
                let closed = self.caller.call(libc::SYS_close, [file]);
                mapped.and(closed)?;
            }
        }
        for (page, bytes) in layout.patches(base) {
            self.caller.write(base + page, &bytes)?;
        }
        let sealed = &layout.sealed;
        if !sealed.is_empty() {
            let protection = libc::PROT_READ as u64;
            let bytes = sealed.end - sealed.start;
            self.caller.call(libc::SYS_mprotect, [base + sealed.start, bytes, protection])?;
        }
        Ok(())
    }

    /// Opens the agent's file, whose path is put into the room at `base` for that.
    fn open_agent(&mut self, base: u64) -> Result<u64, Trouble> {
        let path = [self.given.agent_path.as_bytes(), &[0]].concat();
        self.caller.write(base, &path)?;
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
        let here = i64::from(libc::AT_FDCWD).cast_unsigned();
        self.caller.call(libc::SYS_openat, [here, base, flags, 0])
    }

    /// Maps the file's part of each segment over the reserved room. What is left is zeros, and
    /// between two segments nothing can be reached.
    fn map_segments(&mut self, base: u64, file: u64) -> Result<(), Trouble> {
        let layout = self.given.layout;
        let mut end = 0;
        for segment in &layout.segments {
            let (pages, in_file) = (segment.pages(), segment.file_pages());
            if pages.start > end {
                let gap = [base + end, pages.start - end, libc::PROT_NONE as u64];
                self.caller.call(libc::SYS_mprotect, gap)?;
            }
            end = pages.end;
            let offset = segment.file_offset - segment.file_offset % PAGE_BYTES;
            let bytes = in_file.end - in_file.start;
            let flags = (libc::MAP_PRIVATE | libc::MAP_FIXED) as u64;
            let at = base + in_file.start;
            let mapping = [at, bytes, segment.protection, flags, file, offset];
            self.caller.call(libc::SYS_mmap, mapping)?;
            if !segment.is_writable() && in_file.end < end {
                let rest = [base + in_file.end, end - in_file.end, segment.protection];
                self.caller.call(libc::SYS_mprotect, rest)?;
            }
        }
        Ok(())
    }
}
