//! Reads from the store that pointers foretell, which go on while the program does.
//!
//! Who sorts records by a table of pointers to them, and has a quarter of the memory for that, waits for the disk at
//! nearly each comparison. What it will want is in the table ([`zpager_policy::Pointers`]): the next pages are read
//! into buffers before they are faulted on, several at a time. A fault takes what was read as if it had just come
//! ([`zpager_store::Early`]); a page that is never wanted has cost a read, and no page of the program's memory. Where
//! next to all that was foretold was wanted, the first of what is next comes in with the page that is faulted on, from the
//! pool or from such a buffer; what follows it is left to a fault, which has the next ones come.
//!
//! Source: as of [`zpager_policy::Pointers`]; io_submit(2), as in [`zpager_sys::aio`]; the buffers as in
//! [`crate::early`].
//!
//! Invariants: all of it is the holder's of the lock. A buffer whose read goes on is nobody's; where the kernel does
//! not tell what goes on, none is used again. What was read is believed only while its cluster is of the same generation.
//! None goes on across a fork. What a server was asked for is taken before anything is asked of it again, as it takes
//! room from others until then ([`crate::remote`]).
//!
//! Bad for: a disk that does one read at a time, to which a read that nobody wants is lost.

use core::hint::spin_loop;

use zpager_cache::State;
use zpager_policy::{Cursor, DEPTH, NEAREST, Pointers};
use zpager_store::Early;
use zpager_sys::aio::{BEGUN_MAX, Read, Reads};
use zpager_sys::mapping::Mapping;
use zpager_sys::processor::ticks;
use zpager_sys::{Errno, PAGE_BYTES, process};

use crate::account::count;
use crate::copies::Keep;
use crate::own::OneStore;
use crate::process::Process;
use crate::remote::AskedPart;

/// Reads that go on, or are waited for by nobody yet.
const SLOTS: usize = 32;
/// With fewer there is nothing foretold.
const SLOTS_MIN: usize = 4;
/// A page that did not shrink, its head, and what lies before it in its first block.
const SLOT_BYTES: usize = 3 * PAGE_BYTES;
/// Behind the buffers, a copy of a page of the program's.
const COPY_AT: usize = POINTERS_BYTES + SLOTS * SLOT_BYTES;
const POINTERS_BYTES: usize = size_of::<Pointers>().next_multiple_of(PAGE_BYTES);
/// The part of the budget that all of it may take.
const BUDGET_PART: u64 = 64;
/// So long a process has waited for reads before it foretells any: 20 to 40 ms.
const WAITED_TICKS: u64 = 1 << 26;
/// For how long a read that is wanted is looked at before the thread sleeps: some 20 us.
const LOOK_TICKS_MAX: u64 = 1 << 16;

const _: () = assert!(DEPTH <= BEGUN_MAX);

/// This address space's reads.
static READS: Reads<SLOTS> = Reads::new();

/// One read.
#[derive(Debug, Clone, Copy)]
struct Slot {
    page: u64,
    early: Early,
    state: SlotState,
    /// Which one it is of all.
    turn: u64,
}

impl Slot {
    fn goes_on(&self) -> bool {
        matches!(self.state, SlotState::GoesOn | SlotState::Asked(_))
    }
}

#[derive(Debug, Clone, Copy)]
enum SlotState {
    /// It is read from a file.
    GoesOn,
    /// A server was asked for it.
    Asked(AskedPart),
    Read,
    Failed,
}

/// What is known of pointers, and what is read for them.
pub(crate) struct Foretold {
    /// The pointers, the buffers, and a page.
    space: Mapping,
    /// The page that was looked at last as it was there.
    looked_at: u64,
    slots: [Option<Slot>; SLOTS],
    /// So many of them are used; 0 for none at all.
    slots_max: usize,
    turns: u64,
    waited_ticks: u64,
    /// What foretelling took that was not yet counted as a part of a read.
    spent_ticks: u64,
    /// The space has RAM.
    is_used: bool,
}

impl Foretold {
    /// Of a run with this budget; with `is_wanted` false it never foretells.
    pub(crate) fn new(budget_bytes: u64, is_wanted: bool) -> Result<Self, Errno> {
        let most_bytes = (budget_bytes / BUDGET_PART) as usize;
        let slots_max = (most_bytes.saturating_sub(POINTERS_BYTES) / SLOT_BYTES).min(SLOTS);
        Ok(Foretold {
            space: Mapping::reserve(COPY_AT + PAGE_BYTES)?,
            looked_at: 0,
            slots: [None; SLOTS],
            slots_max: if is_wanted && slots_max >= SLOTS_MIN { slots_max } else { 0 },
            turns: 0,
            waited_ticks: 0,
            spent_ticks: 0,
            is_used: false,
        })
    }

