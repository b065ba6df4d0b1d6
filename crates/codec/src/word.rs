//! A codec for pages of 64-bit programs: pointers, small integers, floats, text, zeros.
//!
//! Our own. It takes from WKdm (Wilson, Kaplan and Smaragdakis, USENIX 1999) that a word is a tag, that most words
//! resemble a recent one in their upper bits, and that tags and literals are kept apart; from LZ77 that what repeats
//! repeats at the same distance for a while. It differs from both in its unit: eight words at a time are based on one
//! earlier run of eight words, at one distance, so that a group is one vector, decoded without a branch.
//!
//! Each word has one of sixteen tags: which of its bytes are literal, and whether the others are zero, are those of the
//! word at the group's distance, or are the upper half that most pointers of the page have in common. Literal parts of
//! words and whole literal words go into two streams; the second, which is mostly text, is packed. `format` has the
//! layout and the tags.
//!
//! Bad on bytes that repeat at odd distances and nothing else, such as compressed files being unpacked, on long
//! unaligned repeats of text, and on random floats, which nothing compresses.

mod decode;
mod encode;
mod format;
mod stream;
mod text;

use crate::cpu::{Level, level};
use crate::lanes::portable::Portable;
#[cfg(target_arch = "x86_64")]
use crate::lanes::{avx2::Avx2, avx512::Avx512};
use crate::{Codec, Corrupt, Page};

pub(crate) struct Word;

union Scratch {
    _encode: core::mem::ManuallyDrop<encode::Scratch>,
    _decode: core::mem::ManuallyDrop<decode::Scratch>,
}

const _: () = assert!(align_of::<Scratch>() <= crate::SCRATCH_ALIGN_BYTES);

impl Codec for Word {
    const SCRATCH_BYTES: usize = size_of::<Scratch>();

    fn compress(page: &Page, out: &mut [u8], scratch: &mut [u8]) -> Option<usize> {
        compress_at(level(), page, out, scratch)
    }

    fn decompress(data: &[u8], page: &mut Page, scratch: &mut [u8]) -> Result<(), Corrupt> {
        decompress_at(level(), data, page, scratch)
    }
}

/// Compresses with the instructions of `level`, which the processor has.
fn compress_at(level: Level, page: &Page, out: &mut [u8], scratch: &mut [u8]) -> Option<usize> {
    let scratch = scratch.as_mut_ptr().cast();
    // SAFETY: `level` is what the processor has; the caller of the trait checked the scratch, which fits both uses.
    unsafe {
        match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => encode_avx512(page, out, scratch),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => encode_avx2(page, out, scratch),
            _ => encode::encode::<Portable>(page, out, scratch),
        }
    }
}

/// Decompresses with the instructions of `level`, which the processor has.
fn decompress_at(
    level: Level,
    data: &[u8],
    page: &mut Page,
    scratch: &mut [u8],
) -> Result<(), Corrupt> {
    let scratch = scratch.as_mut_ptr().cast();
    // SAFETY: as in `compress_at`.
    unsafe {
        match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => decode_avx512(data, page, scratch),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => decode_avx2(data, page, scratch),
            _ => decode::decode::<Portable>(data, page, scratch),
        }
    }
}

/// Defines the encoder and the decoder for one instruction set.
macro_rules! compile_for {
    ($lanes:ty, $features:literal, $encode:ident, $decode:ident) => {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = $features)]
        unsafe fn $encode(
            page: &Page,
            out: &mut [u8],
            scratch: *mut encode::Scratch,
        ) -> Option<usize> {
            // SAFETY: the caller vouches for the scratch and for the instructions.
            unsafe { encode::encode::<$lanes>(page, out, scratch) }
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = $features)]
        unsafe fn $decode(
            data: &[u8],
            page: &mut Page,
            scratch: *mut decode::Scratch,
        ) -> Result<(), Corrupt> {
            // SAFETY: the caller vouches for the scratch and for the instructions.
            unsafe { decode::decode::<$lanes>(data, page, scratch) }
        }
    };
}

compile_for!(
    Avx512,
    "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,bmi1,bmi2,popcnt",
    encode_avx512,
    decode_avx512
);
compile_for!(Avx2, "avx2,bmi1,bmi2,popcnt", encode_avx2, decode_avx2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE_BYTES;
    use Level::{Avx2, Avx512, Portable};
    use std::{boxed::Box, vec, vec::Vec};

    #[repr(align(64))]
    struct Aligned([u8; size_of::<Scratch>()]);

    /// Pages that use every tag: words near others, small ones, halves, and text of a few and of many letters.
    fn pages() -> impl Iterator<Item = Page> {
        (0..600u64).map(|seed| {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut page = Page::ZERO;
            // From no text at all to nothing else, so that each stream ends near the end of the bytes in some page.
            let text_of_64 = seed % 65;
            for i in 0..page.words().len() {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let near = page.words()[i.saturating_sub(8 + (seed % 300) as usize)];
                let byte = 0xffu64 << (8 * (state >> 20 & 7));
                let letters = u64::from_ne_bytes([(1u8 << (seed % 6)) - 1; 8]);
                page.words_mut()[i] = match state >> 60 {
                    _ if state >> 50 & 63 < text_of_64 => state & letters | 0x6060_6060_6060_6060,
                    0..3 => 0,
                    3..7 => near,
                    7..10 => near ^ state & byte,
                    10 => 0x7f12_3456_0000_0000 | state >> 40,
                    11 => state & 0x00ff_00ff_00ff_00ff,
                    12 => state & 0xff,
                    13 => state & 0x0000_ffff_0000_ffff,
                    14 => near ^ state << 32,
                    _ => state,
                };
            }
            page
        })
    }

    /// Every level writes the same bytes, and reads those of the others.
    #[test]
    fn levels_agree() {
        let mut scratch = Box::new(Aligned([0; _]));
        let levels = [Portable, Avx2, Avx512].into_iter().filter(|found| *found <= level());
        for page in pages() {
            let mut expected: Option<Vec<u8>> = None;
            for level in levels.clone() {
                let mut out = vec![0; 2 * PAGE_BYTES];
                let length = compress_at(level, &page, &mut out, &mut scratch.0).expect("room");
                out.truncate(length);
                assert!(expected.is_none_or(|bytes| bytes == out), "{level:?} differs");
                let mut back = Page([0xaa; PAGE_BYTES]);
                decompress_at(level, &out, &mut back, &mut scratch.0).expect("own bytes");
                assert!(back.0 == page.0, "{level:?} changes the page");
                expected = Some(out);
            }
        }
    }
}
