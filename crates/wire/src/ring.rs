//! The ring through which the agents of a recorded run tell the command what they see.
//!
//! A mapping of its own, made only for a recorded run: [`Ring`], and behind it the words of
//! the messages. One agent at a time writes, the one whose process is the owner; the command
//! alone reads. Who finds no room waits, so nothing is lost and memory is bounded.
//!
//! Invariants: `head <= tail <= head + words`. The words from `head` to `tail` are whole
//! messages. `tail` moves by one store, after the message is there, so a process that is
//! killed leaves no half of one; its ownership is taken away by the command
//! ([`Messages::disown`]).
//!
//! Bad case: many processes that fault at the same time; each waits for the others.

use core::sync::atomic::{
    AtomicI32, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Most codecs whose sizes are recorded.
pub const RECORDED_CODECS_MAX: usize = 16;
/// Longest message in words: kind, page, four sizes a word.
const MESSAGE_WORDS_MAX: usize = 2 + RECORDED_CODECS_MAX / SIZES_PER_WORD;
const SIZES_PER_WORD: usize = 4;
/// Fewest words of a ring.
const WORDS_MIN: u64 = 64;
/// Turns that an owner is awaited without a pause: it writes a few words.
const SPINS: u32 = 200;

const NOBODY: i32 = 0;

/// What is recorded, and how far the messages are written and read.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Ring {
    /// Pages that are resident at a time.
    pub window_pages: u32,
    codec_count: u32,
    codecs: [u8; RECORDED_CODECS_MAX],
    /// How many words lie behind.
    words: u64,
    closed: AtomicU32,
    /// The process that is writing, or 0.
    owner: AtomicI32,
    head: Line,
    tail: Line,
}

/// A word on a cache line of its own.
#[repr(C, align(64))]
#[derive(Debug)]
struct Line(AtomicU64);

/// What an agent tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// The process begins: a program, or a forked child. Whatever had its id before is over.
    Began,
    /// A page came into the window; `is_fresh` if nothing was there before.
    Came {
        /// The page's number.
        page: u64,
        /// It came as zeros.
        is_fresh: bool,
    },
    /// A page that came left the window, or stays longer and is as it would leave now.
    Left {
        /// The page's number.
        page: u64,
        /// Its contents are not what they were when it came.
        is_written: bool,
        /// What it is.
        contents: Contents,
    },
    /// The program gave pages back, or they are recorded no longer.
    Released {
        /// The first page's number.
        first: u64,
        /// How many.
        pages: u64,
    },
    /// The process ends.
    Ended,
}

/// What a page is when it leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// What it was when it left the last time, or nobody can tell.
    Unchanged,
    /// Every word is equal.
    SameFilled,
    /// Bytes under each of the ring's codecs; 4096 where it did not become shorter.
    Sizes(Sizes),
}

/// A size for each codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    count: u8,
    sizes: [u16; RECORDED_CODECS_MAX],
}

impl Sizes {
    /// The sizes that `size_of` gives for each of `codecs`, of which the first
    /// [`RECORDED_CODECS_MAX`] count.
    pub fn of<C: Copy>(codecs: &[C], mut size_of: impl FnMut(usize, C) -> u16) -> Self {
        let count = codecs.len().min(RECORDED_CODECS_MAX);
        let mut sizes = [0; RECORDED_CODECS_MAX];
        for (at, (place, &codec)) in sizes.iter_mut().zip(&codecs[..count]).enumerate() {
            *place = size_of(at, codec);
        }
        Sizes { count: count as u8, sizes }
    }

    /// The sizes, in the order of the ring's codecs.
    pub fn as_slice(&self) -> &[u16] {
        &self.sizes[..usize::from(self.count).min(RECORDED_CODECS_MAX)]
    }
}

/// The ring does not hold what an agent writes: the program has written over it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Garbled;

/// Kinds of messages and of contents, in the lowest byte of the first word.
const BEGAN: u64 = 1;
const CAME: u64 = 2;
const LEFT_UNCHANGED: u64 = 3;
const LEFT_SAME_FILLED: u64 = 4;
const LEFT_WITH_SIZES: u64 = 5;
const RELEASED: u64 = 6;
const ENDED: u64 = 7;
const KIND_MASK: u64 = 0xff;
/// Fresh, or written.
const FLAG: u64 = 1 << 8;
const COUNT_AT: u32 = 16;
const PID_AT: u32 = 32;

/// A message in words.
struct Encoded {
    words: [u64; MESSAGE_WORDS_MAX],
    count: usize,
}

