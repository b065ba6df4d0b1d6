//! From tags, distances and literals back to the page.
//!
//! A group is made in one go from its reference, the common upper half and the next bytes of both streams; that its
//! reference never overlaps it is what makes this possible.

use super::format::*;
use super::stream::Stream;
use super::text;
use crate::lanes::{LANES, Lanes};
use crate::{Corrupt, Page};

/// The decoder's working memory.
#[repr(C, align(64))]
pub(super) struct Scratch {
    masks: Masks,
    text: text::Target,
}

/// Fills `page` from `data`.
///
/// # Safety
/// The processor has the instructions of `L`. `scratch` points to a [`Scratch`] that may hold anything.
#[inline(always)]
pub(super) unsafe fn decode<L: Lanes>(
    data: &[u8],
    page: &mut Page,
    scratch: *mut Scratch,
) -> Result<(), Corrupt> {
    // SAFETY: the scratch is plain numbers, for which any bytes will do.
    let scratch = unsafe { &mut *scratch };
    let (header, rest) = Header::split_from(data).ok_or(Corrupt)?;
    let tag_bytes = header.new_tags.count_ones() as usize * size_of::<u32>();
    let (tags, rest) = rest.split_at_checked(tag_bytes).ok_or(Corrupt)?;
    let distance_count = header.new_distances.count_ones() as usize;
    let (distances, rest) = rest.split_at_checked(distance_count).ok_or(Corrupt)?;
    let part_start = data.len() - rest.len();
    let part_end = part_start + usize::from(header.part_bytes);
    let part = Stream::new(data, part_start, part_end);
    let rest = data.get(part_end..).ok_or(Corrupt)?;
    let text_bytes = usize::from(header.text_bytes & !TEXT_IS_PACKED);
    // SAFETY: the caller vouches for the instructions; so in all calls below.
    unsafe {
        let text = if header.text_bytes & TEXT_IS_PACKED != 0 {
            text::unpack::<L>(rest, text_bytes, &mut scratch.text)?
        } else if rest.len() == text_bytes {
            Stream::new(data, part_end, data.len())
        } else {
            return Err(Corrupt);
        };
        let masks = &mut scratch.masks;
        masks.read_tags::<L>(header.new_tags, tags.as_chunks().0);
        let distances = Sequence::new(header.new_distances, distances);
        let common = L::splat_word(u64::from(header.common) << 32);
        build::<L>(page, masks, distances, common, part, text)
    }
}

/// Makes every group of `page`.
///
/// # Safety
/// The processor has the instructions of `L`.
#[inline(always)]
unsafe fn build<L: Lanes>(
    page: &mut Page,
    masks: &Masks,
    mut distances: Sequence<u8>,
    common: L,
    mut part: Stream<'_>,
    mut text: Stream<'_>,
) -> Result<(), Corrupt> {
    static ZEROS: [u8; GROUP_BYTES] = [0; GROUP_BYTES];
    let target = page.0.as_mut_ptr();
    for group in 0..GROUPS {
        let at = group * GROUP_BYTES;
        let back = (usize::from(distances.next()) + DISTANCE_MIN_WORDS) * size_of::<u64>();
        // SAFETY: the caller vouches for the instructions. The reference begins at or behind the start of the page and
        // ends at or before the group, or is a vector of zeros.
        unsafe {
            let reference =
                if back <= at { target.add(at - back).cast_const() } else { ZEROS.as_ptr() };
            L::load(reference)
                .keep(masks.reference[group])
                .replace(masks.common[group], common)
                .unpack(part.next(masks.part[group]), text.next(masks.text[group]))
                .store(target.add(at));
        }
    }
    if part.is_used_up() && text.is_used_up() { Ok(()) } else { Err(Corrupt) }
}

/// For each word, the bytes from each base and each stream.
#[repr(C, align(64))]
struct Masks {
    reference: [u64; GROUPS],
    common: [u64; GROUPS],
    part: [u64; GROUPS],
    text: [u64; GROUPS],
}

impl Masks {
    /// Fills the masks from the stored tags: `new` says which groups have some, the others repeat those before.
    ///
    /// # Safety
    /// The processor has the instructions of `L`.
    #[inline(always)]
    unsafe fn read_tags<L: Lanes>(&mut self, new: u64, stored: &[Tags]) {
        const GROUPS_AT_ONCE: usize = LANES / GROUP_WORDS;
        let mut sequence = Sequence::new(new, stored);
        let mut tags = [Tags::default(); GROUPS + LANES / size_of::<Tags>()];
        tags[..GROUPS].fill_with(|| sequence.next());
        for group in (0..GROUPS).step_by(GROUPS_AT_ONCE) {
            // SAFETY: the caller vouches for the instructions; `tags` has a vector's room behind the last group, and
            // each mask array is written at eight of its entries, which are 64 bytes.
            unsafe {
                let tags = L::load(tags.as_ptr().add(group).cast()).unpack_nibbles();
                let store = |table: &[u8; 16], masks: &mut [u64; GROUPS]| {
                    tags.lookup16(table).store(masks.as_mut_ptr().add(group).cast());
                };
                store(&REFERENCE_BYTES, &mut self.reference);
                store(&COMMON_BYTES, &mut self.common);
                store(&PART_BYTES, &mut self.part);
                store(&TEXT_BYTES, &mut self.text);
            }
        }
    }
}

/// The tags or distances of the groups in turn, repeats restored.
struct Sequence<T> {
    /// Those that are stored, behind the zero that stands before the first.
    stored: [T; GROUPS + 1],
    /// Which groups have one of their own, the next group's bit lowest.
    new: u64,
    index: usize,
}

impl<T: Copy + Default> Sequence<T> {
    /// `stored` has as many entries as `new` has bits.
    #[inline(always)]
    fn new(new: u64, stored: &[T]) -> Self {
        let mut entries = [T::default(); GROUPS + 1];
        entries[1..=stored.len()].copy_from_slice(stored);
        Self { stored: entries, new, index: 0 }
    }

    /// The next group's entry. To be called once a group.
    #[inline(always)]
    fn next(&mut self) -> T {
        self.index += (self.new & 1) as usize;
        self.new >>= 1;
        self.stored[self.index]
    }
}
