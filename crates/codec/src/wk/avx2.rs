//! [`Vector`] as eight words in one 256-bit register, with BMI2.
//!
//! AVX2 has no instruction that packs, so words are moved by the rows of two tables.

use super::vector::{self, Dictionary, Steps, TO_FRONT, Vector, Words};
use super::{HASH_MULTIPLIER, LOW_BITS, LOW_MASK, Parts, SETS, WAYS};
use crate::Page;
use crate::lanes::BYTE_MASKS;
use core::arch::x86_64::*;

#[derive(Clone, Copy)]
pub(crate) struct Avx2(__m256i);

/// For each mask, where the words come from that it keeps.
static PACK: [[u8; 8]; 256] = {
    let mut rows = [[0; 8]; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut from, mut to) = (0, 0);
        while from < 8 {
            if mask >> from & 1 == 1 {
                rows[mask][to] = from as u8;
                to += 1;
            }
            from += 1;
        }
        mask += 1;
    }
    rows
};

/// For each mask and word, which of the packed words belongs there.
static UNPACK: [[u8; 8]; 256] = {
    let mut rows = [[0; 8]; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut from, mut to) = (0, 0);
        while to < 8 {
            rows[mask][to] = from;
            from += (mask >> to & 1) as u8;
            to += 1;
        }
        mask += 1;
    }
    rows
};

impl Avx2 {
    /// The highest bit of each word.
    #[inline(always)]
    unsafe fn mask(words: __m256i) -> u32 {
        // SAFETY: the caller vouches for the instructions.
        unsafe { _mm256_movemask_ps(_mm256_castsi256_ps(words)).cast_unsigned() }
    }

    /// All bits of the words in `mask`.
    #[inline(always)]
    unsafe fn words_of(mask: u32) -> __m256i {
        // SAFETY: the caller vouches for the instructions.
        unsafe {
            let bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
            let mask = _mm256_set1_epi32(mask.cast_signed());
            _mm256_cmpeq_epi32(_mm256_and_si256(mask, bits), bits)
        }
    }

    /// `words` in the order of a row of a table.
    #[inline(always)]
    unsafe fn reorder(words: __m256i, row: &[u8; 8]) -> __m256i {
        // SAFETY: the caller vouches for the instructions.
        unsafe {
            let order = _mm256_cvtepu8_epi32(_mm_loadl_epi64(row.as_ptr().cast()));
            _mm256_permutevar8x32_epi32(words, order)
        }
    }

    /// The lower half of each word, which has nothing else.
    #[inline(always)]
    unsafe fn halves(words: __m256i) -> __m128i {
        // SAFETY: the caller vouches for the instructions.
        unsafe {
            // Packing works within halves of registers: the second is brought behind the first.
            let twice = _mm256_packus_epi32(words, words);
            _mm256_castsi256_si128(_mm256_permute4x64_epi64::<0b10_00>(twice))
        }
    }
}

/// The row of a table for a mask of eight bits.
#[inline(always)]
fn row<T>(table: &[T; 256], mask: u32) -> &T {
    &table[usize::from(mask as u8)]
}

// SAFETY of all blocks below: the caller vouches for the instructions and for the memory behind pointers, as `Vector`
// says.
impl Vector for Avx2 {
    const WORDS: usize = 8;

    #[inline(always)]
    unsafe fn load(from: *const u32) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm256_loadu_si256(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u32) {
        // SAFETY: see above.
        unsafe { _mm256_storeu_si256(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn keep(self, mask: u32) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm256_and_si256(self.0, Self::words_of(mask)) })
    }

