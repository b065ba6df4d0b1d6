//! Whatever is killed, and when: no file, no process and no wrong byte is left behind.

use std::collections::HashSet;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{
    Pid, Resource, Rlimit, Signal, getrlimit, kill_process, kill_process_group, prlimit,
};
use tempfile::TempDir;
use zpager_tests::job::{until, wait};
use zpager_tests::places::open_files_in;
use zpager_tests::{Ending, Setup, Start, places, victims};

const PATIENCE: Duration = Duration::from_secs(60);

/// The unit in which the swap file is handed out, and how many of them a small program surely uses.
const CLUSTER_BYTES: u64 = 256 << 10;
const CLUSTERS: u64 = 200;

/// A managed program that has spilled pages and goes on until it is stopped.
struct Running {
    zpager: Child,
    directory: TempDir,
    store: TempDir,
}

impl Running {
    fn start(start: Start) -> Self {
        Self::ready(&Setup::of_mib(24).start(start), "noise")
    }

    /// With pages of this kind.
    fn ready(setup: &Setup, kind: &str) -> Self {
        let running = Self::spawn(setup, kind);
        running.until("the program is ready", |running| running.output().contains("ready"));
        running
    }

    /// Started a moment ago.
    fn spawn(setup: &Setup, kind: &str) -> Self {
        let (directory, store) = (places::scratch(), places::scratch());
        let job = victims::job("field").arguments(["96", kind, "forever"]);
        let stats_file = directory.path().join("stats");
        let mut command = job.managed_command(setup, store.path(), &stats_file);
        let output = fs::File::create(directory.path().join("stdout")).expect("an output file");
        let messages = fs::File::create(directory.path().join("stderr")).expect("a message file");
        command.current_dir(directory.path()).stdin(Stdio::null()).stdout(output).process_group(0);
        command.stderr(messages);
        Running { zpager: command.spawn().expect("zpager starts"), directory, store }
    }

    fn messages(&self) -> String {
        fs::read_to_string(self.directory.path().join("stderr")).expect("the messages")
    }

    fn output(&self) -> String {
        fs::read_to_string(self.directory.path().join("stdout")).expect("the output")
    }

    /// The processes of the run's group, zpager's own aside.
    fn programs(&self) -> Vec<i32> {
        let group = self.zpager.id() as i32;
        processes_of_group(group).into_iter().filter(|pid| *pid != group).collect()
    }

    /// Waits until something holds.
    fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        until(PATIENCE, what, || holds(self));
    }

    fn stop(&self) {
        fs::write(self.directory.path().join("stop"), "").expect("the file that ends the program");
    }

    fn expect_nothing_left(&self) {
        self.until("every process has ended", |running| running.programs().is_empty());
        assert_eq!(names_in(self.store.path()), Vec::<String>::new());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Gone already when the test went well.
        let _ = kill_process_group(Pid::from_child(&self.zpager), Signal::KILL);
        let _ = self.zpager.wait();
    }
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries =
        fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry"));
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The live processes of a process group; zombies have left everything behind already.
fn processes_of_group(group: i32) -> Vec<i32> {
    names_in(Path::new("/proc"))
        .iter()
        .filter_map(|name| name.parse().ok())
        .filter(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let fields: Vec<&str> =
                stat.rsplit_once(") ").map_or(Vec::new(), |(_, rest)| rest.split(' ').collect());
            fields.get(2).is_some_and(|found| *found == group.to_string()) && fields[0] != "Z"
        })
        .collect()
}

fn kill(pid: i32) {
    let pid = Pid::from_raw(pid).expect("a process id");
    kill_process(pid, Signal::KILL).expect("a process of this test");
}

/// How many of a hundred words at the start of a run's swap file are there more than once. What was
/// never written there counts as a word.
fn repeated_percent(running: &Running) -> usize {
    const READ_BYTES: u64 = 4 << 20;
    let files = open_files_in(running.zpager.id(), running.store.path());
    let file = fs::File::open(files.first().expect("a swap file")).expect("the swap file");
    let mut bytes = Vec::new();
    file.take(READ_BYTES).read_to_end(&mut bytes).expect("its start");
    let (words, _) = bytes.as_chunks::<8>();
    assert_eq!(words.len() as u64, READ_BYTES / 8);
    let different = words.iter().collect::<HashSet<_>>().len();
    (words.len() - different) * 100 / words.len()
}

/// Pages that go out as they are, full of words that repeat, do not show in a file that is encrypted.
#[test]
fn an_encrypted_file_shows_nothing_of_its_pages() {
    let plain = Setup::of_mib(24).start(Start::FirstInstruction).codec("copy");
    for (setup, shows) in [(plain.clone(), true), (plain.encrypted(), false)] {
        let mut running = Running::ready(&setup, "words");
        let repeated = repeated_percent(&running);
        assert!(if shows { repeated > 50 } else { repeated < 10 }, "{setup}: {repeated} %");
        running.stop();
        assert_eq!(wait(&mut running.zpager, PATIENCE), Some(Ending::Exited(0)));
        running.expect_nothing_left();
    }
}

