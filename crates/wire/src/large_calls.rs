//! Calls of programs that are not managed yet which fill much memory in one go.
//!
//! Once the kernel is in such a call, as in a read(2) of a whole file, nothing but its end stops the
//! thread, so that the process cannot be entered. Before it begins one, the program asks: the supervisor
//! sees whether the budget has come near with it, and where it has, answers after the process is managed.
//!
//! Invariant: a row is its asker's from [`TAKEN`] until it is free again. The supervisor frees what it
//! answers, so that an asker who was killed meanwhile leaves nothing; one who has waited in vain frees it
//! itself. An asker whose row is another's by then waits for that one's answer: longer, never too short.

use core::sync::atomic::{
    AtomicI32, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use zpager_sys::futex;

/// How many can ask at the same time; others make their calls unasked.
const ROWS: usize = 16;

/// How often signals may interrupt one that waits.
const INTERRUPTIONS_MAX: usize = 1 << 16;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const ASKED: u32 = 2;

/// What a call may fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filling {
    /// The process, by its id in the supervisor's pid namespace.
    pub pid: i32,
    /// Which of its threads: any number that no other one of them has.
    pub thread: u64,
    /// What it reads from, or -1.
    pub fd: i32,
    /// Where it begins, or 0 where nothing is there yet.
    pub start: u64,
    /// How many bytes at most.
    pub bytes: u64,
}

/// One that asks.
#[repr(C)]
#[derive(Debug, Default)]
pub struct LargeCall {
    state: AtomicU32,
    pid: AtomicI32,
    fd: AtomicI32,
    thread: AtomicU64,
    start: AtomicU64,
    bytes: AtomicU64,
}

/// All that ask.
#[repr(C)]
#[derive(Debug, Default)]
pub struct LargeCalls {
    rows: [LargeCall; ROWS],
}

impl LargeCalls {
    /// Whether a process waits with a call.
    pub fn has_of(&self, pid: i32) -> bool {
        self.asked().any(|(_, filling)| filling.pid == pid)
    }

    /// Asks for a call; then the supervisor is to be called. `None` where too many ask.
    pub fn ask(&self, filling: &Filling) -> Option<&LargeCall> {
        let row = self.rows.iter().find(|row| row.change(FREE, TAKEN))?;
        row.pid.store(filling.pid, Relaxed);
        row.fd.store(filling.fd, Relaxed);
        row.thread.store(filling.thread, Relaxed);
        row.start.store(filling.start, Relaxed);
        row.bytes.store(filling.bytes, Relaxed);
        row.state.store(ASKED, Release);
        Some(row)
    }

    /// What is asked and not answered.
    pub fn asked(&self) -> impl Iterator<Item = (&LargeCall, Filling)> {
        let asked = self.rows.iter().filter(|row| row.state.load(Acquire) == ASKED);
        asked.map(|row| {
            let filling = Filling {
                pid: row.pid.load(Relaxed),
                thread: row.thread.load(Relaxed),
                fd: row.fd.load(Relaxed),
                start: row.start.load(Relaxed),
                bytes: row.bytes.load(Relaxed),
            };
            (row, filling)
        })
    }
}

impl LargeCall {
    fn change(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, AcqRel, Relaxed).is_ok()
    }

    /// Has the call go on.
    pub fn answer(&self) {
        if self.change(ASKED, FREE) {
            futex::wake(&self.state);
        }
    }

    /// Waits until the call may go on, or takes the question back after so long; whether it was answered.
    /// It makes no other system call than futex(2), as the program may have forbidden itself others.
    pub fn wait(&self, most_ns: u64) -> bool {
        for _ in 0..INTERRUPTIONS_MAX {
            if self.state.load(Acquire) != ASKED {
                return true;
            }
            if futex::wait(&self.state, ASKED, most_ns) {
                break;
            }
        }
        !self.change(ASKED, FREE)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    const FILLING: Filling = Filling { pid: 7, thread: 8, fd: -1, start: 4096, bytes: 1 << 20 };

    #[test]
    fn who_asks_waits_for_the_answer() {
        let calls = LargeCalls::default();
        let row = calls.ask(&FILLING).expect("room");
        std::thread::scope(|scope| {
            let asker = scope.spawn(|| row.wait(3_600_000_000_000));
            let (asked, filling) = calls.asked().next().expect("one");
            assert_eq!(filling, FILLING);
            assert!(calls.has_of(FILLING.pid) && !calls.has_of(8));
            asked.answer();
            assert!(asker.join().expect("an end"));
        });
        assert_eq!(calls.asked().count(), 0);
    }

    #[test]
    fn nobody_waits_for_ever_and_no_row_is_lost() {
        let calls = LargeCalls::default();
        for _ in 0..3 {
            let rows: std::vec::Vec<_> = (0..ROWS).filter_map(|_| calls.ask(&FILLING)).collect();
            assert!(rows.len() == ROWS && calls.ask(&FILLING).is_none());
            assert!(!rows[0].wait(1000) && rows[0].wait(1000));
            calls.asked().for_each(|(row, _)| row.answer());
        }
    }
}
