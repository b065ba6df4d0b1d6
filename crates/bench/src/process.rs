//! One run of one program: started in its cgroup, watched, measured, and gone
//! with all its children afterwards.
//!
//! Three threads: one waits for the program's end, so that the time is exact;
//! one drives it (reads its output, or talks to it); the caller's samples what
//! the kernel keeps no peak of, every [`TICK`], and minds the time-out and Ctrl-C.
//! The program's output goes through a pipe, never into a file, whose cache would
//! be charged to the program.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use zpager_command::file_limit;

use crate::group::Group;
use crate::interrupt;

/// How often samples are taken: often enough to see a pool grow, and less than
/// a hundredth of the time of a core that the program does not use.
const TICK: Duration = Duration::from_millis(20);

/// A program to be run.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// The command and its arguments.
    pub argv: Vec<OsString>,
    /// Additions to the environment.
    pub environment: Vec<(&'static str, OsString)>,
    /// Its working directory, where that is not the place's.
    pub directory: Option<PathBuf>,
}

/// Where and for how long a program runs.
pub(crate) struct Place<'a> {
    /// Its working directory, unless it has one of its own; its standard error is kept there.
    pub directory: &'a Path,
    /// The cgroup it joins before it starts.
    pub group: Option<&'a Group>,
    /// When it is killed.
    pub time_out: Duration,
}

/// What a driver sees of the running program.
#[derive(Debug)]
pub(crate) struct Running<'a> {
    /// Its standard output.
    pub stdout: ChildStdout,
    /// Set once it has ended.
    pub has_ended: &'a AtomicBool,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With exit status 0.
    Done,
    /// With another exit status or by a signal; the last line of its standard error.
    Failed(String),
    /// Killed by the kernel, which could not hold the cgroup's limit.
    OutOfMemory,
    /// Killed by the bench, because it took longer than this.
    TimedOut(Duration),
}

/// A run that is over. `T` is what its driver made of it.
#[derive(Debug)]
pub(crate) struct Finished<T> {
    /// How it ended.
    pub ending: Ending,
    /// From its start to its end, on the clock.
    pub seconds: f64,
    /// User and system time of it and its children.
    pub cpu_seconds: f64,
    /// Driver's result.
    pub output: Result<T>,
    /// Highest sum the cgroup was charged.
    pub group_peak_bytes: u64,
    /// Highest sample of what the kernel could not drop without swapping.
    pub unreclaimable_peak_bytes: u64,
    /// Highest sample of `sample`.
    pub sampled_peak_bytes: u64,
    /// Major faults of all processes in its cgroup, 0 without one.
    pub major_faults: u64,
}

/// Runs `program` to its end. `drive` reads its output; `sample` gives a figure
/// whose highest value is kept.
///
/// # Errors
/// When it cannot be started or waited for, or the bench is interrupted; in every
/// case nothing of it is left running.
pub(crate) fn run<T: Send>(
    program: &Program,
    place: &Place<'_>,
    drive: impl FnOnce(Running<'_>) -> Result<T> + Send,
    sample: impl FnMut() -> u64,
) -> Result<Finished<T>> {
    let stderr_path = place.directory.join("stderr.txt");
    let mut command = command(program, place, File::create(&stderr_path)?)?;
    let before = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let start = Instant::now();
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot start {}", program.argv[0].to_string_lossy()))?;
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    let stdout = child.stdout.take().context("no pipe")?;
    let has_ended = AtomicBool::new(false);

    let (watched, waited, output) = std::thread::scope(|scope| {
        let driver = scope.spawn(|| drive(Running { stdout, has_ended: &has_ended }));
        let (sender, ends) = mpsc::channel();
        let waiter = scope.spawn(|| wait(child, start, sender));
        let watched = watch(place, start, &ends, sample);
        // Also ends what the program left running, which holds its output open.
        let killed = kill_tree(place, pid);
        let waited = waiter.join();
        has_ended.store(true, Relaxed);
        (watched.and_then(|watched| killed.map(|()| watched)), waited, driver.join())
    });
    let watched = watched?;
    let (status, seconds) = waited.map_err(|_| anyhow::anyhow!("the waiting thread failed"))??;
    let after = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let cpu_seconds = cpu_seconds(&after) - cpu_seconds(&before);
    let oom_kills = place.group.map_or(0, Group::oom_kills);
    Ok(Finished {
        ending: ending(
            status,
            oom_kills,
            watched.timed_out.then_some(place.time_out),
            &stderr_path,
        ),
        seconds,
        cpu_seconds,
        output: output.unwrap_or_else(|_| Err(anyhow::anyhow!("the driving thread failed"))),
        group_peak_bytes: place.group.map_or(0, Group::peak_bytes).max(watched.usage_peak_bytes),
        unreclaimable_peak_bytes: watched.unreclaimable_peak_bytes,
        sampled_peak_bytes: watched.sampled_peak_bytes,
        major_faults: place.group.map_or(0, Group::major_faults),
    })
}

fn command(program: &Program, place: &Place<'_>, stderr: File) -> Result<Command> {
    let mut command = Command::new(&program.argv[0]);
    command
        .args(&program.argv[1..])
        .envs(program.environment.iter().cloned())
        .current_dir(program.directory.as_deref().unwrap_or(place.directory))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr)
        // Ctrl-C is the bench's to act on.
        .process_group(0);
    // SAFETY: between fork and exec a signal's action is set, which is safe there.
    unsafe {
        command.pre_exec(|| {
            file_limit::give_back();
            Ok(())
        })
    };
    if let Some(group) = place.group {
        let mut doors = group.doors()?;
        // SAFETY: between fork and exec only write(2) is called, on descriptors
        // that the closure owns; that is safe in a signal handler and so here.
        unsafe {
            command.pre_exec(move || doors.iter_mut().try_for_each(|door| door.write_all(b"0")))
        };
    }
    Ok(command)
}

