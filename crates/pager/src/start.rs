//! How a process comes to be managed: at its start, when the budget is near
//! already, or later, entered by the supervisor with all of its threads stopped.
//! Into a statically linked program the supervisor brings the agent as well.
//!
//! Until then nothing is registered, dispatched or handled, and the agent only stands before a few
//! functions of libc ([`large_calls`](crate::large_calls)).

use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::Release};

use zpager_cache::{Cache, Engine, Store};
use zpager_policy::{Common, Design, Faster, SLOTS, Sample, Sampler, StoreCodec};
use zpager_store::{Cipher, Clusters, References, Seal, Stores};
use zpager_sys::file::Fd;
use zpager_sys::mapping::Mapping;
use zpager_sys::pagemap::Pagemap;
use zpager_sys::process::Confinement;
use zpager_sys::processor::{self, ticks};
use zpager_sys::signal::{self, Mask, SIGNALS, ours};
use zpager_sys::syscall::{checked, nr};
use zpager_sys::{Errno, PAGE_BYTES, limits, process};
use zpager_wire::{
    CONTROL_VARIABLE, Control, Entry, EventKind, Known, Lifting, MAPS, PAGEMAP, Passed,
    ProcessSlot, STORES_MAX, ServerSettings, Settings, StoreKey, StoreSettings, Tables, Watching,
    sequences_guess,
};

use crate::account::{Published, count};
use crate::assembly::call_on_entry_stack;
use crate::calls::rings::Rings;
use crate::common::GivenFrames;
use crate::departures::Departures;
use crate::early::EarlyReads;
use crate::flights::Flights;
use crate::foretold::Foretold;
use crate::hold::pages_of;
use crate::identity;
use crate::maps::{self, Kind, Line};
use crate::mirrored::MirroredMemory;
use crate::own::{OneStore, Own, OwnStores, SwapFile};
use crate::parked::Parked;
use crate::process::{BATCH_PAGES, Lift, MANAGED, MEMORY_FILES, Process};
use crate::record::Recorder;
use crate::regions::Regions;
use crate::remote::RemoteMemory;
use crate::sharing::ACCOUNT;
use crate::spares::STAGING_PAGES;
use crate::spawn::claim_slot;
use crate::threads::{STARTER, Thread, Threads};
use crate::unmanage::has_page;
use crate::watch::Watch;
use crate::{large_calls, signals, stubs};

const EINVAL: Errno = Errno(22);
const ENOMEM: Errno = Errno(12);
const EOPNOTSUPP: Errno = Errno(95);
const EALREADY: Errno = Errno(114);
const ENOTCONN: Errno = Errno(107);
/// Longest path of a descriptor, `/proc/PID/fd/N`.
pub(crate) const PATH_BYTES: usize = 64;
/// A stack is taken to reach at most so far below its pointer, where the mapping is the thread's own:
/// its control block lies at most so far from the end.
const STACK_BYTES_MAX: usize = 64 << 20;
const CONTROL_BLOCK_BYTES_MAX: usize = 64 << 10;
/// And so far below and above its pointer elsewhere.
const STACK_AROUND_BYTES: usize = 64 << 10;
/// Parts of a hard limit of the address space: what a pool may hold, which reserves several times
/// as much, and the blocks of the threads.
const POOL_PART: usize = 32;
const THREADS_PART: usize = 32;
/// The number of the stores among what has one key: they are one.
const ROW_OF_STORES: u16 = 0;
/// Small pieces of memory are managed where a program that runs already has so much in them.
const SMALL_BYTES_MIN: usize = 1 << 20;

/// Where the agent's shared object lies.
#[derive(Debug, Clone, Copy)]
pub struct Image {
    /// First byte.
    pub start: usize,
    /// One past the last.
    pub end: usize,
}

impl Image {
    pub(crate) fn range(&self) -> Range<usize> {
        self.start..self.end
    }
}

static mut IMAGE: Image = Image { start: 0, end: 0 };
static mut CONTROL: Option<&'static Control> = None;
/// Where the control block was found, with a zero byte behind it.
static mut CONTROL_PATH: [u8; PATH_BYTES] = [0; PATH_BYTES];
/// The supervisor's descriptors that it has passed to this process, while it enters it.
static PASSED: AtomicPtr<Passed> = AtomicPtr::new(ptr::null_mut());

/// # Safety
/// After [`load`], which alone writes it.
pub(crate) unsafe fn image() -> Image {
    // SAFETY: the caller's promise.
    unsafe { ptr::read(&raw const IMAGE) }
}

