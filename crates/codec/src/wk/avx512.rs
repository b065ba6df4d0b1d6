//! [`Vector`] as sixteen words in one 512-bit register: the instructions of [`crate::cpu::Level::Avx512`].
//!
//! Packing goes through a register and a plain store: with memory as its destination the instruction is microcoded on
//! Zen 4.

use super::avx2::{meet_all, restore_all};
use super::vector::{self, Dictionary, Steps, Vector, Words};
use super::{HASH_MULTIPLIER, LOW_BITS, LOW_MASK, Parts};
use crate::Page;
use core::arch::x86_64::*;

#[derive(Clone, Copy)]
pub(crate) struct Avx512(__m512i);

// SAFETY of all blocks below: the caller vouches for the instructions and for the memory behind pointers, as `Vector`
// says.
impl Vector for Avx512 {
    const WORDS: usize = 16;

    #[inline(always)]
    unsafe fn load(from: *const u32) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_loadu_epi32(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u32) {
        // SAFETY: see above.
        unsafe { _mm512_storeu_epi32(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn keep(self, mask: u32) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_maskz_mov_epi32(mask as u16, self.0) })
    }

    #[inline(always)]
    unsafe fn fill(mask: u32, word: u32) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_maskz_set1_epi32(mask as u16, word.cast_signed()) })
    }

    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_or_si512(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn equal(self, other: Self) -> u32 {
        // SAFETY: see above.
        u32::from(unsafe { _mm512_cmpeq_epi32_mask(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn similar(self, other: Self) -> u32 {
        // SAFETY: see above.
        unsafe {
            let differing = _mm512_xor_si512(self.0, other.0);
            let upper = _mm512_set1_epi32((!LOW_MASK).cast_signed());
            u32::from(_mm512_testn_epi32_mask(differing, upper))
        }
    }

    #[inline(always)]
    unsafe fn hash<const BITS: u32>(self) -> Self {
        // SAFETY: see above.
        unsafe {
            let upper = _mm512_srli_epi32::<LOW_BITS>(self.0);
            let multiplier = _mm512_set1_epi32(HASH_MULTIPLIER.cast_signed());
            let product = _mm512_mullo_epi32(upper, multiplier);
            Self(_mm512_srl_epi32(product, _mm_cvtsi32_si128((u32::BITS - BITS).cast_signed())))
        }
    }

    #[inline(always)]
    unsafe fn last_of_four(self) -> Self {
        // SAFETY: see above.
        unsafe { Self(_mm512_or_si512(_mm512_slli_epi32::<2>(self.0), _mm512_set1_epi32(3))) }
    }

    #[inline(always)]
    unsafe fn pack(self, mask: u32, to: *mut u32) {
        // SAFETY: see above.
        unsafe {
            _mm512_storeu_epi32(to.cast(), _mm512_maskz_compress_epi32(mask as u16, self.0));
        }
    }

    #[inline(always)]
    unsafe fn pack_lows(self, mask: u32, to: *mut u16) {
        // SAFETY: see above.
        unsafe {
            let lows = _mm512_and_si512(self.0, _mm512_set1_epi32(LOW_MASK.cast_signed()));
            let packed = _mm256_maskz_compress_epi16(mask as u16, _mm512_cvtepi32_epi16(lows));
            _mm256_storeu_si256(to.cast(), packed);
        }
    }

    #[inline(always)]
    unsafe fn pack_bytes(self, mask: u32, to: *mut u8) {
        // SAFETY: see above.
        unsafe {
            let bytes = _mm512_cvtepi32_epi8(self.0);
            _mm_storeu_si128(to.cast(), _mm_maskz_compress_epi8(mask as u16, bytes));
        }
    }

    #[inline(always)]
    unsafe fn unpack(from: *const u32, mask: u32) -> Self {
        // SAFETY: see above.
        unsafe { Self(_mm512_maskz_expand_epi32(mask as u16, _mm512_loadu_epi32(from.cast()))) }
    }

    #[inline(always)]
    unsafe fn unpack_lows(from: *const u16, mask: u32) -> Self {
        // SAFETY: see above.
        unsafe {
            let packed = _mm256_loadu_si256(from.cast());
            Self(_mm512_cvtepu16_epi32(_mm256_maskz_expand_epi16(mask as u16, packed)))
        }
    }

    #[inline(always)]
    unsafe fn unpack_bytes(from: *const u8, mask: u32) -> Self {
        // SAFETY: see above.
        unsafe {
            let packed = _mm_loadu_si128(from.cast());
            Self(_mm512_cvtepu8_epi32(_mm_maskz_expand_epi8(mask as u16, packed)))
        }
    }

    #[inline(always)]
    unsafe fn extract(bits: u64, mask: u64) -> u64 {
        // SAFETY: see above.
        unsafe { _pext_u64(bits, mask) }
    }

    #[inline(always)]
    unsafe fn deposit(bits: u64, mask: u64) -> u64 {
        // SAFETY: see above.
        unsafe { _pdep_u64(bits, mask) }
    }

    #[inline(always)]
    unsafe fn meet_all(words: &Words, count: usize, places: &mut Words, found: &mut Words) {
        // SAFETY: see above.
        unsafe { meet_all(words, count, places, found) }
    }

    #[inline(always)]
    unsafe fn restore_all(steps: &Steps, count: usize, words: &mut Words) {
        // SAFETY: see above.
        unsafe { restore_all(steps, count, words) }
    }
}

/// # Safety
/// The processor has the instructions.
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,bmi1,bmi2,popcnt"
)]
pub(super) unsafe fn compress<D: Dictionary>(
    page: &Page,
    out: &mut [u8],
    scratch: &mut vector::Scratch,
) -> Option<usize> {
    // SAFETY: the caller vouches for the instructions.
    unsafe { vector::compress::<Avx512, D>(page, out, scratch) }
}

/// # Safety
/// The processor has the instructions.
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,bmi1,bmi2,popcnt"
)]
pub(super) unsafe fn decompress<D: Dictionary>(
    parts: &Parts<'_>,
    page: &mut Page,
    scratch: &mut vector::Scratch,
) {
    // SAFETY: the caller vouches for the instructions.
    unsafe { vector::decompress::<Avx512, D>(parts, page, scratch) }
}
