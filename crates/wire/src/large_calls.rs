//! Calls of programs that are not managed yet which fill much memory in one go.
//!
//! Once the kernel is in such a call, as in a read(2) of a whole file, nothing but its end stops the
//! thread, so that the process cannot be entered. Before it begins one, the program asks: the supervisor
//! sees whether the budget has come near with it, and where it has, answers after the process is managed.
//!
//! Invariant: a row is its asker's from [`TAKEN`] until it is free again. The supervisor frees what it
//! answers, so that an asker who was killed meanwhile leaves nothing; one who has waited in vain frees it
//! itself. Each question has a number of its own in the row's state, so that nobody takes another one's,
//! asked in the same row since, for the own.

use core::sync::atomic::{
    AtomicI32, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use zpager_sys::futex;

/// How many can ask at the same time.
const ROWS: usize = 16;

/// How often signals may interrupt one that waits.
const INTERRUPTIONS_MAX: usize = 1 << 16;

/// What a row is, in the low bits of its state; above them is the question's number.
const FREE: u32 = 0;
const TAKEN: u32 = 1;
const ASKED: u32 = 2;
const KINDS: u32 = 3;
const NUMBER: u32 = 4;

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
struct LargeCall {
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
    pub fn ask(&self, filling: &Filling) -> Option<Question<'_>> {
        let (row, free) = self.rows.iter().find_map(|row| {
            let free = row.state.load(Relaxed);
            (free & KINDS == FREE && row.change(free, free | TAKEN)).then_some((row, free))
        })?;
        row.pid.store(filling.pid, Relaxed);
        row.fd.store(filling.fd, Relaxed);
        row.thread.store(filling.thread, Relaxed);
        row.start.store(filling.start, Relaxed);
        row.bytes.store(filling.bytes, Relaxed);
        row.state.store(free | ASKED, Release);
        Some(Question { row, state: free | ASKED })
    }

    /// What is asked and not answered.
    pub fn asked(&self) -> impl Iterator<Item = (Question<'_>, Filling)> {
        self.rows.iter().filter_map(|row| {
            let state = row.state.load(Acquire);
            let filling = Filling {
                pid: row.pid.load(Relaxed),
                thread: row.thread.load(Relaxed),
                fd: row.fd.load(Relaxed),
                start: row.start.load(Relaxed),
                bytes: row.bytes.load(Relaxed),
            };
            (state & KINDS == ASKED).then_some((Question { row, state }, filling))
        })
    }
}

/// What is asked in a row.
#[derive(Debug)]
pub struct Question<'a> {
    row: &'a LargeCall,
    state: u32,
}

impl LargeCall {
    fn change(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, AcqRel, Relaxed).is_ok()
    }
}

impl Question<'_> {
    /// Has the row be free for the next question; whether this one was not answered.
    fn end(&self) -> bool {
        self.row.change(self.state, (self.state & !KINDS).wrapping_add(NUMBER))
    }

    /// Has the call go on.
    pub fn answer(&self) {
        if self.end() {
            futex::wake(&self.row.state);
        }
    }

    /// Waits until the call may go on, or takes the question back after so long; whether it was answered.
    /// It makes no other system call than futex(2), as the program may have forbidden itself others.
    pub fn wait(&self, most_ns: u64) -> bool {
        for _ in 0..INTERRUPTIONS_MAX {
            if self.row.state.load(Acquire) != self.state {
                return true;
            }
            if futex::wait(&self.row.state, self.state, most_ns) {
                break;
            }
        }
        !self.end()
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
    fn another_question_in_the_row_is_not_the_own() {
        let calls = LargeCalls::default();
        let first = calls.ask(&FILLING).expect("room");
        calls.asked().for_each(|(asked, _)| asked.answer());
        let second = calls.ask(&FILLING).expect("room");
        assert!(core::ptr::eq(first.row, second.row));
        assert!(first.wait(u64::MAX), "it was answered");
        first.answer();
        assert_eq!(calls.asked().count(), 1, "the other one was not");
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
