//! LZ4 block format, by lz4_flex.
//!
//! lz4_flex writes with unchecked stores and therefore asks for room for its worst case, so a smaller `out` is served
//! through a buffer in the scratch. Good on everything that repeats at byte distance; bad on arrays of floats and on
//! small integers, where no four bytes in a row repeat.

use crate::{Codec, Corrupt, PAGE_BYTES, Page};
use lz4_flex::block::{
    CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size,
};

pub(crate) struct Lz4;

/// Bytes that lz4_flex may write for a page.
const WORST_BYTES: usize = get_maximum_output_size(PAGE_BYTES);

#[repr(C)]
struct Scratch {
    table: CompressTable,
    out: [u8; WORST_BYTES],
}

const _: () = assert!(align_of::<Scratch>() <= crate::SCRATCH_ALIGN_BYTES);

impl Codec for Lz4 {
    const SCRATCH_BYTES: usize = size_of::<Scratch>();

    fn compress(page: &Page, out: &mut [u8], scratch: &mut [u8]) -> Option<usize> {
        let scratch = scratch.as_mut_ptr().cast::<Scratch>();
        // SAFETY: the caller of the trait checked size and alignment; the table is written before it is borrowed, and
        // the buffer is plain bytes. Both lie inside `scratch`, which is borrowed for this call.
        let (table, buffer) = unsafe {
            (&raw mut (*scratch).table).write(CompressTable::small());
            (&mut (*scratch).table, &mut (*scratch).out)
        };
        if out.len() >= WORST_BYTES {
            return compress_into_with_table(&page.0, out, table).ok();
        }
        let length = compress_into_with_table(&page.0, buffer, table).ok()?;
        out.get_mut(..length)?.copy_from_slice(&buffer[..length]);
        Some(length)
    }

    fn decompress(data: &[u8], page: &mut Page, _scratch: &mut [u8]) -> Result<(), Corrupt> {
        match decompress_into(data, &mut page.0) {
            Ok(PAGE_BYTES) => Ok(()),
            _ => Err(Corrupt),
        }
    }
}