    #[inline(always)]
    unsafe fn fill(mask: u32, word: u32) -> Self {
        // SAFETY: see above.
        unsafe { Self(_mm256_set1_epi32(word.cast_signed())).keep(mask) }
    }

    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm256_or_si256(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn equal(self, other: Self) -> u32 {
        // SAFETY: see above.
        unsafe { Self::mask(_mm256_cmpeq_epi32(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn similar(self, other: Self) -> u32 {
        // SAFETY: see above.
        unsafe {
            let differing =
                _mm256_srli_epi32::<{ LOW_BITS as i32 }>(_mm256_xor_si256(self.0, other.0));
            Self::mask(_mm256_cmpeq_epi32(differing, _mm256_setzero_si256()))
        }
    }

    #[inline(always)]
    unsafe fn hash<const BITS: u32>(self) -> Self {
        // SAFETY: see above.
        unsafe {
            let upper = _mm256_srli_epi32::<{ LOW_BITS as i32 }>(self.0);
            let multiplier = _mm256_set1_epi32(HASH_MULTIPLIER.cast_signed());
            let product = _mm256_mullo_epi32(upper, multiplier);
            Self(_mm256_srl_epi32(product, _mm_cvtsi32_si128((u32::BITS - BITS).cast_signed())))
        }
    }

    #[inline(always)]
    unsafe fn last_of_four(self) -> Self {
        // SAFETY: see above.
        unsafe { Self(_mm256_or_si256(_mm256_slli_epi32::<2>(self.0), _mm256_set1_epi32(3))) }
    }

    #[inline(always)]
    unsafe fn pack(self, mask: u32, to: *mut u32) {
        // SAFETY: see above.
        unsafe { _mm256_storeu_si256(to.cast(), Self::reorder(self.0, row(&PACK, mask))) }
    }

    #[inline(always)]
    unsafe fn pack_lows(self, mask: u32, to: *mut u16) {
        // SAFETY: see above.
        unsafe {
            let lows = _mm256_and_si256(self.0, _mm256_set1_epi32(LOW_MASK.cast_signed()));
            let order = _mm_loadl_epi64(row(&PACK, mask).as_ptr().cast());
            // From the place of each number to those of its two bytes.
            let first = _mm_add_epi8(order, order);
            let bytes = _mm_unpacklo_epi8(first, _mm_add_epi8(first, _mm_set1_epi8(1)));
            _mm_storeu_si128(to.cast(), _mm_shuffle_epi8(Self::halves(lows), bytes));
        }
    }

    #[inline(always)]
    unsafe fn pack_bytes(self, mask: u32, to: *mut u8) {
        // SAFETY: see above; a word is written.
        unsafe {
            let halves = Self::halves(self.0);
            let bytes = _mm_cvtsi128_si64(_mm_packus_epi16(halves, halves)).cast_unsigned();
            to.cast::<u64>().write_unaligned(_pext_u64(bytes, *row(&BYTE_MASKS, mask)));
        }
    }

    #[inline(always)]
    unsafe fn unpack(from: *const u32, mask: u32) -> Self {
        // SAFETY: see above.
        unsafe {
            Self(Self::reorder(_mm256_loadu_si256(from.cast()), row(&UNPACK, mask))).keep(mask)
        }
    }

    #[inline(always)]
    unsafe fn unpack_lows(from: *const u16, mask: u32) -> Self {
        // SAFETY: see above.
        unsafe {
            let words = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            Self(Self::reorder(words, row(&UNPACK, mask))).keep(mask)
        }
    }

    #[inline(always)]
    unsafe fn unpack_bytes(from: *const u8, mask: u32) -> Self {
        // SAFETY: see above; a word is read.
        unsafe {
            let packed = from.cast::<u64>().read_unaligned();
            let bytes = _pdep_u64(packed, *row(&BYTE_MASKS, mask));
            Self(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(bytes.cast_signed())))
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

/// Four words of a dictionary, the one last met first.
type Sets = [__m128i; SETS];

/// [`Vector::meet_all`], for AVX-512 as well: compiled with that, comparing goes through mask registers, which takes half
/// as long again.
///
/// # Safety
/// The processor has the instructions.
#[inline(never)]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub(super) unsafe fn meet_all(words: &Words, count: usize, places: &mut Words, found: &mut Words) {
    // SAFETY: a vector of zeros.
    let mut sets: Sets = unsafe { core::mem::zeroed() };
    let words = words.0[..count].iter();
    for ((word, place), found) in words.zip(&mut places.0).zip(&mut found.0) {
        let set = *place as usize % SETS;
        let entries = sets[set];
        let wanted = _mm_set1_epi32(word.cast_signed());
        let differing = _mm_srli_epi32::<{ LOW_BITS as i32 }>(_mm_xor_si128(entries, wanted));
        let similar = _mm_cmpeq_epi32(differing, _mm_setzero_si128());
        let mask = _mm_movemask_ps(_mm_castsi128_ps(similar)).cast_unsigned();
        let way = (mask | 0b1000).trailing_zeros();
        *place = (set * WAYS) as u32 | way;
        // SAFETY: there are four ways, and a way is below four.
        *found = unsafe { (&raw const sets[set]).cast::<u32>().add(way as usize).read() };
        // The words behind the first that is similar stay; those before it, or all, move by one.
        let one = _mm_slli_si128::<4>(similar);
        let others = _mm_or_si128(_mm_slli_si128::<8>(similar), _mm_slli_si128::<12>(similar));
        let moved = _mm_alignr_epi8::<12>(entries, wanted);
        sets[set] = _mm_blendv_epi8(moved, entries, _mm_or_si128(one, others));
    }
}

/// [`Vector::restore_all`], for AVX-512 as well.
///
/// # Safety
/// The processor has the instructions.
#[inline(never)]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub(super) unsafe fn restore_all(steps: &Steps, count: usize, words: &mut Words) {
    // SAFETY: a vector of zeros.
    let mut sets: Sets = unsafe { core::mem::zeroed() };
    let steps = steps.places.0[..count].iter().zip(&steps.clears.0).zip(&steps.bits.0);
    for (((place, clear), bits), word) in steps.zip(&mut words.0) {
        let set = &mut sets[*place as usize / WAYS % SETS];
        // SAFETY: the row has the sixteen bytes that are read.
        let order = unsafe { _mm_loadu_si128(TO_FRONT[*place as usize % WAYS].as_ptr().cast()) };
        let entries = _mm_shuffle_epi8(*set, order);
        let cleared = _mm_andnot_si128(_mm_cvtsi32_si128(clear.cast_signed()), entries);
        *set = _mm_or_si128(cleared, _mm_cvtsi32_si128(bits.cast_signed()));
        *word = _mm_cvtsi128_si32(*set).cast_unsigned();
    }
}

/// # Safety
/// The processor has the instructions.
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub(super) unsafe fn compress<D: Dictionary>(
    page: &Page,
    out: &mut [u8],
    scratch: &mut vector::Scratch,
) -> Option<usize> {
    // SAFETY: the caller vouches for the instructions.
    unsafe { vector::compress::<Avx2, D>(page, out, scratch) }
}

/// # Safety
/// The processor has the instructions.
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub(super) unsafe fn decompress<D: Dictionary>(
    parts: &Parts<'_>,
    page: &mut Page,
    scratch: &mut vector::Scratch,
) {
    // SAFETY: the caller vouches for the instructions.
    unsafe { vector::decompress::<Avx2, D>(parts, page, scratch) }
}
