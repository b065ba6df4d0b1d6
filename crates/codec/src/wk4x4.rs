//! WK4x4: the dictionary is four sets of four words, in each set the least recently met is replaced (see `wk`).
//!
//! hp's codec. A few per cent fewer bytes than WKdm; bad where time counts more than they do.

use crate::wk::{Dictionary, ENTRIES, Wk, hash, similar};

pub(crate) type Wk4x4 = Wk<SetAssociative>;

const WAYS: usize = 4;
const SETS: usize = ENTRIES / WAYS;

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
