//! `io_uring_enter` and `io_uring_register` on a ring that the process has had since before it was managed.
//!
//! What a ring reads and writes is in no call, and the kernel finds nothing where pages are away. So no ring
//! is made any more, and a process is not taken over whose ring uses memory. One that was not used so far, or
//! only to change what is polled for, as an event loop does, may be used for memory afterwards: before the
//! first such entry is submitted, or memory registered, the process leaves management ([`super::sandbox`]).
//!
//! The entries are looked at where they are mapped; nobody makes another ring, so that they are known from
//! when the process was taken over. Where there is something else by now, the mappings are read once more.
//!
//! Sources: io_uring_enter(2), io_uring_register(2), `struct io_uring_sqe`.
//!
//! Bad cases: a process with a thread that does not come out of the midst of a call for half a second
//! submits all the same, and may get `EFAULT`. What `IORING_ENTER_EXT_ARG` points to is not held.

use zpager_sys::signal::Context;
use zpager_sys::syscall::nr;
use zpager_wire::EventKind;

use super::Outcome;
use crate::maps::{self, Kind, Line};
use crate::process::Process;
use crate::threads::Thread;

/// The bytes of an entry; its first is the operation.
const ENTRY_BYTES: usize = 64;
/// Bytes of entries that are looked at together.
const LOOKED_BYTES: usize = 16 * ENTRY_BYTES;
/// Operations that use no memory or next to none, as for the supervisor: nothing, sync, poll, cancel, close
/// and epoll_ctl.
const HARMLESS: [u8; 7] = [0, 3, 6, 7, 14, 19, 29];
/// Rings whose entries are kept.
const RINGS_MAX: usize = 4;

/// Where the entries of the process's rings are.
#[derive(Debug, Default)]
pub(crate) struct Rings {
    entries: [(usize, usize); RINGS_MAX],
    count: usize,
}

impl Rings {
    /// Notes entries, if this is a mapping of some.
    pub(crate) fn note(&mut self, line: &Line) {
        if line.kind != Kind::RingEntries {
            return;
        }
        if let Some(place) = self.entries.get_mut(self.count) {
            *place = (line.start, line.end);
        }
        self.count += 1;
    }

    /// Those that are kept; nothing where there are more.
    fn known(&self) -> Option<[(usize, usize); RINGS_MAX]> {
        (self.count <= RINGS_MAX).then_some(self.entries)
    }
}

impl Process {
    pub(super) fn ring_call(&mut self, thread: &mut Thread, context: &mut Context) -> Outcome {
        let is_use = match context.registers.rax as u32 {
            nr::__NR_io_uring_register => self.rings.count > 0,
            _ => self.rings.count > 0 && self.submits_use(context.registers.arguments()),
        };
        if is_use { self.leave_for(thread, context, EventKind::HasRing) } else { Outcome::GoOn }
    }

    /// Whether the kernel is given an entry that uses memory, or may be.
    fn submits_use(&mut self, [_, count, ..]: [usize; 6]) -> bool {
        if count as u32 == 0 || self.are_harmless() {
            return false;
        }
        self.find_rings();
        !self.are_harmless()
    }

    fn find_rings(&mut self) {
        let mut found = Rings::default();
        if maps::each_line(|line| found.note(&line)).is_ok() {
            self.rings = found;
        }
    }

    /// Whether nothing else is asked for by any entry, or was. What is mapped no more cannot be submitted.
    fn are_harmless(&mut self) -> bool {
        let Some(known) = self.rings.known() else { return false };
        known.iter().all(|&(start, end)| {
            (start..end).step_by(LOOKED_BYTES).all(|at| {
                let mut entries = [0; LOOKED_BYTES];
                !self.peek(at, &mut entries)
                    || entries.chunks(ENTRY_BYTES).all(|entry| HARMLESS.contains(&entry[0]))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_rings_than_are_kept_are_not_known() {
        let mut rings = Rings::default();
        let line = |kind| Line { start: 0x1000, end: 0x2000, protection: 3, kind };
        rings.note(&line(Kind::Device));
        assert_eq!(rings.count, 0);
        for _ in 0..RINGS_MAX {
            rings.note(&line(Kind::RingEntries));
        }
        assert_eq!(rings.known(), Some([(0x1000, 0x2000); RINGS_MAX]));
        rings.note(&line(Kind::RingEntries));
        assert_eq!(rings.known(), None);
    }
}
