//! Page faults and little else: memory is filled, then its pages are visited in
//! random or in sequential order, and at the end each is checked as a whole. Of
//! several threads each visits a part of them.
//!
//! The program is this command itself, so that every rival runs the same code.
//! Each page carries its number, how often it was written, and a checksum, so
//! that a page that comes back stale, torn or in another's place is found.
//! Contents are pages of a real program, over and over; or synthetic: a quarter
//! random words, the rest one word repeated, which flatters codecs that look for
//! runs; or random bytes (the workload `random`), which no codec shrinks.

use std::fs::File;
use std::io::{BufReader, Read, Seek, Write};
use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use fastrand::Rng;
use memmap2::{Advice, MmapMut};
use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::{Divisor, Job, Output, Passes, Preparation, Workload, capture, program, python};
use crate::process::Running;

const PAGE_BYTES: usize = 4096;
/// Pages at scale 1.
const PAGES: u64 = 65_536;
/// Bytes of a real program's pages that are captured at scale 1.
const CAPTURED_BYTES: u64 = 64 << 20;
/// Pages of the workloads `random` and `random-threads` at scale 1.
const RANDOM_PAGES: u64 = 32_768;
/// Threads that mostly wait for the store, and threads that mostly fault from RAM.
const WAITING_THREADS: usize = 8;
const FAULTING_THREADS: usize = 4;

/// In what order pages are visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// Every visit to a random page.
    Random,
    /// From the first to the last, again and again.
    Sequential,
    /// From the first to the last, with one visit in seventeen to a random page.
    Mixed,
}

/// What pages hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// Pages of a CPython process.
    Captured,
    /// So many hundredths of random bytes, then one word over and over.
    Synthetic { random_percent: usize },
}

/// One of the workloads of this file.
pub(crate) struct Faults {
    name: &'static str,
    about: &'static str,
    order: Order,
    pages: u64,
    threads: usize,
    content: Content,
}

const QUARTER_RANDOM: Content = Content::Synthetic { random_percent: 25 };

pub(super) const RANDOM: Faults = Faults {
    name: "faults-random",
    about: "random visits to 256 MiB of a CPython process's pages",
    order: Order::Random,
    pages: PAGES,
    threads: 1,
    content: Content::Captured,
};

pub(super) const RANDOM_THREADED: Faults = Faults {
    name: "faults-threads",
    about: "random visits of four threads to 256 MiB of a CPython process's pages",
    order: Order::Random,
    pages: PAGES,
    threads: FAULTING_THREADS,
    content: Content::Captured,
};

pub(super) const RANDOM_SYNTHETIC: Faults = Faults {
    name: "faults-random-synthetic",
    about: "random visits to 256 MiB of pages that are one quarter random",
    order: Order::Random,
    pages: PAGES,
    threads: 1,
    content: QUARTER_RANDOM,
};

pub(super) const SEQUENTIAL: Faults = Faults {
    name: "faults-sequential",
    about: "visits in order to 256 MiB of a CPython process's pages",
    order: Order::Sequential,
    pages: PAGES,
    threads: 1,
    content: Content::Captured,
};

pub(super) const SEQUENTIAL_SYNTHETIC: Faults = Faults {
    name: "faults-sequential-synthetic",
    about: "visits in order to 256 MiB of pages that are one quarter random",
    order: Order::Sequential,
    pages: PAGES,
    threads: 1,
    content: QUARTER_RANDOM,
};

pub(super) const INCOMPRESSIBLE: Faults = Faults {
    name: "random",
    about: "visits, most of them in order, to 128 MiB of random bytes",
    order: Order::Mixed,
    pages: RANDOM_PAGES,
    threads: 1,
    content: Content::Synthetic { random_percent: 100 },
};

pub(super) const INCOMPRESSIBLE_THREADED: Faults = Faults {
    name: "random-threads",
    about: "random visits of eight threads to 128 MiB of random bytes",
    order: Order::Random,
    pages: RANDOM_PAGES,
    threads: WAITING_THREADS,
    content: Content::Synthetic { random_percent: 100 },
};

impl Workload for Faults {
    fn name(&self) -> &str {
        self.name
    }

    fn about(&self) -> &str {
        self.about
    }

