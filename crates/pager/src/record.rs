//! Recording the pages that the program references: a run in a small window of resident pages.
//!
//! Source: castro (2003), 4.1, whose traces were made so. The window holds the pages that came
//! last, first in, first out. Whatever else the program touches faults, and the fault is the
//! reference; what leaves the window tells what the page has become. The agent tells each of
//! the two to the command through the run's ring ([`zpager_wire::Ring`]), and otherwise serves
//! the program as in any run: pages that left are in the cache.
//!
//! Whether a page was written is found by comparing it with a copy from when it came, so that
//! no fault is spent on the first write, nor any care on what the kernel writes. A write that
//! changes nothing is none.
//!
//! What cannot leave when its turn comes, as a call may be about to touch it, is told as it is
//! then and begins another turn. Of that nothing more is told unless it has changed when it
//! leaves, which is a reference of its own.
//!
//! Invariants, under the lock: every resident page of managed memory has a stay, unless there
//! were no more places. A page that is told as left was told as come, in the same order within
//! a process but for those that stayed longer. `known` has the bit of a page exactly if the
//! command has been told what it was when it last left, under its present address and process.
//!
//! Bad case: calls with more pages than there are places for stays: such pages are told once
//! and stay unseen until they leave.

use zpager_codec::{CodecId, Page, SCRATCH_ALIGN_BYTES, compress, same_filled, scratch_bytes};
use zpager_sys::mapping::Mapping;
use zpager_sys::{Errno, PAGE_BYTES, process};
use zpager_wire::{Contents, Message, Messages, RECORDED_CODECS_MAX, Ring, Sizes};

use crate::copies::Keep;
use crate::identity;
use crate::process::Process;
use crate::regions::Pages;
use crate::start::open_descriptor;

/// Most pages that are in the window and kept beyond it.
const STAYS_MAX: usize = 1 << 14;
/// Fewest pages of a window: what instructions of several threads touch at once.
const WINDOW_MIN: usize = 8;
/// Pages that cannot leave which are passed over in one search for room.
const KEPT_MAX: usize = 8;
/// Page numbers that can be known.
const KNOWN_PAGES: usize = zpager_cache::PAGE_NUMBER_END as usize;
/// Pause while the ring is full.
const NAP_NANOSECONDS: u64 = 50_000;
/// Pauses of one that does not see whether the supervisor is there, in a pid namespace of its own: ten seconds.
const NAPS_MAX: u32 = 200_000;
/// In place of a page's number: it has left.
const GONE: u64 = u64::MAX;

/// A page in the window.
#[derive(Debug, Clone, Copy)]
struct Stay {
    page: u64,
    /// The command knows how it was, and is told of it again only if it changes.
    is_told: bool,
}

/// What a recorded process keeps of its own.
pub(crate) struct Recorder {
    messages: Messages<'static>,
    supervisor_pid: i32,
    window: usize,
    /// Nobody listens any more.
    is_over: bool,
    /// The stays, oldest first: a queue that goes round in [`STAYS_MAX`] places.
    stays: Mapping,
    first: usize,
    count: usize,
    /// For each place what the page was when it came or was told, and behind them one page more.
    copies: Mapping,
    /// A bit for each page number.
    known: Mapping,
    codecs: [CodecId; RECORDED_CODECS_MAX],
    /// One after the other, for each codec its own.
    scratch: Mapping,
    output: Mapping,
}

