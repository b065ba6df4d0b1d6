//! The requests by which the agents of a run have clusters kept in a remote memory, and the helper
//! that speaks to its server.
//!
//! A mapping of its own, made only for a run with a remote store: [`Remote`], behind it a bit for
//! each cluster, and from the next page on the data of the slots. A request takes a slot, in which
//! its cluster's bytes travel to the helper or from it. That a cluster's contents are of no worth
//! any more is told by its bit alone, so that it can be told at any time and costs nobody a wait.
//!
//! A slot's word holds its state and the process that has it:
//! ```text
//! FREE -> CLAIMED            an agent fills it
//!   POSTED                   the helper has not seen it
//!     TAKEN                  the helper is at work on it
//!       DONE -> FREE         of a read: the agent has taken the answer
//!       ENDING -> FREE       of a write: the helper tells the outcome by its ticket
//!       ABANDONED -> FREE    the agent waited long enough; the helper frees the slot
//!     FREE                   the same before the helper has seen it
//! ```
//! A write has a ticket besides, of which there are as many as processes: how it ended is asked when
//! the process writes again, and until then it holds no slot.
//! ```text
//! FREE -> CLAIMED            the write goes on
//!   DONE -> FREE             the agent has taken the outcome
//!   FREE                     the agent has given the write up
//! ```
//! A read may be asked for ahead of need as well; it is of the process whose memory it is for, holds its slot until its
//! answer is taken, and so is only begun while enough others are free.
//!
//! Slot and ticket of a write are of one owner, and whoever shares the owner's memory may ask how it
//! ended; any other read is of the process that waits for it.
//! Invariants: each change is one atomic step on such a word, which also guards what it belongs to:
//! only who has a slot in its present state touches its data. Nobody waits for anybody longer than
//! [`Remote`]'s patience, but for a helper that is working. What a process that was killed leaves
//! CLAIMED or DONE the helper frees ([`Requests::free_all_of`]). A cluster's bit is set while
//! its contents are owned, so before the cluster is written anew; who writes it takes the bit away.
//! The bit goes only when what it was said of is forgotten, so that nobody who looks at the bit first
//! takes it for what the cluster holds: a write may have failed here and succeeded elsewhere.
//!
//! What agents write here a program can overwrite; the helper believes none of it
//! ([`Requests::take`]), nor of what the mapping's sizes are once programs run.
//!
//! Bad case: more processes that wait for the server at the same time than there are slots.

use core::sync::atomic::{
    AtomicI32, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use zpager_sys::{Errno, futex, process};

use crate::MAX_PROCESSES;

/// Requests that can be under way at the same time.
const SLOTS: usize = 16;
/// So many stay free for who waits when others are asked for ahead of need.
const WAITING_SLOTS: usize = 8;
const PAGE_BYTES: usize = 4096;
const BITS: usize = u64::BITS as usize;
/// How long an agent sleeps until it looks for a free slot again.
const CROWDED_NAP_NS: u64 = 200_000;
/// Longest sleep without looking whether the helper is still there.
const SLEEP_NS_MAX: u64 = 250_000_000;
/// Such naps until what the helper ends is taken for what nobody ends.
const VAIN_TURNS_MAX: u32 = 5000;

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const POSTED: u32 = 2;
const TAKEN: u32 = 3;
const DONE: u32 = 4;
const ABANDONED: u32 = 5;
const ENDING: u32 = 6;
const STATE_BITS: u32 = 3;

const ETIMEDOUT: Errno = Errno(110);
const EHOSTDOWN: Errno = Errno(112);
const EIO: Errno = Errno(5);
const EAGAIN: Errno = Errno(11);
const EINVAL: Errno = Errno(22);

/// What a request is for. The helper has a way to the server of its own for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Keep a cluster.
    Write = 0,
    /// Give a part of one.
    Read = 1,
}

