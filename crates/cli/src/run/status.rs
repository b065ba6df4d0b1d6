//! How the program ended, and ending in the same way.
//!
//! A caller that looks at zpager's own wait status must see what it would see of
//! the program (wait(2)): after a death by signal zpager dies by the same signal,
//! which a shell shows as 128 + n, but without a second core dump.

use std::process::ExitCode;

use rustix::process::DumpableBehavior;
use serde::Serialize;

/// How the program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Exit {
    /// It ended with this status.
    Code(u8),
    /// It was killed by this signal.
    Signal(i32),
}

impl Exit {
    /// Reads the status that waitpid(2) gave; `None` when it tells of no end.
    pub(crate) fn from_wait(status: i32) -> Option<Exit> {
        if libc::WIFEXITED(status) {
            // A status is a byte by wait(2).
            Some(Exit::Code(libc::WEXITSTATUS(status) as u8))
        } else if libc::WIFSIGNALED(status) {
            Some(Exit::Signal(libc::WTERMSIG(status)))
        } else {
            None
        }
    }

    /// Ends this process as the program ended.
    pub(crate) fn leave(self) -> ExitCode {
        match self {
            Exit::Code(code) => ExitCode::from(code),
            Exit::Signal(signal) => {
                die_by(signal);
                // Reached only where the signal does not kill, as for the first process of a container.
                ExitCode::from(128u8.wrapping_add(signal as u8))
            }
        }
    }
}

fn die_by(signal: i32) {
    // The program has left its core dump already; this one would hold nothing of interest.
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // SAFETY: the set is filled by sigemptyset before it is used, and giving a signal its default
    // action and unblocking it is always allowed.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::signal(signal, libc::SIG_DFL);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        libc::raise(signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_statuses_are_read() {
        assert_eq!(Exit::from_wait(0), Some(Exit::Code(0)));
        assert_eq!(Exit::from_wait(3 << 8), Some(Exit::Code(3)));
        assert_eq!(Exit::from_wait(255 << 8), Some(Exit::Code(255)));
        assert_eq!(Exit::from_wait(libc::SIGKILL), Some(Exit::Signal(9)));
        assert_eq!(Exit::from_wait(libc::SIGSEGV | 0x80), Some(Exit::Signal(11)));
        assert_eq!(Exit::from_wait(0x7f | libc::SIGSTOP << 8), None);
        assert_eq!(Exit::from_wait(0xffff), None);
    }
}
