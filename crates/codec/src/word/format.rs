//! What the tags mean, and where things lie in a compressed page.
//!
//! ```text
//! 0    u64  groups whose tags differ from the group before, one bit a group
//! 8    u64  groups whose distance differs from the group before
//! 16   u32  the common upper half
//! 20   u16  bytes of the part stream
//! 22   u16  bytes of the text stream before packing; the highest bit says that it is packed
//! 24        for each group of the first mask, eight tags of four bits
//!           for each group of the second mask, its distance: u8, in words, less 8
//!           the part stream
//!           the text stream, as it is or packed (see `text`)
//! ```
//! All numbers are little-endian; before the first group, tags and distance are zero.

use crate::PAGE_BYTES;

/// Words in a group: one vector.
pub(super) const GROUP_WORDS: usize = 8;
/// Groups in a page.
pub(super) const GROUPS: usize = PAGE_BYTES / GROUP_BYTES;
/// Bytes in a group.
pub(super) const GROUP_BYTES: usize = GROUP_WORDS * size_of::<u64>();

/// The tags of a group, the first in the low half of the first byte.
pub(super) type Tags = [u8; GROUP_WORDS / 2];

/// The smallest distance, in words, at which a group's reference may lie: it never overlaps the group, so that a group
/// is decoded at once.
pub(super) const DISTANCE_MIN_WORDS: usize = GROUP_WORDS;
/// How many distances there are; they are stored less the smallest.
pub(super) const DISTANCES: usize = 256;

/// Bytes before the tags.
pub(super) const HEADER_BYTES: usize = 24;
/// In the header's last number: the text stream is packed.
pub(super) const TEXT_IS_PACKED: u16 = 1 << 15;

/// From where a word takes the bytes that are not literal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Base {
    /// They are zero.
    Zero,
    /// From the word at the group's distance.
    Reference,
    /// Bytes 4 to 7 from the common upper half.
    Common,
}

/// Into which stream the literal bytes go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stream {
    /// Parts of words: low bytes of pointers, small integers. Kept as they are.
    Part,
    /// Whole words that resemble nothing, which are mostly text. Packed if that helps.
    Text,
}

/// The meaning of a tag.
struct Tag {
    base: Base,
    /// Which bytes are literal, the lowest bit for the first byte.
    literals: u8,
    stream: Stream,
}

const fn tag(base: Base, literals: u8, stream: Stream) -> Tag {
    Tag { base, literals, stream }
}

/// The sixteen tags: of some sixty that were tried, the set with the fewest bytes over the memory of the programs in
/// `docs/codecs.md`.
const TAGS: [Tag; 16] = {
    use Base::*;
    use Stream::*;
    [
        tag(Zero, 0b0000_0000, Part),
        tag(Zero, 0b0000_0001, Part),
        tag(Zero, 0b0011_0011, Part),
        tag(Zero, 0b0101_0101, Text),
        tag(Zero, 0b1111_1111, Text),
        tag(Common, 0b0000_1111, Part),
        tag(Reference, 0b0000_0000, Part),
        tag(Reference, 0b0000_0001, Part),
        tag(Reference, 0b0000_0011, Part),
        tag(Reference, 0b0000_0111, Part),
        tag(Reference, 0b0000_1111, Part),
        tag(Reference, 0b0000_1100, Part),
        tag(Reference, 0b0011_0000, Part),
        tag(Reference, 0b0011_0011, Part),
        tag(Reference, 0b1100_0000, Part),
        tag(Reference, 0b1111_0000, Part),
    ]
};

/// For each tag, the literal bytes that come from the part stream.
pub(super) const PART_BYTES: [u8; 16] = literals(Stream::Part);
/// For each tag, the literal bytes that come from the text stream.
pub(super) const TEXT_BYTES: [u8; 16] = literals(Stream::Text);
/// For each tag, the bytes that come from the reference.
pub(super) const REFERENCE_BYTES: [u8; 16] = based_on(Base::Reference, 0xff);
/// For each tag, the bytes that come from the common upper half.
pub(super) const COMMON_BYTES: [u8; 16] = based_on(Base::Common, UPPER_HALF);

/// The bytes of a word's upper half.
pub(super) const UPPER_HALF: u8 = 0xf0;

const fn literals(stream: Stream) -> [u8; 16] {
    let mut masks = [0; 16];
    let mut i = 0;
    while i < 16 {
        if TAGS[i].stream as u8 == stream as u8 {
            masks[i] = TAGS[i].literals;
        }
        i += 1;
    }
    masks
}

const fn based_on(base: Base, available: u8) -> [u8; 16] {
    let mut masks = [0; 16];
    let mut i = 0;
    while i < 16 {
        if TAGS[i].base as u8 == base as u8 {
            masks[i] = available & !TAGS[i].literals;
        }
        i += 1;
    }
    masks
}

/// For each set of bytes of a word that are not zero, the cheapest tag based on zero, as a choice.
///
/// A choice is a byte: the tag in the low half, its cost in half bytes in the high half. The least of several choices
/// is the one to take.
pub(super) static ZERO_CHOICE: [u8; 256] = choices(Base::Zero);
/// The same for the bytes that differ from the reference.
pub(super) static REFERENCE_CHOICE: [u8; 256] = choices(Base::Reference);
/// The same for the bytes that differ from the common upper half with zeros below it.
pub(super) static COMMON_CHOICE: [u8; 256] = choices(Base::Common);

const fn choices(base: Base) -> [u8; 256] {
    let mut table = [u8::MAX; 256];
    let mut bytes = 0;
    while bytes < 256 {
        let mut i = 0;
        while i < 16 {
            let applies = TAGS[i].base as u8 == base as u8 && bytes as u8 & !TAGS[i].literals == 0;
            let choice = (cost_in_half_bytes(&TAGS[i]) << 4) as u8 | i as u8;
            if applies && choice < table[bytes] {
                table[bytes] = choice;
            }
            i += 1;
        }
        bytes += 1;
    }
    table
}

/// Text packs to about two thirds.
const fn cost_in_half_bytes(tag: &Tag) -> u32 {
    let half_bytes = 2 * tag.literals.count_ones();
    match tag.stream {
        Stream::Part => half_bytes,
        Stream::Text => half_bytes * 2 / 3 + 1,
    }
}

/// What stands at the start of a compressed page.
pub(super) struct Header {
    pub(super) new_tags: u64,
    pub(super) new_distances: u64,
    pub(super) common: u32,
    pub(super) part_bytes: u16,
    /// With [`TEXT_IS_PACKED`].
    pub(super) text_bytes: u16,
}

impl Header {
    pub(super) fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..8].copy_from_slice(&self.new_tags.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.new_distances.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.common.to_le_bytes());
        bytes[20..22].copy_from_slice(&self.part_bytes.to_le_bytes());
        bytes[22..24].copy_from_slice(&self.text_bytes.to_le_bytes());
        bytes
    }

    /// The header of `data` and what follows it, if there is one.
    pub(super) fn split_from(data: &[u8]) -> Option<(Self, &[u8])> {
        let (bytes, rest) = data.split_first_chunk::<HEADER_BYTES>()?;
        let field = |at: usize, length: usize| {
            (0..length).fold(0, |value, i| value | u64::from(bytes[at + i]) << (8 * i))
        };
        let header = Self {
            new_tags: field(0, 8),
            new_distances: field(8, 8),
            common: field(16, 4) as u32,
            part_bytes: field(20, 2) as u16,
            text_bytes: field(22, 2) as u16,
        };
        Some((header, rest))
    }
}
