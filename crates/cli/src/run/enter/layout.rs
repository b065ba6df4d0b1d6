//! The agent's image as it has to lie in memory: its segments, what of it depends on
//! where it lies, and where it is entered.
//!
//! Sources: ELF, "Program Header" and "Dynamic Section"; the x86-64 psABI, "Relocation".
//! It is worked out once from the bytes that the command carries. The agent needs
//! nobody: all but its own address is known when it is linked, so there is
//! `R_X86_64_RELATIVE` alone, and weak symbols that nobody defines, which are 0.
//! Anything else is refused here, before a program is touched.
//!
//! Invariants: segments are in ascending order and no two share a page; every
//! relocation is eight bytes within one segment's part of the file.

use std::collections::BTreeMap;
use std::ops::Range;

use object::LittleEndian;
use object::elf::{
    DT_JMPREL, DT_NEEDED, DT_PLTRELSZ, DT_REL, DT_RELA, DT_RELASZ, DT_RELR, DT_SYMTAB, DT_TEXTREL,
    DynamicTag, FileHeader64, PF_R, PF_W, PF_X, PT_GNU_RELRO, PT_LOAD, PT_TLS, ProgramHeader64,
    R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT, R_X86_64_RELATIVE, Rela64, SHN_UNDEF, STB_WEAK, Sym64,
};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, Rela, Sym};

/// Bytes of a page.
pub(super) const PAGE_BYTES: u64 = 4096;

/// No agent is that large; bounds what a process is asked for.
const SPAN_BYTES_MAX: u64 = 64 << 20;

type Header = FileHeader64<LittleEndian>;
type Segments<'a> = &'a [ProgramHeader64<LittleEndian>];
const ENDIAN: LittleEndian = LittleEndian;

/// One segment, in offsets from where the image begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    /// Its bytes in memory.
    pub(super) memory: Range<u64>,
    /// How many of them are in the file, and where.
    pub(super) file_bytes: u64,
    pub(super) file_offset: u64,
    /// `PROT_*`.
    pub(super) protection: u64,
}

impl Segment {
    /// The pages that it takes.
    pub(super) fn pages(&self) -> Range<u64> {
        page_of(self.memory.start)..page_end(self.memory.end)
    }

    /// The first pages of these, which come from the file; the last of them may reach beyond
    /// the segment's part of the file.
    pub(super) fn file_pages(&self) -> Range<u64> {
        page_of(self.memory.start)..page_end(self.memory.start + self.file_bytes)
    }

    pub(super) fn is_writable(&self) -> bool {
        self.protection & libc::PROT_WRITE as u64 != 0
    }
}

/// The image.
#[derive(Debug)]
pub(super) struct Layout<'a> {
    image: &'a [u8],
    /// Its length in memory, in whole pages.
    pub(super) span_bytes: u64,
    pub(super) segments: Vec<Segment>,
    /// What is only to be read once it is relocated.
    pub(super) sealed: Range<u64>,
    /// Where it is entered, from its beginning.
    pub(super) entry: u64,
    /// What each relocated word holds.
    words: BTreeMap<u64, Word>,
}

/// What is to be in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    /// The address of the image and this.
    Relative(u64),
    /// 0: it would be the address of something that nobody has.
    Nothing,
}