/// How far the helper is with one kind of requests.
#[repr(C, align(64))]
#[derive(Debug, Default)]
struct Lane {
    /// Counts up with each request.
    bell: AtomicU32,
    /// Whether the server answers.
    is_up: AtomicU32,
}

/// One request.
#[repr(C, align(64))]
#[derive(Debug, Default)]
struct Slot {
    word: AtomicU32,
    kind: AtomicU32,
    cluster: AtomicU32,
    /// Where in the cluster its bytes begin, and how many.
    start: AtomicU32,
    bytes: AtomicU32,
    /// Of a write, its ticket.
    ticket: AtomicU32,
    /// Of a read: 1 where it is waited for also while the server does not answer.
    is_patient: AtomicU32,
    /// Of a read: 0, or the number of an error.
    outcome: AtomicI32,
}

/// How a write went.
#[repr(C)]
#[derive(Debug, Default)]
struct Outcome {
    word: AtomicU32,
    /// 0, or the number of an error.
    error: AtomicI32,
}

/// What the helper did, for the run's statistics.
#[repr(C)]
#[derive(Debug, Default)]
pub struct RemoteCounts {
    /// Clusters that the server took.
    pub writes: AtomicU64,
    /// Their bytes.
    pub written_bytes: AtomicU64,
    /// Parts of clusters that the server gave.
    pub reads: AtomicU64,
    /// Their bytes.
    pub read_bytes: AtomicU64,
    /// Requests that the server refused or did not answer.
    pub failures: AtomicU64,
    /// Times that the way to the server was opened anew.
    pub reconnects: AtomicU64,
    /// Clusters that were found gone from the server.
    pub lost_clusters: AtomicU64,
    /// Bytes that the server holds for the run, and the most that it held.
    pub held_bytes: AtomicU64,
    /// The most of them.
    pub peak_bytes: AtomicU64,
}

/// The start of the shared mapping.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Remote {
    /// What the helper did.
    pub counts: RemoteCounts,
    clusters: u32,
    cluster_bytes: u32,
    /// How long an agent waits for an answer.
    patience_ns: u64,
    /// Set once there is no helper any more.
    is_closed: AtomicU32,
    lanes: [Lane; 2],
    slots: [Slot; SLOTS],
    tickets: [Outcome; MAX_PROCESSES],
}

impl Remote {
    /// For a store of so many clusters of so many bytes, a multiple of a page, whose answers are
    /// waited for so long.
    pub fn new(clusters: u32, cluster_bytes: u32, patience_ns: u64) -> Self {
        assert!((cluster_bytes as usize).is_multiple_of(PAGE_BYTES));
        Remote {
            counts: RemoteCounts::default(),
            clusters,
            cluster_bytes,
            patience_ns,
            is_closed: AtomicU32::new(0),
            lanes: Default::default(),
            slots: Default::default(),
            tickets: core::array::from_fn(|_| Outcome::default()),
        }
    }

    /// Bytes of the whole mapping.
    pub fn mapping_bytes(&self) -> usize {
        self.data_offset() + SLOTS * self.cluster_bytes as usize
    }

    /// How much it may hold, in bytes.
    pub fn limit_bytes(&self) -> u64 {
        u64::from(self.clusters) * u64::from(self.cluster_bytes)
    }

    /// How long an agent waits for an answer.
    pub fn patience_ns(&self) -> u64 {
        self.patience_ns
    }

    fn words(&self) -> usize {
        (self.clusters as usize).div_ceil(BITS)
    }

    fn data_offset(&self) -> usize {
        (size_of::<Remote>() + self.words() * size_of::<AtomicU64>()).next_multiple_of(PAGE_BYTES)
    }
}

/// A write that goes on, or whose outcome was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    owner: i32,
    number: u32,
    slot: u32,
}

impl Ticket {
    /// A number to keep it by, not 0.
    pub const fn raw(self) -> u64 {
        (self.owner.cast_unsigned() as u64) << 32
            | (1 + self.number * SLOTS as u32 + self.slot) as u64
    }

