//! Every codec on every page: how many bytes are left, and how long it takes.
//!
//! Source: hp, section 4: each page by itself, several times. There the runs were averaged; here
//! the shortest counts, because other programs disturb in one direction alone. A turn goes over
//! all pages before the next begins and codecs take turns, so that a page comes from where it
//! would on its way out of a program and not from the nearest cache, and so do its compressed bytes on
//! the way back; the first turn warms each codec up, and a disturbance hits all alike. What asking for the time costs is measured and
//! taken off. The clock's grain of some nanoseconds is left in the times of `copy`.
//!
//! Invariant: every page that was compressed is restored in every turn and compared.

use std::hint::black_box;
use std::time::Instant;

use zpager_codec::{
    CodecId, PAGE_BYTES, Page, SCRATCH_ALIGN_BYTES, compress, decompress, detect_cpu, scratch_bytes,
};

use crate::failure::Failure;

/// Turns over all pages.
const TURNS: usize = 5;

/// Room for a compressed page of any codec: some pages grow.
const OUT_BYTES: usize = 2 * PAGE_BYTES;

/// A page of which more is left is kept as it is, as `zpager run` does.
pub(super) const WORTH_BYTES: usize = PAGE_BYTES * 15 / 16;

/// How often the cost of asking for the time is measured.
const CLOCK_ROUNDS: usize = 1000;

/// What a codec did to each page; all three are as long as there are pages.
#[derive(Debug)]
pub(super) struct Measured {
    /// The codec.
    pub(super) codec: CodecId,
    /// Bytes that are left of each page; all of them where it is incompressible.
    pub(super) stored_bytes: Vec<usize>,
    /// Shortest time to compress each page.
    pub(super) compress_ns: Vec<u64>,
    /// Shortest time to restore each page.
    pub(super) decompress_ns: Vec<u64>,
}

impl Measured {
    /// Original bytes of each page by what is left of them.
    pub(super) fn ratios(&self) -> impl Iterator<Item = f64> {
        self.stored_bytes.iter().map(|bytes| PAGE_BYTES as f64 / *bytes as f64)
    }
}

/// Has each codec compress and restore all pages.
///
/// # Errors
/// A codec did not restore a page.
pub(super) fn measure(codecs: &[CodecId], pages: &[Page]) -> Result<Vec<Measured>, Failure> {
    detect_cpu();
    let mut clock = Clock::new();
    let mut out = vec![0; pages.len() * OUT_BYTES];
    let mut benches: Vec<Bench> = codecs.iter().map(|id| Bench::new(*id, pages.len())).collect();
    for _ in 0..TURNS {
        for bench in &mut benches {
            bench.compress(pages, &mut out, &mut clock);
            bench.decompress(pages, &out, &mut clock)?;
        }
    }
    Ok(benches.into_iter().map(Bench::finish).collect())
}

/// One codec at work.
struct Bench {
    codec: CodecId,
    scratch: Vec<u8>,
    /// Lengths of the compressed pages of this turn, which lie one behind the other.
    lengths: Vec<Option<usize>>,
    compress_ns: Vec<u64>,
    decompress_ns: Vec<u64>,
}

impl Bench {
    fn new(codec: CodecId, pages: usize) -> Self {
        Bench {
            codec,
            scratch: vec![0; scratch_bytes(codec) + SCRATCH_ALIGN_BYTES],
            lengths: vec![None; pages],
            compress_ns: vec![u64::MAX; pages],
            decompress_ns: vec![u64::MAX; pages],
        }
    }

    fn compress(&mut self, pages: &[Page], mut out: &mut [u8], clock: &mut Clock) {
        let scratch = aligned(&mut self.scratch);
        let mut room = [0; OUT_BYTES];
        let results = self.lengths.iter_mut().zip(&mut self.compress_ns);
        for (page, (length, shortest_ns)) in pages.iter().zip(results) {
            let began = Instant::now();
            *length = black_box(compress(self.codec, black_box(page), &mut room, scratch));
            *shortest_ns = clock.since(began).min(*shortest_ns);
            let (bytes, rest) = out.split_at_mut(length.unwrap_or(0));
            bytes.copy_from_slice(&room[..bytes.len()]);
            out = rest;
        }
    }

