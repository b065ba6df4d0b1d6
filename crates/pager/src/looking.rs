//! Waiting for a short read by looking whether it has ended, instead of asleep.
//!
//! A processor on which nobody runs goes to sleep, and a virtual one is taken away by its host until the disk
//! has answered: to come back takes a good part of what a read of a fast disk does. Who holds the lock and
//! reads keeps its processor awake in that time. Both ways are measured as they are used, and looking has to be
//! faster by an eighth ([`Faster::OTHER_COSTS_MORE`]): it is not where the processor sleeps lightly, and where a read
//! takes long. Where others want the processor, what is spent on looking is lacking later, which a read does not show:
//! a thread that has waited for processors for a quarter of the time for which it ran sleeps. So does a process that has
//! read little so far, for which looking does not [pay](Transfers::pays).
//!
//! Sources: Documentation/virt/kvm/halt-polling.rst; Documentation/scheduler/sched-stats.rst,
//! `/proc/PID/schedstat`; block/blk-mq.c of Linux 4.10, `blk_mq_poll`, which looks for answers of disks that are
//! asked so.
//!
//! Invariants: one reads so at a time, and whoever else comes reads as ever. A read that could not be begun, or
//! has failed, is made as ever, which tells why.
//!
//! Bad for: processors that are paid for by the time for which they do not sleep. Threads that read beside others
//! do not look: with more of them than processors each would keep another one waiting.

use core::cell::UnsafeCell;
use core::hint::spin_loop;
use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};

use zpager_policy::{Alternative, Faster};
use zpager_sys::aio::Transfers;
use zpager_sys::file::Fd;
use zpager_sys::processor::ticks;
use zpager_sys::syscall::nr;
use zpager_sys::{Errno, process};

/// For how long to look: 0.1 to 0.3 ms.
const LOOK_TICKS_MAX: u64 = 1 << 19;
/// What is read at once, at most: what takes longer by itself is not compared.
const READ_BYTES_MAX: usize = 32 << 10;
/// Pauses between two looks.
const PAUSES: u32 = 8;
/// Reads after which it is found out again whether others want the processor, and for what part of the time for which
/// it ran a thread has waited then.
const TERM_READS: u32 = 256;
const WAIT_PART: u64 = 4;

/// This process's read that is waited for by looking, and what is known of both ways.
struct Looking {
    is_used: AtomicBool,
    transfer: Transfers,
    known: UnsafeCell<Known>,
}

struct Known {
    faster: Faster,
    /// Reads since a term began, of which this is known of the thread that read first in it.
    reads: u32,
    began: Ran,
    is_wanted: bool,
}

/// For how long a thread ran, and waited for a processor, since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ran {
    tid: i32,
    ran_ns: u64,
    waited_ns: u64,
}

// SAFETY: the cell is used by who has set `is_used`, alone.
unsafe impl Sync for Looking {}

static LOOKING: Looking = Looking {
    is_used: AtomicBool::new(false),
    transfer: Transfers::new(),
    known: UnsafeCell::new(Known {
        faster: Faster::OTHER_COSTS_MORE,
        reads: 0,
        began: Ran { tid: 0, ran_ns: 0, waited_ns: 0 },
        is_wanted: false,
    }),
};

/// In a forked child: nobody reads, and the parent's way of reading is not there.
pub(crate) fn become_copy() {
    LOOKING.transfer.forget();
    LOOKING.is_used.store(false, Relaxed);
}

/// Reads the whole of `buffer` at `offset`.
///
/// # Errors
/// The kernel's; `EIO` where the file ends early.
pub(crate) fn read(fd: Fd, offset: u64, buffer: &mut [u8]) -> Result<(), Errno> {
    if buffer.len() > READ_BYTES_MAX || LOOKING.is_used.swap(true, Acquire) {
        return fd.read_exact_at(offset, buffer);
    }
    // SAFETY: it is this thread's until it says that it is not used.
    let known = unsafe { &mut *LOOKING.known.get() };
    let way = if LOOKING.transfer.pays() { known.choose() } else { Alternative::Plain };
    let began = ticks();
    let outcome = match way {
        Alternative::Plain => fd.read_exact_at(offset, buffer),
        Alternative::Other => {
            look(fd, offset, buffer).or_else(|_| fd.read_exact_at(offset, buffer))
        }
    };
    let took_ticks = ticks().wrapping_sub(began);
    known.note(way, took_ticks);
    if way == Alternative::Plain {
        LOOKING.transfer.note_waited(took_ticks);
    }
    LOOKING.is_used.store(false, Release);
    outcome
}

