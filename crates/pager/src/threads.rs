//! What is known of each thread: its record lies at the foot of the alternate
//! stack on which all of its signals are served.
//!
//! Blocks are as large as they are aligned, so a handler finds its thread's
//! record from its stack pointer, whatever the program does with its thread
//! pointer and its stacks.

use core::sync::atomic::{
    AtomicBool, AtomicI32,
    Ordering::{Acquire, Relaxed},
};

use zpager_policy::Ahead;
use zpager_sys::dispatch::SELECTOR_BLOCK;
use zpager_sys::mapping::Mapping;
use zpager_sys::process::{shares_memory, thread_exists};
use zpager_sys::signal::{AlternateStack, Info, Mask, Registers};
use zpager_sys::{Errno, PAGE_BYTES};
use zpager_wire::ProcessSlot;

use crate::calls::{Continued, Environment, Messages, TimeLimit};
use crate::identity::Identity;
use crate::parked::Parked;
use crate::regions::Pages;

/// Most threads of a process that are managed at the same time.
const THREADS_MAX: usize = 8192;
/// So many can be managed even where address space is limited.
const THREADS_MIN: usize = 64;
pub(crate) const BLOCK_BYTES: usize = 128 * 1024;
/// The kernel takes 1024 iovecs; a call has a few more pointers.
const HOLDS_MAX: usize = 1024 + 9;
/// RAM that a thread's block costs as a rule.
const TOUCHED_BYTES: usize = 6 * PAGE_BYTES;

/// A thread that made so many faults in a row makes them alone.
const FAULTS_ALONE: u32 = 64;

/// A thread id that is none: the block is free.
const NOBODY: i32 = 0;
/// The id of a block that was claimed for a thread which has not said its own yet.
const CLAIMED: i32 = -1;
/// The id of a child that is being made.
pub(crate) const UNKNOWN: i32 = -1;

/// Who has the lock on no block: a thread that begins to be managed.
pub(crate) const STARTER: u32 = 1;

/// Set while another process may have this memory. Threads of one process end together, and their
/// sandbox (seccomp(2)) may know nothing of asking for each other.
pub(crate) static IS_SHARED: AtomicBool = AtomicBool::new(false);

/// What a signal of ours has done to a call. It is made again, and a signal that comes before it is does to it what
/// it would have done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disturbed {
    No,
    /// It came before the call, or the kernel has the call be made again as it does after handlers with `SA_RESTART`.
    Restarted,
    /// It has ended the call, as any handler does.
    Ended,
}

