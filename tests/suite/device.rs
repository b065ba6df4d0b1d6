//! `zpager device`: a block device that is never wrong, whatever its clients do.

use std::collections::{BTreeMap, HashSet};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use zpager_seed::{Random, random};
use zpager_tests::job::until;
use zpager_tests::nbd::{Client, Server, activated, control, private};
use zpager_tests::packages::program;
use zpager_tests::places;
use zpager_tests::places::open_files_in;

const BLOCK_BYTES: usize = 4096;
/// What is written to a store at a time.
const CLUSTER_BYTES: usize = 256 << 10;
const MIB: u64 = 1 << 20;
const EIO: u32 = 5;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;
/// Ways to be scheduled, as sched(7) numbers them.
const USUAL: i32 = 0;
const ROUND_ROBIN: i32 = 2;
/// What the process takes besides what it is granted: its heap, its stacks, its program's data.
const PROCESS_BYTES: u64 = 3 * MIB;

/// What is written to the disk.
trait Noise {
    /// A block that shrinks, does not, or is one word again and again.
    fn data_into(&mut self, block: &mut [u8]);
    fn data(&mut self, bytes: u64) -> Vec<u8>;
}

impl Noise for Random {
    fn data_into(&mut self, block: &mut [u8]) {
        let (kind, word) = (self.u64(..5), self.u64(..3) as u8);
        for bytes in block.chunks_mut(4) {
            match kind {
                0 | 1 => bytes.iter_mut().for_each(|byte| *byte = self.u64(..256) as u8),
                2 => bytes.fill(word),
                _ => bytes[0] = self.u64(..256) as u8,
            }
        }
    }

    fn data(&mut self, bytes: u64) -> Vec<u8> {
        let mut data = vec![0; bytes as usize];
        data.chunks_mut(BLOCK_BYTES).for_each(|block| self.data_into(block));
        data
    }
}

/// Checks that there is one line, of zpager's own failure, that holds `word`.
fn expect_refused(output: &Output, word: &str) {
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.starts_with("zpager: ") && message.contains(word), "{word}: {message}");
    assert!(output.stdout.is_empty(), "{output:?}");
}

fn serve(directory: &Path, flags: &str) -> Output {
    control(&directory.join("socket"), &format!("serve {flags}"))
}

#[test]
fn bad_input_is_told_in_one_line() {
    let directory = private();
    let table = [
        ("--size 1000 --memory 64M", "4096"),
        ("--size 1G --memory 1M", "8.0 MiB"),
        ("--size 1G", "--memory"),
        ("--size 1G --memory 64M --store /nowhere/at/all", "/nowhere/at/all"),
        ("--size 1G --memory 64M --store /proc", "/proc"),
        ("--size 1G --memory 64M --design lru", "zswap"),
        ("--size 1G --memory 64M --listen 0.0.0.0:10809", "loopback"),
        ("--size 1G --memory 64M --listen 192.0.2.1:1", "loopback"),
    ];
    for (flags, word) in table {
        expect_refused(&serve(directory.path(), flags), word);
    }
    expect_refused(&control(&directory.path().join("none"), "status"), "no device");
    expect_refused(&control(&directory.path().join("none"), "stop"), "no device");
    expect_refused(&control(&directory.path().join("none"), "set size=1G"), "memory=SIZE");
    let left = std::fs::read_dir(directory.path()).expect("there").count();
    assert_eq!(left, 0, "something was made");
}

#[test]
fn without_the_kernels_driver_there_is_no_ublk_device() {
    if Path::new("/dev/ublk-control").exists() {
        return println!("skipped: the kernel has the ublk driver");
    }
    let directory = private();
    for number in ["", " 7"] {
        let flags = format!("--size 64M --memory 8M --store none --quiet --ublk{number}");
        expect_refused(&serve(directory.path(), &flags), "ublk_drv");
    }
    assert_eq!(std::fs::read_dir(directory.path()).expect("there").count(), 0);
}

#[test]
fn a_second_server_does_not_touch_the_first() {
    let server = Server::start("--size 16M --memory 8M --store none");
    let directory = server.socket().parent().expect("one").to_owned();
    server.client(true).write(0, b"still here").expect("served").expect("room");
    expect_refused(&serve(&directory, "--size 16M --memory 8M --store none"), "a server is there");
    let mode = server.socket().metadata().expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(server.client(false).read(0, 10).expect("served"), Ok(b"still here".to_vec()));
    // A dead server's sockets are taken over; its data are gone, as is its store.
    let directory = server.kill();
    assert!(directory.path().join("socket").exists(), "a killed server tidied up");
    let next = Server::start_in(directory, "--size 16M --memory 8M --store none");
    assert_eq!(next.client(false).read(0, 10).expect("served"), Ok(vec![0; 10]));
    assert_eq!(std::fs::read_dir(next.store()).expect("there").count(), 0);
}

#[test]
fn an_address_or_a_place_that_others_have_is_refused() {
    let server = Server::start("--size 16M --memory 8M --store none --listen 127.0.0.1:0");
    let (_, address) = server.greeting.split_once("nbd://").expect("an address");
    let stream = TcpStream::connect(address).expect("a server");
    let mut client = Client::greet(Box::new(stream), true).expect("let in");
    assert_eq!(client.size_bytes, 16 * MIB);
    assert_eq!(client.write(MIB, &[9; 5000]).expect("served"), Ok(()));
    assert_eq!(client.read(MIB, 5000).expect("served"), Ok(vec![9; 5000]));
    client.leave().expect("let go");
    let other = private();
    let flags = format!("--size 16M --memory 8M --store none --listen {address}");
    expect_refused(&serve(other.path(), &flags), address);
    std::fs::set_permissions(other.path(), PermissionsExt::from_mode(0o755)).expect("its mode");
    expect_refused(&serve(other.path(), "--size 16M --memory 8M --store none"), "0700");
    assert_eq!(std::fs::read_dir(other.path()).expect("there").count(), 0);
}

