//! Where the cache's RAM comes from, and where its spilled pages go.
//!
//! The space of a pool's objects knows of each of its pages whether it holds RAM,
//! and the frame that it is in while a relative has it too ([`crate::sharing`]).
//! It costs four bytes a page that was ever used.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use zpager_pool::{Space, SpaceSource};
use zpager_store::{Blocks, Errno, Stores};
use zpager_sys::PAGE_BYTES;
use zpager_sys::aio::Transfers;
use zpager_sys::file::Fd;
use zpager_sys::mapping::Mapping;
use zpager_sys::processor::ticks;
use zpager_sys::{limits, signal};
use zpager_wire::{Frame, Frames, Holds};

use crate::looking;
use crate::mirrored::MirroredMemory;
use crate::sharing::ACCOUNT;

const EINVAL: zpager_sys::Errno = zpager_sys::Errno(22);
const EFBIG: zpager_sys::Errno = zpager_sys::Errno(27);
/// Pauses before a failed read is made again, in milliseconds: the page is lost for good otherwise.
const READ_PAUSES_MS: [u64; 4] = [1, 4, 16, 64];
const SIGXFSZ: u32 = 25;

/// Mappings of zpager's own as a source of space.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Own {
    pub(crate) frames: Frames<'static>,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct OwnSpace {
    mapping: Mapping,
    frames: Frames<'static>,
    /// Of a pool's objects: a word a page.
    pages: Option<Mapping>,
    /// One past the last page that was ever written.
    end: AtomicUsize,
}

/// The word of a page without RAM, and of one with RAM of this process's own; others name a frame.
const NOTHING: u32 = 0;
const OWN: u32 = u32::MAX;

impl SpaceSource for Own {
    type Space = OwnSpace;
    fn reserve(&self, bytes: usize) -> Option<OwnSpace> {
        let mapping = Mapping::reserve(bytes).ok()?;
        Some(OwnSpace { mapping, frames: self.frames, pages: None, end: AtomicUsize::new(0) })
    }
    fn reserve_objects(&self, bytes: usize) -> Option<OwnSpace> {
        let words_bytes = bytes / PAGE_BYTES * size_of::<AtomicU32>();
        let pages = Some(Mapping::reserve(words_bytes).ok()?);
        Some(OwnSpace { pages, ..self.reserve(bytes)? })
    }
}

// SAFETY: a private anonymous mapping, page aligned, never unmapped; a released part reads as zeros.
unsafe impl Space for OwnSpace {
    fn base(&self) -> *mut u8 {
        self.mapping.base()
    }
    fn bytes(&self) -> usize {
        self.mapping.bytes()
    }
    fn release(&self, offset: usize, bytes: usize) {
        self.mapping.release(offset, bytes);
        for word in self.words(offset, bytes) {
            self.set(word, NOTHING);
        }
    }
    #[inline]
    fn before_write(&self, offset: usize, bytes: usize) {
        for word in self.words(offset, bytes) {
            self.set(word, OWN);
        }
        self.end.fetch_max((offset + bytes).div_ceil(PAGE_BYTES), Relaxed);
    }
    fn shared_bytes(&self) -> usize {
        if self.pages.is_some() { ACCOUNT.pool_bytes() } else { 0 }
    }
}

impl OwnSpace {
    /// The words of the pages of a part; none where nothing is known of pages.
    #[inline]
    fn words(&self, offset: usize, bytes: usize) -> &[AtomicU32] {
        let Some(pages) = &self.pages else { return &[] };
        let (start, end) = (offset / PAGE_BYTES, (offset + bytes).div_ceil(PAGE_BYTES));
        assert!(end * size_of::<AtomicU32>() <= pages.bytes());
        // SAFETY: within the mapping, which is zero at first and only used as these words.
        unsafe {
            core::slice::from_raw_parts(pages.base().cast::<AtomicU32>().add(start), end - start)
        }
    }

    /// Every page that was ever written.
    fn all(&self) -> &[AtomicU32] {
        self.words(0, self.end.load(Relaxed) * PAGE_BYTES)
    }

    /// Changes what a page is; it leaves the frame that it was in.
    #[inline]
    fn set(&self, word: &AtomicU32, now: u32) {
        let was = word.load(Relaxed);
        if was != now {
            word.store(now, Relaxed);
            if let Some(frame) = frame(was) {
                ACCOUNT.leave_pool_page(&self.frames, frame);
            }
        }
    }

