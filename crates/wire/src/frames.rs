//! Pages that several processes of a run share since a fork: how many hold each.
//!
//! A table of words in the run's shared mapping. A page that a fork has given to
//! two processes takes a word, its frame; each of them notes the frame with the
//! page and counts in it as one holder. Whoever writes the page, or drops it,
//! leaves the frame; the last one frees it. Source: the map counts of the Linux
//! kernel (mm/rmap.c), which it does not tell a process.
//!
//! A frame's page may be given a name, in a second word, by which its holders find a copy of it in the store. It may be
//! that of a page of an earlier life for a moment: who uses it compares the content.
//!
//! Which frames a process holds is also noted in bits of its slot, so that the
//! holds of one that was killed, or has become another program, can be taken away
//! by others ([`Tables::leave_all`]).
//!
//! Invariants: a frame with holders is one page of RAM, counted once in
//! [`Usage::shared_bytes`]. A process has the bit of a frame exactly while it is
//! one of its holders, but for the moment between the two steps; a child that has
//! not begun has those of its slot, which its parent has claimed. A frame's generation goes up when it is freed, so a name of
//! its earlier life changes nothing.
//!
//! Every operation is one atomic step on one word, and a word guards no other
//! memory: all of them are relaxed, but for the counts of frames that came to have one
//! holder and that were given, which are seen after that. A process that is killed between two steps
//! leaves one page behind that stays counted: the sum may be too high then, never
//! too low.
//!
//! Bad case: more shared pages than frames. The others are counted once a holder.

use core::num::NonZeroU32;
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::kin::{self, Kin};
use crate::{Control, MAX_PROCESSES, ProcessSlot, Usage};

const HOLDERS: u32 = (1 << 16) - 1;
/// A holder gave the page to make room.
const GIVEN: u32 = 1 << 24;
/// A holder is about to.
const BEGUN: u32 = 1 << 25;
const GENERATION_AT: u32 = 16;
const GENERATION_MASK: u32 = 0xff;
const NUMBER_BITS: u32 = 24;
/// Frames beyond the pages of the budget, for a budget that is exceeded.
const SPARE: usize = 4096;
/// Number 0 is none, and the last is left out so that no name has all bits set.
const FRAMES_MAX: usize = (1 << NUMBER_BITS) - 1;
const PAGE_BYTES: u64 = 4096;
const BITS: usize = u64::BITS as usize;
/// So many of the pages with names are known, the last: one for each two frames, in four words.
const COMMON_PART: usize = 2;
const COMMON_WORDS: usize = 4;

/// The name of a shared page: a number and the generation in which it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame(NonZeroU32);

impl Frame {
    /// The frame whose [`Frame::raw`] was kept; `None` for 0.
    pub const fn from_raw(raw: u32) -> Option<Frame> {
        match NonZeroU32::new(raw) {
            Some(raw) => Some(Frame(raw)),
            None => None,
        }
    }

    /// A number that is neither 0 nor `u32::MAX`.
    pub const fn raw(self) -> u32 {
        self.0.get()
    }

    fn number(self) -> usize {
        self.raw() as usize & FRAMES_MAX
    }

    fn generation(self) -> u32 {
        self.raw() >> NUMBER_BITS
    }
}

/// What a holder left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Others hold the frame still.
    Others,
    /// Nobody: the frame is free.
    Nobody,
    /// The name is of an earlier life of the frame: the page is not counted as shared.
    Void,
}

/// What spares searches in the table; zero at first.
#[derive(Debug, Default)]
#[repr(C)]
pub struct FrameHints {
    /// No frame below it is likely to be free.
    free: AtomicU32,
    /// How often a frame came to have one holder.
    alone: AtomicU32,
    /// How often a holder gave one to make room.
    given: AtomicU32,
}

