//! WKdm: the dictionary is direct-mapped, a word can be in one place only (see `wk`).
//!
//! castro's second codec. Fast to maintain; bad where two frequent words share a place and drive each other out.

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
