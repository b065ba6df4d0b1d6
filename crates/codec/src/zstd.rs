//! Zstandard, by the reference library, with its contexts in the caller's scratch: at several levels, and with a
//! dictionary.
//!
//! The library never allocates for a context made by `ZSTD_initStatic*`. Making one costs several microseconds, because
//! it asks the processor for its features and a virtual machine traps that, so contexts are made once and stay in the
//! scratch. What any level wrote, every level reads; what was written with the dictionary is read with it alone.
//!
//! A page that the library does not make short is tried once more as differences between its bytes ([`crate::delta`]),
//! which leaves pictures, sound and numbers in order a quarter to a third fewer bytes. What it made of differences stands
//! behind their distance, which is not the byte that a frame begins with.
//!
//! The dictionary is `zstd.dictionary`: statistics of literals and matches, and some bytes, of pages of other programs.
//! `docs/codecs.md` says how it was trained. Its bytes are part of the format.
//!
//! Few bytes; bad when time counts: two to four times LZ4's both ways at level 1, and from level 6 on far more to compress.

use crate::{Codec, Corrupt, PAGE_BYTES, Page, delta};
use core::marker::PhantomData;
use core::ptr::null;
use zstd_sys::*;

/// Zstandard as `V` has it.
pub(crate) struct Zstd<V>(PhantomData<V>);

/// One way to use the library.
pub(crate) trait Variant {
    /// Tells the contexts of variants apart in a scratch.
    const NUMBER: u64;
    /// Level of the library, which chooses the parameters; 1 for [`FASTEST`].
    const LEVEL: i32 = 1;
    /// Room for a compression context; a test compares it with what the library asks for.
    const CCTX_BYTES: usize = 80 << 10;
    /// The dictionary, and room for it as the compressor and the decompressor keep it.
    const DICTIONARY: Option<&'static [u8]> = None;
    const CDICT_BYTES: usize = 0;
    const DDICT_BYTES: usize = 0;
}

/// Level 1.
pub(crate) struct Level1;

impl Variant for Level1 {
    const NUMBER: u64 = 1;
}

/// Level 3.
pub(crate) struct Level3;

impl Variant for Level3 {
    const NUMBER: u64 = 2;
    const LEVEL: i32 = 3;
    const CCTX_BYTES: usize = 128 << 10;
}

/// Level 6.
pub(crate) struct Level6;

impl Variant for Level6 {
    const NUMBER: u64 = 3;
    const LEVEL: i32 = 6;
    const CCTX_BYTES: usize = 128 << 10;
}

/// Level 1 with the dictionary.
pub(crate) struct Dictionary;

impl Variant for Dictionary {
    const NUMBER: u64 = 4;
    const DICTIONARY: Option<&'static [u8]> = Some(include_bytes!("zstd.dictionary"));
    const CDICT_BYTES: usize = 48 << 10;
    const DDICT_BYTES: usize = 28 << 10;
}

/// Room for a decompression context.
const DCTX_BYTES: usize = 96 << 10;

/// Written to a scratch whose contexts are made, together with its address and the variant: a scratch that was copied
/// elsewhere holds contexts that point to its old place.
const MADE: u64 = 0x7a73_7464_2063_7478;

/// The start of the scratch. Behind it is room for the compression context, and for the
/// dictionary as compressor and decompressor keep it.
#[repr(C, align(64))]
struct Scratch {
    made: u64,
    contexts: Contexts,
    rooms: DifferenceRooms,
    dctx_room: Room<DCTX_BYTES>,
}

/// The differences between a page's bytes, and what the library makes of them.
#[repr(C)]
struct DifferenceRooms {
    differences: [u8; PAGE_BYTES],
    coded: [u8; PAGE_BYTES],
}

/// Where the library put the contexts in their rooms: at the start, or a little behind it under the address sanitizer.
#[derive(Clone, Copy)]
#[repr(C)]
struct Contexts {
    compress: *mut ZSTD_CCtx,
    decompress: *mut ZSTD_DCtx,
    /// The dictionary as the decompressor keeps it, or null. It is passed with every page: `ZSTD_DCtx_refDDict`, which would
    /// keep it, needs `calloc` for a feature that is not used here.
    dictionary: *const ZSTD_DDict,
}

#[repr(C, align(64))]
struct Room<const BYTES: usize>([u8; BYTES]);

const _: () = assert!(align_of::<Scratch>() <= crate::SCRATCH_ALIGN_BYTES);

