//! The managed parts of the address space, in ascending order, none touching the
//! next unless their protections differ.

use core::ops::Range;

use zpager_sys::mapping::Mapping;
use zpager_sys::{Errno, PAGE_BYTES, nr};

/// Most regions of a process; what does not fit stays unmanaged.
const REGIONS_MAX: usize = 1 << 17;

/// A range of pages, first to one past the last, by page number.
pub(crate) type Pages = Range<u64>;

/// Their first byte, and how many.
pub(crate) fn bytes_of(pages: &Pages) -> (usize, usize) {
    (pages.start as usize * PAGE_BYTES, (pages.end - pages.start) as usize * PAGE_BYTES)
}

/// One managed range with one protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// `PROT_*`.
    pub(crate) protection: u32,
    pub(crate) in_child: InChild,
}

/// What a forked child gets of a region: a copy, unless the program has advised otherwise. One of the two
/// may be taken back while the other one holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct InChild {
    /// Nothing, zeros neither (`MADV_DONTFORK`).
    pub(crate) is_dropped: bool,
    /// Zeros (`MADV_WIPEONFORK`).
    pub(crate) is_wiped: bool,
}

impl InChild {
    pub(crate) fn is_copied(self) -> bool {
        !self.is_dropped && !self.is_wiped
    }

    /// After such advice of madvise(2).
    fn advised(self, advice: u32) -> InChild {
        match advice {
            nr::MADV_DONTFORK => InChild { is_dropped: true, ..self },
            nr::MADV_DOFORK => InChild { is_dropped: false, ..self },
            nr::MADV_WIPEONFORK => InChild { is_wiped: true, ..self },
            nr::MADV_KEEPONFORK => InChild { is_wiped: false, ..self },
            _ => self,
        }
    }
}

impl Region {
    /// Whether its pages can be lifted. Code too: fetching an instruction faults as reading does.
    pub(crate) fn may_leave(&self) -> bool {
        self.protection & nr::PROT_READ != 0
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.protection & nr::PROT_WRITE != 0
    }

    /// Whether `UFFDIO_MOVE` takes its pages to staging and back: it wants one protection on both
    /// sides (mm/userfaultfd.c of Linux, `validate_move_areas`).
    pub(crate) fn can_move(&self) -> bool {
        self.protection == nr::PROT_READ | nr::PROT_WRITE
    }

    pub(crate) fn pages(&self) -> Pages {
        self.start..self.end
    }

    /// Its first byte, and how many.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        bytes_of(&self.pages())
    }
}

/// All managed ranges.
pub(crate) struct Regions {
    space: Mapping,
    count: usize,
    pages: u64,
}

impl Regions {
    pub(crate) fn new() -> Result<Self, Errno> {
        let space = Mapping::reserve(REGIONS_MAX * size_of::<Region>())?;
        Ok(Regions { space, count: 0, pages: 0 })
    }

    pub(crate) fn all(&self) -> &[Region] {
        // SAFETY: the first `count` places were written.
        unsafe { core::slice::from_raw_parts(self.space.base().cast(), self.count) }
    }

    fn places(&mut self) -> &mut [Region] {
        // SAFETY: the mapping is that long, zero is a valid region, and it is ours alone.
        unsafe { core::slice::from_raw_parts_mut(self.space.base().cast(), REGIONS_MAX) }
    }

    /// From the first managed page to the last.
    pub(crate) fn span(&self) -> Pages {
        let all = self.all();
        all.first().zip(all.last()).map_or(0..0, |(first, last)| first.start..last.end)
    }

    /// Managed pages.
    pub(crate) fn page_count(&self) -> u64 {
        self.pages
    }

    pub(crate) fn metadata_bytes(&self) -> usize {
        (self.count * size_of::<Region>()).next_multiple_of(4096)
    }

    /// Place of the first region that ends after `page`.
    pub(crate) fn first_after(&self, page: u64) -> usize {
        self.all().partition_point(|region| region.end <= page)
    }

    pub(crate) fn find(&self, page: u64) -> Option<Region> {
        self.all().get(self.first_after(page)).copied().filter(|region| region.start <= page)
    }

    pub(crate) fn overlaps(&self, pages: &Pages) -> bool {
        self.all().get(self.first_after(pages.start)).is_some_and(|region| region.start < pages.end)
    }

    /// The part of `pages` that lies in the first region which it meets.
    pub(crate) fn first_part(&self, pages: &Pages) -> Option<Region> {
        let region = self.all().get(self.first_after(pages.start))?;
        let part = Region {
            start: region.start.max(pages.start),
            end: region.end.min(pages.end),
            ..*region
        };
        (part.start < part.end).then_some(part)
    }

    /// Adds `pages`, none of which is managed. False when there is no place.
    #[must_use]
    pub(crate) fn add(&mut self, pages: Pages, protection: u32) -> bool {
        let (start, end) = (pages.start, pages.end);
        self.add_region(Region { start, end, protection, in_child: InChild::default() })
    }

