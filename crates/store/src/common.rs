//! Pages that processes have in common since a fork, and where one of them has put such a page, so that the others
//! need not write it once more.
//!
//! Who forks has the pages of a parent in as many processes as there are children. Each of them gives such a
//! page by itself, and the first whose copy comes to the store notes here where that lies. The others find it, and
//! take one more reference to the same record ([`Clusters::hold`](crate::Clusters::hold)).
//!
//! A page is known by a number that is given once in a run. Who has the number may have another page all the same:
//! one that a debugger has written to, or that was taken for the same when processes were entered together. So a
//! checksum of the content is kept (XXH3, 64 bits), and nobody uses the number for a page that differs.
//!
//! Source: the swap cache of Linux, in which all processes that have a page find the slot that the first of them gave
//! it (mm/swap_state.c); there by the page itself, which is the same for all of them.
//!
//! Invariants: a number has a slot from when it is given, until a higher one takes that, for good. In it there
//! is a record from the first note on, which stays the same; it may be gone by now, as nobody's reference is held here.
//! A slot whose number is marked is being written by one process, and belongs to nobody if that was killed.
//!
//! Bad for: pages whose first copy is freed before the others give theirs: each of these writes its own.

use core::num::NonZeroU64;
use core::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
    fence,
};

use xxhash_rust::xxh3::xxh3_64;

use crate::Place;

/// Being written.
const MARK: u64 = 1 << 63;

/// A page that several processes have, by its number, which is below 2 to the power of [`CommonPage::BITS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommonPage(NonZeroU64);

impl CommonPage {
    /// Width of [`CommonPage::raw`] in bits.
    pub const BITS: u32 = 61;

    /// The page of this number. `None` for 0, and where no more pages can be told apart.
    pub fn from_raw(number: u64) -> Option<Self> {
        NonZeroU64::new(number).filter(|_| number >> Self::BITS == 0).map(CommonPage)
    }

    /// Its number.
    pub const fn raw(self) -> u64 {
        self.0.get()
    }
}

/// Where a copy of a common page lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommonRecord {
    /// The record.
    pub place: Place,
    /// What its data are, as the caller tells them apart.
    pub kind: u8,
    /// How many times its cluster had been claimed, at least once.
    pub generation: u32,
}

/// What is known of a common page.
#[derive(Debug)]
#[repr(C)]
struct Slot {
    number: AtomicU64,
    checksum: AtomicU64,
    /// The generation, and then the place with the kind; 0 where there is no record yet.
    generation: AtomicU64,
    place: AtomicU64,
}

/// The common pages of a run that were given numbers last.
#[derive(Debug, Clone, Copy)]
pub struct CommonPages<'a> {
    slots: &'a [Slot],
}

impl<'a> CommonPages<'a> {
    /// Words of a slot.
    pub const SLOT_WORDS: usize = size_of::<Slot>() / size_of::<AtomicU64>();

    /// Nothing is known, or will be.
    pub const NONE: CommonPages<'static> = CommonPages { slots: &[] };

    /// Those in `words`, zero at first, which all processes of a run share.
    pub const fn new(words: &'a [AtomicU64]) -> Self {
        let slots = words.len() / Self::SLOT_WORDS;
        // SAFETY: a slot is as many words, of which any are one.
        CommonPages { slots: unsafe { core::slice::from_raw_parts(words.as_ptr().cast(), slots) } }
    }

    fn slot(&self, page: CommonPage) -> Option<&'a Slot> {
        self.slots.get(page.raw().checked_rem(self.slots.len() as u64)? as usize)
    }

    /// Gives a page its number, which no other page has been given or will be. Of an older page that has the same
    /// slot nothing is known any more. False where there is no slot for it, and nothing will be known of it.
    #[must_use]
    pub fn begin(&self, page: CommonPage, content: &[u8]) -> bool {
        let Some(slot) = self.slot(page) else { return false };
        let before = slot.number.load(Relaxed);
        let (number, marked) = (page.raw(), page.raw() | MARK);
        let is_free = before & MARK == 0 && before < number;
        if !is_free || slot.number.compare_exchange(before, marked, Relaxed, Relaxed).is_err() {
            return false;
        }
        // Who sees a part of what follows sees the mark when it looks again.
        fence(Release);
        slot.place.store(0, Relaxed);
        slot.checksum.store(xxh3_64(content), Relaxed);
        slot.number.store(number, Release);
        true
    }

    /// What `read` finds in the slot of a page, while it is that.
    fn look<R>(&self, page: CommonPage, read: impl FnOnce(&Slot) -> R) -> Option<R> {
        let slot = self.slot(page)?;
        if slot.number.load(Acquire) != page.raw() {
            return None;
        }
        let found = read(slot);
        // Once a higher number has come this one does not come back.
        fence(Acquire);
        (slot.number.load(Relaxed) == page.raw()).then_some(found)
    }

    /// Whether this is the content of a page; not where that is not known any more.
    pub fn is_content(&self, page: CommonPage, content: &[u8]) -> bool {
        let checksum = self.look(page, |slot| slot.checksum.load(Relaxed));
        checksum.is_some_and(|checksum| checksum == xxh3_64(content))
    }

    /// Notes where a copy of a page lies, unless one is known already.
    pub fn note(&self, page: CommonPage, record: CommonRecord) {
        let Some(slot) = self.slot(page) else { return };
        if self.find(page).is_some() {
            return;
        }
        let (number, marked) = (page.raw(), page.raw() | MARK);
        if slot.number.compare_exchange(number, marked, AcqRel, Relaxed).is_ok() {
            // Two that note come one after the other.
            if slot.place.load(Relaxed) == 0 {
                let place = record.place.raw() | u64::from(record.kind) << Place::BITS;
                slot.generation.store(record.generation.into(), Relaxed);
                slot.place.store(place, Release);
            }
            slot.number.store(number, Release);
        }
    }

    /// Where the copy of a page lies that was noted, which may be gone: for [`Clusters::hold`](crate::Clusters::hold).
    pub fn find(&self, page: CommonPage) -> Option<CommonRecord> {
        // The generation is there before the place.
        let words = |slot: &Slot| (slot.place.load(Acquire), slot.generation.load(Relaxed));
        let (place, generation) = self.look(page, words)?;
        (place != 0).then(|| CommonRecord {
            place: Place::from_raw(place),
            kind: (place >> Place::BITS) as u8,
            generation: generation as u32,
        })
    }
}

