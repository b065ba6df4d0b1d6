//! Packing of text: four bits for each of the fourteen most frequent bytes, eight for the sixteen next, twelve for the
//! others.
//!
//! ```text
//! 0    u16, little-endian: how many bytes of the text are among the sixteen
//! 2    the fourteen bytes
//! 16   the sixteen bytes
//! 32   for each byte of the text four bits: its number among the fourteen, or 14 for the sixteen, or 15
//!      for each byte numbered 14 four bits: its number among the sixteen
//!      the bytes numbered 15
//! ```
//! English text and identifiers come to between a half and two thirds. Bad on anything whose bytes are spread evenly:
//! `pack` refuses that, and the caller keeps it as it is.

use super::stream::Stream;
use crate::lanes::{LANES, Lanes, load_or_fill};
use crate::{Corrupt, PAGE_BYTES};

/// Bytes that have a number of their own.
const FIRST: usize = 14;
/// Bytes that share the number [`IN_SECOND`].
const SECOND: usize = 16;
const IN_SECOND: u8 = 14;
/// The number of all other bytes.
const OTHER: u8 = 15;
/// Bytes before the numbers.
const HEADER_BYTES: usize = 2 + FIRST + SECOND;
/// Fewer bytes than this are not worth the header.
const WORTHWHILE_BYTES: usize = 3 * HEADER_BYTES;
/// The most bytes of the text that are counted to find the frequent ones; a count must fit a byte.
const SAMPLES: usize = 255;

/// A text before packing, with room for a vector behind it.
pub(super) type Unpacked = [u8; PAGE_BYTES + LANES];

/// Four bits for each byte of a text, with room for a vector behind them.
type Numbers = [u8; PAGE_BYTES / 2 + LANES];

/// Working memory of [`pack`].
#[repr(C, align(64))]
pub(super) struct Scratch {
    numbers: Numbers,
    seconds: Unpacked,
    packed_seconds: Numbers,
    others: Unpacked,
    header: [u8; HEADER_BYTES],
}

/// Packs the first `length` bytes of `text` into pieces that follow each other, unless that gains nothing.
///
/// # Safety
/// The processor has the instructions of `L`.
#[inline(always)]
pub(super) unsafe fn pack<'a, L: Lanes>(
    text: &Unpacked,
    length: usize,
    scratch: &'a mut Scratch,
) -> Option<[&'a [u8]; 4]> {
    if length < WORTHWHILE_BYTES {
        return None;
    }
    // SAFETY: the caller vouches for the instructions; so in all calls below.
    let (first, second) = unsafe { most_frequent::<L>(&text[..length])? };
    let codes = codes(&first, &second);
    let (mut seconds, mut others) = (0, 0);
    for at in (0..length).step_by(LANES) {
        // SAFETY: see above; all arrays have a vector's room behind their contents.
        unsafe {
            let bytes = L::load(text.as_ptr().add(at));
            let code = bytes.lookup256(&codes);
            let left = u64::MAX >> (LANES - LANES.min(length - at));
            let beyond_first = code.at_least(L::splat(SECOND_CODE)) & left;
            let other = code.at_least(L::splat(OTHER_CODE)) & left;
            let in_second = beyond_first & !other;
            let number = code.min(L::splat(OTHER)).replace(in_second, L::splat(IN_SECOND));
            number.keep(left).pack_nibbles(scratch.numbers.as_mut_ptr().add(at / 2));
            code.low_nibbles().pack(in_second, scratch.seconds.as_mut_ptr().add(seconds));
            seconds += in_second.count_ones() as usize;
            bytes.pack(other, scratch.others.as_mut_ptr().add(others));
            others += other.count_ones() as usize;
        }
    }
    let (number_bytes, second_bytes) = (length.div_ceil(2), seconds.div_ceil(2));
    if HEADER_BYTES + number_bytes + second_bytes + others >= length {
        return None;
    }
    scratch.seconds[seconds] = 0;
    for at in (0..seconds).step_by(LANES) {
        // SAFETY: see above.
        unsafe {
            let numbers = L::load(scratch.seconds.as_ptr().add(at)).low_nibbles();
            numbers.pack_nibbles(scratch.packed_seconds.as_mut_ptr().add(at / 2));
        }
    }
    scratch.header[..2].copy_from_slice(&(seconds as u16).to_le_bytes());
    scratch.header[2..2 + FIRST].copy_from_slice(&first);
    scratch.header[2 + FIRST..].copy_from_slice(&second);
    Some([
        &scratch.header,
        &scratch.numbers[..number_bytes],
        &scratch.packed_seconds[..second_bytes],
        &scratch.others[..others],
    ])
}

/// While packing, a byte among the sixteen has this code and its number, ...
const SECOND_CODE: u8 = 0x10;
/// ... one that is in neither table this, and one among the fourteen just its number.
const OTHER_CODE: u8 = 0x20;

/// For each byte its code.
#[inline(always)]
fn codes(first: &[u8; FIRST], second: &[u8; SECOND]) -> [u8; 256] {
    let mut codes = [OTHER_CODE; 256];
    // An unused entry of the second table is a zero, which the first table may rightly have: the first goes last.
    for (number, byte) in second.iter().enumerate() {
        codes[usize::from(*byte)] = SECOND_CODE | number as u8;
    }
    for (number, byte) in first.iter().enumerate() {
        codes[usize::from(*byte)] = number as u8;
    }
    codes
}

