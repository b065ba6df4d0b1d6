//! Fetching ahead of faults that come in order.
//!
//! Source: mm/readahead.c of Linux, its window and its context read-ahead
//! (`count_history_pages`), without the asynchronous part. A fault at the page
//! that follows a thread's last window doubles it. For any other fault the
//! neighbours tell: if the pages just before it, or just after, came in lately,
//! the fault belongs to one of several streams that run up or down, and as many
//! pages are fetched as came in so far, which doubles the run.
//!
//! A read from the store costs nearly the same for a few pages as for one. So
//! where pages that were fetched alone turn out to be followed by a neighbour more
//! often than not, a stream in the store begins with several pages at once; now and
//! then one still begins with a single page, to see whether that is still so.
//!
//! Where references are at random two neighbours are there by chance, for one fault in
//! eight where a quarter of the pages came in lately. So it is noted where each stream
//! would go on that neighbours told of. When next to none does, four neighbours are
//! wanted in place of two; not of a page in the store, where a few more cost little.
//!
//! Bad case: strides of more than a page, until the pages between are wanted too.

/// Most pages fetched for one fault.
pub const WINDOW_MAX: usize = 64;
/// Neighbours that came in lately before they count as a stream.
const HISTORY_MIN: usize = 2;
/// The same where most such streams end at once: four hardly ever come in by chance.
const HISTORY_DOUBTED: usize = 4;

/// Streams told by their neighbours whose going on is awaited.
const AWAITED: usize = 8;
/// Of so many told one has to go on.
const TOLD_FOR_ONE: u32 = 12;
/// Streams told after which what was learned of them counts half.
const TOLD_MAX: u32 = 64;
/// Streams told before anything is learned of them.
const TOLD_MIN: u32 = 8;

/// Pages with which a stream in the store begins where neighbours are wanted too. As page-cluster of
/// Linux, but no power of two: a stride as long as the window would look like a stream.
const CLUSTER: usize = 5;
/// Of so many streams one begins with a single page.
const PROBE_EVERY: u32 = 8;
/// Single pages after which what was learned of them counts half.
const SINGLES_MAX: u32 = 64;
/// Single pages before anything is learned of them.
const SINGLES_MIN: u32 = 8;

/// Pages to bring in for a fault: so many from the page on, or so many that end with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// The page and those that follow it.
    Up(usize),
    /// The page and those before it.
    Down(usize),
}

/// What is expected of a thread's faults.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ahead {
    next_page: u64,
    window: usize,
    /// Pages fetched alone, and those of them whose neighbour was missed later.
    singles: u32,
    followed: u32,
    /// Streams begun.
    begun: u32,
    told: Told,
}

/// What became of the streams that neighbours told of.
#[derive(Debug, Clone, Copy, Default)]
struct Told {
    /// The pages at which the last ones go on, if they do; no page is 0.
    awaited: [u64; AWAITED],
    last: usize,
    streams: u32,
    went_on: u32,
}

impl Told {
    /// One more, which goes on at `page`.
    fn add(&mut self, page: u64) {
        self.last = (self.last + 1) % AWAITED;
        self.awaited[self.last] = page;
        self.streams += 1;
        if self.streams >= TOLD_MAX {
            self.streams /= 2;
            self.went_on /= 2;
        }
    }

    /// Whether a fault at `page` is one of them going on, which is noted.
    fn goes_on(&mut self, page: u64) -> bool {
        let Some(awaited) = self.awaited.iter_mut().find(|awaited| **awaited == page) else {
            return false;
        };
        *awaited = 0;
        self.went_on += 1;
        true
    }

    fn are_doubted(&self) -> bool {
        self.streams >= TOLD_MIN && self.went_on * TOLD_FOR_ONE < self.streams
    }
}

