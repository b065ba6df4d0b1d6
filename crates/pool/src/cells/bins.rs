//! Cells by the room that they offer, so that the tightest fit is found in few steps.
//!
//! One list for each number of grains, and one bit for each list that is not empty.
//!
//! Invariant: a cell that offers grains stands in the list of just so many; one that offers none
//! stands in no list, and its links are free for others.

use super::{CELL_PAGES_MAX, PAGE_GRAINS};
use crate::lists::{Links, List};
use crate::words::{Words, ram_bytes};
use crate::{Space, SpaceSource};

/// Words of bits for 0 to the grains of the longest cell.
const BIT_WORDS: usize = CELL_PAGES_MAX * PAGE_GRAINS / 64 + 1;

/// Lists of cells by grains.
#[derive(Debug)]
pub(super) struct Bins<S> {
    links: Links<S>,
    /// One half of a word for each list.
    lists: Words<S>,
    grains_max: usize,
    occupied: [u64; BIT_WORDS],
}

impl<S: Space> Bins<S> {
    /// For `cells` that offer 0 to `grains_max` grains, and as yet none.
    pub(super) fn reserve<Source: SpaceSource<Space = S>>(
        source: &Source,
        cells: usize,
        grains_max: usize,
    ) -> Option<Self> {
        Some(Self {
            links: Links::reserve(source, cells)?,
            lists: Words::reserve(source, grains_max / 2 + 1)?,
            grains_max,
            occupied: [0; BIT_WORDS],
        })
    }

    /// Notes that a cell that offered `before` grains offers `after` from now on.
    pub(super) fn change(&mut self, cell: usize, before: usize, after: usize) {
        if before == after {
            return;
        }
        if before > 0 {
            let mut list = self.list(before);
            self.links.unlink(&mut list, cell);
            self.set_list(before, list);
        }
        if after > 0 {
            let mut list = self.list(after);
            self.links.push(&mut list, cell);
            self.set_list(after, list);
        }
    }

    /// The cell that offers so many grains, 1 or more, and least beyond.
    pub(super) fn least(&self, grains: usize) -> Option<usize> {
        let mut word = self.occupied.get(grains / 64)? & u64::MAX << (grains % 64);
        for index in grains / 64..BIT_WORDS {
            if word != 0 {
                return self.first(index * 64 + word.trailing_zeros() as usize);
            }
            word = *self.occupied.get(index + 1)?;
        }
        None
    }

    /// The most grains that any cell offers.
    pub(super) fn longest(&self) -> usize {
        let highest = self.occupied.iter().enumerate().rev().find(|(_, word)| **word != 0);
        highest.map_or(0, |(index, word)| index * 64 + word.ilog2() as usize)
    }

    /// The cell that began last to offer just so many grains.
    pub(super) fn first(&self, grains: usize) -> Option<usize> {
        self.list(grains).head()
    }

    /// The links of the cells, in which those that offer nothing may stand in other lists.
    pub(super) fn links(&self) -> &Links<S> {
        &self.links
    }

    pub(super) fn links_mut(&mut self) -> &mut Links<S> {
        &mut self.links
    }

    /// RAM touched when no cell from `touched` on was ever used, in bytes.
    pub(super) fn metadata_bytes(&self, touched: usize) -> usize {
        let list_words = if touched > 0 { self.grains_max / 2 + 1 } else { 0 };
        ram_bytes(touched * Links::<S>::FRAME_WORDS) + ram_bytes(list_words)
    }

    fn list(&self, grains: usize) -> List {
        List::from_raw(self.lists.half(grains))
    }

    fn set_list(&mut self, grains: usize, list: List) {
        self.lists.set_half(grains, list.raw());
        let bit = 1 << (grains % 64);
        match list.head() {
            Some(_) => self.occupied[grains / 64] |= bit,
            None => self.occupied[grains / 64] &= !bit,
        }
    }
}
