//! 64 bytes at a time: the operations that the word codec is built from.
//!
//! The codec is written once, over [`Lanes`], and compiled for each instruction set; the implementations are thin. A
//! mask is a `u64` with one bit a byte, the lowest for the first.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
pub(crate) mod portable;

/// Bytes in a vector.
pub(crate) const LANES: usize = 64;

/// Bytes to be put in their places.
#[derive(Clone, Copy)]
pub(crate) struct Packed<'a> {
    /// The places.
    pub(crate) mask: u64,
    /// Where the bytes are, among others: at least a word in all.
    pub(crate) bytes: &'a [u8],
    /// The first of them. Zeros take the place of those that lie behind the end.
    pub(crate) at: usize,
}

impl<'a> Packed<'a> {
    /// The bytes and whatever follows them.
    #[inline(always)]
    fn rest(self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }
}

/// A vector of 64 bytes.
///
/// Every function is unsafe for the same reason: the processor must have the instructions of the implementation.
/// Pointers need no alignment and are valid for 64 bytes unless stated otherwise.
pub(crate) trait Lanes: Copy {
    /// 64 bytes from memory.
    unsafe fn load(from: *const u8) -> Self;

    /// The first `count < 64` bytes from memory, zeros behind them; memory behind them is not touched.
    unsafe fn load_first(from: *const u8, count: usize) -> Self;

    /// 64 bytes to memory.
    unsafe fn store(self, to: *mut u8);

    /// Asks for the cache line at any address, which is soon to be read.
    #[inline(always)]
    unsafe fn prefetch(from: *const u8) {
        // SAFETY: the instruction never faults.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(from.cast());
        }
    }

    /// The same byte everywhere.
    unsafe fn splat(byte: u8) -> Self;

    /// The same word eight times.
    unsafe fn splat_word(word: u64) -> Self;

    /// The bytes in which the two differ.
    unsafe fn differing(self, other: Self) -> u64;

    /// How many of the bytes in `within` differ.
    #[inline(always)]
    unsafe fn count_differing(self, other: Self, within: u64) -> u32 {
        // SAFETY: the caller vouches for the instructions.
        (unsafe { self.differing(other) } & within).count_ones()
    }

    /// The bytes that are not less than those of `other`, unsigned.
    unsafe fn at_least(self, other: Self) -> u64;

    /// The lesser of each two bytes, unsigned.
    unsafe fn min(self, other: Self) -> Self;

    /// The bytes of `self` where `mask` is set, zeros elsewhere.
    unsafe fn keep(self, mask: u64) -> Self;

    /// The bytes of `other` where `mask` is set, those of `self` elsewhere.
    unsafe fn replace(self, mask: u64, other: Self) -> Self;

    /// The low four bits of each byte.
    unsafe fn low_nibbles(self) -> Self;

    /// For each byte, which is below 16, the entry of the table.
    unsafe fn lookup16(self, table: &[u8; 16]) -> Self;

    /// For each byte the entry of the table.
    unsafe fn lookup256(self, table: &[u8; 256]) -> Self;

    /// Writes the bytes that `mask` selects, without gaps, to the start of `to`; the rest of the 64 bytes there becomes
    /// anything.
    unsafe fn pack(self, mask: u64, to: *mut u8);

    /// Puts packed bytes where the masks beside them are set, and leaves the bytes of `self` elsewhere. The two masks
    /// have no byte in common.
    unsafe fn unpack(self, first: Packed<'_>, second: Packed<'_>) -> Self;

    /// Writes 64 bytes, all below 16, as 32 bytes, the first of each two in the low half. `to` is valid for 32 bytes.
    unsafe fn pack_nibbles(self, to: *mut u8);

    /// The first 32 bytes as 64 bytes of four bits each.
    unsafe fn unpack_nibbles(self) -> Self;

    /// Writes for each of the eight words `word >> 16` hashed to [`HASH_BITS`]. `to` is valid for eight numbers.
    unsafe fn store_hashes(self, to: *mut u16);
}

/// Bits of [`Lanes::store_hashes`].
pub(crate) const HASH_BITS: u32 = 10;

/// The multiplier of the hash: 2^64 divided by the golden ratio (Knuth, volume 3, 6.4).
const HASH_MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// For each set of a word's bytes the mask of their bits.
pub(crate) static BYTE_MASKS: [u64; 256] = {
    let mut masks = [0; 256];
    let mut set = 0;
    while set < 256 {
        let mut byte = 0;
        while byte < 8 {
            if set >> byte & 1 == 1 {
                masks[set] |= 0xff << (8 * byte);
            }
            byte += 1;
        }
        set += 1;
    }
    masks
};

/// The first 64 bytes of `bytes`, with zeros behind the last.
///
/// # Safety
/// The processor has the instructions of `L`.
#[inline(always)]
pub(crate) unsafe fn load_or_fill<L: Lanes>(bytes: &[u8]) -> L {
    // SAFETY: the caller vouches for the instructions; no more is read than there is.
    unsafe {
        if bytes.len() >= LANES {
            L::load(bytes.as_ptr())
        } else {
            L::load_first(bytes.as_ptr(), bytes.len())
        }
    }
}
