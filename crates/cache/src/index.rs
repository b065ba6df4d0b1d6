//! One word for every page of address space, found by two loads.
//!
//! The directory has a number for each GiB of the 47-bit address space; the
//! number names a leaf, a stretch of 2^18 entries that costs RAM only where it
//! was written: 8 bytes a page of address space in use. A page of a leaf that
//! has been cleared as a whole is given back.
//!
//! A page may have a second word, its note, which costs as much again where there are some.
//!
//! Bad case: pages touched 2 MiB apart cost a page of entries each.

use zpager_pool::{Space, SpaceSource};

use crate::entry::{Entry, PageNumber};

const LEAF_BITS: u32 = 18;
const LEAF_ENTRIES: usize = 1 << LEAF_BITS;
/// Of the entries, then of the notes.
const DIRECTORY_ENTRIES: usize = 2 << (47 - 12 - LEAF_BITS);
/// Leaves of one process: 1 TiB of address space that was touched.
const LEAVES_MAX: usize = 1024;
const PAGE_BYTES: usize = 4096;
/// Entries in one page of a leaf.
const GROUP_ENTRIES: usize = PAGE_BYTES / size_of::<Entry>();
const GROUPS: usize = LEAF_ENTRIES / GROUP_ENTRIES;
/// Entries that a search looks at together: a branch for each of them would take most of its time.
const LOOK_ENTRIES: usize = 8;

/// First page number that no index covers.
pub const PAGE_NUMBER_END: PageNumber = NOTES_AT;
/// A page's note is the entry of the page so far behind it.
const NOTES_AT: u64 = (DIRECTORY_ENTRIES << LEAF_BITS) as u64 / 2;

struct Leaf<S> {
    space: S,
    /// Which of its pages hold entries.
    in_use: [u64; GROUPS / 64],
}

impl<S: Space> Leaf<S> {
    /// The entries of `from..end`, which is in one of its pages; none where that is not in use.
    #[inline]
    fn group(&self, from: PageNumber, end: PageNumber) -> &[Entry] {
        let at = from as usize % LEAF_ENTRIES;
        let group = at / GROUP_ENTRIES;
        if self.in_use[group / 64] & (1 << (group % 64)) == 0 {
            return &[];
        }
        debug_assert!(at % GROUP_ENTRIES + (end - from) as usize <= GROUP_ENTRIES);
        // SAFETY: within one page of the leaf, which is zero where it was not written.
        unsafe {
            let first = self.space.base().cast::<Entry>().add(at);
            core::slice::from_raw_parts(first, (end - from) as usize)
        }
    }
}

/// The entries of a process's pages.
pub struct Index<M: SpaceSource> {
    source: M,
    /// `u16` numbers of leaves, one more than their place in `leaves`; 0 for none.
    directory: M::Space,
    /// What is known of each leaf, as far as there are any: in the index itself a thousand of them would be
    /// written each time that it is moved.
    leaves: M::Space,
    leaf_count: usize,
    metadata_bytes: usize,
}

impl<M: SpaceSource> Index<M> {
    /// An empty index; `None` when the source has no room.
    pub fn new(source: M) -> Option<Self> {
        let directory = source.reserve(DIRECTORY_ENTRIES * size_of::<u16>())?;
        let leaves = source.reserve(LEAVES_MAX * size_of::<Leaf<M::Space>>())?;
        Some(Index { source, directory, leaves, leaf_count: 0, metadata_bytes: 2 * PAGE_BYTES })
    }

    /// RAM of the entries in use.
    pub fn metadata_bytes(&self) -> usize {
        self.metadata_bytes
    }

    /// RAM of what is known of the leaves themselves.
    pub(crate) fn leaves_bytes(&self) -> usize {
        (self.leaf_count * size_of::<Leaf<M::Space>>()).next_multiple_of(PAGE_BYTES)
    }

    /// Where what is known of leaves begins.
    #[inline]
    fn leaves_start(&self) -> *mut Leaf<M::Space> {
        self.leaves.base().cast()
    }

