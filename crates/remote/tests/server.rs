//! The helper against a real server: `redis-server` or `valkey-server` as packaged. Where neither is
//! installed the tests say so and pass.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use zpager_remote::{Server, serve};
use zpager_sys::Errno;
use zpager_wire::{Remote, Requests};

const CLUSTER_BYTES: usize = 256 * 1024;
const LONG: Duration = Duration::from_secs(600);
const PID: i32 = 1;

/// A server on a Unix socket in a directory of its own, where it keeps what it writes.
struct Redis {
    directory: TempDir,
    child: Child,
}

impl Redis {
    /// `None` where there is none to be started.
    fn start(options: &[&str]) -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory");
        let child = launch(&directory.path().join("socket"), options);
        if child.is_none() {
            println!("skipped: neither redis-server nor valkey-server is installed");
        }
        let redis = Redis { child: child?, directory };
        redis.wait_until_up();
        Some(redis)
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    fn address(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    fn wait_until_up(&self) {
        let deadline = Instant::now() + LONG;
        while std::os::unix::net::UnixStream::connect(self.socket()).is_err() {
            assert!(Instant::now() < deadline, "the server does not come up");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(status.expect("kill").success());
    }

    /// Another one in its place.
    fn restart(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("its end");
        let _ = std::fs::remove_file(self.socket());
        self.child = launch(&self.socket(), &[]).expect("another server");
        self.wait_until_up();
    }

    fn connect(&self) -> redis::Connection {
        let client = redis::Client::open(self.address()).expect("an address");
        client.get_connection().expect("a connection")
    }

    fn keys(&self) -> Vec<String> {
        redis::cmd("KEYS").arg("*").query(&mut self.connect()).expect("keys")
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn launch(socket: &std::path::Path, options: &[&str]) -> Option<Child> {
    ["redis-server", "valkey-server"].into_iter().find_map(|program| {
        let mut command = Command::new(program);
        command
            .args(["--port", "0", "--save", "", "--daemonize", "no", "--unixsocket"])
            .arg(socket)
            .arg("--dir")
            .arg(socket.parent().expect("a directory"));
        command.args(options).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
    })
}

/// A mapping in one piece.
struct Whole(Box<[Chunk]>);

#[derive(Clone)]
#[repr(align(4096))]
struct Chunk(#[allow(dead_code)] [u8; 4096]);

impl Whole {
    fn new(clusters: u32, patience: Duration) -> Self {
        let remote = Remote::new(clusters, CLUSTER_BYTES as u32, patience.as_nanos() as u64);
        let chunks = remote.mapping_bytes().div_ceil(size_of::<Chunk>());
        let mut whole = Whole(vec![Chunk([0; 4096]); chunks].into_boxed_slice());
        // SAFETY: the memory is long enough and aligned, and nobody else has it.
        unsafe { whole.0.as_mut_ptr().cast::<Remote>().write(remote) };
        whole
    }

    fn requests(&self) -> Requests<'_> {
        // SAFETY: written in `new`, with zeros behind it.
        unsafe { Requests::behind(&*self.0.as_ptr().cast::<Remote>()) }
    }
}

/// Runs `work` beside a helper.
fn with_helper<R>(
    address: &str,
    requests: Requests<'_>,
    expiry: Duration,
    work: impl FnOnce() -> R,
) -> R {
    let (server, ends) = (Server::at(address).expect("an address"), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| serve(&server, requests, "test", expiry, || ends.load(Relaxed)));
        let _ends = SetAtEnd(&ends);
        assert!(requests.wait_until_up(LONG.as_nanos() as u64));
        work()
    })
}

/// Ends those who look at a word, also when a test fails.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn write(requests: &Requests<'_>, cluster: u32, data: &[u8]) -> Result<(), Errno> {
    requests.settle(requests.begin_write(PID, cluster, data)?)
}

fn read(requests: &Requests<'_>, cluster: u32, bytes: usize) -> Result<Vec<u8>, Errno> {
    let mut data = vec![0xee; bytes];
    requests.read(PID, cluster, 0, &mut data).map(|()| data)
}

fn content(number: u32, bytes: usize) -> Vec<u8> {
    let mut state = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..bytes).map(next).collect()
}

