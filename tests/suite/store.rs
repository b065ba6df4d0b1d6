//! The cold tier: what does not fit goes to disk in large writes, and a store that fails loses nothing.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use zpager_tests::job::finish;
use zpager_tests::setup::MIB;
use zpager_tests::{Ending, Job, Managed, Outcome, Setup, Start, Stats, Store, compare};
use zpager_tests::{places, victims};

/// The least that a write to the store may be on average.
const LEAST_WRITE_BYTES: u64 = 128 << 10;

fn field(mib: &str, kind: &str, rounds: &str) -> Job {
    victims::job("field").arguments([mib, kind, rounds])
}

fn expect_spilled(managed: &Managed) {
    let store = &managed.stats.store;
    assert!(store.writes > 0 && managed.stats.faults.spilled > 0, "nothing spilled: {store:?}");
    assert!(store.reads > 0 && store.read_bytes > 0, "nothing read: {store:?}");
    let mean_bytes = store.written_bytes / store.writes;
    assert!(mean_bytes >= LEAST_WRITE_BYTES, "writes of {mean_bytes} bytes: {store:?}");
    assert!(store.file_bytes > 0, "an empty file: {store:?}");
}

#[test]
fn pages_that_do_not_shrink_are_spilled() {
    for start in [Start::FirstInstruction, Start::Pressure] {
        let managed = compare(&field("96", "noise", "2"), &Setup::of_mib(24).start(start));
        expect_spilled(&managed);
        assert!(managed.stats.incompressible_pages > 0, "{:?}", managed.stats);
    }
}

#[test]
fn more_compressed_pages_than_fit_are_spilled() {
    for codec in ["lz4", "zstd"] {
        let setup = Setup::of_mib(16).start(Start::FirstInstruction).codec(codec);
        let managed = compare(&field("256", "words", "1"), &setup);
        expect_spilled(&managed);
        let stats = &managed.stats;
        assert!(stats.compressed_bytes * 2 < stats.original_bytes, "{stats:?}");
    }
}

#[test]
fn same_filled_pages_need_no_store() {
    let managed = compare(&field("256", "zeros", "1"), &Setup::of_mib(16));
    assert_eq!(managed.stats.store.written_bytes, 0, "{:?}", managed.stats);
    assert!(managed.stats.same_filled_pages > 0);
}

#[test]
fn the_file_is_used_again() {
    let managed = compare(&field("64", "noise", "20"), &Setup::of_mib(24));
    let stats = &managed.stats;
    assert!(stats.store.written_bytes > stats.store.file_bytes, "{stats:?}");
    assert!(stats.store.file_bytes < 160 * MIB, "the file grows without end: {stats:?}");
}

#[test]
fn spilled_pages_are_shared_by_parent_and_child() {
    let setup = Setup::of_mib(16).start(Start::FirstInstruction);
    let managed = victims::job("inherit").managed(&setup);
    assert_eq!(managed.outcome.ending, Ending::Exited(0), "{}", managed.outcome.report());
    managed.expect_like(&victims::job("inherit").free());
    expect_spilled(&managed);
}

#[test]
fn what_the_dead_held_is_free_again() {
    let setup = Setup::of_mib(24).start(Start::FirstInstruction);
    let managed = compare(&victims::job("leavers"), &setup);
    let stats = &managed.stats;
    assert!(stats.store.written_bytes > 400 * MIB, "too little was spilled: {stats:?}");
    // A child and its own child at the same time, and what was claimed when one was killed.
    assert!(stats.store.file_bytes < 160 * MIB, "the file grows with each: {stats:?}");
}

/// A run that may warn, and its statistics.
fn warned(mut command: Command, directory: tempfile::TempDir, shown: String) -> (Outcome, Stats) {
    let stats_file = directory.path().join("stats");
    command.current_dir(directory.path());
    let outcome = finish(command, directory, Duration::from_secs(150), shown);
    let text = fs::read(&stats_file)
        .unwrap_or_else(|error| panic!("no statistics: {error}\n{}", outcome.report()));
    (outcome, serde_json::from_slice(&text).expect("statistics"))
}