/// The most frequent bytes of a sample of `text` and the next most frequent, in any order; unused entries are zero.
/// `None` if the sample would hardly shrink.
///
/// # Safety
/// The processor has the instructions of `L`.
#[inline(always)]
unsafe fn most_frequent<L: Lanes>(text: &[u8]) -> Option<([u8; FIRST], [u8; SECOND])> {
    let mut counts = [0; 256];
    let mut samples = 0;
    for byte in text.iter().step_by(text.len().div_ceil(SAMPLES)) {
        counts[usize::from(*byte)] += 1;
        samples += 1;
    }
    let (mut first, mut second) = ([0; FIRST], [0; SECOND]);
    // SAFETY: the caller vouches for the instructions.
    let (in_first, in_second) = unsafe {
        (
            take_most_frequent::<L>(&mut counts, &mut first),
            take_most_frequent::<L>(&mut counts, &mut second),
        )
    };
    // In half bytes: one for each byte, one more for the second table, two more for all others.
    let packed = samples + in_second + 2 * (samples - in_first - in_second);
    (packed * 16 < 2 * samples * 15).then_some((first, second))
}

/// Fills `table` with the bytes of the greatest counts, clears those counts, and returns their sum.
///
/// # Safety
/// The processor has the instructions of `L`.
#[inline(always)]
unsafe fn take_most_frequent<L: Lanes>(counts: &mut [u8; 256], table: &mut [u8]) -> u32 {
    // The greatest count that more bytes reach than there is room for, by bisection.
    let mut count = 0;
    for bit in [128, 64, 32, 16, 8, 4, 2, 1] {
        // SAFETY: the caller vouches for the instructions.
        let reached = unsafe { reaching::<L>(counts, count | bit) };
        if reached.iter().map(|set| set.count_ones()).sum::<u32>() > table.len() as u32 {
            count |= bit;
        }
    }
    let mut found = 0;
    let mut sum = 0;
    // First those above it, then as many of those that have it as there is room for.
    for least in [count.saturating_add(1), count.max(1)] {
        // SAFETY: the caller vouches for the instructions.
        let sets = unsafe { reaching::<L>(counts, least) };
        for (quarter, mut set) in sets.into_iter().enumerate() {
            while set != 0 && found < table.len() {
                let byte = (quarter * LANES) as u8 | set.trailing_zeros() as u8;
                table[found] = byte;
                found += 1;
                sum += u32::from(core::mem::take(&mut counts[usize::from(byte)]));
                set &= set - 1;
            }
        }
    }
    sum
}

/// The bytes that were counted at least `count` times.
///
/// # Safety
/// The processor has the instructions of `L`.
#[inline(always)]
unsafe fn reaching<L: Lanes>(counts: &[u8; 256], count: u8) -> [u64; 256 / LANES] {
    let mut sets = [0; 256 / LANES];
    for (quarter, set) in sets.iter_mut().enumerate() {
        // SAFETY: the caller vouches for the instructions; the quarter lies inside the counts.
        *set = unsafe { L::load(counts.as_ptr().add(quarter * LANES)).at_least(L::splat(count)) };
    }
    sets
}

/// Where [`unpack`] puts things.
#[repr(C, align(64))]
pub(super) struct Target {
    text: Unpacked,
    seconds: Unpacked,
}

/// Unpacks all of `packed`, which must give a text of `length` bytes.
///
/// # Safety
/// The processor has the instructions of `L`.
#[inline(always)]
pub(super) unsafe fn unpack<'a, L: Lanes>(
    packed: &[u8],
    length: usize,
    target: &'a mut Target,
) -> Result<Stream<'a>, Corrupt> {
    let (second_count, rest) = packed.split_first_chunk().ok_or(Corrupt)?;
    let second_count = usize::from(u16::from_le_bytes(*second_count));
    let (first, rest) = rest.split_first_chunk::<FIRST>().ok_or(Corrupt)?;
    let (second, rest) = rest.split_first_chunk::<SECOND>().ok_or(Corrupt)?;
    let numbers = rest;
    let rest = rest.get(length.div_ceil(2)..).ok_or(Corrupt)?;
    let (seconds, others) = rest.split_at_checked(second_count.div_ceil(2)).ok_or(Corrupt)?;
    if length > PAGE_BYTES || second_count > length {
        return Err(Corrupt);
    }
    let mut table = [0; 16];
    table[..FIRST].copy_from_slice(first);
    for at in (0..second_count).step_by(LANES) {
        // SAFETY: the caller vouches for the instructions; there is a vector's room behind a page's bytes.
        unsafe {
            let numbers = load_or_fill::<L>(&seconds[at / 2..]).unpack_nibbles();
            numbers.lookup16(second).store(target.seconds.as_mut_ptr().add(at));
        }
    }
    let mut seconds = Stream::new(&target.seconds, 0, second_count);
    let mut others = Stream::new(packed, packed.len() - others.len(), packed.len());
    for at in (0..length).step_by(LANES) {
        // SAFETY: as above.
        unsafe {
            let numbers = load_or_fill::<L>(&numbers[at / 2..]).unpack_nibbles();
            let left = u64::MAX >> (LANES - LANES.min(length - at));
            let other = numbers.at_least(L::splat(OTHER)) & left;
            let in_second = numbers.at_least(L::splat(IN_SECOND)) & left & !other;
            numbers
                .lookup16(&table)
                .unpack(seconds.next(in_second), others.next(other))
                .store(target.text.as_mut_ptr().add(at));
        }
    }
    let all_used = seconds.is_used_up() && others.is_used_up();
    if all_used { Ok(Stream::new(&target.text, 0, length)) } else { Err(Corrupt) }
}