/// As with systemd: the client comes before the server, and the socket outlives it.
#[test]
fn a_socket_that_is_handed_over_is_served_and_stays() {
    let directory = private();
    let listener = UnixListener::bind(directory.path().join("socket")).expect("free");
    let told = UnixDatagram::bind(directory.path().join("told")).expect("free");
    told.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
    let flags = "--size 16M --memory 8M --store none";
    let mut directory = Some(directory);
    for turn in 0..2 {
        let directory_now = directory.take().expect("one");
        let early = UnixStream::connect(directory_now.path().join("socket")).expect("it listens");
        let mut command = activated(listener.try_clone().expect("a descriptor").into(), 1);
        command.env("NOTIFY_SOCKET", directory_now.path().join("told"));
        let mut server = Server::start_command(directory_now, command, flags);
        let mut line = [0; 64];
        let bytes = told.recv(&mut line).expect("told that it serves");
        assert_eq!(&line[..bytes], b"READY=1\n");
        let mut client = Client::greet(Box::new(early), true).expect("let in");
        assert_eq!(client.read(0, 4).expect("served"), Ok(vec![0; 4]), "turn {turn}");
        assert_eq!(client.write(0, b"kept").expect("served"), Ok(()));
        assert_eq!(server.client(false).read(0, 4).expect("served"), Ok(b"kept".to_vec()));
        assert!(server.control("stop --force").status.success());
        assert!(server.wait(), "a clean end");
        assert!(server.socket().exists(), "the socket is not the server's");
        directory = Some(server.kill());
    }
}

#[test]
fn an_address_that_is_handed_over_is_served() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("one");
    let command = activated(listener.into(), 1);
    let server = Server::start_command(private(), command, "--size 16M --memory 8M --store none");
    assert!(server.greeting.ends_with(&format!("nbd://{address}")), "{}", server.greeting);
    let stream = TcpStream::connect(address).expect("a server");
    let mut client = Client::greet(Box::new(stream), true).expect("let in");
    assert_eq!(client.write(0, &[7; 5000]).expect("served"), Ok(()));
    assert_eq!(client.read(0, 5000).expect("served"), Ok(vec![7; 5000]));
    assert!(server.control("status").status.success());
}

#[test]
fn what_cannot_be_served_is_not_taken_over() {
    let directory = private();
    let here = directory.path().join("socket");
    let unix = || {
        let _ = std::fs::remove_file(&here);
        OwnedFd::from(UnixListener::bind(&here).expect("free"))
    };
    let open = TcpListener::bind("0.0.0.0:0").expect("a port");
    let file = std::fs::File::open("/dev/null").expect("there");
    let table: [(OwnedFd, usize, &str, &str); 5] = [
        (unix(), 2, "socket", "LISTEN_FDS=2"),
        (unix(), 1, "other", "--socket"),
        (unix(), 1, "socket --listen 127.0.0.1:0", "--listen"),
        (open.into(), 1, "socket", "loopback"),
        (file.into(), 1, "socket", "listens"),
    ];
    for (socket, descriptors, place, word) in table {
        let place = format!("{}/{place}", directory.path().display());
        let flags = format!("--size 16M --memory 8M --store none --socket {place}");
        let mut command = activated(socket, descriptors);
        expect_refused(&command.args(flags.split(' ')).output().expect("it starts"), word);
    }
    std::fs::remove_file(&here).expect("the last socket");
    assert_eq!(std::fs::read_dir(directory.path()).expect("there").count(), 0);
}

/// Installs what there is, without building it, for `prefix`; gives where the units are.
fn install(destination: &str, prefix: &Path) -> PathBuf {
    let mut make = Command::new("make");
    make.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).arg("install-files");
    make.arg(format!("ZPAGER={}", places::zpager().display()));
    make.arg(format!("DESTDIR={destination}")).arg(format!("PREFIX={}", prefix.display()));
    succeed(&mut make);
    PathBuf::from(format!("{destination}{}/lib/systemd/system", prefix.display()))
}

#[test]
fn the_units_are_sound_and_name_what_is_installed() {
    let directory = places::scratch();
    let root = directory.path().to_str().expect("UTF-8");
    let units = install(root, Path::new("/opt/z"));
    for unit in ["zpager-device.service", "zpager-swap.service"] {
        let text = std::fs::read_to_string(units.join(unit)).expect("installed");
        assert!(text.contains("ExecStart=/opt/z/bin/zpager"), "{unit}: {text}");
        assert!(!text.contains('@') && !text.contains(root), "{unit}: {text}");
    }
    for program in ["zpager", "zpager-swap"] {
        let found = directory.path().join("opt/z/bin").join(program).metadata();
        assert_eq!(found.expect("installed").permissions().mode() & 0o777, 0o755);
    }
    let Some(analyze) = program("systemd-analyze", "systemd") else { return };
    let units = install("", &directory.path().join("usr"));
    let mut verify = Command::new(analyze);
    verify.args(["verify", "--man=no", "--recursive-errors=no"]);
    for unit in std::fs::read_dir(units).expect("installed") {
        verify.arg(unit.expect("an entry").path());
    }
    let said = succeed(&mut verify);
    assert_eq!(said.lines().count(), 1, "it finds something: {said}");
}

#[test]
fn another_user_cannot_reach_it() {
    let server = Server::start("--size 16M --memory 8M --store none");
    let mut status = Command::new(places::zpager());
    status.args(["device", "status", "--socket"]).arg(server.socket()).uid(65_534).gid(65_534);
    let output = match status.stdin(Stdio::null()).current_dir("/").output() {
        Ok(output) => output,
        Err(error) => return println!("skipped: no other user here: {error}"),
    };
    expect_refused(&output, "ermission denied");
    assert!(server.control("status").status.success());
}

