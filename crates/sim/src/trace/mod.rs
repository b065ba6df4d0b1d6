//! The trace: which pages a program referenced, in order, and what each was worth compressed.
//!
//! Source: castro (2003), 4.1, and Kaplan's reference traces: a program runs in a small window
//! of resident pages; what enters the window is a reference, and what leaves it is compressed to
//! learn its sizes. A page's contents change only while it is in the window, so one record tells
//! all of a stay: how the page came, whether it was written, and what it was when it left.
//!
//! `docs/traces.md` describes the file byte by byte. A header is followed by chunks, each with a
//! checksum, and by an end record. Both ends hold one chunk in memory.
//!
//! Invariants: what [`Writer`] wrote, [`Reader`] gives back; bytes that are not a whole trace of
//! this version are an error that names the place, and no bytes make the reader panic.
//!
//! Bad case: references to far pages in turn, which take five bytes where neighbours take one.

mod error;
mod format;
pub mod lackey;
mod read;
mod write;

pub use error::{Problem, TraceError};
pub use format::{CODECS_MAX, PAGE_END, PROCESS_SHIFT, SIZE_MAX, VERSION};
pub use read::{Reader, Totals};
pub use write::Writer;

/// What is known of a trace before its first record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Bytes of a page: 4096.
    pub page_bytes: u32,
    /// Pages that were resident at a time while the trace was recorded; 0 where that is unknown.
    pub window_pages: u32,
    /// What made the trace and under what assumptions, in one line.
    pub origin: String,
    /// The program and its arguments, as the system had them.
    pub command: Vec<Vec<u8>>,
    /// Names of the codecs whose sizes are recorded, at most [`CODECS_MAX`].
    pub codecs: Vec<String>,
}

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// A page entered the window.
    Reference(Reference<'a>),
    /// The program gave pages back: they read as zeros, or are no longer there.
    Release {
        /// The first page.
        first: u64,
        /// How many, at least one.
        pages: u64,
    },
}

/// A page's stay in the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference<'a> {
    /// The page's number in its address space, with the process's number from bit [`PROCESS_SHIFT`] on.
    pub page: u64,
    /// Whether nothing was there before: the page came as zeros.
    pub is_fresh: bool,
    /// Whether the page was written while it was in the window.
    pub is_written: bool,
    /// What the page was when it left the window.
    pub contents: Contents<'a>,
}

/// What a page was when it left the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents<'a> {
    /// What it was at its last reference; unknown if there is none or the page was released since.
    Unchanged,
    /// Every word is equal.
    SameFilled,
    /// So many bytes under each codec of the header, from 1 to [`SIZE_MAX`], which stands for a
    /// page that did not become shorter.
    Sizes(&'a [u16]),
}
