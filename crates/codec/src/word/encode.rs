//! From a page to tags, distances and literals.
//!
//! There is hardly a branch that depends on the data: each pass does the same work for every group, and streams grow by
//! counted bits. A mispredicted branch costs as much as a whole group does here.

use super::format::*;
use super::text;
use crate::lanes::{HASH_BITS, LANES, Lanes};
use crate::{PAGE_BYTES, Page, WORDS};
use core::arch::asm;
use core::hint::select_unpredictable;

/// The encoder's working memory.
#[repr(C, align(64))]
pub(super) struct Scratch {
    /// For each hash of a word's upper 48 bits, where in the page such a word was last.
    positions: [u16; 1 << HASH_BITS],
    /// The hash of each word.
    hashes: [u16; WORDS],
    /// For each word, the bytes that are not zero; that differ from the reference; from the common upper half.
    nonzero: [u64; GROUPS],
    differs: [u64; GROUPS],
    uncommon: [u64; GROUPS],
    /// For each word, the bytes for each stream.
    part_masks: [u64; GROUPS],
    text_masks: [u64; GROUPS],
    /// The tags of each group, behind zeros.
    tags: [Tags; GROUPS + 1],
    /// The distance of each group, less the smallest, behind zero.
    distances: [[u8; 1]; GROUPS + 1],
    /// The tags and distances that are stored.
    new_tags: [u8; GROUPS * size_of::<Tags>() + LANES],
    new_distances: [u8; GROUPS + LANES],
    part: [u8; PAGE_BYTES + LANES],
    text: [u8; PAGE_BYTES + LANES],
    packing: text::Scratch,
}

/// Compresses `page` into `out`.
///
/// # Safety
/// The processor has the instructions of `L`. `scratch` points to a [`Scratch`] that may hold anything.
#[inline(always)]
pub(super) unsafe fn encode<L: Lanes>(
    page: &Page,
    out: &mut [u8],
    scratch: *mut Scratch,
) -> Option<usize> {
    // SAFETY: the scratch is plain numbers, for which any bytes will do.
    let scratch = unsafe { &mut *scratch };
    // SAFETY: the caller vouches for the instructions; so in all calls below.
    unsafe {
        let common = common_upper_half::<L>(page);
        find_references::<L>(page, common, scratch);
        choose_tags::<L>(scratch);
        (scratch.tags[0], scratch.distances[0]) = Default::default();
        let (new_tags, tag_bytes) =
            leave_out_repeats::<L, _, _>(&scratch.tags, &mut scratch.new_tags);
        let (new_distances, distance_bytes) =
            leave_out_repeats::<L, _, _>(&scratch.distances, &mut scratch.new_distances);
        let part_bytes = collect::<L>(page, &scratch.part_masks, &mut scratch.part);
        let text_bytes = collect::<L>(page, &scratch.text_masks, &mut scratch.text);
        let mut header = Header {
            new_tags,
            new_distances,
            common,
            part_bytes: part_bytes as u16,
            text_bytes: text_bytes as u16,
        };
        let packed = text::pack::<L>(&scratch.text, text_bytes, &mut scratch.packing);
        if packed.is_some() {
            header.text_bytes |= TEXT_IS_PACKED;
        }
        let mut out = Output { bytes: out, length: 0 };
        out.push::<L>(&header.to_bytes())?;
        out.push::<L>(&scratch.new_tags[..tag_bytes])?;
        out.push::<L>(&scratch.new_distances[..distance_bytes])?;
        out.push::<L>(&scratch.part[..part_bytes])?;
        match packed {
            Some(pieces) => pieces.into_iter().try_for_each(|piece| out.push::<L>(piece))?,
            None => out.push::<L>(&scratch.text[..text_bytes])?,
        }
        Some(out.length)
    }
}

/// The compressed page as it grows.
struct Output<'a> {
    bytes: &'a mut [u8],
    length: usize,
}

impl Output<'_> {
    /// Appends `bytes`, or `None` if they do not fit.
    ///
    /// # Safety
    /// The processor has the instructions of `L`.
    #[inline(always)]
    unsafe fn push<L: Lanes>(&mut self, bytes: &[u8]) -> Option<()> {
        let room = self.bytes.get_mut(self.length..)?;
        self.length += bytes.len();
        let (whole, last) = bytes.as_chunks::<LANES>();
        let (room_for_whole, room_for_last) =
            room.split_at_mut_checked(whole.as_flattened().len())?;
        for (from, to) in whole.iter().zip(room_for_whole.as_chunks_mut::<LANES>().0) {
            // SAFETY: the caller vouches for the instructions; both are a vector long.
            unsafe { L::load(from.as_ptr()).store(to.as_mut_ptr()) };
        }
        if let Some(to) = room_for_last.first_chunk_mut::<LANES>() {
            // SAFETY: the caller vouches for the instructions; there is room for a vector.
            unsafe { L::load_first(last.as_ptr(), last.len()).store(to.as_mut_ptr()) };
        } else {
            room_for_last.get_mut(..last.len())?.copy_from_slice(last);
        }
        Some(())
    }
}

