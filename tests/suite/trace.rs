//! What `zpager trace` promises: the pages in the order in which they were touched, with what
//! became of them; a file that is whole or not there.
//!
//! The victim `order` touches pages of one buffer as it is told; a model tells what the trace
//! must have of that buffer. Steps touch no page again before more others than the window holds.

use std::collections::BTreeMap;
use std::fs;
use std::io::BufReader;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use zpager_codec::{CodecId, PAGE_BYTES, Page, SCRATCH_ALIGN_BYTES, compress, scratch_bytes};
use zpager_seed::{Random, seed};
use zpager_sim::trace::{self, Event, PROCESS_SHIFT, Reader};
use zpager_tests::job::finish;
use zpager_tests::{Ending, Outcome, places, victims};

const LIMIT: Duration = Duration::from_secs(120);
const WINDOW: u64 = 32;
/// Pages touched before one is touched again: the window, and what a program touches besides.
const APART: usize = 3 * WINDOW as usize;
const CODECS: [CodecId; 4] = [CodecId::Word, CodecId::Lz4, CodecId::Zstd, CodecId::Wk4x4];

/// What the victim is told, as `victims/order.c` reads it.
#[derive(Debug, Clone, Copy)]
struct Step {
    what: u8,
    value: u16,
    page: u32,
}

fn step(what: char, page: u32, value: u16) -> Step {
    Step { what: what as u8, value, page }
}

fn to_bytes(steps: &[Step]) -> Vec<u8> {
    let one = |step: &Step| {
        let mut bytes = vec![step.what, 0];
        bytes.extend(step.value.to_le_bytes());
        bytes.extend(step.page.to_le_bytes());
        bytes
    };
    steps.iter().flat_map(one).collect()
}

/// A record of the buffer, by the pages' places in it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Record {
    Reference { page: u64, is_fresh: bool, is_written: bool, contents: Contents },
    Release { first: u64, pages: u64 },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Contents {
    Unchanged,
    SameFilled,
    Sizes(Vec<u16>),
}

/// All records of a trace by the numbers of the processes, with page numbers.
struct Trace {
    header: trace::Header,
    processes: BTreeMap<u64, Vec<Record>>,
}

