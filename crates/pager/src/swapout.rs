//! Making room: victims in batches, lifted out of the program atomically, handed
//! to the cache; and the oldest of the cache handed to the store.
//!
//! Source: ioctl_userfaultfd(2), UFFDIO_MOVE: atomic against other threads, and
//! refused for pages that are pinned or shared with another process since a fork.

use core::arch::asm;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

use zpager_cache::{Content, Departed, Entry, Leavers, PageNumber, Placed, SpillError, Written};
use zpager_codec::Page;
use zpager_policy::{Alternative, ReadTicks, Shares, Step};
use zpager_sys::processor::ticks;
use zpager_sys::syscall::{checked, nr};
use zpager_sys::{Errno, PAGE_BYTES};
use zpager_wire::{EventKind, Frame, Frames, UNASKED};

use crate::account::count;
use crate::fault::{TRIES_MAX, fail};
use crate::mirrored::MirroredMemory;
use crate::own::OwnStores;
use crate::process::{BATCH_PAGES, Lift, Process};
use crate::regions::{Region, Regions};
use crate::threads::Threads;

/// Most pages lifted in one go. What is on its way costs RAM twice for a moment; where threads run on
/// several processors each go interrupts all of them.
pub(crate) const LIFT_PAGES: usize = 64;
/// So many are lifted in any budget, and more only if they are at most this part of it.
const LIFT_PAGES_MIN: usize = 32;
const LIFT_PART: u64 = 256;
/// Steps of one search for room.
const STEPS_MAX: u32 = 1 << 16;
/// Steps in a row that gave nothing, and that gave something of which nothing was gained: what a full store
/// has to take back takes RAM again.
const FUTILE_MAX: u32 = 8;
const GAINLESS_MAX: u32 = 64;
/// The same where relatives have most of the pool too, who are to give as well.
const SHARED_GAINLESS_MAX: u32 = 16;
/// Over the budget by this much, the user is told.
const EXCESS_BYTES: i64 = 1 << 20;

/// Pages that a process keeps of its own, and of those in frames, when a relative needs room: what
/// one instruction and one call may need.
const PAGES_MIN: u64 = 32;
/// Less than this part of the pool is not worth looking for behind what relatives have too.
const OWN_POOL_PART: usize = 8;
/// Most holders of a page that is given for the RAM that it takes less compressed.
pub(crate) const HOLDERS_FEW_MAX: u32 = 8;
/// Batches of pages in frames that are given in vain before something else is tried.
const TURNS_MAX: u32 = 16;
/// Of these, so many at a time in advance: the compressed copies are no room, but take some, until relatives give
/// the same.
pub(crate) const ADVANCE_TURNS_MAX: u32 = 4;
/// Needs of room after one in vain that are left as they are: the run may need more than its budget,
/// and a process that goes on may end.
const STARVED_TURNS_MAX: u32 = 64;

const ENOENT: Errno = Errno(2);
const EINVAL: Errno = Errno(22);
const EAGAIN: Errno = Errno(11);
const EBUSY: Errno = Errno(16);
const EEXIST: Errno = Errno(17);

/// What is known of the pages that may leave.
struct View<'a> {
    regions: &'a Regions,
    threads: &'a Threads,
    frames: &'a Frames<'static>,
    pages: Whose,
    /// Those, too, that a relative is about to give.
    takes_begun: bool,
    count: u64,
}

/// Which pages leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The process's own: RAM is gained at once.
    Own,
    /// Those that are in frames with at most so many holders: RAM is gained when the last gives them. If there are
    /// any, those that no relative is about to give, as what it puts in the store is not to be found yet.
    Shared(u32),
    /// Those of them that a relative has given already.
    Given,
}

