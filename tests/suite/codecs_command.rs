//! What `zpager codecs` promises: figures for known pages, pages of running programs, refusals, whole files.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use tempfile::TempDir;
use zpager_tests::job::{until, wait};
use zpager_tests::{Ending, places, victims};

const PAGE_BYTES: usize = 4096;

const PATIENCE: Duration = Duration::from_secs(60);

/// A row of `--json`.
#[derive(Debug, Deserialize)]
struct Row {
    codec: String,
    pages: usize,
    same_filled_pages: usize,
    incompressible_pages: usize,
    original_bytes: usize,
    compressed_bytes: usize,
    compress_ns_mean: Option<f64>,
    compress_ns_p99: Option<u64>,
    decompress_ns_mean: Option<f64>,
    decompress_ns_p99: Option<u64>,
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

    /// Waits until a program has said that it is.
    fn until_ready(&self, what: &str) {
        let said = || fs::read_to_string(self.path("said")).unwrap_or_default();
        until(PATIENCE, what, || said().contains("ready"));
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).expect("a file");
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(places::zpager());
        command.arg("codecs").args(words).current_dir(self.0.path()).stdin(Stdio::null());
        command
    }

    fn codecs(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("zpager runs")
    }

    /// Runs with `--json rows` and gives the rows and the output.
    fn rows(&self, words: &[&str]) -> (Vec<Row>, Output) {
        let output = self.codecs(&[&["--json", "rows"], words].concat());
        assert_eq!(output.status.code(), Some(0), "{words:?}: {output:?}");
        let text = fs::read(self.path("rows")).expect("the rows");
        (serde_json::from_slice(&text).expect("an array of rows"), output)
    }

    /// The names of all files in the directory.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).expect("listed").flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

fn text(pages: usize) -> Vec<u8> {
    let words =
        (0u32..).flat_map(|line| format!("line {line} of a text that repeats\n").into_bytes());
    words.take(pages * PAGE_BYTES).collect()
}

fn noise(pages: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_ne_bytes()
    });
    words.flatten().take(pages * PAGE_BYTES).collect()
}

/// Pages of zeros, text and noise, each kind as many as asked for.
fn pages(zeros: usize, texts: usize, noises: usize) -> Vec<u8> {
    [vec![0; zeros * PAGE_BYTES], text(texts), noise(noises)].concat()
}

