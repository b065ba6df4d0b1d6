//! A trace goes through a memory.

use std::fmt;
use std::io::Read;
use std::ops::Range;

use crate::outcome::Outcome;
use crate::survey::Layout;
use crate::trace::{Event, Reader, Reference, TraceError};

/// Resident pages and what lies behind them. Pages have the numbers of a [`Layout`].
pub trait Memory {
    /// The program references a page.
    ///
    /// # Errors
    /// The page cannot be had.
    fn reference(&mut self, page: u64, reference: &Reference<'_>) -> Result<(), Lost>;

    /// The program gives pages back of which something may be known.
    fn release(&mut self, pages: Range<u64>);

    /// What it came to so far.
    fn outcome(&self) -> Outcome;
}

/// A page did not come back as it left: a mistake in the cache, not in the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// Its number.
    pub page: u64,
}

/// Why a trace could not be replayed.
#[derive(Debug)]
pub enum ReplayError {
    /// The trace.
    Trace(TraceError),
    /// It is another trace than the one of which the survey was taken.
    Changed,
    /// A page did not come back.
    Lost(Lost),
    /// It has more references than can be told apart.
    TooLong,
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplayError::Trace(error) => error.fmt(f),
            ReplayError::Changed => {
                f.write_str("changed while it was read: let nothing write to it")
            }
            ReplayError::TooLong => f.write_str(
                "four thousand million references or more: `belady` takes shorter traces alone",
            ),
            ReplayError::Lost(Lost { page }) => {
                write!(f, "page {page} was lost by the simulator: report it with the trace")
            }
        }
    }
}

impl std::error::Error for ReplayError {}

impl From<TraceError> for ReplayError {
    fn from(error: TraceError) -> Self {
        ReplayError::Trace(error)
    }
}

/// Has `memory` serve all of the trace.
///
/// # Errors
/// [`ReplayError`].
pub fn replay(
    mut reader: Reader<impl Read>,
    layout: &Layout,
    memory: &mut impl Memory,
) -> Result<(), ReplayError> {
    let mut lookup = layout.lookup();
    while let Some(event) = reader.next_event()? {
        match event {
            Event::Reference(reference) => {
                let page = lookup.number(reference.page).ok_or(ReplayError::Changed)?;
                memory.reference(page, &reference).map_err(ReplayError::Lost)?;
            }
            Event::Release { first, pages } => {
                layout.ranges(first, pages).for_each(|pages| memory.release(pages));
            }
        }
    }
    Ok(())
}

/// Small traces for tests.
#[cfg(test)]
pub(crate) mod testing {
    use crate::trace::{Contents, Event, Header, Reference, Writer};

    /// A trace of `events`.
    pub(crate) fn trace<'a>(
        codecs: &[&str],
        events: impl IntoIterator<Item = Event<'a>>,
    ) -> Vec<u8> {
        let header = Header {
            page_bytes: 4096,
            window_pages: 1,
            origin: "a test".into(),
            command: Vec::new(),
            codecs: codecs.iter().map(|name| name.to_string()).collect(),
        };
        let mut writer = Writer::new(Vec::new(), &header).expect("a header");
        for event in events {
            match event {
                Event::Reference(reference) => writer.reference(&reference),
                Event::Release { first, pages } => writer.release(first, pages),
            }
            .expect("sound");
        }
        writer.finish().expect("written")
    }

    /// A page is read.
    pub(crate) fn read(page: u64) -> Event<'static> {
        let contents = Contents::Unchanged;
        Event::Reference(Reference { page, is_fresh: false, is_written: false, contents })
    }
}
