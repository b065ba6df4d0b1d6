//! [`Lanes`] as one 512-bit register: AVX-512 F, BW, DQ, VL, VBMI and VBMI2, with BMI2 and POPCNT.
//!
//! Packing goes through a register and a plain store: with memory as its destination the instruction is microcoded on
//! Zen 4.

use super::{HASH_BITS, HASH_MULTIPLIER, Lanes, Packed, load_or_fill};
use core::arch::x86_64::*;

#[derive(Clone, Copy)]
pub(crate) struct Avx512(__m512i);

// SAFETY of all blocks below: the caller vouches for the instructions and, where there are pointers, for the memory
// behind them, as `Lanes` says.
impl Lanes for Avx512 {
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_loadu_epi8(from.cast()) })
    }

    #[inline(always)]
    unsafe fn load_first(from: *const u8, count: usize) -> Self {
        // SAFETY: see above; bytes outside the mask are not read.
        unsafe { Self(_mm512_maskz_loadu_epi8((1 << count) - 1, from.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: see above.
        unsafe { _mm512_storeu_epi8(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn splat(byte: u8) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_set1_epi8(byte.cast_signed()) })
    }

    #[inline(always)]
    unsafe fn splat_word(word: u64) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_set1_epi64(word.cast_signed()) })
    }

    #[inline(always)]
    unsafe fn differing(self, other: Self) -> u64 {
        // SAFETY: see above.
        unsafe { _mm512_cmpneq_epi8_mask(self.0, other.0) }
    }

    #[inline(always)]
    unsafe fn count_differing(self, other: Self, within: u64) -> u32 {
        // SAFETY: see above.
        unsafe { _mm512_mask_cmpneq_epi8_mask(within, self.0, other.0).count_ones() }
    }

    #[inline(always)]
    unsafe fn at_least(self, other: Self) -> u64 {
        // SAFETY: see above.
        unsafe { _mm512_cmpge_epu8_mask(self.0, other.0) }
    }

    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_min_epu8(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn keep(self, mask: u64) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_maskz_mov_epi8(mask, self.0) })
    }

    #[inline(always)]
    unsafe fn replace(self, mask: u64, other: Self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_mask_mov_epi8(self.0, mask, other.0) })
    }

    #[inline(always)]
    unsafe fn low_nibbles(self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_and_si512(self.0, _mm512_set1_epi8(0x0f)) })
    }

    #[inline(always)]
    unsafe fn lookup16(self, table: &[u8; 16]) -> Self {
        // SAFETY: see above; the table has the 16 bytes that are read.
        unsafe {
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            Self(_mm512_shuffle_epi8(table, self.0))
        }
    }

    #[inline(always)]
    unsafe fn lookup256(self, table: &[u8; 256]) -> Self {
        // SAFETY: see above; the table has the four times 64 bytes that are read.
        unsafe {
            let quarter = |i: usize| _mm512_loadu_epi8(table.as_ptr().add(64 * i).cast());
            let low = _mm512_permutex2var_epi8(quarter(0), self.0, quarter(1));
            let high = _mm512_permutex2var_epi8(quarter(2), self.0, quarter(3));
            Self(_mm512_mask_mov_epi8(low, _mm512_movepi8_mask(self.0), high))
        }
    }

    #[inline(always)]
    unsafe fn pack(self, mask: u64, to: *mut u8) {
        // SAFETY: see above.
        unsafe { _mm512_storeu_epi8(to.cast(), _mm512_maskz_compress_epi8(mask, self.0)) }
    }

    #[inline(always)]
    unsafe fn unpack(self, first: Packed<'_>, second: Packed<'_>) -> Self {
        // SAFETY: see above.
        unsafe {
            let Self(packed) = load_or_fill(first.rest());
            let one = _mm512_mask_expand_epi8(self.0, first.mask, packed);
            let Self(packed) = load_or_fill(second.rest());
            Self(_mm512_mask_expand_epi8(one, second.mask, packed))
        }
    }

    #[inline(always)]
    unsafe fn pack_nibbles(self, to: *mut u8) {
        // SAFETY: see above; 32 bytes are written.
        unsafe {
            // Each pair of bytes as a number of 16 bits: first + 16 * second, below 256.
            let pairs = _mm512_maddubs_epi16(self.0, _mm512_set1_epi16(0x1001));
            _mm256_storeu_si256(to.cast(), _mm512_cvtepi16_epi8(pairs));
        }
    }

    #[inline(always)]
    unsafe fn unpack_nibbles(self) -> Self {
        // SAFETY: see above.
        unsafe {
            let pairs = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(self.0));
            let both = _mm512_or_si512(pairs, _mm512_slli_epi16::<4>(pairs));
            Self(_mm512_and_si512(both, _mm512_set1_epi8(0x0f)))
        }
    }

    #[inline(always)]
    unsafe fn store_hashes(self, to: *mut u16) {
        // SAFETY: see above; 16 bytes are written.
        unsafe {
            let multiplier = _mm512_set1_epi64(HASH_MULTIPLIER.cast_signed());
            let product = _mm512_mullo_epi64(_mm512_srli_epi64::<16>(self.0), multiplier);
            let hashes = _mm512_srli_epi64::<{ 64 - HASH_BITS }>(product);
            _mm_storeu_si128(to.cast(), _mm512_cvtepi64_epi16(hashes));
        }
    }
}