impl Leavers for View<'_> {
    fn range(&self, from: PageNumber) -> Option<Range<PageNumber>> {
        let regions = &self.regions.all()[self.regions.first_after(from)..];
        regions.iter().find(|region| region.may_leave()).map(Region::pages)
    }

    #[inline]
    fn may_leave(&self, page: PageNumber, frame: u32) -> Result<(), PageNumber> {
        if !self.wants(frame) {
            return Err(page + 1);
        }
        self.threads.hold_end(page).map_or(Ok(()), Err)
    }

    fn count(&self) -> u64 {
        self.count
    }
}

impl View<'_> {
    fn wants(&self, frame: u32) -> bool {
        match (self.pages, Frame::from_raw(frame)) {
            (Whose::Own, None) => true,
            (Whose::Shared(most), Some(frame)) => {
                let is_left = self.takes_begun || !self.frames.is_begun(frame);
                is_left && self.frames.holders(frame) <= most
            }
            (Whose::Given, Some(frame)) => self.frames.is_given(frame),
            _ => false,
        }
    }
}

impl Process {
    /// Makes room for `pages` more resident pages within the budget, as far as this process can.
    pub(crate) fn make_room(&mut self, pages: usize) {
        self.make_room_bytes((pages * PAGE_BYTES) as i64);
    }

    pub(crate) fn make_room_bytes(&mut self, bytes: i64) {
        self.find_room(bytes);
        self.give_spares(bytes);
    }

    /// Makes room, of which a part may be spares.
    pub(crate) fn find_room(&mut self, bytes: i64) {
        if self.gives_in_vain() {
            self.publish();
            if self.has_room(bytes) {
                return;
            }
        } else {
            self.ask_richer(bytes);
            self.give_common();
            if self.give_until(bytes) || self.bury_children() && self.give_until(bytes) {
                return;
            }
        }
        self.slot.starved.fetch_add(1, Relaxed);
        if self.starved_pause > 0 {
            self.starved_pause -= 1;
        } else if self.share_out(bytes) {
            self.starved_turns = 0;
            return;
        } else {
            self.starved_turns = (self.starved_turns * 2).clamp(1, STARVED_TURNS_MAX);
            self.starved_pause = self.starved_turns;
        }
        let excess_bytes = self.own_excess_bytes();
        if excess_bytes > EXCESS_BYTES {
            self.note(EventKind::BudgetExceeded, excess_bytes as u64, 0);
        }
    }

    /// Whether what is lifted would go back, as it did not long ago.
    pub(crate) fn gives_in_vain(&self) -> bool {
        self.is_stuck && self.starved_pause > 0
    }

    /// Asks relatives for room. Once they have no pages of their own to give, gives pages that they have too,
    /// while they do the same; true once there is room.
    fn share_out(&mut self, bytes: i64) -> bool {
        let few = self.holders_few();
        self.drop_spares(self.spare_pages);
        self.bury_relatives();
        if self.give_until(bytes) {
            return true;
        }
        for _ in 0..TURNS_MAX {
            let was = self.asked_in_vain;
            if self.ask_relative(bytes) || self.give_until(bytes) {
                return true;
            }
            // Relatives give the same pages: their clocks' hands were together at the fork.
            let is_vain = self.asked_in_vain > was;
            let gave = (is_vain || !self.relatives_have_own()) && self.give_shared(few);
            if !gave && is_vain {
                break;
            }
        }
        self.engine.cache.has_store() && self.give_shared(u32::MAX) && self.give_until(bytes)
    }

    /// Gives what this process can until there is room, spares included; false when that is not enough.
    fn give_until(&mut self, bytes: i64) -> bool {
        let (mut futile, mut gainless) = (0, 0);
        let (mut least_bytes, put_back_pages) = (usize::MAX, self.put_back_pages);
        self.is_stuck = false;
        for _ in 0..STEPS_MAX {
            self.publish();
            if self.has_room(bytes + self.engine.more_room_bytes() as i64) {
                break;
            }
            let held_bytes = self.own_resident_bytes() + self.own_pool_bytes();
            gainless = if held_bytes < least_bytes { 0 } else { gainless + 1 };
            least_bytes = least_bytes.min(held_bytes);
            let gave = self.has_departed() || self.give() || self.claim_all() > 0;
            futile = if gave { 0 } else { futile + 1 };
            let gainless_max = if self.has_own_pool() { GAINLESS_MAX } else { SHARED_GAINLESS_MAX };
            if futile == FUTILE_MAX || gainless >= gainless_max {
                self.is_stuck = gainless >= GAINLESS_MAX || self.put_back_pages > put_back_pages;
                break;
            }
        }
        self.engine.found_room();
        self.has_room(bytes)
    }

