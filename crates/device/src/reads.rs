//! Reads of the store, or of a clean cache's disk, that go on while a connection serves other requests.
//!
//! A request whose blocks lie there says what is to be read for it ([`Plan`]) and waits for that, and
//! the connection takes the next one. Once all of it was read the request is done as any other, with what
//! was read in place of reads of its own ([`Made`]). So a connection has as many reads at the disk as its
//! client wants blocks, and blocks in the pool wait for none of them. What another request is having read
//! already is waited for, and not read twice.
//!
//! A client that wants one block after the other would pay for that with a switch more, so its reads are made at
//! once, until something came meanwhile.
//!
//! Source: io_uring_enter(2). Where the kernel has none, or does not let it be used, each read is made at
//! once, and nothing ever waits.
//!
//! Invariants: a buffer that the kernel reads into is touched by nobody before its read has ended, and is
//! not given back before; what was read of a cluster that is another one by now is not used
//! ([`zpager_store::Early`]), and of blocks that are written meanwhile nothing is kept ([`Ticket`]). Requests, reads and rounds of a request are bounded.
//!
//! Nothing is allocated once it is made.
//!
//! Bad case: blocks of one request in many clusters, of which it waits for the last.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, types};
use zpager_codec::{PAGE_BYTES, Page};
use zpager_store::{CLUSTER_BYTES, Early, FilePlace};
use zpager_sys::file::Fd;

use crate::writers::Ticket;

/// Most reads of one request.
const PLAN_MAX: usize = 16;
/// Most reads at a time: as many as a [`Set`] has bits.
pub(crate) const READS_MAX: usize = Set::BITS as usize;
/// Most requests that wait.
const WAITING_MAX: usize = 64;
/// So often a request has something read before it reads what is still missing by itself.
const ROUNDS_MAX: u32 = 8;
/// Pages of the buffers: a cluster at least, and as many as there are bits for.
const PAGES_MIN: usize = CLUSTER_BYTES / PAGE_BYTES;
const PAGES_MAX: usize = u128::BITS as usize;
/// The buffers take at most so much of the memory.
const MEMORY_PART: usize = 64;
/// Tells a read from whatever else ends in the ring.
const READ_MARK: u64 = 1 << 32;

/// So many reads are made beside others since some came together.
const BESIDE_READS: u32 = 64;
/// When the kernel is asked again that had no memory to begin a read with.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(1);

/// Some of the reads.
pub(crate) type Set = u64;

/// What a read has.
#[derive(Debug, Clone, Copy)]
pub(crate) enum What {
    /// Records of a store.
    Records(Early),
    /// Blocks of a disk, one behind the other, and whether they are still what they were.
    Blocks { first: u64, count: usize, ticket: Option<Ticket> },
}

/// A read that is to be made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) what: What,
    pub(crate) place: FilePlace,
}

/// What is to be read for a request.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plan {
    wanted: [Option<Wanted>; PLAN_MAX],
    count: usize,
}

/// What was read for a request.
#[derive(Debug, Clone, Copy, Default)]
pub struct Made<'a> {
    reads: [Option<MadeRead<'a>>; PLAN_MAX],
    /// They are to be counted.
    pub(crate) is_new: bool,
}

/// One read that was made in whole.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MadeRead<'a> {
    pub(crate) what: What,
    pub(crate) data: &'a [u8],
    /// How long the disk took for it, beside others, and the processor.
    pub(crate) disk_ns: u64,
    pub(crate) cpu_ns: u64,
}

/// How far a read is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Going,
    Whole,
    Failed,
}

#[derive(Debug, Clone, Copy)]
struct Read {
    what: What,
    /// Where its buffer is.
    first_page: usize,
    stage: Stage,
    began: Instant,
    disk_ns: u64,
}

/// A request that waits for reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting<T> {
    pub(crate) request: T,
    /// The reads that were made for it.
    pub(crate) own: Set,
    /// Reads of others that go on, for which it waits before it looks anew.
    others: Set,
    rounds: u32,
    /// It is read for at once, as it came alone.
    pub(crate) is_alone: bool,
}

/// The reads of one connection, and who waits for them.
pub(crate) struct Reads<T> {
    ring: Option<IoUring>,
    buffers: Box<[Page]>,
    /// Pages of the buffers that are in use.
    used_pages: u128,
    reads: [Option<Read>; READS_MAX],
    waiting: VecDeque<Waiting<T>>,
    /// When a read ended last.
    last_end: Option<Instant>,
    /// So many reads more are made beside others, though none goes on.
    beside: u32,
}

