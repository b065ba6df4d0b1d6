//! Telling the user, once each, what the agents and the supervisor have noted.

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use zpager_wire::{EVENT_KINDS, Event, EventKind, Events};

use crate::run::report::Notices;

/// What has been told already.
#[derive(Debug, Default)]
pub(crate) struct Told {
    kinds: [bool; EVENT_KINDS.len()],
}

impl Told {
    /// Tells what is new.
    pub(crate) fn tell(&mut self, events: &Events, notices: &mut Notices) {
        for (kind, told) in EVENT_KINDS.into_iter().zip(&mut self.kinds) {
            let event = events.get(kind);
            // The count comes first; the particulars are complete once there is a process.
            if *told || event.count.load(Relaxed) == 0 || event.pid.load(Relaxed) == 0 {
                continue;
            }
            *told = true;
            let message = describe(kind, event);
            match ends_the_program(kind) {
                true => notices.error(&message),
                false => notices.warn(&message),
            }
        }
    }
}

fn ends_the_program(kind: EventKind) -> bool {
    match kind {
        EventKind::StoreReadFailed
        | EventKind::PageCorrupt
        | EventKind::AgentFailed
        | EventKind::InvariantBroken
        | EventKind::Abandoned => true,
        EventKind::StoreWriteFailed
        | EventKind::StoreFull
        | EventKind::StoreFailed
        | EventKind::ServerFailed
        | EventKind::MirrorFailed
        | EventKind::BudgetExceeded
        | EventKind::NotManaged
        | EventKind::Sandboxed
        | EventKind::HasRing
        | EventKind::Emulated
        | EventKind::NoMemoryFile
        | EventKind::HasMachine
        | EventKind::Traced => false,
    }
}

/// What happened, and what would help.
fn describe(kind: EventKind, event: &Event) -> String {
    let pid = event.pid.load(Relaxed);
    let value = event.value.load(Relaxed);
    let address = event.address.load(Relaxed);
    let error = i32::try_from(value).map_or_else(|_| "unknown error".into(), error_text);
    match kind {
        EventKind::StoreWriteFailed if value == libc::EFBIG as u64 => format!(
            "process {pid} may not write such a long file ({error}); its pages stay in RAM: raise its limit \
             (ulimit -f), or name a server with --store"
        ),
        EventKind::StoreWriteFailed => format!(
            "a write to the store failed ({error}); its pages stay in RAM: make room, or name \
             another directory or server with --store"
        ),
        EventKind::StoreFailed => format!(
            "a write to store {} of --store, in the order of priority, failed ({error}); the others \
             take what it cannot: make room there, or leave it out",
            address + 1
        ),
        EventKind::ServerFailed => format!(
            "the server of --store failed ({error}); the mirror takes what it does not, and gives what \
             it has not: check the server"
        ),
        EventKind::MirrorFailed => format!(
            "a write to the mirror failed ({error}); the server alone has what it does not take: make \
             room in the directory of --store-mirror"
        ),
        EventKind::StoreFull => "the store is as large as it may be; pages stay in RAM: allow \
                                 more with --store-size, or name a directory with more room with \
                                 --store"
            .into(),
        EventKind::BudgetExceeded => {
            "the budget cannot be held, because everything that may leave \
                                      RAM has left: raise --memory, or give a --store where there \
                                      is none"
                .into()
        }
        EventKind::StoreReadFailed => format!(
            "process {pid} was ended: its page at {address:#x} could not be read from the \
             store ({error}): check the disk, or the server"
        ),
        EventKind::PageCorrupt => format!(
            "process {pid} was ended: its page at {address:#x} came back from the store as \
             something else: check the disk or the server, and who can write to it"
        ),
        EventKind::NotManaged if value == 0 => format!(
            "process {pid} is not managed and not counted in the budget: it cannot be given \
             the agent, as a set-uid or 32-bit program, or is of another zpager's run"
        ),
        EventKind::NotManaged => format!(
            "process {pid} is not managed and not counted in the budget ({error}): it goes \
             on without zpager"
        ),
        EventKind::Sandboxed => format!(
            "process {pid} is not managed any more and not counted in the budget: it is in a \
             sandbox of its own, with a filter of system calls (seccomp)"
        ),
        EventKind::HasRing => format!(
            "process {pid} is not managed and not counted in the budget: the kernel uses its memory \
             by an io_uring that it has had since before the budget came near"
        ),
        EventKind::Emulated => format!(
            "process {pid} is not managed and not counted in the budget: who traces it serves its brk(2) \
             in the kernel's place, as proot does"
        ),
        EventKind::NoMemoryFile => format!(
            "process {pid} is not managed any more and not counted in the budget: it begins a thread, and may not \
             open /proc/self/mem, having changed its user: let it use userfaultfd"
        ),
        EventKind::HasMachine => format!(
            "process {pid} is not managed and not counted in the budget: the kernel uses its memory \
             for a virtual machine that it has had since before the budget came near"
        ),
        EventKind::Traced => format!(
            "process {pid} is not managed any more and not counted in the budget: it has asked to be traced \
             (ptrace(2)), and stops itself"
        ),
        EventKind::AgentFailed if value == 0 => {
            format!("process {pid} was ended: the agent failed while it took it over")
        }
        EventKind::AgentFailed => format!(
            "process {pid} was ended: the agent could not get memory or a descriptor ({error}): \
             raise --memory or the limits of the shell (ulimit)"
        ),
        EventKind::Abandoned => format!(
            "process {pid} was ended: another one that shared its memory was killed while zpager \
             worked in it, and nobody knows whether that memory is whole: do not kill what clone(2) \
             made with CLONE_VM"
        ),
        EventKind::InvariantBroken => format!(
            "process {pid} was ended: a defect of zpager, found before it did harm ({}:{value}): \
             please report it",
            String::from_utf8_lossy(&address.to_le_bytes()).trim_end_matches('\0')
        ),
    }
}

fn error_text(number: i32) -> String {
    io::Error::from_raw_os_error(number).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_reads_as_one_line() {
        for kind in EVENT_KINDS {
            let event = Event::default();
            event.pid.store(42, Relaxed);
            event.value.store(28, Relaxed);
            let text = describe(kind, &event);
            assert!(text.len() > 20 && !text.contains('\n') && !text.contains("  "), "{text}");
        }
    }

    #[test]
    fn the_cause_is_named() {
        let event = Event::default();
        event.value.store(28, Relaxed);
        assert!(describe(EventKind::StoreWriteFailed, &event).contains("No space left"));
        event.value.store(libc::EFBIG as u64, Relaxed);
        assert!(describe(EventKind::StoreWriteFailed, &event).contains("raise its limit"));
    }

    #[test]
    fn a_defect_is_told_with_its_place() {
        let event = Event::default();
        event.value.store(77, Relaxed);
        event.address.store(u64::from_le_bytes(*b"cache\0\0\0"), Relaxed);
        assert!(describe(EventKind::InvariantBroken, &event).contains("(cache:77)"));
    }

    #[test]
    fn each_kind_is_told_once() {
        let events = Events::default();
        let mut told = Told::default();
        let mut notices = Notices::new(true);
        told.tell(&events, &mut notices);
        assert_eq!(told.kinds, [false; EVENT_KINDS.len()]);
        events.note(EventKind::StoreFull, 1, 0, 0);
        told.tell(&events, &mut notices);
        assert!(told.kinds[EventKind::StoreFull as usize]);
    }
}
