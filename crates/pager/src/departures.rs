//! Making room beside other threads: a batch of pages that leaves is lifted and compressed without the lock.
//!
//! Whoever faults beside others while there is little room left has a batch leave before its own fault is
//! served. Its pages are chosen under the process's lock, lifted as a stretch ([`crate::stretches`]) and
//! compressed without it, and put into the cache under it again. It is the one fault in a batch that takes
//! the lock twice.
//!
//! Source: ours; Linux unmaps and compresses what leaves side by side in the same way, mm/vmscan.c and
//! mm/zswap.c, with a lock for each folio.
//!
//! Lock order: the process's lock, then the batch's. Who lifts and compresses has the batch's alone, and never
//! asks for the process's before it has let that go.
//!
//! Invariants:
//! - there is one departure at most, which begins and ends under the process's lock, and counts as a
//!   flight: who takes the lock for anything but a fault ends it first, and so does a fault that meets a page
//!   that is resident, or has pages leave in another way ([`Process::settle`]). So nobody takes a page of it for
//!   one that the kernel has dropped, and the memory map and the holds are what they were when it began;
//! - no page comes in write-protected meanwhile, as all of the stretch can be written afterwards; pages of it
//!   that were clean and stay are noted as written before anybody looks;
//! - its pages are resident in the index until it ends, and counted so: the buffer in which they come to lie is
//!   counted besides, and nobody else uses it meanwhile;
//! - their contents stay there until the cache has them, so that a page for which it has no room can be
//!   put back.
//!
//! Bad for: threads that take turns and are never on two processors at a time, as one more lock and the
//! buffers gain them nothing. Pages in runs are not worth a stretch: they leave under the lock.

use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed},
};

use zpager_cache::{Codecs, Coding, Content, Departed};
use zpager_codec::{CodecId, Page, keeps_state};
use zpager_policy::Step;
use zpager_sys::lock::{Guard, Lock};
use zpager_sys::mapping::Mapping;
use zpager_sys::processor::ticks;
use zpager_sys::{Errno, PAGE_BYTES};

use crate::flights::{self, SCRATCH_BYTES};
use crate::process::{Process, lock_or_die};
use crate::stretches::{Taken, take_stretch};
use crate::swapout::{LIFT_PAGES, Whose};
use crate::watch::Watch;

/// A run of less memory has none, as the buffers are a part of it.
const BUDGET_BYTES_MIN: u64 = 16 << 20;

/// What was made of a page.
#[derive(Debug, Clone, Copy)]
enum Made {
    /// Nothing: the store has it, as it seems, or there was no room.
    Nothing,
    /// It does not shrink.
    Raw,
    /// All words equal this one.
    Filled(u64),
    /// So many bytes, from there on in the buffer.
    Coded { codec: CodecId, start: usize, len: usize },
}

/// Pages that leave.
struct Batch {
    count: usize,
    pages: [u64; LIFT_PAGES],
    /// Of each, what was made of it.
    made: [Made; LIFT_PAGES],
    taken: Taken,
    ticks: u64,
    /// Of this batch and those before it.
    coding: Option<Coding>,
}

static BATCH: Lock<Batch> = Lock::new(Batch {
    count: 0,
    pages: [0; LIFT_PAGES],
    made: [Made::Nothing; LIFT_PAGES],
    taken: Taken::NONE,
    ticks: 0,
    coding: None,
});
/// Whether there is a departure that has not ended.
static IS_UNDER_WAY: AtomicBool = AtomicBool::new(false);

/// What a batch takes.
#[repr(C, align(4096))]
struct Buffers {
    contents: [Page; LIFT_PAGES],
    coded: [[u8; PAGE_BYTES]; LIFT_PAGES],
    scratch: [u8; SCRATCH_BYTES],
}

/// The buffers of the one departure.
pub(crate) struct Departures {
    buffers: Mapping,
    /// Pages of a batch, or 0 where there are no departures.
    pages_max: usize,
    /// How much of the buffer for what is made of them may be used, and of the codec's.
    coded_bytes_max: usize,
    scratch_bytes: usize,
    is_used: bool,
}