/// The table.
#[derive(Debug, Clone, Copy)]
pub struct Frames<'a> {
    hints: &'a FrameHints,
    words: &'a [AtomicU32],
    /// Of each frame; none where frames have none.
    names: &'a [AtomicU64],
}

/// Frames of a run whose budget is at most so much, a multiple of 64.
const fn frames_for(most_bytes: u64) -> usize {
    let wanted = (most_bytes / PAGE_BYTES) as usize + SPARE;
    let most = if wanted < FRAMES_MAX { wanted } else { FRAMES_MAX };
    most / BITS * BITS
}

/// Bytes of the tables of a run whose budget is at most so much.
pub(crate) const fn tables_bytes(most_bytes: u64) -> usize {
    let frames = frames_for(most_bytes);
    let holds = MAX_PROCESSES * (frames / BITS);
    let words = holds + frames + common_words(frames);
    frames * size_of::<AtomicU32>() + words * size_of::<AtomicU64>() + kin::table_bytes(frames)
}

/// Words in which it is noted where pages are in the store that processes have in common.
const fn common_words(frames: usize) -> usize {
    frames * COMMON_WORDS / COMMON_PART
}

/// The frames a process holds, a bit each.
#[derive(Debug, Clone, Copy)]
pub struct Holds<'a> {
    words: &'a [AtomicU64],
}

impl<'a> Holds<'a> {
    /// Of the words that [`Holds::words`] gave.
    pub const fn new(words: &'a [AtomicU64]) -> Self {
        Holds { words }
    }

    /// The words.
    pub fn words(&self) -> &'a [AtomicU64] {
        self.words
    }

    /// Notes that the process holds a frame.
    pub fn set(&self, frame: Frame) {
        if let Some(word) = self.words.get(frame.number() / BITS) {
            word.fetch_or(1 << (frame.number() % BITS), Relaxed);
        }
    }

    /// Notes that it does not.
    pub fn clear(&self, frame: Frame) {
        if let Some(word) = self.words.get(frame.number() / BITS) {
            word.fetch_and(!(1 << (frame.number() % BITS)), Relaxed);
        }
    }
}

/// The frames of a run and who holds them: what lies behind [`Control`] in the mapping.
#[derive(Debug, Clone, Copy)]
pub struct Tables<'a> {
    /// The frames.
    pub frames: Frames<'a>,
    /// Those of pages of processes that are entered together.
    pub kin: Kin<'a>,
    /// Where pages are in the store that processes have in common.
    pub common: &'a [AtomicU64],
    holds: &'a [AtomicU64],
}

impl<'a> Tables<'a> {
    /// The tables of a run.
    ///
    /// # Safety
    /// Behind `control` lie [`Control::mapping_bytes`] less its own, zero at first, which are used
    /// for nothing else.
    pub unsafe fn behind(control: &'a Control) -> Self {
        let frames = frames_for(control.settings.most_bytes);
        let start = core::ptr::from_ref(control).wrapping_add(1).cast::<AtomicU32>();
        let holds_length = MAX_PROCESSES * (frames / BITS);
        // SAFETY: the caller's promise; a block is a multiple of 8 long, and so are the frames' words.
        let (words, holds, names, common, kin) = unsafe {
            let holds = start.add(frames).cast::<AtomicU64>();
            let names = holds.add(holds_length);
            let common = names.add(frames);
            (
                core::slice::from_raw_parts(start, frames),
                core::slice::from_raw_parts(holds, holds_length),
                core::slice::from_raw_parts(names, frames),
                core::slice::from_raw_parts(common, common_words(frames)),
                Kin::at(common.add(common_words(frames)), frames),
            )
        };
        let frames = Frames::new(&control.frame_hints, words).with_names(names);
        Tables { frames, kin, common, holds }
    }

    /// Tables without a frame.
    pub fn empty(control: &'a Control) -> Self {
        let frames = Frames::new(&control.frame_hints, &[]);
        Tables { frames, kin: Kin::EMPTY, common: &[], holds: &[] }
    }

