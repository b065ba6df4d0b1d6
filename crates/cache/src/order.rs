//! The order in which pages were compressed, oldest first.
//!
//! Source: castro (2003), 2.3.2: compressed pages leave in the order they came.
//!
//! A ring of one word an entry: the page and the low bits of its handle. A page
//! that is swapped in leaves its entry behind; the handle tells later that it is
//! stale. A page that came back to the same place has two entries that look
//! good: it leaves in the turn of the first, and a sweep drops the second, which
//! it knows by the mark that it leaves at every page it keeps. When more than a
//! quarter is stale the ring is swept, so it holds at most 4/3 of 8 bytes a
//! compressed page. RAM behind the oldest entry is given back page by page.
//!
//! Invariant: every page in the ring's care has the ring's mark, which turns
//! with each sweep.

use core::ops::Range;

use zpager_codec::CodecId;
use zpager_pool::{Handle, Space};

use crate::entry::PageNumber;

const HANDLE_BITS: u32 = 28;
const HANDLE_MASK: u64 = (1 << HANDLE_BITS) - 1;
const PAGE_BYTES: usize = 4096;
const ENTRIES_PER_PAGE: usize = PAGE_BYTES / size_of::<u64>();
/// Stale entries that are not worth a sweep.
const STALE_MIN: usize = 4096;

/// A page and where it lay when it was compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ordered(u64);

impl Ordered {
    /// `page`, compressed to `handle`.
    pub(crate) fn new(page: PageNumber, handle: Handle) -> Self {
        Ordered(page << HANDLE_BITS | handle.raw() & HANDLE_MASK)
    }

    /// The page.
    pub(crate) fn page(self) -> PageNumber {
        self.0 >> HANDLE_BITS
    }

    /// Whether the page may still lie where it was.
    pub(crate) fn is_at(self, handle: Handle) -> bool {
        self.0 & HANDLE_MASK == handle.raw() & HANDLE_MASK
    }
}

/// Which pages wait in a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pages {
    All,
    /// All but raw ones.
    Compressed,
    Raw,
}

impl Pages {
    /// Whether pages of this codec do.
    pub(crate) fn have(self, codec: CodecId) -> bool {
        match self {
            Pages::All => true,
            Pages::Compressed => codec != CodecId::Copy,
            Pages::Raw => codec == CodecId::Copy,
        }
    }
}

/// The ring.
pub(crate) struct Order<S> {
    space: S,
    pub(crate) pages: Pages,
    /// Entries ever taken and ever put; their difference is the length.
    head: usize,
    tail: usize,
    /// In a copy of the ring: entries below were not written since, so their RAM is the original's.
    copied: usize,
    mark: bool,
    /// A position that whoever goes through the ring comes back to; a sweep moves it along.
    pub(crate) watched: usize,
}

impl<S: Space> Order<S> {
    /// An empty ring of `pages` in `space`, whose length is the bound.
    pub(crate) fn new(space: S, pages: Pages) -> Self {
        Order { space, pages, head: 0, tail: 0, copied: 0, mark: false, watched: 0 }
    }

    fn capacity(&self) -> usize {
        self.space.bytes() / size_of::<u64>()
    }

    fn slot(&self, at: usize) -> *mut Ordered {
        // SAFETY: the remainder lies within the space.
        unsafe { self.space.base().cast::<Ordered>().add(at % self.capacity()) }
    }

    /// How many entries there are, stale ones too.
    pub(crate) fn len(&self) -> usize {
        self.tail - self.head
    }

    /// The mark that pages get when they are put in.
    pub(crate) fn mark(&self) -> bool {
        self.mark
    }

    /// RAM in use.
    pub(crate) fn metadata_bytes(&self) -> usize {
        let first = self.head.max(self.copied);
        if first >= self.tail {
            return 0;
        }
        let first = first / ENTRIES_PER_PAGE;
        ((self.tail - 1) / ENTRIES_PER_PAGE - first + 1) * PAGE_BYTES
    }

    /// In a copy of the ring, whose RAM is its own where it is written from now on.
    pub(crate) fn become_copy(&mut self) {
        self.copied = self.tail;
    }