    /// RAM of all of it.
    pub(crate) fn held_bytes(&self) -> usize {
        if self.is_used { POINTERS_BYTES + self.slots_max * SLOT_BYTES + PAGE_BYTES } else { 0 }
    }

    /// In a forked child, which has none of the reads.
    pub(crate) fn become_copy(&mut self) {
        READS.forget();
        self.slots = [None; SLOTS];
        self.release();
    }

    fn release(&mut self) {
        if self.is_used {
            self.space.release(0, self.space.bytes());
        }
        (self.is_used, self.waited_ticks, self.spent_ticks) = (false, 0, 0);
    }

    /// Notes for how long a fault waited for the store.
    pub(crate) fn note_waited(&mut self, ticks: u64) {
        self.waited_ticks = self.waited_ticks.saturating_add(ticks);
    }

    /// What foretelling took since this was asked last.
    pub(crate) fn take_spent_ticks(&mut self) -> u64 {
        core::mem::take(&mut self.spent_ticks)
    }

    fn is_due(&self) -> bool {
        self.slots_max > 0 && self.waited_ticks >= WAITED_TICKS
    }

    /// The read that is for `page`.
    fn find(&self, page: u64) -> Option<usize> {
        self.slots.iter().position(|slot| slot.is_some_and(|slot| slot.page == page))
    }

    pub(crate) fn has(&self, page: u64) -> bool {
        self.is_used && self.find(page).is_some()
    }

    /// Whether the read for `page` has ended, and well.
    fn has_read(&mut self, page: u64) -> bool {
        let Some(at) = self.find(page) else { return false };
        if READS.have_ended() {
            self.note_ended(false);
        }
        self.slots[at].is_some_and(|slot| matches!(slot.state, SlotState::Read))
    }

    /// A slot that is free, or that of the oldest read which has ended and nobody wanted.
    fn place(&self) -> Option<usize> {
        let slots = &self.slots[..self.slots_max];
        let free = slots.iter().position(Option::is_none);
        free.or_else(|| {
            let ended = slots.iter().enumerate().filter_map(|(at, slot)| Some((at, (*slot)?)));
            let ended = ended.filter(|(_, slot)| !slot.goes_on());
            ended.min_by_key(|(_, slot)| slot.turn).map(|(at, _)| at)
        })
    }

    fn pointers(&mut self) -> &'static mut Pointers {
        // SAFETY: the space begins with them, all zeros are valid, and they are the lock holder's alone, which uses
        // one reference at a time.
        unsafe { &mut *self.space.base().cast::<Pointers>() }
    }

    fn buffer(&self, at: usize, bytes: usize) -> *mut [u8] {
        assert!(at < SLOTS && bytes <= SLOT_BYTES);
        // SAFETY: within the mapping.
        let base = unsafe { self.space.base().add(POINTERS_BYTES + at * SLOT_BYTES) };
        core::ptr::slice_from_raw_parts_mut(base, bytes)
    }

    /// Notes which reads have ended; with `waits` one of them goes on, and is waited for if none has.
    fn note_ended(&mut self, waits: bool) {
        let slots = &mut self.slots;
        let told = READS.ended(waits, |number, is_whole| {
            if let Some(slot) = slots.get_mut(number as usize).and_then(Option::as_mut) {
                slot.state = if is_whole { SlotState::Read } else { SlotState::Failed };
            }
        });
        if told.is_err() {
            // The kernel may write to the buffers for ever.
            self.slots_max = 0;
            let is_of_file = |slot: &Slot| matches!(slot.state, SlotState::GoesOn);
            self.slots.iter_mut().for_each(|slot| *slot = slot.filter(|slot| !is_of_file(slot)));
        }
    }

    /// Takes what servers have answered.
    fn take_answers(&mut self) {
        for at in 0..SLOTS {
            if let Some(Slot { state: SlotState::Asked(part), .. }) = self.slots[at]
                && part.is_answered()
            {
                self.take(at, part);
            }
        }
    }

    /// Waits for what a server was asked for.
    fn take(&mut self, at: usize, part: AskedPart) {
        let Some(slot) = self.slots[at] else { return };
        // SAFETY: nobody else uses the buffer of a slot that goes on.
        let is_read = part.take(unsafe { &mut *self.buffer(at, slot.early.bytes()) });
        let state = if is_read { SlotState::Read } else { SlotState::Failed };
        self.slots[at] = Some(Slot { state, ..slot });
    }

    /// Waits until a read has ended.
    fn wait(&mut self, at: usize) {
        if let Some(Slot { state: SlotState::Asked(part), .. }) = self.slots[at] {
            return self.take(at, part);
        }
        let began = ticks();
        while self.slots[at].is_some_and(|slot| slot.goes_on()) {
            let is_late = ticks().wrapping_sub(began) > LOOK_TICKS_MAX;
            if is_late || READS.have_ended() {
                self.note_ended(is_late);
            } else {
                spin_loop();
            }
        }
    }
}

