//! How a record lies in a store: a checksum, then the data, then zeros up to 8 bytes.
//!
//! The checksum is XXH3 (xxhash.com, 64 bits) of the data, seeded with the record's own offset and
//! the generation of its cluster. So a block that was altered, that came from elsewhere, or that a
//! lost write left as it was in an earlier life of the cluster is noticed. It guards against
//! failing hardware and software, not against an adversary.

use crate::place::{GRAIN_BYTES, Place};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Longest data of a record in bytes: a page kept as it is.
pub const RECORD_BYTES_MAX: usize = 4096;
/// Bytes of the checksum before the data.
const CHECKSUM_BYTES: usize = 8;
/// Generations that the seed tells apart: what its offset leaves of 64 bits.
const SEED_GENERATION_SHIFT: u32 = Place::STORE_BYTES_MAX.trailing_zeros();

/// Bytes that a record with `len` bytes of data takes.
pub(crate) const fn record_bytes(len: usize) -> usize {
    (CHECKSUM_BYTES + len).next_multiple_of(GRAIN_BYTES)
}

fn checksum(data: &[u8], place: Place, generation: u32) -> u64 {
    let seed = place.offset_bytes() | u64::from(generation) << SEED_GENERATION_SHIFT;
    xxh3_64_with_seed(data, seed)
}

/// Writes the record of `data` over `record`, which is exactly as long as it.
pub(crate) fn write(record: &mut [u8], data: &[u8], place: Place, generation: u32) {
    let (head, body) = record.split_at_mut(CHECKSUM_BYTES);
    head.copy_from_slice(&checksum(data, place, generation).to_le_bytes());
    let (body, padding) = body.split_at_mut(data.len());
    body.copy_from_slice(data);
    padding.fill(0);
}

/// The data of the record at the start of `bytes`, if they are what was written there.
pub(crate) fn verified(bytes: &[u8], place: Place, generation: u32) -> Option<&[u8]> {
    let (head, body) = bytes.split_first_chunk::<CHECKSUM_BYTES>()?;
    let data = body.get(..place.len())?;
    (u64::from_le_bytes(*head) == checksum(data, place, generation)).then_some(data)
}
