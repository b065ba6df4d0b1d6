//! The limit of the lengths of files (`ulimit -f`): zpager outlives it, and where it may its own
//! memory is not held to it.
//!
//! Source: setrlimit(2), whoever goes beyond `RLIMIT_FSIZE` is sent SIGXFSZ, and has `EFBIG` where
//! that is ignored; memfd_create(2), whose files are held to it though they are memory; signal(7),
//! what is ignored stays so across execve(2).

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::failure::Failure;

/// Whether the signal would have ended this process.
static WAS_DEADLY: AtomicBool = AtomicBool::new(false);

/// Has this process not be ended by a file that is too long.
pub(crate) fn outlive() {
    // SAFETY: ignoring a signal runs no code of this process.
    let before = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    WAS_DEADLY.store(before == libc::SIG_DFL, Relaxed);
}

/// Gives a child what this process was started with; safe between fork(2) and execve(2).
pub(crate) fn give_back() {
    if WAS_DEADLY.load(Relaxed) {
        // SAFETY: the default action is no code of this process.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
    }
}

/// Makes `what`, memory of zpager's own, with the limit as far away as it may be meanwhile.
///
/// # Errors
/// What the system refused.
pub(crate) fn beyond<T>(what: &str, make: impl FnOnce() -> Result<T, Errno>) -> Result<T, Failure> {
    let limit = getrlimit(Resource::Fsize);
    let unlimited = Rlimit { current: None, maximum: None };
    if limit.current.is_some() && setrlimit(Resource::Fsize, unlimited).is_err() {
        // Only root may go beyond the hard limit.
        let _ = setrlimit(Resource::Fsize, Rlimit { current: limit.maximum, ..limit });
    }
    let made = make();
    let _ = setrlimit(Resource::Fsize, limit);
    made.map_err(|error| {
        let hint = match error {
            Errno::FBIG => ": raise the limit of file sizes (ulimit -f)",
            _ => "",
        };
        Failure::own(format!("{what}: {error}{hint}"))
    })
}
