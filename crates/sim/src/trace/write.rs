//! Writing a trace: records are gathered into chunks, each written whole with its checksum.
//!
//! Nothing is ever gone back to, so any [`Write`] will do; the totals stand in the end record. A
//! writer that is dropped before [`Writer::finish`] leaves a trace that readers know as truncated.

use std::io::{self, ErrorKind, Write};

use super::format::*;
use super::{Contents, Header, Reference};

/// Writes a trace.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    codecs: usize,
    /// The checksum of the header.
    seed: u64,
    /// The chunk: room for its head, then its payload.
    chunk: Vec<u8>,
    /// Records in the chunk, and in those before it.
    chunk_records: u32,
    records: u64,
    references: u64,
    /// The last page of the chunk.
    page: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// What `out` refused; [`ErrorKind::InvalidInput`] for a header that no reader takes: more than
    /// [`CODECS_MAX`] codecs, a name of more than 255 bytes, over 1 MiB in all.
    pub fn new(mut out: W, header: &Header) -> io::Result<Self> {
        let bytes = header_bytes(header)?;
        out.write_all(&bytes)?;
        let mut writer = Writer {
            out,
            codecs: header.codecs.len(),
            seed: checksum(&bytes[..bytes.len() - CHECKSUM_BYTES], 0),
            chunk: Vec::with_capacity(CHUNK_HEAD_BYTES + PAYLOAD_BYTES_MAX + CHECKSUM_BYTES),
            chunk_records: 0,
            records: 0,
            references: 0,
            page: 0,
        };
        writer.begin_chunk();
        Ok(writer)
    }

    /// Appends the stay of a page in the window, in the order in which pages entered it.
    ///
    /// # Errors
    /// What `out` refused; [`ErrorKind::InvalidInput`] for a page beyond [`PAGE_END`], sizes that are
    /// not one for each codec of the header, or a size that is not from 1 to [`SIZE_MAX`].
    pub fn reference(&mut self, reference: &Reference<'_>) -> io::Result<()> {
        let flags = match reference.contents {
            Contents::Unchanged => UNCHANGED,
            Contents::SameFilled => SAME_FILLED,
            Contents::Sizes(_) => SIZES,
        };
        let fresh = if reference.is_fresh { FRESH } else { 0 };
        let written = if reference.is_written { WRITTEN } else { 0 };
        if let Contents::Sizes(sizes) = reference.contents {
            self.check_sizes(sizes)?;
        }
        self.begin_record(reference.page, flags | fresh | written)?;
        if let Contents::Sizes(sizes) = reference.contents {
            sizes.iter().for_each(|&size| put_varint(&mut self.chunk, size.into()));
        }
        self.references += 1;
        Ok(())
    }

    /// Appends that the program gave back `pages` pages from `first` on.
    ///
    /// # Errors
    /// What `out` refused; [`ErrorKind::InvalidInput`] for no pages, or pages beyond [`PAGE_END`].
    pub fn release(&mut self, first: u64, pages: u64) -> io::Result<()> {
        if pages == 0 || first.checked_add(pages).is_none_or(|end| end > PAGE_END) {
            return Err(invalid("a release has pages, and they have numbers below 2^52"));
        }
        self.begin_record(first, RELEASE)?;
        put_varint(&mut self.chunk, pages);
        Ok(())
    }

    /// Writes what is left and the end record, flushes, and gives `out` back.
    ///
    /// # Errors
    /// What `out` refused.
    pub fn finish(mut self) -> io::Result<W> {
        if self.chunk_records > 0 {
            self.end_chunk()?;
        }
        let references = self.references;
        put_varint(&mut self.chunk, references);
        self.end_chunk()?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn check_sizes(&self, sizes: &[u16]) -> io::Result<()> {
        let in_range = sizes.iter().all(|size| (1..=SIZE_MAX).contains(size));
        match in_range && sizes.len() == self.codecs && self.codecs > 0 {
            true => Ok(()),
            false => Err(invalid("a size for each codec, from 1 to 4096 bytes")),
        }
    }

    /// Writes the first varint of a record, in a chunk that has room for all of it.
    fn begin_record(&mut self, page: u64, flags: u64) -> io::Result<()> {
        if page >= PAGE_END {
            return Err(invalid("pages have numbers below 2^52"));
        }
        if self.chunk.len() + RECORD_BYTES_MAX > CHUNK_HEAD_BYTES + PAYLOAD_BYTES_MAX {
            self.end_chunk()?;
        }
        let distance = zigzag(page.wrapping_sub(self.page) as i64);
        put_varint(&mut self.chunk, distance << FLAG_BITS | flags);
        self.page = page;
        self.chunk_records += 1;
        Ok(())
    }

    fn begin_chunk(&mut self) {
        self.chunk.clear();
        self.chunk.resize(CHUNK_HEAD_BYTES, 0);
        self.chunk_records = 0;
        self.page = 0;
    }

    /// Writes the chunk and begins the next one.
    fn end_chunk(&mut self) -> io::Result<()> {
        let payload_bytes = (self.chunk.len() - CHUNK_HEAD_BYTES) as u32;
        self.chunk[..4].copy_from_slice(&payload_bytes.to_le_bytes());
        self.chunk[4..8].copy_from_slice(&self.chunk_records.to_le_bytes());
        self.chunk[8..CHUNK_HEAD_BYTES].copy_from_slice(&self.records.to_le_bytes());
        let checksum = checksum(&self.chunk, self.seed);
        self.chunk.extend_from_slice(&checksum.to_le_bytes());
        self.out.write_all(&self.chunk)?;
        self.records += u64::from(self.chunk_records);
        self.begin_chunk();
        Ok(())
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, what)
}

/// The header with its checksum.
fn header_bytes(header: &Header) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    body.extend_from_slice(&header.page_bytes.to_le_bytes());
    body.extend_from_slice(&header.window_pages.to_le_bytes());
    if header.codecs.len() > CODECS_MAX {
        return Err(invalid("a trace has at most 16 codecs"));
    }
    put_list(&mut body, &header.codecs)?;
    put_text(&mut body, header.origin.as_bytes())?;
    put_list(&mut body, &header.command)?;
    if body.len() > BODY_BYTES_MAX {
        return Err(invalid("a header has at most 1 MiB"));
    }
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&body);
    let checksum = checksum(&bytes, 0);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    Ok(bytes)
}

/// Appends how many there are, and each.
fn put_list(body: &mut Vec<u8>, texts: &[impl AsRef<[u8]>]) -> io::Result<()> {
    body.extend_from_slice(&length(texts.len())?);
    texts.iter().try_for_each(|text| put_text(body, text.as_ref()))
}

fn put_text(body: &mut Vec<u8>, text: &[u8]) -> io::Result<()> {
    body.extend_from_slice(&length(text.len())?);
    body.extend_from_slice(text);
    Ok(())
}

fn length(count: usize) -> io::Result<[u8; 4]> {
    match u32::try_from(count) {
        Ok(count) => Ok(count.to_le_bytes()),
        Err(_) => Err(invalid("a header has at most 1 MiB")),
    }
}