impl What {
    pub(crate) fn bytes(&self) -> usize {
        match self {
            What::Records(early) => early.bytes(),
            What::Blocks { count, .. } => count * PAGE_BYTES,
        }
    }

    /// Whether it has a block of a disk.
    pub(crate) fn has_block(&self, block: u64) -> bool {
        matches!(self, What::Blocks { first, count, .. } if (*first..first + *count as u64).contains(&block))
    }

    /// Whether all of another one is in it.
    pub(crate) fn contains(&self, other: &What) -> bool {
        match (self, other) {
            (What::Records(early), What::Records(other)) => early.contains(other),
            (_, What::Blocks { first, count, .. }) => {
                self.has_block(*first) && self.has_block(first + *count as u64 - 1)
            }
            _ => false,
        }
    }

    fn is_whole(&self) -> bool {
        matches!(self, What::Records(early) if early.is_whole())
    }
}

impl Plan {
    /// Adds one; there is room.
    pub(crate) fn push(&mut self, wanted: Wanted) {
        self.wanted[self.count] = Some(wanted);
        self.count += 1;
    }

    pub(crate) fn is_full(&self) -> bool {
        self.count == PLAN_MAX
    }

    /// Whether it is one read, of no more than is wanted.
    fn is_single(&self) -> bool {
        self.count == 1 && self.iter().all(|wanted| !wanted.what.is_whole())
    }

    /// Whether nothing is to be read.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Wanted> {
        self.wanted[..self.count].iter().flatten()
    }
}

impl<'a> Made<'a> {
    /// Reads that are to be counted, as many as one request has.
    #[cfg(test)]
    pub(crate) fn of(reads: &[MadeRead<'a>]) -> Self {
        let mut made = Made { is_new: true, ..Made::default() };
        made.reads.iter_mut().zip(reads).for_each(|(place, read)| *place = Some(*read));
        made
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &MadeRead<'a>> {
        self.reads.iter().flatten()
    }

    /// Whether no more can be made for the request.
    pub(crate) fn is_full(&self) -> bool {
        self.reads[PLAN_MAX - 1].is_some()
    }
}

impl<'a> MadeRead<'a> {
    /// A block of a disk, if it has that: its bytes, and the ticket of all the blocks that came with it.
    pub(crate) fn block(&self, block: u64) -> Option<(&'a [u8], Option<Ticket>, Range<u64>)> {
        let What::Blocks { first, count, ticket } = self.what else { return None };
        let at = block.checked_sub(first)? as usize * PAGE_BYTES;
        Some((self.data.get(at..at + PAGE_BYTES)?, ticket, first..first + count as u64))
    }
}

impl<T> Waiting<T> {
    pub(crate) fn new(request: T) -> Self {
        Waiting { request, own: 0, others: 0, rounds: 0, is_alone: false }
    }
}

/// Makes a read at once; whether all of it was read.
pub(crate) fn read_at_once(place: FilePlace, buffer: &mut [u8]) -> bool {
    Fd(place.descriptor).read_exact_at(place.offset_bytes, buffer).is_ok()
}

/// Pages of buffers that a connection has, of a device of so much memory that reads files.
pub(crate) fn buffer_pages(memory_bytes: u64) -> usize {
    (memory_bytes as usize / MEMORY_PART / PAGE_BYTES).clamp(PAGES_MIN, PAGES_MAX)
}

impl<T> Reads<T> {
    /// Buffers of so many pages, 0 or what [`buffer_pages`] gave, and a ring of their own.
    pub(crate) fn new(pages: usize) -> Self {
        let ring = (pages > 0).then(|| IoUring::new(READS_MAX as u32).ok()).flatten();
        Self::with_ring(ring, pages)
    }

    /// The same with a ring that others use as well, of which so many entries are for reads:
    /// [`READS_MAX`].
    pub(crate) fn with_ring(ring: Option<IoUring>, pages: usize) -> Self {
        let mut buffers = vec![Page::ZERO; pages].into_boxed_slice();
        // What a machine without memory waits for must not wait for memory.
        buffers.iter_mut().for_each(|page| {
            // SAFETY: a byte of the page, which is this function's alone.
            unsafe { page.0.as_mut_ptr().write_volatile(0) };
        });
        Reads {
            ring,
            buffers,
            used_pages: 0,
            reads: [None; READS_MAX],
            waiting: VecDeque::with_capacity(WAITING_MAX),
            last_end: None,
            beside: 0,
        }
    }

