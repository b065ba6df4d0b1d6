//! A cache against a plain map, step by step, through whatever the public interface allows.
//!
//! The map knows what every page holds; the cache is right when each page that comes back holds
//! just that, when an error is reported only after the store failed, and when the references in
//! the store are those of the spilled and the clean pages of all processes. A step is four bytes, so that a
//! property test and a fuzzer drive the same model.
//!
//! A process is a bitwise copy of a cache with a copy of its memory, as after fork(2).

use std::boxed::Box;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::vec::Vec;
use std::{ptr, vec};

use zpager_cache::{
    Cache, Cleaned, Codecs, Content as Made, Entry, PageNumber, Placed, Reads, Seen, SpillError,
    State, Store,
};
use zpager_codec::{CodecId, PAGE_BYTES, Page, decompress};
use zpager_policy::{Choice, DENSE_CODEC, Design, DesignId, Settings, StoreCodec, StoreLayout};
use zpager_pool::{Heap, HeapSpace, Space, SpaceSource};
use zpager_store::{
    BLOCK_BYTES, Blocks, CLUSTER_BYTES, Cipher, Clusters, CommonPage, CommonPages, Errno, Faulting,
    KEY_BYTES, Memory, Place, References, Seal,
};

/// Pages that the steps name, across the border of two leaves of the index.
const FIRST_PAGE: PageNumber = (1 << 18) - 200;
const PAGES: u64 = 512;
/// Clusters of the store: few, so that it is full soon.
const CLUSTERS: usize = 5;
const PROCESSES_MAX: usize = 3;
/// Common pages that are known at a time: few, so that some are forgotten.
const COMMON_PAGES: usize = 600;
/// Reads and writes in one step: as many as there are pages of all processes, twice.
const OPERATIONS_MAX: u32 = 2 * PAGES as u32 * PROCESSES_MAX as u32;
/// Tries to write, of which at most every other fails.
const FLUSHES_MAX: u32 = 100;
/// A pool of less is not worth a write in the default design.
const WRITE_BYTES_MIN: usize = 128 * 1024;

/// The memories of all processes, each a copy of its parent's.
#[derive(Default)]
struct Memories {
    running: Cell<usize>,
    processes: RefCell<Vec<Vec<HeapSpace>>>,
}

impl Memories {
    fn new() -> Self {
        Memories { running: Cell::new(0), processes: RefCell::new(vec![vec![]]) }
    }

    /// Copies the memory of the running process; gives the copy's number.
    fn fork(&self) -> usize {
        let mut processes = self.processes.borrow_mut();
        let copies = processes[self.running.get()].iter().map(|space| {
            let copy = Heap.reserve(space.bytes()).expect("heap");
            // SAFETY: both are as long as the one says, and nobody writes meanwhile.
            unsafe { ptr::copy_nonoverlapping(space.base(), copy.base(), space.bytes()) };
            copy
        });
        let copies = copies.collect();
        processes.push(copies);
        processes.len() - 1
    }
}

/// Memory that a process has at the same place as its parent.
struct Forked<'m> {
    memories: &'m Memories,
    number: usize,
    bytes: usize,
}

// SAFETY: as the heap space behind it, in which nobody but the running process looks. The base is
// another in another process, whose cache is a copy that never runs at the same time.
unsafe impl Space for Forked<'_> {
    fn base(&self) -> *mut u8 {
        self.memories.processes.borrow()[self.memories.running.get()][self.number].base()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn release(&self, offset: usize, bytes: usize) {
        let processes = self.memories.processes.borrow();
        processes[self.memories.running.get()][self.number].release(offset, bytes);
    }
}

impl<'m> SpaceSource for &'m Memories {
    type Space = Forked<'m>;

    fn reserve(&self, bytes: usize) -> Option<Forked<'m>> {
        let space = Heap.reserve(bytes)?;
        let bytes = space.bytes();
        let mut processes = self.processes.borrow_mut();
        let spaces = &mut processes[self.running.get()];
        spaces.push(space);
        Some(Forked { memories: self, number: spaces.len() - 1, bytes })
    }
}

/// A write that goes on: where to, what, and the buffer that it comes from.
struct UnderWay {
    offset_bytes: u64,
    copy: HeapSpace,
    buffer: *const [u8],
}

/// The store that all processes write to, each with at most one write that goes on.
#[derive(Clone, Copy)]
struct Shared<'b> {
    blocks: &'b Faulting<Memory>,
    memories: &'b Memories,
    /// By the memory of the process that writes; without it every write is waited for.
    under_way: Option<&'b RefCell<BTreeMap<usize, UnderWay>>>,
    /// Of this step.
    operations: &'b Cell<u32>,
}

impl Shared<'_> {
    /// However many fail, what is tried again is tried a few times.
    fn count(&self) {
        self.operations.set(self.operations.get() + 1);
        assert!(self.operations.get() <= OPERATIONS_MAX, "the store is asked without end");
    }
}

