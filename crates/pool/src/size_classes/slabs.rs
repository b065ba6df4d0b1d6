//! Descriptions of slabs: which slots are free, and the lists that slabs stand in.
//!
//! One word for each page of the object space, so that a slab's words are those of the pages it
//! spans: first a header, then one bit a slot, set while the slot is free. A slab of one slot has
//! a header only. The words of 8 pages fill one cache line.
//!
//! Invariant: a slab stands in a list exactly when some of its slots are free and some are not.

use super::classes::Class;
use crate::{Space, SpaceSource, words::Words};

/// Pages that can be told apart; the last number means none.
pub(super) const PAGES_MAX: usize = NONE as usize;
const NONE: u32 = (1 << PAGE_BITS) - 1;
const PAGE_BITS: u32 = 28;

/// A list of slabs of one class, linked both ways through their headers.
#[derive(Debug, Clone, Copy)]
pub(super) struct List {
    head: u32,
}

impl List {
    pub(super) const EMPTY: Self = Self { head: NONE };

    /// First page of the slab that was put in last.
    #[inline]
    pub(super) fn head(self) -> Option<usize> {
        (self.head != NONE).then_some(self.head as usize)
    }
}

/// First word of a slab's description.
#[derive(Debug, Clone, Copy)]
struct Header {
    /// Neighbours in the list, by first page.
    next: u32,
    prev: u32,
    /// Pages that hold RAM, from the slab's first.
    touched_pages: usize,
    /// Whether a compaction empties this slab.
    evacuating: bool,
}

impl Header {
    #[inline]
    fn unpack(word: u64) -> Self {
        Self {
            next: word as u32 & NONE,
            prev: (word >> PAGE_BITS) as u32 & NONE,
            touched_pages: (word >> (2 * PAGE_BITS)) as usize & 0xf,
            evacuating: word >> 63 != 0,
        }
    }

    #[inline]
    fn pack(self) -> u64 {
        u64::from(self.next)
            | u64::from(self.prev) << PAGE_BITS
            | (self.touched_pages as u64) << (2 * PAGE_BITS)
            | u64::from(self.evacuating) << 63
    }
}

/// What became of a slab when a slot was taken.
pub(super) struct Taken {
    pub(super) slot: usize,
    /// No slot is free any more.
    pub(super) full: bool,
    /// Pages that the slot is the first to touch.
    pub(super) touched_pages: usize,
}

/// What became of a slab when a slot was given back.
pub(super) struct GivenBack {
    /// No slot was free before.
    pub(super) was_full: bool,
    /// Every slot is free now.
    pub(super) empty: bool,
    pub(super) evacuating: bool,
}

/// The descriptions of all slabs, each known by its first page.
#[derive(Debug)]
pub(super) struct Slabs<S> {
    words: Words<S>,
}

impl<S: Space> Slabs<S> {
    /// For an object space of `pages`.
    pub(super) fn reserve<Source: SpaceSource<Space = S>>(
        source: &Source,
        pages: usize,
    ) -> Option<Self> {
        Some(Self { words: Words::reserve(source, pages)? })
    }

    /// Makes the pages from `slab` a slab without objects, in no list, of which the first
    /// `touched_pages` hold RAM already.
    pub(super) fn start(&mut self, slab: usize, class: &Class, touched_pages: usize) {
        self.set_header(slab, Header { next: NONE, prev: NONE, touched_pages, evacuating: false });
        self.set_free_slots(slab, class, class.all_slots);
    }

    /// Pages that the next object would be the first to touch.
    pub(super) fn pages_to_touch(&self, slab: usize, class: &Class) -> usize {
        let pages = class.pages_up_to(lowest(self.free_slots(slab, class)));
        pages.saturating_sub(self.touched_pages(slab))
    }

    /// Asks for the descriptions of the slab that a page is of: a slab lies within eight aligned pages, whose words are
    /// one line.
    #[inline]
    pub(super) fn prefetch(&self, page: usize) {
        self.words.prefetch(page);
    }

    /// Takes the lowest free slot.
    #[inline]
    pub(super) fn take_slot(&mut self, slab: usize, class: &Class) -> Taken {
        let free = self.free_slots(slab, class);
        let (slot, left) = (lowest(free), free & free.wrapping_sub(1));
        self.set_free_slots(slab, class, left);
        let touched_pages = self.touch(slab, class.pages_up_to(slot));
        Taken { slot, full: left == 0, touched_pages }
    }