/// One client's view of a part of the device.
struct Part {
    client: Client,
    start_bytes: u64,
    model: Vec<u8>,
}

impl Part {
    fn step(&mut self, random: &mut Random, may_refuse: bool) {
        let unit = if random.u64(..3) == 0 { 1 } else { BLOCK_BYTES as u64 };
        let most = if random.u64(..20) == 0 { 400 << 10 } else { 20 << 10 };
        let bytes = (1 + random.u64(..most)).next_multiple_of(unit);
        let offset = random.u64(..(self.model.len() as u64 - bytes) / unit + 1) * unit;
        let (at, range) = (self.start_bytes + offset, offset as usize..(offset + bytes) as usize);
        match random.u64(..12) {
            0..5 => {
                let data = self.client.read(at, bytes as u32).expect("served").expect("readable");
                assert!(data == self.model[range], "other bytes at {at}, {bytes} of them");
            }
            5..10 => {
                let data = random.data(bytes);
                match self.client.write(at, &data).expect("served") {
                    Ok(()) => self.model[range].copy_from_slice(&data),
                    Err(error) => {
                        assert!(may_refuse && error == ENOSPC, "error {error} at {at}");
                        self.take_over(offset, &data);
                    }
                }
            }
            10 => {
                assert_eq!(self.client.trim(at, bytes as u32).expect("served"), Ok(()));
                let first = range.start.next_multiple_of(BLOCK_BYTES);
                let end = range.end / BLOCK_BYTES * BLOCK_BYTES;
                if first < end {
                    self.model[first..end].fill(0);
                }
            }
            _ => match self.client.write_zeroes(at, bytes as u32).expect("served") {
                Ok(()) => self.model[range].fill(0),
                Err(error) => {
                    assert!(may_refuse && error == ENOSPC, "error {error} at {at}");
                    self.take_over(offset, &vec![0; bytes as usize]);
                }
            },
        }
    }

    /// After a write that was refused each block is as before or as written.
    fn take_over(&mut self, offset: u64, data: &[u8]) {
        let found = self.client.read(self.start_bytes + offset, data.len() as u32);
        let found = found.expect("served").expect("readable");
        let mut at = 0;
        while at < data.len() {
            let place = offset as usize + at;
            let step = (BLOCK_BYTES - place % BLOCK_BYTES).min(data.len() - at);
            let model = &mut self.model[place..place + step];
            let block = &found[at..at + step];
            assert!(block == &data[at..at + step] || block == model, "neither old nor new");
            model.copy_from_slice(block);
            at += step;
        }
    }

    fn check(&mut self) {
        for at in (0..self.model.len()).step_by(1 << 20) {
            let bytes = (self.model.len() - at).min(1 << 20);
            let data = self.client.read(self.start_bytes + at as u64, bytes as u32);
            let data = data.expect("served").expect("readable");
            assert!(data == self.model[at..at + bytes], "other bytes in the MiB from {at}");
        }
    }
}

/// Several clients at once, each in its part, against a plain vector.
fn against_a_vector(flags: &str, part_bytes: u64, may_refuse: bool) -> Server {
    const PARTS: u64 = 4;
    let server = Server::start(&format!("--size {} {flags}", part_bytes * PARTS));
    let seeds: Vec<u64> = {
        let mut random = random(1);
        (0..PARTS).map(|_| random.u64(..1 << 40)).collect()
    };
    std::thread::scope(|scope| {
        for (number, seed) in (0..).zip(seeds) {
            let client = server.client(number % 2 == 0);
            let (start_bytes, model) = (number * part_bytes, vec![0; part_bytes as usize]);
            let mut part = Part { client, start_bytes, model };
            scope.spawn(move || {
                let mut random = Random::with_seed(seed);
                for _ in 0..1500 {
                    part.step(&mut random, may_refuse);
                }
                part.client.flush().expect("served").expect("flushed");
                part.check();
                part.client.leave().expect("let go");
            });
        }
    });
    let (held_bytes, memory_bytes) = (server.figure("held_bytes"), server.figure("memory_bytes"));
    assert!(held_bytes <= memory_bytes, "{held_bytes} of {memory_bytes}");
    let resident_bytes = server.memory_bytes("RssAnon");
    let most_bytes = memory_bytes + PROCESS_BYTES;
    assert!(resident_bytes <= most_bytes, "{resident_bytes} bytes resident of {most_bytes}");
    server
}

#[test]
fn blocks_are_what_was_written_with_a_store() {
    for design in ["default", "zswap"] {
        let flags = format!("--memory 8M --store STORE --store-size 64M --design {design}");
        let server = against_a_vector(&flags, 8 * MIB, false);
        assert!(server.figure("store_writes") > 0 && server.figure("spilled_reads") > 0);
        assert_eq!((server.figure("read_errors"), server.figure("store_errors")), (0, 0));
        assert_eq!(std::fs::read_dir(server.store()).expect("there").count(), 0, "a named file");
    }
}

#[test]
fn blocks_are_what_was_written_with_an_encrypted_store() {
    let flags = "--memory 8M --store STORE --store-size 64M --store-encrypt";
    let server = against_a_vector(flags, 8 * MIB, false);
    assert!(server.figure("store_writes") > 0 && server.figure("spilled_reads") > 0);
    assert_eq!((server.figure("read_errors"), server.figure("store_errors")), (0, 0));
}