/// One thread.
#[repr(C)]
pub(crate) struct Thread {
    /// Read by the kernel at every system call.
    pub(crate) selector: u8,
    pub(crate) tid: AtomicI32,
    /// The process that it belongs to: not the record's, in a child made by vfork.
    pub(crate) pid: i32,
    /// That process among all that ever had this memory, in any namespace of ids.
    pub(crate) sharer: u32,
    /// Of a child that shares this memory and is not waited for: the id by which its parent knows
    /// it, or [`UNKNOWN`] until the parent does.
    pub(crate) child_pid: AtomicI32,
    /// That id is what it is to others: who made it is seen.
    pub(crate) has_seen_maker: AtomicBool,
    /// Of such a child: by what it is known, once it has said so, with `pid` and `is_seen`.
    pub(crate) identity: Identity,
    pub(crate) has_said: AtomicBool,
    /// Of such a child: the slot of the process whose memory it shares.
    pub(crate) lender: Option<&'static ProcessSlot>,
    /// Ids are to it what they are to the process whose memory this was at first: neither it nor who made
    /// it is in a pid namespace of its own.
    pub(crate) is_seen: AtomicBool,
    pub(crate) ahead: Ahead,
    /// Those of our signals that the program believes to be blocked.
    pub(crate) pretended_mask: Mask,
    /// It is of a child that was made with this memory and actions of its own.
    pub(crate) has_own_actions: bool,
    /// Those of our signals that such a child ignores.
    pub(crate) ignored: Mask,
    /// Those of them that were sent to it while they were pretended to be blocked.
    pub(crate) parked: Parked,
    /// Those of them that it waits for in a call.
    pub(crate) waits_for: Mask,
    /// The mask of the call that was last let go on in a stub, while it waits.
    pub(crate) temporary_mask: Option<Mask>,
    /// What the kernel has for a mask instead of the program's: a mask, or a pointer to the last
    /// word and the length of a mask, and the mask.
    pub(crate) kernel_mask: [usize; 3],
    /// When the wait is over of the call that was last let go on in a stub.
    pub(crate) time_limit: Option<TimeLimit>,
    /// The same of one that is about a socket, once a signal of ours has ended it; `u64::MAX` for one that has none.
    pub(crate) socket_until_ns: Option<u64>,
    /// What a signal of ours has done to that call.
    pub(crate) disturbed: Disturbed,
    /// Its registers before a call that ends in the trap for their sake.
    pub(crate) watched: Option<Registers>,
    /// The alternate stack that the program set.
    pub(crate) alternate: AlternateStack,
    /// Whether a signal came while the thread served a fault, and it.
    pub(crate) has_postponed: bool,
    pub(crate) postponed: Info,
    /// Address and instruction of the last fault on unmanaged memory.
    pub(crate) foreign_fault: (usize, usize),
    /// The page of its last fault that was there, with guards, and how many such it has made in a row.
    pub(crate) idle_fault: (u64, u32),
    /// Number of the call that was last let go on in a stub.
    pub(crate) call: usize,
    /// The call that it makes in pieces.
    pub(crate) continued: Option<Continued>,
    /// Bytes that were done, before it was managed, of the transfer that is its first call since; or 0.
    pub(crate) begun_bytes: usize,
    /// The call about several messages that it makes in parts.
    pub(crate) messages: Option<Messages>,
    /// Its registers before the `execve` that it is in.
    pub(crate) executing: Option<Registers>,
    /// A child that only shares this memory has set limits of its own.
    pub(crate) keeps_limits: bool,
    /// The fork that it makes next was begun already.
    pub(crate) forks_again: bool,
    /// It is to be traced by who began it, and is not yet.
    pub(crate) asks_to_be_traced: bool,
    holds: usize,
    /// The first is what another process is lent.
    held: [(u64, u64); HOLDS_MAX],
    /// What the next program of the process is to get.
    pub(crate) environment: Environment,
}

impl Thread {
    /// The record of the thread that runs on its alternate stack.
    ///
    /// # Safety
    /// The caller runs in a signal handler on a stack of a block.
    pub(crate) unsafe fn current<'a>() -> &'a mut Thread {
        let here = 0u8;
        let block = core::ptr::from_ref(&here) as usize & !(BLOCK_BYTES - 1);
        // SAFETY: the block begins with the record, which belongs to this thread alone.
        unsafe { &mut *(block as *mut Thread) }
    }

    /// The number of its block, by which it is known as the lock's owner.
    pub(crate) fn number(&self) -> u32 {
        (core::ptr::from_ref(self) as usize / BLOCK_BYTES) as u32
    }

    /// The stack above the record.
    pub(crate) fn stack(&self) -> AlternateStack {
        let start = core::ptr::from_ref(self) as usize + size_of::<Thread>().next_multiple_of(64);
        let end = core::ptr::from_ref(self) as usize + BLOCK_BYTES;
        AlternateStack { start, flags: 0, bytes: end - start }
    }

    /// Top of the stack.
    pub(crate) fn stack_end(&self) -> usize {
        core::ptr::from_ref(self) as usize + BLOCK_BYTES
    }

    /// The pages that must stay for the call that the thread is in.
    pub(crate) fn held(&self) -> &[(u64, u64)] {
        &self.held[..self.holds]
    }

