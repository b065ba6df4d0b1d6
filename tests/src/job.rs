//! Running a program free and managed, and comparing the two.
//!
//! Every run has a directory, a process group and a time limit of its own. A
//! run past its limit is killed as a group and fails its test. Output goes to
//! files, so that a grandchild that holds a pipe open cannot stall a test.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, OnceLock};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use crate::places;
use crate::setup::Setup;
use crate::stats::Stats;

/// How long a run may take; generous, for machines with other work to do.
const DEFAULT_LIMIT: Duration = Duration::from_secs(150);

/// How often a running program is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// How much of a program's output a failure message shows.
const SHOWN_BYTES: usize = 3000;

/// A program with its arguments and surroundings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    files: Vec<(String, Vec<u8>)>,
    limit: Duration,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It ended with this status.
    Exited(i32),
    /// It was killed by this signal.
    Killed(i32),
}

/// What is seen of a run from outside.
#[derive(Debug)]
pub struct Outcome {
    /// How it ended.
    pub ending: Ending,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: String,
    /// Its directory, with the files that it made.
    pub directory: TempDir,
    /// The command, for messages.
    pub shown: String,
}

/// A managed run.
#[derive(Debug)]
pub struct Managed {
    /// What was asked of zpager.
    pub setup: Setup,
    /// What is seen from outside.
    pub outcome: Outcome,
    /// What zpager counted.
    pub stats: Stats,
}

impl From<ExitStatus> for Ending {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Ending::Exited(code),
            (None, Some(signal)) => Ending::Killed(signal),
            (None, None) => unreachable!("a program ends by status or by signal"),
        }
    }
}

impl Job {
    /// A program without arguments.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Job {
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            files: Vec::new(),
            limit: DEFAULT_LIMIT,
        }
    }

    /// The same with one more argument.
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// The same with more arguments.
    pub fn arguments<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// The same with an environment variable.
    pub fn variable(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// The same with a file of this name in the run's directory.
    pub fn file(mut self, name: &str, contents: impl Into<Vec<u8>>) -> Self {
        self.files.push((name.to_owned(), contents.into()));
        self
    }

    /// The same with another time limit.
    pub fn limit_seconds(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// Runs the program alone.
    ///
    /// # Panics
    /// It cannot be started or takes too long.
    pub fn free(&self) -> Outcome {
        let directory = self.directory();
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).envs(self.environment.iter().cloned());
        finish(command, directory, self.limit, self.to_string())
    }

    /// Runs the program under `zpager run`.
    ///
    /// # Panics
    /// It cannot be started, takes too long, or zpager writes no statistics.
    pub fn managed(&self, setup: &Setup) -> Managed {
        let directory = self.directory();
        let stats_file = directory.path().join("zpager-stats.json");
        let command = self.managed_command(setup, directory.path(), &stats_file);
        let outcome = finish(command, directory, self.limit, format!("{setup} -- {self}"));
        let text = fs::read(&stats_file)
            .unwrap_or_else(|error| panic!("no statistics: {error}\n{}", outcome.report()));
        let stats = serde_json::from_slice(&text)
            .unwrap_or_else(|error| panic!("bad statistics: {error}\n{}", outcome.report()));
        Managed { setup: setup.clone(), outcome, stats }
    }

    /// The command that runs the program under `zpager run`.
    pub fn managed_command(&self, setup: &Setup, store: &Path, stats_file: &Path) -> Command {
        let mut command = Command::new(places::zpager());
        command.args(setup.flags(store)).arg("--stats").arg(stats_file);
        command.arg("--").arg(&self.program).args(&self.arguments);
        command.envs(self.environment.iter().cloned()).envs(setup.environment());
        command
    }

    /// A new directory with the job's files.
    fn directory(&self) -> TempDir {
        let directory = places::scratch();
        for (name, contents) in &self.files {
            fs::write(directory.path().join(name), contents).expect("a file of the job");
        }
        directory
    }
}

impl std::fmt::Display for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.program.display())?;
        for argument in &self.arguments {
            write!(f, " {}", argument.to_string_lossy())?;
        }
        Ok(())
    }
}

/// Runs `command` in `directory` and collects what is seen of it.
///
/// # Panics
/// It cannot be started or takes longer than `limit`.
pub fn finish(mut command: Command, directory: TempDir, limit: Duration, shown: String) -> Outcome {
    let path = |name: &str| directory.path().join(name);
    let (stdout, stderr) = (path("test-stdout"), path("test-stderr"));
    command.current_dir(directory.path()).stdin(Stdio::null());
    command.stdout(File::create(&stdout).expect("a file for the output"));
    command.stderr(File::create(&stderr).expect("a file for the messages"));
    let child = command.process_group(0).spawn();
    let mut child = child.unwrap_or_else(|error| panic!("{shown}: {error}"));
    let group = Pid::from_child(&child);
    let ending = wait(&mut child, limit);
    // What a failed run left waiting for it; a good run's group is empty.
    let _ = kill_process_group(group, Signal::KILL);
    let outcome = Outcome {
        ending: ending.unwrap_or(Ending::Killed(Signal::KILL.as_raw())),
        stdout: fs::read(&stdout).expect("the output"),
        stderr: String::from_utf8_lossy(&fs::read(&stderr).expect("the messages")).into_owned(),
        directory,
        shown,
    };
    assert!(ending.is_some(), "still running after {limit:?}\n{}", outcome.report());
    outcome
}