/// The pages that are wanted next, in their order.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Next {
    pages: [u64; NEAREST],
    count: usize,
}

impl Process {
    /// Has the pages read that are wanted after `page`, at which a fault is, and gives those that are wanted first, for
    /// [`Process::bring_next`].
    pub(crate) fn foretell(&mut self, page: u64) -> Next {
        if !self.foretold.is_due() || !self.begin_foretelling() {
            return Next::default();
        }
        let began = ticks();
        let is_spilled = matches!(self.engine.cache.index.get(page).state(), State::Spilled { .. });
        let mut next = Next::default();
        if let Some(cursor) = self.foretold.pointers().want(page, is_spilled)
            && let Some(lacking) = self.read_after(cursor, &mut next)
            && self.look_into(lacking)
        {
            self.read_after(cursor, &mut next);
        }
        self.foretold.spent_ticks += ticks().wrapping_sub(began);
        next
    }

    /// Has the pages read that are wanted after this place, of which `next` has the first then; gives the page that is
    /// to be known for more.
    fn read_after(&mut self, cursor: Cursor, next: &mut Next) -> Option<u64> {
        let index = &self.engine.cache.index;
        let is_away = |page| {
            let entry = index.get(page);
            !entry.is_resident() && !entry.is_absent()
        };
        let (mut new, mut count) = ([0; DEPTH], 0);
        *next = Next::default();
        // Of two tables in turns neither is to take the other's slots.
        let depth = self.foretold.slots_max / 2;
        let lacking = self.foretold.pointers().foretell(cursor, depth, is_away, |page, is_new| {
            if is_new {
                new[count] = page;
                count += 1;
            }
            if next.count < NEAREST {
                next.pages[next.count] = page;
                next.count += 1;
            }
        });
        self.read_foretold(&new[..count]);
        lacking
    }

    /// Brings in those of the pages that are wanted next for which nothing is to be waited, where it is next to certain
    /// that they are: each is a fault less, which the kernel takes 4 us for.
    pub(crate) fn bring_next(&mut self, next: &Next) {
        if next.count == 0 || !self.foretold.pointers().are_sure() {
            return;
        }
        for &page in &next.pages[..next.count] {
            if self.is_ready(page) {
                self.foretold.pointers().came_ahead(page);
                self.bring_in_swapped(page, 1, Keep::Copies);
                count(&self.control.counters.prefetched_pages, 1);
            }
        }
    }

    /// Whether a page that is away can be had without waiting for it.
    fn is_ready(&mut self, page: u64) -> bool {
        match self.engine.cache.index.get(page).state() {
            State::Absent | State::Resident { .. } | State::Clean { .. } => false,
            State::SameFilled { .. } | State::Compressed { .. } => true,
            State::Spilled { .. } => self.foretold.has_read(page),
        }
    }

    /// Notes where a page leads that is there, and so does not come in; false where that was not possible.
    fn look_into(&mut self, page: u64) -> bool {
        let is_there = self.engine.cache.index.get(page).is_resident();
        if !is_there || core::mem::replace(&mut self.foretold.looked_at, page) == page {
            return false;
        }
        // SAFETY: within the mapping, and the lock holder's alone.
        let copy =
            unsafe { &mut *self.foretold.space.base().add(COPY_AT).cast::<[u8; PAGE_BYTES]>() };
        // The kernel does not wait in this, and fails where it has dropped the page.
        if process::peek(page as usize * PAGE_BYTES, copy).is_err() {
            return false;
        }
        let managed = self.regions.span();
        self.foretold.pointers().note(page, copy, &managed);
        true
    }

    /// Whether there is RAM for it. With many processes there is none.
    fn begin_foretelling(&mut self) -> bool {
        if !self.keeps_buffers() || self.recorder.is_some() {
            return false;
        }
        if !self.foretold.is_used {
            self.foretold.is_used = true;
            self.make_room_bytes(self.foretold.held_bytes() as i64);
            self.publish();
        }
        true
    }