/// Noise that is kept as it is shows in a swap file, unless that is encrypted. What somebody puts in
/// another's place there is an error for whoever reads it, and never other bytes.
#[test]
fn an_encrypted_store_shows_nothing_and_takes_nothing() {
    const DATA_BYTES: u64 = 24 * MIB;
    const MARK_BYTES: usize = 16;
    for (flag, shows) in [("", true), ("--store-encrypt", false)] {
        let server = Server::start(&format!("--size 24M --memory 8M --store STORE {flag}"));
        let (mut client, mut random) = (server.client(true), random(1));
        let mut data = vec![0; DATA_BYTES as usize];
        data.iter_mut().for_each(|byte| *byte = random.u64(..256) as u8);
        assert_eq!(client.write(0, &data).expect("served"), Ok(()));
        let files = open_files_in(server.pid(), &server.store());
        let file = OpenOptions::new().read(true).write(true).open(&files[0]).expect("a swap file");
        let end_bytes = server.figure("store_end_bytes") as usize;
        assert!(end_bytes > 8 << 20, "{end_bytes} bytes in the store");
        let mut stored = vec![0; end_bytes];
        file.read_exact_at(&mut stored, 0).expect("the swap file");
        // Records begin at multiples of 8 bytes.
        let marks: HashSet<&[u8]> = stored.windows(MARK_BYTES).step_by(8).collect();
        let seen = data.chunks(BLOCK_BYTES).filter(|block| marks.contains(&block[..MARK_BYTES]));
        assert_eq!(seen.count() > 1000, shows, "{flag}");
        // Every part of the file gets what was in the next one.
        let (first, rest) = stored.split_at(CLUSTER_BYTES);
        file.write_all_at(&[rest, first].concat(), 0).expect("written");
        let mut lost = 0;
        for (at, block) in (0..).step_by(BLOCK_BYTES).zip(data.chunks(BLOCK_BYTES)) {
            match client.read(at, BLOCK_BYTES as u32).expect("served") {
                Ok(found) => assert!(found == block, "other bytes at {at}"),
                Err(error) => {
                    assert_eq!(error, EIO);
                    lost += 1;
                }
            }
        }
        assert!(lost > 1000, "{lost} of the blocks in the store");
    }
}

#[test]
fn blocks_are_what_was_written_without_a_store() {
    let server = against_a_vector("--memory 32M --store none", 4 * MIB, false);
    assert_eq!(server.figure("store_writes"), 0);
}

#[test]
fn blocks_are_what_was_written_while_memory_is_taken_and_given_back() {
    against_a_vector("--memory 32M --memory-ahead 1M --store none", 4 * MIB, false);
    let flags = "--memory 8M --memory-ahead 1M --store STORE --store-size 64M";
    let server = against_a_vector(flags, 8 * MIB, false);
    assert!(server.figure("spilled_reads") > 0);
}

#[test]
fn what_does_not_fit_is_refused() {
    let server = against_a_vector("--memory 8M --store none", 8 * MIB, true);
    assert!(server.figure("write_errors") > 0);
    let server = against_a_vector("--memory 8M --store STORE --store-size 2M", 8 * MIB, true);
    assert!(server.figure("write_errors") > 0 && server.figure("store_full") > 0);
}

#[test]
fn a_full_device_loses_nothing_and_trim_makes_room() {
    let server = Server::start("--size 64M --memory 8M --store none");
    let (mut client, mut random) = (server.client(true), random(1));
    let mut kept = BTreeMap::new();
    let mut refused = 0;
    for at in (0..64 * MIB).step_by(BLOCK_BYTES) {
        let mut block = vec![0; BLOCK_BYTES];
        block.chunks_mut(2).for_each(|pair| pair[0] = random.u64(..256) as u8);
        match client.write(at, &block).expect("served") {
            Ok(()) => {
                kept.insert(at, block);
            }
            Err(error) => {
                assert_eq!(error, ENOSPC);
                refused += 1;
            }
        }
    }
    assert!(refused > 1000 && kept.len() > 1000, "{refused} refused, {} kept", kept.len());
    for (at, block) in &kept {
        assert_eq!(client.read(*at, BLOCK_BYTES as u32).expect("served").as_ref(), Ok(block));
        assert_eq!(client.write(*at, block).expect("served"), Ok(()), "as it is at {at}");
    }
    let full_bytes = server.figure("pool_bytes");
    for at in kept.keys().take(kept.len() / 2) {
        assert_eq!(client.trim(*at, BLOCK_BYTES as u32).expect("served"), Ok(()));
    }
    let half_bytes = server.figure("pool_bytes");
    assert!(half_bytes <= full_bytes * 6 / 10, "{half_bytes} of {full_bytes} after half is gone");
    let written = client.write(63 * MIB, &random.data(MIB / 2)).expect("served");
    assert_eq!(written, Ok(()), "there is room again");
    for (at, block) in kept.iter().skip(kept.len() / 2) {
        assert_eq!(client.read(*at, BLOCK_BYTES as u32).expect("served").as_ref(), Ok(block));
    }
    assert_eq!(client.trim(0, (64 * MIB) as u32).expect("served"), Ok(()));
    assert_eq!(server.figure("blocks"), 0);
    assert!(server.figure("pool_bytes") < MIB / 4);
}

/// A server that tells what is not as it should be, in the file `said` beside its socket.
fn start_telling(flags: &str) -> Server {
    let directory = private();
    let said = std::fs::File::create(directory.path().join("said")).expect("a file");
    let mut command = Command::new(places::zpager());
    command.args(["device", "serve"]).stdin(Stdio::null()).stderr(said);
    Server::start_command(directory, command, flags)
}

/// What leaves programs little is told; what does not is not.
#[test]
fn a_server_that_may_take_most_of_the_machine_says_so() {
    let meminfo = std::fs::read_to_string("/proc/meminfo").expect("there");
    let kib = |name: &str| {
        let line = meminfo.lines().find(|line| line.starts_with(name)).expect("a value");
        line.split_whitespace().nth(1).expect("a number").parse::<u64>().expect("a number")
    };
    for (percent, is_told) in [(65, true), (25, false)] {
        let memory_kib = (kib("MemAvailable:") + kib("AnonPages:")) / 100 * percent;
        let flags = format!("--size 64M --memory {memory_kib}K --memory-ahead 1M --store none");
        let server = start_telling(&flags);
        let said = std::fs::read_to_string(server.socket().with_file_name("said")).expect("there");
        assert_eq!(said.contains("more than half of the"), is_told, "{percent} %: {said}");
    }
}