fn read_trace(file: &Path) -> Trace {
    let open = fs::File::open(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut reader = Reader::new(BufReader::new(open)).expect("a trace");
    let mut processes: BTreeMap<u64, Vec<Record>> = BTreeMap::new();
    let low = (1 << PROCESS_SHIFT) - 1;
    while let Some(event) = reader.next_event().expect("a whole trace") {
        let (page, record) = match event {
            Event::Release { first, pages } => {
                (first, Record::Release { first: first & low, pages })
            }
            Event::Reference(of) => {
                let contents = match of.contents {
                    trace::Contents::Unchanged => Contents::Unchanged,
                    trace::Contents::SameFilled => Contents::SameFilled,
                    trace::Contents::Sizes(sizes) => Contents::Sizes(sizes.to_vec()),
                };
                let trace::Reference { page, is_fresh, is_written, .. } = of;
                (page, Record::Reference { page: page & low, is_fresh, is_written, contents })
            }
        };
        processes.entry(page >> PROCESS_SHIFT).or_default().push(record);
    }
    Trace { header: reader.header().clone(), processes }
}

/// The references and releases of `pages` pages from `start` on, by their places among these.
fn within(records: &[Record], start: u64, pages: u64) -> Vec<Record> {
    let place = |page: u64| page.checked_sub(start).filter(|place| *place < pages);
    let of_buffer = |record: &Record| match record {
        Record::Reference { page, is_fresh, is_written, contents } => Some(Record::Reference {
            page: place(*page)?,
            is_fresh: *is_fresh,
            is_written: *is_written,
            contents: contents.clone(),
        }),
        Record::Release { first, pages } => {
            Some(Record::Release { first: place(*first)?, pages: *pages })
        }
    };
    records.iter().filter_map(of_buffer).collect()
}

/// What the victim fills a page with, as `fill` in `victims/order.c`.
fn filled(value: u16) -> Page {
    let mut page = Page::ZERO;
    let mut state = (u64::from(value) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for (at, word) in page.words_mut().iter_mut().enumerate() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let even = u64::from(u32::from(value).wrapping_mul(0x10001)) + (at as u64 & 15) * 257;
        *word = if value & 1 == 1 { state } else { even };
    }
    page
}

fn contents_of(page: &Page) -> Contents {
    if page.words().iter().all(|word| *word == page.words()[0]) {
        return Contents::SameFilled;
    }
    let size = |codec: CodecId| {
        let length = scratch_bytes(codec);
        let mut scratch = vec![0; length + SCRATCH_ALIGN_BYTES];
        let from = scratch.as_ptr().align_offset(SCRATCH_ALIGN_BYTES);
        let scratch = &mut scratch[from..from + length];
        let mut out = [0; PAGE_BYTES];
        compress(codec, page, &mut out, scratch).unwrap_or(PAGE_BYTES) as u16
    };
    Contents::Sizes(CODECS.map(size).to_vec())
}

/// What the trace must have of a buffer.
#[derive(Clone)]
struct Model {
    pages: Vec<Page>,
    /// Pages that have been touched since they were last given back.
    there: Vec<bool>,
    /// Pages of which the trace says what they are.
    known: Vec<bool>,
    records: Vec<Record>,
}

impl Model {
    fn new(pages: usize) -> Self {
        let (there, known) = (vec![false; pages], vec![false; pages]);
        Model { pages: vec![Page::ZERO; pages], there, known, records: Vec::new() }
    }

    fn run(&mut self, steps: &[Step]) {
        for step in steps {
            let place = step.page as usize;
            let before = self.pages[place].clone();
            match step.what {
                b'r' | b'o' => {}
                b'w' => self.pages[place] = filled(step.value),
                b's' => self.pages[place].words_mut().fill(step.value.into()),
                b'd' => {
                    self.release(place, step.value.into());
                    continue;
                }
                b'i' => {
                    for page in place..place + usize::from(step.value) {
                        self.pages[page] = Page::ZERO;
                        self.touch(page, false);
                    }
                    continue;
                }
                b'k' => continue,
                other => panic!("not a step of the model: {}", other as char),
            }
            let is_written = before.0 != self.pages[place].0;
            self.touch(place, is_written);
        }
    }

    fn touch(&mut self, place: usize, is_written: bool) {
        let is_fresh = !self.there[place];
        let contents = match is_written || is_fresh || !self.known[place] {
            true => contents_of(&self.pages[place]),
            false => Contents::Unchanged,
        };
        (self.there[place], self.known[place]) = (true, true);
        self.records.push(Record::Reference { page: place as u64, is_fresh, is_written, contents });
    }

    fn release(&mut self, place: usize, pages: usize) {
        for page in place..place + pages {
            (self.there[page], self.known[page]) = (false, false);
            self.pages[page] = Page::ZERO;
        }
        self.records.push(Record::Release { first: place as u64, pages: pages as u64 });
    }

    /// What the trace says of pages holds no more, as of a fork or a move.
    fn forget(&mut self) {
        self.records.clear();
        self.known.fill(false);
    }
}

/// Draws pages, none of which was among the last.
struct Pages {
    random: Random,
    count: u32,
    last: Vec<u32>,
}

impl Pages {
    fn new(seed: u64, count: u32) -> Self {
        assert!(count as usize > 2 * APART);
        Pages { random: Random::with_seed(seed), count, last: Vec::new() }
    }

    fn page(&mut self) -> u32 {
        let recent = self.last.len().saturating_sub(APART);
        loop {
            let page = self.random.u32(..self.count);
            if !self.last[recent..].contains(&page) {
                self.last.push(page);
                return page;
            }
        }
    }

    fn steps(&mut self, kinds: &[char], count: usize) -> Vec<Step> {
        let one = |_| {
            let kind = kinds[self.random.usize(..kinds.len())];
            let value = self.random.u16(..1000);
            step(kind, self.page(), value)
        };
        (0..count).map(one).collect()
    }
}

/// The command, with its flags, that records the victim in `directory` to `out.trace`.
fn record(directory: &TempDir, flags: &[&str], steps: &[Step], pages: u64) -> Command {
    fs::write(directory.path().join("steps"), to_bytes(steps)).expect("the steps");
    let mut command = Command::new(places::zpager());
    let names: Vec<&str> = CODECS.iter().map(|codec| codec.name()).collect();
    command.args(["trace", "--quiet", "--output", "out.trace", "--codec", &names.join(",")]);
    command.args(flags).arg("--").arg(victims::build("order", &[]));
    command.arg("steps").arg(pages.to_string());
    command
}

/// Records the victim, which must end as expected; gives its trace, the buffer's addresses as page
/// numbers, and the run.
fn recorded(
    flags: &[&str],
    steps: &[Step],
    pages: u64,
    ending: Ending,
) -> (Trace, Vec<u64>, Outcome) {
    let directory = places::scratch();
    let command = record(&directory, flags, steps, pages);
    let outcome = finish(command, directory, LIMIT, format!("zpager trace {flags:?}"));
    assert_eq!(outcome.ending, ending, "{}", outcome.report());
    assert!(outcome.stderr.is_empty(), "{}", outcome.report());
    let text = String::from_utf8(outcome.stdout.clone()).expect("text");
    let address = |line: &str| u64::from_str_radix(line.trim_start_matches("0x"), 16).ok();
    let starts = text.lines().filter_map(address).map(|address| address >> 12).collect();
    let trace = read_trace(&outcome.directory.path().join("out.trace"));
    (trace, starts, outcome)
}

/// Compares records one by one, for a message that shows where they differ.
fn expect_equal(found: &[Record], expected: &[Record]) {
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found, expected, "record {at}");
    }
    assert_eq!(found.len(), expected.len());
}

