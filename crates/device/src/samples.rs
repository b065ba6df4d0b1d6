//! A table that samples are kept in, in memory of its own.

use std::hint::black_box;

use zpager_policy::Sample;
use zpager_pool::{Space, SpaceSource};

/// So many of them; their memory is given back with it.
#[derive(Debug)]
pub(crate) struct Samples<S> {
    space: S,
    count: usize,
}

impl<S: Space> Samples<S> {
    /// Room for `count`. `None` when `source` has none.
    pub(crate) fn reserve(source: &impl SpaceSource<Space = S>, count: usize) -> Option<Self> {
        Some(Samples { space: source.reserve(count * size_of::<Sample>())?, count })
    }

    /// All of them, empty, and in RAM: what is noted later is noted while memory is short.
    ///
    /// # Safety
    /// This is called once, and whoever has the result is gone before this value is.
    pub(crate) unsafe fn empty(&self) -> &'static mut [Sample] {
        // SAFETY: the space is zero, of which an empty sample consists, aligned to a page, and long enough;
        // the rest is the caller's promise.
        let samples: &mut [Sample] =
            unsafe { std::slice::from_raw_parts_mut(self.space.base().cast(), self.count) };
        black_box(&mut *samples).fill(Sample::default());
        samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Arena;

    #[test]
    fn there_are_as_many_as_were_wanted_and_all_are_empty() {
        let samples = Samples::reserve(&Arena, 3000).expect("address space");
        // SAFETY: once, and gone before.
        let empty = unsafe { samples.empty() };
        let nothing = format!("{:?}", Sample::default());
        assert_eq!(empty.len(), 3000);
        assert!(empty.iter().all(|sample| format!("{sample:?}") == nothing));
    }
}
