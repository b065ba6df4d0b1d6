//! What `zpager designs` promises, and `--design` and `--set`: listings, refusals, settings that hold.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output, Stdio};

use serde::Deserialize;
use tempfile::TempDir;
use zpager_tests::setup::MIB;
use zpager_tests::{Lift, Managed, Setup, Start, Store, compare, places, victims};

const NAMES: [&str; 5] = ["cervera", "hp", "castro", "zswap", "default"];

/// A design of `--json`.
#[derive(Debug, Deserialize)]
struct Design {
    design: String,
    codec: String,
    pool: String,
    size: String,
    residents: String,
    leaving: String,
    store: String,
    reads: String,
    clean: String,
    source: String,
}

/// A parameter of `--json`.
#[derive(Debug, Deserialize)]
struct Parameter {
    name: String,
    design: String,
    default: String,
    range: String,
    choices: Vec<String>,
    meaning: String,
    source: String,
}

#[derive(Debug, Deserialize)]
struct Listing {
    designs: Vec<Design>,
    parameters: Vec<Parameter>,
}

/// A directory in which the command runs.
struct Playground(TempDir);

impl Playground {
    fn new() -> Self {
        Playground(places::scratch())
    }

    fn zpager(&self, words: &[&str]) -> Output {
        let mut command = Command::new(places::zpager());
        command.args(words).current_dir(self.0.path()).stdin(Stdio::null());
        command.output().expect("zpager runs")
    }

    /// What `zpager designs` lists with these words.
    fn listing(&self, words: &[&str]) -> Listing {
        let output = self.zpager(&[&["designs", "--json", "rows"], words].concat());
        assert_eq!(output.status.code(), Some(0), "{words:?}: {output:?}");
        let text = fs::read(self.0.path().join("rows")).expect("the rows");
        serde_json::from_slice(&text).expect("designs and parameters")
    }

    /// Checks that words are refused with this status and one line, which holds `said`; that no
    /// file was left and no program started.
    fn expect_refused(&self, words: &[&str], status: i32, said: &str) {
        let output = self.zpager(words);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {message}");
        assert_eq!(message.lines().count(), 1, "{words:?}: {message}");
        assert!(message.starts_with("zpager: ") && message.contains(said), "{words:?}: {message}");
        assert!(output.stdout.is_empty(), "{words:?}: {output:?}");
        let left = fs::read_dir(self.0.path()).expect("listed").count();
        assert_eq!(left, 0, "{words:?}");
    }
}

fn stdout(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

#[test]
fn the_table_has_every_design_and_every_parameter() {
    let playground = Playground::new();
    let text = stdout(&playground.zpager(&["designs"]));
    for name in NAMES {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name}: {text}");
    }
    let row = |name: &str| {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(name));
        line.unwrap_or_else(|| panic!("{name}: {text}")).to_owned()
    };
    // What the papers say.
    let table = [
        ("cervera.cache", "1M"),
        ("cervera.threshold", "50%"),
        ("hp.share", "25%"),
        ("hp.bucket", "256"),
        ("castro.cell", "2"),
        ("castro.variant", "reference"),
        ("castro.switch", "on"),
        ("zswap.max_pool_percent", "20%"),
        ("zswap.accept_threshold_percent", "90%"),
        ("zswap.same_filled", "on"),
        ("zswap.max_compression_ratio", "80%"),
        ("cervera.codec", "lzo"),
        ("hp.codec", "wk4x4"),
        ("castro.codec", "lzo"),
        ("zswap.codec", "lzo"),
        ("default.split", "auto"),
    ];
    for (name, default) in table {
        assert_eq!(row(name).split_whitespace().nth(1), Some(default), "{name}");
    }
}

