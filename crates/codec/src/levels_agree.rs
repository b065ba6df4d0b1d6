//! Every codec that is written for several instruction sets: all versions that this machine has do the same.

use crate::cpu::Level::{self, Avx2, Avx512, Portable};
use crate::cpu::level;
use crate::wk4x4::Wk4x4;
use crate::wkdm::Wkdm;
use crate::word::Word;
use crate::{Codec, Corrupt, PAGE_BYTES, Page, SCRATCH_ALIGN_BYTES};
use std::{boxed::Box, vec, vec::Vec};
use zpager_seed::Random;

/// A codec by its versions.
struct Subject {
    name: &'static str,
    scratch_bytes: usize,
    compress: Compress,
    decompress: Decompress,
}

type Compress = fn(Level, &Page, &mut [u8], &mut [u8]) -> Option<usize>;
type Decompress = fn(Level, &[u8], &mut Page, &mut [u8]) -> Result<(), Corrupt>;

const SUBJECTS: [Subject; 3] = [
    Subject {
        name: "word",
        scratch_bytes: Word::SCRATCH_BYTES,
        compress: crate::word::compress_at,
        decompress: crate::word::decompress_at,
    },
    Subject {
        name: "wkdm",
        scratch_bytes: Wkdm::SCRATCH_BYTES,
        compress: Wkdm::compress_at,
        decompress: Wkdm::decompress_at,
    },
    Subject {
        name: "wk4x4",
        scratch_bytes: Wk4x4::SCRATCH_BYTES,
        compress: Wk4x4::compress_at,
        decompress: Wk4x4::decompress_at,
    },
];

/// Pages that use every tag: words near others, small ones, halves, and text of a few and of many letters.
fn pages() -> impl Iterator<Item = Page> {
    (0..600u64).map(|seed| {
        let mut random = Random::with_seed(seed);
        let mut page = Page::ZERO;
        // From no text at all to nothing else, so that each stream ends near the end of the bytes in some page.
        let text_of_64 = seed % 65;
        for i in 0..page.words().len() {
            let state = random.u64(..);
            let near = page.words()[i.saturating_sub(8 + (seed % 300) as usize)];
            let byte = 0xffu64 << (8 * (state >> 20 & 7));
            let letters = u64::from_ne_bytes([(1u8 << (seed % 6)) - 1; 8]);
            page.words_mut()[i] = match state >> 60 {
                _ if state >> 50 & 63 < text_of_64 => state & letters | 0x6060_6060_6060_6060,
                0..3 => 0,
                3..7 => near,
                7..10 => near ^ state & byte,
                10 => 0x7f12_3456_0000_0000 | state >> 40,
                11 => state & 0x00ff_00ff_00ff_00ff,
                12 => state & 0xff,
                13 => state & 0x0000_ffff_0000_ffff,
                14 => near ^ state << 32,
                _ => state,
            };
        }
        page
    })
}

/// Pages of a few words of 32 bits and of others that resemble them, small ones among them: each place of a dictionary
/// is met, replaced and met again.
fn pages_of_few_words() -> impl Iterator<Item = Page> {
    (1..200u64).map(|seed| {
        let mut random = Random::with_seed(seed);
        let mut pool = [0; 40];
        pool.fill_with(|| random.u32(..) >> (4 * (seed % 7)));
        let mut page = Page::ZERO;
        for word in page.0.as_chunks_mut().0 {
            let near = pool[random.usize(..=seed as usize % pool.len())];
            let found = match random.u8(..8) {
                0 => 0,
                1..4 => near,
                4..7 => near ^ random.u32(..0x400),
                _ => random.u32(..),
            };
            *word = found.to_le_bytes();
        }
        page
    })
}

/// What a version makes of `page`, in memory of exactly its length.
fn compressed(subject: &Subject, level: Level, page: &Page, scratch: &mut [u8]) -> Vec<u8> {
    let mut out = vec![0; 2 * PAGE_BYTES];
    let length = (subject.compress)(level, page, &mut out, scratch).expect("room");
    let exact = &mut out[..length];
    assert_eq!((subject.compress)(level, page, exact, scratch), Some(length), "{level:?}");
    assert_eq!((subject.compress)(level, page, &mut exact[1..], scratch), None, "{level:?}");
    (subject.compress)(level, page, exact, scratch).expect("room");
    exact.to_vec()
}

/// The page that a version makes of `bytes`, or `None` if it refuses them.
fn decompressed(
    subject: &Subject,
    level: Level,
    bytes: &[u8],
    scratch: &mut [u8],
) -> Option<Box<Page>> {
    let mut page = Box::new(Page([0xaa; PAGE_BYTES]));
    (subject.decompress)(level, bytes, &mut page, scratch).ok().map(|()| page)
}

#[test]
fn levels_agree() {
    let levels: Vec<Level> =
        [Portable, Avx2, Avx512].into_iter().filter(|found| *found <= level()).collect();
    for subject in SUBJECTS {
        let name = subject.name;
        let mut scratch = vec![0x5a; subject.scratch_bytes + SCRATCH_ALIGN_BYTES];
        let start = scratch.as_ptr().align_offset(SCRATCH_ALIGN_BYTES);
        let scratch = &mut scratch[start..];
        for (i, page) in pages().chain(pages_of_few_words()).enumerate() {
            let expected = compressed(&subject, Portable, &page, scratch);
            let mut bad = expected.clone();
            let mut random = Random::with_seed(i as u64);
            for _ in 0..3 {
                let at = random.usize(..bad.len());
                bad[at] ^= 1 << random.u8(..8);
            }
            let bad_page = decompressed(&subject, Portable, &bad, scratch);
            for level in levels.iter().copied() {
                let bytes = compressed(&subject, level, &page, scratch);
                assert!(bytes == expected, "{name} of {level:?} writes other bytes for page {i}");
                let back = decompressed(&subject, level, &bytes, scratch).expect("own bytes");
                assert!(back.0 == page.0, "{name} of {level:?} changes page {i}");
                let back = decompressed(&subject, level, &bad, scratch);
                let same = back.map(|page| page.0) == bad_page.as_ref().map(|page| page.0);
                assert!(same, "{name} of {level:?} reads bad bytes of page {i} otherwise");
            }
        }
    }
}
