//! A page made of the input, repeated, through every codec and back, with room enough and with room for half.
#![no_main]

use libfuzzer_sys::fuzz_target;
use zpager_codec::{CodecId, PAGE_BYTES, Page, compress, decompress};
use zpager_fuzz::Scratch;

fuzz_target!(|data: &[u8]| {
    if data.is_empty() {
        return;
    }
    let mut page = Page::ZERO;
    page.0.iter_mut().zip(data.iter().cycle()).for_each(|(to, from)| *to = *from);
    let mut scratch = Scratch::new();
    for id in CodecId::ALL {
        let mut out = [0; 2 * PAGE_BYTES];
        let length = compress(id, &page, &mut out, scratch.get()).expect("room for any page");
        let mut back = Page::ZERO;
        decompress(id, &out[..length], &mut back, scratch.get()).expect("own bytes");
        assert!(back.0 == page.0, "{} changes the page", id.name());
        if let Some(less) = compress(id, &page, &mut out[..length / 2], scratch.get()) {
            panic!("{} needs {length} bytes and {less}", id.name());
        }
    }
});
