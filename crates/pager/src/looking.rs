//! Waiting for a short read by looking whether it has ended, instead of asleep.
//!
//! A processor on which nobody runs goes to sleep, and a virtual one is taken away by its host until the disk
//! has answered: to come back takes a good part of what a read of a fast disk does. Who holds the lock and
//! reads keeps its processor awake in that time. Both ways are measured as they are used, and looking has to be
//! faster by an eighth ([`Faster::OTHER_COSTS_MORE`]): it is not where the processor sleeps lightly, where others
//! want it, and where a read takes long.
//!
//! Sources: Documentation/virt/kvm/halt-polling.rst; block/blk-mq.c of Linux 4.10, `blk_mq_poll`, which looks for
//! answers of disks that are asked so.
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
use zpager_sys::Errno;
use zpager_sys::aio::Transfers;
use zpager_sys::file::Fd;
use zpager_sys::processor::ticks;

/// For how long to look: 0.1 to 0.3 ms.
const LOOK_TICKS_MAX: u64 = 1 << 19;
/// What is read at once, at most: what takes longer by itself is not compared.
const READ_BYTES_MAX: usize = 32 << 10;
/// Pauses between two looks.
const PAUSES: u32 = 8;

/// This process's read that is waited for by looking, and what both ways take.
struct Looking {
    is_used: AtomicBool,
    transfer: Transfers,
    faster: UnsafeCell<Faster>,
}

// SAFETY: the cell is used by who has set `is_used`, alone.
unsafe impl Sync for Looking {}

static LOOKING: Looking = Looking {
    is_used: AtomicBool::new(false),
    transfer: Transfers::new(),
    faster: UnsafeCell::new(Faster::OTHER_COSTS_MORE),
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
    let faster = unsafe { &mut *LOOKING.faster.get() };
    let began = ticks();
    let way = faster.choose();
    let outcome = match way {
        Alternative::Plain => fd.read_exact_at(offset, buffer),
        Alternative::Other => {
            look(fd, offset, buffer).or_else(|_| fd.read_exact_at(offset, buffer))
        }
    };
    faster.note(way, 1, ticks().wrapping_sub(began));
    LOOKING.is_used.store(false, Release);
    outcome
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
    fn both_ways_read_the_same_and_tell_the_same() {
        let contents: Vec<u8> = (0..64u32 << 10).map(|at| (at / 4096) as u8).collect();
        let path = std::env::temp_dir().join(std::format!("zpager-look-{}", std::process::id()));
        let options = std::fs::OpenOptions::new().read(true).write(true).create_new(true).clone();
        let mut file = options.open(&path).expect("a file");
        std::fs::remove_file(&path).expect("unlinked");
        file.write_all(&contents).expect("written");
        let fd = Fd(file.as_raw_fd());
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
