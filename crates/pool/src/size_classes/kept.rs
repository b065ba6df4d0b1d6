//! Empty runs that keep their RAM for a moment, so that a slab that comes and goes with every
//! other page costs no system call and no fault.
//!
//! Bounded by 4 runs and 64 KiB; the oldest makes room. Bad for: objects of many classes that
//! come and go at once, whose runs push each other out.

use super::classes::Class;

/// Most pages of RAM kept.
pub(super) const PAGES_MAX: usize = 16;
/// Most runs kept.
pub(super) const RUNS_MAX: usize = 4;

/// A run of pages that holds no object but still its RAM.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KeptRun {
    pub(super) first_page: usize,
    pub(super) span_pages: usize,
    /// Pages that hold RAM, from the first.
    pub(super) touched_pages: usize,
}

impl KeptRun {
    fn suits(&self, class: &Class) -> bool {
        self.span_pages == class.span_pages && self.touched_pages <= class.pages
    }
}

/// The runs kept.
#[derive(Debug, Default)]
pub(super) struct KeptRuns {
    /// Oldest first; `count` of them.
    runs: [KeptRun; RUNS_MAX],
    count: usize,
}

impl KeptRuns {
    /// Whether a run that holds `touched_pages` may be kept beside the others.
    pub(super) fn has_room_for(&self, touched_pages: usize) -> bool {
        let kept_pages: usize = self.kept().iter().map(|run| run.touched_pages).sum();
        self.count < RUNS_MAX && kept_pages + touched_pages <= PAGES_MAX
    }

    /// Keeps a run that there is room for.
    pub(super) fn put(&mut self, run: KeptRun) {
        debug_assert!(self.has_room_for(run.touched_pages));
        self.runs[self.count] = run;
        self.count += 1;
    }

    /// A run as long as the class's slabs that holds no RAM that the class could not use.
    pub(super) fn take_for(&mut self, class: &Class) -> Option<KeptRun> {
        let index = self.kept().iter().position(|run| run.suits(class))?;
        Some(self.take(index))
    }

    /// Whether [`Self::take_for`] would find a run.
    pub(super) fn has_one_for(&self, class: &Class) -> bool {
        self.kept().iter().any(|run| run.suits(class))
    }

    /// The run that was put in first.
    pub(super) fn take_oldest(&mut self) -> Option<KeptRun> {
        (self.count > 0).then(|| self.take(0))
    }

    fn kept(&self) -> &[KeptRun] {
        &self.runs[..self.count]
    }

    fn take(&mut self, index: usize) -> KeptRun {
        let run = self.runs[index];
        self.runs.copy_within(index + 1..self.count, index);
        self.count -= 1;
        run
    }
}