    /// Begins to read those of the pages, at most [`DEPTH`], that are in a store, as far as slots are free or can be.
    fn read_foretold(&mut self, pages: &[u64]) {
        if READS.have_ended() {
            self.foretold.note_ended(false);
        }
        self.foretold.take_answers();
        let (mut reads, mut planned) = ([Read::NONE; DEPTH], 0);
        for &page in pages {
            if let Some(read) = self.plan_foretold(page) {
                reads[planned] = read;
                planned += 1;
            }
        }
        if planned > 0 {
            // SAFETY: no read goes on in these slots, and nobody has their buffers before `lend_foretold`.
            let begun = unsafe { READS.begin(&reads[..planned]) }.unwrap_or(0);
            for read in &reads[begun..planned] {
                self.foretold.slots[read.number as usize] = None;
            }
            count(&self.control.counters.foretold_reads, begun);
        }
    }

    /// Finds a slot for `page` if it is in a store, and asks the store for it, or gives how it is to be read.
    fn plan_foretold(&mut self, page: u64) -> Option<Read> {
        if self.foretold.find(page).is_some() {
            return None;
        }
        let cache = &self.engine.cache;
        let early = cache.plan_read(page, 1, SLOT_BYTES)?;
        let bytes = early.bytes();
        let (&store, offset) = cache.store_blocks()?.find(early.offset_bytes())?;
        if bytes > SLOT_BYTES {
            return None;
        }
        let at = self.foretold.place()?;
        self.drop_foretold(at);
        let turn = self.foretold.turns;
        let (state, read) = match store {
            OneStore::File(file) => {
                let (number, buffer) = (at as u32, self.foretold.buffer(at, bytes));
                let offset = file.start_bytes + offset;
                (SlotState::GoesOn, Some(Read { number, fd: file.fd, offset, buffer }))
            }
            OneStore::Server(server) => {
                let asked = server.remote.ask(offset, bytes)?;
                count(&self.control.counters.foretold_reads, 1);
                (SlotState::Asked(asked), None)
            }
        };
        self.foretold.turns += 1;
        self.foretold.slots[at] = Some(Slot { page, early, state, turn });
        read
    }

    /// A read that has ended is of no use to anybody.
    fn drop_foretold(&mut self, at: usize) {
        if let Some(slot) = self.foretold.slots[at].take() {
            self.count_unused(&slot.early);
        }
    }

    /// A read was made beside those of [`zpager_cache::Reads`].
    fn count_unused(&self, early: &Early) {
        count(&self.control.counters.store_reads, 1);
        count(&self.control.counters.store_read_bytes, early.bytes());
    }

    /// Has what was read for `page` be used when it comes in, and waits for it. Gives the slot, for
    /// [`Process::end_foretold`].
    pub(crate) fn lend_foretold(&mut self, page: u64) -> Option<usize> {
        if !self.foretold.is_used {
            return None;
        }
        let at = self.foretold.find(page)?;
        self.foretold.wait(at);
        let slot = self.foretold.slots[at]?;
        if matches!(slot.state, SlotState::Failed) {
            self.drop_foretold(at);
            return None;
        }
        // SAFETY: nothing is read into it any more, and nobody else uses it until the slot is free.
        let data = unsafe { &*self.foretold.buffer(at, slot.early.bytes()) };
        self.engine.cache.begin_read(slot.early, data);
        Some(at)
    }

    /// The page has come in.
    pub(crate) fn end_foretold(&mut self, at: usize) {
        let was_used = self.engine.cache.end_read();
        if let Some(slot) = self.foretold.slots[at].take() {
            if was_used {
                count(&self.control.counters.foretold_used, 1);
            } else {
                self.count_unused(&slot.early);
            }
        }
    }

    /// Notes where the pages lead that came in from `first` on.
    pub(crate) fn note_pointers(&mut self, first: u64, pages: &[zpager_codec::Page]) {
        if !self.foretold.is_used {
            return;
        }
        let managed = self.regions.span();
        for (page, contents) in (first..).zip(pages) {
            self.foretold.pointers().note(page, &contents.0, &managed);
        }
    }

    /// Waits for all that is read, and gives its RAM back.
    pub(crate) fn end_foretelling(&mut self) {
        self.settle_foretold();
        for at in 0..SLOTS {
            self.drop_foretold(at);
        }
        self.foretold.release();
    }

    /// Waits for all that is read.
    pub(crate) fn settle_foretold(&mut self) {
        (0..SLOTS).for_each(|at| self.foretold.wait(at));
    }
}
