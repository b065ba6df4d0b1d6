//! How much of its memory the pool of a swap device leaves to the programs that swap to it.
//!
//! What the pool holds spares reads from the store, and what it takes of the machine has programs swap more.
//! Programs that want nearly all of the memory then wait for page after page that they had a moment ago, and
//! all that the pool spares is less than that.
//!
//! A page that leaves is wanted again after so many others have left: its distance. Had programs had so many
//! pages more, it would not have left at all. Had the pool been smaller, with programs larger by as much, it
//! would have been in the pool if its distance, less those pages, is within what such a pool holds; or else
//! in the store. So the distances of a sample of pages say what reads would have cost with any other share,
//! as one pass over a trace tells of all sizes of a cache. A larger pool would have had more pages leave, of
//! which nothing is seen: as many are taken to be wanted as at the shortest distances. The share moves a few
//! steps at a time towards the one that would have cost least.
//!
//! Distances are counted in pages that leave or come, whichever are more: of those that leave some are
//! dropped without a word, as they are in the swap already, and of those that come some are new. Of a page
//! that is read and not written again it is not known when it left: not before it came.
//!
//! What a page costs is measured too: the processor time of the server for each that is read, twice, as the
//! kernel's half takes about as much; and what the store takes, in time of the processor and in waiting.
//!
//! Source: Mattson and others, Evaluation techniques for storage hierarchies (IBM Systems Journal, 1970);
//! castro (2003), 2.3 (a cache that shrinks when its expense exceeds its benefit).
//!
//! Bad case: programs that want everything once in a long while; what the pool gave up before is read from
//! the store then.

use crate::sample::{SLOTS, Sample, Sampler};

/// Slots of the table of sampled pages.
pub const GIVE_WAY_SLOTS: usize = 2 * SLOTS;
/// The pool's memory is moved in so many parts.
const STEPS: usize = 16;
/// Of which so many are given at most: what is left still has pages leave in batches.
const GIVEN_MAX: usize = STEPS * 3 / 4;
/// Distances are told apart up to so many times the pool's memory, a step wide.
const BINS: usize = 8 * STEPS;
/// A sample is kept of so many times the pages of the pool's memory.
const AWAY_TIMES: u64 = 4;
/// Pages read between two decisions: so many at least, and as many as make up so many steps.
const TERM_MIN: u64 = 1024;
const TERM_STEPS: u64 = 2;
/// Another share has to cost less by this part: a smaller pool, and a larger one.
const SHRINK_PART: u128 = 4;
const GROW_PART: u128 = 8;
/// The share moves by so many at a time at most.
const MOVE_STEPS: usize = 2;
/// Pages are alike whose distances differ by no more than this part of them.
const NEAR_PART: usize = 8;
/// So many sampled pages say where such pages are.
const KNOWN_MIN: u32 = 8;
/// A page's way there and back costs so many times the server's processor time.
const TRIP_TIMES: u64 = 2;
/// Reads from the pool that one from the store is taken to cost before one was measured. It is known as soon
/// as some have left.
const STORE_READS_GUESS: u64 = 50;

/// How a device stands when a term is over.
#[derive(Debug, Clone, Copy)]
pub struct Standing {
    /// Pages of RAM that the pool has.
    pub taken_pages: u64,
    /// Those of them that it is in need of.
    pub used_pages: u64,
    /// How many others have left since the page in the pool did that left first.
    pub age: u64,
    /// Processor time of the server in this term.
    pub server_ns: u64,
}

/// What pages that were read cost, and how many they were.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    reads: u64,
    server_ns: u64,
    store_reads: u64,
    store_cpu_ns: u64,
    store_wait_ns: u64,
}

/// Where sampled pages of about the same distance were.
#[derive(Debug, Clone, Copy, Default)]
struct Found {
    pooled: u32,
    stored: u32,
}

/// What one page costs.
#[derive(Debug, Clone, Copy)]
struct Prices {
    pool_ns: u64,
    store_ns: u64,
}

/// Decides it.
#[derive(Debug)]
pub struct GiveWay<'a> {
    sampler: Sampler<'a>,
    /// Pages that left and were followed by none that came.
    surplus: u64,
    step_pages: u64,
    given_steps: usize,
    /// Sampled pages that were read, by distance in steps.
    found: [Found; BINS],
    /// Pages read since the last decision.
    term_reads: u64,
    spent: Spent,
}

