//! When a process that needs room gives pages that relatives have too.
//!
//! RAM is gained by such a page once all who have it have given it, and each of them keeps a compressed
//! copy, or one in the store for all of them. So a process gives pages of its own first. Where these are few, they are
//! what it works with, and go round and round beside common pages that nobody may have wanted since the fork.
//!
//! So some of those are given when a quarter of the own ones has left: few at first, and four times as many
//! each time that most of a sample of them are still away when another quarter has. If
//! more of them were wanted back, as few are given next as at first, after twice as many quarters.
//!
//! Source: ours; Denning, "The working set model" (1968): what was not wanted while others were is not of it.
//!
//! Bad case: common pages that are wanted, but more seldom than the own ones. Each comes back as a page of
//! its own to every process that wants it, once a fork.

/// Pages of which it is seen whether they come back.
const SAMPLE: usize = 32;
/// More of the sample than this part came back: the pages are wanted.
const WANTED_PART: usize = 4;
/// This part of the own pages leaves, so many times before common ones are given, and before they are at the most.
const TURN_PART: u64 = 4;
const TURNS_MIN: u64 = 1;
const TURNS_MAX: u64 = 256;
/// So many of the common pages are given at first, and so many times as many after few were wanted back.
const FIRST_PART: u64 = 128;
const FIRST_MIN: u64 = 64;
const MORE_TIMES: u64 = 4;
/// Up to this part of the common ones, or of the own ones, whichever are more.
const MOST_PART: u64 = 16;
const MOST_PART_OF_OWN: u64 = 2;
/// There are more common pages than this part of the own ones, or they are left alone.
const COMMON_PART: u64 = 8;
/// No page.
const NONE: u64 = u64::MAX;

/// What is known of the pages that a process and its relatives have.
#[derive(Debug, Clone, Copy)]
pub struct Common {
    /// Own pages that have left since common ones were given.
    own_left: u64,
    turns: u64,
    /// How many were to be given last, if few were wanted back, and how many of them are left to give.
    batch: u64,
    quota: u64,
    /// Some of those that were given last; those that came back are taken out.
    sample: [u64; SAMPLE],
    sampled: usize,
    returned: usize,
    /// Every so many pages one is in the sample.
    every: u64,
    unsampled: u64,
}

impl Common {
    /// Nothing is known.
    pub const NEW: Common = Common {
        own_left: 0,
        turns: TURNS_MIN,
        batch: 0,
        quota: 0,
        sample: [NONE; SAMPLE],
        sampled: 0,
        returned: 0,
        every: 1,
        unsampled: 0,
    };

    /// So many pages leave that are the process's own.
    pub fn own_leave(&mut self, pages: u64) {
        self.own_left += pages;
    }

    /// How many common pages the process gives now, which has so many of its own and so many common ones.
    pub fn wanted(&mut self, own_pages: u64, common_pages: u64) -> u64 {
        let is_due = TURN_PART * self.own_left >= self.turns * own_pages.max(FIRST_MIN)
            && common_pages > own_pages / COMMON_PART;
        if self.quota == 0 && is_due {
            self.begin_turn(own_pages, common_pages);
        }
        self.quota.min(common_pages)
    }

    /// A common page is given.
    pub fn gives(&mut self, page: u64) {
        self.quota = self.quota.saturating_sub(1);
        self.unsampled += 1;
        if self.unsampled >= self.every && self.sampled < SAMPLE {
            self.unsampled = 0;
            self.sample[self.sampled] = page;
            self.sampled += 1;
        }
    }

    /// There is none to give.
    pub fn has_none(&mut self) {
        self.quota = 0;
        self.wait_longer();
    }

    /// A page comes in.
    #[inline]
    pub fn comes(&mut self, page: u64) {
        if self.sampled > self.returned
            && let Some(at) = self.sample[..self.sampled].iter().position(|given| *given == page)
        {
            self.sample[at] = NONE;
            self.returned += 1;
        }
    }