/// The path by which the control block was found, with zero bytes behind it.
pub(crate) fn control_path() -> [u8; PATH_BYTES] {
    // SAFETY: written by `load` alone, before anything else runs here.
    unsafe { ptr::read(&raw const CONTROL_PATH) }
}

/// Called once, when the agent has been loaded into a program, by its first thread. Without a
/// supervisor it does nothing.
///
/// # Safety
/// `image` is where this code lies, and no other thread has entered it yet.
pub unsafe fn load(image: Image) {
    let mut path = [0; PATH_BYTES];
    let named = read_variable(CONTROL_VARIABLE.as_bytes(), &mut path);
    let file = named.and_then(|()| Fd::open(&path, nr::O_RDWR).ok());
    let Some(control) = file.and_then(|file| map_control(file).ok()) else { return };
    // SAFETY: the caller's promise.
    unsafe { attach(image, control, path) };
    let Confinement { filters, ids } = Confinement::own();
    // It is the supervisor's `/proc` by which the control block was found.
    let is_nested = ids > control.settings.ids;
    let run_pid = if is_nested { process::id_by_proc() } else { Ok(process::pid()) };
    let Ok(run_pid) = run_pid else { return };
    identity::become_known(Known { run_pid, is_nested });
    if filters > control.settings.filters {
        return control.events.note(EventKind::Sandboxed, run_pid, 0, 0);
    }
    // An emulator has loaded this for the program that it runs in its own memory, as valgrind does, and QEMU, to
    // which a call is unknown that each run has. It is managed itself: what it holds is no former program's. Who
    // serves the calls of another process traces it.
    let has_slot = slots_of(control, run_pid).next().is_some();
    let is_managed = has_slot && process::is_brk_emulated() && !process::is_traced();
    if is_managed || !Watch::is_known(control) {
        return;
    }
    retire_before(control);
    let is_far = || control.settings.from_start == 0 && control.pressure.load(Relaxed) == 0;
    if is_far() {
        // Where the supervisor does not come the program begins all the same.
        control.beginners.wait(|| control.call_supervisor());
    }
    if is_far() {
        return large_calls::begin(control);
    }
    // SAFETY: the caller's promise.
    unsafe { begin_managed(control, run_pid) };
}

/// Has a program be managed from its start; `run_pid` is what the run calls its process.
///
/// # Safety
/// As for [`load`].
unsafe fn begin_managed(control: &Control, run_pid: i32) {
    if process::is_brk_emulated() {
        return control.events.note(EventKind::Emulated, run_pid, 0, 0);
    }
    if process::has_other_threads() {
        // A library's, which was begun before this one: who stops them all is the supervisor.
        large_calls::begin(control);
        return large_calls::wait_until_entered(control, run_pid);
    }
    processor::leave_forbidden_time_stamps();
    let pointer = thread_pointer();
    let mask = signal::set_mask(!0);
    let sequences = sequences_guess(pointer as u64).map(|word| word as usize);
    let first = Found {
        tid: process::tid(),
        stack_pointer: 0,
        thread_pointer: pointer,
        mask,
        sequences,
        begun_bytes: 0,
    };
    let mut beginning = Beginning { first, outcome: Err(EINVAL) };
    // SAFETY: the caller's promise; all signals are blocked.
    unsafe { call_on_entry_stack((&raw mut beginning) as usize, manage_from_start) };
    let outcome = beginning.outcome;
    if let Err(error) = outcome {
        control.events.note(EventKind::NotManaged, run_pid, error.0 as u64, 0);
    }
    signal::set_mask(if outcome.is_ok() { mask & !ours() } else { mask });
}

/// The run's control block, where there is a run.
pub(crate) fn control() -> Option<&'static Control> {
    // SAFETY: written once, by the loader's call, before anything else of the agent runs.
    unsafe { CONTROL }
}

/// A process that begins to be managed by itself.
struct Beginning {
    first: Found,
    outcome: Result<(), Errno>,
}

extern "C" fn manage_from_start(beginning: usize) {
    // SAFETY: `load` gives it, and waits for this.
    let beginning = unsafe { &mut *(beginning as *mut Beginning) };
    beginning.outcome = manage_process(&beginning.first, None);
}

fn thread_pointer() -> usize {
    const ARCH_GET_FS: usize = 0x1003;
    let mut pointer = 0usize;
    // SAFETY: the kernel writes one word.
    let _ = unsafe { checked(nr::__NR_arch_prctl, [ARCH_GET_FS, (&raw mut pointer) as usize]) };
    pointer
}

