//! Pages that a process shares with its relatives since a fork, counted once.
//!
//! A forked child's pages are its parent's until one of them writes; then the
//! kernel copies, and tells nobody. So what both have at a fork takes a frame
//! ([`Frames`]) and is counted by it instead of by either of them, and nobody
//! changes such a page unnoticed:
//! - a resident page with a frame is write-protected by userfaultfd, in the parent
//!   before the fork and in the child before it returns to its program. Who writes
//!   it faults, makes room for a copy, leaves the frame, and only then may write;
//! - a page of the pool is written by the pager alone, which leaves the frame
//!   first ([`OwnSpace::before_write`](crate::own::OwnSpace)).
//!
//! Leaving costs RAM while there are other holders, and nothing for the last one.
//! A page that is dropped leaves its frame too, and RAM is gained when the last
//! holder drops it. So a process that has to give gives pages of its own first, unless these go
//! round and round ([`crate::common`]).
//!
//! Source: mm/rmap.c and mm/memory.c of Linux (`wp_page_reuse`), of which this is
//! the account as seen from the processes; ioctl_userfaultfd(2).
//!
//! Invariants, under the lock:
//! - a resident page whose entry names a frame is write-protected; one without is
//!   not, unless it is being lifted by copying or is clean ([`crate::copies`]). A page that the kernel may write for
//!   a thread's call is in no frame;
//! - `resident_pages` + `shared_pages` are the resident pages of the index;
//! - the sum of the run's frames with holders is `Usage::shared_bytes`, less the
//!   changes that its processes have not published yet. What a process has taken and not published has
//!   a holder that is not noted, the child that is not there yet: nobody takes it from the sum for a
//!   process that is killed meanwhile. What the child holds is noted in its slot once it is in the sum.
//!
//! Lock order: [`PROCESS`](crate::process::PROCESS) alone. Relatives meet in the
//! table's words, each of which stands alone and guards no memory: all of its
//! operations are relaxed, and the fork itself orders what the child inherits.
//! Nobody waits for a relative with more than a bounded number of naps.
//!
//! Processes that were forked while nothing was managed, and are entered together, have frames for what
//! they have in common from then on ([`Kin`](zpager_wire::Kin)).
//!
//! Other metadata has no frames. A child counts its index as its own from the start,
//! and orders, tables and buffers as far as it writes them itself; the frames' own
//! words, twelve bytes a page of the budget and a bit for each process, and 32 bytes a page
//! that was given while others had it, are not counted.
//!
//! Bad case: relatives that all write everything in random order: a fault a page.
//! Many relatives that share what fills the budget, without a store: no page of it is worth giving,
//! as each would keep a compressed copy. What a killed
//! process held is counted until a starving relative or the supervisor notices its end;
//! what one held that became a program without the agent, until that ends; and what is
//! held for a child that was killed before it did anything, until its parent ends.

use core::ops::Range;
use core::sync::atomic::{
    AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, Release},
};

use zpager_cache::{Entry, History, State};
use zpager_sys::processor::ticks;
use zpager_sys::{PAGE_BYTES, process, signal};
use zpager_wire::{ASKED, Frame, Frames, GIVE_BACK, Holds, Left, ProcessSlot, UNANSWERED, UNASKED};

use crate::fault::fail;
use crate::hold::pages_of;
use crate::identity;
use crate::process::Process;
use crate::regions::{Pages, Region};
use crate::start::open_pagemap;
use crate::watch::Watch;

/// Neighbours that are taken over with one call when their other holders are gone.
const CLAIMED_PAGES: u64 = 512;
/// A relative with less is not asked for more.
const ASKED_BYTES_MIN: u64 = 256 * 1024;
/// One that misses pages, too, is asked if it has so many times as many of its own; one that has missed none
/// for so long, about 200 ms, in any case, and for what its pool holds if that can go to a store. Such are
/// looked for once in so many times that room is short.
const RICHER: u64 = 16;
const IDLE_TICKS: u64 = 1 << 29;
const RICHER_TURNS: u32 = 16;
/// Naps until another relative is asked, and until one must have answered if there is no other:
/// it may wait for a processor that the machine has lent to somebody else, or be stopped.
const NAPS_MAX: u32 = 20;
const ANSWER_NAPS_MAX: u32 = 1000;
const NAP_NANOSECONDS: u64 = 200_000;
/// The same of a fork for which there is no room, and of one while the budget is exceeded.
const BIRTH_NAPS_MIN: u32 = 100;
const BIRTH_NAPS_MAX: u32 = 400;
/// How often they become half as many for forks that had no room after all.
const BIRTHS_IN_VAIN_MAX: u32 = 6;
const BIRTH_NAP_NANOSECONDS: u64 = 500_000;