/// Of two clients one fills the device; the other one reads all the time.
#[test]
fn a_device_that_runs_short_says_so_and_slows_who_writes() {
    let server = start_telling("--size 64M --memory 8M --store STORE --store-size 4M");
    let (mut client, mut reader) = (server.client(true), server.client(false));
    let (mut random, mut kept) = (random(1), Vec::new());
    let outcome = loop {
        let mut piece = vec![0; 16 * BLOCK_BYTES];
        piece.chunks_mut(2).for_each(|pair| pair[0] = random.u8(..));
        let at = (kept.len() * piece.len()) as u64;
        if let Err(error) = client.write(at, &piece).expect("served") {
            break error;
        }
        kept.push(piece);
        let back = random.usize(..kept.len());
        let found = reader.read((back * 16 * BLOCK_BYTES) as u64, 16 * BLOCK_BYTES as u32);
        assert_eq!(found.expect("served").as_ref(), Ok(&kept[back]));
    };
    assert_eq!(outcome, ENOSPC);
    let slowed = server.figure("throttled_writes");
    assert!(slowed > 4, "{slowed} of {} pieces slowed", kept.len());
    let told = || {
        let said = std::fs::read_to_string(server.socket().with_file_name("said")).expect("there");
        said.lines().filter(|line| line.contains("space runs short")).count()
    };
    until(Duration::from_secs(60), "somebody is told", || told() > 0);
    let figures =
        || String::from_utf8(server.control("status --prometheus").stdout).expect("UTF-8");
    let slowed = format!("zpager_device_throttled_writes_total {slowed}\n");
    assert!(figures().contains("zpager_device_is_short 1\n") && figures().contains(&slowed));
    assert!(server.control("set memory=16M").status.success());
    assert!(figures().contains("zpager_device_is_short 0\n"), "{}", figures());
    assert_eq!(client.write(60 * MIB, &kept[0]).expect("served"), Ok(()), "there is room again");
    for (at, piece) in kept.iter().enumerate() {
        let found = reader.read((at * piece.len()) as u64, piece.len() as u32);
        assert_eq!(found.expect("served").as_ref(), Ok(piece), "{at}");
    }
    assert_eq!(told(), 1, "told more than once");
    client.leave().expect("let go");
}

/// Requests of one client, many at a time: answers that wait are not lost, and those behind them come.
#[test]
fn answers_that_wait_are_given() {
    const WRITES: u64 = 300;
    let server = Server::start("--size 64M --memory 8M --store none");
    let (mut client, mut random) = (server.client(false), random(1));
    let mut block = vec![0; BLOCK_BYTES];
    let mut at = 0;
    while server.figure("throttled_writes") == 0 {
        for _ in 0..16 {
            block.iter_mut().for_each(|byte| *byte = random.u8(..));
            assert_eq!(client.write(at, &block).expect("served"), Ok(()));
            at += BLOCK_BYTES as u64;
        }
    }
    // More at a time than may wait, each of them small; and behind each a read of what it wrote.
    let mut sent = Vec::new();
    for number in 0..WRITES {
        let place = at + number * BLOCK_BYTES as u64;
        let small = [vec![number as u8 | 1; 8], vec![0; BLOCK_BYTES - 8]].concat();
        sent.extend(Client::header(1, 2 * number, place, BLOCK_BYTES as u32));
        sent.extend(small);
        sent.extend(Client::header(0, 2 * number + 1, place, 8));
    }
    let mut stream = UnixStream::connect(server.socket()).expect("a server");
    stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a limit");
    let mut raw = Client::greet(Box::new(stream.try_clone().expect("a descriptor")), false);
    let raw = raw.as_mut().expect("let in");
    std::thread::scope(|scope| {
        scope.spawn(|| raw.send(&sent).expect("sent"));
        let mut answered = HashSet::new();
        for _ in 0..2 * WRITES {
            let mut head = [0; 16];
            stream.read_exact(&mut head).expect("an answer");
            let cookie = u64::from_be_bytes(head[8..].try_into().expect("8"));
            assert_eq!(head[4..8], [0; 4], "an error");
            if cookie % 2 == 1 {
                let mut data = [0; 8];
                stream.read_exact(&mut data).expect("data");
                assert_eq!(data, [(cookie / 2) as u8 | 1; 8]);
            }
            assert!(answered.insert(cookie), "answered twice");
        }
    });
    assert!(server.figure("throttled_writes") > WRITES / 2);
}

#[test]
fn zeros_cost_nothing() {
    let server = Server::start("--size 1G --memory 8M --store none");
    let mut client = server.client(false);
    let held_bytes = server.figure("held_bytes");
    for at in (0..64 * MIB).step_by(1 << 20) {
        assert_eq!(client.write(at, &vec![0; 1 << 20]).expect("served"), Ok(()));
    }
    assert_eq!((server.figure("blocks"), server.figure("held_bytes")), (0, held_bytes));
}

#[test]
fn errors_are_those_of_the_protocol() {
    let server = Server::start("--size 1M --memory 8M --store none");
    for structured in [false, true] {
        let mut client = server.client(structured);
        assert_eq!(client.read(MIB - 1, 2).expect("served"), Err(EINVAL));
        assert_eq!(client.read(0, (32 << 20) + 1).expect("served"), Err(EINVAL));
        assert_eq!(client.write(MIB, &[1]).expect("served"), Err(ENOSPC));
        assert_eq!(client.trim(1, MIB as u32).expect("served"), Err(EINVAL));
        assert_eq!(client.write_zeroes(u64::MAX, 2).expect("served"), Err(ENOSPC));
        assert_eq!(client.read(0, 0).expect("served"), Ok(Vec::new()));
        assert_eq!(client.write(MIB - 1, &[1]).expect("served"), Ok(()));
        assert_eq!(client.read(MIB - 2, 2).expect("served"), Ok(vec![0, 1]));
        client.leave().expect("let go");
    }
}

