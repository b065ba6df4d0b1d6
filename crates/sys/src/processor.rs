//! What the processor tells without a system call.

/// Time passed, in ticks that are all of one length; for ratios and running means.
pub fn ticks() -> u64 {
    // SAFETY: an instruction that every x86-64 processor has, and that touches no memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Whether this thread's returns are checked by a shadow stack (Linux Documentation/arch/x86/shstk.rst), which an
/// `iretq` past a signal's frame would not pass.
pub fn has_shadow_stack() -> bool {
    let pointer: usize;
    // SAFETY: reads a register where there is one, and does nothing elsewhere.
    unsafe {
        core::arch::asm!("xor {0:e}, {0:e}", "rdsspq {0}", out(reg) pointer, options(nomem, nostack));
    }
    pointer != 0
}
