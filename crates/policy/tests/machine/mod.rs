//! A machine that runs a reference string under the rules: resident pages, a pool that wastes
//! nothing, and a store. It counts what was read from where.

use std::collections::{BTreeMap, BTreeSet};

use zpager_policy::{
    Adaptive, Age, Change, Found, Line, List, Lists, Replacement, Residents, ResidentsRule, Shares,
    Size, Step, Variant,
};
use zpager_seed::Random;

pub(crate) const PAGE_BYTES: usize = 4096;
/// Pages that leave together.
const BATCH_PAGES: usize = 8;
/// Steps of one search for room.
const STEPS_MAX: usize = 10_000;

/// A read from the store costs as many from the pool: 10 us beside 1 ms.
const STORE_COST: usize = 100;

/// What happened.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) pool_reads: usize,
    pub(crate) store_reads: usize,
    /// Runs of writes, without anything swapped out between.
    pub(crate) store_writes: usize,
    pub(crate) written_pages: usize,
}

impl Counts {
    /// Time lost, in reads from the pool.
    pub(crate) fn cost(&self) -> usize {
        self.pool_reads + self.store_reads * STORE_COST
    }
}

/// The pool's pages in the order in which they came.
#[derive(Debug, Default)]
struct Pool {
    /// By position: which page, and its list.
    line: BTreeMap<u64, (u64, List)>,
    positions: BTreeMap<u64, u64>,
    next: u64,
}

impl Line for Pool {
    fn before(&self, position: u64) -> Option<u64> {
        self.line.range(..position).next_back().map(|(&at, _)| at)
    }
    fn at_or_after(&self, position: u64) -> Option<u64> {
        self.line.range(position..).next().map(|(&at, _)| at)
    }
    fn set_list(&mut self, position: u64, list: List) {
        self.line.get_mut(&position).expect("a page is there").1 = list;
    }
}

pub(crate) struct Machine {
    budget_bytes: usize,
    /// What every page is compressed to.
    compressed_bytes: usize,
    size: Size,
    replacement: Replacement,
    residents: BTreeMap<u64, u16>,
    pool: Pool,
    lists: Lists,
    spilled: BTreeSet<u64>,
    /// Whether the last step was a write.
    is_writing: bool,
    pub(crate) counts: Counts,
}

impl Machine {
    pub(crate) fn new(
        pages: usize,
        compressed_bytes: usize,
        size: Size,
        rule: ResidentsRule,
    ) -> Self {
        Machine {
            budget_bytes: pages * PAGE_BYTES,
            compressed_bytes,
            size,
            replacement: Replacement::new(rule),
            residents: BTreeMap::new(),
            pool: Pool::default(),
            lists: Lists::default(),
            spilled: BTreeSet::new(),
            is_writing: false,
            counts: Counts::default(),
        }
    }

    pub(crate) fn run(mut self, references: impl Iterator<Item = u64>) -> Counts {
        references.for_each(|page| self.reference(page));
        self.counts
    }

    fn reference(&mut self, page: u64) {
        if self.residents.contains_key(&page) {
            return;
        }
        if let Some(list) = self.remove(page) {
            self.counts.pool_reads += 1;
            let pool_bytes = self.pool_bytes();
            // A pool that wastes nothing has no cell to free.
            if let Size::Adaptive(adaptive) = &mut self.size
                && adaptive.read(list, pool_bytes) == Change::Shrink
            {
                adaptive.owe(self.compressed_bytes);
            }
        } else if self.spilled.remove(&page) {
            self.counts.store_reads += 1;
        }
        self.residents.insert(page, self.replacement.mark());
        self.make_room();
    }

    fn pool_bytes(&self) -> usize {
        self.pool.line.len() * self.compressed_bytes
    }

    fn make_room(&mut self) {
        for _ in 0..STEPS_MAX {
            let (resident_bytes, pool_bytes) =
                (self.residents.len() * PAGE_BYTES, self.pool_bytes());
            if resident_bytes + pool_bytes + self.size.unused_bytes(pool_bytes) <= self.budget_bytes
            {
                return;
            }
            let shares = Shares { resident_bytes, pool_bytes, raw_bytes: 0, has_store: true };
            match self.size.next_step(&shares, |_| false) {
                Step::SwapOut => self.swap_out(),
                Step::Spill => self.spill(BATCH_PAGES),
                Step::Nothing => return,
            }
        }
        panic!("no room after {STEPS_MAX} steps");
    }

    fn swap_out(&mut self) {
        self.is_writing = false;
        let mut victims = [0; BATCH_PAGES];
        let count = self.replacement.take(&Resident(&self.residents), &mut victims);
        for victim in &victims[..count] {
            let limit_bytes = self.size.limit_bytes().unwrap_or(usize::MAX);
            if self.pool_bytes() + self.compressed_bytes > limit_bytes {
                self.size.refused();
                // Without a pool it goes to the store as it is.
                if limit_bytes >= self.compressed_bytes {
                    return;
                }
                self.residents.remove(victim);
                self.spilled.insert(*victim);
                self.counts.written_pages += 1;
                continue;
            }
            self.residents.remove(victim).expect("a victim is resident");
            let position = self.pool.next;
            self.pool.next += 1;
            self.pool.line.insert(position, (*victim, self.lists.entered()));
            self.pool.positions.insert(*victim, position);
            let pool_bytes = self.pool_bytes();
            self.lists.settle(&mut self.pool, pool_bytes);
        }
    }

    /// Takes a page out of the pool.
    fn remove(&mut self, page: u64) -> Option<List> {
        let position = self.pool.positions.remove(&page)?;
        let (_, list) = self.pool.line.remove(&position).expect("a page at its position");
        self.lists.left(list);
        let pool_bytes = self.pool_bytes();
        self.lists.settle(&mut self.pool, pool_bytes);
        Some(list)
    }

    /// Writes the oldest pages of the pool.
    fn spill(&mut self, pages: usize) {
        let oldest: Vec<u64> = self.pool.line.values().take(pages).map(|&(page, _)| page).collect();
        for page in &oldest {
            self.remove(*page);
            self.spilled.insert(*page);
        }
        self.counts.store_writes += usize::from(!self.is_writing);
        self.is_writing = true;
        self.counts.written_pages += oldest.len();
        self.size.spilled(oldest.len() * self.compressed_bytes, self.pool_bytes());
    }
}

/// The resident pages and their marks.
struct Resident<'a>(&'a BTreeMap<u64, u16>);

impl Residents for Resident<'_> {
    fn next(&self, from: u64) -> Found {
        match self.0.range(from..).next() {
            Some((&page, &mark)) => Found::Page(page, Age { mark, heat: 0 }),
            None => Found::End,
        }
    }
    fn count(&self) -> u64 {
        self.0.len() as u64
    }
}

/// Pages of a program that uses `pages` in any order, `references` times, the same for each `seed`.
pub(crate) fn at_random(pages: u64, references: usize, seed: u64) -> impl Iterator<Item = u64> {
    let mut random = Random::with_seed(seed);
    std::iter::repeat_with(move || random.u64(..pages)).take(references)
}

/// A program that goes round `pages` pages `rounds` times.
pub(crate) fn around(pages: u64, rounds: usize) -> impl Iterator<Item = u64> {
    (0..rounds).flat_map(move |_| 0..pages)
}

pub(crate) fn adaptive(variant: Variant) -> Size {
    Size::Adaptive(Adaptive::new(variant, BATCH_PAGES * PAGE_BYTES / 4))
}
