//! The engine under programs that touch more than the budget: contents, bounds, and that lengths
//! alone decide as contents do.
//!
//! The seed of the random tests is taken from ZPAGER_SEED.

mod driver;

use driver::{Counts, Driver, Kept, PAGES};
use zpager_cache::{Codecs, Coder};
use zpager_codec::{
    CodecId, Corrupt, Page, SCRATCH_ALIGN_BYTES, compress, same_filled, scratch_bytes,
};
use zpager_policy::{Design, DesignId, Settings};
use zpager_seed::{Random, random};
use zpager_store::CLUSTER_BYTES;

const MIB: usize = 1 << 20;
const BUDGET_BYTES: usize = 4 * MIB;

/// What a simulator knows of a page: its length under LZ4, and the word that it consists of. They
/// lie at the start of what stands for its bytes, so that they come back whatever its form was.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Lengths([u8; 4096]);

const KNOWN_BYTES: usize = 11;

impl Lengths {
    fn new(word: Option<u64>, lz4_bytes: usize) -> Self {
        let mut known = [0; 4096];
        known[..2].copy_from_slice(&(lz4_bytes as u16).to_le_bytes());
        known[2] = u8::from(word.is_some());
        known[3..KNOWN_BYTES].copy_from_slice(&word.unwrap_or(0).to_le_bytes());
        Lengths(known)
    }

    fn lz4_bytes(&self) -> usize {
        u16::from_le_bytes([self.0[0], self.0[1]]).into()
    }
}

enum LengthsOnly {}

impl Coder for LengthsOnly {
    type Page = Lengths;

    fn same_filled(page: &Lengths) -> Option<u64> {
        let word = page.0[3..].first_chunk().expect("eight bytes");
        (page.0[2] != 0).then_some(u64::from_le_bytes(*word))
    }
    fn fill(word: u64, page: &mut Lengths) {
        let mut filled = Page::ZERO;
        filled.words_mut().fill(word);
        *page = lengths(&filled);
    }
    fn compress(_: CodecId, page: &Lengths, output: &mut [u8], _: &mut [u8]) -> Option<usize> {
        output[..KNOWN_BYTES].copy_from_slice(&page.0[..KNOWN_BYTES]);
        Some(page.lz4_bytes()).filter(|bytes| *bytes <= output.len())
    }
    fn raw(page: &Lengths) -> &[u8; 4096] {
        &page.0
    }
    fn expand(_: CodecId, data: &[u8], raw: &mut Page, _: &mut [u8]) -> Result<(), Corrupt> {
        raw.0[..KNOWN_BYTES].copy_from_slice(&data[..KNOWN_BYTES]);
        Ok(())
    }
    fn recompress(_: CodecId, _: &Page, _: &mut [u8], _: &mut [u8]) -> Option<usize> {
        None
    }
    fn decompress(
        _: CodecId,
        data: &[u8],
        page: &mut Lengths,
        _: &mut [u8],
    ) -> Result<(), Corrupt> {
        page.0[..KNOWN_BYTES].copy_from_slice(&data[..KNOWN_BYTES]);
        Ok(())
    }
}

impl Kept for LengthsOnly {
    fn zero() -> Lengths {
        lengths(&Page::ZERO)
    }
    fn is_same(one: &Lengths, other: &Lengths) -> bool {
        one == other
    }
}

impl Kept for Codecs {
    fn zero() -> Page {
        Page::ZERO
    }
    fn is_same(one: &Page, other: &Page) -> bool {
        one.0 == other.0
    }
}

/// A page of a heap: `noise` of its 512 words are random, the others small numbers.
fn content(number: u64, noise: usize) -> Page {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut page = Page::ZERO;
    for (at, word) in page.words_mut().iter_mut().enumerate() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *word = if at < noise { state } else { number % 7 };
    }
    page
}

/// What there is to know of a page.
fn lengths(page: &Page) -> Lengths {
    let mut scratch = vec![0; scratch_bytes(CodecId::Lz4) + SCRATCH_ALIGN_BYTES];
    let start = scratch.as_ptr().align_offset(SCRATCH_ALIGN_BYTES);
    let lz4_bytes = compress(CodecId::Lz4, page, &mut [0; 4096], &mut scratch[start..]);
    Lengths::new(same_filled(page), lz4_bytes.unwrap_or(4097))
}

/// What a program does next.
#[derive(Debug, Clone, Copy)]
enum Access {
    Read(u64),
    /// With so much noise.
    Write(u64, usize),
    Forget(u64),
}

/// Loops, streams and single pages, read and written.
fn program(random: &mut Random, turns: u64) -> Vec<Access> {
    let mut accesses = Vec::new();
    for _ in 0..turns {
        let (from, count, kind) = (random.u64(..PAGES), 1 + random.u64(..600), random.u64(..8));
        let noise = [0, 20, 100, 200, 512][random.u64(..5) as usize];
        let range = from..(from + count).min(PAGES);
        match kind {
            0..3 => accesses.extend(range.map(|page| Access::Write(page, noise))),
            3 => accesses.extend(range.map(Access::Read)),
            4 => accesses.extend(range.rev().map(Access::Read)),
            5 => accesses.extend((0..count).map(|_| Access::Read(random.u64(..PAGES)))),
            6 => accesses.extend((0..count).map(|_| Access::Write(random.u64(..PAGES), noise))),
            _ => accesses.extend(range.map(Access::Forget)),
        }
    }
    accesses
}

