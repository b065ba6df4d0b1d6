//! What WKdm and WK4x4 share: 32-bit words, a dictionary of sixteen, two-bit tags, and four streams.
//!
//! Source: Wilson, Kaplan and Smaragdakis, "The case for compressed caching in virtual memory systems", USENIX 1999,
//! section 2, written from its description. A word is zero, or equal to a word of the dictionary, or equal to one in its
//! upper 22 bits, or neither; tags, places in the dictionary, low bits and whole words are kept apart and packed.
//!
//! ```text
//! 0    for each word two bits: zero 0, partial 1, missed 2, exact 3, the first word in the lowest bits
//! 256  for each exact and partial word four bits: its place in the dictionary
//!      for each partial word ten bits, three words in four bytes
//!      for each missed word its four bytes
//! ```
//! All numbers are little-endian. There is one version for all processors: each word is looked up in what the one before
//! has left, which leaves vectors nothing to do but the packing of tags, a tenth of the work.
//!
//! Bad on text, on anything that repeats in pieces longer than a word, and on pages of 64-bit pointers, of which every
//! second word is an upper half.

use crate::output::Output;
use crate::{Codec, Corrupt, PAGE_BYTES, Page};

/// Words in a page.
const WORDS: usize = PAGE_BYTES / 4;
/// Bytes of tags, which are always there.
const TAG_BYTES: usize = WORDS / 4;
/// Bits of a word that a partial match gives anew.
const LOW_BITS: u32 = 10;
const LOW_MASK: u32 = (1 << LOW_BITS) - 1;
/// Partial words whose low bits share four bytes.
const LOWS_IN_FOUR_BYTES: usize = 3;

/// Words in the dictionary.
pub(crate) const ENTRIES: usize = 16;

const ZERO: u8 = 0;
const PARTIAL: u8 = 1;
const MISSED: u8 = 2;
const EXACT: u8 = 3;

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

/// Whether two words have the same upper bits.
pub(crate) const fn similar(a: u32, b: u32) -> bool {
    (a ^ b) >> LOW_BITS == 0
}

/// The upper bits hashed to `bits` bits, by Knuth's multiplier.
pub(crate) const fn hash(word: u32, bits: u32) -> usize {
    ((word >> LOW_BITS).wrapping_mul(0x9e37_79b1) >> (u32::BITS - bits)) as usize
}

/// The codec that keeps its words in `D`.
pub(crate) struct Wk<D>(core::marker::PhantomData<D>);

/// The streams before they are packed.
struct Streams {
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

impl<D: Dictionary> Codec for Wk<D> {
    const SCRATCH_BYTES: usize = size_of::<Streams>();

    fn compress(page: &Page, out: &mut [u8], scratch: &mut [u8]) -> Option<usize> {
        // SAFETY: the caller of the trait checked size and alignment, and any bytes are such streams; what a length says
        // is replaced before it is used.
        let streams = unsafe { &mut *scratch.as_mut_ptr().cast::<Streams>() };
        split::<D>(page, streams);
        let (places, lows, missed) =
            (streams.places.get(), streams.lows.get(), streams.missed.get());
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

    fn decompress(data: &[u8], page: &mut Page, _scratch: &mut [u8]) -> Result<(), Corrupt> {
        let (tags, rest) = data.split_first_chunk::<TAG_BYTES>().ok_or(Corrupt)?;
        let counts = count(tags);
        let place_bytes = (counts.partial + counts.exact).div_ceil(2);
        let low_bytes = 4 * counts.partial.div_ceil(LOWS_IN_FOUR_BYTES);
        let (places, rest) = rest.split_at_checked(place_bytes).ok_or(Corrupt)?;
        let (lows, missed) = rest.split_at_checked(low_bytes).ok_or(Corrupt)?;
        if missed.len() != 4 * counts.missed {
            return Err(Corrupt);
        }
        let mut streams = Packed { places, place: 0, lows: lows.as_chunks().0, low: 0 };
        let mut missed = missed.as_chunks().0.iter();
        let mut dictionary = D::new();
        let words = page.0.as_chunks_mut::<4>().0;
        for (tags, words) in tags.iter().zip(words.as_chunks_mut::<4>().0) {
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
}

/// How many words have each tag but zero.
struct Counts {
    partial: usize,
    missed: usize,
    exact: usize,
}

fn count(tags: &[u8; TAG_BYTES]) -> Counts {
    const LOW_TAG_BITS: u64 = 0x5555_5555_5555_5555;
    let mut counts = Counts { partial: 0, missed: 0, exact: 0 };
    for bytes in tags.as_chunks().0 {
        let (low, high) = (u64::from_le_bytes(*bytes), u64::from_le_bytes(*bytes) >> 1);
        counts.partial += (low & !high & LOW_TAG_BITS).count_ones() as usize;
        counts.missed += (!low & high & LOW_TAG_BITS).count_ones() as usize;
        counts.exact += (low & high & LOW_TAG_BITS).count_ones() as usize;
    }
    counts
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
