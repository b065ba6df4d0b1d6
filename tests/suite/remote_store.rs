//! Spilled pages on a Redis or Valkey server: the program's output is as without, nothing stays on
//! the server, and a server that is killed, stopped or replaced costs no wrong byte and no hang.
//! It learns nothing of what is in the pages, unless it may. The server is the one that
//! `ZPAGER_REDIS_SERVER` names, else redis-server or valkey-server; where none is installed the
//! tests say so and pass.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::{self, sleep};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use zpager_tests::job::{self, finish, wait};
use zpager_tests::stats::StoreStats;
use zpager_tests::{Ending, Job, Outcome, Stats, places, text, victims};

const PATIENCE: Duration = Duration::from_secs(600);

/// Where a server listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listens {
    Socket,
    Port(u16),
    /// As a node of a cluster.
    Node(u16),
}

/// A server of the test's own.
struct Server {
    directory: TempDir,
    listens: Listens,
    child: Child,
}

impl Server {
    /// `None` where none is installed.
    fn start(listens: Listens, options: &[&str]) -> Option<Server> {
        let directory = places::scratch();
        let Some(child) = launch(directory.path(), listens, options) else {
            println!("skipped: neither redis-server nor valkey-server is installed");
            return None;
        };
        let server = Server { directory, listens, child };
        server.until_it_answers();
        Some(server)
    }

    fn address(&self) -> String {
        match self.listens {
            Listens::Socket => format!("redis+unix://{}/socket", self.directory.path().display()),
            Listens::Port(port) => format!("redis://127.0.0.1:{port}/3"),
            Listens::Node(port) => format!("redis://127.0.0.1:{port}"),
        }
    }

    /// Host and port of a node.
    fn place(&self) -> String {
        self.address().replace("redis://", "")
    }

    /// By which a cluster knows a node.
    fn node_id(&self) -> String {
        let answer = self.ask("CLUSTER MYID").expect("an answer");
        answer.lines().nth(1).expect("its name").to_owned()
    }

    /// What the server answers to a command, in lines.
    fn ask(&self, command: &str) -> std::io::Result<String> {
        Ok(String::from_utf8_lossy(&self.ask_bytes(command)?).into_owned())
    }

    /// The value of a key, which may be gone.
    fn value(&self, key: &str) -> Option<Vec<u8>> {
        let answer = self.ask_bytes(&format!("GET {key}")).expect("an answer");
        let start = answer.iter().position(|byte| *byte == b'\n')? + 1;
        let length: usize = str::from_utf8(&answer[1..start - 2]).ok()?.parse().ok()?;
        Some(answer[start..start + length].to_vec())
    }

    fn ask_bytes(&self, command: &str) -> std::io::Result<Vec<u8>> {
        match self.listens {
            Listens::Socket => {
                ask(UnixStream::connect(self.directory.path().join("socket"))?, command)
            }
            Listens::Port(port) | Listens::Node(port) => {
                ask(TcpStream::connect(("127.0.0.1", port))?, command)
            }
        }
    }

    fn until_it_answers(&self) {
        until("the server answers", || self.ask("PING").is_ok_and(|answer| !answer.is_empty()));
    }

    /// The keys of its database that runs use.
    fn keys(&self) -> Vec<String> {
        let database = if matches!(self.listens, Listens::Port(_)) { 3 } else { 0 };
        let answer = self.ask(&format!("SELECT {database}\r\nKEYS *")).expect("the keys");
        let lines = answer.lines().filter(|line| line.starts_with("zpager:"));
        lines.map(str::to_owned).collect()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the server lives");
    }

    fn kill(&mut self) {
        self.child.kill().expect("the server lives");
        self.child.wait().expect("its end");
    }