/// The upper half that most words of a sample resemble, which is that of pointers into one region of memory, or zero.
///
/// # Safety
/// The processor has the instructions of `L`.
#[inline(always)]
unsafe fn common_upper_half<L: Lanes>(page: &Page) -> u32 {
    const SAMPLES: usize = 8;
    let mut best = 0;
    let mut least = u32::MAX;
    let upper_halves = u64::from_ne_bytes([UPPER_HALF; 8]);
    for candidate in 0..SAMPLES {
        let word = page.words()[candidate * (WORDS / SAMPLES + 1)].to_le();
        let upper = (word >> 32) as u32;
        let mut differing = 0;
        for sample in 0..SAMPLES {
            // SAFETY: the caller vouches for the instructions; the group lies inside the page.
            differing += unsafe {
                let group = L::load(page.0.as_ptr().add(sample * (PAGE_BYTES / SAMPLES)));
                group.count_differing(L::splat_word(u64::from(upper) << 32), upper_halves)
            };
        }
        if upper != 0 && differing < least {
            (best, least) = (upper, differing);
        }
    }
    best
}

/// For each group, finds the distance at which the fewest bytes differ, and notes which.
///
/// Candidates are the distance of the group before and the last places of words with the upper 48 bits of each of the
/// group's words. A byte that is zero in the group costs nothing, because a tag based on zero may give it.
///
/// # Safety
/// The processor has the instructions of `L`.
#[inline(always)]
unsafe fn find_references<L: Lanes>(page: &Page, common: u32, scratch: &mut Scratch) {
    scratch.positions.fill(0);
    // SAFETY: the caller vouches for the instructions. Groups and references lie inside the page: a reference begins at
    // or behind its start, and at least a group's length before the group.
    unsafe {
        let at = |word: usize| L::load(page.0.as_ptr().add(word * size_of::<u64>()));
        for first in (0..WORDS).step_by(GROUP_WORDS) {
            at(first).store_hashes(scratch.hashes.as_mut_ptr().add(first));
        }
        let zero = L::splat(0);
        let common = L::splat_word(u64::from(common) << 32);
        // Where the reference of the group before lies.
        let mut place = 0;
        for group in 0..GROUPS {
            let first = group * GROUP_WORDS;
            let words = at(first);
            L::prefetch(page.0.as_ptr().wrapping_add(PAGE_BYTES + group * GROUP_BYTES));
            // The compiler would compare with zero in every comparison below, one after the other.
            let nonzero = opaque(words.differing(zero));
            let hashes = scratch.hashes.as_ptr().add(first);
            let mut reference = zero;
            let mut distance = 0;
            if let Some(nearest) = first.checked_sub(DISTANCE_MIN_WORDS) {
                let farthest = nearest.saturating_sub(DISTANCES - 1);
                let cost = |place| words.count_differing(at(place), nonzero);
                // Cost above, place below: the least is the cheapest.
                let mut best = u32::MAX;
                for i in [1, 3, 5, 7] {
                    let hash = usize::from(*hashes.add(i));
                    let position = usize::from(*scratch.positions.get_unchecked(hash));
                    let place = position.wrapping_sub(i);
                    let reachable = place.wrapping_sub(farthest) <= nearest - farthest;
                    let place = select_unpredictable(reachable, place, nearest);
                    // The compiler would move the costs into a vector and back, which takes twice the time.
                    best = best.min(opaque(u64::from(cost(place)) << 16 | place as u64) as u32);
                }
                // Each group waits for the one before: as little as can be lies between the two places. A new distance
                // costs a byte itself.
                let same = if group == 1 { nearest } else { place + GROUP_WORDS };
                let is_same_best = cost(same) <= (best >> 16) + 1;
                place = select_unpredictable(is_same_best, same, (best & 0xffff) as usize);
                distance = nearest - place;
                reference = at(place);
            }
            for i in 0..GROUP_WORDS {
                let hash = usize::from(*hashes.add(i));
                *scratch.positions.get_unchecked_mut(hash) = (first + i) as u16;
            }
            scratch.nonzero[group] = nonzero;
            scratch.differs[group] = words.differing(reference);
            scratch.uncommon[group] = words.differing(common);
            scratch.distances[group + 1] = [distance as u8];
        }
    }
}

/// The same number, of which the compiler knows nothing.
#[inline(always)]
fn opaque(mut number: u64) -> u64 {
    // SAFETY: no instruction at all.
    unsafe { asm!("/* {0} */", inout(reg) number, options(pure, nomem, nostack, preserves_flags)) };
    number
}

