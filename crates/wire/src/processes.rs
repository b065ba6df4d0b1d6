//! The processes of a run that hold bytes of the budget.
//!
//! Each managed process owns one slot and keeps its own share of
//! [`Usage`](crate::Usage) in it, so that the supervisor can take the share
//! back when the process was killed and could not do it itself.
//!
//! Invariant: at rest, a field of `Usage` but `shared_bytes` is the sum of that field
//! over the slots. A slot is claimed by the process itself, by its id, and freed by the
//! process at its end or by the supervisor once the process is gone. Where the process has
//! noted references to the store that it did not give back, its slot is left, and the
//! supervisor frees it after them.
//!
//! A forked child's slot is claimed before the fork, by its parent's id, so that what is
//! held for it is given back with what its parent has should that be killed. The child
//! takes it over first of all ([`Processes::take_over`]); where it comes too late nothing
//! is held for it any more. The parent gives it to the child too, which may be killed
//! before it has begun.

use core::sync::atomic::{
    AtomicI32, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};

use crate::{LEFT, NO_PROCESS, RETIRING, Usage, no_process};

/// How many processes of one run can be managed at the same time.
pub const MAX_PROCESSES: usize = 1024;

/// Nobody wants room of the process, or it has given what it can.
pub const UNASKED: u32 = 0;
/// Somebody does, and a relative may wait for it.
pub const ASKED: u32 = 1;
/// One has waited in vain: nobody waits until it answers.
pub const UNANSWERED: u32 = 2;

/// One managed process's share of the budget.
#[repr(C)]
#[derive(Debug)]
pub struct ProcessSlot {
    /// The process, by its id in the supervisor's pid namespace, or 0 where the slot is free.
    pub pid: AtomicI32,
    /// Its id in its own.
    pub own_pid: AtomicI32,
    /// Which that is, as the process says: 0 for the supervisor's.
    pub namespace: AtomicU64,
    /// Whether this process shall give back pages until the sum fits: [`UNASKED`], [`ASKED`] by the
    /// supervisor or a relative, or [`UNANSWERED`].
    pub give_back: AtomicU32,
    /// Share of `Usage::resident_bytes`.
    pub resident_bytes: AtomicU64,
    /// Pages that it shares with relatives; not its part of `Usage::shared_bytes`, which has none.
    pub shared_bytes: AtomicU64,
    /// Share of `Usage::pool_bytes`.
    pub pool_bytes: AtomicU64,
    /// Share of `Usage::payload_bytes`.
    pub payload_bytes: AtomicU64,
    /// Share of `Usage::metadata_bytes`.
    pub metadata_bytes: AtomicU64,
    /// Share of `Usage::managed_bytes`.
    pub managed_bytes: AtomicU64,
    /// Share of `Usage::stored_pages`.
    pub stored_pages: AtomicU64,
    /// Counts up whenever this process wanted room and had nothing of its own to give.
    pub starved: AtomicU64,
    /// When the process missed a page last, in ticks of the processor.
    pub missed_at: AtomicU64,
    /// Set while the process notes what it holds of the store, by its place among the slots.
    pub has_noted: AtomicU32,
    /// Set while another process may use its memory, and with it what it holds of the store.
    pub is_lent: AtomicU32,
    /// Which process goes on with that, should this one end or run another program; 0 where none is known.
    pub heir: AtomicI32,
    /// What another process asks of this one.
    pub request: Request,
}

/// Pages of a process that another one of the run wants to read or write by its id, and that have
/// to be brought in first.
///
/// Who asks takes the request by a word of its own, writes what it wants, and sends a SIGURG with
/// [`crate::BRING_IN`]. A process that is about to run another program first says that it does not
/// answer any more and then waits while somebody is sending, so that the signal never reaches a
/// program that has no handler for it.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Request {
    /// 0 while it is free; else what it is waiting for, with the thread that asks.
    pub state: AtomicU32,
    /// Set while the process answers.
    pub answers: AtomicU32,
    /// Set while the signal is being sent.
    pub sending: AtomicU32,
    /// First byte that is wanted.
    pub start: AtomicU64,
    /// How many.
    pub bytes: AtomicU64,
}

