//! Every codec against one table of pages: round trips, output limits, and corrupt input.

use proptest::collection::vec;
use proptest::prelude::*;
use zpager_codec::{
    CodecId, PAGE_BYTES, Page, SCRATCH_ALIGN_BYTES, compress, decompress, same_filled,
    scratch_bytes,
};
use zpager_seed::Random;

/// Scratch for one codec.
struct Scratch {
    bytes: Vec<u8>,
    start: usize,
}

impl Scratch {
    fn new(id: CodecId) -> Self {
        let bytes = vec![0; scratch_bytes(id) + SCRATCH_ALIGN_BYTES];
        let start = bytes.as_ptr().align_offset(SCRATCH_ALIGN_BYTES);
        Self { bytes, start }
    }

    fn get(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }
}

fn page_of_words(mut word: impl FnMut(usize) -> u64) -> Box<Page> {
    let mut page = Box::new(Page::ZERO);
    page.words_mut().iter_mut().enumerate().for_each(|(i, slot)| *slot = word(i));
    page
}

fn page_of_text() -> Box<Page> {
    let mut page = Box::new(Page::ZERO);
    let mut random = Random::with_seed(7);
    let words = ["page ", "codec ", "memory ", "0.25,", "\"name\": ", "\n", "compressed ", "swap "];
    let text: String = (0..PAGE_BYTES).map(|_| words[random.usize(..words.len())]).collect();
    page.0.copy_from_slice(&text.as_bytes()[..PAGE_BYTES]);
    page
}

/// The pages that every codec has to bring back.
fn pages() -> Vec<(&'static str, Box<Page>)> {
    let mut random = Random::with_seed(1);
    let mut any = move || random.u64(..);
    vec![
        ("zeros", Box::new(Page::ZERO)),
        ("one pattern", page_of_words(|_| 0x0102_0304_0506_0708)),
        ("last word differs", page_of_words(|i| u64::from(i == 511))),
        ("first word differs", page_of_words(|i| u64::from(i == 0) << 63)),
        ("counter", page_of_words(|i| i as u64)),
        ("two words in turn", page_of_words(|i| [0x7fff_1234_5678_9abc, 3][i % 2])),
        ("pointers", page_of_words(|_| 0x7f3a_1c00_0000 | (any() & 0xff_fff8))),
        ("objects", page_of_words(|i| [1, 0x55d0_1234_5678, i as u64 * 48, u64::MAX][i % 4])),
        ("floats", page_of_words(|i| (i as f64).sqrt().to_bits())),
        ("random", page_of_words(|_| any())),
        ("random halves", page_of_words(|i| if i < 256 { any() } else { 0 })),
        ("random low bytes", page_of_words(|_| any() & 0xff)),
        ("text", page_of_text()),
        ("pixels", page_of_pixels()),
    ]
}

/// Three colours that change slowly, and a little noise.
fn page_of_pixels() -> Box<Page> {
    let mut page = Box::new(Page::ZERO);
    let mut random = Random::with_seed(3);
    for (at, byte) in page.0.iter_mut().enumerate() {
        let colour = at / 3 * (at % 3 + 1) / 5 + at % 3 * 80;
        *byte = (colour + random.usize(..9)) as u8;
    }
    page
}

#[test]
fn zstd_shrinks_pictures_in_which_nothing_repeats() {
    let page = page_of_pixels();
    let length = |id| {
        let mut out = vec![0; 2 * PAGE_BYTES];
        compress(id, &page, &mut out, Scratch::new(id).get()).expect("room for any page")
    };
    assert!(length(CodecId::Lz4) > PAGE_BYTES * 9 / 10);
    for id in [CodecId::Zstd, CodecId::Zstd3, CodecId::Zstd6, CodecId::ZstdDictionary] {
        assert!(length(id) < PAGE_BYTES * 5 / 8, "{} leaves {}", id.name(), length(id));
    }
}

#[test]
fn names_and_numbers_round_trip() {
    for id in CodecId::ALL {
        assert_eq!(CodecId::from_name(id.name()), Some(id));
        assert_eq!(CodecId::try_from(id as u8), Ok(id));
        assert!((id as u8) < 16, "a codec's number takes four bits in the index");
    }
    assert_eq!(CodecId::from_name("LZ4"), None);
    assert!(CodecId::try_from(CodecId::ALL.len() as u8).is_err());
}

#[test]
fn every_page_comes_back() {
    for id in CodecId::ALL {
        let mut scratch = Scratch::new(id);
        for (name, page) in pages() {
            let mut out = vec![0; 2 * PAGE_BYTES];
            let length = compress(id, &page, &mut out, scratch.get()).expect("room for any page");
            let mut back = Box::new(Page([0xaa; PAGE_BYTES]));
            decompress(id, &out[..length], &mut back, scratch.get())
                .unwrap_or_else(|_| panic!("{} refuses its own {name}", id.name()));
            assert!(back.0 == page.0, "{} changes {name}", id.name());
        }
    }
}

/// Compresses with an `out` of exactly `limit` bytes, and checks that nothing behind it was written.
fn compress_within(
    id: CodecId,
    page: &Page,
    limit: usize,
    scratch: &mut Scratch,
) -> Option<Vec<u8>> {
    const GUARD: [u8; 64] = [0x5a; 64];
    let mut out = vec![0; limit];
    out.extend(GUARD);
    let length = compress(id, page, &mut out[..limit], scratch.get());
    assert_eq!(out[limit..], GUARD, "{} writes past its limit of {limit}", id.name());
    length.map(|length| out[..length].to_vec())
}