impl Ahead {
    /// What to bring in for a fault at `page`, which `is_spilled` or not; `came_lately` tells of a
    /// neighbour whether it is resident and came in not long ago.
    pub fn window(
        &mut self,
        page: u64,
        is_spilled: bool,
        came_lately: impl Fn(u64) -> bool,
    ) -> Window {
        let in_order = page == self.next_page && self.window > 0;
        self.window = if in_order { (self.window * 2).min(WINDOW_MAX) } else { 1 };
        if self.window == WINDOW_MAX {
            return Window::Up(WINDOW_MAX);
        }
        let is_doubted = !self.told.goes_on(page) && !is_spilled && self.told.are_doubted();
        let least = if is_doubted { HISTORY_DOUBTED } else { HISTORY_MIN };
        let below = run(|at| page.checked_sub(at), &came_lately);
        if below >= least.max(self.window) {
            self.window = below;
            self.told.add(page + below as u64);
        } else if self.window == 1 {
            let above = run(|at| page.checked_add(at), &came_lately);
            if above >= least {
                self.told.add(page.saturating_sub(above as u64));
                return Window::Down(above);
            }
            self.window = self.begin(is_spilled, below + above);
        } else if below == 1 {
            self.followed += 1;
        }
        Window::Up(self.window)
    }

    /// The first window of what may be a stream, next to `neighbours` pages that came in lately.
    fn begin(&mut self, is_spilled: bool, neighbours: usize) -> usize {
        if neighbours > 0 {
            self.followed += 1;
            return 1;
        }
        self.begun = self.begun.wrapping_add(1);
        let is_worth = self.singles >= SINGLES_MIN && self.followed * 2 > self.singles;
        if is_spilled && is_worth && !self.begun.is_multiple_of(PROBE_EVERY) {
            return CLUSTER;
        }
        self.singles += 1;
        if self.singles >= SINGLES_MAX {
            self.singles /= 2;
            self.followed /= 2;
        }
        1
    }

    /// Notes that `pages` pages from `page` on are there now.
    pub fn fetched(&mut self, page: u64, pages: usize) {
        self.next_page = page + pages as u64;
    }
}

