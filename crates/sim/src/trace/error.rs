//! Why a trace cannot be read: the place and what would be right, in one line.

use std::fmt;
use std::io;

use super::format::VERSION;

/// What is wrong with a trace, and where.
#[derive(Debug)]
pub struct TraceError {
    /// Bytes of the trace before what is wrong.
    pub at_byte: u64,
    /// Whole records before it.
    pub records: u64,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a trace.
#[derive(Debug)]
pub enum Problem {
    /// The system could not read it.
    Io(io::Error),
    /// It does not begin as a trace does.
    Foreign,
    /// It has a version that is not known here.
    Newer(u32),
    /// It ends too early.
    Truncated,
    /// It says what no writer writes.
    Corrupt(&'static str),
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TraceError { at_byte, records, problem } = self;
        write!(f, "byte {at_byte}, after {records} records: ")?;
        match problem {
            Problem::Io(error) => write!(f, "cannot be read: {error}"),
            Problem::Foreign => f.write_str(
                "not a trace of zpager: record one with `zpager trace --output FILE -- PROGRAM`",
            ),
            Problem::Newer(version) => write!(
                f,
                "version {version} of the format: this zpager reads version {VERSION}; take the zpager \
                 that recorded it, or record it again"
            ),
            Problem::Truncated => f.write_str(
                "the trace ends here without its end record: it was cut off or its recording did not \
                 end; copy or record it again",
            ),
            Problem::Corrupt(what) => {
                write!(f, "corrupt: {what}: copy or record the trace again")
            }
        }
    }
}

impl std::error::Error for TraceError {}
