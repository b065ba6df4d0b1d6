//! Page codecs: a page in, bytes out.
//!
//! One file a codec, all behind one trait and chosen by a [`CodecId`] that is kept with every compressed page (hp,
//! section 3: each page carries its codec). The crate runs inside a signal handler in a shared object without libc:
//! nothing here allocates, blocks, keeps thread-local state or makes a system call. Working memory belongs to the
//! caller and is passed with every call.
//!
//! Invariants: `decompress(id, compress(id, page))` gives the page back for every page; no input to [`decompress`]
//! reads or writes out of bounds or panics; [`compress`] never writes more than `out` holds.
#![no_std]

#[cfg(test)]
extern crate std;

mod copy;
mod cpu;
mod deflate;
mod delta;
mod lanes;
#[cfg(test)]
mod levels_agree;
mod lz4;
mod lzo;
mod lzw;
mod output;
mod page;
mod same_filled;
mod wk;
mod wk4x4;
mod wkdm;
mod word;
mod zstd;

pub use cpu::{Level, detect_cpu, limit_cpu};
pub use page::{PAGE_BYTES, Page, WORDS};
pub use same_filled::same_filled;

/// Alignment in bytes that every codec may rely on for its scratch.
pub const SCRATCH_ALIGN_BYTES: usize = 64;

/// Where a codec that keeps state in its scratch says so.
const MARK_BYTES: usize = size_of::<u64>();

/// The bytes are not what [`compress`] wrote for this codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corrupt;

impl core::fmt::Display for Corrupt {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("compressed page is corrupt")
    }
}

impl core::error::Error for Corrupt {}

/// What a codec implements. The caller of the crate sees [`compress`] and [`decompress`].
trait Codec {
    /// Bytes of scratch that both functions need.
    const SCRATCH_BYTES: usize;

    /// Whether the codec finds in its scratch what an earlier call has left there. It then keeps a mark in the first
    /// [`MARK_BYTES`], which are zeroed before another codec gets the scratch.
    const KEEPS_STATE: bool = false;

    /// Writes `page` to the start of `out` and returns the length, or `None` if it does not fit.
    ///
    /// The implementer may leave anything in `out` beyond the length, and in all of it when returning `None`.
    fn compress(page: &Page, out: &mut [u8], scratch: &mut [u8]) -> Option<usize>;

    /// Fills all of `page` from all of `data`, or fails and leaves `page` in any state.
    fn decompress(data: &[u8], page: &mut Page, scratch: &mut [u8]) -> Result<(), Corrupt>;
}

/// The codec of a compressed page. The numbers are stored with pages and never change meaning; they fit four bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum CodecId {
    /// The page as it is.
    Copy = 0,
    /// LZ4 block format.
    Lz4 = 1,
    /// Zstandard, level 1.
    Zstd = 2,
    /// Our own codec for pages of 64-bit programs.
    Word = 3,
    /// WKdm (Wilson, Kaplan and Smaragdakis).
    Wkdm = 4,
    /// WK4x4, by the same.
    Wk4x4 = 5,
    /// LZO1X.
    Lzo = 6,
    /// LZW.
    Lzw = 7,
    /// Deflate.
    Deflate = 8,
    /// Zstandard, level 3.
    Zstd3 = 9,
    /// Zstandard, level 6.
    Zstd6 = 10,
    /// Zstandard, level 1 with a dictionary.
    ZstdDictionary = 11,
}

impl CodecId {
    /// Every codec, in the order of their numbers.
    pub const ALL: [Self; 12] = [
        Self::Copy,
        Self::Lz4,
        Self::Zstd,
        Self::Word,
        Self::Wkdm,
        Self::Wk4x4,
        Self::Lzo,
        Self::Lzw,
        Self::Deflate,
        Self::Zstd3,
        Self::Zstd6,
        Self::ZstdDictionary,
    ];

    /// The name by which a user chooses the codec.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
            Self::Word => "word",
            Self::Wkdm => "wkdm",
            Self::Wk4x4 => "wk4x4",
            Self::Lzo => "lzo",
            Self::Lzw => "lzw",
            Self::Deflate => "deflate",
            Self::Zstd3 => "zstd-3",
            Self::Zstd6 => "zstd-6",
            Self::ZstdDictionary => "zstd-dict",
        }
    }

    /// The codec that takes the least time for its bytes on this processor: [`Word`](Self::Word) where there are vector
    /// instructions for it, [`Lz4`](Self::Lz4) elsewhere.
    pub fn fastest() -> Self {
        if cpu::level() >= cpu::Level::Avx2 { Self::Word } else { Self::Lz4 }
    }

    /// The codec that [`name`](Self::name) calls so.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|id| id.name() == name)
    }
}