#[test]
fn whatever_clients_send_the_server_lives_on() {
    let server = Server::start("--size 16M --memory 8M --store none");
    let mut random = random(1);
    let kept = random.data(MIB);
    let mut witness = server.client(true);
    assert_eq!(witness.write(0, &kept).expect("served"), Ok(()));
    // Half a request, half its data, no reader for the answers, noise before and after the handshake.
    let halves = [
        Client::header(1, 0, MIB, 8192)[..20].to_vec(),
        [Client::header(1, 0, MIB, 8192), vec![7; 5000]].concat(),
        (0..64).flat_map(|cookie| Client::header(0, cookie, 0, MIB as u32)).collect(),
        vec![0; 4096],
    ];
    for half in &halves {
        let mut client = server.client(false);
        client.send(half).expect("sent");
    }
    for turn in 0..300 {
        let mut noise = vec![0; 1 + random.u64(..5000) as usize];
        noise.iter_mut().for_each(|byte| *byte = random.u64(..256) as u8);
        if turn % 3 == 0 {
            let mut stream = UnixStream::connect(server.socket()).expect("a server");
            // The server may be done with it already.
            let _ = stream.write_all(&noise);
            continue;
        }
        let mut client = server.client(turn % 2 == 0);
        if turn % 3 == 1 {
            // Requests with every field but the place at random, far from what is kept.
            let command = random.u64(..8) as u16;
            noise = Client::header(command, 1, 4 * MIB + random.u64(..MIB), random.u32(..1 << 20));
        }
        let _ = client.send(&noise);
    }
    assert_eq!(witness.read(0, MIB as u32).expect("served"), Ok(kept));
    witness.leave().expect("let go");
    server.wait_until_left();
}