    /// Whether there is so much, spares included.
    fn has_room(&self, bytes: i64) -> bool {
        self.room_bytes() + self.spare_bytes() as i64 >= bytes
    }

    /// As many compressed copies of a page take less than the page.
    pub(crate) fn holders_few(&self) -> u32 {
        let pages_bytes = self.engine.cache.pooled_pages() * PAGE_BYTES;
        match pages_bytes / self.engine.cache.pool_bytes().max(1) {
            0 => HOLDERS_FEW_MAX / 2,
            ratio => (ratio as u32 - 1).min(HOLDERS_FEW_MAX),
        }
    }

    /// Gives pages that relatives have too, as far as they are not all that the process has, and then what
    /// the pool holds of them.
    fn give_shared(&mut self, most_holders: u32) -> bool {
        let gave = self.shared_pages > PAGES_MIN && self.swap_out(Whose::Shared(most_holders)) > 0
            || !self.has_own_pool() && self.engine.cache.has_store() && self.spill();
        if most_holders == u32::MAX {
            // It is in the store, where relatives find only what is there.
            self.flush_store();
        }
        self.tell_given();
        self.publish();
        gave
    }

    /// Whether room is gained by what leaves the pool, as relatives have little of it too.
    fn has_own_pool(&self) -> bool {
        self.own_pool_bytes() >= self.engine.cache.ram_bytes() / OWN_POOL_PART
    }

    /// One step towards room; false when it gave nothing.
    fn give(&mut self) -> bool {
        let [step, instead] = self.steps();
        self.take(step) || instead != Step::Nothing && self.take(instead)
    }

    fn take(&mut self, step: Step) -> bool {
        match step {
            Step::SwapOut => self.swap_out(Whose::Own) > 0,
            Step::Spill => self.spill(),
            // A relative needs it more.
            Step::Nothing => {
                self.is_asked() && self.resident_pages > PAGES_MIN && self.swap_out(Whose::Own) > 0
            }
        }
    }

    /// What makes room next.
    pub(crate) fn next_step(&mut self) -> Step {
        let [step, _] = self.steps();
        step
    }

    fn steps(&mut self) -> [Step; 2] {
        let expected = &self.control.expected_reads;
        self.engine.expect_reads(ReadTicks {
            page: expected.page_ticks.load(Relaxed),
            cluster: expected.cluster_ticks.load(Relaxed),
        });
        self.engine.steps(&self.shares())
    }

    fn shares(&self) -> Shares {
        Shares {
            resident_bytes: self.own_resident_bytes(),
            pool_bytes: self.engine.cache.ram_bytes(),
            raw_bytes: self.engine.cache.raw_bytes(),
            has_store: self.engine.cache.has_store(),
        }
    }

    /// How many pages are lifted in one go, with a budget.
    pub(crate) fn lift_pages(budget_bytes: u64) -> usize {
        let part = budget_bytes / LIFT_PART / PAGE_BYTES as u64;
        (part as usize).clamp(LIFT_PAGES_MIN, LIFT_PAGES)
    }

    /// Writes the oldest compressed pages to the store.
    fn spill(&mut self) -> bool {
        let began = ticks();
        let written = self.engine.spill();
        self.engine.spilled(&written, ticks().wrapping_sub(began));
        self.count_written(&written);
        written.outcome.is_ok()
    }

