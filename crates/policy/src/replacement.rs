//! Which resident pages leave, by the rule that was chosen.
//!
//! All four published systems have least recently used from their kernels, which approximate it by
//! accessed bits (castro, 2003, 2.3.2). A program sees its own uses of a page only where they fault: one
//! that comes back is the youngest, and what is used without a fault is not seen. Least recently used is
//! therefore the order of arrival.

use crate::arrival::Arrival;
use crate::clock::{Clock, Residents};

/// The rules, as a user names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResidentsRule {
    /// [`Clock`].
    Clock,
    /// [`Arrival`], by the last uses that are known.
    Lru,
    /// [`Arrival`].
    Arrival,
}

impl ResidentsRule {
    /// Every rule.
    pub const ALL: [Self; 3] = [Self::Clock, Self::Lru, Self::Arrival];
}

/// A rule and what it remembers.
#[derive(Debug, Clone, Copy)]
pub enum Replacement {
    /// See [`Clock`].
    Clock(Clock),
    /// See [`Arrival`].
    Arrival(Arrival),
}

impl Replacement {
    /// The rule, before any page has come.
    pub fn new(rule: ResidentsRule) -> Self {
        match rule {
            ResidentsRule::Clock => Self::Clock(Clock::default()),
            ResidentsRule::Lru | ResidentsRule::Arrival => Self::Arrival(Arrival::default()),
        }
    }

    /// The mark that a page gets which comes in now.
    pub fn mark(&self) -> u16 {
        match self {
            Self::Clock(clock) => clock.mark(),
            Self::Arrival(arrival) => arrival.mark(),
        }
    }

    /// The time at which a page leaves now, modulo `times`, a power of two.
    pub fn time(&self, times: u8) -> u8 {
        match self {
            Self::Clock(clock) => clock.time(times),
            Self::Arrival(arrival) => arrival.time(times),
        }
    }

    /// The heat of a page that left at time `left`, modulo `times`, with heat `heat`, and is wanted
    /// again now. Only the clock knows heat.
    pub fn heat(&self, left: u8, heat: u8, times: u8) -> u8 {
        match self {
            Self::Clock(clock) => clock.heat(left, heat, times),
            Self::Arrival(_) => 0,
        }
    }

    /// Whether a page that came in at `mark` did so not long ago.
    pub fn came_lately(&self, mark: u16) -> bool {
        match self {
            Self::Clock(clock) => clock.came_lately(mark),
            Self::Arrival(arrival) => arrival.came_lately(mark),
        }
    }

    /// Chooses pages to leave, in ascending runs, and gives how many were written to `victims`.
    pub fn take(&mut self, residents: &impl Residents, victims: &mut [u64]) -> usize {
        match self {
            Self::Clock(clock) => clock.take(residents, victims),
            Self::Arrival(arrival) => arrival.take(residents, victims),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::collections::BTreeMap;

    /// Faults of a program that goes round `pages` pages of which `room` may be resident.
    fn faults_of_a_loop(rule: ResidentsRule, pages: u64, room: usize, rounds: u64) -> u64 {
        let mut replacement = Replacement::new(rule);
        let mut residents = BTreeMap::new();
        let mut faults = 0;
        for page in (0..rounds).flat_map(|_| 0..pages) {
            if residents.contains_key(&page) {
                continue;
            }
            faults += 1;
            if residents.len() >= room {
                let mut victims = [0; 32];
                let count = replacement.take(&residents, &mut victims);
                assert!(count > 0, "{rule:?}");
                for victim in &victims[..count] {
                    residents.remove(victim).expect("a victim is resident, once");
                }
            }
            residents.insert(page, replacement.mark());
        }
        faults
    }

    /// The worst case of least recently used and of the order of arrival: the pattern of SOR and FFT.
    #[test]
    fn a_loop_little_larger_than_memory_defeats_arrival_and_lru() {
        let (pages, rounds) = (1200, 20);
        for rule in [ResidentsRule::Arrival, ResidentsRule::Lru] {
            let faults = faults_of_a_loop(rule, pages, 1000, rounds);
            assert!(faults > pages * rounds * 9 / 10, "{rule:?}: {faults}");
        }
        for rule in ResidentsRule::ALL {
            assert_eq!(faults_of_a_loop(rule, 1000, 1000, rounds), 1000, "{rule:?}");
        }
    }
}