impl Blocks for Shared<'_> {
    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> Result<(), Errno> {
        self.count();
        self.blocks.write_at(offset_bytes, data)
    }

    unsafe fn begin_write(&self, offset_bytes: u64, data: &[u8]) -> Result<bool, Errno> {
        let Some(under_way) = self.under_way else {
            return self.write_at(offset_bytes, data).map(|()| false);
        };
        let copy = Heap.reserve(data.len()).expect("heap");
        // SAFETY: the space is as long as the data, and new.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), copy.base(), data.len()) };
        let write = UnderWay { offset_bytes, copy, buffer: data };
        let before = under_way.borrow_mut().insert(self.memories.running.get(), write);
        assert!(before.is_none(), "one write at a time");
        Ok(true)
    }

    fn is_writing(&self) -> bool {
        let memory = self.memories.running.get();
        // Those to every other cluster have ended by the time that somebody asks.
        let goes_on = |write: &UnderWay| write.offset_bytes / CLUSTER_BYTES as u64 % 2 == 1;
        self.under_way.is_some_and(|under_way| under_way.borrow().get(&memory).is_some_and(goes_on))
    }

    fn settle(&self) -> Result<(), Errno> {
        let memory = self.memories.running.get();
        let write = self.under_way.and_then(|under_way| under_way.borrow_mut().remove(&memory));
        let Some(UnderWay { offset_bytes, copy, buffer }) = write else { return Ok(()) };
        // SAFETY: the buffer is the cache's, which promised not to change it; the copy is as long.
        let (data, now) =
            unsafe { (core::slice::from_raw_parts(copy.base(), buffer.len()), &*buffer) };
        assert!(data == now, "the buffer of a write that goes on was changed");
        self.write_at(offset_bytes, data)
    }

    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        self.count();
        self.blocks.read_at(offset_bytes, data)
    }

    fn punch(&self, offset_bytes: u64, bytes: u64) {
        self.blocks.punch(offset_bytes, bytes);
    }
}

/// The words of a store's clusters, all free.
fn clusters() -> Clusters<'static> {
    std::thread_local! {
        static WORDS: &'static [AtomicU64] = {
            let words = Clusters::words_for((CLUSTERS * CLUSTER_BYTES) as u64);
            Box::leak((0..words).map(|_| AtomicU64::new(0)).collect())
        };
    }
    WORDS.with(|words| {
        words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        Clusters::new(words)
    })
}

/// What processes know of pages that they have in common: nothing yet.
fn common_pages() -> CommonPages<'static> {
    const WORDS: usize = COMMON_PAGES * CommonPages::SLOT_WORDS;
    std::thread_local! {
        static KNOWN: &'static [AtomicU64] =
            Box::leak((0..WORDS).map(|_| AtomicU64::new(0)).collect());
    }
    KNOWN.with(|words| {
        words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        CommonPages::new(words)
    })
}

/// The seal of a store that is encrypted.
fn cipher() -> Seal<'static> {
    static CIPHER: LazyLock<Cipher> = LazyLock::new(|| Cipher::new(&[0x5a; KEY_BYTES], 0));
    Seal::Cipher(&CIPHER)
}

std::thread_local! {
    /// Tables in which no process notes its references; never dropped, so that they are not leaks.
    static TABLES: RefCell<ManuallyDrop<Vec<References<'static>>>> =
        const { RefCell::new(ManuallyDrop::new(Vec::new())) };
}

/// Where a process notes its references.
fn take_table() -> References<'static> {
    let make = || Box::leak((0..=CLUSTERS).map(|_| AtomicU32::new(0)).collect());
    let free = TABLES.with_borrow_mut(|tables| tables.pop());
    free.unwrap_or_else(|| References::new(make()))
}

/// Times that a cache gathered what is alive in its store.
static CLEANINGS: AtomicU64 = AtomicU64::new(0);

/// Times that a cache gathered what is alive in its store, in all runs.
#[allow(dead_code)] // Not asked by the fuzzer.
pub(crate) fn cleanings() -> u64 {
    CLEANINGS.load(Ordering::Relaxed)
}

/// Pages that left by their copies.
static DROPS: AtomicU64 = AtomicU64::new(0);

/// Pages that left by their copies, in all runs.
#[allow(dead_code)] // Not asked by the fuzzer.
pub(crate) fn drops() -> u64 {
    DROPS.load(Ordering::Relaxed)
}

/// Pages of the pool that were in the store as well, after each step.
static COPIED: AtomicU64 = AtomicU64::new(0);

/// Pages of the pool that were in the store as well, after each step of all runs.
#[allow(dead_code)] // Not asked by the fuzzer.
pub(crate) fn copied() -> u64 {
    COPIED.load(Ordering::Relaxed)
}

/// Pages that came from RAM although they were in the store.
static SHELVED: AtomicU64 = AtomicU64::new(0);

/// Pages that came from RAM although they were in the store, in all runs.
#[allow(dead_code)] // Not asked by the fuzzer.
pub(crate) fn shelved() -> u64 {
    SHELVED.load(Ordering::Relaxed)
}

/// Pages that were compressed once more when they left.
static RECOMPRESSIONS: AtomicU64 = AtomicU64::new(0);

/// Pages that were compressed once more when they left, in all runs.
#[allow(dead_code)] // Not asked by the fuzzer.
pub(crate) fn recompressions() -> u64 {
    RECOMPRESSIONS.load(Ordering::Relaxed)
}

/// Pages of which the denser codec made bytes.
static CONDENSED: AtomicU64 = AtomicU64::new(0);

/// Pages of which the denser codec made bytes, in all runs.
#[allow(dead_code)] // Not asked by the fuzzer.
pub(crate) fn condensed() -> u64 {
    CONDENSED.load(Ordering::Relaxed)
}

/// Pages of which the second codec did.
static SOUGHT: AtomicU64 = AtomicU64::new(0);

/// Pages of which the second codec made bytes, in all runs.
#[allow(dead_code)] // Not asked by the fuzzer.
pub(crate) fn sought() -> u64 {
    SOUGHT.load(Ordering::Relaxed)
}

