//! Faults of several threads, served side by side: what a fault wants is taken out of the pool under the
//! process's lock, and decoded and put in without it.
//!
//! Decoding and `UFFDIO_COPY` take as long as everything else that such a fault needs the lock for, and
//! touch nothing of the process but the pages that are wanted. Those are in flight meanwhile: resident
//! in the index, and not there yet.
//!
//! Source: ours; Linux serves faults side by side in the same way, mm/memory.c, with a lock for each folio.
//!
//! Lock order: the process's lock, then a slot's. Who flies has its slot's alone, and never asks for the
//! process's before it has landed.
//!
//! Invariants:
//! - a page is in at most one flight, and its slot is locked until it has landed;
//! - flights begin under the process's lock, so none does while somebody else has it;
//! - who takes that lock for anything but a fault waits for all flights to land first
//!   ([`Process::lock`]); a fault does so before it looks at a page that is resident, or has pages leave
//!   ([`Process::settle`]). So nobody takes a page in flight for one that the kernel has dropped;
//! - what could not be put in lies in its slot's buffer, stranded, until the next one who settles puts it in.
//!
//! Bad for: a thread beside which no other faults, and one that faults in order, for whom copying what is
//! compressed is more work than it spares others: they hold the lock. And for more threads at a time
//! than there are slots, which take turns.

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use zpager_cache::{Codecs, Coder, Seen};
use zpager_codec::{CodecId, Corrupt, Page, keeps_state, scratch_bytes};
use zpager_sys::lock::{Guard, Lock};
use zpager_sys::mapping::Mapping;
use zpager_sys::processor::ticks;
use zpager_sys::{Errno, PAGE_BYTES};
use zpager_wire::EventKind;

use crate::account::count;
use crate::fault::die;
use crate::process::{Process, lock_or_die};
use crate::regions::Pages;
use crate::start;
use crate::threads::Thread;
use crate::watch::Watch;

/// Most pages of a flight. With more the way out, for which there is the lock, takes longer than this.
const PAGES_MAX: usize = 4;
/// Most flights at a time, and so many bytes of the budget go with each.
const SLOTS_MAX: usize = 8;
const BUDGET_BYTES_EACH: u64 = 8 << 20;
/// What the codecs need that keep no state.
pub(crate) const SCRATCH_BYTES: usize = {
    let (mut most, mut at) = (0, 0);
    while at < CodecId::ALL.len() {
        let id = CodecId::ALL[at];
        if !keeps_state(id) && scratch_bytes(id) > most {
            most = scratch_bytes(id);
        }
        at += 1;
    }
    most
};

/// What a flight has for itself.
#[repr(C, align(4096))]
struct Buffers {
    pages: [Page; PAGES_MAX],
    coded: [[u8; PAGE_BYTES]; PAGES_MAX],
    scratch: [u8; SCRATCH_BYTES],
}

/// What lies in a slot's buffers that was not put in: pages of the program, behind so many of the
/// buffer's that were.
#[derive(Debug, Clone, Copy)]
struct Stranded {
    first: u64,
    landed: usize,
    pages: usize,
}

const NOTHING: Stranded = Stranded { first: 0, landed: 0, pages: 0 };

/// A lock for each flight that may be under way.
static SLOTS: [Lock<Stranded>; SLOTS_MAX] = [const { Lock::new(NOTHING) }; SLOTS_MAX];
/// Flights under way, and stranded, and departures.
static IN_FLIGHT: AtomicU32 = AtomicU32::new(0);
/// What the last one took from when it left the lock behind.
static FLIGHT_TICKS: AtomicU64 = AtomicU64::new(0);

/// The buffers of all flights.
pub(crate) struct Flights {
    buffers: Mapping,
    slots: usize,
    /// What decoding uses of a slot's scratch.
    scratch_bytes: usize,
    /// Most pages that were ever in each slot.
    used_pages: [usize; SLOTS_MAX],
}

/// A flight under way.
pub(crate) struct Flight {
    slot: Guard<'static, Stranded>,
    buffers: &'static mut Buffers,
    watch: Watch,
    first: u64,
    pages: usize,
    seen: [Seen; PAGES_MAX],
    began_ticks: u64,
}

