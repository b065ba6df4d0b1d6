//! Large calls of a program that is not managed yet: it asks before them ([`zpager_wire::LargeCalls`]).
//!
//! The agent's shared object stands before libc's functions that fill memory in one call. Up to
//! [`LARGE_BYTES`] they go on at once, and always once the program is managed: then the pager sees the call
//! itself. A program that cannot be managed from inside, as it has threads before it begins, asks for nothing but
//! that. Programs that make system calls without libc ask nobody, nor do forked children in another pid namespace
//! than the supervisor's: they do not know what the run calls them.
//!
//! Before it makes a process by fork(2) such a program waits until that may begin, as one does that begins
//! ([`zpager_wire::Beginners`]).
//!
//! Bad for: programs that have forbidden themselves futex(2) or getpid(2) and read files as a whole.

use core::arch::asm;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use zpager_sys::processor::ticks;
use zpager_sys::syscall::nr;
use zpager_sys::{PAGE_BYTES, futex, process};
use zpager_wire::{Control, Filling};

use crate::{identity, start};

/// A call that may fill more asks; none does where it is `usize::MAX`.
pub static LARGE_BYTES: AtomicUsize = AtomicUsize::new(usize::MAX);

/// What part of the budget: the last quarter is what a run may grow by while it is entered, and a few
/// calls have to fit into that.
const BUDGET_PART: u64 = 16;

/// For so long, in ticks of the processor (some 0.1 s), what a call was let fill is taken to be in RAM: it
/// fills nothing when it is made again, as by those who read a file by large parts.
const FILLED_TICKS: u64 = 1 << 28;

/// Longest wait: for the supervisor, and for its entering of the process. Then nobody asks any more.
const PATIENCE_NS: u64 = 3_000_000_000;

/// Flags with which mmap(2) fills what it maps.
const MAP_FILLED: usize = (nr::MAP_POPULATE | nr::MAP_LOCKED) as usize;

/// How often one looks whether fewer ask by now, and how long it waits each time.
const TURNS_MAX: u32 = 3000;
const TURN_NS: u64 = 1_000_000;

/// What a function of libc fills, by its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Fills {
    /// A descriptor, where to, and how many bytes: `read`.
    Read = 0,
    /// Where to, the size of one, and how many: `fread`.
    Objects = 1,
    /// Where to, what there is room for, the size of one, and how many: `__fread_chk`.
    ObjectsInRoom = 2,
    /// `mmap`.
    Mapping = 3,
    /// `madvise`.
    Advice = 4,
    /// `fork`: whatever its child fills.
    Process = 5,
}

/// The process that began the program, by its own id.
static BEGINNER: AtomicI32 = AtomicI32::new(0);

/// A program begins that is not managed yet.
pub(crate) fn begin(control: &Control) {
    BEGINNER.store(process::pid(), Relaxed);
    let bytes = control.budget_bytes.load(Relaxed) / BUDGET_PART;
    LARGE_BYTES.store(usize::try_from(bytes).unwrap_or(usize::MAX), Relaxed);
}

/// The program is managed from now on.
pub(crate) fn end() {
    LARGE_BYTES.store(usize::MAX, Relaxed);
}

/// A thread is about to make a call that may fill more than [`LARGE_BYTES`]: waits until it may.
pub extern "C" fn before(fills: Fills, arguments: &[usize; 6]) {
    if fills == Fills::Process {
        return before_process();
    }
    let Some((fd, start, bytes)) = filling_of(fills, arguments) else { return };
    if bytes <= LARGE_BYTES.load(Relaxed) {
        return;
    }
    let Some(control) = start::control() else { return };
    let now = ticks();
    if FILLED.has(start, bytes as u64, now) {
        return;
    }
    let Some(pid) = run_pid() else { return };
    let filling = Filling { pid, thread: control_block(), fd, start, bytes: bytes as u64 };
    let was_near = control.pressure.load(Relaxed) != 0;
    ask(control, &filling);
    // It was let go on when the budget was far, and came near before it did: then it has to be managed first.
    if !was_near && control.pressure.load(Relaxed) != 0 && !is_managed() {
        ask(control, &filling);
    }
    FILLED.note(start, bytes as u64, now);
}

/// The same before it makes a process. Once the budget is near the program is managed first, and so is that.
fn before_process() {
    let Some(control) = start::control() else { return };
    let is_near = || control.pressure.load(Relaxed) != 0;
    if !is_near() && !control.beginners.wait(|| control.call_supervisor()) {
        end();
    }
    if is_near()
        && !is_managed()
        && let Some(pid) = run_pid()
    {
        wait_until_entered(control, pid);
    }
}

/// Whether the program is managed, or does not ask any more.
fn is_managed() -> bool {
    LARGE_BYTES.load(Relaxed) == usize::MAX
}

/// The program is to be managed before it does anything, and cannot be from inside: waits until it is. `pid` is what
/// the run calls its process.
pub(crate) fn wait_until_entered(control: &Control, pid: i32) {
    ask(control, &Filling { pid, thread: control_block(), fd: -1, start: 0, bytes: 0 });
}

/// Waits until the supervisor lets the call go on.
fn ask(control: &Control, filling: &Filling) {
    for _ in 0..TURNS_MAX {
        if let Some(question) = control.large_calls.ask(filling) {
            control.call_supervisor();
            if !question.wait(PATIENCE_NS) {
                end();
            }
            return;
        }
        // Too many ask just now.
        futex::wait(&AtomicU32::new(0), 0, TURN_NS);
    }
}

