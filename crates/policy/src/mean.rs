//! A mean in which the past fades.

/// It takes in this part of every new value.
const MEAN_PART: i64 = 32;

/// Of measurements, in the caller's unit; 0 before the first.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mean(pub(crate) u64);

impl Mean {
    pub(crate) fn add(&mut self, value: u64) {
        let change = (value as i64).wrapping_sub(self.0 as i64) / MEAN_PART;
        self.0 = if self.0 == 0 { value } else { self.0.wrapping_add_signed(change) };
    }
}