/// What this process has changed in the run's frames.
pub(crate) static ACCOUNT: Account = Account::new();

/// Kept outside the process's state, as spaces of the cache change it too. Under the lock.
#[derive(Debug)]
pub(crate) struct Account {
    /// Frames taken less frames freed that are not in the run's sum yet.
    change_pages: AtomicI64,
    /// Pages of the pool that are in frames.
    pool_pages: AtomicU64,
    /// Where the process notes what it holds: the words and their number.
    holds: AtomicPtr<AtomicU64>,
    holds_length: AtomicUsize,
}

impl Account {
    const fn new() -> Self {
        Account {
            change_pages: AtomicI64::new(0),
            pool_pages: AtomicU64::new(0),
            holds: AtomicPtr::new(core::ptr::dangling_mut()),
            holds_length: AtomicUsize::new(0),
        }
    }

    /// Frames taken less frames freed since the last call.
    pub(crate) fn take_change(&self) -> i64 {
        self.change_pages.swap(0, Relaxed)
    }

    /// Whether more frames were freed than taken.
    pub(crate) fn is_less(&self) -> bool {
        self.change_pages.load(Relaxed) < 0
    }

    /// Has this process's holds noted there.
    pub(crate) fn set_holds(&self, holds: Holds<'static>) {
        self.holds.store(holds.words().as_ptr().cast_mut(), Relaxed);
        self.holds_length.store(holds.words().len(), Relaxed);
    }

    pub(crate) fn holds(&self) -> Holds<'static> {
        let (words, length) = (self.holds.load(Relaxed), self.holds_length.load(Relaxed));
        // SAFETY: the words that `set_holds` was given, or none.
        Holds::new(unsafe { core::slice::from_raw_parts(words, length) })
    }

    pub(crate) fn pool_bytes(&self) -> usize {
        self.pool_pages.load(Relaxed) as usize * PAGE_BYTES
    }

    /// Has a page that two processes will have in a frame; gives the frame.
    fn share(&self, frames: &Frames<'_>) -> Option<Frame> {
        let frame = frames.share()?;
        self.holds().set(frame);
        self.change_pages.fetch_add(1, Relaxed);
        Some(frame)
    }

    /// Has a page in the frame that its cell names, or that it gets. A new one is in the run's sum before it
    /// has a holder, from whom others would take it there if the process were killed.
    fn share_with_kin(
        &self,
        frames: &Frames<'_>,
        cell: &AtomicU32,
        shared_bytes: &AtomicU64,
    ) -> Option<Frame> {
        let known = Frame::from_raw(cell.load(Relaxed));
        let frame = match known.filter(|frame| frames.hold(*frame)) {
            Some(frame) => frame,
            None => {
                let frame = frames.begin()?;
                shared_bytes.fetch_add(PAGE_BYTES as u64, Relaxed);
                cell.store(frame.raw(), Release);
                frame
            }
        };
        self.holds().set(frame);
        Some(frame)
    }

    /// Holds a frame that others may have left by now, and have given away. False where they have.
    pub(crate) fn hold(&self, frames: &Frames<'_>, frame: Frame) -> bool {
        let is_held = frames.hold(frame);
        if is_held {
            self.holds().set(frame);
        }
        is_held
    }

    /// A page of the pool is in no frame any more.
    pub(crate) fn lose_pool_page(&self) {
        self.pool_pages.fetch_sub(1, Relaxed);
    }

    fn leave(&self, frames: &Frames<'_>, frame: Frame) {
        self.holds().clear(frame);
        self.leave_for_child(frames, frame);
    }

    /// The hold ends of a child that was not made.
    pub(crate) fn leave_for_child(&self, frames: &Frames<'_>, frame: Frame) {
        if frames.leave(frame) == Left::Nobody {
            self.change_pages.fetch_sub(1, Relaxed);
        }
    }

    fn claim(&self, frames: &Frames<'_>, frame: Frame) -> bool {
        let claimed = frames.claim(frame);
        if claimed {
            self.holds().clear(frame);
            self.change_pages.fetch_sub(1, Relaxed);
        }
        claimed
    }

    /// Has a page of the pool in a frame that a child will hold too. None where frames have run out.
    pub(crate) fn share_pool_page(&self, frames: &Frames<'_>) -> Option<Frame> {
        let frame = self.share(frames)?;
        self.pool_pages.fetch_add(1, Relaxed);
        Some(frame)
    }

    /// A page of the pool leaves its frame.
    pub(crate) fn leave_pool_page(&self, frames: &Frames<'_>, frame: Frame) {
        self.leave(frames, frame);
        self.pool_pages.fetch_sub(1, Relaxed);
    }

    /// Whether a page of the pool has no other holders; it is in no frame then.
    pub(crate) fn claim_pool_page(&self, frames: &Frames<'_>, frame: Frame) -> bool {
        let claimed = self.claim(frames, frame);
        if claimed {
            self.pool_pages.fetch_sub(1, Relaxed);
        }
        claimed
    }
}

