//! Random numbers of the tests of the device: xorshift64*, seeded as the victims are.

use crate::victims;

/// A sequence that its state, an odd number at first, determines.
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    /// Of the victims' seed, which it prints.
    #[expect(clippy::new_without_default, reason = "it prints")]
    pub fn new() -> Self {
        let seed = victims::seed();
        println!("ZPAGER_SEED={seed}");
        let number = seed.bytes().fold(7, |sum: u64, byte| sum.wrapping_mul(31) + u64::from(byte));
        Random(number.wrapping_mul(2) | 1)
    }

    /// A number from 0 up to `bound`, without it.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % bound
    }
}