    /// Notes that the slab's first `pages` hold RAM; how many did not yet.
    #[inline]
    fn touch(&mut self, slab: usize, pages: usize) -> usize {
        let header = self.header(slab);
        if pages <= header.touched_pages {
            return 0;
        }
        self.set_header(slab, Header { touched_pages: pages, ..header });
        pages - header.touched_pages
    }

    /// Makes a slot free.
    #[inline]
    pub(super) fn give_slot_back(&mut self, slab: usize, class: &Class, slot: usize) -> GivenBack {
        debug_assert!(self.is_taken(slab, class, slot), "the object was removed before");
        let before = self.free_slots(slab, class);
        let after = before | 1 << slot;
        self.set_free_slots(slab, class, after);
        GivenBack {
            was_full: before == 0,
            empty: after == class.all_slots,
            evacuating: self.is_evacuating(slab),
        }
    }

    /// Whether the slot holds an object.
    pub(super) fn is_taken(&self, slab: usize, class: &Class, slot: usize) -> bool {
        slot < class.slots && self.free_slots(slab, class) >> slot & 1 == 0
    }

    /// Slots that hold objects.
    pub(super) fn used_slots(&self, slab: usize, class: &Class) -> usize {
        class.slots - self.free_slots(slab, class).count_ones() as usize
    }

    /// Pages of the slab that hold RAM, from its first.
    pub(super) fn touched_pages(&self, slab: usize) -> usize {
        self.header(slab).touched_pages
    }

    /// Whether a compaction empties this slab.
    #[inline]
    pub(super) fn is_evacuating(&self, slab: usize) -> bool {
        self.header(slab).evacuating
    }

    /// Says whether a compaction empties this slab.
    pub(super) fn set_evacuating(&mut self, slab: usize, evacuating: bool) {
        let header = self.header(slab);
        self.set_header(slab, Header { evacuating, ..header });
    }

    /// Puts a slab that stands in no list at the head of one.
    pub(super) fn push(&mut self, list: &mut List, slab: usize) {
        let header = self.header(slab);
        self.set_header(slab, Header { next: list.head, prev: NONE, ..header });
        if let Some(next) = list.head() {
            let header = self.header(next);
            self.set_header(next, Header { prev: slab as u32, ..header });
        }
        list.head = slab as u32;
    }

    /// Takes a slab out of the list it stands in.
    pub(super) fn unlink(&mut self, list: &mut List, slab: usize) {
        let Header { next, prev, .. } = self.header(slab);
        if prev == NONE {
            debug_assert_eq!(list.head, slab as u32, "a slab is taken out of a list not its own");
            list.head = next;
        } else {
            let header = self.header(prev as usize);
            self.set_header(prev as usize, Header { next, ..header });
        }
        if next != NONE {
            let header = self.header(next as usize);
            self.set_header(next as usize, Header { prev, ..header });
        }
    }

    /// The slab behind this one in its list.
    pub(super) fn next(&self, slab: usize) -> Option<usize> {
        List { head: self.header(slab).next }.head()
    }

    /// The slabs of a list, the one put in last first.
    pub(super) fn in_list(&self, list: List) -> impl Iterator<Item = usize> {
        core::iter::successors(list.head(), |&slab| self.next(slab))
    }

    /// One bit a slot, the lowest for the first, set while the slot is free. A slab of one slot
    /// has none: it exists while the slot is taken.
    #[inline]
    fn free_slots(&self, slab: usize, class: &Class) -> u128 {
        let word = |index| match index < class.bit_words {
            true => u128::from(self.words.get(slab + 1 + index)),
            false => 0,
        };
        word(0) | word(1) << 64
    }

    #[inline]
    fn set_free_slots(&mut self, slab: usize, class: &Class, free: u128) {
        for index in 0..class.bit_words {
            self.words.set(slab + 1 + index, (free >> (index * 64)) as u64);
        }
    }

    #[inline]
    fn header(&self, slab: usize) -> Header {
        Header::unpack(self.words.get(slab))
    }

    #[inline]
    fn set_header(&mut self, slab: usize, header: Header) {
        self.words.set(slab, header.pack());
    }
}

/// The lowest free slot of a slab that has one: the only one if the slab has no bits.
#[inline]
fn lowest(free: u128) -> usize {
    if free == 0 { 0 } else { free.trailing_zeros() as usize }
}
