//! The address of a record in a store.

use crate::CLUSTER_BYTES;
use crate::record::RECORD_BYTES_MAX;

/// Records start at multiples of so many bytes.
pub(crate) const GRAIN_BYTES: usize = 8;
const LEN_BITS: u32 = 12;

/// Where a record lies and how long its data are: 53 bits.
///
/// Places order by offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(u64);

impl Place {
    /// Width of [`Place::raw`] in bits.
    pub const BITS: u32 = OFFSET_BITS - GRAIN_BYTES.trailing_zeros() + LEN_BITS;
    /// Bytes that places can tell apart: 16 TiB.
    pub const STORE_BYTES_MAX: u64 = 1 << OFFSET_BITS;

    /// Of `len` bytes (1 to 4096) whose record starts at `offset_bytes` (a multiple of 8).
    pub(crate) fn new(offset_bytes: u64, len: usize) -> Self {
        debug_assert!(offset_bytes < Self::STORE_BYTES_MAX);
        debug_assert!(offset_bytes.is_multiple_of(GRAIN_BYTES as u64));
        debug_assert!((1..=RECORD_BYTES_MAX).contains(&len));
        let grains = offset_bytes / GRAIN_BYTES as u64;
        Self((grains << LEN_BITS) | (len as u64 - 1))
    }

    /// The number that an index keeps, below 2 to the power of [`Place::BITS`].
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The place whose number was kept. A number that no batch gave out makes a place whose record
    /// is corrupt.
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw & (u64::MAX >> (64 - Self::BITS)))
    }

    /// Where the record starts in the store, in bytes.
    pub const fn offset_bytes(self) -> u64 {
        (self.0 >> LEN_BITS) * GRAIN_BYTES as u64
    }

    /// Length of the data in bytes, 1 to [`RECORD_BYTES_MAX`].
    #[expect(clippy::len_without_is_empty, reason = "a record is never empty")]
    pub const fn len(self) -> usize {
        (self.0 & ((1 << LEN_BITS) - 1)) as usize + 1
    }

    /// The cluster that holds the record.
    pub const fn cluster(self) -> u32 {
        (self.offset_bytes() / CLUSTER_BYTES as u64) as u32
    }
}

const OFFSET_BITS: u32 = 44;
