//! What `zpager run` promises on the command line: refusals, statuses, signals, statistics, summary.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use zpager_tests::job::{finish, until, wait};
use zpager_tests::{Ending, Job, Setup, Start, compare, places, victims};

const PATIENCE: Duration = Duration::from_secs(60);

/// A directory with things that cannot be run, and a program that tells when it was started.
struct Playground(TempDir);

impl Playground {
    fn new() -> Self {
        let playground = Playground(places::scratch());
        playground.write("program", "#!/bin/sh\ntouch started\n", 0o755);
        playground.write("not-executable", "#!/bin/sh\ntouch started\n", 0o644);
        playground.write("not-a-program", "\x01\x02 neither script nor program", 0o755);
        playground.write("no-interpreter", "#!/no/such/interpreter\n", 0o755);
        fs::create_dir(playground.path("directory")).expect("a directory");
        fs::write(playground.path("file"), "").expect("a file");
        fs::copy("/lib64/ld-linux-x86-64.so.2", playground.path("loader")).expect("a loader");
        playground
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str, mode: u32) {
        fs::write(self.path(name), text).expect("a file");
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).expect("its mode");
    }

    /// Runs `zpager` with the words of a line.
    fn zpager(&self, line: &str) -> Output {
        let mut command = Command::new(places::zpager());
        command.args(line.split_whitespace()).current_dir(self.0.path()).stdin(Stdio::null());
        command.output().expect("zpager runs")
    }
}

/// Checks that a line is refused with this status and one line, which holds `word`.
fn expect_refused(playground: &Playground, line: &str, status: i32, word: &str) {
    let output = playground.zpager(line);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "zpager {line}: {message}");
    assert_eq!(message.lines().count(), 1, "zpager {line}: {message}");
    assert!(message.starts_with("zpager: ") && message.contains(word), "zpager {line}: {message}");
    assert!(output.stdout.is_empty(), "zpager {line}: {output:?}");
    assert!(!playground.path("started").exists(), "zpager {line}: the program was started");
}

/// What a file is called neither makes several lines of a message nor reaches the terminal as it is.
#[test]
fn a_message_is_one_line_whatever_is_named() {
    for (words, status, shown) in [
        (&["run", "--", "/no/\nprogram"][..], 127, "/no/\\nprogram: "),
        (&["run", "--stats", "/no/\x1b[2Jstats", "--", "true"], 125, "/no/\\u{1b}[2Jstats: "),
        (&["codecs", "no\n\nfile"], 2, "no\\n\\nfile: "),
    ] {
        let output = Command::new(places::zpager()).args(words).output().expect("zpager runs");
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), message.lines().count()), (Some(status), 1), "{message}");
        assert!(message.contains(shown) && !message.contains('\x1b'), "{message}");
    }
}