impl<'a> GiveWay<'a> {
    /// Of a pool of at most so many pages of RAM. `slots` are [`GIVE_WAY_SLOTS`] empty ones.
    pub fn new(slots: &'a mut [Sample], pool_pages: u64) -> Self {
        GiveWay {
            sampler: Sampler::new(slots, AWAY_TIMES * pool_pages),
            surplus: 0,
            step_pages: step_pages(pool_pages),
            given_steps: 0,
            found: [Found::default(); BINS],
            term_reads: 0,
            spent: Spent::default(),
        }
    }

    /// Begins anew for a pool of another size.
    pub fn resize(&mut self, pool_pages: u64) {
        self.step_pages = step_pages(pool_pages);
        self.found = [Found::default(); BINS];
    }

    /// Gives nothing any more, until a term says otherwise.
    pub fn take_back(&mut self) {
        self.given_steps = 0;
    }

    /// Pages of RAM that the pool leaves to programs.
    pub fn given_pages(&self) -> u64 {
        self.given_steps as u64 * self.step_pages
    }

    /// Notes that a page leaves for the device.
    pub fn leaves(&mut self, page: u64) {
        self.sampler.leaves(page);
        self.surplus = (self.surplus + 1).min(self.step_pages);
    }

    /// Notes that a page is wanted, from the store or from the pool.
    pub fn comes(&mut self, page: u64, is_from_store: bool) {
        if let Some(distance) = self.sampler.distance(page) {
            let found = &mut self.found[(distance / self.step_pages).min(BINS as u64 - 1) as usize];
            *(if is_from_store { &mut found.stored } else { &mut found.pooled }) += 1;
        }
        self.sampler.note(page);
        match self.surplus {
            0 => self.sampler.pass(),
            _ => self.surplus -= 1,
        }
        self.term_reads += 1;
        self.spent.store_reads += u64::from(is_from_store);
    }

    /// Notes what the store took.
    pub fn used_store(&mut self, cpu_ns: u64, wait_ns: u64) {
        self.spent.store_cpu_ns += cpu_ns;
        self.spent.store_wait_ns += wait_ns;
    }

    /// What a page from the pool costs, in ns.
    pub fn pool_ns(&self) -> u64 {
        self.prices().pool_ns
    }

    /// How many pages have left since `page` did, if it is in the sample.
    pub fn distance(&self, page: u64) -> Option<u64> {
        self.sampler.distance(page)
    }

    /// Whether enough was read for the next decision.
    pub fn is_due(&self) -> bool {
        self.term_reads >= TERM_MIN.max(TERM_STEPS * self.step_pages)
    }

    /// Pages read since the last decision.
    pub fn term_reads(&self) -> u64 {
        self.term_reads
    }

    /// Decides anew, for a machine that swaps to the device.
    pub fn decide(&mut self, standing: &Standing) {
        self.spent.reads += self.term_reads;
        self.spent.server_ns += standing.server_ns;
        // What the pool has not taken programs have already.
        let taken = self.steps(standing.taken_pages).clamp(1, STEPS);
        let from = self.given_steps.max(STEPS - taken);
        let to = self.best(from, standing);
        if to != from {
            let way = to.abs_diff(from).min(MOVE_STEPS);
            self.given_steps = if to > from { from + way } else { from - way };
            // It says where pages were with another share.
            self.found = [Found::default(); BINS];
        }
        self.begin_term();
    }

    /// Begins a term in which the machine does not swap to the device, as far as can be told.
    pub fn skip(&mut self) {
        self.begin_term();
    }

    fn begin_term(&mut self) {
        self.term_reads = 0;
        for Found { pooled, stored } in &mut self.found {
            *pooled /= 2;
            *stored /= 2;
        }
        let Spent { reads, server_ns, store_reads, store_cpu_ns, store_wait_ns } = &mut self.spent;
        for sum in [reads, server_ns, store_reads, store_cpu_ns, store_wait_ns] {
            *sum /= 2;
        }
    }

    fn steps(&self, pages: u64) -> usize {
        pages.div_ceil(self.step_pages) as usize
    }

    /// What would have cost least, if that is clearly less.
    fn best(&self, from: usize, standing: &Standing) -> usize {
        let used = self.steps(standing.used_pages).clamp(1, STEPS - from);
        let is_full = from == self.given_steps && used + 1 >= STEPS - from;
        let prices = self.prices();
        let cost = |to: usize| self.cost(from, to, used, standing.age, prices);
        let now = cost(from);
        let least = if is_full { 0 } else { from };
        let best = (least..=GIVEN_MAX).min_by_key(|to| (cost(*to), to.abs_diff(from)));
        let part = |to: usize| if to > from { SHRINK_PART } else { GROW_PART };
        best.filter(|to| cost(*to) < now - now / part(*to)).unwrap_or(from)
    }

