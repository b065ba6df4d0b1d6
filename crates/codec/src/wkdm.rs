//! WKdm: the dictionary is direct-mapped, a word can be in one place only (see `wk`).
//!
//! castro's second codec. Fast to maintain; bad where two frequent words share a place and drive each other out.

#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
use crate::wk::vector::{self, Steps, Vector, Words, hash_all};
use crate::wk::{Dictionary, ENTRIES, Wk, hash, similar};

pub(crate) type Wkdm = Wk<DirectMapped>;

pub(crate) struct DirectMapped([u32; ENTRIES]);

/// The only place for `word`.
const fn place(word: u32) -> usize {
    hash(word, ENTRIES.ilog2())
}

impl Dictionary for DirectMapped {
    fn new() -> Self {
        Self([0; ENTRIES])
    }

    fn find(&self, word: u32) -> Option<usize> {
        let place = place(word);
        similar(self.0[place], word).then_some(place)
    }

    fn get(&self, place: usize) -> u32 {
        self.0[place]
    }

    fn meet(&mut self, place: usize, word: u32) {
        self.0[place] = word;
    }

    fn insert(&mut self, word: u32) {
        self.0[place(word)] = word;
    }
}

#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
impl vector::Dictionary for DirectMapped {
    #[inline(always)]
    unsafe fn find<V: Vector>(words: &Words, count: usize, places: &mut Words, found: &mut Words) {
        // SAFETY: the caller vouches for the instructions.
        unsafe { hash_all::<V, { ENTRIES.ilog2() }>(words, count, places) };
        let mut entries = [0; ENTRIES];
        for i in 0..count {
            let entry = &mut entries[places.0[i] as usize % ENTRIES];
            found.0[i] = core::mem::replace(entry, words.0[i]);
        }
    }

    #[inline(always)]
    unsafe fn places_of_missed<V: Vector>(words: V) -> V {
        // SAFETY: the caller vouches for the instructions.
        unsafe { words.hash::<{ ENTRIES.ilog2() }>() }
    }

    #[inline(always)]
    unsafe fn restore<V: Vector>(steps: &Steps, count: usize, words: &mut Words) {
        let mut entries = [0; ENTRIES];
        for i in 0..count {
            let entry = &mut entries[steps.places.0[i] as usize % ENTRIES];
            *entry = *entry & !steps.clears.0[i] | steps.bits.0[i];
            words.0[i] = *entry;
        }
    }
}