    fn missing(&self) -> Option<String> {
        let is_missing = self.content == Content::Captured && python::find("random").is_none();
        is_missing.then(|| "needs Python 3 (package python3)".into())
    }

    fn prepare(&self, preparation: &Preparation) -> Result<Job> {
        let mut argv = vec![std::env::current_exe()?.into_os_string()];
        let order = self.order.to_possible_value().context("an order")?.get_name().to_owned();
        argv.extend(["bench", "touch", "--order", &order].map(Into::into));
        argv.extend(["--pages".into(), preparation.scaled(self.pages).to_string().into()]);
        argv.extend(["--threads".into(), self.threads.to_string().into()]);
        argv.extend(["--seed".into(), preparation.seed.to_string().into()]);
        let mut inputs = Vec::new();
        match self.content {
            Content::Synthetic { random_percent } => {
                argv.extend(["--random-percent".into(), random_percent.to_string().into()]);
            }
            Content::Captured => {
                let path = preparation.directory.join("pages.bin");
                capture::capture(preparation, preparation.scaled(CAPTURED_BYTES), &path)?;
                argv.extend(["--content".into(), path.clone().into()]);
                inputs.push(path);
            }
        }
        let order = self.order;
        Ok(Job {
            program: program(argv),
            inputs,
            drive: Box::new(move |running| read_report(running, order)),
            note: String::new(),
        })
    }
}

/// What the program prints.
#[derive(Debug, Serialize, Deserialize)]
struct Report {
    digest: String,
    accesses: u64,
    seconds: f64,
    kernel_faults: u64,
}

fn read_report(mut running: Running<'_>, order: Order) -> Result<Output> {
    let mut text = String::new();
    running.stdout.read_to_string(&mut text)?;
    let report: Report = serde_json::from_str(&text).context("no report from the program")?;
    let divisor = match order {
        Order::Random => Divisor::Faults,
        Order::Sequential | Order::Mixed => Divisor::Accesses,
    };
    Ok(Output {
        digest: u128::from_str_radix(&report.digest, 16)?,
        passes: Some(Passes {
            accesses: report.accesses,
            seconds: report.seconds,
            kernel_faults: report.kernel_faults,
            divisor,
        }),
    })
}

/// The program itself.
#[derive(Debug, Clone, Args)]
pub struct TouchOptions {
    /// In what order pages are visited
    #[arg(long, value_enum)]
    order: Order,
    /// How many pages there are
    #[arg(long)]
    pages: usize,
    /// How many threads visit them, each a part
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Of everything random
    #[arg(long)]
    seed: u64,
    /// A file of pages to fill memory with; synthetic pages without it
    #[arg(long)]
    content: Option<PathBuf>,
    /// How much of a synthetic page is random
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u8).range(..=100))]
    random_percent: u8,
}

/// Fills memory, visits its pages, checks them and prints a report.
///
/// # Errors
/// When a page is not what was written to it, or there is no memory.
pub(crate) fn touch(options: &TouchOptions) -> Result<()> {
    let mut random = Rng::with_seed(options.seed);
    let source = match &options.content {
        Some(path) => Source::File(BufReader::new(File::open(path)?)),
        None => Source::Synthetic { random_percent: options.random_percent.into() },
    };
    ensure!(options.pages > 0, "no pages");
    let mut memory = MmapMut::map_anon(options.pages * PAGE_BYTES).context("no memory")?;
    // A kernel without huge pages knows no advice about them.
    let _ = memory.advise(Advice::NoHugePage);
    let mut pages = Pages::filled(&mut memory, source, &mut random)?;
    let kernel_faults = kernel_faults()?;
    let start = Instant::now();
    let (accesses, digest) = match options.threads {
        // The one that there is.
        0 | 1 => pages.visit(options.order, &mut random)?,
        threads => pages.visit_by(threads, options.order, &random)?,
    };
    let report = Report {
        digest: format!("{digest:032x}"),
        accesses,
        seconds: start.elapsed().as_secs_f64(),
        kernel_faults: self::kernel_faults()? - kernel_faults,
    };
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&report)?)?;
    Ok(())
}

/// Minor faults count too: read-ahead turns a major fault into one.
fn kernel_faults() -> Result<u64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    Ok(u64::try_from(usage.major_page_faults() + usage.minor_page_faults())?)
}

