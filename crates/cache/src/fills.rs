//! The values of same-filled pages.
//!
//! Source: mm/zswap.c, which keeps the value in the entry itself; an entry here
//! has other uses for its bits, so it keeps the number of a counted value. A
//! program has few: when all places are taken, a same-filled page goes through
//! the codec like any other.

use zpager_pool::Space;

const SLOTS: usize = 4096;
const PAGE_BYTES: usize = 4096;
/// Each bit of the touched pages is one page.
const _: () = assert!(SLOTS * size_of::<Fill>() == 16 * PAGE_BYTES);
/// How far a value may lie from where its hash points.
const PROBES: usize = 16;

#[repr(C)]
#[derive(Clone, Copy)]
struct Fill {
    value: u64,
    pages: u64,
}

/// A counted set of words.
pub(crate) struct Fills<S> {
    space: S,
    /// One bit a page of the space that was written.
    touched: u16,
}

impl Fills<()> {
    /// RAM that a table takes at most.
    pub(crate) const BYTES: usize = SLOTS * size_of::<Fill>();
}

impl<S: Space> Fills<S> {
    /// An empty table in `space`, which is [`Fills::BYTES`] long.
    pub(crate) fn new(space: S) -> Self {
        assert!(space.bytes() >= Fills::BYTES);
        Fills { space, touched: 0 }
    }

    /// RAM of the places that were written.
    pub(crate) fn touched_bytes(&self) -> usize {
        self.touched.count_ones() as usize * PAGE_BYTES
    }

    /// In a copy of the table, whose pages cost RAM once they are written again.
    pub(crate) fn become_copy(&mut self) {
        self.touched = 0;
    }

    /// A place that is about to be written.
    fn place(&mut self, at: usize) -> &mut Fill {
        self.touched |= 1 << (at % SLOTS / (SLOTS / 16));
        self.slot(at)
    }

    fn slot(&mut self, at: usize) -> &mut Fill {
        // SAFETY: the remainder lies within the space, which is zero where it was not written.
        unsafe { &mut *self.space.base().cast::<Fill>().add(at % SLOTS) }
    }

    /// Counts one more page of `value`; gives the value's number, `None` when there is no place.
    pub(crate) fn add(&mut self, value: u64) -> Option<u32> {
        let start = (value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize;
        let mut free = None;
        for at in start..start + PROBES {
            let fill = self.slot(at);
            if fill.pages > 0 && fill.value == value {
                self.place(at).pages += 1;
                return Some((at % SLOTS) as u32);
            }
            if fill.pages == 0 && free.is_none() {
                free = Some(at % SLOTS);
            }
        }
        let at = free?;
        *self.place(at) = Fill { value, pages: 1 };
        Some(at as u32)
    }

    /// The value of a number.
    pub(crate) fn value(&mut self, fill: u32) -> u64 {
        self.slot(fill as usize).value
    }

    /// One page less.
    pub(crate) fn remove(&mut self, fill: u32) {
        let slot = self.place(fill as usize);
        debug_assert!(slot.pages > 0, "a fill that nobody has");
        slot.pages -= 1;
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use zpager_pool::{Heap, SpaceSource};

    #[test]
    fn values_are_shared_and_places_come_back() {
        let mut fills = Fills::new(Heap.reserve(Fills::BYTES).unwrap());
        let zero = fills.add(0).unwrap();
        assert_eq!(fills.add(0), Some(zero));
        let numbers: std::vec::Vec<_> =
            (1..20_000u64).filter_map(|value| fills.add(value).map(|at| (value, at))).collect();
        assert!(numbers.len() > 3000 && numbers.len() < SLOTS);
        for &(value, at) in &numbers {
            assert_eq!(fills.value(at), value);
        }
        fills.remove(zero);
        assert_eq!(fills.value(zero), 0);
        for &(_, at) in &numbers {
            fills.remove(at);
        }
        assert!(fills.add(u64::MAX).is_some());
    }
}