impl Request {
    const fn new() -> Self {
        Request {
            state: AtomicU32::new(0),
            answers: AtomicU32::new(0),
            sending: AtomicU32::new(0),
            start: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }
}

impl Default for ProcessSlot {
    fn default() -> Self {
        Self::new()
    }
}

impl ProcessSlot {
    /// A free slot.
    pub const fn new() -> Self {
        ProcessSlot {
            pid: no_process(),
            own_pid: no_process(),
            namespace: AtomicU64::new(0),
            give_back: AtomicU32::new(UNASKED),
            resident_bytes: AtomicU64::new(0),
            shared_bytes: AtomicU64::new(0),
            pool_bytes: AtomicU64::new(0),
            payload_bytes: AtomicU64::new(0),
            metadata_bytes: AtomicU64::new(0),
            managed_bytes: AtomicU64::new(0),
            stored_pages: AtomicU64::new(0),
            starved: AtomicU64::new(0),
            missed_at: AtomicU64::new(0),
            has_noted: AtomicU32::new(0),
            is_lent: AtomicU32::new(0),
            heir: no_process(),
            request: Request::new(),
        }
    }
}

/// All slots of a run.
#[repr(C)]
#[derive(Debug)]
pub struct Processes {
    slots: [ProcessSlot; MAX_PROCESSES],
    /// Slots in use.
    count: AtomicU32,
}

impl Default for Processes {
    fn default() -> Self {
        Processes {
            slots: core::array::from_fn(|_| ProcessSlot::default()),
            count: AtomicU32::new(0),
        }
    }
}

impl Processes {
    /// Claims a slot for `pid`; `None` when all are taken.
    pub fn claim(&self, pid: i32) -> Option<&ProcessSlot> {
        // Before the slot is taken and after it is given back, so that it is never too low.
        self.count.fetch_add(1, Relaxed);
        let claim = |slot: &&ProcessSlot| {
            slot.pid.compare_exchange(NO_PROCESS, pid, AcqRel, Relaxed).is_ok()
        };
        let claimed = self.slots.iter().find(claim);
        if claimed.is_none() {
            self.count.fetch_sub(1, Relaxed);
        }
        claimed
    }

    /// The slot that was claimed by `parent` for its child is that of `pid`, the child, from now on. False where
    /// it is already, or was given back, as the parent was gone.
    pub fn take_over(&self, slot: &ProcessSlot, parent: i32, pid: i32) -> bool {
        slot.pid.compare_exchange(parent, pid, AcqRel, Relaxed).is_ok()
    }

    /// The place of a slot; `None` for one that is not of these.
    pub fn index_of(&self, slot: &ProcessSlot) -> Option<usize> {
        let offset = core::ptr::from_ref(slot) as usize;
        let offset = offset.wrapping_sub(self.slots.as_ptr() as usize);
        let index = offset / size_of::<ProcessSlot>();
        (index < MAX_PROCESSES).then_some(index)
    }

    /// How many slots are in use.
    pub fn count(&self) -> u32 {
        self.count.load(Relaxed)
    }

    /// Takes the slot of `pid` from it, for the caller to give back what it had and then
    /// [`Processes::free`] it. False when it is not that process's any more: one caller succeeds. One who
    /// has read `pid` there since the slot was given back has none.
    pub(crate) fn begin_retiring(&self, slot: &ProcessSlot, pid: i32) -> bool {
        pid > NO_PROCESS && slot.pid.compare_exchange(pid, RETIRING, AcqRel, Relaxed).is_ok()
    }