    /// The one whose number was kept; `None` for 0.
    pub const fn from_raw(raw: u64) -> Option<Ticket> {
        let owner = ((raw >> 32) as u32).cast_signed();
        match (raw as u32).checked_sub(1) {
            Some(raw) if (raw as usize) < MAX_PROCESSES * SLOTS => {
                Some(Ticket { owner, number: raw / SLOTS as u32, slot: raw % SLOTS as u32 })
            }
            _ => None,
        }
    }
}

/// A read that goes on, or whose answer was not taken.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    owner: i32,
    slot: usize,
    bytes: usize,
}

/// A request that the helper works on.
#[derive(Debug)]
pub struct Taken {
    slot: usize,
    owner: u32,
    /// Of a write.
    ticket: Option<u32>,
    /// The cluster, one that exists.
    pub cluster: u32,
    /// Where in it the bytes begin.
    pub start: usize,
    /// How many, within the cluster; of a write, all there are.
    pub bytes: usize,
    /// Whether it is waited for also while the server does not answer, as nobody else has the page.
    pub is_patient: bool,
}

/// The requests of a run.
#[derive(Debug, Clone, Copy)]
pub struct Requests<'a> {
    /// The start of the mapping.
    pub remote: &'a Remote,
    /// As they were when this was made.
    clusters: u32,
    cluster_bytes: usize,
    /// A bit for each cluster that holds nothing of worth.
    worthless: &'a [AtomicU64],
    data: *mut u8,
}

// SAFETY: what is not atomic is touched by the one who has its slot, by the states.
unsafe impl Send for Requests<'_> {}
// SAFETY: the same.
unsafe impl Sync for Requests<'_> {}

impl<'a> Requests<'a> {
    /// The requests of a mapping that begins with `remote`.
    ///
    /// # Safety
    /// `remote` lies at the start of a shared mapping of [`Remote::mapping_bytes`], aligned to a
    /// page, zero behind it at first, used for nothing else, and there as long as `'a`.
    pub unsafe fn behind(remote: &'a Remote) -> Self {
        let base = core::ptr::from_ref(remote).cast_mut();
        // SAFETY: within the mapping, by the caller's promise; the words are atomics.
        let (worthless, data) = unsafe {
            (
                core::slice::from_raw_parts(base.add(1).cast::<AtomicU64>(), remote.words()),
                base.cast::<u8>().add(remote.data_offset()),
            )
        };
        let (clusters, cluster_bytes) = (remote.clusters, remote.cluster_bytes as usize);
        Requests { remote, clusters, cluster_bytes, worthless, data }
    }

