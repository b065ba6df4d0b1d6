//! How numbers, records and checksums lie in a trace; `docs/traces.md` has the same in words.
//!
//! Numbers of fixed length are little-endian. A varint has seven bits a byte, the lowest first, and
//! the upper bit set in every byte but the last. A record begins with one varint: four bits of flags
//! and above them the distance from the last page, zigzag-coded.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The version that is written and read.
pub const VERSION: u32 = 1;
/// Most codecs of a trace.
pub const CODECS_MAX: usize = 16;
/// Page numbers lie below.
pub const PAGE_END: u64 = 1 << 52;
/// Bits of a page's number below the number of its process.
pub const PROCESS_SHIFT: u32 = 36;
/// A page that did not become shorter.
pub const SIZE_MAX: u16 = 4096;

/// The first bytes; the one behind the name is no text, and the line ends would not survive a
/// transfer as text.
pub(super) const MAGIC: [u8; 8] = *b"zptr\x89\r\n\x1a";
/// Magic, version, length of the body.
pub(super) const HEAD_BYTES: usize = 16;
/// Longest body of a header.
pub(super) const BODY_BYTES_MAX: usize = 1 << 20;
/// Longest payload of a chunk.
pub(super) const PAYLOAD_BYTES_MAX: usize = 1 << 16;
/// Length of the payload, records in it, records before it.
pub(super) const CHUNK_HEAD_BYTES: usize = 16;
/// The checksum behind a header and a chunk.
pub(super) const CHECKSUM_BYTES: usize = 8;
/// Longest record: two varints of numbers below 2^57, or one and all sizes.
pub(super) const RECORD_BYTES_MAX: usize = 9 + 2 * CODECS_MAX;

/// Bits of the flags.
pub(super) const FLAG_BITS: u32 = 4;
/// What follows the first varint, in the lowest two bits of the flags.
pub(super) const CONTENTS: u64 = 0b11;
pub(super) const UNCHANGED: u64 = 0;
pub(super) const SAME_FILLED: u64 = 1;
pub(super) const SIZES: u64 = 2;
pub(super) const RELEASE: u64 = 3;
pub(super) const FRESH: u64 = 0b0100;
pub(super) const WRITTEN: u64 = 0b1000;

const _: () = assert!(CODECS_MAX * 2 >= 9, "a release is no longer than a reference");

/// The checksum of a header, with seed 0, or of a chunk, with the header's checksum as the seed: a chunk
/// of another trace is noticed.
pub(super) fn checksum(bytes: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(bytes, seed)
}

/// Small for small distances either way.
pub(super) fn zigzag(distance: i64) -> u64 {
    (distance << 1 ^ distance >> 63) as u64
}

/// What [`zigzag`] was given.
pub(super) fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Appends a varint.
pub(super) fn put_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// The varint at `at`, and where it ends; `None` if there is none below 2^63.
#[inline]
pub(super) fn varint(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let first = *bytes.get(at)?;
    if first < 0x80 {
        return Some((first.into(), at + 1));
    }
    let mut number = u64::from(first & 0x7f);
    for place in 1..9 {
        let byte = *bytes.get(at + place)?;
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            return Some((number, at + place + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varints_come_back(number in 0u64..1 << 63, shift in 0u32..63) {
            let number = number >> shift;
            let mut bytes = vec![7];
            put_varint(&mut bytes, number);
            prop_assert_eq!(varint(&bytes, 1), Some((number, bytes.len())));
            prop_assert_eq!(varint(&bytes[..bytes.len() - 1], 1), None);
        }

        #[test]
        fn distances_come_back(distance: i64) {
            prop_assert_eq!(unzigzag(zigzag(distance)), distance);
        }
    }

    #[test]
    fn an_endless_varint_is_none() {
        assert_eq!(varint(&[0xff; 32], 0), None);
        assert_eq!(varint(&[], 0), None);
    }
}