impl TryFrom<u8> for CodecId {
    type Error = Corrupt;

    /// The codec with this number.
    ///
    /// # Errors
    /// [`Corrupt`] if no codec has it.
    fn try_from(number: u8) -> Result<Self, Corrupt> {
        Self::ALL.get(usize::from(number)).copied().ok_or(Corrupt)
    }
}

/// Calls a function of the codec that a [`CodecId`] names.
macro_rules! dispatch {
    ($id:expr, $codec:ident => $call:expr) => {
        match $id {
            CodecId::Copy => {
                type $codec = copy::Copy;
                $call
            }
            CodecId::Lz4 => {
                type $codec = lz4::Lz4;
                $call
            }
            CodecId::Zstd => {
                type $codec = zstd::Zstd<zstd::Level1>;
                $call
            }
            CodecId::Word => {
                type $codec = word::Word;
                $call
            }
            CodecId::Wkdm => {
                type $codec = wkdm::Wkdm;
                $call
            }
            CodecId::Wk4x4 => {
                type $codec = wk4x4::Wk4x4;
                $call
            }
            CodecId::Lzo => {
                type $codec = lzo::Lzo;
                $call
            }
            CodecId::Lzw => {
                type $codec = lzw::Lzw;
                $call
            }
            CodecId::Deflate => {
                type $codec = deflate::Deflate;
                $call
            }
            CodecId::Zstd3 => {
                type $codec = zstd::Zstd<zstd::Level3>;
                $call
            }
            CodecId::Zstd6 => {
                type $codec = zstd::Zstd<zstd::Level6>;
                $call
            }
            CodecId::ZstdDictionary => {
                type $codec = zstd::Zstd<zstd::Dictionary>;
                $call
            }
        }
    };
}

/// Bytes of scratch that `id` needs for [`compress`] and [`decompress`].
pub const fn scratch_bytes(id: CodecId) -> usize {
    dispatch!(id, C => C::SCRATCH_BYTES)
}

/// Whether `id` finds in its scratch what an earlier call has left there, so that a scratch of its own would cost RAM
/// and time before it is of use.
pub const fn keeps_state(id: CodecId) -> bool {
    dispatch!(id, C => C::KEEPS_STATE)
}

/// Compresses `page` with `id` into the start of `out` and returns the length in bytes.
///
/// `None` if the result does not fit `out`: a caller that wants a page to count as incompressible above some size
/// passes an `out` of that size. What lies in `out` behind the length is undefined.
///
/// `scratch` is at least [`scratch_bytes`] long, aligned to [`SCRATCH_ALIGN_BYTES`], and zeroed before its first use; from
/// then on the caller leaves its bytes alone. Several codecs may use one scratch in turn, but zstd, which keeps its
/// contexts there, then makes them anew each time it comes back, in a virtual machine in some 25 microseconds.
///
/// # Panics
/// If `scratch` is too short or not aligned; a codec that needs none takes any.
pub fn compress(id: CodecId, page: &Page, out: &mut [u8], scratch: &mut [u8]) -> Option<usize> {
    dispatch!(id, C => C::compress(page, out, claim::<C>(scratch)))
}

/// Fills `page` from the whole of `data`, which [`compress`] wrote with the same `id`.
///
/// `scratch` is as for [`compress`], and may be the same.
///
/// # Errors
/// [`Corrupt`] if `data` does not decode to exactly one page; `page` then holds anything.
///
/// # Panics
/// If `scratch` is too short or not aligned.
pub fn decompress(
    id: CodecId,
    data: &[u8],
    page: &mut Page,
    scratch: &mut [u8],
) -> Result<(), Corrupt> {
    dispatch!(id, C => C::decompress(data, page, claim::<C>(scratch)))
}

/// Checks the scratch, and takes it from a codec that keeps state there.
fn claim<C: Codec>(scratch: &mut [u8]) -> &mut [u8] {
    if C::SCRATCH_BYTES > 0 {
        let aligned = scratch.as_ptr().addr().is_multiple_of(SCRATCH_ALIGN_BYTES);
        assert!(scratch.len() >= C::SCRATCH_BYTES, "scratch is too short");
        assert!(aligned, "scratch is not aligned");
        if !C::KEEPS_STATE {
            scratch[..MARK_BYTES].fill(0);
        }
    }
    scratch
}
