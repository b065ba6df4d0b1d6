//! What the `zpager` command and the agents inside the programs share: one
//! mapping, [`Control`] and behind it [`Tables`], made by the command
//! and mapped by every agent; of a run that is recorded another, [`Ring`], and of one whose store is
//! on another machine one that is shared with its helper too, [`Remote`].
//!
//! The command writes [`Settings`] before the first program starts; after that
//! they never change. Everything else is atomics, each of which stands alone:
//! a process may be killed between any two of them, so no field is ever
//! "locked", and readers accept sums that are one update apart.
//!
//! Nothing here allocates, and the types are plain bytes, so that the mapping
//! means the same in every process whatever built it. [`VERSION`] guards that.
#![no_std]

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::Release};

use zpager_sys::futex;

mod beginners;
mod counters;
mod frames;
mod kin;
mod large_calls;
mod passed;
mod processes;
mod remote;
mod ring;

pub use beginners::Beginners;
pub use counters::{Counters, EVENT_KINDS, Event, EventKind, Events};
pub use frames::{Frame, FrameHints, Frames, Holds, Left, Tables};
pub use kin::Kin;
pub use large_calls::{Filling, LargeCalls, Question};
pub use passed::{LINK, MAPS, PAGEMAP, PASSED_MAX, Pair, Passed};
pub use processes::{ASKED, MAX_PROCESSES, ProcessSlot, Processes, Request, UNANSWERED, UNASKED};
pub use remote::{Asked, Kind, Remote, RemoteCounts, Requests, Taken, Ticket};
pub use ring::{Contents, Garbled, Message, Messages, RECORDED_CODECS_MAX, Ring, Sizes};

/// First word of [`Control`].
pub const MAGIC: u64 = u64::from_le_bytes(*b"zpagerC1");

/// Version of the layout; command and agent travel together, so they must be equal.
pub const VERSION: u32 = 24;

/// The environment variable through which an agent finds the mapping: the path
/// of a file descriptor of the supervising command, `/proc/PID/fd/N`.
pub const CONTROL_VARIABLE: &str = "ZPAGER_CONTROL";

/// The value that travels with a queued SIGURG when the supervisor asks a
/// process to give back pages.
pub const GIVE_BACK: usize = 0x7a70_6167;

/// The value that travels with a queued SIGURG when another process of the run asks this one to
/// bring pages in ([`Request`]).
pub const BRING_IN: usize = GIVE_BACK + 1;

/// The value that travels with a queued signal by which a thread of a process calls another one of
/// the same process.
pub const CALL_THREAD: usize = GIVE_BACK + 2;

/// What the supervisor asks of a stopped thread when it enters an agent's image
/// at the entry that the image's ELF header names.
///
/// Registers at the entry: `rdi` this number, `rsi` the process as a [`Known`], `rdx` the thread's
/// stack pointer, `rcx` its fs base, `r8` its signal mask before the entry; the last three
/// of [`Entry::Load`] are its own. `r9` is where a table of [`Passed`] descriptors
/// is, or 0. `r10` is where the thread's area of restartable sequences is, and
/// `r11` its bytes ([`sequences_guess`] where nobody knows). `rax` is how many bytes of a transfer, which
/// the thread is to make anew, were done before it was stopped, or 0. The entry moves to a
/// stack of the agent's own, so all threads of the process must be stopped and one
/// entered at a time. It ends by sending SIGTRAP to its own thread until the
/// supervisor takes note, with [`ENDED`] in `r15` and in `r12` 0 or a negative error
/// number; the supervisor then restores every register. (An `int3` would have the
/// kernel forget that the program ignores SIGTRAP.)
#[repr(u64)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// Manage the process, and this thread as its first.
    Process = 1,
    /// Manage one more thread of a process that is managed already.
    Thread = 2,
    /// The supervisor has put the image into a process that no loader puts it into: `rdx` is where
    /// it begins, `rcx` where it ends, and `r8` names the control block by its halves, the
    /// supervisor's process id in the upper one and the descriptor there in the lower one.
    Load = 3,
    /// All threads of the process have been entered, and it stands still with the others of its turn:
    /// what it has in common with them is counted once ([`Kin`]). In one thread, of each process that
    /// was entered while [`Control::kin_turn`] was not 0.
    Share = 4,
}

/// What is in `r15` at the end of an entry.
pub const ENDED: u32 = 0x7a70_656e;

/// Where a thread's area of restartable sequences may be, by its fs base, where the kernel does not tell
/// (Linux 5.13 does): its address and how many bytes it has. Up to glibc 2.40 it is in the control block,
/// in the longest of which it lies at 2464.
#[must_use]
pub const fn sequences_guess(thread_pointer: u64) -> [u64; 2] {
    [thread_pointer, 2464 + 32]
}

