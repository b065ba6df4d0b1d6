//! What ends the command before or instead of the program: a line and an exit status.
//!
//! The statuses of `run` are those of `env`, `timeout` and `nohup`, so that a caller can
//! tell zpager's failures from the program's.

use std::fmt::Display;
use std::process::ExitCode;

/// The arguments of `zpager codecs` or `zpager trace` are wrong, as with `grep` and `diff`.
pub(crate) const STATUS_ARGUMENTS: u8 = 2;
/// zpager itself fails.
pub(crate) const STATUS_FAILED: u8 = 125;
/// The program is there and cannot be run.
pub(crate) const STATUS_CANNOT_RUN: u8 = 126;
/// The program is not found.
pub(crate) const STATUS_NOT_FOUND: u8 = 127;

/// One line for the user, and the exit status that goes with it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The exit status.
    pub(crate) status: u8,
    /// What is wrong and what would be right, without a newline.
    pub(crate) message: String,
}

impl Failure {
    /// The arguments are wrong, or what they name cannot be read or written.
    pub(crate) fn arguments(message: impl Into<String>) -> Self {
        Failure { status: STATUS_ARGUMENTS, message: message.into() }
    }

    /// zpager itself fails.
    pub(crate) fn own(message: impl Into<String>) -> Self {
        Failure { status: STATUS_FAILED, message: message.into() }
    }

    /// The program cannot be run.
    pub(crate) fn cannot_run(message: impl Into<String>) -> Self {
        Failure { status: STATUS_CANNOT_RUN, message: message.into() }
    }

    /// The program is not found.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Failure { status: STATUS_NOT_FOUND, message: message.into() }
    }

    /// Prints the line and gives the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        crate::stderr::tell(&self.message);
        ExitCode::from(self.status)
    }
}

/// Sees that `line` was refused, with this status and in one line that says what would be right.
#[cfg(test)]
pub(crate) fn expect_refused<T>(line: &str, found: Result<T, Failure>, status: u8, said: &str) {
    let failure = found.err().unwrap_or_else(|| panic!("{line}: taken"));
    assert_eq!(failure.status, status, "{line}: {failure:?}");
    assert!(failure.message.contains(said), "{line}: {failure:?}");
    assert!(!failure.message.contains('\n'), "{line}: {failure:?}");
}

/// Says on what an operation of the system failed.
pub(crate) trait OrFail<T> {
    /// Turns an error into a [`Failure::own`] that begins with what was tried.
    fn or_fail(self, what: impl Display) -> Result<T, Failure>;
}

impl<T, E: Display> OrFail<T> for Result<T, E> {
    fn or_fail(self, what: impl Display) -> Result<T, Failure> {
        self.map_err(|error| Failure::own(format!("{what}: {error}")))
    }
}
