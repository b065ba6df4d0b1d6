//! What programs fill by one call before they are managed, for which they ask ([`zpager_wire::LargeCalls`]).
//!
//! What a call fills is at most what is not in RAM yet of where it writes to, and of a file what that has. It
//! counts from the question on until it has likely come to its end, or the thread asks for the next one.
//!
//! Source: pipe(7); [`PageEntries`].

use std::fs::metadata;
use std::os::unix::fs::FileTypeExt;
use std::time::{Duration, Instant};

use libc::pid_t;
use zpager_wire::{Filling, LargeCalls as Calls};

use crate::page_entries::{PRESENT, PageEntries};

/// The most that one read(2) gives.
const CALL_BYTES_MAX: u64 = 0x7fff_f000;
/// What a pipe or a socket has at most, as a rule.
const STREAM_BYTES_MAX: u64 = 1 << 20;
/// How fast a slow one fills memory, and how long it takes at least.
const FILL_BYTES_PER_SECOND: u64 = 256 << 20;
const FILL_TIME_MIN: Duration = Duration::from_millis(100);
/// The most calls that are kept in mind.
const GOING_MAX: usize = 1024;

const PAGE_BYTES: u64 = 4096;

/// The calls that go on.
#[derive(Debug, Default)]
pub(super) struct LargeCalls {
    going: Vec<Going>,
}

/// A call that was let go on.
#[derive(Debug)]
struct Going {
    pid: pid_t,
    thread: u64,
    bytes: u64,
    until: Instant,
}

impl LargeCalls {
    /// What the calls that go on and those that are asked for may still fill.
    pub(super) fn coming_bytes(&mut self, calls: &Calls) -> u64 {
        let now = Instant::now();
        self.going.retain(|going| going.until > now);
        for (_, filling) in calls.asked() {
            self.begin(&filling, now);
        }
        self.going.iter().map(|going| going.bytes).sum()
    }

    /// Lets those go on that have been counted, as there is room for them.
    pub(super) fn let_go(&self, calls: &Calls) {
        let is_counted = |asked: &Filling| {
            self.going.iter().any(|going| (going.pid, going.thread) == (asked.pid, asked.thread))
        };
        calls
            .asked()
            .filter(|(_, asked)| is_counted(asked))
            .for_each(|(question, _)| question.answer());
    }

    /// Keeps a call in mind; the one before of its thread is over.
    fn begin(&mut self, filling: &Filling, now: Instant) {
        let Filling { pid, thread, .. } = *filling;
        self.going.retain(|going| (going.pid, going.thread) != (pid, thread));
        if self.going.len() == GOING_MAX {
            self.going.remove(0);
        }
        let bytes = growth_bytes(filling);
        let time = Duration::from_millis(bytes * 1000 / FILL_BYTES_PER_SECOND) + FILL_TIME_MIN;
        self.going.push(Going { pid, thread, bytes, until: now + time });
    }
}

/// By how much memory grows.
fn growth_bytes(filling: &Filling) -> u64 {
    let bytes = filling.bytes.min(CALL_BYTES_MAX).min(source_bytes(filling).unwrap_or(u64::MAX));
    bytes.saturating_sub(resident_bytes(filling, bytes).unwrap_or(0))
}

/// The most that there is to read; `None` where nobody knows.
fn source_bytes(filling: &Filling) -> Option<u64> {
    let source = metadata(format!("/proc/{}/fd/{}", filling.pid, filling.fd)).ok()?;
    let kind = source.file_type();
    if kind.is_fifo() || kind.is_socket() {
        return Some(STREAM_BYTES_MAX);
    }
    (kind.is_file() && source.len() > 0).then_some(source.len())
}

/// What is in RAM already of the first `bytes` where it writes to; `None` where nobody knows.
fn resident_bytes(filling: &Filling, bytes: u64) -> Option<u64> {
    if filling.start == 0 {
        return None;
    }
    let range = filling.start / PAGE_BYTES * PAGE_BYTES..filling.start.checked_add(bytes)?;
    let mut pages = 0;
    let count = |_, entry| pages += u64::from(entry & PRESENT != 0);
    PageEntries::open(filling.pid).and_then(|entries| entries.each([range], count)).ok()?;
    Some(pages * PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    const MIB: u64 = 1 << 20;

    fn filling(start: u64, fd: i32, bytes: u64) -> Filling {
        let pid = std::process::id().cast_signed();
        Filling { pid, thread: 1, fd, start, bytes }
    }

    #[test]
    fn a_file_gives_what_it_has_and_a_pipe_little() {
        let path = std::env::temp_dir().join(format!("zpager-large-{}", std::process::id()));
        let file = File::create_new(&path).expect("a file");
        std::fs::remove_file(&path).expect("its name");
        file.set_len(3 * MIB).expect("room");
        assert_eq!(growth_bytes(&filling(0, file.as_raw_fd(), 100 * MIB)), 3 * MIB);
        assert_eq!(growth_bytes(&filling(0, file.as_raw_fd(), MIB)), MIB);
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        assert_eq!(growth_bytes(&filling(0, reader.as_raw_fd(), 100 * MIB)), STREAM_BYTES_MAX);
        let zeros = File::open("/dev/zero").expect("zeros");
        assert_eq!(growth_bytes(&filling(0, zeros.as_raw_fd(), 100 * MIB)), 100 * MIB);
        assert_eq!(growth_bytes(&filling(0, -1, u64::MAX)), CALL_BYTES_MAX);
    }

    #[test]
    fn what_is_in_ram_does_not_grow() {
        let mut buffer = vec![0u8; 8 << 20];
        let start = buffer.as_ptr() as u64;
        let fresh = growth_bytes(&filling(start, -1, 8 * MIB));
        assert!(fresh > 6 * MIB, "{fresh}");
        buffer[..4 << 20].fill(1);
        let half = growth_bytes(&filling(start, -1, 8 * MIB));
        assert!((3 * MIB..5 * MIB).contains(&half), "{half}");
        buffer.fill(2);
        assert_eq!(growth_bytes(&filling(start, -1, 8 * MIB)), 0);
    }

    #[test]
    fn the_next_call_of_a_thread_ends_the_one_before() {
        let calls = Calls::default();
        let mut large = LargeCalls::default();
        let mut ask = |thread, bytes| {
            calls.ask(&Filling { thread, ..filling(0, -1, bytes) }).expect("room");
            let coming_bytes = large.coming_bytes(&calls);
            large.let_go(&calls);
            coming_bytes
        };
        assert_eq!(ask(1, 30 * MIB), 30 * MIB);
        assert_eq!(ask(2, 10 * MIB), 40 * MIB);
        assert_eq!(ask(1, 5 * MIB), 15 * MIB);
        assert_eq!(calls.asked().count(), 0);
        std::thread::sleep(FILL_TIME_MIN + Duration::from_millis(100));
        assert_eq!(large.coming_bytes(&calls), 0, "they have come to their end");
    }

    #[test]
    fn who_was_not_counted_waits() {
        let calls = Calls::default();
        calls.ask(&filling(0, -1, MIB)).expect("room");
        let mut large = LargeCalls::default();
        large.let_go(&calls);
        assert_eq!(calls.asked().count(), 1);
        large.coming_bytes(&calls);
        large.let_go(&calls);
        assert_eq!(calls.asked().count(), 0);
    }
}