    /// What the process of a slot holds. Nothing is noted for a slot that is not the run's.
    pub fn holds_of(&self, control: &Control, slot: &ProcessSlot) -> Holds<'a> {
        let length = self.frames.words.len() / BITS;
        let start = control.processes.index_of(slot).map_or(0, |index| index * length);
        let words = self.holds.get(start..start + length).unwrap_or(&[]);
        let is_known = control.processes.index_of(slot).is_some();
        Holds { words: if is_known { words } else { &[] } }
    }

    /// Takes away all that a process holds, which holds nothing more by itself.
    pub fn leave_all(&self, holds: Holds<'_>, usage: &Usage) {
        let mut freed = 0;
        for (at, word) in holds.words.iter().enumerate() {
            let mut bits = word.swap(0, Relaxed);
            while bits != 0 {
                let number = at * BITS + bits.trailing_zeros() as usize;
                freed += u64::from(self.frames.leave(self.frames.present(number)) == Left::Nobody);
                bits &= bits - 1;
            }
        }
        usage.shared_bytes.fetch_sub(freed * PAGE_BYTES, Relaxed);
    }
}

impl<'a> Frames<'a> {
    /// A table of `words`, zero at first, and its hints.
    pub fn new(hints: &'a FrameHints, words: &'a [AtomicU32]) -> Self {
        Frames { hints, words: &words[..words.len().min(FRAMES_MAX)], names: &[] }
    }

    /// The same with a word for each frame's name, zero at first.
    #[must_use]
    pub fn with_names(self, names: &'a [AtomicU64]) -> Self {
        Frames { names, ..self }
    }

