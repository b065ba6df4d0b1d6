//! Which pages of a stretch have RAM, for a stretch that is to have a fixed amount of it whatever of
//! it is in use.
//!
//! A device that the kernel swaps to is written to when no memory is to be had. So it takes the RAM of
//! its pool ahead, all of it or as much as it may want soon, and does not give it back in between: a page
//! that a pool wants no more stays as a spare one, for what is written there next. A pool fills its
//! stretch from the bottom, and so does this. Where a pool goes beyond the pages that have RAM, as it
//! leaves gaps, a spare page is given back first: what is taken of the kernel then is what it was given
//! in that moment. One for which the kernel was only asked, and may not have RAM for long, is none.
//!
//! Invariants: `resident_pages` are the bits of `resident`, `coming_pages` those of `coming`, and no page
//! has both; all pages below `full_end` have one; no page from `spare_end` on is a spare one; more than
//! `wanted_pages` are resident only while none is spare.
//!
//! Bad for: pools that leave many gaps, at their fullest.

use std::ops::Range;

/// One bit for each page of a stretch.
pub(crate) trait Bits {
    /// The bits of 64 pages; 0 until it is set.
    fn word(&self, at: usize) -> u64;
    /// Sets them.
    fn set_word(&mut self, at: usize, word: u64);
}

const WORD_PAGES: usize = u64::BITS as usize;

/// The pages of a stretch.
#[derive(Debug)]
pub(crate) struct Kept<B> {
    pages: usize,
    resident: B,
    /// The kernel was asked for RAM for it, and nobody has used it since.
    coming: B,
    in_use: B,
    resident_pages: usize,
    coming_pages: usize,
    wanted_pages: usize,
    /// Whether anything was ever to be kept: until then nothing is noted, and from then on everything.
    is_on: bool,
    full_end: usize,
    spare_end: usize,
}

impl<B: Bits> Kept<B> {
    /// Of a stretch of so many pages, with none of them resident; each of the rows has a bit for each.
    pub(crate) fn new(pages: usize, [resident, coming, in_use]: [B; 3]) -> Self {
        Kept {
            pages,
            resident,
            coming,
            in_use,
            resident_pages: 0,
            coming_pages: 0,
            wanted_pages: 0,
            is_on: false,
            full_end: 0,
            spare_end: 0,
        }
    }

    /// Whether what is used is noted.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Sets how many pages are to be resident. Then take [`Self::surplus`] until there is none, and
    /// [`Self::missing`].
    pub(crate) fn want(&mut self, pages: usize) {
        self.wanted_pages = pages;
        self.is_on |= pages > 0;
    }

    /// Has no more be wanted than there is.
    pub(crate) fn settle(&mut self) {
        self.wanted_pages = self.wanted_pages.min(self.resident_pages + self.coming_pages);
    }

    /// A spare page that is one too many, and is none of the resident ones any more.
    pub(crate) fn surplus(&mut self) -> Option<usize> {
        if self.resident_pages <= self.wanted_pages {
            return None;
        }
        self.give()
    }

    /// The lowest pages that are to be taken, neighbours, so many at most, and are not resident yet. They
    /// are on their way from now on, until [`Self::came`].
    pub(crate) fn missing(&mut self, most: usize) -> Option<Range<usize>> {
        let there_pages = self.resident_pages + self.coming_pages;
        let count = self.wanted_pages.saturating_sub(there_pages).min(most);
        if count == 0 {
            return None;
        }
        let is_missing = |page: &usize| !get(&self.resident, *page) && !get(&self.coming, *page);
        let first = (self.full_end..self.pages).find(is_missing)?;
        self.full_end = first;
        let length = (first..self.pages).take(count).take_while(is_missing).count();
        for page in first..first + length {
            put(&mut self.coming, page, true);
        }
        self.coming_pages += length;
        Some(first..first + length)
    }