/// Waits until `is_so`.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn clusters_come_back_and_nothing_is_left() {
    let Some(redis) = Redis::start(&[]) else { return };
    let whole = Whole::new(300, LONG);
    let requests = whole.requests();
    let counts = &requests.remote.counts;
    let mut other = redis.connect();
    redis::cmd("SET").arg("mine").arg("kept").query::<()>(&mut other).expect("set");
    with_helper(&redis.address(), requests, Duration::from_secs(100), || {
        for cluster in 0..40 {
            let bytes = 4096 * (1 + cluster as usize * 63 / 39);
            write(&requests, cluster * 7, &content(cluster, bytes)).expect("written");
        }
        let mut part = vec![0; 8192];
        for cluster in (0..40).rev() {
            let bytes = 4096 * (1 + cluster as usize * 63 / 39);
            let data = content(cluster, bytes);
            assert!(read(&requests, cluster * 7, bytes).as_deref() == Ok(&data[..]));
            requests.read(PID, cluster * 7, bytes - 4096, &mut part[..4096]).expect("read");
            assert!(part[..4096] == data[bytes - 4096..]);
            if bytes < CLUSTER_BYTES {
                requests.read(PID, cluster * 7, bytes - 4096, &mut part).expect("read");
                assert!(part[..4096] == data[bytes - 4096..] && part[4096..] == [0; 4096]);
            }
        }
        assert_eq!(read(&requests, 1, 4096), Err(Errno(61)));
        let keys = redis.keys();
        assert_eq!(keys.len(), 41);
        for key in keys.iter().filter(|key| *key != "mine") {
            assert!(key.starts_with("zpager:test:"), "{key}");
            let seconds: i64 = redis::cmd("TTL").arg(key).query(&mut other).expect("its expiry");
            assert!((1..=100).contains(&seconds), "{key}: {seconds}");
        }
        // Written anew, and of no worth any more.
        write(&requests, 0, &content(99, 4096)).expect("written");
        assert!(read(&requests, 0, 4096).as_deref() == Ok(&content(99, 4096)[..]));
        (20..40).for_each(|cluster| requests.discard(cluster * 7));
        eventually("discarded keys go", || redis.keys().len() == 21);
        assert_eq!(read(&requests, 20 * 7, 4096), Err(Errno(61)));
        assert_eq!(counts.writes.load(Relaxed), 41);
        assert_eq!((counts.lost_clusters.load(Relaxed), counts.reconnects.load(Relaxed)), (0, 0));
    });
    assert_eq!(redis.keys(), ["mine"]);
    assert_eq!(counts.held_bytes.load(Relaxed), 0);
    assert!(counts.peak_bytes.load(Relaxed) > 40 * 4096);
}

#[test]
fn keys_are_refreshed_as_long_as_the_run_lives() {
    let Some(redis) = Redis::start(&[]) else { return };
    let whole = Whole::new(100, LONG);
    let requests = whole.requests();
    with_helper(&redis.address(), requests, Duration::from_secs(4), || {
        (0..50).for_each(|cluster| {
            write(&requests, cluster, &content(cluster, 4096)).expect("written");
        });
        std::thread::sleep(Duration::from_secs(9));
        for cluster in 0..50 {
            let found = read(&requests, cluster, 4096);
            assert!(found.as_deref() == Ok(&content(cluster, 4096)[..]), "{cluster}");
        }
        // What is taken away by somebody else is noticed.
        redis::cmd("FLUSHALL").query::<()>(&mut redis.connect()).expect("flushed");
        let lost = &requests.remote.counts.lost_clusters;
        eventually("the loss is noticed", || lost.load(Relaxed) == 50);
    });
}

