//! Arbitrary bytes through every codec's decompressor: nothing out of bounds, no panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use zpager_codec::{CodecId, Page, decompress};
use zpager_fuzz::Scratch;

fuzz_target!(|data: &[u8]| {
    let Some((choice, data)) = data.split_first() else { return };
    let id = CodecId::ALL[usize::from(*choice) % CodecId::ALL.len()];
    let mut page = Page::ZERO;
    let _ = decompress(id, data, &mut page, Scratch::new().get());
});