    /// Has all that left for the store be there.
    pub(crate) fn flush_store(&mut self) {
        let written = self.engine.flush();
        self.count_written(&written);
    }

    /// Counts what went to the store, and tells the user why pages do not leave for it.
    fn count_written(&self, written: &Written) {
        let counters = &self.control.counters;
        count(&counters.spilled_pages, written.outgoing.pages);
        count(&counters.clean_drops, written.outgoing.copied_pages);
        count(&counters.store_page_bytes, written.outgoing.page_bytes);
        count(&counters.recompressed_pages, written.outgoing.recompressed_pages);
        count(&counters.recompressed_saved_bytes, written.outgoing.recompressed_saved_bytes);
        count(&counters.store_writes, written.outgoing.writes);
        count(&counters.store_written_bytes, written.outgoing.bytes);
        count(&counters.store_reads, written.reads as usize);
        count(&counters.store_read_bytes, written.read_bytes);
        counters.store_file_bytes.fetch_max(written.outgoing.end_bytes, Relaxed);
        let blocks = self.engine.cache.store_blocks();
        if let Some((store, error)) = blocks.and_then(OwnStores::take_failure) {
            self.note(EventKind::StoreFailed, error.0 as u64, store as u64);
        }
        let kinds = [EventKind::ServerFailed, EventKind::MirrorFailed];
        for (kind, error) in kinds.into_iter().zip(MirroredMemory::take_failures()) {
            if let Some(error) = error {
                self.note(kind, error.0 as u64, 0);
            }
        }
        match written.outgoing.refused.or(written.outcome.err()) {
            Some(SpillError::Full) => self.note(EventKind::StoreFull, 0, 0),
            Some(SpillError::Io(error)) => {
                self.note(EventKind::StoreWriteFailed, error.0 as u64, 0);
            }
            Some(SpillError::NoStore | SpillError::Nothing) | None => {}
        }
    }

    /// Swaps out a batch of pages; gives how many left for good.
    pub(crate) fn swap_out(&mut self, pages: Whose) -> usize {
        self.settle();
        self.limit_spares();
        let mut victims = [0; LIFT_PAGES];
        let chosen = self.choose_victims(pages, &mut victims);
        let victims = &victims[..chosen];
        let put_back_pages = self.put_back_pages;
        let lifted = match self.way_to_lift() {
            Alternative::Plain => self.swap_out_runs(victims),
            Alternative::Other => self.swap_out_stretches(victims),
        };
        lifted - (self.put_back_pages - put_back_pages) as usize
    }

    /// Chooses a batch of resident pages, in ascending order; gives how many.
    pub(crate) fn choose_victims(
        &mut self,
        pages: Whose,
        victims: &mut [u64; LIFT_PAGES],
    ) -> usize {
        let mut view = View {
            regions: &self.regions,
            threads: &self.threads,
            frames: &self.tables.frames,
            pages,
            takes_begun: false,
            count: match pages {
                Whose::Own => self.resident_pages,
                Whose::Shared(_) | Whose::Given => self.shared_pages,
            },
        };
        let victims = &mut victims[..self.lift_pages];
        let mut chosen = self.engine.choose(&view, victims);
        if chosen == 0 && matches!(pages, Whose::Shared(_)) {
            // Who was about to give the others may have been killed.
            view.takes_begun = true;
            chosen = self.engine.choose(&view, victims);
        }
        match pages {
            Whose::Own => self.common.own_leave(chosen as u64),
            Whose::Shared(_) => self.note_given(&victims[..chosen]),
            Whose::Given => {}
        }
        chosen
    }