/// Every cluster of the swap file gets what was in the next one. The program meets a page that is not
/// its own, is ended before it reads it, and the user is told which.
#[test]
fn a_swap_file_that_somebody_changes_ends_the_program() {
    let plain = Setup::of_mib(24).start(Start::FirstInstruction);
    for setup in [plain.clone(), plain.encrypted()] {
        let mut running = Running::ready(&setup, "noise");
        let files = open_files_in(running.zpager.id(), running.store.path());
        let file = fs::OpenOptions::new().read(true).write(true).open(&files[0]);
        let file = file.expect("the swap file");
        let mut cluster = vec![0; CLUSTER_BYTES as usize];
        for at in 0..CLUSTERS {
            file.read_exact_at(&mut cluster, (at + 1) * CLUSTER_BYTES).expect("the next one");
            file.write_all_at(&cluster, at * CLUSTER_BYTES).expect("this one");
        }
        let ending = wait(&mut running.zpager, PATIENCE);
        let messages = running.messages();
        assert!(matches!(ending, Some(Ending::Exited(1..) | Ending::Killed(_))), "{ending:?}");
        assert!(messages.contains("page at 0x"), "{setup}: {messages}");
        assert!(!running.output().contains("digest"), "{}", running.output());
        running.expect_nothing_left();
    }
}

#[test]
fn the_swap_file_has_no_name_and_is_its_owners_alone() {
    let mut running = Running::start(Start::FirstInstruction);
    assert_eq!(names_in(running.store.path()), Vec::<String>::new());
    let files = open_files_in(running.zpager.id(), running.store.path());
    assert!(!files.is_empty(), "no open file in the store's directory");
    for file in files {
        let found = fs::metadata(file).expect("a file");
        assert_eq!((found.nlink(), found.mode() & 0o777), (0, 0o600));
    }
    running.stop();
    assert_eq!(wait(&mut running.zpager, PATIENCE), Some(Ending::Exited(0)));
    running.expect_nothing_left();
}

#[test]
fn killing_the_program_ends_zpager_in_the_same_way() {
    for start in [Start::FirstInstruction, Start::Pressure] {
        let mut running = Running::start(start);
        running.programs().into_iter().for_each(kill);
        let ending = wait(&mut running.zpager, PATIENCE);
        assert_eq!(ending, Some(Ending::Killed(Signal::KILL.as_raw())), "{start:?}");
        running.expect_nothing_left();
    }
}

/// The program either goes on and ends right, or is ended; its memory is never wrong.
#[test]
fn killing_zpager_leaves_nothing_behind() {
    for start in [Start::FirstInstruction, Start::Pressure] {
        let mut running = Running::start(start);
        kill(running.zpager.id() as i32);
        let ending = wait(&mut running.zpager, PATIENCE);
        assert_eq!(ending, Some(Ending::Killed(Signal::KILL.as_raw())), "{start:?}");
        sleep(Duration::from_millis(200));
        running.stop();
        running.expect_nothing_left();
        let output = running.output();
        let ended_right = output.contains("digest");
        println!("{start:?}: the program {}", if ended_right { "went on" } else { "was ended" });
        assert!(ended_right || output == "ready\n", "{output}");
    }
}

/// A supervisor that cannot open what tells who lives buries nobody: what the program has in the store
/// would be given to others, and to itself.
#[test]
fn a_supervisor_without_descriptors_takes_nobody_for_dead() {
    let looks = Duration::from_secs(1);
    let mut running = Running::start(Start::FirstInstruction);
    let limit = |limit| prlimit(Some(Pid::from_child(&running.zpager)), Resource::Nofile, limit);
    let usual = getrlimit(Resource::Nofile);
    limit(Rlimit { current: Some(0), ..usual }).expect("its limit");
    sleep(looks);
    limit(usual).expect("its limit");
    sleep(looks);
    running.stop();
    assert_eq!(wait(&mut running.zpager, PATIENCE), Some(Ending::Exited(0)));
    assert!(running.output().contains("digest"), "{}", running.messages());
    running.expect_nothing_left();
}

#[test]
fn killing_everything_at_once_leaves_nothing_behind() {
    let mut running = Running::start(Start::FirstInstruction);
    let group = Pid::from_child(&running.zpager);
    kill_process_group(group, Signal::KILL).expect("the group of this test");
    assert!(wait(&mut running.zpager, PATIENCE).is_some());
    running.expect_nothing_left();
}

/// From before the program has started to when it spills: the program, the command, or both.
#[test]
fn killing_at_any_moment_leaves_nothing_behind() {
    const ROUNDS: u64 = 24;
    const LATEST_MS: u64 = 600;
    let seed: u64 = victims::seed().parse().expect("a number");
    println!("seed {seed}");
    for round in 0..ROUNDS {
        let start = [Start::FirstInstruction, Start::Pressure][round as usize % 2];
        let mut running = Running::spawn(&Setup::of_mib(24).start(start), "noise");
        // Each part of the time once, and where in it by the seed.
        let within = seed.wrapping_add(round).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let moment_ms = (round * LATEST_MS + within % LATEST_MS) / ROUNDS;
        sleep(Duration::from_millis(moment_ms));
        match round % 3 {
            0 => kill(running.zpager.id() as i32),
            1 => running.programs().into_iter().for_each(|pid| {
                // One that has just ended is as good.
                let _ = Pid::from_raw(pid).map(|pid| kill_process(pid, Signal::KILL));
            }),
            _ => {
                let group = Pid::from_child(&running.zpager);
                kill_process_group(group, Signal::KILL).expect("the group of this test");
            }
        }
        // Whatever was not there yet to be killed.
        running.stop();
        assert!(wait(&mut running.zpager, PATIENCE).is_some(), "round {round} at {moment_ms} ms");
        running.expect_nothing_left();
    }
}