    /// The leaf of this number; `None` for 0.
    #[inline]
    fn leaf(&self, number: usize) -> Option<&Leaf<M::Space>> {
        let at = number.checked_sub(1)?;
        debug_assert!(at < self.leaf_count);
        // SAFETY: numbers are given by `add_leaf` alone, which has written as many before, and this index owns them.
        Some(unsafe { &*self.leaves_start().add(at) })
    }

    /// The same, to be changed.
    #[inline]
    fn leaf_mut(&mut self, number: usize) -> Option<&mut Leaf<M::Space>> {
        let at = number.checked_sub(1)?;
        debug_assert!(at < self.leaf_count);
        // SAFETY: as for `leaf`; it is borrowed as long as the index.
        Some(unsafe { &mut *self.leaves_start().add(at) })
    }

    fn leaf_number(&self, page: PageNumber) -> usize {
        debug_assert!(page < 2 * NOTES_AT);
        let slot = (page >> LEAF_BITS) as usize % DIRECTORY_ENTRIES;
        // SAFETY: within the directory, which is zero where it was not written.
        usize::from(unsafe { self.directory.base().cast::<u16>().add(slot).read() })
    }

    /// The entry of `page`.
    #[inline]
    pub fn get(&self, page: PageNumber) -> Entry {
        let Some(leaf) = self.leaf(self.leaf_number(page)) else { return Entry::ABSENT };
        // SAFETY: within the leaf, which is zero where it was not written.
        unsafe { leaf.space.base().cast::<Entry>().add(page as usize % LEAF_ENTRIES).read() }
    }

    /// The note of `page`: an entry that says something else of it.
    #[inline]
    pub(crate) fn note(&self, page: PageNumber) -> Entry {
        self.get(page + NOTES_AT)
    }

    /// Replaces the note of `page`, as [`Index::set`] does the entry.
    #[must_use]
    pub(crate) fn set_note(&mut self, page: PageNumber, note: Entry) -> bool {
        self.set(page + NOTES_AT, note)
    }

    /// The first page from `from` on that has a note.
    pub(crate) fn next_note(&self, from: PageNumber) -> Option<PageNumber> {
        self.next_known(from + NOTES_AT, 2 * NOTES_AT).map(|page| page - NOTES_AT)
    }

    /// The entry of `page`, to be replaced by another one; `None` where nothing is known of it.
    #[inline]
    pub(crate) fn known_mut(&mut self, page: PageNumber) -> Option<&mut Entry> {
        let leaf = self.leaf_mut(self.leaf_number(page))?;
        // SAFETY: within the leaf, which is zero where it was not written, and this index's alone.
        let entry =
            unsafe { &mut *leaf.space.base().cast::<Entry>().add(page as usize % LEAF_ENTRIES) };
        (!entry.is_absent()).then_some(entry)
    }

    /// Replaces the entry of `page`. False when there is no room for a new leaf;
    /// never for a page whose entry is not absent.
    #[must_use]
    pub fn set(&mut self, page: PageNumber, entry: Entry) -> bool {
        let mut number = self.leaf_number(page);
        if number == 0 {
            if entry.is_absent() {
                return true;
            }
            number = match self.add_leaf(page) {
                Some(number) => number,
                None => return false,
            };
        }
        let leaf = self.leaf_mut(number).expect("a numbered leaf exists");
        let at = page as usize % LEAF_ENTRIES;
        let (group, bit) = (at / GROUP_ENTRIES / 64, 1u64 << (at / GROUP_ENTRIES % 64));
        let is_new = leaf.in_use[group] & bit == 0;
        if is_new && entry.is_absent() {
            return true;
        }
        leaf.in_use[group] |= bit;
        // SAFETY: within the leaf.
        unsafe { leaf.space.base().cast::<Entry>().add(at).write(entry) };
        if is_new {
            self.metadata_bytes += PAGE_BYTES;
        }
        true
    }