/// Records steps of one process and compares with the model.
fn expect_as_modelled(flags: &[&str], steps: &[Step], pages: u64) {
    let mut model = Model::new(pages as usize);
    model.run(steps);
    let (trace, starts, _) = recorded(flags, steps, pages, Ending::Exited(7));
    assert_eq!(trace.processes.len(), 1);
    expect_equal(&within(&trace.processes[&0], starts[0], pages), &model.records);
}

/// Steps that begin with every page fresh, most of them written.
fn all_kinds(seed: u64, pages: u32, count: usize) -> Vec<Step> {
    let first = |page: u32| match page % 5 {
        0 => step('r', page, 0),
        1 => step('s', page, 3),
        _ => step('w', page, page as u16),
    };
    let mut steps: Vec<Step> = (0..pages).map(first).collect();
    // In strides, downwards from the middle, then in no order.
    steps.extend((0..7).flat_map(|from| (from..pages).step_by(7).map(|page| step('r', page, 0))));
    steps.extend((0..pages).map(|at| step('r', (pages / 2 + pages - at) % pages, 0)));
    let mut draw = Pages::new(seed, pages);
    draw.last.extend(steps.iter().rev().take(APART).map(|step| step.page));
    steps.extend(draw.steps(&['r', 'r', 'w', 's', 'o'], count));
    steps
}

#[test]
fn pages_in_the_order_in_which_they_were_touched() {
    let pages = 700;
    expect_as_modelled(&[], &all_kinds(seed(1), pages, 4000), pages.into());
}

#[test]
fn a_small_window_and_a_small_ring_lose_nothing() {
    let pages = 700;
    let steps = all_kinds(seed(1) + 1, pages, 3000);
    let mut model = Model::new(pages as usize);
    model.run(&steps);
    let directory = places::scratch();
    let mut command = record(&directory, &["--window", "8"], &steps, pages.into());
    command.env("ZPAGER_RING", "64");
    let outcome = finish(command, directory, LIMIT, "a small ring".into());
    assert_eq!(outcome.ending, Ending::Exited(7), "{}", outcome.report());
    let trace = read_trace(&outcome.directory.path().join("out.trace"));
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let start = u64::from_str_radix(&text.trim()[2..], 16).expect("an address") >> 12;
    assert_eq!(trace.header.window_pages, 8);
    expect_equal(&within(&trace.processes[&0], start, pages.into()), &model.records);
}

#[test]
fn pages_that_do_not_fit_go_to_the_store() {
    let pages = 5000;
    let noise = |page: u32| step('w', page, 2 * page as u16 + 1);
    let mut steps: Vec<Step> = (0..pages).map(noise).collect();
    steps.extend((0..pages).map(|page| step('r', page, 0)));
    expect_as_modelled(&["--memory", "8M", "--store", "."], &steps, pages.into());
}