/// Waits for the child; kills its group and gives `None` when it takes longer than `limit`.
pub fn wait(child: &mut Child, limit: Duration) -> Option<Ending> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("waiting for a child of this process") {
            return Some(status.into());
        }
        if started.elapsed() > limit {
            let group = Pid::from_child(child);
            // The group may be gone by now; then there is nothing to kill.
            let _ = kill_process_group(group, Signal::KILL);
            let _ = child.wait();
            return None;
        }
        sleep(LOOK_INTERVAL);
    }
}

/// Waits until something holds.
///
/// # Panics
/// It does not within `limit`.
pub fn until(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < limit, "not within {limit:?}: {what}");
        sleep(LOOK_INTERVAL);
    }
}

impl Outcome {
    /// The whole run, for a failure message.
    pub fn report(&self) -> String {
        let mut text = format!("{}\nended: {:?}\n", self.shown, self.ending);
        let _ = writeln!(text, "stdout ends: {}", tail(&String::from_utf8_lossy(&self.stdout)));
        let _ = writeln!(text, "stderr ends: {}", tail(&self.stderr));
        text
    }

    /// Fails the test unless the program ended with status 0.
    ///
    /// # Panics
    /// It did not.
    pub fn expect_success(self) -> Self {
        assert_eq!(self.ending, Ending::Exited(0), "{}", self.report());
        self
    }

    /// The contents of a file that the program made.
    ///
    /// # Panics
    /// There is none.
    pub fn file(&self, name: &str) -> Vec<u8> {
        let file = self.directory.path().join(name);
        fs::read(&file).unwrap_or_else(|error| panic!("{name}: {error}\n{}", self.report()))
    }
}

/// The end of a long text.
fn tail(text: &str) -> &str {
    let from = text.len().saturating_sub(SHOWN_BYTES);
    let start = (from..=text.len()).find(|index| text.is_char_boundary(*index));
    &text[start.unwrap_or(text.len())..]
}

impl Managed {
    /// Fails the test unless the run looks from outside as the free run did.
    ///
    /// # Panics
    /// It does not.
    pub fn expect_like(&self, free: &Outcome) {
        self.expect(free.ending, &free.stdout);
    }

    fn expect(&self, ending: Ending, stdout: &[u8]) {
        assert_eq!(self.outcome.ending, ending, "{}{:?}", self.outcome.report(), self.stats);
        if self.outcome.stdout != stdout {
            let free_output = tail(&String::from_utf8_lossy(stdout)).to_owned();
            panic!("other output than free, which ends: {free_output}\n{}", self.outcome.report());
        }
    }

    /// Fails the test unless pages went out and came back, and the budget was held.
    ///
    /// # Panics
    /// They did not, or it was not.
    pub fn expect_pressed(&self) {
        let stats = &self.stats;
        assert!(stats.is_pressed(), "no pressure: {}\n{stats:?}", self.outcome.shown);
        let held = stats.is_within_budget() || !self.setup.holds_budget();
        assert!(held, "budget not held: {}\n{stats:?}", self.outcome.shown);
    }
}

/// What a free run looks like from outside.
type Seen = (Ending, Vec<u8>);

/// The free runs of this test program's jobs, most of which are managed in several ways.
static FREE: Mutex<Vec<(Job, &OnceLock<Seen>)>> = Mutex::new(Vec::new());

/// Runs the job free, once however often this is called.
fn free_once(job: &Job) -> &'static Seen {
    let seen = {
        let mut all = FREE.lock().expect("nobody panics with it");
        let known = all.iter().find(|(other, _)| other == job).map(|(_, seen)| *seen);
        known.unwrap_or_else(|| {
            let seen: &OnceLock<Seen> = Box::leak(Box::default());
            all.push((job.clone(), seen));
            seen
        })
    };
    seen.get_or_init(|| {
        let free = job.free();
        (free.ending, free.stdout)
    })
}

/// Runs the job free and managed; both must look the same, and the managed run be under pressure.
///
/// # Panics
/// One of these does not hold.
pub fn compare(job: &Job, setup: &Setup) -> Managed {
    let (ending, stdout) = free_once(job);
    let managed = job.managed(setup);
    managed.expect(*ending, stdout);
    managed.expect_pressed();
    managed
}
