//! A search for room: blocks leave for the store, round by round, as long as the pool has less and less.
//!
//! Source: the pager's own bound. A full store takes back what is alive in a cluster before it takes anything
//! else, and all that may come of it is that the pool has again what it had.
//!
//! What counts is the blocks' bytes and not the pool's RAM: of that there may be as much for a long time, as
//! blocks leave slabs in which others stay.
//!
//! Invariant: a search ends after [`GAINLESS_MAX`] rounds of which less than a page was gained.
//!
//! Bad case: a full store with a little room in each of many clusters; what they have is not all found.

use zpager_codec::PAGE_BYTES;

/// Rounds in a row of which nothing is gained.
const GAINLESS_MAX: u32 = 64;

/// What has come of it so far.
#[derive(Debug)]
pub(super) struct Search {
    least_bytes: usize,
    gainless: u32,
}

impl Search {
    /// Before the first round.
    pub(super) const NEW: Search = Search { least_bytes: usize::MAX, gainless: 0 };

    /// Whether a round may give something, as the pool has so much before it.
    pub(super) fn goes_on(&mut self, payload_bytes: usize) -> bool {
        if payload_bytes + PAGE_BYTES <= self.least_bytes {
            *self = Search { least_bytes: payload_bytes, gainless: 0 };
        } else {
            self.gainless += 1;
        }
        self.gainless <= GAINLESS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn it_ends_after_so_many_rounds_for_nothing() {
        let mut search = Search::NEW;
        // What comes back goes again, and is now and then a little less.
        let bytes = |round: usize| if round.is_multiple_of(2) { MIB - round } else { MIB + 4096 };
        let rounds = (0..1000).take_while(|round| search.goes_on(bytes(*round))).count();
        assert_eq!(rounds, 1 + GAINLESS_MAX as usize);
    }

    #[test]
    fn it_goes_on_as_long_as_there_is_a_page_to_be_had() {
        let mut search = Search::NEW;
        let mut rounds = (0..MIB).rev().step_by(PAGE_BYTES / 32);
        assert!(rounds.all(|payload_bytes| search.goes_on(payload_bytes)));
    }
}