/// The image has been put into a program by the supervisor, with all of its threads stopped:
/// what [`load`] does where the loader did. The control block is descriptor `fd` of `supervisor`.
fn load_entered(image: Image, supervisor: i32, fd: i32) -> Result<(), Errno> {
    let mut path = [0; PATH_BYTES];
    descriptor_path(supervisor, fd, &mut path);
    let control = map_control(open_descriptor(supervisor, fd, nr::O_RDWR)?)?;
    // SAFETY: the supervisor says where it has put this code, and nobody has entered it before.
    unsafe { attach(image, control, path) };
    retire_before(control);
    Ok(())
}

/// Notes where this code lies and what its run is.
///
/// # Safety
/// That is where it lies, and nothing else of it has run in this process.
unsafe fn attach(image: Image, control: &'static Control, path: [u8; PATH_BYTES]) {
    // SAFETY: the caller's promise.
    unsafe {
        IMAGE = image;
        CONTROL = Some(control);
        CONTROL_PATH = path;
    }
}

/// Gives back what this process held before it began this program: it is gone, but where others have its memory.
fn retire_before(control: &'static Control) {
    let pid = identity::run_pid();
    // SAFETY: the supervisor's mapping, mapped as a whole.
    let tables = unsafe { Tables::behind(control) };
    for slot in slots_of(control, pid) {
        control.bury(&tables, slot, pid);
    }
}

/// The slots of a process.
fn slots_of(control: &Control, pid: i32) -> impl Iterator<Item = &ProcessSlot> {
    control.processes.in_use().filter(move |slot| slot.pid.load(Relaxed) == pid)
}

/// Maps the run's control block, with its tables, and closes its file.
fn map_control(file: Fd) -> Result<&'static Control, Errno> {
    let bytes = file.length_bytes().unwrap_or(0);
    let base = file.map_shared(bytes.max(size_of::<Control>()));
    file.close();
    // SAFETY: the supervisor keeps the file that long and initialised; all that changes in it is atomic.
    let control = unsafe { &*base?.cast::<Control>().cast_const() };
    if control.is_compatible() { Ok(control) } else { Err(EINVAL) }
}

/// Copies the value of an environment variable, with a zero byte behind it.
fn read_variable(name: &[u8], value: &mut [u8; PATH_BYTES]) -> Option<()> {
    let file = Fd::open(b"/proc/self/environ\0", nr::O_RDONLY).ok()?;
    let mut buffer = [0u8; 4096];
    let mut at = Matching::Name(0);
    let mut found = None;
    'reading: while let Ok(read @ 1..) = file.read(&mut buffer) {
        for &byte in &buffer[..read] {
            at = match (at, byte) {
                (Matching::Value(length), 0) => {
                    value[length] = 0;
                    found = Some(());
                    break 'reading;
                }
                (Matching::Value(length), byte) if length + 1 < PATH_BYTES => {
                    value[length] = byte;
                    Matching::Value(length + 1)
                }
                (Matching::Value(_), _) => break 'reading,
                (_, 0) => Matching::Name(0),
                (Matching::Name(length), b'=') if length == name.len() => Matching::Value(0),
                (Matching::Name(length), byte) if name.get(length) == Some(&byte) => {
                    Matching::Name(length + 1)
                }
                _ => Matching::Other,
            };
        }
    }
    file.close();
    found
}

/// Where in a variable the reader is.
#[derive(Clone, Copy)]
enum Matching {
    Name(usize),
    Value(usize),
    Other,
}

/// A thread that was there before its process was managed; its stack pointer is 0 where the stack is none
/// of what is managed.
struct Found {
    tid: i32,
    stack_pointer: usize,
    thread_pointer: usize,
    mask: Mask,
    /// Where its area of restartable sequences is, and its bytes.
    sequences: [usize; 2],
    /// Bytes of the transfer that it makes next which are done already.
    begun_bytes: usize,
}

