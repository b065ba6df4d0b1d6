//! Stretches of address space of zpager's own.
//!
//! They are private, zero until touched, cost RAM only where touched, are left
//! out of core dumps, never become huge pages (which would cost RAM that nobody
//! touched), and lie where neither the loader, nor the heap, nor the usual
//! runtimes look for room, so that they do not join a mapping of the program.
//!
//! Source: the layouts in compiler-rt's msan.h and tsan_platform.h: programs under these
//! sanitizers have a place for everything, and what is not the program's memory is shadow or
//! forbidden. What is neither lies where shared objects do.
//!
//! Bad case: a budget whose pool takes more than the first window, in such a program.

use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::limits;
use crate::syscall::{Errno, checked, nr};

/// A stretch of address space in which room is looked for.
struct Window {
    start: usize,
    end: usize,
    /// Where it is looked for next.
    next: AtomicUsize,
}

impl Window {
    const fn new(start: usize, end: usize) -> Self {
        Window { start, end, next: AtomicUsize::new(start) }
    }

    /// The next place for so many bytes, while there is room.
    fn next_hint(&self, bytes: usize) -> Option<usize> {
        let step_bytes = bytes.checked_add(GAP_BYTES)?.next_multiple_of(GAP_BYTES);
        let fits = |hint: usize| hint.checked_add(step_bytes).filter(|end| *end <= self.end);
        self.next.fetch_update(Relaxed, Relaxed, fits).ok()
    }

    /// Whether a range may meet what was mapped in it.
    fn is_near(&self, start: usize, end: usize) -> bool {
        start < self.next.load(Relaxed) && end > self.start
    }
}

/// Where the windows begin. Below each of them are 64 GiB that lie as well: there the agent is put where no
/// loader brings it.
pub const WINDOW_STARTS: [usize; 2] = [0x7e90_0000_0000, 0x4a00_0000_0000];

/// Below what is mapped from the top by the usual 28 bits of chance, and where sanitizers have the
/// program's shared objects; then, with room for any pool, above the 64 TiB in which V8 puts its
/// pages at random and below where programs are loaded.
static WINDOWS: [Window; 2] = [
    Window::new(WINDOW_STARTS[0], 0x7ef0_0000_0000),
    Window::new(WINDOW_STARTS[1], 0x5400_0000_0000),
];

/// Most mappings of zpager's own.
const OWN_MAX: usize = 4096;

/// One of them; the end is zero until both are known.
struct OwnRange {
    start: AtomicUsize,
    end: AtomicUsize,
}

/// All of them: the program's may lie between.
static OWN: [OwnRange; OWN_MAX] =
    [const { OwnRange { start: AtomicUsize::new(0), end: AtomicUsize::new(0) } }; OWN_MAX];
static OWN_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Places that are tried for one mapping in one window.
const TRIES_MAX: u32 = 64;
const EEXIST: Errno = Errno(17);

/// Room left between two mappings, so that they stay mappings of their own.
const GAP_BYTES: usize = 1 << 20;

/// One mapping. It is never given back: the agent lives as long as its process.
#[derive(Debug, Clone, Copy)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is memory that any thread may reach; who may touch it when is the owner's concern.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Reserves `bytes`, rounded up to whole pages, readable and writable.
    ///
    /// # Errors
    /// The kernel's, `ENOMEM` above all.
    pub fn reserve(bytes: usize) -> Result<Mapping, Errno> {
        let bytes = bytes.next_multiple_of(crate::PAGE_BYTES);
        limits::own_changes(bytes as i64);
        let base = WINDOWS.iter().find_map(|window| map_in(window, bytes).transpose());
        let base = base.unwrap_or(Err(Errno(12))).and_then(|base| note_own(base, bytes));
        let base = base.inspect_err(|_| limits::own_changes(-(bytes as i64)))?;
        for advice in [nr::MADV_DONTDUMP, nr::MADV_NOHUGEPAGE] {
            // SAFETY: advice about the mapping just made; a kernel that knows it not refuses harmlessly.
            let _ = unsafe { checked(nr::__NR_madvise, [base, bytes, advice as usize]) };
        }
        let base = NonNull::new(base as *mut u8).ok_or(Errno(12))?;
        Ok(Mapping { base, bytes })
    }

    /// First byte.
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Start address.
    pub fn start(&self) -> usize {
        self.base.as_ptr() as usize
    }

    /// Gives the RAM of a part back; it reads as zeros afterwards.
    pub fn release(&self, offset: usize, bytes: usize) {
        debug_assert!(offset + bytes <= self.bytes);
        drop_pages(self.start() + offset, bytes);
    }
}