#[test]
fn a_server_that_was_replaced_has_nothing_and_takes_everything() {
    let Some(mut redis) = Redis::start(&[]) else { return };
    let whole = Whole::new(100, Duration::from_secs(20));
    let requests = whole.requests();
    with_helper(&redis.address(), requests, LONG, || {
        for round in 0..3 {
            (0..10).for_each(|cluster| {
                eventually("a write succeeds", || {
                    write(&requests, cluster, &content(cluster + round, 8192)).is_ok()
                });
            });
            assert!(read(&requests, 3, 8192).as_deref() == Ok(&content(3 + round, 8192)[..]));
            redis.restart();
            for cluster in 0..10 {
                assert_eq!(read(&requests, cluster, 8192), Err(Errno(61)), "{cluster}");
            }
        }
    });
    assert!(requests.remote.counts.reconnects.load(Relaxed) >= 3);
    assert!(redis.keys().is_empty());
}

#[test]
fn a_pause_is_waited_for_and_a_long_one_given_up() {
    let Some(redis) = Redis::start(&[]) else { return };
    let whole = Whole::new(100, Duration::from_secs(3));
    let requests = whole.requests();
    with_helper(&redis.address(), requests, LONG, || {
        write(&requests, 5, &content(5, CLUSTER_BYTES)).expect("written");
        redis.signal("STOP");
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| read(&requests, 5, CLUSTER_BYTES));
            std::thread::sleep(Duration::from_millis(500));
            redis.signal("CONT");
            let found = reading.join().expect("its end");
            assert!(found.as_deref() == Ok(&content(5, CLUSTER_BYTES)[..]));
        });
        redis.signal("STOP");
        let began = Instant::now();
        assert_eq!(read(&requests, 5, 4096), Err(Errno(110)));
        assert!(began.elapsed() >= Duration::from_secs(3));
        // The write reaches the server once it goes on, when nobody waits for it any more.
        let late = write(&requests, 6, &content(1, 4096));
        assert!(late == Err(Errno(112)) || late == Err(Errno(110)), "{late:?}");
        let began = Instant::now();
        assert_eq!(write(&requests, 6, &content(2, 4096)), Err(Errno(112)));
        let mut data = [0; 4096];
        assert_eq!(requests.read_if_up(PID, 5, 0, &mut data), Err(Errno(112)));
        assert!(began.elapsed() < Duration::from_secs(3), "told at once");
        redis.signal("CONT");
        eventually("a write succeeds", || write(&requests, 6, &content(3, 4096)).is_ok());
        for _ in 0..100 {
            assert!(read(&requests, 6, 4096).as_deref() == Ok(&content(3, 4096)[..]));
        }
        assert!(read(&requests, 5, 4096).as_deref() == Ok(&content(5, 4096)[..]));
    });
    eventually("late writes go too", || redis.keys().is_empty());
}

/// As where a mirror has taken the write of a cluster's next life, and the server has not.
#[test]
fn what_was_discarded_is_not_read_while_the_writer_waits() {
    let Some(redis) = Redis::start(&[]) else { return };
    let whole = Whole::new(100, LONG);
    let requests = whole.requests();
    with_helper(&redis.address(), requests, LONG, || {
        write(&requests, 5, &content(5, 4096)).expect("written");
        let mut pause = redis::cmd("CLIENT");
        pause.arg("PAUSE").arg(60_000).arg("WRITE");
        pause.query::<()>(&mut redis.connect()).expect("writers wait");
        let ticket = requests.begin_write(PID, 6, &content(6, 4096)).expect("begun");
        // Until the helper has it, at the most.
        std::thread::sleep(Duration::from_millis(300));
        assert!(read(&requests, 5, 4096).as_deref() == Ok(&content(5, 4096)[..]));
        requests.discard(5);
        assert_eq!(read(&requests, 5, 4096).err(), Some(Errno(61)));
        let mut go_on = redis::cmd("CLIENT");
        go_on.arg("UNPAUSE").query::<()>(&mut redis.connect()).expect("writers go on");
        requests.settle(ticket).expect("written");
        assert!(read(&requests, 6, 4096).as_deref() == Ok(&content(6, 4096)[..]));
    });
    eventually("nothing is left", || redis.keys().is_empty());
}

