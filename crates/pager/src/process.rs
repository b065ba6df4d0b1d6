//! The state of the process, behind its one lock.
//!
//! Whoever shares this memory shares the lock, also a process of its own, which can be
//! killed at any moment. If it had the lock then, nobody knows whether what is behind it
//! is whole: everybody else is ended rather than given a wrong byte.

use core::ptr;
use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};

use zpager_cache::{Cache, Engine};
use zpager_codec::Page;
use zpager_policy::{Common, Faster};
use zpager_sys::PAGE_BYTES;
use zpager_sys::file::Fd;
use zpager_sys::lock::{Guard, Lock};
use zpager_sys::mapping::Mapping;
use zpager_sys::signal::{Action, Mask, SIGNALS};
use zpager_wire::{Control, EventKind, ProcessSlot, STORES_MAX, Tables};

use crate::account::Published;
use crate::calls::rings::Rings;
use crate::common::GivenFrames;
use crate::departures::{self, Departures};
use crate::early::EarlyReads;
use crate::fault::die;
use crate::flights::{self, Flights};
use crate::foretold::Foretold;
use crate::identity;
use crate::own::{Own, OwnStores};
use crate::parked::Parked;
use crate::record::Recorder;
use crate::regions::Regions;
use crate::start::{self, Image};
use crate::threads::{self, Thread, Threads};
use crate::watch::Watch;

/// The cache of a process.
pub(crate) type OwnCache = Cache<Own, OwnStores>;

/// Most pages that are lifted or brought in with one call.
pub(crate) const BATCH_PAGES: usize = zpager_cache::BATCH_PAGES;

/// Descriptors of memory that are remembered at the same time.
pub(crate) const MEMORY_FILES: usize = 8;
/// Descriptors of the pager's own, at most: what it watches by, link, the map of the clusters, stores.
const OWN_DESCRIPTORS: usize = 3 + STORES_MAX;

/// The process, once it is managed.
static PROCESS: Lock<Option<Process>> = Lock::new(None);

/// Set, once and for all, when the process is managed.
pub(crate) static MANAGED: AtomicBool = AtomicBool::new(false);

/// How pages are lifted out of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lift {
    /// `UFFDIO_MOVE` (Linux 6.8).
    Move,
    /// Write-protect, copy, drop. Also by guards.
    Copy,
}

