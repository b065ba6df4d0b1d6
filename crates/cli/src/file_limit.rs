//! The limit of the lengths of files (`ulimit -f`): where it may, zpager's own memory is not held to it.
//!
//! Source: setrlimit(2); memfd_create(2), whose files are held to it though they are memory.

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub(crate) use zpager_command::file_limit::{give_back, outlive};

use crate::failure::Failure;

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
