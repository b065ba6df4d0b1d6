//! Inside a memory cgroup whose hard limit is the budget and what zpager does not manage, or with a
//! budget that follows what the group allows.
//!
//! Needs the right to make a cgroup; says so and passes where it is missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::{NamedTempFile, TempDir};
use zpager_tests::job::finish;
use zpager_tests::setup::MIB;
use zpager_tests::{Ending, Job, Outcome, Setup, Start, Stats, places, victims};

const PATIENCE: Duration = Duration::from_secs(120);

/// The command, the program's text, stacks and page tables: what is not in the budget.
const UNMANAGED_MIB: u64 = 20;

/// The rounds of a victim that goes on until a file `stop` is there.
const FOREVER: &str = "forever";

/// A memory cgroup of this test's own, removed when the value is dropped.
struct Group(PathBuf);

impl Group {
    /// Version 1 or 2, whichever this machine has; `None` where none can be made.
    fn limited_to(mib: u64, name: &str) -> Option<Self> {
        let versions =
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        versions.into_iter().find_map(|(top, limit)| {
            let path = Path::new(top).join(format!("zpager-test-{name}-{}", std::process::id()));
            fs::create_dir(&path).ok()?;
            let group = Group(path);
            let is_set = group.0.join(limit).is_file()
                && fs::write(group.0.join(limit), (mib * MIB).to_string()).is_ok();
            // Each version has one of these; a limit that the kernel swaps under would not press.
            for no_swap in ["memory.swappiness", "memory.swap.max"] {
                let _ = fs::write(group.0.join(no_swap), "0");
            }
            is_set.then_some(group)
        })
    }