/// Pages that were taken to be decoded elsewhere.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Pages that were taken to be decoded elsewhere, in all runs.
#[allow(dead_code)] // Not asked by the fuzzer.
pub(crate) fn taken() -> u64 {
    TAKEN.load(Ordering::Relaxed)
}

/// Pages of which bytes were made beside the cache.
static MADE: AtomicU64 = AtomicU64::new(0);

/// Pages of which bytes were made beside the cache, in all runs.
#[allow(dead_code)] // Not asked by the fuzzer.
pub(crate) fn made() -> u64 {
    MADE.load(Ordering::Relaxed)
}

/// Pages that left by the copies of relatives.
static COMMON: AtomicU64 = AtomicU64::new(0);

/// Pages that left by the copies of relatives, in all runs.
#[allow(dead_code)] // Not asked by the fuzzer.
pub(crate) fn common() -> u64 {
    COMMON.load(Ordering::Relaxed)
}

/// A clock by which each thing takes another time, the same in each run.
fn ticks() -> u64 {
    std::thread_local! {
        static NOW: Cell<u64> = const { Cell::new(0) };
    }
    let now = NOW.get();
    let passed = now.wrapping_mul(0x5851_f42d_4c95_7f2d) >> 50;
    NOW.set(now + 1 + passed);
    now
}

/// What a page holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Content {
    /// How compressible it is.
    pub(crate) kind: u8,
    /// Pages with the same are equal.
    pub(crate) seed: u64,
}

impl Content {
    /// The page. Half of the kinds are compressible, to all sizes.
    pub(crate) fn page(self) -> Page {
        let mut state = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut page = Page::ZERO;
        match self.kind % 8 {
            0 => {}
            1 => page.words_mut().fill(random() % 5),
            // One word differs: some ten bytes.
            2 => page.words_mut()[self.seed as usize % 512] = random(),
            3 => page.words_mut().iter_mut().for_each(|word| *word = random()),
            // A picture: few codecs shrink it.
            4 => page.0.iter_mut().enumerate().for_each(|(at, byte)| {
                *byte = ((at / 3 * (at % 3 + 1) / 5) as u64 + random() % 9) as u8;
            }),
            // Pointers to near places and small numbers, as in a heap.
            5 => page.words_mut().iter_mut().for_each(|word| {
                let drawn = random();
                *word = match drawn % 4 {
                    0 => 0,
                    1 => drawn >> 56,
                    _ => 0x7f00_1234_0000 | ((drawn >> 40) & 0xfff8),
                };
            }),
            // Text: lines that are alike, of no length of words.
            6 => page.0.chunks_mut(61).for_each(|line| {
                line.fill(b' ');
                let digits = random().to_le_bytes().map(|byte| b'0' + byte % 10);
                let texts = [&digits[..], b" GET /static/index.html HTTP/1.1 200 ", &digits[3..]];
                line.iter_mut().zip(texts.concat()).for_each(|(byte, letter)| *byte = letter);
            }),
            _ => {
                let words = page.words_mut();
                let length = 32 + random() as usize % 450;
                words[..length].iter_mut().for_each(|word| *word = random());
            }
        }
        page
    }
}

/// A design with another codec.
pub(crate) fn design(id: DesignId, codec: CodecId) -> Design {
    let design = Design::new(&Settings::of(id), 1 << 20);
    let write_ahead_percent = (id == DesignId::Default).then_some(50);
    Design { codec, write_ahead_percent, ..design }
}

/// What happens next. Numbers of pages count from [`FIRST_PAGE`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    /// Pages that are resident or absent go out, with contents of one kind.
    SwapOut { from: u64, count: u64, kind: u8 },
    /// Pages leave that all processes have since the last fork, unless they have left since; with `many` they go past
    /// the pool.
    GiveCommon { from: u64, count: u64, many: bool },
    /// A run comes back; with `keep` what was in the store may be there still.
    SwapIn { from: u64, count: usize, keep: bool },
    /// The same, as many as lie in the pool, which are decoded without the cache.
    Take { from: u64, count: usize },
    /// Pages that were not written since they came back leave, those in the store by their copies.
    DropClean { from: u64, count: u64 },
    /// The program writes such pages.
    Write { from: u64, count: u64 },
    /// The program drops pages.
    Forget { from: u64, count: u64 },
    /// Pages are moved to where there are none.
    Rename { from: u64, to: u64, count: u64 },
    /// One write to the store.
    Spill,
    /// One of pages that are to stay in RAM as well.
    SpillAhead,
    /// The oldest of these are in the store alone.
    Unshelve,
    /// Another codec is chosen for the pool, and both are tried with some pages, or not.
    Condense(Choice),
    /// The same of a second one for pages that it leaves much shorter.
    Seek(Choice),
    /// All that is on its way to the store gets there.
    Flush,
    /// The running process forks; the child runs next.
    Fork,
    /// Another process runs.
    Switch,
    /// The running process ends, unless it is the last.
    Exit,
}

