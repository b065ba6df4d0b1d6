//! Programs are entered in the middle of what they do, and go on undisturbed.
//!
//! The victim (`tests/victims/entered.c`) has an entry of its own, so these tests
//! are about ptrace and the kernel alone.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use super::hold::noting_ends;
use super::memories::have_one_filter;
use super::*;
use crate::run::living::is_ending;

/// How often a victim is asked to stop. On a machine that has no time for it one of its threads may not do so.
const STOPS_MAX: usize = 3;

/// How many threads sleep or compute in the victim's mode `threads`, besides the first.
const WORKS: usize = 10;

/// Compiles the victim once.
fn victim_file() -> &'static PathBuf {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/victims/entered.c");
        let folder = PathBuf::from(env!("OUT_DIR"));
        let file = folder.join("entered");
        // Another run of the tests may be executing the one that is there.
        let fresh = folder.join(format!("entered-{}", std::process::id()));
        let compiler = Command::new("cc")
            .args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
            .arg(&fresh)
            .arg(source)
            .status();
        assert!(compiler.expect("a C compiler").success());
        std::fs::rename(&fresh, &file).expect("renamed");
        file
    })
}

/// Stops every thread of a process.
fn stop(pid: pid_t, stragglers: &mut Stragglers) -> Result<Hold, Trouble> {
    Stopping::begin(pid, stragglers).finish(stragglers)
}

/// A running victim.
struct Victim {
    child: Child,
    output: BufReader<ChildStdout>,
    entry: u64,
}

