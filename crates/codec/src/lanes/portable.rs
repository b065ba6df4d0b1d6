//! [`Lanes`] in plain integer arithmetic, for every target, and the reference for the others.

use super::{BYTE_MASKS, HASH_BITS, HASH_MULTIPLIER, LANES, Lanes, Packed};
use core::array::from_fn;

#[derive(Clone, Copy)]
pub(crate) struct Portable([u8; LANES]);

impl Portable {
    /// Each two bytes combined.
    #[inline(always)]
    fn zip(self, other: Self, combine: impl Fn(u8, u8) -> u8) -> Self {
        Self(from_fn(|i| combine(self.0[i], other.0[i])))
    }

    /// The bytes for which `test` holds.
    #[inline(always)]
    fn mask(self, other: Self, test: impl Fn(u8, u8) -> bool) -> u64 {
        (0..LANES).fold(0, |mask, i| mask | u64::from(test(self.0[i], other.0[i])) << i)
    }
}

/// All bits of the bytes in `mask`.
#[inline(always)]
fn bits_of(mask: u64) -> Portable {
    let words = mask.to_le_bytes().map(|set| BYTE_MASKS[usize::from(set)].to_le_bytes());
    Portable(from_fn(|i| words[i / 8][i % 8]))
}

/// One bit for each byte that is not zero, the lowest for the lowest.
#[inline(always)]
const fn nonzero_bytes(word: u64) -> u8 {
    const LOW_BITS: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    // The highest bit of each byte becomes whether any was set; the product brings these eight bits to the top.
    let any = (((word & LOW_BITS) + LOW_BITS) | word) & !LOW_BITS;
    ((any >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

impl Lanes for Portable {
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller vouches for 64 bytes; an array of bytes needs no alignment.
        Self(unsafe { from.cast::<[u8; LANES]>().read() })
    }

    #[inline(always)]
    unsafe fn load_first(from: *const u8, count: usize) -> Self {
        let mut bytes = [0; LANES];
        // SAFETY: the caller vouches for `count < 64` bytes.
        unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(from, count) };
        Self(bytes)
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller vouches for 64 bytes; an array of bytes needs no alignment.
        unsafe { to.cast::<[u8; LANES]>().write(self.0) }
    }

    #[inline(always)]
    unsafe fn splat(byte: u8) -> Self {
        Self([byte; LANES])
    }

    #[inline(always)]
    unsafe fn splat_word(word: u64) -> Self {
        let bytes = word.to_le_bytes();
        Self(from_fn(|i| bytes[i % 8]))
    }

    #[inline(always)]
    unsafe fn differing(self, other: Self) -> u64 {
        let (words, others) = (self.0.as_chunks().0, other.0.as_chunks().0);
        let sets = from_fn(|i| {
            nonzero_bytes(u64::from_le_bytes(words[i]) ^ u64::from_le_bytes(others[i]))
        });
        u64::from_le_bytes(sets)
    }

    #[inline(always)]
    unsafe fn at_least(self, other: Self) -> u64 {
        self.mask(other, |a, b| a >= b)
    }

    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        self.zip(other, u8::min)
    }

    #[inline(always)]
    unsafe fn keep(self, mask: u64) -> Self {
        let bits = bits_of(mask);
        self.zip(bits, |byte, bits| byte & bits)
    }

    #[inline(always)]
    unsafe fn replace(self, mask: u64, other: Self) -> Self {
        let bits = bits_of(mask);
        let kept = self.zip(bits, |byte, bits| byte & !bits);
        kept.zip(other.zip(bits, |byte, bits| byte & bits), |a, b| a | b)
    }

    #[inline(always)]
    unsafe fn low_nibbles(self) -> Self {
        Self(self.0.map(|byte| byte & 0x0f))
    }

    #[inline(always)]
    unsafe fn lookup16(self, table: &[u8; 16]) -> Self {
        Self(self.0.map(|byte| table[usize::from(byte & 0x0f)]))
    }

    #[inline(always)]
    unsafe fn lookup256(self, table: &[u8; 256]) -> Self {
        Self(self.0.map(|byte| table[usize::from(byte)]))
    }

    #[inline(always)]
    unsafe fn pack(self, mask: u64, to: *mut u8) {
        let mut length = 0;
        for (i, byte) in self.0.iter().enumerate() {
            // SAFETY: the caller vouches for 64 bytes; `length` grows at most once a byte, after the byte was written.
            unsafe { *to.add(length) = *byte };
            length += (mask >> i & 1) as usize;
        }
    }

    #[inline(always)]
    unsafe fn unpack(self, first: Packed<'_>, second: Packed<'_>) -> Self {
        let mut bytes = self.0;
        for packed in [first, second] {
            let mut rest = packed.rest().iter();
            let mut places = packed.mask;
            while places != 0 {
                let place = places.trailing_zeros() as usize;
                bytes[place] = rest.next().copied().unwrap_or_default();
                places &= places - 1;
            }
        }
        Self(bytes)
    }

    #[inline(always)]
    unsafe fn pack_nibbles(self, to: *mut u8) {
        let packed: [u8; LANES / 2] = from_fn(|i| self.0[2 * i] | self.0[2 * i + 1] << 4);
        // SAFETY: the caller vouches for 32 bytes; an array of bytes needs no alignment.
        unsafe { to.cast::<[u8; LANES / 2]>().write(packed) }
    }

    #[inline(always)]
    unsafe fn unpack_nibbles(self) -> Self {
        Self(from_fn(|i| self.0[i / 2] >> (4 * (i % 2)) & 0x0f))
    }

    #[inline(always)]
    unsafe fn store_hashes(self, to: *mut u16) {
        let (words, _) = self.0.as_chunks::<8>();
        for (i, word) in words.iter().enumerate() {
            let product = (u64::from_le_bytes(*word) >> 16).wrapping_mul(HASH_MULTIPLIER);
            // SAFETY: the caller vouches for eight numbers.
            unsafe { to.add(i).write_unaligned((product >> (64 - HASH_BITS)) as u16) };
        }
    }
}
