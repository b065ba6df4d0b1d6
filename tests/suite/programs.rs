//! Real programs, unmodified, at a tenth to a half of their memory, with the output they have alone.
//!
//! They are heavy, so one runs at a time. Where the package of a program is
//! missing, its test says so and passes; `tests/packages` lists them.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use zpager_tests::packages::{program, python};
use zpager_tests::{Ending, Job, Managed, Setup, Start, Store, compare, places};

/// One heavy program at a time: two cores and little memory are enough for these tests.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Managed from the start and entered at pressure, with outputs compared to the free run's.
fn check(job: &Job, mib: u64) -> [Managed; 2] {
    let _turn = turn();
    let free = job.free();
    assert_eq!(free.ending, Ending::Exited(0), "free: {}", free.report());
    [Start::FirstInstruction, Start::Pressure].map(|start| {
        let managed = job.managed(&Setup::of_mib(mib).start(start));
        managed.expect_like(&free);
        managed.expect_pressed();
        managed
    })
}

/// A text of shuffled lines with some structure: words, numbers, repeats.
fn lines(count: u64) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut text = Vec::new();
    for _ in 0..count {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let word =
            ["apple", "banana", "cherry", "damson", "elder", "fig"][(state >> 40) as usize % 6];
        text.extend(
            format!("{word}-{:06} {word} {}\n", (state >> 33) % 400_000, state >> 50).bytes(),
        );
    }
    text
}

fn sort_job(parallel: &str) -> Option<Job> {
    let job = Job::new(program("sort", "coreutils")?)
        .arguments(["-S", "1G", "--parallel", parallel, "input"])
        .variable("LC_ALL", "C")
        .file("input", lines(600_000));
    Some(job)
}

fn sort(parallel: &str, mib: u64) {
    let Some(job) = sort_job(parallel) else { return };
    check(&job, mib);
}

#[test]
fn gnu_sort() {
    sort("1", 20);
}

#[test]
fn gnu_sort_with_threads() {
    sort("2", 12);
}

#[test]
fn gnu_sort_under_every_design() {
    let Some(job) = sort_job("1") else { return };
    let _turn = turn();
    let free = job.free();
    for design in ["cervera", "hp", "castro", "zswap"] {
        // Without a store all of it has to fit, which takes cervera's buffers some room.
        for (store, mib) in [(Store::Disk, 24), (Store::None, 36)] {
            let setup = Setup::of_mib(mib).start(Start::FirstInstruction).store(store);
            let managed = job.managed(&setup.design(design));
            managed.expect_like(&free);
            managed.expect_pressed();
        }
    }
}

fn cpython(script: &str, mib: u64) {
    let Some(python) = python("json", "python3") else { return };
    let job = Job::new(python).argument("script.py").file("script.py", script);
    check(&job.variable("PYTHONHASHSEED", "1"), mib);
}

#[test]
fn cpython_objects() {
    cpython(
        r#"
import hashlib, random
r = random.Random(1)
table = {f"key-{i}": {"name": f"name {i % 977}", "values": [i, r.random(), str(i * 7)]} for i in range(120000)}
order = sorted(table, key=lambda k: (table[k]["values"][1], k))
h = hashlib.sha256()
for key in order[::3]:
    h.update(repr(table[key]).encode())
for i in range(0, 120000, 5):
    del table[f"key-{i}"]
h.update(str(sum(len(v["name"]) for v in table.values())).encode())
print(h.hexdigest(), len(table))
"#,
        28,
    );
}

#[test]
fn cpython_threads() {
    cpython(
        r#"
import hashlib, threading, queue
results, work = {}, queue.Queue()
def worker(n):
    rows = [(i * n) % 10007 for i in range(120000)]
    text = [f"{n}:{r}" for r in rows]
    for k in range(3):
        text.sort(key=lambda t: t[::-1])
        work.put((n, hashlib.md5("".join(text[::7]).encode()).hexdigest()))
    results[n] = len(set(text))
threads = [threading.Thread(target=worker, args=(n,)) for n in range(1, 7)]
[t.start() for t in threads]; [t.join() for t in threads]
seen = sorted(work.get() for _ in range(18))
print(results[1], results[6], hashlib.md5(repr(seen).encode()).hexdigest())
"#,
        28,
    );
}