    /// What the holders of a frame call its page: 0 until one of them gives it a name, which all of them keep.
    pub fn name(&self, frame: Frame) -> Option<&'a AtomicU64> {
        self.names.get(frame.number())
    }

    /// A frame with two holders. `None`: there is no free one; that took a look at every word.
    pub fn share(&self) -> Option<Frame> {
        self.take(2)
    }

    /// A frame with one holder, for a page of which it is not known who else has it. `None` as for
    /// [`Frames::share`].
    pub fn begin(&self) -> Option<Frame> {
        self.take(1).inspect(|_| self.count_alone())
    }

    fn take(&self, holders: u32) -> Option<Frame> {
        let hint = self.hints.free.load(Relaxed);
        let start = (hint as usize).clamp(1, self.words.len().max(1));
        let number = (start..self.words.len()).chain(1..start).find(|&at| {
            let word = self.words[at].load(Relaxed);
            word & HOLDERS == 0
                && self.words[at].compare_exchange(word, word | holders, Relaxed, Relaxed).is_ok()
        })?;
        // Nobody else knows that the frame has holders.
        self.names.get(number).into_iter().for_each(|name| name.store(0, Relaxed));
        // Fails when another process moved it meanwhile, whose word is as good.
        let _ = self.hints.free.compare_exchange(hint, number as u32 + 1, Relaxed, Relaxed);
        Some(self.present(number))
    }

    /// One more holder of a frame that the caller holds. False when that cannot be counted.
    #[must_use]
    pub fn hold(&self, frame: Frame) -> bool {
        self.change(frame, |holders| (holders < HOLDERS).then_some(holders + 1)).is_ok()
    }

    /// The caller holds the frame no longer.
    pub fn leave(&self, frame: Frame) -> Left {
        match self.change(frame, |holders| holders.checked_sub(1)) {
            Ok(1) => Left::Nobody,
            Ok(2) => {
                self.count_alone();
                Left::Others
            }
            Ok(_) => Left::Others,
            Err(_) => Left::Void,
        }
    }

    /// A holder gives the page to make room, which is gained once the others do too.
    pub fn give(&self, frame: Frame) {
        let given = self.update(frame, |word| (word & GIVEN == 0).then_some(word | GIVEN));
        if given.is_ok() {
            self.hints.given.fetch_add(1, Release);
        }
    }

    /// A holder begins to give the page: what the others may find of it is not there yet.
    pub fn begin_giving(&self, frame: Frame) {
        let _ = self.update(frame, |word| Some(word | BEGUN));
    }

    /// Whether a holder has begun, and has not given it so far; one that was killed meanwhile never does.
    pub fn is_begun(&self, frame: Frame) -> bool {
        self.word(frame) & (BEGUN | GIVEN) == BEGUN
    }

    /// How often one did, modulo 2^32. While that stays there is nothing more to give after them.
    pub fn times_given(&self) -> u32 {
        self.hints.given.load(Acquire)
    }

    /// Whether a holder has.
    pub fn is_given(&self, frame: Frame) -> bool {
        self.word(frame) & GIVEN != 0
    }

    /// How often a frame came to have one holder, modulo 2^32. While that stays there is none to
    /// [claim](Self::claim) for who found none since.
    pub fn times_alone(&self) -> u32 {
        self.hints.alone.load(Acquire)
    }

    /// Counted after the holder has left: who sees the count sees that.
    fn count_alone(&self) {
        self.hints.alone.fetch_add(1, Release);
    }

    /// Frees a frame that the caller alone holds. False when there are others.
    #[must_use]
    pub fn claim(&self, frame: Frame) -> bool {
        self.change(frame, |holders| (holders == 1).then_some(0)).is_ok()
    }

    /// How many hold the frame; 0 when it is void.
    pub fn holders(&self, frame: Frame) -> u32 {
        self.word(frame) & HOLDERS
    }

    /// The word of a frame; 0 when it is void.
    fn word(&self, frame: Frame) -> u32 {
        let word = self.words[frame.number()].load(Relaxed);
        if generation(word) == frame.generation() { word } else { 0 }
    }

    /// The present name of a frame that has holders.
    fn present(&self, number: usize) -> Frame {
        let generation = generation(self.words[number].load(Relaxed));
        let raw = generation << NUMBER_BITS | number as u32;
        Frame(NonZeroU32::new(raw).unwrap_or(NonZeroU32::MAX))
    }

    /// Replaces the number of holders; gives what it was.
    fn change(&self, frame: Frame, change: impl Fn(u32) -> Option<u32>) -> Result<u32, ()> {
        let before = self.update(frame, |word| {
            change(word & HOLDERS)
                .map(|holders| if holders == 0 { freed(word) } else { word & !HOLDERS | holders })
        })? & HOLDERS;
        if before == 1 && self.words[frame.number()].load(Relaxed) & HOLDERS == 0 {
            self.hints.free.fetch_min(frame.number() as u32, Relaxed);
        }
        Ok(before)
    }

    /// Replaces the word of a frame that has holders; gives what it was.
    fn update(&self, frame: Frame, change: impl Fn(u32) -> Option<u32>) -> Result<u32, ()> {
        let change = |word| {
            let has_holders = generation(word) == frame.generation() && word & HOLDERS != 0;
            has_holders.then(|| change(word)).flatten()
        };
        self.words[frame.number()].fetch_update(Relaxed, Relaxed, change).map_err(|_| ())
    }
}

fn generation(word: u32) -> u32 {
    word >> GENERATION_AT & GENERATION_MASK
}