impl Step {
    /// Any four bytes are a step.
    pub(crate) fn from_bytes([choice, from, count, kind]: [u8; 4]) -> Self {
        let at = u64::from(from) * 2 + u64::from(kind >> 7);
        let few = u64::from(count) % 64 + 1;
        match choice % 50 {
            0..12 => Step::SwapOut { from: at, count: few, kind: kind & 0x7f },
            12..18 => Step::SwapIn { from: at, count: few as usize, keep: choice % 50 >= 14 },
            18..21 => Step::Forget { from: at, count: few },
            21..23 => Step::Rename { from: at, to: u64::from(kind) * 2, count: few % 16 + 1 },
            23..27 => Step::Spill,
            27 => Step::Flush,
            28 => Step::Fork,
            29..31 => Step::Switch,
            31..35 => Step::DropClean { from: at, count: few },
            35..37 => Step::Write { from: at, count: few },
            37..40 => Step::SpillAhead,
            40 => Step::Unshelve,
            41 => {
                let choice = Choice { is_dense: kind & 1 == 0, tries: kind & 2 == 0 };
                if kind & 4 == 0 { Step::Condense(choice) } else { Step::Seek(choice) }
            }
            42 => Step::Exit,
            46..50 => Step::GiveCommon { from: at, count: few, many: kind & 1 == 0 },
            _ => Step::Take { from: at, count: few as usize },
        }
    }
}

/// What cache the steps are taken with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    /// How pages are kept.
    pub(crate) design: DesignId,
    /// What pages are compressed with.
    pub(crate) codec: CodecId,
    /// What the pool may hold.
    pub(crate) pool_bytes_max: usize,
    /// Seed of the store's faults.
    pub(crate) seed: u64,
    /// One operation of the store in so many goes wrong; 0 for none.
    pub(crate) one_in: u64,
    /// Whether writes go on behind what the process does next.
    pub(crate) behind: bool,
    /// Whether the store is encrypted.
    pub(crate) encrypts: bool,
    /// What compresses pages once more that leave for it.
    pub(crate) store_codec: StoreCodec,
}

struct Process<'m> {
    memory: usize,
    design: Design,
    store_codec: StoreCodec,
    cache: Box<Cache<&'m Memories, Shared<'m>>>,
    blocks: &'m Faulting<Memory>,
    seal: Seal<'static>,
    lost_pages: &'m Cell<u64>,
    /// The pages that are not resident.
    out: BTreeMap<PageNumber, Content>,
    /// The resident pages that nobody has written since they came from the store.
    unwritten: BTreeMap<PageNumber, Content>,
    /// The pages that relatives have too which have left, by the forks since which they have them.
    given: BTreeSet<(u64, PageNumber)>,
    common: CommonPages<'static>,
}

impl<'m> Process<'m> {
    /// A copy that runs in a copied memory, with references of its own.
    fn fork(&mut self, memories: &Memories) -> Self {
        self.write(0..PageNumber::MAX);
        self.cache.end_protection();
        self.flush();
        self.cache.share_spilled();
        let memory = memories.fork();
        // SAFETY: a cache is plain data in its spaces' hands, which resolve to the memory of the
        // process that runs; dropping either copy frees nothing.
        let cache = Box::new(unsafe { ptr::read(&raw const *self.cache) });
        let Process { design, store_codec, blocks, seal, lost_pages, .. } = *self;
        let unwritten = BTreeMap::new();
        Process {
            memory,
            design,
            store_codec,
            cache,
            blocks,
            seal,
            lost_pages,
            out: self.out.clone(),
            unwritten,
            given: self.given.clone(),
            common: self.common,
        }
    }

    /// A page leaves that processes have in common since the fork of this number.
    fn give_common(&mut self, fork: u64, number: PageNumber, many: bool) {
        let is_resident = !self.out.contains_key(&number) && !self.unwritten.contains_key(&number);
        if !is_resident || !self.given.insert((fork, number)) {
            return;
        }
        let content = Content { kind: number as u8, seed: fork * PAGES + number };
        let (page, nth) = (content.page(), fork * PAGES + number - FIRST_PAGE + 1);
        let name = CommonPage::from_raw(nth).expect("few of them");
        // Whoever of the relatives is the first.
        let _ = self.common.begin(name, &page.0);
        assert!(self.cache.index.set(number, Entry::new(State::Resident { turn: 7, frame: 0 })));
        if self.cache.leave_for_common(number, name) {
            assert!(matches!(self.cache.index.get(number).state(), State::Spilled { .. }));
            COMMON.fetch_add(1, Ordering::Relaxed);
        } else if many && self.cache.spill_common(number, &page, name).is_some() {
            assert!(matches!(self.cache.index.get(number).state(), State::Spilled { .. }));
        } else if self.cache.swap_out(number, &page) == Placed::NoRoom {
            assert!(self.cache.index.get(number).is_resident(), "still the caller's");
            return;
        } else {
            self.cache.name_common(number, name);
        }
        self.out.insert(number, content);
    }

    /// Whether a page of the pool has a name by which relatives have it.
    fn has_named(&self) -> bool {
        self.out.keys().any(|&number| self.cache.common_name(number).is_some())
    }

    fn flush(&mut self) {
        let before = self.entries();
        match self.cache.flush() {
            Ok(()) => assert_eq!(self.cache.unwritten_clusters().count(), 0),
            Err(error) => assert!(self.faulty(), "{error:?} without a fault"),
        }
        assert!(before == self.entries(), "a page was moved");
    }

    /// Has another process use its table.
    fn drop_table(&self) {
        let table = self.cache.references();
        assert!(table.words()[1..].iter().all(|word| word.load(Ordering::Relaxed) == 0));
        table.forget();
        TABLES.with_borrow_mut(|tables| tables.push(table));
    }

    /// Whether the store went wrong before now.
    fn faulty(&self) -> bool {
        self.blocks.faults() > 0
    }

