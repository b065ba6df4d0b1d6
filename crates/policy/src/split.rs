//! How a process shares its part of the budget between resident and compressed
//! memory, and what it does next when it has too much.
//!
//! A fault served from the pool costs microseconds, one served from the store a
//! hundred; so everything that fits the budget compressed stays in RAM, and the
//! pool grows at the cost of resident pages until few are left. Only then do
//! the oldest compressed pages leave for the store.
//!
//! Bad case: a working set a little larger than the resident share that is left
//! while the rest of the pool is cold.

/// What a process holds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shares {
    /// Resident pages, in bytes.
    pub resident_bytes: usize,
    /// The pool.
    pub pool_bytes: usize,
    /// Pages that the pool holds as they are, in bytes.
    pub raw_bytes: usize,
    /// Whether pages may leave for a store.
    pub has_store: bool,
}

/// What to do next to make room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Swap out resident pages.
    SwapOut,
    /// Write the oldest compressed pages to the store.
    Spill,
    /// There is nothing to give.
    Nothing,
}

/// Part of a process's memory that stays resident while there is a store.
const RESIDENT_PART_MIN: usize = 8;
/// The same without one: with fewer pages the program would do nothing but wait for them.
const RESIDENT_PART_MIN_ALONE: usize = 16;
/// Resident pages that a process keeps whatever happens, in bytes: what one instruction and one call may need.
const RESIDENT_BYTES_MIN: usize = 32 * 4096;
/// Raw pages that are worth a write.
const RAW_BYTES_MAX: usize = 512 * 1024;

/// The next step of a process that holds `shares` and has to give.
pub fn next_step(shares: &Shares) -> Step {
    let sum = shares.resident_bytes + shares.pool_bytes;
    let few_resident = shares.resident_bytes < sum / RESIDENT_PART_MIN;
    let full_of_raw = shares.raw_bytes > RAW_BYTES_MAX;
    if shares.has_store && (few_resident || full_of_raw) {
        Step::Spill
    } else if shares.resident_bytes > RESIDENT_BYTES_MIN.max(sum / RESIDENT_PART_MIN_ALONE) {
        Step::SwapOut
    } else if shares.has_store && shares.pool_bytes > 0 {
        Step::Spill
    } else {
        Step::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn the_pool_grows_until_few_pages_are_resident() {
        let mut shares = Shares { resident_bytes: 8 * MIB, has_store: true, ..Shares::default() };
        assert_eq!(next_step(&shares), Step::SwapOut);
        shares.pool_bytes = 70 * MIB;
        assert_eq!(next_step(&shares), Step::Spill);
        shares.has_store = false;
        assert_eq!(next_step(&shares), Step::SwapOut);
        shares.pool_bytes = 200 * MIB;
        assert_eq!(next_step(&shares), Step::Nothing);
    }

    #[test]
    fn raw_pages_leave_at_once() {
        let shares =
            Shares { resident_bytes: 8 * MIB, raw_bytes: MIB, pool_bytes: MIB, has_store: true };
        assert_eq!(next_step(&shares), Step::Spill);
    }

    #[test]
    fn the_last_pages_stay() {
        let shares = Shares { resident_bytes: 4096, ..Shares::default() };
        assert_eq!(next_step(&shares), Step::Nothing);
    }
}