    /// Another server in its place, without anything that it had.
    fn restart(&mut self) {
        self.kill();
        let _ = fs::remove_file(self.directory.path().join("socket"));
        self.child = launch(self.directory.path(), self.listens, &[]).expect("another server");
        self.until_it_answers();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn launch(directory: &Path, listens: Listens, options: &[&str]) -> Option<Child> {
    let named = std::env::var("ZPAGER_REDIS_SERVER").ok();
    let installed = ["redis-server", "valkey-server"].map(String::from).to_vec();
    let started = named.clone().map_or(installed, |name| vec![name]).into_iter().find_map(|name| {
        let mut command = Command::new(name);
        command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(directory);
        match listens {
            Listens::Socket => {
                command.args(["--port", "0", "--unixsocket"]).arg(directory.join("socket"))
            }
            Listens::Port(port) => {
                command.args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            }
            Listens::Node(port) => command
                .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
                .args(["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"])
                .args(["--cluster-require-full-coverage", "no"]),
        };
        command.args(options).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
    });
    assert!(started.is_some() || named.is_none(), "ZPAGER_REDIS_SERVER={named:?} does not start");
    started
}

fn ask(mut stream: impl Read + Write, command: &str) -> std::io::Result<Vec<u8>> {
    write!(stream, "{command}\r\nQUIT\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

/// How many neighbouring words of a value follow each other in the noise of [`field`], and of how
/// many. In noise that was encrypted that is so by a chance of 1 in 2^64.
fn noise(value: &[u8]) -> (usize, usize) {
    // What splitmix64 made each word of, but for a constant.
    let source = |word: &[u8]| {
        let x = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        let x = (x ^ (x >> 31) ^ (x >> 62)).wrapping_mul(0x3196_42B2_D24D_8EC3);
        let x = (x ^ (x >> 27) ^ (x >> 54)).wrapping_mul(0x96DE_1B17_3F11_9089);
        x ^ (x >> 30) ^ (x >> 60)
    };
    let sources: Vec<u64> = value.chunks_exact(8).map(source).collect();
    let follow = sources.windows(2).filter(|pair| pair[1] == pair[0].wrapping_add(1));
    (follow.count(), sources.len())
}

/// A port that nobody listens on.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address").port()
}

fn until(what: &str, holds: impl FnMut() -> bool) {
    job::until(PATIENCE, what, holds);
}

/// A victim that has far more noise than its budget, so that most of it is spilled.
fn field(rounds: &str) -> Job {
    victims::job("field").arguments(["64", "noise", rounds])
}

/// `zpager run` in 24 MiB with a server as the store.
fn command(address: &str, more: &[&str], job: &[&str]) -> Command {
    let mut command = Command::new(places::zpager());
    command.args(["run", "--memory", "24M", "--stats", "stats", "--store", address]).args(more);
    command.arg("--").args(job);
    command
}

/// The words of [`field`].
fn field_words(rounds: &str) -> Vec<String> {
    let program = victims::build("field", &[]).display().to_string();
    let seed = victims::seed();
    [program.as_str(), seed.as_str(), "64", "noise", rounds].map(str::to_owned).to_vec()
}

fn run(address: &str, more: &[&str], words: &[String]) -> (Outcome, Option<Stats>) {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let directory = places::scratch();
    let stats_file = directory.path().join("stats");
    let outcome = finish(
        command(address, more, &words),
        directory,
        PATIENCE,
        format!("zpager run --store {address} {more:?}"),
    );
    let stats = fs::read(stats_file).ok();
    (outcome, stats.map(|text| serde_json::from_slice(&text).expect("statistics")))
}

/// Runs the job; its output has to be that of the free run, and pages have gone to the server.
fn compare(server: &Server, words: &[String]) -> Stats {
    compare_with(server, "default", words)
}

/// The same with a design.
fn compare_with(server: &Server, design: &str, words: &[String]) -> Stats {
    let words_free: Vec<_> = words[1..].iter().collect();
    let free = Job::new(&words[0]).arguments(words_free).free().expect_success();
    // However long a busy machine keeps the server from answering.
    let more = ["--store-timeout", "600", "--design", design];
    let (outcome, stats) = run(&server.address(), &more, words);
    assert_eq!(outcome.ending, Ending::Exited(0), "{}", outcome.report());
    assert!(outcome.stdout == free.stdout, "{}", outcome.report());
    let stats = stats.expect("statistics");
    let store = &stats.store;
    assert!(store.remote_writes > 0 && store.remote_reads > 0, "{store:?}");
    assert!(store.expected_read_ns > 0, "{store:?}");
    assert_eq!((store.remote_lost_clusters, store.remote_failures), (0, 0), "{store:?}");
    assert_eq!(server.keys(), Vec::<String>::new());
    stats
}

/// A run in the background, of a program that goes on until it is told to stop.
struct Running {
    zpager: Child,
    helper: i32,
    directory: TempDir,
}

impl Running {
    fn start(server: &Server, more: &[&str]) -> Running {
        Running::start_at(&server.address(), server, more)
    }

    /// With these stores, of which the server is the first.
    fn start_at(stores: &str, server: &Server, more: &[&str]) -> Running {
        let directory = places::scratch();
        let words = field_words("forever");
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command = command(stores, more, &words);
        let file = |name: &str| File::create(directory.path().join(name)).expect("a file");
        command.current_dir(directory.path()).stdin(Stdio::null());
        command.stdout(file("stdout")).stderr(file("stderr")).process_group(0);
        let zpager = command.spawn().expect("zpager starts");
        let mut running = Running { zpager, helper: 0, directory };
        until("the program is ready", || running.text("stdout").contains("ready"));
        running.helper = running.children(|command| command.contains("remote-helper"))[0];
        // Of a cluster it has a third.
        let keys = if matches!(server.listens, Listens::Node(_)) { 15 } else { 50 };
        until("pages are on the server", || server.keys().len() > keys);
        running
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.directory.path().join(name)).expect("a file of the run")
    }

    /// zpager's children whose command line is like this.
    fn children(&self, is_like: impl Fn(&str) -> bool) -> Vec<i32> {
        let pid = self.zpager.id();
        let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("a list");
        let pids = list.split_whitespace().map(|pid| pid.parse().expect("a process id"));
        let line = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/cmdline"));
        pids.filter(|pid| line(pid).is_ok_and(|line| is_like(&line))).collect()
    }

    fn kill_program(&self) {
        for pid in self.children(|command| command.contains("forever")) {
            kill(pid);
        }
    }

    /// Tells the program to end well and gives how it did.
    fn end(mut self) -> (Ending, String) {
        self.stop()
    }

    fn stop(&mut self) -> (Ending, String) {
        fs::write(self.directory.path().join("stop"), "").expect("the file that ends the program");
        let ending = wait(&mut self.zpager, PATIENCE).expect("no hang");
        (ending, self.text("stderr"))
    }

    /// The same of a program that has to end well, with what the run's store did.
    fn end_well(mut self) -> (StoreStats, String) {
        let (ending, messages) = self.stop();
        assert_eq!(ending, Ending::Exited(0), "{messages}");
        let stats: Stats = serde_json::from_str(&self.text("stats")).expect("statistics");
        (stats.store, messages)
    }

    /// Bytes on the disk of the nameless file of the run in a directory.
    fn bytes_in(&self, directory: &Path) -> u64 {
        let files = places::open_files_in(self.zpager.id(), directory);
        let [file] = &files[..] else { panic!("{files:?} in {}", directory.display()) };
        fs::metadata(file).expect("an open file").blocks() * 512
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Gone already when the test went well.
        let group = Pid::from_child(&self.zpager);
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
        let _ = self.zpager.wait();
    }
}

fn kill(pid: i32) {
    let pid = Pid::from_raw(pid).expect("a process id");
    kill_process(pid, Signal::KILL).expect("a process of this test");
}

fn is_gone(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}

/// The program was ended with a message that names the page, or its output is right: it checks
/// every page itself, and ends with another status where one is wrong.
fn expect_right_or_told(ending: Ending, messages: &str) -> bool {
    let told = messages.lines().any(|line| {
        line.contains("was ended: its page at 0x") && line.contains("could not be read")
    });
    match ending {
        Ending::Exited(0) => {}
        Ending::Killed(_) => assert!(told, "{messages}"),
        Ending::Exited(_) => panic!("{ending:?}: {messages}"),
    }
    told
}

#[test]
fn sorting_by_way_of_a_server() {
    let Some(on_socket) = Server::start(Listens::Socket, &[]) else { return };
    let on_port = Server::start(Listens::Port(free_port()), &[]).expect("a server");
    let lines = places::scratch();
    let file = lines.path().join("lines");
    let mut state = 88172645463325252u64;
    let mut draw = |at: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // Any printable character, so that codecs win little; a newline after each 39.
        if at % 40 == 39 { b'\n' } else { b' ' + (state >> 32) as u8 % 95 }
    };
    let text: Vec<u8> = (0..16 << 20).map(&mut draw).collect();
    fs::write(&file, text).expect("the lines");
    let mut words =
        ["/usr/bin/sort", "--parallel=1", "--buffer-size=300M"].map(String::from).to_vec();
    words.push(file.display().to_string());
    for server in [&on_socket, &on_port] {
        let stats = compare(server, &words);
        assert!(stats.store.remote_peak_bytes > 1 << 20, "{stats:?}");
    }
}

/// A door to a server, which answers later here.
fn slow_door(server: u16, delay: Duration) -> u16 {
    let door = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = door.local_addr().expect("its address").port();
    let pass = |mut from: TcpStream, mut to: TcpStream, delay| {
        let mut some = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from.read(&mut some) {
            sleep(delay);
            if to.write_all(&some[..count]).is_err() {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    };
    thread::spawn(move || {
        while let Ok((client, _)) = door.accept() {
            let server = TcpStream::connect(("127.0.0.1", server)).expect("the server");
            let (asks, answers) = (client.try_clone(), server.try_clone());
            let (asks, answers) = (asks.expect("a copy"), answers.expect("a copy"));
            thread::spawn(move || pass(asks, server, Duration::ZERO));
            thread::spawn(move || pass(answers, client, delay));
        }
    });
    port
}

/// Where a read takes 20 ms the pool takes what holds all of the program, in place of the fastest codec.
#[test]
fn behind_a_slow_server_the_pool_takes_a_denser_codec() {
    let port = free_port();
    let Some(_server) = Server::start(Listens::Port(port), &[]) else { return };
    let directory = places::scratch();
    let [lines, stats] = ["lines", "stats"].map(|name| directory.path().join(name));
    fs::write(&lines, text::lines(200_000)).expect("the lines");
    let sort = ["/usr/bin/sort", "--parallel=1", "--buffer-size=300M"];
    let free = Job::new(sort[0]).arguments(&sort[1..]).argument(&lines).free().expect_success();
    let door = slow_door(port, Duration::from_millis(20));
    let mut command = Command::new(places::zpager());
    command.args(["run", "--memory", "8M", "--store", &format!("redis://127.0.0.1:{door}")]);
    command.arg("--stats").arg(&stats).arg("--").args(sort).arg(&lines);
    let outcome = finish(command, places::scratch(), PATIENCE, "zpager run, slowly".to_owned());
    assert_eq!(outcome.ending, Ending::Exited(0), "{}", outcome.report());
    assert!(outcome.stdout == free.stdout, "{}", outcome.report());
    let text = fs::read(stats).expect("statistics");
    let stats: Stats = serde_json::from_slice(&text).expect("statistics");
    assert!(stats.dense_pages > stats.swapped_out_pages / 4, "{stats:?}");
}

#[test]
fn parent_and_child_share_what_is_on_the_server() {
    let Some(server) = Server::start(Listens::Socket, &[]) else { return };
    let program = victims::build("inherit", &[]).display().to_string();
    compare(&server, &[program, victims::seed()]);
}

/// A write that one of several processes with the same memory has begun is settled by another.
#[test]
fn processes_that_share_their_memory_share_its_writes() {
    let Some(server) = Server::start(Listens::Socket, &[]) else { return };
    let program = victims::build("kills", &[]).display().to_string();
    compare_with(&server, "hp", &[program, victims::seed()]);
}

#[test]
fn threads_wait_for_the_server_at_the_same_time() {
    let Some(server) = Server::start(Listens::Socket, &[]) else { return };
    let program = victims::build("readers", &[]).display().to_string();
    compare(&server, &[program, victims::seed()]);
}

/// The words of a victim that walks over tables of pointers.
fn pointers_words() -> [String; 2] {
    [victims::build("pointers", &[]).display().to_string(), victims::seed()]
}

#[test]
fn pages_to_which_pointers_lead_are_asked_for_ahead_of_need() {
    let Some(server) = Server::start(Listens::Socket, &[]) else { return };
    let Stats { store, faults, .. } = compare(&server, &pointers_words());
    assert!(store.foretold_used_reads * 3 > faults.spilled, "{store:?}, {faults:?}");
    assert!(store.foretold_used_reads * 3 > store.foretold_reads * 2, "{store:?}");
}

/// What was asked for ahead of need comes from the mirror when it is wanted.
#[test]
fn a_server_that_is_killed_while_pages_are_foretold_is_not_waited_for() {
    let Some(server) = Server::start(Listens::Socket, &[]) else { return };
    let [program, seed] = pointers_words();
    let free = Job::new(&program).argument(&seed).free().expect_success();
    let mirror = places::scratch();
    let directory = mirror.path().display().to_string();
    let more = ["--store-timeout", "2", "--store-mirror", &directory];
    let (outcome, stats) = thread::scope(|scope| {
        scope.spawn(|| {
            until("pages are on the server", || server.keys().len() > 50);
            sleep(Duration::from_millis(500));
            server.signal(Signal::KILL);
        });
        run(&server.address(), &more, &[program, seed])
    });
    assert_eq!(outcome.ending, Ending::Exited(0), "{}", outcome.report());
    assert!(outcome.stdout == free.stdout, "{}", outcome.report());
    let store = stats.expect("statistics").store;
    assert!(store.remote_reads > 0 && store.remote_failures > 0, "{store:?}");
}

#[test]
fn keys_are_the_runs_own_expire_and_are_gone_at_the_end() {
    let Some(server) = Server::start(Listens::Socket, &[]) else { return };
    let running = Running::start(&server, &[]);
    let other = Running::start(&server, &[]);
    let keys = server.keys();
    let run_of = |key: &String| key.split(':').nth(1).expect("a run's name").to_owned();
    let mut runs: Vec<String> = keys.iter().map(run_of).collect();
    runs.sort();
    runs.dedup();
    assert_eq!(runs.len(), 2);
    for key in keys.iter().step_by(20) {
        let answer = server.ask(&format!("TTL {key}")).expect("an answer");
        let seconds: i64 = answer.lines().next().expect("a line")[1..].parse().expect("seconds");
        // Written anew under another name meanwhile: -2.
        assert!((60..=3600).contains(&seconds) || seconds == -2, "{key}: {seconds}");
    }
    let (ending, messages) = running.end();
    assert_eq!(ending, Ending::Exited(0), "{messages}");
    let left = server.keys();
    assert!(!left.is_empty() && left.iter().map(run_of).all(|run| run == run_of(&left[0])));
    assert_eq!(other.end().0, Ending::Exited(0));
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn a_server_sees_what_is_in_pages_only_if_it_may() {
    let Some(server) = Server::start(Listens::Socket, &[]) else { return };
    for (more, may) in [(&[][..], false), (&["--store-plain"], true)] {
        let running = Running::start(&server, more);
        let values: Vec<_> = server.keys().iter().filter_map(|key| server.value(key)).collect();
        let found = values.iter().map(|value| noise(value));
        let (noise, all) = found.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let (ending, messages) = running.end();
        assert_eq!(ending, Ending::Exited(0), "{messages}");
        assert!(all > 100_000, "{all} words on the server");
        assert!(if may { noise > all / 2 } else { noise == 0 }, "{more:?}: {noise} of {all}");
    }
}

#[test]
fn a_value_that_was_altered_ends_the_program() {
    let Some(server) = Server::start(Listens::Socket, &[]) else { return };
    let running = Running::start(&server, &[]);
    let junk = "X".repeat(1000);
    for key in server.keys() {
        server.ask(&format!("SETRANGE {key} 0 {junk}")).expect("an answer");
    }
    let (ending, messages) = running.end();
    assert!(matches!(ending, Ending::Killed(_)), "{ending:?}: {messages}");
    let is_told = |line: &str| line.contains("its page at 0x") && line.contains("something else");
    assert!(messages.lines().any(is_told), "{messages}");
}

#[test]
fn a_value_that_was_altered_comes_from_the_mirror() {
    let Some(server) = Server::start(Listens::Socket, &[]) else { return };
    let mirror = places::scratch();
    let directory = mirror.path().display().to_string();
    let more = ["--store-timeout", "600", "--store-mirror", &directory];
    let running = Running::start(&server, &more);
    let junk = "X".repeat(1000);
    let is_told = || running.text("stderr").contains("the server of --store failed (Bad message");
    until("an altered value was read", || {
        for key in server.keys() {
            server.ask(&format!("SETRANGE {key} 0 {junk}\r\nEXPIRE {key} 600")).expect("an answer");
        }
        is_told()
    });
    let (store, messages) = running.end_well();
    assert!(store.remote_reads > 0, "{messages}");
}

#[test]
fn what_is_killed_leaves_neither_key_nor_process() {
    let Some(server) = Server::start(Listens::Socket, &[]) else { return };
    for kills_zpager in [false, true] {
        let mut running = Running::start(&server, &[]);
        match kills_zpager {
            false => running.kill_program(),
            true => kill(running.zpager.id().cast_signed()),
        }
        let ending = wait(&mut running.zpager, PATIENCE);
        assert_eq!(ending, Some(Ending::Killed(Signal::KILL.as_raw())));
        let helper = running.helper;
        until("the helper has ended", || is_gone(helper));
        assert_eq!(server.keys(), Vec::<String>::new());
    }
}

#[test]
fn a_server_that_is_killed_costs_no_wrong_byte() {
    let Some(mut server) = Server::start(Listens::Socket, &[]) else { return };
    let running = Running::start(&server, &["--store-timeout", "2"]);
    server.kill();
    let (ending, messages) = running.end();
    assert!(expect_right_or_told(ending, &messages), "most of the pages are lost: {messages}");
}

#[test]
fn a_short_pause_of_the_server_is_not_seen() {
    let Some(server) = Server::start(Listens::Socket, &[]) else { return };
    let running = Running::start(&server, &["--store-timeout", "60"]);
    for _ in 0..3 {
        server.signal(Signal::STOP);
        sleep(Duration::from_millis(700));
        server.signal(Signal::CONT);
        sleep(Duration::from_millis(300));
    }
    let (ending, messages) = running.end();
    assert_eq!(ending, Ending::Exited(0), "{messages}");
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn a_server_that_stays_paused_hangs_nobody() {
    let Some(server) = Server::start(Listens::Socket, &[]) else { return };
    let running = Running::start(&server, &["--store-timeout", "1"]);
    let helper = running.helper;
    server.signal(Signal::STOP);
    let (ending, messages) = running.end();
    expect_right_or_told(ending, &messages);
    until("the helper has ended", || is_gone(helper));
    server.signal(Signal::CONT);
}

#[test]
fn a_server_that_is_replaced_costs_no_wrong_byte() {
    let Some(mut server) = Server::start(Listens::Socket, &[]) else { return };
    let running = Running::start(&server, &["--store-timeout", "5"]);
    server.restart();
    let (ending, messages) = running.end();
    expect_right_or_told(ending, &messages);
    assert_eq!(server.keys(), Vec::<String>::new());
}

/// A server that stands alone, first, last and in the middle of a row: what was on it comes from the
/// mirror, and what it would have taken is there as well.
#[test]
fn a_mirror_serves_what_the_server_has_lost() {
    let [mirror, first, last] = [(); 3].map(|()| places::scratch());
    let [directory, first, last] = [&mirror, &first, &last].map(TempDir::path);
    let [mirror_name, first_name, last_name] =
        [directory, first, last].map(|it| it.display().to_string());
    for (before, after) in [
        (String::new(), String::new()),
        (String::new(), format!(":prio=5,{last_name}")),
        (format!("{first_name}:prio=5:size=8M,"), String::new()),
        (format!("{last_name},{first_name}:prio=5:size=8M,"), ":prio=1".into()),
    ] {
        let Some(mut server) = Server::start(Listens::Socket, &[]) else { return };
        let stores = format!("{before}{}{after}", server.address());
        let more = ["--store-timeout", "2", "--store-mirror", &mirror_name];
        let running = Running::start_at(&stores, &server, &more);
        sleep(Duration::from_millis(300));
        server.restart();
        sleep(Duration::from_millis(1000));
        server.signal(Signal::STOP);
        sleep(Duration::from_millis(3500));
        server.signal(Signal::CONT);
        sleep(Duration::from_millis(300));
        server.kill();
        let is_told = || running.text("stderr").contains("the mirror takes what it does not");
        until("the server is missed", is_told);
        assert!(running.bytes_in(directory) > 0);
        if stores.contains("size=8M") {
            assert!(running.bytes_in(first) > 0, "{stores}");
        }
        let (store, messages) = running.end_well();
        assert!(store.remote_writes > 0 && store.remote_failures > 0, "{stores}: {store:?}");
        assert!(store.written_bytes > store.remote_written_bytes, "{stores}: {store:?}");
        assert!(!messages.contains("store 1"), "{stores}: {messages}");
        for directory in [directory, first, last] {
            assert_eq!(fs::read_dir(directory).expect("a directory of the test").count(), 0);
        }
    }
}

/// Each page is in the directory, or on the server and in the mirror.
#[test]
fn a_mirror_has_what_the_server_has_and_no_more() {
    let Some(server) = Server::start(Listens::Socket, &[]) else { return };
    let [mirror, other] = [(); 2].map(|()| places::scratch());
    let stores = format!("{}:size=16M:prio=1,{}", server.address(), other.path().display());
    let directory = mirror.path().display().to_string();
    let more = ["--store-timeout", "600", "--store-mirror", &directory];
    let running = Running::start_at(&stores, &server, &more);
    until("the other store is used", || running.bytes_in(other.path()) > 16 << 20);
    let mirror_bytes = running.bytes_in(mirror.path());
    assert!((8 << 20..=16 << 20).contains(&mirror_bytes), "{mirror_bytes}");
    let (store, messages) = running.end_well();
    assert!((8 << 20..=16 << 20).contains(&store.remote_peak_bytes), "{store:?}");
    assert_eq!((store.remote_lost_clusters, store.remote_failures), (0, 0), "{store:?}");
    assert!(!messages.contains("failed"), "{messages}");
    assert_eq!(server.keys(), Vec::<String>::new());
    for directory in [&mirror, &other] {
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 0);
    }
}

/// A parent and its children, who share pages that were on the server when it was killed.
#[test]
fn a_family_loses_nothing_with_a_server_that_has_a_mirror() {
    let Some(mut server) = Server::start(Listens::Socket, &[]) else { return };
    let words = [victims::build("inherit", &[]).display().to_string(), victims::seed()];
    let free = Job::new(&words[0]).arguments([&words[1]]).free().expect_success();
    let [mirror, other] = [(); 2].map(|()| places::scratch());
    let stores = format!("{}:prio=1,{}", server.address(), other.path().display());
    let directory = mirror.path().display().to_string();
    let more = ["--store-timeout", "2", "--store-mirror", &directory];
    let (outcome, stats) = std::thread::scope(|scope| {
        let run = scope.spawn(|| run(&stores, &more, &words));
        until("pages are on the server", || run.is_finished() || server.keys().len() > 5);
        server.kill();
        run.join().expect("a run")
    });
    assert_eq!(outcome.ending, Ending::Exited(0), "{}", outcome.report());
    assert!(outcome.stdout == free.stdout, "{}", outcome.report());
    let store = stats.expect("statistics").store;
    assert!(store.remote_writes > 0 && store.remote_failures > 0, "{store:?}");
    for directory in [&mirror, &other] {
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 0);
    }
}

/// Two servers and a directory, one after the other. What one server had comes from the mirror when it
/// is gone, and the other one goes on.
#[test]
fn several_servers_stand_in_a_row() {
    let Some(mut first) = Server::start(Listens::Socket, &[]) else { return };
    let second = Server::start(Listens::Port(free_port()), &[]).expect("a server");
    let [mirror, other] = [(); 2].map(|()| places::scratch());
    let [first_address, second_address] = [&first, &second].map(Server::address);
    let other_name = other.path().display();
    let stores =
        format!("{other_name},{second_address}:prio=1:size=8M,{first_address}:prio=2:size=16M");
    let directory = mirror.path().display().to_string();
    let words = field_words("2");
    let free = field("2").free().expect_success();
    let (outcome, stats) = run(&stores, &["--store-timeout", "600"], &words);
    assert_eq!(outcome.ending, Ending::Exited(0), "{}", outcome.report());
    assert_eq!(outcome.stdout, free.stdout, "{}", outcome.report());
    let store = stats.expect("statistics").store;
    // More than either may have, and less than all.
    assert!((17 << 20..=24 << 20).contains(&store.remote_peak_bytes), "{store:?}");
    assert!(store.written_bytes > store.remote_written_bytes, "{store:?}");
    assert_eq!((store.remote_lost_clusters, store.remote_failures), (0, 0), "{store:?}");
    let more = ["--store-timeout", "2", "--store-mirror", &directory];
    let running = Running::start_at(&stores, &first, &more);
    until("the second is used", || !second.keys().is_empty());
    let helpers = running.children(|command| command.contains("remote-helper"));
    assert_eq!(
        (helpers.len(), places::open_files_in(running.zpager.id(), mirror.path()).len()),
        (2, 2)
    );
    first.kill();
    let is_told = || running.text("stderr").contains("the mirror takes what it does not");
    until("the server is missed", is_told);
    assert!(!second.keys().is_empty());
    let (store, messages) = running.end_well();
    assert!(store.remote_failures > 0 && store.remote_lost_clusters == 0, "{store:?} {messages}");
    assert_eq!(second.keys(), Vec::<String>::new());
    until("the helpers have ended", || helpers.iter().all(|helper| is_gone(*helper)));
    for directory in [&mirror, &other] {
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 0);
    }
}

/// Either of the two copies is refused at some time; the other one is there, and the user is told.
#[test]
fn one_copy_of_two_is_enough_and_the_other_is_missed() {
    let Some(small) = Server::start(Listens::Socket, &["--maxmemory", "24mb"]) else { return };
    let large = Server::start(Listens::Socket, &[]).expect("a server");
    let free = field("2").free().expect_success();
    let [mirror, other] = [(); 2].map(|()| places::scratch());
    let directory = mirror.path().display().to_string();
    let words = field_words("2");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    for (server, file_blocks, said) in [
        (&small, "unlimited", "the mirror takes what it does not"),
        (&large, "20000", "the server alone has what it does not"),
    ] {
        let stores = format!("{}:prio=1:size=1G,{}", server.address(), other.path().display());
        let more = ["--store-timeout", "600", "--store-mirror", &directory];
        let plain = command(&stores, &more, &words);
        let mut command = Command::new("sh");
        let script = format!("ulimit -f {file_blocks}; exec \"$0\" \"$@\"");
        command.arg("-c").arg(script).arg(plain.get_program()).args(plain.get_args());
        let outcome =
            finish(command, places::scratch(), PATIENCE, format!("zpager run --store {stores}"));
        assert_eq!(outcome.ending, Ending::Exited(0), "{}", outcome.report());
        assert_eq!(outcome.stdout, free.stdout, "{}", outcome.report());
        assert!(outcome.stderr.contains(said), "{}", outcome.report());
        assert_eq!(server.keys(), Vec::<String>::new());
        assert_eq!(fs::read_dir(mirror.path()).expect("the mirror's directory").count(), 0);
    }
}

#[test]
fn pages_that_were_compressed_once_more_come_from_a_server_with_a_mirror() {
    let Some(server) = Server::start(Listens::Socket, &[]) else { return };
    let mirror = places::scratch();
    let directory = mirror.path().display().to_string();
    let mut words = field_words("1");
    (words[2], words[3]) = ("96".into(), "words".into());
    let free = Job::new(&words[0]).arguments(words[1..].iter().collect::<Vec<_>>()).free();
    // Nearly all of the budget resident, so that the store is used.
    let more = ["--codec", "lz4", "--set", "default.split=93%", "--store-codec", "zstd"];
    let more = [&more[..], &["--store-timeout", "600", "--store-mirror", &directory]].concat();
    let (outcome, stats) = run(&server.address(), &more, &words);
    assert_eq!(outcome.ending, Ending::Exited(0), "{}", outcome.report());
    assert!(outcome.stdout == free.stdout, "{}", outcome.report());
    let stats = stats.expect("statistics");
    let store = &stats.store;
    assert!(store.recompressed_pages > 0 && store.remote_writes > 0, "{stats:?}");
    assert!(store.remote_reads > 0 && stats.faults.spilled > 0, "{stats:?}");
}

#[test]
fn without_its_helper_no_run_hangs() {
    let Some(server) = Server::start(Listens::Socket, &[]) else { return };
    let running = Running::start(&server, &[]);
    kill(running.helper);
    let (ending, messages) = running.end();
    assert!(expect_right_or_told(ending, &messages), "{messages}");
    assert!(messages.contains("helper"), "{messages}");
}

#[test]
fn a_server_that_is_full_loses_nothing() {
    let Some(server) = Server::start(Listens::Socket, &["--maxmemory", "24mb"]) else { return };
    let free = field("2").free().expect_success();
    // More than it says that it has.
    let (outcome, stats) = run(&server.address(), &["--store-size", "1G"], &field_words("2"));
    assert_eq!(outcome.ending, Ending::Exited(0), "{}", outcome.report());
    assert_eq!(outcome.stdout, free.stdout, "{}", outcome.report());
    let store = stats.expect("statistics").store;
    assert!(store.remote_failures > 0 && store.remote_writes > 0, "{store:?}");
    assert!(outcome.stderr.contains("write to the store failed"), "{}", outcome.report());
    assert_eq!(server.keys(), Vec::<String>::new());
}

/// Files with which servers show who they are by TLS: `ip` and `name`, which `ca` has signed, for
/// 127.0.0.1 and for another host, and another authority of the same name, `other`. `None` without
/// openssl.
fn certificates() -> Option<TempDir> {
    let directory = places::scratch();
    let shell = "for it in ca other; do openssl req -x509 -newkey rsa:2048 -nodes -days 2 \
                 -keyout $it.key -out $it.crt -subj '/CN=a test' || exit; done; \
                 for it in ip=IP:127.0.0.1 name=DNS:other.example; do file=${it%=*}; \
                 openssl req -newkey rsa:2048 -nodes -keyout $file.key -out csr \
                 -subj '/CN=localhost' && echo subjectAltName=${it#*=} > ext && \
                 openssl x509 -req -in csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 \
                 -extfile ext -out $file.crt || exit; done";
    let made = Command::new("sh").args(["-c", shell]).current_dir(directory.path()).output();
    if made.expect("a shell").status.success() {
        return Some(directory);
    }
    println!("skipped: openssl is not installed");
    None
}

/// Whether the server that is installed was built with TLS; one that was not ends at once.
fn has_tls() -> bool {
    let directory = places::scratch();
    let Some(mut child) = launch(directory.path(), Listens::Socket, &["--tls-port", "0"]) else {
        return false;
    };
    let socket = directory.path().join("socket");
    let mut has_ended = false;
    until("the server answers or ends", || {
        has_ended = child.try_wait().expect("its state").is_some();
        has_ended || UnixStream::connect(&socket).is_ok()
    });
    if !has_ended {
        child.kill().expect("the server lives");
        child.wait().expect("its end");
    }
    !has_ended
}

/// A server that shows this certificate at a port of TLS, and that port.
fn start_with_tls(certificates: &Path, name: &str) -> Option<(Server, u16)> {
    let port = free_port();
    let file = |name: String| certificates.join(name).display().to_string();
    let (certificate, key) = (file(format!("{name}.crt")), file(format!("{name}.key")));
    let (port_text, authority) = (port.to_string(), file("ca.crt".into()));
    let options = ["--tls-port", &port_text, "--tls-auth-clients", "no", "--tls-ca-cert-file"];
    let more = [&authority, "--tls-cert-file", &certificate, "--tls-key-file", &key];
    Some((Server::start(Listens::Socket, &[&options[..], &more].concat())?, port))
}

/// By TLS, with a certificate that only who names its authority trusts, and for its own host alone.
#[test]
fn the_way_to_a_server_may_be_encrypted() {
    let Some(certificates) = certificates() else { return };
    if !has_tls() {
        return println!("skipped: no Redis or Valkey server with TLS is installed");
    }
    let file = |name: &str| certificates.path().join(name).display().to_string();
    let (server, port) = start_with_tls(certificates.path(), "ip").expect("a server");
    let (misnamed, misnamed_port) = start_with_tls(certificates.path(), "name").expect("a server");
    let address = format!("rediss://127.0.0.1:{port}");
    let misnamed_address = format!("rediss://127.0.0.1:{misnamed_port}");
    let plain_address = format!("redis://127.0.0.1:{port}");
    let trusting = |address: &str, authority: Option<&str>, words: &[&str]| {
        let scratch = places::scratch();
        let stats_file = scratch.path().join("stats");
        let mut command = command(address, &["--store-timeout", "600"], words);
        command.env_remove("SSL_CERT_FILE").envs(authority.map(|it| ("SSL_CERT_FILE", file(it))));
        let what = format!("zpager run --store {address}, {authority:?}");
        (finish(command, scratch, PATIENCE, what), fs::read(stats_file).ok())
    };
    for (address, authority, said) in [
        (&address, None, "UnknownIssuer: name the file of the authority"),
        (&address, Some("other.crt"), "name the file of the authority that signed it"),
        (&address, Some("nowhere.crt"), "name a file of certificates in SSL_CERT_FILE"),
        (&misnamed_address, Some("ca.crt"), "name the server as its certificate does"),
        (&plain_address, Some("ca.crt"), "give rediss://HOST"),
    ] {
        let (outcome, stats) = trusting(address, authority, &["/bin/echo", "started"]);
        assert_eq!(outcome.ending, Ending::Exited(125), "{}", outcome.report());
        assert!(outcome.stdout.is_empty() && stats.is_none(), "{}", outcome.report());
        assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.report());
        assert!(outcome.stderr.contains(said), "{said}: {}", outcome.report());
    }
    let words = field_words("1");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (outcome, stats) = trusting(&address, Some("ca.crt"), &words);
    assert_eq!(outcome.ending, Ending::Exited(0), "{}", outcome.report());
    assert_eq!(outcome.stdout, field("1").free().stdout, "{}", outcome.report());
    let stats: Stats = serde_json::from_slice(&stats.expect("statistics")).expect("JSON");
    assert!(stats.store.remote_writes > 0 && stats.store.remote_reads > 0, "{stats:?}");
    for server in [&server, &misnamed] {
        assert_eq!(server.keys(), Vec::<String>::new());
    }
}

/// Three servers of the test's own that are the masters of a cluster.
struct Cluster {
    nodes: Vec<Server>,
}

impl Cluster {
    /// With options for each; `None` where no server, or no client to make a cluster, is installed.
    fn start(options: [&[&str]; 3]) -> Option<Cluster> {
        let node = |options| Server::start(Listens::Node(free_node_port()), options);
        let nodes: Vec<Server> = options.into_iter().map(node).collect::<Option<_>>()?;
        let cluster = Cluster { nodes };
        let mut create = vec!["create".to_owned()];
        create.extend(cluster.nodes.iter().map(Server::place));
        let Some(made) = manage(&create) else {
            println!("skipped: neither redis-cli nor valkey-cli is installed");
            return None;
        };
        assert!(made.status.success(), "{made:?}");
        let is_ready = |node: &Server| {
            node.ask("CLUSTER INFO").is_ok_and(|answer| answer.contains("cluster_state:ok"))
        };
        until("the cluster is one", || cluster.nodes.iter().all(is_ready));
        Some(cluster)
    }