/// `zpager run` without `--quiet`, over noise that has to be spilled.
fn noisy_words(store: &Path, more: &[&str]) -> Vec<String> {
    let mut words: Vec<String> =
        ["run", "--memory", "24M", "--stats", "stats", "--store"].map(String::from).to_vec();
    words.push(store.display().to_string());
    words.extend(more.iter().map(ToString::to_string));
    words.push("--".into());
    words.push(victims::build("field", &[]).display().to_string());
    words.extend([victims::seed().as_str(), "96", "noise", "2"].map(String::from));
    words
}

/// The program's output is right, and the failure is told in one warning.
fn expect_told_once(outcome: &Outcome, cause: &[&str]) {
    let free = field("96", "noise", "2").free();
    assert_eq!(outcome.ending, Ending::Exited(0), "{}", outcome.report());
    assert_eq!(outcome.stdout, free.stdout, "{}", outcome.report());
    let told = outcome.stderr.lines().filter(|line| {
        line.contains("warning") && cause.iter().any(|word| line.to_lowercase().contains(word))
    });
    assert_eq!(told.count(), 1, "not one warning with one of {cause:?}\n{}", outcome.report());
}

#[test]
fn a_store_that_is_full_loses_nothing() {
    let directory = places::scratch();
    let mut command = Command::new(places::zpager());
    command.args(noisy_words(directory.path(), &["--store-size", "16M"]));
    let (outcome, stats) = warned(command, directory, "zpager run --store-size 16M".into());
    assert!(stats.store.file_bytes <= 16 * MIB, "{stats:?}");
    expect_told_once(&outcome, &["full", "store-size"]);
}

/// Gives up quietly where a file system cannot be mounted.
#[test]
fn a_file_system_that_is_full_loses_nothing() {
    let directory = places::scratch();
    let disk = directory.path().join("small");
    let image = directory.path().join("image");
    fs::create_dir(&disk).expect("a mount point");
    let Some(_mounted) = Mounted::small(&image, &disk) else {
        println!("skipped: no small file system can be mounted here");
        return;
    };
    let mut command = Command::new(places::zpager());
    command.args(noisy_words(&disk, &["--store-size", "1G"]));
    let other = places::scratch();
    let (outcome, _) = warned(command, other, "zpager run on a full file system".into());
    expect_told_once(&outcome, &["no space", "full"]);
}

/// A loop mount of 16 MiB that goes when the value is dropped.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn small(image: &Path, at: &'a Path) -> Option<Self> {
        let file = fs::File::create(image).ok()?;
        file.set_len(16 * MIB).ok()?;
        let run = |program: &str, words: &[&Path]| {
            let mut command = Command::new(program);
            command.args(words).stdout(std::process::Stdio::null());
            command.stderr(std::process::Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        let loops = ["-o", "loop"].map(Path::new);
        let made = run("mkfs.ext4", &["-q".as_ref(), "-F".as_ref(), image]);
        let mounted = made && run("mount", &[loops[0], loops[1], image, at]);
        mounted.then_some(Mounted(at))
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_limit_on_file_sizes_loses_nothing() {
    let directory = places::scratch();
    let script = format!("ulimit -f 20000; exec {} \"$@\"", places::zpager().display());
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh"]).args(noisy_words(directory.path(), &[]));
    let (outcome, _) = warned(command, directory, "ulimit -f; zpager run".into());
    expect_told_once(&outcome, &["file too large", "full", "too large"]);
}

#[test]
fn without_a_store_a_budget_that_cannot_be_held_is_told() {
    let directory = places::scratch();
    let mut command = Command::new(places::zpager());
    command.args(noisy_words(Path::new("none"), &[]));
    let (outcome, stats) = warned(command, directory, "zpager run --store none".into());
    assert_eq!(stats.store.written_bytes, 0, "{stats:?}");
    expect_told_once(&outcome, &["budget"]);
}

#[test]
fn without_a_store_what_fits_stays_in_ram() {
    let setup = Setup::of_mib(24).store(Store::None);
    let managed = compare(&field("96", "words", "2"), &setup);
    let store = &managed.stats.store;
    assert_eq!((store.writes, store.file_bytes), (0, 0), "{store:?}");
}