    /// Puts an entry at the end; false when the ring is full.
    #[must_use]
    pub(crate) fn push(&mut self, entry: Ordered) -> bool {
        // A page of entries stays free, so that giving back behind the head never meets the tail.
        if self.len() + ENTRIES_PER_PAGE >= self.capacity() {
            return false;
        }
        // SAFETY: a slot of the space.
        unsafe { self.slot(self.tail).write(entry) };
        self.tail += 1;
        true
    }

    /// The oldest entry.
    pub(crate) fn peek(&self) -> Option<Ordered> {
        // SAFETY: slots between head and tail were written.
        (self.len() > 0).then(|| unsafe { self.slot(self.head).read() })
    }

    /// Positions of all entries, the oldest first.
    pub(crate) fn positions(&self) -> Range<usize> {
        self.head..self.tail
    }

    /// The entry at one of [`Self::positions`].
    pub(crate) fn at(&self, position: usize) -> Ordered {
        debug_assert!(self.positions().contains(&position));
        // SAFETY: slots between head and tail were written.
        unsafe { self.slot(position).read() }
    }

    /// All entries but so many of the oldest, the oldest first.
    pub(crate) fn iter_from(&self, entries: usize) -> impl Iterator<Item = Ordered> {
        self.positions().skip(entries).map(|position| self.at(position))
    }

    /// Takes the oldest entry away.
    pub(crate) fn pop(&mut self) -> Option<Ordered> {
        let entry = self.peek()?;
        self.head += 1;
        if self.head.is_multiple_of(ENTRIES_PER_PAGE) {
            self.release_page(self.head / ENTRIES_PER_PAGE - 1);
        }
        Some(entry)
    }

    fn release_page(&self, page: usize) {
        let offset = page * PAGE_BYTES % self.space.bytes();
        self.space.release(offset, PAGE_BYTES);
    }

    /// Whether so many entries are stale that a sweep pays, `live` of them being good.
    pub(crate) fn should_sweep(&self, live: usize) -> bool {
        self.len() > live + (live / 3).max(STALE_MIN)
    }

    /// Keeps what `keep` returns, oldest first, and closes the gaps. `keep` is
    /// given the new mark, sets it at every page that it keeps, and drops the
    /// entries of pages that have it already.
    pub(crate) fn sweep(&mut self, mut keep: impl FnMut(Ordered, bool) -> Option<Ordered>) {
        self.mark = !self.mark;
        self.copied = 0;
        let mut to = self.head;
        let mut watched = self.watched.min(self.head);
        for from in self.head..self.tail {
            if from == self.watched {
                watched = to;
            }
            // SAFETY: slots between head and tail were written; `to` never passes `from`.
            unsafe {
                if let Some(kept) = keep(self.slot(from).read(), self.mark) {
                    self.slot(to).write(kept);
                    to += 1;
                }
            }
        }
        self.watched = if self.watched >= self.tail { to } else { watched };
        for page in to.div_ceil(ENTRIES_PER_PAGE)..self.tail.div_ceil(ENTRIES_PER_PAGE) {
            self.release_page(page);
        }
        self.tail = to;
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::collections::VecDeque;
    use zpager_pool::{Heap, SpaceSource};

    #[test]
    fn behaves_as_a_queue_through_many_turns() {
        let mut order = Order::new(Heap.reserve(8 * PAGE_BYTES).unwrap(), Pages::All);
        let mut model = VecDeque::new();
        for step in 0..100_000u64 {
            let entry = Ordered::new(step, Handle::from_raw(step % 77));
            if step % 3 < 2 && order.push(entry) {
                model.push_back(entry);
            } else {
                assert_eq!(order.pop(), model.pop_front());
            }
            if step % 1000 == 999 {
                order.sweep(|entry, _| (entry.page() % 2 == 0).then_some(entry));
                model.retain(|entry| entry.page() % 2 == 0);
            }
            assert_eq!(order.len(), model.len());
            assert!(order.metadata_bytes() <= model.len() * 8 + 2 * PAGE_BYTES);
        }
    }
}