impl Process {
    /// The frame of a page, where it is resident and in one.
    pub(crate) fn frame_of(&self, page: u64) -> Option<Frame> {
        match self.engine.cache.index.get(page).state() {
            State::Resident { frame, .. } => Frame::from_raw(frame),
            _ => None,
        }
    }

    fn set_frame(&mut self, page: u64, frame: Option<Frame>) {
        let entry = self.engine.cache.index.get(page);
        if let State::Resident { turn, .. } = entry.state() {
            let frame = frame.map_or(0, Frame::raw);
            let entry = Entry::new(State::Resident { turn, frame }).with_history(entry.history());
            let entered = self.engine.cache.index.set(page, entry);
            debug_assert!(entered, "a resident page has an entry");
        }
    }

    /// The first page of `pages` that is in a frame.
    fn next_shared(&self, pages: Pages) -> Option<(u64, Frame)> {
        let mut from = pages.start;
        while let Some((page, entry)) = self.engine.cache.index.next_resident(from, pages.end) {
            if let Some(frame) = Frame::from_raw(entry.frame()) {
                return Some((page, frame));
            }
            from = page + 1;
        }
        None
    }

    /// Whether a page of `pages` is in a frame.
    pub(crate) fn has_frames(&self, pages: &Pages) -> bool {
        self.next_shared(pages.clone()).is_some()
    }

    /// Takes all of `pages` out of their frames: they are this process's own. They are still write-protected.
    pub(crate) fn disown_frames(&mut self, pages: Pages) {
        let mut from = pages.start;
        while self.shared_pages > 0
            && let Some((page, frame)) = self.next_shared(from..pages.end)
        {
            self.leave_frame(page, frame);
            from = page + 1;
        }
    }

    /// Before a fork: everything that parent and child will both have gets one more holder. What the child
    /// holds is noted in its slot, if there is one for it.
    pub(crate) fn share_with_child(&mut self) {
        let child =
            self.unborn.map_or(Holds::new(&[]), |slot| self.tables.holds_of(self.control, slot));
        let mut at = 0;
        while let Some(region) = self.regions.all().get(at).copied() {
            at += 1;
            if region.in_child.is_copied() {
                self.share_around_holds(&region, child);
            }
        }
        self.engine.cache.objects().share(child);
        self.publish();
        // Now that all of it is in the sum.
        if self.unborn.is_some() {
            self.note_holds_of_child(child);
        }
    }

    /// Notes what parent and child both have.
    fn note_holds_of_child(&self, holds: Holds<'_>) {
        for region in self.regions.all().iter().filter(|region| region.in_child.is_copied()) {
            let mut from = region.start;
            while let Some((page, frame)) = self.next_shared(from..region.end) {
                holds.set(frame);
                from = page + 1;
            }
        }
        self.engine.cache.objects().note_holds(holds);
    }

    /// What the kernel may be about to write for another thread stays as it is, as it would not get
    /// to a protected page: both count it as their own.
    fn share_around_holds(&mut self, region: &Region, child: Holds<'_>) {
        let mut from = region.start;
        while from < region.end {
            let hold = self.next_hold(from, region.end);
            let (start, end) = hold.unwrap_or((region.end, region.end));
            if from < start {
                let part = Region { start: from, end: start, ..*region };
                // Other threads write on until their pages are protected.
                let protected = self.protect_pages(part.pages(), true);
                self.share_part(&part, protected, child);
            }
            self.share_held(start..end, child);
            from = end;
        }
    }

