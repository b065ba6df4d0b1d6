//! What the fuzz targets share.

use zpager_codec::{CodecId, SCRATCH_ALIGN_BYTES, scratch_bytes};

/// Scratch for any codec, zeroed.
pub struct Scratch(Vec<u8>);

impl Scratch {
    /// Zeroed scratch.
    pub fn new() -> Self {
        let bytes = CodecId::ALL.into_iter().map(scratch_bytes).max().unwrap_or(0);
        Self(vec![0; bytes + SCRATCH_ALIGN_BYTES])
    }

    /// The aligned part.
    pub fn get(&mut self) -> &mut [u8] {
        let start = self.0.as_ptr().align_offset(SCRATCH_ALIGN_BYTES);
        &mut self.0[start..]
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

/// Has the address sanitizer start in spite of libdeflate: GCC merges two equal constants there,
/// and the sanitizer takes the two entries of one address for two definitions.
#[unsafe(no_mangle)]
extern "C" fn __asan_default_options() -> *const core::ffi::c_char {
    c"detect_odr_violation=0".as_ptr()
}