    /// Swaps out at most [`LIFT_PAGES`] resident pages, in ascending order, run by run; gives how many were
    /// lifted.
    pub(crate) fn swap_out_runs(&mut self, victims: &[u64]) -> usize {
        if self.is_guarded() {
            return self.swap_out_guarded(victims);
        }
        let began = ticks();
        let mut lifted = [0; LIFT_PAGES];
        let mut count_lifted = 0;
        let mut at = 0;
        while at < victims.len() {
            let region = self.regions.find(victims[at]);
            let run = run_length(&victims[at..], region.as_ref());
            if let Some(region) = region {
                let pages = &victims[at..at + run];
                count_lifted +=
                    self.lift_run(&region, pages, &mut lifted[count_lifted..], count_lifted);
            }
            at += run;
        }
        let lifting_ticks = ticks().wrapping_sub(began);
        self.store_staged(&lifted[..count_lifted], lifting_ticks);
        count_lifted
    }

    /// Lifts neighbouring pages of one region into staging, `staged` places behind the spares;
    /// writes those that came to `lifted` and gives how many.
    fn lift_run(
        &mut self,
        region: &Region,
        pages: &[u64],
        lifted: &mut [u64],
        staged: usize,
    ) -> usize {
        if self.lift == Lift::Copy || !region.can_move() || self.frame_of(pages[0]).is_some() {
            return self.lift_by_copy(region, pages, lifted, staged);
        }
        let mut done = 0;
        let mut came = 0;
        let mut broke_sharing = false;
        let mut tries = 0;
        while done < pages.len() {
            let source = pages[done] as usize * PAGE_BYTES;
            let target = self.staging.start() + (self.spare_pages + staged + came) * PAGE_BYTES;
            let bytes = (pages.len() - done) * PAGE_BYTES;
            // SAFETY: staging is empty from there on; until the page is put back, a fault on it waits for the lock.
            let moved = unsafe { self.watch.move_pages(target, source, bytes) };
            let arrived = match moved {
                Ok(moved_bytes) if moved_bytes == bytes => bytes / PAGE_BYTES,
                // When it has to wait for a page, Linux 6.18 moves what follows without counting it, and
                // then stumbles over it: mm/userfaultfd.c, `move_pages`, keeps the error of the attempt before.
                _ => (0..bytes / PAGE_BYTES)
                    .take_while(|at| is_there(target + at * PAGE_BYTES))
                    .count(),
            };
            if arrived > 0 {
                lifted[came..came + arrived].copy_from_slice(&pages[done..done + arrived]);
                done += arrived;
                came += arrived;
                broke_sharing = false;
                tries = 0;
                continue;
            }
            match moved {
                Err(EAGAIN) if tries < TRIES_MAX => tries += 1,
                Err(ENOENT) if self.is_present(pages[done]) => {
                    self.rejuvenate(pages[done]);
                    done += 1;
                }
                Err(ENOENT) => {
                    // The kernel holds nothing there: the page reads as zeros.
                    self.forget(pages[done]..pages[done] + 1);
                    done += 1;
                }
                // A protected page is shared with nobody: it came after the last fork.
                Err(EBUSY) if !broke_sharing && !self.is_protected(pages[done]) => {
                    break_sharing(source);
                    broke_sharing = true;
                }
                // They can be executed, or staging can, where it was not asked for (personality(2),
                // `READ_IMPLIES_EXEC`); or they lie in several mappings of the kernel's.
                Err(EINVAL) => {
                    let rest = &mut lifted[came..];
                    return came + self.lift_by_copy(region, &pages[done..], rest, staged + came);
                }
                Ok(_) | Err(_) => {
                    self.rejuvenate(pages[done]);
                    done += 1;
                    broke_sharing = false;
                    tries = 0;
                }
            }
        }
        came
    }