#[test]
fn a_full_server_refuses_and_keeps_what_it_has() {
    let Some(redis) = Redis::start(&["--maxmemory", "8mb"]) else { return };
    let whole = Whole::new(200, LONG);
    let requests = whole.requests();
    with_helper(&redis.address(), requests, LONG, || {
        let outcomes: BTreeMap<u32, _> = (0..60)
            .map(|cluster| (cluster, write(&requests, cluster, &content(cluster, CLUSTER_BYTES))))
            .collect();
        let refused = outcomes.values().filter(|outcome| **outcome == Err(Errno(28))).count();
        assert!((1..60).contains(&refused), "{refused}");
        for (&cluster, outcome) in &outcomes {
            let found = read(&requests, cluster, CLUSTER_BYTES);
            match outcome {
                Ok(()) => assert!(found.as_deref() == Ok(&content(cluster, CLUSTER_BYTES)[..])),
                Err(_) => assert_eq!(found, Err(Errno(61))),
            }
        }
        // Room is made by what is given back.
        (0..60).for_each(|cluster| requests.discard(cluster));
        eventually("there is room", || write(&requests, 0, &content(1, CLUSTER_BYTES)).is_ok());
    });
}

/// Threads stand for processes that write, read and discard while `disturb` does something to the
/// server: what is read is what was written last.
fn churn(address: &str, disturb: impl FnOnce()) {
    const PROCESSES: u32 = 4;
    let whole = Whole::new(8 * PROCESSES, Duration::from_secs(2));
    let requests = whole.requests();
    let ends = AtomicBool::new(false);
    let run = |process: u32| {
        let (mut model, mut read_ok, mut failed) = (BTreeMap::new(), 0, 0);
        let mut step = process * 1_000_000;
        while !ends.load(Relaxed) {
            step += 1;
            let cluster = process * 8 + step % 8;
            if step.is_multiple_of(3) {
                requests.discard(cluster);
                model.remove(&cluster);
                let data = content(step, 4096 * (1 + step as usize % 64));
                match write(&requests, cluster, &data) {
                    Ok(()) => drop(model.insert(cluster, data)),
                    Err(_) => failed += 1,
                }
            } else if let Some(data) = model.get(&cluster) {
                match read_turn(&requests, cluster, data.len(), step) {
                    Ok(found) => {
                        assert!(&found == data, "process {process}, step {step}");
                        read_ok += 1;
                    }
                    Err(_) => failed += 1,
                }
            }
        }
        (read_ok, failed)
    };
    with_helper(address, requests, LONG, || {
        std::thread::scope(|scope| {
            let _ends = SetAtEnd(&ends);
            let running: Vec<_> = (0..PROCESSES).map(|at| scope.spawn(move || run(at))).collect();
            disturb();
            ends.store(true, Relaxed);
            for thread in running {
                let (read_ok, failed) = thread.join().expect("no wrong byte");
                println!("{read_ok} read, {failed} failed");
                assert!(read_ok > 10);
            }
        });
    });
}

/// Reads, now and then as one who has another copy.
fn read_turn(
    requests: &Requests<'_>,
    cluster: u32,
    bytes: usize,
    step: u32,
) -> Result<Vec<u8>, Errno> {
    if !step.is_multiple_of(5) {
        return read(requests, cluster, bytes);
    }
    let mut data = vec![0xee; bytes];
    requests.read_if_up(PID, cluster, 0, &mut data).map(|()| data)
}

