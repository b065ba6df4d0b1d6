//! [`Lanes`] as two 256-bit registers, with BMI2 to pack and unpack a word at a time.

use super::{BYTE_MASKS, HASH_BITS, HASH_MULTIPLIER, LANES, Lanes, Packed};
use core::arch::x86_64::*;

#[derive(Clone, Copy)]
pub(crate) struct Avx2(__m256i, __m256i);

/// The same byte in all bytes of a word is a multiple of this.
const ONES: i64 = 0x0101_0101_0101_0101;

/// An instruction on both halves. No function with a closure: a closure has no vector instructions of its own, and where
/// the compiler does not inline it, each becomes a call.
macro_rules! both {
    ($instruction:ident($first:expr, $second:expr)) => {{
        let (first, second): (Avx2, Avx2) = ($first, $second);
        Avx2($instruction(first.0, second.0), $instruction(first.1, second.1))
    }};
}

impl Avx2 {
    /// The highest bit of each byte.
    #[inline(always)]
    unsafe fn mask(self) -> u64 {
        // SAFETY: the caller vouches for the instructions.
        unsafe {
            let low = _mm256_movemask_epi8(self.0).cast_unsigned();
            let high = _mm256_movemask_epi8(self.1).cast_unsigned();
            u64::from(low) | u64::from(high) << 32
        }
    }

    /// All bits of the bytes in `mask`.
    #[inline(always)]
    unsafe fn bytes_of(mask: u64) -> Self {
        // SAFETY: the caller vouches for the instructions.
        unsafe {
            // Each byte of the mask to the eight bytes of its word, of which each then tests its own bit.
            let mask = _mm256_set1_epi64x(mask.cast_signed());
            let first = _mm256_setr_epi64x(0, ONES, 2 * ONES, 3 * ONES);
            let bits = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64.cast_signed());
            let low = _mm256_shuffle_epi8(mask, first);
            let high = _mm256_shuffle_epi8(mask, _mm256_add_epi8(first, _mm256_set1_epi8(4)));
            Self(
                _mm256_cmpeq_epi8(_mm256_and_si256(low, bits), bits),
                _mm256_cmpeq_epi8(_mm256_and_si256(high, bits), bits),
            )
        }
    }

    /// Eight words as a vector, by way of registers: a load of what eight stores have just written waits for them.
    #[inline(always)]
    unsafe fn from_words(words: [u64; 8]) -> Self {
        let [a, b, c, d, e, f, g, h] = words.map(u64::cast_signed);
        // SAFETY: the caller vouches for the instructions.
        unsafe { Self(_mm256_setr_epi64x(a, b, c, d), _mm256_setr_epi64x(e, f, g, h)) }
    }

    /// For each set of 16 entries of a table, those that the bytes of `half` ask for.
    #[inline(always)]
    unsafe fn lookup_half(half: __m256i, table: &[u8; 256]) -> __m256i {
        // SAFETY: the caller vouches for the instructions; each row has 16 bytes.
        unsafe {
            let mut found = _mm256_setzero_si256();
            for (i, row) in table.as_chunks::<16>().0.iter().enumerate() {
                let row = _mm256_broadcastsi128_si256(_mm_loadu_si128(row.as_ptr().cast()));
                let within = _mm256_sub_epi8(half, _mm256_set1_epi8((16 * i) as i8));
                // A byte outside of the row gets its highest bit set, for which the shuffle gives zero.
                let entry = _mm256_adds_epu8(within, _mm256_set1_epi8(0x70));
                found = _mm256_or_si256(found, _mm256_shuffle_epi8(row, entry));
            }
            found
        }
    }

    #[inline(always)]
    unsafe fn words(self) -> [u64; 8] {
        let mut words = [0; 8];
        // SAFETY: the caller vouches for the instructions; the array has 64 bytes.
        unsafe { self.store(words.as_mut_ptr().cast()) };
        words
    }
}

