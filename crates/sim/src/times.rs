//! A set of times of which the latest is found fast: a bit a time, and above it bits that say
//! which words have any.
//!
//! Every operation looks at a word a level, of which there are six for 2^32 times.

const WORD_BITS: u32 = u64::BITS;

/// The set.
#[derive(Debug)]
pub(crate) struct Times {
    /// The bits, then what sums them up, up to a level of one word.
    levels: Vec<Vec<u64>>,
}

impl Times {
    /// None of the times below `end`.
    pub(crate) fn new(end: u32) -> Self {
        let mut levels = Vec::new();
        let mut words = end.div_ceil(WORD_BITS).max(1);
        loop {
            levels.push(vec![0; words as usize]);
            if words == 1 {
                return Times { levels };
            }
            words = words.div_ceil(WORD_BITS);
        }
    }

    /// Adds a time.
    #[inline]
    pub(crate) fn insert(&mut self, time: u32) {
        let mut at = time;
        for level in &mut self.levels {
            let word = &mut level[(at / WORD_BITS) as usize];
            let was = *word;
            *word |= 1 << (at % WORD_BITS);
            if was != 0 {
                return;
            }
            at /= WORD_BITS;
        }
    }

    /// Takes a time away.
    #[inline]
    pub(crate) fn remove(&mut self, time: u32) {
        let mut at = time;
        for level in &mut self.levels {
            let word = &mut level[(at / WORD_BITS) as usize];
            *word &= !(1 << (at % WORD_BITS));
            if *word != 0 {
                return;
            }
            at /= WORD_BITS;
        }
    }

    /// The latest time.
    #[inline]
    pub(crate) fn last(&self) -> Option<u32> {
        let mut at = 0;
        for level in self.levels.iter().rev() {
            let word = level[at as usize];
            if word == 0 {
                return None;
            }
            at = at * WORD_BITS + word.ilog2();
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn behaves_as_a_set(steps in prop::collection::vec((any::<bool>(), 0u32..300_000), 1..400)) {
            let mut times = Times::new(300_000);
            let mut model = BTreeSet::new();
            for (is_new, time) in steps {
                match is_new {
                    true => {
                        times.insert(time);
                        model.insert(time);
                    }
                    false => {
                        let time = if time % 2 == 0 { time } else { model.last().copied().unwrap_or(0) };
                        times.remove(time);
                        model.remove(&time);
                    }
                }
                prop_assert_eq!(times.last(), model.last().copied());
            }
        }
    }

    #[test]
    fn few_times_are_enough() {
        let mut times = Times::new(0);
        assert_eq!(times.last(), None);
        times.insert(5);
        assert_eq!(times.last(), Some(5));
    }
}