    fn prices(&self) -> Prices {
        let Spent { reads, server_ns, store_reads, store_cpu_ns, store_wait_ns } = self.spent;
        let pool_ns = TRIP_TIMES * server_ns.saturating_sub(store_cpu_ns) / reads.max(1);
        let store_ns = match (store_cpu_ns + store_wait_ns).checked_div(store_reads) {
            Some(store_ns) => pool_ns + store_ns,
            None => STORE_READS_GUESS * pool_ns,
        };
        Prices { pool_ns, store_ns }
    }

    /// What the sampled reads would have cost with `to` steps given in place of `from`, when the pool uses
    /// `used` and holds what left up to `age` pages ago.
    fn cost(&self, from: usize, to: usize, used: usize, age: u64, prices: Prices) -> u128 {
        let Prices { pool_ns, store_ns } = prices;
        let left = if to < from { STEPS - to } else { used.min(STEPS - to) };
        let mut cost = 0;
        for (at, found) in self.found.iter().enumerate() {
            let reads = u64::from(found.all());
            // With more memory of their own programs would not have missed it.
            let Some(distance) = (at + from).checked_sub(to).filter(|_| reads > 0) else {
                continue;
            };
            let alike = distance * used / left;
            let stored = self.stored_permille(alike, age);
            let price_ns = (pool_ns * (1000 - stored) + store_ns * stored) / 1000;
            cost += u128::from(reads) * u128::from(price_ns);
        }
        let unseen = &self.found[..from.saturating_sub(to)];
        let unseen: u32 = unseen.iter().map(Found::all).sum();
        cost + u128::from(unseen) * u128::from(pool_ns)
    }

    /// Of pages of such a distance so many in a thousand were in the store.
    fn stored_permille(&self, at: usize, age: u64) -> u64 {
        if at >= BINS || at as u64 * self.step_pages > age {
            return 1000;
        }
        let mut around = 0;
        while around <= 1 + at / NEAR_PART {
            let near = &self.found[at.saturating_sub(around)..(at + around + 1).min(BINS)];
            let stored: u32 = near.iter().map(|found| found.stored).sum();
            let all: u32 = near.iter().map(Found::all).sum();
            if all >= KNOWN_MIN {
                return u64::from(stored) * 1000 / u64::from(all);
            }
            around = 2 * around + 1;
        }
        0
    }
}

impl Found {
    fn all(&self) -> u32 {
        self.pooled + self.stored
    }
}

