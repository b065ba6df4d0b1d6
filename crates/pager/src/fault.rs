//! Bringing pages in: on a fault, ahead of faults in order, and for a system call.
//!
//! A fault is served in the thread that made it. The page and as many of its
//! neighbours as the window allows are decoded into one buffer and put into the
//! program with one call.

use zpager_cache::{Entry, History, Lost, State};
use zpager_policy::Window;
use zpager_sys::processor::ticks;
use zpager_sys::signal::{self, Action};
use zpager_sys::{Errno, PAGE_BYTES, process};
use zpager_wire::EventKind;

use crate::account::count;
use crate::process::{BATCH_PAGES, Lift, Process};
use crate::regions::Pages;
use crate::threads::Thread;

/// Tries of a call that the kernel refuses because the memory map is changing.
pub(crate) const TRIES_MAX: u32 = 1 << 16;
/// One fault brings in at most this part of the budget.
const WINDOW_PART: u64 = 256;

const ENOENT: Errno = Errno(2);
const EAGAIN: Errno = Errno(11);
const ENOMEM: Errno = Errno(12);
const EEXIST: Errno = Errno(17);

impl Process {
    /// Serves a fault at `address`; false when that is not managed memory.
    pub(crate) fn serve_fault(&mut self, thread: &mut Thread, address: usize) -> bool {
        let page = (address / PAGE_BYTES) as u64;
        let Some(region) = self.regions.find(page) else { return false };
        let entry = self.cache.index.get(page);
        if entry.is_resident() {
            if self.frame_of(page).is_some() {
                self.serve_write(&region, page);
                self.publish();
                return true;
            }
            // Another thread was faster, or a page that is to be lifted by copying was written.
            if self.lift == Lift::Copy {
                let _ = self.uffd.write_protect((page as usize) * PAGE_BYTES, PAGE_BYTES, false);
            }
            if self.is_present(page) {
                return true;
            }
            // The kernel dropped it behind our back: it reads as zeros.
            self.forget(page..page + 1);
        }
        let budget_pages = self.control.settings.budget_bytes / PAGE_BYTES as u64;
        let is_spilled = matches!(entry.state(), State::Spilled { .. });
        let most = match self.recorder {
            None => (budget_pages / WINDOW_PART).max(1),
            Some(_) => 1,
        };
        let (first, pages) =
            match thread.ahead.window(page, is_spilled, |page| self.came_lately(page)) {
                Window::Up(pages) => (page, most.min(pages as u64).min(region.end - page)),
                Window::Down(pages) => {
                    self.window_below(page, most.min(pages as u64).min(page + 1 - region.start))
                }
            };
        let brought = self.bring_in(first, pages as usize);
        thread.ahead.fetched(first, brought);
        self.trim_buffers();
        count(&self.control.counters.prefetched_pages, brought.saturating_sub(1));
        self.publish();
        true
    }

    fn came_lately(&self, page: u64) -> bool {
        match self.cache.index.get(page).state() {
            State::Resident { turn, .. } => self.clock.came_lately(turn),
            _ => false,
        }
    }

    /// The pages, at most `most`, that end with `page` and are in the same case: the first and their count.
    fn window_below(&self, page: u64, most: u64) -> (u64, u64) {
        let is_fresh = self.cache.index.get(page).is_absent();
        let is_alike = |at: &u64| {
            let entry = self.cache.index.get(page - at);
            !entry.is_resident() && entry.is_absent() == is_fresh
        };
        let pages = 1 + (1..most).take_while(is_alike).count() as u64;
        (page + 1 - pages, pages)
    }

    /// Brings in pages from `page` on, all that are in the same case as the
    /// first and at most `most`; gives how many, at least one.
    fn bring_in(&mut self, page: u64, most: usize) -> usize {
        match self.recorder {
            None => self.bring_in_run(page, most),
            Some(_) => self.bring_in_recorded(page),
        }
    }

    /// [`Process::bring_in`] of a run that is not recorded.
    pub(crate) fn bring_in_run(&mut self, page: u64, most: usize) -> usize {
        let is_fresh = self.cache.index.get(page).is_absent();
        let mut pages = 1;
        while pages < most.min(BATCH_PAGES) {
            let entry = self.cache.index.get(page + pages as u64);
            if entry.is_resident() || entry.is_absent() != is_fresh {
                break;
            }
            pages += 1;
        }
        if is_fresh {
            self.make_room(pages);
            return self.bring_in_fresh(page, pages);
        }
        let began = ticks().wrapping_add(self.spill_ticks);
        self.make_room(pages);
        self.bring_in_swapped(page, pages, began)
    }

    fn bring_in_fresh(&mut self, page: u64, pages: usize) -> usize {
        count(&self.control.counters.fresh_faults, 1);
        self.put(page, self.zeros.base(), pages, &[0; BATCH_PAGES]);
        pages
    }