    /// Asks that `data` be kept as what `cluster` holds, from its start on; they are copied here.
    ///
    /// # Errors
    /// `EHOSTDOWN` while the server does not answer, `ETIMEDOUT` when no slot became free; nothing
    /// goes on.
    pub fn begin_write(&self, owner: i32, cluster: u32, data: &[u8]) -> Result<Ticket, Errno> {
        let is_up = || self.is_up(Kind::Write);
        let slot = self.claim(owner, cluster, 0, data.len(), self.deadline_ns(), is_up)?;
        let Some(number) = self.claim_ticket(owner) else {
            self.remote.slots[slot].word.store(FREE, Release);
            return Err(EAGAIN);
        };
        // SAFETY: the slot is this caller's, and as long as a cluster, which `claim` has compared.
        unsafe { self.data_of(slot).copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        self.remote.slots[slot].ticket.store(number, Relaxed);
        self.post(slot, owner, Kind::Write);
        Ok(Ticket { owner, number, slot: slot as u32 })
    }

    /// Waits for the end of a write.
    ///
    /// # Errors
    /// Why it is not known to be kept: the server's refusal, `ETIMEDOUT`, or `EHOSTDOWN` where the
    /// owner is gone and its ticket was freed.
    pub fn settle(&self, ticket: Ticket) -> Result<(), Errno> {
        let owner = ticket.owner;
        let slot = &self.remote.slots[ticket.slot as usize];
        let Outcome { word, error } = &self.remote.tickets[ticket.number as usize];
        let [claimed, done] = [CLAIMED, DONE].map(|state| word_of(owner, state));
        let is_there = || [claimed, done].contains(&word.load(Acquire));
        let waited = self.wait(word, done, self.deadline_ns(), is_there, || {
            !is_there() || withdraw(slot, owner)
        });
        let outcome = waited.and_then(|()| outcome_of(error));
        // One of these, unless it is another's by now.
        for state in [claimed, done] {
            let _ = word.compare_exchange(state, FREE, Release, Relaxed);
        }
        outcome
    }

    /// Whether a write has ended, so that [`Requests::settle`] does not wait.
    pub fn has_ended(&self, ticket: Ticket) -> bool {
        let Outcome { word, .. } = &self.remote.tickets[ticket.number as usize];
        word.load(Acquire) != word_of(ticket.owner, CLAIMED)
    }

    /// Reads what `cluster` holds from `start` on; zeros behind its end.
    ///
    /// # Errors
    /// Why it cannot be had, or `ETIMEDOUT`.
    pub fn read(&self, pid: i32, cluster: u32, start: usize, out: &mut [u8]) -> Result<(), Errno> {
        self.read_as(pid, cluster, start, out, true)
    }

    /// The same for one who has another copy and waits no longer than the server answers.
    ///
    /// # Errors
    /// As [`Requests::read`].
    pub fn read_if_up(
        &self,
        pid: i32,
        cluster: u32,
        start: usize,
        out: &mut [u8],
    ) -> Result<(), Errno> {
        self.read_as(pid, cluster, start, out, false)
    }

    fn read_as(
        &self,
        pid: i32,
        cluster: u32,
        start: usize,
        out: &mut [u8],
        is_patient: bool,
    ) -> Result<(), Errno> {
        let deadline_ns = self.deadline_ns();
        let waits = || is_patient || self.is_up(Kind::Read);
        let at = self.claim(pid, cluster, start, out.len(), deadline_ns, waits)?;
        self.remote.slots[at].is_patient.store(is_patient.into(), Relaxed);
        self.post(at, pid, Kind::Read);
        let asked = Asked { owner: pid, slot: at, bytes: out.len() };
        self.take_answer(asked, deadline_ns, waits, || true, out)
    }

    /// Begins to read so many bytes of what `cluster` holds from `start` on, ahead of need: at once or not at all, and
    /// not while others may want the slots.
    ///
    /// # Errors
    /// `EAGAIN` where too few slots are free, `EHOSTDOWN` while the server does not answer.
    pub fn begin_read(
        &self,
        owner: i32,
        cluster: u32,
        start: usize,
        bytes: usize,
    ) -> Result<Asked, Errno> {
        let is_free = |slot: &&Slot| slot.word.load(Relaxed) == FREE;
        if self.remote.slots.iter().filter(is_free).count() <= WAITING_SLOTS {
            return Err(EAGAIN);
        }
        let slot = self.claim(owner, cluster, start, bytes, 0, || self.is_up(Kind::Read))?;
        self.remote.slots[slot].is_patient.store(0, Relaxed);
        self.post(slot, owner, Kind::Read);
        Ok(Asked { owner, slot, bytes })
    }

    /// Whether a read has ended, so that [`Requests::end_read`] does not wait.
    pub fn is_answered(&self, asked: Asked) -> bool {
        let word = self.remote.slots[asked.slot].word.load(Acquire);
        ![POSTED, TAKEN].map(|state| word_of(asked.owner, state)).contains(&word)
    }

    /// Waits for the answer to a read that was begun, no longer than the server answers, and takes it; `out` is as
    /// long as was asked for.
    ///
    /// # Errors
    /// As [`Requests::read`]; `EHOSTDOWN` as well where the owner is gone and its slot was freed.
    pub fn end_read(&self, asked: Asked, out: &mut [u8]) -> Result<(), Errno> {
        assert_eq!(out.len(), asked.bytes);
        let word = &self.remote.slots[asked.slot].word;
        let is_there = || word.load(Acquire) >> STATE_BITS == asked.owner.cast_unsigned();
        let waits = || is_there() && self.is_up(Kind::Read);
        self.take_answer(asked, self.deadline_ns(), waits, is_there, out)
    }

    /// Waits for the answer to a read, as long as `waits` and not beyond the deadline, and takes it, unless the slot
    /// `is_there` no more.
    fn take_answer(
        &self,
        Asked { owner, slot: at, .. }: Asked,
        deadline_ns: u64,
        waits: impl Fn() -> bool,
        is_there: impl Fn() -> bool,
        out: &mut [u8],
    ) -> Result<(), Errno> {
        let slot = &self.remote.slots[at];
        let withdraw = || !is_there() || withdraw(slot, owner);
        self.wait(&slot.word, word_of(owner, DONE), deadline_ns, waits, withdraw)?;
        let outcome = outcome_of(&slot.outcome);
        if outcome.is_ok() {
            // SAFETY: the slot is this caller's until it is freed; the length is as in `begin_write`.
            unsafe { self.data_of(at).copy_to_nonoverlapping(out.as_mut_ptr(), out.len()) };
        }
        slot.word.store(FREE, Release);
        outcome
    }

    /// Says that what a cluster holds, which the caller owns still, is of no worth any more.
    pub fn discard(&self, cluster: u32) {
        if let Some(word) = self.worthless.get(cluster as usize / BITS) {
            word.fetch_or(bit_of(cluster), Release);
        }
    }

    /// Frees what processes have left that are gone, or, as the process itself, what it had as
    /// another program before.
    pub fn free_all_of(&self, is_gone: impl Fn(i32) -> bool) {
        let is_left = |word: u32| {
            matches!(state(word), CLAIMED | DONE) && is_gone((word >> STATE_BITS).cast_signed())
        };
        // Each step fails where a word is not any more as it was.
        let free = |cell: &AtomicU32, word: u32| {
            let _ = cell.compare_exchange(word, FREE, AcqRel, Relaxed);
        };
        for (number, Outcome { word: cell, .. }) in (0..).zip(&self.remote.tickets) {
            let word = cell.load(Acquire);
            // The helper tells the outcome of what it works on, and the ticket is DONE then.
            if is_left(word) && (state(word) == DONE || !self.is_under_way(number)) {
                free(cell, word);
            }
        }
        for Slot { word: cell, .. } in &self.remote.slots {
            let word = cell.load(Acquire);
            if is_left(word) {
                free(cell, word);
            }
        }
    }

    /// Whether a write with this ticket is the helper's to end.
    fn is_under_way(&self, number: u32) -> bool {
        self.remote.slots.iter().any(|slot| {
            matches!(state(slot.word.load(Acquire)), POSTED | TAKEN | ENDING)
                && slot.kind.load(Relaxed) == Kind::Write as u32
                && slot.ticket.load(Relaxed) == number
        })
    }

    fn deadline_ns(&self) -> u64 {
        futex::now_ns().saturating_add(self.remote.patience_ns)
    }

    /// Takes a free slot and notes what is asked; gives its number.
    fn claim(
        &self,
        pid: i32,
        cluster: u32,
        start: usize,
        bytes: usize,
        deadline_ns: u64,
        waits: impl Fn() -> bool,
    ) -> Result<usize, Errno> {
        if self.checked(cluster, start, bytes).is_none() {
            return Err(EIO);
        }
        let claimed = word_of(pid, CLAIMED);
        let is_mine = |slot: &Slot| {
            slot.word.load(Relaxed) == FREE
                && slot.word.compare_exchange(FREE, claimed, Acquire, Relaxed).is_ok()
        };
        loop {
            if self.is_closed() || !waits() {
                return Err(EHOSTDOWN);
            }
            if let Some(at) = self.remote.slots.iter().position(is_mine) {
                let slot = &self.remote.slots[at];
                slot.cluster.store(cluster, Relaxed);
                slot.start.store(start as u32, Relaxed);
                slot.bytes.store(bytes as u32, Relaxed);
                return Ok(at);
            }
            if futex::now_ns() >= deadline_ns {
                return Err(ETIMEDOUT);
            }
            process::nap(CROWDED_NAP_NS);
        }
    }

    /// Gives a claimed slot to the helper.
    fn post(&self, at: usize, pid: i32, kind: Kind) {
        let slot = &self.remote.slots[at];
        slot.kind.store(kind as u32, Relaxed);
        slot.word.store(word_of(pid, POSTED), Release);
        self.ring(kind);
    }

    /// Wakes the helper's threads that look for requests of a kind.
    pub fn ring(&self, kind: Kind) {
        let bell = &self.remote.lanes[kind as usize].bell;
        bell.fetch_add(1, Release);
        futex::wake(bell);
    }

    /// Takes a free ticket, one by which few others begin to look.
    fn claim_ticket(&self, pid: i32) -> Option<u32> {
        let first = pid.unsigned_abs() as usize % MAX_PROCESSES;
        let claimed = word_of(pid, CLAIMED);
        let mut numbers = (first..MAX_PROCESSES).chain(0..first);
        let number = numbers.find(|&number| {
            let word = &self.remote.tickets[number].word;
            word.compare_exchange(FREE, claimed, Acquire, Relaxed).is_ok()
        });
        number.map(|number| number as u32)
    }

    /// Waits until a word is `done`, as long as `waits` and not beyond the deadline; then, unless it
    /// is `done` meanwhile, has the request withdrawn, which fails while the helper ends it.
    fn wait(
        &self,
        cell: &AtomicU32,
        done: u32,
        deadline_ns: u64,
        waits: impl Fn() -> bool,
        withdraw: impl Fn() -> bool,
    ) -> Result<(), Errno> {
        let mut vain_turns = 0;
        loop {
            let word = cell.load(Acquire);
            if word == done {
                return Ok(());
            }
            let left_ns = deadline_ns.saturating_sub(futex::now_ns());
            let is_closed = self.is_closed();
            if left_ns > 0 && !is_closed && waits() {
                futex::wait(cell, word, left_ns.min(SLEEP_NS_MAX));
                continue;
            }
            if withdraw() {
                return Err(if left_ns > 0 { EHOSTDOWN } else { ETIMEDOUT });
            }
            // The helper ends it just now; or it is gone, or the program has written over the mapping.
            vain_turns += 1;
            if vain_turns > VAIN_TURNS_MAX {
                return Err(EIO);
            }
            process::nap(CROWDED_NAP_NS);
        }
    }

    /// A request's place in numbers, if there is such a part of such a cluster.
    fn checked(&self, cluster: u32, start: usize, bytes: usize) -> Option<(u32, usize, usize)> {
        let end = start.checked_add(bytes)?;
        let exists = cluster < self.clusters && bytes > 0;
        (exists && end <= self.cluster_bytes).then_some((cluster, start, bytes))
    }

    fn data_of(&self, slot: usize) -> *mut u8 {
        // SAFETY: a slot of the mapping.
        unsafe { self.data.add(slot * self.cluster_bytes) }
    }

    fn is_up(&self, kind: Kind) -> bool {
        !self.is_closed() && self.remote.lanes[kind as usize].is_up.load(Acquire) != 0
    }

    fn is_closed(&self) -> bool {
        self.remote.is_closed.load(Acquire) != 0
    }
}

/// The helper's side.
impl Requests<'_> {
    /// What the bell of a kind of requests shows; to be read before looking for them.
    pub fn bell(&self, kind: Kind) -> u32 {
        self.remote.lanes[kind as usize].bell.load(Acquire)
    }