/// By which id the supervisor knows a process, and whether that is the one that the process has itself: one
/// in a pid namespace of its own (pid_namespaces(7)) has another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// The id in the supervisor's namespace.
    pub run_pid: i32,
    /// The process is in another one, below it.
    pub is_nested: bool,
}

impl Known {
    /// As one register has it.
    #[must_use]
    pub const fn to_word(self) -> u64 {
        (self.is_nested as u64) << 32 | self.run_pid.cast_unsigned() as u64
    }

    /// What [`Known::to_word`] was of.
    #[must_use]
    pub const fn of_word(word: u64) -> Self {
        Known { run_pid: word as i32, is_nested: word >> 32 != 0 }
    }
}

/// How pages are lifted out of programs, where tests decide it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Lifting {
    /// The fastest way that the kernel has.
    #[default]
    AsFound = 0,
    /// By write-protect, copy and drop, as on kernels without `UFFDIO_MOVE`.
    ByCopy = 1,
    /// By stretches wherever they can be, also in processes of one thread.
    ByStretches = 2,
}

/// By what the kernel tells of accesses to pages that are not there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Watching {
    /// userfaultfd(2).
    #[default]
    Userfaultfd = 0,
    /// Guard pages, where that is forbidden.
    Guards = 1,
}

impl Watching {
    /// What `watching as u8` was of.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Watching::Userfaultfd),
            1 => Some(Watching::Guards),
            _ => None,
        }
    }
}

/// Words in which a design and its parameters travel.
pub const DESIGN_WORDS: usize = 28;

/// Stores of a run, at most.
pub const STORES_MAX: usize = 8;

/// One of a run's stores.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct StoreSettings {
    /// How many bytes it may hold.
    pub limit_bytes: u64,
    /// Where in the file or device it begins, in bytes: a multiple of 4096.
    pub start_bytes: u64,
    /// The supervisor's descriptor of the file or device, or -1: there is no such store.
    pub fd: i32,
    /// It was opened for direct I/O: offsets, lengths and buffers are multiples of 4096.
    pub direct: u8,
}

impl StoreSettings {
    /// There is no such store.
    pub const NONE: Self = StoreSettings { limit_bytes: 0, start_bytes: 0, fd: -1, direct: 0 };
}

/// One of a run's stores that is on a server.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ServerSettings {
    /// What has a second copy of everything that it has, if there is such a thing.
    pub mirror: StoreSettings,
    /// The supervisor's descriptor of the [`Remote`] store's mapping, or -1: there is no such server.
    pub fd: i32,
    /// How many stores of all kinds are filled before it.
    pub place: u32,
}

impl ServerSettings {
    /// There is no such server.
    pub const NONE: Self = ServerSettings { mirror: StoreSettings::NONE, fd: -1, place: 0 };
}

/// The key of an encrypted store. Shown to nobody.
#[repr(transparent)]
#[derive(Clone, Copy, Default)]
pub struct StoreKey(pub [u8; 32]);

impl core::fmt::Debug for StoreKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("StoreKey(..)")
    }
}

/// What the user asked for. Written before the first program starts.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The physical bytes that resident pages, pools and zpager's own data may take together.
    pub budget_bytes: u64,
    /// What [`Control::budget_bytes`] may become at the most.
    pub most_bytes: u64,
    /// How many bytes all stores may hold in whole clusters, as the store crate counts them; 0
    /// without a store.
    pub store_limit_bytes: u64,
    /// The stores that are files and devices, the one that is filled first before the others.
    pub stores: [StoreSettings; STORES_MAX],
    /// Those of them that are on servers, in the same order.
    pub servers: [ServerSettings; STORES_MAX],
    /// The design and its parameters, as the policy crate writes them.
    pub design: [u64; DESIGN_WORDS],
    /// Process id of the supervising command; the stores and the cluster map are
    /// reached through its descriptors, `/proc/PID/fd/N`.
    pub supervisor_pid: i32,
    /// The supervisor's descriptor of the cluster map, and the processes' references behind it, or -1.
    pub clusters_fd: i32,
    /// The supervisor's descriptor of the agent's own shared object.
    pub agent_fd: i32,
    /// The supervisor's descriptor of the [`Ring`] of a run that is recorded, or -1.
    pub ring_fd: i32,
    /// Filters of system calls that hold for the supervisor. A program with more is not managed.
    pub filters: u32,
    /// Process ids that the supervisor has. A process with more is in a pid namespace below its own.
    pub ids: u32,
    /// Manage every program from its first instruction instead of when the budget comes near.
    pub from_start: u8,
    /// A [`Lifting`].
    pub lifting: u8,
    /// A [`Watching`].
    pub watching: u8,
    /// What compresses pages once more that leave for the stores, as the policy crate writes it; 0 for
    /// nothing.
    pub store_codec: u8,
    /// Everything in the stores is encrypted, by `store_key`.
    pub store_encrypt: u8,
    /// This run's own; zero without encryption. In memory alone, which is how it gets to every
    /// program of the run.
    pub store_key: StoreKey,
}