/// Runs a program; every page that is read must be what was written last. Gives what happened.
fn run<C: Kept>(
    id: DesignId,
    accesses: &[Access],
    store_bytes: usize,
    page_of: fn(&Page) -> C::Page,
) -> Counts {
    run_as::<C>(Design::new(&Settings::of(id), BUDGET_BYTES), accesses, store_bytes, page_of)
}

/// [`run`] of a design whose parts are known.
fn run_as<C: Kept>(
    design: Design,
    accesses: &[Access],
    store_bytes: usize,
    page_of: fn(&Page) -> C::Page,
) -> Counts {
    let design = Design { codec: CodecId::Lz4, ..design };
    let mut driver = Driver::<C>::new(&design, BUDGET_BYTES, store_bytes);
    let mut written = vec![C::zero(); PAGES as usize];
    for (number, &access) in (1..).zip(accesses) {
        match access {
            Access::Read(page) => {
                let is_same = C::is_same(driver.read(page), &written[page as usize]);
                assert!(is_same, "page {page} at {number}");
            }
            Access::Write(page, noise) => {
                let content = page_of(&content(number, noise));
                written[page as usize] = content.clone();
                driver.write(page, content);
            }
            Access::Forget(page) => {
                driver.forget(page);
                written[page as usize] = C::zero();
            }
        }
        assert!(driver.held_bytes() <= BUDGET_BYTES, "{} bytes", driver.held_bytes());
    }
    for (page, content) in written.iter().enumerate() {
        assert!(C::is_same(driver.read(page as u64), content), "page {page} at the end");
    }
    driver.counts
}

#[test]
fn every_page_is_what_it_was() {
    let mut random = random(2001);
    for id in DesignId::ALL {
        for _ in 0..2 {
            let accesses = program(&mut random, 60);
            let counts = run::<Codecs>(id, &accesses, 64 * MIB, Page::clone);
            println!("{}: {counts:?}", id.name());
            assert!(counts.store_faults > 0 && counts.compressed_faults > 0, "nothing was tried");
        }
    }
}

/// Pages that are written before they have to leave are what they were, wherever they come from, and
/// take no more than the budget.
#[test]
fn what_is_written_ahead_is_what_it_was() {
    let mut random = random(2001);
    for write_ahead_percent in [1, 30, 80].map(Some) {
        let accesses = program(&mut random, 60);
        let design = Design::new(&Settings::of(DesignId::Default), BUDGET_BYTES);
        let design = Design { write_ahead_percent, ..design };
        let counts = run_as::<Codecs>(design, &accesses, 64 * MIB, Page::clone);
        println!("{write_ahead_percent:?}: {counts:?}");
        assert!(counts.ahead_pages > 0 && counts.shelved_pages > 0, "nothing was tried");
    }
}

/// A simulator without contents counts what a run counts.
#[test]
fn lengths_decide_as_contents_do() {
    let mut random = random(2001);
    for id in DesignId::ALL {
        let accesses = program(&mut random, 40);
        let real = run::<Codecs>(id, &accesses, 64 * MIB, Page::clone);
        assert_eq!(run::<LengthsOnly>(id, &accesses, 64 * MIB, lengths), real, "{}", id.name());
    }
}

/// A store of limited size, nearly all of which is alive at every moment, is never told to be full:
/// what is dead in it is won back, however little there is in each cluster.
#[test]
fn a_store_with_few_dead_pages_is_not_full() {
    // Sixteen MiB, of which less than four are resident.
    const CLUSTERS: usize = 52;
    let mut random = random(2001);
    let mut accesses: Vec<_> = (0..PAGES).map(|page| Access::Write(page, 512)).collect();
    accesses.extend((0..20_000).map(|turn| match turn % 3 {
        0 => Access::Write(random.u64(..PAGES), 512),
        _ => Access::Read(random.u64(..PAGES)),
    }));
    let counts = run::<Codecs>(DesignId::Default, &accesses, CLUSTERS * CLUSTER_BYTES, Page::clone);
    println!("{counts:?}");
    assert_eq!(counts.full_reports, 0);
    assert!(counts.store_written_bytes > 4 * CLUSTERS * CLUSTER_BYTES, "hardly used: {counts:?}");
    // Half as much room: the program does not fit, and is told so.
    let half = CLUSTERS / 2 * CLUSTER_BYTES;
    let design = Design::new(&Settings::of(DesignId::Default), BUDGET_BYTES);
    let mut driver = Driver::<Codecs>::new(&design, BUDGET_BYTES, half);
    (0..PAGES).for_each(|page| driver.write(page, content(page, 512)));
    assert!(driver.counts.full_reports > 0);
    (0..PAGES).for_each(|page| assert!(driver.read(page).0 == content(page, 512).0, "page {page}"));
}