#[test]
fn output_limit_decides_and_nothing_else() {
    for id in CodecId::ALL {
        let mut scratch = Scratch::new(id);
        for (name, page) in pages() {
            let whole = compress_within(id, &page, 2 * PAGE_BYTES, &mut scratch).expect("room");
            let near = whole.len().saturating_sub(70)..whole.len() + 70;
            for limit in [0, 1, 16, whole.len() / 2].into_iter().chain(near) {
                match compress_within(id, &page, limit, &mut scratch) {
                    Some(bytes) => assert!(bytes == whole, "{} {name} at {limit}", id.name()),
                    None => assert!(needs_room(id, limit, whole.len()), "{} {name}", id.name()),
                }
            }
        }
    }
}

/// Whether a codec may refuse a page of `length` compressed bytes for want of room. zstd asks for a few bytes more than
/// it uses in the end.
fn needs_room(id: CodecId, limit: usize, length: usize) -> bool {
    let spare_bytes = if id.name().starts_with("zstd") { 16 } else { 0 };
    limit < length + spare_bytes
}

#[test]
fn truncated_and_extended_input_is_corrupt() {
    for id in CodecId::ALL {
        let mut scratch = Scratch::new(id);
        let mut back = Box::new(Page::ZERO);
        for (name, page) in pages() {
            let mut bytes = compress_within(id, &page, 2 * PAGE_BYTES, &mut scratch).expect("room");
            for length in 0..bytes.len() {
                // In a buffer of its own, so that a read past the end is a read past an allocation.
                let cut = bytes[..length].to_vec().into_boxed_slice();
                let result = decompress(id, &cut, &mut back, scratch.get());
                assert!(result.is_err(), "{} takes {length} bytes of {name}", id.name());
            }
            bytes.push(0);
            let result = decompress(id, &bytes, &mut back, scratch.get());
            assert!(result.is_err(), "{} takes a byte more of {name}", id.name());
        }
    }
}

#[test]
fn flipped_bits_never_panic() {
    let mut random = Random::with_seed(3);
    for id in CodecId::ALL {
        let mut scratch = Scratch::new(id);
        let mut back = Box::new(Page::ZERO);
        for (_, page) in pages() {
            let good = compress_within(id, &page, 2 * PAGE_BYTES, &mut scratch).expect("room");
            for _ in 0..400 {
                let mut bad = good.clone();
                for _ in 0..1 + random.u8(..3) {
                    let at = random.usize(..bad.len());
                    bad[at] ^= 1 << random.u8(..8);
                }
                // Any page may come out of it; what is tested is that something comes back at all.
                let _ = decompress(id, &bad, &mut back, scratch.get());
            }
            decompress(id, &good, &mut back, scratch.get()).expect("scratch survives bad input");
            assert!(back.0 == page.0);
        }
    }
}

#[test]
fn codecs_share_a_scratch() {
    let largest = CodecId::ALL.into_iter().max_by_key(|id| scratch_bytes(*id)).expect("codecs");
    let mut scratch = Scratch::new(largest);
    let mut random = Random::with_seed(5);
    for (name, page) in pages() {
        for _ in 0..40 {
            let id = CodecId::ALL[random.usize(..CodecId::ALL.len())];
            let bytes = compress_within(id, &page, 2 * PAGE_BYTES, &mut scratch).expect("room");
            let other = CodecId::ALL[random.usize(..CodecId::ALL.len())];
            let mut back = Box::new(Page::ZERO);
            let _ = decompress(other, &bytes, &mut back, scratch.get());
            decompress(id, &bytes, &mut back, scratch.get()).expect("own bytes");
            assert!(back.0 == page.0, "{} changes {name} after {}", id.name(), other.name());
        }
    }
}

/// Words as programs have them: most resemble one a few words back.
fn word() -> impl Strategy<Value = (u8, u64)> {
    (0..8u8, any::<u64>())
}

fn page_from(words: &[(u8, u64)], distance: usize) -> Box<Page> {
    let mut page = Box::new(Page::ZERO);
    for (i, (kind, value)) in words.iter().enumerate() {
        let before = if i < distance { 0 } else { page.words()[i - distance] };
        page.words_mut()[i] = match kind {
            0 | 1 => before,
            2 => before ^ (value & 0xff),
            3 => before ^ (value & 0xffff_0000),
            4 => value >> 56,
            5 => 0x7fff_0000_0000 | value >> 40,
            6 => value & 0x1f1f_1f1f_1f1f_1f1f | 0x6060_6060_6060_6060,
            _ => *value,
        };
    }
    page
}

proptest! {
    #[test]
    fn any_page_comes_back(words in vec(word(), 512), distance in 1..300usize) {
        let page = page_from(&words, distance);
        for id in CodecId::ALL {
            let mut scratch = Scratch::new(id);
            let bytes = compress_within(id, &page, 2 * PAGE_BYTES, &mut scratch).expect("room");
            let mut back = Box::new(Page([0xaa; PAGE_BYTES]));
            decompress(id, &bytes, &mut back, scratch.get()).expect("own bytes");
            prop_assert!(back.0 == page.0, "{} changes the page", id.name());
        }
    }

    #[test]
    fn any_bytes_are_survived(bytes in vec(any::<u8>(), 0..5000)) {
        for id in CodecId::ALL {
            let mut scratch = Scratch::new(id);
            let _ = decompress(id, &bytes, &mut Box::new(Page::ZERO), scratch.get());
        }
    }
}

#[test]
fn same_filled_finds_one_word_and_nothing_else() {
    assert_eq!(same_filled(&Page::ZERO), Some(0));
    assert_eq!(same_filled(&page_of_words(|_| 9 << 60)), Some(9 << 60));
    for different in 0..512 {
        let page = page_of_words(|i| if i == different { 1 << 40 } else { 5 });
        assert_eq!(same_filled(&page), None, "word {different}");
    }
}
