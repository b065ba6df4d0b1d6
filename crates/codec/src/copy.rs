//! The page as it is, for pages that no codec shrinks (hp, section 3).
//!
//! Bad everywhere but there: it wins no memory.

use crate::{Codec, Corrupt, PAGE_BYTES, Page};

pub(crate) struct Copy;

impl Codec for Copy {
    const SCRATCH_BYTES: usize = 0;

    fn compress(page: &Page, out: &mut [u8], _scratch: &mut [u8]) -> Option<usize> {
        out.get_mut(..PAGE_BYTES)?.copy_from_slice(&page.0);
        Some(PAGE_BYTES)
    }

    fn decompress(data: &[u8], page: &mut Page, _scratch: &mut [u8]) -> Result<(), Corrupt> {
        page.0 = data.try_into().map_err(|_| Corrupt)?;
        Ok(())
    }
}