    /// `pid` has ended, is about to, or runs another program: its slot is its heir's from now on, who
    /// answers. False where it has none, or another caller has left it.
    pub fn leave_to_heir(&self, slot: &ProcessSlot, pid: i32) -> bool {
        let heir = slot.heir.load(Acquire);
        // One that has it already is named still where who left it was killed just then.
        let is_left = heir > NO_PROCESS
            && heir != pid
            && slot.pid.compare_exchange(pid, heir, AcqRel, Relaxed).is_ok();
        if is_left {
            slot.request.answers.store(1, Release);
            let _ = slot.heir.compare_exchange(heir, NO_PROCESS, Relaxed, Relaxed);
        }
        is_left
    }

    /// Gives the whole share of a slot back to `usage` and frees the slot, or leaves it.
    pub(crate) fn free(&self, slot: &ProcessSlot, usage: &Usage) {
        slot.give_all_back(usage);
        self.count.fetch_sub(1, Relaxed);
        let is_left = slot.has_noted.load(Relaxed) != 0;
        if !is_left {
            slot.is_lent.store(0, Relaxed);
        }
        slot.pid.store(if is_left { LEFT } else { NO_PROCESS }, Release);
    }

    /// Frees every slot that was left, after `give_back` has seen to what its process noted, given
    /// its place and whether another process may still use that. One caller at a time.
    pub fn free_left(&self, mut give_back: impl FnMut(usize, bool)) {
        for (at, slot) in self.slots.iter().enumerate() {
            if slot.pid.load(Acquire) == LEFT {
                give_back(at, slot.is_lent.swap(0, Relaxed) != 0);
                slot.has_noted.store(0, Relaxed);
                slot.pid.store(NO_PROCESS, Release);
            }
        }
    }

    /// The slots in use.
    pub fn in_use(&self) -> impl Iterator<Item = &ProcessSlot> {
        self.slots.iter().filter(|slot| slot.pid.load(Acquire) > NO_PROCESS)
    }
}

impl ProcessSlot {
    /// Resident pages of the process, its own and shared ones.
    pub fn held_bytes(&self) -> u64 {
        self.resident_bytes.load(Relaxed) + self.shared_bytes.load(Relaxed)
    }

    /// `pid` shares the memory, and goes on with it should its owner end, unless another one does. Whoever
    /// looks for it after [`ProcessSlot::unname_heir`] finds it, or is told of here.
    pub fn name_heir(&self, pid: i32) {
        let _ = self.heir.compare_exchange(NO_PROCESS, pid, SeqCst, Relaxed);
    }

    /// Nobody goes on with the memory, as far as it is known.
    pub fn unname_heir(&self) {
        self.heir.swap(NO_PROCESS, SeqCst);
    }

