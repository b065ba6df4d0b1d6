//! The agent on its way into programs: it travels inside the command and is
//! handed to the dynamic loader, or to a program without one, as a sealed memfd, so one
//! file is enough, it is found wherever the command lies, and nothing is left behind on
//! any disk.

use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags};

use crate::failure::{Failure, OrFail};
use crate::file_limit;

/// The agent's shared object, built by `build.rs`, aligned as the structures in it have to be.
pub(crate) static AGENT: &[u8] = &OBJECT.0;
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(env!("ZPAGER_AGENT_OBJECT")));

#[repr(align(8))]
struct Aligned<Bytes: ?Sized>(Bytes);

/// Name of the memfd, as `/proc/PID/maps` shows it.
pub(crate) const NAME: &str = "zpager-agent";

/// Puts the agent into a sealed memfd.
///
/// # Errors
/// The system has no memory or no descriptor left.
pub(crate) fn unpack() -> Result<OwnedFd, Failure> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let object = rustix::fs::memfd_create(NAME, flags).or_fail("making the agent's file")?;
    let mut rest = AGENT;
    while !rest.is_empty() {
        let written =
            file_limit::beyond("unpacking the agent", || rustix::io::write(&object, rest))?;
        rest = &rest[written..];
    }
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&object, seals).or_fail("sealing the agent's file")?;
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unpacked_agent_is_a_shared_object_that_nobody_can_change() {
        let object = unpack().expect("unpacked");
        let mut magic = [0u8; 4];
        rustix::io::pread(&object, &mut magic, 0).expect("read");
        assert_eq!(&magic, b"\x7fELF");
        assert!(rustix::io::pwrite(&object, b"x", 0).is_err());
        assert!(rustix::fs::ftruncate(&object, 0).is_err());
    }
}
