//! Foretelling the pages that a program wants next by the pointers in those that came in.
//!
//! A program that walks over pointers, as a sort of lines by a table of them does, or whoever visits what a list
//! holds, wants pages that lie anywhere, but in the order of the words of another page. So the pages that came in last
//! and hold pointers are remembered as the pages to which these lead ([`Source`]). A fault on one of them
//! says where in its source the program is, and two of them in which direction it goes and how far its records lie
//! apart, of which other words may lead elsewhere; the next of them that are not there are *awaited*. What is awaited and
//! not wanted after all is counted, and as long as that is more than half, nothing is foretold. Where next to all of it
//! is wanted, the nearest of them may come in before they are: those behind them, which are faulted on as before, tell
//! whether the program still goes that way.
//!
//! Source: Cooksey, Jourdan and Grunwald, A Stateless, Content-Directed Data Prefetching Mechanism (ASPLOS 2002), where
//! a word of a cache line that may be an address is one; there is no state but the line. The place in a source, and
//! its direction, are ours: a page holds hundreds of pointers, of which few can be followed at a time.
//!
//! Invariant: a hint and no more. What a source holds may have been written since it came in.
//!
//! Bad for: one pointer that leads to the next, as in a list whose members are linked: each is known only
//! once the one before has come.

use core::ops::Range;

/// Pages that are remembered.
pub const SOURCES: usize = 16;
const PAGE_BYTES: usize = 4096;
const PAGE_SHIFT: u32 = 12;
const WORDS: usize = PAGE_BYTES / size_of::<u64>();
/// Most pages awaited of a source at a time.
pub const DEPTH: usize = 12;
/// Of these, the nearest, which may come in before they are faulted on.
pub const NEAREST: usize = 4;
/// Of every so many words one is looked at first, and so many of these are to be pointers: not always the same one of a
/// record's words.
const SAMPLED: usize = 33;
const SAMPLED_MIN: usize = 2;
/// Fewer pages to which a page leads are not worth a source.
const TARGETS_MIN: usize = 8;
/// Words of a source between two faults, at most, that tell a direction.
const NEAR: u32 = 256;
/// Places that are looked at for one fault.
const LOOKED_MAX: usize = 256;
/// Pages that are awaited; of more the first are forgotten.
const AWAITED: usize = 64;
/// Pages that were awaited before anything is learned of them, and after which what was learned counts half.
const TOLD_MIN: u32 = 24;
const TOLD_MAX: u32 = 256;
/// The part of them that may be awaited in vain where pages come in before they are wanted.
const SURE_PART: u32 = 8;
/// After so many faults on pages to which no source leads, one in so many looks for one.
const STRAY_MAX: u32 = 64;
const STRAY_EVERY: u32 = 8;

/// A page that came in, and where its pointers lead.
#[derive(Debug)]
#[repr(C)]
struct Source {
    /// Its number; 0 for none.
    page: u64,
    /// So many of the targets are there.
    count: u32,
    /// The word that led to the one that was wanted last, and one; 0 before there was one.
    wanted: u32,
    /// 1 where the program goes up, -1 where down, 0 before that is known.
    step: i32,
    /// What all words that were wanted lie apart, or a multiple; 0 before that is known.
    stride: u32,
    /// The pages to which its words lead, in their order, each once in a row.
    targets: [u64; WORDS],
    /// The first word that leads to each.
    words: [u16; WORDS],
}

/// A page that is to be wanted soon; its number is 0 for none.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Awaited {
    page: u64,
    source: u32,
    at: u32,
}

/// What is known of a process's pointers. All zeros is one that knows nothing.
#[derive(Debug)]
#[repr(C)]
pub struct Pointers {
    sources: [Source; SOURCES],
    /// Where the next source goes.
    next: u32,
    /// Faults in a row on pages to which no source leads.
    stray: u32,
    /// Pages that were awaited and are no more, and those of them that were wanted.
    told: u32,
    came: u32,
    awaited: [Awaited; AWAITED],
    /// Where the next one goes.
    next_awaited: u32,
    unused: u32,
}

/// The place of a page in a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    source: usize,
    at: usize,
}

