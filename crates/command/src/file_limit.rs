//! The limit of the lengths of files (`ulimit -f`): zpager outlives it, and what it starts does as it would
//! without zpager.
//!
//! Source: setrlimit(2), whoever goes beyond `RLIMIT_FSIZE` is sent SIGXFSZ, and has `EFBIG` where
//! that is ignored; signal(7), what is ignored stays so across execve(2).

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether the signal would have ended this process.
static WAS_DEADLY: AtomicBool = AtomicBool::new(false);

/// Has this process not be ended by a file that is too long.
pub fn outlive() {
    // SAFETY: ignoring a signal runs no code of this process.
    let before = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    WAS_DEADLY.store(before == libc::SIG_DFL, Relaxed);
}

/// Gives a child what this process was started with; safe between fork(2) and execve(2).
pub fn give_back() {
    if WAS_DEADLY.load(Relaxed) {
        // SAFETY: the default action is no code of this process.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
    }
}
