//! The WK codecs a word at a time: the description in Rust, for every target, and the reference for the other version.
//!
//! Bad where branches are foreseen badly: each word's tag is one.

use super::*;
use crate::output::Output;

/// How recent words are kept. Encoder and decoder do the same to it in the same order.
pub(crate) trait Dictionary {
    /// All zero.
    fn new() -> Self;

    /// Where a word with the same upper bits is, if there is one.
    fn find(&self, word: u32) -> Option<usize>;

    /// The word at a place below [`ENTRIES`].
    fn get(&self, place: usize) -> u32;

    /// The word at `place` was met again, as `word`, which has the same upper bits.
    fn meet(&mut self, place: usize, word: u32);

    /// A word was met that is not there.
    fn insert(&mut self, word: u32);
}

/// The streams before they are packed.
pub(super) struct Streams {
    tags: [u8; TAG_BYTES],
    places: Stream<u8>,
    lows: Stream<u16>,
    missed: Stream<u32>,
}

struct Stream<T> {
    entries: [T; WORDS],
    length: usize,
}

impl<T: Copy> Stream<T> {
    fn push(&mut self, entry: T) {
        self.entries[self.length] = entry;
        self.length += 1;
    }

    fn get(&self) -> &[T] {
        &self.entries[..self.length]
    }
}

/// Compresses `page` into `out`.
pub(super) fn compress<D: Dictionary>(
    page: &Page,
    out: &mut [u8],
    streams: &mut Streams,
) -> Option<usize> {
    split::<D>(page, streams);
    let (places, lows, missed) = (streams.places.get(), streams.lows.get(), streams.missed.get());
    let mut out = Output { bytes: out, length: 0 };
    out.push(&streams.tags)?;
    for pair in places.chunks(2) {
        out.push(&[pair[0] | pair.get(1).unwrap_or(&0) << 4])?;
    }
    for lows in lows.chunks(LOWS_IN_FOUR_BYTES) {
        let packed = lows.iter().rev().fold(0, |bits, low| bits << LOW_BITS | u32::from(*low));
        out.push(&packed.to_le_bytes())?;
    }
    for word in missed {
        out.push(&word.to_le_bytes())?;
    }
    Some(out.length)
}

/// Fills `page` from `parts`.
pub(super) fn decompress<D: Dictionary>(parts: &Parts<'_>, page: &mut Page) -> Result<(), Corrupt> {
    let mut streams = Packed { places: parts.places, place: 0, lows: parts.lows, low: 0 };
    let mut missed = parts.missed.iter();
    let mut dictionary = D::new();
    let words = page.0.as_chunks_mut::<4>().0;
    for (tags, words) in parts.tags.iter().zip(words.as_chunks_mut::<4>().0) {
        for (i, target) in words.iter_mut().enumerate() {
            *target = match tags >> (2 * i) & 3 {
                ZERO => [0; 4],
                MISSED => {
                    let bytes = *missed.next().ok_or(Corrupt)?;
                    dictionary.insert(u32::from_le_bytes(bytes));
                    bytes
                }
                tag => {
                    let place = streams.next_place().ok_or(Corrupt)?;
                    let mut word = dictionary.get(place);
                    if tag == PARTIAL {
                        word = word & !LOW_MASK | streams.next_low().ok_or(Corrupt)?;
                    }
                    dictionary.meet(place, word);
                    word.to_le_bytes()
                }
            };
        }
    }
    Ok(())
}

/// The two packed streams as they are read.
struct Packed<'a> {
    places: &'a [u8],
    /// Places read.
    place: usize,
    lows: &'a [[u8; 4]],
    /// Low bits read.
    low: usize,
}

impl Packed<'_> {
    fn next_place(&mut self) -> Option<usize> {
        let pair = self.places.get(self.place / 2)?;
        let place = pair >> (4 * (self.place % 2)) & 0xf;
        self.place += 1;
        Some(usize::from(place))
    }

    fn next_low(&mut self) -> Option<u32> {
        let bits = u32::from_le_bytes(*self.lows.get(self.low / LOWS_IN_FOUR_BYTES)?);
        let low = bits >> (LOW_BITS * (self.low % LOWS_IN_FOUR_BYTES) as u32) & LOW_MASK;
        self.low += 1;
        Some(low)
    }
}

/// Sorts the words of `page` into streams.
fn split<D: Dictionary>(page: &Page, streams: &mut Streams) {
    streams.tags.fill(0);
    (streams.places.length, streams.lows.length, streams.missed.length) = (0, 0, 0);
    let mut dictionary = D::new();
    for (i, bytes) in page.0.as_chunks().0.iter().enumerate() {
        let word = u32::from_le_bytes(*bytes);
        let tag = if word == 0 {
            ZERO
        } else if let Some(place) = dictionary.find(word) {
            let exact = dictionary.get(place) == word;
            streams.places.push(place as u8);
            if !exact {
                streams.lows.push((word & LOW_MASK) as u16);
            }
            dictionary.meet(place, word);
            if exact { EXACT } else { PARTIAL }
        } else {
            streams.missed.push(word);
            dictionary.insert(word);
            MISSED
        };
        streams.tags[i / 4] |= tag << (2 * (i % 4));
    }
}