impl Flights {
    /// As many as go with a budget, for pages that `codec` compressed.
    pub(crate) fn new(budget_bytes: u64, codec: CodecId) -> Result<Self, Errno> {
        let slots = (budget_bytes / BUDGET_BYTES_EACH).min(SLOTS_MAX as u64) as usize;
        let buffers = Mapping::reserve(slots.max(1) * size_of::<Buffers>())?;
        let scratch_bytes = if keeps_state(codec) { 0 } else { scratch_bytes(codec) };
        Ok(Flights { buffers, slots, scratch_bytes, used_pages: [0; SLOTS_MAX] })
    }

    /// RAM of the buffers.
    pub(crate) fn held_bytes(&self) -> usize {
        self.used_pages.iter().map(|pages| self.used_bytes(*pages)).sum()
    }

    /// Gives back the buffers, if none is in use.
    pub(crate) fn trim(&mut self) {
        if self.held_bytes() > 0 && IN_FLIGHT.load(Acquire) == 0 {
            self.buffers.release(0, self.buffers.bytes());
            self.used_pages = [0; SLOTS_MAX];
        }
    }

    /// RAM of a slot's buffers of which so many pages were used.
    fn used_bytes(&self, pages: usize) -> usize {
        match pages {
            0 => 0,
            _ => 2 * pages * PAGE_BYTES + self.scratch_bytes.next_multiple_of(PAGE_BYTES),
        }
    }

    /// A slot in which nothing is. It stays so while the caller has the process's lock.
    fn free_slot(&self, number: u32) -> Option<usize> {
        SLOTS[..self.slots].iter().position(|slot| is_free(slot, number))
    }

    /// # Safety
    /// The caller has the lock of the slot for as long as it uses them.
    unsafe fn buffers(&self, at: usize) -> &'static mut Buffers {
        assert!(at < self.slots);
        // SAFETY: within the mapping, which is page aligned and never given back; any bytes are buffers.
        unsafe { &mut *self.buffers.base().cast::<Buffers>().add(at) }
    }
}

fn is_free(slot: &'static Lock<Stranded>, number: u32) -> bool {
    slot.try_lock(number).is_some_and(|stranded| stranded.pages == 0)
}

impl Flight {
    /// Decodes the pages and puts them in. False where some are stranded, for [`Process::settle`].
    pub(crate) fn land(mut self) -> bool {
        let target = self.first as usize * PAGE_BYTES;
        if self.decode().is_err() {
            start::note(EventKind::PageCorrupt, 0, target as u64);
            die()
        }
        let (source, bytes) = (self.buffers.pages.as_ptr().cast(), self.pages * PAGE_BYTES);
        // SAFETY: the buffer holds what the program must find there.
        let outcome = unsafe { self.watch.copy(target, source, bytes, false) };
        let landed = outcome.unwrap_or(0) / PAGE_BYTES;
        FLIGHT_TICKS.store(ticks().wrapping_sub(self.began_ticks), Relaxed);
        if landed < self.pages {
            *self.slot = Stranded { first: self.first, landed, pages: self.pages };
            return false;
        }
        end();
        true
    }

    fn decode(&mut self) -> Result<(), Corrupt> {
        let Buffers { pages, coded, scratch } = &mut *self.buffers;
        for ((page, coded), seen) in pages.iter_mut().zip(coded).zip(&self.seen[..self.pages]) {
            match *seen {
                Seen::Absent => return Err(Corrupt),
                Seen::Filled(word) => Codecs::fill(word, page),
                Seen::Coded(codec, len) => {
                    Codecs::decompress(codec, &coded[..len], page, scratch)?;
                }
            }
        }
        Ok(())
    }
}

/// Notes, under the process's lock, that some pages are resident in the index and not there.
pub(crate) fn begin() {
    IN_FLIGHT.fetch_add(1, Relaxed);
}

/// Notes that they are what the index says.
pub(crate) fn end() {
    IN_FLIGHT.fetch_sub(1, Release);
}

/// The thread of this number has this memory no more.
pub(crate) fn leave_behind(number: u32) {
    SLOTS.iter().for_each(|slot| slot.abandon(number));
}