    /// Held pages that are in frames are only read by the kernel.
    fn share_held(&mut self, pages: Pages, child: Holds<'_>) {
        let mut from = pages.start;
        while let Some((page, frame)) = self.next_shared(from..pages.end) {
            if self.tables.frames.hold(frame) {
                child.set(frame);
            } else {
                self.leave_frame(page, frame);
                self.protect_page(page, false);
            }
            from = page + 1;
        }
    }

    /// The first part of `from..end` that a thread holds.
    pub(crate) fn next_hold(&self, from: u64, end: u64) -> Option<(u64, u64)> {
        self.threads
            .live()
            .flat_map(|thread| thread.held().iter())
            .map(|&(start, hold_end)| (start.max(from), hold_end.min(end)))
            .filter(|(start, hold_end)| start < hold_end)
            .min()
    }

    /// Write-protects some pages, or ends that. Not over the border of two mappings on kernels before 6.3.
    fn protect_pages(&mut self, pages: Pages, protect: bool) -> bool {
        match self.watch {
            Watch::Userfaultfd(uffd) => {
                let bytes = (pages.end - pages.start) as usize * PAGE_BYTES;
                uffd.write_protect(pages.start as usize * PAGE_BYTES, bytes, protect).is_ok()
            }
            Watch::Guards(_) if protect => self.shut(pages),
            Watch::Guards(_) => self.open(pages),
        }
    }

    fn protect_page(&mut self, page: u64, protect: bool) -> bool {
        self.protect_pages(page..page + 1, protect)
    }

    fn share_part(&mut self, region: &Region, protected: bool, child: Holds<'_>) {
        let mut from = region.start;
        while let Some((page, entry)) = self.engine.cache.index.next_resident(from, region.end) {
            from = page + 1;
            let State::Resident { turn, frame } = entry.state() else { continue };
            let heat = entry.history().heat;
            if !protected && !self.protect_page(page, true) {
                continue;
            }
            match Frame::from_raw(frame) {
                // A void frame, or one with more holders than can be counted: its page is the process's own.
                Some(frame) if !self.tables.frames.hold(frame) => self.leave_frame(page, frame),
                Some(frame) => {
                    child.set(frame);
                    continue;
                }
                None => {}
            }
            match ACCOUNT.share(&self.tables.frames) {
                Some(frame) => {
                    let shared = Entry::new(State::Resident { turn, frame: frame.raw() })
                        .with_history(History { left: 0, heat });
                    let entered = self.engine.cache.index.set(page, shared);
                    debug_assert!(entered, "a resident page has an entry");
                    self.resident_pages -= 1;
                    self.shared_pages += 1;
                }
                // No frame: each counts the page as its own.
                None => {
                    self.protect_page(page, false);
                }
            }
        }
    }

    /// What is common to this process and others with which it was entered is counted once. All of them
    /// stand still, and what the kernel writes to by itself is spared already.
    pub(crate) fn share_with_kin(&mut self) {
        if let Ok(pagemap) = open_pagemap() {
            for at in 0..self.regions.all().len() {
                let (start, bytes) = self.regions.all()[at].bytes();
                pagemap.each_common(start..start + bytes, |run| self.share_run_with_kin(run));
            }
        }
        self.awaits_kin = false;
        self.publish();
    }

    fn share_run_with_kin(&mut self, run: Range<usize>) {
        if !self.protect_pages(pages_of(run.start, run.len()), true) {
            return;
        }
        let turn = self.control.kin_turn.load(Relaxed);
        for page in pages_of(run.start, run.len()) {
            let is_own = matches!(
                self.engine.cache.index.get(page).state(),
                State::Resident { frame: 0, .. }
            );
            let cell = self.tables.kin.cell(turn, page).filter(|_| is_own);
            let shared_bytes = &self.control.usage.shared_bytes;
            let share = |cell| ACCOUNT.share_with_kin(&self.tables.frames, cell, shared_bytes);
            match cell.and_then(share) {
                Some(frame) => {
                    self.set_frame(page, Some(frame));
                    self.resident_pages -= 1;
                    self.shared_pages += 1;
                }
                None => {
                    self.protect_page(page, false);
                }
            }
        }
    }