/// Entered by the supervisor; see [`zpager_wire::Entry`].
pub(crate) extern "C" fn entered(
    what: u64,
    known: u64,
    stack_pointer: usize,
    thread_pointer: usize,
    mask: Mask,
    passed: *mut Passed,
    sequences_start: usize,
    sequences_bytes: usize,
    begun_bytes: usize,
) -> isize {
    PASSED.store(passed, Relaxed);
    processor::leave_forbidden_time_stamps();
    let known = Known::of_word(known);
    let sequences = [sequences_start, sequences_bytes];
    let tid = process::tid();
    let found = Found { tid, stack_pointer, thread_pointer, mask, sequences, begun_bytes };
    let outcome = match what {
        what if what == Entry::Process as u64 => {
            let outcome = manage_process(&found, Some(known));
            if outcome.is_err() || kin_turn() == 0 {
                // SAFETY: it is the supervisor's, for this entry.
                unsafe { leave_passed() };
            }
            outcome
        }
        what if what == Entry::Thread as u64 => {
            let mut place = Process::lock(STARTER);
            place.as_mut().ok_or(EINVAL).and_then(|process| process.manage_thread(&found))
        }
        what if what == Entry::Share as u64 => {
            let mut place = Process::lock(STARTER);
            let outcome = place.as_mut().ok_or(EINVAL).map(Process::share_with_kin);
            // SAFETY: as above.
            unsafe { leave_passed() };
            outcome
        }
        what if what == Entry::Load as u64 => {
            identity::become_known(known);
            let image = Image { start: stack_pointer, end: thread_pointer };
            load_entered(image, (mask >> 32) as i32, mask as i32)
        }
        _ => Err(EINVAL),
    };
    match outcome {
        Ok(()) => 0,
        Err(error) => error.as_result(),
    }
}

/// The turn in which this process is being entered with others, or 0.
fn kin_turn() -> u32 {
    control().map_or(0, |control| control.kin_turn.load(Relaxed))
}

/// Closes what the supervisor has passed to this process, and gives back the page that says so.
///
/// # Safety
/// There is nothing, or nobody uses it any more.
unsafe fn leave_passed() {
    let passed = PASSED.swap(ptr::null_mut(), Relaxed);
    // SAFETY: the caller's promise.
    let Some(table) = (unsafe { passed.as_ref() }) else { return };
    table.pairs().for_each(|pair| Fd(pair.own).close());
    // SAFETY: the table is alone in its page.
    let _ = unsafe { checked(nr::__NR_munmap, [passed as usize, PAGE_BYTES]) };
}

/// Whether the process has all memory locked that it will have (`mlockall` with `MCL_FUTURE`): the pager's would
/// be filled and locked as well, and none of the program's could leave.
fn locks_what_comes() -> Result<bool, Errno> {
    let protection = (nr::PROT_READ | nr::PROT_WRITE) as usize;
    let kind = (nr::MAP_PRIVATE | nr::MAP_ANONYMOUS) as usize;
    // SAFETY: a new mapping, where the kernel likes.
    let page = unsafe { checked(nr::__NR_mmap, [0, PAGE_BYTES, protection, kind, usize::MAX, 0]) }?;
    let has_page = has_page((page / PAGE_BYTES) as u64);
    // SAFETY: nobody else knows of it.
    unsafe { checked(nr::__NR_munmap, [page, PAGE_BYTES]) }?;
    has_page
}

/// Takes the whole process into management, alone or with all that stand still with it. `entered` is as whom
/// the supervisor enters it.
fn manage_process(first: &Found, entered: Option<Known>) -> Result<(), Errno> {
    // SAFETY: written by `load`, before anything can come here.
    let (control, image) = unsafe { (CONTROL.ok_or(ENOTCONN)?, image()) };
    let mut place = Process::lock(STARTER);
    if place.is_some() {
        return Err(EALREADY);
    }
    if entered.is_some() && locks_what_comes()? {
        return Err(EOPNOTSUPP);
    }
    // Not before: one that only shares the memory of a managed process is known otherwise.
    if let Some(known) = entered {
        identity::become_known(known);
    }
    limits::take_over(image.end - image.start);
    stubs::prepare().and_then(|()| build(&mut place, control, image)).inspect_err(|_| {
        limits::give_back();
    })?;
    let process = place.as_mut().ok_or(EINVAL)?;
    let mut actions = process.actions;
    signals::take_over(&mut actions)?;
    process.actions = actions;
    process.awaits_kin = entered.is_some() && kin_turn() != 0;
    process.note_references();
    process.engine.cache.know_common(process.common_pages());
    process.record_began();
    process.asks_in_child = entered.is_some();
    process.take_in_mappings();
    process.program_break = current_break();
    MANAGED.store(true, Release);
    large_calls::end();
    count(&control.counters.managed_processes, 1);
    process.manage_thread(first)
}

/// Tells the supervisor of an invariant that does not hold.
pub(crate) fn note_defect(file: &str, line: u32) {
    let name = file.rsplit('/').next().unwrap_or(file).trim_end_matches(".rs").as_bytes();
    let mut letters = [0; 8];
    let count = name.len().min(letters.len());
    letters[..count].copy_from_slice(&name[..count]);
    let address = u64::from_le_bytes(letters);
    note(EventKind::InvariantBroken, u64::from(line), address);
}

