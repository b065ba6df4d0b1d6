//! A stream of literal bytes as the decoder takes them: whole vectors are read, only the bytes that have a place count.

use crate::lanes::Packed;

/// Literal bytes being taken from the start.
pub(super) struct Stream<'a> {
    /// What the stream lies in: at least a word.
    bytes: &'a [u8],
    /// The next byte to be taken. In a corrupt page it may come to lie behind the end.
    at: usize,
    end: usize,
}

impl<'a> Stream<'a> {
    /// `bytes[start..end]`.
    pub(super) const fn new(bytes: &'a [u8], start: usize, end: usize) -> Self {
        Self { bytes, at: start, end }
    }

    /// The next bytes, for the places in `mask`.
    #[inline(always)]
    pub(super) fn next(&mut self, mask: u64) -> Packed<'a> {
        let at = self.at;
        self.at += mask.count_ones() as usize;
        Packed { mask, bytes: self.bytes, at }
    }

    /// Whether exactly the stream was taken.
    pub(super) fn is_used_up(&self) -> bool {
        self.at == self.end
    }
}
