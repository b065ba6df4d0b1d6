//! The `syscall` instruction, and its results as `Result`.
//!
//! Source: the x86-64 psABI, A.2.1: number in `rax`, arguments in `rdi`, `rsi`,
//! `rdx`, `r10`, `r8`, `r9`; `rcx` and `r11` are lost; -4095..-1 is an error.

use core::arch::asm;

pub use linux_raw_sys::errno;
/// System call numbers, as the kernel's header names them.
pub use linux_raw_sys::general as nr;

/// An error number of the kernel, positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// What a system call returns for this error.
    pub const fn as_result(self) -> isize {
        -(self.0 as isize)
    }
}

/// Makes the system call `number`.
///
/// # Safety
/// The call does what the kernel documents: whatever memory or descriptors it
/// changes must be the caller's to change.
#[inline(always)]
pub unsafe fn call(number: u32, arguments: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the registers are those of the ABI; the rest is the caller's promise.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as usize as isize => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Makes a system call with up to six arguments and turns its result into a `Result`.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// As [`call`].
#[inline(always)]
pub unsafe fn checked<const N: usize>(number: u32, given: [usize; N]) -> Result<usize, Errno> {
    let mut arguments = [0; 6];
    arguments[..N].copy_from_slice(&given);
    // SAFETY: the caller's promise.
    result(unsafe { call(number, arguments) })
}

/// A raw result as a `Result`.
///
/// # Errors
/// The error that the result stands for.
pub fn result(raw: isize) -> Result<usize, Errno> {
    if (-4095..0).contains(&raw) { Err(Errno(-raw as i32)) } else { Ok(raw as usize) }
}