impl<'a> Layout<'a> {
    /// Works out how an image lies, which is aligned to 8 bytes.
    ///
    /// # Errors
    /// What of it cannot be put into a process.
    pub(super) fn of(image: &'a [u8]) -> Result<Self, &'static str> {
        let header = Header::parse(image).map_err(|_| "no ELF object")?;
        let headers = header.program_headers(ENDIAN, image).map_err(|_| "no segments")?;
        if headers.iter().any(|header| header.p_type(ENDIAN) == PT_TLS) {
            return Err("variables of threads");
        }
        let segments = segments_of(headers, image.len() as u64)?;
        let span_bytes = segments.last().map_or(0, |last| last.pages().end);
        let words = relocations_of(image, headers, &segments)?;
        let sealed = headers.iter().find(|header| header.p_type(ENDIAN) == PT_GNU_RELRO);
        let sealed = sealed.map_or(0..0, |header| {
            let start = header.p_vaddr(ENDIAN);
            page_of(start)..page_of(start.saturating_add(header.p_memsz(ENDIAN)).min(span_bytes))
        });
        let entry = header.e_entry(ENDIAN);
        let is_code = |segment: &Segment| {
            segment.protection & libc::PROT_EXEC as u64 != 0 && segment.memory.contains(&entry)
        };
        match segments.iter().any(is_code) {
            true => Ok(Layout { image, span_bytes, segments, sealed, entry, words }),
            false => Err("no entry"),
        }
    }

    /// What a process has to be given beyond the file's own bytes when the image begins at `base`:
    /// pages with relocated words, and zeros behind the file's part of a segment.
    pub(super) fn patches(&self, base: u64) -> BTreeMap<u64, Vec<u8>> {
        let mut patches = BTreeMap::new();
        for segment in self.segments.iter().filter(|segment| segment.is_writable()) {
            let file_end = segment.memory.start + segment.file_bytes;
            let words = self.words.range(segment.memory.start..file_end);
            let ends = words.clone().flat_map(|(at, _)| [page_of(*at), page_of(*at + 7)]);
            let tail = (file_end % PAGE_BYTES != 0).then_some(page_of(file_end));
            for page in ends.chain(tail) {
                patches.entry(page).or_insert_with(|| self.page_of_file(segment, page));
            }
            for (at, word) in words {
                let value = match word {
                    Word::Relative(addend) => base.wrapping_add(*addend),
                    Word::Nothing => 0,
                };
                for (at, byte) in (*at..).zip(value.to_le_bytes()) {
                    if let Some(page) = patches.get_mut(&page_of(at)) {
                        page[(at % PAGE_BYTES) as usize] = byte;
                    }
                }
            }
        }
        patches
    }

    /// A page of a segment as the file has it, with zeros behind that.
    fn page_of_file(&self, segment: &Segment, page: u64) -> Vec<u8> {
        let mut bytes = vec![0; PAGE_BYTES as usize];
        let file_end = segment.memory.start + segment.file_bytes;
        let part = page.max(segment.memory.start)..(page + PAGE_BYTES).min(file_end);
        if !part.is_empty() {
            let from = (segment.file_offset + (part.start - segment.memory.start)) as usize;
            let length = (part.end - part.start) as usize;
            let at = (part.start - page) as usize;
            bytes[at..at + length].copy_from_slice(&self.image[from..from + length]);
        }
        bytes
    }
}

fn page_of(address: u64) -> u64 {
    address - address % PAGE_BYTES
}

fn page_end(address: u64) -> u64 {
    address.next_multiple_of(PAGE_BYTES)
}

fn segments_of(headers: Segments<'_>, image_bytes: u64) -> Result<Vec<Segment>, &'static str> {
    let mut segments: Vec<Segment> = Vec::new();
    for header in headers.iter().filter(|header| header.p_type(ENDIAN) == PT_LOAD) {
        let (start, file_offset) = (header.p_vaddr(ENDIAN), header.p_offset(ENDIAN));
        let (bytes, file_bytes) = (header.p_memsz(ENDIAN), header.p_filesz(ENDIAN));
        let end = start.checked_add(bytes).filter(|end| *end <= SPAN_BYTES_MAX);
        let end = end.ok_or("a segment far away")?;
        let file_end = file_offset.checked_add(file_bytes).filter(|end| *end <= image_bytes);
        if file_end.is_none()
            || file_bytes > bytes
            || start % PAGE_BYTES != file_offset % PAGE_BYTES
        {
            return Err("a segment that is not in the file");
        }
        let flags = header.p_flags(ENDIAN);
        let protections =
            [(PF_R, libc::PROT_READ), (PF_W, libc::PROT_WRITE), (PF_X, libc::PROT_EXEC)];
        let given = protections.iter().filter(|(flag, _)| flags & *flag == *flag);
        let protection = given.fold(0, |all, (_, one)| all | *one as u64);
        let segment = Segment { memory: start..end, file_bytes, file_offset, protection };
        if segments.last().is_some_and(|last| last.pages().end > segment.pages().start) {
            return Err("segments that share a page");
        }
        segments.push(segment);
    }
    match segments.first() {
        Some(first) if first.memory.start == 0 && first.file_offset == 0 => Ok(segments),
        _ => Err("no segment that begins the file"),
    }
}

/// Every word that is relocated.
fn relocations_of(
    image: &[u8],
    headers: Segments<'_>,
    segments: &[Segment],
) -> Result<BTreeMap<u64, Word>, &'static str> {
    let dynamic = headers.iter().find_map(|header| header.dynamic(ENDIAN, image).transpose());
    let dynamic = dynamic.and_then(Result::ok).ok_or("no dynamic section")?;
    let value = |tag: DynamicTag| {
        let found = dynamic.iter().find(|entry| entry.d_tag(ENDIAN) == tag);
        found.map(|entry| entry.d_val(ENDIAN))
    };
    if [DT_NEEDED, DT_REL, DT_RELR, DT_TEXTREL].into_iter().any(|tag| value(tag).is_some()) {
        return Err("needs what the agent does not");
    }
    let mut words = BTreeMap::new();
    for (table, bytes) in [(DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)] {
        let (Some(table), Some(bytes)) = (value(table), value(bytes)) else { continue };
        let table = bytes_at(image, segments, table, bytes).ok_or("relocations nowhere")?;
        let table = object::pod::slice_from_all_bytes::<Rela64<LittleEndian>>(table);
        for relocation in table.map_err(|()| "relocations cut short")? {
            let at = relocation.r_offset(ENDIAN);
            let holds = |segment: &Segment| {
                let file_end = segment.memory.start + segment.file_bytes;
                segment.is_writable()
                    && at >= segment.memory.start
                    && at.checked_add(8).is_some_and(|end| end <= file_end)
            };
            if !segments.iter().any(holds) {
                return Err("a relocation outside of its data");
            }
            words.insert(at, word_of(image, segments, relocation, value(DT_SYMTAB))?);
        }
    }
    Ok(words)
}

fn word_of(
    image: &[u8],
    segments: &[Segment],
    relocation: &Rela64<LittleEndian>,
    symbols: Option<u64>,
) -> Result<Word, &'static str> {
    let kind = relocation.r_type(ENDIAN, false);
    if kind == R_X86_64_RELATIVE {
        return Ok(Word::Relative(relocation.r_addend(ENDIAN).cast_unsigned()));
    }
    let symbol_bytes = size_of::<Sym64<LittleEndian>>() as u64;
    let at = u64::from(relocation.r_sym(ENDIAN, false)) * symbol_bytes;
    let symbol = symbols
        .and_then(|symbols| symbols.checked_add(at))
        .and_then(|at| bytes_at(image, segments, at, symbol_bytes))
        .and_then(|bytes| object::pod::from_bytes::<Sym64<LittleEndian>>(bytes).ok())
        .map(|(symbol, _)| symbol);
    let is_nobodys = symbol
        .is_some_and(|symbol| symbol.st_bind() == STB_WEAK && symbol.st_shndx(ENDIAN) == SHN_UNDEF);
    match [R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT].contains(&kind) && is_nobodys {
        true => Ok(Word::Nothing),
        false => Err("a relocation that takes a loader"),
    }
}