#[test]
fn pages_of_a_file() {
    let playground = Playground::new();
    playground.write("file", &pages(7, 20, 5));
    let (rows, output) = playground.rows(&["file"]);
    let names: Vec<&str> = rows.iter().map(|row| row.codec.as_str()).collect();
    assert!(["copy", "lz4", "zstd", "word"].iter().all(|name| names.contains(name)), "{names:?}");
    for row in &rows {
        assert_eq!((row.pages, row.same_filled_pages), (25, 7), "{row:?}");
        assert_eq!(row.original_bytes, 25 * PAGE_BYTES, "{row:?}");
        assert!(row.incompressible_pages >= 5, "{row:?}");
        assert!(row.compressed_bytes >= 5 * PAGE_BYTES, "{row:?}");
        assert!(row.compress_ns_mean.is_some_and(|ns| ns >= 1.0), "{row:?}");
        assert!(row.decompress_ns_mean.is_some_and(|ns| ns >= 1.0), "{row:?}");
        assert!(row.compress_ns_p99 >= Some(1) && row.decompress_ns_p99 >= Some(1), "{row:?}");
    }
    let row = |name: &str| rows.iter().find(|row| row.codec == name).expect("a row");
    assert_eq!(row("copy").compressed_bytes, 25 * PAGE_BYTES);
    assert_eq!(row("lz4").incompressible_pages, 5);
    assert!(row("lz4").compressed_bytes < 11 * PAGE_BYTES, "{:?}", row("lz4"));
    let text = stdout(&output);
    assert!(text.starts_with("32 of 32 pages, 7 of them"), "{text}");
    assert!(text.lines().last().is_some_and(|line| line.starts_with("Take ")), "{text}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

/// All but the sentence at the end fits 80 columns.
#[test]
fn a_table_and_histograms_for_a_terminal() {
    let playground = Playground::new();
    playground.write("file", &pages(1, 40, 3));
    let text = stdout(&playground.codecs(&["file", "--codec", "lz4,word"]));
    let lines: Vec<&str> = text.lines().collect();
    let (_, before) = lines.split_last().expect("lines");
    assert!(before.iter().all(|line| line.chars().count() <= 80), "{text}");
    for name in ["lz4", "word"] {
        // In the table and in three histograms.
        assert_eq!(before.iter().filter(|line| line.starts_with(name)).count(), 4, "{text}");
    }
    assert!(!text.contains("zstd"), "{text}");
}

#[test]
fn a_large_file_is_sampled_by_seed() {
    let playground = Playground::new();
    playground.write("file", &pages(100, 300, 100));
    let take = |seed: &str| {
        let (rows, output) =
            playground.rows(&["file", "--pages", "60", "--seed", seed, "--codec", "lz4"]);
        assert_eq!(rows[0].pages + rows[0].same_filled_pages, 60, "{rows:?}");
        let first = stdout(&output).lines().next().map(str::to_owned).expect("a line");
        assert!(first.starts_with("60 of 500 pages") && first.ends_with(&format!("seed {seed}")));
        (rows[0].pages, rows[0].compressed_bytes)
    };
    assert_eq!(take("4"), take("4"));
    assert_ne!(take("4"), take("5"));
}

#[test]
fn what_is_no_whole_page_is_left_out_and_told() {
    let playground = Playground::new();
    playground.write("file", &[text(2), b"behind".to_vec()].concat());
    let (rows, output) = playground.rows(&["file", "--codec", "lz4"]);
    assert_eq!(rows[0].pages, 2);
    assert!(stderr(&output).contains("last 6 bytes"), "{output:?}");
}

#[test]
fn where_every_page_is_same_filled_there_are_no_times() {
    let playground = Playground::new();
    playground.write("file", &[vec![0; 3 * PAGE_BYTES], vec![7; PAGE_BYTES]].concat());
    let (rows, output) = playground.rows(&["file", "--plot", "plot.svg"]);
    assert!(rows.iter().all(|row| row.pages == 0 && row.same_filled_pages == 4), "{rows:?}");
    assert!(rows.iter().all(|row| row.compress_ns_mean.is_none() && row.compressed_bytes == 0));
    assert!(stdout(&output).contains("same-filled and none reaches it"), "{output:?}");
    assert!(playground.path("plot.svg").is_file());
}

#[test]
fn a_plot_is_well_formed_and_names_every_codec() {
    let playground = Playground::new();
    // A name that has to be escaped.
    playground.write("<a> & b", &pages(1, 30, 2));
    let (rows, _) = playground.rows(&["<a> & b", "--plot", "plot.svg"]);
    let svg = fs::read_to_string(playground.path("plot.svg")).expect("the plot");
    let document = roxmltree::Document::parse(&svg).expect("well-formed XML");
    assert_eq!(document.root_element().tag_name().name(), "svg");
    let texts: Vec<&str> =
        document.descendants().filter_map(|node| node.text()).map(str::trim).collect();
    for row in &rows {
        assert!(texts.contains(&row.codec.as_str()), "{} is not in {texts:?}", row.codec);
    }
    for said in ["ratio", "time to compress a page", "time to decompress a page", "<a> & b"] {
        assert!(texts.iter().any(|text| text.contains(said)), "{said} is not in {texts:?}");
    }
    let lines = document
        .descendants()
        .filter(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "polyline")));
    assert!(lines.count() >= 3 * rows.len(), "{svg}");
    assert_eq!(playground.names(), ["<a> & b", "plot.svg", "rows"]);
}

/// A child that is killed when the test is done with it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `field` with so many MiB of a kind, once it has filled them.
fn field(playground: &Playground, mib: &str, kind: &str) -> Running {
    let output = fs::File::create(playground.path("said")).expect("a file");
    let mut command = Command::new(victims::build("field", &[]));
    command.args(["1", mib, kind, "forever"]).current_dir(playground.0.path()).stdout(output);
    let running = Running(command.spawn().expect("the victim starts"));
    playground.until_ready("the victim fills its memory");
    running
}

/// The anonymous memory of a process in RAM.
fn anonymous_bytes(pid: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it is running");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") << 10
}