    /// Sleeps until a request of this kind comes, unless the bell shows something else than it did,
    /// and at most `most_ns`.
    pub fn sleep(&self, kind: Kind, seen: u32, most_ns: u64) {
        futex::wait(&self.remote.lanes[kind as usize].bell, seen, most_ns);
    }

    /// Takes a request of a kind, if there is one. What no agent asks for is refused here.
    pub fn take(&self, kind: Kind) -> Option<Taken> {
        self.take_where(kind, |_, _| true)
    }

    /// The same of those whose cluster, and whether they are patient, is `wanted`. What is taken may be
    /// another one, which came into the same slot meanwhile.
    pub fn take_where(&self, kind: Kind, wanted: impl Fn(u32, bool) -> bool) -> Option<Taken> {
        for (at, slot) in self.remote.slots.iter().enumerate() {
            let word = slot.word.load(Acquire);
            if state(word) != POSTED || slot.kind.load(Relaxed) != kind as u32 {
                continue;
            }
            let is_patient = || slot.is_patient.load(Relaxed) != 0;
            if !wanted(slot.cluster.load(Relaxed), is_patient()) {
                continue;
            }
            let owner = word & !((1 << STATE_BITS) - 1);
            if slot.word.compare_exchange(word, owner | TAKEN, AcqRel, Relaxed).is_err() {
                continue;
            }
            let value = |cell: &AtomicU32| cell.load(Relaxed) as usize;
            let place =
                self.checked(slot.cluster.load(Relaxed), value(&slot.start), value(&slot.bytes));
            let (cluster, start, bytes) = place.unwrap_or_default();
            let ticket = (kind == Kind::Write).then(|| slot.ticket.load(Relaxed));
            let is_patient = is_patient();
            let taken = Taken { slot: at, owner, ticket, cluster, start, bytes, is_patient };
            if place.is_none() || (kind == Kind::Write && start != 0) {
                self.finish(taken, Err(EINVAL));
                continue;
            }
            return Some(taken);
        }
        None
    }