    /// The ring, where there is one.
    pub(crate) fn ring(&mut self) -> Option<&mut IoUring> {
        self.ring.as_mut()
    }

    /// What is ready to be read while a read has ended that nobody has noted.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the ring is open as long as it is borrowed.
        self.ring.as_ref().map(|ring| unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) })
    }

    /// Whether nobody waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether no other request can wait.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() == WAITING_MAX
    }

    /// Has a request wait for what is planned to be read for it, besides what was made, or gives it back where it
    /// is to be done now. `has_more` says whether more requests are here.
    pub(crate) fn put_off(
        &mut self,
        mut waiting: Waiting<T>,
        has_more: bool,
        plan: impl FnOnce(&Made<'_>) -> Plan,
    ) -> Option<Waiting<T>> {
        if waiting.rounds == ROUNDS_MAX {
            return Some(waiting);
        }
        let plan = plan(&self.made(waiting.own, false));
        waiting.is_alone = self.is_alone(&plan, has_more);
        if waiting.is_alone || plan.is_empty() || !self.begin(&mut waiting, &plan) {
            return Some(waiting);
        }
        debug_assert!(!self.is_full());
        self.waiting.push_back(waiting);
        None
    }

    /// Gives back what was read for a request that was done. `has_more` says whether more came while one was
    /// read for at once.
    pub(crate) fn finish(&mut self, waiting: &Waiting<T>, has_more: bool) {
        self.release(waiting.own);
        if waiting.is_alone && has_more {
            self.beside = BESIDE_READS;
        }
    }

    /// Whether what is planned is to be read at once, as the request will probably come alone.
    fn is_alone(&mut self, plan: &Plan, has_more: bool) -> bool {
        if has_more || !self.is_idle() {
            self.beside = BESIDE_READS;
        }
        let is_alone = self.beside == 0 && plan.is_single();
        self.beside = self.beside.saturating_sub(1);
        is_alone
    }

    /// Begins what is to be read for a request, which is something; whether it has to wait. Where there is no room for any of it
    /// it waits for another one's.
    fn begin(&mut self, waiting: &mut Waiting<T>, plan: &Plan) -> bool {
        waiting.rounds += 1;
        if self.has_failed(waiting.own) {
            // Its own read then says why.
            return false;
        }
        for wanted in plan.iter() {
            match self.find_going(&wanted.what) {
                Some(others) => waiting.others |= others,
                None => match self.begin_read(wanted) {
                    Some(own) => waiting.own |= own,
                    None => break,
                },
            }
        }
        self.submit();
        let going = self.going();
        if waiting.own & going == 0 && waiting.others == 0 {
            waiting.others = going & going.wrapping_neg();
        }
        waiting.own & going != 0 || waiting.others != 0
    }

    /// Somebody who has waited for long enough; what the reads of others brought is to be looked at anew.
    pub(crate) fn pop(&mut self) -> Option<Waiting<T>> {
        let going = self.going();
        let is_ready = |waiting: &Waiting<T>| waiting.own & going == 0 && waiting.others == 0;
        let at = self.waiting.iter().position(is_ready)?;
        self.waiting.remove(at)
    }

    /// What was read for a request, and whether that is to be counted.
    pub(crate) fn made(&self, own: Set, is_new: bool) -> Made<'_> {
        let mut made = Made { is_new, ..Made::default() };
        let whole = numbers(own).filter_map(|number| self.made_read(number));
        made.reads.iter_mut().zip(whole).for_each(|(place, read)| *place = Some(read));
        made
    }

    fn made_read(&self, number: usize) -> Option<MadeRead<'_>> {
        let read = self.reads[number].as_ref().filter(|read| read.stage == Stage::Whole)?;
        let (what, disk_ns) = (read.what, read.disk_ns);
        // SAFETY: pages are arrays of bytes one behind the other; these are the read's alone, it has ended,
        // and they are initialised.
        let data = unsafe {
            let start = self.buffers.as_ptr().add(read.first_page).cast();
            std::slice::from_raw_parts(start, what.bytes())
        };
        Some(MadeRead { what, data, disk_ns, cpu_ns: 0 })
    }

    /// Gives back the buffers of reads that have ended.
    fn release(&mut self, own: Set) {
        debug_assert_eq!(own & self.going(), 0);
        for read in numbers(own).filter_map(|number| self.reads[number].take()) {
            self.used_pages &= !pages_mask(read.what.bytes(), read.first_page);
        }
    }

    /// Has the kernel begin what it has not begun yet; whether it has begun all.
    pub(crate) fn submit(&mut self) -> bool {
        let Some(ring) = &mut self.ring else { return true };
        if ring.submission().is_empty() {
            return true;
        }
        // Where it has no memory for that just now it has another time.
        let _ = ring.submit();
        ring.submission().is_empty()
    }

    /// Waits until a read has ended, and notes it; false where the kernel lets nobody wait.
    pub(crate) fn wait(&mut self) -> bool {
        let waited = self.ring.as_mut().map_or(Ok(0), |ring| ring.submit_and_wait(1));
        let may_wait = match waited {
            Err(error) if is_short_of_memory(&error) => {
                thread::sleep(RETRY_PAUSE);
                true
            }
            Err(error) => error.kind() == ErrorKind::Interrupted,
            Ok(_) => true,
        };
        self.note_ended();
        may_wait
    }

    /// Notes reads that have ended. Of a ring that others use it takes what is theirs, too, so they do this
    /// by [`Reads::note`].
    pub(crate) fn note_ended(&mut self) {
        while let Some(ended) = self.ring.as_mut().and_then(|ring| ring.completion().next()) {
            self.note(ended.user_data(), ended.result());
        }
    }

    /// Notes what has ended in the ring, if it is a read.
    pub(crate) fn note(&mut self, mark: u64, result: i32) -> bool {
        let Some(number) = mark.checked_sub(READ_MARK) else { return false };
        let Some(read) = self.reads.get_mut(number as usize).and_then(Option::as_mut) else {
            return false;
        };
        let now = Instant::now();
        // Until another one had ended the disk was at that.
        let from = self.last_end.map_or(read.began, |end| end.max(read.began));
        read.disk_ns = now.duration_since(from).as_nanos() as u64;
        read.stage = if result == read.what.bytes() as i32 { Stage::Whole } else { Stage::Failed };
        self.last_end = Some(now);
        let still = !(1 << number);
        self.waiting.iter_mut().for_each(|waiting| waiting.others &= still);
        true
    }

    /// Those that the kernel is at.
    fn going(&self) -> Set {
        let is_going =
            |number: &usize| self.reads[*number].is_some_and(|it| it.stage == Stage::Going);
        (0..READS_MAX).filter(is_going).fold(0, |set, number| set | 1 << number)
    }

    fn has_failed(&self, set: Set) -> bool {
        let has_failed =
            |number: usize| self.reads[number].is_some_and(|it| it.stage == Stage::Failed);
        numbers(set).any(has_failed)
    }

    /// The read that goes on and will have it, too.
    fn find_going(&self, what: &What) -> Option<Set> {
        let has = |read: &Read| read.stage == Stage::Going && read.what.contains(what);
        let number = self.reads.iter().position(|read| read.as_ref().is_some_and(has))?;
        Some(1 << number)
    }

    /// Begins a read, or makes it where there is no ring.
    fn begin_read(&mut self, wanted: &Wanted) -> Option<Set> {
        let Wanted { what, place } = *wanted;
        let number = self.reads.iter().position(Option::is_none)?;
        let first_page = self.find_pages(what.bytes())?;
        let began = Instant::now();
        let stage = self.start(number as u64, place, first_page, what.bytes());
        let disk_ns = began.elapsed().as_nanos() as u64;
        self.used_pages |= pages_mask(what.bytes(), first_page);
        self.reads[number] = Some(Read { what, first_page, stage, began, disk_ns });
        Some(1 << number)
    }

    fn start(&mut self, number: u64, place: FilePlace, first_page: usize, bytes: usize) -> Stage {
        // SAFETY: within the buffers, and in use by nobody else; pages are bytes.
        let buffer = unsafe {
            let start = self.buffers.as_mut_ptr().add(first_page).cast();
            std::slice::from_raw_parts_mut(start, bytes)
        };
        if let Some(ring) = &mut self.ring {
            let file = types::Fd(place.descriptor);
            let entry = opcode::Read::new(file, buffer.as_mut_ptr(), bytes as u32);
            let entry = entry.offset(place.offset_bytes).build().user_data(READ_MARK + number);
            // SAFETY: the buffer stays where it is, and nobody else's, until the read has ended.
            let is_pushed = unsafe { ring.submission().push(&entry) }.is_ok();
            if is_pushed {
                return Stage::Going;
            }
        }
        if read_at_once(place, buffer) { Stage::Whole } else { Stage::Failed }
    }

    /// Free pages in a row.
    fn find_pages(&self, bytes: usize) -> Option<usize> {
        let last = self.buffers.len().checked_sub(bytes.div_ceil(PAGE_BYTES))?;
        (0..=last).find(|first| self.used_pages & pages_mask(bytes, *first) == 0)
    }
}

