//! [`Vector`] as four words in one 128-bit register of NEON.
//!
//! Packing and unpacking go by the rows of tables, a mask is a sum of bits, and what PEXT and PDEP do on x86-64 is done in
//! steps (Warren, "Hacker's Delight", 7-4 and 7-5).

use super::vector::{Steps, TO_FRONT, Vector, Words};
use super::{HASH_MULTIPLIER, LOW_BITS, LOW_MASK, SETS, WAYS};
use core::arch::aarch64::*;

#[derive(Clone, Copy)]
pub(crate) struct Neon(uint32x4_t);

/// For each mask of four elements of `BYTES` bytes, where each byte comes from that is packed; from nowhere behind the
/// last.
const fn packing<const BYTES: usize, const ROW: usize>() -> [[u8; ROW]; 16] {
    let mut rows = [[u8::MAX; ROW]; 16];
    let mut mask = 0;
    while mask < 16 {
        let (mut from, mut to) = (0, 0);
        while from < 4 * BYTES {
            if mask >> (from / BYTES) & 1 == 1 {
                rows[mask][to] = from as u8;
                to += 1;
            }
            from += 1;
        }
        mask += 1;
    }
    rows
}

/// The way back: zeros where the mask is not set.
const fn unpacking<const BYTES: usize, const ROW: usize>() -> [[u8; ROW]; 16] {
    let mut rows = [[u8::MAX; ROW]; 16];
    let mut mask = 0;
    while mask < 16 {
        let (mut from, mut to) = (0, 0);
        while to < 4 * BYTES {
            if mask >> (to / BYTES) & 1 == 1 {
                rows[mask][to] = from;
                from += 1;
            }
            to += 1;
        }
        mask += 1;
    }
    rows
}

static PACK_WORDS: [[u8; 16]; 16] = packing::<4, 16>();
static PACK_HALVES: [[u8; 8]; 16] = packing::<2, 8>();
static PACK_BYTES: [[u8; 8]; 16] = packing::<1, 8>();
static UNPACK_WORDS: [[u8; 16]; 16] = unpacking::<4, 16>();
static UNPACK_HALVES: [[u8; 8]; 16] = unpacking::<2, 8>();
static UNPACK_BYTES: [[u8; 8]; 16] = unpacking::<1, 8>();

/// One bit for each word.
const BITS: [u32; 4] = [1, 2, 4, 8];

/// The row of a table for a mask of four bits.
#[inline(always)]
fn row<T>(table: &[T; 16], mask: u32) -> &T {
    &table[mask as usize % 16]
}

/// The words of which all bits are set, the others having none.
#[inline(always)]
unsafe fn mask(words: uint32x4_t) -> u32 {
    // SAFETY: NEON is always there.
    unsafe { vaddvq_u32(vandq_u32(words, vld1q_u32(BITS.as_ptr()))) }
}

// SAFETY of all blocks below: NEON is always there; the caller vouches for the memory behind pointers, as `Vector` says,
// and each row has as many bytes as are read.
impl Vector for Neon {
    const WORDS: usize = 4;

