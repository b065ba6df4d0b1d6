//! What a compaction will do: how many cells will have how much free space, by best fit.
//!
//! Cells of equal free space are alike, so that counts of them are enough. The owner of the
//! handles moves the objects in an order of its own, so that the plan can fail in part; what then
//! has no room elsewhere stays where it is.
//!
//! Bad for: many objects of many lengths, each of which looks at one count for each grain of a
//! cell.

use super::slots::{Place, SLOTS_MAX};
use crate::words::{Words, ram_bytes};
use crate::{Space, SpaceSource};

/// Cells by free space, as they will be.
#[derive(Debug)]
pub(super) struct Plan<S> {
    /// One word for each number of grains.
    cells: Words<S>,
    grains_max: usize,
}

impl<S: Space> Plan<S> {
    /// For cells that offer 0 to `grains_max` grains.
    pub(super) fn reserve<Source: SpaceSource<Space = S>>(
        source: &Source,
        grains_max: usize,
    ) -> Option<Self> {
        Some(Self { cells: Words::reserve(source, grains_max + 1)?, grains_max })
    }

    /// Forgets all cells.
    pub(super) fn clear(&mut self) {
        for free in 0..=self.grains_max {
            self.cells.set(free, 0);
        }
    }

    /// Counts a cell in that offers so many grains.
    pub(super) fn count(&mut self, free: usize) {
        self.cells.set(free, self.cells.get(free) + 1);
    }

    /// Plans to move the objects of a cell that offers so much to others. `false`: the others have
    /// no room for them, and nothing more is planned.
    pub(super) fn evacuate(
        &mut self,
        own_free: usize,
        places: impl Iterator<Item = Place>,
    ) -> bool {
        if self.cells.get(own_free) == 0 {
            return false;
        }
        self.change(own_free, 0);
        let mut moves = [(0, 0); SLOTS_MAX];
        for (planned, place) in places.enumerate() {
            let mut fits = place.grains..=self.grains_max;
            let Some(free) = fits.find(|&free| self.cells.get(free) > 0) else {
                for &(before, after) in moves[..planned].iter().rev() {
                    self.change(after, before);
                }
                self.change(0, own_free);
                return false;
            };
            moves[planned] = (free, free - place.grains);
            self.change(free, free - place.grains);
        }
        true
    }

    /// Counts one cell out that offers so much, and in with what it will offer.
    fn change(&mut self, before: usize, after: usize) {
        self.cells.set(before, self.cells.get(before) - 1);
        self.count(after);
    }

    /// RAM touched once a compaction was planned, in bytes.
    pub(super) fn metadata_bytes(&self) -> usize {
        ram_bytes(self.grains_max + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Heap;

    fn plan(offered: &[usize]) -> Plan<crate::HeapSpace> {
        let mut plan = Plan::reserve(&Heap, 512).unwrap();
        offered.iter().for_each(|&free| plan.count(free));
        plan
    }

    fn places(grains: &[usize]) -> impl Iterator<Item = Place> {
        grains.iter().map(|&grains| Place { start: 0, grains })
    }

    #[test]
    fn room_is_used_once() {
        let mut plan = plan(&[400, 60, 60, 50]);
        assert!(plan.evacuate(400, places(&[60, 50])));
        // The tightest fits were taken: 60 and 0 are left, and a cell has itself for no target.
        assert!(!plan.evacuate(60, places(&[60])));
        assert!(!plan.evacuate(50, places(&[1])));
    }

    #[test]
    fn a_plan_that_fails_is_taken_back() {
        let mut plan = plan(&[400, 100, 90]);
        assert!(!plan.evacuate(400, places(&[80, 70, 40])));
        assert!(plan.evacuate(400, places(&[90, 100])));
    }
}