    /// The way of kernels without `UFFDIO_MOVE`, of memory that nobody can write or that holds code, and
    /// of pages in frames, which are write-protected already and never moved while another process has them.
    fn lift_by_copy(
        &mut self,
        region: &Region,
        pages: &[u64],
        lifted: &mut [u64],
        staged: usize,
    ) -> usize {
        let source = pages[0] as usize * PAGE_BYTES;
        let bytes = pages.len() * PAGE_BYTES;
        let is_shared = self.frame_of(pages[0]).is_some();
        if region.is_writable()
            && !is_shared
            && self.watch.write_protect(source, bytes, true).is_err()
        {
            pages.iter().for_each(|&page| self.rejuvenate(page));
            return 0;
        }
        let offset_bytes = (self.spare_pages + staged) * PAGE_BYTES;
        let target = self.staging.start() + offset_bytes;
        // Twice there for a moment.
        self.control.usage.note_peak(bytes as u64);
        // SAFETY: the source is resident, readable and cannot be written while the lock is held;
        // staging is empty there; after the copy its pages are dropped, and faults on them wait.
        let (copied, dropped) = unsafe {
            let copied = self.watch.copy(target, source as *const u8, bytes, false);
            let copied = copied.is_ok_and(|copied| copied == bytes);
            let drop = [source, bytes, nr::MADV_DONTNEED as usize];
            (copied, copied && checked(nr::__NR_madvise, drop).is_ok())
        };
        if !dropped {
            // Sealed memory, or none to copy to: it stays.
            if copied {
                self.put_back_dropped(source, target, pages.len(), is_shared);
            }
            self.staging.release(offset_bytes, bytes);
            if !is_shared {
                self.end_copies(&(pages[0]..pages[0] + pages.len() as u64));
                let _ = self.watch.write_protect(source, bytes, false);
            }
            pages.iter().for_each(|&page| self.rejuvenate(page));
            return 0;
        }
        lifted[..pages.len()].copy_from_slice(pages);
        pages.len()
    }

    /// Puts back those of some pages that the kernel had dropped when it came to one that it does not drop.
    fn put_back_dropped(&self, to: usize, from: usize, pages: usize, protect: bool) {
        for offset_bytes in (0..pages).map(|at| at * PAGE_BYTES) {
            let (target, source) = (to + offset_bytes, (from + offset_bytes) as *const u8);
            // SAFETY: the source is a page of staging with what the target held; where that is there still nothing
            // is copied.
            let put = || unsafe { self.watch.copy(target, source, PAGE_BYTES, protect) };
            match (0..TRIES_MAX).map(|_| put()).find(|outcome| *outcome != Err(EAGAIN)) {
                Some(Ok(_) | Err(EEXIST)) => {}
                Some(Err(error)) => fail(error, target),
                None => fail(EAGAIN, target),
            }
        }
    }

    /// A page that cannot leave now is not asked again for a while.
    pub(crate) fn rejuvenate(&mut self, page: u64) {
        let frame = self.frame_of(page).map_or(0, Frame::raw);
        self.engine.rejuvenate(page, frame);
    }

    /// Hands the pages in staging to the cache; what they were becomes spares. To get there took them
    /// `lifting_ticks`.
    fn store_staged(&mut self, lifted: &[u64], lifting_ticks: u64) {
        let staging = &Self::pages_of(&self.staging)[self.spare_pages..];
        self.store_lifted(lifted, staging);
        let began = ticks();
        self.become_spares(lifted.len());
        let ticks = lifting_ticks + ticks().wrapping_sub(began);
        self.lifting.note(Alternative::Plain, lifted.len(), ticks);
        self.write_ahead();
    }

    /// Hands pages to the cache that were lifted, with what they hold.
    pub(crate) fn store_lifted(&mut self, lifted: &[u64], contents: &[Page]) {
        let mut departed = Departed::default();
        let began = ticks();
        for (&page, contents) in lifted.iter().zip(contents) {
            self.store_page(page, contents, None, &mut departed);
        }
        self.count_departed(&departed, ticks().wrapping_sub(began));
    }

