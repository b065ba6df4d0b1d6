//! Deflate (RFC 1951) as a bare stream, by libdeflate, with compressor and decompressor in the caller's scratch.
//!
//! libdeflate makes both by a function of ours that is told how many bytes it wants and nothing else. It finds the caller's
//! memory through one of a few slots, each with a function of its own: whoever makes them takes a free slot, which is
//! never waited for, so that a signal handler may interrupt another one at any point. What was made stays in the scratch.
//!
//! The Rust side of `libdeflate-sys` needs `std`; declarations of our own stand in for it (see `build.rs`).
//!
//! About as many bytes as zstd; bad when time counts: three to four times LZ4's both ways. The compressor clears 128 KiB of
//! table for each page. From level 2 on it takes 650 KiB, and at level 6 twice the time for a twentieth of the bytes.

use crate::{Codec, Corrupt, PAGE_BYTES, Page};
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

pub(crate) struct Deflate;

/// From 1, the fastest, to 12.
const LEVEL: c_int = 1;
/// Room for a compressor of that level.
const COMPRESSOR_BYTES: usize = 200 << 10;
/// Room for a decompressor.
const DECOMPRESSOR_BYTES: usize = 12 << 10;

/// Written to a scratch in which both were made, together with its address: they do not survive being moved.
const MADE: u64 = 0x6465_666c_6174_6531;

#[repr(C, align(64))]
struct Scratch {
    made: u64,
    tools: Tools,
    compressor_room: Room<COMPRESSOR_BYTES>,
    decompressor_room: Room<DECOMPRESSOR_BYTES>,
}

/// Where the library put both in their rooms.
#[derive(Clone, Copy)]
#[repr(C)]
struct Tools {
    compressor: *mut Compressor,
    decompressor: *mut Decompressor,
}

#[repr(C, align(64))]
struct Room<const BYTES: usize>([u8; BYTES]);

const _: () = assert!(align_of::<Scratch>() <= crate::SCRATCH_ALIGN_BYTES);

#[repr(C)]
struct Compressor([u8; 0]);

#[repr(C)]
struct Decompressor([u8; 0]);

type Give = unsafe extern "C" fn(bytes: usize) -> *mut c_void;

/// `struct libdeflate_options`.
#[repr(C)]
struct Options {
    sizeof_options: usize,
    malloc_func: Option<Give>,
    free_func: Option<unsafe extern "C" fn(memory: *mut c_void)>,
}

/// `LIBDEFLATE_SUCCESS`.
const SUCCESS: c_int = 0;

unsafe extern "C" {
    fn libdeflate_alloc_compressor_ex(level: c_int, options: *const Options) -> *mut Compressor;

    fn libdeflate_alloc_decompressor_ex(options: *const Options) -> *mut Decompressor;

    fn libdeflate_deflate_compress(
        compressor: *mut Compressor,
        from: *const c_void,
        from_bytes: usize,
        to: *mut c_void,
        to_bytes: usize,
    ) -> usize;

    fn libdeflate_deflate_decompress_ex(
        decompressor: *mut Decompressor,
        from: *const c_void,
        from_bytes: usize,
        to: *mut c_void,
        to_bytes: usize,
        taken_bytes: *mut usize,
        made_bytes: *mut usize,
    ) -> c_int;
}

impl Codec for Deflate {
    const SCRATCH_BYTES: usize = size_of::<Scratch>();
    const KEEPS_STATE: bool = true;

    fn compress(page: &Page, out: &mut [u8], scratch: &mut [u8]) -> Option<usize> {
        let tools = tools(scratch)?;
        // SAFETY: `tools` made the compressor, and each pointer comes with the length of its slice.
        let length = unsafe {
            libdeflate_deflate_compress(
                tools.compressor,
                page.0.as_ptr().cast(),
                PAGE_BYTES,
                out.as_mut_ptr().cast(),
                out.len(),
            )
        };
        (length > 0).then_some(length)
    }

