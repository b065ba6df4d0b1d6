//! What WKdm and WK4x4 share: 32-bit words, a dictionary of sixteen, two-bit tags, and four streams.
//!
//! Source: Wilson, Kaplan and Smaragdakis, "The case for compressed caching in virtual memory systems", USENIX 1999,
//! section 2, written from its description. A word is zero, or equal to a word of the dictionary, or equal to one in its
//! upper 22 bits, or neither; tags, places in the dictionary, low bits and whole words are kept apart and packed.
//!
//! ```text
//! 0    for each word two bits: zero 0, partial 1, missed 2, exact 3, the first word in the lowest bits
//! 256  for each exact and partial word four bits: its place in the dictionary
//!      for each partial word ten bits, three words in four bytes
//!      for each missed word its four bytes
//! ```
//! All numbers are little-endian. `portable` follows the description word by word and runs everywhere; `vector` does the
//! same work in passes and is compiled for each instruction set. Invariant: all versions write the same bytes, and read
//! every input alike, corrupt input too.
//!
//! Bad on text, on anything that repeats in pieces longer than a word, and on pages of 64-bit pointers, of which every
//! second word is an upper half.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;
mod portable;
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
pub(crate) mod vector;

use crate::cpu::{Level, level};
use crate::{Codec, Corrupt, PAGE_BYTES, Page};
pub(crate) use portable::Dictionary;

/// Words in a page.
const WORDS: usize = PAGE_BYTES / 4;
/// Bytes of tags, which are always there.
const TAG_BYTES: usize = WORDS / 4;
/// Bits of a word that a partial match gives anew.
const LOW_BITS: u32 = 10;
const LOW_MASK: u32 = (1 << LOW_BITS) - 1;
/// Partial words whose low bits share four bytes.
const LOWS_IN_FOUR_BYTES: usize = 3;
/// Knuth's multiplier.
const HASH_MULTIPLIER: u32 = 0x9e37_79b1;

/// Words in the dictionary.
pub(crate) const ENTRIES: usize = 16;
/// Words in a set, where the dictionary has sets.
pub(crate) const WAYS: usize = 4;
/// Such sets.
pub(crate) const SETS: usize = ENTRIES / WAYS;

const ZERO: u8 = 0;
const PARTIAL: u8 = 1;
const MISSED: u8 = 2;
const EXACT: u8 = 3;

/// Whether two words have the same upper bits.
pub(crate) const fn similar(a: u32, b: u32) -> bool {
    (a ^ b) >> LOW_BITS == 0
}

/// The upper bits hashed to `bits` bits.
pub(crate) const fn hash(word: u32, bits: u32) -> usize {
    ((word >> LOW_BITS).wrapping_mul(HASH_MULTIPLIER) >> (u32::BITS - bits)) as usize
}

/// The codec that keeps its words in `D`.
pub(crate) struct Wk<D>(core::marker::PhantomData<D>);

/// A dictionary for every version.
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
pub(crate) trait Dictionaries: Dictionary + vector::Dictionary {}
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
impl<D: Dictionary + vector::Dictionary> Dictionaries for D {}
#[cfg(not(any(
    target_arch = "x86_64",
    all(target_arch = "aarch64", target_endian = "little")
)))]
pub(crate) use portable::Dictionary as Dictionaries;

union Scratch {
    _portable: core::mem::ManuallyDrop<portable::Streams>,
    #[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
    _vector: core::mem::ManuallyDrop<vector::Scratch>,
}

const _: () = assert!(align_of::<Scratch>() <= crate::SCRATCH_ALIGN_BYTES);

impl<D: Dictionaries> Codec for Wk<D> {
    const SCRATCH_BYTES: usize = size_of::<Scratch>();

    fn compress(page: &Page, out: &mut [u8], scratch: &mut [u8]) -> Option<usize> {
        Self::compress_at(Self::level_to_compress(), page, out, scratch)
    }

    fn decompress(data: &[u8], page: &mut Page, scratch: &mut [u8]) -> Result<(), Corrupt> {
        Self::decompress_at(level(), data, page, scratch)
    }
}

