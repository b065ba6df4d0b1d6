//! What the processor tells without a system call, and what a program may have set that concerns who runs in it.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::futex::now_ns;
use crate::syscall::{checked, nr};

const PR_GET_TSC: usize = 25;
/// Whether a thread may execute `rdtsc` (prctl(2)).
pub const PR_SET_TSC: usize = 26;
const PR_TSC_ENABLE: usize = 1;
/// It may not.
pub const PR_TSC_SIGSEGV: usize = 2;

/// What makes ticks of the clock's nanoseconds, or 0 where they are the processor's.
static CLOCK_OFFSET: AtomicU64 = AtomicU64::new(0);

/// Time passed, in ticks that are all of one length; for ratios and running means.
pub fn ticks() -> u64 {
    match CLOCK_OFFSET.load(Relaxed) {
        0 => time_stamp(),
        offset => now_ns().wrapping_add(offset),
    }
}

fn time_stamp() -> u64 {
    // SAFETY: an instruction that every x86-64 processor has, and that touches no memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// A thread of this process, which may execute `rdtsc` so far, is about to be forbidden to: [`ticks`] are the clock's
/// from now on, and go on from where they are.
pub fn leave_time_stamps() {
    if CLOCK_OFFSET.load(Relaxed) == 0 {
        CLOCK_OFFSET.store(time_stamp().wrapping_sub(now_ns()).max(1), Relaxed);
    }
}

/// The same if the calling thread has been forbidden already.
pub fn leave_forbidden_time_stamps() {
    let mut mode = 0u32;
    // SAFETY: the kernel writes one word.
    let told = unsafe { checked(nr::__NR_prctl, [PR_GET_TSC, (&raw mut mode) as usize]) };
    if told.is_ok() && mode as usize == PR_TSC_SIGSEGV {
        // SAFETY: these change nothing but what `rdtsc` does in this thread, for a moment.
        let set = |mode: usize| unsafe { checked(nr::__NR_prctl, [PR_SET_TSC, mode]) };
        if set(PR_TSC_ENABLE).is_ok() {
            leave_time_stamps();
            let _ = set(PR_TSC_SIGSEGV);
        }
    }
}

/// Ends that this thread's accesses have to be aligned (EFLAGS.AC), as the kernel leaves it set where it calls a
/// handler. What the handler returns to has flags of its own.
pub fn allow_unaligned() {
    // SAFETY: changes one flag, by which no code that is compiled goes.
    unsafe { core::arch::asm!("pushfq", "btr qword ptr [rsp], 18", "popfq") };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_go_on_where_time_stamps_are_forbidden() {
        let began = ticks();
        leave_forbidden_time_stamps();
        assert_eq!(CLOCK_OFFSET.load(Relaxed), 0, "no thread of the tests is forbidden to");
        // SAFETY: this thread executes none until it may again.
        let forbidden = unsafe { checked(nr::__NR_prctl, [PR_SET_TSC, PR_TSC_SIGSEGV]) };
        assert_eq!(forbidden, Ok(0));
        leave_forbidden_time_stamps();
        let (one, next) = (ticks(), ticks());
        assert!(began <= one && one <= next && next - began < 1 << 40, "{began} {one} {next}");
        let mut mode = 0u32;
        // SAFETY: the kernel writes one word.
        unsafe { checked(nr::__NR_prctl, [PR_GET_TSC, (&raw mut mode) as usize]) }.expect("told");
        // SAFETY: as before it was forbidden.
        unsafe { checked(nr::__NR_prctl, [PR_SET_TSC, PR_TSC_ENABLE]) }.expect("allowed");
        assert_eq!(mode as usize, PR_TSC_SIGSEGV, "as it was");
    }
}
