//! WK4x4: the dictionary is four sets of four words, in each set the least recently met is replaced (see `wk`).
//!
//! hp's codec. A few per cent fewer bytes than WKdm; bad where time counts more than they do.

#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
use crate::cpu::Level;
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
use crate::wk::vector::{self, Steps, Vector, Words, hash_all};
use crate::wk::{Dictionary, SETS, WAYS, Wk, hash, similar};

pub(crate) type Wk4x4 = Wk<SetAssociative>;

/// In each set the word last met comes first.
pub(crate) struct SetAssociative([[u32; WAYS]; SETS]);

/// The only set for `word`.
const fn set(word: u32) -> usize {
    hash(word, SETS.ilog2())
}

impl Dictionary for SetAssociative {
    fn new() -> Self {
        Self([[0; WAYS]; SETS])
    }

    fn find(&self, word: u32) -> Option<usize> {
        let set = set(word);
        let way = self.0[set].iter().position(|entry| similar(*entry, word))?;
        Some(set * WAYS + way)
    }

    fn get(&self, place: usize) -> u32 {
        self.0[place / WAYS][place % WAYS]
    }

    fn meet(&mut self, place: usize, word: u32) {
        let (set, way) = (&mut self.0[place / WAYS], place % WAYS);
        set.copy_within(..way, 1);
        set[0] = word;
    }

    fn insert(&mut self, word: u32) {
        let set = &mut self.0[set(word)];
        set.copy_within(..WAYS - 1, 1);
        set[0] = word;
    }
}

#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
impl vector::Dictionary for SetAssociative {
    // A third to a half of the work goes one word after the other either way, and that part takes longer between vectors
    // of 512 bits.
    const COMPRESSES_BEST_AT: Level = Level::Avx2;

    #[inline(always)]
    unsafe fn find<V: Vector>(words: &Words, count: usize, places: &mut Words, found: &mut Words) {
        // SAFETY: the caller vouches for the instructions.
        unsafe {
            hash_all::<V, { SETS.ilog2() }>(words, count, places);
            V::meet_all(words, count, places, found);
        }
    }

    #[inline(always)]
    unsafe fn places_of_missed<V: Vector>(words: V) -> V {
        // SAFETY: the caller vouches for the instructions.
        unsafe { words.hash::<{ SETS.ilog2() }>().last_of_four() }
    }

    #[inline(always)]
    unsafe fn restore<V: Vector>(steps: &Steps, count: usize, words: &mut Words) {
        // SAFETY: the caller vouches for the instructions.
        unsafe { V::restore_all(steps, count, words) }
    }
}