#[test]
fn what_is_given_back_is_released_and_comes_fresh_again() {
    let pages = 600u32;
    let mut steps: Vec<Step> = (0..pages).map(|page| step('w', page, page as u16)).collect();
    // Some of them long gone from the window.
    steps.push(step('d', 100, 50));
    steps.extend((0..pages).map(|page| step('r', page, 0)));
    // And what is in it.
    steps.push(step('w', 40, 9));
    steps.push(step('d', 40, 1));
    steps.extend((90..500).map(|page| step('w', page, 4)));
    let mut model = Model::new(pages as usize);
    model.run(&steps);
    // Of a page that never left the window nothing is known but that it came.
    let given_back =
        model.records.iter().position(|record| *record == Record::Release { first: 40, pages: 1 });
    let before = given_back.expect("released") - 1;
    let Record::Reference { is_written, contents, .. } = &mut model.records[before] else {
        panic!("a reference")
    };
    (*is_written, *contents) = (false, Contents::Unchanged);
    let (trace, starts, _) = recorded(&[], &steps, pages.into(), Ending::Exited(7));
    expect_equal(&within(&trace.processes[&0], starts[0], pages.into()), &model.records);
}

#[test]
fn what_the_kernel_fills_is_referenced() {
    let pages = 600;
    let mut steps: Vec<Step> = (0..pages).map(|page| step('s', page, 5)).collect();
    steps.push(step('i', 200, 100));
    let mut model = Model::new(pages as usize);
    model.run(&steps);
    let (trace, starts, _) = recorded(&[], &steps, pages.into(), Ending::Exited(7));
    let found = within(&trace.processes[&0], starts[0], pages.into());
    let (found, last) = found.split_at(pages as usize);
    expect_equal(found, &model.records[..pages as usize]);
    // A page may be told twice while the call goes on, once as it was before.
    let mut places: Vec<u64> = Vec::new();
    for record in last {
        let Record::Reference { page, is_fresh: false, contents, .. } = record else {
            panic!("{record:?}")
        };
        assert!(matches!(contents, Contents::SameFilled | Contents::Unchanged), "{record:?}");
        places.push(*page);
    }
    places.sort_unstable();
    places.dedup();
    assert_eq!(places, (200..300).collect::<Vec<u64>>());
}

#[test]
fn a_moved_buffer_is_released_and_known_anew() {
    let pages = 600;
    let mut steps: Vec<Step> = (0..pages).map(|page| step('w', page, page as u16)).collect();
    let after: Vec<Step> = (0..pages - 100).map(|page| step('r', page, 0)).collect();
    let mut model = Model::new(pages as usize);
    model.run(&steps);
    let mut before = model.records.clone();
    before.push(Record::Release { first: 0, pages: pages.into() });
    model.forget();
    model.run(&after);
    steps.push(step('m', 0, 0));
    steps.extend(after);
    let (trace, starts, _) = recorded(&[], &steps, pages.into(), Ending::Exited(7));
    let [old, new] = starts[..] else { panic!("{starts:?}") };
    expect_equal(&within(&trace.processes[&0], old, pages.into()), &before);
    expect_equal(&within(&trace.processes[&0], new, pages.into()), &model.records);
}

#[test]
fn a_forked_child_has_a_number_of_its_own() {
    let pages = 600;
    let first: Vec<Step> = (0..pages).map(|page| step('w', page, page as u16)).collect();
    let child: Vec<Step> = (0..400).map(|page| step('w', page, 2 * page as u16)).collect();
    let parent: Vec<Step> = (0..500).map(|page| step('r', page, 0)).collect();
    let mut model = Model::new(pages as usize);
    model.run(&first);
    let mut of_child = model.clone();
    of_child.forget();
    of_child.run(&child);
    model.run(&parent);
    let steps = [first, vec![step('f', 0, 0)], child, vec![step('j', 0, 0)], parent].concat();
    let (trace, starts, _) = recorded(&[], &steps, pages.into(), Ending::Exited(7));
    assert_eq!(trace.processes.keys().collect::<Vec<_>>(), [&0, &1]);
    expect_equal(&within(&trace.processes[&0], starts[0], pages.into()), &model.records);
    expect_equal(&within(&trace.processes[&1], starts[0], pages.into()), &of_child.records);
    for (number, records) in &trace.processes {
        let end = Record::Release { first: 0, pages: 1 << PROCESS_SHIFT };
        assert_eq!(records.last(), Some(&end), "process {number}");
    }
}

