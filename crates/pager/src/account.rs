//! This process's part of the budget, published to the run's sums.
//!
//! Invariant: what was published is what the slot holds; the difference to what
//! is true now is added to the sums in one go after every change.

use core::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, Release},
};

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
    stored_pages: u64,
}

/// What a forked child needs for a start, besides its tables.
pub(crate) const CHILD_BYTES: i64 = 512 * 1024;

/// Tables of a process that are in RAM as a rule: the image's data, stubs, sites, the sample; and
/// those of them that a forked child comes to have for itself.
const FIXED_BYTES: usize = 16 * PAGE_BYTES + SLOTS * size_of::<Sample>();
/// So many processes keep their buffers, whatever their length; more of them so long ones.
const PROCESSES_FEW: u32 = 3;
const BUFFER_PAGES_MAX: usize = 4;
const FIXED_BYTES_OF_CHILD: usize = 8 * PAGE_BYTES + SLOTS * size_of::<Sample>();

impl Process {
    /// What lies in the pages that are in no frame, as if all were equally full.
    fn own_payload_bytes(&self) -> usize {
        let cache = &self.engine.cache;
        let payload = cache.payload_bytes() + cache.shelf_bytes();
        let pool = cache.ram_bytes();
        (payload as u128 * self.own_pool_bytes() as u128 / pool.max(1) as u128) as usize
    }

    /// Bytes of zpager's own.
    fn metadata_bytes(&self) -> usize {
        self.engine.cache.metadata_bytes()
            + self.regions.metadata_bytes()
            + self.threads.metadata_bytes()
            + self.incoming_pages_max * PAGE_BYTES
            + self.spare_bytes()
            + self.early.held_bytes()
            + self.flights.held_bytes()
            + self.foretold.held_bytes()
            + self.departures.held_bytes()
            + if self.is_child { FIXED_BYTES_OF_CHILD } else { FIXED_BYTES }
    }

    /// Resident pages that are in no frame, in bytes.
    pub(crate) fn own_resident_bytes(&self) -> usize {
        self.resident_pages as usize * PAGE_BYTES
    }

    /// What the pool, and what was written of it ahead, holds in pages that are in no frame.
    pub(crate) fn own_pool_bytes(&self) -> usize {
        self.engine.cache.ram_bytes().saturating_sub(ACCOUNT.pool_bytes())
    }

    /// What belongs to the pool alone is lost to others, used or not; but once, and not for every
    /// process that is forked.
    fn unused_pool_bytes(&self) -> usize {
        if self.is_child { 0 } else { self.engine.unused_bytes() }
    }

    /// Brings the run's sums up to date.
    pub(crate) fn publish(&mut self) {
        if self.awaits_kin {
            return;
        }
        self.become_heirs();
        // What moves between the two is taken off first, so that no peak counts it twice.
        let is_less = ACCOUNT.is_less();
        if is_less {
            self.publish_shared();
        }
        self.publish_own();
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
            pool_bytes: (self.own_pool_bytes() + self.unused_pool_bytes()) as u64,
            payload_bytes: self.own_payload_bytes() as u64,
            metadata_bytes: self.metadata_bytes() as u64,
            managed_bytes: self.regions.page_count() * PAGE_BYTES as u64,
            stored_pages: self.engine.cache.stored_pages() as u64,
        };
        let (was, slot, usage) = (self.published, self.slot, &self.control.usage);
        shift(was.resident_bytes, now.resident_bytes, &slot.resident_bytes, &usage.resident_bytes);
        shift(was.pool_bytes, now.pool_bytes, &slot.pool_bytes, &usage.pool_bytes);
        shift(was.payload_bytes, now.payload_bytes, &slot.payload_bytes, &usage.payload_bytes);
        shift(was.metadata_bytes, now.metadata_bytes, &slot.metadata_bytes, &usage.metadata_bytes);
        shift(was.managed_bytes, now.managed_bytes, &slot.managed_bytes, &usage.managed_bytes);
        shift(was.stored_pages, now.stored_pages, &slot.stored_pages, &usage.stored_pages);
        self.published = now;
    }

    /// Whether the processes of the run are few enough to have buffers each.
    pub(crate) fn keeps_buffers(&self) -> bool {
        self.control.processes.count() <= PROCESSES_FEW
    }

    /// Gives back the buffers that grew, where many processes would have one each.
    pub(crate) fn trim_buffers(&mut self) {
        let keeps_buffers = self.keeps_buffers();
        self.engine.cache.keep_buffers(keeps_buffers);
        if keeps_buffers {
            return;
        }
        // A departure's pages may lie in what is given back.
        self.settle();
        self.drop_spares(self.spare_pages);
        self.flush_store();
        if self.incoming_pages_max > BUFFER_PAGES_MAX {
            self.incoming.release(0, self.incoming_pages_max * PAGE_BYTES);
            self.incoming_pages_max = 0;
        }
        self.early.trim();
        self.flights.trim();
        self.end_foretelling();
        self.departures.trim();
        self.engine.cache.trim_buffers(BUFFER_PAGES_MAX * PAGE_BYTES);
    }

    /// Bytes that may still be taken; negative when the budget is exceeded.
    pub(crate) fn room_bytes(&self) -> i64 {
        self.control.room_bytes()
    }

    /// By how much the budget is exceeded whatever relatives give.
    pub(crate) fn own_excess_bytes(&self) -> i64 {
        if self.control.processes.count() <= 1 {
            return -self.room_bytes();
        }
        let Published { resident_bytes, pool_bytes, metadata_bytes, .. } = self.published;
        let own_bytes = resident_bytes + pool_bytes + metadata_bytes;
        own_bytes as i64 - self.control.budget_bytes.load(Relaxed) as i64
    }
}

/// Moves a value's change into the slot, which is this process's alone, and into the sum. The sum is never
/// less than the share: if the process is killed between the two, others take the share from it.
fn shift(was: u64, now: u64, share: &AtomicU64, sum: &AtomicU64) {
    if now > was {
        sum.fetch_add(now - was, Relaxed);
        share.store(now, Release);
    } else if now < was {
        share.store(now, Relaxed);
        sum.fetch_sub(was - now, Release);
    }
}

/// Adds to a count of the run.
pub(crate) fn count(counter: &AtomicU64, amount: usize) {
    if amount > 0 {
        counter.fetch_add(amount as u64, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use core::sync::atomic::Ordering::Acquire;

    const STEPS: u64 = 2_000_000;

    /// Changes a value in steps, and has another thread look at its share and its sum meanwhile.
    fn observe(values: impl Iterator<Item = u64> + Send, look: fn(&AtomicU64, &AtomicU64) -> bool) {
        let mut values = values.peekable();
        let first = *values.peek().expect("values");
        let (share, sum) = (AtomicU64::new(first), AtomicU64::new(first));
        std::thread::scope(|scope| {
            let changing = scope.spawn(|| {
                values.fold(first, |was, now| {
                    shift(was, now, &share, &sum);
                    now
                })
            });
            while !changing.is_finished() {
                assert!(look(&share, &sum), "a share that is not in the sum");
            }
        });
        assert_eq!(share.into_inner(), sum.into_inner());
    }

    #[test]
    fn a_share_is_in_the_sum_at_every_moment() {
        // What is read last is what has changed more.
        observe(0..STEPS, |share, sum| share.load(Acquire) <= sum.load(Acquire));
        observe((0..STEPS).rev(), |share, sum| {
            let sum = sum.load(Acquire);
            share.load(Acquire) <= sum
        });
    }
}