impl Message {
    fn encode(&self, pid: i32) -> Encoded {
        let flag = |is_set: bool| if is_set { FLAG } else { 0 };
        let mut words = [0; MESSAGE_WORDS_MAX];
        let (kind, page, mut count) = match *self {
            Message::Began => (BEGAN, 0, 2),
            Message::Ended => (ENDED, 0, 2),
            Message::Came { page, is_fresh } => (CAME | flag(is_fresh), page, 2),
            Message::Released { first, pages } => {
                words[2] = pages;
                (RELEASED, first, 3)
            }
            Message::Left { page, is_written, contents } => {
                let kind = match contents {
                    Contents::Unchanged => LEFT_UNCHANGED,
                    Contents::SameFilled => LEFT_SAME_FILLED,
                    Contents::Sizes(sizes) => {
                        LEFT_WITH_SIZES | (sizes.as_slice().len() as u64) << COUNT_AT
                    }
                };
                (kind | flag(is_written), page, 2)
            }
        };
        words[0] = kind | u64::from(pid.cast_unsigned()) << PID_AT;
        words[1] = page;
        if let Message::Left { contents: Contents::Sizes(sizes), .. } = self {
            for (at, &size) in sizes.as_slice().iter().enumerate() {
                words[2 + at / SIZES_PER_WORD] |= u64::from(size) << (at % SIZES_PER_WORD * 16);
            }
            count += sizes.as_slice().len().div_ceil(SIZES_PER_WORD);
        }
        Encoded { words, count }
    }

    /// The message that begins with `first`, how many words it has, and its process; `word` gives
    /// the others.
    fn decode(first: u64, word: impl Fn(usize) -> u64) -> Result<(Message, usize, i32), Garbled> {
        let (page, flag) = (word(1), first & FLAG != 0);
        let left = |contents| Message::Left { page, is_written: flag, contents };
        let (message, count) = match first & KIND_MASK {
            BEGAN => (Message::Began, 2),
            ENDED => (Message::Ended, 2),
            CAME => (Message::Came { page, is_fresh: flag }, 2),
            RELEASED => (Message::Released { first: page, pages: word(2) }, 3),
            LEFT_UNCHANGED => (left(Contents::Unchanged), 2),
            LEFT_SAME_FILLED => (left(Contents::SameFilled), 2),
            LEFT_WITH_SIZES => {
                let count = (first >> COUNT_AT) as usize & 0xff;
                if count > RECORDED_CODECS_MAX {
                    return Err(Garbled);
                }
                let sizes = Sizes::of(&[(); RECORDED_CODECS_MAX][..count], |at, ()| {
                    (word(2 + at / SIZES_PER_WORD) >> (at % SIZES_PER_WORD * 16)) as u16
                });
                (left(Contents::Sizes(sizes)), 2 + count.div_ceil(SIZES_PER_WORD))
            }
            _ => return Err(Garbled),
        };
        Ok((message, count, (first >> PID_AT) as i32))
    }
}

impl Ring {
    /// A ring for a run that records with these codecs, of which the first [`RECORDED_CODECS_MAX`]
    /// count, and this window. `words` is raised to a power of two that has room for any message.
    pub fn new(window_pages: u32, codecs: &[u8], words: u64) -> Self {
        let count = codecs.len().min(RECORDED_CODECS_MAX);
        let mut kept = [0; RECORDED_CODECS_MAX];
        kept[..count].copy_from_slice(&codecs[..count]);
        Ring {
            window_pages,
            codec_count: count as u32,
            codecs: kept,
            words: words.max(WORDS_MIN).next_power_of_two(),
            closed: AtomicU32::new(0),
            owner: AtomicI32::new(NOBODY),
            head: Line(AtomicU64::new(0)),
            tail: Line(AtomicU64::new(0)),
        }
    }

    /// Bytes of the whole mapping.
    pub fn mapping_bytes(&self) -> usize {
        size_of::<Ring>() + self.words as usize * size_of::<AtomicU64>()
    }

    /// Numbers of the codecs whose sizes are recorded.
    pub fn codecs(&self) -> &[u8] {
        &self.codecs[..(self.codec_count as usize).min(RECORDED_CODECS_MAX)]
    }
}

/// A ring with its words.
#[derive(Debug, Clone, Copy)]
pub struct Messages<'a> {
    /// What is recorded.
    pub ring: &'a Ring,
    words: &'a [AtomicU64],
}