// SAFETY of all blocks below: the caller vouches for the instructions and, where there are pointers, for the memory
// behind them, as `Lanes` says.
impl Lanes for Avx2 {
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: see above.
        unsafe {
            Self(_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(LANES / 2).cast()))
        }
    }

    #[inline(always)]
    unsafe fn load_first(from: *const u8, count: usize) -> Self {
        let mut bytes = [0; LANES];
        // SAFETY: see above.
        unsafe {
            bytes.as_mut_ptr().copy_from_nonoverlapping(from, count);
            Self::load(bytes.as_ptr())
        }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: see above.
        unsafe {
            _mm256_storeu_si256(to.cast(), self.0);
            _mm256_storeu_si256(to.add(LANES / 2).cast(), self.1);
        }
    }

    #[inline(always)]
    unsafe fn splat(byte: u8) -> Self {
        // SAFETY: see above.
        let half = unsafe { _mm256_set1_epi8(byte.cast_signed()) };
        Self(half, half)
    }

    #[inline(always)]
    unsafe fn splat_word(word: u64) -> Self {
        // SAFETY: see above.
        let half = unsafe { _mm256_set1_epi64x(word.cast_signed()) };
        Self(half, half)
    }

    #[inline(always)]
    unsafe fn differing(self, other: Self) -> u64 {
        // SAFETY: see above.
        unsafe { !both!(_mm256_cmpeq_epi8(self, other)).mask() }
    }

    #[inline(always)]
    unsafe fn at_least(self, other: Self) -> u64 {
        // SAFETY: see above.
        unsafe {
            let greater = both!(_mm256_max_epu8(self, other));
            both!(_mm256_cmpeq_epi8(greater, self)).mask()
        }
    }

    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        // SAFETY: see above.
        unsafe { both!(_mm256_min_epu8(self, other)) }
    }

    #[inline(always)]
    unsafe fn keep(self, mask: u64) -> Self {
        // SAFETY: see above.
        unsafe { both!(_mm256_and_si256(self, Self::bytes_of(mask))) }
    }

    #[inline(always)]
    unsafe fn replace(self, mask: u64, other: Self) -> Self {
        // SAFETY: see above.
        unsafe {
            let Self(low, high) = Self::bytes_of(mask);
            Self(
                _mm256_blendv_epi8(self.0, other.0, low),
                _mm256_blendv_epi8(self.1, other.1, high),
            )
        }
    }

    #[inline(always)]
    unsafe fn low_nibbles(self) -> Self {
        // SAFETY: see above.
        unsafe { both!(_mm256_and_si256(self, Self::splat(0x0f))) }
    }

    #[inline(always)]
    unsafe fn lookup16(self, table: &[u8; 16]) -> Self {
        // SAFETY: see above; the table has the 16 bytes that are read.
        unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            both!(_mm256_shuffle_epi8(Self(table, table), self))
        }
    }

    #[inline(always)]
    unsafe fn lookup256(self, table: &[u8; 256]) -> Self {
        // SAFETY: see above.
        unsafe { Self(Self::lookup_half(self.0, table), Self::lookup_half(self.1, table)) }
    }

    #[inline(always)]
    unsafe fn pack(self, mask: u64, to: *mut u8) {
        if mask == 0 {
            // Often for many groups in a row, thus foreseen.
            return;
        }
        let mut length = 0;
        // SAFETY: see above; each word is written at most eight bytes behind the one before.
        unsafe {
            for (word, bytes) in self.words().into_iter().zip(mask.to_le_bytes()) {
                let packed = _pext_u64(word, BYTE_MASKS[usize::from(bytes)]);
                to.add(length).cast::<u64>().write_unaligned(packed);
                length += bytes.count_ones() as usize;
            }
        }
    }

    #[inline(always)]
    unsafe fn unpack(self, first: Packed<'_>, second: Packed<'_>) -> Self {
        // SAFETY: see above.
        unsafe {
            let mut words = [0; 8];
            for packed in [first, second] {
                if packed.mask == 0 {
                    // Often for many groups in a row, thus foreseen.
                } else if packed.rest().len() >= LANES {
                    unpack_words(packed, &mut words);
                } else {
                    unpack_last_words(packed, &mut words);
                }
            }
            let literal = Self::bytes_of(first.mask | second.mask);
            let kept = both!(_mm256_andnot_si256(literal, self));
            both!(_mm256_or_si256(kept, Self::from_words(words)))
        }
    }

    #[inline(always)]
    unsafe fn pack_nibbles(self, to: *mut u8) {
        // SAFETY: see above; 32 bytes are written.
        unsafe {
            // Each pair of bytes as a number of 16 bits: first + 16 * second, below 256.
            let factors = _mm256_set1_epi16(0x1001);
            let low = _mm256_maddubs_epi16(self.0, factors);
            let high = _mm256_maddubs_epi16(self.1, factors);
            // Packing works within halves of registers: their order is restored afterwards.
            let packed = _mm256_packus_epi16(low, high);
            _mm256_storeu_si256(to.cast(), _mm256_permute4x64_epi64::<0b11_01_10_00>(packed));
        }
    }

    #[inline(always)]
    unsafe fn unpack_nibbles(self) -> Self {
        // SAFETY: see above.
        unsafe {
            Self(
                unpack_half(_mm256_castsi256_si128(self.0)),
                unpack_half(_mm256_extracti128_si256::<1>(self.0)),
            )
        }
    }

    #[inline(always)]
    unsafe fn store_hashes(self, to: *mut u16) {
        // SAFETY: see above; eight numbers are written.
        unsafe {
            for (i, word) in self.words().into_iter().enumerate() {
                let product = (word >> 16).wrapping_mul(HASH_MULTIPLIER);
                to.add(i).write_unaligned((product >> (64 - HASH_BITS)) as u16);
            }
        }
    }
}