/// A departure that is to be made without the lock.
pub(crate) struct Departure {
    batch: Guard<'static, Batch>,
    /// A bit for each page that is not to be compressed.
    clean: u64,
    watch: Watch,
    coding: Coding,
    buffers: &'static mut Buffers,
    coded_bytes_max: usize,
}

impl Departures {
    /// For a budget and batches of so many pages, which `coding` compresses.
    pub(crate) fn new(
        budget_bytes: u64,
        lift_pages: usize,
        coding: &Coding,
    ) -> Result<Self, Errno> {
        let may_be = budget_bytes >= BUDGET_BYTES_MIN && !keeps_state(coding.codec());
        Ok(Departures {
            buffers: Mapping::reserve(size_of::<Buffers>())?,
            pages_max: if may_be { lift_pages } else { 0 },
            // Where pages shrink less the rest of a batch is compressed under the lock.
            coded_bytes_max: lift_pages * PAGE_BYTES / 2,
            scratch_bytes: coding.scratch_bytes().next_multiple_of(PAGE_BYTES),
            is_used: false,
        })
    }

    /// RAM of the buffers, as much as they may come to take.
    pub(crate) fn held_bytes(&self) -> usize {
        if self.is_used { self.bytes() } else { 0 }
    }

    fn bytes(&self) -> usize {
        self.pages_max * PAGE_BYTES + self.coded_bytes_max + self.scratch_bytes
    }

    /// Gives back the buffers, if they are not in use.
    pub(crate) fn trim(&mut self) {
        if self.is_used && !is_under_way() {
            self.buffers.release(0, self.buffers.bytes());
            self.is_used = false;
        }
    }

    /// # Safety
    /// The caller has the lock of the batch for as long as it uses them.
    unsafe fn buffers(&self) -> &'static mut Buffers {
        // SAFETY: the mapping is as long, page aligned and never given back; any bytes are buffers.
        unsafe { &mut *self.buffers.base().cast() }
    }
}

impl Departure {
    /// Lifts the pages and makes bytes of them.
    pub(crate) fn carry_out(mut self) {
        let began = ticks();
        let Batch { count, pages, taken, .. } = &mut *self.batch;
        *taken = take_stretch(self.watch, &pages[..*count], &mut self.buffers.contents[..*count]);
        self.compress();
        self.batch.ticks = ticks().wrapping_sub(began);
    }

    fn compress(&mut self) {
        let Batch { made, taken, .. } = &mut *self.batch;
        let Buffers { contents, coded, scratch } = &mut *self.buffers;
        let coded = &mut coded.as_flattened_mut()[..self.coded_bytes_max];
        let mut end = 0;
        for (at, page) in contents[..taken.pages].iter().enumerate() {
            let has_room = end + PAGE_BYTES <= coded.len();
            made[at] = if self.clean >> at & 1 == 1 || !has_room {
                Made::Nothing
            } else if let Some(word) = self.coding.fill::<Codecs>(page) {
                Made::Filled(word)
            } else {
                let output = &mut coded[end..end + PAGE_BYTES];
                match self.coding.compress::<Codecs>(page, output, scratch) {
                    Some((codec, len)) => {
                        end += len;
                        Made::Coded { codec, start: end - len, len }
                    }
                    None => Made::Raw,
                }
            };
        }
        self.batch.coding = Some(self.coding);
    }
}

impl Made {
    /// As the cache takes it.
    fn content<'a>(self, page: &'a Page, coded: &'a [u8]) -> Option<Content<'a>> {
        match self {
            Made::Nothing => None,
            Made::Raw => Some(Content::Coded(CodecId::Copy, &page.0)),
            Made::Filled(word) => Some(Content::Filled(word)),
            Made::Coded { codec, start, len } => {
                Some(Content::Coded(codec, &coded[start..start + len]))
            }
        }
    }
}

/// Whether there is a departure, so that no page may come in write-protected. It stays so, or not, while
/// the caller has the process's lock and does not settle.
pub(crate) fn is_under_way() -> bool {
    IS_UNDER_WAY.load(Acquire)
}

/// The thread of this number has this memory no more.
pub(crate) fn leave_behind(number: u32) {
    BATCH.abandon(number);
}