/// What the library's frames begin with here: without their length, a checksum or a dictionary's number (RFC 8878,
/// 3.1.1.1.1).
const FRAME_FIRST: u8 = 0;
/// A page that becomes no longer is not tried as differences: it is full of what repeats.
const SHORT_BYTES: usize = PAGE_BYTES * 2 / 5;
/// The part by which differences have to leave fewer bytes, as they take longer to be restored.
const GAIN_PART: usize = 16;

/// Level 1 for inputs of one page, with a table no larger than the page has positions: it is cleared for every page.
const FASTEST: ZSTD_compressionParameters = ZSTD_compressionParameters {
    windowLog: 12,
    chainLog: 12,
    hashLog: 12,
    searchLog: 1,
    minMatch: 5,
    targetLength: 0,
    strategy: ZSTD_strategy::ZSTD_fast,
};

fn parameters<V: Variant>() -> ZSTD_compressionParameters {
    if V::LEVEL == 1 {
        return FASTEST;
    }
    // SAFETY: a pure function of its arguments.
    unsafe { ZSTD_getCParams(V::LEVEL, PAGE_BYTES as u64, 0) }
}

impl<V: Variant> Codec for Zstd<V> {
    const SCRATCH_BYTES: usize =
        size_of::<Scratch>() + V::CCTX_BYTES + V::CDICT_BYTES + V::DDICT_BYTES;
    const KEEPS_STATE: bool = true;

    fn compress(page: &Page, out: &mut [u8], scratch: &mut [u8]) -> Option<usize> {
        let (contexts, rooms) = contexts::<V>(scratch)?;
        let plain = frame(contexts, &page.0, out);
        // Where less room than that is asked for nobody can tell: then it is not tried either.
        if plain.unwrap_or(out.len()) <= SHORT_BYTES {
            return plain;
        }
        by_differences(contexts, rooms, page, plain, out).or(plain)
    }

    fn decompress(data: &[u8], page: &mut Page, scratch: &mut [u8]) -> Result<(), Corrupt> {
        let (contexts, _) = contexts::<V>(scratch).ok_or(Corrupt)?;
        let (distance, data) = match data.split_first() {
            Some((&distance, rest)) if distance != FRAME_FIRST => (distance.into(), rest),
            _ => (0, data),
        };
        // SAFETY: `contexts` made the context, and each pointer comes with the length of its slice.
        let length = unsafe {
            ZSTD_decompress_usingDDict(
                contexts.decompress,
                page.0.as_mut_ptr().cast(),
                PAGE_BYTES,
                data.as_ptr().cast(),
                data.len(),
                contexts.dictionary,
            )
        };
        let is_page = length == PAGE_BYTES && (distance == 0 || delta::restore(page, distance));
        is_page.then_some(()).ok_or(Corrupt)
    }
}

/// What the library makes of a page's bytes, at the start of `out`: the length.
fn frame(contexts: Contexts, bytes: &[u8; PAGE_BYTES], out: &mut [u8]) -> Option<usize> {
    // SAFETY: `contexts` made the context, and each pointer comes with the length of its slice.
    let length = unsafe {
        ZSTD_compress2(
            contexts.compress,
            out.as_mut_ptr().cast(),
            out.len(),
            bytes.as_ptr().cast(),
            PAGE_BYTES,
        )
    };
    succeeded(length).then_some(length)
}

/// What it makes of the differences between the page's bytes, behind their distance, where that is shorter by a part
/// than `plain`, which lies in `out` already.
fn by_differences(
    contexts: Contexts,
    rooms: &mut DifferenceRooms,
    page: &Page,
    plain: Option<usize>,
    out: &mut [u8],
) -> Option<usize> {
    let distance = delta::distance(page)?;
    delta::differences(page, distance, &mut rooms.differences);
    let most =
        plain.map_or(out.len().min(PAGE_BYTES), |length| length - length.div_ceil(GAIN_PART));
    let (first, rest) = out.get_mut(..most)?.split_first_mut()?;
    let coded = &mut rooms.coded[..rest.len()];
    let length = frame(contexts, &rooms.differences, coded)?;
    *first = distance as u8;
    rest[..length].copy_from_slice(&coded[..length]);
    Some(1 + length)
}

/// The contexts in `scratch`, made now if they are not there, and the room beside them; `None` if the library refuses,
/// which only a library that needs more room than the constants above would do.
fn contexts<V: Variant>(scratch: &mut [u8]) -> Option<(Contexts, &mut DifferenceRooms)> {
    let scratch = scratch.as_mut_ptr().cast::<Scratch>();
    let made = MADE ^ scratch.addr() as u64 ^ V::NUMBER;
    // SAFETY: the caller of the trait checked size and alignment; every field is plain numbers, and the pointers are
    // used only if they were made here, for this address.
    unsafe {
        if (*scratch).made != made {
            (*scratch).made = 0;
            (*scratch).contexts = make::<V>(scratch)?;
            (*scratch).made = made;
        }
        Some(((*scratch).contexts, &mut (*scratch).rooms))
    }
}