/// Tells the supervisor, where the process itself is not to be had.
pub(crate) fn note(kind: EventKind, value: u64, address: u64) {
    if let Some(control) = control() {
        control.events.note(kind, identity::run_pid(), value, address);
    }
}

/// Makes everything that the process needs, in place.
fn build(
    place: &mut Option<Process>,
    control: &'static Control,
    image: Image,
) -> Result<(), Errno> {
    let settings = &control.settings;
    let chosen = zpager_policy::Settings::from_words(&settings.design).map_err(|_| EINVAL)?;
    let design = Design::new(&chosen, settings.budget_bytes as usize);
    identity::open_link()?;
    let clusters_map = open_clusters_map(settings)?;
    let store = open_store(settings, clusters_map)?;
    let mut store_fds = [-1; STORES_MAX];
    let stores = store.iter().flat_map(|store| store.blocks.blocks());
    store_fds.iter_mut().zip(stores).for_each(|(fd, store)| *fd = store.descriptor());
    let staging = Mapping::reserve(STAGING_PAGES * PAGE_BYTES)?;
    let is_wanted = |lifting| settings.lifting == lifting as u8;
    let wanted = if is_wanted(Lifting::ByCopy) { Lift::Copy } else { Lift::Move };
    let watching = Watching::from_byte(settings.watching).ok_or(EINVAL)?;
    let (watch, lift) = register_staging(&staging, watching, wanted)?;
    // SAFETY: nothing is there yet.
    let dropped_bytes = unsafe { process::drop_parts(&[[staging.start(), PAGE_BYTES]]) };
    let hard_bytes = limits::hard_bytes().unwrap_or(u64::MAX) as usize;
    let pool_bytes_max = (settings.most_bytes as usize).min(hard_bytes / POOL_PART);
    // SAFETY: the supervisor's mapping, which `load` has mapped as a whole.
    let tables = unsafe { Tables::behind(control) };
    let own = Own { frames: tables.frames };
    let mut cache = Cache::new(own, &design, pool_bytes_max, store).ok_or(ENOMEM)?;
    let store_codec = StoreCodec::from_byte(settings.store_codec).ok_or(EINVAL)?;
    cache.recompress(own, store_codec, pool_bytes_max, ticks).ok_or(ENOMEM)?;
    if let Some(codec) = design.dense_codec {
        cache.condense(own, codec, ticks).ok_or(ENOMEM)?;
    }
    cache.seek_repeats(ticks);
    let pid = process::pid();
    let recorder = match settings.ring_fd {
        ..0 => None,
        fd => Some(Recorder::open(settings.supervisor_pid, fd)?),
    };
    let slot = claim_slot(control);
    ACCOUNT.set_holds(tables.holds_of(control, slot));
    let lift_pages = Process::lift_pages(settings.budget_bytes);
    let coding = cache.coding();
    *place = Some(Process {
        control,
        slot,
        image,
        pid,
        watch,
        lift,
        regions: Regions::new()?,
        engine: Engine::new(cache, &design, sampler(settings.budget_bytes)?, settings.budget_bytes),
        early: EarlyReads::new(settings.budget_bytes)?,
        flights: Flights::new(settings.budget_bytes, design.codec)?,
        foretold: Foretold::new(settings.budget_bytes, design.reads_by_pointers)?,
        departures: Departures::new(settings.budget_bytes, lift_pages, &coding)?,
        threads: Threads::new(hard_bytes / THREADS_PART)?,
        resident_pages: 0,
        tables,
        shared_pages: 0,
        claimed_times_alone: 0,
        room_ticks: 0,
        asked_in_vain: 0,
        births_in_vain: 0,
        starved_pause: 0,
        starved_turns: 0,
        leaving_turns: 0,
        put_back_pages: 0,
        is_stuck: false,
        is_child: false,
        sharer: 0,
        sharers: 1,
        shares_descriptors: false,
        unborn: None,
        shares_actions: false,
        incoming_pages_max: 0,
        published: Published::default(),
        staging,
        spare_pages: 0,
        lends_pages: false,
        has_shut: false,
        may_pin: false,
        may_pin_unseen: false,
        rings: Rings::default(),
        awaits_kin: false,
        asks_in_child: false,
        short_turns: 0,
        common: Common::NEW,
        followed_times_given: 0,
        given_frames: GivenFrames::NONE,
        drops_parts: dropped_bytes == PAGE_BYTES,
        lift_pages,
        lifting: Faster::ALIKE,
        always_stretches: is_wanted(Lifting::ByStretches),
        incoming: Mapping::reserve(BATCH_PAGES * PAGE_BYTES)?,
        zeros: Mapping::reserve(BATCH_PAGES * PAGE_BYTES)?,
        actions: [signal::Action::default(); SIGNALS + 1],
        references_place: None,
        clusters_map,
        parked: Parked::default(),
        fd_signals: 0,
        program_break: 0,
        memory_files: [-1; MEMORY_FILES],
        store_fds,
        recorder,
    });
    Ok(())
}