#[test]
fn bad_input_is_refused_before_anything_starts() {
    let playground = Playground::new();
    let table = [
        ("run --codec nonsense -- ./program", 125, "nonsense"),
        ("run --codec= -- ./program", 125, "codec"),
        ("run --memory much -- ./program", 125, "much"),
        ("run --memory -5M -- ./program", 125, "-5M"),
        ("run --memory 5X -- ./program", 125, "5X"),
        ("run --memory 1.2.3G -- ./program", 125, "1.2.3G"),
        ("run --memory 99999999999999999999G -- ./program", 125, "99999999999999999999G"),
        ("run --memory 0 -- ./program", 125, "--memory"),
        ("run --memory 64K -- ./program", 125, "--memory"),
        ("run --memory 4095 -- ./program", 125, "--memory"),
        ("run --store nowhere/at/all -- ./program", 125, "nowhere/at/all"),
        ("run --store file -- ./program", 125, "file"),
        ("run --store /proc -- ./program", 125, "/proc"),
        ("run --store /proc -- ./program", 125, "takes no files"),
        ("run --store file -- ./program", 125, "neither a directory nor a block device"),
        ("run --store /dev/null -- ./program", 125, "neither a directory nor a block device"),
        ("run --store .,nowhere -- ./program", 125, "--store nowhere"),
        ("run --store .:prio=high -- ./program", 125, "high is not a priority"),
        ("run --store .:size=1K,nowhere -- ./program", 125, "too small"),
        ("run --store directory,none -- ./program", 125, "alone"),
        ("run --store directory,directory:prio=1 -- ./program", 125, "twice"),
        ("run --store-size many -- ./program", 125, "many"),
        ("run --store-size 1 -- ./program", 125, "store"),
        ("run --stats nowhere/stats -- ./program", 125, "nowhere/stats"),
        ("run --stats directory -- ./program", 125, "directory"),
        ("run --store . --store-timeout 3 -- ./program", 125, "--store-timeout"),
        ("run --store none --store-size 1G -- ./program", 125, "there is no store"),
        ("run --store none --store-encrypt -- ./program", 125, "there is no store"),
        ("run --store none --store-codec zstd -- ./program", 125, "there is no store"),
        ("trace --lackey file --memory 64M", 2, "--memory"),
        ("trace --lackey file --store .", 2, "--store"),
        ("device serve --size 1G --memory 8M --memory-ahead 9M --socket ./s", 125, "at most 8M"),
        ("device serve --size 1G --memory 8M --export= --socket ./s", 125, "--export"),
        ("run --memory 8388607 -- ./program", 125, "8388607 bytes"),
        ("run --unknown -- ./program", 125, "see `zpager run --help`"),
        ("walk", 125, "see `zpager --help`"),
        ("device set", 125, "see `zpager device set --help`"),
        ("bench run --runs abc", 125, "give a whole number; see `zpager bench run --help`"),
        ("designs --json /dev/full", 125, "/dev/full"),
        ("run --memory", 125, "--memory"),
        ("run", 125, "program"),
        ("run --", 125, "program"),
        ("", 125, "command"),
        ("walk", 125, "walk"),
        ("run -- ./missing", 127, "missing"),
        ("run -- no-such-program-anywhere", 127, "no-such-program-anywhere"),
        ("run -- ./directory", 126, "directory"),
        ("run -- ./not-executable", 126, "not-executable"),
        ("run -- ./not-a-program", 126, "not-a-program"),
        ("run -- ./loader", 125, "shared object"),
    ];
    for (line, status, word) in table {
        expect_refused(&playground, line, status, word);
    }
}

#[test]
fn a_wrong_store_of_the_environment_is_named() {
    let playground = Playground::new();
    for line in ["run -- ./program", "device serve --size 1G --memory 8M --socket ./s"] {
        let mut command = Command::new(places::zpager());
        command.args(line.split(' ')).current_dir(playground.0.path());
        let output = command.env("ZPAGER_STORE", "nowhere/at/all").output().expect("zpager runs");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.starts_with("zpager: ZPAGER_STORE nowhere/at/all: "), "{message}");
        assert_eq!((output.status.code(), message.lines().count()), (Some(125), 1), "{message}");
    }
}

#[test]
fn a_program_with_a_small_stack_is_managed_from_its_start() {
    for kilobytes in [256, 64] {
        let script = format!("ulimit -s {kilobytes}; exec \"$0\" run --quiet --memory 20M -- true");
        let mut command = Command::new("sh");
        let status = command.args(["-c", &script]).arg(places::zpager()).status();
        let status = status.expect("a shell");
        assert!(status.success(), "{kilobytes}: {status}");
    }
}

/// What keeps zpager itself from starting a program is no failure of that.
#[test]
fn too_few_descriptors_are_a_failure_of_zpagers_own() {
    for descriptors in 5..12 {
        let script = format!("ulimit -n {descriptors}; exec \"$0\" run --quiet -- true");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).arg(places::zpager());
        let output = command.output().expect("a shell");
        let message = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            return;
        }
        assert_eq!(output.status.code(), Some(125), "{descriptors}: {message}");
    }
}