    fn swap_out(&mut self, number: PageNumber, content: Content) {
        if self.out.contains_key(&number) {
            return;
        }
        let unwritten = self.unwritten.remove(&number);
        // One that is clean may go this way, too.
        if unwritten.is_none() {
            let resident = Entry::new(State::Resident { turn: 7, frame: 0 });
            assert!(self.cache.index.set(number, resident));
        }
        let content = unwritten.unwrap_or(content);
        let page = content.page();
        let state = |process: &Self| process.cache.index.get(number).state();
        let placed = match content.seed % 2 == 1 && !self.cache.is_dense() {
            true => self.swap_out_made(number, &page),
            false => self.cache.swap_out(number, &page),
        };
        match placed {
            Placed::SameFilled => {
                assert!(self.design.same_filled && matches!(state(self), State::SameFilled { .. }));
            }
            Placed::Compressed(made_by, bytes) => {
                let is_dense = self.cache.is_dense();
                let codec = if is_dense { DENSE_CODEC } else { self.design.codec };
                let second = self.design.repeats_codec.filter(|_| self.cache.coding().is_sought());
                let State::Compressed { codec: by, len, .. } = state(self) else {
                    panic!("a page of the pool is elsewhere");
                };
                assert!((by, len) == (made_by, bytes));
                let is_second = Some(by) == second && by != codec && !is_dense;
                assert!(by == codec || is_second, "{by:?} made bytes of a page");
                SOUGHT.fetch_add(u64::from(is_second), Ordering::Relaxed);
                CONDENSED.fetch_add(u64::from(is_dense), Ordering::Relaxed);
            }
            Placed::Incompressible => {
                let is_raw = |codec, len| (codec, len) == (CodecId::Copy, 4096);
                assert!(match state(self) {
                    State::Compressed { codec, len, .. } => is_raw(codec, len),
                    State::Spilled { codec, place } => {
                        let dense = self.store_codec.codec();
                        let is_dense = Some(codec) == dense && place.len() <= 4096 - 4096 / 8;
                        is_raw(codec, place.len()) || is_dense
                    }
                    _ => false,
                });
            }
            Placed::NoRoom => {
                assert!(self.cache.index.get(number).is_resident(), "still the caller's");
                return;
            }
        }
        self.out.insert(number, content);
    }

    /// Has the cache take what is made of a page beside it.
    fn swap_out_made(&mut self, number: PageNumber, page: &Page) -> Placed {
        let mut coding = self.cache.coding();
        let mut output = [0; PAGE_BYTES];
        let space = Heap.reserve(coding.scratch_bytes().max(1)).expect("heap");
        // SAFETY: the space is as long, zeroed, page aligned and used for this alone.
        let scratch = unsafe { core::slice::from_raw_parts_mut(space.base(), space.bytes()) };
        let made = match coding.fill::<Codecs>(page) {
            Some(word) => Made::Filled(word),
            None => match coding.compress::<Codecs>(page, &mut output, scratch) {
                Some((codec, len)) => Made::Coded(codec, &output[..len]),
                None => Made::Coded(CodecId::Copy, &page.0),
            },
        };
        MADE.fetch_add(1, Ordering::Relaxed);
        self.cache.swap_out_made(number, page, Some(made))
    }

    fn swap_in(&mut self, first: PageNumber, count: usize, keep: bool) {
        let mut pages = vec![Content { kind: 3, seed: 99 }.page(); count];
        let spilled_before = self.spilled_pages();
        match self.cache.swap_in(first, &mut pages, keep) {
            Ok(reads) => {
                for (number, page) in (first..).zip(&pages[..reads.pages]) {
                    let content = self.out.remove(&number).expect("a page that was resident");
                    assert!(page.0 == content.page().0, "page {number} came back as another");
                    if !self.cache.index.get(number).is_absent() {
                        assert!(keep && self.design.id == DesignId::Default);
                        self.keep(number, content);
                    }
                }
                let next = first + reads.pages as u64;
                let ended = reads.pages == count || !self.out.contains_key(&next);
                assert!(ended || self.faulty(), "page {next} was left out");
                let Reads { spilled_pages, shelved_pages, reads, read_bytes, .. } = reads;
                assert_eq!(spilled_before - self.spilled_pages(), spilled_pages + shelved_pages);
                SHELVED.fetch_add(shelved_pages as u64, Ordering::Relaxed);
                assert!(reads as usize <= spilled_pages || self.faulty());
                assert!(read_bytes >= reads as usize * BLOCK_BYTES);
            }
            Err(lost) => {
                assert!(self.faulty(), "{lost:?} without a fault");
                self.lost_pages.set(self.lost_pages.get() + 1);
                assert!(self.out.remove(&first).is_some(), "a page that was resident");
                assert!(self.cache.index.get(first).is_absent());
            }
        }
    }