    /// Waits until so much is used in the group; false where that does not come.
    fn comes_to_use(&self, mib: u64) -> bool {
        let usages = ["memory.usage_in_bytes", "memory.current"].map(|name| self.0.join(name));
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE / 2 {
            let used = usages.iter().find_map(|usage| fs::read_to_string(usage).ok());
            if used.and_then(|used| used.trim().parse().ok()).unwrap_or(0) >= mib * MIB {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// Runs a command in the group.
    fn run(&self, command: &Command, directory: TempDir, shown: &str) -> Outcome {
        let join = format!("echo $$ > '{}/cgroup.procs' && exec \"$@\"", self.0.display());
        let mut shell = Command::new("sh");
        shell.args(["-c", &join, "sh"]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            shell.env(name, value.unwrap_or_default());
        }
        finish(shell, directory, PATIENCE, format!("in {}: {shown}", self.0.display()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

fn check(name: &str, job: &Job, mib: u64, start: Start) {
    let Some(group) = Group::limited_to(mib + UNMANAGED_MIB, name) else {
        println!("skipped: no memory cgroup can be made here");
        return;
    };
    let free = job.free();
    let words: Vec<String> = job.to_string().split(' ').map(str::to_owned).collect();
    let mut alone = Command::new(&words[0]);
    alone.args(&words[1..]);
    let killed = group.run(&alone, places::scratch(), "without zpager");
    assert_ne!(killed.ending, free.ending, "the limit does not press");
    let directory = places::scratch();
    let stats_file = directory.path().join("stats");
    let setup = Setup::of_mib(mib).start(start);
    let command = job.managed_command(&setup, directory.path(), &stats_file);
    let outcome = group.run(&command, directory, &setup.to_string());
    assert_eq!(outcome.ending, Ending::Exited(0), "{}", outcome.report());
    assert_eq!(outcome.stdout, free.stdout, "{}", outcome.report());
    let stats: Stats = serde_json::from_slice(&outcome.file("stats")).expect("statistics");
    assert!(stats.is_pressed() && stats.is_within_budget(), "{stats:?}");
}

#[test]
fn nothing_is_killed_when_managed_from_the_start() {
    let job = victims::job("field").arguments(["192", "words", "1"]);
    check("start", &job, 64, Start::FirstInstruction);
}

#[test]
fn nothing_is_killed_when_entered_at_pressure() {
    let job = victims::job("field").arguments(["256", "words", "1"]);
    check("pressure", &job, 96, Start::Pressure);
}

#[test]
fn nothing_is_killed_when_pages_do_not_shrink() {
    let job = victims::job("field").arguments(["160", "noise", "1"]);
    check("noise", &job, 48, Start::FirstInstruction);
}

#[test]
fn nothing_is_killed_in_a_tree_of_processes() {
    check("tree", &victims::job("tree"), 48, Start::FirstInstruction);
}

#[test]
fn nothing_is_killed_by_one_large_call() {
    for way in ["fread", "mmap"] {
        check("call", &victims::job("large_calls").argument(way), 70, Start::Pressure);
    }
}

/// Runs a job in the group with a budget that follows what there is.
fn automatic(group: &Group, job: &Job) -> Stats {
    automatic_in(group, job, places::scratch())
}

fn automatic_in(group: &Group, job: &Job, directory: TempDir) -> Stats {
    let mut command = Command::new(places::zpager());
    let shown = job.to_string();
    command.args(["run", "--memory", "auto", "--stats", "stats", "--store"]).arg(directory.path());
    command.arg("--").args(shown.split(' '));
    let outcome = group.run(&command, directory, "--memory auto");
    assert_eq!(outcome.ending, Ending::Exited(0), "{}", outcome.report());
    if !shown.contains(FOREVER) {
        assert_eq!(outcome.stdout, job.free().stdout, "{}", outcome.report());
    }
    let stats: Stats = serde_json::from_slice(&outcome.file("stats")).expect("statistics");
    assert!(stats.is_within_budget(), "{stats:?}");
    stats
}

#[test]
fn a_budget_makes_room_for_shared_memory_and_no_more() {
    let Some(group) = Group::limited_to(384, "shared") else {
        println!("skipped: no memory cgroup can be made here");
        return;
    };
    let stats = automatic(&group, &victims::job("field").arguments(["400", "words", "1", "200"]));
    // Of the reserve of 64 MiB half may be used up first; the command itself takes some, too.
    let lowest_mib = stats.lowest_budget_bytes / MIB;
    assert!((100..=384 - 200).contains(&lowest_mib), "{lowest_mib} MiB: {stats:?}");
    assert!((160..=210).contains(&(stats.peak_shared_bytes / MIB)), "{stats:?}");
}

/// What others leave comes to the run: the file of another process of the group, which is memory.
#[test]
fn a_budget_rises_by_what_others_leave() {
    let Some(group) = Group::limited_to(384, "rise") else {
        println!("skipped: no memory cgroup can be made here");
        return;
    };
    let held = NamedTempFile::new_in("/dev/shm").expect("a file in memory");
    let mut fill = Command::new("dd");
    fill.args(["if=/dev/zero", "bs=1M", "count=150"]).arg(format!("of={}", held.path().display()));
    let filled = group.run(&fill, places::scratch(), "dd");
    assert_eq!(filled.ending, Ending::Exited(0), "{}", filled.report());
    let directory = places::scratch();
    let stop = directory.path().join("stop");
    let job = victims::job("field").arguments(["400", "words", FOREVER]);
    let stats = std::thread::scope(|scope| {
        let run = scope.spawn(|| automatic_in(&group, &job, directory));
        let is_full = group.comes_to_use(300);
        drop(held);
        let is_more = is_full && group.comes_to_use(280);
        fs::write(stop, "").expect("the job is told to end");
        let stats = run.join().expect("a run that ends well");
        assert!(is_full && is_more, "{stats:?}");
        stats
    });
    let [start, highest] = [stats.budget_bytes, stats.highest_budget_bytes].map(|it| it / MIB);
    assert!(start <= 384 - 150 - 64 && (260..=384 - 64).contains(&highest), "{stats:?}");
}

/// Each has all of the group when it starts. What grows is not faster than it can be made room for.
#[test]
fn two_runs_share_what_a_group_allows() {
    let Some(group) = Group::limited_to(384, "pair") else {
        println!("skipped: no memory cgroup can be made here");
        return;
    };
    let job = victims::job("field").arguments(["110", "words", "2", "100"]);
    let stats = std::thread::scope(|scope| {
        let runs = [(); 2].map(|()| scope.spawn(|| automatic(&group, &job)));
        runs.map(|run| run.join().expect("a run that ends well"))
    });
    assert!(stats.iter().any(|stats| stats.lowest_budget_bytes < 300 * MIB), "{stats:?}");
}