    /// Whether somebody waits for the answer.
    pub fn is_wanted(&self, taken: &Taken) -> bool {
        self.remote.slots[taken.slot].word.load(Acquire) == taken.owner | TAKEN
    }

    /// Copies what is to be written; `out` is as long.
    pub fn copy_out(&self, taken: &Taken, out: &mut [u8]) {
        assert_eq!(out.len(), taken.bytes);
        // SAFETY: the slot is the helper's until `finish`, and the length was checked.
        unsafe { self.data_of(taken.slot).copy_to_nonoverlapping(out.as_mut_ptr(), out.len()) };
    }

    /// Copies what was read, at most as much as was asked for; the rest is zeros.
    pub fn copy_in(&self, taken: &Taken, data: &[u8]) {
        assert!(data.len() <= taken.bytes);
        let to = self.data_of(taken.slot);
        // SAFETY: as above.
        unsafe {
            to.copy_from_nonoverlapping(data.as_ptr(), data.len());
            to.add(data.len()).write_bytes(0, taken.bytes - data.len());
        }
    }

    /// Ends a request.
    pub fn finish(&self, taken: Taken, outcome: Result<(), Errno>) {
        let slot = &self.remote.slots[taken.slot];
        let error = outcome.err().map_or(0, |error| error.0);
        slot.outcome.store(error, Relaxed);
        let ended = taken.owner | if taken.ticket.is_some() { ENDING } else { DONE };
        if slot.word.compare_exchange(taken.owner | TAKEN, ended, AcqRel, Relaxed).is_err() {
            // Nobody waits any more.
            slot.word.store(FREE, Release);
            return;
        }
        let Some(number) = taken.ticket else {
            futex::wake(&slot.word);
            return;
        };
        if let Some(ticket) = self.remote.tickets.get(number as usize) {
            ticket.error.store(error, Relaxed);
            let [claimed, done] = [CLAIMED, DONE].map(|state| taken.owner | state);
            // Fails where the program has written over the mapping.
            let _ = ticket.word.compare_exchange(claimed, done, AcqRel, Relaxed);
            futex::wake(&ticket.word);
        }
        slot.word.store(FREE, Release);
    }

