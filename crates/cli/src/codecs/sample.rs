//! The pages that the codecs are compared on, and how they are drawn from more than that.
//!
//! Source: reservoir sampling (Vitter 1985, algorithm R): one pass over places of which nobody
//! knows the number beforehand. Every place is as likely to be drawn as any other, where a step of
//! so many pages would fall in with whatever repeats in a heap.

use zpager_codec::{Page, same_filled};

/// How many pages are drawn, and by which random numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Drawing {
    /// The most pages.
    pub(super) pages_max: usize,
    /// Equal seeds draw equal places.
    pub(super) seed: u64,
}

/// Draws from the places that are offered to it.
#[derive(Debug)]
pub(super) struct Reservoir<T> {
    room: usize,
    kept: Vec<T>,
    offered: u64,
    random: fastrand::Rng,
}

impl<T: Ord> Reservoir<T> {
    /// Nothing drawn yet.
    pub(super) fn new(drawing: Drawing) -> Self {
        let random = fastrand::Rng::with_seed(drawing.seed);
        Reservoir { room: drawing.pages_max, kept: Vec::new(), offered: 0, random }
    }

    /// Takes note of one more place.
    pub(super) fn offer(&mut self, place: T) {
        self.offered += 1;
        if self.kept.len() < self.room {
            self.kept.push(place);
            return;
        }
        let at = self.random.u64(0..self.offered);
        if let Some(kept) = usize::try_from(at).ok().and_then(|at| self.kept.get_mut(at)) {
            *kept = place;
        }
    }

    /// How many places there were.
    pub(super) fn offered(&self) -> u64 {
        self.offered
    }

    /// The places drawn, in ascending order.
    pub(super) fn into_places(mut self) -> Vec<T> {
        self.kept.sort_unstable();
        self.kept
    }
}

/// Pages that were drawn.
#[derive(Default)]
pub(super) struct Sample {
    /// Those that go to a codec.
    pub(super) pages: Vec<Page>,
    /// How many were same-filled: they never reach a codec.
    pub(super) same_filled_pages: usize,
    /// How many pages they were drawn from.
    pub(super) offered_pages: u64,
    /// What the user should know about what was left out.
    pub(super) notes: Vec<String>,
}

impl Sample {
    /// Adds a page.
    pub(super) fn add(&mut self, page: Page) {
        match same_filled(&page) {
            Some(_) => self.same_filled_pages += 1,
            None => self.pages.push(page),
        }
    }

    /// How many pages were drawn.
    pub(super) fn drawn_pages(&self) -> usize {
        self.pages.len() + self.same_filled_pages
    }

    /// How many there are of which kind.
    pub(super) fn summary(&self) -> String {
        let drawn = self.drawn_pages();
        let share = 100.0 * self.same_filled_pages as f64 / drawn.max(1) as f64;
        format!(
            "{drawn} of {} pages, {} of them ({share:.1} %) same-filled and kept from the codecs",
            self.offered_pages, self.same_filled_pages
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zpager_codec::PAGE_BYTES;

    fn draw(pages_max: usize, seed: u64, offered: u64) -> Vec<u64> {
        let mut reservoir = Reservoir::new(Drawing { pages_max, seed });
        (0..offered).for_each(|place| reservoir.offer(place));
        assert_eq!(reservoir.offered(), offered);
        reservoir.into_places()
    }

    #[test]
    fn few_places_are_all_drawn() {
        assert!(draw(10, 1, 0).is_empty());
        assert_eq!(draw(10, 1, 3), [0, 1, 2]);
        assert_eq!(draw(3, 9, 3), [0, 1, 2]);
    }

    #[test]
    fn of_many_places_each_is_drawn_once_and_by_the_seed() {
        let places = draw(100, 1, 10_000);
        assert_eq!(places.len(), 100);
        assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "{places:?}");
        assert_eq!(places, draw(100, 1, 10_000));
        assert_ne!(places, draw(100, 2, 10_000));
    }

    #[test]
    fn every_part_is_drawn_from() {
        let places = draw(1000, 3, 100_000);
        for tenth in 0..10 {
            let inside = places.iter().filter(|place| **place / 10_000 == tenth).count();
            // Five standard deviations of the binomial distribution around 100.
            assert!((52..=148).contains(&inside), "{inside} of 1000 in tenth {tenth}");
        }
    }

    #[test]
    fn same_filled_pages_are_set_apart() {
        let mut sample = Sample { offered_pages: 9, ..Sample::default() };
        sample.add(Page::ZERO);
        sample.add(Page([7; PAGE_BYTES]));
        let mut mixed = Page::ZERO;
        mixed.0[100] = 1;
        sample.add(mixed);
        assert_eq!((sample.pages.len(), sample.same_filled_pages), (1, 2));
        assert!(sample.summary().starts_with("3 of 9 pages, 2 of them (66.7 %)"));
    }
}