impl Process {
    /// Takes what a fault at `page` of `thread` wants out of the pool, for a flight; `None` where it is
    /// to be served under the lock.
    pub(crate) fn take_off(&mut self, thread: &mut Thread, page: u64) -> Option<Flight> {
        if !self.is_takeable(page) {
            return None;
        }
        let region = self.regions.find(page)?;
        // Not locked before there is room, for which all slots may have to be waited for.
        let at = self.flights.free_slot(thread.number())?;
        let mut ahead = thread.ahead;
        let (first, most) = self.engine.window(&mut ahead, page, region.pages());
        if most > PAGES_MAX {
            return None;
        }
        let window = self.takeable_around(page, first..first + most as u64)?;
        let began = self.fault_began();
        self.make_room_in_flight(at, (window.end - window.start) as usize);
        // To make room some may have left for the store.
        let window = self.takeable_around(page, window)?;
        let slot = SLOTS[at].try_lock(thread.number())?;
        thread.ahead = ahead;
        thread.ahead.fetched(window.start, (window.end - window.start) as usize);
        Some(self.begin_flight((at, slot), &window, began))
    }

    /// Takes `window` out of the pool and notes it as resident. The fault began at `began`, as
    /// [`zpager_cache::Engine::fault_began`] has it.
    fn begin_flight(
        &mut self,
        (at, slot): (usize, Guard<'static, Stranded>),
        window: &Pages,
        began: u64,
    ) -> Flight {
        let (first, pages) = (window.start, (window.end - window.start) as usize);
        // SAFETY: the slot is locked until the flight has landed.
        let buffers = unsafe { self.flights.buffers(at) };
        let mut seen = [Seen::Absent; PAGES_MAX];
        let came = self.engine.take(first, &mut buffers.coded[..pages], &mut seen[..pages]);
        for (page, &heat) in window.clone().zip(&came.heats) {
            self.note_resident(page, heat);
        }
        let counters = &self.control.counters;
        count(&counters.compressed_faults, 1);
        count(&counters.swapped_in_pages, pages);
        count(&counters.prefetched_pages, pages - 1);
        let began_ticks = ticks();
        self.slot.missed_at.store(began_ticks, Relaxed);
        self.engine.served(&came, began, began_ticks.wrapping_add(FLIGHT_TICKS.load(Relaxed)));
        self.publish();
        begin();
        Flight { slot, buffers, watch: self.watch, first, pages, seen, began_ticks }
    }

    fn is_takeable(&self, page: u64) -> bool {
        self.engine.cache.takeable(page, 1) > 0
    }

    /// The pages of a window that a flight can take with `page`, which lies in it: from its first page
    /// on, or else that one alone.
    fn takeable_around(&self, page: u64, window: Pages) -> Option<Pages> {
        let most = (window.end - window.start) as usize;
        let pages =
            window.start..window.start + self.engine.cache.takeable(window.start, most) as u64;
        if pages.contains(&page) {
            return Some(pages);
        }
        self.is_takeable(page).then_some(page..page + 1)
    }

    /// Makes room for so many pages and what they need in a slot.
    fn make_room_in_flight(&mut self, at: usize, pages: usize) {
        let flights = &self.flights;
        let (was, now) = (flights.used_pages[at], flights.used_pages[at].max(pages));
        let more_bytes = flights.used_bytes(now) - flights.used_bytes(was);
        self.make_room_bytes((pages * PAGE_BYTES + more_bytes) as i64);
        self.flights.used_pages[at] = now;
    }

    /// Waits until all flights have landed, puts in what is stranded, and ends a departure.
    pub(crate) fn settle(&mut self) {
        if IN_FLIGHT.load(Acquire) > 0 {
            // SAFETY: there are flights, so every thread that gets here is managed, and in a signal
            // handler, on its block. Who is not has settled when it took the lock.
            self.settle_as(unsafe { Thread::current() }.number());
        }
    }

    /// [`Process::settle`], as the thread of this number.
    pub(crate) fn settle_as(&mut self, number: u32) {
        if IN_FLIGHT.load(Acquire) == 0 {
            return;
        }
        self.await_departure(number);
        for (at, slot) in SLOTS.iter().enumerate().take(self.flights.slots) {
            let mut slot = lock_or_die(slot, number);
            let Stranded { first, landed, pages } = core::mem::replace(&mut *slot, NOTHING);
            if landed < pages {
                // SAFETY: the slot is locked.
                let buffers = unsafe { self.flights.buffers(at) };
                let rest = buffers.pages[landed..pages].as_ptr().cast();
                self.put(first + landed as u64, rest, &[0; PAGES_MAX][landed..pages]);
                end();
            }
        }
    }
}