impl Recorder {
    /// Of the run whose ring is the supervisor's descriptor `ring_fd`.
    ///
    /// # Errors
    /// The kernel's, when there is no memory, or no such descriptor.
    pub(crate) fn open(supervisor_pid: i32, ring_fd: i32) -> Result<Self, Errno> {
        const EINVAL: Errno = Errno(22);
        let file = open_descriptor(supervisor_pid, ring_fd, zpager_sys::nr::O_RDWR)?;
        let bytes = file.length_bytes().unwrap_or(0);
        let base = file.map_shared(bytes.max(size_of::<Ring>()));
        file.close();
        // SAFETY: the supervisor made the ring of so many bytes; all that changes in it is atomic.
        let messages = unsafe { Messages::behind(&*base?.cast::<Ring>().cast_const()) };
        let mut codecs = [CodecId::Copy; RECORDED_CODECS_MAX];
        for (codec, &number) in codecs.iter_mut().zip(messages.ring.codecs()) {
            *codec = CodecId::try_from(number).map_err(|_| EINVAL)?;
        }
        let scratch_bytes: usize = codecs.iter().map(|&codec| scratch_length(codec)).sum();
        Ok(Recorder {
            messages,
            supervisor_pid,
            window: (messages.ring.window_pages as usize).clamp(WINDOW_MIN, STAYS_MAX / 2),
            is_over: false,
            stays: Mapping::reserve(STAYS_MAX * size_of::<Stay>())?,
            first: 0,
            count: 0,
            copies: Mapping::reserve((STAYS_MAX + 1) * PAGE_BYTES)?,
            known: Mapping::reserve(KNOWN_PAGES / 8)?,
            codecs,
            scratch: Mapping::reserve(scratch_bytes.max(PAGE_BYTES))?,
            output: Mapping::reserve(PAGE_BYTES)?,
        })
    }

    /// Tells the command something, as soon as it has room.
    fn tell(&mut self, message: Message) {
        let supervisor_pid = self.supervisor_pid;
        let mut naps = 0;
        let wait = || {
            process::nap(NAP_NANOSECONDS);
            naps += 1;
            if identity::is_nested() { naps < NAPS_MAX } else { process::exists(supervisor_pid) }
        };
        self.is_over = self.is_over || !self.messages.put(identity::run_pid(), &message, wait);
    }

    /// The place of a stay, counted from the oldest.
    fn place(&self, at: usize) -> usize {
        (self.first + at) % STAYS_MAX
    }

