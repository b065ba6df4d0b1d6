//! Lifting victims that lie apart, in a process whose threads run on several processors.
//!
//! A move takes a run of neighbours, and has each processor that runs one of the threads forget where
//! they were: an interrupt that is waited for, which on a virtual machine takes 4 to 8 us. Victims
//! that lie apart take one each. Here a stretch of memory with many of them is write-protected as a
//! whole, the victims are read, and all of them are dropped with one call: two interrupts a batch.
//!
//! Sources: ioctl_userfaultfd(2), `UFFDIO_WRITEPROTECT`; process_madvise(2), which drops pages of the
//! caller's own since Linux 6.13, with one flush since 6.16 (mm/madvise.c, `vector_madvise`).
//!
//! Invariants, under the lock or while a departure is under way ([`crate::departures`]):
//! - nobody can write the stretch from before its victims are read until they are gone: threads fault
//!   and wait for the one who lifts, another process gets an error, as for a page that is swapped out;
//! - no page of it is held for a call: the kernel would find it protected;
//! - nor is one protected, or in a frame, that is to stay so; afterwards all of it can be written;
//! - no victim may be part of a huge page, the rest of which would stay in RAM without being mapped;
//!   a move splits it;
//! - none may be pinned, which a move refuses ([`crate::calls`], pins.rs).
//!
//! Bad for: a program whose other threads sleep, also for the lock, so that nobody is interrupted: a move of a
//! few pages costs it less, and leaves them in the processor's cache. Both ways are measured as the
//! program runs ([`zpager_policy::Faster`]).

use zpager_codec::Page;
use zpager_policy::Alternative;
use zpager_sys::PAGE_BYTES;
use zpager_sys::process::{self, Part};
use zpager_sys::processor::ticks;

use crate::copies::end_protection;
use crate::process::{Lift, Process};
use crate::regions::Region;
use crate::swapout::LIFT_PAGES;
use crate::watch::Watch;

/// Longest way from one victim to the next: what lies between is protected and let go in vain.
pub(crate) const GAP_PAGES_MAX: u64 = 64;
/// Fewest runs for which a stretch interrupts less often than moves.
const RUNS_MIN: usize = 3;

/// The first of some victims.
enum First {
    /// So many lie in one stretch.
    Stretch(usize),
    /// So many cannot.
    Others(usize),
}

impl Process {
    /// How victims leave now: run by run, or by stretches.
    pub(crate) fn way_to_lift(&mut self) -> Alternative {
        if !self.may_take_stretches() {
            Alternative::Plain
        } else if self.always_stretches {
            Alternative::Other
        } else if self.threads.was_always_one() {
            Alternative::Plain
        } else {
            self.lifting.choose()
        }
    }

    /// Whether pages can leave by stretches.
    pub(crate) fn may_take_stretches(&self) -> bool {
        self.lift == Lift::Move
            && self.drops_parts
            && !self.may_pin
            && self.recorder.is_none()
            && self.keeps_buffers()
    }

    /// Swaps out at most [`LIFT_PAGES`] resident pages, in ascending order; gives how many were lifted.
    pub(crate) fn swap_out_stretches(&mut self, victims: &[u64]) -> usize {
        let mut count = 0;
        let mut rest = victims;
        while !rest.is_empty() {
            let (length, is_stretch) = self.first_part(rest);
            let (victims, behind) = rest.split_at(length);
            let lifted = if is_stretch { self.lift_stretch(victims) } else { 0 };
            count += lifted;
            if lifted < length {
                // What cannot be read, or must not be dropped.
                count += self.swap_out_runs(&victims[lifted..]);
            }
            rest = behind;
        }
        count
    }

    /// How many of `victims`, which are not empty, leave first in one way, and whether that is as a stretch.
    pub(crate) fn first_part(&self, victims: &[u64]) -> (usize, bool) {
        match self.first_of(victims) {
            First::Stretch(length) => {
                (length, self.always_stretches || runs(&victims[..length]) >= RUNS_MIN)
            }
            First::Others(length) => (length, false),
        }
    }

    /// What `victims`, which are not empty, begin with.
    fn first_of(&self, victims: &[u64]) -> First {
        let fits = |page: u64| self.region_for_stretch(page).is_some();
        let Some(region) = self.region_for_stretch(victims[0]) else {
            return First::Others(victims.iter().take_while(|&&page| !fits(page)).count());
        };
        let pairs = victims.windows(2).take_while(|pair| {
            pair[1] < region.end && fits(pair[1]) && self.may_be_between(pair[0], pair[1])
        });
        First::Stretch(self.before_hold(&victims[..1 + pairs.count()]))
    }

