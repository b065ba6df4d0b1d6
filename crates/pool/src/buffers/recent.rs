//! The mean length of the last 100 objects.
//!
//! Source: cervera (1999), section 3.4: a buffer with less room than that is full.
//!
//! Bad for: lengths that change at once, which it follows only 100 objects later.

/// Objects that count.
const OBJECTS: usize = 100;

/// The lengths of the last objects.
#[derive(Debug)]
pub(super) struct Recent {
    lengths_bytes: [u16; OBJECTS],
    /// Where the next length goes.
    next: usize,
    /// Lengths that are there.
    count: usize,
    sum_bytes: usize,
}

impl Default for Recent {
    fn default() -> Self {
        Self { lengths_bytes: [0; OBJECTS], next: 0, count: 0, sum_bytes: 0 }
    }
}

impl Recent {
    /// Counts one more object, and the oldest no more.
    pub(super) fn add(&mut self, len: usize) {
        let oldest = core::mem::replace(&mut self.lengths_bytes[self.next], len as u16);
        self.sum_bytes = self.sum_bytes + len - usize::from(oldest);
        self.next = (self.next + 1) % OBJECTS;
        self.count = (self.count + 1).min(OBJECTS);
    }

    /// The mean, rounded down; 0 before the first object.
    pub(super) fn mean_bytes(&self) -> usize {
        self.sum_bytes.checked_div(self.count).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_hundred_count() {
        let mut recent = Recent::default();
        assert_eq!(recent.mean_bytes(), 0);
        recent.add(3000);
        assert_eq!(recent.mean_bytes(), 3000);
        recent.add(1001);
        assert_eq!(recent.mean_bytes(), 2000);
        for _ in 0..OBJECTS {
            recent.add(700);
        }
        assert_eq!(recent.mean_bytes(), 700);
    }
}