    /// Whether it cannot do without the pager until something ends: its start, a call that leads to the
    /// trap or is half done, or the use that a child makes of this memory.
    pub(crate) fn is_in_midst(&self) -> bool {
        let is_called = self.watched.is_some()
            || self.continued.is_some()
            || self.begun_bytes != 0
            || self.messages.is_some()
            || self.executing.is_some();
        let is_begun = self.tid.load(Relaxed) == CLAIMED || self.child_pid.load(Relaxed) != 0;
        is_called || is_begun
    }

    /// Holds `pages` as well. Where there are more than a call can name, as arguments of a program may
    /// be, what lies between them is held with them.
    pub(crate) fn hold(&mut self, pages: Pages) {
        if self.holds == HOLDS_MAX {
            let (start, end) = &mut self.held[HOLDS_MAX - 1];
            (*start, *end) = (pages.start.min(*start), pages.end.max(*end));
        } else {
            self.held[self.holds] = (pages.start, pages.end);
            self.holds += 1;
        }
    }

    /// Makes one of the last two holds, if the last one begins where the other ends.
    pub(crate) fn join_last(&mut self) {
        // The first is another process's.
        if let [.., (_, end), (next_start, next_end)] = &mut self.held[1..self.holds]
            && end == next_start
        {
            *end = *next_end;
            self.holds -= 1;
        }
    }

    /// How many more can be held.
    pub(crate) fn holds_left(&self) -> usize {
        HOLDS_MAX - self.holds
    }

    pub(crate) fn let_go(&mut self) {
        self.holds = 1;
        self.held[0] = (0, 0);
    }

    /// Keeps `pages` for another process, instead of those that it was lent before.
    pub(crate) fn lend(&mut self, pages: Pages) {
        self.held[0] = (pages.start, pages.end);
    }
}

/// All blocks of a process.
pub(crate) struct Threads {
    blocks: Mapping,
    base: usize,
    most: usize,
    /// Blocks that were ever in use: they come first.
    count: usize,
    /// Pages that stay while their memory leaves management.
    pub(crate) kept: Pages,
    /// The thread that made the last fault, and how many of its faults came in a row.
    last_faulting: u32,
    faults_in_a_row: u32,
}

impl Threads {
    /// Room for as many as fit `bytes_max` of address space, but for some at least.
    pub(crate) fn new(bytes_max: usize) -> Result<Self, Errno> {
        let most = (bytes_max / BLOCK_BYTES).clamp(THREADS_MIN, THREADS_MAX);
        let blocks = Mapping::reserve((most + 1) * BLOCK_BYTES)?;
        Ok(Threads {
            blocks,
            base: blocks.start().next_multiple_of(BLOCK_BYTES),
            most,
            count: 0,
            kept: 0..0,
            last_faulting: STARTER,
            faults_in_a_row: 0,
        })
    }

    pub(crate) fn metadata_bytes(&self) -> usize {
        debug_assert!(self.base >= self.blocks.start());
        self.count * TOUCHED_BYTES
    }