#[test]
fn a_client_that_only_connects_does_not_stay() {
    let server = Server::start("--size 16M --memory 8M --store none");
    let idle: Vec<UnixStream> =
        (0..20).map(|_| UnixStream::connect(server.socket()).expect("a server")).collect();
    for mut stream in idle {
        stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a limit");
        let mut all = Vec::new();
        match stream.read_to_end(&mut all) {
            Ok(_) => assert!(all.len() == 18 || all.is_empty(), "{all:?}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
    // A socket closes before its connection has made room for another.
    server.wait_until_left();
    assert_eq!(server.client(true).read(0, 1).expect("served"), Ok(vec![0]));
}

#[test]
fn a_server_that_is_killed_or_told_to_end_ends() {
    let mut server = Server::start("--size 16M --memory 8M --store STORE");
    let mut client = server.client(true);
    client.write(0, &[1; 10]).expect("served").expect("room");
    let pid = rustix::process::Pid::from_raw(server.pid().cast_signed()).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("alive");
    assert!(server.wait(), "a clean end");
    assert!(client.read(0, 10).is_err(), "the server is gone");
    assert!(!server.socket().exists(), "its socket stays");
    let killed = Server::start("--size 16M --memory 8M --store STORE");
    let mut client = killed.client(true);
    client.write(0, &[1; 10]).expect("served").expect("room");
    let directory = killed.kill();
    assert!(client.read(0, 10).is_err(), "the server is gone");
    let store = directory.path().join("store");
    assert_eq!(std::fs::read_dir(store).expect("there").count(), 0, "something is left");
}

/// A device that is not there has nothing that could be stopped.
#[test]
fn there_is_no_way_back_from_a_device_that_is_not_there() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root may change what the kernel swaps to");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/zpager-swap");
    for verb in ["stop", "detach"] {
        let mut command = Command::new(&script);
        command.args([verb, "--device", "/dev/nowhere", "--socket", "/nowhere/at/all"]);
        let output = command.output().expect("a shell");
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{message}");
        assert!(message.contains("/dev/nowhere: no block device"), "{message}");
    }
}

#[test]
fn a_device_is_asked_changed_and_stopped() {
    let mut server = Server::start("--size 64M --memory 16M --store STORE --store-size 64M");
    let (mut client, mut random) = (server.client(true), random(1));
    let data = random.data(16 * MIB);
    assert_eq!(client.write(0, &data).expect("served"), Ok(()));
    let table = String::from_utf8(server.control("status").stdout).expect("UTF-8");
    assert!(table.contains("spilled_blocks") && table.contains("codec"), "{table}");
    assert!(table.contains("1  has_store"), "{table}");
    let text = String::from_utf8(server.control("status --prometheus").stdout).expect("UTF-8");
    let value = |line: &str| line.rsplit(' ').next().and_then(|value| value.parse::<u64>().ok());
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    assert!(lines.clone().all(|line| value(line).is_some()), "{text}");
    let written = lines.clone().find(|line| line.starts_with("zpager_device_written_bytes_total"));
    assert_eq!(written.and_then(value), Some(16 * MIB), "{text}");
    assert!(text.contains("\nzpager_device_has_store 1\n"), "{text}");
    assert!(text.contains("\nzpager_device_codec_info{codec=\""), "{text}");
    assert!(server.control("set memory=8M").status.success());
    assert_eq!(server.figure("memory_bytes"), 8 * MIB);
    assert!(server.figure("held_bytes") <= 8 * MIB);
    assert_eq!(server.figure("threshold_percent"), 100);
    assert!(server.control("set threshold=50%").status.success());
    assert_eq!(server.figure("threshold_percent"), 50);
    expect_refused(&server.control("set memory=1M"), "8.0 MiB");
    expect_refused(
        &server.control("set memory=9999G"),
        "memory=9.8 TiB: out of range: give from 8.0 MiB",
    );
    assert_eq!(client.read(0, 16 << 20).expect("served").as_ref(), Ok(&data));
    expect_refused(&server.control("stop"), "--force");
    assert_eq!(client.read(0, 1).expect("served"), Ok(data[..1].to_vec()));
    client.leave().expect("let go");
    let has_stopped = || server.control("stop").status.success();
    until(Duration::from_secs(20), "the client has left", has_stopped);
    assert!(server.wait(), "a clean end");
    assert!(!server.socket().exists(), "its socket stays");
}

/// What the first connection takes of the memory when it comes, or more.
const CONNECTION_BYTES: u64 = MIB / 2;

/// Whether the server has all it was granted in RAM, whatever it holds.
fn has_its_memory(server: &Server, memory_bytes: u64) -> bool {
    let resident_bytes = server.memory_bytes("RssAnon");
    println!("{resident_bytes} bytes resident of {memory_bytes}");
    (memory_bytes - MIB / 2..memory_bytes + PROCESS_BYTES).contains(&resident_bytes)
}

#[test]
fn memory_that_is_locked_is_taken_before_it_serves_and_kept() {
    let mut random = random(1);
    let data = random.data(24 * MIB);
    for store in ["none", "STORE --store-size 64M"] {
        let server = Server::start(&format!("--size 96M --memory 48M --store {store}"));
        if server.memory_bytes("VmLck") == 0 {
            // Nobody allowed it: memory is taken as it is needed.
            assert!(!has_its_memory(&server, 48 * MIB));
            continue;
        }
        assert!(has_its_memory(&server, 48 * MIB - CONNECTION_BYTES), "at first");
        let mut client = server.client(true);
        assert_eq!(client.write(0, &data).expect("served"), Ok(()));
        assert!(has_its_memory(&server, 48 * MIB), "in use");
        assert_eq!(client.trim(0, 12 << 20).expect("served"), Ok(()));
        assert!(has_its_memory(&server, 48 * MIB), "trimmed");
        for mib in [40, 64, 16] {
            assert!(server.control(&format!("set memory={mib}M")).status.success());
            assert!(has_its_memory(&server, mib * MIB), "set to {mib} MiB");
        }
        assert_eq!(client.write(12 * MIB, &data[..12 << 20]).expect("served"), Ok(()));
        assert!(has_its_memory(&server, 16 * MIB), "written again");
        assert_eq!(
            client.read(12 * MIB, 12 << 20).expect("served").as_ref(),
            Ok(&data[..12 << 20].to_vec())
        );
    }
}

#[test]
fn memory_is_taken_ahead_as_it_fills_and_given_back_as_it_empties() {
    const AHEAD_BYTES: u64 = 4 * MIB;
    const PATIENCE: Duration = Duration::from_secs(20);
    let mut random = random(1);
    let data = random.data(24 * MIB);
    for store in ["none", "STORE --store-size 64M"] {
        let flags = format!("--size 96M --memory 48M --memory-ahead 4M --store {store}");
        let server = Server::start(&flags);
        if server.memory_bytes("VmLck") == 0 {
            println!("skipped: nobody allowed memory to be locked");
            continue;
        }
        // The thread that does it gets its turn when the machine has one for it.
        let is_even = || {
            let (pool_bytes, kept_bytes) =
                (server.figure("pool_bytes"), server.figure("kept_bytes"));
            let kept = pool_bytes + AHEAD_BYTES / 2..=pool_bytes + 2 * AHEAD_BYTES;
            let resident_bytes = server.memory_bytes("RssAnon");
            println!(
                "{pool_bytes} bytes in the pool, {kept_bytes} kept, {resident_bytes} resident"
            );
            kept.contains(&kept_bytes) && resident_bytes < kept_bytes + 2 * PROCESS_BYTES
        };
        until(PATIENCE, "even at first", is_even);
        let mut client = server.client(true);
        for (at, piece) in (0..).step_by(1 << 20).zip(data.chunks(1 << 20)) {
            assert_eq!(client.write(at, piece).expect("served"), Ok(()));
        }
        until(PATIENCE, "even in use", is_even);
        assert!(server.figure("kept_bytes") > 6 * MIB, "much of it does not shrink");
        assert_eq!(client.read(0, 24 << 20).expect("served").as_ref(), Ok(&data));
        assert_eq!(client.trim(0, 24 << 20).expect("served"), Ok(()));
        until(PATIENCE, "even trimmed", is_even);
        assert!(server.control("set memory=8M").status.success());
        assert!(server.figure("kept_bytes") < 8 * MIB, "no more than it may");
    }
}

/// A page of it that was read when it is wanted would take memory when there is none. (Small machines have not so
/// much to spare.)
#[test]
fn all_code_is_in_memory_before_it_is_wanted() {
    let server = Server::start("--size 96M --memory 48M --store none");
    if server.memory_bytes("VmLck") == 0 {
        println!("skipped: nobody allowed memory to be locked");
        return;
    }
    let mappings =
        std::fs::read_to_string(format!("/proc/{}/smaps", server.pid())).expect("it lives");
    let mut lines = mappings.lines();
    let is_code = |line: &str| line.contains(" r-xp ") && line.ends_with("/zpager");
    assert!(lines.any(is_code), "it has code");
    // What follows is of that mapping first, in this order (proc_pid_smaps(5)).
    let mut kib = |key: &str| -> u64 {
        let line = lines.find(|line| line.starts_with(key)).expect("the line");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("KiB")
    };
    let (size_kib, resident_kib) = (kib("Size:"), kib("Rss:"));
    assert!(size_kib > 1000);
    assert_eq!(size_kib, resident_kib);
}

/// Where the kernel has no memory for it, the thread that takes it goes on trying: it must not keep from
/// the processor those who serve, or the kernel's own that make some.
#[test]
fn who_takes_memory_ahead_comes_after_who_serves() {
    let server = Server::start("--size 96M --memory 48M --memory-ahead 4M --store none");
    let _client = server.client(true);
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).expect("it lives");
    let stats =
        tasks.map(|task| std::fs::read_to_string(task.expect("listed").path().join("stat")));
    // The policy is field 41 of proc_pid_stat(5); the first two are the number and the name.
    let policy = |stat: String| -> i32 {
        let mut fields = stat.rsplit(')').next().expect("a name").split_whitespace();
        fields.nth(38).and_then(|field| field.parse().ok()).expect("a policy")
    };
    let policies: Vec<_> = stats.map(|stat| policy(stat.expect("it lives"))).collect();
    if !policies.contains(&ROUND_ROBIN) {
        println!("skipped: nobody allowed real-time scheduling");
        return;
    }
    let others = policies.iter().filter(|policy| **policy != ROUND_ROBIN);
    assert_eq!(others.collect::<Vec<_>>(), [&USUAL], "{policies:?}");
    assert!(policies.len() >= 4, "{policies:?}");
}