impl Known {
    fn choose(&mut self) -> Alternative {
        if self.reads.is_multiple_of(TERM_READS)
            && let Some(now) = Ran::so_far()
        {
            self.is_wanted = now.has_waited_since(&self.began);
            self.began = now;
        }
        self.reads = self.reads.wrapping_add(1);
        if self.is_wanted { Alternative::Plain } else { self.faster.choose() }
    }

    fn note(&mut self, way: Alternative, ticks: u64) {
        if !self.is_wanted {
            self.faster.note(way, 1, ticks);
        }
    }
}

impl Ran {
    /// Of the calling thread; `None` where the kernel does not tell.
    fn so_far() -> Option<Self> {
        let mut text = [0; 64];
        let file = Fd::open(b"/proc/thread-self/schedstat\0", nr::O_RDONLY).ok()?;
        let read = file.read(&mut text);
        file.close();
        Self::parse(process::tid(), &text[..read.ok()?])
    }

    fn parse(tid: i32, text: &[u8]) -> Option<Self> {
        let mut numbers = text.split(|byte| *byte == b' ');
        let mut next = || core::str::from_utf8(numbers.next()?).ok()?.parse().ok();
        Some(Ran { tid, ran_ns: next()?, waited_ns: next()? })
    }

    fn has_waited_since(&self, before: &Self) -> bool {
        let ran_ns = self.ran_ns.saturating_sub(before.ran_ns);
        let waited_ns = self.waited_ns.saturating_sub(before.waited_ns);
        self.tid == before.tid && waited_ns > ran_ns / WAIT_PART
    }
}

fn look(fd: Fd, offset: u64, buffer: &mut [u8]) -> Result<(), Errno> {
    let began = ticks();
    // SAFETY: nobody else uses it, and nothing goes on when this returns.
    unsafe { LOOKING.transfer.begin_read(fd, offset, buffer) }?;
    while !LOOKING.transfer.has_ended() && ticks().wrapping_sub(began) < LOOK_TICKS_MAX {
        (0..PAUSES).for_each(|_| spin_loop());
    }
    LOOKING.transfer.settle()
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::vec::Vec;

    #[test]
    fn who_waits_for_processors_is_known() {
        let before = Ran::parse(7, b"1000 50 3\n").expect("numbers");
        assert_eq!(before, Ran { tid: 7, ran_ns: 1000, waited_ns: 50 });
        assert!(!Ran { ran_ns: 2000, waited_ns: 300, ..before }.has_waited_since(&before));
        assert!(Ran { ran_ns: 2000, waited_ns: 301, ..before }.has_waited_since(&before));
        assert!(!Ran { tid: 8, ran_ns: 2000, waited_ns: 900 }.has_waited_since(&before));
        assert_eq!(Ran::parse(7, b""), None);
        assert!(Ran::so_far().is_some_and(|ran| ran.tid == process::tid()));
    }

    #[test]
    fn both_ways_read_the_same_and_tell_the_same() {
        let contents: Vec<u8> = (0..64u32 << 10).map(|at| (at / 4096) as u8).collect();
        let path = std::env::temp_dir().join(std::format!("zpager-look-{}", std::process::id()));
        let options = std::fs::OpenOptions::new().read(true).write(true).create_new(true).clone();
        let mut file = options.open(&path).expect("a file");
        std::fs::remove_file(&path).expect("unlinked");
        file.write_all(&contents).expect("written");
        let fd = Fd(file.as_raw_fd());
        // Both ways are tried.
        LOOKING.transfer.note_waited(1 << 40);
        for turn in 0..200 {
            let offset = turn * 4096 % (60 << 10);
            let mut there = [0xff; 4096];
            read(fd, offset, &mut there).expect("read");
            assert_eq!(there, contents[offset as usize..][..4096]);
            assert_eq!(read(fd, 63 << 10, &mut there), Err(Errno(5)), "the file ends before");
            assert_eq!(read(Fd(-1), 0, &mut there), Err(Errno(9)));
        }
        assert!(!LOOKING.is_used.load(Relaxed));
    }
}
