//! This process's part of the budget, published to the run's sums.
//!
//! Invariant: what was published is what the slot holds; the difference to what
//! is true now is added to the sums in one go after every change.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use zpager_policy::{SLOTS, Sample};
use zpager_sys::PAGE_BYTES;

use crate::process::Process;
use crate::swapout::LIFT_PAGES;

/// What the run's sums contain of this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Published {
    resident_bytes: u64,
    pool_bytes: u64,
    payload_bytes: u64,
    metadata_bytes: u64,
    managed_bytes: u64,
    /// A forked child shares its memory with its parent until one of them
    /// changes it, and mostly runs another program at once: its part is not
    /// counted before it does something of its own, after so many calls.
    pub(crate) calls_until_counted: u32,
}

impl Published {
    /// Of a child that has only just been forked.
    pub(crate) fn of_child() -> Self {
        Published { calls_until_counted: CALLS_BEFORE_EXEC, ..Published::default() }
    }
}

/// Calls that a forked child makes on its way to another program.
const CALLS_BEFORE_EXEC: u32 = 64;

/// Tables of a process that are in RAM as a rule: stubs, sites, the entry's stack, zeros, the sample.
const FIXED_BYTES: usize = 24 * PAGE_BYTES + SLOTS * size_of::<Sample>();

impl Process {
    /// Bytes of zpager's own.
    fn metadata_bytes(&self) -> usize {
        self.cache.metadata_bytes()
            + self.regions.metadata_bytes()
            + self.threads.metadata_bytes()
            + (LIFT_PAGES + self.incoming_pages_max) * PAGE_BYTES
            + FIXED_BYTES
    }

    /// Resident pages that are not a relative's as well, in bytes.
    pub(crate) fn own_resident_bytes(&self) -> usize {
        (self.resident_pages as usize * PAGE_BYTES).saturating_sub(self.shared_bytes)
    }

    /// Everything that counts, a relative's or not.
    pub(crate) fn all_bytes(&self) -> usize {
        self.resident_pages as usize * PAGE_BYTES + self.cache.pool_bytes() + self.metadata_bytes()
    }

    /// Brings the run's sums up to date.
    pub(crate) fn publish(&mut self) {
        if self.published.calls_until_counted > 0 {
            return;
        }
        // What is shared is taken off the resident pages first.
        let mut shared = self.shared_bytes;
        let mut own = |bytes: usize| {
            let off = shared.min(bytes);
            shared -= off;
            (bytes - off) as u64
        };
        let now = Published {
            resident_bytes: own(self.resident_pages as usize * PAGE_BYTES),
            pool_bytes: own(self.cache.pool_bytes()),
            payload_bytes: self.cache.payload_bytes() as u64,
            metadata_bytes: own(self.metadata_bytes()),
            managed_bytes: self.regions.page_count() * PAGE_BYTES as u64,
            calls_until_counted: 0,
        };
        let (was, slot, usage) = (self.published, self.slot, &self.control.usage);
        shift(was.resident_bytes, now.resident_bytes, &slot.resident_bytes, &usage.resident_bytes);
        shift(was.pool_bytes, now.pool_bytes, &slot.pool_bytes, &usage.pool_bytes);
        shift(was.payload_bytes, now.payload_bytes, &slot.payload_bytes, &usage.payload_bytes);
        shift(was.metadata_bytes, now.metadata_bytes, &slot.metadata_bytes, &usage.metadata_bytes);
        shift(was.managed_bytes, now.managed_bytes, &slot.managed_bytes, &usage.managed_bytes);
        self.published = now;
        usage.note_peaks();
    }

    /// Bytes that may still be taken; negative when the budget is exceeded.
    pub(crate) fn room_bytes(&self) -> i64 {
        self.control.settings.budget_bytes as i64 - self.control.usage.total_bytes() as i64
    }

    /// Has this process counted from now on.
    pub(crate) fn count_now(&mut self) {
        self.published.calls_until_counted = 0;
    }
}

/// Moves a value's change into the slot, which is this process's alone, and into the sum.
fn shift(was: u64, now: u64, share: &AtomicU64, sum: &AtomicU64) {
    if was != now {
        share.store(now, Relaxed);
        sum.fetch_add(now.wrapping_sub(was), Relaxed);
    }
}

/// Adds to a count of the run.
pub(crate) fn count(counter: &AtomicU64, amount: usize) {
    if amount > 0 {
        counter.fetch_add(amount as u64, Relaxed);
    }
}