/// Where contents come from.
enum Source {
    /// A file that is read over and over.
    File(BufReader<File>),
    /// Random bytes and a word.
    Synthetic { random_percent: usize },
}

/// Memory, or a part of it that begins with page `first`. A page is: its number, how often it was written,
/// the checksum of the rest, the rest.
struct Pages<'a> {
    first: usize,
    memory: &'a mut [u8],
}

const NUMBER: usize = 0;
const WRITES: usize = 8;
const CHECKSUM: usize = 16;
const REST: usize = 24;

impl<'a> Pages<'a> {
    fn filled(memory: &'a mut [u8], mut source: Source, random: &mut Rng) -> Result<Self> {
        let mut pages = Pages { first: 0, memory };
        let mut content = [0; PAGE_BYTES];
        for number in 0..pages.count() {
            match &mut source {
                Source::File(file) => read_round(file, &mut content)?,
                Source::Synthetic { random_percent } => {
                    synthesise(number as u64, *random_percent, random, &mut content);
                }
            }
            let page = pages.page(number);
            page.copy_from_slice(&content);
            set_word(page, NUMBER, number as u64);
            set_word(page, WRITES, 0);
            let checksum = xxh3_64(&page[REST..]);
            set_word(page, CHECKSUM, checksum);
        }
        Ok(pages)
    }

    fn count(&self) -> usize {
        self.memory.len() / PAGE_BYTES
    }

    /// The page of a number, counted from the first.
    fn page(&mut self, number: usize) -> &mut [u8] {
        &mut self.memory[number * PAGE_BYTES..][..PAGE_BYTES]
    }

    fn visit(&mut self, order: Order, random: &mut Rng) -> Result<(u64, u128)> {
        match order {
            Order::Random => self.visit_at_random(random),
            Order::Sequential => self.visit_in_order(),
            Order::Mixed => self.visit_mixed(random),
        }
    }

    /// Has each thread visit a part of them, all at the same time.
    fn visit_by(&mut self, threads: usize, order: Order, random: &Rng) -> Result<(u64, u128)> {
        let pages_each = self.count().div_ceil(threads);
        let visits = thread::scope(|scope| {
            let parts = self.memory.chunks_mut(pages_each * PAGE_BYTES).enumerate();
            let threads = parts.map(|(at, memory)| {
                let (mut random, first) = (random.clone(), at * pages_each);
                scope.spawn(move || Pages { first, memory }.visit(order, &mut random))
            });
            let threads = threads.collect::<Vec<_>>();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
        });
        let (mut accesses, mut hasher) = (0, Xxh3::new());
        for visit in visits {
            let (its_accesses, digest) = visit?;
            accesses += its_accesses;
            hasher.update(&digest.to_le_bytes());
        }
        Ok((accesses, hasher.digest128()))
    }

    /// Half as many reads as there are pages, as many writes, and a check of each page.
    fn visit_at_random(&mut self, random: &mut Rng) -> Result<(u64, u128)> {
        let count = self.count();
        for _ in 0..count / 2 {
            self.read(random.usize(..count))?;
        }
        for _ in 0..count / 2 {
            self.write(random.usize(..count))?;
        }
        let mut order: Vec<usize> = (0..count).collect();
        random.shuffle(&mut order);
        let digest = self.check(order.into_iter())?;
        Ok((count as u64 * 2, digest))
    }

    /// Each page read, each written, each checked.
    fn visit_in_order(&mut self) -> Result<(u64, u128)> {
        let count = self.count();
        for number in 0..count {
            self.read(number)?;
        }
        for number in 0..count {
            self.write(number)?;
        }
        let digest = self.check(0..count)?;
        Ok((count as u64 * 3, digest))
    }

    /// Each page read, an eighth as many written at random, each checked.
    fn visit_mixed(&mut self, random: &mut Rng) -> Result<(u64, u128)> {
        let count = self.count();
        for number in 0..count {
            self.read(number)?;
        }
        for _ in 0..count / 8 {
            self.write(random.usize(..count))?;
        }
        let digest = self.check(0..count)?;
        Ok(((count * 2 + count / 8) as u64, digest))
    }

    fn read(&mut self, number: usize) -> Result<()> {
        let (found, expected) = (word(self.page(number), NUMBER), (self.first + number) as u64);
        ensure!(found == expected, "page {found} came back in place of page {expected}");
        Ok(())
    }

