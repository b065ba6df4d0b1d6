//! Which resident pages leave: those whose last known use is longest ago.
//!
//! Source: least recently used, as all four published systems have it from their kernels, where
//! it is an approximation too (castro, 2003, 2.3.2).
//!
//! A use is known where it faults: a page that comes back is the youngest. What is used without a
//! fault is seen where every victim gets a [second chance](crate::SecondChance) before it is
//! compressed. Whoever drives this without places for that has the order of
//! [arrival](crate::Arrival).
//!
//! Bad case: a loop over a little more than is resident, as in SOR and FFT: what is wanted next is
//! what was used longest ago.

use crate::arrival::Arrival;
use crate::clock::Residents;

/// The order of last uses.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lru {
    uses: Arrival,
}

impl Lru {
    /// The mark of a page that is used now: wanted by a fault, from its second chance too.
    pub fn mark(&self) -> u16 {
        self.uses.mark()
    }

    /// The time at which a page leaves now, modulo `times`, a power of two.
    pub fn time(&self, times: u8) -> u8 {
        self.uses.time(times)
    }

    /// Whether a page with this mark was used not long ago.
    pub fn came_lately(&self, mark: u16) -> bool {
        self.uses.came_lately(mark)
    }

    /// Chooses pages to leave, in ascending runs, and gives how many were written to `victims`.
    pub fn take(&mut self, residents: &impl Residents, victims: &mut [u64]) -> usize {
        self.uses.take(residents, victims)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::SecondChance;
    use std::collections::BTreeMap;
    use std::vec;

    /// A program whose pages wait in `slots` slots before they are compressed.
    struct Program<'a> {
        lru: Lru,
        residents: BTreeMap<u64, u16>,
        chance: SecondChance<'a>,
        room: usize,
        /// Faults that took the codec.
        restored: usize,
        /// Faults on pages that waited.
        given_back: usize,
    }

    impl Program<'_> {
        fn reference(&mut self, page: u64) {
            if self.residents.contains_key(&page) {
                return;
            }
            match self.chance.take_back(page) {
                Some(_) => self.given_back += 1,
                None => self.restored += 1,
            }
            while self.residents.len() + self.chance.waiting() >= self.room {
                self.let_go();
            }
            self.residents.insert(page, self.lru.mark());
        }

        fn let_go(&mut self) {
            let mut victims = [0; 8];
            let count = self.lru.take(&self.residents, &mut victims);
            assert!(count > 0, "there is always one that may leave");
            for victim in &victims[..count] {
                self.residents.remove(victim).expect("a victim is resident");
                if self.chance.enter(*victim).is_none() {
                    self.chance.leave();
                    // Without slots it is compressed at once.
                    let _ = self.chance.enter(*victim);
                }
            }
        }
    }

    /// Hot pages used again and again between pages that are used once; `slots` of `room` pages wait.
    fn restored(slots: usize, room: usize) -> (usize, usize) {
        let mut slots = vec![0; slots];
        let mut program = Program {
            lru: Lru::default(),
            residents: BTreeMap::new(),
            chance: SecondChance::new(&mut slots),
            room,
            restored: 0,
            given_back: 0,
        };
        for once in 0..4000u64 {
            program.reference(1_000_000 + once);
            program.reference(once % 40);
        }
        (program.restored, program.given_back)
    }

    #[test]
    fn a_second_chance_keeps_what_is_in_use() {
        let (arrival, _) = restored(0, 400);
        let (second, given_back) = restored(80, 400);
        // 4000 pages are wanted once; the 40 hot ones left with the others, or waited in vain once.
        assert!(arrival > 4300, "{arrival}");
        assert!(second <= 4080 && given_back > 200, "{second}, {given_back}");
    }
}