    /// How many of the first of some victims, which are not empty, have nothing between them that is held; at least one.
    pub(crate) fn before_hold(&self, victims: &[u64]) -> usize {
        let length = victims.len();
        let held = self.threads.hold_start(&(victims[0]..victims[length - 1]));
        let free = held.map_or(length, |held| victims.partition_point(|&page| page < held));
        free.clamp(1, length)
    }

    /// The region of a victim that can leave with a stretch.
    fn region_for_stretch(&self, page: u64) -> Option<Region> {
        let entry = self.engine.cache.index.get(page);
        self.regions.find(page).filter(|_| entry.frame() == 0 && !entry.may_be_huge())
    }

    /// Whether all that lies between two victims can be protected and let go again.
    fn may_be_between(&self, one: u64, next: u64) -> bool {
        next - one <= GAP_PAGES_MAX
            && (one + 1..next).all(|page| {
                let entry = self.engine.cache.index.get(page);
                entry.frame() == 0 && !entry.is_protected()
            })
    }

    /// Swaps out the pages of a stretch, as many as can be read and dropped; gives how many.
    fn lift_stretch(&mut self, victims: &[u64]) -> usize {
        let began = ticks();
        let contents = &mut Self::pages_of(&self.incoming)[..victims.len()];
        self.incoming_pages_max = self.incoming_pages_max.max(victims.len());
        let taken = take_stretch(self.watch, victims, contents);
        self.note_taken(victims, taken);
        self.lifting.note(Alternative::Other, taken.pages, ticks().wrapping_sub(began));
        self.store_lifted(&victims[..taken.pages], contents);
        self.write_ahead();
        taken.pages
    }

    /// Notes what became of the victims of a stretch, of which those that stay can be written from now on.
    pub(crate) fn note_taken(&mut self, victims: &[u64], taken: Taken) {
        for &page in &victims[taken.pages..] {
            self.end_copies(&(page..page + 1));
        }
        // Memory that is locked, or a filter of system calls: it will not be otherwise the next time.
        self.drops_parts &= !taken.is_refused;
    }
}

/// What became of the victims of a stretch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    /// So many of the first were lifted.
    pub(crate) pages: usize,
    /// Some could be read, and none dropped.
    is_refused: bool,
}

impl Taken {
    pub(crate) const NONE: Taken = Taken { pages: 0, is_refused: false };
}

/// Lifts the first `victims` of a stretch, which are not empty, into `contents`, which has a page for each;
/// the others stay, as all that lies between does, and can be written.
///
/// The caller has the lock, or makes a departure of it. Pages of the stretch that are clean and stay may have been
/// written afterwards: [`Process::note_taken`].
pub(crate) fn take_stretch(watch: Watch, victims: &[u64], contents: &mut [Page]) -> Taken {
    let stretch = victims[0]..victims[victims.len() - 1] + 1;
    let bytes = (stretch.end - stretch.start) as usize * PAGE_BYTES;
    let is_protected =
        watch.write_protect(stretch.start as usize * PAGE_BYTES, bytes, true).is_ok();
    let taken = if is_protected { take_out(victims, contents) } else { Taken::NONE };
    end_protection(watch, &stretch);
    taken
}

/// Copies the first of `victims`, which nobody can write, to `contents` and drops them.
fn take_out(victims: &[u64], contents: &mut [Page]) -> Taken {
    let mut parts = [Part::default(); LIFT_PAGES];
    for (part, &page) in parts.iter_mut().zip(victims) {
        *part = [page as usize * PAGE_BYTES, PAGE_BYTES];
    }
    let parts = &parts[..victims.len().min(contents.len())];
    // SAFETY: there is a page of the contents for each.
    let read = unsafe { process::gather(parts, contents.as_mut_ptr().cast()) } / PAGE_BYTES;
    // SAFETY: what they hold was read since they were protected, and comes back at the next fault.
    let pages = unsafe { process::drop_parts(&parts[..read]) } / PAGE_BYTES;
    Taken { pages, is_refused: pages == 0 && read > 0 }
}

/// How many runs of neighbours some pages in ascending order are.
fn runs(pages: &[u64]) -> usize {
    1 + pages.windows(2).filter(|pair| pair[1] != pair[0] + 1).count()
}