/// Waits for the program and says so.
fn wait(
    mut child: Child,
    start: Instant,
    ended: mpsc::Sender<()>,
) -> std::io::Result<(ExitStatus, f64)> {
    let status = child.wait()?;
    let seconds = start.elapsed().as_secs_f64();
    // Nobody listens any more after a time-out.
    let _ = ended.send(());
    Ok((status, seconds))
}

#[derive(Debug, Default)]
struct Watched {
    timed_out: bool,
    usage_peak_bytes: u64,
    unreclaimable_peak_bytes: u64,
    sampled_peak_bytes: u64,
}

fn watch(
    place: &Place<'_>,
    start: Instant,
    ends: &mpsc::Receiver<()>,
    mut sample: impl FnMut() -> u64,
) -> Result<Watched> {
    let mut watched = Watched::default();
    while let Err(RecvTimeoutError::Timeout) = ends.recv_timeout(TICK) {
        interrupt::check()?;
        watched.sampled_peak_bytes = watched.sampled_peak_bytes.max(sample());
        if let Some(group) = place.group {
            watched.usage_peak_bytes = watched.usage_peak_bytes.max(group.usage_bytes());
            watched.unreclaimable_peak_bytes =
                watched.unreclaimable_peak_bytes.max(group.unreclaimable_bytes());
        }
        if start.elapsed() > place.time_out {
            watched.timed_out = true;
            break;
        }
    }
    // A device keeps its own peak, which may have come after the last sample.
    watched.sampled_peak_bytes = watched.sampled_peak_bytes.max(sample());
    Ok(watched)
}

fn kill_tree(place: &Place<'_>, pid: Pid) -> Result<()> {
    match place.group {
        Some(group) => group.kill_all(),
        None => {
            // The group is empty where the program left nothing running.
            let _ = killpg(pid, Signal::SIGKILL);
            Ok(())
        }
    }
}

fn cpu_seconds(usage: &nix::sys::resource::Usage) -> f64 {
    [usage.user_time(), usage.system_time()]
        .iter()
        .map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6)
        .sum()
}

fn ending(
    status: ExitStatus,
    oom_kills: u64,
    timed_out: Option<Duration>,
    stderr_path: &Path,
) -> Ending {
    if let Some(limit) = timed_out {
        return Ending::TimedOut(limit);
    }
    // A killed child (a compiler under its driver) need not end its parent by a signal.
    if oom_kills > 0 {
        return Ending::OutOfMemory;
    }
    if status.success() {
        return Ending::Done;
    }
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no exit status".to_owned(),
    };
    let stderr = fs::read(stderr_path).unwrap_or_default();
    match String::from_utf8_lossy(&stderr).trim_end().lines().last() {
        Some(line) => Ending::Failed(format!("{how}: {line}")),
        None => Ending::Failed(how),
    }
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ending::Done => f.write_str("done"),
            Ending::Failed(how) => f.write_str(how),
            Ending::OutOfMemory => f.write_str("killed by the kernel for lack of memory"),
            Ending::TimedOut(limit) => write!(f, "not finished within {} s", limit.as_secs()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn shell(script: &str, time_out: Duration) -> Finished<String> {
        let directory = tempfile::tempdir().expect("a directory");
        let program = Program {
            argv: ["/bin/sh", "-c", script].map(OsString::from).to_vec(),
            environment: vec![("GREETING", "hello".into())],
            directory: None,
        };
        let place = Place { directory: directory.path(), group: None, time_out };
        let drive = |mut running: Running<'_>| {
            let mut text = String::new();
            running.stdout.read_to_string(&mut text)?;
            Ok(text)
        };
        run(&program, &place, drive, || 7).expect("a run")
    }

    #[test]
    fn output_and_exit_status_arrive() {
        let finished = shell("echo $GREETING", Duration::from_secs(60));
        assert_eq!(finished.ending, Ending::Done);
        assert_eq!(finished.output.expect("output"), "hello\n");
        let finished = shell("echo why >&2; exit 3", Duration::from_secs(60));
        assert_eq!(finished.ending, Ending::Failed("exit status 3: why".into()));
        let finished = shell("kill -9 $$", Duration::from_secs(60));
        assert_eq!(finished.ending, Ending::Failed("signal 9".into()));
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_its_children() {
        let limit = Duration::from_millis(200);
        let finished = shell("sleep 1000 & sleep 1000", limit);
        assert_eq!(finished.ending, Ending::TimedOut(limit));
        assert_eq!(finished.sampled_peak_bytes, 7);
        assert!(finished.seconds < 100.0);
    }
}
