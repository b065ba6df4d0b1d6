//! References from the output of valgrind's `lackey` with `--trace-mem=yes`.
//!
//! Source: valgrind, lackey/lk_main.c: a line an access, `I  addr,size` for an instruction,
//! ` L addr,size` for a load, ` S addr,size` for a store, ` M addr,size` for both; addresses in
//! hexadecimal, sizes in decimal. Lines of valgrind's own begin with `==`.
//!
//! The accesses pass through a window of resident pages, first in, first out, as a recorded program's
//! do; with a window of one page, accesses to the same page in a row become one reference. What the
//! pages held is not in the output: either no sizes are written, or the same assumed size for
//! every page that was written, and a page that never was is same-filled.
//!
//! Bad case: programs whose pages differ much in how far they shrink.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::io::{self, BufRead, Write};

use super::{Contents, PROCESS_SHIFT, Reference, Writer};

const PAGE_SHIFT: u32 = 12;
/// Longest line that is looked at.
const LINE_BYTES_MAX: u64 = 4096;

/// What to make of the accesses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// Pages resident at a time, at least one.
    pub window_pages: usize,
    /// Whether instruction fetches count. The pages of programs are mapped files, which are not managed.
    pub with_instructions: bool,
    /// Size that every written page has under each codec of the trace; empty where there are no codecs.
    pub sizes: Vec<u16>,
}

/// Why the output cannot be imported.
#[derive(Debug)]
pub enum ImportError {
    /// A line that lackey does not write: its number, from 1 on.
    Line(u64),
    /// There is no access in it.
    Empty,
    /// The output could not be read.
    Read(io::Error),
    /// The trace could not be written.
    Write(io::Error),
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImportError::Line(number) => write!(
                f,
                "line {number}: not a line of lackey: it writes `I  addr,size`, ` L addr,size`, \
                 ` S addr,size` and ` M addr,size`"
            ),
            ImportError::Empty => f.write_str(
                "no accesses in it: make it with `valgrind --tool=lackey --trace-mem=yes \
                 --log-file=FILE PROGRAM`",
            ),
            ImportError::Read(error) => write!(f, "cannot be read: {error}"),
            ImportError::Write(error) => write!(f, "the trace cannot be written: {error}"),
        }
    }
}

impl std::error::Error for ImportError {}

/// One access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Access {
    first_page: u64,
    last_page: u64,
    is_write: bool,
    is_instruction: bool,
}

/// A page in the window.
struct Stay {
    page: u64,
    is_fresh: bool,
    is_written: bool,
}

/// The window, and the pages that were ever written.
struct Window<'a, W> {
    model: &'a Model,
    writer: &'a mut Writer<W>,
    stays: VecDeque<Stay>,
    /// Pages seen, and whether they were written.
    seen: HashSet<u64>,
    written: HashSet<u64>,
}

/// Writes the references in `input` to `writer`; gives how many accesses there were.
///
/// Memory grows with the pages that are referenced, not with the accesses.
///
/// # Errors
/// [`ImportError`]; what was written so far is then of no use.
pub fn import<W: Write>(
    mut input: impl BufRead,
    model: &Model,
    writer: &mut Writer<W>,
) -> Result<u64, ImportError> {
    let mut window = Window {
        model,
        writer,
        stays: VecDeque::with_capacity(model.window_pages),
        seen: HashSet::new(),
        written: HashSet::new(),
    };
    let mut line = Vec::new();
    let mut accesses = 0;
    for number in 1.. {
        line.clear();
        let mut limited = io::Read::take(&mut input, LINE_BYTES_MAX);
        if limited.read_until(b'\n', &mut line).map_err(ImportError::Read)? == 0 {
            break;
        }
        if line.starts_with(b"==") || line.starts_with(b"--") || line == b"\n" {
            continue;
        }
        let access = parse(line.trim_ascii_end()).ok_or(ImportError::Line(number))?;
        accesses += 1;
        window.access(access).map_err(ImportError::Write)?;
    }
    window.drain(0).map_err(ImportError::Write)?;
    if accesses == 0 { Err(ImportError::Empty) } else { Ok(accesses) }
}

/// Reads ` L addr,size`.
fn parse(line: &[u8]) -> Option<Access> {
    let (kind, rest) = line.split_at_checked(3)?;
    let (is_write, is_instruction) = match kind {
        b"I  " => (false, true),
        b" L " => (false, false),
        b" S " | b" M " => (true, false),
        _ => return None,
    };
    let (address, bytes) = std::str::from_utf8(rest).ok()?.split_once(',')?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let bytes: u64 = bytes.parse().ok().filter(|bytes| (1..=4096).contains(bytes))?;
    let last = address.checked_add(bytes - 1)?;
    let (first_page, last_page) = (address >> PAGE_SHIFT, last >> PAGE_SHIFT);
    (last_page >> PROCESS_SHIFT == 0).then_some(Access {
        first_page,
        last_page,
        is_write,
        is_instruction,
    })
}