    #[cold]
    fn add_leaf(&mut self, page: PageNumber) -> Option<usize> {
        if self.leaf_count == LEAVES_MAX {
            return None;
        }
        let space = self.source.reserve(LEAF_ENTRIES * size_of::<Entry>())?;
        let leaf = Leaf { space, in_use: [0; GROUPS / 64] };
        // SAFETY: there is room for `LEAVES_MAX`, aligned as a page is, and none here so far.
        unsafe { self.leaves_start().add(self.leaf_count).write(leaf) };
        self.leaf_count += 1;
        let slot = (page >> LEAF_BITS) as usize;
        // SAFETY: within the directory, by `leaf_number`'s bound on pages.
        unsafe { self.directory.base().cast::<u16>().add(slot).write(self.leaf_count as u16) };
        Some(self.leaf_count)
    }

    /// The first page of `from..end` whose entry is not absent.
    pub fn next_known(&self, from: PageNumber, end: PageNumber) -> Option<PageNumber> {
        self.next_that(from, end, |entry| !entry.is_absent()).map(|(page, _)| page)
    }

    /// The first resident page of `from..end` and its entry.
    #[inline]
    pub fn next_resident(&self, from: PageNumber, end: PageNumber) -> Option<(PageNumber, Entry)> {
        self.next_that(from, end, Entry::is_resident)
    }

    /// The first page of `from..end` whose entry is wanted, which that of an absent page never is, and
    /// the entry.
    #[inline]
    pub fn next_that(
        &self,
        from: PageNumber,
        end: PageNumber,
        is_wanted: impl Fn(Entry) -> bool,
    ) -> Option<(PageNumber, Entry)> {
        let mut page = from;
        while page < end {
            let Some(leaf) = self.leaf(self.leaf_number(page)) else {
                page = ((page >> LEAF_BITS) + 1) << LEAF_BITS;
                continue;
            };
            let next_group = (page / GROUP_ENTRIES as u64 + 1) * GROUP_ENTRIES as u64;
            let entries = leaf.group(page, next_group.min(end));
            if let Some(at) = position(entries, &is_wanted) {
                return Some((page + at as u64, entries[at]));
            }
            page = next_group;
        }
        None
    }

    /// Gives back the pages of entries in which nothing is known any more, now that all of `from..end`
    /// are absent.
    pub(crate) fn release_unused(&mut self, from: PageNumber, end: PageNumber) {
        let group = GROUP_ENTRIES as u64;
        for (from, end) in [(from, end), (from + NOTES_AT, end + NOTES_AT)] {
            let (first, last) = (from / group * group, end.next_multiple_of(group));
            let from = if self.next_known(first, from).is_none() { first } else { from };
            let end = if self.next_known(end, last).is_none() { last } else { end };
            self.release(from, end);
        }
    }

    /// Gives back the pages of entries that lie wholly within `from..end`, all of which are absent.
    pub fn release_absent(&mut self, from: PageNumber, end: PageNumber) {
        self.release(from, end);
        self.release(from + NOTES_AT, end + NOTES_AT);
    }

    fn release(&mut self, from: PageNumber, end: PageNumber) {
        let mut page = from.next_multiple_of(GROUP_ENTRIES as u64);
        while page + GROUP_ENTRIES as u64 <= end {
            let Some(leaf) = self.leaf_mut(self.leaf_number(page)) else {
                page = ((page >> LEAF_BITS) + 1) << LEAF_BITS;
                continue;
            };
            let group = page as usize % LEAF_ENTRIES / GROUP_ENTRIES;
            let bit = 1u64 << (group % 64);
            if leaf.in_use[group / 64] & bit != 0 {
                leaf.in_use[group / 64] &= !bit;
                leaf.space.release(group * PAGE_BYTES, PAGE_BYTES);
                self.metadata_bytes -= PAGE_BYTES;
            }
            page += GROUP_ENTRIES as u64;
        }
    }
}

impl<M: SpaceSource> Drop for Index<M> {
    fn drop(&mut self) {
        let leaves = core::ptr::slice_from_raw_parts_mut(self.leaves_start(), self.leaf_count);
        // SAFETY: so many were written, and nobody finds them any more.
        unsafe { leaves.drop_in_place() };
    }
}

