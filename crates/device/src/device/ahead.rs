//! RAM that the pool keeps ahead of what it holds: all that the rest does not need, or so much as was set.
//!
//! As tables grow the pool gives some of it up; a thread of its own takes more as it fills, and gives back
//! as it empties. That thread waits, without the lock, until the kernel has some free, which may have to
//! swap for it, and takes none while programs have less than half of what the pool has.
//!
//! Invariant: RAM is taken only where some is free ([`FreeMemory`]), once the kernel may swap to the
//! device: whoever asks it for more has to make some himself, by writing to this very device.

use std::ops::Range;
use std::sync::PoisonError;
use std::thread;
use std::time::Duration;

use zpager_pool::{Space, SpaceSource};
use zpager_store::Blocks;

use super::share::Seen;
use super::{Device, GROWTH_BYTES, Shared};
use crate::free_memory::FreeMemory;
use crate::space::{TAKE_BYTES, take};

/// Before RAM is asked for again that the kernel refused, and before it is looked for again where none
/// was free.
const KEEP_PAUSE: Duration = Duration::from_secs(1);
const FREE_PAUSE: Duration = Duration::from_millis(5);
/// How often in a row it is looked for on behalf of somebody who waits.
const FREE_TRIALS: usize = 200;
/// A pool with a store behind it takes no more ahead when it has so many times what programs have.
const PROGRAMS_TIMES: u64 = 2;

/// Why a pool keeps less than it is to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    /// There is none free at present.
    NoneFree,
    /// The kernel gives none.
    Refused,
    /// Programs have so little that they need it more.
    Needed,
}

impl<M: SpaceSource + Copy, B: Blocks> Device<M, B> {
    /// Has the pool keep what it is to keep, others being served in between. It keeps what it has where
    /// there is too little. Nothing is taken that is not `free`, where that is given.
    pub(super) fn keep(&self, mut free: Option<&mut FreeMemory>) -> Result<(), Missing> {
        loop {
            let (mut is_free, mut programs_bytes) = (true, u64::MAX);
            if let Some(free) = &mut free {
                is_free = free.has(TAKE_BYTES as u64);
                programs_bytes = free.programs_bytes();
            }
            let mut shared = self.lock();
            let Some(part) = shared.keep_part(is_free, programs_bytes)? else { return Ok(()) };
            let base = shared.engine.cache.objects().base();
            drop(shared);
            // SAFETY: a part of the pool's stretch, which lives as long as the device.
            let has_ram = unsafe { take(base.add(part.start), part.len()) };
            let mut shared = self.lock();
            shared.kept_bytes = Some(shared.engine.cache.objects().taken(part, has_ram));
            if !has_ram {
                return Err(Missing::Refused);
            }
        }
    }

    /// The same of what was granted while others are served: where none is free the kernel has a second
    /// to make some so.
    pub(super) fn keep_granted(&self) -> Result<(), Missing> {
        let mut free = FreeMemory::open().ok();
        let (mut trials, mut most_bytes) = (0, None);
        while trials < FREE_TRIALS {
            match self.keep(free.as_mut()) {
                Err(Missing::NoneFree) => thread::sleep(FREE_PAUSE),
                outcome => return outcome,
            }
            let kept_bytes = self.lock().kept_bytes;
            trials = if kept_bytes > most_bytes { 0 } else { trials + 1 };
            most_bytes = most_bytes.max(kept_bytes);
        }
        Err(Missing::NoneFree)
    }

    /// Does once what [`Device::go_on_keeping`] does over and over, whether it is time to or not.
    pub(super) fn look_once(&self) {
        let Ok(mut free) = FreeMemory::open() else { return };
        let mut last = Seen::now(Some(&mut free));
        self.give_way(&mut free, &mut last);
        // Here nobody is in need of more.
        let _ = self.keep(Some(&mut free));
    }

    /// Keeps RAM ahead for ever, as the pool fills and empties, and decides what of it programs are left.
    pub(super) fn go_on_keeping(&self) {
        let mut free = FreeMemory::open().ok();
        if free.is_none() {
            // Nothing is known of the machine.
            self.lock().give_way = None;
        }
        let mut last = Seen::now(free.as_mut());
        loop {
            let shared = self.lock();
            let is_idle = |shared: &mut Shared<M, B>| !shared.is_uneven() && !shared.is_share_due();
            let shared = self.uneven.wait_while(shared, is_idle);
            let is_share_due = shared.unwrap_or_else(PoisonError::into_inner).is_share_due();
            if let Some(free) = free.as_mut().filter(|_| is_share_due) {
                self.give_way(free, &mut last);
            }
            match self.keep(free.as_mut()) {
                Ok(()) => {}
                Err(Missing::NoneFree) => thread::sleep(FREE_PAUSE),
                Err(Missing::Refused | Missing::Needed) => thread::sleep(KEEP_PAUSE),
            }
        }
    }
}

impl<M: SpaceSource + Copy, B: Blocks> Shared<M, B> {
    /// Has the pool keep no more RAM than it may hold.
    pub(super) fn give_up(&mut self) {
        let most_bytes = self.pool_bytes_max();
        if self.kept_bytes.is_some_and(|kept_bytes| kept_bytes > most_bytes) {
            self.kept_bytes = Some(most_bytes);
            self.engine.cache.objects().keep(most_bytes);
        }
    }

    /// RAM that the pool is to keep if it is to have so much ahead of what it holds.
    fn bytes_with(&self, ahead_bytes: usize) -> usize {
        let bytes = self.engine.cache.pool_bytes().saturating_add(ahead_bytes);
        bytes.min(self.pool_bytes_max())
    }

    /// Whether the pool keeps so little or so much that it is worth while to change that.
    pub(super) fn is_uneven(&self) -> bool {
        let (Some(kept_bytes), Some(ahead_bytes)) = (self.kept_bytes, self.ahead_bytes) else {
            return false;
        };
        kept_bytes < self.bytes_with(ahead_bytes / 2)
            || kept_bytes > self.bytes_with(2 * ahead_bytes)
    }

    /// Has the pool keep what it is to keep. Gives a part for which RAM is to be taken first, while there
    /// is one, RAM is free, and programs have enough.
    fn keep_part(
        &mut self,
        is_free: bool,
        programs_bytes: u64,
    ) -> Result<Option<Range<usize>>, Missing> {
        let Some(kept_bytes) = self.kept_bytes else { return Ok(None) };
        let wanted_bytes = self.bytes_with(self.ahead_bytes.unwrap_or(usize::MAX));
        let objects = self.engine.cache.objects();
        objects.keep(wanted_bytes);
        if kept_bytes < wanted_bytes {
            let most_bytes = programs_bytes.saturating_mul(PROGRAMS_TIMES);
            if self.store_bytes > 0 && kept_bytes as u64 > most_bytes {
                return Err(Missing::Needed);
            }
            if !is_free {
                return Err(Missing::NoneFree);
            }
        }
        let missing = objects.missing();
        self.kept_bytes = Some(match missing {
            Some(_) => kept_bytes.min(wanted_bytes),
            None => wanted_bytes,
        });
        Ok(missing)
    }

    /// Whether the pool holds all the RAM that was taken ahead.
    pub(super) fn is_exhausted(&self) -> bool {
        let held_bytes = self.engine.cache.pool_bytes() + GROWTH_BYTES;
        self.kept_bytes.is_some_and(|kept_bytes| kept_bytes < held_bytes)
    }
}