impl Pointers {
    /// Notes that `page` came in with these bytes; pointers are words that lead to a page of `managed`.
    pub fn note(&mut self, page: u64, bytes: &[u8; PAGE_BYTES], managed: &Range<u64>) {
        let known = self.sources.iter().position(|source| source.page == page);
        let is_pointer = |at: &usize| managed.contains(&target(bytes, *at));
        if (0..WORDS).step_by(SAMPLED).filter(is_pointer).count() < SAMPLED_MIN {
            if let Some(at) = known {
                self.sources[at].page = 0;
            }
            return;
        }
        let at = known.unwrap_or(self.next as usize % SOURCES);
        let source = &mut self.sources[at];
        source.fill(page, bytes, managed);
        if known.is_none() && source.page != 0 {
            self.next = (self.next + 1) % SOURCES as u32;
        }
    }

    /// The place that a fault on `page` tells; it is sought for in all sources only with `is_sought`.
    pub fn want(&mut self, page: u64, is_sought: bool) -> Option<Cursor> {
        let found =
            self.take_awaited(page).or_else(|| if is_sought { self.seek(page) } else { None })?;
        let Cursor { source, at } = found;
        let beside = self.beside(self.sources[source].page);
        self.sources[source].go_to(at, beside);
        Some(found)
    }

    /// Awaits the pages that are wanted next, at most `depth`, `is_away` telling which are not there, and gives those of
    /// them that are worth to be fetched to `each`, in their order, and whether they were not awaited before. Gives the
    /// page that is to be known for more of them, where it is not.
    pub fn foretell(
        &mut self,
        cursor: Cursor,
        depth: usize,
        is_away: impl Fn(u64) -> bool,
        mut each: impl FnMut(u64, bool),
    ) -> Option<u64> {
        let Cursor { mut source, mut at } = cursor;
        let Source { step, stride, .. } = self.sources[source];
        if step == 0 {
            return None;
        }
        let from = self.sources[source].place(at);
        let (mut awaited, mut last) = (0, 0);
        for _ in 0..LOOKED_MAX {
            match self.following(source, at, step) {
                Ok(next) => (source, at) = next,
                Err(lacking) => return Some(lacking),
            }
            let page = self.sources[source].targets[at];
            let far = self.sources[source].place(at).abs_diff(from);
            let is_alike = stride == 0 || far.is_multiple_of(u64::from(stride));
            if !is_alike || page == last || !is_away(page) {
                continue;
            }
            last = page;
            let is_new = self.await_page(page, source, at);
            if self.are_worth() {
                each(page, is_new);
            }
            awaited += 1;
            if awaited >= depth.min(DEPTH) {
                break;
            }
        }
        None
    }

    /// Whether more of what was awaited was wanted than not.
    fn are_worth(&self) -> bool {
        self.told >= TOLD_MIN && self.came * 2 > self.told
    }

    /// Whether next to all of what was awaited was wanted, so that the nearest may come in before they are.
    pub fn are_sure(&self) -> bool {
        self.told >= TOLD_MIN && (self.told - self.came) * SURE_PART <= self.told
    }

    /// A page that was awaited came in before it was wanted: whether it would have been is not known.
    pub fn came_ahead(&mut self, page: u64) {
        if let Some(awaited) = self.awaited.iter_mut().find(|awaited| awaited.page == page) {
            awaited.page = 0;
        }
    }

    /// The place that follows, in the next page where the source ends; that page, if it is no source.
    fn following(&self, source: usize, at: usize, step: i32) -> Result<(usize, usize), u64> {
        let here = &self.sources[source];
        let next = at.checked_add_signed(step as isize).filter(|at| *at < here.targets().len());
        if let Some(at) = next {
            return Ok((source, at));
        }
        let page = here.page.wrapping_add_signed(i64::from(step));
        let place = self.sources.iter().position(|source| source.page == page && page != 0);
        let source = place.ok_or(page)?;
        let at = if step > 0 { 0 } else { self.sources[source].targets().len() - 1 };
        Ok((source, at))
    }

    /// The direction in which the program came to a page from its neighbour, and the neighbour's stride; 0 if it did not.
    fn beside(&self, page: u64) -> (i32, u32) {
        let before = |source: &&Source| {
            source.step != 0 && source.page.wrapping_add_signed(i64::from(source.step)) == page
        };
        self.sources.iter().find(before).map_or((0, 0), |source| (source.step, source.stride))
    }

    /// The place at which a page was awaited, which it is no more.
    fn take_awaited(&mut self, page: u64) -> Option<Cursor> {
        let awaited = self.awaited.iter_mut().find(|awaited| awaited.page == page && page != 0)?;
        let (source, at) = (awaited.source as usize, awaited.at as usize);
        awaited.page = 0;
        self.tell(true);
        let is_there = self.sources[source].targets().get(at) == Some(&page);
        is_there.then_some(Cursor { source, at })
    }