    /// Hands a page to the cache that was lifted, with what it holds and what was `made` of it, if something was.
    pub(crate) fn store_page(
        &mut self,
        page: u64,
        contents: &Page,
        made: Option<Content<'_>>,
        departed: &mut Departed,
    ) {
        let heat = self.engine.cache.index.get(page).history().heat;
        let common = self.common_page(page, contents);
        self.count_out(page);
        if self.engine.drop_clean(page, departed) {
            return;
        }
        if common.is_some_and(|common| self.leave_as_common(page, contents, common, departed)) {
            self.record_left(page, contents);
            return;
        }
        let mut placed = self.engine.swap_out_made(page, contents, made, departed);
        if placed == Placed::NoRoom && self.spill() {
            placed = self.engine.swap_out_made(page, contents, made, departed);
        }
        if placed == Placed::NoRoom {
            let emptied = self.engine.cache.index.set(page, Entry::ABSENT);
            debug_assert!(emptied, "clearing needs no room");
            self.put(page, contents.0.as_ptr(), &[heat]);
            self.put_back_pages += 1;
            return;
        }
        self.record_left(page, contents);
        common.into_iter().for_each(|common| self.engine.cache.name_common(page, common.name));
    }

    /// Counts pages that the cache took in so much time.
    pub(crate) fn count_departed(&mut self, departed: &Departed, ticks: u64) {
        self.engine.left(departed, ticks);
        let counters = &self.control.counters;
        count(&counters.swapped_out_pages, departed.pages);
        count(&counters.clean_drops, departed.clean);
        count(&counters.same_filled_pages, departed.same_filled);
        count(&counters.incompressible_pages, departed.incompressible);
        count(&counters.dense_pages, departed.dense);
        count(&counters.repeats_pages, departed.second);
        count(&counters.original_bytes, departed.compressed * PAGE_BYTES);
        count(&counters.compressed_bytes, departed.compressed_bytes);
    }

    /// Pages that do not shrink have left already; others may leave before they have to.
    pub(crate) fn write_ahead(&mut self) {
        let counters = &self.control.counters;
        let began = ticks();
        let written = self.engine.departed();
        self.engine.spilled(&written, ticks().wrapping_sub(began));
        count(&counters.ahead_pages, written.outcome.unwrap_or(0));
        self.count_written(&written);
    }

    /// Gives pages back until the run fits its budget, because the supervisor asked.
    pub(crate) fn give_back(&mut self) {
        // Room for others to go on with, not only to stop exceeding.
        let bytes = (BATCH_PAGES * PAGE_BYTES * 4) as i64;
        self.give_after_relatives(bytes);
        let mut turns = 0;
        while !self.give_until(bytes)
            && turns < ADVANCE_TURNS_MAX
            && self.give_shared(self.holders_few())
        {
            turns += 1;
        }
        self.give_spares(bytes);
        self.trim_buffers();
        self.publish();
        self.engine.cache.heed_relatives();
        self.slot.give_back.store(UNASKED, Relaxed);
    }
}

/// Whether there is a page at `address`, which is registered; it may be one that the kernel has
/// swapped out, which mincore(2) would not find.
pub(crate) fn is_there(address: usize) -> bool {
    let arguments = [address, PAGE_BYTES, nr::MADV_POPULATE_READ as usize];
    // SAFETY: only reads.
    unsafe { checked(nr::__NR_madvise, arguments) }.is_ok()
}

/// How many of `victims` are neighbours within the first one's region.
fn run_length(victims: &[u64], region: Option<&Region>) -> usize {
    let end = region.map_or(0, |region| region.end);
    let mut length = 1;
    while length < victims.len()
        && victims[length] == victims[length - 1] + 1
        && victims[length] < end
    {
        length += 1;
    }
    length
}

/// Gives this process its own copy of a page that it shares with a relative since a fork.
fn break_sharing(address: usize) {
    // SAFETY: the page is resident and writable; adding nothing changes nothing for other threads.
    // In assembly, as a compiler makes a load of an atomic operation that changes nothing.
    unsafe {
        asm!("lock or byte ptr [{0}], 0", in(reg) address, options(nostack));
    }
}