    #[inline(always)]
    unsafe fn load(from: *const u32) -> Self {
        // SAFETY: see above.
        Self(unsafe { vld1q_u32(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u32) {
        // SAFETY: see above.
        unsafe { vst1q_u32(to, self.0) }
    }

    #[inline(always)]
    unsafe fn keep(self, mask: u32) -> Self {
        // SAFETY: see above.
        unsafe {
            let kept = vtstq_u32(vdupq_n_u32(mask), vld1q_u32(BITS.as_ptr()));
            Self(vandq_u32(self.0, kept))
        }
    }

    #[inline(always)]
    unsafe fn fill(mask: u32, word: u32) -> Self {
        // SAFETY: see above.
        unsafe { Self(vdupq_n_u32(word)).keep(mask) }
    }

    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        // SAFETY: see above.
        Self(unsafe { vorrq_u32(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn equal(self, other: Self) -> u32 {
        // SAFETY: see above.
        unsafe { mask(vceqq_u32(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn similar(self, other: Self) -> u32 {
        // SAFETY: see above.
        unsafe { mask(vceqzq_u32(vshrq_n_u32::<{ LOW_BITS as i32 }>(veorq_u32(self.0, other.0)))) }
    }

    #[inline(always)]
    unsafe fn hash<const BITS: u32>(self) -> Self {
        // SAFETY: see above.
        unsafe {
            let upper = vshrq_n_u32::<{ LOW_BITS as i32 }>(self.0);
            let product = vmulq_u32(upper, vdupq_n_u32(HASH_MULTIPLIER));
            // A negative shift goes to the right.
            Self(vshlq_u32(product, vdupq_n_s32(BITS.cast_signed() - u32::BITS.cast_signed())))
        }
    }

    #[inline(always)]
    unsafe fn last_of_four(self) -> Self {
        // SAFETY: see above.
        unsafe { Self(vorrq_u32(vshlq_n_u32::<2>(self.0), vdupq_n_u32(3))) }
    }

    #[inline(always)]
    unsafe fn pack(self, mask: u32, to: *mut u32) {
        // SAFETY: see above.
        unsafe {
            let order = vld1q_u8(row(&PACK_WORDS, mask).as_ptr());
            vst1q_u8(to.cast(), vqtbl1q_u8(vreinterpretq_u8_u32(self.0), order));
        }
    }

    #[inline(always)]
    unsafe fn pack_lows(self, mask: u32, to: *mut u16) {
        // SAFETY: see above.
        unsafe {
            let lows = vmovn_u32(vandq_u32(self.0, vdupq_n_u32(LOW_MASK)));
            let order = vld1_u8(row(&PACK_HALVES, mask).as_ptr());
            vst1_u8(to.cast(), vtbl1_u8(vreinterpret_u8_u16(lows), order));
        }
    }

    #[inline(always)]
    unsafe fn pack_bytes(self, mask: u32, to: *mut u8) {
        // SAFETY: see above; eight bytes are written.
        unsafe {
            let halves = vmovn_u32(self.0);
            let bytes = vmovn_u16(vcombine_u16(halves, halves));
            vst1_u8(to, vtbl1_u8(bytes, vld1_u8(row(&PACK_BYTES, mask).as_ptr())));
        }
    }

    #[inline(always)]
    unsafe fn unpack(from: *const u32, mask: u32) -> Self {
        // SAFETY: see above.
        unsafe {
            let order = vld1q_u8(row(&UNPACK_WORDS, mask).as_ptr());
            Self(vreinterpretq_u32_u8(vqtbl1q_u8(vld1q_u8(from.cast()), order)))
        }
    }

    #[inline(always)]
    unsafe fn unpack_lows(from: *const u16, mask: u32) -> Self {
        // SAFETY: see above.
        unsafe {
            let order = vld1_u8(row(&UNPACK_HALVES, mask).as_ptr());
            Self(vmovl_u16(vreinterpret_u16_u8(vtbl1_u8(vld1_u8(from.cast()), order))))
        }
    }

    #[inline(always)]
    unsafe fn unpack_bytes(from: *const u8, mask: u32) -> Self {
        // SAFETY: see above; eight bytes are read.
        unsafe {
            let order = vld1_u8(row(&UNPACK_BYTES, mask).as_ptr());
            Self(vmovl_u16(vget_low_u16(vmovl_u8(vtbl1_u8(vld1_u8(from), order)))))
        }
    }

    #[inline(always)]
    unsafe fn extract(bits: u64, mask: u64) -> u64 {
        let mut bits = bits & mask;
        for (step, moves) in moves(mask).into_iter().enumerate() {
            let moving = bits & moves;
            bits = bits ^ moving | moving >> (1 << step);
        }
        bits
    }

    #[inline(always)]
    unsafe fn deposit(bits: u64, mask: u64) -> u64 {
        let mut bits = bits;
        for (step, moves) in moves(mask).into_iter().enumerate().rev() {
            let moving = bits << (1 << step);
            bits = bits & !moves | moving & moves;
        }
        bits & mask
    }

    #[inline(always)]
    unsafe fn meet_all(words: &Words, count: usize, places: &mut Words, found: &mut Words) {
        // SAFETY: see above.
        unsafe {
            let zero = vdupq_n_u32(0);
            let mut sets = [zero; SETS];
            let words = words.0[..count].iter();
            for ((word, place), found) in words.zip(&mut places.0).zip(&mut found.0) {
                let set = *place as usize % SETS;
                let entries = sets[set];
                let wanted = vdupq_n_u32(*word);
                let differing = vshrq_n_u32::<{ LOW_BITS as i32 }>(veorq_u32(entries, wanted));
                let similar = vceqzq_u32(differing);
                let way = (mask(similar) | 0b1000).trailing_zeros();
                *place = (set * WAYS) as u32 | way;
                *found = (&raw const sets[set]).cast::<u32>().add(way as usize).read();
                // The words behind the first that is similar stay; those before it, or all, move by one.
                let one = vextq_u32::<3>(zero, similar);
                let others =
                    vorrq_u32(vextq_u32::<2>(zero, similar), vextq_u32::<1>(zero, similar));
                let moved = vextq_u32::<3>(wanted, entries);
                sets[set] = vbslq_u32(vorrq_u32(one, others), entries, moved);
            }
        }
    }

    #[inline(always)]
    unsafe fn restore_all(steps: &Steps, count: usize, words: &mut Words) {
        // SAFETY: see above.
        unsafe {
            let zero = vdupq_n_u32(0);
            let mut sets = [zero; SETS];
            let steps = steps.places.0[..count].iter().zip(&steps.clears.0).zip(&steps.bits.0);
            for (((place, clear), bits), word) in steps.zip(&mut words.0) {
                let set = &mut sets[*place as usize / WAYS % SETS];
                let order = vld1q_u8(TO_FRONT[*place as usize % WAYS].as_ptr());
                let entries = vreinterpretq_u32_u8(vqtbl1q_u8(vreinterpretq_u8_u32(*set), order));
                let cleared = vbicq_u32(entries, vsetq_lane_u32::<0>(*clear, zero));
                *set = vorrq_u32(cleared, vsetq_lane_u32::<0>(*bits, zero));
                *word = vgetq_lane_u32::<0>(*set);
            }
        }
    }
}

/// For each power of two, the bits that [`Vector::extract`] moves by so many to the right, where they lie by then.
#[inline(always)]
fn moves(mask: u64) -> [u64; 6] {
    let mut left = mask;
    let mut gaps = !mask << 1;
    core::array::from_fn(|step| {
        // Whether the number of gaps to the right of each bit is odd.
        let mut odd = gaps;
        for shift in [1, 2, 4, 8, 16, 32] {
            odd ^= odd << shift;
        }
        let moves = odd & left;
        left = left ^ moves | moves >> (1 << step);
        gaps &= !odd;
        moves
    })
}