const _: () =
    assert!(Place::BITS + u8::BITS <= u64::BITS && CommonPage::BITS < MARK.trailing_zeros());

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;
    use zpager_seed::random;

    fn words(slots: usize) -> Vec<AtomicU64> {
        (0..slots * CommonPages::SLOT_WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    fn page(number: u64) -> CommonPage {
        CommonPage::from_raw(number).expect("a number of a page")
    }

    /// A record by which its page is known.
    fn record_of(page: CommonPage) -> CommonRecord {
        let number = page.raw();
        CommonRecord {
            place: Place::new(number * 4096, 1 + number as usize % 4096),
            kind: (number % 256) as u8,
            generation: number as u32 ^ 0x5555,
        }
    }

    /// Gives out a number, if it has a slot.
    fn begin(pages: &CommonPages<'_>, number: u64) -> CommonPage {
        let _ = pages.begin(page(number), &number.to_le_bytes());
        page(number)
    }

    #[test]
    fn the_first_copy_is_found_until_a_newer_page_has_its_slot() {
        let words = words(8);
        let pages = CommonPages::new(&words);
        pages.note(page(3), record_of(page(3)));
        assert_eq!(pages.find(page(3)), None, "it has no slot yet");
        let [old, new] = [3, 11].map(page);
        begin(&pages, 3);
        assert_eq!(pages.find(old), None);
        pages.note(old, record_of(old));
        pages.note(old, record_of(page(5)));
        assert_eq!((pages.find(old), pages.find(new)), (Some(record_of(old)), None));
        begin(&pages, 11);
        assert_eq!((pages.find(old), pages.find(new)), (None, None));
        pages.note(new, record_of(new));
        pages.note(old, record_of(old));
        begin(&pages, 3);
        assert_eq!((pages.find(old), pages.find(new)), (None, Some(record_of(new))));
    }

    #[test]
    fn another_content_is_noticed() {
        let words = words(4);
        let pages = CommonPages::new(&words);
        let (one, other) = ([1u8; 4096], [2u8; 4096]);
        assert!(!pages.is_content(page(7), &one));
        assert!(pages.begin(page(7), &one));
        assert!(pages.is_content(page(7), &one) && !pages.is_content(page(7), &other));
        pages.note(page(7), record_of(page(7)));
        assert!(pages.is_content(page(7), &one));
        assert!(pages.begin(page(11), &other) && !pages.begin(page(7), &one));
        assert!(!pages.is_content(page(7), &one) && pages.is_content(page(11), &other));
    }

    #[test]
    fn numbers_have_an_end_and_a_table_may_be_empty() {
        let last = (1 << CommonPage::BITS) - 1;
        assert_eq!(CommonPage::from_raw(last).map(CommonPage::raw), Some(last));
        assert_eq!((CommonPage::from_raw(0), CommonPage::from_raw(last + 1)), (None, None));
        begin(&CommonPages::NONE, 1);
        CommonPages::NONE.note(page(1), record_of(page(1)));
        assert!(CommonPages::NONE.find(page(1)).is_none());
    }

    #[test]
    fn who_was_killed_in_between_leaves_nothing_to_find() {
        let words = words(1);
        let pages = CommonPages::new(&words);
        begin(&pages, 1);
        words[0].store(1 | MARK, Relaxed);
        pages.note(begin(&pages, 2), record_of(page(2)));
        assert_eq!((pages.find(page(1)), pages.find(page(2))), (None, None));
    }

    /// Threads stand for processes: those that give numbers, and those that note and find.
    #[test]
    fn nobody_finds_the_record_of_another_page() {
        const PAGES: u64 = 200_000;
        // Where one processor has to do, those that find may not come to run before all numbers are given.
        const FINDS: u64 = 1_000;
        const PAGES_AT_MOST: u64 = 1 << 32;
        let words = words(4);
        let pages = CommonPages::new(&words);
        let given = AtomicU64::new(1);
        let found = AtomicU64::new(0);
        let goes_on = || {
            let (given, found) = (given.load(Relaxed), found.load(Relaxed));
            given < PAGES || (found < FINDS && given < PAGES_AT_MOST)
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while goes_on() {
                        let page = begin(&pages, given.fetch_add(1, Relaxed));
                        pages.note(page, record_of(page));
                    }
                });
            }
            for seed in 11..13 {
                let (pages, given, found, goes_on) = (&pages, &given, &found, &goes_on);
                scope.spawn(move || {
                    let mut random = random(seed);
                    while goes_on() {
                        let page = page(given.load(Relaxed).saturating_sub(random.u64(..6)).max(1));
                        pages.note(page, record_of(page));
                        let record = pages.find(page);
                        found.fetch_add(record.is_some().into(), Relaxed);
                        assert!(record.is_none_or(|record| record == record_of(page)));
                        let number = page.raw();
                        assert!(!pages.is_content(page, &(number + 1).to_le_bytes()));
                    }
                });
            }
        });
        assert!(found.into_inner() >= FINDS);
    }
}
