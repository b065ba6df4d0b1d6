//! Pages of which every word is equal: they take no codec and no pool, the index alone keeps them (zswap).
//!
//! Most pages differ within their first words, and pages that begin with a run of zeros differ at the end more often
//! than in the middle; both ends are looked at before the loop. Bad on a page whose only different word is in the
//! middle, which costs half a pass.

use crate::{Page, WORDS};

/// Words compared at once: a whole number of vector registers, so that the comparison has one branch a block.
const BLOCK_WORDS: usize = 32;

/// The word that fills `page`, if all its words are equal.
#[inline]
pub fn same_filled(page: &Page) -> Option<u64> {
    let words = page.words();
    let first = words[0];
    if words[WORDS - 1] != first || words[1] != first || words[WORDS / 2] != first {
        return None;
    }
    let (blocks, _) = words.as_chunks::<BLOCK_WORDS>();
    let equals_first =
        |block: &[u64; BLOCK_WORDS]| block.iter().fold(0, |bits, word| bits | (word ^ first)) == 0;
    blocks.iter().all(equals_first).then_some(first)
}
