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
pub(crate) fn compress_at(
    level: Level,
    page: &Page,
    out: &mut [u8],
    scratch: &mut [u8],
) -> Option<usize> {
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
pub(crate) fn decompress_at(
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