impl Settings {
    /// No memory, no store, and nothing asked for besides.
    pub const NONE: Self = Settings {
        budget_bytes: 0,
        most_bytes: 0,
        store_limit_bytes: 0,
        stores: [StoreSettings::NONE; STORES_MAX],
        servers: [ServerSettings::NONE; STORES_MAX],
        design: [0; DESIGN_WORDS],
        supervisor_pid: 0,
        clusters_fd: -1,
        agent_fd: -1,
        ring_fd: -1,
        filters: 0,
        ids: 1,
        from_start: 0,
        lifting: Lifting::AsFound as u8,
        watching: Watching::Userfaultfd as u8,
        store_codec: 0,
        store_encrypt: 0,
        store_key: StoreKey([0; 32]),
    };

    /// The files and devices that there are.
    pub fn stores(&self) -> impl Iterator<Item = &StoreSettings> {
        self.stores.iter().filter(|store| store.fd >= 0)
    }

    /// The servers that there are.
    pub fn servers(&self) -> impl Iterator<Item = &ServerSettings> {
        self.servers.iter().filter(|server| server.fd >= 0)
    }
}

/// The shared mapping, and behind it [`Tables`].
#[repr(C, align(8))]
#[derive(Debug)]
pub struct Control {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// Set once the budget has come near: a program that starts from now on is managed at once.
    pub pressure: AtomicU32,
    /// What the user asked for.
    pub settings: Settings,
    /// The budget as it is now: that of the settings, or less or more where `--memory auto` has it
    /// follow what there is.
    pub budget_bytes: AtomicU64,
    /// Bytes that all managed processes hold together.
    pub usage: Usage,
    /// Counts of everything that happened, summed over all processes.
    pub counters: Counters,
    /// What the user has to be told.
    pub events: Events,
    /// The processes that hold bytes of the budget.
    pub processes: Processes,
    /// Where frames are likely that are looked for.
    pub frame_hints: FrameHints,
    /// How many pages have been given names by which processes that have them in common find them in the store.
    pub common_pages: AtomicU64,
    /// Which programs may begin where they are not managed.
    pub beginners: Beginners,
    /// What programs that are not managed wait with.
    pub large_calls: LargeCalls,
    /// How often a process was about to run another program, which may be one that has to be entered, or
    /// has asked a relative for room that it could not signal, or the supervisor for a large call or to begin.
    /// The supervisor sleeps on it (futex(2)): unlike a signal it reaches it from any user and any
    /// namespace of process ids.
    pub calls: AtomicU32,
    /// The number of the turn in which several processes are being entered, else 0.
    pub kin_turn: AtomicU32,
    /// What reads from the store are expected to take.
    pub expected_reads: ExpectedReads,
}

/// What reads from the store are expected to take, in ticks; 0 until that is known.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ExpectedReads {
    /// A page.
    pub page_ticks: AtomicU64,
    /// A whole cluster.
    pub cluster_ticks: AtomicU64,
}

/// Physical bytes held, and the highest values seen.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Usage {
    /// Resident pages of managed memory that are one process's own.
    pub resident_bytes: AtomicU64,
    /// Pages, resident ones and those of pools, that processes share since a fork: each once.
    pub shared_bytes: AtomicU64,
    /// Memory of the pools, with what they waste.
    pub pool_bytes: AtomicU64,
    /// Payload of the pools: sum of the compressed sizes in RAM.
    pub payload_bytes: AtomicU64,
    /// Indexes, queues, thread records and everything else of zpager's own.
    pub metadata_bytes: AtomicU64,
    /// Managed address space.
    pub managed_bytes: AtomicU64,
    /// Pages in the store.
    pub stored_pages: AtomicU64,
    /// Highest sum of resident, pool and metadata bytes.
    pub peak_bytes: AtomicU64,
    /// Highest sum of `resident_bytes` and `shared_bytes`.
    pub peak_resident_bytes: AtomicU64,
    /// Highest `pool_bytes`.
    pub peak_pool_bytes: AtomicU64,
    /// Highest `metadata_bytes`.
    pub peak_metadata_bytes: AtomicU64,
    /// Highest `managed_bytes`.
    pub peak_managed_bytes: AtomicU64,
    /// Highest `stored_pages`.
    pub peak_stored_pages: AtomicU64,
}

