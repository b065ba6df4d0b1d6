//! A stub for every place in the program that makes system calls.
//!
//! A dispatched call that needs nothing more is made by the program's thread
//! itself, after the handler has returned, with the program's own mask and
//! restart behaviour: from `syscall` in a stub within the allowed range, which
//! then jumps to where the program goes on. No register is touched.
//!
//! A call that goes on in the pager once it is made leads to the trap instead: a
//! `syscall` outside the allowed range, which is dispatched in its turn.
//!
//! Invariant: a stub, once written, never changes, so threads run it without the lock.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use zpager_sys::PAGE_BYTES;
use zpager_sys::mapping::Mapping;
use zpager_sys::syscall::{checked, nr};

const STUB_BYTES: usize = 16;
const STUBS: usize = 4096;
/// `syscall; jmp [rip + 0]`, followed by the address.
const CODE: [u8; 8] = [0x0f, 0x05, 0xff, 0x25, 0, 0, 0, 0];
pub(crate) const SYSCALL_BYTES: usize = 2;
/// `syscall; int3`
const TRAP_CODE: [u8; 3] = [0x0f, 0x05, 0xcc];

#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Stub {
    code: [u8; 8],
    /// Address behind the program's `syscall`, 0 while the stub is free.
    site: usize,
}

#[repr(align(4096))]
#[allow(dead_code)] // Reached by address only.
struct Area {
    stubs: [Stub; STUBS],
}

/// Within the agent's image, as there is one allowed range.
static mut AREA: Area = Area { stubs: [Stub { code: [0; 8], site: 0 }; STUBS] };

/// Where the trap is, and the stub that leads to it, once the process is managed.
static TRAP: AtomicUsize = AtomicUsize::new(0);
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
    TO_TRAP.store(for_site(trap.start()).unwrap_or(0), Relaxed);
    Ok(())
}

/// The stub that leads to the trap.
pub(crate) fn to_trap() -> usize {
    TO_TRAP.load(Relaxed)
}

/// Whether the `syscall` that ends at `rip` is the trap's.
pub(crate) fn is_behind_trap(rip: usize) -> bool {
    rip == TRAP.load(Relaxed) + SYSCALL_BYTES
}

/// The stub for `site`; `None` when there are too many sites. Called with the lock held.
pub(crate) fn for_site(site: usize) -> Option<usize> {
    let start = site.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
    for step in 0..STUBS {
        // SAFETY: the remainder lies within the area; written under the lock only.
        let stub = unsafe { &mut *area().add((start + step) % STUBS) };
        if stub.site == 0 {
            *stub = Stub { code: CODE, site };
        }
        if stub.site == site {
            return Some(core::ptr::from_mut(stub) as usize);
        }
    }
    None
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
    let offset = rip.checked_sub(area() as usize).filter(|&offset| offset < STUBS * STUB_BYTES)?;
    // SAFETY: within the area.
    let site = unsafe { (*area().add(offset / STUB_BYTES)).site };
    match offset % STUB_BYTES {
        within if site == trap => Some(At::Piece(within > 0)),
        0 => Some(At::Call(site - SYSCALL_BYTES)),
        _ => Some(At::Done(site)),
    }
}

/// The `syscall` of the stub in which `rip` lies.
pub(crate) fn call_before(rip: usize) -> Option<usize> {
    Some(rip - rip.checked_sub(area() as usize)? % STUB_BYTES)
}