    /// After a fork that failed: the holds of the child that is not there.
    pub(crate) fn unshare_with_child(&mut self) {
        if let Some(slot) = self.unborn.take() {
            return self.control.retire(&self.tables, slot, identity::run_pid());
        }
        for at in 0..self.regions.all().len() {
            let region = self.regions.all()[at];
            let mut from = region.start;
            while region.in_child.is_copied()
                && let Some((page, frame)) = self.next_shared(from..region.end)
            {
                ACCOUNT.leave_for_child(&self.tables.frames, frame);
                from = page + 1;
            }
        }
        self.engine.cache.objects().leave_for_child();
        self.publish();
    }

    /// In a child, which has no holds in what it did not get.
    pub(crate) fn disown(&mut self, pages: Pages) {
        let mut from = pages.start;
        while let Some((page, _)) = self.next_shared(from..pages.end) {
            self.set_frame(page, None);
            self.shared_pages -= 1;
            self.resident_pages += 1;
            from = page + 1;
        }
    }

    /// Protects the shared pages of a range that was registered again.
    pub(crate) fn protect_shared(&mut self, region: &Region) {
        if self.shared_pages == 0 {
            return;
        }
        let protected = self.protect_pages(region.pages(), true);
        let mut from = region.start;
        while let Some((page, entry)) = self.engine.cache.index.next_resident(from, region.end) {
            from = page + 1;
            match Frame::from_raw(entry.frame()) {
                None if protected => {
                    self.protect_page(page, false);
                }
                Some(frame) if !protected && !self.protect_page(page, true) => {
                    self.leave_frame(page, frame);
                }
                _ => {}
            }
        }
    }

    /// Takes a page out of its frame: it is this process's own. It is still write-protected.
    fn leave_frame(&mut self, page: u64, frame: Frame) {
        ACCOUNT.leave(&self.tables.frames, frame);
        self.set_frame(page, None);
        self.shared_pages -= 1;
        self.resident_pages += 1;
    }

    /// What was resident at `page` is gone.
    pub(crate) fn count_out(&mut self, page: u64) {
        match self.frame_of(page) {
            Some(frame) => {
                ACCOUNT.leave(&self.tables.frames, frame);
                self.shared_pages -= 1;
            }
            None => self.resident_pages -= 1,
        }
    }

    /// A write to a page that is in a frame: the page becomes the process's own and can be written.
    pub(crate) fn serve_write(&mut self, region: &Region, page: u64) {
        if self.claim_run(page..region.end.min(page + CLAIMED_PAGES)) > 0 {
            return;
        }
        self.make_room(1);
        // Making room may have lifted it.
        if let Some(frame) = self.frame_of(page) {
            self.leave_frame(page, frame);
            if !self.protect_page(page, false) {
                fail(zpager_sys::Errno(14), page as usize * PAGE_BYTES);
            }
        }
    }

    /// Takes over the pages from the start of `pages` on that nobody else holds; gives how many.
    fn claim_run(&mut self, pages: Pages) -> u64 {
        let mut end = pages.start;
        while end < pages.end
            && let Some(frame) = self.frame_of(end)
            && ACCOUNT.claim(&self.tables.frames, frame)
        {
            self.set_frame(end, None);
            end += 1;
        }
        let claimed = end - pages.start;
        self.shared_pages -= claimed;
        self.resident_pages += claimed;
        if claimed > 0 && !self.protect_pages(pages.start..end, false) {
            (pages.start..end).for_each(|page| {
                self.protect_page(page, false);
            });
        }
        claimed
    }

    /// Takes over everything that nobody else holds any more, if there may be some since the last time; gives
    /// how many pages.
    pub(crate) fn claim_all(&mut self) -> u64 {
        let times_alone = self.tables.frames.times_alone();
        if times_alone == self.claimed_times_alone {
            return 0;
        }
        self.claimed_times_alone = times_alone;
        let mut claimed = 0;
        for at in 0..self.regions.all().len() {
            let region = self.regions.all()[at];
            let mut from = region.start;
            while self.shared_pages > 0
                && let Some((page, _)) = self.next_shared(from..region.end)
            {
                let run = self.claim_run(page..region.end);
                claimed += run;
                from = page + run.max(1);
            }
        }
        self.engine.cache.objects().claim();
        claimed
    }

