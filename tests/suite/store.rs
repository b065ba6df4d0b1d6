//! The cold tier: what does not fit goes to disk in large writes, and a store that fails loses nothing.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use zpager_tests::job::{finish, until};
use zpager_tests::setup::MIB;
use zpager_tests::{Ending, Job, Lift, Managed, Outcome, Setup, Start, Stats, Store, compare};
use zpager_tests::{places, text, victims};

/// The least that a write to the store may be on average.
const LEAST_WRITE_BYTES: u64 = 128 << 10;
/// What is written at once, mostly.
const CLUSTER_BYTES: u64 = 256 << 10;

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
        let store = &stats.store;
        // Of pages that shrink to a tenth, as these do, the records' heads take 4 %. When the program is
        // held up decides how much is cleaned, whose pages are written once more: one or two clusters.
        let cleaned_bytes = 2 * CLUSTER_BYTES;
        let paged_bytes = store.written_bytes.saturating_sub(cleaned_bytes);
        assert!(paged_bytes * 100 <= store.page_bytes * 105, "{store:?}");
        assert!(store.capacity_gain >= 1.5, "{store:?}");
    }
}

/// Nobody waits for it, and 256 MiB are kept for what is written next.
#[test]
fn the_disk_has_back_what_is_free() {
    const MOST_BYTES: u64 = 256 << 20;
    let directory = places::scratch();
    let script = "import mmap, os
area = mmap.mmap(-1, 360 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, len(area), 1 << 20):
    area[at:at + (1 << 20)] = os.urandom(1 << 20)
input('filled\\n')
area.close()
input('freed\\n')";
    let job = Job::new("/usr/bin/python3").arguments(["-c", script]);
    let setup = Setup::of_mib(24).start(Start::FirstInstruction);
    let mut command =
        job.managed_command(&setup, directory.path(), &directory.path().join("stats"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut run = command.spawn().expect("the command");
    let mut said = BufReader::new(run.stdout.take().expect("a pipe")).lines();
    let mut next = run.stdin.take().expect("a pipe");
    let bytes_on_disk = || {
        let files = places::open_files_in(run.id(), directory.path());
        let lengths = files.iter().map(|file| fs::metadata(file).expect("open").blocks() * 512);
        lengths.sum::<u64>()
    };
    assert_eq!(said.next().expect("a line").expect("read"), "filled");
    assert!(bytes_on_disk() > MOST_BYTES + 32 * MIB, "{}", bytes_on_disk());
    next.write_all(b"\n").expect("it reads");
    assert_eq!(said.next().expect("a line").expect("read"), "freed");
    until(Duration::from_secs(30), "holes", || bytes_on_disk() <= MOST_BYTES + MIB);
    assert!(bytes_on_disk() > MOST_BYTES / 2, "{}", bytes_on_disk());
    next.write_all(b"\n").expect("it reads");
    assert!(run.wait().expect("its end").success());
}

/// By what `default` goes until something was read.
#[test]
fn what_a_read_takes_is_measured_before_there_is_one() {
    for (start, store) in [
        (Start::FirstInstruction, Store::Disk),
        (Start::Pressure, Store::Disk),
        (Start::FirstInstruction, Store::None),
    ] {
        let setup = Setup::of_mib(24).start(start).store(store);
        let managed = compare(&field("64", "words", "4"), &setup);
        let expected_ns = managed.stats.store.expected_read_ns;
        assert_eq!(expected_ns > 0, store == Store::Disk, "{expected_ns} ns, {start:?}");
    }
}

/// What is only read leaves again as it came; what was written after it was read, by whomever and
/// however, leaves as it is then. The hazards have more ways.
#[test]
fn what_was_not_written_leaves_without_a_write() {
    let setup = Setup::of_mib(16).start(Start::FirstInstruction);
    for setup in [setup.clone(), setup.encrypted()] {
        let managed = compare(&victims::job("clean"), &setup);
        expect_spilled(&managed);
        let stats = &managed.stats;
        assert!(stats.store.clean_drops > stats.swapped_out_pages / 3, "{stats:?}");
        assert!(
            stats.faults.clean > 0 && stats.faults.clean < stats.store.clean_drops,
            "{stats:?}"
        );
    }
}

/// A walk over a table of pointers is foretold, and what is foretold is wanted, or is not read any more; what is next to
/// certain to be wanted is not faulted on.
#[test]
fn pages_to_which_pointers_lead_are_read_before_they_are_wanted() {
    let job = victims::job("pointers");
    let setup = Setup::of_mib(20).start(Start::FirstInstruction);
    let without = compare(&job, &setup.clone().set("default.pointers=off")).stats;
    assert_eq!(without.store.foretold_reads, 0);
    for lift in [Lift::Move, Lift::Guards] {
        let Stats { store, faults, .. } = compare(&job, &setup.clone().lift(lift)).stats;
        assert!(store.foretold_used_reads * 3 > faults.spilled, "{store:?}, {faults:?}");
        assert!(store.foretold_used_reads * 3 > store.foretold_reads * 2, "{store:?}");
        assert!(store.foretold_reads <= store.reads, "{store:?}");
        assert!(faults.spilled * 10 < without.faults.spilled * 9, "{faults:?}, {without:?}");
    }
}

/// What the pool has no place for stays where it is, and the program goes on at its pace: it is lifted and
/// put back now and then, not at each fault.
#[test]
fn what_fits_nowhere_stays_in_ram() {
    let setup = Setup::of_mib(16).start(Start::FirstInstruction).store(Store::None);
    for lift in [Lift::Move, Lift::Stretches, Lift::Copy] {
        let job = field("128", "noise", "1").limit_seconds(60);
        let managed = job.managed(&setup.clone().lift(lift));
        managed.expect_like(&job.free());
        assert!(!managed.stats.is_within_budget(), "{:?}", managed.stats);
        let (out, pages) = (managed.stats.swapped_out_pages, 128 * MIB / 4096);
        assert!(out < 4 * pages, "{out} pages left: {:?}", managed.stats);
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

/// One program, a parent and its child, and programs that one starts after the other: all of them
/// read what they, or who forked them, have encrypted.
#[test]
fn an_encrypted_store_gives_back_what_it_got() {
    let setup = Setup::of_mib(24).start(Start::FirstInstruction).encrypted();
    expect_spilled(&compare(&field("96", "noise", "2"), &setup));
    expect_spilled(&compare(&field("96", "noise", "2"), &setup.clone().start(Start::Pressure)));
    let program = victims::build("field", &[]);
    let both = Job::new("/bin/sh").arguments(["-c", "$0 1 64 noise 1 && $0 2 64 noise 1"]);
    expect_spilled(&compare(&both.argument(program), &setup));
    let small = Setup::of_mib(16).start(Start::FirstInstruction).encrypted();
    expect_spilled(&compare(&victims::job("inherit"), &small));
    expect_spilled(&compare(&victims::job("readers"), &small));
    let managed = compare(&field("256", "words", "1"), &small);
    expect_spilled(&managed);
    let store = &managed.stats.store;
    assert!(store.written_bytes * 100 <= store.page_bytes * 105, "{store:?}");
}

/// By a denser codec than the pool's, through all that becomes of pages in the store: read, dropped
/// by their clean copies, shared with a child, encrypted, and in the layouts of the designs.
#[test]
fn pages_that_were_compressed_once_more_come_back() {
    let small = Setup::of_mib(16).start(Start::FirstInstruction);
    let words = field("256", "words", "1");
    let plain = compare(&words, &small.clone().codec("lz4").store_codec("none")).stats;
    assert_eq!(plain.store.recompressed_pages, 0, "{plain:?}");
    // A tag of 16 bytes is more to pages as short as these.
    for (codec, setup, written_percent_max) in [
        ("zstd", small.clone(), 105),
        ("zstd-dict", small.clone().encrypted(), 107),
        ("zstd-3", small.clone().start(Start::Pressure), 105),
    ] {
        let managed = compare(&words, &setup.codec("lz4").store_codec(codec));
        expect_spilled(&managed);
        let (stats, store) = (&managed.stats, &managed.stats.store);
        // Some of the victim's pages do not shrink at all.
        assert!(store.recompressed_pages * 4 > stats.spilled_pages * 3, "{codec}: {stats:?}");
        let before_bytes = store.page_bytes + store.recompressed_saved_bytes;
        assert!(store.page_bytes * 8 <= before_bytes * 7, "{codec}: {stats:?}");
        let most_bytes = store.page_bytes * written_percent_max / 100;
        assert!(store.written_bytes <= most_bytes, "{codec}: {stats:?}");
        assert!(store.capacity_gain > plain.store.capacity_gain, "{codec}: {stats:?}");
    }
    let small = small.store_codec("zstd");
    // What the pool's codec does not shrink is tried, too; noise stays as it is.
    for setup in [small.clone(), small.clone().encrypted()] {
        let pixels = compare(&field("64", "pixels", "1"), &setup);
        expect_spilled(&pixels);
        let (stats, store) = (&pixels.stats, &pixels.stats.store);
        assert!(stats.incompressible_pages * 2 > stats.swapped_out_pages, "{stats:?}");
        assert!(store.recompressed_pages * 4 > stats.spilled_pages * 3, "{stats:?}");
        let before_bytes = store.page_bytes + store.recompressed_saved_bytes;
        assert!(store.page_bytes * 5 < before_bytes * 3, "{stats:?}");
        let noise = compare(&field("64", "noise", "1"), &setup).stats;
        assert!(noise.store.recompressed_pages * 100 < noise.spilled_pages, "{noise:?}");
    }
    let clean = compare(&victims::job("clean"), &small);
    assert!(clean.stats.store.clean_drops > clean.stats.swapped_out_pages / 3, "{clean:?}");
    expect_spilled(&compare(&victims::job("inherit"), &small));
    for design in ["cervera", "hp", "castro", "zswap"] {
        let managed = compare(&words, &small.clone().design(design));
        assert!(managed.stats.store.recompressed_pages > 0, "{design}: {:?}", managed.stats);
        let unasked = Setup { store_codec: None, ..small.clone() };
        let managed = compare(&field("64", "words", "1"), &unasked.design(design));
        assert_eq!(managed.stats.store.recompressed_pages, 0, "{design}: {:?}", managed.stats);
    }
}

/// From RAM, where they are as well, and from the file once that was needed: in one program, encrypted,
/// dropped by their clean copies, and shared with a child.
#[test]
fn pages_that_are_written_ahead_come_back() {
    let small = Setup::of_mib(16).start(Start::FirstInstruction);
    let ahead = Setup { set: vec!["default.threshold=20%".to_owned()], ..small };
    let words = field("256", "words", "1");
    for setup in [ahead.clone(), ahead.clone().encrypted(), ahead.clone().start(Start::Pressure)] {
        let managed = compare(&words, &setup);
        expect_spilled(&managed);
        let store = &managed.stats.store;
        assert!(store.ahead_pages > 0 && store.ahead_returned_pages > 0, "{store:?}");
    }
    let clean = compare(&victims::job("clean"), &ahead);
    assert!(clean.stats.store.clean_drops > 0, "{:?}", clean.stats);
    expect_spilled(&compare(&victims::job("inherit"), &ahead));
    let directory = places::scratch();
    let mut command = Command::new(places::zpager());
    let flags = ["--store-threshold", "20%"];
    command.args(field_words("16M", directory.path(), ["256", "words", "1"], &flags));
    let (outcome, stats) = warned(command, directory, "zpager run --store-threshold 20%".into());
    expect_right(&outcome, &words);
    assert!(stats.store.ahead_pages > 0, "{stats:?}");
}

/// Whatever the time it takes: beyond the few pages that are always tried.
#[test]
fn a_store_that_is_nearly_full_gets_pages_compressed_once_more() {
    let directory = places::scratch();
    let mut command = Command::new(places::zpager());
    // Nearly all of it resident, so that the store is used at all.
    let flags = ["--codec", "lz4", "--set", "default.split=93%", "--store-size", "8M"];
    command.args(field_words("48M", directory.path(), ["160", "words", "1"], &flags));
    let (outcome, stats) = warned(command, directory, "zpager run --store-size 8M".into());
    expect_right(&outcome, &field("160", "words", "1"));
    assert!(stats.store.recompressed_pages * 20 > stats.spilled_pages, "{stats:?}");
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

/// `zpager run` without `--quiet`, over a field.
fn field_words(memory: &str, store: &Path, field: [&str; 3], more: &[&str]) -> Vec<String> {
    let mut words: Vec<String> =
        ["run", "--memory", memory, "--stats", "stats", "--store"].map(String::from).to_vec();
    words.push(store.display().to_string());
    words.extend(more.iter().map(ToString::to_string));
    words.push("--".into());
    words.push(victims::build("field", &[]).display().to_string());
    words.push(victims::seed());
    words.extend(field.map(String::from));
    words
}

/// Noise that has to be spilled.
const NOISE: [&str; 3] = ["96", "noise", "2"];

fn noise() -> Job {
    victims::job("field").arguments(NOISE)
}

fn noisy_words(memory: &str, store: &Path, more: &[&str]) -> Vec<String> {
    field_words(memory, store, NOISE, more)
}

/// The program's output is right.
fn expect_right(outcome: &Outcome, job: &Job) {
    assert_eq!(outcome.ending, Ending::Exited(0), "{}", outcome.report());
    assert_eq!(outcome.stdout, job.free().stdout, "{}", outcome.report());
}

/// The program's output is right, and the failure is told in one warning.
fn expect_told_once(outcome: &Outcome, cause: &[&str]) {
    expect_right(outcome, &noise());
    let told = outcome.stderr.lines().filter(|line| {
        line.contains("warning") && cause.iter().any(|word| line.to_lowercase().contains(word))
    });
    assert_eq!(told.count(), 1, "not one warning with one of {cause:?}\n{}", outcome.report());
}

/// With more than the pool has places for, too: four times the budget.
#[test]
fn a_store_that_is_full_loses_nothing() {
    let directory = places::scratch();
    let mut command = Command::new(places::zpager());
    command.args(noisy_words("16M", directory.path(), &["--store-size", "16M"]));
    let (outcome, stats) = warned(command, directory, "zpager run --store-size 16M".into());
    assert!(stats.store.file_bytes <= 16 * MIB, "{stats:?}");
    expect_told_once(&outcome, &["full", "store-size"]);
}

/// Pages that shrink, and that neither the store nor the pool has a place for: what the store might take back
/// is not sought at each fault.
#[test]
fn a_full_store_and_a_full_pool_hold_nobody_up() {
    let directory = places::scratch();
    let mut command = Command::new(places::zpager());
    let flags = ["--store-size", "8M"];
    command.args(field_words("16M", directory.path(), ["400", "words", "1"], &flags));
    let (outcome, stats) = warned(command, directory, "zpager run --store-size 8M".into());
    expect_right(&outcome, &field("400", "words", "1"));
    assert!(!stats.is_within_budget() && stats.store.file_bytes <= 8 * MIB, "{stats:?}");
}

/// What is dead in the file makes room for what is alive: the program's pages just fit.
#[test]
fn a_store_that_is_nearly_all_alive_is_not_full() {
    let directory = places::scratch();
    let mut command = Command::new(places::zpager());
    command.args(noisy_words("24M", directory.path(), &["--store-size", "84M"]));
    let (outcome, stats) = warned(command, directory, "zpager run --store-size 84M".into());
    expect_right(&outcome, &noise());
    assert!(!outcome.stderr.contains("warning"), "{}", outcome.report());
    assert!(stats.is_within_budget() && stats.store.file_bytes <= 84 * MIB, "{stats:?}");
    assert!(stats.store.capacity_gain > 0.8, "{stats:?}");
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
    command.args(noisy_words("24M", &disk, &["--store-size", "1G"]));
    let other = places::scratch();
    let (outcome, _) = warned(command, other, "zpager run on a full file system".into());
    expect_told_once(&outcome, &["no space", "full"]);
}

/// Two stores by priority, the first of which is soon full.
#[test]
fn the_next_store_is_used_when_one_is_full() {
    let directory = places::scratch();
    let [first, second] = ["first", "second"].map(|name| directory.path().join(name));
    fs::create_dir(&first).expect("a directory");
    fs::create_dir(&second).expect("a directory");
    let stores = format!("{},{}:prio=2:size=16M", second.display(), first.display());
    let mut command = Command::new(places::zpager());
    command.args(noisy_words("24M", Path::new(&stores), &[]));
    let (outcome, stats) = warned(command, directory, "zpager run --store of two".into());
    expect_right(&outcome, &noise());
    assert!(!outcome.stderr.contains("warning"), "{}", outcome.report());
    assert!(stats.store.file_bytes > 16 * MIB, "{stats:?}");
}

/// A file system that is full before its store is.
#[test]
fn the_next_store_takes_over_when_one_fails() {
    let directory = places::scratch();
    let [small, large] = ["small", "large"].map(|name| directory.path().join(name));
    fs::create_dir(&small).expect("a mount point");
    fs::create_dir(&large).expect("a directory");
    let Some(_mounted) = Mounted::small(&directory.path().join("image"), &small) else {
        println!("skipped: no small file system can be mounted here");
        return;
    };
    let stores = format!("{}:size=1G,{}:size=1G", small.display(), large.display());
    let mut command = Command::new(places::zpager());
    command.args(noisy_words("24M", Path::new(&stores), &[]));
    let (outcome, _) = warned(command, places::scratch(), "zpager run, one store full".into());
    expect_told_once(&outcome, &["no space", "full", "stay in ram"]);
    assert!(outcome.stderr.contains("store 1 of --store"), "{}", outcome.report());
}

/// The device alone has no room for all; its first MiB, where signatures lie, stays as it is.
#[test]
fn a_block_device_is_a_store() {
    let directory = places::scratch();
    let image = directory.path().join("image");
    let Some(device) = LoopDevice::over(&image, 24 * MIB) else {
        println!("skipped: no loop devices here");
        return;
    };
    let stores = format!("{}:prio=1,{}", device.0, directory.path().display());
    let mut command = Command::new(places::zpager());
    command.args(noisy_words("24M", Path::new(&stores), &[]));
    let (outcome, stats) = warned(command, places::scratch(), "zpager run on a device".into());
    expect_right(&outcome, &noise());
    assert!(stats.store.file_bytes > 22 * MIB, "{stats:?}");
    drop(device);
    let content = fs::read(&image).expect("the image");
    let holds = |bytes: &[u8]| bytes.iter().any(|byte| *byte != 0);
    assert!(!holds(&content[..MIB as usize]) && !holds(&content[content.len() - MIB as usize..]));
    assert!(holds(&content), "nothing was written to the device");
}

#[test]
fn a_device_that_is_not_empty_or_not_free_is_refused() {
    let directory = places::scratch();
    let disk = directory.path().join("disk");
    fs::create_dir(&disk).expect("a mount point");
    let Some(device) = LoopDevice::over(&directory.path().join("image"), 16 * MIB) else {
        println!("skipped: no loop devices here");
        return;
    };
    let refused = |said: &str| {
        let mut command = Command::new(places::zpager());
        let output = command.args(["run", "--store", &device.0, "true"]).output().expect("runs");
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), message.lines().count()), (Some(125), 1), "{message}");
        assert!(message.contains(said), "{message}");
    };
    if tool("mkfs.ext4", &["-q", &device.0]).is_none() {
        println!("skipped: no mkfs.ext4 here");
        return;
    }
    refused("holds an ext file system");
    if tool("mount", &[&device.0, &disk.display().to_string()]).is_some() {
        let _mounted = Mounted(&disk);
        refused("mounted on ");
    }
}

/// A loop device over a file, which is taken apart when the value is dropped.
struct LoopDevice(String);

impl LoopDevice {
    fn over(image: &Path, bytes: u64) -> Option<Self> {
        fs::File::create(image).ok()?.set_len(bytes).ok()?;
        let image = image.display().to_string();
        Some(LoopDevice(tool("losetup", &["--find", "--show", &image])?))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        tool("losetup", &["--detach", &self.0]);
    }
}

/// What an administrator's tool prints; nothing where it fails.
fn tool(name: &str, words: &[&str]) -> Option<String> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new(name).args(words).env("PATH", path).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
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

/// 84 MiB are enough for what does not fit RAM, and too few for the copies of what does.
#[test]
fn copies_do_not_fill_the_store() {
    let directory = places::scratch();
    let mut command = Command::new(places::zpager());
    command.args(noisy_words("24M", directory.path(), &["--store-size", "84M"]));
    let (outcome, stats) = warned(command, directory, "zpager run --store-size 84M".into());
    expect_right(&outcome, &noise());
    assert!(!outcome.stderr.contains("warning"), "{}", outcome.report());
    let kept_pages = stats.faults.clean + stats.store.clean_drops;
    assert!(kept_pages > 0 && stats.store.file_bytes <= 84 * MIB, "{stats:?}");
}

#[test]
fn a_limit_on_file_sizes_loses_nothing() {
    let directory = places::scratch();
    let script = format!("ulimit -f 20000; exec {} \"$@\"", places::zpager().display());
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh"]).args(noisy_words("24M", directory.path(), &[]));
    let (outcome, _) = warned(command, directory, "ulimit -f; zpager run".into());
    expect_told_once(&outcome, &["file too large", "full", "too large"]);
}

/// The same where the program sets it, to what no page ends at.
#[test]
fn a_program_s_own_limit_on_file_sizes_is_named() {
    let directory = places::scratch();
    let mut words = noisy_words("24M", directory.path(), &[]);
    let at = 1 + words.iter().position(|word| word == "--").expect("options end");
    let limited = ["sh", "-c", "ulimit -f 20001; exec \"$@\"", "sh"].map(String::from);
    words.splice(at..at, limited);
    let mut command = Command::new(places::zpager());
    command.args(words);
    let (outcome, _) = warned(command, directory, "zpager run -- ulimit -f".into());
    expect_told_once(&outcome, &["ulimit -f"]);
}

#[test]
fn without_a_store_a_budget_that_cannot_be_held_is_told() {
    let directory = places::scratch();
    let mut command = Command::new(places::zpager());
    command.args(noisy_words("24M", Path::new("none"), &[]));
    let (outcome, stats) = warned(command, directory, "zpager run --store none".into());
    assert_eq!(stats.store.written_bytes, 0, "{stats:?}");
    expect_told_once(&outcome, &["budget"]);
}

/// Text of which the fastest codec leaves twice what LZ4 does, and that has room in RAM as LZ4 leaves it.
#[test]
fn text_is_compressed_by_what_finds_repetitions_where_that_spares_reads() {
    let text = |codec: Option<&str>| {
        let setup = Setup::of_mib(20).start(Start::FirstInstruction);
        let setup = codec.into_iter().fold(setup, Setup::codec);
        compare(&field("56", "text", "6"), &setup).stats
    };
    let stats = text(None);
    let is_word = stats.codec == "word";
    // Zstd finds them, too, and is taken in place of both where the pool has room for all with it.
    let dense_pages = if is_word { stats.dense_pages } else { 0 };
    let repeats_pages = stats.repeats_pages + dense_pages;
    assert_eq!(repeats_pages > stats.swapped_out_pages / 4, is_word, "{stats:?}");
    // Who names a codec has no other.
    let by_word = text(Some("word"));
    assert_eq!(by_word.repeats_pages, 0, "{by_word:?}");
    let written_bytes = [stats, by_word].map(|stats| stats.store.written_bytes);
    assert!(!is_word || written_bytes[0] * 3 < written_bytes[1] * 2, "{written_bytes:?}");
}

/// What has room in RAM has fewer bytes to gain than time to lose.
#[test]
fn text_that_has_room_in_ram_is_compressed_by_the_fastest_codec() {
    let setup = Setup::of_mib(48).start(Start::FirstInstruction);
    let stats = compare(&field("56", "text", "3"), &setup).stats;
    assert!(stats.repeats_pages < stats.swapped_out_pages / 4, "{stats:?}");
}

/// Text of which the fastest codec leaves more than the budget.
#[test]
fn without_a_store_the_pool_takes_a_denser_codec() {
    let lines = places::scratch();
    let file = lines.path().join("lines");
    fs::write(&file, text::lines(200_000)).expect("the lines");
    let job =
        Job::new("/usr/bin/sort").arguments(["--parallel=1", "--buffer-size=300M"]).argument(&file);
    let setup = Setup::of_mib(8).store(Store::None);
    let managed = compare(&job, &setup);
    let stats = &managed.stats;
    assert!(stats.dense_pages > stats.swapped_out_pages / 2, "{stats:?}");
    assert!(stats.peak_bytes < stats.budget_bytes + (1 << 20), "{stats:?}");
}

#[test]
fn without_a_store_what_fits_stays_in_ram() {
    let setup = Setup::of_mib(24).store(Store::None);
    let managed = compare(&field("96", "words", "2"), &setup);
    let store = &managed.stats.store;
    assert_eq!((store.writes, store.file_bytes), (0, 0), "{store:?}");
}
