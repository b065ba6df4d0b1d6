//! Whatever is killed, and when: no file, no process and no wrong byte is left behind.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;
use zpager_tests::job::wait;
use zpager_tests::{Ending, Setup, Start, places, victims};

const PATIENCE: Duration = Duration::from_secs(60);

/// A managed program that has spilled pages and goes on until it is stopped.
struct Running {
    zpager: Child,
    directory: TempDir,
    store: TempDir,
}

impl Running {
    fn start(start: Start) -> Self {
        let (directory, store) = (places::scratch(), places::scratch());
        let job = victims::job("field").arguments(["96", "noise", "forever"]);
        let setup = Setup::of_mib(24).start(start);
        let stats_file = directory.path().join("stats");
        let mut command = job.managed_command(&setup, store.path(), &stats_file);
        let output = fs::File::create(directory.path().join("stdout")).expect("an output file");
        command.current_dir(directory.path()).stdin(Stdio::null()).stdout(output).process_group(0);
        let running = Running { zpager: command.spawn().expect("zpager starts"), directory, store };
        running.until("the program is ready", |running| running.output().contains("ready"));
        running
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
        let started = Instant::now();
        while !holds(self) {
            assert!(started.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
            sleep(Duration::from_millis(5));
        }
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

/// Link count and mode of every file of a process that lies in `directory`.
fn open_files_in(pid: u32, directory: &Path) -> Vec<(u64, u32)> {
    names_in(Path::new(&format!("/proc/{pid}/fd")))
        .iter()
        .map(|fd| format!("/proc/{pid}/fd/{fd}"))
        .filter(|link| fs::read_link(link).is_ok_and(|target| target.starts_with(directory)))
        .map(|link| fs::metadata(link).map(|found| (found.nlink(), found.mode())).expect("a file"))
        .collect()
}

#[test]
fn the_swap_file_has_no_name_and_is_its_owners_alone() {
    let mut running = Running::start(Start::FirstInstruction);
    assert_eq!(names_in(running.store.path()), Vec::<String>::new());
    let files = open_files_in(running.zpager.id(), running.store.path());
    assert!(!files.is_empty(), "no open file in the store's directory");
    for (links, mode) in files {
        assert_eq!((links, mode & 0o777), (0, 0o600));
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
        let lived_on = !running.programs().is_empty();
        running.stop();
        running.expect_nothing_left();
        println!("{start:?}: the program {}", if lived_on { "lived on" } else { "was ended" });
        assert!(!lived_on || running.output().contains("digest"), "{}", running.output());
    }
}

#[test]
fn killing_everything_at_once_leaves_nothing_behind() {
    let mut running = Running::start(Start::FirstInstruction);
    let group = Pid::from_child(&running.zpager);
    kill_process_group(group, Signal::KILL).expect("the group of this test");
    assert!(wait(&mut running.zpager, PATIENCE).is_some());
    running.expect_nothing_left();
}
