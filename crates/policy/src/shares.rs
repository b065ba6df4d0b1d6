//! What a process holds, and what it can do next to make room.
//!
//! Every rule of how large the pool may be ends in the same choice: swap out resident pages, which
//! makes the pool larger, or write the oldest compressed pages to the store. What no rule may
//! decide is here: a few pages stay resident, and without a store nothing is spilled.

pub(crate) const PAGE_BYTES: usize = 4096;
/// Part of a process's memory that stays resident whatever the rule: with fewer pages the program
/// would do nothing but wait for them.
const RESIDENT_PART_MIN: usize = 16;
/// Resident pages that a process keeps whatever happens, in bytes: what one instruction and one call may need.
const RESIDENT_BYTES_MIN: usize = 32 * PAGE_BYTES;

/// Raw pages that are worth a write.
const RAW_BYTES_MAX: usize = 512 * 1024;

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

impl Shares {
    /// Whether the pool holds so many raw pages that they leave at once, where the rule wants that.
    pub(crate) fn is_full_of_raw(&self) -> bool {
        self.raw_bytes > RAW_BYTES_MAX
    }

    /// The next step where the rule says that the pool is too large, or is not.
    pub fn step(&self, pool_is_too_large: bool) -> Step {
        let part = (self.resident_bytes + self.pool_bytes) / RESIDENT_PART_MIN;
        let may_spill = self.has_store && self.pool_bytes > 0;
        if may_spill && pool_is_too_large {
            Step::Spill
        } else if self.resident_bytes > RESIDENT_BYTES_MIN.max(part) {
            Step::SwapOut
        } else if may_spill {
            Step::Spill
        } else {
            Step::Nothing
        }
    }
}
