//! What `zpager sim` promises: rows that add up, the same each time, a line for each refusal, whole files.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde::Deserialize;
use tempfile::TempDir;
use zpager_sim::trace::{Contents, Header, Reference, Writer};
use zpager_tests::stats::Stats;
use zpager_tests::{places, victims};

const DESIGNS: &str = "cervera,hp,castro,zswap,default,none,belady";
const CODECS: [&str; 4] = ["word", "lz4", "lzo", "wk4x4"];
/// Pages of the program: 32 MiB.
const PAGES: u64 = 8192;
const TURNS: u64 = 3;

/// A row of `--json`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Row {
    design: String,
    memory_bytes: u64,
    references: u64,
    resident_hits: u64,
    compressed_hits: u64,
    spilled_faults: u64,
    fresh_faults: u64,
    store_reads: u64,
    store_writes: u64,
    swapped_out_pages: u64,
    swapped_in_pages: u64,
    modelled_seconds: f64,
    moving_seconds: f64,
    coding_seconds: f64,
    store_seconds: f64,
    peak_bytes: u64,
    model: serde_json::Value,
}

/// A directory in which the command runs.
struct Playground(TempDir);

impl Playground {
    fn new() -> Self {
        Playground(places::scratch())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn sim(&self, words: &[&str]) -> Output {
        let mut command = Command::new(places::zpager());
        command.arg("sim").args(words).current_dir(self.0.path()).stdin(Stdio::null());
        command.output().expect("zpager runs")
    }

    fn rows(&self, line: &str) -> (Vec<Row>, Output) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let output = self.sim(&[&["--json", "rows"], &words[..]].concat());
        assert_eq!(output.status.code(), Some(0), "{line}: {output:?}");
        let text = fs::read(self.path("rows")).expect("the rows");
        (serde_json::from_slice(&text).expect("an array of rows"), output)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).expect("listed").flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

/// A program that goes over its pages several times and writes them the first time; they shrink to a third.
fn trace(codecs: &[&str]) -> Vec<u8> {
    let header = Header {
        page_bytes: 4096,
        window_pages: 32,
        origin: "a test".into(),
        command: vec![b"sort".to_vec(), b"words".to_vec()],
        codecs: codecs.iter().map(|name| name.to_string()).collect(),
    };
    let mut writer = Writer::new(Vec::new(), &header).expect("a header");
    for turn in 0..TURNS {
        for page in 0..PAGES {
            let sizes = vec![1100 + page as u16 % 500; codecs.len()];
            let contents = match (turn, page % 16) {
                (0, 0) => Contents::SameFilled,
                (0, _) if !sizes.is_empty() => Contents::Sizes(&sizes),
                _ => Contents::Unchanged,
            };
            let is_first = turn == 0;
            let reference = Reference { page, is_fresh: is_first, is_written: is_first, contents };
            writer.reference(&reference).expect("sound");
        }
    }
    writer.finish().expect("written")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn every_design_serves_every_reference_the_same_each_time() {
    let playground = Playground::new();
    fs::write(playground.path("t"), trace(&CODECS)).expect("a file");
    let line = format!("t --memory 20M,8M,20M --design {DESIGNS}");
    let (rows, output) = playground.rows(&line);
    assert_eq!(rows.len(), 7 * 2);
    for row in &rows {
        let served = row.resident_hits + row.compressed_hits + row.spilled_faults;
        assert_eq!(served + row.fresh_faults, row.references, "{row:?}");
        assert_eq!(row.references, PAGES * TURNS);
        assert!(row.swapped_out_pages >= row.swapped_in_pages, "{row:?}");
        let sum = row.moving_seconds + row.coding_seconds + row.store_seconds;
        assert!((row.modelled_seconds - sum).abs() < 1e-6 && sum > 0.0, "{row:?}");
        assert!(row.peak_bytes <= row.memory_bytes + (1 << 20), "{row:?}");
        assert_eq!(row.model["disk"], "ssd");
    }
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let of = |design: &str, mib: u64| {
        rows.iter()
            .find(|row| row.design == design && row.memory_bytes == mib << 20)
            .expect("a row")
    };
    // In 20 MiB all of it fits compressed, and nobody needs the store but who does not compress.
    assert_eq!((of("default", 20).store_writes, of("belady", 20).store_writes), (0, 0));
    assert!(of("none", 20).store_writes > 0 && of("none", 20).compressed_hits == 0);
    assert!(of("default", 8).store_writes > 0 && of("default", 8).store_reads > 0);
    for mib in [8, 20] {
        let bound = of("belady", mib).modelled_seconds;
        let is_bound = |row: &Row| row.memory_bytes != mib << 20 || row.modelled_seconds >= bound;
        assert!(rows.iter().all(is_bound), "{table}");
    }
    assert!(of("default", 20).modelled_seconds < of("none", 20).modelled_seconds, "{table}");
    assert!(table.contains("sort words") && table.contains("24576 references"), "{table}");
    for word in DESIGNS.split(',').chain(["fault 1.55", "91 us before a read"]) {
        assert!(table.contains(word), "{word}: {table}");
    }
    let (again, second) = playground.rows(&line);
    assert_eq!((again, second.stdout), (rows, output.stdout));
}

/// How far two counts are apart, in parts of the larger.
fn apart(one: u64, other: u64) -> f64 {
    one.abs_diff(other) as f64 / one.max(other).max(1) as f64
}

/// The simulator counts what a run of the same program counts.
#[test]
fn a_run_and_its_simulation_swap_the_same() {
    let playground = Playground::new();
    let victim = victims::build("field", &[]);
    let victim = victim.to_str().expect("a path of text");
    let program = ["--", victim, "1", "24", "words", "20"];
    let run = |words: &[&str]| {
        let mut command = Command::new(places::zpager());
        command.args(words).args(program).current_dir(playground.0.path());
        let output = command.output().expect("zpager runs");
        assert_eq!(output.status.code(), Some(0), "{words:?}: {output:?}");
    };
    run(&["trace", "--output", "t", "--quiet"]);
    for design in DESIGNS.split(',').take(5) {
        let stats = playground.path("stats");
        let stats = stats.to_str().expect("a path of text");
        run(&["run", "--memory", "10M", "--design", design, "--stats", stats, "--quiet"]);
        let text = fs::read(stats).expect("the statistics");
        let ran: Stats = serde_json::from_slice(&text).expect("statistics");
        let row = playground.rows(&format!("t --memory 10M --design {design}")).0.remove(0);
        println!(
            "{design}: run {} {}, simulation {} {}",
            ran.swapped_out_pages,
            ran.swapped_in_pages,
            row.swapped_out_pages,
            row.swapped_in_pages
        );
        assert!(ran.swapped_in_pages > 1000, "{design}: {ran:?}");
        assert!(
            apart(ran.swapped_out_pages, row.swapped_out_pages) < 0.05,
            "{design}: {ran:?} {row:?}"
        );
        assert!(
            apart(ran.swapped_in_pages, row.swapped_in_pages) < 0.05,
            "{design}: {ran:?} {row:?}"
        );
    }
}

#[test]
fn disks_differ_in_time_alone_for_those_who_do_not_measure() {
    let playground = Playground::new();
    fs::write(playground.path("t"), trace(&CODECS)).expect("a file");
    let found = ["hdd", "ssd", "nvme"].map(|disk| {
        playground.rows(&format!("t --memory 8M --design none --disk {disk}")).0.remove(0)
    });
    assert!(
        found.windows(2).all(|pair| pair[0].store_seconds > pair[1].store_seconds),
        "{found:?}"
    );
    assert!(found.windows(2).all(|pair| pair[0].store_reads == pair[1].store_reads));
}

#[test]
fn parameters_change_what_they_are_about() {
    let playground = Playground::new();
    fs::write(playground.path("t"), trace(&CODECS)).expect("a file");
    let (plain, _) = playground.rows("t --memory 16M --design default,none");
    let (set, output) =
        playground.rows("t --memory 16M --design default,none --set default.codec=lzo");
    assert!(plain[0].coding_seconds < set[0].coding_seconds);
    assert_eq!(plain[1], set[1]);
    assert_eq!(set[0].model["codec"], "lzo");
    assert!(String::from_utf8_lossy(&output.stdout).contains("lzo: 6.083 to compress"));
}

#[test]
fn a_picture_is_drawn() {
    let playground = Playground::new();
    fs::write(playground.path("t"), trace(&CODECS)).expect("a file");
    playground.rows("t --memory 8M,16M,24M --design default,none --plot plot.svg");
    let svg = fs::read_to_string(playground.path("plot.svg")).expect("a picture");
    let document = roxmltree::Document::parse(&svg).expect("SVG");
    let named = |name: &'static str| {
        let tag = ("http://www.w3.org/2000/svg", name);
        document.descendants().filter(move |node| node.has_tag_name(tag))
    };
    assert_eq!(named("circle").count(), 6);
    let texts: Vec<String> =
        named("text").filter_map(|node| node.text().map(|text| text.trim().to_owned())).collect();
    for word in ["default", "none", "memory", "modelled time", "sort words, ssd"] {
        assert!(texts.iter().any(|text| text == word), "{word}: {texts:?}");
    }
}

/// One line, the status, and nothing that was not there before.
#[test]
fn bad_input_is_refused() {
    let playground = Playground::new();
    let whole = trace(&CODECS);
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 1;
    let mut newer = whole.clone();
    newer[8] = 9;
    let files: [(&str, &[u8]); 8] = [
        ("t", &whole),
        ("cut", &whole[..whole.len() / 2]),
        ("changed", &changed),
        ("newer", &newer),
        ("foreign", b"#!/bin/sh\nexit 0\n"),
        ("empty", b""),
        ("sizeless", &trace(&[])),
        ("lz4", &trace(&["lz4"])),
    ];
    for (name, bytes) in files {
        fs::write(playground.path(name), bytes).expect("a file");
    }
    fs::create_dir(playground.path("directory")).expect("a directory");
    let status = Command::new("mkfifo").arg(playground.path("pipe")).status();
    assert!(status.expect("mkfifo runs").success());
    let names = playground.names();
    let table = [
        ("", "zpager trace"),
        ("t", "--memory"),
        ("t --memory", "--memory"),
        ("t --unknown", "--unknown"),
        ("t other --memory 8M", "other"),
        ("t --memory 8M,much", "much"),
        ("t --memory 1M", "8.0 MiB"),
        ("t --memory 8M --design lru", "cervera, hp, castro, zswap, default, none and belady"),
        ("t --memory 8M --set castro.cell=2", "--design castro"),
        ("t --memory 8M --set default.split=200%", "7% to 93%"),
        ("t --memory 8M --set default.colour=1", "default.colour"),
        ("t --memory 8M --disk tape", "hdd, ssd, nvme"),
        ("t --memory 8M --json nowhere/rows", "nowhere/rows"),
        ("t --memory 8M --plot directory", "directory"),
        ("t --memory 8M --plot out --json out", "one file"),
        ("missing --memory 8M --json rows --plot plot.svg", "missing"),
        ("directory --memory 8M --json rows", "no plain file"),
        ("pipe --memory 8M --json rows", "no plain file"),
        ("cut --memory 8M --json rows", "cut: byte"),
        ("changed --memory 8M --json rows", "checksum"),
        ("newer --memory 8M --json rows", "newer: byte 8, after 0 records: version 9"),
        ("foreign --memory 8M --json rows", "foreign: byte 0"),
        ("empty --memory 8M --json rows", "empty: byte 0"),
        ("sizeless --memory 8M --json rows", "no sizes"),
        ("lz4 --memory 8M --design zswap --json rows", "it has lz4"),
    ];
    for (line, said) in table {
        let output = playground.sim(&line.split_whitespace().collect::<Vec<_>>());
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{line}: {message}");
        assert_eq!(message.lines().count(), 1, "{line}: {message}");
        assert!(message.starts_with("zpager: ") && message.contains(said), "{line}: {message}");
        assert!(output.stdout.is_empty(), "{line}: {output:?}");
        assert_eq!(playground.names(), names, "{line}: something was left");
    }
}

/// Without sizes there is what needs none.
#[test]
fn a_trace_without_sizes_has_two_designs() {
    let playground = Playground::new();
    fs::write(playground.path("t"), trace(&[])).expect("a file");
    let (rows, _) = playground.rows("t --memory 16M --design none,belady");
    assert!(rows[1].spilled_faults < rows[0].spilled_faults, "{rows:?}");
    assert!(
        rows.iter().all(|row| row.compressed_hits == 0 && row.coding_seconds == 0.0),
        "{rows:?}"
    );
}

#[test]
fn help_is_shown() {
    let output = Playground::new().sim(&["--help"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let flags = ["--memory", "--design", "--set", "--disk", "--json", "--plot"];
    assert!(flags.iter().all(|flag| text.contains(flag)), "{text}");
}

/// Accesses that valgrind recorded become a trace, and a trace can be simulated.
#[test]
fn lackey_s_output_is_imported() {
    let playground = Playground::new();
    let mut text = String::from("==1== Lackey\nI  00400000,4\n");
    for turn in 0..2 {
        for page in 0..PAGES {
            let kind = if turn == 0 { 'S' } else { 'L' };
            text += &format!(" {kind} {:08x},8\n L {:08x},8\n", page << 12, (page << 12) + 64);
        }
    }
    fs::write(playground.path("log"), &text).expect("a file");
    let import = |words: &[&str]| {
        let mut command = Command::new(places::zpager());
        command.args(["trace", "--lackey"]).args(words).current_dir(playground.0.path());
        command.output().expect("zpager runs")
    };
    let output = import(&["log", "--window", "1", "--sizes", "word=25%,lz4=1400"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(stderr(&output).contains("32769 accesses"), "{output:?}");
    let (rows, _) = playground.rows("log.trace --memory 16M --design default,none,belady");
    assert!(rows.iter().all(|row| row.references == 2 * PAGES), "{rows:?}");
    assert!(rows[0].compressed_hits > 0 && rows[0].store_writes == 0, "{rows:?}");
    // A line that is not lackey's: it is named, and nothing is left.
    fs::write(playground.path("bad"), " L 1000,8\nnonsense\n").expect("a file");
    let names = playground.names();
    for (words, said) in [
        (&["bad"][..], "line 2"),
        (&["missing"], "missing"),
        (&["log", "--", "true"], "give one"),
        (&["log", "--sizes", "lz4"], "--sizes lz4"),
    ] {
        let output = import(words);
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {message}");
        assert_eq!(message.lines().count(), 1, "{words:?}: {message}");
        assert!(message.contains(said), "{words:?}: {message}");
        assert_eq!(playground.names(), names, "{words:?}: something was left");
    }
}