#[test]
fn a_script_without_its_interpreter_is_refused() {
    let playground = Playground::new();
    let output = playground.zpager("run -- ./no-interpreter");
    let status = output.status.code();
    assert!(matches!(status, Some(126 | 127)), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1, "{output:?}");
}

#[test]
fn a_set_uid_program_is_refused() {
    let playground = Playground::new();
    fs::copy("/bin/true", playground.path("set-uid")).expect("a copy of a program");
    let mode = fs::Permissions::from_mode(0o4755);
    fs::set_permissions(playground.path("set-uid"), mode).expect("its mode");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(playground.path("set-uid"), Some(65534), None).expect("an owner");
        // A change of owner takes the bit away.
        let mode = fs::Permissions::from_mode(0o4755);
        fs::set_permissions(playground.path("set-uid"), mode).expect("its mode");
        expect_refused(&playground, "run -- ./set-uid", 125, "set-uid");
    } else {
        println!("skipped: only root can make a set-uid program of another user");
    }
}

#[test]
fn help_and_version_are_shown() {
    let playground = Playground::new();
    for (line, word) in [("--help", "run"), ("run --help", "--memory"), ("--version", "zpager")] {
        let output = playground.zpager(line);
        assert_eq!(output.status.code(), Some(0), "zpager {line}");
        assert!(String::from_utf8_lossy(&output.stdout).contains(word), "zpager {line}");
    }
}

/// Who pages through a list or takes its head has no failure for it, and a full disk is told.
#[test]
fn what_is_shown_may_be_cut_short() {
    for line in ["--help", "run --help", "designs", "bench list"] {
        let shown = |output: Stdio| {
            let mut command = Command::new(places::zpager());
            command.args(line.split_whitespace()).stdout(output).output().expect("zpager runs")
        };
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = shown(writer.into());
        assert_eq!(output.status.code(), Some(0), "zpager {line}: {output:?}");
        assert!(output.stderr.is_empty(), "zpager {line}: {output:?}");
        let full = fs::File::options().write(true).open("/dev/full").expect("a full device");
        let output = shown(full.into());
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "zpager {line}: {message}");
        assert!(message.starts_with("zpager: standard output: "), "zpager {line}: {message}");
        assert_eq!(message.lines().count(), 1, "zpager {line}: {message}");
    }
}

/// Neither zpager nor a program ends or waits because nobody reads what is told.
#[test]
fn nobody_has_to_read_what_is_told() {
    let directory = places::scratch();
    let victim = victims::build("field", &[]);
    // What this one holds is warned of while it runs.
    let over = format!("run --memory 16M --store .:size=2M -- {} 1 32 noise 1", victim.display());
    let table = [
        ("run --memory 16M -- false", 1),
        (over.as_str(), 0),
        ("run -- ./missing", 127),
        ("walk", 125),
        ("codecs --pages 0 file", 2),
    ];
    for (line, status) in table {
        for stderr in [closed_pipe, full_device, || full_pipe(true), || full_pipe(false)] {
            let (_reader, stderr) = stderr();
            let mut command = Command::new(places::zpager());
            command.args(line.split(' ')).current_dir(directory.path());
            command.stdout(Stdio::null()).stderr(stderr);
            let mut zpager = command.spawn().expect("zpager starts");
            assert_eq!(wait(&mut zpager, PATIENCE), Some(Ending::Exited(status)), "zpager {line}");
        }
    }
}