    /// Notes of a page of [`Self::missing`] whether it has RAM now. False where it is not resident: what it
    /// may have is to go.
    pub(crate) fn came(&mut self, page: usize, has_ram: bool) -> bool {
        let was_coming = self.end_coming(page);
        if was_coming && has_ram && self.resident_pages < self.wanted_pages {
            self.add_resident(page);
            self.spare_end = self.spare_end.max(page + 1);
        }
        let is_resident = get(&self.resident, page);
        if !is_resident {
            self.full_end = self.full_end.min(page);
        }
        is_resident
    }

    /// How many pages have RAM.
    pub(crate) fn resident_pages(&self) -> usize {
        self.resident_pages
    }

    /// Notes that a page is used from now on; gives a page whose RAM has to go first.
    pub(crate) fn begin_use(&mut self, page: usize) -> Option<usize> {
        if !put(&mut self.in_use, page, true) || get(&self.resident, page) {
            return None;
        }
        self.end_coming(page);
        let given = self.give();
        self.add_resident(page);
        given
    }

    /// Notes that a page is not used any more; whether its RAM is to go.
    pub(crate) fn end_use(&mut self, page: usize) -> bool {
        put(&mut self.in_use, page, false);
        if self.resident_pages > self.wanted_pages {
            self.drop_resident(page);
            return true;
        }
        self.spare_end = self.spare_end.max(page + 1);
        false
    }

    /// Whether it was on its way until now.
    fn end_coming(&mut self, page: usize) -> bool {
        let was_coming = put(&mut self.coming, page, false);
        self.coming_pages -= usize::from(was_coming);
        was_coming
    }

    fn add_resident(&mut self, page: usize) {
        self.resident_pages += usize::from(put(&mut self.resident, page, true));
    }

    fn drop_resident(&mut self, page: usize) {
        self.resident_pages -= usize::from(put(&mut self.resident, page, false));
        self.full_end = self.full_end.min(page);
    }

    /// Takes the highest spare page from the resident ones.
    fn give(&mut self) -> Option<usize> {
        for at in (0..self.spare_end.div_ceil(WORD_PAGES)).rev() {
            let spare = self.resident.word(at) & !self.in_use.word(at);
            if spare != 0 {
                let page = at * WORD_PAGES + spare.ilog2() as usize;
                self.drop_resident(page);
                self.spare_end = page;
                return Some(page);
            }
        }
        self.spare_end = 0;
        None
    }
}

fn get(bits: &impl Bits, page: usize) -> bool {
    bits.word(page / WORD_PAGES) >> (page % WORD_PAGES) & 1 != 0
}