    /// Gives the whole share back to `usage`.
    fn give_all_back(&self, usage: &Usage) {
        let pairs = [
            (&self.resident_bytes, &usage.resident_bytes),
            (&self.pool_bytes, &usage.pool_bytes),
            (&self.payload_bytes, &usage.payload_bytes),
            (&self.metadata_bytes, &usage.metadata_bytes),
            (&self.managed_bytes, &usage.managed_bytes),
            (&self.stored_pages, &usage.stored_pages),
        ];
        for (share, sum) in pairs {
            sum.fetch_sub(share.swap(0, Relaxed), Relaxed);
        }
        self.shared_bytes.store(0, Relaxed);
        self.own_pid.store(NO_PROCESS, Relaxed);
        self.heir.store(NO_PROCESS, Relaxed);
        self.give_back.store(UNASKED, Relaxed);
        self.starved.store(0, Relaxed);
        self.request.answers.store(0, SeqCst);
        self.request.state.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retired_share_leaves_the_sum_as_it_was() {
        let usage = Usage::default();
        usage.resident_bytes.store(4096, Relaxed);
        let processes = Processes::default();
        let slot = processes.claim(7).expect("a free slot");
        slot.resident_bytes.fetch_add(8192, Relaxed);
        usage.resident_bytes.fetch_add(8192, Relaxed);
        assert!(processes.begin_retiring(slot, 7) && !processes.begin_retiring(slot, 7));
        processes.free(slot, &usage);
        assert_eq!(usage.total_bytes(), 4096);
        assert_eq!(processes.count(), 0);
        assert_eq!(processes.in_use().count(), 0);
    }

    #[test]
    fn a_slot_is_left_to_the_first_that_was_named_once() {
        let processes = Processes::default();
        let slot = processes.claim(7).expect("a free slot");
        assert!(!processes.leave_to_heir(slot, 7));
        slot.name_heir(8);
        slot.name_heir(9);
        assert!(!processes.leave_to_heir(slot, 6), "it is another one's");
        assert!(processes.leave_to_heir(slot, 7) && !processes.leave_to_heir(slot, 7));
        assert_eq!(slot.pid.load(Relaxed), 8);
        assert!(!processes.leave_to_heir(slot, 8), "it has no heir itself");
        slot.name_heir(8);
        assert!(!processes.leave_to_heir(slot, 8), "nor is it its own");
        slot.unname_heir();
        slot.name_heir(9);
        assert!(processes.begin_retiring(slot, 8));
        processes.free(slot, &Usage::default());
        let slot = processes.claim(10).expect("a free slot");
        assert!(!processes.leave_to_heir(slot, 10), "what was named before is forgotten");
    }

    #[test]
    fn a_slot_with_notes_is_free_only_after_them() {
        let (usage, processes) = (Usage::default(), Processes::default());
        for (pid, has_noted, is_lent) in [(5, 0, 1), (6, 1, 0), (7, 1, 1)] {
            let slot = processes.claim(pid).expect("a free slot");
            slot.has_noted.store(has_noted, Relaxed);
            slot.is_lent.store(is_lent, Relaxed);
        }
        for pid in 5..=7 {
            let slot = &processes.slots[pid - 5];
            assert!(processes.begin_retiring(slot, pid as i32));
            processes.free(slot, &usage);
        }
        assert_eq!((processes.count(), processes.in_use().count()), (0, 0));
        assert_eq!(processes.claim(8).and_then(|slot| processes.index_of(slot)), Some(0));
        assert_eq!(processes.claim(9).and_then(|slot| processes.index_of(slot)), Some(3));
        let mut given = [None; 4];
        processes.free_left(|at, is_lent| given[at] = Some(is_lent));
        assert_eq!(given, [None, Some(false), Some(true), None]);
        processes.free_left(|_, _| panic!("nothing is left"));
        let slot = processes.claim(10).expect("a free slot");
        assert_eq!(processes.index_of(slot), Some(1));
        assert_eq!((slot.has_noted.load(Relaxed), slot.is_lent.load(Relaxed)), (0, 0));
    }

    #[test]
    fn a_child_takes_its_slot_over_unless_its_parent_is_buried_first() {
        let (usage, processes) = (Usage::default(), Processes::default());
        let [own, unborn] = [7, 7].map(|pid| processes.claim(pid).expect("a free slot"));
        assert!(processes.take_over(unborn, 7, 8) && !processes.begin_retiring(unborn, 7));
        let late = processes.claim(7).expect("a free slot");
        for slot in [own, late] {
            assert!(processes.begin_retiring(slot, 7));
            processes.free(slot, &usage);
        }
        assert!(!processes.take_over(late, 7, 9));
        assert_eq!((processes.count(), unborn.pid.load(Relaxed)), (1, 8));
    }

    #[test]
    fn slots_run_out_and_come_back() {
        let processes = Processes::default();
        for pid in 1..=MAX_PROCESSES as i32 {
            assert!(processes.claim(pid).is_some());
        }
        assert!(processes.claim(9999).is_none());
        let sixth = processes.in_use().nth(5).expect("in use");
        assert!(processes.begin_retiring(sixth, 6));
        processes.free(sixth, &Usage::default());
        assert!(processes.claim(9999).is_some());
    }
}