    fn stay(&mut self, at: usize) -> &'static mut Stay {
        let place = self.place(at);
        // SAFETY: within the mapping, which is the recorder's own; zero bytes are a stay, and no two
        // references to one are used at a time.
        unsafe { &mut *self.stays.base().cast::<Stay>().add(place) }
    }

    /// The copy of a stay; behind the last place there is one for other use.
    fn copy_in(&self, place: usize) -> &'static mut Page {
        &mut Process::pages_of(&self.copies)[place]
    }

    /// The stay of a page.
    fn find(&mut self, page: u64) -> Option<usize> {
        (0..self.count).find(|&at| self.stay(at).page == page)
    }

    /// Begins a stay with these contents. False when there is no place.
    fn begin(&mut self, stay: Stay, contents: &Page) -> bool {
        // One place stays free, so that no stay is copied onto itself.
        if self.count == STAYS_MAX - 1 {
            return false;
        }
        self.count += 1;
        *self.stay(self.count - 1) = stay;
        self.copy_in(self.place(self.count - 1)).0 = contents.0;
        true
    }

    fn drop_oldest(&mut self) {
        self.first = self.place(1);
        self.count -= 1;
    }

    /// Has the oldest stay begin another turn.
    fn turn_oldest(&mut self) {
        let (stay, place) = (*self.stay(0), self.place(0));
        self.drop_oldest();
        self.begin(stay, self.copy_in(place));
    }

    /// Tells of a page that came, or was there when its memory came into management.
    fn came(&mut self, page: u64, is_fresh: bool, contents: &Page) {
        self.tell(Message::Came { page, is_fresh });
        if is_fresh {
            self.set_known(page, false);
        }
        if !self.begin(Stay { page, is_told: false }, contents) {
            self.tell(Message::Left { page, is_written: false, contents: Contents::Unchanged });
        }
    }

    /// Tells how a page is when its turn ends, where that is not known.
    fn tell_stay(&mut self, at: usize, contents: &Page) {
        let (stay, place) = (self.stay(at), self.place(at));
        let is_written = differ(contents, self.copy_in(place));
        if stay.is_told && !is_written {
            return;
        }
        if stay.is_told {
            self.tell(Message::Came { page: stay.page, is_fresh: false });
        }
        let contents = match is_written || !self.is_known(stay.page) {
            true => self.measure(contents),
            false => Contents::Unchanged,
        };
        self.set_known(stay.page, true);
        self.tell(Message::Left { page: stay.page, is_written, contents });
    }

    /// The same of a page that does not leave yet, and that lies at `page` at the moment.
    fn tell_in_place(&mut self, at: usize, page: u64) {
        let now = self.copy_in(STAYS_MAX);
        if process::peek(page as usize * PAGE_BYTES, &mut now.0).is_ok() {
            self.tell_stay(at, now);
            self.copy_in(self.place(at)).0 = now.0;
        } else if !self.stay(at).is_told {
            let page = self.stay(at).page;
            self.tell(Message::Left { page, is_written: false, contents: Contents::Unchanged });
        }
        self.stay(at).is_told = true;
    }

    /// What a page is.
    fn measure(&mut self, page: &Page) -> Contents {
        if same_filled(page).is_some() {
            return Contents::SameFilled;
        }
        let mut offset = 0;
        let output = &mut Process::pages_of(&self.output)[0].0;
        let codecs = &self.codecs[..self.messages.ring.codecs().len()];
        Contents::Sizes(Sizes::of(codecs, |_, codec| {
            let length = scratch_length(codec);
            // SAFETY: within the mapping, which is used for this alone, each codec's part for itself.
            let scratch =
                unsafe { core::slice::from_raw_parts_mut(self.scratch.base().add(offset), length) };
            offset += length;
            compress(codec, page, output, scratch).unwrap_or(PAGE_BYTES) as u16
        }))
    }

    fn known_word(&self, page: u64) -> (*mut u64, u64) {
        assert!((page as usize) < KNOWN_PAGES);
        // Within the mapping, which is used for these words alone.
        (self.known.base().cast::<u64>().wrapping_add(page as usize / 64), 1 << (page % 64))
    }

    fn is_known(&self, page: u64) -> bool {
        let (word, bit) = self.known_word(page);
        // SAFETY: a word of the mapping.
        unsafe { *word & bit != 0 }
    }

    fn set_known(&mut self, page: u64, is_known: bool) {
        let (word, bit) = self.known_word(page);
        // SAFETY: a word of the mapping.
        unsafe { *word = *word & !bit | if is_known { bit } else { 0 } }
    }
}

/// Scratch of a codec, with what keeps the next one's aligned.
fn scratch_length(codec: CodecId) -> usize {
    scratch_bytes(codec).next_multiple_of(SCRATCH_ALIGN_BYTES)
}

/// Whether two pages differ. All of them is looked at, so that it takes no branches.
fn differ(one: &Page, other: &Page) -> bool {
    one.words().iter().zip(other.words()).fold(0, |all, (one, other)| all | one ^ other) != 0
}