    fn take(&mut self, first: PageNumber, most: usize) {
        let count = self.cache.takeable(first, most);
        let mut coded = vec![[0; PAGE_BYTES]; count];
        let mut seen = vec![Seen::Absent; count];
        self.cache.take(first, &mut coded, &mut seen);
        let space = Heap.reserve(self.cache.coding().scratch_bytes().max(1)).expect("heap");
        // SAFETY: the space is as long, zeroed, page aligned and used for this alone.
        let scratch = unsafe { core::slice::from_raw_parts_mut(space.base(), space.bytes()) };
        for ((number, coded), seen) in (first..).zip(&coded).zip(seen) {
            let mut page = Content { kind: 3, seed: 99 }.page();
            match seen {
                Seen::Absent => panic!("page {number} is not there"),
                Seen::Filled(word) => page.words_mut().fill(word),
                Seen::Coded(codec, len) => {
                    decompress(codec, &coded[..len], &mut page, scratch)
                        .expect("what the codec wrote");
                }
            }
            let content = self.out.remove(&number).expect("a page that was resident");
            assert!(page.0 == content.page().0, "page {number} came back as another");
            assert!(self.cache.index.get(number).is_absent());
        }
        TAKEN.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// A page that came back is in the store still. Now and then it cannot be write-protected.
    fn keep(&mut self, number: PageNumber, content: Content) {
        assert!(matches!(self.cache.index.get(number).state(), State::Spilled { .. }));
        if content.seed.is_multiple_of(8) {
            return self.cache.forget(number);
        }
        self.cache.keep_copy(number, 7, 0);
        self.unwritten.insert(number, content);
    }

    fn drop_clean(&mut self, range: Range<PageNumber>) {
        let pages: Vec<_> = self.unwritten.range(range).map(|(&page, &was)| (page, was)).collect();
        for (number, content) in pages {
            let is_clean = self.is_clean(number);
            if self.cache.drop_clean(number) {
                assert!(is_clean);
                DROPS.fetch_add(1, Ordering::Relaxed);
                self.unwritten.remove(&number);
                self.out.insert(number, content);
            } else {
                assert!(!is_clean || self.faulty(), "page {number} is clean and stays");
                self.swap_out(number, content);
            }
        }
    }

    fn is_clean(&self, number: PageNumber) -> bool {
        matches!(self.cache.index.get(number).state(), State::Clean { .. })
    }

    fn write(&mut self, range: Range<PageNumber>) {
        let pages: Vec<PageNumber> = self.unwritten.range(range).map(|(&page, _)| page).collect();
        for number in pages {
            assert_eq!(self.is_clean(number), self.cache.written(number));
            let entry = self.cache.index.get(number);
            assert!(entry.is_resident() && !entry.is_protected());
            self.unwritten.remove(&number);
        }
    }

    fn forget(&mut self, range: Range<PageNumber>) {
        for number in range.clone() {
            self.cache.forget(number);
            self.out.remove(&number);
            self.unwritten.remove(&number);
        }
        self.cache.index.release_absent(range.start, range.end);
    }

    fn rename(&mut self, from: PageNumber, to: PageNumber) {
        if !self.cache.index.get(to).is_absent() {
            return;
        }
        assert!(self.cache.rename(from, to));
        for pages in [&mut self.out, &mut self.unwritten] {
            if let Some(content) = pages.remove(&from) {
                pages.insert(to, content);
            }
        }
    }

    /// One write; `ahead` of need, where the pages stay in RAM as well.
    fn spill(&mut self, full: bool, ahead: bool) {
        let before = self.entries();
        let payload_bytes = self.cache.payload_bytes();
        let is_idle = self.cache.can_spill_ahead();
        match if ahead { self.cache.spill_ahead() } else { self.cache.spill() } {
            // What is to leave next may be in the store already.
            Err(SpillError::Nothing)
                if ahead && (!is_idle || self.cache.copied_pages() > 0 || self.has_named()) =>
            {
                assert_eq!(self.left(&before), 0);
            }
            Ok(pages) => {
                assert!(pages > 0 && self.cache.payload_bytes() < payload_bytes);
                assert_eq!(self.left(&before), pages);
            }
            Err(SpillError::NoStore) => unreachable!("there is one"),
            Err(SpillError::Nothing) => {
                assert!(payload_bytes < self.write_bytes_min() && self.left(&before) == 0);
            }
            Err(SpillError::Full) => assert!(full, "there was room"),
            Err(SpillError::Io(_)) => assert!(self.faulty()),
        }
        let written = self.cache.take_outgoing();
        assert!(written.bytes <= written.writes * CLUSTER_BYTES);
        assert!(written.recompressed_pages == 0 || self.store_codec != StoreCodec::None);
        RECOMPRESSIONS.fetch_add(written.recompressed_pages as u64, Ordering::Relaxed);
        let ends = self.entries().into_iter().filter_map(|entry| match entry.state() {
            State::Spilled { place, .. } => Some(place),
            _ => None,
        });
        let unwritten: Vec<u32> = self.cache.unwritten_clusters().collect();
        let ends = ends
            .filter(|place| !unwritten.contains(&place.cluster()))
            .map(|place| self.record_end(place));
        assert!(ends.max().unwrap_or(0) <= written.end_bytes);
    }

    /// How many pages are in the store that were not.
    fn left(&self, before: &[Entry]) -> usize {
        let left = before.iter().zip(self.entries()).filter(|(before, entry)| {
            let is_new =
                before.state() != entry.state() && matches!(entry.state(), State::Spilled { .. });
            assert!(!is_new || self.lies_right(entry), "{entry:?}");
            assert!(!is_new || matches!(before.state(), State::Compressed { .. }));
            is_new
        });
        left.count()
    }

    /// Where the last block of a record ends in the store, in bytes.
    fn record_end(&self, place: Place) -> u64 {
        let end = place.offset_bytes() + self.seal.record_bytes(place.len()) as u64;
        end.next_multiple_of(BLOCK_BYTES as u64)
    }

    /// Whether a page lies in the store as the design has it.
    fn lies_right(&self, entry: &Entry) -> bool {
        let State::Spilled { codec, place } = entry.state() else { return false };
        let first_block = place.offset_bytes() / BLOCK_BYTES as u64;
        let last_block = (self.record_end(place) - 1) / BLOCK_BYTES as u64;
        match self.design.layout {
            StoreLayout::Packed => true,
            StoreLayout::Blocks => {
                first_block == last_block || self.seal.record_bytes(place.len()) > BLOCK_BYTES
            }
            StoreLayout::Padded => place.offset_bytes().is_multiple_of(BLOCK_BYTES as u64),
            StoreLayout::Plain => codec == CodecId::Copy || Some(codec) == self.store_codec.codec(),
        }
    }

    fn write_bytes_min(&self) -> usize {
        if self.design.id == DesignId::Default { WRITE_BYTES_MIN } else { 1 }
    }

    /// What is alive in the store is gathered or taken back: nothing else moves.
    fn clean(&mut self) {
        let before = self.entries();
        let mut cleaned = Cleaned::default();
        match self.cache.clean(&mut cleaned) {
            Ok(()) => {
                let moved = before.iter().zip(self.entries()).filter(|(before, after)| {
                    let is_moved = before.state() != after.state();
                    assert!(!is_moved || matches!(before.state(), State::Spilled { .. }));
                    assert!(!is_moved || !after.is_absent() && !after.is_resident());
                    is_moved
                });
                assert_eq!(moved.count(), cleaned.pages);
                CLEANINGS.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => assert!(self.faulty() || error == SpillError::Nothing, "{error:?}"),
        }
    }

    fn entries(&self) -> Vec<Entry> {
        self.out.keys().map(|&number| self.cache.index.get(number)).collect()
    }

    fn spilled_pages(&self) -> usize {
        self.entries().iter().filter(|e| matches!(e.state(), State::Spilled { .. })).count()
    }

    /// What must hold between any two calls; counts the references of spilled pages.
    fn check(&self, references: &mut BTreeMap<u32, u32>) {
        let (mut payload_bytes, mut raw_bytes, mut copied) = (0, 0, 0);
        for (&number, entry) in self.out.keys().zip(self.entries()) {
            match entry.state() {
                State::Absent | State::Resident { .. } | State::Clean { .. } => {
                    panic!("page {number} is in no tier")
                }
                State::SameFilled { .. } => {}
                State::Compressed { codec, len, .. } => {
                    let copy = self.cache.pooled_copy(number);
                    let is_common = self.cache.common_name(number).is_some();
                    assert!(copy.is_none() || !is_common);
                    assert_eq!(copy.is_some() || is_common, entry.has_note());
                    if let Some(place) = copy {
                        *references.entry(place.cluster()).or_default() += 1;
                        copied += 1;
                    }
                    payload_bytes += len;
                    raw_bytes += if codec == CodecId::Copy { len } else { 0 };
                }
                State::Spilled { place, .. } => {
                    *references.entry(place.cluster()).or_default() += 1;
                }
            }
        }
        let mut clean = 0;
        for &number in self.unwritten.keys() {
            let entry = self.cache.index.get(number);
            assert!(entry.is_resident() && entry.is_protected(), "page {number}");
            if let State::Clean { place, .. } = entry.state() {
                *references.entry(place.cluster()).or_default() += 1;
                clean += 1;
            }
        }
        assert_eq!((self.cache.clean_pages(), self.cache.copied_pages()), (clean, copied));
        COPIED.fetch_add(copied as u64, Ordering::Relaxed);
        assert!(self.unwritten.is_empty() || self.cache.has_protected());
        for cluster in self.cache.unwritten_clusters() {
            *references.entry(cluster).or_default() += 1;
        }
        assert_eq!(self.cache.payload_bytes(), payload_bytes);
        assert_eq!(self.cache.raw_bytes(), raw_bytes);
        assert!(self.cache.pool_bytes() >= payload_bytes);
    }
}

/// The processes and what they share.
struct Model<'m> {
    memories: &'m Memories,
    clusters: Clusters<'static>,
    processes: Vec<Process<'m>>,
    running: usize,
    forked: bool,
    forks: u64,
    /// Of this step.
    operations: &'m Cell<u32>,
}

impl Model<'_> {
    fn run(&mut self, process: usize) {
        self.running = process;
        self.memories.running.set(self.processes[process].memory);
    }