/// A sampler of the pages that are away when the budget is full of compressed ones.
fn sampler(budget_bytes: u64) -> Result<Sampler<'static>, Errno> {
    let space = Mapping::reserve(SLOTS * size_of::<Sample>())?;
    // SAFETY: the mapping is used for this alone, is never given back, and zeros are empty slots.
    let slots = unsafe { core::slice::from_raw_parts_mut(space.base().cast(), SLOTS) };
    Ok(Sampler::new(slots, budget_bytes / PAGE_BYTES as u64 * 2))
}

/// Opens the way of lifting that the kernel has.
fn register_staging(
    staging: &Mapping,
    watching: Watching,
    wanted: Lift,
) -> Result<(Watch, Lift), Errno> {
    let watch = Watch::open(watching)?;
    let can_move = watch.register(staging.start(), staging.bytes())?;
    let lift = if can_move { wanted } else { Lift::Copy };
    Ok((watch, lift))
}

/// The map of the clusters in the stores, behind which the processes note what they hold.
fn open_clusters_map(settings: &Settings) -> Result<Option<Fd>, Errno> {
    if settings.clusters_fd < 0 {
        return Ok(None);
    }
    let map = open_descriptor(settings.supervisor_pid, settings.clusters_fd, nr::O_RDWR)?;
    Ok(Some(kept(map)))
}

/// The run's stores, by way of the supervisor's descriptors.
fn open_store(
    settings: &Settings,
    clusters_map: Option<Fd>,
) -> Result<Option<Store<OwnStores>>, Errno> {
    let Some(map) = clusters_map else { return Ok(None) };
    let mut files = [None; STORES_MAX];
    for (file, store) in files.iter_mut().zip(settings.stores()) {
        *file = Some((store.limit_bytes, OneStore::File(open_file(settings, store)?)));
    }
    let mut servers = [None; STORES_MAX];
    for server in settings.servers() {
        let place = servers.get_mut(server.place as usize).ok_or(EINVAL)?;
        let server = open_server(settings, server)?;
        *place = Some((server.remote.limit_bytes(), OneStore::Server(server)));
    }
    let length = Clusters::words_for(settings.store_limit_bytes);
    let base = map.map_shared(length * size_of::<AtomicU64>())?;
    // SAFETY: the supervisor made the map of so many words; they are only ever used as atomics.
    let words: &'static [AtomicU64] = unsafe { core::slice::from_raw_parts(base.cast(), length) };
    let seal = match settings.store_encrypt {
        0 => Seal::Checksum,
        _ => Seal::Cipher(make_cipher(&settings.store_key)?),
    };
    let clusters = Clusters::new(words).with_seal(seal);
    let mut files = files.into_iter().flatten();
    let row = servers.map(|server| server.or_else(|| files.next()));
    Ok(Some(Store { blocks: Stores::new(clusters, row.into_iter().flatten()), clusters }))
}

/// A swap file, or what is one.
fn open_file(settings: &Settings, store: &StoreSettings) -> Result<SwapFile, Errno> {
    let direct = if store.direct != 0 { nr::O_DIRECT } else { 0 };
    let fd = open_descriptor(settings.supervisor_pid, store.fd, nr::O_RDWR | direct)?;
    Ok(SwapFile { fd: kept(fd), start_bytes: store.start_bytes })
}

/// What encrypts, in memory of its own that is never given back.
fn make_cipher(key: &StoreKey) -> Result<&'static Cipher, Errno> {
    let place = Mapping::reserve(size_of::<Cipher>())?.base().cast::<Cipher>();
    // SAFETY: the mapping is that long, aligned to a page, and used for this alone.
    Ok(unsafe {
        place.write(Cipher::new(&key.0, ROW_OF_STORES));
        &*place
    })
}

/// A server's memory, with its mirror.
fn open_server(settings: &Settings, server: &ServerSettings) -> Result<MirroredMemory, Errno> {
    let file = open_descriptor(settings.supervisor_pid, server.fd, nr::O_RDWR)?;
    // SAFETY: the supervisor made the file for this.
    let remote = unsafe { RemoteMemory::open(file) };
    file.close();
    let mirror = Some(&server.mirror).filter(|mirror| mirror.fd >= 0);
    let mirror = mirror.map(|mirror| open_file(settings, mirror)).transpose()?;
    Ok(MirroredMemory { remote: remote?, mirror })
}