/// Everything that is known of one managed process.
pub(crate) struct Process {
    pub(crate) control: &'static Control,
    pub(crate) slot: &'static ProcessSlot,
    pub(crate) image: Image,
    pub(crate) pid: i32,
    pub(crate) watch: Watch,
    pub(crate) lift: Lift,
    pub(crate) regions: Regions,
    pub(crate) engine: Engine<Own, OwnStores>,
    pub(crate) early: EarlyReads,
    pub(crate) flights: Flights,
    pub(crate) foretold: Foretold,
    pub(crate) departures: Departures,
    pub(crate) threads: Threads,
    /// The run's shared pages.
    pub(crate) tables: Tables<'static>,
    /// Resident pages of managed memory that are this process's own.
    pub(crate) resident_pages: u64,
    /// Resident pages that are in frames.
    pub(crate) shared_pages: u64,
    /// [`zpager_wire::Frames::times_alone`] when all pages were last looked through for those to claim.
    pub(crate) claimed_times_alone: u32,
    /// What making room took already for the fault that is served next.
    pub(crate) room_ticks: u64,
    /// Relatives that were asked for room and gave nothing.
    pub(crate) asked_in_vain: u32,
    /// Forks in a row for which there was no room, though they waited for it.
    pub(crate) births_in_vain: u32,
    /// Needs of room to be left as they are, now and after the next that is in vain.
    pub(crate) starved_pause: u32,
    pub(crate) starved_turns: u32,
    /// How often other threads were waited for by one that installs a filter of system calls.
    pub(crate) leaving_turns: u32,
    /// Pages that were lifted and went back, as there was no place for them.
    pub(crate) put_back_pages: u64,
    /// The last search for room ended with such pages, or gained nothing by what it gave.
    pub(crate) is_stuck: bool,
    /// It was forked by a managed process.
    pub(crate) is_child: bool,
    /// Which of those that ever had this memory the process is ([`Thread::sharer`]), and how many there were.
    pub(crate) sharer: u32,
    pub(crate) sharers: u32,
    /// It has the descriptors of its parent or a child, not copies of them (`CLONE_FILES`).
    pub(crate) shares_descriptors: bool,
    /// The slot of the child that is being forked.
    pub(crate) unborn: Option<&'static ProcessSlot>,
    /// Another process has, or had, its actions for signals, not copies of them (`CLONE_SIGHAND`).
    pub(crate) shares_actions: bool,
    pub(crate) published: Published,
    /// Pages on their way out, behind the spares that others of them left.
    pub(crate) staging: Mapping,
    /// Pages in staging that are there and hold nothing.
    pub(crate) spare_pages: usize,
    /// The kernel may have pages of the program after a call, in a pipe or on their way to a network.
    pub(crate) lends_pages: bool,
    /// With guards: memory may be read-only of which its region says otherwise ([`Process::shut`]).
    pub(crate) has_shut: bool,
    /// How often room was looked for, for [`Process::ask_richer`].
    pub(crate) short_turns: u32,
    /// When pages are given that relatives have too.
    pub(crate) common: Common,
    /// [`Frames::times_given`] when there was none left to give after relatives.
    ///
    /// [`Frames::times_given`]: zpager_wire::Frames::times_given
    pub(crate) followed_times_given: u32,
    pub(crate) given_frames: GivenFrames,
    /// It is being entered with others, and what it has in common with them is not known yet: nothing of it
    /// is in the run's sums.
    pub(crate) awaits_kin: bool,
    /// What children get of memory that was managed as it was found is not known yet.
    pub(crate) asks_in_child: bool,
    /// The kernel or a device may have pages beyond a call and write them.
    pub(crate) may_pin: bool,
    /// The latter, by requests that do not say which.
    pub(crate) may_pin_unseen: bool,
    /// By which the kernel would be given memory without a call.
    pub(crate) rings: Rings,
    /// Pages that lie apart can be given back with one call.
    pub(crate) drops_parts: bool,
    /// Most pages that are lifted in one go.
    pub(crate) lift_pages: usize,
    /// What lifting a page takes run by run, and by stretches.
    pub(crate) lifting: Faster,
    /// The latter wherever it can be done, for tests.
    pub(crate) always_stretches: bool,
    /// Pages on their way in, and out by stretches.
    pub(crate) incoming: Mapping,
    /// Most pages that were ever on their way in.
    pub(crate) incoming_pages_max: usize,
    /// Never written.
    pub(crate) zeros: Mapping,
    /// What the program asked of each signal; the kernel has ours.
    pub(crate) actions: [Action; SIGNALS + 1],
    /// Signals of ours that were sent to the process while all of its threads blocked them.
    pub(crate) parked: Parked,
    /// Those of them that the program reads from descriptors.
    pub(crate) fd_signals: Mask,
    /// End of the program's data segment.
    pub(crate) program_break: usize,
    /// Descriptors whose position was set to an address of managed memory, each in the place that
    /// its number gives: `/proc/self/mem` above all.
    pub(crate) memory_files: [i32; MEMORY_FILES],
    /// The map of the stores' clusters, for its children's tables; kept from the program.
    pub(crate) clusters_map: Option<Fd>,
    /// Where the process's table of what it holds of the store is mapped.
    pub(crate) references_place: Option<Mapping>,
    /// The stores' descriptors, to be kept from the program; -1 where there are none.
    pub(crate) store_fds: [i32; STORES_MAX],
    /// Of a run that is recorded.
    pub(crate) recorder: Option<Recorder>,
}