    /// Awaits a page; false where it was awaited.
    fn await_page(&mut self, page: u64, source: usize, at: usize) -> bool {
        if self.awaited.iter().any(|awaited| awaited.page == page) {
            return false;
        }
        let next = self.next_awaited as usize % AWAITED;
        let new = Awaited { page, source: source as u32, at: at as u32 };
        let forgotten = core::mem::replace(&mut self.awaited[next], new);
        self.next_awaited = next as u32 + 1;
        if forgotten.page != 0 {
            self.tell(false);
        }
        true
    }

    /// A page that was awaited is no more: it was wanted, or forgotten.
    fn tell(&mut self, was_wanted: bool) {
        self.told += 1;
        self.came += u32::from(was_wanted);
        if self.told > TOLD_MAX {
            self.told /= 2;
            self.came /= 2;
        }
    }

    fn seek(&mut self, page: u64) -> Option<Cursor> {
        self.stray += 1;
        if self.stray > STRAY_MAX && !self.stray.is_multiple_of(STRAY_EVERY) {
            return None;
        }
        let places = self.sources.iter().enumerate();
        let found = places
            .filter_map(|(source, one)| Some(Cursor { source, at: one.find(page)? }))
            .next()?;
        self.stray = 0;
        Some(found)
    }
}

impl Source {
    /// Becomes that of `page`, or none, where it leads to few pages.
    fn fill(&mut self, page: u64, bytes: &[u8; PAGE_BYTES], managed: &Range<u64>) {
        (self.page, self.count, self.wanted, self.step, self.stride) = (page, 0, 0, 0, 0);
        let mut last = page;
        for at in 0..WORDS {
            let target = target(bytes, at);
            if target != last && target != page && managed.contains(&target) {
                self.targets[self.count as usize] = target;
                self.words[self.count as usize] = at as u16;
                self.count += 1;
                last = target;
            }
        }
        if (self.count as usize) < TARGETS_MIN {
            self.page = 0;
        }
    }

    fn targets(&self) -> &[u64] {
        if self.page == 0 { &[] } else { &self.targets[..self.count as usize] }
    }

    /// The place of a page that is nearest to the last one.
    fn find(&self, page: u64) -> Option<usize> {
        let places = self.targets().iter().enumerate().filter(|(_, target)| **target == page);
        places.map(|(at, _)| at).min_by_key(|at| self.word(*at).abs_diff(self.wanted))
    }

    /// The word that leads to a target, and one.
    fn word(&self, at: usize) -> u32 {
        u32::from(self.words[at]) + 1
    }

    /// Where it lies in memory, in words.
    fn place(&self, at: usize) -> u64 {
        self.page.wrapping_mul(WORDS as u64).wrapping_add(u64::from(self.words[at]))
    }

    /// A target is wanted. A source that was not met before has its direction and stride from the one beside it.
    fn go_to(&mut self, at: usize, beside: (i32, u32)) {
        let (before, wanted) = (self.wanted, self.word(at));
        let far = before.abs_diff(wanted);
        if before == 0 {
            (self.step, self.stride) = beside;
        } else if far > NEAR {
            (self.step, self.stride) = (0, 0);
        } else if far > 0 {
            self.step = if wanted > before { 1 } else { -1 };
            self.stride = common_divisor(self.stride, far);
        }
        self.wanted = wanted;
    }
}

/// The greatest number by which both can be divided; the other one where one is 0.
fn common_divisor(mut one: u32, mut other: u32) -> u32 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}