/// Makes both contexts and sets their parameters.
///
/// # Safety
/// `scratch` points to writable memory of the codec's size.
unsafe fn make<V: Variant>(scratch: *mut Scratch) -> Option<Contexts> {
    let magicless = ZSTD_format_e::ZSTD_f_zstd1_magicless as core::ffi::c_int;
    // SAFETY: the caller vouches for the memory; the contexts are used only if they were made.
    unsafe {
        let cctx_room = scratch.add(1).cast::<u8>();
        let mut contexts = Contexts {
            compress: ZSTD_initStaticCCtx(cctx_room.cast(), V::CCTX_BYTES),
            decompress: ZSTD_initStaticDCtx((&raw mut (*scratch).dctx_room).cast(), DCTX_BYTES),
            dictionary: null(),
        };
        if contexts.compress.is_null() || contexts.decompress.is_null() {
            return None;
        }
        let format = ZSTD_cParameter::ZSTD_c_experimentalParam2;
        let frame = ZSTD_dParameter::ZSTD_d_experimentalParam1;
        let results = [
            ZSTD_CCtx_setCParams(contexts.compress, parameters::<V>()),
            ZSTD_CCtx_setParameter(contexts.compress, format, magicless),
            ZSTD_CCtx_setParameter(contexts.compress, ZSTD_cParameter::ZSTD_c_dictIDFlag, 0),
            ZSTD_DCtx_setParameter(contexts.decompress, frame, magicless),
        ];
        if let Some(bytes) = V::DICTIONARY {
            contexts.dictionary = digest::<V>(&contexts, bytes, cctx_room.add(V::CCTX_BYTES))?;
        }
        results.into_iter().all(succeeded).then_some(contexts)
    }
}

/// Has the compression context use the dictionary `bytes`, and returns what the decompressor needs; both are made in
/// `room`.
///
/// # Safety
/// The context was made. `room` points to writable memory for both forms of the dictionary of `V`.
unsafe fn digest<V: Variant>(
    contexts: &Contexts,
    bytes: &'static [u8],
    room: *mut u8,
) -> Option<*const ZSTD_DDict> {
    let (start, length) = (bytes.as_ptr().cast(), bytes.len());
    let by_reference = ZSTD_dictLoadMethod_e::ZSTD_dlm_byRef;
    let kind = ZSTD_dictContentType_e::ZSTD_dct_fullDict;
    let behind = room.wrapping_add(V::CDICT_BYTES).cast();
    let parameters = parameters::<V>();
    // SAFETY: the caller vouches for the context and the room; the bytes outlive everything.
    unsafe {
        let to_compress = ZSTD_initStaticCDict(
            room.cast(),
            V::CDICT_BYTES,
            start,
            length,
            by_reference,
            kind,
            parameters,
        );
        let to_decompress =
            ZSTD_initStaticDDict(behind, V::DDICT_BYTES, start, length, by_reference, kind);
        let made = !to_compress.is_null() && !to_decompress.is_null();
        let used = made && succeeded(ZSTD_CCtx_refCDict(contexts.compress, to_compress));
        used.then_some(to_decompress)
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

    fn assert_fits<V: Variant>() {
        let by_reference = ZSTD_dictLoadMethod_e::ZSTD_dlm_byRef;
        let dictionary_bytes = V::DICTIONARY.map_or(0, <[u8]>::len);
        // SAFETY: pure functions of their arguments.
        let (cctx, dctx, cdict, ddict) = unsafe {
            (
                ZSTD_estimateCCtxSize_usingCParams(parameters::<V>()),
                ZSTD_estimateDCtxSize(),
                ZSTD_estimateCDictSize_advanced(dictionary_bytes, parameters::<V>(), by_reference),
                ZSTD_estimateDDictSize(dictionary_bytes, by_reference),
            )
        };
        let fits = cctx <= V::CCTX_BYTES && dctx <= DCTX_BYTES;
        assert!(fits, "level {}: cctx {cctx} dctx {dctx}", V::LEVEL);
        let fits = V::DICTIONARY.is_none() || cdict <= V::CDICT_BYTES && ddict <= V::DDICT_BYTES;
        assert!(fits, "cdict {cdict} ddict {ddict}");
    }

    #[test]
    fn contexts_fit_their_room() {
        assert_fits::<Level1>();
        assert_fits::<Level3>();
        assert_fits::<Level6>();
        assert_fits::<Dictionary>();
    }
}
