//! What each codec does to the pages of a raw file, such as a part of `/proc/PID/mem`.
//!
//! ```text
//! cargo bench -p zpager-codec --bench pages -- [--portable | --avx2] FILE...
//! ```
//! The options keep the codecs from using more than these instructions.
//!
//! For each file and codec: compressed bytes over original bytes, nanoseconds to compress and to decompress a page, and
//! the same as multiples of LZ4's. Codecs take turns, and the fastest of several turns counts, because other programs
//! disturb in one direction alone. Same-filled pages are left out, as they are on the way into the cache.

use std::time::{Duration, Instant};
use std::{env, fs, process};
use zpager_codec::{
    CodecId, Level, PAGE_BYTES, Page, SCRATCH_ALIGN_BYTES, compress, decompress, limit_cpu,
    same_filled, scratch_bytes,
};

/// Pages taken from a file, evenly spread; few enough to stay in the processor's caches.
const PAGES_MAX: usize = 300;
/// Turns of each codec.
const TURNS: usize = 15;
/// Room for a compressed page of any codec.
const OUT_BYTES: usize = 2 * PAGE_BYTES;

/// One codec's work on the pages of a file.
struct Run {
    id: CodecId,
    scratch: Vec<u8>,
    lengths: Vec<usize>,
    compress_time: Duration,
    decompress_time: Duration,
}

impl Run {
    fn new(id: CodecId, pages: usize) -> Self {
        Self {
            id,
            scratch: vec![0; scratch_bytes(id) + SCRATCH_ALIGN_BYTES],
            lengths: vec![0; pages],
            compress_time: Duration::MAX,
            decompress_time: Duration::MAX,
        }
    }

    /// Compresses and decompresses all pages once. Compressed pages lie one behind the other, as in a pool.
    fn turn(&mut self, pages: &[Page], room: &mut [u8]) {
        let start = self.scratch.as_ptr().align_offset(SCRATCH_ALIGN_BYTES);
        let scratch = &mut self.scratch[start..];

        let began = Instant::now();
        let mut out = &mut *room;
        for (page, length) in pages.iter().zip(&mut self.lengths) {
            *length = compress(self.id, page, out, scratch).expect("room for any page");
            out = &mut out[*length..];
        }
        self.compress_time = self.compress_time.min(began.elapsed());

        let began = Instant::now();
        let mut back = Page::ZERO;
        let mut compressed = &*room;
        for length in &self.lengths {
            let (page, rest) = compressed.split_at(*length);
            decompress(self.id, page, &mut back, scratch).expect("own bytes");
            std::hint::black_box(&back);
            compressed = rest;
        }
        self.decompress_time = self.decompress_time.min(began.elapsed());
    }

    /// Compressed bytes, a page that grew counting as itself.
    fn bytes(&self) -> usize {
        self.lengths.iter().map(|length| PAGE_BYTES.min(*length)).sum()
    }

    fn print(&self, lz4: &Self) {
        let pages = self.lengths.len() as f64;
        let ns = |time: Duration| time.as_nanos() as f64 / pages;
        let of_lz4 = |time: Duration, lz4: Duration| time.as_secs_f64() / lz4.as_secs_f64();
        println!(
            "  {:9} {:5.3} {:8.0} {:8.0}   {:5.2} {:5.2} {:5.2}",
            self.id.name(),
            self.bytes() as f64 / (pages * PAGE_BYTES as f64),
            ns(self.compress_time),
            ns(self.decompress_time),
            self.bytes() as f64 / lz4.bytes() as f64,
            of_lz4(self.compress_time, lz4.compress_time),
            of_lz4(self.decompress_time, lz4.decompress_time),
        );
    }
}

/// Up to [`PAGES_MAX`] pages of a file that are not same-filled.
fn read_pages(file: &str) -> std::io::Result<Vec<Page>> {
    let bytes = fs::read(file)?;
    let pages: Vec<Page> = bytes
        .as_chunks()
        .0
        .iter()
        .map(|bytes| Page(*bytes))
        .filter(|page| same_filled(page).is_none())
        .collect();
    let step = pages.len().div_ceil(PAGES_MAX).max(1);
    Ok(pages.into_iter().step_by(step).collect())
}

fn measure(file: &str) -> std::io::Result<()> {
    let pages = read_pages(file)?;
    println!("{file}: {} pages", pages.len());
    if pages.is_empty() {
        return Ok(());
    }
    println!("  codec     ratio  comp ns decomp ns  of LZ4: bytes, compress, decompress");
    let mut runs = CodecId::ALL.map(|id| Run::new(id, pages.len()));
    // One for all codecs: buffers of their own would drive each other from the processor's caches.
    let mut room = vec![0; pages.len() * OUT_BYTES];
    for _ in 0..TURNS {
        runs.iter_mut().for_each(|run| run.turn(&pages, &mut room));
    }
    let lz4 = runs.iter().find(|run| run.id == CodecId::Lz4).expect("LZ4 is among all codecs");
    runs.iter().for_each(|run| run.print(lz4));
    Ok(())
}

fn main() {
    let (options, files): (Vec<String>, Vec<String>) =
        env::args().skip(1).partition(|arg| arg.starts_with("--"));
    for option in options {
        match option.as_str() {
            "--portable" => limit_cpu(Level::Portable),
            "--avx2" => limit_cpu(Level::Avx2),
            // Cargo adds it.
            "--bench" => {}
            _ => {
                eprintln!("pages: unknown option {option}");
                process::exit(2);
            }
        }
    }
    if files.is_empty() {
        println!("pages: no file of pages given, nothing measured");
    }
    for file in files {
        if let Err(error) = measure(&file) {
            eprintln!("pages: {file}: {error}");
            process::exit(1);
        }
    }
}