impl Process {
    /// Has a batch of pages begin to leave before a fault of the thread of this number is served, where
    /// there is little room left and it is the turn of resident pages.
    pub(crate) fn depart(&mut self, number: u32) -> Option<Departure> {
        if !self.may_depart() || self.next_step() != Step::SwapOut {
            return None;
        }
        self.settle();
        self.make_room_for_buffers();
        let mut victims = [0; LIFT_PAGES];
        let count = self.choose_victims(Whose::Own, &mut victims);
        let count = self.swap_out_behind_stretch(&victims[..count]);
        if count == 0 {
            return None;
        }
        let mut batch = BATCH.try_lock(number)?;
        (batch.count, batch.pages) = (count, victims);
        IS_UNDER_WAY.store(true, Relaxed);
        flights::begin();
        let own = self.engine.cache.coding();
        let coding = batch.coding.filter(|coding| coding.is_like(&own)).unwrap_or(own);
        let is_clean = |at: usize| u64::from(self.is_protected(victims[at])) << at;
        Some(Departure {
            batch,
            clean: (0..count).map(is_clean).sum(),
            watch: self.watch,
            coding,
            // SAFETY: the batch is locked until they were compressed.
            buffers: unsafe { self.departures.buffers() },
            coded_bytes_max: self.departures.coded_bytes_max,
        })
    }

    fn may_depart(&self) -> bool {
        self.departures.pages_max > 0
            && self.room_bytes() < (self.departures.pages_max * PAGE_BYTES) as i64
            && !is_under_way()
            && !self.gives_in_vain()
            && !self.engine.cache.is_dense()
            && self.may_take_stretches()
    }

    fn make_room_for_buffers(&mut self) {
        if !self.departures.is_used {
            self.make_room_bytes(self.departures.bytes() as i64);
            self.departures.is_used = true;
        }
    }

    /// Swaps out all of `victims` but those of a stretch that they begin with; gives how many these are.
    fn swap_out_behind_stretch(&mut self, victims: &[u64]) -> usize {
        if victims.is_empty() {
            return 0;
        }
        let (length, is_stretch) = self.first_part(victims);
        let (stretch, others) = victims.split_at(if is_stretch { length } else { 0 });
        self.swap_out_stretches(others);
        stretch.len()
    }

    /// Ends the departure under way, if it is not another thread's that goes on.
    pub(crate) fn end_departure(&mut self, number: u32) {
        if is_under_way()
            && let Some(mut batch) = BATCH.try_lock(number)
        {
            self.store_batch(&mut batch);
        }
    }

    /// Waits for the departure under way, and ends it, as the thread of this number.
    pub(crate) fn await_departure(&mut self, number: u32) {
        if is_under_way() {
            self.store_batch(&mut lock_or_die(&BATCH, number));
        }
    }

    /// Has the departure under way end; false where there is none.
    pub(crate) fn has_departed(&mut self) -> bool {
        let is_under_way = is_under_way();
        if is_under_way {
            self.settle();
        }
        is_under_way
    }

    /// Hands what was lifted and compressed to the cache.
    fn store_batch(&mut self, batch: &mut Batch) {
        let began = ticks();
        let (pages, taken) = (&batch.pages[..batch.count], batch.taken);
        self.note_taken(pages, taken);
        // SAFETY: the batch is locked.
        let Buffers { contents, coded, .. } = unsafe { self.departures.buffers() };
        let coded = coded.as_flattened();
        let mut departed = Departed::default();
        let lifted = pages[..taken.pages].iter().zip(contents).zip(batch.made);
        for ((&page, contents), made) in lifted {
            // What the pool takes may have become denser meanwhile.
            let is_dense = self.engine.cache.is_dense();
            let content = made.content(contents, coded).filter(|_| !is_dense);
            self.store_page(page, contents, content, &mut departed);
        }
        let ticks = batch.ticks + ticks().wrapping_sub(began);
        self.count_departed(&departed, ticks);
        self.room_ticks += ticks;
        IS_UNDER_WAY.store(false, Relaxed);
        flights::end();
        if taken.pages < batch.count {
            // What cannot be read, or must not be dropped.
            self.swap_out_runs(&pages[taken.pages..]);
        }
        self.write_ahead();
    }
}