/// What the run calls this process; `None` for a child in another namespace, which nobody told that.
fn run_pid() -> Option<i32> {
    let pid = process::pid();
    match identity::is_nested() {
        false => Some(pid),
        true => (pid == BEGINNER.load(Relaxed)).then(identity::run_pid),
    }
}

/// What was filled last, by where it begins. Another thread may be about to change any of it: then one asks
/// once too often, or is taken to have filled what another one has.
struct Filled {
    places: [FilledPlace; 8],
}

struct FilledPlace {
    start: AtomicU64,
    bytes: AtomicU64,
    at: AtomicU64,
}

static FILLED: Filled = Filled::new();

impl FilledPlace {
    const fn new() -> Self {
        FilledPlace { start: AtomicU64::new(0), bytes: AtomicU64::new(0), at: AtomicU64::new(0) }
    }
}

impl Filled {
    const fn new() -> Self {
        Filled { places: [const { FilledPlace::new() }; 8] }
    }

    fn place_of(&self, start: u64) -> &FilledPlace {
        &self.places[(start / PAGE_BYTES as u64) as usize % self.places.len()]
    }

    fn has(&self, start: u64, bytes: u64, now: u64) -> bool {
        let place = self.place_of(start);
        start != 0
            && place.start.load(Relaxed) == start
            && place.bytes.load(Relaxed) >= bytes
            && now.saturating_sub(place.at.load(Relaxed)) < FILLED_TICKS
    }

    fn note(&self, start: u64, bytes: u64, now: u64) {
        let place = self.place_of(start);
        place.start.store(start, Relaxed);
        place.bytes.store(bytes, Relaxed);
        place.at.store(now, Relaxed);
    }
}

/// The descriptor or -1, the address or 0, and the bytes that a call fills; `None` where it fills nothing.
fn filling_of(fills: Fills, arguments: &[usize; 6]) -> Option<(i32, u64, usize)> {
    let [first, second, third, fourth, ..] = *arguments;
    let (fd, start, bytes) = match fills {
        // What is no descriptor gives nothing.
        Fills::Read => (first as i32 >= 0).then_some((first as i32, second, third))?,
        Fills::Objects => (-1, first, second.saturating_mul(third)),
        Fills::ObjectsInRoom => (-1, first, third.saturating_mul(fourth)),
        Fills::Mapping => {
            let is_private = fourth & nr::MAP_PRIVATE as usize != 0;
            let is_written = third & nr::PROT_WRITE as usize != 0;
            (is_private && is_written && fourth & MAP_FILLED != 0).then_some((-1, 0, second))?
        }
        Fills::Advice => {
            (third == nr::MADV_POPULATE_WRITE as usize).then_some((-1, first, second))?
        }
        Fills::Process => return None,
    };
    Some((fd, start as u64, bytes))
}

/// Where the calling thread's control block is, which by the ABI says so itself.
fn control_block() -> u64 {
    let block: u64;
    // SAFETY: it reads the first word of the block, which every thread has.
    unsafe { asm!("mov {}, fs:0", out(reg) block, options(nostack, readonly, preserves_flags)) };
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_calls_fill() {
        let private = nr::MAP_PRIVATE as usize;
        let mapping = |flags, protection: u32| {
            filling_of(Fills::Mapping, &[0, 4096, protection as usize, flags, 0, 0])
        };
        let rw = nr::PROT_READ | nr::PROT_WRITE;
        let table = [
            (filling_of(Fills::Read, &[3, 64, 5, 0, 0, 0]), Some((3, 64, 5))),
            (filling_of(Fills::Read, &[usize::MAX, 64, 5, 0, 0, 0]), None),
            (filling_of(Fills::Objects, &[64, 8, 5, 0, 0, 0]), Some((-1, 64, 40))),
            (filling_of(Fills::Objects, &[64, 8, usize::MAX, 0, 0, 0]), Some((-1, 64, usize::MAX))),
            (filling_of(Fills::ObjectsInRoom, &[64, 100, 8, 5, 0, 0]), Some((-1, 64, 40))),
            (mapping(private | nr::MAP_POPULATE as usize, rw), Some((-1, 0, 4096))),
            (mapping(private | nr::MAP_LOCKED as usize, rw), Some((-1, 0, 4096))),
            (mapping(private, rw), None),
            (mapping(private | nr::MAP_POPULATE as usize, nr::PROT_READ), None),
            (mapping((nr::MAP_SHARED | nr::MAP_POPULATE) as usize, rw), None),
            (filling_of(Fills::Advice, &[64, 4096, 23, 0, 0, 0]), Some((-1, 64, 4096))),
            (filling_of(Fills::Advice, &[64, 4096, 4, 0, 0, 0]), None),
        ];
        for (at, (found, expected)) in table.into_iter().enumerate() {
            assert_eq!(found, expected, "row {at}");
        }
        assert_eq!(control_block(), control_block());
    }

    #[test]
    fn what_was_filled_is_filled_for_a_while() {
        let filled = Filled::new();
        filled.note(4096, 100, 7);
        let has = [(4096, 100, 8), (4096, 99, 6), (4096, 101, 8), (4097, 100, 8), (0, 0, 8)]
            .map(|(start, bytes, now)| filled.has(start, bytes, now));
        assert_eq!(has, [true, true, false, false, false]);
        assert!(!filled.has(4096, 100, 7 + FILLED_TICKS));
    }
}