/// Runs a tool that has to succeed; gives what it printed.
fn succeed(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    let shown = format!(
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{shown}");
    shown
}

#[test]
fn nbdinfo_sees_what_it_is() {
    let Some(nbdinfo) = program("nbdinfo", "libnbd-bin") else { return };
    let server = Server::start("--size 96M --memory 8M --store none --export swap");
    let shown = succeed(Command::new(&nbdinfo).arg("--json").arg(server.uri()));
    let start = shown.find('{').expect("JSON");
    let info: serde_json::Value = serde_json::from_str(&shown[start..]).expect("JSON");
    assert_eq!(info["protocol"], "newstyle-fixed", "{shown}");
    let export = &info["exports"][0];
    assert_eq!(export["export-size"].as_u64(), Some(96 * MIB), "{shown}");
    assert_eq!(export["block_size_preferred"].as_u64(), Some(4096), "{shown}");
    for can in ["can_flush", "can_fua", "can_multi_conn", "can_trim", "can_zero"] {
        assert_eq!(export[can], true, "{can}: {shown}");
    }
    assert_eq!(export["is_read_only"], false, "{shown}");
    let listed = succeed(Command::new(&nbdinfo).arg("--list").arg(server.uri()));
    assert!(listed.contains("export=\"swap\""), "{listed}");
    let named = format!("nbd+unix:///swap?socket={}", server.socket().display());
    succeed(Command::new(&nbdinfo).args(["--can", "connect"]).arg(named));
    let wrong = format!("nbd+unix:///other?socket={}", server.socket().display());
    assert!(!Command::new(&nbdinfo).arg(wrong).output().expect("it starts").status.success());
}

#[test]
fn nbdcopy_brings_back_what_it_took() {
    let Some(nbdcopy) = program("nbdcopy", "libnbd-bin") else { return };
    let server = Server::start("--size 24M --memory 8M --store STORE --store-size 64M");
    let directory = places::scratch();
    let (before, after) = (directory.path().join("before"), directory.path().join("after"));
    std::fs::write(&before, random(1).data(24 * MIB)).expect("written");
    for flags in [&["--connections=4", "--requests=16"][..], &["--synchronous"]] {
        let mut copy = Command::new(&nbdcopy);
        succeed(copy.args(flags).arg(&before).arg(server.uri()));
        let mut copy = Command::new(&nbdcopy);
        succeed(copy.args(flags).arg(server.uri()).arg(&after));
        assert!(std::fs::read(&before).expect("there") == std::fs::read(&after).expect("there"));
    }
    assert!(server.figure("spilled_blocks") > 0);
}

#[test]
fn qemu_writes_reads_and_discards() {
    let (Some(image), Some(io)) =
        (program("qemu-img", "qemu-utils"), program("qemu-io", "qemu-utils"))
    else {
        return;
    };
    let server = Server::start("--size 24M --memory 8M --store STORE --store-size 64M");
    let directory = places::scratch();
    let file = directory.path().join("image");
    std::fs::write(&file, random(1).data(24 * MIB)).expect("written");
    let raw = ["-f", "raw", "-O", "raw"];
    succeed(Command::new(&image).args(["convert", "-n"]).args(raw).arg(&file).arg(server.uri()));
    let formats = ["-f", "raw", "-F", "raw"];
    succeed(Command::new(&image).arg("compare").args(formats).arg(&file).arg(server.uri()));
    let commands = [
        "write -P 17 1M 3M",
        "write -P 18 4097 511",
        "write -z 2M 1M",
        "discard 3M 64k",
        "read -P 17 1M 1M",
        "read -P 18 4097 511",
        "read -P 0 2M 1M",
        "read -P 0 3M 64k",
        "aio_write -P 19 8M 2M",
        "aio_flush",
        "read -P 19 8M 2M",
        "flush",
    ];
    let mut run = Command::new(&io);
    run.args(["-f", "raw"]);
    commands.iter().for_each(|command| {
        run.args(["-c", command]);
    });
    let shown = succeed(run.arg(server.uri()));
    assert!(!shown.contains("failed") && !shown.contains("error"), "{shown}");
}

#[test]
fn fio_verifies_what_it_wrote() {
    let Some(fio) = program("fio", "fio") else { return };
    let engines = Command::new(&fio).arg("--enghelp").output().expect("it starts");
    if !String::from_utf8_lossy(&engines.stdout).contains("nbd") {
        return println!("skipped: fio has no nbd engine");
    }
    let server = Server::start("--size 32M --memory 8M --store STORE --store-size 64M");
    let mut run = Command::new(&fio);
    run.current_dir(server.store()).args(["--name=verify", "--ioengine=nbd", "--rw=randwrite"]);
    run.args(["--bs=4k", "--iodepth=16", "--size=32M", "--verify=crc32c", "--do_verify=1"]);
    run.args(["--refill_buffers", "--buffer_compress_percentage=50", "--randseed=7"]);
    let shown = succeed(run.arg(format!("--uri={}", server.uri())));
    assert!(shown.contains("err= 0"), "{shown}");
    assert!(server.figure("spilled_reads") > 0);
}
