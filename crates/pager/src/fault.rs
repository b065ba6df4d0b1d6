//! Bringing pages in: on a fault, ahead of faults in order, and for a system call.
//!
//! A fault is served in the thread that made it. The page and as many of its
//! neighbours as the window allows are decoded into one buffer and put into the
//! program with one call.

use core::sync::atomic::Ordering::Relaxed;

use zpager_cache::{Came, Lost, Run};
use zpager_sys::processor::ticks;
use zpager_sys::signal::{self, Action};
use zpager_sys::{Errno, PAGE_BYTES, process};
use zpager_wire::EventKind;

use crate::account::count;
use crate::copies::Keep;
use crate::departures::{self, Departure};
use crate::early::Pending;
use crate::flights::Flight;
use crate::process::{BATCH_PAGES, Lift, Process};
use crate::regions::Pages;
use crate::spares::Way;
use crate::start;
use crate::threads::Thread;

/// Tries of a call that the kernel refuses because the memory map is changing.
pub(crate) const TRIES_MAX: u32 = 1 << 16;

const ENOENT: Errno = Errno(2);
const EAGAIN: Errno = Errno(11);
const ENOMEM: Errno = Errno(12);
const EEXIST: Errno = Errno(17);

/// What becomes of a fault.
pub(crate) enum Fault {
    /// It is served, or it is not on managed memory.
    Served(bool),
    /// This is to be read first, without the lock, for [`Process::serve_read`].
    Reads(Pending),
    /// This is to be decoded and put in without the lock.
    Flies(Flight),
}

/// How a fault begins.
pub(crate) enum Begun {
    /// Some pages are to be lifted and compressed first, without the lock, before [`Process::serve_departed`].
    Departs(Departure),
    /// At once.
    Fault(Fault),
}

impl Process {
    /// Begins to serve a fault at `address`. With `is_write` the page is about to be written.
    pub(crate) fn begin_fault(
        &mut self,
        thread: &mut Thread,
        address: usize,
        is_write: bool,
    ) -> Begun {
        self.engine.cache.prefetch((address / PAGE_BYTES) as u64);
        if self.is_guarded() {
            return Begun::Fault(Fault::Served(self.serve(thread, address, is_write)));
        }
        let is_beside_others = self.threads.faults_beside_others(thread.number());
        if !is_beside_others || self.recorder.is_some() || !self.keeps_buffers() {
            return Begun::Fault(Fault::Served(self.serve(thread, address, is_write)));
        }
        match self.depart(thread.number()) {
            Some(departure) => Begun::Departs(departure),
            None => Begun::Fault(self.serve_beside_others(thread, address, is_write)),
        }
    }

    /// Serves the fault for which a departure was made.
    pub(crate) fn serve_departed(
        &mut self,
        thread: &mut Thread,
        address: usize,
        is_write: bool,
    ) -> Fault {
        self.end_departure(thread.number());
        self.serve_beside_others(thread, address, is_write)
    }

    fn serve_beside_others(
        &mut self,
        thread: &mut Thread,
        address: usize,
        is_write: bool,
    ) -> Fault {
        let page = (address / PAGE_BYTES) as u64;
        if let Some(pending) = self.plan_read(thread, page) {
            return Fault::Reads(pending);
        }
        if let Some(flight) = self.take_off(thread, page) {
            return Fault::Flies(flight);
        }
        Fault::Served(self.serve(thread, address, is_write))
    }