impl<D: Dictionaries> Wk<D> {
    /// The level to compress with.
    fn level_to_compress() -> Level {
        #[cfg(any(
            target_arch = "x86_64",
            all(target_arch = "aarch64", target_endian = "little")
        ))]
        return level().min(D::COMPRESSES_BEST_AT);
        #[cfg(not(any(
            target_arch = "x86_64",
            all(target_arch = "aarch64", target_endian = "little")
        )))]
        return level();
    }

    /// Compresses with the instructions of `level`, which the processor has.
    pub(crate) fn compress_at(
        level: Level,
        page: &Page,
        out: &mut [u8],
        scratch: &mut [u8],
    ) -> Option<usize> {
        let scratch = scratch.as_mut_ptr();
        // SAFETY: `level` is what the processor has. The caller of the trait checked the scratch, which fits all versions;
        // it is plain numbers, for which any bytes will do, and each length there is replaced before it is used.
        unsafe {
            match level {
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 => avx512::compress::<D>(page, out, &mut *scratch.cast()),
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => avx2::compress::<D>(page, out, &mut *scratch.cast()),
                #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
                Level::Neon => vector::compress::<neon::Neon, D>(page, out, &mut *scratch.cast()),
                _ => portable::compress::<D>(page, out, &mut *scratch.cast()),
            }
        }
    }

    /// Decompresses with the instructions of `level`, which the processor has.
    pub(crate) fn decompress_at(
        level: Level,
        data: &[u8],
        page: &mut Page,
        scratch: &mut [u8],
    ) -> Result<(), Corrupt> {
        let parts = Parts::of(data)?;
        // SAFETY: as in `compress_at`.
        unsafe {
            match level {
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 => {
                    avx512::decompress::<D>(&parts, page, &mut *scratch.as_mut_ptr().cast());
                    Ok(())
                }
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => {
                    avx2::decompress::<D>(&parts, page, &mut *scratch.as_mut_ptr().cast());
                    Ok(())
                }
                #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
                Level::Neon => {
                    let scratch = &mut *scratch.as_mut_ptr().cast();
                    vector::decompress::<neon::Neon, D>(&parts, page, scratch);
                    Ok(())
                }
                _ => portable::decompress::<D>(&parts, page),
            }
        }
    }
}

/// The parts of a compressed page, each as long as the tags say.
struct Parts<'a> {
    tags: &'a [u8; TAG_BYTES],
    places: &'a [u8],
    lows: &'a [[u8; 4]],
    missed: &'a [[u8; 4]],
}

impl<'a> Parts<'a> {
    fn of(data: &'a [u8]) -> Result<Self, Corrupt> {
        let (tags, rest) = data.split_first_chunk::<TAG_BYTES>().ok_or(Corrupt)?;
        let counts = count(tags);
        let place_bytes = (counts.partial + counts.exact).div_ceil(2);
        let low_bytes = 4 * counts.partial.div_ceil(LOWS_IN_FOUR_BYTES);
        let (places, rest) = rest.split_at_checked(place_bytes).ok_or(Corrupt)?;
        let (lows, missed) = rest.split_at_checked(low_bytes).ok_or(Corrupt)?;
        if missed.len() != 4 * counts.missed {
            return Err(Corrupt);
        }
        Ok(Self { tags, places, lows: lows.as_chunks().0, missed: missed.as_chunks().0 })
    }
}

/// How many words have each tag but zero.
struct Counts {
    partial: usize,
    missed: usize,
    exact: usize,
}

fn count(tags: &[u8; TAG_BYTES]) -> Counts {
    const LOW_TAG_BITS: u64 = 0x5555_5555_5555_5555;
    let mut counts = Counts { partial: 0, missed: 0, exact: 0 };
    for bytes in tags.as_chunks().0 {
        let (low, high) = (u64::from_le_bytes(*bytes), u64::from_le_bytes(*bytes) >> 1);
        counts.partial += (low & !high & LOW_TAG_BITS).count_ones() as usize;
        counts.missed += (!low & high & LOW_TAG_BITS).count_ones() as usize;
        counts.exact += (low & high & LOW_TAG_BITS).count_ones() as usize;
    }
    counts
}
