//! The WK codecs in passes, most of them over vectors of 32-bit words.
//!
//! Zero words are taken out first: what remains is looked up in the dictionary one word after the other, as each sees
//! what the one before has left, without a branch that depends on the data. Everything before and after, hashing,
//! comparing and sorting words into streams, is done a vector at a time. Decompression goes the same way back.
//!
//! Invariant: vectors are loaded and stored in whole, so every array here has a vector's room behind its contents.
//!
//! Bad where all words fall on one place of the dictionary: each then waits for the store of the one before.

use super::*;
use crate::lanes::LANES;

/// Words of the widest vector.
const VECTOR_WORDS: usize = LANES / 4;
/// Blocks of words of which 64-bit masks tell something.
const BLOCKS: usize = WORDS / 64;
/// The lower bit of each tag.
const LOW_TAG_BITS: u64 = 0x5555_5555_5555_5555;
/// The lower half of each byte.
const NIBBLES: u64 = 0x0f0f_0f0f_0f0f_0f0f;
/// The low bits of three words in sixteen bits each.
const LOWS: u64 = 0x03ff_03ff_03ff;

/// A vector of 32-bit words, up to sixteen.
///
/// A mask has one bit a word, the lowest for the first. Every function is unsafe for the same reason: the processor must
/// have the instructions of the implementation. Pointers are valid for a vector's elements and need no alignment.
pub(crate) trait Vector: Copy {
    /// How many words.
    const WORDS: usize;

    /// Words from memory.
    unsafe fn load(from: *const u32) -> Self;

    /// Words to memory.
    unsafe fn store(self, to: *mut u32);

    /// The words of `mask`, zero elsewhere.
    unsafe fn keep(self, mask: u32) -> Self;

    /// `word` where `mask` is set, zero elsewhere.
    unsafe fn fill(mask: u32, word: u32) -> Self;

    /// Both, bit by bit.
    unsafe fn or(self, other: Self) -> Self;

    /// The words that equal those of `other`.
    unsafe fn equal(self, other: Self) -> u32;

    /// The words that are like those of `other` in their upper bits.
    unsafe fn similar(self, other: Self) -> u32;

    /// As [`hash`], of `BITS` bits, of which there are no more than four.
    unsafe fn hash<const BITS: u32>(self) -> Self;

    /// Four times each word, and three.
    unsafe fn last_of_four(self) -> Self;

    /// Writes the words of `mask` without gaps.
    unsafe fn pack(self, mask: u32, to: *mut u32);

    /// Writes the low bits of the words of `mask` without gaps.
    unsafe fn pack_lows(self, mask: u32, to: *mut u16);

    /// Writes the words of `mask`, all below 256, without gaps. `to` is valid for sixteen bytes.
    unsafe fn pack_bytes(self, mask: u32, to: *mut u8);

    /// The next words where `mask` is set, zero elsewhere.
    unsafe fn unpack(from: *const u32, mask: u32) -> Self;

    /// The same from numbers of sixteen bits.
    unsafe fn unpack_lows(from: *const u16, mask: u32) -> Self;

    /// The same from bytes, of which sixteen are there.
    unsafe fn unpack_bytes(from: *const u8, mask: u32) -> Self;

    /// The bits of `mask`, without gaps.
    unsafe fn extract(bits: u64, mask: u64) -> u64;

    /// The lowest bits to where `mask` is set.
    unsafe fn deposit(bits: u64, mask: u64) -> u64;

    /// Looks each of the first `count` words up in its set and moves it to the front there. `places` has the set of each
    /// and gets the place: of the first word of the set that is similar, or the last if none is. `found` gets what was
    /// there.
    unsafe fn meet_all(words: &Words, count: usize, places: &mut Words, found: &mut Words);

    /// Carries out the first `count` steps on sets, moving each word to the front of its set.
    unsafe fn restore_all(steps: &Steps, count: usize, words: &mut Words);
}