    /// Makes the pages of a range the process's own, as the kernel will write them.
    pub(crate) fn make_own(&mut self, pages: &Pages) {
        self.end_copies(pages);
        if self.shared_pages == 0 {
            return self.open_for_kernel(pages);
        }
        let mut from = pages.start;
        while let Some((page, _)) = self.next_shared(from..pages.end) {
            if let Some(region) = self.regions.find(page) {
                self.serve_write(&Region { end: region.end.min(pages.end), ..region }, page);
            }
            from = page + 1;
        }
        self.open_for_kernel(pages);
        self.publish();
    }

    /// In a child for which its parent had no slot: notes what it holds, so that others can take it away should
    /// it be killed.
    pub(crate) fn note_holds(&self) {
        self.note_holds_of_child(ACCOUNT.holds());
    }

    /// In a child that came too late for its slot: what was held for it is so no more. Nothing is registered yet.
    pub(crate) fn hold_anew(&mut self) {
        for at in 0..self.regions.all().len() {
            let region = self.regions.all()[at];
            let mut from = region.start;
            while region.in_child.is_copied()
                && let Some((page, frame)) = self.next_shared(from..region.end)
            {
                if !ACCOUNT.hold(&self.tables.frames, frame) {
                    self.set_frame(page, None);
                    self.shared_pages -= 1;
                    self.resident_pages += 1;
                }
                from = page + 1;
            }
        }
        self.engine.cache.objects().hold_anew();
    }

    /// Now and then, where room is short: asks a relative that has missed nothing for a while, or has many
    /// times as many pages of its own, so that this process does not go on giving what it needs itself.
    ///
    /// Source: Chu and Opderbeck, "The page fault frequency replacement algorithm" (1972): who misses has
    /// too little, who does not can spare some.
    pub(crate) fn ask_richer(&mut self, bytes: i64) {
        self.short_turns = self.short_turns.wrapping_add(1);
        let is_due = self.short_turns.is_multiple_of(RICHER_TURNS);
        if !is_due || self.control.processes.count() <= 1 || self.room_bytes() >= bytes {
            return;
        }
        let (now, least_bytes) = (ticks(), self.own_resident_bytes() as u64 * RICHER);
        let has_store = self.engine.cache.has_store();
        let spare_bytes = |slot: &ProcessSlot| {
            let own_bytes = slot.resident_bytes.load(Relaxed);
            // It may have missed one since.
            let is_idle = now.saturating_sub(slot.missed_at.load(Relaxed)) > IDLE_TICKS;
            let pool_bytes = if has_store { slot.pool_bytes.load(Relaxed) } else { 0 };
            if is_idle { own_bytes + pool_bytes } else { own_bytes.saturating_sub(least_bytes) }
        };
        // It may have to wait for a processor: there is room when it has given.
        if let Some(relative) = self.richest_relative(UNASKED, spare_bytes) {
            self.ask(relative);
        }
    }

    /// Asks the relative that holds most for room; true once there is enough. Where all were asked,
    /// waits for one that has not answered. Of many only what is their own counts: what they share, all
    /// of them would have to give.
    pub(crate) fn ask_relative(&mut self, bytes: i64) -> bool {
        let is_many = self.control.processes.count() > self.holders_few();
        let held_bytes = |slot: &ProcessSlot| match is_many {
            true => slot.resident_bytes.load(Relaxed),
            false => slot.held_bytes(),
        };
        let (relative, naps_max) =
            if let Some(relative) = self.richest_relative(UNASKED, held_bytes) {
                self.ask(relative);
                (relative, NAPS_MAX)
            } else if let Some(relative) = self.richest_relative(ASKED, held_bytes) {
                (relative, ANSWER_NAPS_MAX)
            } else {
                self.asked_in_vain += 1;
                return false;
            };
        let asked_bytes = relative.held_bytes();
        let (mut held_bytes, mut idle_naps) = (asked_bytes, 0);
        // What it holds bounds how often it gives some.
        while idle_naps < naps_max {
            process::nap(NAP_NANOSECONDS);
            if self.is_asked() {
                self.give_back();
            }
            if self.room_bytes() >= bytes {
                return true;
            }
            if relative.give_back.load(Relaxed) == UNASKED {
                // Less may be pages that others have too.
                self.asked_in_vain += u32::from(relative.held_bytes() >= asked_bytes);
                return false;
            }
            let is_giving = relative.held_bytes() < held_bytes;
            held_bytes = held_bytes.min(relative.held_bytes());
            idle_naps = if is_giving { 0 } else { idle_naps + 1 };
        }
        if naps_max == ANSWER_NAPS_MAX {
            let _ = relative.give_back.compare_exchange(ASKED, UNANSWERED, Relaxed, Relaxed);
        }
        false
    }