impl Process {
    /// Waits for the process, and for all flights to land, as the thread of this number.
    pub(crate) fn lock(number: u32) -> Guard<'static, Option<Process>> {
        let mut guard = Process::lock_beside_flights(number);
        if let Some(process) = guard.as_mut() {
            process.settle_as(number);
        }
        guard
    }

    fn lock_beside_flights(number: u32) -> Guard<'static, Option<Process>> {
        lock_or_die(&PROCESS, number)
    }

    /// Whether ids are to the calling thread what they are to the process whose memory this is.
    pub(crate) fn caller_is_seen(&self) -> bool {
        threads::is_seen(PROCESS.owner())
    }

    /// Whether the ids that the calling thread knows are the run's.
    pub(crate) fn sees_run(&self) -> bool {
        !identity::is_nested() && self.caller_is_seen()
    }

    /// The thread of this number has this memory no more: what it was in the middle of stays so.
    pub(crate) fn leave_behind(number: u32) {
        PROCESS.abandon(number);
        flights::leave_behind(number);
        departures::leave_behind(number);
    }

    /// Runs `work` with the process, if it is managed, in a thread that is. All flights have landed.
    pub(crate) fn with<R>(work: impl FnOnce(&mut Process) -> R) -> Option<R> {
        Process::with_locked(Process::lock, work)
    }

    /// The same for a fault, which waits for flights only where it meets one.
    pub(crate) fn with_beside_flights<R>(work: impl FnOnce(&mut Process) -> R) -> Option<R> {
        Process::with_locked(Process::lock_beside_flights, work)
    }

    fn with_locked<R>(
        lock: impl FnOnce(u32) -> Guard<'static, Option<Process>>,
        work: impl FnOnce(&mut Process) -> R,
    ) -> Option<R> {
        if !MANAGED.load(Acquire) {
            return None;
        }
        // SAFETY: whoever gets here is in a signal handler, on a block.
        let number = unsafe { Thread::current() }.number();
        lock(number).as_mut().map(work)
    }

    /// The pages of a buffer that lies in `mapping`.
    pub(crate) fn pages_of(mapping: &Mapping) -> &'static mut [Page] {
        // SAFETY: staging and incoming are used by the holder of the lock alone, each by one function at a time.
        unsafe {
            core::slice::from_raw_parts_mut(mapping.base().cast(), mapping.bytes() / PAGE_BYTES)
        }
    }

    /// The process has left management: nobody finds it any more.
    pub(crate) fn vacate(mut guard: Guard<'static, Option<Process>>) {
        MANAGED.store(false, Release);
        // SAFETY: the place is locked; what was there is never dropped.
        unsafe { ptr::write(&raw mut *guard, None) };
    }

    /// Tells the user, by way of the supervisor.
    pub(crate) fn note(&self, kind: EventKind, value: u64, address: u64) {
        self.control.events.note(kind, identity::run_pid(), value, address);
    }

    /// The pager's own descriptors, of which the program is to see nothing; -1 for some that are not there.
    pub(crate) fn own_descriptors(&self) -> [i32; OWN_DESCRIPTORS] {
        let mut own = [-1; OWN_DESCRIPTORS];
        let single =
            [self.watch.fd().0, identity::link(), self.clusters_map.map_or(-1, |map| map.0)];
        own.iter_mut().zip(single.into_iter().chain(self.store_fds)).for_each(|(to, fd)| *to = fd);
        own
    }

    /// Whether a descriptor is one of them.
    pub(crate) fn owns_descriptor(&self, fd: i32) -> bool {
        fd >= 0 && self.own_descriptors().contains(&fd)
    }
}

/// Waits for a lock as the thread of this number. Ends the process where it was left locked by one that
/// is gone, as nobody knows what state its value is in.
pub(crate) fn lock_or_die<T>(lock: &'static Lock<T>, number: u32) -> Guard<'static, T> {
    let is_gone = |owner| threads::is_gone(owner, number);
    lock.lock(number, is_gone).unwrap_or_else(|_| {
        start::note(EventKind::Abandoned, 0, 0);
        die()
    })
}