/// Whether the kernel could not submit, or wait, for a moment.
pub(crate) fn is_short_of_memory(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    [libc::EAGAIN, libc::EBUSY, libc::ENOMEM].map(Some).contains(&number)
}

/// Those of a set, in order.
fn numbers(set: Set) -> impl Iterator<Item = usize> {
    (0..READS_MAX).filter(move |number| set & 1 << number != 0)
}

/// The pages that so many bytes take from `first` on.
fn pages_mask(bytes: usize, first: usize) -> u128 {
    let pages = bytes.div_ceil(PAGE_BYTES) as u32;
    (u128::MAX >> (u128::BITS - pages)) << first
}

impl<T> Drop for Reads<T> {
    /// Waits for the reads that go on: the kernel writes to their buffers.
    fn drop(&mut self) {
        while self.going() != 0 {
            if !self.wait() {
                // What can be waited for no more is never given back.
                std::mem::forget(std::mem::take(&mut self.buffers));
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;
    use std::sync::atomic::AtomicU64;

    use zpager_store::{Clusters, Place};

    const CLUSTERS: usize = 4;

    /// A store whose clusters are full of their numbers, the last one cut off.
    struct Stored {
        file: File,
        clusters: Clusters<'static>,
    }

    impl Stored {
        fn new() -> Self {
            let words = (0..CLUSTERS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
            let mut file = tempfile::tempfile().expect("a file");
            for number in 0..CLUSTERS - 1 {
                file.write_all(&vec![number as u8; CLUSTER_BYTES]).expect("room");
            }
            Stored { file, clusters: Clusters::new(words.leak()) }
        }

        /// The first record of each of these clusters.
        fn plan_parts(&self, clusters: impl IntoIterator<Item = u32>) -> Plan {
            let mut plan = Plan::default();
            for cluster in clusters {
                let grains = u64::from(cluster) * CLUSTER_BYTES as u64 / 8;
                let place = Place::from_raw(grains << 12 | 99);
                let early = Early::of(self.clusters, &[place], 4096);
                let (descriptor, offset_bytes) = (self.file.as_raw_fd(), early.offset_bytes());
                let what = What::Records(early);
                plan.push(Wanted { what, place: FilePlace { descriptor, offset_bytes } });
            }
            plan
        }

        fn plan(&self, clusters: impl IntoIterator<Item = (u32, usize)>) -> Plan {
            let mut plan = Plan::default();
            for (cluster, bytes) in clusters {
                let early = Early::whole(self.clusters, cluster, bytes);
                let (descriptor, offset_bytes) = (self.file.as_raw_fd(), early.offset_bytes());
                let what = What::Records(early);
                plan.push(Wanted { what, place: FilePlace { descriptor, offset_bytes } });
            }
            plan
        }
    }

    /// The first bytes of what was read.
    fn first_bytes(reads: &Reads<u32>, own: Set) -> Vec<u8> {
        let made = reads.made(own, true);
        let is_one = |data: &[u8]| data.iter().all(|byte| *byte == data[0]);
        assert!(made.iter().all(|read| is_one(read.data)));
        made.iter().map(|read| read.data[0]).collect()
    }

    fn next(reads: &mut Reads<u32>) -> Waiting<u32> {
        loop {
            if let Some(waiting) = reads.pop() {
                return waiting;
            }
            reads.wait();
        }
    }

    #[test]
    fn a_request_waits_until_all_was_read() {
        let stored = Stored::new();
        let mut reads = Reads::new(PAGES_MIN);
        let mut waiting = Waiting::new(7);
        let plan = stored.plan([(0, 8192), (2, 4096), (1, 65536)]);
        if reads.begin(&mut waiting, &plan) {
            reads.waiting.push_back(waiting);
            waiting = next(&mut reads);
        }
        assert_eq!((waiting.request, first_bytes(&reads, waiting.own)), (7, vec![0, 2, 1]));
        reads.release(waiting.own);
        assert_eq!((reads.used_pages, reads.is_idle()), (0, true));
    }

    #[test]
    fn what_is_being_read_is_not_read_twice() {
        let stored = Stored::new();
        let mut reads = Reads::new(PAGES_MIN);
        let (mut first, mut second) = (Waiting::new(1), Waiting::new(2));
        if !reads.begin(&mut first, &stored.plan([(1, 65536)])) {
            // There is no ring here.
            return;
        }
        assert!(reads.begin(&mut second, &stored.plan([(1, 4096)])));
        assert_eq!(second.own, 0);
        reads.waiting.push_back(first);
        reads.waiting.push_back(second);
        let first = next(&mut reads);
        assert_eq!((first.request, first_bytes(&reads, first.own)), (1, vec![1]));
        reads.release(first.own);
        let mut second = next(&mut reads);
        assert_eq!((second.request, second.own), (2, 0));
        assert!(!reads.begin(&mut second, &Plan::default()), "nothing is left to be read");
    }

    #[test]
    fn who_finds_no_room_waits_for_another_one() {
        let stored = Stored::new();
        let mut reads = Reads::new(PAGES_MIN);
        let (mut first, mut second) = (Waiting::new(1), Waiting::new(2));
        if !reads.begin(&mut first, &stored.plan([(0, CLUSTER_BYTES)])) {
            return;
        }
        assert!(reads.begin(&mut second, &stored.plan([(1, 4096)])));
        assert_eq!(second.own, 0, "no page is free");
        reads.waiting.push_back(first);
        reads.waiting.push_back(second);
        let first = next(&mut reads);
        assert_eq!((first.request, first_bytes(&reads, first.own)), (1, vec![0]));
        reads.release(first.own);
        let mut second = next(&mut reads);
        assert_eq!((second.request, second.own), (2, 0));
        assert!(reads.begin(&mut second, &stored.plan([(1, 4096)])) && second.own != 0);
    }

    #[test]
    fn what_failed_is_not_read_again() {
        let stored = Stored::new();
        let mut reads = Reads::new(PAGES_MIN);
        let mut waiting = Waiting::new(1);
        let plan = stored.plan([(0, 4096), (CLUSTERS as u32 - 1, 4096)]);
        if reads.begin(&mut waiting, &plan) {
            reads.waiting.push_back(waiting);
            waiting = next(&mut reads);
        }
        assert_eq!(first_bytes(&reads, waiting.own), [0]);
        let own = waiting.own;
        assert!(!reads.begin(&mut waiting, &plan));
        assert_eq!(waiting.own, own);
    }

    #[test]
    fn who_comes_alone_reads_at_once_until_others_came() {
        let stored = Stored::new();
        let mut reads = Reads::<u32>::new(PAGES_MIN);
        let one = Plan::default();
        assert!(!reads.is_alone(&one, false), "nothing is to be read");
        let (one, two) = (stored.plan_parts([0]), stored.plan_parts([0, 1]));
        assert!(reads.is_alone(&one, false) && !reads.is_alone(&two, false));
        assert!(!reads.is_alone(&one, true));
        for _ in 1..BESIDE_READS {
            assert!(!reads.is_alone(&one, false));
        }
        assert!(reads.is_alone(&one, false));
        let alone = Waiting { is_alone: true, ..Waiting::new(1) };
        reads.finish(&alone, false);
        assert!(reads.is_alone(&one, false));
        reads.finish(&alone, true);
        assert!(!reads.is_alone(&one, false));
    }

    #[test]
    fn without_a_ring_all_is_read_at_once() {
        let stored = Stored::new();
        let mut reads = Reads::with_ring(None, PAGES_MIN);
        let mut waiting = Waiting::new(1);
        assert!(!reads.begin(&mut waiting, &stored.plan([(2, 8192), (0, 4096)])));
        assert_eq!(first_bytes(&reads, waiting.own), [2, 0]);
        // What does not fit is left to the request's own reads.
        let mut other = Waiting::new(2);
        assert!(!reads.begin(&mut other, &stored.plan([(1, CLUSTER_BYTES)])));
        assert_eq!(other.own, 0);
    }
}