    fn decompress(
        &mut self,
        pages: &[Page],
        mut out: &[u8],
        clock: &mut Clock,
    ) -> Result<(), Failure> {
        let scratch = aligned(&mut self.scratch);
        let mut back = Page::ZERO;
        let results = self.lengths.iter().zip(&mut self.decompress_ns);
        for (number, (page, (length, shortest_ns))) in pages.iter().zip(results).enumerate() {
            let (bytes, rest) = out.split_at(length.unwrap_or(0));
            out = rest;
            let began = Instant::now();
            let restored = match length {
                Some(_) => decompress(self.codec, black_box(bytes), &mut back, scratch).is_ok(),
                // Kept as it is: bringing it back is a copy.
                None => {
                    back.0.copy_from_slice(black_box(&page.0));
                    true
                }
            };
            black_box(&mut back);
            *shortest_ns = clock.since(began).min(*shortest_ns);
            if !restored || back.0 != page.0 {
                return Err(not_restored(self.codec, number));
            }
        }
        Ok(())
    }

    fn finish(self) -> Measured {
        let stored = |length: &Option<usize>| match length {
            Some(bytes) if *bytes <= WORTH_BYTES => (*bytes).max(1),
            _ => PAGE_BYTES,
        };
        Measured {
            codec: self.codec,
            stored_bytes: self.lengths.iter().map(stored).collect(),
            compress_ns: self.compress_ns,
            decompress_ns: self.decompress_ns,
        }
    }
}

fn not_restored(codec: CodecId, number: usize) -> Failure {
    Failure::own(format!(
        "{}: page {number} of those drawn came back with other contents: do not use this codec, and \
         report it with the page",
        codec.name()
    ))
}

/// The part of a scratch that a codec may be given.
fn aligned(scratch: &mut [u8]) -> &mut [u8] {
    let start = scratch.as_ptr().align_offset(SCRATCH_ALIGN_BYTES);
    &mut scratch[start..]
}

/// Tells how long something took without what asking for it takes.
struct Clock {
    cost_ns: u64,
}

impl Clock {
    fn new() -> Self {
        let rounds = (0..CLOCK_ROUNDS).map(|_| nanoseconds(Instant::now()));
        Clock { cost_ns: rounds.min().unwrap_or(0) }
    }

    /// Nanoseconds since `began`; at least one, since nothing takes no time.
    fn since(&mut self, began: Instant) -> u64 {
        nanoseconds(began).saturating_sub(self.cost_ns).max(1)
    }
}

fn nanoseconds(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> Page {
        let words = b"pages of text shrink well under every codec but one ";
        let mut page = Page::ZERO;
        page.0.iter_mut().zip(words.iter().cycle()).for_each(|(byte, word)| *byte = *word);
        page
    }

    fn noise() -> Page {
        let mut page = Page::ZERO;
        fastrand::Rng::with_seed(1).fill(&mut page.0);
        page
    }

    #[test]
    fn every_codec_has_a_figure_for_every_page() {
        let pages = [text(), noise(), text()];
        let results = measure(&CodecId::ALL, &pages).expect("restored");
        assert_eq!(results.len(), CodecId::ALL.len());
        for result in results {
            assert_eq!(result.stored_bytes.len(), 3);
            assert_eq!(result.stored_bytes[1], PAGE_BYTES, "{:?} on noise", result.codec);
            assert_eq!(result.stored_bytes[0], result.stored_bytes[2], "{:?}", result.codec);
            assert!(result.compress_ns.iter().chain(&result.decompress_ns).all(|ns| *ns < 1 << 40));
        }
        let lz4 = &measure(&[CodecId::Lz4], &pages).expect("restored")[0];
        assert!(lz4.ratios().next().is_some_and(|ratio| ratio > 10.0), "{lz4:?}");
    }

    #[test]
    fn a_page_that_comes_back_wrong_is_told() {
        let mut clock = Clock::new();
        let mut bench = Bench::new(CodecId::Copy, 1);
        let mut out = vec![0; OUT_BYTES];
        bench.compress(&[text()], &mut out, &mut clock);
        bench.decompress(&[text()], &out, &mut clock).expect("restored");
        out[17] ^= 1;
        let failure = bench.decompress(&[text()], &out, &mut clock).expect_err("another page");
        assert!(failure.message.starts_with("copy: page 0"), "{failure:?}");
    }

    #[test]
    fn nothing_gives_nothing() {
        assert!(measure(&[CodecId::Lz4], &[]).expect("no page")[0].stored_bytes.is_empty());
    }
}