/// Makes one record of several in a row of one page: while a thread waits for the processor the
/// others may drive out what it has just brought in.
fn joined(records: Vec<Record>) -> Vec<Record> {
    let mut joined: Vec<Record> = Vec::new();
    for record in records {
        match (joined.last_mut(), record) {
            (
                Some(Record::Reference { page, is_written, contents, .. }),
                Record::Reference { page: again, is_written: written, contents: now, .. },
            ) if *page == again => {
                *is_written |= written;
                if now != Contents::Unchanged {
                    *contents = now;
                }
            }
            (_, record) => joined.push(record),
        }
    }
    joined
}

#[test]
fn each_thread_has_its_own_order() {
    // The first lie behind a thread's stack, with which some are left out of management.
    const FIRST: u32 = 16;
    const SECOND: u32 = FIRST + 600;
    let pages = 1300u64;
    let half = |from: u32| -> Vec<Step> {
        let written = (from..from + 600).map(|page| step('w', page, page as u16));
        written.chain((from..from + 600).map(|page| step('r', page, 0))).collect()
    };
    let join = vec![step('j', 0, 0)];
    let steps = [vec![step('t', 0, 0)], half(FIRST), join.clone(), half(SECOND), join].concat();
    let (trace, starts, _) = recorded(&[], &steps, pages, Ending::Exited(7));
    for from in [FIRST, SECOND] {
        let mut model = Model::new(pages as usize);
        model.run(&half(from));
        let of_half = |record: &Record| match record {
            Record::Reference { page, .. } => {
                (u64::from(from)..u64::from(from) + 600).contains(page)
            }
            Record::Release { .. } => true,
        };
        let mut found = within(&trace.processes[&0], starts[0], pages);
        found.retain(of_half);
        expect_equal(&joined(found), &model.records);
    }
}

#[test]
fn of_a_program_that_is_killed_all_is_there_but_what_was_in_the_window() {
    let pages = 600;
    let mut steps: Vec<Step> = (0..pages).map(|page| step('w', page, page as u16)).collect();
    let mut model = Model::new(pages as usize);
    model.run(&steps);
    steps.push(step('k', 0, 0));
    let (trace, starts, _) = recorded(&[], &steps, pages.into(), Ending::Killed(9));
    let found = within(&trace.processes[&0], starts[0], pages.into());
    let sure = pages as usize - WINDOW as usize;
    expect_equal(&found[..sure], &model.records[..sure]);
    let pages_of = |records: &[Record]| -> Vec<u64> {
        let page = |record: &Record| match record {
            Record::Reference { page, is_fresh: true, .. } => *page,
            other => panic!("{other:?}"),
        };
        records.iter().map(page).collect()
    };
    assert_eq!(pages_of(&found), pages_of(&model.records));
}

#[test]
fn programs_that_follow_each_other_have_numbers_of_their_own() {
    let directory = places::scratch();
    let steps: Vec<Step> = (0..300).map(|page| step('w', page, 2)).collect();
    fs::write(directory.path().join("steps"), to_bytes(&steps)).expect("the steps");
    let order = victims::build("order", &[]).display().to_string();
    let mut command = Command::new(places::zpager());
    command.args(["trace", "--quiet", "--", "/bin/sh", "-c"]);
    command.arg(format!("{order} steps 300; {order} steps 300; exec {order} steps 300"));
    let outcome = finish(command, directory, LIMIT, "a shell".into());
    assert_eq!(outcome.ending, Ending::Exited(7), "{}", outcome.report());
    let trace = read_trace(&outcome.directory.path().join("sh.trace"));
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let starts: Vec<u64> = text
        .lines()
        .map(|line| u64::from_str_radix(&line[2..], 16).expect("an address") >> 12)
        .collect();
    assert_eq!(starts.len(), 3);
    let mut runs = Vec::new();
    for records in trace.processes.values() {
        let of_start = starts.iter().map(|&start| within(records, start, 300));
        runs.extend(of_start.filter(|found| found.len() == 300));
    }
    assert!(runs.len() >= 3, "{} runs in {} processes", runs.len(), trace.processes.len());
    for found in runs {
        let fresh = |record: &Record| matches!(record, Record::Reference { is_fresh: true, .. });
        assert!(found.iter().all(fresh));
    }
}

