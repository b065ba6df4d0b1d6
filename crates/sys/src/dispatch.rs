//! Syscall User Dispatch: every system call made outside one range of code
//! becomes a SIGSYS.
//!
//! Source: Documentation/admin-guide/syscall-user-dispatch.rst. The setting is
//! per thread and is inherited neither by clone nor by fork.

use core::ops::Range;

use crate::syscall::{Errno, checked, nr};

const PR_SET_SYSCALL_USER_DISPATCH: usize = 59;
const PR_SYS_DISPATCH_ON: usize = 1;
/// `si_code` of a SIGSYS that dispatch sent.
pub const SYS_USER_DISPATCH: i32 = 2;
/// The architecture of a call of the `syscall` instruction, in 64-bit mode (<linux/audit.h>).
pub const AUDIT_ARCH_X86_64: usize = 0xc000_003e;
/// Value of the selector that has calls dispatched.
pub const SELECTOR_BLOCK: u8 = 1;

/// Value of the selector that has the kernel serve them.
pub const SELECTOR_ALLOW: u8 = 0;

/// Has the calling thread's system calls dispatched, except those made within `allowed`.
///
/// # Errors
/// `EINVAL` where the kernel has no such thing.
///
/// # Safety
/// SIGSYS has a handler and is not blocked; `selector` stays readable and holds
/// [`SELECTOR_BLOCK`] for as long as the thread lives.
pub unsafe fn enable(allowed: Range<usize>, selector: *const u8) -> Result<(), Errno> {
    let arguments = [
        PR_SET_SYSCALL_USER_DISPATCH,
        PR_SYS_DISPATCH_ON,
        allowed.start,
        allowed.end - allowed.start,
        selector as usize,
    ];
    // SAFETY: the caller's promise.
    unsafe { checked(nr::__NR_prctl, arguments) }.map(|_| ())
}