/// The table behind that map in which the process of a slot notes what it holds of the store, mapped
/// at `place`; `None` where there is none, and what it holds when it is killed is lost to the run.
///
/// # Safety
/// Nobody uses what was at the place before.
unsafe fn open_references(
    control: &Control,
    slot: &ProcessSlot,
    map: Fd,
    place: &mut Option<Mapping>,
) -> Option<References<'static>> {
    let process = control.processes.index_of(slot)?;
    let (offset, bytes) = References::place(control.settings.store_limit_bytes, process);
    let mapping = place.or_else(|| Mapping::reserve(bytes).ok())?;
    *place = Some(mapping);
    let is_there = map.length_bytes().is_ok_and(|length| length as u64 >= offset + bytes as u64);
    // SAFETY: the caller's promise.
    let is_mapped = is_there && unsafe { map.map_shared_over(&mapping, offset) }.is_ok();
    if !is_mapped {
        return None;
    }
    // SAFETY: within the file, by the lengths; the words are only ever used as atomics.
    let words: &'static [AtomicU32] = unsafe {
        core::slice::from_raw_parts(mapping.base().cast(), bytes / size_of::<AtomicU32>())
    };
    Some(References::new(words))
}

/// Moves a descriptor that the process keeps to where programs seldom look.
pub(crate) fn kept(fd: Fd) -> Fd {
    limits::with_descriptors(|least| fd.moved_up(least))
}

/// A copy of what the supervisor has passed to this process, while it enters it, under a name.
pub(crate) fn passed(name: i32) -> Option<Result<Fd, Errno>> {
    // SAFETY: the supervisor has put it there for as long as it enters this process.
    let own = unsafe { PASSED.load(Relaxed).as_ref() }?.own(name)?;
    Some(limits::with_descriptors(|_| Fd(own).duplicate(0)))
}

/// Opens `/proc/PID/fd/FD`, or what the supervisor has passed for it.
pub(crate) fn open_descriptor(pid: i32, fd: i32, flags: u32) -> Result<Fd, Errno> {
    if let Some(own) = passed(fd) {
        return own;
    }
    let mut path = [0u8; PATH_BYTES];
    let length = descriptor_path(pid, fd, &mut path);
    Fd::open(&path[..=length], flags)
}

/// Opens this process's page tables, or what was passed of them.
pub(crate) fn open_pagemap() -> Result<Pagemap, Errno> {
    match passed(PAGEMAP) {
        Some(own) => own.map(Pagemap::of),
        None => Pagemap::open(),
    }
}

/// Opens this process's mappings, at their beginning, or what was passed of them.
pub(crate) fn open_maps() -> Result<Fd, Errno> {
    match passed(MAPS) {
        Some(own) => own.inspect(|maps| maps.rewind()),
        // By the calling thread: the first one, whose are those of the process, may have ended.
        None => Fd::open(b"/proc/thread-self/maps\0", nr::O_RDONLY),
    }
}

/// Writes `/proc/PID/fd/FD` over zero bytes; gives its length.
pub(crate) fn descriptor_path(pid: i32, fd: i32, path: &mut [u8; PATH_BYTES]) -> usize {
    let mut length = 0;
    let mut append = |part: &[u8]| {
        path[length..length + part.len()].copy_from_slice(part);
        length += part.len();
    };
    let mut digits = [0u8; 10];
    append(b"/proc/");
    append(decimal(pid, &mut digits));
    append(b"/fd/");
    append(decimal(fd, &mut digits));
    length
}

fn decimal(number: i32, digits: &mut [u8; 10]) -> &[u8] {
    let length = process::write_decimal(number, digits);
    &digits[..length]
}

fn current_break() -> usize {
    // SAFETY: an impossible break only asks for the present one.
    unsafe { checked(nr::__NR_brk, [0]) }.unwrap_or(0)
}

/// Tells small pieces of the program's memory from the variables of shared objects, which lie right behind a
/// mapped file.
#[derive(Default)]
struct Pieces {
    /// Where the last file ended.
    file_end: usize,
}

impl Pieces {
    /// Of each mapping, in ascending order: whether it is such a piece.
    fn has(&mut self, line: &Line) -> bool {
        if line.kind == Kind::Other {
            self.file_end = line.end;
        }
        line.kind == Kind::PrivateAnonymous && line.is_small() && line.start != self.file_end
    }
}