impl<'a> Messages<'a> {
    /// The messages of a ring.
    ///
    /// # Safety
    /// Behind `ring` lie [`Ring::mapping_bytes`] less its own, which are used for nothing else.
    pub unsafe fn behind(ring: &'a Ring) -> Self {
        let start = core::ptr::from_ref(ring).wrapping_add(1).cast::<AtomicU64>();
        // SAFETY: the caller's promise; the ring's length keeps the words aligned.
        let words = unsafe { core::slice::from_raw_parts(start, ring.words as usize) };
        Messages { ring, words }
    }

    /// Writes a message of process `pid`. Calls `wait` whenever there is no room yet or another
    /// process writes; false when that gives false, or nobody reads any more, and the message is lost.
    pub fn put(&self, pid: i32, message: &Message, mut wait: impl FnMut() -> bool) -> bool {
        let Encoded { words, count } = message.encode(pid);
        if !self.own(pid, &mut wait) {
            return false;
        }
        let tail = self.ring.tail.0.load(Relaxed);
        let has_room = || {
            let used = tail.wrapping_sub(self.ring.head.0.load(Acquire));
            used + count as u64 <= self.ring.words
        };
        while !has_room() {
            if self.is_closed() || !wait() {
                self.disown(pid);
                return false;
            }
        }
        for (at, &word) in words[..count].iter().enumerate() {
            self.word(tail + at as u64).store(word, Relaxed);
        }
        self.ring.tail.0.store(tail + count as u64, Release);
        self.disown(pid);
        true
    }

    /// Becomes the one that writes.
    fn own(&self, pid: i32, mut wait: impl FnMut() -> bool) -> bool {
        let owner = &self.ring.owner;
        let mut spins = 0;
        while owner.compare_exchange(NOBODY, pid, Acquire, Relaxed).is_err() {
            spins += 1;
            if spins < SPINS {
                core::hint::spin_loop();
            } else if self.is_closed() || !wait() {
                return false;
            }
        }
        !self.is_closed() || {
            self.disown(pid);
            false
        }
    }

