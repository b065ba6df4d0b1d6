//! The size classes: which slot an object of a given length gets.
//!
//! Source: zsmalloc (Linux mm/zsmalloc.c) chains pages so that a whole number of objects fills
//! them nearly to the end. Here the table is shorter than zsmalloc's: every class costs on average
//! half a slab that is not full, so in a pool of some MiB more classes waste more than they win.
//! The classes from 256 bytes on minimise rounding + tail + half a slab a class for lengths evenly
//! spread over 300 to 3000 bytes in a pool of 12 MiB, with no length losing more than 1/11 of its
//! slot below 3000 bytes. Below 256 bytes, where few compressed pages lie, they are coarser.
//!
//! Bad for: lengths just above 3072 and 3632, which lose a tenth; lengths below 32 bytes.

use crate::OBJECT_BYTES_MAX;
use crate::objects::{PAGE_BYTES, assert_length};

/// Most pages that a slab may span.
pub(super) const SPAN_PAGES_MAX: usize = 8;
/// Most slots that a slab may have: two words of free bits.
pub(super) const SLOTS_MAX: usize = 128;
/// How finely lengths are told apart.
const GRAIN_BYTES: usize = 16;

/// How a slab of one class is cut into slots.
#[derive(Debug, Clone, Copy)]
pub(super) struct Class {
    /// Bytes of a slot, a multiple of 16.
    pub(super) slot_bytes: usize,
    /// Slots of a slab.
    pub(super) slots: usize,
    /// A bit for each slot.
    pub(super) all_slots: u128,
    /// Words that the bits take; none when there is one slot only.
    pub(super) bit_words: usize,
    /// Pages that the slots take, from the slab's first.
    pub(super) pages: usize,
    /// Pages of address space that the slab takes: at least `pages`, and one for each word of its
    /// description, which is kept in words that the address space has one of a page.
    pub(super) span_pages: usize,
    /// 2^32 / slot_bytes, rounded up, to divide by multiplying.
    reciprocal: u64,
}

impl Class {
    const fn new(slot_bytes: usize, pages: usize, slots: usize) -> Self {
        assert!(slot_bytes.is_multiple_of(GRAIN_BYTES) && slots <= SLOTS_MAX);
        assert!((slot_bytes * slots).div_ceil(PAGE_BYTES) == pages);
        let all_slots = u128::MAX >> (SLOTS_MAX - slots);
        let bit_words = if slots == 1 { 0 } else { slots.div_ceil(64) };
        let described_pages = 1 + bit_words;
        let span_pages = if pages > described_pages { pages } else { described_pages };
        assert!(span_pages <= SPAN_PAGES_MAX);
        let reciprocal = (1u64 << 32).div_ceil(slot_bytes as u64);
        Self { slot_bytes, slots, all_slots, bit_words, pages, span_pages, reciprocal }
    }

    /// The slot that holds the byte at `offset_bytes` of a slab.
    ///
    /// Exact: the offset is below 2^15, so the rounding of the reciprocal adds less than 2^-17,
    /// which is less than one part of any slot.
    #[inline]
    pub(super) fn slot_at(&self, offset_bytes: usize) -> usize {
        debug_assert!(offset_bytes < SPAN_PAGES_MAX * PAGE_BYTES);
        ((offset_bytes as u64 * self.reciprocal) >> 32) as usize
    }

    /// Pages from the slab's first that the slots up to this one lie in.
    #[inline]
    pub(super) fn pages_up_to(&self, slot: usize) -> usize {
        ((slot + 1) * self.slot_bytes).div_ceil(PAGE_BYTES)
    }

    /// RAM of a whole slab in bytes.
    pub(super) fn slab_bytes(&self) -> usize {
        self.pages * PAGE_BYTES
    }
}

/// Number of classes.
pub(super) const CLASSES: usize = TABLE.len();