    /// Before a fork: each page gets one more holder, the `child`, for which those are noted that were in the
    /// run's sum before.
    pub(crate) fn share(&self, child: Holds<'_>) {
        for word in self.all() {
            if let Some(frame) = frame(word.load(Relaxed)) {
                match self.frames.hold(frame) {
                    true => child.set(frame),
                    false => self.set(word, OWN),
                }
            }
            if word.load(Relaxed) == OWN {
                let Some(frame) = ACCOUNT.share_pool_page(&self.frames) else { return };
                word.store(frame.raw(), Relaxed);
            }
        }
    }

    /// After a fork that failed: each page in a frame has one holder less.
    pub(crate) fn leave_for_child(&self) {
        self.shared().for_each(|frame| ACCOUNT.leave_for_child(&self.frames, frame));
    }

    /// Notes what a child holds.
    pub(crate) fn note_holds(&self, holds: Holds<'_>) {
        self.shared().for_each(|frame| holds.set(frame));
    }

    /// In a child, for which nothing is held any more.
    pub(crate) fn hold_anew(&self) {
        for word in self.all() {
            let lost =
                frame(word.load(Relaxed)).filter(|frame| !ACCOUNT.hold(&self.frames, *frame));
            if lost.is_some() {
                word.store(OWN, Relaxed);
                ACCOUNT.lose_pool_page();
            }
        }
    }

    /// The frames of all pages that are in one.
    fn shared(&self) -> impl Iterator<Item = Frame> {
        self.all().iter().filter_map(|word| frame(word.load(Relaxed)))
    }

    /// Gives all RAM to the kernel at the end of the process. The frames of its pages are left with
    /// everything else that it holds.
    pub(crate) fn release_all(&self) {
        self.mapping.release(0, self.end.load(Relaxed) * PAGE_BYTES);
    }

    /// Takes over the pages that nobody else holds.
    pub(crate) fn claim(&self) {
        for word in self.all() {
            let claimed = frame(word.load(Relaxed))
                .is_some_and(|frame| ACCOUNT.claim_pool_page(&self.frames, frame));
            if claimed {
                word.store(OWN, Relaxed);
            }
        }
    }
}

/// The frame that a page's word names.
fn frame(word: u32) -> Option<Frame> {
    if word == OWN { None } else { Frame::from_raw(word) }
}

/// The run's stores.
pub(crate) type OwnStores = Stores<'static, OneStore>;

const _: () = assert!(zpager_wire::STORES_MAX == zpager_store::STORES_MAX);

/// A swap file, or the part of a block device that is one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SwapFile {
    pub(crate) fd: Fd,
    /// Where it begins.
    pub(crate) start_bytes: u64,
}

/// One of the run's stores.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OneStore {
    File(SwapFile),
    Server(MirroredMemory),
}

impl OneStore {
    /// In a forked child: no write goes on, and the parent's ways of writing are not there.
    pub(crate) fn become_copy() {
        SwapFile::become_copy();
        MirroredMemory::become_copy();
    }

    /// The descriptor of its file; -1 where it has none.
    pub(crate) fn descriptor(&self) -> i32 {
        match self {
            OneStore::File(file) => file.fd.0,
            OneStore::Server(server) => server.mirror.map_or(-1, |mirror| mirror.fd.0),
        }
    }

    /// Reads as [`Blocks::read_at`] for one who does so once more where it fails, and is in no hurry to
    /// be told why. Any thread may, at any time.
    pub(crate) fn read_once(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        match self {
            OneStore::File(file) => {
                let read = file.fd.read_exact_at(file.start_bytes + offset_bytes, data);
                read.map_err(|error| Errno(error.0))
            }
            OneStore::Server(server) => server.remote.read_if_up(offset_bytes, data),
        }
    }
}