/// A program has the signals that it would have alone, though zpager outlives the limit of files.
#[test]
fn the_limit_of_files_is_the_programs() {
    let directory = places::scratch();
    let ignored = "grep SigIgn /proc/self/status";
    let managed = |before: &str, verb: &str| {
        let script = format!("{before} exec \"$0\" {verb} -- {ignored}");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).arg(places::zpager()).current_dir(directory.path());
        command.output().expect("a shell")
    };
    for before in ["", "trap '' XFSZ;"] {
        let free = Command::new("sh").args(["-c", &format!("{before} {ignored}")]).output();
        let free = free.expect("a shell").stdout;
        for verb in ["run --memory 16M", "trace --memory 16M", "codecs"] {
            assert_eq!(managed(before, verb).stdout, free, "{before} {verb}");
        }
    }
    for verb in ["run --memory 16M --store none", "trace --memory 16M"] {
        let output = managed("ulimit -f 10;", verb);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{verb}: {message}");
        assert!(message.contains("ulimit -f") && output.stdout.is_empty(), "{verb}: {message}");
        assert_eq!(message.lines().count(), 1, "{verb}: {message}");
        // The soft limit is not in the way.
        let output = managed("ulimit -S -f 10;", verb);
        assert!(!output.stdout.is_empty(), "{verb}: {output:?}");
    }
}

