//! Whether this kernel, in this container, has what managing a program takes.
//!
//! Everything is found out by trying it: versions say nothing about a seccomp
//! filter. Where userfaultfd may not be used guard pages stand in for it (Linux 6.13).
//! Sources: Linux Documentation/admin-guide/mm/userfaultfd.rst and
//! Documentation/admin-guide/syscall-user-dispatch.rst.

use std::sync::atomic::AtomicU8;

use rustix::io::Errno;
use rustix::ioctl::{Updater, ioctl, opcode};
use rustix::mm::UserfaultfdFlags;
use zpager_sys::{guards, process};
use zpager_wire::Watching;

use super::outer;
use crate::failure::Failure;

/// Faults from user mode only: what an ordinary user may ask for (Linux 5.11).
const UFFD_USER_MODE_ONLY: u32 = 1;

/// Version of the userfaultfd interface.
const UFFD_API: u64 = 0xaa;

/// Faults end in a SIGBUS in the faulting thread.
const UFFD_FEATURE_SIGBUS: u64 = 1 << 7;

/// `struct uffdio_api`.
#[repr(C)]
struct UffdioApi {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// Why nothing can be managed: who traces zpager traces its programs too, and writes to memory that would not be there.
const EMULATED: &str = "what traces zpager serves system calls in the kernel's place, as proot does, where no \
                        program can be managed: use namespaces in place of it, by bwrap or unshare";

/// Tries everything once, and gives by what programs are watched: by what is `wanted`, for tests, or by what there is.
/// Where another zpager manages this process, begins it anew without that.
///
/// # Errors
/// What is missing, and what gives it.
pub(crate) fn check(wanted: Option<Watching>) -> Result<Watching, Failure> {
    if process::is_brk_emulated() {
        return Err(Failure::own(EMULATED));
    }
    let watching = match (wanted, try_userfaultfd()) {
        (Some(Watching::Guards), _) => try_guards().map(|()| Watching::Guards)?,
        (_, Ok(())) => Watching::Userfaultfd,
        (_, Err(_)) if guards::try_all().is_ok() => Watching::Guards,
        (_, Err(error)) => return Err(Failure::own(userfaultfd_advice(error))),
    };
    try_dispatch().map_err(|error| {
        if error == Errno::INVAL {
            outer::leave();
        }
        Failure::own(dispatch_advice(error))
    })?;
    Ok(watching)
}

fn try_guards() -> Result<(), Failure> {
    guards::try_all().map_err(|_| {
        Failure::own("guard pages are missing: they take Linux 6.13 or newer, and /proc")
    })
}

fn try_userfaultfd() -> Result<(), Errno> {
    let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::from_bits_retain(UFFD_USER_MODE_ONLY);
    // SAFETY: no memory is registered with the descriptor, so it changes nothing in this process.
    let descriptor = unsafe { rustix::mm::userfaultfd(flags) }?;
    let mut api = UffdioApi { api: UFFD_API, features: UFFD_FEATURE_SIGBUS, ioctls: 0 };
    const UFFDIO_API: u32 = opcode::read_write::<UffdioApi>(0xaa, 0x3f);
    // SAFETY: UFFDIO_API reads and writes one `struct uffdio_api`, which `api` is.
    unsafe { ioctl(&descriptor, Updater::<UFFDIO_API, UffdioApi>::new(&mut api)) }
}

fn userfaultfd_advice(error: Errno) -> String {
    match error {
        Errno::NOSYS => {
            "userfaultfd is missing: it takes a kernel with CONFIG_USERFAULTFD, 5.11 or \
                         newer, and a sandbox that lets the call through"
                .into()
        }
        Errno::PERM | Errno::ACCESS => "userfaultfd is forbidden here: start the container with a \
                                        seccomp profile that allows userfaultfd, or with none \
                                        (--security-opt seccomp=unconfined), or use Linux 6.13 or newer"
            .into(),
        Errno::INVAL => "userfaultfd cannot work for ordinary users here: it takes Linux 5.11 or \
                         newer"
            .into(),
        other => format!("userfaultfd fails: {other}: it takes Linux 5.11 or newer"),
    }
}

fn try_dispatch() -> Result<(), Errno> {
    static SELECTOR: AtomicU8 = AtomicU8::new(0);
    // The range in which calls are never dispatched: it may not be empty.
    static RANGE: [u8; 1] = [0];
    // SAFETY: the selector is static and stays at "allow", so every system call goes on as before
    // until dispatch is switched off again.
    unsafe {
        rustix::thread::enable_syscall_user_dispatch(&RANGE, &SELECTOR)?;
        rustix::thread::disable_syscall_user_dispatch()
    }
}

fn dispatch_advice(error: Errno) -> String {
    let reason = match error {
        Errno::PERM | Errno::ACCESS => {
            "forbidden here: start the container with a seccomp profile \
                                        that allows prctl(PR_SET_SYSCALL_USER_DISPATCH)"
                .into()
        }
        Errno::INVAL | Errno::NOSYS => "missing: it takes Linux 5.11 or newer".into(),
        other => format!("failing: {other}"),
    };
    format!("Syscall User Dispatch is {reason}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_one_line_that_names_the_way_out() {
        for error in [Errno::NOSYS, Errno::PERM, Errno::INVAL, Errno::NOMEM] {
            assert!(userfaultfd_advice(error).contains("userfaultfd"));
            assert!(dispatch_advice(error).contains("Dispatch"));
        }
        assert!(userfaultfd_advice(Errno::PERM).contains("seccomp"));
        assert!(userfaultfd_advice(Errno::INVAL).contains("5.11"));
    }
}