    /// [`Process::serve_fault`] at once.
    pub(crate) fn serve(&mut self, thread: &mut Thread, address: usize, is_write: bool) -> bool {
        self.slot.missed_at.store(ticks(), Relaxed);
        let page = (address / PAGE_BYTES) as u64;
        let Some(region) = self.regions.find(page).or_else(|| self.manage_grown(page)) else {
            return false;
        };
        if self.engine.cache.index.get(page).is_resident() {
            // It may have been on its way, in or out.
            self.settle();
        }
        let entry = self.engine.cache.index.get(page);
        if entry.is_resident() {
            let is_shared = self.frame_of(page).is_some();
            if is_shared && (is_write || !self.is_guarded()) {
                self.serve_write(&region, page);
                self.publish();
                return true;
            }
            if is_write {
                self.open_around(&region, page);
            }
            if is_write && entry.is_protected() {
                self.serve_write_to_clean(page);
                return true;
            }
            // Another thread was faster, or a page that is to be lifted by copying was written.
            if self.lift == Lift::Copy && !entry.is_protected() {
                let _ = self.watch.write_protect((page as usize) * PAGE_BYTES, PAGE_BYTES, false);
            }
            if self.is_present(page) {
                return !self.is_guarded() || self.may_be_tried_again(thread, page, is_write);
            }
            // The kernel dropped it behind our back: it reads as zeros.
            self.forget(page..page + 1);
        }
        let next = self.foretell(page);
        let (first, most) = match self.recorder {
            None if self.foretold.has(page) => (page, 1),
            None => self.engine.window(&mut thread.ahead, page, region.pages()),
            Some(_) => (page, 1),
        };
        // What comes with a page that is about to be written will be, too.
        let keep = if is_write { Keep::Nothing } else { Keep::Copies };
        let brought = self.bring_in(first, most, keep);
        thread.ahead.fetched(first, brought);
        if is_write {
            self.open_around(&region, page);
        }
        self.bring_next(&next);
        self.trim_buffers();
        count(&self.control.counters.prefetched_pages, brought.saturating_sub(1));
        self.publish();
        true
    }

    /// Brings in pages from `page` on, all that are in the same case as the
    /// first and at most `most`; gives how many, at least one.
    fn bring_in(&mut self, page: u64, most: usize, keep: Keep) -> usize {
        match self.recorder {
            None => self.bring_in_run(page, most, keep),
            Some(_) => self.bring_in_recorded(page),
        }
    }

    /// [`Process::bring_in`] of a run that is not recorded.
    pub(crate) fn bring_in_run(&mut self, page: u64, most: usize, keep: Keep) -> usize {
        let Run { pages, is_fresh } = self.engine.run(page, most);
        if is_fresh {
            self.make_room(pages);
            return self.bring_in_fresh(page, pages);
        }
        let came = self.bring_in_swapped(page, pages, keep);
        let counters = &self.control.counters;
        let faults = if came.is_from_store() {
            &counters.spilled_faults
        } else {
            &counters.compressed_faults
        };
        count(faults, 1);
        came.reads.pages
    }

    /// [`zpager_cache::Engine::fault_began`] of a fault for which room may have been made before.
    pub(crate) fn fault_began(&mut self) -> u64 {
        let room_ticks = core::mem::take(&mut self.room_ticks);
        self.engine.fault_began(ticks().wrapping_sub(room_ticks))
    }

    fn bring_in_fresh(&mut self, page: u64, pages: usize) -> usize {
        count(&self.control.counters.fresh_faults, 1);
        self.put(page, self.zeros.base(), &[0; BATCH_PAGES][..pages]);
        pages
    }

    /// Brings back pages from `page` on, which is in some tier, at most so many.
    pub(crate) fn bring_in_swapped(&mut self, page: u64, pages: usize, keep: Keep) -> Came {
        let began = self.fault_began();
        let way = self.make_way(page, pages);
        let incoming = match way {
            Way::Spares => self.last_spares(pages),
            Way::Copy => {
                self.incoming_pages_max = self.incoming_pages_max.max(pages);
                &mut Self::pages_of(&self.incoming)[..pages]
            }
        };
        let asked = ticks();
        let may_keep = keep == Keep::Copies && !self.is_guarded() && !departures::is_under_way();
        let foretold = self.lend_foretold(page);
        let came = match self.engine.swap_in(page, incoming, may_keep) {
            Ok(came) => came,
            Err(lost) => self.end_for(lost, page),
        };
        if let Some(at) = foretold {
            self.end_foretold(at);
        }
        self.note_pointers(page, &incoming[..came.reads.pages]);
        let (counters, reads) = (&self.control.counters, came.reads);
        if came.is_from_store() {
            let read_ticks = ticks().wrapping_sub(asked) + self.early.read_ticks();
            self.foretold.note_waited(read_ticks);
            self.engine.read_store(&came, read_ticks + self.foretold.take_spent_ticks());
        }
        count(&counters.swapped_in_pages, reads.pages);
        count(&counters.shelved_pages, reads.shelved_pages);
        count(&counters.store_reads, reads.reads as usize);
        count(&counters.store_read_bytes, reads.read_bytes);
        let heats = &came.heats[..reads.pages];
        match way {
            Way::Spares => self.put_spares(page, pages, heats),
            Way::Copy => self.put(page, self.incoming.base(), heats),
        }
        if !came.is_from_store() {
            self.engine.served(&came, began, ticks());
        }
        came
    }

