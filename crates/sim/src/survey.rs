//! The first pass over a trace: which pages it has, and when each is wanted next.
//!
//! Page numbers are spread over an address space (and over processes); the simulator numbers them
//! anew, close together, so that its tables are plain vectors. Numbers are given by leaves of 512
//! pages, in order, and pages that were not neighbours do not become so.
//!
//! A region, within which pages are fetched ahead, is a run of pages that the trace references
//! somewhere: it is as if the program had mapped only what it used.
//!
//! Invariant: a trace of which the survey was taken was read to its end, so all of it is sound.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::io::Read;
use std::ops::Range;

use crate::trace::{Event, Header, Reader, TraceError};

/// Pages of a leaf.
const LEAF_PAGES: u64 = 512;
/// Words of a leaf's bitmap.
const LEAF_WORDS: usize = (LEAF_PAGES / 64) as usize;

/// Spreads leaf numbers over a hash table (Fibonacci hashing).
#[derive(Debug, Clone, Copy, Default)]
struct Fibonacci(u64);

impl Hasher for Fibonacci {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type Leaves<T> = HashMap<u64, T, BuildHasherDefault<Fibonacci>>;

/// What the first pass found.
#[derive(Debug)]
pub struct Survey {
    /// The trace's header.
    pub header: Header,
    /// References in the trace.
    pub references: u64,
    /// Different pages that it references.
    pub pages: u64,
    /// How the pages are numbered.
    pub layout: Layout,
}

/// How pages are numbered in the simulator.
#[derive(Debug)]
pub struct Layout {
    /// The first number of each leaf's pages.
    leaves: Leaves<u64>,
    /// The leaves in order.
    sorted: Vec<u64>,
    /// Runs of pages, in the simulator's numbers, in order.
    regions: Vec<Range<u64>>,
    end: u64,
}

/// Reads a trace to its end.
///
/// # Errors
/// What is wrong with the trace.
pub fn survey(mut reader: Reader<impl Read>) -> Result<Survey, TraceError> {
    let mut seen: Leaves<[u64; LEAF_WORDS]> = Leaves::default();
    while let Some(event) = reader.next_event()? {
        if let Event::Reference(reference) = event {
            let leaf = seen.entry(reference.page / LEAF_PAGES).or_default();
            let at = reference.page % LEAF_PAGES;
            leaf[at as usize / 64] |= 1 << (at % 64);
        }
    }
    let bits = seen.values().flatten();
    Ok(Survey {
        header: reader.header().clone(),
        references: reader.totals().references,
        pages: bits.map(|word| u64::from(word.count_ones())).sum(),
        layout: Layout::of(&seen),
    })
}

impl Layout {
    fn of(seen: &Leaves<[u64; LEAF_WORDS]>) -> Self {
        let mut sorted: Vec<u64> = seen.keys().copied().collect();
        sorted.sort_unstable();
        let mut layout = Layout {
            leaves: Leaves::default(),
            sorted,
            regions: Vec::new(),
            // Page 0 has no page before it.
            end: LEAF_PAGES,
        };
        let mut before = None;
        for &leaf in &layout.sorted {
            if before.is_some_and(|before| before + 1 != leaf) {
                layout.end += LEAF_PAGES;
            }
            layout.leaves.insert(leaf, layout.end);
            add_runs(&mut layout.regions, layout.end, &seen[&leaf]);
            layout.end += LEAF_PAGES;
            before = Some(leaf);
        }
        layout
    }

    /// One past the highest number.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Looks numbers up, fastest where pages are near the last one.
    pub(crate) fn lookup(&self) -> Lookup<'_> {
        Lookup { layout: self, leaf: u64::MAX, first: 0 }
    }

    /// The region of a page that is referenced somewhere.
    pub(crate) fn region(&self, page: u64) -> Range<u64> {
        let after = self.regions.partition_point(|region| region.end <= page);
        self.regions[after].clone()
    }