/// How many pages in a row came in lately, from the first neighbour on.
fn run(neighbour: impl Fn(u64) -> Option<u64>, came_lately: impl Fn(u64) -> bool) -> usize {
    let is_part = |at: &u64| neighbour(*at).is_some_and(&came_lately);
    (1..=WINDOW_MAX as u64).take_while(is_part).count()
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::collections::BTreeSet;
    use std::vec;
    use std::vec::Vec;
    use zpager_seed::{Random, random};

    /// Serves faults at `pages` with everything that came kept; gives how many there were.
    fn faults(pages: impl Iterator<Item = u64>, is_spilled: bool) -> usize {
        let mut ahead = Ahead::default();
        let mut resident = BTreeSet::new();
        let mut faults = 0;
        for page in pages {
            if resident.contains(&page) {
                continue;
            }
            faults += 1;
            let (first, count) =
                match ahead.window(page, is_spilled, |page| resident.contains(&page)) {
                    Window::Up(count) => (page, count),
                    Window::Down(count) => (page + 1 - count as u64, count),
                };
            resident.extend(first..first + count as u64);
            ahead.fetched(first, count);
        }
        faults
    }

    #[test]
    fn the_window_doubles_in_order_and_collapses_otherwise() {
        let mut ahead = Ahead::default();
        let mut page = 100;
        for expected in [1, 2, 4, 8, 16, 32, 64, 64] {
            assert_eq!(ahead.window(page, false, |_| false), Window::Up(expected));
            ahead.fetched(page, expected);
            page += expected as u64;
        }
        assert_eq!(ahead.window(7, false, |_| false), Window::Up(1));
    }

    #[test]
    fn a_window_cut_short_goes_on_from_where_it_ended() {
        let mut ahead = Ahead::default();
        assert_eq!(ahead.window(10, false, |_| false), Window::Up(1));
        ahead.fetched(10, 1);
        assert_eq!(ahead.window(11, false, |_| false), Window::Up(2));
        ahead.fetched(11, 1);
        assert_eq!(ahead.window(12, false, |_| false), Window::Up(4));
    }

    #[test]
    fn streams_are_told_apart_and_may_run_down() {
        assert!(faults(1000..2000, false) < 25);
        assert!(faults((1000..2000).rev(), false) < 25);
        let three = (0..1000u64).flat_map(|at| [10_000 + at, 30_000 - at, 50_000 + at]);
        assert!(faults(three, false) < 75);
    }

    #[test]
    fn pages_at_random_are_fetched_alone() {
        let scattered = (0..500u64).map(|at| at * 7919 % 100_003);
        assert_eq!(faults(scattered.clone(), false), 500);
        assert_eq!(faults(scattered, true), 500);
    }

    /// Memory of which the pages that came in last came in lately.
    struct Memory {
        ahead: Ahead,
        came: Vec<Option<usize>>,
        now: usize,
    }

    impl Memory {
        const PAGES: u64 = 10_000;
        /// Pages of it at random, a quarter of which came in lately.
        const RANDOM: u64 = 4000;

        fn new() -> Self {
            let came = vec![None; Self::PAGES as usize];
            Memory { ahead: Ahead::default(), came, now: 0 }
        }

        fn came_lately(&self, page: u64) -> bool {
            self.came[page as usize].is_some_and(|then| self.now - then < Self::RANDOM as usize / 4)
        }

        /// Wants a page; gives how many others came with it.
        fn want(&mut self, page: u64, is_spilled: bool) -> usize {
            if self.came_lately(page) {
                return 0;
            }
            let mut ahead = self.ahead;
            let (first, count) = match ahead.window(page, is_spilled, |at| self.came_lately(at)) {
                Window::Up(count) => (page, count),
                Window::Down(count) => (page + 1 - count as u64, count),
            };
            ahead.fetched(first, count);
            self.ahead = ahead;
            for at in first as usize..first as usize + count {
                self.came[at] = Some(self.now);
                self.now += 1;
            }
            count - 1
        }

        /// Wants so many pages at random; gives how many others came with them.
        fn want_at_random(
            &mut self,
            random: &mut Random,
            faults: usize,
            is_spilled: bool,
        ) -> usize {
            (0..faults).map(|_| self.want(64 + random.u64(..Self::RANDOM), is_spilled)).sum()
        }
    }

    #[test]
    fn neighbours_by_chance_are_no_stream_but_in_the_store() {
        let mut random = random(1);
        let in_the_store = Memory::new().want_at_random(&mut random, 20_000, true);
        let mut memory = Memory::new();
        let in_the_pool = memory.want_at_random(&mut random, 20_000, false);
        assert!(in_the_pool * 8 < in_the_store, "{in_the_pool} of {in_the_store}");
        // One that begins amid all that is told nevertheless.
        let mut faults = 0;
        for page in 2 * Memory::RANDOM..2 * Memory::RANDOM + 1000 {
            faults += usize::from(!memory.came_lately(page));
            memory.want(page, false);
            memory.want_at_random(&mut random, 1, false);
        }
        assert!(faults < 50, "{faults} for 1000 pages in order");
    }

    #[test]
    fn short_streams_in_the_store_begin_with_several_pages() {
        let rows = |at: u64| (0..8).map(move |column| at * 1000 + column);
        let apart = faults((0..100).flat_map(rows), false);
        let together = faults((0..100).flat_map(rows), true);
        // Two a row instead of four, but for the probes.
        assert!(together * 3 < apart * 2, "{together} and {apart}");
    }

    #[test]
    fn a_stride_of_a_matrix_s_rows_is_no_stream() {
        // Columns of pages in rows of eight, of which each is wanted before the next one.
        let mut ahead = Ahead::default();
        let mut most = 0;
        for page in (0..8u64).flat_map(|column| (0..500).map(move |row| row * 8 + column)) {
            if let Window::Up(pages) = ahead.window(page, true, |_| false) {
                most = most.max(pages);
                ahead.fetched(page, pages);
            }
        }
        assert!(most <= CLUSTER, "{most}");
    }
}