    fn add_region(&mut self, mut region: Region) -> bool {
        debug_assert!(!self.overlaps(&region.pages()) && !region.pages().is_empty());
        let mut at = self.first_after(region.start);
        let joins = |one: &Region, other: &Region| {
            one.end == other.start
                && one.protection == other.protection
                && one.in_child == other.in_child
        };
        self.pages += region.end - region.start;
        if at < self.count && joins(&region, &self.all()[at]) {
            region.end = self.all()[at].end;
            self.close_gap(at, 1);
        }
        if at > 0 && joins(&self.all()[at - 1], &region) {
            at -= 1;
            region.start = self.all()[at].start;
            self.close_gap(at, 1);
        }
        if self.count == REGIONS_MAX {
            self.pages -= region.end - region.start;
            return false;
        }
        let count = self.count;
        self.places().copy_within(at..count, at + 1);
        self.places()[at] = region;
        self.count += 1;
        true
    }

    fn close_gap(&mut self, at: usize, removed: usize) {
        let count = self.count;
        self.places().copy_within(at + removed..count, at);
        self.count -= removed;
    }

    /// Takes `pages` out, wherever they are managed. False when a region would
    /// have to be split and there is no place; nothing has changed then.
    #[must_use]
    pub(crate) fn remove(&mut self, pages: Pages) -> bool {
        let mut at = self.first_after(pages.start);
        while let Some(region) = self.all().get(at).copied() {
            if region.start >= pages.end {
                break;
            }
            let (left, right) = (region.start < pages.start, region.end > pages.end);
            if left && right {
                if self.count == REGIONS_MAX {
                    return false;
                }
                let count = self.count;
                self.places().copy_within(at..count, at + 1);
                self.count += 1;
                self.places()[at].end = pages.start;
                self.places()[at + 1].start = pages.end;
                self.pages -= pages.end - pages.start;
                break;
            }
            self.pages -= region.end.min(pages.end) - region.start.max(pages.start);
            match (left, right) {
                (true, _) => {
                    self.places()[at].end = pages.start;
                    at += 1;
                }
                (_, true) => self.places()[at].start = pages.end,
                _ => self.close_gap(at, 1),
            }
        }
        true
    }

    /// Changes the protection of whatever part of `pages` is managed.
    pub(crate) fn protect(&mut self, pages: Pages, protection: u32) {
        self.change(pages, |part| Region { protection, ..part });
    }

    /// Changes what a child gets of whatever part of `pages` is managed.
    pub(crate) fn set_in_child(&mut self, pages: Pages, in_child: InChild) {
        self.change(pages, |part| Region { in_child, ..part });
    }

    /// Notes advice about what a child gets.
    pub(crate) fn advise_fork(&mut self, pages: Pages, advice: u32) {
        self.change(pages, |part| Region { in_child: part.in_child.advised(advice), ..part });
    }

    fn change(&mut self, pages: Pages, change: impl Fn(Region) -> Region) {
        let mut from = pages.start;
        while let Some(part) = self.first_part(&(from..pages.end)) {
            let changed = change(part);
            // Without a place for a split the old state stays noted: such pages are only skipped or refused later.
            if changed != part && self.remove(part.pages()) {
                let _ = self.add_region(changed);
            }
            from = part.end;
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const RW: u32 = nr::PROT_READ | nr::PROT_WRITE;

    #[derive(Debug, Clone)]
    enum Step {
        Add(u64, u64, u32),
        Remove(u64, u64),
        Protect(u64, u64, u32),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let range = (0u64..200, 1u64..40);
        let protection = prop::sample::select(std::vec![0, nr::PROT_READ, RW]);
        prop::collection::vec(
            prop_oneof![
                (range.clone(), protection.clone()).prop_map(|((s, n), p)| Step::Add(s, s + n, p)),
                range.clone().prop_map(|(s, n)| Step::Remove(s, s + n)),
                (range, protection).prop_map(|((s, n), p)| Step::Protect(s, s + n, p)),
            ],
            1..80,
        )
    }

    proptest! {
        #[test]
        fn behaves_as_a_map_of_pages(steps in steps()) {
            let mut regions = Regions::new().unwrap();
            let mut model = [None; 240];
            for step in steps {
                match step {
                    Step::Add(start, end, protection) => {
                        if !regions.overlaps(&(start..end)) {
                            prop_assert!(regions.add(start..end, protection));
                            model[start as usize..end as usize].fill(Some(protection));
                        }
                    }
                    Step::Remove(start, end) => {
                        prop_assert!(regions.remove(start..end));
                        model[start as usize..end as usize].fill(None);
                    }
                    Step::Protect(start, end, protection) => {
                        regions.protect(start..end, protection);
                        for page in &mut model[start as usize..end as usize] {
                            *page = page.map(|_| protection);
                        }
                    }
                }
                for (page, known) in model.iter().enumerate() {
                    prop_assert_eq!(regions.find(page as u64).map(|r| r.protection), *known);
                }
                prop_assert_eq!(regions.page_count(), model.iter().flatten().count() as u64);
                for pair in regions.all().windows(2) {
                    prop_assert!(pair[0].end < pair[1].start
                        || pair[0].end == pair[1].start && pair[0].protection != pair[1].protection);
                }
            }
        }
    }
}
