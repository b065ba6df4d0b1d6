//! Where a codec writes, piece by piece, up to the caller's limit.

/// The compressed page as it grows.
pub(crate) struct Output<'a> {
    /// Room for all that may come.
    pub(crate) bytes: &'a mut [u8],
    /// How much of it is written.
    pub(crate) length: usize,
}

impl Output<'_> {
    /// Appends `bytes`, or `None` if they do not fit.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.length + bytes.len();
        self.bytes.get_mut(self.length..end)?.copy_from_slice(bytes);
        self.length = end;
        Some(())
    }
}
