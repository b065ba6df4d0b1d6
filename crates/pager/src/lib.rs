//! One process's memory on top of the compressed cache: its regions, its faults,
//! its swap-out, and every system call that it makes.
//!
//! Lock order: the one lock is `process::PROCESS`; it is taken with all signals
//! blocked (in a signal handler, or before the process is managed) and held while
//! memory changes, never while the program's own calls wait in the kernel.
//!
//! Everything here touches only memory of zpager's own, or pages that it has just
//! made sure are there; nothing allocates.
#![no_std]

mod account;
mod assembly;
mod calls;
mod common;
mod copies;
mod departures;
mod early;
mod fault;
mod flights;
mod foretold;
mod guarded;
mod hold;
mod identity;
mod large_calls;
mod late_signals;
mod looking;
mod maps;
mod mirrored;
mod own;
mod parked;
mod process;
mod record;
mod regions;
mod remote;
mod resume;
mod sharing;
mod signals;
mod spares;
mod spawn;
mod start;
mod stretches;
mod stubs;
mod swapout;
mod threads;
mod unmanage;
mod watch;

pub use assembly::enter;
pub use large_calls::{Fills, LARGE_BYTES, before as before_large_call};
pub use start::{Image, load};

/// Ends the program because an invariant, looked at in `file`, does not hold.
pub fn abandon(file: &str, line: u32) -> ! {
    start::note_defect(file, line);
    fault::die()
}