    fn begin_turn(&mut self, own_pages: u64, common_pages: u64) {
        self.own_left = 0;
        let (sampled, returned) = (self.sampled, self.returned);
        (self.sampled, self.returned, self.unsampled) = (0, 0, 0);
        if returned * WANTED_PART > sampled {
            self.batch = 0;
            return self.wait_longer();
        }
        if sampled > 0 {
            self.turns = TURNS_MIN;
        }
        let first = (common_pages / FIRST_PART).max(FIRST_MIN);
        let most = (common_pages / MOST_PART).max(own_pages / MOST_PART_OF_OWN);
        self.batch = (self.batch * MORE_TIMES).min(most).max(first);
        self.quota = self.batch;
        self.every = self.batch / SAMPLE as u64;
    }

    fn wait_longer(&mut self) {
        self.turns = (self.turns * 2).min(TURNS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN_PAGES: u64 = 1000;

    /// Has so many own pages leave; gives how many common pages were given. Of so many of them one is wanted back
    /// at once.
    fn leave(common: &mut Common, own_pages: u64, have: &mut u64, wants: Option<u64>) -> u64 {
        let (mut given, mut random) = (0, 1u64);
        for _ in 0..own_pages / 10 {
            for _ in 0..common.wanted(OWN_PAGES, *have).min(10) {
                *have -= 1;
                given += 1;
                common.gives(*have);
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                if wants.is_some_and(|of| (random >> 33) % of == 0) {
                    common.comes(*have);
                }
            }
            common.own_leave(10);
        }
        given
    }

    #[test]
    fn a_part_of_the_own_pages_leaves_before_common_ones_are_given() {
        let (mut common, mut have) = (Common::NEW, 20_000);
        let part = OWN_PAGES / TURN_PART;
        assert_eq!(leave(&mut common, part, &mut have, None), 0);
        assert_eq!(leave(&mut common, part, &mut have, None), 20_000 / FIRST_PART);
    }

    #[test]
    fn more_and_more_of_what_nobody_wants_is_given() {
        let (mut common, mut have) = (Common::NEW, 10_000);
        let turns = [500, 500, 30_000].map(|pages| leave(&mut common, pages, &mut have, None));
        assert!(turns[0] > 0 && turns[1] > 2 * turns[0], "{turns:?}");
        assert!(have <= OWN_PAGES / COMMON_PART, "{turns:?}");
    }

    #[test]
    fn of_what_is_wanted_back_little_is_given() {
        let mut common = Common::NEW;
        let given = leave(&mut common, 1000 * OWN_PAGES, &mut 1_000_000, Some(2));
        assert!(given < 15 * 1_000_000 / FIRST_PART, "{given}");
    }

    #[test]
    fn a_few_that_are_wanted_back_do_not_matter() {
        let mut common = Common::NEW;
        let given = leave(&mut common, 100 * OWN_PAGES, &mut 100_000, Some(10));
        assert!(given > 50_000, "{given}");
    }

    #[test]
    fn what_was_wanted_is_tried_again() {
        let (mut common, mut have) = (Common::NEW, 100_000);
        leave(&mut common, 500 * OWN_PAGES, &mut have, Some(1));
        let given = leave(&mut common, 500 * OWN_PAGES, &mut have, None);
        assert!(given > 50_000, "{given}");
    }

    #[test]
    fn a_few_common_pages_beside_many_own_ones_stay() {
        let mut common = Common::NEW;
        assert_eq!(leave(&mut common, 100 * OWN_PAGES, &mut (OWN_PAGES / COMMON_PART), None), 0);
    }

    #[test]
    fn who_has_none_looks_seldom() {
        let mut common = Common::NEW;
        let mut looks = 0;
        for _ in 0..1000 {
            common.own_leave(OWN_PAGES);
            if common.wanted(OWN_PAGES, OWN_PAGES) > 0 {
                looks += 1;
                common.has_none();
            }
        }
        assert!((10..30).contains(&looks), "{looks}");
    }
}
