//! This process's part of the budget, published to the run's sums.
//!
//! Invariant: what was published is what the slot holds; the difference to what
//! is true now is added to the sums in one go after every change.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use zpager_policy::{SLOTS, Sample};
use zpager_sys::PAGE_BYTES;

use crate::process::Process;
use crate::sharing::ACCOUNT;

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
            + (self.staged_pages_max + self.incoming_pages_max) * PAGE_BYTES
            + FIXED_BYTES
    }

    /// Resident pages that are in no frame, in bytes.
    pub(crate) fn own_resident_bytes(&self) -> usize {
        self.resident_pages as usize * PAGE_BYTES
    }

    /// What the pool holds in pages that are in no frame.
    fn own_pool_bytes(&self) -> usize {
        self.cache.pool_bytes().saturating_sub(ACCOUNT.pool_bytes())
    }

    /// Brings the run's sums up to date.
    pub(crate) fn publish(&mut self) {
        // What moves between the two is taken off first, so that no peak counts it twice.
        let is_less = ACCOUNT.is_less();
        if is_less {
            self.publish_shared();
        }
        if self.published.calls_until_counted == 0 || self.resident_pages > 0 {
            self.publish_own();
        }
        if !is_less {
            self.publish_shared();
        }
        self.control.usage.note_peaks();
    }

    /// Brings the run's sum of shared pages up to date.
    pub(crate) fn publish_shared(&self) {
        let change = ACCOUNT.take_change() * PAGE_BYTES as i64;
        if change != 0 {
            self.control.usage.shared_bytes.fetch_add(change as u64, Relaxed);
        }
        self.slot.shared_bytes.store(self.shared_pages * PAGE_BYTES as u64, Relaxed);
    }

    fn publish_own(&mut self) {
        let now = Published {
            resident_bytes: self.resident_pages * PAGE_BYTES as u64,
            pool_bytes: self.own_pool_bytes() as u64,
            payload_bytes: self.cache.payload_bytes() as u64,
            metadata_bytes: self.metadata_bytes() as u64,
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
