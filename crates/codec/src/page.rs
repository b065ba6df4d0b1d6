//! The unit of everything: 4096 bytes of a program's memory.

/// Bytes in a page.
pub const PAGE_BYTES: usize = 4096;

/// 64-bit words in a page.
pub const WORDS: usize = PAGE_BYTES / size_of::<u64>();

/// One page of a program's memory.
#[derive(Clone)]
#[repr(C, align(4096))]
pub struct Page(pub [u8; PAGE_BYTES]);

impl Page {
    /// A page of zeros.
    pub const ZERO: Self = Self([0; PAGE_BYTES]);

    /// The page as words of the machine's byte order.
    pub const fn words(&self) -> &[u64; WORDS] {
        // SAFETY: the page has the size of the array, a stricter alignment, and every bit pattern is a word.
        unsafe { &*(&raw const self.0).cast() }
    }

    /// The page as words of the machine's byte order, to be written.
    pub const fn words_mut(&mut self) -> &mut [u64; WORDS] {
        // SAFETY: as in `words`; any word is eight valid bytes.
        unsafe { &mut *(&raw mut self.0).cast() }
    }
}