#[test]
fn one_design_is_listed_with_what_its_parts_are() {
    let playground = Playground::new();
    for name in NAMES {
        let text = stdout(&playground.zpager(&["designs", name]));
        assert!(text.starts_with(name), "{text}");
        let others = NAMES.iter().filter(|other| **other != name);
        for other in others {
            assert!(!text.contains(&format!("{other}.")), "{name} and {other}: {text}");
        }
        assert!(text.contains(&format!("{name}.codec")), "{text}");
    }
    let text = stdout(&playground.zpager(&["designs", "castro"]));
    assert!(text.contains("expense and profit lists"), "{text}");
}

#[test]
fn json_has_what_the_table_has() {
    let playground = Playground::new();
    let listing = playground.listing(&[]);
    let names: Vec<&str> = listing.designs.iter().map(|design| design.design.as_str()).collect();
    assert_eq!(names, NAMES);
    for design in &listing.designs {
        let parts = [
            &design.codec,
            &design.pool,
            &design.size,
            &design.residents,
            &design.leaving,
            &design.store,
            &design.reads,
            &design.clean,
            &design.source,
        ];
        assert!(parts.iter().all(|part| !part.is_empty()), "{design:?}");
    }
    let text = stdout(&playground.zpager(&["designs"]));
    let mut seen = BTreeSet::new();
    for parameter in &listing.parameters {
        let Parameter { name, design, default, range, choices, meaning, source } = parameter;
        assert!(seen.insert(name), "{name} twice");
        assert!(name.starts_with(&format!("{design}.")), "{parameter:?}");
        let words = [name, default, range, meaning, source];
        assert!(words.iter().all(|word| text.contains(*word)), "{parameter:?}");
        assert!(choices.is_empty() || default == "auto" || choices.contains(default));
    }
    let one = playground.listing(&["hp"]);
    assert_eq!(one.designs.len(), 1);
    assert!(one.parameters.iter().all(|parameter| parameter.design == "hp"));
}

#[test]
fn wrong_words_are_refused() {
    let playground = Playground::new();
    let program = ["--", "touch", "started"];
    let runs: [(&[&str], &str); 15] = [
        (&["--design", "lru"], "cervera, hp, castro, zswap, default"),
        (&["--design="], "cervera, hp, castro, zswap, default"),
        (&["--set", "default.split"], "NAME=VALUE"),
        (&["--set", "split=50%"], "zpager designs"),
        (&["--set", "default.splitt=50%"], "default.split"),
        (&["--set", "default.split=6%"], "7% to 93%"),
        (&["--set", "default.split=94"], "7% to 93%"),
        (&["--set", "default.split=half"], "7% to 93%"),
        (&["--set", "default.read_ahead=0"], "1 to 64"),
        (&["--set", "default.codec=lzma"], "lz4"),
        (&["--set", "default.codec=lz4", "--codec", "zstd"], "give one"),
        (&["--set", "castro.cell=2"], "--design castro"),
        (&["--design", "castro", "--set", "castro.cell=3"], "1, 2 or 4"),
        (&["--design", "hp", "--set", "hp.share=91%"], "0% to 90%"),
        (&["--design", "cervera", "--set", "cervera.cache=1X"], "64K to 64G"),
    ];
    for (words, said) in runs {
        playground.expect_refused(&[&["run"], words, &program].concat(), 125, said);
    }
    let listings: [(&[&str], &str); 4] = [
        (&["lru"], "cervera, hp, castro, zswap, default"),
        (&["hp", "castro"], "castro"),
        (&["--json", "nowhere/at/all"], "nowhere/at/all"),
        (&["--wrong"], "--wrong"),
    ];
    for (words, said) in listings {
        playground.expect_refused(&[&["designs"], words].concat(), 2, said);
    }
}

/// Random order over pages that shrink and pages that do not, and what became of them.
fn run_design(name: &str, kind: &str, setup: Setup) -> Managed {
    let job = victims::job("field").arguments(["64", kind, "1"]);
    let managed = compare(&job, &setup.design(name));
    let stats = &managed.stats;
    assert!(stats.swapped_out_pages > 0 && stats.swapped_in_pages > 0, "{name}: {stats:?}");
    managed
}