impl Usage {
    /// Resident, shared, pool and metadata bytes of all processes together.
    pub fn total_bytes(&self) -> u64 {
        self.resident_bytes.load(Relaxed)
            + self.shared_bytes.load(Relaxed)
            + self.pool_bytes.load(Relaxed)
            + self.metadata_bytes.load(Relaxed)
    }

    /// Raises the peaks to the present values.
    pub fn note_peaks(&self) {
        let pairs = [
            (&self.pool_bytes, &self.peak_pool_bytes),
            (&self.metadata_bytes, &self.peak_metadata_bytes),
            (&self.managed_bytes, &self.peak_managed_bytes),
            (&self.stored_pages, &self.peak_stored_pages),
        ];
        for (now, peak) in pairs {
            raise(peak, now.load(Relaxed));
        }
        let resident = self.resident_bytes.load(Relaxed) + self.shared_bytes.load(Relaxed);
        raise(&self.peak_resident_bytes, resident);
        self.note_peak(0);
    }

    /// Raises the peak of the total to its present value and `more_bytes` that are gone in a moment.
    pub fn note_peak(&self, more_bytes: u64) {
        raise(&self.peak_bytes, self.total_bytes() + more_bytes);
    }
}

/// `fetch_max`, but without the locked instruction where the peak stands already.
fn raise(peak: &AtomicU64, value: u64) {
    if value > peak.load(Relaxed) {
        peak.fetch_max(value, Relaxed);
    }
}

impl Control {
    /// Has the supervisor look after the processes soon ([`Control::calls`]).
    pub fn call_supervisor(&self) {
        self.calls.fetch_add(1, Release);
        futex::wake(&self.calls);
    }

    /// A control block for one run. It is large: where it is to lie in the end, [`Control::write`] makes it.
    pub fn new(settings: Settings) -> Self {
        let mut place = MaybeUninit::uninit();
        Self::write(&mut place, settings);
        // SAFETY: all of it was written just now.
        unsafe { place.assume_init() }
    }

    /// Makes a control block for one run in its place.
    pub fn write(place: &mut MaybeUninit<Control>, settings: Settings) {
        let control = place.as_mut_ptr();
        // SAFETY: what is written to is the place's own. All that is not written by name are numbers and
        // atomics that begin as zero.
        unsafe {
            control.write_bytes(0, 1);
            (&raw mut (*control).magic).write(MAGIC);
            (&raw mut (*control).version).write(VERSION);
            (&raw mut (*control).budget_bytes).write(AtomicU64::new(settings.budget_bytes));
            (&raw mut (*control).settings).write(settings);
        }
    }

    /// Bytes of the whole mapping of a run with this budget.
    pub const fn mapping_bytes(most_bytes: u64) -> usize {
        size_of::<Control>() + frames::tables_bytes(most_bytes)
    }

    /// Bytes that may still be taken; negative when the budget is exceeded.
    pub fn room_bytes(&self) -> i64 {
        self.budget_bytes.load(Relaxed) as i64 - self.usage.total_bytes() as i64
    }

    /// Gives back all that process `pid` had of RAM, and its slot, unless somebody else does that.
    /// The process has ended, is about to, or has become another program. What it has noted of the
    /// store is the supervisor's to give back ([`Processes::free_left`]).
    pub fn retire(&self, tables: &Tables<'_>, slot: &ProcessSlot, pid: i32) {
        if !self.processes.begin_retiring(slot, pid) {
            return;
        }
        tables.leave_all(tables.holds_of(self, slot), &self.usage);
        self.processes.free(slot, &self.usage);
    }

    /// `pid` has ended, or has become another program: what it had is its heir's from now on, or is given
    /// back.
    pub fn bury(&self, tables: &Tables<'_>, slot: &ProcessSlot, pid: i32) {
        if !self.processes.leave_to_heir(slot, pid) {
            self.retire(tables, slot, pid);
        }
    }

    /// Whether the mapping was made by a command of this version.
    pub fn is_compatible(&self) -> bool {
        self.magic == MAGIC && self.version == VERSION
    }
}

/// A process id that is not one: the slot is free.
pub(crate) const NO_PROCESS: i32 = 0;

/// Nor is this: the slot is being freed.
pub(crate) const RETIRING: i32 = -1;

/// Nor is this: the process is gone, but for what it has noted of the store.
pub(crate) const LEFT: i32 = -2;

/// Shorthand for the zero of a process id cell.
pub(crate) const fn no_process() -> AtomicI32 {
    AtomicI32::new(NO_PROCESS)
}