#[test]
fn nothing_wrong_is_read_from_a_server_that_comes_and_goes() {
    let Some(mut redis) = Redis::start(&[]) else { return };
    churn(&redis.address(), || {
        for (turn, pause_ms) in [100, 2500, 300, 1500].into_iter().enumerate() {
            std::thread::sleep(Duration::from_millis(500));
            redis.signal("STOP");
            std::thread::sleep(Duration::from_millis(pause_ms));
            redis.signal("CONT");
            if turn % 2 == 1 {
                redis.restart();
            }
        }
        std::thread::sleep(Duration::from_millis(1000));
    });
    eventually("nothing is left", || redis.keys().is_empty());
}

/// A port that nobody listens on; nodes speak with each other at that and 10000.
fn free_port() -> u16 {
    let port =
        || TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).map(|it| it.port());
    let mut ports = std::iter::repeat_with(|| port().expect("a port"));
    ports.find(|port| *port < 55_000).expect("a port")
}

/// Three nodes of a cluster that have its slots among them; with sockets of their own besides.
fn cluster() -> Option<[(Redis, u16); 3]> {
    let node = |port: u16| {
        let text = port.to_string();
        let options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"];
        let more =
            ["--cluster-require-full-coverage", "no", "--port", &text, "--bind", "127.0.0.1"];
        Some((Redis::start(&[&options[..], &more].concat())?, port))
    };
    let nodes = [node(free_port())?, node(free_port())?, node(free_port())?];
    for (at, (redis, _)) in nodes.iter().enumerate() {
        let own: Vec<u32> = (0..16384).filter(|slot| slot * 3 / 16384 == at as u32).collect();
        let mut add = redis::cmd("CLUSTER");
        add.arg("ADDSLOTS").arg(own).query::<()>(&mut redis.connect()).expect("slots");
        let mut meet = redis::cmd("CLUSTER");
        meet.arg("MEET").arg("127.0.0.1").arg(nodes[0].1);
        meet.query::<()>(&mut redis.connect()).expect("met");
    }
    let has_all = |redis: &Redis| {
        let mut ask = redis::cmd("CLUSTER");
        let told: String = ask.arg("INFO").query(&mut redis.connect()).expect("an answer");
        told.contains("cluster_slots_ok:16384") && told.contains("cluster_state:ok")
    };
    eventually("the cluster is one", || nodes.iter().all(|(redis, _)| has_all(redis)));
    Some(nodes)
}

/// Nodes are stopped and killed one after the other, and slots with their keys go from one to another
/// all the while.
#[test]
fn nothing_wrong_is_read_from_a_cluster_whose_nodes_come_and_go() {
    let Some(mut nodes) = cluster() else { return };
    let ids: Vec<String> = nodes
        .iter()
        .map(|(redis, _)| {
            redis::cmd("CLUSTER").arg("MYID").query(&mut redis.connect()).expect("a name")
        })
        .collect();
    let address = format!("redis://127.0.0.1:{}", nodes[1].1);
    let refused = |(redis, _): &(Redis, u16)| -> String {
        redis::cmd("INFO").arg("errorstats").query(&mut redis.connect()).expect("an answer")
    };
    let mut refusals = String::new();
    churn(&address, || {
        for (turn, pause_ms) in [100, 2500, 300].into_iter().enumerate() {
            std::thread::sleep(Duration::from_millis(500));
            move_slots(&nodes, &ids, turn, (turn + 1) % 3);
            // Before it is stopped it is asked for what it has given away.
            std::thread::sleep(Duration::from_millis(500));
            nodes[turn].0.signal("STOP");
            std::thread::sleep(Duration::from_millis(pause_ms));
            nodes[turn].0.signal("CONT");
            std::thread::sleep(Duration::from_millis(500));
        }
        // What it has given away it refused as well, and takes with it.
        refusals = nodes.iter().map(refused).collect();
        nodes[2].0.child.kill().expect("killed");
        nodes[2].0.child.wait().expect("its end");
        std::thread::sleep(Duration::from_millis(3000));
    });
    // Servers before Redis 6.2 do not count them.
    let is_counted = |kind: &str| refusals.is_empty() || refusals.contains(kind);
    assert!(is_counted("errorstat_ASK") && is_counted("errorstat_MOVED"), "{refusals}");
    assert!(nodes[..2].iter().all(|(redis, _)| redis.keys().is_empty()));
}

