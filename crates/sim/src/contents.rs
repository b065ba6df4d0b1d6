//! What each page is worth compressed now: the last that the trace said of it.

use crate::trace::{Contents, Reference, SIZE_MAX};

/// Nothing is known of the page.
const UNKNOWN: u16 = 0;
/// Every word of the page is equal.
const SAME_FILLED: u16 = u16::MAX;

/// How far a page shrinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    /// Every word is equal.
    SameFilled,
    /// To so many bytes; [`SIZE_MAX`] where it does not, or where nothing is known.
    Bytes(u16),
}

/// The sizes of all pages under some of the trace's codecs.
#[derive(Debug)]
pub(crate) struct Sizes {
    /// Where the codecs stand among the trace's.
    columns: Vec<usize>,
    /// For each page, one size a column.
    sizes: Vec<u16>,
}

impl Sizes {
    /// Nothing known of pages below `end`.
    pub(crate) fn new(end: u64, columns: Vec<usize>) -> Self {
        let sizes = vec![UNKNOWN; end as usize * columns.len()];
        Sizes { columns, sizes }
    }

    /// Notes what a reference says of `page`.
    #[inline]
    pub(crate) fn note(&mut self, page: u64, reference: &Reference<'_>) {
        let first = page as usize * self.columns.len();
        let known = &mut self.sizes[first..first + self.columns.len()];
        match reference.contents {
            // What came as zeros and was not written is zeros still.
            Contents::Unchanged if reference.is_fresh && !reference.is_written => {
                known.fill(SAME_FILLED);
            }
            Contents::Unchanged => {}
            Contents::SameFilled => known.fill(SAME_FILLED),
            Contents::Sizes(sizes) => {
                known.iter_mut().zip(&self.columns).for_each(|(size, &at)| *size = sizes[at]);
            }
        }
    }

    /// Notes that `page` came before its reference: it is zeros.
    pub(crate) fn come_as_zeros(&mut self, page: u64) {
        self.fill(page, SAME_FILLED);
    }

    /// Notes that the program gave `page` back.
    pub(crate) fn forget(&mut self, page: u64) {
        self.fill(page, UNKNOWN);
    }

    fn fill(&mut self, page: u64, size: u16) {
        let first = page as usize * self.columns.len();
        self.sizes[first..first + self.columns.len()].fill(size);
    }

    /// What `page` shrinks to under the codec of a column.
    #[inline]
    pub(crate) fn get(&self, page: u64, column: usize) -> Size {
        match self.sizes[page as usize * self.columns.len() + column] {
            SAME_FILLED => Size::SameFilled,
            UNKNOWN => Size::Bytes(SIZE_MAX),
            bytes => Size::Bytes(bytes),
        }
    }
}
