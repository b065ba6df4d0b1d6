//! Zstandard, by the reference library, with both contexts in the caller's scratch.
//!
//! The library never allocates for a context made by `ZSTD_initStatic*`. Making one costs several microseconds,
//! because it asks the processor for its features and a virtual machine traps that, so the contexts are made once and
//! stay in the scratch. Best ratio of all codecs here; bad when time counts: three times LZ4's to compress and four
//! times to decompress.

use crate::{Codec, Corrupt, PAGE_BYTES, Page};
use zstd_sys::*;

pub(crate) struct Zstd;

/// Room for a compression context with [`parameters`]; a test compares it with what the library asks for.
const CCTX_BYTES: usize = 80 << 10;
/// Room for a decompression context.
const DCTX_BYTES: usize = 96 << 10;

/// Written to a scratch whose contexts are made, together with its address: a scratch that was copied elsewhere holds
/// contexts that point to its old place.
const MADE: u64 = 0x7a73_7464_2063_7478;

#[repr(C, align(64))]
struct Scratch {
    made: u64,
    contexts: Contexts,
    cctx_room: Room<CCTX_BYTES>,
    dctx_room: Room<DCTX_BYTES>,
}

/// Where the library put the contexts in their rooms: at the start, or a little behind it under the address sanitizer.
#[derive(Clone, Copy)]
#[repr(C)]
struct Contexts {
    compress: *mut ZSTD_CCtx,
    decompress: *mut ZSTD_DCtx,
}

#[repr(C, align(64))]
struct Room<const BYTES: usize>([u8; BYTES]);

const _: () = assert!(align_of::<Scratch>() <= crate::SCRATCH_ALIGN_BYTES);

/// Level 1 for inputs of one page, with a table no larger than the page has positions: it is cleared for every page.
const fn parameters() -> ZSTD_compressionParameters {
    ZSTD_compressionParameters {
        windowLog: 12,
        chainLog: 12,
        hashLog: 12,
        searchLog: 1,
        minMatch: 5,
        targetLength: 0,
        strategy: ZSTD_strategy::ZSTD_fast,
    }
}

impl Codec for Zstd {
    const SCRATCH_BYTES: usize = size_of::<Scratch>();
    const KEEPS_STATE: bool = true;

    fn compress(page: &Page, out: &mut [u8], scratch: &mut [u8]) -> Option<usize> {
        let contexts = contexts(scratch)?;
        // SAFETY: `contexts` made the context, and each pointer comes with the length of its slice.
        let length = unsafe {
            ZSTD_compress2(
                contexts.compress,
                out.as_mut_ptr().cast(),
                out.len(),
                page.0.as_ptr().cast(),
                PAGE_BYTES,
            )
        };
        succeeded(length).then_some(length)
    }

    fn decompress(data: &[u8], page: &mut Page, scratch: &mut [u8]) -> Result<(), Corrupt> {
        let contexts = contexts(scratch).ok_or(Corrupt)?;
        // SAFETY: `contexts` made the context, and each pointer comes with the length of its slice.
        let length = unsafe {
            ZSTD_decompressDCtx(
                contexts.decompress,
                page.0.as_mut_ptr().cast(),
                PAGE_BYTES,
                data.as_ptr().cast(),
                data.len(),
            )
        };
        if length == PAGE_BYTES { Ok(()) } else { Err(Corrupt) }
    }
}

/// The contexts in `scratch`, made now if they are not there; `None` if the library refuses, which only a library
/// that needs more room than the constants above would do.
fn contexts(scratch: &mut [u8]) -> Option<Contexts> {
    let scratch = scratch.as_mut_ptr().cast::<Scratch>();
    let made = MADE ^ scratch.addr() as u64;
    // SAFETY: the caller of the trait checked size and alignment; every field is plain numbers, and the pointers are
    // used only if they were made here, for this address.
    unsafe {
        if (*scratch).made != made {
            (*scratch).made = 0;
            (*scratch).contexts = make(scratch)?;
            (*scratch).made = made;
        }
        Some((*scratch).contexts)
    }
}

/// Makes both contexts and sets their parameters.
///
/// # Safety
/// `scratch` points to writable memory for a [`Scratch`].
unsafe fn make(scratch: *mut Scratch) -> Option<Contexts> {
    let magicless = ZSTD_format_e::ZSTD_f_zstd1_magicless as core::ffi::c_int;
    // SAFETY: the caller vouches for the memory; the contexts are used only if they were made.
    unsafe {
        let contexts = Contexts {
            compress: ZSTD_initStaticCCtx((&raw mut (*scratch).cctx_room).cast(), CCTX_BYTES),
            decompress: ZSTD_initStaticDCtx((&raw mut (*scratch).dctx_room).cast(), DCTX_BYTES),
        };
        if contexts.compress.is_null() || contexts.decompress.is_null() {
            return None;
        }
        let format = ZSTD_cParameter::ZSTD_c_experimentalParam2;
        let frame = ZSTD_dParameter::ZSTD_d_experimentalParam1;
        let results = [
            ZSTD_CCtx_setCParams(contexts.compress, parameters()),
            ZSTD_CCtx_setParameter(contexts.compress, format, magicless),
            ZSTD_DCtx_setParameter(contexts.decompress, frame, magicless),
        ];
        results.into_iter().all(succeeded).then_some(contexts)
    }
}

/// Whether a result of the library is not an error code.
fn succeeded(result: usize) -> bool {
    // SAFETY: a pure function of its argument.
    unsafe { ZSTD_isError(result) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_fit_their_room() {
        // SAFETY: pure functions of their arguments.
        let (cctx, dctx) =
            unsafe { (ZSTD_estimateCCtxSize_usingCParams(parameters()), ZSTD_estimateDCtxSize()) };
        assert!(cctx <= CCTX_BYTES && dctx <= DCTX_BYTES, "cctx {cctx} dctx {dctx}");
    }
}
