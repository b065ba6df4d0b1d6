//! How long a read from a store takes, as it is measured before there is one.

use std::time::Instant;

use zpager_sys::processor::ticks;

/// How long a read takes; 0 where that is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadTime {
    /// In ticks ([`zpager_sys::processor::ticks`]).
    pub ticks: u64,
    /// In nanoseconds.
    pub ns: u64,
}

/// When reads began.
#[derive(Debug, Clone, Copy)]
pub struct ReadsBegan {
    at: Instant,
    at_ticks: u64,
}

impl ReadsBegan {
    /// They begin now.
    pub fn now() -> Self {
        ReadsBegan { at: Instant::now(), at_ticks: ticks() }
    }

    /// For how long they go on.
    pub fn elapsed_ns(&self) -> u64 {
        self.at.elapsed().as_nanos() as u64
    }

    /// What each of them took, of so many that ended now, one after the other.
    pub fn read_time(&self, reads: u64) -> ReadTime {
        let taken_ticks = ticks().saturating_sub(self.at_ticks);
        ReadTime { ticks: taken_ticks / reads.max(1), ns: self.elapsed_ns() / reads.max(1) }
    }
}