    fn block(&self, at: usize) -> &'static mut Thread {
        // SAFETY: within the mapping; zero bytes are a record. Each record is its thread's; others look at it under the lock.
        unsafe { &mut *((self.base + at * BLOCK_BYTES) as *mut Thread) }
    }

    /// A block for a new thread of a process, which `is_seen` as who makes it; the caller sets its ids. `None`
    /// when all are taken.
    pub(crate) fn claim(
        &mut self,
        pid: i32,
        sharer: u32,
        is_seen: bool,
    ) -> Option<&'static mut Thread> {
        let free = (0..self.count).find(|&at| is_free(self.block(at), is_seen));
        let at = free.or_else(|| (self.count < self.most).then_some(self.count))?;
        self.count = self.count.max(at + 1);
        let thread = self.block(at);
        thread.selector = SELECTOR_BLOCK;
        thread.pid = pid;
        thread.sharer = sharer;
        thread.tid = AtomicI32::new(CLAIMED);
        thread.child_pid = AtomicI32::new(0);
        thread.is_seen = AtomicBool::new(is_seen);
        thread.has_seen_maker = AtomicBool::new(is_seen);
        thread.has_said = AtomicBool::new(false);
        thread.lender = None;
        thread.ahead = Ahead::default();
        thread.pretended_mask = 0;
        thread.has_own_actions = false;
        thread.ignored = 0;
        thread.parked = Parked::default();
        thread.has_postponed = false;
        thread.waits_for = 0;
        thread.temporary_mask = None;
        thread.time_limit = None;
        thread.socket_until_ns = None;
        thread.disturbed = Disturbed::No;
        thread.alternate = AlternateStack::NONE;
        thread.foreign_fault = (0, 0);
        thread.begun_bytes = 0;
        thread.continued = None;
        thread.messages = None;
        thread.executing = None;
        thread.watched = None;
        thread.keeps_limits = false;
        thread.forks_again = false;
        thread.asks_to_be_traced = false;
        thread.let_go();
        Some(thread)
    }

    /// The threads in use.
    pub(crate) fn live(&self) -> impl Iterator<Item = &'static mut Thread> {
        (0..self.count).map(|at| self.block(at)).filter(|thread| thread.tid.load(Relaxed) != NOBODY)
    }

    /// Pages that all calls hold together, those twice that two of them hold.
    pub(crate) fn held_pages(&self) -> u64 {
        self.live().flat_map(|thread| thread.held().iter()).map(|&(start, end)| end - start).sum()
    }

    /// Where the hold ends that keeps `page`, if one does.
    pub(crate) fn hold_end(&self, page: u64) -> Option<u64> {
        if self.kept.contains(&page) {
            return Some(self.kept.end);
        }
        self.live()
            .flat_map(|thread| thread.held().iter())
            .find(|&&(start, end)| start <= page && page < end)
            .map(|&(_, end)| end)
    }

    /// Where the first hold begins that keeps a page of `pages`, if one does.
    pub(crate) fn hold_start(&self, pages: &Pages) -> Option<u64> {
        let kept = (self.kept.start, self.kept.end);
        self.live()
            .flat_map(|thread| thread.held().iter())
            .chain([&kept])
            .filter(|&&(start, end)| start.max(pages.start) < end.min(pages.end))
            .map(|&(start, _)| start.max(pages.start))
            .min()
    }

    /// Frees the blocks of children that shared this memory and do so no more: one that was killed,
    /// or runs another program, has not said so. Gives how many they were. The caller is seen; of a child made by
    /// one that is not, it cannot tell.
    pub(crate) fn bury_children(&self) -> u32 {
        let mut buried = 0;
        for thread in (0..self.count).map(|at| self.block(at)) {
            let pid = thread.child_pid.load(Acquire);
            if pid > 0 && thread.has_seen_maker.load(Relaxed) && !shares_memory(pid) {
                thread.child_pid.store(0, Relaxed);
                thread.release();
                buried += 1;
            }
        }
        buried
    }

    /// The first child that shares this memory and is known.
    pub(crate) fn heir(&self) -> Option<&'static Thread> {
        self.live().find(|thread| thread.child_pid.load(Acquire) > 0).map(|thread| &*thread)
    }

    /// Notes a fault of a thread; whether there are others that make some, too.
    pub(crate) fn faults_beside_others(&mut self, number: u32) -> bool {
        if self.was_always_one() {
            return false;
        }
        self.faults_in_a_row =
            if self.last_faulting == number { self.faults_in_a_row.saturating_add(1) } else { 0 };
        self.last_faulting = number;
        self.faults_in_a_row < FAULTS_ALONE
    }

    /// Whether there has never been a second one.
    pub(crate) fn was_always_one(&self) -> bool {
        self.count <= 1
    }

    /// Whether other threads of the same process run the program.
    pub(crate) fn has_beside(&self, thread: &Thread) -> bool {
        let runs = |other: &Thread| other.tid.load(Relaxed) >= CLAIMED;
        let is_beside = |other: &&mut Thread| {
            !core::ptr::eq::<Thread>(*other, thread) && other.sharer == thread.sharer && runs(other)
        };
        self.live().any(|other| is_beside(&other))
    }

    /// Whether no other thread is in use, or may come to be.
    pub(crate) fn is_alone(&self, thread: &Thread) -> bool {
        self.is_alone_with(thread.number())
    }

    /// Whether no other thread than the one with a number is in use, or may come to be.
    pub(crate) fn is_alone_with(&self, number: u32) -> bool {
        let is_seen = is_seen(number);
        (0..self.count).all(|at| {
            let other = self.block(at);
            other.number() == number || is_free(other, is_seen)
        })
    }

    /// After a fork: only `survivor` is left.
    pub(crate) fn keep_only(&mut self, survivor: &Thread) {
        for thread in self.live() {
            if !core::ptr::eq(thread, survivor) {
                thread.tid.store(NOBODY, Relaxed);
                thread.let_go();
            }
        }
        (0..self.count).for_each(|at| self.block(at).child_pid.store(0, Relaxed));
    }
}