    /// Whether a relative may still give pages of its own, which is room at once.
    pub(crate) fn relatives_have_own(&self) -> bool {
        let own_bytes = |slot: &ProcessSlot| slot.resident_bytes.load(Relaxed);
        [UNASKED, ASKED].iter().any(|asked| self.richest_relative(*asked, own_bytes).is_some())
    }

    /// Waits for a while until relatives have given room, by ending most of all. The more often that was in
    /// vain the shorter, as where all of them are to stay.
    pub(crate) fn wait_for_room(&mut self, bytes: i64) {
        let shift = self.births_in_vain.min(BIRTHS_IN_VAIN_MAX);
        for nap in 0..BIRTH_NAPS_MAX >> shift {
            let room_bytes = self.room_bytes();
            if room_bytes >= bytes || self.control.processes.count() <= 1 {
                self.births_in_vain = 0;
                return;
            }
            if nap >= BIRTH_NAPS_MIN >> shift && room_bytes >= 0 {
                break;
            }
            process::nap(BIRTH_NAP_NANOSECONDS);
            if self.is_asked() {
                self.give_back();
            }
        }
        self.births_in_vain += 1;
    }

    /// Whether a relative or the supervisor wants room from this process.
    pub(crate) fn is_asked(&self) -> bool {
        self.slot.give_back.load(Relaxed) != UNASKED
    }

    /// Takes away what relatives left that were killed and waited for; the supervisor looks more seldom.
    pub(crate) fn bury_relatives(&self) {
        if !self.sees_run() {
            return;
        }
        for slot in self.control.processes.in_use() {
            let pid = slot.pid.load(Relaxed);
            if pid > 0 && !process::exists(pid) {
                self.control.bury(&self.tables, slot, pid);
            }
        }
    }

    /// The other processes of the run.
    pub(crate) fn relatives(&self) -> impl Iterator<Item = &'static ProcessSlot> {
        self.control.processes.in_use().filter(|slot| !core::ptr::eq(*slot, self.slot))
    }

    /// The relative with most to give, by `bytes`, of those whose `give_back` is `asked`.
    fn richest_relative(
        &self,
        asked: u32,
        bytes: impl Fn(&ProcessSlot) -> u64,
    ) -> Option<&'static ProcessSlot> {
        let alike = self.relatives().filter(|slot| slot.give_back.load(Relaxed) == asked);
        let richest = alike.max_by_key(|slot| bytes(slot))?;
        (bytes(richest) >= ASKED_BYTES_MIN).then_some(richest)
    }

    /// Asks a relative for room, by way of the supervisor where it may not be signalled from here.
    pub(crate) fn ask(&self, relative: &ProcessSlot) {
        relative.give_back.store(ASKED, Relaxed);
        let pid = relative.pid.load(Relaxed);
        if !self.sees_run() || !signal::queue(pid, signal::SIGURG, GIVE_BACK) {
            self.control.call_supervisor();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zpager_wire::FrameHints;

    #[test]
    fn what_is_common_is_in_the_sum_as_soon_as_it_is_held() {
        let (hints, words) = (FrameHints::default(), [const { AtomicU32::new(0) }; 8]);
        let frames = Frames::new(&hints, &words);
        let (cell, shared_bytes) = (AtomicU32::new(0), AtomicU64::new(0));
        let relatives = [Account::new(), Account::new()];
        let share = |relative: &Account| relative.share_with_kin(&frames, &cell, &shared_bytes);
        let held = relatives.each_ref().map(share);
        assert_eq!(held[0], held[1]);
        assert_eq!(held[0].map(|frame| frames.holders(frame)), Some(2));
        assert_eq!(shared_bytes.into_inner(), PAGE_BYTES as u64);
        assert!(relatives.iter().all(|relative| relative.take_change() == 0));
    }
}