    fn word(&self, at: u64) -> &'a AtomicU64 {
        &self.words[at as usize & (self.words.len() - 1)]
    }

    /// Reads the next message and the process that wrote it; for one reader.
    ///
    /// # Errors
    /// [`Garbled`] for what no agent writes.
    pub fn take(&self) -> Result<Option<(i32, Message)>, Garbled> {
        let head = self.ring.head.0.load(Relaxed);
        let used = self.ring.tail.0.load(Acquire).wrapping_sub(head);
        if used == 0 {
            return Ok(None);
        }
        let word = |at: usize| self.word(head + at as u64).load(Relaxed);
        let (message, count, pid) = Message::decode(word(0), word)?;
        if used > self.words.len() as u64 || count as u64 > used {
            return Err(Garbled);
        }
        self.ring.head.0.store(head + count as u64, Release);
        Ok(Some((pid, message)))
    }

    /// Nobody reads any more: who waits goes on without being recorded.
    pub fn close(&self) {
        self.ring.closed.store(1, Release);
    }

    /// Whether nobody reads any more.
    pub fn is_closed(&self) -> bool {
        self.ring.closed.load(Acquire) != 0
    }

    /// The process that is writing.
    pub fn owner(&self) -> Option<i32> {
        Some(self.ring.owner.load(Relaxed)).filter(|&pid| pid != NOBODY)
    }

    /// Process `pid` does not write any more, because it has written or is gone.
    pub fn disown(&self, pid: i32) {
        // Fails where it was not the owner.
        let _ = self.ring.owner.compare_exchange(pid, NOBODY, Release, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::boxed::Box;
    use std::vec;
    use std::vec::Vec;

    const CODECS: [u8; 5] = [1, 3, 4, 5, 6];

    /// A ring and its words in one piece, as in the mapping.
    struct Whole(Box<[Chunk]>);

    #[derive(Clone)]
    #[repr(align(64))]
    struct Chunk(#[allow(dead_code)] [u8; 64]);

    impl Whole {
        fn new(words: u64) -> Self {
            let ring = Ring::new(16, &CODECS, words);
            let chunks = ring.mapping_bytes().div_ceil(size_of::<Chunk>());
            let mut whole = Whole(vec![Chunk([0; 64]); chunks].into_boxed_slice());
            // SAFETY: the memory is long enough and aligned, and nobody else has it.
            unsafe { whole.0.as_mut_ptr().cast::<Ring>().write(ring) };
            whole
        }

        fn messages(&self) -> Messages<'_> {
            // SAFETY: written in `new`, with its words behind it; all that changes is atomic.
            unsafe { Messages::behind(&*self.0.as_ptr().cast::<Ring>()) }
        }
    }

    fn messages() -> impl Strategy<Value = Message> {
        let page = 0u64..1 << 36;
        let contents = prop_oneof![
            Just(Contents::Unchanged),
            Just(Contents::SameFilled),
            prop::collection::vec(1u16..=4096, 0..=RECORDED_CODECS_MAX)
                .prop_map(|sizes| Contents::Sizes(Sizes::of(&sizes, |_, size| size))),
        ];
        prop_oneof![
            Just(Message::Began),
            Just(Message::Ended),
            (page.clone(), any::<bool>())
                .prop_map(|(page, is_fresh)| Message::Came { page, is_fresh }),
            (page.clone(), 1u64..1 << 36)
                .prop_map(|(first, pages)| Message::Released { first, pages }),
            (page, any::<bool>(), contents).prop_map(|(page, is_written, contents)| {
                Message::Left { page, is_written, contents }
            }),
        ]
    }

    proptest! {
        #[test]
        fn what_was_put_is_taken_in_order(
            sent in prop::collection::vec((1i32..1 << 22, messages()), 1..200),
        ) {
            let whole = Whole::new(WORDS_MIN);
            let ring = whole.messages();
            let mut taken = Vec::new();
            for (pid, message) in &sent {
                let room = || { taken.extend(ring.take().unwrap()); true };
                prop_assert!(ring.put(*pid, message, room));
            }
            while let Some(found) = ring.take().unwrap() {
                taken.push(found);
            }
            prop_assert_eq!(taken, sent);
        }

        #[test]
        fn no_words_are_taken_for_more_than_they_are(words in prop::collection::vec(any::<u64>(), 1..64)) {
            let whole = Whole::new(WORDS_MIN);
            let ring = whole.messages();
            for (at, &word) in words.iter().enumerate() {
                ring.word(at as u64).store(word, Relaxed);
            }
            ring.ring.tail.0.store(words.len() as u64, Relaxed);
            let most = words.len();
            prop_assert!((0..=most).any(|_| !matches!(ring.take(), Ok(Some(_)))));
        }
    }

    #[test]
    fn writers_wait_for_room_and_for_each_other() {
        let whole = Whole::new(WORDS_MIN);
        let ring = whole.messages();
        let each = 20_000u64;
        let write = |pid: i32| {
            for page in 0..each {
                let yielding = || {
                    std::thread::yield_now();
                    true
                };
                assert!(ring.put(pid, &Message::Came { page, is_fresh: false }, yielding));
            }
        };
        let mut next = [0u64; 4];
        std::thread::scope(|scope| {
            (1..=3).for_each(|pid| {
                scope.spawn(move || write(pid));
            });
            while next.iter().sum::<u64>() < 3 * each {
                match ring.take().unwrap() {
                    Some((pid, Message::Came { page, .. })) => {
                        assert_eq!(page, next[pid as usize]);
                        next[pid as usize] += 1;
                    }
                    Some(other) => panic!("{other:?}"),
                    None => std::thread::yield_now(),
                }
            }
        });
        assert_eq!(ring.owner(), None);
    }

    #[test]
    fn a_dead_owner_is_put_aside() {
        let whole = Whole::new(WORDS_MIN);
        let ring = whole.messages();
        assert!(ring.own(7, || true));
        assert!(!ring.put(8, &Message::Began, || false), "another writes");
        assert_eq!(ring.owner(), Some(7));
        ring.disown(8);
        assert_eq!(ring.owner(), Some(7), "not the owner's place to give");
        ring.disown(7);
        assert!(ring.put(8, &Message::Began, || false));
        assert_eq!(ring.take(), Ok(Some((8, Message::Began))));
    }

    #[test]
    fn a_closed_ring_holds_nobody_up() {
        let whole = Whole::new(WORDS_MIN);
        let ring = whole.messages();
        let mut put = 0;
        while ring.put(5, &Message::Began, || false) {
            put += 1;
        }
        assert_eq!(put, WORDS_MIN / 2);
        ring.close();
        assert!(!ring.put(5, &Message::Began, || panic!("nothing to wait for")));
        assert_eq!(ring.owner(), None);
    }

    #[test]
    fn codecs_are_kept() {
        assert_eq!(Ring::new(1, &CODECS, 0).codecs(), CODECS);
        assert_eq!(Ring::new(1, &[2; 40], 0).codecs(), [2; RECORDED_CODECS_MAX]);
        assert_eq!(Ring::new(1, &[], 0).mapping_bytes() % 64, 0);
    }
}