    fn write(&mut self, number: usize) -> Result<()> {
        self.read(number)?;
        let page = self.page(number);
        set_word(page, WRITES, word(page, WRITES) + 1);
        Ok(())
    }

    /// Checks pages as a whole; the digest covers how often each was written.
    fn check(&mut self, order: impl Iterator<Item = usize>) -> Result<u128> {
        let mut hasher = Xxh3::new();
        for number in order {
            self.read(number)?;
            let page = self.page(number);
            ensure!(
                xxh3_64(&page[REST..]) == word(page, CHECKSUM),
                "page {} is damaged",
                self.first + number
            );
            hasher.update(&page[..REST]);
        }
        Ok(hasher.digest128())
    }
}

/// The next page of a file that has no end.
fn read_round(file: &mut BufReader<File>, page: &mut [u8; PAGE_BYTES]) -> Result<()> {
    if file.read_exact(page).is_err() {
        file.rewind()?;
        file.read_exact(page).context("the file holds no page")?;
    }
    Ok(())
}

/// Random words first, then the page's number over and over.
fn synthesise(number: u64, random_percent: usize, random: &mut Rng, page: &mut [u8; PAGE_BYTES]) {
    let (random_part, rest) = page.split_at_mut(PAGE_BYTES * random_percent / 100);
    random.fill(random_part);
    rest.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&number.to_le_bytes()));
}

fn word(page: &[u8], at: usize) -> u64 {
    page[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn set_word(page: &mut [u8], at: usize, value: u64) {
    page[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(count: usize) -> Pages<'static> {
        pages_of(count, Source::Synthetic { random_percent: 25 })
    }

    fn pages_of(count: usize, source: Source) -> Pages<'static> {
        let memory = vec![0; count * PAGE_BYTES].leak();
        Pages::filled(memory, source, &mut Rng::with_seed(1)).expect("contents")
    }

    #[test]
    fn threads_visit_all_pages() {
        let visit = || pages(50).visit_by(4, Order::Sequential, &Rng::with_seed(2));
        assert_eq!(visit().expect("visited"), visit().expect("visited"));
        assert_eq!(visit().expect("visited").0, 150);
        let mut damaged = pages(50);
        damaged.page(49)[4095] ^= 1;
        let visit = damaged.visit_by(4, Order::Random, &Rng::with_seed(2));
        assert!(visit.expect_err("damaged").to_string().contains("page 49"));
    }

    #[test]
    fn visits_are_the_same_for_the_same_seed() {
        let visit = || pages(50).visit_at_random(&mut Rng::with_seed(2)).expect("visited");
        assert_eq!(visit(), visit());
        assert_eq!(pages(50).visit_in_order().expect("visited").0, 150);
        assert_eq!(pages(48).visit_mixed(&mut Rng::with_seed(2)).expect("visited").0, 102);
    }

    #[test]
    fn a_page_in_another_place_is_found() {
        let mut pages = pages(8);
        let other: Vec<u8> = pages.page(3).to_vec();
        pages.page(5).copy_from_slice(&other);
        assert!(pages.read(5).is_err());
    }

    #[test]
    fn a_damaged_page_is_found() {
        let mut pages = pages(8);
        pages.page(2)[4095] ^= 1;
        assert!(pages.visit_in_order().is_err());
    }

    #[test]
    fn a_stale_page_changes_the_digest() {
        let mut pages = pages(8);
        let before = pages.check(0..8).expect("whole");
        pages.write(4).expect("written");
        assert_ne!(pages.check(0..8).expect("whole"), before);
    }

    #[test]
    fn a_file_of_pages_goes_round() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("pages");
        std::fs::write(&path, [[1_u8; PAGE_BYTES], [2; PAGE_BYTES]].concat()).expect("a file");
        let source = Source::File(BufReader::new(File::open(&path).expect("a file")));
        let mut pages = pages_of(3, source);
        assert_eq!(pages.page(0)[REST..], [1; PAGE_BYTES - REST]);
        assert_eq!(pages.page(2)[REST..], [1; PAGE_BYTES - REST]);
        assert_eq!(pages.page(1)[REST..], [2; PAGE_BYTES - REST]);
    }
}