    /// Gives `each` every cluster up to about `end` that holds nothing of worth, once. Each is known
    /// to be of no worth until `each` has returned. Only one thread may do this, or forget, at a time.
    pub fn take_discarded(&self, end: u32, mut each: impl FnMut(u32)) {
        let end = end.min(self.clusters);
        let words = (end as usize).div_ceil(BITS);
        for (at, word) in self.worthless[..words].iter().enumerate() {
            let found = word.load(Acquire);
            let mut bits = found;
            while bits != 0 {
                let cluster = (at * BITS) as u32 + bits.trailing_zeros();
                if cluster < self.clusters {
                    each(cluster);
                }
                bits &= bits - 1;
            }
            if found != 0 {
                word.fetch_and(!found, Release);
            }
        }
    }

    /// The cluster is written anew: what was said of its contents is of an earlier life. Calls
    /// `forget` first if anything was said.
    pub fn forget_discarded(&self, cluster: u32, forget: impl FnOnce()) {
        if self.is_discarded(cluster) {
            forget();
            self.worthless[cluster as usize / BITS].fetch_and(!bit_of(cluster), Release);
        }
    }

    /// Whether what was kept last of a cluster that exists is of no worth. Asked before what is kept
    /// is looked for: where it is not said then, it is of this life, or not found any more.
    pub fn is_discarded(&self, cluster: u32) -> bool {
        self.worthless[cluster as usize / BITS].load(Acquire) & bit_of(cluster) != 0
    }