    fn decompress(data: &[u8], page: &mut Page, scratch: &mut [u8]) -> Result<(), Corrupt> {
        let tools = tools(scratch).ok_or(Corrupt)?;
        let mut taken_bytes = 0;
        // SAFETY: `tools` made the decompressor, and each pointer comes with the length of its slice. Without a place for
        // the number of bytes made, fewer than asked for are an error.
        let result = unsafe {
            libdeflate_deflate_decompress_ex(
                tools.decompressor,
                data.as_ptr().cast(),
                data.len(),
                page.0.as_mut_ptr().cast(),
                PAGE_BYTES,
                &raw mut taken_bytes,
                null_mut(),
            )
        };
        if result == SUCCESS && taken_bytes == data.len() { Ok(()) } else { Err(Corrupt) }
    }
}

/// Compressor and decompressor in `scratch`, made now if they are not there; `None` if the library wants more room than
/// the constants above give, or all slots are taken.
fn tools(scratch: &mut [u8]) -> Option<Tools> {
    let scratch = scratch.as_mut_ptr().cast::<Scratch>();
    let made = MADE ^ scratch.addr() as u64;
    // SAFETY: the caller of the trait checked size and alignment; every field is plain numbers, and the pointers are
    // used only if they were made here, for this address.
    unsafe {
        if (*scratch).made != made {
            (*scratch).made = 0;
            (*scratch).tools = make(scratch)?;
            (*scratch).made = made;
        }
        Some((*scratch).tools)
    }
}

/// Makes both.
///
/// # Safety
/// `scratch` points to writable memory for a [`Scratch`].
unsafe fn make(scratch: *mut Scratch) -> Option<Tools> {
    // SAFETY: the caller vouches for the memory; each room is given once.
    unsafe {
        let compressor = with_memory(
            (&raw mut (*scratch).compressor_room).cast(),
            COMPRESSOR_BYTES,
            |options| libdeflate_alloc_compressor_ex(LEVEL, options),
        )?;
        let decompressor = with_memory(
            (&raw mut (*scratch).decompressor_room).cast(),
            DECOMPRESSOR_BYTES,
            |options| libdeflate_alloc_decompressor_ex(options),
        )?;
        Some(Tools { compressor, decompressor })
    }
}

/// Memory to be given to the library.
struct Gift {
    memory: *mut c_void,
    bytes: usize,
}

/// Gifts on their way. As many makers can be at work at once, threads and the signal handlers that interrupt them; each
/// is there for a microsecond, once for each scratch.
static SLOTS: [AtomicPtr<Gift>; 16] = [const { AtomicPtr::new(null_mut()) }; 16];

/// The function of each slot.
static GIVE: [Give; SLOTS.len()] = [
    give::<0>, give::<1>, give::<2>, give::<3>, give::<4>, give::<5>, give::<6>, give::<7>,
    give::<8>, give::<9>, give::<10>, give::<11>, give::<12>, give::<13>, give::<14>, give::<15>,
];

/// Gives what lies in the slot, if it is enough.
unsafe extern "C" fn give<const SLOT: usize>(bytes: usize) -> *mut c_void {
    // SAFETY: the maker put its gift there, calls the library, and waits for it to return.
    let gift = unsafe { &*SLOTS[SLOT].load(Ordering::Relaxed) };
    if bytes <= gift.bytes { gift.memory } else { null_mut() }
}

/// The memory belongs to the caller's scratch.
unsafe extern "C" fn keep(_memory: *mut c_void) {}

/// Has the library make something in `memory`; `None` if it does not, or no slot is free.
fn with_memory<T>(
    memory: *mut c_void,
    bytes: usize,
    make: impl FnOnce(*const Options) -> *mut T,
) -> Option<*mut T> {
    let mut gift = Gift { memory, bytes };
    // Relaxed: only the thread that put a gift there looks at it.
    let slot = SLOTS.iter().position(|slot| {
        slot.compare_exchange(null_mut(), &raw mut gift, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    })?;
    let options = Options {
        sizeof_options: size_of::<Options>(),
        malloc_func: Some(GIVE[slot]),
        free_func: Some(keep),
    };
    let made = make(&raw const options);
    SLOTS[slot].store(null_mut(), Ordering::Relaxed);
    (!made.is_null()).then_some(made)
}