    /// How many keys each node has.
    fn keys(&self) -> [usize; 3] {
        [0, 1, 2].map(|at| self.nodes[at].keys().len())
    }
}

/// Has the client do something with a cluster.
fn manage(words: &[String]) -> Option<Output> {
    ["redis-cli", "valkey-cli"].into_iter().find_map(|client| {
        Command::new(client).arg("--cluster").args(words).arg("--cluster-yes").output().ok()
    })
}

/// Nodes speak with each other at their ports and 10000.
fn free_node_port() -> u16 {
    std::iter::repeat_with(free_port).find(|port| *port < 55_000).expect("a port")
}

/// Whichever node is named, and also where one of them is small.
#[test]
fn a_cluster_takes_pages_on_all_of_its_nodes() {
    let small = ["--maxmemory", "10mb"];
    let Some(cluster) = Cluster::start([&[], &small, &[]]) else { return };
    let free = field("1").free().expect_success();
    for node in &cluster.nodes {
        let more = ["--store-timeout", "600", "--store-size", "1G"];
        let (outcome, stats) = run(&node.address(), &more, &field_words("1"));
        assert_eq!(outcome.ending, Ending::Exited(0), "{}", outcome.report());
        assert_eq!(outcome.stdout, free.stdout, "{}", outcome.report());
        let store = stats.expect("statistics").store;
        assert!(store.remote_peak_bytes > 30 << 20 && store.remote_reads > 0, "{store:?}");
        // What the small one refused the others took.
        assert_eq!((store.remote_lost_clusters, store.remote_failures), (0, 0), "{store:?}");
        assert_eq!(cluster.keys(), [0; 3]);
    }
}

#[test]
fn pages_are_spread_over_a_cluster_and_expire_on_each_node() {
    let Some(cluster) = Cluster::start([&[]; 3]) else { return };
    let named = &cluster.nodes[1];
    let running = Running::start_at(&named.address(), named, &["--store-timeout", "600"]);
    let keys = cluster.keys();
    let all: usize = keys.iter().sum();
    assert!(keys.iter().all(|count| count * 5 > all), "{keys:?}");
    for node in &cluster.nodes {
        for key in node.keys().iter().step_by(10) {
            let answer = node.ask(&format!("TTL {key}")).expect("an answer");
            let seconds: i64 =
                answer.lines().next().expect("a line")[1..].parse().expect("seconds");
            // Written anew under another name meanwhile: -2.
            assert!((60..=3600).contains(&seconds) || seconds == -2, "{key}: {seconds}");
        }
    }
    let (store, messages) = running.end_well();
    assert_eq!((store.remote_lost_clusters, store.remote_failures), (0, 0), "{messages}");
    assert_eq!(cluster.keys(), [0; 3]);
}

/// Nobody notices while slots go to another node, key by key.
#[test]
fn pages_are_found_where_a_cluster_moves_them() {
    let Some(cluster) = Cluster::start([&[]; 3]) else { return };
    let [from, to] = [0, 1].map(|at| &cluster.nodes[at]);
    let running = Running::start_at(&from.address(), from, &["--store-timeout", "600"]);
    let keys_before = from.keys().len();
    let words = ["reshard", &from.place(), "--cluster-slots", "5461"];
    let ends = ["--cluster-from", &from.node_id(), "--cluster-to", &to.node_id()];
    let words: Vec<String> = words.into_iter().chain(ends).map(str::to_owned).collect();
    let moved = manage(&words).expect("the client");
    assert!(moved.status.success(), "{moved:?}");
    sleep(Duration::from_millis(500));
    let keys = cluster.keys();
    assert!(keys[0] == 0 && keys[1] > keys_before, "{keys_before} {keys:?}");
    let (store, messages) = running.end_well();
    assert_eq!((store.remote_lost_clusters, store.remote_failures), (0, 0), "{messages}");
    assert_eq!(cluster.keys(), [0; 3]);
}

#[test]
fn a_node_that_is_killed_costs_no_wrong_byte() {
    let Some(mut cluster) = Cluster::start([&[]; 3]) else { return };
    let named = &cluster.nodes[0];
    let running = Running::start_at(&named.address(), named, &["--store-timeout", "2"]);
    cluster.nodes[2].kill();
    let (ending, messages) = running.end();
    assert!(expect_right_or_told(ending, &messages), "a third of the pages is lost: {messages}");
    assert_eq!(cluster.nodes[0].keys().len() + cluster.nodes[1].keys().len(), 0);
}

/// Also the one that was named: the others go on taking pages.
#[test]
fn a_mirror_serves_what_a_node_had_and_the_others_go_on() {
    for killed in [0, 2] {
        let Some(mut cluster) = Cluster::start([&[]; 3]) else { return };
        let mirror = places::scratch();
        let directory = mirror.path().display().to_string();
        let named = &cluster.nodes[0];
        let more = ["--store-timeout", "4", "--store-mirror", &directory];
        let running = Running::start_at(&named.address(), named, &more);
        cluster.nodes[killed].kill();
        let is_told = || running.text("stderr").contains("the server of --store failed");
        until("the node is missed", is_told);
        let names = |at: usize| cluster.nodes[at].keys();
        let before = names(1);
        until("another one takes pages", || names(1).iter().any(|key| !before.contains(key)));
        let (store, messages) = running.end_well();
        assert!(store.remote_failures > 0 && store.remote_lost_clusters == 0, "{messages}");
        for (at, node) in cluster.nodes.iter().enumerate() {
            assert!(at == killed || node.keys().is_empty());
        }
    }
}

/// What was written last may not have been copied to the replica.
#[test]
fn a_replica_takes_over_from_a_node_that_is_killed() {
    let Some(mut cluster) = Cluster::start([&[]; 3]) else { return };
    let replica = Server::start(Listens::Node(free_node_port()), &[]).expect("a server");
    let id = cluster.nodes[2].node_id();
    let [new, old] = [&replica, &cluster.nodes[0]].map(Server::place);
    let words = ["add-node", &new, &old, "--cluster-slave", "--cluster-master-id", &id];
    let added = manage(&words.map(str::to_owned)).expect("the client");
    assert!(added.status.success(), "{added:?}");
    let is_copy =
        || replica.ask("INFO replication").is_ok_and(|text| text.contains("master_link_status:up"));
    until("the replica is one", is_copy);
    let mirror = places::scratch();
    let directory = mirror.path().display().to_string();
    let named = &cluster.nodes[0];
    let more = ["--store-timeout", "60", "--store-mirror", &directory];
    let running = Running::start_at(&named.address(), named, &more);
    let before = cluster.nodes[2].keys();
    cluster.nodes[2].kill();
    until("the replica takes pages", || replica.keys().iter().any(|key| !before.contains(key)));
    let (store, messages) = running.end_well();
    assert!(store.remote_reads > 0, "{messages}");
    assert_eq!(cluster.nodes[0].keys().len() + cluster.nodes[1].keys().len(), 0);
    assert_eq!(replica.keys(), Vec::<String>::new());
}

#[test]
fn a_short_pause_of_a_node_is_not_seen() {
    let Some(cluster) = Cluster::start([&[]; 3]) else { return };
    let named = &cluster.nodes[0];
    let running = Running::start_at(&named.address(), named, &["--store-timeout", "60"]);
    for node in &cluster.nodes {
        node.signal(Signal::STOP);
        sleep(Duration::from_millis(700));
        node.signal(Signal::CONT);
        sleep(Duration::from_millis(300));
    }
    let (ending, messages) = running.end();
    assert_eq!(ending, Ending::Exited(0), "{messages}");
    assert_eq!(cluster.keys(), [0; 3]);
}

/// The server is filled first, then a directory, in the order of their priorities; what a server
/// refuses goes to the directory.
#[test]
fn a_directory_takes_what_a_server_does_not() {
    let options = ["--maxmemory", "24mb"];
    let Some(server) = Server::start(Listens::Socket, &options) else { return };
    let free = field("2").free().expect_success();
    // The one says that it has more than it has; the other is given no more than that.
    for (server_says, is_refused) in [(":size=1G:prio=1", true), (":size=8M:prio=1", false)] {
        let directory = places::scratch();
        let stores = format!("{},{}{server_says}", directory.path().display(), server.address());
        let (outcome, stats) = run(&stores, &["--store-timeout", "600"], &field_words("2"));
        assert_eq!(outcome.ending, Ending::Exited(0), "{}", outcome.report());
        assert_eq!(outcome.stdout, free.stdout, "{}", outcome.report());
        let store = stats.expect("statistics").store;
        assert!(store.remote_writes > 0 && store.remote_reads > 0, "{store:?}");
        assert!(store.written_bytes > store.remote_written_bytes + (8 << 20), "{store:?}");
        assert_eq!(store.remote_failures > 0, is_refused, "{store:?}");
        assert_eq!(outcome.stderr.contains("store 1 of --store"), is_refused, "{outcome:?}");
        assert_eq!(server.keys(), Vec::<String>::new());
        assert_eq!(fs::read_dir(directory.path()).expect("the directory").count(), 0);
    }
}

/// What is written after a server is gone goes to the directory, and what the server had is lost and
/// told so.
#[test]
fn a_directory_takes_over_when_a_server_is_gone() {
    let Some(mut server) = Server::start(Listens::Socket, &[]) else { return };
    let directory = places::scratch();
    let more = ["--store-timeout", "2"];
    let stores = format!("{}:prio=1,{}", server.address(), directory.path().display());
    let running = Running::start_at(&stores, &server, &more);
    server.kill();
    let (ending, messages) = running.end();
    assert!(expect_right_or_told(ending, &messages), "most of the pages are lost: {messages}");
    assert_eq!(fs::read_dir(directory.path()).expect("the directory").count(), 0);
}

#[test]
fn what_cannot_be_a_store_is_told_before_the_program_starts() {
    let refused = |address: &str, more: &[&str], said: &str| {
        let (outcome, stats) = run(address, more, &["/bin/echo".into(), "started".into()]);
        assert_eq!(outcome.ending, Ending::Exited(125), "{}", outcome.report());
        assert!(outcome.stdout.is_empty() && stats.is_none(), "{}", outcome.report());
        let told = outcome.stderr.lines().filter(|line| !line.contains("warning"));
        assert_eq!(told.count(), 1, "{}", outcome.report());
        assert!(outcome.stderr.contains(said), "{said}: {}", outcome.report());
        assert!(!outcome.stderr.contains("secret"), "{}", outcome.report());
    };
    refused(&format!("redis://:secret@127.0.0.1:{}", free_port()), &[], "refused");
    refused("redis+unix:///nowhere/at/all?pass=secret", &[], "start a Redis server");
    refused("redis://:secret@h/x", &[], "redis://HOST");
    refused("redis://:secret@h,/var/tmp,redis://:secret@h:prio=1", &[], "twice");
    refused("redis://:secret@h/x,/var/tmp,rediss://:secret@i", &[], "redis://HOST");
    for stores in ["none", "/var/tmp", "/var/tmp:prio=1,/tmp"] {
        refused(stores, &["--store-mirror", "/var/tmp"], "give --store redis://HOST");
    }
    refused(&format!("redis://:secret@127.0.0.1:{},/var/tmp", free_port()), &[], "refused");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.6\r\n");
            std::mem::forget(stream);
        }
    });
    refused(&format!("redis://127.0.0.1:{port}"), &[], "Redis server");
    let Some(server) = Server::start(Listens::Socket, &["--requirepass", "right"]) else { return };
    refused(&format!("{}?pass=secret", server.address()), &[], "password");
    drop(server);
    let options = ["--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"];
    let evicting = Server::start(Listens::Port(free_port()), &options).expect("a server");
    refused(&evicting.address(), &[], "noeviction");
    for stores in [evicting.address(), format!("/var/tmp,{}:prio=1", evicting.address())] {
        for (directory, said) in
            [("/nowhere/at/all", "written"), ("/etc/passwd", "written"), ("/proc", "/var/tmp")]
        {
            refused(&stores, &["--store-mirror", directory], said);
            refused(&stores, &["--store-mirror", directory], "--store-mirror");
        }
    }
    let full = Server::start(Listens::Socket, &["--maxmemory", "1kb"]).expect("a server");
    refused(&full.address(), &[], "maxmemory");
}