impl<W: Write> Window<'_, W> {
    fn access(&mut self, access: Access) -> io::Result<()> {
        if access.is_instruction && !self.model.with_instructions {
            return Ok(());
        }
        for page in access.first_page..=access.last_page {
            // The pages that came last are the likeliest.
            match self.stays.iter_mut().rev().find(|stay| stay.page == page) {
                Some(stay) => stay.is_written |= access.is_write,
                None => {
                    self.drain(self.model.window_pages.max(1) - 1)?;
                    let is_fresh = self.seen.insert(page);
                    self.stays.push_back(Stay { page, is_fresh, is_written: access.is_write });
                }
            }
        }
        Ok(())
    }

    /// Has the oldest pages leave until so many are left.
    fn drain(&mut self, left: usize) -> io::Result<()> {
        while self.stays.len() > left {
            let Some(Stay { page, is_fresh, is_written }) = self.stays.pop_front() else { break };
            let first_write = is_written && self.written.insert(page);
            let contents = match (first_write, is_fresh) {
                (true, _) if !self.model.sizes.is_empty() => Contents::Sizes(&self.model.sizes),
                (false, true) => Contents::SameFilled,
                _ => Contents::Unchanged,
            };
            self.writer.reference(&Reference { page, is_fresh, is_written, contents })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Event, Header, Reader};
    use super::*;

    fn header(codecs: &[&str]) -> Header {
        Header {
            page_bytes: 4096,
            window_pages: 1,
            origin: "a test".into(),
            command: vec![],
            codecs: codecs.iter().map(|name| name.to_string()).collect(),
        }
    }

    /// Page, fresh, written, and a letter for the contents.
    fn imported(text: &str, model: &Model) -> Result<Vec<(u64, bool, bool, char)>, ImportError> {
        let codecs: &[&str] = if model.sizes.is_empty() { &[] } else { &["lz4"] };
        let mut writer = Writer::new(Vec::new(), &header(codecs)).expect("a header");
        import(text.as_bytes(), model, &mut writer)?;
        let bytes = writer.finish().expect("written");
        let mut reader = Reader::new(&bytes[..]).expect("a trace");
        let mut found = Vec::new();
        while let Some(event) = reader.next_event().expect("sound") {
            let Event::Reference(reference) = event else { panic!("{event:?}") };
            let letter = match reference.contents {
                Contents::Unchanged => 'u',
                Contents::SameFilled => 's',
                Contents::Sizes(_) => 'z',
            };
            found.push((reference.page, reference.is_fresh, reference.is_written, letter));
        }
        Ok(found)
    }

    const TEXT: &str = "==12== Lackey\n==12== \n\nI  00400000,4\n L 00001000,8\n L 00001ff8,8\n \
                        S 00001ffc,8\n M 00001010,4\n L 00003000,1\n L 00001000,1\n==12== end\n";

    #[test]
    fn accesses_to_a_page_in_a_row_are_one_reference() {
        let model = Model { window_pages: 1, with_instructions: false, sizes: vec![1000] };
        let found = imported(TEXT, &model).expect("lackey's");
        let expected = [
            (1, true, true, 'z'),
            (2, true, true, 'z'),
            (1, false, true, 'u'),
            (3, true, false, 's'),
            (1, false, false, 'u'),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_larger_window_merges_more_and_instructions_may_count() {
        let model = Model { window_pages: 2, with_instructions: true, sizes: vec![] };
        let found = imported(TEXT, &model).expect("lackey's");
        let expected = [
            (0x400, true, false, 's'),
            (1, true, true, 'u'),
            (2, true, true, 'u'),
            (3, true, false, 's'),
            (1, false, false, 'u'),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_lackey_does_not_write_is_told_by_its_line() {
        let model = Model { window_pages: 1, with_instructions: false, sizes: vec![] };
        for bad in [
            "X 1000,4",
            " L 1000",
            " L ,4",
            " L 1000,0",
            " L zz,4",
            " L 1000,4x",
            " S 1000,5000",
            " L ffffffffffffffff,8",
            "\u{fffd}",
        ] {
            let text = format!(" L 1000,4\n{bad}\n");
            let error = imported(&text, &model).expect_err(bad);
            assert!(error.to_string().starts_with("line 2:"), "{bad}: {error}");
        }
        let error = imported("==1== nothing\n", &model).expect_err("no access");
        assert!(error.to_string().contains("--trace-mem=yes"), "{error}");
    }
}
