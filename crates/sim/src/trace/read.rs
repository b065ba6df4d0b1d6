//! Reading a trace, a chunk at a time.
//!
//! A chunk is believed only after its checksum; what it says is checked all the same, because a
//! checksum proves what was written and not that it makes sense.

use std::io::{ErrorKind, Read};

use super::format::*;
use super::{Contents, Event, Header, Problem, Reference, TraceError};

/// How much a trace holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Records of all kinds.
    pub records: u64,
    /// References among them.
    pub references: u64,
}

/// Reads a trace.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    header: Header,
    /// The checksum of the header.
    seed: u64,
    /// The chunk: its head, its payload, its checksum.
    chunk: Vec<u8>,
    /// Where the chunk begins in the trace.
    chunk_at_byte: u64,
    /// Where the next record begins in the chunk, and where its payload ends.
    at: usize,
    payload_end: usize,
    /// Records left in the chunk.
    left: u32,
    /// What was read.
    totals: Totals,
    page: u64,
    sizes: [u16; CODECS_MAX],
    is_at_end: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(input: R) -> Result<Self, TraceError> {
        let mut reader = Reader {
            input,
            header: Header {
                page_bytes: 0,
                window_pages: 0,
                origin: String::new(),
                command: Vec::new(),
                codecs: Vec::new(),
            },
            seed: 0,
            chunk: Vec::new(),
            chunk_at_byte: 0,
            at: 0,
            payload_end: 0,
            left: 0,
            totals: Totals::default(),
            page: 0,
            sizes: [0; CODECS_MAX],
            is_at_end: false,
        };
        reader.read_header()?;
        Ok(reader)
    }

    /// What is known of the trace.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What was read so far; all of the trace once [`Self::next_event`] gave `None`.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The next record, or `None` at the end of a whole trace.
    ///
    /// # Errors
    /// What is wrong; the trace cannot be read on then.
    #[inline]
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>, TraceError> {
        if self.left == 0 && !self.next_chunk()? {
            return Ok(None);
        }
        let (number, at) = self.varint(self.at)?;
        let flags = number & ((1 << FLAG_BITS) - 1);
        let page = self.page.wrapping_add_signed(unzigzag(number >> FLAG_BITS));
        if page >= PAGE_END {
            return Err(self.corrupt("a page number of 2^52 or more"));
        }
        if flags & CONTENTS == RELEASE {
            return self.release(page, flags, at).map(Some);
        }
        let (contents, at) = match flags & CONTENTS {
            UNCHANGED => (UNCHANGED, at),
            SAME_FILLED => (SAME_FILLED, at),
            _ => (SIZES, self.read_sizes(at)?),
        };
        self.take(page, at);
        self.totals.references += 1;
        Ok(Some(Event::Reference(Reference {
            page,
            is_fresh: flags & FRESH != 0,
            is_written: flags & WRITTEN != 0,
            contents: match contents {
                UNCHANGED => Contents::Unchanged,
                SAME_FILLED => Contents::SameFilled,
                _ => Contents::Sizes(&self.sizes[..self.header.codecs.len()]),
            },
        })))
    }

    fn release(&mut self, first: u64, flags: u64, at: usize) -> Result<Event<'_>, TraceError> {
        let (pages, at) = self.varint(at)?;
        if flags != RELEASE || pages == 0 || pages > PAGE_END - first {
            return Err(self.corrupt("a release of no pages, or of pages from 2^52 on"));
        }
        self.take(first, at);
        Ok(Event::Release { first, pages })
    }

    /// Reads a size for each codec; gives where they end.
    fn read_sizes(&mut self, mut at: usize) -> Result<usize, TraceError> {
        if self.header.codecs.is_empty() {
            return Err(self.corrupt("sizes in a trace without codecs"));
        }
        for codec in 0..self.header.codecs.len() {
            let (size, next) = self.varint(at)?;
            if size == 0 || size > SIZE_MAX.into() {
                return Err(self.corrupt("a size that is not from 1 to 4096 bytes"));
            }
            self.sizes[codec] = size as u16;
            at = next;
        }
        Ok(at)
    }

    /// Notes that a record of `page` ends at `at`.
    fn take(&mut self, page: u64, at: usize) {
        self.page = page;
        self.at = at;
        self.left -= 1;
        self.totals.records += 1;
    }

    fn varint(&self, at: usize) -> Result<(u64, usize), TraceError> {
        varint(&self.chunk[..self.payload_end], at)
            .ok_or_else(|| self.corrupt("a record that does not end in its chunk"))
    }

    /// Reads the next chunk with records; false at the end of the trace.
    fn next_chunk(&mut self) -> Result<bool, TraceError> {
        if self.is_at_end {
            return Ok(false);
        }
        if self.at != self.payload_end {
            return Err(self.corrupt("bytes behind the last record of a chunk"));
        }
        self.begin(self.chunk.len());
        self.extend(CHUNK_HEAD_BYTES)?;
        let payload_bytes = self.u32_at(0) as usize;
        let records = self.u32_at(4);
        if payload_bytes > PAYLOAD_BYTES_MAX {
            return Err(self.corrupt("a chunk of more than 65536 bytes"));
        }
        self.extend(payload_bytes + CHECKSUM_BYTES)?;
        self.check(self.seed)?;
        if self.u64_at(8) != self.totals.records {
            return Err(self.corrupt("a chunk that is missing or twice there"));
        }
        self.at = CHUNK_HEAD_BYTES;
        self.payload_end = CHUNK_HEAD_BYTES + payload_bytes;
        self.left = records;
        self.page = 0;
        match records {
            0 => self.end().map(|()| false),
            _ => Ok(true),
        }
    }

    /// Reads the end record, behind which nothing may be.
    fn end(&mut self) -> Result<(), TraceError> {
        let (references, at) = self.varint(self.at)?;
        if references != self.totals.references || at != self.payload_end {
            return Err(self.corrupt("an end record that counts other records"));
        }
        self.begin(self.chunk.len());
        let mut more = [0];
        match self.read(&mut more)? {
            0 => {
                self.is_at_end = true;
                Ok(())
            }
            _ => Err(self.corrupt("bytes behind the end record")),
        }
    }

    fn read_header(&mut self) -> Result<(), TraceError> {
        let head = self.extend(HEAD_BYTES);
        if !MAGIC.starts_with(&self.chunk[..self.chunk.len().min(MAGIC.len())])
            || self.chunk.is_empty()
        {
            return Err(self.error(0, Problem::Foreign));
        }
        head?;
        let version = self.u32_at(8);
        match version {
            VERSION => {}
            0 => return Err(self.error(8, Problem::Corrupt("version 0 of the format"))),
            _ => return Err(self.error(8, Problem::Newer(version))),
        }
        let body_bytes = self.u32_at(12) as usize;
        if body_bytes > BODY_BYTES_MAX {
            return Err(self.error(12, Problem::Corrupt("a header of more than 1 MiB")));
        }
        self.extend(body_bytes + CHECKSUM_BYTES)?;
        self.seed = self.check(0)?;
        let mut body = Body { bytes: &self.chunk[HEAD_BYTES..HEAD_BYTES + body_bytes], at: 0 };
        let header = body.header();
        let at = HEAD_BYTES + body.at;
        self.header = header.map_err(|what| self.error(at, Problem::Corrupt(what)))?;
        Ok(())
    }

    /// Begins anew behind the first `bytes` of the chunk, which are done with.
    fn begin(&mut self, bytes: usize) {
        self.chunk_at_byte += bytes as u64;
        self.chunk.clear();
        self.at = 0;
        self.payload_end = 0;
    }

    /// Reads so many bytes more into the chunk; as many as there are, if that is fewer.
    fn extend(&mut self, bytes: usize) -> Result<(), TraceError> {
        let had = self.chunk.len();
        self.chunk.resize(had + bytes, 0);
        let mut chunk = std::mem::take(&mut self.chunk);
        let mut filled = had;
        let outcome = loop {
            match self.read(&mut chunk[filled..]) {
                Ok(0) if filled < chunk.len() => break Err(self.error(filled, Problem::Truncated)),
                Ok(came) => filled += came,
                Err(error) => break Err(error),
            }
            if filled == chunk.len() {
                break Ok(());
            }
        };
        chunk.truncate(filled);
        self.chunk = chunk;
        outcome
    }

    fn read(&mut self, room: &mut [u8]) -> Result<usize, TraceError> {
        loop {
            match self.input.read(room) {
                Ok(came) => return Ok(came),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.error(0, Problem::Io(error))),
            }
        }
    }

    /// The checksum at the end of the chunk, if it is that of what is before it.
    fn check(&self, seed: u64) -> Result<u64, TraceError> {
        let (bytes, end) = self.chunk.split_at(self.chunk.len() - CHECKSUM_BYTES);
        let found = checksum(bytes, seed);
        match end == found.to_le_bytes() {
            true => Ok(found),
            false => Err(self.error(0, Problem::Corrupt("the checksum does not match"))),
        }
    }

    fn u32_at(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.chunk[at..at + 4].try_into().expect("four bytes"))
    }

    fn u64_at(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.chunk[at..at + 8].try_into().expect("eight bytes"))
    }

    #[cold]
    fn corrupt(&self, what: &'static str) -> TraceError {
        self.error(self.at, Problem::Corrupt(what))
    }

    /// An error at `at` in the chunk.
    #[cold]
    fn error(&self, at: usize, problem: Problem) -> TraceError {
        let at_byte = self.chunk_at_byte + at as u64;
        TraceError { at_byte, records: self.totals.records, problem }
    }
}