/// Slot bytes, pages and slots of each class, ascending.
const TABLE: [(usize, usize, usize); 61] = [
    (32, 1, 128),
    (48, 1, 85),
    (64, 1, 64),
    (80, 1, 51),
    (96, 1, 42),
    (128, 1, 32),
    (160, 1, 25),
    (192, 1, 21),
    (224, 1, 18),
    (256, 1, 16),
    (272, 1, 15),
    (288, 1, 14),
    (304, 3, 40),
    (320, 2, 25),
    (336, 1, 12),
    (352, 2, 23),
    (368, 1, 11),
    (384, 2, 21),
    (400, 1, 10),
    (416, 2, 19),
    (432, 3, 28),
    (448, 1, 9),
    (480, 2, 17),
    (512, 1, 8),
    (544, 2, 15),
    (576, 1, 7),
    (608, 3, 20),
    (640, 3, 19),
    (672, 1, 6),
    (720, 3, 17),
    (768, 3, 16),
    (816, 1, 5),
    (864, 3, 14),
    (896, 2, 9),
    (944, 3, 13),
    (1024, 2, 8),
    (1104, 3, 11),
    (1168, 2, 7),
    (1216, 3, 10),
    (1280, 5, 16),
    (1360, 2, 6),
    (1456, 5, 14),
    (1536, 3, 8),
    (1632, 2, 5),
    (1744, 3, 7),
    (1808, 4, 9),
    (1888, 6, 13),
    (2048, 2, 4),
    (2176, 8, 15),
    (2272, 5, 9),
    (2336, 4, 7),
    (2448, 3, 5),
    (2560, 5, 8),
    (2720, 2, 3),
    (2864, 7, 10),
    (2976, 8, 11),
    (3072, 3, 4),
    (3264, 4, 5),
    (3408, 5, 6),
    (3632, 8, 9),
    (4096, 1, 1),
];

/// All classes, by ascending slot.
pub(super) static CLASS: [Class; CLASSES] = {
    let mut classes = [Class::new(4096, 1, 1); CLASSES];
    let mut index = 0;
    while index < CLASSES {
        let (slot_bytes, pages, slots) = TABLE[index];
        assert!(index == 0 || TABLE[index - 1].0 < slot_bytes);
        classes[index] = Class::new(slot_bytes, pages, slots);
        index += 1;
    }
    classes
};

/// The class of every length, by grains rounded up, less one.
static CLASS_OF_GRAINS: [u8; OBJECT_BYTES_MAX / GRAIN_BYTES] = {
    let mut of_grains = [0; OBJECT_BYTES_MAX / GRAIN_BYTES];
    let mut class = 0;
    let mut grains = 0;
    while grains < of_grains.len() {
        if TABLE[class].0 < (grains + 1) * GRAIN_BYTES {
            class += 1;
        }
        of_grains[grains] = class as u8;
        grains += 1;
    }
    of_grains
};

/// The index in [`CLASS`] of the smallest slot that holds `len` bytes, 1 to [`OBJECT_BYTES_MAX`].
#[inline]
pub(super) fn class_of(len: usize) -> usize {
    assert_length(len);
    CLASS_OF_GRAINS[(len - 1) / GRAIN_BYTES] as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_fits_its_class_and_no_smaller_one() {
        for len in 1..=OBJECT_BYTES_MAX {
            let class = class_of(len);
            assert!(CLASS[class].slot_bytes >= len);
            assert!(class == 0 || CLASS[class - 1].slot_bytes < len);
        }
    }

    #[test]
    fn slot_at_divides() {
        for class in &CLASS {
            for offset_bytes in 0..class.slab_bytes() {
                assert_eq!(class.slot_at(offset_bytes), offset_bytes / class.slot_bytes);
            }
        }
    }

    #[test]
    fn a_full_slab_of_the_worst_length_wastes_at_most_a_tenth() {
        for len in 256..=3072 {
            let class = &CLASS[class_of(len)];
            let waste_bytes = class.slab_bytes() - class.slots * len;
            assert!(waste_bytes * 10 <= class.slab_bytes(), "{len} bytes in {class:?}");
        }
    }
}
