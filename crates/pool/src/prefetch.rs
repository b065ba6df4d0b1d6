//! Asking the processor for memory before it is read.

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Has the lines of `bytes` bytes from `from` on fetched, which may lie anywhere: nothing is read.
#[inline]
pub(crate) fn prefetch(from: *const u8, bytes: usize) {
    let lead_bytes = from as usize % LINE_BYTES;
    let start = from.wrapping_sub(lead_bytes);
    for line in 0..(lead_bytes + bytes).div_ceil(LINE_BYTES) {
        fetch(start.wrapping_add(line * LINE_BYTES));
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn fetch(line: *const u8) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: the instruction never faults.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) }
}

#[cfg(not(target_arch = "x86_64"))]
fn fetch(_line: *const u8) {}
