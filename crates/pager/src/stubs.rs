//! A stub for every place in the program that makes system calls.
//!
//! A dispatched call that needs nothing more is made by the program's thread
//! itself, after the handler has returned, with the program's own mask and
//! restart behaviour: from `syscall` in a stub within the allowed range, which
//! then jumps to where the program goes on. No register is touched.
//!
//! Some calls the kernel ends with `EINTR` although no handler ran: the signal woke
//! this thread, and another one took it. Natively nobody sends such signals; the
//! pager does. The stub of such a call makes it again, and uses `rcx` alone, which
//! every system call overwrites.
//!
//! A call that goes on in the pager once it is made leads to the trap instead: a
//! `syscall` outside the allowed range, which is dispatched in its turn. That of an
//! `execve` is a longer one ([`execution`]).
//!
//! Invariant: a stub, once written, never changes, so threads run it without the lock.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use zpager_sys::PAGE_BYTES;
use zpager_sys::mapping::Mapping;
use zpager_sys::signal::Registers;
use zpager_sys::syscall::{checked, nr};

use crate::assembly::{EXECUTION_BYTES, EXECUTION_KEPT, EXECUTION_MADE, execution};

const STUB_BYTES: usize = 32;
const STUBS: usize = 4096;
const CODE_BYTES: usize = 24;
/// `syscall; jmp [rip + 16]`: to the address behind the code.
const CODE: [u8; CODE_BYTES] = {
    let mut code = [0xcc; CODE_BYTES];
    let jump = [0x0f, 0x05, 0xff, 0x25, 16, 0, 0, 0];
    code.split_at_mut(jump.len()).0.copy_from_slice(&jump);
    code
};
/// `syscall; lea rcx, [rax + 4]; jrcxz 1f; jmp [rip + 10]; 1: mov eax, NUMBER; jmp` to the start.
const REPEATING_CODE: [u8; CODE_BYTES] = [
    0x0f, 0x05, 0x48, 0x8d, 0x48, 0x04, 0xe3, 0x06, 0xff, 0x25, 10, 0, 0, 0, 0xb8, 0, 0, 0, 0,
    0xeb, 0xeb, 0xcc, 0xcc, 0xcc,
];
/// Where that has the call's number, and where the number is in its register again.
const NUMBER_AT: usize = 15;
const NUMBER_END: usize = 19;
pub(crate) const SYSCALL_BYTES: usize = 2;
/// `syscall; int3`
const TRAP_CODE: [u8; 3] = [0x0f, 0x05, 0xcc];

#[repr(C, align(32))]
#[derive(Clone, Copy)]
struct Stub {
    code: [u8; CODE_BYTES],
    /// Address behind the program's `syscall`, 0 while the stub is free.
    site: usize,
}

#[repr(align(4096))]
#[allow(dead_code)] // Reached by address only.
struct Area {
    stubs: [Stub; STUBS],
}

/// Within the agent's image, as there is one allowed range.
static mut AREA: Area = Area { stubs: [Stub { code: [0; CODE_BYTES], site: 0 }; STUBS] };

const _: () = assert!(size_of::<Stub>() == STUB_BYTES);

/// Where the trap is, and the stub that leads to it, once the process is managed.
pub(crate) static TRAP: AtomicUsize = AtomicUsize::new(0);
static TO_TRAP: AtomicUsize = AtomicUsize::new(0);

fn area() -> *mut Stub {
    (&raw mut AREA).cast()
}

/// Makes the stubs executable.
///
/// # Errors
/// The kernel's, where memory may not be written and run.
pub(crate) fn prepare() -> Result<(), zpager_sys::Errno> {
    let protection = nr::PROT_READ | nr::PROT_WRITE | nr::PROT_EXEC;
    let arguments = [area() as usize, STUBS * STUB_BYTES, protection as usize];
    // SAFETY: the area is ours and page aligned.
    unsafe { checked(nr::__NR_mprotect, arguments) }?;
    let trap = Mapping::reserve(PAGE_BYTES)?;
    // SAFETY: a page of our own, which nobody else knows yet.
    unsafe { trap.base().cast::<[u8; 3]>().write(TRAP_CODE) };
    let protection = (nr::PROT_READ | nr::PROT_EXEC) as usize;
    // SAFETY: as above.
    unsafe { checked(nr::__NR_mprotect, [trap.start(), PAGE_BYTES, protection]) }?;
    TRAP.store(trap.start(), Relaxed);
    TO_TRAP.store(for_site(trap.start(), None).unwrap_or(0), Relaxed);
    Ok(())
}