/// Maps in a window; `None` when there is no room, or something lies wherever it was tried.
fn map_in(window: &Window, bytes: usize) -> Result<Option<usize>, Errno> {
    for _ in 0..TRIES_MAX {
        let Some(hint) = window.next_hint(bytes) else { break };
        if let Some(base) = map_at(hint, bytes)? {
            return Ok(Some(base));
        }
    }
    Ok(None)
}

/// Maps at `hint`; `None` when something lies there already.
fn map_at(hint: usize, bytes: usize) -> Result<Option<usize>, Errno> {
    let protection = (nr::PROT_READ | nr::PROT_WRITE) as usize;
    let flags = nr::MAP_PRIVATE | nr::MAP_ANONYMOUS | nr::MAP_NORESERVE | nr::MAP_FIXED_NOREPLACE;
    let arguments = [hint, bytes, protection, flags as usize, usize::MAX, 0];
    // SAFETY: a new mapping that replaces nothing.
    match unsafe { checked(nr::__NR_mmap, arguments) } {
        Ok(base) => Ok(Some(base)),
        Err(EEXIST) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Enters a mapping among zpager's own, or takes it back where there are too many.
fn note_own(base: usize, bytes: usize) -> Result<usize, Errno> {
    let Some(range) = OWN.get(OWN_COUNT.fetch_add(1, Relaxed)) else {
        // SAFETY: the mapping was made a moment ago and nobody knows of it.
        let _ = unsafe { checked(nr::__NR_munmap, [base, bytes]) };
        return Err(Errno(12));
    };
    range.start.store(base, Relaxed);
    range.end.store(base + bytes, Release);
    Ok(base)
}

/// `MADV_DONTNEED` on memory of zpager's own.
fn drop_pages(start: usize, bytes: usize) {
    // SAFETY: within a mapping of zpager's own, whose owner asked for it.
    let _ = unsafe { checked(nr::__NR_madvise, [start, bytes, nr::MADV_DONTNEED as usize]) };
}

/// Whether a range meets zpager's own mappings.
pub fn meets_own(start: usize, bytes: usize) -> bool {
    let end = start.saturating_add(bytes);
    let is_near = WINDOWS.iter().any(|window| window.is_near(start, end));
    let count = OWN_COUNT.load(Relaxed).min(OWN_MAX);
    let meets = |own: &OwnRange| {
        let own_end = own.end.load(Acquire);
        start < own_end && end > own.start.load(Relaxed)
    };
    is_near && OWN[..count].iter().any(meets)
}

/// Whether an address lies in one of zpager's own mappings.
pub fn is_own(address: usize) -> bool {
    meets_own(address, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_between_own_mappings_is_not_own() {
        let first = Mapping::reserve(GAP_BYTES).expect("room");
        let second = Mapping::reserve(3 * crate::PAGE_BYTES).expect("room");
        for mapping in [first, second] {
            let (start, end) = (mapping.start(), mapping.start() + mapping.bytes());
            assert!(is_own(start) && is_own(end - 1) && !is_own(end) && !is_own(start - 1));
            assert!(
                meets_own(start - 1, 2)
                    && meets_own(end - 1, 2)
                    && meets_own(start - 1, usize::MAX)
            );
            assert!(!meets_own(end, 1) && !meets_own(start - 1, 1));
        }
    }

    #[test]
    fn what_does_not_fit_the_first_window_is_mapped_in_the_second() {
        let [first, second] = &WINDOWS;
        let large = Mapping::reserve(first.end - first.start).expect("room");
        let small = Mapping::reserve(crate::PAGE_BYTES).expect("room");
        assert!((second.start..second.end).contains(&large.start()));
        assert!((first.start..first.end).contains(&small.start()));
        assert!(is_own(large.start()) && is_own(small.start()));
    }
}