impl Blocks for OneStore {
    unsafe fn begin_write(&self, offset_bytes: u64, data: &[u8]) -> Result<bool, Errno> {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                OneStore::File(file) => file.begin_write(offset_bytes, data),
                OneStore::Server(server) => server.begin_write(offset_bytes, data),
            }
        }
    }
    fn settle(&self) -> Result<(), Errno> {
        match self {
            OneStore::File(file) => file.settle(),
            OneStore::Server(server) => server.settle(),
        }
    }
    fn is_writing(&self) -> bool {
        match self {
            OneStore::File(file) => file.is_writing(),
            OneStore::Server(server) => server.is_writing(),
        }
    }
    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> Result<(), Errno> {
        match self {
            OneStore::File(file) => file.write_at(offset_bytes, data),
            OneStore::Server(server) => server.write_at(offset_bytes, data),
        }
    }
    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        match self {
            OneStore::File(file) => file.read_at(offset_bytes, data),
            OneStore::Server(server) => server.read_at(offset_bytes, data),
        }
    }
    fn read_copy_at(&self, copy: u32, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        match self {
            OneStore::File(file) => file.read_copy_at(copy, offset_bytes, data),
            OneStore::Server(server) => server.read_copy_at(copy, offset_bytes, data),
        }
    }
    fn punch(&self, offset_bytes: u64, bytes: u64) {
        match self {
            OneStore::File(file) => file.punch(offset_bytes, bytes),
            OneStore::Server(server) => server.punch(offset_bytes, bytes),
        }
    }
}

/// This process's writes to swap files.
static WRITES: Transfers = Transfers::new();

impl SwapFile {
    /// In a forked child: no write goes on, and the parent's way of writing is not there.
    pub(crate) fn become_copy() {
        WRITES.forget();
        looking::become_copy();
    }
}

impl Blocks for SwapFile {
    unsafe fn begin_write(&self, offset_bytes: u64, data: &[u8]) -> Result<bool, Errno> {
        if !WRITES.pays() {
            let began = ticks();
            let outcome = self.write_at(offset_bytes, data);
            WRITES.note_waited(ticks().wrapping_sub(began));
            return outcome.map(|()| false);
        }
        let at = self.start_bytes + offset_bytes;
        // SAFETY: the caller's promise; one write goes on at a time.
        match within_limit(at, data, || unsafe { WRITES.begin_write(self.fd, at, data) }) {
            Ok(goes_on) => Ok(goes_on),
            // Refused or failed: the plain way tells why, or does it.
            Err(_) => self.write_at(offset_bytes, data).map(|()| false),
        }
    }
    fn settle(&self) -> Result<(), Errno> {
        WRITES.settle().map_err(|error| Errno(error.0))
    }
    fn is_writing(&self) -> bool {
        !WRITES.has_ended()
    }
    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> Result<(), Errno> {
        let at = self.start_bytes + offset_bytes;
        let outcome = within_limit(at, data, || self.fd.write_all_at(at, data));
        outcome.map_err(|error| Errno(error.0))
    }
    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), Errno> {
        let at = self.start_bytes + offset_bytes;
        again(&READ_PAUSES_MS, || looking::read(self.fd, at, data)).map_err(|error| Errno(error.0))
    }
    fn punch(&self, offset_bytes: u64, bytes: u64) {
        self.fd.punch(self.start_bytes + offset_bytes, bytes);
    }
}

/// Writes `data` to a file from `at` on. The limit of the program's files is ours too; its signal is not the program's
/// concern. Of what crosses the limit the kernel would take a part, which may not be aligned as it has to be: that is
/// no other error.
fn within_limit<T>(
    at: u64,
    data: &[u8],
    write: impl FnOnce() -> Result<T, zpager_sys::Errno>,
) -> Result<T, zpager_sys::Errno> {
    let mask = signal::set_mask(!0);
    let outcome = write();
    if outcome.as_ref().is_err_and(|error| *error == EFBIG) {
        signal::take(SIGXFSZ);
    }
    signal::set_mask(mask);
    outcome.map_err(|error| match error {
        EINVAL if limits::file_bytes() < at + data.len() as u64 => EFBIG,
        error => error,
    })
}

/// Does `work` until it succeeds, once more after each pause; gives the last outcome.
fn again<T, E>(pauses_ms: &[u64], mut work: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    for &pause_ms in pauses_ms {
        match work() {
            Ok(value) => return Ok(value),
            Err(_) => zpager_sys::process::nap(pause_ms * 1_000_000),
        }
    }
    work()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_is_done_again_and_no_more_often_than_told() {
        let failing = |failures: u32| {
            let mut tries = 0;
            let outcome = again(&[0, 1, 0], || {
                tries += 1;
                if tries > failures { Ok(()) } else { Err(tries) }
            });
            (outcome, tries)
        };
        assert_eq!(failing(0), (Ok(()), 1));
        assert_eq!(failing(3), (Ok(()), 4));
        assert_eq!(failing(9), (Err(4), 4));
    }
}