/// Whether the mapping that begins there is locked, mlock(2), so that the program has asked for its pages to stay. The
/// kernel would refuse to drop them (mm/madvise.c, `can_madv_lru_vma`).
fn is_locked(start: usize) -> bool {
    let advice = nr::MADV_COLD as usize;
    // SAFETY: the page is what it was.
    unsafe { checked(nr::__NR_madvise, [start, PAGE_BYTES, advice]) }.is_err()
}

impl Process {
    /// Manages all private anonymous memory that is large enough, or of which there is much in small pieces.
    fn take_in_mappings(&mut self) {
        let mut small_bytes = 0;
        let mut pieces = Pieces::default();
        // Without /proc nothing is managed, and the summary shows it.
        let _ = maps::each_line(|line| {
            self.may_pin |= matches!(line.kind, Kind::Device | Kind::RingEntries);
            self.may_pin_unseen |= line.kind == Kind::Device;
            self.rings.note(&line);
            if pieces.has(&line) && line.protection != 0 {
                small_bytes += line.end - line.start;
            }
        });
        let mut from = 0;
        let mut pieces = Pieces::default();
        // What is taken in may become one mapping with what lies behind it, of which the kernel tells as a
        // whole next.
        let _ = maps::each_line(|line| {
            let start = line.start.max(from);
            from = line.end;
            let is_piece = pieces.has(&line) && small_bytes >= SMALL_BYTES_MIN;
            let is_large = line.kind == Kind::PrivateAnonymous && !line.is_small();
            if (is_piece || is_large) && start < line.end {
                self.take_in(start, line.end, line.protection);
            }
        });
    }

    fn take_in(&mut self, start: usize, end: usize, protection: u32) {
        let is_ours = zpager_sys::mapping::is_own(start) || self.image.range().contains(&start);
        let pages = pages_of(start, end - start);
        if !is_ours && !is_locked(start) && self.manage(pages.clone(), protection) {
            self.adopt(pages);
        }
    }

    /// Has what is held of the store noted in the table of the process's slot, and in no other.
    pub(crate) fn note_references(&mut self) {
        // SAFETY: the cache notes elsewhere, or nowhere, before it is used again.
        let references = self.clusters_map.and_then(|map| unsafe {
            open_references(self.control, self.slot, map, &mut self.references_place)
        });
        self.slot.has_noted.store(references.is_some().into(), Relaxed);
        self.engine.cache.note_references(references.unwrap_or(References::NONE));
    }

    /// Takes the calling thread into management.
    fn manage_thread(&mut self, found: &Found) -> Result<(), Errno> {
        let Found { tid, stack_pointer, thread_pointer, mask, sequences, begun_bytes } = *found;
        self.spare_stack(stack_pointer, thread_pointer);
        self.spare_control_block(thread_pointer, sequences);
        let thread: &mut Thread = self.threads.claim(self.pid, self.sharer, true).ok_or(ENOMEM)?;
        thread.tid.store(tid, Relaxed);
        thread.begun_bytes = begun_bytes;
        thread.pretended_mask = mask & ours();
        // SAFETY: the block's stack is this thread's; the program's own stack is restored by nobody else.
        let alternate = unsafe { signal::set_alternate_stack(&thread.stack()) }?;
        thread.alternate = signal::AlternateStack { flags: alternate.flags & !1, ..alternate };
        self.arm(thread);
        self.publish();
        Ok(())
    }

    /// Leaves the stack that a thread runs on to the kernel. Of a stack that lies in other memory of the
    /// program, as a goroutine's in its heap, nobody knows the bounds: little is left alone there.
    fn spare_stack(&mut self, stack_pointer: usize, thread_pointer: usize) {
        let Some(region) = self.regions.find((stack_pointer / PAGE_BYTES) as u64) else { return };
        let (start, end) = (region.start as usize * PAGE_BYTES, region.end as usize * PAGE_BYTES);
        let is_at_end = end.saturating_sub(thread_pointer) <= CONTROL_BLOCK_BYTES_MAX;
        let is_own = is_at_end && (stack_pointer..end).contains(&thread_pointer);
        let around = stack_pointer..stack_pointer + STACK_AROUND_BYTES;
        let (below, high) = match is_own {
            true => (STACK_BYTES_MAX, thread_pointer),
            // What a control block lies above is no longer the stack, if it is this one's.
            false if around.contains(&thread_pointer) => (STACK_AROUND_BYTES, thread_pointer),
            false => (STACK_AROUND_BYTES, around.end),
        };
        let low = start.max(stack_pointer.saturating_sub(below));
        self.unmanage(pages_of(low, high.min(end) - low));
    }
}