/// Where the first of `entries` is that is wanted.
#[inline]
fn position(entries: &[Entry], is_wanted: impl Fn(Entry) -> bool) -> Option<usize> {
    // As a rule it is near.
    let (near, far) = entries.split_at(entries.len().min(LOOK_ENTRIES));
    if let Some(at) = near.iter().position(|&entry| is_wanted(entry)) {
        return Some(at);
    }
    let (looks, _) = far.as_chunks::<LOOK_ENTRIES>();
    let has_none = |look: &&[Entry; LOOK_ENTRIES]| {
        !look.iter().fold(false, |has_one, &entry| has_one | is_wanted(entry))
    };
    let passed = looks.iter().take_while(has_none).count() * LOOK_ENTRIES;
    let at = far[passed..].iter().position(|&entry| is_wanted(entry))?;
    Some(near.len() + passed + at)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::entry::State;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use zpager_pool::Heap;

    fn resident(turn: u16) -> Entry {
        Entry::new(State::Resident { turn, frame: 0 })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn behaves_as_a_map(steps in prop::collection::vec((0u64..3, 0u64..2000, any::<u16>()), 1..300)) {
            let mut index = Index::new(Heap).unwrap();
            let mut model = BTreeMap::new();
            for (area, offset, turn) in steps {
                let page = area * 0x4_0000 + 0x3_fc00 + offset;
                if turn % 3 == 0 {
                    assert!(index.set(page, Entry::ABSENT));
                    model.remove(&page);
                } else {
                    assert!(index.set(page, resident(turn)));
                    model.insert(page, turn);
                }
                prop_assert_eq!(index.get(page).is_absent(), !model.contains_key(&page));
            }
            let mut found = std::vec::Vec::new();
            let mut at = 0;
            while let Some(page) = index.next_known(at, 0x20_0000) {
                found.push(page);
                at = page + 1;
            }
            prop_assert_eq!(found, model.keys().copied().collect::<std::vec::Vec<_>>());
        }
    }

    #[test]
    fn what_is_wanted_is_found_wherever_it_is() {
        const PAGES: u64 = 3 * GROUP_ENTRIES as u64;
        let mut random = zpager_seed::random(1968);
        for _ in 0..200 {
            let mut index = Index::new(Heap).unwrap();
            let mut wanted = std::vec::Vec::new();
            for page in (0..random.u64(..40)).map(|_| random.u64(..PAGES)) {
                assert!(index.set(page, resident(1)));
                wanted.push(page);
            }
            for page in (0..random.u64(..40)).map(|_| random.u64(..PAGES)) {
                assert!(index.set(page, Entry::new(State::SameFilled { fill: 1 })));
                wanted.retain(|other| *other != page);
            }
            let (from, end) = (random.u64(..PAGES), random.u64(..=PAGES));
            let first = wanted.iter().copied().filter(|page| (from..end).contains(page)).min();
            let found = index.next_resident(from, end);
            assert_eq!(found, first.map(|page| (page, resident(1))));
        }
    }

    #[test]
    fn cleared_ranges_cost_nothing() {
        let mut index = Index::new(Heap).unwrap();
        // The leaf stays.
        assert!(index.set(1000, resident(1)) && index.set(1000, Entry::ABSENT));
        index.release_absent(0, 4096);
        let empty_bytes = index.metadata_bytes();
        for page in 1000..3000 {
            assert!(index.set(page, resident(1)));
        }
        assert!(index.metadata_bytes() <= empty_bytes + 2000 * 8 + 2 * PAGE_BYTES);
        for page in 1000..3000 {
            assert!(index.set(page, Entry::ABSENT));
        }
        index.release_absent(0, 4096);
        assert_eq!(index.metadata_bytes(), empty_bytes);
        assert!(index.get(1500).is_absent());
    }

    #[test]
    fn the_last_page_of_the_address_space_has_an_entry() {
        let mut index = Index::new(Heap).unwrap();
        assert!(index.set(PAGE_NUMBER_END - 1, resident(9)));
        assert_eq!(index.next_known(0, PAGE_NUMBER_END), Some(PAGE_NUMBER_END - 1));
    }
}