    fn step(&mut self, number: u64, step: Step) {
        let alive = self.processes.len();
        let process = &mut self.processes[self.running];
        let range = |from: u64, count: u64| {
            FIRST_PAGE + from.min(PAGES)..FIRST_PAGE + (from + count).min(PAGES)
        };
        match step {
            Step::SwapOut { from, count, kind } => {
                for page in range(from, count) {
                    process.swap_out(page, Content { kind, seed: (number << 10) | (page % 1000) });
                }
            }
            Step::GiveCommon { from, count, many } => {
                range(from, count).for_each(|page| process.give_common(self.forks, page, many));
            }
            Step::SwapIn { from, count, keep } => {
                process.swap_in(FIRST_PAGE + from, count, keep);
            }
            Step::Take { from, count } => process.take(FIRST_PAGE + from, count),
            Step::DropClean { from, count } => process.drop_clean(range(from, count)),
            Step::Write { from, count } => process.write(range(from, count)),
            Step::Forget { from, count } => process.forget(range(from, count)),
            Step::Rename { from, to, count } => {
                for (from, to) in range(from, count).zip(range(to, count)) {
                    process.rename(from, to);
                }
            }
            Step::Spill | Step::SpillAhead => {
                process.clean();
                let used_clusters = self.clusters.used_clusters();
                // One process is not told of the room that another has made.
                let full = self.forked || used_clusters == self.clusters.total_clusters();
                process.spill(full, matches!(step, Step::SpillAhead));
            }
            Step::Unshelve => {
                let shelf_bytes = process.cache.shelf_bytes();
                let gained_bytes = process.cache.unshelve();
                assert_eq!(process.cache.shelf_bytes() + gained_bytes, shelf_bytes);
                assert!(gained_bytes > 0 || shelf_bytes == 0);
            }
            Step::Condense(choice) => {
                process.cache.choose_density(choice);
                let condensed = process.cache.take_condensed();
                assert!(condensed.tried.pages <= condensed.pages);
            }
            Step::Seek(choice) => {
                process.cache.choose_repeats(choice);
                let sought = process.cache.take_sought();
                assert!(sought.tried.pages <= sought.pages);
            }
            Step::Fork if alive < PROCESSES_MAX => {
                let child = process.fork(self.memories);
                self.processes.push(child);
                self.forked = true;
                self.forks += 1;
                self.run(alive);
                self.processes[alive].cache.note_references(take_table());
            }
            Step::Flush => process.flush(),
            Step::Exit if alive > 1 => {
                // By what it has noted, as others would do it for a process that was killed.
                process.cache.give_back_spilled();
                process.drop_table();
                self.processes.swap_remove(self.running);
                self.run(0);
            }
            Step::Switch => self.run((self.running + 1) % alive),
            Step::Fork | Step::Exit => {}
        }
    }

