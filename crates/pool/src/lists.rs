//! Lists of the equal frames that a pool cuts its space into, and which frames were ever used.
//!
//! A frame stands in at most one list of a table of links at a time. Zero means "nobody", so that
//! memory that was never touched describes frames that stand nowhere.

use crate::{Space, SpaceSource, words::Words};

/// A list, linked both ways through a table of [`Links`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct List {
    /// The first frame plus one.
    head: u32,
}

impl List {
    /// The frame that was put in last.
    #[inline]
    pub(crate) fn head(self) -> Option<usize> {
        (self.head as usize).checked_sub(1)
    }

    fn starting_at(frame: Option<usize>) -> Self {
        Self { head: frame.map_or(0, |frame| frame as u32 + 1) }
    }

    /// The list as a number, 0 when it is empty.
    pub(crate) fn raw(self) -> u32 {
        self.head
    }

    /// The list whose number was kept.
    pub(crate) fn from_raw(raw: u32) -> Self {
        Self { head: raw }
    }
}

/// Every frame's neighbours in the list it stands in.
#[derive(Debug)]
pub(crate) struct Links<S> {
    /// Next and previous of each frame, as lists that start there.
    words: Words<S>,
}

impl<S: Space> Links<S> {
    /// Words that each frame takes.
    pub(crate) const FRAME_WORDS: usize = 1;

    pub(crate) fn reserve<Source: SpaceSource<Space = S>>(
        source: &Source,
        frames: usize,
    ) -> Option<Self> {
        Some(Self { words: Words::reserve(source, frames)? })
    }

    /// The frame behind this one.
    pub(crate) fn next(&self, frame: usize) -> Option<usize> {
        List::from_raw(self.words.half(2 * frame)).head()
    }

    fn prev(&self, frame: usize) -> Option<usize> {
        List::from_raw(self.words.half(2 * frame + 1)).head()
    }

    fn set_next(&mut self, frame: usize, next: Option<usize>) {
        self.words.set_half(2 * frame, List::starting_at(next).raw());
    }

    fn set_prev(&mut self, frame: usize, prev: Option<usize>) {
        self.words.set_half(2 * frame + 1, List::starting_at(prev).raw());
    }

    /// Puts a frame that stands in no list at the head of one.
    pub(crate) fn push(&mut self, list: &mut List, frame: usize) {
        self.set_next(frame, list.head());
        self.set_prev(frame, None);
        if let Some(next) = list.head() {
            self.set_prev(next, Some(frame));
        }
        *list = List::starting_at(Some(frame));
    }

    /// Takes a frame out of the list it stands in.
    pub(crate) fn unlink(&mut self, list: &mut List, frame: usize) {
        let (next, prev) = (self.next(frame), self.prev(frame));
        match prev {
            Some(prev) => self.set_next(prev, next),
            None => {
                debug_assert_eq!(list.head(), Some(frame), "taken out of a list not its own");
                *list = List::starting_at(next);
            }
        }
        if let Some(next) = next {
            self.set_prev(next, prev);
        }
    }
}

/// Which frames of a space are free.
#[derive(Debug)]
pub(crate) struct Frames {
    count: usize,
    /// Frames from this one on were never used.
    touched: usize,
    released: List,
}

impl Frames {
    pub(crate) fn new(count: usize) -> Self {
        Self { count, touched: 0, released: List::default() }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Frames that were ever used are below this one.
    pub(crate) fn touched(&self) -> usize {
        self.touched
    }

    /// Takes a free frame, one that was used before if there is any: the tables know it already.
    pub(crate) fn take<S: Space>(&mut self, links: &mut Links<S>) -> Option<usize> {
        if let Some(frame) = self.released.head() {
            links.unlink(&mut self.released, frame);
            return Some(frame);
        }
        let frame = self.touched;
        (frame < self.count).then(|| {
            self.touched += 1;
            frame
        })
    }

    /// Makes a frame that stands in no list free.
    pub(crate) fn give_back<S: Space>(&mut self, links: &mut Links<S>, frame: usize) {
        links.push(&mut self.released, frame);
    }
}