#[test]
fn pages_of_a_running_process() {
    const MIB: usize = 24;
    let playground = Playground::new();
    for (kind, incompressible) in [("words", false), ("noise", true)] {
        let mut victim = field(&playground, "24", kind);
        let before = anonymous_bytes(victim.0.id());
        let pid = victim.0.id().to_string();
        let (rows, output) = playground.rows(&["--pid", &pid, "--codec", "lz4,word"]);
        assert_eq!(rows.len(), 2);
        for row in &rows {
            // What the C library holds besides is a few pages.
            assert!(
                (MIB * 256 - 64..MIB * 256 + 256).contains(&(row.pages + row.same_filled_pages)),
                "{row:?}"
            );
            let share = row.incompressible_pages as f64 / row.pages as f64;
            assert_eq!(share > 0.9, incompressible, "{kind}: {row:?}");
        }
        assert!(output.stderr.is_empty(), "{output:?}");
        assert!(victim.0.try_wait().expect("a child").is_none(), "the process goes on");
        let grown = anonymous_bytes(victim.0.id()).saturating_sub(before);
        assert!(grown < 1 << 20, "{grown} bytes were made present");
    }
}

/// Reserved memory that was never touched is neither read nor made.
#[test]
fn absent_pages_stay_absent() {
    let playground = Playground::new();
    let script = "import mmap,sys,time\nm=mmap.mmap(-1,1<<30,flags=mmap.MAP_PRIVATE|mmap.MAP_ANONYMOUS)\n\
                  m[:1<<20]=bytes(range(256))*4096\nprint('ready',flush=True)\ntime.sleep(60)";
    let output = fs::File::create(playground.path("said")).expect("a file");
    let Ok(child) = Command::new("python3").args(["-c", script]).stdout(output).spawn() else {
        println!("skipped: no python3");
        return;
    };
    let running = Running(child);
    playground.until_ready("python3 starts");
    let before = anonymous_bytes(running.0.id());
    let pid = running.0.id().to_string();
    let (rows, _) = playground.rows(&["--pid", &pid, "--codec", "lz4", "--pages", "262144"]);
    assert!(rows[0].pages >= 256 && rows[0].original_bytes < 128 << 20, "{rows:?}");
    assert!(anonymous_bytes(running.0.id()) < before + (1 << 20));
}