/// Once the program has run its status counts, and what is lost is told.
#[test]
fn statistics_that_cannot_be_written_leave_the_status() {
    let directory = places::scratch();
    for (stats, script) in [("/dev/full", "exit 3"), ("gone/stats", "rmdir gone; exit 3")] {
        fs::create_dir_all(directory.path().join("gone")).expect("a directory");
        let mut command = Command::new(places::zpager());
        command.args(["run", "--quiet", "--stats", stats, "--", "sh", "-c", script]);
        let output = command.current_dir(directory.path()).output().expect("zpager runs");
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{message}");
        assert!(message.starts_with(&format!("zpager: --stats {stats}: ")), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

/// What the bench writes replaces plain files alone.
#[test]
fn the_bench_replaces_no_node() {
    let playground = Playground::new();
    let made = Command::new("mkfifo").arg(playground.path("pipe")).status();
    assert!(made.expect("mkfifo runs").success());
    std::os::unix::fs::symlink("pipe", playground.path("link")).expect("a link");
    for verb in ["run", "overhead"] {
        for (file, word) in [
            ("pipe", "no plain file"),
            ("link", "no plain file"),
            ("directory", "directory"),
            ("nowhere/rows", "nowhere/rows"),
        ] {
            let line = format!("bench {verb} --workload sor --json {file}");
            expect_refused(&playground, &line, 125, word);
        }
    }
    let kind = fs::symlink_metadata(playground.path("pipe")).expect("a pipe").file_type();
    assert!(std::os::unix::fs::FileTypeExt::is_fifo(&kind) && playground.path("link").is_symlink());
}

/// What a test keeps, and what takes nothing that is written.
type Unread = (Option<std::io::PipeReader>, Stdio);

fn closed_pipe() -> Unread {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    (None, writer.into())
}

fn full_device() -> Unread {
    let full = fs::File::options().write(true).open("/dev/full").expect("a full device");
    (None, full.into())
}

fn full_pipe(blocks: bool) -> Unread {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    fcntl_setfl(&writer, OFlags::NONBLOCK).expect("its flags");
    while writer.write(&[0]).is_ok() {}
    if blocks {
        fcntl_setfl(&writer, OFlags::empty()).expect("its flags");
    }
    (Some(reader), writer.into())
}

/// The shell's status, output and input are what they are without zpager.
#[test]
fn status_input_and_output_pass_through() {
    for script in ["exit 0", "exit 3", "exit 255", "cat; echo done", "echo to stderr >&2; exit 1"] {
        let run = |program: &Path, words: &[&str]| {
            let mut command = Command::new(program);
            command.args(words).args(["sh", "-c", script]).stdin(input());
            command.output().expect("it runs")
        };
        let free = run(Path::new("env"), &[]);
        let managed = run(&places::zpager(), &["run", "--memory", "64M", "--quiet", "--"]);
        assert_eq!(managed.status.code(), free.status.code(), "{script}");
        assert_eq!((managed.stdout, managed.stderr), (free.stdout, free.stderr), "{script}");
    }
}

/// Alone, and where a parent waits for it.
#[test]
fn a_budget_that_cannot_be_held_is_told() {
    let victim = victims::build("field", &[]);
    let field = [victim.to_str().expect("text"), "1", "60", "noise", "1"];
    let free = Command::new(field[0]).args(&field[1..]).output().expect("the victim runs");
    for shell in [&[][..], &["sh", "-c", "\"$0\" \"$@\"; exit"]] {
        let mut command = Command::new(places::zpager());
        command.args(["run", "--memory", "12M", "--store", "none", "--"]);
        let output = command.args(shell).args(field).output().expect("zpager runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && output.stdout == free.stdout, "{shell:?}: {text}");
        assert!(text.contains("the budget cannot be held"), "{shell:?}: {text}");
    }
}

/// A zpager in another one's run gets out of its hands, and its program has the budget that it names.
#[test]
fn a_run_within_a_run() {
    let directory = places::scratch();
    let zpager = places::zpager();
    let victim = victims::build("field", &[]);
    let field = [victim.to_str().expect("text"), "1", "40", "words", "1"];
    let free = Command::new(field[0]).args(&field[1..]).output().expect("the victim runs");
    for from_start in ["0", "1"] {
        let mut command = Command::new(&zpager);
        command.args(["run", "--memory", "64M", "--"]);
        command.arg(&zpager).args(["run", "--memory", "24M", "--stats", "inner.json", "--"]);
        command.args(field).env("ZPAGER_FROM_START", from_start);
        let output = command.current_dir(directory.path()).output().expect("zpager runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && output.stdout == free.stdout, "{from_start}: {text}");
        let stats = fs::read_to_string(directory.path().join("inner.json")).expect("statistics");
        let stats: serde_json::Value = serde_json::from_str(&stats).expect("statistics");
        let peak_bytes = stats["peak_bytes"].as_u64().expect("a number");
        assert!(stats["swapped_out_pages"].as_u64() > Some(0), "{from_start}: {stats}");
        assert!(peak_bytes < 28 << 20, "{from_start}: {stats}");
    }
}

/// Under who serves a program's calls in the kernel's place nothing can be managed: zpager refuses, and what is
/// begun so in its run goes on without it.
#[test]
fn who_serves_the_calls_of_a_program_is_told() {
    let emulator = victims::build("emulator", &[]);
    let zpager = places::zpager();
    let run = |program: &Path, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).output().expect("the program runs")
    };
    let text = |path: &Path| path.to_str().expect("text").to_owned();

    let refused = run(&emulator, &[&text(&zpager), "run", "--", "/bin/true"]);
    let message = String::from_utf8_lossy(&refused.stderr);
    assert_eq!((refused.status.code(), message.lines().count()), (Some(125), 1), "{message}");
    assert!(message.contains("proot"), "{message}");

    let field = text(&victims::build("field", &[]));
    let (emulator, field) = (text(&emulator), [&field, "1", "40", "words", "1"]);
    let free = run(Path::new(field[0]), &field[1..]);
    let mut arguments = vec!["run", "--memory", "24M", "--", &emulator];
    arguments.extend(field);
    let output = run(&zpager, &arguments);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && output.stdout == free.stdout, "{message}");
    assert!(message.contains("proot"), "{message}");
}

/// What the filters of containers refuse: zpager where it is what cannot be done without, else no more than that faults
/// take longer, without userfaultfd(2), and that it does not wait with managing, which takes ptrace(2).
#[test]
fn a_filter_of_a_container_is_told_and_done_with() {
    const MADVISE: &str = "28";
    const PTRACE: &str = "101";
    const KCMP: &str = "312";
    const USERFAULTFD: &str = "323";
    const IO_URING_SETUP: &str = "425";
    const PROCESS_MADVISE: &str = "440";
    let run = |refused: &[&str], arguments: &[&str]| {
        let mut command = Command::new(victims::build("forbids", &[]));
        command.args([IO_URING_SETUP, PROCESS_MADVISE]).args(refused).arg("--");
        command.arg(places::zpager()).args(["run", "--memory", "64M", "--"]).args(arguments);
        let output = command.stdin(Stdio::null()).output().expect("the program runs");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        let lines: Vec<_> = message.lines().map(str::to_owned).collect();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), lines)
    };
    let text = |path: PathBuf| path.to_str().expect("text").to_owned();
    let dynamic = text(victims::build("field", &[]));
    let whole = text(victims::build("field", &["-static"]));
    let field = |program: &str| [program, "1", "100", "words", "1"].map(str::to_owned);
    let free = Command::new(&dynamic).args(&field(&dynamic)[1..]).output().expect("it runs");
    let free = String::from_utf8_lossy(&free.stdout).into_owned();

    // Which has guard pages, too.
    let (status, _, lines) = run(&[USERFAULTFD, MADVISE], &["/bin/true"]);
    assert_eq!((status, lines.len()), (Some(125), 1), "{lines:?}");
    assert!(lines[0].contains("seccomp profile that allows userfaultfd"), "{lines:?}");

    // Each of the many programs is looked at before its loader has brought the agent.
    let script =
        "for i in 1 2 3 4 5 6 7 8; do sh -c 'sh -c true; exit 0'; done; exec \"$0\" \"$@\"";
    let field_of = |program| {
        [["sh", "-c", script].map(str::to_owned).to_vec(), field(program).to_vec()].concat()
    };
    let runs = [
        (&[PTRACE][..], &dynamic),
        (&[KCMP], &dynamic),
        (&[KCMP], &whole),
        (&[], &dynamic),
        (&[], &whole),
        (&[USERFAULTFD, PTRACE], &dynamic),
        (&[USERFAULTFD, KCMP], &dynamic),
        (&[USERFAULTFD, KCMP], &whole),
    ];
    for (refused, program) in runs {
        let arguments = field_of(program);
        let (status, output, lines) =
            run(refused, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!((status, &output), (Some(0), &free), "{lines:?}");
        let told = refused.iter().filter(|call| **call != KCMP).count();
        assert_eq!(lines.len(), 1 + told, "{lines:?}");
        let text = lines.join(" ");
        assert_eq!(text.contains("allow ptrace"), refused.contains(&PTRACE), "{text}");
        assert_eq!(text.contains("guard pages"), refused.contains(&USERFAULTFD), "{text}");
        assert!(lines.iter().all(|line| !line.contains(" 0 pages out")), "{lines:?}");
    }

    let (status, _, lines) = run(&[PTRACE], &[&whole]);
    assert_eq!((status, lines.len()), (Some(125), 1), "{lines:?}");
    assert!(lines[0].contains("ptrace") && lines[0].contains("dynamically"), "{lines:?}");
}

/// A program that passes an empty environment on starts a managed one, and one that names another
/// run's control block is left alone.
#[test]
fn a_cleared_environment_is_of_the_run() {
    let directory = places::scratch();
    let script = "env -i A=b env; env -i LD_PRELOAD=libm.so.6 env; env -i ZPAGER_CONTROL=other env; \
                  env -i /no/such/program || env -i sh -c 'exit 7'";
    let mut command = Command::new(places::zpager());
    command.args(["run", "--memory", "24M", "--quiet", "--", "sh", "-c", script]);
    let output = command.current_dir(directory.path()).output().expect("zpager runs");
    assert_eq!(output.status.code(), Some(7));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let starts = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!(starts("A=b"), 1, "{text}");
    assert_eq!(starts("ZPAGER_CONTROL=/proc/"), 2, "{text}");
    assert_eq!(starts("ZPAGER_CONTROL=other"), 1, "{text}");
    assert_eq!(starts("LD_PRELOAD=/proc/"), 2, "{text}");
    assert_eq!(text.lines().filter(|line| line.ends_with(":libm.so.6")).count(), 1, "{text}");
}

fn input() -> Stdio {
    fs::File::open("/proc/version").expect("some text").into()
}

#[test]
fn signals_reach_the_program() {
    for name in ["TERM", "INT", "HUP", "USR1", "QUIT"] {
        let directory = places::scratch();
        let script = format!(
            "trap 'echo got it > told; exit 9' {name}; touch up; while :; do sleep 0.05; done"
        );
        // A shell cannot trap what was ignored when it started, as INT and QUIT are in the background.
        let mut command = Command::new("env");
        command.arg("--default-signal").arg(places::zpager());
        command.args(["run", "--memory", "64M", "--quiet", "--", "sh", "-c", &script]);
        let mut zpager = command.current_dir(directory.path()).spawn().expect("zpager starts");
        until(PATIENCE, "the program is up", || directory.path().join("up").exists());
        let signal = signal_of(name);
        kill_process(Pid::from_child(&zpager), signal).expect("zpager is there");
        assert_eq!(wait(&mut zpager, PATIENCE), Some(Ending::Exited(9)), "SIG{name}");
        assert!(directory.path().join("told").exists(), "SIG{name} did not reach the program");
    }
}

fn signal_of(name: &str) -> Signal {
    match name {
        "TERM" => Signal::TERM,
        "INT" => Signal::INT,
        "HUP" => Signal::HUP,
        "USR1" => Signal::USR1,
        _ => Signal::QUIT,
    }
}

/// Every key of the statistics that is promised, with a number where one is due.
#[test]
fn statistics_have_every_key() {
    let stats = statistics_of_a_pressed_run();
    let numbers = [
        "/budget_bytes",
        "/peak_bytes",
        "/peak_resident_bytes",
        "/peak_pool_bytes",
        "/peak_metadata_bytes",
        "/managed_bytes",
        "/swapped_out_pages",
        "/swapped_in_pages",
        "/prefetched_pages",
        "/same_filled_pages",
        "/incompressible_pages",
        "/dense_pages",
        "/repeats_pages",
        "/faults/fresh",
        "/faults/compressed",
        "/faults/spilled",
        "/dispatched_calls",
        "/compressed_bytes",
        "/original_bytes",
        "/store/written_bytes",
        "/store/read_bytes",
        "/store/writes",
        "/store/reads",
        "/store/file_bytes",
    ];
    for key in numbers {
        assert!(stats.pointer(key).is_some_and(|value| value.is_u64()), "{key}: {stats}");
    }
    assert!(stats["codec"].is_string() && stats["elapsed_seconds"].is_f64(), "{stats}");
    assert_eq!(stats["budget_bytes"], 20 << 20);
    assert!(stats["peak_bytes"].as_u64() >= stats["peak_resident_bytes"].as_u64(), "{stats}");
}

fn statistics_of_a_pressed_run() -> serde_json::Value {
    let directory = places::scratch();
    let stats_file = directory.path().join("stats");
    let job = victims::job("field").arguments(["64", "words", "1"]);
    let command = job.managed_command(&Setup::of_mib(20), directory.path(), &stats_file);
    let outcome =
        finish(command, directory, PATIENCE, "zpager run --stats".into()).expect_success();
    serde_json::from_slice(&outcome.file("stats")).expect("one JSON object")
}

#[test]
fn statistics_are_written_when_the_program_is_killed() {
    let managed = victims::job("exits").argument("SIGTERM").managed(&Setup::of_mib(20));
    assert_eq!(managed.outcome.ending, Ending::Killed(Signal::TERM.as_raw()));
    managed.expect_pressed();
}

/// The kernel tells such a name as it is, of the file and of the process.
#[test]
fn a_program_whose_name_is_no_text_is_managed() {
    let directory = places::scratch();
    let program = directory.path().join(OsStr::from_bytes(b"f\xff) \xfeld"));
    fs::copy(victims::build("field", &[]), &program).expect("a copy");
    let job = Job::new(program).arguments(["1", "64", "words", "1"]);
    let free = job.free().expect_success();
    for start in [Start::FirstInstruction, Start::Pressure] {
        let managed = job.managed(&Setup::of_mib(24).start(start));
        managed.expect_like(&free);
        managed.expect_pressed();
    }
}

/// As long as the program fits its budget nothing is registered and no call is seen.
#[test]
fn without_pressure_there_is_no_cost() {
    let job = victims::job("field").arguments(["24", "words", "2"]);
    let managed = job.managed(&Setup::of_mib(256));
    managed.expect_like(&job.free());
    let stats = &managed.stats;
    assert_eq!(stats.dispatched_calls, 0, "{stats:?}");
    assert_eq!(stats.all_faults() + stats.swapped_out_pages + stats.managed_bytes, 0, "{stats:?}");
}

/// Nor is a statically linked program touched.
#[test]
fn without_pressure_a_static_program_is_left_alone() {
    let job = Job::new(victims::build("field", &["-static"])).arguments(["1", "24", "words", "2"]);
    let managed = job.managed(&Setup::of_mib(256));
    managed.expect_like(&job.free());
    let stats = &managed.stats;
    assert_eq!(stats.dispatched_calls, 0, "{stats:?}");
    assert_eq!(stats.all_faults() + stats.swapped_out_pages + stats.managed_bytes, 0, "{stats:?}");
}

#[test]
fn a_summary_is_one_line_unless_quiet() {
    let directory = places::scratch();
    let job = victims::job("field").arguments(["64", "words", "1"]);
    for (more, lines) in [(&[][..], 1), (&["--quiet"][..], 0)] {
        let mut command = Command::new(places::zpager());
        command.args(["run", "--memory", "20M", "--store"]).arg(directory.path()).args(more);
        command.arg("--").args(job.to_string().split(' '));
        let output = command.output().expect("zpager runs");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{message}");
        assert_eq!(message.lines().count(), lines, "{message}");
    }
}

#[test]
fn shared_memory_that_comes_on_top_is_told() {
    let directory = places::scratch();
    for (mib, is_told) in [("50", true), ("5", false)] {
        let job = victims::job("field").arguments(["40", "words", "1", mib]);
        let mut command = Command::new(places::zpager());
        command.args(["run", "--memory", "100M", "--store"]).arg(directory.path()).arg("--");
        let output = command.args(job.to_string().split(' ')).output().expect("zpager runs");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{message}");
        let warning = "of shared memory, which is not managed: that comes on top of the budget\n";
        assert_eq!(message.contains(warning), is_told, "{message}");
        assert_eq!(message.ends_with("MiB of shared memory besides\n"), is_told, "{message}");
    }
}

#[test]
fn the_command_may_be_copied_anywhere() {
    let directory = places::scratch();
    let copied = directory.path().join("another name");
    fs::copy(places::zpager(), &copied).expect("a copy");
    let job = victims::job("field").arguments(["64", "words", "1"]);
    let mut command = Command::new(&copied);
    command.args(["run", "--memory", "20M", "--store", ".", "--stats", "stats", "--quiet", "--"]);
    command.args(job.to_string().split(' ')).env_clear();
    let outcome = finish(command, directory, PATIENCE, "a copied zpager".into()).expect_success();
    let stats: zpager_tests::Stats =
        serde_json::from_slice(&outcome.file("stats")).expect("statistics");
    assert!(stats.is_pressed(), "{stats:?}");
    assert_eq!(outcome.stdout, job.free().stdout);
}

#[test]
fn memory_may_be_left_to_zpager() {
    let output = Command::new(places::zpager())
        .args(["run", "--quiet", "--", "sh", "-c", "exit 4"])
        .output()
        .expect("zpager runs");
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

/// A script is run by its interpreter, which is what is managed.
#[test]
fn scripts_are_programs_too() {
    let victim = victims::build("field", &[]);
    let script = format!("#!/bin/sh\n{} \"$@\"\necho then\n", victim.display());
    let directory = places::scratch();
    let path = directory.path().join("script");
    fs::write(&path, script).expect("a script");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its mode");
    let job = Job::new(&path).arguments(["1", "64", "words", "1"]);
    for start in [Start::FirstInstruction, Start::Pressure] {
        compare(&job, &Setup::of_mib(20).start(start));
    }
}
