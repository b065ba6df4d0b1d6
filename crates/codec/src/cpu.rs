//! Which vector instructions this processor has, asked once.
//!
//! `CPUID` takes microseconds in a virtual machine, which traps it, so the answer is kept in a static. The first call
//! may come from any thread or signal handler: asking twice is harmless, and nothing is locked. The standard library's
//! detection is not used because it needs `std`.

use core::sync::atomic::{AtomicU8, Ordering};

/// The instruction sets that the codecs are written for, from the least to the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// What the target always has.
    Portable = 1,
    /// What every 64-bit ARM has.
    Neon = 2,
    /// x86-64-v3: AVX2, BMI1, BMI2, POPCNT.
    Avx2 = 3,
    /// AVX-512 F, BW, DQ, VL, VBMI and VBMI2 besides.
    Avx512 = 4,
}

/// The number of the level, 0 before the processor was asked.
static LEVEL: AtomicU8 = AtomicU8::new(0);

/// The best level that processor and kernel support.
#[inline]
pub(crate) fn level() -> Level {
    // Relaxed: the byte is all there is to see, and every thread that asks finds the same.
    match LEVEL.load(Ordering::Relaxed) {
        1 => Level::Portable,
        2 => Level::Neon,
        3 => Level::Avx2,
        4 => Level::Avx512,
        _ => detect(),
    }
}

/// Asks the processor which vector instructions it has and remembers the answer.
///
/// The codecs do so by themselves when they are first used; a program that cares about the microseconds this takes
/// calls it before.
pub fn detect_cpu() {
    detect();
}

/// Makes the codecs use at most the instructions of `most`, which changes their speed and nothing else: to measure one
/// version beside another.
pub fn limit_cpu(most: Level) {
    LEVEL.store(ask().min(most) as u8, Ordering::Relaxed);
}

#[cold]
fn detect() -> Level {
    let level = ask();
    LEVEL.store(level as u8, Ordering::Relaxed);
    level
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn ask() -> Level {
    use core::arch::x86_64::{__cpuid, __cpuid_count};

    const LEAF1_ECX_POPCNT_OSXSAVE_AVX: u32 = 1 << 23 | 1 << 27 | 1 << 28;
    const LEAF7_EBX_BMI1_AVX2_BMI2: u32 = 1 << 3 | 1 << 5 | 1 << 8;
    const LEAF7_EBX_AVX512_F_DQ_BW_VL: u32 = 1 << 16 | 1 << 17 | 1 << 30 | 1 << 31;
    const LEAF7_ECX_AVX512_VBMI_VBMI2: u32 = 1 << 1 | 1 << 6;
    const XCR0_SSE_AVX: u64 = 0x06;
    const XCR0_AVX512: u64 = 0xe0;

    if __cpuid(0).eax < 7 {
        return Level::Portable;
    }
    let leaf1 = __cpuid(1);
    if leaf1.ecx & LEAF1_ECX_POPCNT_OSXSAVE_AVX != LEAF1_ECX_POPCNT_OSXSAVE_AVX {
        return Level::Portable;
    }
    let leaf7 = __cpuid_count(7, 0);
    // SAFETY: OSXSAVE was just seen, which is what XGETBV needs.
    let enabled = unsafe { xcr0() };
    let has = |register: u32, bits: u32| register & bits == bits;
    if enabled & XCR0_SSE_AVX != XCR0_SSE_AVX
        || !has(leaf7.ebx, LEAF7_EBX_BMI1_AVX2_BMI2)
        || has_slow_bmi2(__cpuid(0).ebx, leaf1.eax)
    {
        return Level::Portable;
    }
    if enabled & XCR0_AVX512 == XCR0_AVX512
        && has(leaf7.ebx, LEAF7_EBX_AVX512_F_DQ_BW_VL)
        && has(leaf7.ecx, LEAF7_ECX_AVX512_VBMI_VBMI2)
    {
        return Level::Avx512;
    }
    Level::Avx2
}

/// Whether PDEP and PEXT, of which the AVX2 codecs consist, take tens of cycles: Zen 1 and 2 and Hygon's, which are AMD's
/// family 0x17 and 0x18. `vendor` is the start of its name, `signature` the first register of leaf 1.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const fn has_slow_bmi2(vendor: u32, signature: u32) -> bool {
    const AUTHENTIC_AMD: u32 = u32::from_le_bytes(*b"Auth");
    const HYGON_GENUINE: u32 = u32::from_le_bytes(*b"Hygo");
    let family = (signature >> 8 & 0xf) + (signature >> 20 & 0xff);
    (vendor == AUTHENTIC_AMD || vendor == HYGON_GENUINE) && (family == 0x17 || family == 0x18)
}

/// The register states that the kernel saves for this program.
///
/// # Safety
/// The processor has XSAVE and the kernel enabled it.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "xsave")]
unsafe fn xcr0() -> u64 {
    // SAFETY: the caller vouches for XSAVE; register 0 always exists.
    unsafe { core::arch::x86_64::_xgetbv(0) }
}

#[cfg(all(target_arch = "aarch64", target_endian = "little", not(miri)))]
fn ask() -> Level {
    Level::Neon
}

#[cfg(not(all(
    any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")),
    not(miri)
)))]
fn ask() -> Level {
    Level::Portable
}