/// Runs `zpager` with the words of a line.
fn zpager(directory: &TempDir, line: &str) -> Output {
    let mut command = Command::new(places::zpager());
    command.args(line.split_whitespace()).current_dir(directory.path()).stdin(Stdio::null());
    command.output().expect("zpager runs")
}

fn names(directory: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(directory.path()).expect("listed").flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn bad_input_starts_nothing_and_leaves_nothing() {
    let table = [
        ("", 2, "program"),
        ("--window 7 -- touch started", 2, "4096"),
        ("--window many -- touch started", 2, "many"),
        ("--codec lz5 -- touch started", 2, "lz4"),
        ("--output no/such/place -- touch started", 2, "no/such/place"),
        ("--output . -- touch started", 2, "directory"),
        ("--out x -- touch started", 2, "--out"),
        ("--memory 1M -- touch started", 2, "8.0 MiB"),
        ("--store no/such/place -- touch started", 2, "no/such/place"),
        ("-- no-such-program-anywhere", 127, "PATH"),
        ("-- /etc/passwd", 126, "/etc/passwd"),
    ];
    let directory = places::scratch();
    for (flags, status, word) in table {
        let output = zpager(&directory, &format!("trace {flags}"));
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{flags}: {message}");
        assert_eq!(message.lines().count(), 1, "{flags}: {message}");
        assert!(message.starts_with("zpager: ") && message.contains(word), "{flags}: {message}");
        assert!(output.stdout.is_empty(), "{flags}: {output:?}");
        assert_eq!(names(&directory), [""; 0], "{flags}");
    }
}

#[test]
fn a_trace_that_cannot_be_written_is_told_and_the_program_goes_on() {
    let directory = places::scratch();
    let output = zpager(&directory, "trace --output /dev/full --quiet -- sort /etc/services");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.contains("/dev/full"), "{message}");
    let free = Command::new("sort").arg("/etc/services").output().expect("sort runs");
    assert_eq!(output.stdout, free.stdout);
}

#[test]
fn the_summary_says_where_the_trace_is() {
    let directory = places::scratch();
    let output = zpager(&directory, "trace -- /bin/echo said");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stdout, b"said\n");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.contains("references") && message.contains("echo.trace"), "{message}");
    assert_eq!(names(&directory), ["echo.trace"]);
    let trace = read_trace(&directory.path().join("echo.trace"));
    assert_eq!(trace.header.command, [b"/bin/echo".to_vec(), b"said".to_vec()]);
    assert_eq!(trace.header.codecs, ["word", "lz4", "lzo", "wkdm", "wk4x4", "zstd"]);
    assert_eq!(u64::from(trace.header.window_pages), WINDOW);
}

/// Victims that check themselves: what they do is done right in a window of a few pages as well.
#[test]
fn programs_do_what_they_do_without_being_recorded() {
    for name in ["structs", "forks", "signals", "coroutines", "spawning"] {
        let free = victims::job(name).free();
        assert_eq!(free.ending, Ending::Exited(0), "{}", free.report());
        let mut command = Command::new(places::zpager());
        command.args(["trace", "--quiet", "--codec", "word", "--output", "out.trace", "--"]);
        command.arg(victims::build(name, &[])).arg(victims::seed());
        let outcome = finish(command, places::scratch(), LIMIT, name.to_owned());
        assert_eq!(outcome.ending, free.ending, "{}", outcome.report());
        assert_eq!(outcome.stdout, free.stdout, "{}", outcome.report());
        let trace = read_trace(&outcome.directory.path().join("out.trace"));
        assert!(!trace.processes.is_empty(), "{name}");
    }
}