impl Victim {
    /// Starts a victim whose entry answers `answer`, and waits until it is ready.
    fn start(mode: &str, answer: i64) -> Self {
        let mut child = Command::new(victim_file())
            .args([mode, &answer.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the victim starts");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("the victim is ready");
        let address = line.trim().strip_prefix("ready ").expect("the entry's address");
        let entry = u64::from_str_radix(address, 16).expect("a number");
        Victim { child, output, entry }
    }

    fn pid(&self) -> pid_t {
        self.child.id().cast_signed()
    }

    fn say(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("a pipe");
        input.write_all(line.as_bytes()).expect("the victim listens");
    }

    /// Stops it, as the supervisor does, enters all its threads and lets it go on.
    fn enter(&self) -> Result<(), Outcome> {
        let mut stragglers = Stragglers::default();
        let mut stops = (0..STOPS_MAX).map(|_| stop(self.pid(), &mut stragglers));
        let held = stops.find(|stopped| !matches!(stopped, Err(Trouble::Lost)));
        let mut hold = held.expect("stopped").unwrap_or_else(|trouble| panic!("{trouble:?}"));
        let entered = enter_all(&mut hold, at(self.entry, self.pid()));
        hold.release();
        entered
    }

    /// What it prints until its end; it has to end well.
    fn end(mut self) -> String {
        let mut text = String::new();
        self.output.read_to_string(&mut text).expect("its output");
        let status = self.child.wait().expect("its end");
        assert!(status.success(), "{status}: {text}");
        text
    }
}

/// An entry of a process for which nothing was passed.
fn at(entry: u64, run_pid: pid_t) -> At {
    At { entry, passed: 0, known: Known { run_pid, is_nested: true } }
}

#[test]
fn threads_go_on_in_what_they_were_doing() {
    const TIMES: usize = 20;
    let mut victim = Victim::start("threads", 0);
    for _ in 0..TIMES {
        assert_eq!(victim.enter(), Ok(()));
        std::thread::sleep(Duration::from_millis(1));
    }
    victim.say("go\n");
    let text = victim.end();
    let well = text.lines().filter(|line| line.ends_with(" ok")).count();
    assert_eq!(well, WORKS, "{text}");
    let (_, counts) = text.rsplit_once("entries ").expect("counts");
    let counts: Vec<&str> = counts.split_whitespace().collect();
    let threads: usize = counts[1].parse().expect("a number");
    assert_eq!((counts[0], counts[3]), ("20", "0"), "{text}");
    // The sleeping thread may have ended before the last time.
    assert!(threads > (WORKS - 1) * TIMES / 2 && threads <= WORKS * TIMES, "{text}");
}

/// It may have begun to manage itself meanwhile.
#[test]
fn a_call_that_is_about_to_be_dispatched_is_dispatched_afterwards() {
    let mut victim = Victim::start("dispatched", 0);
    for _ in 0..200 {
        assert_eq!(victim.enter(), Ok(()));
    }
    victim.say("go\n");
    let text = victim.end();
    assert!(text.contains("ok\nentries 200 200 wrong 0"), "{text}");
}

#[test]
fn a_refusal_leaves_the_program_as_it_was() {
    let mut victim = Victim::start("threads", -12);
    assert_eq!(victim.enter(), Err(Outcome::Impossible(12)));
    victim.say("go\n");
    let text = victim.end();
    assert!(text.contains("entries 1 0 wrong 0"), "{text}");
    assert_eq!(text.lines().filter(|line| line.ends_with(" ok")).count(), WORKS, "{text}");
}

#[test]
fn how_a_process_ended_while_it_was_entered_is_left_for_its_parent() {
    for mode in ["signal", "threads"] {
        let mut victim = Victim::start(mode, 0);
        let mut hold = stop(victim.pid(), &mut Stragglers::default()).expect("stopped");
        let others: Vec<pid_t> = hold.threads[1..].iter().map(StoppedThread::tid).collect();
        // There is no entry, and it dies of that.
        assert_eq!(enter_all(&mut hold, at(0, 1)), Err(Outcome::Gone), "{mode}");
        hold.release();
        for thread in others {
            // SAFETY: nobody else waits for the threads of this test's victim.
            let ended = unsafe { libc::waitpid(thread, std::ptr::null_mut(), libc::__WALL) };
            assert_eq!(ended, thread);
        }
        let status = victim.child.wait().expect("nobody has waited for it yet");
        assert_eq!(status.signal(), Some(libc::SIGSEGV), "{mode}");
    }
}

#[test]
fn a_signal_that_comes_meanwhile_is_delivered_once() {
    let victim = Victim::start("signal", 0);
    // It has to be in its read before it is stopped.
    std::thread::sleep(Duration::from_millis(50));
    let mut hold = stop(victim.pid(), &mut Stragglers::default()).expect("stopped");
    // SAFETY: a signal to the victim.
    unsafe { libc::kill(victim.pid(), libc::SIGUSR1) };
    assert_eq!(enter_all(&mut hold, at(victim.entry, victim.pid())), Ok(()));
    hold.release();
    let text = victim.end();
    assert!(text.contains("handled 1") && text.contains("entries 1 0 wrong 0"), "{text}");
    assert!(text.contains("read interrupted"), "as the handler would have done alone: {text}");
}

#[test]
fn a_signal_to_the_process_interrupts_one_of_its_threads() {
    let mut victim = Victim::start("two", 0);
    std::thread::sleep(Duration::from_millis(50));
    let mut stragglers = Stragglers::default();
    let stopping = Stopping::begin(victim.pid(), &mut stragglers);
    std::thread::sleep(Duration::from_millis(50));
    // SAFETY: a signal to the victim.
    unsafe { libc::kill(victim.pid(), libc::SIGUSR1) };
    let mut hold = stopping.finish(&mut stragglers).expect("stopped");
    assert_eq!(enter_all(&mut hold, at(victim.entry, victim.pid())), Ok(()));
    hold.release();
    victim.say("go\n");
    assert_eq!(victim.end(), "interrupted 1 handled 1\n");
}

#[test]
fn a_call_is_interrupted_by_a_handler_as_without_a_tracer() {
    let victim = Victim::start("signal", 0);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(victim.enter(), Ok(()));
    std::thread::sleep(Duration::from_millis(50));
    // SAFETY: a signal to the victim.
    unsafe { libc::kill(victim.pid(), libc::SIGUSR1) };
    let text = victim.end();
    assert!(text.contains("read interrupted") && text.contains("handled 1"), "{text}");
}

/// A process that waits in vfork(2) until its child reads a line.
fn in_vfork() -> Victim {
    let mut victim = Victim::start("vfork", 0);
    victim.say("go\n");
    for _ in 0..10_000 {
        let children = crate::run::supervisor::children_of(victim.pid()).expect("listed");
        if let [child] = children[..] {
            assert_eq!(share_memory(child, victim.pid()), Some(true));
            assert_eq!(have_one_filter(child, victim.pid()), Some(true));
            return victim;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("no child");
}

#[test]
fn a_parent_in_vfork_is_left_alone_and_entered_later() {
    let mut victim = in_vfork();
    let mut stragglers = Stragglers::default();
    assert!(matches!(stop(victim.pid(), &mut stragglers), Err(Trouble::Lost)));
    assert!(!stragglers.is_empty());
    victim.say("child\n");
    while !stragglers.is_empty() {
        stragglers.release_stopped();
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut line = String::new();
    victim.output.read_line(&mut line).expect("a line");
    assert_eq!(line, "child ok\n");
    assert_eq!(victim.enter(), Ok(()));
    victim.say("end\n");
    assert!(victim.end().contains("entries 1 0 wrong 0"));
}

#[test]
fn a_straggler_can_be_held_by_the_next_attempt() {
    let mut victim = in_vfork();
    let mut stragglers = Stragglers::default();
    assert!(matches!(stop(victim.pid(), &mut stragglers), Err(Trouble::Lost)));
    victim.say("child\n");
    let hold = (0..100).find_map(|_| stop(victim.pid(), &mut stragglers).ok());
    let mut hold = hold.expect("stopped once its child is gone");
    assert!(stragglers.is_empty());
    assert_eq!(enter_all(&mut hold, at(victim.entry, victim.pid())), Ok(()));
    hold.release();
    victim.say("end\n");
    let text = victim.end();
    assert!(text.contains("child ok") && text.contains("entries 1 0 wrong 0"), "{text}");
}

#[test]
fn a_thread_that_is_seized_already_is_held() {
    let mut victim = Victim::start("threads", 0);
    // As after an execve(2) of a thread that did not stop in time, and has another id now.
    ptrace::seize(victim.pid()).expect("seized");
    assert_eq!(victim.enter(), Ok(()));
    victim.say("go\n");
    assert!(victim.end().contains("entries 1 "));
}

/// A victim that is about to run another program, which waits for somebody to take note of the end of its second
/// thread, and that thread.
fn in_execve() -> (Victim, pid_t) {
    let mut victim = Victim::start("execute", 0);
    let threads = hold::threads_of(victim.pid()).expect("its threads");
    let other = threads.into_iter().find(|id| *id != victim.pid()).expect("two threads");
    ptrace::seize(other).expect("seized");
    victim.say("go\n");
    while !is_ending(victim.pid(), other) {
        std::thread::sleep(Duration::from_millis(1));
    }
    (victim, other)
}

#[test]
fn a_thread_is_seized_while_another_one_waits_for_the_end_of_a_third() {
    let (victim, other) = in_execve();
    let pid = victim.pid();
    // The other program can have ended by now.
    if noting_ends(pid, &[pid, other], || ptrace::seize(pid)).is_ok() {
        let _ = ptrace::interrupt(pid);
        while ptrace::look(pid) == Report::Nothing {
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = ptrace::detach(pid, 0);
    }
    assert_eq!(victim.end(), "executed\n");
}

#[test]
fn a_thread_that_was_seized_and_ended_does_not_keep_its_process_from_running_another() {
    let (victim, _) = in_execve();
    let mut stragglers = Stragglers::default();
    match stop(victim.pid(), &mut stragglers) {
        Ok(hold) => hold.release(),
        // The other program can have ended by now.
        Err(trouble) => assert!(matches!(trouble, Trouble::Gone), "{trouble:?}"),
    }
    assert_eq!(victim.end(), "executed\n");
}

#[test]
fn a_crowd_of_computing_threads_is_stopped_and_entered() {
    let mut victim = Victim::start("crowd", 0);
    assert_eq!(victim.enter(), Ok(()));
    victim.say("go\n");
    let text = victim.end();
    assert_eq!(text.trim(), "entries 1 100 wrong 0");
}

#[test]
fn a_process_whose_first_thread_has_ended_is_entered_by_another() {
    let mut victim = Victim::start("leaderless", 0);
    assert_eq!(victim.enter(), Ok(()));
    victim.say("go\n");
    assert!(victim.end().contains("entries 1 0 wrong 0"));
}

#[test]
fn a_stopped_job_stays_stopped() {
    let mut victim = Victim::start("threads", 0);
    let signal = |signal| {
        // SAFETY: a signal to the victim.
        unsafe { libc::kill(victim.pid(), signal) };
        std::thread::sleep(Duration::from_millis(50));
    };
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", victim.pid())).expect("stat");
        stat.rsplit_once(") ").expect("a state").1.chars().next()
    };
    signal(libc::SIGSTOP);
    assert_eq!(victim.enter(), Ok(()));
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(state(), Some('T'));
    signal(libc::SIGCONT);
    victim.say("go\n");
    let text = victim.end();
    assert_eq!(text.lines().filter(|line| line.ends_with(" ok")).count(), WORKS, "{text}");
}

#[test]
fn a_stop_that_comes_meanwhile_ends_with_a_continuation() {
    let victim = Victim::start("continued", 0);
    let mut hold = stop(victim.pid(), &mut Stragglers::default()).expect("stopped");
    // It comes when the entry begins, which sends the other.
    // SAFETY: a signal to the victim.
    unsafe { libc::kill(victim.pid(), libc::SIGSTOP) };
    assert_eq!(enter_all(&mut hold, at(victim.entry, victim.pid())), Ok(()));
    hold.release();
    std::thread::sleep(Duration::from_millis(100));
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", victim.pid())).expect("stat");
    for signal in [libc::SIGCONT, libc::SIGUSR1] {
        // SAFETY: as above.
        unsafe { libc::kill(victim.pid(), signal) };
    }
    victim.end();
    assert!(!stat.contains(") T "), "{stat}");
}

#[test]
fn a_process_that_is_gone_is_told_from_one_that_cannot_be_held() {
    let mut child = Command::new("/bin/true").spawn().expect("a child");
    let pid = child.id().cast_signed();
    child.wait().expect("its end");
    let stopped = stop(pid, &mut Stragglers::default());
    assert!(matches!(stopped, Err(Trouble::Gone)));
}

/// The descriptors of a process, and what they are.
fn descriptors_of(pid: pid_t) -> Vec<(u64, PathBuf)> {
    let folder = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors");
    let names = folder.map(|entry| entry.expect("an entry").path());
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse().ok();
    let target = |path: &PathBuf| std::fs::read_link(path).expect("a link");
    names.map(|path| (number(&path).expect("a number"), target(&path))).collect()
}

fn named(file: &File) -> (RawFd, BorrowedFd<'_>) {
    (file.as_raw_fd(), file.as_fd())
}

#[test]
fn descriptors_are_passed_and_taken_back() {
    let mut victim = Victim::start("threads", 0);
    let pid = victim.pid();
    let mut hold = stop(pid, &mut Stragglers::default()).expect("stopped");
    let maps = maps_of(pid).expect("its mappings");
    let mut caller = Caller::begin(&mut hold.threads[0], &maps).expect("a caller");
    let before = (descriptors_of(pid), maps_of(pid).expect("its mappings"));
    let files = ["/dev/null", "/proc/self/exe", "/"].map(|path| File::open(path).expect("opened"));
    let handed = Handed::give(pid, &mut caller, &files.each_ref().map(named)).expect("passed");
    let passed = descriptors_of(pid);
    for file in &files {
        let own = handed.own(file.as_raw_fd()).expect("in the table");
        let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
        assert!(passed.contains(&(own, path.expect("a link"))), "{own} in {passed:?}");
    }
    assert_eq!(passed.len(), before.0.len() + files.len());
    let table = caller.read::<24>(handed.table_address()).expect("the table");
    let (words, _) = table.as_chunks::<4>();
    let in_table = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word)));
    let pairs = files.iter().flat_map(|file| {
        let descriptor = file.as_raw_fd();
        [u64::from(descriptor.cast_unsigned()), handed.own(descriptor).expect("in the table")]
    });
    assert!(in_table.eq(pairs));
    handed.take_back(&mut caller);
    assert_eq!((descriptors_of(pid), maps_of(pid).expect("its mappings")), before);
    caller.end().expect("its code is put back");
    hold.release();
    victim.say("go\n");
    assert_eq!(victim.end().lines().filter(|line| line.ends_with(" ok")).count(), WORKS);
}

#[test]
fn a_process_without_room_for_descriptors_is_left_as_it_was() {
    let mut victim = Victim::start("threads", 0);
    let pid = victim.pid();
    let mut hold = stop(pid, &mut Stragglers::default()).expect("stopped");
    let maps = maps_of(pid).expect("its mappings");
    let before = descriptors_of(pid);
    let first_free = (0..).find(|number| before.iter().all(|(used, _)| used != number));
    // For the sockets and one more.
    let current = first_free.map(|free| free + 3);
    let limit = rustix::process::Rlimit { current, maximum: current };
    let set = rustix::process::prlimit(
        rustix::process::Pid::from_raw(pid),
        rustix::process::Resource::Nofile,
        limit,
    );
    set.expect("its limit");
    let mut caller = Caller::begin(&mut hold.threads[0], &maps).expect("a caller");
    let files = [(); 3].map(|()| File::open("/dev/null").expect("opened"));
    let handed = Handed::give(pid, &mut caller, &files.each_ref().map(named));
    assert!(matches!(handed, Err(Trouble::Refused(libc::EMFILE))), "{handed:?}");
    assert_eq!(descriptors_of(pid), before);
    caller.end().expect("its code is put back");
    hold.release();
    victim.say("go\n");
    assert_eq!(victim.end().lines().filter(|line| line.ends_with(" ok")).count(), WORKS);
}

#[test]
fn entering_is_permitted_here() {
    assert!(is_permitted());
}

#[test]
fn mappings_are_read() {
    let maps = "\
4000-4010 r--p 00000000 00:01 77 /memfd:zpager-agent (deleted)
4010-4020 r--p 00001000 00:01 77 /memfd:zpager-agent (deleted)
55d0-55e0 r--p 00000000 fd:00 12 /usr/bin/a b
7f00-7f10 r--p 00000000 00:01 77 /memfd:zpager-agent (deleted)
7f10-7f20 r-xp 00001000 00:01 77 /memfd:zpager-agent (deleted)
7e00-7e10 r--p 00000000 00:01 78 /memfd:zpager-agent (deleted)
7fff-8000 rw-p 00000000 00:00 0 
";
    assert_eq!(mappings(maps).count(), 7);
    assert_eq!(mappings(maps).nth(2).map(|found| found.name), Some("/usr/bin/a b"));
    assert_eq!(base_of(maps, 77), Some(0x7f00));
    assert!(has_any_agent(maps));
    for inode in [12, 78] {
        assert_eq!(base_of(maps, inode), None);
    }
    let emulated = &maps[..maps.find("55d0").expect("it is there")];
    assert_eq!(base_of(emulated, 77), None);
    assert!(!has_any_agent(emulated));
}

#[test]
fn a_program_is_known_again_until_another_one_is_begun() {
    let own = std::process::id().cast_signed();
    let program = WithoutAgent::of(own, true);
    assert_eq!(program.linkage, Linkage::Dynamic);
    assert!(program.is_in(own));
    let mut again = [(); 2].map(|()| Victim::start("threads", 0));
    let programs = again.each_ref().map(|victim| WithoutAgent::of(victim.pid(), true));
    for (victim, program) in again.iter().zip(&programs) {
        assert!(program.is_in(victim.pid()) && !program.is_in(own));
    }
    assert!(!programs[0].is_in(again[1].pid()), "the same file, begun another time");
    again.iter_mut().for_each(|victim| victim.say("go\n"));
    again.into_iter().for_each(|victim| drop(victim.end()));
}