/// The page to which a word of a page leads.
fn target(bytes: &[u8; PAGE_BYTES], at: usize) -> u64 {
    let (words, _) = bytes.as_chunks::<8>();
    u64::from_le_bytes(words[at]) >> PAGE_SHIFT
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::boxed::Box;
    use std::collections::BTreeSet;
    use std::vec::Vec;
    use zpager_seed::{Random, random};

    const TABLE: u64 = 1000;
    const DATA: Range<u64> = 10_000..60_000;
    const MANAGED: Range<u64> = 500..100_000;

    fn new() -> Box<Pointers> {
        // SAFETY: all zeros is one that knows nothing.
        unsafe { Box::new_zeroed().assume_init() }
    }

    fn page_of(words: impl IntoIterator<Item = u64>) -> [u8; PAGE_BYTES] {
        let mut bytes = [0; PAGE_BYTES];
        for (to, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        bytes
    }

    /// A table of records of four words, as GNU sort's: a length, and three pointers, of which one leads elsewhere.
    fn table(random: &mut Random, pages: usize) -> Vec<Vec<u64>> {
        let mut page = || (0..WORDS / 4).map(|_| random.u64(DATA)).collect();
        (0..pages).map(|_| page()).collect()
    }

    fn record_words(targets: &[u64]) -> impl Iterator<Item = u64> {
        let record = |page: &u64| [60, page << 12 | 0x123, page << 12 | 0x123, (page + 1) << 12];
        targets.iter().flat_map(record)
    }

    /// A program whose pages of data are never there before they are wanted; what was foretold and wanted, and not.
    struct Program {
        pointers: Box<Pointers>,
        told: BTreeSet<u64>,
        wanted: usize,
        foretold: usize,
        began: usize,
    }

    impl Program {
        fn new() -> Self {
            let (told, pointers) = (BTreeSet::new(), new());
            Program { pointers, told, wanted: 0, foretold: 0, began: 0 }
        }

        fn note(&mut self, page: u64, targets: &[u64]) {
            self.pointers.note(page, &page_of(record_words(targets)), &MANAGED);
        }

        fn want(&mut self, page: u64) {
            self.wanted += 1;
            self.foretold += usize::from(self.told.remove(&page));
            let Some(cursor) = self.pointers.want(page, true) else { return };
            self.pointers.foretell(
                cursor,
                DEPTH,
                |_| true,
                |page, is_new| {
                    self.began += usize::from(is_new);
                    self.told.insert(page);
                },
            );
        }
    }

    #[test]
    fn pages_of_a_table_are_foretold_in_both_directions() {
        for is_down in [false, true] {
            let mut random = random(1);
            let mut pages = table(&mut random, 20);
            if is_down {
                pages.iter_mut().for_each(|page| page.reverse());
            }
            let mut program = Program::new();
            for (at, targets) in pages.iter().enumerate() {
                let number = if is_down { TABLE - at as u64 } else { TABLE + at as u64 };
                let mut in_order = targets.clone();
                if is_down {
                    in_order.reverse();
                }
                program.note(number, &in_order);
                targets.iter().for_each(|page| program.want(*page));
            }
            let Program { wanted, foretold, began, .. } = program;
            assert!(foretold * 100 > wanted * 90, "{foretold} of {wanted}, down {is_down}");
            assert!(began * 100 < wanted * 105, "{began} of {wanted}, down {is_down}");
        }
    }

    #[test]
    fn two_tables_in_turns_are_told_apart_and_go_on_in_the_pages_beside() {
        let mut random = random(2);
        let tables = [table(&mut random, 8), table(&mut random, 8)];
        let mut program = Program::new();
        let mut at = [0, 0];
        while at.iter().all(|at| *at < 8 * WORDS / 4) {
            let which = random.usize(..2);
            let (page, place) = (at[which] / (WORDS / 4), at[which] % (WORDS / 4));
            // Pages of a table come two at a time.
            if place == 0 && page % 2 == 0 {
                let first = TABLE * (1 + which as u64) + page as u64;
                program.note(first, &tables[which][page]);
                program.note(first + 1, &tables[which][page + 1]);
            }
            program.want(tables[which][page][place]);
            at[which] += 1;
        }
        let Program { wanted, foretold, .. } = program;
        assert!(foretold * 100 > wanted * 85, "{foretold} of {wanted}");
    }

    #[test]
    fn what_is_there_already_is_not_awaited() {
        let mut random = random(3);
        let mut program = Program::new();
        let is_there = |page: &u64| page.is_multiple_of(2);
        let (mut wanted, mut foretold) = (0, 0);
        for (at, targets) in table(&mut random, 40).iter().enumerate() {
            program.note(TABLE + at as u64, targets);
            for page in targets.iter().filter(|page| !is_there(page)) {
                wanted += 1;
                foretold += usize::from(program.told.remove(page));
                let Some(cursor) = program.pointers.want(*page, true) else { continue };
                let told = &mut program.told;
                program.pointers.foretell(
                    cursor,
                    DEPTH,
                    |page| !is_there(&page),
                    |page, is_new| {
                        assert!(!is_there(&page) && (told.insert(page) || !is_new));
                    },
                );
            }
        }
        assert!(foretold * 100 > wanted * 85, "{foretold} of {wanted}");
    }

    #[test]
    fn what_is_not_wanted_in_order_is_soon_not_foretold() {
        let mut random = random(4);
        let mut program = Program::new();
        for (at, targets) in table(&mut random, 200).iter().enumerate() {
            program.note(TABLE + at as u64, targets);
            // Near each other, so that there is a direction, and most of what lies between is not wanted.
            for _ in 0..64 {
                let near = random.usize(..WORDS / 4);
                program.want(targets[near]);
            }
        }
        let Program { wanted, began, .. } = program;
        assert!(began * 20 < wanted, "{began} for {wanted}");
    }

    #[test]
    fn the_nearest_come_ahead_as_long_as_the_program_goes_that_way() {
        let mut random = random(6);
        let tables = table(&mut random, 240);
        let (in_order, elsewhere) = tables.split_at(40);
        let mut pointers = new();
        let (mut there, mut faults, mut came) = (BTreeSet::new(), 0, 0);
        let mut visit = |page: u64, pointers: &mut Pointers| {
            if there.remove(&page) {
                return (faults, came);
            }
            faults += 1;
            let Some(cursor) = pointers.want(page, true) else { return (faults, came) };
            let mut next = Vec::new();
            pointers.foretell(
                cursor,
                DEPTH,
                |page| !there.contains(&page),
                |page, _| next.push(page),
            );
            if pointers.are_sure() {
                for page in next.into_iter().take(NEAREST) {
                    pointers.came_ahead(page);
                    came += usize::from(there.insert(page));
                }
            }
            (faults, came)
        };
        let mut counts = (0, 0);
        for (at, targets) in in_order.iter().enumerate() {
            pointers.note(TABLE + at as u64, &page_of(record_words(targets)), &MANAGED);
            targets.iter().for_each(|page| counts = visit(*page, &mut pointers));
        }
        let (faults, came_before) = counts;
        assert!(faults * 4 < in_order.len() * WORDS / 4, "{faults}");
        for (at, targets) in elsewhere.iter().enumerate() {
            let number = TABLE + (in_order.len() + at) as u64;
            pointers.note(number, &page_of(record_words(targets)), &MANAGED);
            (0..64).for_each(|_| counts = visit(targets[random.usize(..WORDS / 4)], &mut pointers));
        }
        let in_vain = counts.1 - came_before;
        assert!(in_vain < elsewhere.len() * 64 / 20, "{in_vain}");
    }

    #[test]
    fn what_is_no_pointer_makes_no_source() {
        let mut pointers = new();
        let text = page_of((0..WORDS as u64).map(|at| 0x6162_6364_6566_6768 + at));
        pointers.note(TABLE, &text, &MANAGED);
        let few = page_of((0..4).map(|at| (DATA.start + at) << 12));
        pointers.note(TABLE + 1, &few, &MANAGED);
        let own = page_of((0..WORDS as u64).map(|at| (TABLE + 2) << 12 | at));
        pointers.note(TABLE + 2, &own, &MANAGED);
        assert!(pointers.sources.iter().all(|source| source.targets().is_empty()));
        for page in (TABLE..TABLE + 3).chain(DATA.start..DATA.start + 4) {
            assert_eq!(pointers.want(page, true), None);
        }
        // What held pointers, and does not any more, is no source any more.
        let targets: Vec<u64> = DATA.take(WORDS / 4).collect();
        pointers.note(TABLE, &page_of(record_words(&targets)), &MANAGED);
        assert!(pointers.want(targets[5], true).is_some());
        pointers.note(TABLE, &text, &MANAGED);
        assert_eq!(pointers.want(targets[5], true), None);
    }

    #[test]
    fn any_contents_and_any_faults_are_borne() {
        let mut random = random(5);
        let mut pointers = new();
        for _ in 0..3000 {
            let near = random.u64(..200);
            let words: Vec<u64> = (0..WORDS)
                .map(|_| match random.u32(..4) {
                    0 => random.u64(..),
                    1 => u64::MAX - random.u64(..100),
                    _ => random.u64(near * 100..20_000) << 12,
                })
                .collect();
            let page = [0, near, u64::MAX, random.u64(..)][random.usize(..4)];
            pointers.note(page, &page_of(words.iter().copied()), &(0..u64::MAX));
            for _ in 0..20 {
                let page = words[random.usize(..WORDS)] >> random.u32(11..13);
                if let Some(cursor) = pointers.want(page, random.bool()) {
                    pointers.foretell(
                        cursor,
                        random.usize(..20),
                        |page| page % 3 != 0,
                        |page, _| assert!(page % 3 != 0),
                    );
                }
            }
        }
    }
}
