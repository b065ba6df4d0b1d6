//! Who we are, and the end.

use crate::syscall::{Errno, checked, nr};

/// The process.
pub fn pid() -> i32 {
    // SAFETY: asks, changes nothing.
    unsafe { checked(nr::__NR_getpid, []) }.unwrap_or(0) as i32
}

/// The thread.
pub fn tid() -> i32 {
    // SAFETY: asks, changes nothing.
    unsafe { checked(nr::__NR_gettid, []) }.unwrap_or(0) as i32
}

/// Whether thread `tid` of process `pid` still exists.
pub fn thread_exists(pid: i32, tid: i32) -> bool {
    // SAFETY: signal 0 only asks.
    let asked = unsafe { checked(nr::__NR_tgkill, [pid as usize, tid as usize, 0]) };
    asked != Err(Errno(3))
}

/// Whether process `pid` is there, or a zombie of it.
pub fn exists(pid: i32) -> bool {
    // SAFETY: signal 0 only asks.
    let asked = unsafe { checked(nr::__NR_kill, [pid as usize, 0]) };
    asked != Err(Errno(3))
}

/// Whether process `pid`, another one, has this memory. One that has ended or runs another program
/// has not; where the kernel does not tell (kcmp(2)), one that exists has.
pub fn shares_memory(pid: i32) -> bool {
    const KCMP_VM: usize = 1;
    let arguments = [tid() as usize, pid as usize, KCMP_VM, 0, 0];
    // SAFETY: compares, changes nothing.
    match unsafe { checked(nr::__NR_kcmp, arguments) } {
        Ok(order) => order == 0,
        Err(Errno(3)) => false,
        Err(_) => exists(pid),
    }
}

/// Sends `signal` to the calling thread.
pub fn raise(signal: u32) {
    // SAFETY: what the signal does to this process is what the caller wants.
    let _ = unsafe { checked(nr::__NR_tgkill, [pid() as usize, tid() as usize, signal as usize]) };
}

/// Sleeps.
pub fn nap(nanoseconds: u64) {
    let time = [nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000];
    // SAFETY: the kernel only reads the two words.
    let _ = unsafe { checked(nr::__NR_nanosleep, [time.as_ptr() as usize, 0]) };
}

/// Ends the process.
pub fn exit_group(status: i32) -> ! {
    loop {
        // SAFETY: ends everything.
        let _ = unsafe { checked(nr::__NR_exit_group, [status as usize]) };
    }
}

/// Writes a value, as its bytes are, into memory of this very process that may not be mapped.
///
/// # Errors
/// `EFAULT` where a part is not writable.
pub fn poke<T: Copy>(address: usize, value: &T) -> Result<(), Errno> {
    let at = core::ptr::from_ref(value) as usize;
    // SAFETY: the kernel only reads the value; what it writes is the program's, which asked for it.
    unsafe { across(nr::__NR_process_vm_writev, at, address, size_of::<T>()) }
}

/// Reads memory of this very process that may not be mapped.
///
/// # Errors
/// `EFAULT` where a part is not readable.
pub fn peek(address: usize, out: &mut [u8]) -> Result<(), Errno> {
    // SAFETY: the kernel writes into `out` alone.
    unsafe { across(nr::__NR_process_vm_readv, out.as_mut_ptr() as usize, address, out.len()) }
}

/// Copies between memory of ours and memory that may not be mapped, by way of the kernel.
///
/// # Safety
/// What `number` writes to is the caller's to write.
unsafe fn across(number: u32, ours: usize, theirs: usize, bytes: usize) -> Result<(), Errno> {
    let local = [ours, bytes];
    let remote = [theirs, bytes];
    let arguments = [tid() as usize, local.as_ptr() as usize, 1, remote.as_ptr() as usize, 1, 0];
    // SAFETY: the caller's promise.
    match unsafe { checked(number, arguments) } {
        Ok(copied) if copied == bytes => Ok(()),
        Ok(_) => Err(Errno(14)),
        Err(error) => Err(error),
    }
}