    /// Says whether the server answers requests of a kind.
    pub fn set_up(&self, kind: Kind, is_up: bool) {
        let word = &self.remote.lanes[kind as usize].is_up;
        word.store(is_up.into(), Release);
        futex::wake(word);
    }

    /// Waits until the server answers requests of both kinds, at most `most_ns`; whether it does.
    pub fn wait_until_up(&self, most_ns: u64) -> bool {
        let deadline_ns = futex::now_ns().saturating_add(most_ns);
        for lane in &self.remote.lanes {
            while lane.is_up.load(Acquire) == 0 && !self.is_closed() {
                let left_ns = deadline_ns.saturating_sub(futex::now_ns());
                if left_ns == 0 {
                    return false;
                }
                futex::wait(&lane.is_up, 0, left_ns.min(SLEEP_NS_MAX));
            }
        }
        !self.is_closed()
    }

    /// There is no helper any more: whoever waits is told.
    pub fn close(&self) {
        self.remote.is_closed.store(1, Release);
        self.remote.slots.iter().for_each(|slot| futex::wake(&slot.word));
        self.remote.tickets.iter().for_each(|ticket| futex::wake(&ticket.word));
        for lane in &self.remote.lanes {
            futex::wake(&lane.bell);
            futex::wake(&lane.is_up);
        }
    }
}

/// Takes a request of `pid` back that the helper has not ended; whether that succeeded.
fn withdraw(slot: &Slot, pid: i32) -> bool {
    let step = |from: u32, to: u32| slot.word.compare_exchange(from, to, AcqRel, Acquire).is_ok();
    step(word_of(pid, POSTED), FREE) || step(word_of(pid, TAKEN), word_of(pid, ABANDONED))
}

/// The bit of a cluster in its word.
const fn bit_of(cluster: u32) -> u64 {
    1 << (cluster as usize % BITS)
}

fn outcome_of(error: &AtomicI32) -> Result<(), Errno> {
    match error.load(Relaxed) {
        0 => Ok(()),
        error => Err(Errno(error)),
    }
}

const fn word_of(pid: i32, state: u32) -> u32 {
    pid.cast_unsigned() << STATE_BITS | state
}

const fn state(word: u32) -> u32 {
    word & ((1 << STATE_BITS) - 1)
}

#[cfg(test)]
mod tests;