/// Has 500 slots go to another node, first all keys that are in them, then the slots.
fn move_slots(nodes: &[(Redis, u16); 3], ids: &[String], from: usize, to: usize) {
    let mut connections = [0, 1, 2].map(|at: usize| nodes[at].0.connect());
    let first = (0..16384u32).find(|slot| slot * 3 / 16384 == from as u32).expect("a slot");
    let slots = first..first + 500;
    let mut set = |at: usize, slot: u32, state: &str, id: usize| {
        let mut command = redis::cmd("CLUSTER");
        command.arg("SETSLOT").arg(slot).arg(state).arg(&ids[id]);
        command.query::<()>(&mut connections[at]).expect("set");
    };
    for slot in slots.clone() {
        set(to, slot, "IMPORTING", from);
        set(from, slot, "MIGRATING", to);
    }
    let mut connection = nodes[from].0.connect();
    for slot in slots.clone() {
        let mut ask = redis::cmd("CLUSTER");
        ask.arg("GETKEYSINSLOT").arg(slot).arg(100);
        for key in ask.query::<Vec<String>>(&mut connection).expect("keys") {
            let mut migrate = redis::cmd("MIGRATE");
            migrate.arg("127.0.0.1").arg(nodes[to].1).arg(key).arg(0).arg(5000);
            migrate.query::<()>(&mut connection).expect("migrated, or gone");
        }
    }
    std::thread::sleep(Duration::from_millis(500));
    for slot in slots {
        set(to, slot, "NODE", to);
        set(from, slot, "NODE", to);
    }
}

#[test]
fn what_cannot_keep_pages_is_told_before_the_run() {
    let told = |address: &str| {
        let told = Server::at(address).expect("an address").check().expect_err(address);
        assert!(!told.contains('\n') && told.len() < 200, "{told}");
        told
    };
    assert!(told("redis+unix:///nowhere/at/all").contains("start a Redis server"));
    // Nobody listens on a port that was just given back.
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("it").port();
    let nobody = told(&format!("redis://127.0.0.1:{port}"));
    assert!(nobody.contains("refused") && nobody.contains("--store DIR"), "{nobody}");
    // Another kind of server.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = std::io::Write::write_all(&mut &stream, b"HTTP/1.1 400 Bad Request\r\n\r\n");
            std::mem::forget(stream);
        }
    });
    let other = told(&format!("redis://127.0.0.1:{port}"));
    assert!(other.contains("Redis server"), "{other}");
    let Some(redis) = Redis::start(&["--requirepass", "right"]) else { return };
    for password in ["", "?pass=wrong"] {
        let refused = told(&format!("{}{password}", redis.address()));
        assert!(refused.contains("password"), "{refused}");
    }
    let server = Server::at(&format!("{}?pass=right", redis.address())).expect("an address");
    let found = server.check().expect("it is one");
    assert!(found.evicts_by.is_none() && found.room_bytes.is_some_and(|bytes| bytes > 1 << 20));
    let options = ["--maxmemory", "64mb", "--maxmemory-policy", "volatile-lru"];
    let evicting = Redis::start(&options).expect("a server");
    let found = Server::at(&evicting.address()).expect("an address").check().expect("it is one");
    assert_eq!(found.evicts_by.as_deref(), Some("volatile-lru"));
    assert!(found.room_bytes.is_some_and(|bytes| bytes < 64 << 20));
    let full = Redis::start(&["--maxmemory", "1kb"]).expect("a server");
    assert!(told(&full.address()).contains("maxmemory"));
}
