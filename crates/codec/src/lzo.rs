//! LZO1X: cervera's and castro's codec. The encoder is ours, the decoder lzokay's.
//!
//! Source of the format: the Linux kernel's `Documentation/staging/lzo.rst`. The encoder takes the first match of four
//! bytes or more that a hash table with one entry a slot offers, as LZO1X-1 does, and steps faster the longer it finds
//! none. lzokay's own encoder searches all matches, for a fifth fewer bytes at forty times the time.
//!
//! Bad on floats and on small integers, where no four bytes in a row repeat.

use crate::output::Output;
use crate::{Codec, Corrupt, PAGE_BYTES, Page};
use lzokay::decompress::decompress;

pub(crate) struct Lzo;

/// Bits of the hash of four bytes.
const HASH_BITS: u32 = 12;
/// The fewest bytes that are worth a match.
const MATCH_BYTES_MIN: usize = 4;
/// A match of up to this length within [`SHORT_DISTANCE_MAX`] takes two bytes.
const SHORT_BYTES_MAX: usize = 8;
const SHORT_DISTANCE_MAX: usize = 0x800;
/// Any other takes three, or more if it is longer than this.
const LONG_BYTES_IN_THREE: usize = 33;
/// The mark of such a match.
const LONG: u8 = 0x20;
/// A literal run at the start of the page says its length so.
const FIRST_RUN: usize = 17;
const FIRST_RUN_BYTES_MAX: usize = 238;
/// Up to this many literals are counted in the match before them.
const LITERALS_IN_MATCH: usize = 3;
/// Up to this many take one byte to count, more take several.
const LITERALS_IN_ONE: usize = 18;
/// A match at no distance.
const END: [u8; 3] = [0x11, 0, 0];
/// After this many bytes without a match, as a power of two, the step grows by one.
const STEP_BITS: u32 = 5;

/// For each hash where in the page such bytes were last.
type Positions = [u16; 1 << HASH_BITS];

impl Codec for Lzo {
    const SCRATCH_BYTES: usize = size_of::<Positions>();

    fn compress(page: &Page, out: &mut [u8], scratch: &mut [u8]) -> Option<usize> {
        // SAFETY: the caller of the trait checked size and alignment, and any bytes are such positions.
        let positions = unsafe { &mut *scratch.as_mut_ptr().cast::<Positions>() };
        positions.fill(0);
        let mut out = Output { bytes: out, length: 0 };
        let (mut at, mut literals_from) = (1, 0);
        while let Some(bytes) = four_bytes(page, at) {
            let slot = (bytes.wrapping_mul(0x9e37_79b1) >> (u32::BITS - HASH_BITS)) as usize;
            let found = usize::from(core::mem::replace(&mut positions[slot], at as u16));
            // An empty slot names the start of the page, where the bytes decide like anywhere else.
            if four_bytes(page, found) != Some(bytes) || found >= at {
                at += 1 + ((at - literals_from) >> STEP_BITS);
                continue;
            }
            let length =
                MATCH_BYTES_MIN + common_bytes(page, found + MATCH_BYTES_MIN, at + MATCH_BYTES_MIN);
            out.literals(&page.0[literals_from..at])?;
            out.repeat(length, at - found)?;
            at += length;
            literals_from = at;
        }
        out.literals(&page.0[literals_from..])?;
        out.push(&END)?;
        Some(out.length)
    }

    fn decompress(data: &[u8], page: &mut Page, _scratch: &mut [u8]) -> Result<(), Corrupt> {
        match decompress(data, &mut page.0) {
            Ok(PAGE_BYTES) => Ok(()),
            _ => Err(Corrupt),
        }
    }
}

fn four_bytes(page: &Page, at: usize) -> Option<u32> {
    let bytes = page.0.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

/// How many bytes from `a` on are those from `b` on, `a` being before `b`.
fn common_bytes(page: &Page, a: usize, b: usize) -> usize {
    let (Some(first), Some(second)) = (page.0.get(a..), page.0.get(b..)) else { return 0 };
    let (words, others) = (first.as_chunks::<8>().0, second.as_chunks::<8>().0);
    for (i, (word, other)) in words.iter().zip(others).enumerate() {
        let differing = u64::from_le_bytes(*word) ^ u64::from_le_bytes(*other);
        if differing != 0 {
            return 8 * i + differing.trailing_zeros() as usize / 8;
        }
    }
    let whole = 8 * others.len();
    let tail = first[whole..].iter().zip(&second[whole..]);
    whole + tail.take_while(|(a, b)| a == b).count()
}

impl Output<'_> {
    /// Appends bytes as they are. Between two calls there is a match.
    fn literals(&mut self, literals: &[u8]) -> Option<()> {
        let count = literals.len();
        match count {
            0 => return Some(()),
            _ if self.length == 0 && count <= FIRST_RUN_BYTES_MAX => {
                self.push(&[(FIRST_RUN + count) as u8])?;
            }
            // The two lowest bits of the byte before the last of any match.
            1..=LITERALS_IN_MATCH if self.length != 0 => self.bytes[self.length - 2] |= count as u8,
            _ if count <= LITERALS_IN_ONE => self.push(&[(count - LITERALS_IN_MATCH) as u8])?,
            _ => self.marked(0, count - LITERALS_IN_ONE)?,
        }
        self.push(literals)
    }

    /// Appends a match: `length` bytes that are also `distance` bytes back.
    fn repeat(&mut self, length: usize, distance: usize) -> Option<()> {
        let back = distance - 1;
        if length <= SHORT_BYTES_MAX && distance <= SHORT_DISTANCE_MAX {
            let first = (length - 1) << 5 | (back & 7) << 2;
            return self.push(&[first as u8, (back >> 3) as u8]);
        }
        if length <= LONG_BYTES_IN_THREE {
            self.push(&[LONG | (length - 2) as u8])?;
        } else {
            self.marked(LONG, length - LONG_BYTES_IN_THREE)?;
        }
        self.push(&[(back << 2) as u8, (back >> 6) as u8])
    }

    /// Appends a mark and a count of one or more: a zero for each 255, and the rest.
    fn marked(&mut self, mark: u8, mut count: usize) -> Option<()> {
        self.push(&[mark])?;
        while count > usize::from(u8::MAX) {
            self.push(&[0])?;
            count -= usize::from(u8::MAX);
        }
        self.push(&[count as u8])
    }
}