/// The word of the same frame, free, in its next generation.
fn freed(word: u32) -> u32 {
    ((generation(word) + 1) & GENERATION_MASK) << GENERATION_AT
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    fn words(count: usize) -> Vec<AtomicU32> {
        (0..count).map(|_| AtomicU32::new(0)).collect()
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Share,
        Hold(usize),
        Leave(usize),
        Claim(usize),
        BeginGiving(usize),
        Give(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => Just(Step::Share),
            3 => any::<usize>().prop_map(Step::Hold),
            8 => any::<usize>().prop_map(Step::Leave),
            3 => any::<usize>().prop_map(Step::Claim),
            2 => any::<usize>().prop_map(Step::BeginGiving),
            2 => any::<usize>().prop_map(Step::Give),
        ];
        prop::collection::vec(step, 1..300)
    }

    proptest! {
        #[test]
        fn behaves_as_a_map_of_counts(steps in steps()) {
            let (hints, words) = (FrameHints::default(), words(24));
            let frames = Frames::new(&hints, &words);
            let mut model: BTreeMap<u32, u32> = BTreeMap::new();
            let mut void: Vec<Frame> = Vec::new();
            let mut given: Vec<u32> = Vec::new();
            let mut begun: Vec<u32> = Vec::new();
            let pick = |model: &BTreeMap<u32, u32>, at: usize| {
                let raw = *model.keys().nth(at.checked_rem(model.len())?)?;
                Frame::from_raw(raw)
            };
            for step in steps {
                let alone = |model: &BTreeMap<u32, u32>| {
                    model.values().filter(|holders| **holders == 1).count()
                };
                let (times_alone, were_alone) = (frames.times_alone(), alone(&model));
                match step {
                    Step::Share => match frames.share() {
                        Some(frame) => prop_assert_eq!(model.insert(frame.raw(), 2), None),
                        None => prop_assert_eq!(model.len(), 23),
                    },
                    Step::Hold(at) => if let Some(frame) = pick(&model, at) {
                        prop_assert!(frames.hold(frame));
                        *model.get_mut(&frame.raw()).unwrap() += 1;
                    },
                    Step::Leave(at) => if let Some(frame) = pick(&model, at) {
                        let count = model.get_mut(&frame.raw()).unwrap();
                        *count -= 1;
                        let expected = if *count == 0 { Left::Nobody } else { Left::Others };
                        if *count == 0 {
                            model.remove(&frame.raw());
                            void.push(frame);
                        }
                        prop_assert_eq!(frames.leave(frame), expected);
                    },
                    Step::BeginGiving(at) => if let Some(frame) = pick(&model, at) {
                        frames.begin_giving(frame);
                        begun.push(frame.raw());
                    },
                    Step::Give(at) => if let Some(frame) = pick(&model, at) {
                        let times_given = frames.times_given();
                        frames.give(frame);
                        let is_new = !given.contains(&frame.raw());
                        prop_assert_eq!(frames.times_given() != times_given, is_new);
                        given.push(frame.raw());
                    },
                    Step::Claim(at) => if let Some(frame) = pick(&model, at) {
                        let is_alone = model[&frame.raw()] == 1;
                        prop_assert_eq!(frames.holders(frame), model[&frame.raw()]);
                        prop_assert_eq!(frames.claim(frame), is_alone);
                        if is_alone {
                            model.remove(&frame.raw());
                            void.push(frame);
                        }
                    },
                }
                let is_counted = frames.times_alone() != times_alone;
                prop_assert!(is_counted || alone(&model) <= were_alone);
                // Names come back after 256 generations; so many steps do not get there.
                for frame in &void {
                    prop_assert!(!frames.hold(*frame) && !frames.claim(*frame));
                    prop_assert_eq!(frames.leave(*frame), Left::Void);
                    frames.give(*frame);
                    prop_assert!(!frames.is_given(*frame));
                }
                for raw in model.keys() {
                    let [is_given, is_begun] = [Frames::is_given, Frames::is_begun]
                        .map(|is| Frame::from_raw(*raw).is_some_and(|frame| is(&frames, frame)));
                    prop_assert_eq!(is_given, given.contains(raw));
                    prop_assert_eq!(is_begun, begun.contains(raw) && !given.contains(raw));
                }
                let held: u32 = words.iter().map(|word| word.load(Relaxed) & HOLDERS).sum();
                prop_assert_eq!(held, model.values().sum::<u32>());
            }
        }
    }

    #[test]
    fn of_two_that_leave_at_once_one_is_the_last() {
        let (hints, words) = (FrameHints::default(), words(1000));
        let frames = Frames::new(&hints, &words);
        for _ in 0..20 {
            let shared: Vec<Frame> = std::iter::from_fn(|| frames.share()).collect();
            assert_eq!(shared.len(), 999);
            let leave = || {
                let left = |frame: &&Frame| frames.leave(**frame) == Left::Nobody;
                shared.iter().filter(left).count()
            };
            let lasts = std::thread::scope(|scope| {
                let other = scope.spawn(leave);
                leave() + other.join().unwrap()
            });
            assert_eq!(lasts, 999);
        }
    }

    #[test]
    fn no_frame_is_given_twice_at_once() {
        let (hints, words) = (FrameHints::default(), words(4000));
        let frames = Frames::new(&hints, &words);
        let take = || std::iter::from_fn(|| frames.share()).collect::<Vec<Frame>>();
        let mut all = std::thread::scope(|scope| {
            let other = scope.spawn(take);
            let mut all = take();
            all.extend(other.join().unwrap());
            all
        });
        let count = all.len();
        all.sort_by_key(|frame| frame.raw());
        all.dedup();
        assert_eq!((count, all.len()), (3999, 3999));
    }

    #[test]
    fn a_frame_has_no_name_when_its_life_begins() {
        let (hints, words) = (FrameHints::default(), words(3));
        let names: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
        let frames = Frames::new(&hints, &words).with_names(&names);
        for (life, begin) in [Frames::share, Frames::begin, Frames::share].iter().enumerate() {
            let all = [begin(&frames), begin(&frames)].map(|frame| frame.expect("a free frame"));
            for (at, frame) in all.into_iter().enumerate() {
                let name = frames.name(frame).expect("a name for each");
                assert_eq!(name.swap((10 * life + at) as u64 + 1, Relaxed), 0);
            }
            for frame in all {
                while frames.leave(frame) == Left::Others {}
            }
        }
        let nameless = Frames::new(&hints, &words);
        assert!(nameless.share().is_some_and(|frame| nameless.name(frame).is_none()));
    }

    /// A control block with its tables behind it, as words.
    fn mapping(most_bytes: u64) -> Vec<u64> {
        // SAFETY: settings are numbers only.
        let mut settings: crate::Settings = unsafe { core::mem::zeroed() };
        settings.most_bytes = most_bytes;
        let mut words = std::vec![0u64; Control::mapping_bytes(most_bytes).div_ceil(8)];
        // SAFETY: long enough and aligned.
        unsafe { words.as_mut_ptr().cast::<Control>().write(Control::new(settings)) };
        words
    }

    #[test]
    fn what_a_killed_process_held_is_left_once() {
        let words = mapping(1 << 20);
        // SAFETY: made above.
        let (control, tables) = unsafe {
            let control = &*words.as_ptr().cast::<Control>();
            (control, Tables::behind(control))
        };
        let slots = [7, 8].map(|pid| control.processes.claim(pid).expect("a slot"));
        let holds = slots.map(|slot| tables.holds_of(control, slot));
        let shared: Vec<Frame> = (0..300).filter_map(|_| tables.frames.share()).collect();
        control.usage.shared_bytes.store(300 * PAGE_BYTES, Relaxed);
        for frame in &shared {
            holds.iter().for_each(|holds| holds.set(*frame));
        }
        for frame in &shared[..100] {
            holds[0].clear(*frame);
            assert_eq!(tables.frames.leave(*frame), Left::Others);
        }
        for _ in 0..2 {
            control.retire(&tables, slots[1], 8);
            assert_eq!(control.usage.total_bytes(), 200 * PAGE_BYTES);
        }
        assert!(shared[100..].iter().all(|frame| tables.frames.claim(*frame)));
        assert!(shared[..100].iter().all(|frame| tables.frames.holders(*frame) == 0));
    }
}