#[test]
fn cpython_processes() {
    cpython(
        r#"
import hashlib, multiprocessing, subprocess, sys
shared = {i: f"value {i}" * 3 for i in range(150000)}
def work(n):
    h = hashlib.sha256()
    for i in range(n, len(shared), 4):
        h.update(shared.get(i, "gone").encode())
    mine = [bytes([n]) * 1000 for _ in range(5000)]
    return h.hexdigest(), len(b"".join(mine))
if __name__ == "__main__":
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(4) as pool:
            for result in pool.map(work, range(4)):
                print(method, result)
    for n in range(5):
        command = [sys.executable, "-c", "import sys; d = sys.stdin.buffer.read(); print(len(d), d[:5])"]
        out = subprocess.run(command, input=b"%d" % n * 2000000, capture_output=True, check=True)
        print(out.stdout)
    print(hashlib.sha256("".join(shared.values()).encode()).hexdigest())
"#,
        48,
    );
}

#[test]
fn numpy_with_threads() {
    let Some(python) = python("numpy", "python3-numpy") else { return };
    let script = r#"
import hashlib, threading
import numpy as np
r = np.random.default_rng(1)
a = r.integers(0, 50, (1100, 1100)).astype(np.float64)
b = r.integers(0, 50, (1100, 1100)).astype(np.float64)
c = a @ b
print(hashlib.sha256(c.tobytes()).hexdigest())
wave = r.integers(0, 9, (1024, 1024)).astype(np.complex128)
for _ in range(2):
    back = np.fft.ifft2(np.fft.fft2(wave))
    assert np.allclose(back, wave)
print(int(np.rint(back.real).sum()))
long = r.integers(0, 1 << 40, 2_500_000)
parts = [None] * 4
def part(i):
    parts[i] = np.sort(long[i::4])
threads = [threading.Thread(target=part, args=(i,)) for i in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
print(hashlib.sha256(np.sort(np.concatenate(parts)).tobytes()).hexdigest())
print(float((a * 2 + b).sum()), int(np.argmax(c)))
"#;
    let job = Job::new(python).argument("script.py").file("script.py", script);
    check(&job.variable("OPENBLAS_NUM_THREADS", "2"), 64);
}

#[test]
fn node() {
    let Some(node) = program("node", "nodejs") else { return };
    let script = r#"
const crypto = require('crypto');
const rows = [];
for (let i = 0; i < 220000; i++)
  rows.push({ id: i, name: 'row ' + (i * 7919 % 10007), tags: ['a' + i % 13, 'b' + i % 17], nested: { even: i % 2 === 0 } });
const index = new Map();
for (const row of rows) {
  if (!index.has(row.name)) index.set(row.name, []);
  index.get(row.name).push(row);
}
const text = JSON.stringify(rows.slice(0, 60000));
const back = JSON.parse(text);
const hash = crypto.createHash('sha256');
for (const name of [...index.keys()].sort()) hash.update(name + index.get(name).length);
hash.update(JSON.stringify(back[59999]));
const big = Buffer.alloc(20000000, 'zpager');
hash.update(big);
setTimeout(() => console.log(hash.digest('hex'), index.size, text.length), 20);
"#;
    let job = Job::new(node).argument("script.js").file("script.js", script);
    check(&job, 64);
}

const JAVA_SOURCE: &str = r#"
import java.util.*;
public class Job {
    record Row(int id, String name, long[] values) {}
    public static void main(String[] arguments) throws Exception {
        Map<String, Row> table = new HashMap<>();
        for (int i = 0; i < 220000; i++)
            table.put("key-" + i, new Row(i, "name " + i % 977, new long[] {i, i * 31L, i * 1009L}));
        long sum = 0;
        for (int round = 0; round < 3; round++) {
            List<String> keys = new ArrayList<>(table.keySet());
            Collections.sort(keys);
            for (String key : keys) sum = sum * 31 + table.get(key).values()[round] + table.get(key).name().length();
            for (int i = round; i < 220000; i += 7) table.remove("key-" + i);
        }
        Thread[] threads = new Thread[4];
        long[] sums = new long[4];
        for (int t = 0; t < 4; t++) {
            int self = t;
            threads[t] = new Thread(() -> { for (Row row : table.values()) sums[self] += row.id() * (self + 1L); });
            threads[t].start();
        }
        for (Thread thread : threads) thread.join();
        System.out.println(sum + " " + table.size() + " " + Arrays.toString(sums));
    }
}
"#;

fn java(collector: &str) {
    let Some(java) = program("java", "openjdk-17-jdk-headless") else { return };
    let job = Job::new(java)
        .arguments(["-Xmx192m", collector, "Job.java"])
        .file("Job.java", JAVA_SOURCE)
        .limit_seconds(300);
    check(&job, 96);
}

#[test]
fn java_serial() {
    java("-XX:+UseSerialGC");
}

#[test]
fn java_parallel() {
    java("-XX:+UseParallelGC");
}

#[test]
fn java_g1() {
    java("-XX:+UseG1GC");
}

#[test]
fn perl() {
    let Some(perl) = program("perl", "perl") else { return };
    let script = r#"
use strict; use warnings; use Digest::MD5 qw(md5_hex);
my %table;
for my $i (1 .. 150000) { $table{"key-$i"} = { name => "name " . $i % 977, list => [$i, $i * 7] }; }
my $sum = 0;
for my $key (sort keys %table) { $sum = ($sum * 31 + $table{$key}{list}[1]) % 1000000007; }
delete $table{"key-$_"} for grep { $_ % 3 == 0 } 1 .. 150000;
my $text = join ",", map { "$_=$table{$_}{name}" } sort keys %table;
print "$sum ", scalar(keys %table), " ", md5_hex($text), "\n";
"#;
    let job = Job::new(perl).argument("script.pl").file("script.pl", script);
    check(&job, 40);
}

/// A large translation unit, made here; the driver uses vfork, cc1 and as are its children.
#[test]
fn gcc() {
    let Some(gcc) = program("gcc", "gcc") else { return };
    let mut source = String::from("typedef struct { long a, b; char text[32]; } row;\n");
    for i in 0..400 {
        source += &format!(
            "static long f{i}(row *r, long n) {{ long s = {i}; for (long k = 0; k < n; k++) {{ \
             s += r[k].a * {i} + r[k].b; if (s % {} == 3) s ^= r[k].text[k % 32]; }} return s; }}\n\
             long g{i}(row *r, long n) {{ return f{i}(r, n) + (n > 4 ? g{}(r, n - 1) : 0); }}\n",
            i + 2,
            if i == 0 { 0 } else { i - 1 }
        );
    }
    let job =
        Job::new(gcc).arguments(["-O2", "-c", "unit.c", "-o", "unit.o"]).file("unit.c", source);
    let free = job.free().expect_success().file("unit.o");
    for managed in check(&job, 40) {
        assert!(managed.outcome.file("unit.o") == free, "another object file than free");
    }
}

#[test]
#[ignore = "takes minutes"]
fn xz_round_trip() {
    let Some(_) = program("xz", "xz-utils") else { return };
    let script = "xz -9 -k -T1 input && xz -dc input.xz | cmp - input && cksum < input.xz";
    let job = Job::new("/bin/sh").arguments(["-c", script]).file("input", lines(100_000));
    check(&job, 12);
}

#[test]
fn sqlite_in_memory() {
    let Some(sqlite) = program("sqlite3", "sqlite3") else { return };
    let script = "
        create table rows(id integer primary key, name text, value real);
        with recursive n(i) as (select 1 union all select i + 1 from n where i < 200000)
            insert into rows select i, 'name ' || (i * 7919 % 10007), i * 0.5 from n;
        create index by_name on rows(name, value);
        select count(*), sum(value) from rows where name between 'name 100' and 'name 300';
        delete from rows where id % 3 = 0;
        select name, count(*), sum(value) from rows group by name order by 3 desc, 1 limit 5;
        pragma integrity_check;
    ";
    let job =
        Job::new(sqlite).arguments([":memory:", ".read script.sql"]).file("script.sql", script);
    check(&job, 10);
}

#[test]
#[ignore = "takes ten seconds or a minute, by how its processes starve each other"]
fn shell_with_many_processes() {
    let Some(_) = program("bash", "bash") else { return };
    let script = r#"
declare -A table
for i in $(seq 1 60000); do table[key$i]="value $i $i $i"; done
total=0
for i in $(seq 1 40); do
  part=$(for k in $(seq 1 20); do echo "${table[key$((i * k))]}"; done | sort | cksum)
  total=$((total + ${part%% *}))
done
echo $total ${#table[@]}
for i in 1 2 3; do (echo "sub $i ${table[key$i]}"; exit $i); echo $?; done
"#;
    let job = Job::new("/bin/bash").argument("script.sh").file("script.sh", script);
    check(&job, 9);
}

#[test]
fn make_with_jobs() {
    let (Some(make), Some(_)) = (program("make", "make"), program("gcc", "gcc")) else { return };
    let mut makefile = String::from("all: $(foreach n,1 2 3 4,part$(n).o)\n\tcksum part*.o\n");
    makefile += "part%.o: unit.c\n\t@gcc -O2 -DPART=$* -c $< -o $@\n";
    let mut unit = String::new();
    for i in 0..120 {
        unit += &format!(
            "long f{i}(long *p, long n) {{ long s = PART; for (long k = 0; k < n; k++) s += p[k] * {i} ^ s >> 3; return s; }}\n"
        );
    }
    let job =
        Job::new(make).arguments(["-s", "-j2"]).file("Makefile", makefile).file("unit.c", unit);
    check(&job, 24);
}

/// It loads the agent once more for the program that it emulates, in memory that is managed already.
#[test]
fn valgrind() {
    let Some(valgrind) = program("valgrind", "valgrind") else { return };
    let Some(sort) = program("sort", "coreutils") else { return };
    let job = Job::new(valgrind)
        .arguments(["-q", "--tool=none"])
        .argument(sort)
        .arguments(["-S", "1G", "--parallel", "1", "input"])
        .variable("LC_ALL", "C")
        .file("input", lines(100_000));
    let _turn = turn();
    let free = job.free().expect_success();
    let managed = job.managed(&Setup::of_mib(16).start(Start::Pressure));
    managed.expect_like(&free);
    managed.expect_pressed();
}

/// It loads the agent once more as well, and does not know the calls that this needs.
#[test]
fn qemu_user() {
    let Some(qemu) = program("qemu-x86_64", "qemu-user") else { return };
    for options in [&[][..], &["-static"]] {
        let field = zpager_tests::victims::build("field", options);
        let job = Job::new(&qemu).argument(field).arguments(["1", "60", "words", "1"]);
        for managed in check(&job, 12) {
            assert!(managed.stats.spilled_pages > 0, "{:?}", managed.stats);
        }
    }
}

/// Go's runtime: its own threads, stacks, signals and collector, in a program without a loader.
#[test]
fn go_objects_and_goroutines() {
    let Some(go) = program("go", "golang-go") else { return };
    let folder = places::scratch();
    let built = folder.path().join("objects");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("victims/objects.go");
    let mut command = Command::new(go);
    command.args(["build", "-p", "2", "-o"]).arg(&built).arg(source);
    command.env("CGO_ENABLED", "0").env("GOFLAGS", "-mod=mod").env("GO111MODULE", "off");
    command.env("GOCACHE", folder.path().join("cache"));
    let output = command.output().expect("go runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Alone it takes some 125 MiB.
    for mib in [64, 42] {
        check(&Job::new(&built).argument(zpager_tests::victims::seed()), mib);
    }
}

#[test]
fn static_sort() {
    let Some(busybox) = program("busybox", "busybox-static") else { return };
    let job = Job::new(busybox).arguments(["sort", "input"]).file("input", lines(600_000));
    check(&job, 14);
}

/// Static and dynamic programs that start each other.
#[test]
fn static_shell() {
    let Some(busybox) = program("busybox", "busybox-static") else { return };
    let dynamic = zpager_tests::victims::build("field", &[]);
    let fixed = zpager_tests::victims::build("field", &["-static"]);
    let script = r#"
hold=$("$BUSYBOX" sort input)
"$DYNAMIC" 1 64 words 1
text=$("$FIXED" 2 64 words 1; /bin/sh -c '"$FIXED" 3 64 words 1; exec "$DYNAMIC" 4 64 words 1')
echo "$text"
echo "$hold" | "$BUSYBOX" md5sum
exec /bin/sh -c 'exec "$FIXED" 5 64 words 1'
"#;
    let job = Job::new(&busybox)
        .arguments(["sh", "script"])
        .variable("BUSYBOX", busybox)
        .variable("DYNAMIC", dynamic)
        .variable("FIXED", fixed)
        .file("script", script)
        .file("input", lines(60_000));
    for managed in check(&job, 24) {
        assert!(!managed.outcome.stderr.contains("not managed"), "{}", managed.outcome.report());
        // Five fields of 64 MiB, of which no more than the budget stays.
        let out_bytes = managed.stats.swapped_out_pages << 12;
        assert!(out_bytes > 5 * (40 << 20), "{:?}", managed.stats);
    }
}

/// Fills a server over its socket, saves in the background, reads everything back.
#[test]
#[ignore = "takes a minute"]
fn redis() {
    let (Some(server), Some(_)) =
        (program("redis-server", "redis-server"), python("socket", "python3"))
    else {
        return;
    };
    let job = Job::new("/bin/sh")
        .arguments(["server.sh".as_ref(), server.as_os_str()])
        .variable("PATH", "/usr/bin:/bin")
        .file("server.sh", include_str!("redis.sh"))
        .file("client.py", include_str!("redis.py"));
    check(&job, 20);
}

/// The longer runs, at a tenth of the memory: `make test-long`.
#[test]
#[ignore = "long: make test-long"]
fn gnu_sort_at_a_tenth() {
    let Some(sort) = program("sort", "coreutils") else { return };
    let job = Job::new(sort)
        .arguments(["-S", "1G", "--parallel", "2", "input"])
        .variable("LC_ALL", "C")
        .file("input", lines(3_000_000))
        .limit_seconds(600);
    let _turn = turn();
    compare(&job, &Setup::of_mib(36));
}

/// A path that is not a program of the distribution must not be taken for one.
#[test]
fn missing_packages_are_told() {
    assert!(program("no-such-program-anywhere", "none").is_none());
    assert!(Path::new("/usr/bin").is_dir());
}