    /// Puts copies of the pages from `source` on in at `page`, as many as there are `heats`, and
    /// notes them as resident and as hot. Those that are still in the store are write-protected.
    pub(crate) fn put(&mut self, page: u64, source: *const u8, heats: &[u8]) {
        if self.is_guarded() {
            return self.put_guarded(page, source, heats);
        }
        let pages = heats.len();
        let mut done = 0;
        let mut tries = 0;
        let mut most = pages;
        while done < pages {
            let target = (page as usize + done) * PAGE_BYTES;
            let (alike, protect) = self.kept_alike(page + done as u64, (pages - done).min(most));
            let bytes = alike * PAGE_BYTES;
            // SAFETY: the source holds that many pages, which are what the program must find there.
            let outcome =
                unsafe { self.watch.copy(target, source.add(done * PAGE_BYTES), bytes, protect) };
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
                    self.forget(page + done as u64..page + done as u64 + 1);
                    done += 1;
                    continue;
                }
                Err(EAGAIN | ENOMEM) if tries < TRIES_MAX => {
                    tries += 1;
                    0
                }
                Err(error) => fail(error, target),
            };
            for (at, &heat) in heats.iter().enumerate().skip(done).take(step) {
                self.note_resident(page + at as u64, heat);
            }
            done += step;
        }
    }

    /// Notes that a page is there.
    pub(crate) fn note_resident(&mut self, page: u64, heat: u8) {
        if self.engine.arrive(page, heat) {
            self.resident_pages += 1;
        }
        self.common.comes(page);
    }

    /// Brings every page of `pages` in that is managed and not there.
    pub(crate) fn make_resident(&mut self, pages: Pages, keep: Keep) {
        let mut from = pages.start;
        while let Some(part) = self.regions.first_part(&(from..pages.end)) {
            let mut page = part.start;
            while page < part.end {
                if self.engine.cache.index.get(page).is_resident() {
                    page += 1;
                } else {
                    page += self.bring_in(page, (part.end - page) as usize, keep) as u64;
                }
            }
            from = part.end;
        }
    }

    /// Forgets what is known of `pages`: the program gave them back, or they are somebody else's now.
    pub(crate) fn forget(&mut self, pages: Pages) {
        let mut from = pages.start;
        while let Some(page) = self.engine.cache.index.next_known(from, pages.end) {
            if self.engine.cache.index.get(page).is_resident() {
                self.count_out(page);
            }
            self.engine.cache.forget(page);
            from = page + 1;
        }
        if from > pages.start {
            self.record_released(&pages);
        }
        self.engine.cache.index.release_absent(pages.start, pages.end);
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
}

/// Ends the program because the kernel refuses what the pager cannot do without.
pub(crate) fn fail(error: Errno, address: usize) -> ! {
    start::note(EventKind::AgentFailed, error.0 as u64, address as u64);
    die()
}

/// Ends the process by SIGBUS, as the kernel does when it loses a page.
pub(crate) fn die() -> ! {
    // SAFETY: the default action needs no handler.
    let _ = unsafe { signal::action(signal::SIGBUS, Some(&Action::default())) };
    process::raise(signal::SIGBUS);
    signal::set_mask(0);
    process::exit_group(125)
}