/// The ids of a [`Thread`], and whether they are what they are to others.
struct Ids {
    is_seen: &'static AtomicBool,
    tid: &'static AtomicI32,
    has_seen_maker: &'static AtomicBool,
    child_pid: &'static AtomicI32,
}

/// Those of the thread with a number.
fn ids(number: u32) -> Ids {
    let thread = (number as usize * BLOCK_BYTES) as *const Thread;
    // SAFETY: a number that was in the lock is a block's, which are never unmapped; atomics alone are looked at.
    unsafe {
        Ids {
            is_seen: &(*thread).is_seen,
            tid: &(*thread).tid,
            has_seen_maker: &(*thread).has_seen_maker,
            child_pid: &(*thread).child_pid,
        }
    }
}

/// Whether ids are to the thread with a number what they are to others of this memory.
pub(crate) fn is_seen(number: u32) -> bool {
    number == STARTER || ids(number).is_seen.load(Relaxed)
}

/// Whether the thread with a number is gone from this memory, as far as another one can tell.
///
/// A vforked child in a pid namespace of its own is only known to who made it, which goes on when
/// it is gone.
pub(crate) fn is_gone(number: u32, asking: u32) -> bool {
    if number == STARTER || !is_seen(asking) || !IS_SHARED.load(Relaxed) {
        return false;
    }
    let Ids { is_seen, tid, has_seen_maker, child_pid } = ids(number);
    let id = match child_pid.load(Acquire) {
        pid @ 1.. if has_seen_maker.load(Relaxed) => pid,
        _ if is_seen.load(Relaxed) => tid.load(Relaxed).abs(),
        _ => return false,
    };
    id > CLAIMED.abs() && !shares_memory(id)
}

/// Negative thread ids: an ending thread may still run on its block, so the block is free only when the thread is
/// gone. Where one of both has other ids, whether `asking_is_seen` or it is, nobody can tell.
fn is_free(thread: &mut Thread, asking_is_seen: bool) -> bool {
    let tid = thread.tid.load(Relaxed);
    let can_tell = asking_is_seen && thread.is_seen.load(Relaxed);
    if tid < CLAIMED && can_tell && !thread_exists(thread.pid, -tid) {
        thread.tid.store(NOBODY, Relaxed);
    }
    thread.tid.load(Relaxed) == NOBODY && thread.child_pid.load(Relaxed) == 0
}

impl Thread {
    /// The thread is about to end; once more, where a signal came before it did.
    pub(crate) fn ends(&mut self) {
        let tid = self.tid.load(Relaxed);
        self.let_go();
        self.tid.store(-tid.abs(), Relaxed);
    }

    /// The block was never run on, or will not be again.
    pub(crate) fn release(&mut self) {
        self.let_go();
        self.tid.store(NOBODY, Relaxed);
    }
}