/// The stub that leads to the trap.
pub(crate) fn to_trap() -> usize {
    TO_TRAP.load(Relaxed)
}

/// The one by which an `execve` does.
pub(crate) fn to_execution() -> usize {
    execution as *const () as usize
}

/// How far in that one `rip` is, if it is there.
fn in_execution(rip: usize) -> Option<usize> {
    rip.checked_sub(to_execution()).filter(|&offset| offset < EXECUTION_BYTES)
}

/// What an `execve` gave, of a thread with these registers that is on its way from it to the trap, or there.
pub(crate) fn execution_result(registers: &Registers) -> usize {
    match in_execution(registers.rip) {
        Some(EXECUTION_KEPT..) => registers.rbx,
        _ => registers.rax,
    }
}

/// From where the call is made once more that leads to the trap and has ended at `rip`.
pub(crate) fn piece_before(rip: usize) -> Option<usize> {
    match in_execution(rip) {
        None => Some(to_trap()),
        Some(EXECUTION_MADE) => Some(to_execution()),
        // Its registers are used up.
        Some(_) => None,
    }
}

/// Whether the `syscall` that ends at `rip` is the trap's.
pub(crate) fn is_behind_trap(rip: usize) -> bool {
    rip == TRAP.load(Relaxed) + SYSCALL_BYTES
}

/// The stub for `site`; `None` when there are too many. Called with the lock held.
///
/// With `repeats` it makes the call of that number again when that ends with `EINTR`.
pub(crate) fn for_site(site: usize, repeats: Option<u32>) -> Option<usize> {
    let code = repeats.map_or(CODE, repeating_code);
    let start = site.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
    for step in 0..STUBS {
        // SAFETY: the remainder lies within the area; written under the lock only.
        let stub = unsafe { &mut *area().add((start + step) % STUBS) };
        if stub.site == 0 {
            *stub = Stub { code, site };
        }
        if stub.site == site && stub.code == code {
            return Some(core::ptr::from_mut(stub) as usize);
        }
    }
    None
}

fn repeating_code(number: u32) -> [u8; CODE_BYTES] {
    let mut code = REPEATING_CODE;
    code[NUMBER_AT..NUMBER_END].copy_from_slice(&number.to_le_bytes());
    code
}

/// Where a thread that was interrupted at `rip` in a stub stands, in the program's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    /// About to make (or make again) the call: the address of the program's own `syscall`.
    Call(usize),
    /// The call is done: the address behind it.
    Done(usize),
    /// As `Call` and `Done`, of a piece: whether it is made.
    Piece(bool),
}

/// What `rip` means, if it lies in a stub.
pub(crate) fn at(rip: usize) -> Option<At> {
    let trap = TRAP.load(Relaxed);
    if rip == trap {
        return Some(At::Piece(true));
    }
    if let Some(within) = in_execution(rip) {
        return Some(At::Piece(within > 0));
    }
    let offset = rip.checked_sub(area() as usize).filter(|&offset| offset < STUBS * STUB_BYTES)?;
    // SAFETY: within the area.
    let site = unsafe { (*area().add(offset / STUB_BYTES)).site };
    match offset % STUB_BYTES {
        within if site == trap => Some(At::Piece(within > 0)),
        0 | NUMBER_END.. => Some(At::Call(site - SYSCALL_BYTES)),
        _ => Some(At::Done(site)),
    }
}

/// The `syscall` of the stub in which `rip` lies.
pub(crate) fn call_before(rip: usize) -> Option<usize> {
    Some(rip - rip.checked_sub(area() as usize)? % STUB_BYTES)
}