/// 16 bytes as 32 of four bits each.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn unpack_half(bytes: __m128i) -> __m256i {
    // SAFETY: the caller vouches for the instructions.
    unsafe {
        let pairs = _mm256_cvtepu8_epi16(bytes);
        let both = _mm256_or_si256(pairs, _mm256_slli_epi16::<4>(pairs));
        _mm256_and_si256(both, _mm256_set1_epi8(0x0f))
    }
}

/// Adds the packed bytes, of which 64 or more are there, to the words.
///
/// # Safety
/// The processor has BMI2.
#[inline(always)]
unsafe fn unpack_words(packed: Packed<'_>, words: &mut [u64; 8]) {
    let mut from = packed.rest().as_ptr();
    for (word, places) in words.iter_mut().zip(packed.mask.to_le_bytes()) {
        // SAFETY: the caller vouches for the instruction. At most 56 bytes are taken before the last word is read.
        unsafe {
            let bytes = from.cast::<u64>().read_unaligned();
            from = from.add(places.count_ones() as usize);
            *word |= _pdep_u64(bytes, BYTE_MASKS[usize::from(places)]);
        }
    }
}

/// The same near the end of the bytes: each word is read from inside them and shifted.
///
/// # Safety
/// The processor has BMI2.
#[inline(always)]
unsafe fn unpack_last_words(packed: Packed<'_>, words: &mut [u64; 8]) {
    let Some(last) = packed.bytes.len().checked_sub(size_of::<u64>()) else { return };
    let mut at = packed.at;
    for (word, places) in words.iter_mut().zip(packed.mask.to_le_bytes()) {
        let from = at.min(last);
        let beyond_bits = 8 * (at - from) as u32;
        // SAFETY: the caller vouches for the instruction. A word is read at `last` or before.
        unsafe {
            let bytes = packed.bytes.as_ptr().add(from).cast::<u64>().read_unaligned();
            let bytes = bytes.checked_shr(beyond_bits).unwrap_or(0);
            *word |= _pdep_u64(bytes, BYTE_MASKS[usize::from(places)]);
        }
        at += places.count_ones() as usize;
    }
}