#[test]
fn pages_of_a_program_that_is_started() {
    let playground = Playground::new();
    let victim = victims::build("field", &[]);
    let victim = victim.to_str().expect("a path of text");
    let (rows, output) =
        playground.rows(&["--codec", "lz4", "--", victim, "1", "24", "words", "200"]);
    assert!(rows[0].pages > 20 << 8 >> 1, "drawn when it was large: {rows:?}");
    assert!(rows[0].compressed_bytes < rows[0].original_bytes / 2, "{rows:?}");
    assert!(stdout(&output).starts_with("ready\n"), "the program has its own output: {output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

/// Also what a shell starts is drawn from, and how it ended is told.
#[test]
fn descendants_are_drawn_from_and_the_status_is_told() {
    let playground = Playground::new();
    let victim = victims::build("field", &[]);
    let script = format!("{} 1 24 noise 200; exit 3", victim.display());
    let (rows, output) = playground.rows(&["--codec", "lz4", "--", "sh", "-c", &script]);
    assert!(rows[0].incompressible_pages > 20 << 8 >> 1, "{rows:?}");
    assert_eq!(stderr(&output), "zpager: sh: ended with status 3\n");
}

/// A signal that kills the program ends the command; one after which the program ends by itself does
/// not.
#[test]
fn a_signal_that_kills_the_program_ends_the_command() {
    let victim = victims::build("field", &[]);
    let field = format!("{} 1 24 words forever", victim.display());
    let mild = format!("trap 'kill $!; exit 0' TERM; {field} & wait");
    for (script, ending) in [
        (format!("exec {field}"), Ending::Killed(Signal::TERM.as_raw())),
        (mild, Ending::Exited(0)),
    ] {
        let playground = Playground::new();
        let said = fs::File::create(playground.path("said")).expect("a file");
        let mut command = Command::new(places::zpager());
        command.args(["codecs", "--codec", "lz4", "--json", "rows", "--", "sh", "-c", &script]);
        let mut zpager =
            command.current_dir(playground.0.path()).stdout(said).spawn().expect("zpager starts");
        playground.until_ready("the program has its memory");
        kill_process(Pid::from_child(&zpager), Signal::TERM).expect("zpager is there");
        assert_eq!(wait(&mut zpager, PATIENCE), Some(ending), "{script}");
        assert_eq!(playground.path("rows").exists(), ending == Ending::Exited(0), "{script}");
    }
}

#[test]
fn a_program_too_short_to_be_looked_at_is_told() {
    let playground = Playground::new();
    let output = playground.codecs(&["--json", "rows", "--", "true"]);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(125), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(
        message.contains("true: ended with status 0") && message.contains("--pid"),
        "{message}"
    );
    assert!(playground.names().is_empty());
}

/// One line, the status, and nothing that was not there before.
#[test]
fn bad_input_is_refused() {
    let playground = Playground::new();
    playground.write("file", &text(2));
    playground.write("short", b"less than a page");
    playground.write("empty", b"");
    fs::create_dir(playground.path("directory")).expect("a directory");
    let status = Command::new("mkfifo").arg(playground.path("pipe")).status();
    assert!(status.expect("mkfifo runs").success());
    let names = playground.names();
    let table = [
        ("", 2, "FILE"),
        ("--json", 2, "--json"),
        ("--unknown file", 2, "--unknown"),
        ("file other", 2, "other"),
        ("file --pid 1", 2, "one of"),
        ("file -- true", 2, "one of"),
        ("file --codec nonsense", 2, "nonsense"),
        ("file --codec lz4,", 2, "lz4"),
        ("file --pages 0", 2, "--pages 0"),
        ("file --pages many", 2, "many"),
        ("file --seed -1", 2, "--seed -1"),
        ("file --json nowhere/rows", 2, "nowhere/rows"),
        ("file --json directory", 2, "directory"),
        ("file --plot nowhere/plot.svg", 2, "nowhere/plot.svg"),
        ("file --plot out --json out", 2, "one file"),
        ("missing --json rows --plot plot.svg", 2, "missing"),
        ("directory --json rows", 2, "directory"),
        ("short --json rows", 2, "4096"),
        ("empty --json rows", 2, "4096"),
        ("pipe --json rows", 2, "no plain file"),
        ("--pid 0", 2, "--pid 0"),
        ("--pid self", 2, "self"),
        ("--pid 8388608 --json rows", 2, "no such process"),
        ("--json rows -- ./missing", 127, "missing"),
        ("--json rows -- ./directory", 126, "directory"),
        ("--json rows -- ./file", 126, "not executable"),
    ];
    for (line, status, word) in table {
        let output = playground.codecs(&line.split_whitespace().collect::<Vec<_>>());
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(status), "{line}: {message}");
        assert_eq!(message.lines().count(), 1, "{line}: {message}");
        assert!(message.starts_with("zpager: ") && message.contains(word), "{line}: {message}");
        assert!(output.stdout.is_empty(), "{line}: {output:?}");
        assert_eq!(playground.names(), names, "{line}: something was left");
    }
}

#[test]
fn a_thread_of_the_kernel_has_no_memory() {
    let is_there = fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n");
    if !is_there || !rustix::process::geteuid().is_root() {
        println!("skipped: needs root, outside of a pid namespace");
        return;
    }
    let output = Playground::new().codecs(&["--pid", "2"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(stderr(&output).contains("no memory of its own"), "{output:?}");
}

/// What only root may read is told to others.
#[test]
fn what_may_not_be_read_is_told() {
    for words in [["--pid", "1"], ["--codec=lz4", "/etc/shadow"]] {
        let mut command = Command::new(places::zpager());
        command.arg("codecs").args(words).current_dir("/");
        if rustix::process::geteuid().is_root() {
            command.uid(65534);
        }
        let Ok(output) = command.output() else {
            println!("skipped: other users cannot reach the command");
            return;
        };
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.contains("may not be read") || message.contains("denied"), "{message}");
    }
}

/// A result that cannot be written whole leaves what was there before, and nothing else.
#[test]
fn a_failed_write_leaves_nothing() {
    let playground = Playground::new();
    playground.write("file", &text(4));
    let script = "ulimit -f 0; trap '' XFSZ; exec \"$0\" codecs file --codec lz4 --plot plot.svg --json rows";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(places::zpager()).current_dir(playground.0.path());
    let output = command.output().expect("a shell");
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert_eq!(stderr(&output).lines().count(), 1, "{output:?}");
    assert_eq!(playground.names(), ["file"]);
}

#[test]
fn help_is_shown() {
    let output = Playground::new().codecs(&["--help"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(
        ["--pid", "--plot", "--json", "--codec"].iter().all(|flag| text.contains(flag)),
        "{text}"
    );
}