    fn check(&mut self) {
        let mut references = BTreeMap::new();
        let running = self.running;
        for process in 0..self.processes.len() {
            self.run(process);
            self.processes[process].check(&mut references);
        }
        self.run(running);
        for cluster in 0..self.clusters.total_clusters() as u32 {
            let expected = references.get(&cluster).copied().unwrap_or(0);
            assert_eq!(self.clusters.references(cluster), expected, "cluster {cluster}");
        }
    }

    /// Brings every page of every process back.
    fn finish(mut self) {
        for process in 0..self.processes.len() {
            self.run(process);
            let process = &mut self.processes[process];
            while let Some(&first) = process.out.keys().next() {
                // Where reads fail each of a run is read by itself, and the rest of it once more.
                self.operations.set(0);
                process.swap_in(first, 64, false);
            }
            self.operations.set(0);
            process.write(0..PageNumber::MAX);
            // With none of its records left there is nothing to write any more, but for what could not
            // be written before a fork and is the relative's too.
            let tries = (1..=FLUSHES_MAX).find(|_| process.cache.flush().is_ok());
            assert!(tries == Some(1) || tries.is_some() && process.faulty(), "{tries:?}");
            assert_eq!(process.cache.payload_bytes(), 0);
            assert_eq!(process.cache.shelf_bytes(), 0, "of clusters in which nothing is held");
            assert_eq!(process.cache.index.next_known(0, FIRST_PAGE), None);
            process.drop_table();
        }
        assert_eq!(self.clusters.used_clusters(), 0, "references that nobody has");
    }
}

/// What went wrong in a run, and was told.
#[derive(Debug, Clone, Copy, Default)]
#[allow(dead_code)] // Not asked by the fuzzer.
pub(crate) struct Ended {
    /// Operations of the store that went wrong.
    pub(crate) faults: u64,
    /// Pages that were lost by it.
    pub(crate) lost_pages: u64,
}

/// Carries out the steps, then brings back what is out.
pub(crate) fn run(setting: Setting, steps: impl IntoIterator<Item = Step>) -> Ended {
    run_on(Faulting::new(Memory::default(), setting.seed, setting.one_in), setting, steps)
}

/// [`run`] with this store.
pub(crate) fn run_on(
    blocks: Faulting<Memory>,
    setting: Setting,
    steps: impl IntoIterator<Item = Step>,
) -> Ended {
    let memories = Memories::new();
    let clusters = if setting.encrypts { clusters().with_seal(cipher()) } else { clusters() };
    let under_way = RefCell::default();
    let under_way = setting.behind.then_some(&under_way);
    let (operations, lost_pages) = (Cell::new(0), Cell::new(0));
    let blocks_of_all =
        Shared { blocks: &blocks, memories: &memories, under_way, operations: &operations };
    let store = Store { blocks: blocks_of_all, clusters };
    let design = design(setting.design, setting.codec);
    let cache = Cache::new(&memories, &design, setting.pool_bytes_max, Some(store));
    let mut cache = Box::new(cache.expect("heap"));
    let store_codec = setting.store_codec;
    cache.recompress(&memories, store_codec, usize::MAX, ticks).expect("heap");
    cache.condense(&memories, DENSE_CODEC, ticks).expect("heap");
    cache.seek_repeats(ticks);
    cache.note_references(take_table());
    let common = common_pages();
    cache.know_common(common);
    let (seal, lost_pages) = (clusters.seal(), &lost_pages);
    let first = Process {
        memory: 0,
        design,
        store_codec,
        cache,
        blocks: &blocks,
        seal,
        lost_pages,
        out: BTreeMap::new(),
        unwritten: BTreeMap::new(),
        given: BTreeSet::new(),
        common,
    };
    let mut model = Model {
        memories: &memories,
        clusters,
        processes: vec![first],
        running: 0,
        forked: false,
        forks: 0,
        operations: &operations,
    };
    for (number, step) in (1..).zip(steps) {
        operations.set(0);
        model.step(number, step);
        model.check();
    }
    model.finish();
    if blocks.faults() == 0 {
        let kept_blocks = Clusters::KEPT_MAX * CLUSTER_BYTES / BLOCK_BYTES;
        assert!(blocks.inner().held_blocks() <= kept_blocks, "space that was not given back");
    }
    Ended { faults: blocks.faults(), lost_pages: lost_pages.get() }
}
