//! Counts of everything that happened, and the events a user has to be told.
//!
//! A count is only ever added to, by the process in which the thing happened,
//! with a relaxed atomic add: a sum over the tree without any collecting step,
//! and nothing is lost when a process is killed.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Counts summed over all processes of a run; documented for users in `docs/statistics.md`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Counters {
    /// Pages lifted out of a program.
    pub swapped_out_pages: AtomicU64,
    /// Pages brought back, on a fault, for a system call or ahead of need.
    pub swapped_in_pages: AtomicU64,
    /// Pages brought in before they were asked for.
    pub prefetched_pages: AtomicU64,
    /// Pages that were found same-filled when they were swapped out.
    pub same_filled_pages: AtomicU64,
    /// Pages that no codec made smaller when they were swapped out.
    pub incompressible_pages: AtomicU64,
    /// Pages of which the denser codec made bytes when they were swapped out.
    pub dense_pages: AtomicU64,
    /// Pages of which the second codec did, as it left them much shorter.
    pub repeats_pages: AtomicU64,
    /// Faults served by a page that had never been written.
    pub fresh_faults: AtomicU64,
    /// Faults served from RAM: the pool or the index.
    pub compressed_faults: AtomicU64,
    /// Faults served from the store.
    pub spilled_faults: AtomicU64,
    /// System calls that were seen by an agent.
    pub dispatched_calls: AtomicU64,
    /// Bytes of the pages that went through a codec and shrank.
    pub original_bytes: AtomicU64,
    /// What those pages became.
    pub compressed_bytes: AtomicU64,
    /// Bytes written to the store.
    pub store_written_bytes: AtomicU64,
    /// Bytes read from the store.
    pub store_read_bytes: AtomicU64,
    /// How long the pages that left for the store were together, as they are kept there.
    pub store_page_bytes: AtomicU64,
    /// Pages that were compressed once more when they left for the store.
    pub recompressed_pages: AtomicU64,
    /// How many bytes shorter that made them.
    pub recompressed_saved_bytes: AtomicU64,
    /// Writes to the store.
    pub store_writes: AtomicU64,
    /// Reads from the store.
    pub store_reads: AtomicU64,
    /// Reads that were begun before their page was wanted, as a pointer led there; all of them are counted as reads.
    pub foretold_reads: AtomicU64,
    /// Those of them whose page was wanted.
    pub foretold_used: AtomicU64,
    /// Highest length of the swap file.
    pub store_file_bytes: AtomicU64,
    /// Pages that left RAM for the store.
    pub spilled_pages: AtomicU64,
    /// Pages that were written to the store before their RAM was needed.
    pub ahead_pages: AtomicU64,
    /// Pages that came back from RAM after they had been written there.
    pub shelved_pages: AtomicU64,
    /// Pages that left RAM without a write, as they were in the store already.
    pub clean_drops: AtomicU64,
    /// Faults on a page that was in the store as it was, and is written.
    pub clean_faults: AtomicU64,
    /// Processes that were managed at some time.
    pub managed_processes: AtomicU64,
}

/// What can happen that a user has to be told once.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// A write to the store failed: its pages stay in RAM. The value is the error number.
    StoreWriteFailed,
    /// The store is as large as it may be: pages stay in RAM.
    StoreFull,
    /// The budget cannot be held: everything that may leave has left.
    BudgetExceeded,
    /// A read from the store failed and the page is lost; the program is ended. The value is the error number.
    StoreReadFailed,
    /// A page came back from the store with a wrong checksum; the program is ended.
    PageCorrupt,
    /// A program could not be managed and runs without zpager. The value is the error number.
    NotManaged,
    /// The agent could not get memory or a descriptor that it needs; the program is ended.
    AgentFailed,
    /// An invariant does not hold; the program is ended before a wrong byte reaches it. The value is
    /// the line, the address the first eight letters of the file's name.
    InvariantBroken,
    /// A process that shared this memory was killed while the pager worked in it; those that are left
    /// are ended.
    Abandoned,
    /// A write to one of several stores failed, and another one took over. The value is the error
    /// number, the address the store's number, from 0.
    StoreFailed,
    /// A server failed, and its mirror took or gave what it did not. The value is the error number.
    ServerFailed,
    /// A write to a server's mirror failed, and the server alone has what it did not take. The value is
    /// the error number.
    MirrorFailed,
    /// A program has a filter of system calls that stands in the pager's way, or process ids that
    /// others do not know it by: it runs without zpager.
    Sandboxed,
    /// A program had an io_uring(7) before it was to be managed, by which the kernel goes on, or begins, to use its
    /// memory without a call: it runs without zpager.
    HasRing,
    /// Who traces a program serves its calls in the kernel's place, as proot does: it runs without zpager.
    Emulated,
    /// A program that is watched by guard pages begins a thread and may not open its own memory file, without which
    /// that cannot be done beside others: it runs without zpager.
    NoMemoryFile,
    /// A program had a virtual machine before it was to be managed, whose memory the kernel goes on to use: it
    /// runs without zpager.
    HasMachine,
    /// A program has asked to be traced and stops itself, as it is: it runs without zpager.
    Traced,
}

/// Every kind, in the order of their numbers.
pub const EVENT_KINDS: [EventKind; 18] = [
    EventKind::StoreWriteFailed,
    EventKind::StoreFull,
    EventKind::BudgetExceeded,
    EventKind::StoreReadFailed,
    EventKind::PageCorrupt,
    EventKind::NotManaged,
    EventKind::AgentFailed,
    EventKind::InvariantBroken,
    EventKind::Abandoned,
    EventKind::StoreFailed,
    EventKind::ServerFailed,
    EventKind::MirrorFailed,
    EventKind::Sandboxed,
    EventKind::HasRing,
    EventKind::Emulated,
    EventKind::NoMemoryFile,
    EventKind::HasMachine,
    EventKind::Traced,
];

/// One kind of event: how often, and the first time's particulars.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Event {
    /// How many times it happened.
    pub count: AtomicU32,
    /// The process in which it happened first.
    pub pid: AtomicI32,
    /// What the kind's documentation says, of the first time.
    pub value: AtomicU64,
    /// The page's address, where the event is about one.
    pub address: AtomicU64,
}

/// The events of a run, one of each kind.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Events {
    slots: [Event; EVENT_KINDS.len()],
}

impl Events {
    /// Notes that `kind` happened in process `pid`.
    pub fn note(&self, kind: EventKind, pid: i32, value: u64, address: u64) {
        let slot = self.get(kind);
        if slot.count.fetch_add(1, Relaxed) == 0 {
            slot.pid.store(pid, Relaxed);
            slot.value.store(value, Relaxed);
            slot.address.store(address, Relaxed);
        }
    }

    /// What is known of `kind`.
    pub fn get(&self, kind: EventKind) -> &Event {
        &self.slots[kind as usize]
    }
}