#[test]
fn every_design_runs_with_a_store() {
    for name in NAMES {
        for (kind, mib, start) in [
            ("words", 16, Start::FirstInstruction),
            ("noise", 24, Start::FirstInstruction),
            ("words", 24, Start::Pressure),
        ] {
            let managed = run_design(name, kind, Setup::of_mib(mib).start(start));
            let (store, stats) = (&managed.stats.store, &managed.stats);
            assert!(kind == "words" || store.writes > 0 && store.reads > 0, "{name}: {stats:?}");
            assert!(stats.incompressible_pages > 0 || kind == "words", "{name}: {stats:?}");
        }
    }
}

#[test]
fn every_design_runs_without_a_store() {
    for name in NAMES {
        for lift in [Lift::Move, Lift::Copy] {
            let setup = Setup::of_mib(24).start(Start::FirstInstruction).store(Store::None);
            let managed = run_design(name, "words", setup.lift(lift));
            assert_eq!(managed.stats.store.writes, 0, "{name}: {:?}", managed.stats);
        }
    }
}

/// What a design is known by shows in what a run counts.
#[test]
fn designs_differ_as_they_say() {
    let stats = |name: &str, set: &[&str]| {
        let setup = Setup::of_mib(24).start(Start::FirstInstruction);
        let setup = set.iter().fold(setup, |setup, word| setup.set(word));
        run_design(name, "words", setup).stats
    };
    let packed = stats("default", &["default.split=50%"]);
    assert!(packed.prefetched_pages > 0, "{packed:?}");
    for name in ["cervera", "hp", "castro", "zswap"] {
        assert_eq!(stats(name, &[]).prefetched_pages, 0, "{name}");
    }
    // Uncompressed, and a fixed part of the budget.
    let hp = stats("hp", &[]);
    assert!(hp.store.written_bytes >= hp.store.writes * 4096, "{hp:?}");
    assert!(hp.peak_pool_bytes >= 6 * MIB && hp.peak_pool_bytes < 8 * MIB, "{hp:?}");
    let larger = stats("hp", &["hp.share=50%"]);
    assert!(larger.peak_pool_bytes >= 12 * MIB && larger.peak_pool_bytes < 14 * MIB, "{larger:?}");
    // Its pool is written as soon as one in ten of its buffers is full.
    let early = stats("cervera", &["cervera.threshold=10%", "cervera.cache=2M"]);
    let late = stats("cervera", &["cervera.threshold=70%", "cervera.cache=2M"]);
    assert!(early.store.writes > late.store.writes, "{early:?} and {late:?}");
    assert!(late.peak_pool_bytes < 3 * MIB, "{late:?}");
    let little = stats("zswap", &["zswap.max_pool_percent=5%"]);
    assert!(little.peak_pool_bytes < 2 * MIB, "{little:?}");
}

/// More of the same program is compressed where less may be resident.
#[test]
fn the_split_that_was_set_holds() {
    let pool_bytes = |split: &str| {
        let job = victims::job("field").arguments(["64", "words", "2"]);
        let setup = Setup::of_mib(16).start(Start::FirstInstruction).set(split);
        compare(&job, &setup).stats.peak_pool_bytes
    };
    let (few, many) = (pool_bytes("default.split=90%"), pool_bytes("default.split=10%"));
    assert!(few * 2 < many, "{few} and {many}");
}

#[test]
fn one_page_a_fault_is_one_page_a_fault() {
    let job = victims::job("field").arguments(["64", "words", "2"]);
    let setup = Setup::of_mib(16).start(Start::FirstInstruction);
    assert!(compare(&job, &setup).stats.prefetched_pages > 0);
    let setup = setup.set("default.read_ahead=1");
    assert_eq!(compare(&job, &setup).stats.prefetched_pages, 0);
}