impl Process {
    /// Begins to record.
    pub(crate) fn record_began(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.tell(Message::Began);
        }
    }

    /// Brings a page in, in the place of the oldest of the window. Gives 1.
    pub(crate) fn bring_in_recorded(&mut self, page: u64) -> usize {
        self.narrow_window();
        let is_fresh = self.engine.cache.index.get(page).is_absent();
        let pages = self.bring_in_run(page, 1, Keep::Nothing);
        let contents = if is_fresh { &self.zeros } else { &self.incoming };
        let contents = &Self::pages_of(contents)[0];
        if self.engine.cache.index.get(page).is_resident()
            && let Some(recorder) = &mut self.recorder
        {
            recorder.came(page, is_fresh, contents);
        }
        pages
    }

    /// Has the oldest pages leave until there is room for one in the window.
    fn narrow_window(&mut self) {
        self.recorder.take_if(|recorder| recorder.is_over);
        let mut kept = 0;
        while let Some(recorder) = &mut self.recorder
            && recorder.count >= recorder.window
            && kept < KEPT_MAX
        {
            let page = recorder.stay(0).page;
            if page != GONE {
                self.lift_alone(page);
            }
            let Some(recorder) = &mut self.recorder else { return };
            if recorder.stay(0).page == GONE {
                recorder.drop_oldest();
            } else {
                kept += 1;
                recorder.tell_in_place(0, page);
                recorder.turn_oldest();
            }
        }
    }

    /// Swaps a page out if it may leave.
    fn lift_alone(&mut self, page: u64) {
        let may_leave = self.regions.find(page).is_some_and(|region| region.may_leave());
        if may_leave && self.threads.hold_end(page).is_none() {
            self.swap_out_runs(&[page]);
        }
    }

    /// Records that a page has left, as it is.
    pub(crate) fn record_left(&mut self, page: u64, contents: &Page) {
        if let Some(recorder) = &mut self.recorder
            && let Some(at) = recorder.find(page)
        {
            recorder.tell_stay(at, contents);
            recorder.stay(at).page = GONE;
        }
    }

    /// Records that a page is there whose memory has come into management, as if it came now.
    pub(crate) fn record_adopted(&mut self, page: u64) {
        self.narrow_window();
        let is_there = self.engine.cache.index.get(page).is_resident();
        let Some(recorder) = self.recorder.as_mut().filter(|_| is_there) else { return };
        if recorder.find(page).is_none() {
            let now = recorder.copy_in(STAYS_MAX);
            now.0.fill(0);
            let _ = process::peek(page as usize * PAGE_BYTES, &mut now.0);
            recorder.came(page, true, now);
        }
    }

    /// Records that nothing is known of `pages` any more.
    pub(crate) fn record_released(&mut self, pages: &Pages) {
        let Some(recorder) = &mut self.recorder else { return };
        for at in 0..recorder.count {
            let stay = recorder.stay(at);
            if pages.contains(&stay.page) {
                stay.page = GONE;
            }
        }
        let (first, pages) = (pages.start, pages.end - pages.start);
        recorder.tell(Message::Released { first, pages });
    }

    /// Records that the kernel has moved what was at `from` to `to`, where the index has it already:
    /// as it is released there, it is not known here.
    pub(crate) fn record_moved(&mut self, from: &Pages, to: &Pages) {
        let Some(recorder) = &mut self.recorder else { return };
        for at in 0..recorder.count {
            let page = recorder.stay(at).page;
            let moved = to.start + page.wrapping_sub(from.start);
            if from.contains(&page) && moved < to.end {
                recorder.tell_in_place(at, moved);
                recorder.stay(at).page = moved;
            }
        }
        let mut page = to.start;
        while let Some(known) = self.engine.cache.index.next_known(page, to.end) {
            recorder.set_known(known, false);
            page = known + 1;
        }
        self.record_released(from);
    }

    /// In a forked child: what it has in its window it got from its parent.
    pub(crate) fn record_forked(&mut self) {
        let Some(recorder) = &mut self.recorder else { return };
        recorder.tell(Message::Began);
        recorder.known.release(0, recorder.known.bytes());
        for at in 0..recorder.count {
            let (stay, place) = (recorder.stay(at), recorder.place(at));
            stay.is_told = true;
            if stay.page != GONE {
                // What cannot be read now is compared with how it came to the parent.
                let copy = recorder.copy_in(place);
                let _ = process::peek(stay.page as usize * PAGE_BYTES, &mut copy.0);
            }
        }
    }

    /// Records how everything in the window is, as the process may be over in a moment.
    pub(crate) fn record_window(&mut self) {
        let Some(recorder) = &mut self.recorder else { return };
        for at in 0..recorder.count {
            let page = recorder.stay(at).page;
            if page != GONE {
                recorder.tell_in_place(at, page);
            }
        }
    }

    /// Records the end of the process.
    pub(crate) fn record_end(&mut self) {
        self.record_window();
        if let Some(recorder) = &mut self.recorder {
            recorder.tell(Message::Ended);
        }
    }
}
