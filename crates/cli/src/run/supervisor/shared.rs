//! The tree's shared memory, which is not managed: the user is told where it is much.
//!
//! Sources: proc(5), `RssShmem` of `status`, which counts a page once for each mapping and is cheap,
//! and `Pss_Shmem` of `smaps_rollup`, for which the kernel walks all page tables. So the latter
//! is asked only where the former has come to a quarter of the budget, and again when it has grown by
//! an eighth.

use std::time::Duration;

use super::pace::Pace;
use super::tree::Tree;

/// Shared memory is much from this part of the budget on.
const MUCH_PART: u64 = 4;

/// It is summed up again when it has grown by this part.
const GROWTH_PART: u64 = 8;

/// The least time between two looks.
const INTERVAL: Duration = Duration::from_millis(250);

/// What was seen of it.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    /// The sum over all mappings from which on it is summed up.
    due_bytes: u64,
    much_bytes: u64,
    /// The highest sum of pages that was much.
    peak_bytes: u64,
    pace: Pace,
}

impl SharedMemory {
    /// Beside a budget.
    pub(crate) fn beside(budget_bytes: u64) -> Self {
        let much_bytes = budget_bytes / MUCH_PART;
        SharedMemory { due_bytes: much_bytes, much_bytes, peak_bytes: 0, pace: Pace::due() }
    }

    /// The highest sum that was much; 0 where it never was.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    /// Looks at the processes as they were last found, if it is time to.
    pub(crate) fn step(&mut self, tree: &Tree) {
        let Some(began) = self.pace.begin() else { return };
        self.judge(tree.shared_bytes_mapped(), || tree.shared_bytes());
        self.pace.end(began, INTERVAL);
    }

    fn judge(&mut self, mapped_bytes: u64, sum_bytes: impl Fn() -> u64) {
        if mapped_bytes < self.due_bytes {
            return;
        }
        self.due_bytes = mapped_bytes + mapped_bytes / GROWTH_PART;
        let bytes = sum_bytes();
        if bytes >= self.much_bytes {
            self.peak_bytes = self.peak_bytes.max(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn it_is_summed_up_where_it_is_much_and_grows() {
        let mut shared = SharedMemory::beside(100 * MIB);
        shared.judge(24 * MIB, || panic!("cheap"));
        shared.judge(75 * MIB, || 24 * MIB);
        assert_eq!(shared.peak_bytes(), 0, "mapped three times, it is not much");
        shared.judge(80 * MIB, || panic!("it has hardly grown"));
        shared.judge(90 * MIB, || 30 * MIB);
        assert_eq!(shared.peak_bytes(), 30 * MIB);
        shared.judge(200 * MIB, || 28 * MIB);
        assert_eq!(shared.peak_bytes(), 30 * MIB);
    }
}