/// Chooses each word's tag from the bytes in which it differs from what it might be based on.
///
/// # Safety
/// The processor has the instructions of `L`.
#[inline(always)]
unsafe fn choose_tags<L: Lanes>(scratch: &mut Scratch) {
    /// A vector of masks of bytes holds one byte a word, thus this many groups.
    const GROUPS_AT_ONCE: usize = LANES / GROUP_WORDS;
    for group in (0..GROUPS).step_by(GROUPS_AT_ONCE) {
        // SAFETY: the caller vouches for the instructions; each array is read and written at eight of its entries,
        // which are 64 bytes, or 32 for the tags.
        unsafe {
            let masks = |array: &[u64; GROUPS]| L::load(array.as_ptr().add(group).cast());
            let choice = masks(&scratch.nonzero)
                .lookup256(&ZERO_CHOICE)
                .min(masks(&scratch.differs).lookup256(&REFERENCE_CHOICE))
                .min(masks(&scratch.uncommon).lookup256(&COMMON_CHOICE));
            let tags = choice.low_nibbles();
            tags.pack_nibbles(scratch.tags.as_mut_ptr().add(group + 1).cast());
            tags.lookup16(&PART_BYTES).store(scratch.part_masks.as_mut_ptr().add(group).cast());
            tags.lookup16(&TEXT_BYTES).store(scratch.text_masks.as_mut_ptr().add(group).cast());
        }
    }
}

/// Copies each entry that differs from the one before it to the start of `kept`; the first entry is not one, but what is
/// before the others. Returns which those are, one bit each, and their bytes.
///
/// # Safety
/// The processor has the instructions of `L`.
#[inline(always)]
unsafe fn leave_out_repeats<L: Lanes, const ENTRY_BYTES: usize, const KEPT_BYTES: usize>(
    entries: &[[u8; ENTRY_BYTES]; GROUPS + 1],
    kept: &mut [u8; KEPT_BYTES],
) -> (u64, usize) {
    const { assert!(KEPT_BYTES == GROUPS * ENTRY_BYTES + LANES) };
    let one_bit_each = u64::MAX / ((1 << ENTRY_BYTES) - 1);
    let mut length = 0;
    let mut mask = 0;
    for at in (0..GROUPS * ENTRY_BYTES).step_by(LANES) {
        // SAFETY: the caller vouches for the instructions; the entries but the first fill whole vectors, and there is
        // a vector's room behind `length`.
        unsafe {
            let before = entries.as_ptr().cast::<u8>().add(at);
            let entries = L::load(before.add(ENTRY_BYTES));
            let new = any_of_each::<ENTRY_BYTES>(entries.differing(L::load(before))) & one_bit_each;
            let bytes = new * ((1 << ENTRY_BYTES) - 1);
            entries.pack(bytes, kept.as_mut_ptr().add(length));
            length += bytes.count_ones() as usize;
            mask |= squeeze::<ENTRY_BYTES>(new) << (at / ENTRY_BYTES);
        }
    }
    (mask, length)
}

/// Sets the lowest of each `BITS` bits, a power of two, if any of them is set; the others mean nothing.
#[inline(always)]
const fn any_of_each<const BITS: usize>(mut bits: u64) -> u64 {
    let mut step = 1;
    while step < BITS {
        bits |= bits >> step;
        step *= 2;
    }
    bits
}

/// Puts together the lowest of each `BITS` bits, four or one; the others are zero.
#[inline(always)]
const fn squeeze<const BITS: usize>(bits: u64) -> u64 {
    const { assert!(BITS == 1 || BITS == 4) };
    if BITS == 1 {
        return bits;
    }
    let bits = (bits | bits >> 3) & 0x0303_0303_0303_0303;
    let bits = (bits | bits >> 6) & 0x000f_000f_000f_000f;
    let bits = (bits | bits >> 12) & 0x0000_00ff_0000_00ff;
    (bits | bits >> 24) & 0xffff
}

/// Writes the bytes that `masks` select to the start of `stream` and returns how many they are.
///
/// # Safety
/// The processor has the instructions of `L`.
#[inline(always)]
unsafe fn collect<L: Lanes>(
    page: &Page,
    masks: &[u64; GROUPS],
    stream: &mut [u8; PAGE_BYTES + LANES],
) -> usize {
    let mut length = 0;
    for (group, mask) in masks.iter().enumerate() {
        // SAFETY: the caller vouches for the instructions; at most 64 bytes a group are counted, so that there is
        // always a vector's room behind `length`.
        unsafe {
            let words = L::load(page.0.as_ptr().add(group * GROUP_BYTES));
            words.pack(*mask, stream.as_mut_ptr().add(length));
        }
        length += mask.count_ones() as usize;
    }
    length
}
