//! How a record lies in a store: a seal, then the data, then zeros up to 8 bytes.
//!
//! The seal is a checksum, or the tag of data that are encrypted ([`Cipher`]). The checksum is XXH3
//! (xxhash.com, 64 bits) of the data, seeded with the record's own offset and the generation of its
//! cluster. So a block that was altered, that came from elsewhere, or that a lost write left as it
//! was in an earlier life of the cluster is noticed. It guards against failing hardware and
//! software; the tag also against an adversary.

use crate::cipher::{Cipher, TAG_BYTES};
use crate::place::{GRAIN_BYTES, Place};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Longest data of a record in bytes: a page kept as it is.
pub const RECORD_BYTES_MAX: usize = 4096;
const CHECKSUM_BYTES: usize = 8;
/// Generations that the seed tells apart: what its offset leaves of 64 bits.
const SEED_GENERATION_SHIFT: u32 = Place::STORE_BYTES_MAX.trailing_zeros();

/// What tells whether a record is what was written; the same for all records of a store.
#[derive(Debug, Clone, Copy)]
pub enum Seal<'a> {
    /// A checksum of data that anybody can read.
    Checksum,
    /// The same of the first so many bytes of data, where the others stand for nothing: they are not
    /// kept.
    Head(usize),
    /// The data are encrypted.
    Cipher(&'a Cipher),
}

impl Seal<'_> {
    /// Bytes that a record with `len` bytes of data takes of its cluster.
    pub const fn record_bytes(&self, len: usize) -> usize {
        (self.bytes() + len).next_multiple_of(GRAIN_BYTES)
    }

    /// How long it is.
    pub(crate) const fn bytes(&self) -> usize {
        match self {
            Seal::Checksum | Seal::Head(_) => CHECKSUM_BYTES,
            Seal::Cipher(_) => TAG_BYTES,
        }
    }

    /// How much of `len` bytes of data is kept.
    fn kept_bytes(&self, len: usize) -> usize {
        match self {
            Seal::Head(bytes) => len.min(*bytes),
            Seal::Checksum | Seal::Cipher(_) => len,
        }
    }

    /// Writes the record of `data` over `record`, which is exactly as long as it; once for each place
    /// and generation.
    pub(crate) fn write(&self, record: &mut [u8], data: &[u8], place: Place, generation: u32) {
        let (head, body) = record.split_at_mut(self.bytes());
        let (body, padding) = body.split_at_mut(data.len());
        let body = &mut body[..self.kept_bytes(data.len())];
        body.copy_from_slice(&data[..body.len()]);
        padding.fill(0);
        match self {
            Seal::Checksum | Seal::Head(_) => {
                head.copy_from_slice(&checksum(body, place, generation));
            }
            Seal::Cipher(cipher) => head.copy_from_slice(&cipher.encrypt(body, place, generation)),
        }
    }

    /// The data of the record at the start of `bytes`, if they are what was written there. Where
    /// they are encrypted the record is one no more.
    pub(crate) fn open<'b>(
        &self,
        bytes: &'b mut [u8],
        place: Place,
        generation: u32,
    ) -> Option<&'b [u8]> {
        let (head, body) = bytes.split_at_mut_checked(self.bytes())?;
        let data = body.get_mut(..place.len())?;
        let is_right = match self {
            Seal::Checksum | Seal::Head(_) => {
                head == checksum(&data[..self.kept_bytes(data.len())], place, generation)
            }
            Seal::Cipher(cipher) => cipher.decrypt(data, *head.first_chunk()?, place, generation),
        };
        is_right.then_some(data)
    }
}

fn checksum(data: &[u8], place: Place, generation: u32) -> [u8; CHECKSUM_BYTES] {
    let seed = place.offset_bytes() | u64::from(generation) << SEED_GENERATION_SHIFT;
    xxh3_64_with_seed(data, seed).to_le_bytes()
}