/// Bytes of the file that lie at an address of the image.
fn bytes_at<'a>(
    image: &'a [u8],
    segments: &[Segment],
    address: u64,
    bytes: u64,
) -> Option<&'a [u8]> {
    let segment = segments.iter().find(|segment| segment.memory.contains(&address))?;
    let within = address - segment.memory.start;
    let is_in_file = within.checked_add(bytes)? <= segment.file_bytes;
    let from = (segment.file_offset + within) as usize;
    is_in_file.then(|| image.get(from..from + bytes as usize)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::image::AGENT;

    #[test]
    fn the_agent_needs_no_loader() {
        let layout = Layout::of(AGENT).expect("an agent that can be put into a process");
        assert!(!layout.words.is_empty() && !layout.sealed.is_empty());
        assert!(layout.segments.iter().any(|segment| segment.is_writable()));
        for (one, next) in layout.segments.iter().zip(&layout.segments[1..]) {
            assert!(one.pages().end <= next.pages().start);
        }
    }

    #[test]
    fn every_relocated_word_is_in_a_patch_once() {
        let layout = Layout::of(AGENT).expect("an agent");
        let base = 0x1000_0000;
        let (patches, others) = (layout.patches(base), layout.patches(base + PAGE_BYTES));
        for (at, word) in &layout.words {
            let value_in = |patches: &BTreeMap<u64, Vec<u8>>| {
                let bytes =
                    (*at..*at + 8).map(|at| patches[&page_of(at)][(at % PAGE_BYTES) as usize]);
                u64::from_le_bytes(bytes.collect::<Vec<u8>>().try_into().expect("eight"))
            };
            let (here, there) = (value_in(&patches), value_in(&others));
            match word {
                Word::Relative(addend) => {
                    assert_eq!((here, there), (base + addend, base + PAGE_BYTES + addend));
                }
                Word::Nothing => assert_eq!((here, there), (0, 0)),
            }
        }
        let writable = |page: &u64| {
            layout.segments.iter().any(|one| one.is_writable() && one.file_pages().contains(page))
        };
        assert!(patches.keys().all(writable));
    }

    #[test]
    fn what_is_cut_short_or_garbled_is_refused() {
        for length in [0, 3, 64, 100, AGENT.len() / 2] {
            assert!(Layout::of(&AGENT[..length]).is_err(), "{length}");
        }
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..200 {
            let mut image = AGENT.to_vec();
            // The headers decide most; whatever comes of it, nothing may panic.
            for _ in 0..4 {
                let at = random.usize(..1024);
                image[at] = random.u8(..);
            }
            if let Ok(layout) = Layout::of(&image) {
                layout.patches(0x1000);
            }
        }
    }
}