fn step_pages(pool_pages: u64) -> u64 {
    (pool_pages / STEPS as u64).max(1)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::collections::VecDeque;
    use std::vec;
    use std::vec::Vec;

    /// A machine whose memory is LRU all the way down: programs' pages, a pool in which pages take a third
    /// of their size, and a store.
    struct Machine {
        programs_pages: usize,
        /// The last used first: resident pages, then pages in the pool, then others.
        used: VecDeque<u64>,
        /// Whether pages are written whenever they are used.
        are_written: bool,
        /// Whether it swaps to another device.
        swaps_elsewhere: bool,
        give_way: GiveWay<'static>,
        pool_reads: u64,
        store_reads: u64,
    }

    const POOL_PAGES: usize = 512;
    const RATIO: usize = 3;
    const POOL_NS: u64 = 20_000;
    const STORE_NS: u64 = 200_000;

    impl Machine {
        fn new(programs_pages: usize) -> Self {
            let slots: &'static mut [Sample] = vec![Sample::default(); GIVE_WAY_SLOTS].leak();
            Machine {
                programs_pages,
                used: VecDeque::new(),
                are_written: true,
                swaps_elsewhere: false,
                give_way: GiveWay::new(slots, POOL_PAGES as u64),
                pool_reads: 0,
                store_reads: 0,
            }
        }

        fn resident_pages(&self) -> usize {
            self.programs_pages + self.give_way.given_pages() as usize
        }

        fn pool_pages(&self) -> usize {
            POOL_PAGES - self.give_way.given_pages() as usize
        }

        fn use_page(&mut self, page: u64) {
            let resident_pages = self.resident_pages();
            let place = self.used.iter().position(|used| *used == page);
            if let Some(place) = place {
                self.used.remove(place);
            }
            self.used.push_front(page);
            match place {
                Some(place) if place < resident_pages => return,
                Some(place) => {
                    let is_stored = place >= resident_pages + RATIO * self.pool_pages();
                    self.give_way.comes(page, is_stored);
                    if is_stored {
                        self.give_way.used_store(0, STORE_NS);
                        self.store_reads += 1;
                    } else {
                        self.pool_reads += 1;
                    }
                }
                None => {}
            }
            if let Some(left) = self.used.get(resident_pages)
                && (self.are_written || place.is_none())
            {
                self.give_way.leaves(*left);
            }
            if self.give_way.is_due() {
                self.decide();
            }
        }

        fn decide(&mut self) {
            if self.swaps_elsewhere {
                return self.give_way.skip();
            }
            let left_pages = self.used.len().saturating_sub(self.resident_pages());
            let standing = Standing {
                taken_pages: self.pool_pages() as u64,
                used_pages: (left_pages / RATIO).min(self.pool_pages()) as u64,
                age: left_pages.min(RATIO * self.pool_pages()) as u64,
                server_ns: self.give_way.term_reads() * POOL_NS / TRIP_TIMES,
            };
            self.give_way.decide(&standing);
        }

        /// Uses pages; gives what reads took of them.
        fn run(&mut self, pages: impl Iterator<Item = u64>) -> u64 {
            (self.pool_reads, self.store_reads) = (0, 0);
            pages.for_each(|page| self.use_page(page));
            (self.pool_reads + self.store_reads) * POOL_NS + self.store_reads * STORE_NS
        }
    }

    /// Pages at random, always the same.
    fn any_of(pages: u64, uses: usize) -> impl Iterator<Item = u64> {
        let mut random = 1999u64;
        (0..uses).map(move |_| {
            random ^= random >> 12;
            random ^= random << 25;
            random ^= random >> 27;
            (random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % pages
        })
    }

    fn in_turn(pages: u64, uses: usize) -> impl Iterator<Item = u64> {
        (0..uses as u64).map(move |at| at % pages)
    }

    #[test]
    fn programs_that_want_a_little_more_have_it() {
        let mut machine = Machine::new(1000);
        let before = machine.run(any_of(1200, 20_000));
        machine.run(any_of(1200, 100_000));
        let after = machine.run(any_of(1200, 20_000));
        assert!(after < before / 8, "{after} of {before}");
    }

    #[test]
    fn what_is_not_written_costs_no_more_than_before() {
        let mut machine = Machine { are_written: false, ..Machine::new(1000) };
        let before = machine.run(any_of(1200, 20_000));
        machine.run(any_of(1200, 100_000));
        let after = machine.run(any_of(1200, 20_000));
        assert!(after < before + before / 8, "{after} of {before}");
    }

    #[test]
    fn what_goes_round_stays_in_the_pool() {
        let mut machine = Machine::new(1000);
        machine.run(in_turn(2200, 100_000));
        assert_eq!((machine.give_way.given_pages(), machine.store_reads), (0, 0));
    }

    #[test]
    fn what_programs_want_no_more_comes_back() {
        let mut machine = Machine::new(1000);
        machine.run(any_of(1200, 100_000));
        assert!(machine.give_way.given_pages() > 0);
        machine.run(in_turn(2400, 200_000));
        machine.run(in_turn(2400, 20_000));
        assert_eq!(machine.store_reads, 0);
    }

    #[test]
    fn a_share_costs_hardly_more_than_the_best_would() {
        // Some pages often, and others now and then, more than there is room for.
        let mixed = |uses| {
            any_of(1300, uses)
                .zip(any_of(9000, uses))
                .enumerate()
                .map(|(at, (hot, cold))| if at % 8 == 0 { 1300 + cold } else { hot })
        };
        let mut machine = Machine::new(1000);
        machine.run(mixed(200_000));
        let chosen = machine.run(mixed(50_000));
        let fixed: Vec<u64> = (0..STEPS)
            .map(|steps| {
                let mut machine = Machine { swaps_elsewhere: true, ..Machine::new(1000) };
                machine.give_way.given_steps = steps;
                machine.run(mixed(50_000));
                machine.run(mixed(50_000))
            })
            .collect();
        let best = *fixed.iter().min().expect("some");
        assert!(chosen < best + best / 6, "{chosen} of {fixed:?}");
    }

    #[test]
    fn a_pool_without_memory_decides_too() {
        let mut machine = Machine::new(1000);
        machine.swaps_elsewhere = true;
        machine.run(any_of(1200, 20_000));
        for taken_pages in [0, 1, 10_000] {
            let standing = Standing { taken_pages, used_pages: 0, age: 0, server_ns: 0 };
            machine.give_way.decide(&standing);
            assert!(machine.give_way.given_steps <= GIVEN_MAX);
        }
    }

    #[test]
    fn a_machine_that_swaps_elsewhere_is_given_nothing() {
        let mut machine = Machine { swaps_elsewhere: true, ..Machine::new(1000) };
        machine.run(any_of(1200, 50_000));
        assert!(machine.pool_reads > 2 * TERM_MIN);
        assert_eq!(machine.give_way.given_pages(), 0);
    }
}