/// How recent words are kept; every function leaves and finds the same as [`super::Dictionary`] does.
pub(crate) trait Dictionary {
    /// The level that compresses fastest, among those that the processor has.
    const COMPRESSES_BEST_AT: Level = Level::Avx512;

    /// For the first `count` words, none of them zero: the place that each is compared with and what was there.
    ///
    /// # Safety
    /// The processor has the instructions of `V`.
    unsafe fn find<V: Vector>(words: &Words, count: usize, places: &mut Words, found: &mut Words);

    /// The place that a missed word takes, before the others of its set are moved.
    ///
    /// # Safety
    /// The processor has the instructions of `V`.
    unsafe fn places_of_missed<V: Vector>(words: V) -> V;

    /// Carries out the first `count` steps.
    ///
    /// # Safety
    /// The processor has the instructions of `V`. All places are below [`ENTRIES`].
    unsafe fn restore<V: Vector>(steps: &Steps, count: usize, words: &mut Words);
}

/// Orders the bytes of four words so that the word at each place comes first, the others staying in turn.
pub(super) static TO_FRONT: [[u8; 16]; 4] = [
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    [4, 5, 6, 7, 0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15],
    [8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 6, 7, 12, 13, 14, 15],
    [12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
];

/// Words, with room for a vector behind them.
#[repr(C, align(64))]
pub(crate) struct Words(pub(crate) [u32; WORDS + VECTOR_WORDS]);

/// How each word comes out of the dictionary: the word at `places` with `clears` cleared and `bits` set.
#[repr(C)]
pub(crate) struct Steps {
    pub(crate) places: Words,
    pub(crate) clears: Words,
    pub(crate) bits: Words,
}

/// The hash of each of the first `count` words.
///
/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
pub(crate) unsafe fn hash_all<V: Vector, const BITS: u32>(
    words: &Words,
    count: usize,
    hashes: &mut Words,
) {
    for at in (0..count).step_by(V::WORDS) {
        // SAFETY: the caller vouches for the instructions; there is a vector's room behind all words.
        unsafe {
            let words = V::load(words.0.as_ptr().add(at));
            words.hash::<BITS>().store(hashes.0.as_mut_ptr().add(at));
        }
    }
}

/// Working memory of both directions.
#[repr(C)]
pub(super) struct Scratch {
    /// The words that are not zero.
    words: Words,
    /// The compressor keeps in `clears` the words it found, and in `bits` those it missed.
    steps: Steps,
    lows: [u16; WORDS + LANES],
    place_bytes: [u8; WORDS + LANES],
}

/// Bits in a row.
struct Bits {
    blocks: [u64; BLOCKS + 1],
    at: usize,
}

impl Bits {
    const fn new() -> Self {
        Self { blocks: [0; BLOCKS + 1], at: 0 }
    }

    /// Appends the lowest `count` of `bits`, the others being zero.
    #[inline(always)]
    fn push(&mut self, bits: u64, count: usize) {
        let (block, within) = (self.at / 64, self.at % 64);
        self.blocks[block] |= bits << within;
        self.blocks[block + 1] |= bits >> 1 >> (63 - within);
        self.at += count;
    }

    /// The next bits, of which `count` are wanted and the others whatever follows.
    #[inline(always)]
    fn next(&mut self, count: usize) -> u64 {
        let (block, within) = (self.at / 64, self.at % 64);
        self.at += count;
        self.blocks[block] >> within | self.blocks[block + 1] << 1 << (63 - within)
    }
}

/// How many entries each stream has.
#[derive(Default)]
struct Lengths {
    places: usize,
    lows: usize,
    missed: usize,
}

/// Compresses `page` into `out`.
///
/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
pub(super) unsafe fn compress<V: Vector, D: Dictionary>(
    page: &Page,
    out: &mut [u8],
    scratch: &mut Scratch,
) -> Option<usize> {
    // SAFETY: the caller vouches for the instructions; so in all calls below.
    unsafe {
        let (nonzero, count) = take_out_zeros::<V>(page, &mut scratch.words);
        D::find::<V>(&scratch.words, count, &mut scratch.steps.places, &mut scratch.steps.clears);
        let (mut hits, mut full) = (Bits::new(), Bits::new());
        let lengths = sort::<V>(scratch, count, &mut hits, &mut full);
        let place_bytes = lengths.places.div_ceil(2);
        let low_bytes = 4 * lengths.lows.div_ceil(LOWS_IN_FOUR_BYTES);
        let length = TAG_BYTES + place_bytes + low_bytes + 4 * lengths.missed;
        let (tags, rest) = out.get_mut(..length)?.split_at_mut(TAG_BYTES);
        let (places, rest) = rest.split_at_mut(place_bytes);
        let (lows, missed) = rest.split_at_mut(low_bytes);
        write_tags::<V>(&nonzero, hits, full, tags);
        scratch.place_bytes[lengths.places] = 0;
        pack_places::<V>(&scratch.place_bytes, places);
        scratch.lows[lengths.lows..][..2].fill(0);
        pack_lows::<V>(&scratch.lows, lows);
        let words = scratch.steps.bits.0[..lengths.missed].iter();
        words.zip(missed.as_chunks_mut().0).for_each(|(word, to)| *to = word.to_le_bytes());
        Some(length)
    }
}

/// The words that are not zero, without gaps; which they are, and how many.
#[inline(always)]
unsafe fn take_out_zeros<V: Vector>(page: &Page, words: &mut Words) -> ([u64; BLOCKS], usize) {
    let mut nonzero = [0; BLOCKS];
    let mut count = 0;
    for (i, block) in nonzero.iter_mut().enumerate() {
        for within in (0..64).step_by(V::WORDS) {
            // SAFETY: the caller vouches for the instructions. The vector lies inside the page, and at least as many
            // words were read as were kept.
            unsafe {
                let vector = V::load(page.0.as_ptr().cast::<u32>().add(64 * i + within));
                let mask = !vector.equal(V::fill(0, 0)) & all::<V>(V::WORDS);
                vector.pack(mask, words.0.as_mut_ptr().add(count));
                *block |= u64::from(mask) << within;
                count += mask.count_ones() as usize;
            }
        }
    }
    (nonzero, count)
}

/// The first `count` words of a vector, or all that it has.
#[inline(always)]
fn all<V: Vector>(count: usize) -> u32 {
    ((1u64 << count.min(V::WORDS)) - 1) as u32
}

/// Sorts words into streams, by what was found for each.
#[inline(always)]
unsafe fn sort<V: Vector>(
    scratch: &mut Scratch,
    count: usize,
    hits: &mut Bits,
    full: &mut Bits,
) -> Lengths {
    let mut lengths = Lengths::default();
    for at in (0..count).step_by(V::WORDS) {
        // SAFETY: the caller vouches for the instructions. Each stream has at most as many entries as words were read.
        unsafe {
            let words = V::load(scratch.words.0.as_ptr().add(at));
            let places = V::load(scratch.steps.places.0.as_ptr().add(at));
            let found = V::load(scratch.steps.clears.0.as_ptr().add(at));
            let valid = all::<V>(count - at);
            let similar = words.similar(found) & valid;
            let exact = words.equal(found) & valid;
            let (partial, missed) = (similar & !exact, valid & !similar);
            places.pack_bytes(similar, scratch.place_bytes.as_mut_ptr().add(lengths.places));
            words.pack_lows(partial, scratch.lows.as_mut_ptr().add(lengths.lows));
            words.pack(missed, scratch.steps.bits.0.as_mut_ptr().add(lengths.missed));
            lengths.places += similar.count_ones() as usize;
            lengths.lows += partial.count_ones() as usize;
            lengths.missed += missed.count_ones() as usize;
            hits.push(u64::from(similar), V::WORDS);
            full.push(u64::from(exact | missed), V::WORDS);
        }
    }
    (hits.at, full.at) = (0, 0);
    lengths
}

#[inline(always)]
unsafe fn write_tags<V: Vector>(
    nonzero: &[u64; BLOCKS],
    mut hits: Bits,
    mut full: Bits,
    tags: &mut [u8],
) {
    for (block, tags) in nonzero.iter().zip(tags.as_chunks_mut::<8>().0.as_chunks_mut::<2>().0) {
        let count = block.count_ones() as usize;
        // SAFETY: the caller vouches for the instructions.
        unsafe {
            let low = V::deposit(hits.next(count), *block);
            let high = V::deposit(full.next(count), *block);
            for (half, tags) in tags.iter_mut().enumerate() {
                let low = V::deposit(low >> (32 * half), LOW_TAG_BITS);
                let high = V::deposit(high >> (32 * half), !LOW_TAG_BITS);
                *tags = (low | high).to_le_bytes();
            }
        }
    }
}

#[inline(always)]
unsafe fn pack_places<V: Vector>(places: &[u8], out: &mut [u8]) {
    for (eight, out) in places.as_chunks::<8>().0.iter().zip(out.chunks_mut(4)) {
        // SAFETY: the caller vouches for the instructions.
        let packed = unsafe { V::extract(u64::from_le_bytes(*eight), NIBBLES) } as u32;
        if let Some(out) = out.first_chunk_mut() {
            *out = packed.to_le_bytes();
        } else {
            out.copy_from_slice(&packed.to_le_bytes()[..out.len()]);
        }
    }
}

#[inline(always)]
unsafe fn pack_lows<V: Vector>(lows: &[u16], out: &mut [u8]) {
    let threes = lows.as_chunks::<LOWS_IN_FOUR_BYTES>().0;
    for ([a, b, c], out) in threes.iter().zip(out.as_chunks_mut().0) {
        let packed = u32::from(*a) | u32::from(*b) << LOW_BITS | u32::from(*c) << (2 * LOW_BITS);
        *out = packed.to_le_bytes();
    }
}

/// Fills `page` from `parts`.
///
/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
pub(super) unsafe fn decompress<V: Vector, D: Dictionary>(
    parts: &Parts<'_>,
    page: &mut Page,
    scratch: &mut Scratch,
) {
    let (mut hits, mut full) = (Bits::new(), Bits::new());
    // SAFETY: the caller vouches for the instructions; so in all calls below.
    unsafe {
        let nonzero = read_tags::<V>(parts.tags, &mut hits, &mut full);
        let count = hits.at;
        unpack_places::<V>(parts.places, &mut scratch.place_bytes);
        unpack_lows::<V>(parts.lows, &mut scratch.lows);
        plan::<V, D>(parts.missed, count, hits, full, scratch);
        D::restore::<V>(&scratch.steps, count, &mut scratch.words);
        put_in_zeros::<V>(&nonzero, &scratch.words, page);
    }
}

/// Which words are not zero, and of these which were found and which have nothing in `lows`.
#[inline(always)]
unsafe fn read_tags<V: Vector>(
    tags: &[u8; TAG_BYTES],
    hits: &mut Bits,
    full: &mut Bits,
) -> [u64; BLOCKS] {
    let mut nonzero = [0; BLOCKS];
    for (block, tags) in nonzero.iter_mut().zip(tags.as_chunks::<8>().0.as_chunks::<2>().0) {
        // SAFETY: the caller vouches for the instructions.
        unsafe {
            let plane = |mask| {
                let [first, second] = tags.map(|tags| V::extract(u64::from_le_bytes(tags), mask));
                first | second << 32
            };
            let (low, high) = (plane(LOW_TAG_BITS), plane(!LOW_TAG_BITS));
            *block = low | high;
            let count = block.count_ones() as usize;
            hits.push(V::extract(low, *block), count);
            full.push(V::extract(high, *block), count);
        }
    }
    nonzero
}

#[inline(always)]
unsafe fn unpack_places<V: Vector>(packed: &[u8], places: &mut [u8; WORDS + LANES]) {
    for (packed, places) in packed.chunks(4).zip(places.as_chunks_mut().0) {
        let packed = packed.first_chunk().copied().unwrap_or_else(|| {
            let mut bytes = [0; 4];
            bytes[..packed.len()].copy_from_slice(packed);
            bytes
        });
        // SAFETY: the caller vouches for the instructions.
        *places =
            unsafe { V::deposit(u64::from(u32::from_le_bytes(packed)), NIBBLES) }.to_le_bytes();
    }
}

#[inline(always)]
unsafe fn unpack_lows<V: Vector>(packed: &[[u8; 4]], lows: &mut [u16; WORDS + LANES]) {
    for (i, packed) in packed.iter().enumerate() {
        // SAFETY: the caller vouches for the instructions. There are three lows for four bytes, and room behind them.
        unsafe {
            let three = V::deposit(u64::from(u32::from_le_bytes(*packed)), LOWS);
            lows.as_mut_ptr().add(LOWS_IN_FOUR_BYTES * i).cast::<u64>().write_unaligned(three);
        }
    }
}

/// For each word that is not zero, what the dictionary has to do.
#[inline(always)]
unsafe fn plan<V: Vector, D: Dictionary>(
    missed_words: &[[u8; 4]],
    count: usize,
    mut hits: Bits,
    mut full: Bits,
    scratch: &mut Scratch,
) {
    (hits.at, full.at) = (0, 0);
    let mut lengths = Lengths::default();
    for at in (0..count).step_by(V::WORDS) {
        let valid = all::<V>(count - at);
        let hit = hits.next(V::WORDS) as u32 & valid;
        let full = full.next(V::WORDS) as u32 & valid;
        let (partial, missed) = (hit & !full, valid & !hit);
        // SAFETY: the caller vouches for the instructions. The tags say how long each stream is, and as many entries
        // are taken.
        unsafe {
            let rest = missed_words.get_unchecked(lengths.missed..);
            let words = unpack_missed::<V>(rest, missed);
            let lows = V::unpack_lows(scratch.lows.as_ptr().add(lengths.lows), partial);
            let places = V::unpack_bytes(scratch.place_bytes.as_ptr().add(lengths.places), hit);
            let clears = V::fill(missed, u32::MAX).or(V::fill(partial, LOW_MASK));
            let elsewhere = V::keep(D::places_of_missed(words), missed);
            places.or(elsewhere).store(scratch.steps.places.0.as_mut_ptr().add(at));
            clears.store(scratch.steps.clears.0.as_mut_ptr().add(at));
            words.or(lows).store(scratch.steps.bits.0.as_mut_ptr().add(at));
        }
        lengths.places += hit.count_ones() as usize;
        lengths.lows += partial.count_ones() as usize;
        lengths.missed += missed.count_ones() as usize;
    }
}

/// The next missed words where `mask` is set.
#[inline(always)]
unsafe fn unpack_missed<V: Vector>(rest: &[[u8; 4]], mask: u32) -> V {
    // SAFETY: the caller vouches for the instructions; a whole vector is there.
    unsafe {
        if rest.len() >= V::WORDS {
            return V::unpack(rest.as_ptr().cast(), mask);
        }
        let mut words = [[0; 4]; VECTOR_WORDS];
        words[..rest.len()].copy_from_slice(rest);
        V::unpack(words.as_ptr().cast(), mask)
    }
}

/// Writes `words` where `nonzero` is set, and zeros elsewhere.
#[inline(always)]
unsafe fn put_in_zeros<V: Vector>(nonzero: &[u64; BLOCKS], words: &Words, page: &mut Page) {
    let mut count = 0;
    for (i, block) in nonzero.iter().enumerate() {
        for within in (0..64).step_by(V::WORDS) {
            let mask = (block >> within) as u32 & all::<V>(V::WORDS);
            // SAFETY: the caller vouches for the instructions. The vector lies inside the page; there are as many words
            // as bits, and room behind them.
            unsafe {
                let vector = V::unpack(words.0.as_ptr().add(count), mask);
                vector.store(page.0.as_mut_ptr().cast::<u32>().add(64 * i + within));
            }
            count += mask.count_ones() as usize;
        }
    }
}