    /// The numbers of those of `pages` pages from `first` on that lie in leaves of the trace.
    pub(crate) fn ranges(&self, first: u64, pages: u64) -> impl Iterator<Item = Range<u64>> {
        let end = first + pages;
        let from = self.sorted.partition_point(|leaf| *leaf < first / LEAF_PAGES);
        let leaves = self.sorted[from..].iter().take_while(move |leaf| *leaf * LEAF_PAGES < end);
        leaves.map(move |leaf| {
            let begin = leaf * LEAF_PAGES;
            let at = self.leaves[leaf];
            at + (first.max(begin) - begin)..at + (end.min(begin + LEAF_PAGES) - begin)
        })
    }
}

/// Adds the runs of set bits of a leaf whose pages begin at `at`; one that goes on from the last
/// region makes it longer.
fn add_runs(regions: &mut Vec<Range<u64>>, at: u64, bits: &[u64; LEAF_WORDS]) {
    let is_set = |page: u64| bits[page as usize / 64] & (1 << (page % 64)) != 0;
    for page in (0..LEAF_PAGES).filter(|&page| is_set(page)).map(|page| at + page) {
        match regions.last_mut() {
            Some(last) if last.end == page => last.end += 1,
            _ => regions.push(page..page + 1),
        }
    }
}

/// Gives pages their numbers.
#[derive(Debug)]
pub(crate) struct Lookup<'a> {
    layout: &'a Layout,
    /// The leaf that was asked for last, and its first number.
    leaf: u64,
    first: u64,
}

impl Lookup<'_> {
    /// The number of a page; `None` where the survey did not see its leaf.
    #[inline]
    pub(crate) fn number(&mut self, page: u64) -> Option<u64> {
        let leaf = page / LEAF_PAGES;
        if leaf != self.leaf {
            self.first = *self.layout.leaves.get(&leaf)?;
            self.leaf = leaf;
        }
        Some(self.first + page % LEAF_PAGES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::testing;

    #[test]
    fn neighbours_stay_neighbours_and_no_others_become_so() {
        let pages = [511, 512, 513, 2000, 1 << 36, 511, 5119, 6 * 1024];
        let bytes = testing::trace(&[], pages.map(testing::read));
        let survey = survey(Reader::new(&bytes[..]).expect("a trace")).expect("sound");
        assert_eq!((survey.references, survey.pages), (8, 7));
        let mut lookup = survey.layout.lookup();
        let numbers = pages.map(|page| lookup.number(page).expect("seen"));
        assert_eq!(numbers[1], numbers[0] + 1);
        assert_eq!(survey.layout.region(numbers[0]), numbers[0]..numbers[2] + 1);
        assert_eq!(survey.layout.region(numbers[3]), numbers[3]..numbers[3] + 1);
        assert_eq!(lookup.number(1 << 20), None);
        let mut ordered = numbers;
        ordered.sort_unstable();
        assert!(ordered.windows(2).all(|pair| pair[0] <= pair[1]));
        assert!(ordered[7] < survey.layout.end());
    }

    #[test]
    fn a_release_covers_what_the_trace_knows() {
        let bytes = testing::trace(&[], [100, 600, 5000].map(testing::read));
        let survey = survey(Reader::new(&bytes[..]).expect("a trace")).expect("sound");
        let mut lookup = survey.layout.lookup();
        let [low, mid, high] = [100, 600, 5000].map(|page| lookup.number(page).expect("seen"));
        let covered = |first, pages| -> Vec<u64> {
            let all: Vec<u64> = survey.layout.ranges(first, pages).flatten().collect();
            [low, mid, high].into_iter().filter(|page| all.contains(page)).collect()
        };
        assert_eq!(covered(0, 1 << 40), [low, mid, high]);
        assert_eq!(covered(100, 1), [low]);
        assert_eq!(covered(101, 500), [mid]);
        assert_eq!(covered(101, 499), []);
        assert_eq!(covered(5001, 1 << 40), []);
    }
}