    /// `began` is when the fault did, plus what spilling took until then.
    fn bring_in_swapped(&mut self, page: u64, pages: usize, began: u64) -> usize {
        self.incoming_pages_max = self.incoming_pages_max.max(pages);
        let incoming = &mut Self::pages_of(&self.incoming)[..pages];
        let heats = self.heats(page, pages);
        let distance = self.sampler.distance(page);
        let asked = ticks();
        let reads = match self.cache.swap_in(page, incoming) {
            Ok(reads) => reads,
            Err(lost) => self.end_for(lost, page),
        };
        let counters = &self.control.counters;
        let from_store = reads.spilled_pages > 0;
        if from_store {
            count(&counters.spilled_faults, 1);
            self.split.store_fault(distance, ticks().wrapping_sub(asked));
        } else {
            count(&counters.compressed_faults, 1);
        }
        count(&counters.swapped_in_pages, reads.pages);
        count(&counters.store_reads, reads.reads as usize);
        count(&counters.store_read_bytes, reads.read_bytes);
        self.put(page, self.incoming.base(), reads.pages, &heats);
        if !from_store {
            let taken = ticks().wrapping_add(self.spill_ticks).wrapping_sub(began);
            self.split.pool_fault(distance, taken);
        }
        reads.pages
    }

    /// How hot the pages from `page` on are that are wanted again now.
    fn heats(&self, page: u64, pages: usize) -> [u8; BATCH_PAGES] {
        let mut heats = [0; BATCH_PAGES];
        for (heat, page) in heats[..pages].iter_mut().zip(page..) {
            let entry = self.cache.index.get(page);
            let history = entry.history();
            // What came back from the store was away for long.
            if !matches!(entry.state(), State::Spilled { .. }) {
                *heat = self.clock.heat(history.left, history.heat, History::TIMES);
            }
        }
        heats
    }

    /// Puts copies of `pages` pages from `source` in at `page`, and notes them as resident, as hot
    /// as `heats` says.
    pub(crate) fn put(
        &mut self,
        page: u64,
        source: *const u8,
        pages: usize,
        heats: &[u8; BATCH_PAGES],
    ) {
        let mut done = 0;
        let mut tries = 0;
        let mut most = pages;
        while done < pages {
            let target = (page as usize + done) * PAGE_BYTES;
            let bytes = (pages - done).min(most) * PAGE_BYTES;
            // SAFETY: the source holds that many pages, which are what the program must find there.
            let outcome = unsafe { self.uffd.copy(target, source.add(done * PAGE_BYTES), bytes) };
            let step = match outcome {
                Ok(copied) => copied / PAGE_BYTES,
                // There already: memory that the kernel mapped before it was managed. What was away
                // cannot be there too: going on would mean to guess which of the two is right.
                Err(EEXIST) if source == self.zeros.base().cast_const() => 1,
                // One call does not reach over the end of a mapping: page by page then.
                Err(ENOENT) if most > 1 => {
                    most = 1;
                    continue;
                }
                // Not mapped at all: nobody can want the page.
                Err(ENOENT) => {
                    done += 1;
                    continue;
                }
                Err(EAGAIN | ENOMEM) if tries < TRIES_MAX => {
                    tries += 1;
                    0
                }
                Err(error) => self.fail(error, target),
            };
            for (at, &heat) in heats.iter().enumerate().skip(done).take(step) {
                self.note_resident(page + at as u64, heat);
            }
            done += step;
        }
    }

    /// Notes that a page is there.
    pub(crate) fn note_resident(&mut self, page: u64, heat: u8) {
        if self.cache.index.get(page).is_resident() {
            return;
        }
        let entry = Entry::new(State::Resident { turn: self.clock.mark(), frame: 0 });
        let entry = entry.with_history(History { left: 0, heat });
        // Without room in the index the page stays where it is for good.
        if self.cache.index.set(page, entry) {
            self.resident_pages += 1;
        }
    }

    /// Brings every page of `pages` in that is managed and not there.
    pub(crate) fn make_resident(&mut self, pages: Pages) {
        let mut from = pages.start;
        while let Some(part) = self.regions.first_part(&(from..pages.end)) {
            let mut page = part.start;
            while page < part.end {
                if self.cache.index.get(page).is_resident() {
                    page += 1;
                } else {
                    page += self.bring_in(page, (part.end - page) as usize) as u64;
                }
            }
            from = part.end;
        }
    }

    /// Forgets what is known of `pages`: the program gave them back, or they are somebody else's now.
    pub(crate) fn forget(&mut self, pages: Pages) {
        let mut from = pages.start;
        while let Some(page) = self.cache.index.next_known(from, pages.end) {
            if self.cache.index.get(page).is_resident() {
                self.count_out(page);
            }
            self.cache.forget(page);
            from = page + 1;
        }
        if from > pages.start {
            self.record_released(&pages);
        }
        self.cache.index.release_absent(pages.start, pages.end);
    }

    /// Ends the program because a page of it is lost.
    fn end_for(&self, lost: Lost, page: u64) -> ! {
        let address = page * PAGE_BYTES as u64;
        match lost {
            Lost::Io(error) => self.note(EventKind::StoreReadFailed, error.0 as u64, address),
            Lost::Corrupt => self.note(EventKind::PageCorrupt, 0, address),
        }
        die()
    }

    /// Ends the program because the kernel refuses what the pager cannot do without.
    pub(crate) fn fail(&self, error: Errno, address: usize) -> ! {
        self.note(EventKind::AgentFailed, error.0 as u64, address as u64);
        die()
    }
}

/// Ends the process by SIGBUS, as the kernel does when it loses a page.
pub(crate) fn die() -> ! {
    // SAFETY: the default action needs no handler.
    let _ = unsafe { signal::action(signal::SIGBUS, Some(&Action::default())) };
    process::raise(signal::SIGBUS);
    signal::set_mask(0);
    process::exit_group(125)
}
