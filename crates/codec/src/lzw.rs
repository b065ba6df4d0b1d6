//! LZW (Welch, "A technique for high-performance data compression", IEEE Computer 17(6), 1984), one of hp's codecs.
//!
//! A page has too few bytes to fill a dictionary of 4096 strings twice over, so it is never emptied, and the codes grow
//! from eight to twelve bits as it fills. Codes follow each other from the lowest bit of each byte on; the end of the
//! page is the end of the codes.
//!
//! Bad on everything that is not text: strings grow by a byte each time they are met, so that a repeat of a hundred bytes
//! has to be met fourteen times to become one code.

use crate::{Codec, Corrupt, PAGE_BYTES, Page};

pub(crate) struct Lzw;

/// Strings of one byte, which are their own codes.
const BYTES: usize = 256;
/// Strings in all.
const STRINGS: usize = 4096;
/// Slots of the encoder's hash table, twice the strings.
const SLOTS: usize = 2 * STRINGS;
/// A slot that holds no string: a prefix of this code does not exist.
const EMPTY: u32 = u32::MAX;

/// The encoder's dictionary: an open hash table of strings of two bytes and more.
#[repr(C)]
struct Strings {
    /// A prefix's code and the byte behind it.
    keys: [u32; SLOTS],
    codes: [u16; SLOTS],
}

/// A string of the decoder's dictionary, which lies in the page it has written.
#[derive(Clone, Copy)]
#[repr(C)]
struct Piece {
    start: u16,
    length: u16,
}

/// The decoder's dictionary.
type Pieces = [Piece; STRINGS - BYTES];

const _: () = assert!(size_of::<Pieces>() <= size_of::<Strings>());

impl Codec for Lzw {
    const SCRATCH_BYTES: usize = size_of::<Strings>();

    fn compress(page: &Page, out: &mut [u8], scratch: &mut [u8]) -> Option<usize> {
        // SAFETY: the caller of the trait checked size and alignment, and any bytes are such a table.
        let strings = unsafe { &mut *scratch.as_mut_ptr().cast::<Strings>() };
        strings.keys.fill(EMPTY);
        let mut codes = Writer { out, length: 0, bits: 0, bit_count: 0 };
        let mut written = 0;
        let (first, rest) = page.0.split_first()?;
        let mut string = u16::from(*first);
        for byte in rest {
            let key = u32::from(string) << 8 | u32::from(*byte);
            let slot = strings.slot(key);
            if strings.keys[slot] == key {
                string = strings.codes[slot];
                continue;
            }
            codes.push(string, width(written))?;
            written += 1;
            // The decoder learns each string one code later, hence no string for the first code.
            let code = BYTES + written - 1;
            if code < STRINGS {
                strings.keys[slot] = key;
                strings.codes[slot] = code as u16;
            }
            string = u16::from(*byte);
        }
        codes.push(string, width(written))?;
        codes.finish()
    }

    fn decompress(data: &[u8], page: &mut Page, scratch: &mut [u8]) -> Result<(), Corrupt> {
        // SAFETY: the caller of the trait checked size and alignment, and any bytes are such pieces.
        let strings = unsafe { &mut *scratch.as_mut_ptr().cast::<Pieces>() };
        let mut codes = Reader { data, bits: 0, bit_count: 0 };
        let mut before = Piece { start: 0, length: 0 };
        let mut filled = 0;
        for read in 0..PAGE_BYTES {
            if filled == PAGE_BYTES {
                break;
            }
            // The string before and one byte more, which is the first of the string to come.
            if let Some(string) = read.checked_sub(1).and_then(|known| strings.get_mut(known)) {
                *string = Piece { start: before.start, length: before.length + 1 };
            }
            let code = codes.next(width(read)).ok_or(Corrupt)?;
            let length = match code.checked_sub(BYTES) {
                None => {
                    page.0[filled] = code as u8;
                    1
                }
                Some(code) => {
                    let known = read.min(strings.len());
                    let string = strings[..known].get(code).ok_or(Corrupt)?;
                    let (start, length) = (usize::from(string.start), usize::from(string.length));
                    if filled + length > PAGE_BYTES {
                        return Err(Corrupt);
                    }
                    // Byte by byte: the last byte of the newest string is the first that is written here.
                    for i in 0..length {
                        page.0[filled + i] = page.0[start + i];
                    }
                    length
                }
            };
            before = Piece { start: filled as u16, length: length as u16 };
            filled += length;
        }
        if filled == PAGE_BYTES && codes.is_used_up() { Ok(()) } else { Err(Corrupt) }
    }
}

impl Strings {
    /// Where `key` is, or the empty slot where it belongs. There always is one: the table is twice as large as needed.
    fn slot(&self, key: u32) -> usize {
        let mut slot = (key.wrapping_mul(0x9e37_79b1) >> (u32::BITS - SLOTS.ilog2())) as usize;
        while self.keys[slot] != key && self.keys[slot] != EMPTY {
            slot = (slot + 1) % SLOTS;
        }
        slot
    }
}

/// Bits of the code that has `before` codes before it: enough for all strings known by then.
fn width(before: usize) -> u32 {
    (BYTES + before).min(STRINGS).next_power_of_two().ilog2()
}

/// Codes being written.
struct Writer<'a> {
    out: &'a mut [u8],
    length: usize,
    bits: u32,
    bit_count: u32,
}

impl Writer<'_> {
    /// Appends a code, or `None` if it does not fit.
    fn push(&mut self, code: u16, width: u32) -> Option<()> {
        self.bits |= u32::from(code) << self.bit_count;
        self.bit_count += width;
        while self.bit_count >= u8::BITS {
            self.push_byte()?;
            self.bit_count -= u8::BITS;
        }
        Some(())
    }

    /// Writes what is left and returns the length.
    fn finish(mut self) -> Option<usize> {
        if self.bit_count > 0 {
            self.push_byte()?;
        }
        Some(self.length)
    }

    fn push_byte(&mut self) -> Option<()> {
        *self.out.get_mut(self.length)? = self.bits as u8;
        self.length += 1;
        self.bits >>= u8::BITS;
        Some(())
    }
}

/// Codes being read.
struct Reader<'a> {
    data: &'a [u8],
    bits: u32,
    bit_count: u32,
}

impl Reader<'_> {
    /// The next code, if there is one.
    fn next(&mut self, width: u32) -> Option<usize> {
        while self.bit_count < width {
            let (byte, rest) = self.data.split_first()?;
            self.bits |= u32::from(*byte) << self.bit_count;
            self.bit_count += u8::BITS;
            self.data = rest;
        }
        let code = self.bits & ((1 << width) - 1);
        self.bits >>= width;
        self.bit_count -= width;
        Some(code as usize)
    }

    fn is_used_up(&self) -> bool {
        self.data.is_empty()
    }
}