/// Sets a page's bit; whether that changed it.
fn put(bits: &mut impl Bits, page: usize, is_set: bool) -> bool {
    let (at, bit) = (page / WORD_PAGES, 1u64 << (page % WORD_PAGES));
    let before = bits.word(at);
    let after = if is_set { before | bit } else { before & !bit };
    if after != before {
        bits.set_word(at, after);
    }
    after != before
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const PAGES: usize = 300;

    #[derive(Debug, Default)]
    struct Row([u64; PAGES.div_ceil(WORD_PAGES)]);

    impl Bits for Row {
        fn word(&self, at: usize) -> u64 {
            self.0[at]
        }

        fn set_word(&mut self, at: usize, word: u64) {
            self.0[at] = word;
        }
    }

    fn kept(pages: usize) -> Kept<Row> {
        let mut kept = Kept::new(PAGES, [(); 3].map(|()| Row::default()));
        kept.want(pages);
        while let Some(missing) = kept.missing(7) {
            missing.for_each(|page| assert!(kept.came(page, true)));
        }
        kept
    }

    #[test]
    fn what_is_wanted_is_taken_from_the_bottom_and_given_from_the_top() {
        let mut kept = kept(100);
        assert_eq!(kept.resident_pages, 100);
        assert_eq!(kept.begin_use(99), None);
        kept.want(98);
        assert_eq!([(); 3].map(|()| kept.surplus()), [Some(98), Some(97), None]);
        kept.want(110);
        assert_eq!(kept.missing(PAGES), Some(97..99));
        (97..99).for_each(|page| assert!(kept.came(page, true)));
        assert_eq!([4, PAGES].map(|most| kept.missing(most)), [Some(100..104), Some(104..110)]);
        (100..110).for_each(|page| assert!(!kept.came(page, false)));
        kept.settle();
        assert_eq!((kept.missing(PAGES), kept.wanted_pages), (None, 100));
    }

    #[test]
    fn what_is_on_its_way_has_no_ram_to_give() {
        let mut kept = kept(100);
        kept.want(102);
        assert_eq!(kept.missing(PAGES), Some(100..102));
        // It comes to be used meanwhile, and the other one is not to be had.
        assert_eq!(kept.begin_use(101), Some(99));
        assert_eq!([100, 101].map(|page| kept.came(page, false)), [false, true]);
        kept.settle();
        assert_eq!((kept.resident_pages, kept.wanted_pages), (100, 100));
        // All that has RAM is in use: what is used beyond is asked for, and what comes then is too much.
        for page in 0..100 {
            kept.begin_use(page);
        }
        kept.want(kept.resident_pages + 1);
        let missing = kept.missing(PAGES).expect("one");
        assert_eq!(kept.begin_use(200), None);
        assert_eq!(missing.map(|page| kept.came(page, true)).collect::<Vec<_>>(), [false]);
    }

    #[test]
    fn against_sets_of_pages() {
        let mut random = 1999u64;
        let mut below = |bound: usize| {
            random ^= random >> 12;
            random ^= random << 25;
            random ^= random >> 27;
            (random >> 20) as usize % bound
        };
        let mut kept = kept(64);
        let mut resident: BTreeSet<usize> = (0..64).collect();
        let (mut used, mut coming) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..20_000 {
            let page = below(PAGES);
            match below(10) {
                0..4 if used.len() < kept.wanted_pages => {
                    used.insert(page);
                    coming.remove(&page);
                    let given = kept.begin_use(page);
                    assert!(given.is_none_or(|given| given != page && resident.remove(&given)));
                    assert!(given.is_none_or(|given| !used.contains(&given)));
                    resident.insert(page);
                }
                7 => {
                    let wanted = below(64) + 32;
                    kept.want(wanted.max(used.len()));
                    while let Some(given) = kept.surplus() {
                        assert!(resident.remove(&given) && !used.contains(&given));
                    }
                    while let Some(missing) = kept.missing(7) {
                        for page in missing {
                            assert!(resident.insert(page) && !coming.contains(&page));
                            assert!(kept.came(page, true));
                        }
                    }
                    assert!(resident.len() + coming.len() >= kept.wanted_pages);
                }
                8 => {
                    let missing = kept.missing(7).into_iter().flatten();
                    missing
                        .for_each(|page| assert!(!resident.contains(&page) && coming.insert(page)));
                }
                9 => {
                    let has_ram = below(2) == 0;
                    // One that came to be used meanwhile, or was never asked for, as well.
                    for came in coming.iter().copied().chain([page]).collect::<Vec<_>>() {
                        let is_wanted = resident.len() < kept.wanted_pages;
                        if coming.remove(&came) && has_ram && is_wanted {
                            resident.insert(came);
                        }
                        assert_eq!(kept.came(came, has_ram), resident.contains(&came));
                    }
                }
                _ => {
                    used.remove(&page);
                    assert!(!kept.end_use(page), "no more than wanted");
                }
            }
            assert_eq!(resident.len(), kept.resident_pages);
            assert!(resident.len() <= kept.wanted_pages && used.is_subset(&resident));
            assert!((0..PAGES).all(|page| get(&kept.resident, page) == resident.contains(&page)));
        }
    }
}