/// The body of a header, whose checksum was right.
struct Body<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Body<'_> {
    fn header(&mut self) -> Result<Header, &'static str> {
        let page_bytes = self.number()?;
        if page_bytes != 4096 {
            return Err("pages of other than 4096 bytes");
        }
        let window_pages = self.number()?;
        let codecs = self.list()?;
        if codecs.len() > CODECS_MAX {
            return Err("more than 16 codecs");
        }
        let origin = self.text()?;
        let command = self.list()?;
        match self.at == self.bytes.len() {
            true => Ok(Header {
                page_bytes,
                window_pages,
                origin: utf8(origin)?,
                command,
                codecs: codecs.into_iter().map(utf8).collect::<Result<_, _>>()?,
            }),
            false => Err("bytes behind the header's last field"),
        }
    }

    fn number(&mut self) -> Result<u32, &'static str> {
        let rest = &self.bytes[self.at..];
        let (number, _) = rest.split_first_chunk().ok_or("a header that is too short")?;
        self.at += size_of::<u32>();
        Ok(u32::from_le_bytes(*number))
    }

    fn text(&mut self) -> Result<Vec<u8>, &'static str> {
        let bytes = self.number()? as usize;
        let rest = &self.bytes[self.at..];
        let text = rest.get(..bytes).ok_or("a header that is too short")?;
        self.at += bytes;
        Ok(text.to_vec())
    }

    fn list(&mut self) -> Result<Vec<Vec<u8>>, &'static str> {
        (0..self.number()?).map(|_| self.text()).collect()
    }
}

fn utf8(text: Vec<u8>) -> Result<String, &'static str> {
    String::from_utf8(text).map_err(|_| "a name that is not UTF-8")
}
