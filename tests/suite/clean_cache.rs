//! `zpager device serve --clean-cache`: a cache in front of a disk that holds a file system, which has
//! on it all that was flushed, however the server ends.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use zpager_seed::{Random, random};
use zpager_tests::nbd::{Client, Server, control, private};
use zpager_tests::packages::program;
use zpager_tests::places;

const BLOCK_BYTES: usize = 4096;
const MIB: u64 = 1 << 20;

/// What is written to the disk.
trait Noise {
    fn data(&mut self, bytes: u64) -> Vec<u8>;
}

impl Noise for Random {
    fn data(&mut self, bytes: u64) -> Vec<u8> {
        let mut data = vec![0; bytes as usize];
        for block in data.chunks_mut(BLOCK_BYTES) {
            let step = 1 + self.u64(..4) as usize;
            block.iter_mut().step_by(step).for_each(|byte| *byte = self.u64(..256) as u8);
        }
        data
    }
}

/// A disk of so many bytes, with something on it.
fn disk(directory: &TempDir, random: &mut Random, bytes: u64) -> (PathBuf, Vec<u8>) {
    let path = directory.path().join("disk");
    let content = random.data(bytes);
    std::fs::write(&path, &content).expect("written");
    (path, content)
}

fn serve(directory: TempDir, disk: &Path) -> Server {
    Server::start_in(directory, &format!("--clean-cache {} --memory 8M", disk.display()))
}

fn expect_refused(directory: &Path, flags: &str, word: &str) {
    let output = control(&directory.join("socket"), &format!("serve --memory 8M {flags}"));
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.starts_with("zpager: ") && message.contains(word), "{word}: {message}");
    assert!(output.stdout.is_empty(), "{output:?}");
}

/// Runs a tool; gives what it printed where it succeeded.
fn run(tool: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new(tool).args(arguments).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[test]
fn what_is_no_disk_to_serve_is_told_in_one_line() {
    let directory = private();
    let path = directory.path().join("odd");
    std::fs::write(&path, [0; 5000]).expect("written");
    let odd = format!("--clean-cache {}", path.display());
    std::fs::write(directory.path().join("empty"), []).expect("written");
    let empty = format!("--clean-cache {}/empty", directory.path().display());
    let table = [
        ("--clean-cache /nowhere/at/all", "/nowhere/at/all"),
        ("--clean-cache /dev/null", "neither"),
        ("--clean-cache /tmp", "neither"),
        (odd.as_str(), "4096"),
        (empty.as_str(), "4096"),
        ("--clean-cache /d --size 1G", "--size"),
        ("--clean-cache /d --store none", "--store"),
    ];
    for (flags, word) in table {
        expect_refused(directory.path(), flags, word);
    }
    assert_eq!(std::fs::read(&path).expect("there"), [0; 5000], "it was touched");
}

#[test]
fn a_disk_in_use_is_refused_and_not_touched() {
    let directory = private();
    let (path, content) = disk(&directory, &mut random(1), 16 * MIB);
    let flags = format!("--clean-cache {}", path.display());
    let server = serve(directory, &path);
    let other = private();
    expect_refused(other.path(), &flags, "locked");
    let directory = server.kill();
    assert!(std::fs::read(&path).expect("there") == content);
    // A loop device in it, and what is mounted from that.
    let (Some(losetup), Some(mkfs), Some(mount), Some(umount)) = (
        program("losetup", "mount"),
        program("mkfs.ext4", "e2fsprogs"),
        program("mount", "mount"),
        program("umount", "mount"),
    ) else {
        return;
    };
    let shown = path.to_str().expect("UTF-8");
    run(&mkfs, &["-q", "-F", shown]).expect("a file system");
    let Some(device) = run(&losetup, &["--find", "--show", shown]) else {
        return println!("skipped: no loop devices here");
    };
    let mounted = directory.path().join("mounted");
    std::fs::create_dir(&mounted).expect("a directory");
    let there = mounted.to_str().expect("UTF-8");
    let is_mounted = run(&mount, &[&device, there]).is_some();
    let refused = std::panic::catch_unwind(AssertUnwindSafe(|| {
        expect_refused(other.path(), &flags, &device);
        if is_mounted {
            expect_refused(other.path(), &format!("--clean-cache {device}"), "mounted on");
        }
    }));
    run(&umount, &[there]);
    run(&losetup, &["--detach", &device]);
    refused.expect("refused");
    assert!(is_mounted, "{device} could not be mounted");
    // A device that nobody uses is as good as a file.
    let device = run(&losetup, &["--find", "--show", shown]).expect("a loop device");
    let server = Server::start_in(directory, &format!("--clean-cache {device} --memory 8M"));
    let mut client = server.client(true);
    let written = client.write(MIB, &[7; 10_000]).expect("served");
    let flushed = client.flush().expect("served");
    let read = client.read(MIB - 1, 10_002).expect("served");
    drop(server.kill());
    run(&losetup, &["--detach", &device]);
    assert_eq!((written, flushed), (Ok(()), Ok(())));
    assert_eq!(read.map(|data| data[1..10_001] == [7; 10_000]), Ok(true));
}

#[test]
fn a_client_finds_what_is_on_the_disk_and_the_disk_has_what_it_writes() {
    let (directory, mut random) = (private(), random(1));
    let (path, mut model) = disk(&directory, &mut random, 32 * MIB);
    let file = File::open(&path).expect("there");
    let server = serve(directory, &path);
    let mut clients = [server.client(true), server.client(false)];
    assert_eq!(clients[0].size_bytes, 32 * MIB);
    for turn in 0..4000 {
        let client = &mut clients[turn % 2];
        let unit = if random.u64(..3) == 0 { 1 } else { BLOCK_BYTES as u64 };
        let bytes = (1 + random.u64(..40 << 10)).next_multiple_of(unit);
        let part = if random.u64(..4) > 0 { 4 * MIB } else { 32 * MIB };
        let at = random.u64(..(part - bytes) / unit + 1) * unit;
        let range = at as usize..(at + bytes) as usize;
        match random.u64(..16) {
            0..9 => {
                let data = client.read(at, bytes as u32).expect("served").expect("readable");
                assert!(data == model[range], "other bytes at {at}, {bytes} of them");
                continue;
            }
            9..13 => {
                let data = random.data(bytes);
                assert_eq!(client.write(at, &data).expect("served"), Ok(()));
                model[range.clone()].copy_from_slice(&data);
            }
            13 => {
                assert_eq!(client.write_zeroes(at, bytes as u32).expect("served"), Ok(()));
                model[range.clone()].fill(0);
            }
            14 => {
                // What is trimmed is whatever the disk makes of it: here zeros.
                assert_eq!(client.trim(at, bytes as u32).expect("served"), Ok(()));
                let first = range.start.next_multiple_of(BLOCK_BYTES);
                let end = range.end / BLOCK_BYTES * BLOCK_BYTES;
                if first < end {
                    model[first..end].fill(0);
                }
            }
            _ => assert_eq!(client.flush().expect("served"), Ok(())),
        }
        let mut there = vec![0; range.len()];
        file.read_exact_at(&mut there, at).expect("there");
        assert!(there == model[range], "other bytes on the disk at {at}");
    }
    assert!(server.figure("hits") > 1000 && server.figure("released_blocks") > 0);
    let (held_bytes, memory_bytes) = (server.figure("held_bytes"), server.figure("memory_bytes"));
    assert!(held_bytes <= memory_bytes, "{held_bytes} of {memory_bytes}");
    drop(server.kill());
}

/// Writes and flushes until the server is gone; gives what the disk has to have, and the write that was
/// not answered.
fn write_on(
    client: &mut Client,
    random: &mut Random,
    model: &mut [u8],
) -> Option<(usize, Vec<u8>)> {
    loop {
        let bytes = (1 + random.u64(..16)) * BLOCK_BYTES as u64;
        let data = random.data(bytes);
        let at =
            random.u64(..(model.len() - data.len()) as u64) as usize / BLOCK_BYTES * BLOCK_BYTES;
        match client.write(at as u64, &data) {
            Ok(Ok(())) => model[at..at + data.len()].copy_from_slice(&data),
            Ok(Err(error)) => panic!("error {error} at {at}"),
            Err(_) => return Some((at, data)),
        }
        if random.u64(..8) == 0 && client.flush().is_err() {
            return None;
        }
    }
}

#[test]
fn a_server_that_is_killed_has_all_of_it_on_the_disk() {
    let mut random = random(1);
    let mut directory = private();
    let (path, mut model) = disk(&directory, &mut random, 16 * MIB);
    for turn in 0..12 {
        let server = serve(directory, &path);
        let mut client = server.client(turn % 2 == 0);
        let millis = random.u64(..400);
        let (killed, unanswered) = std::thread::scope(|scope| {
            let writing = scope.spawn(|| write_on(&mut client, &mut random, &mut model));
            std::thread::sleep(Duration::from_millis(millis));
            let killed = server.kill();
            (killed, writing.join().expect("no error"))
        });
        directory = killed;
        let there = std::fs::read(&path).expect("there");
        let (start, data) = unanswered.unwrap_or_default();
        for (number, block) in there.chunks(BLOCK_BYTES).enumerate() {
            let at = number * BLOCK_BYTES;
            let from = at.checked_sub(start);
            let is_last = from.and_then(|from| data.get(from..from + BLOCK_BYTES)) == Some(block);
            let is_it = block == &model[at..at + BLOCK_BYTES];
            assert!(is_it || is_last, "block {number} is lost in turn {turn}");
        }
        model = there;
    }
}

/// A file system that was written and flushed is whole after a kill, and has its files.
#[test]
fn a_file_system_outlives_the_server() {
    let (Some(mkfs), Some(fsck), Some(debugfs), Some(nbdcopy)) = (
        program("mkfs.ext4", "e2fsprogs"),
        program("e2fsck", "e2fsprogs"),
        program("debugfs", "e2fsprogs"),
        program("nbdcopy", "libnbd-bin"),
    ) else {
        return;
    };
    let (mut directory, mut random) = (private(), random(1));
    let (path, _) = disk(&directory, &mut random, 32 * MIB);
    let shown = path.to_str().expect("UTF-8").to_owned();
    let scratch = places::scratch();
    let files = scratch.path().join("files");
    std::fs::create_dir(&files).expect("a directory");
    for turn in 0..3 {
        // One more file each time, in an image that is copied through the cache.
        let name = format!("file{turn}");
        let content = random.data(3 * MIB + 1234);
        std::fs::write(files.join(&name), &content).expect("written");
        let image = scratch.path().join("image");
        File::create(&image).and_then(|file| file.set_len(32 * MIB)).expect("an image");
        let from = files.to_str().expect("UTF-8");
        let image = image.to_str().expect("UTF-8");
        run(&mkfs, &["-q", "-F", "-d", from, image]).expect("a file system");
        let server = serve(directory, &path);
        run(&nbdcopy, &["--flush", "--requests=16", image, &server.uri()]).expect("copied");
        // The second time from the cache.
        for _ in 0..2 {
            let back = scratch.path().join("back");
            let back = back.to_str().expect("UTF-8");
            run(&nbdcopy, &[&server.uri(), back]).expect("copied");
            assert!(std::fs::read(back).expect("there") == std::fs::read(image).expect("there"));
        }
        directory = server.kill();
        let checked = run(&fsck, &["-fn", &shown]);
        assert!(checked.is_some(), "e2fsck finds errors in turn {turn}");
        let out = scratch.path().join("out");
        let request = format!("dump /{name} {}", out.display());
        run(&debugfs, &["-R", &request, &shown]).expect("debugfs");
        assert!(std::fs::read(&out).expect("dumped") == content, "another {name}");
    }
}

#[test]
fn fio_and_qemu_find_what_they_wrote() {
    let (Some(fio), Some(qemu)) = (program("fio", "fio"), program("qemu-io", "qemu-utils")) else {
        return;
    };
    let engines = run(&fio, &["--enghelp"]).expect("fio");
    if !engines.contains("nbd") {
        return println!("skipped: fio has no nbd engine");
    }
    let directory = private();
    let (path, _) = disk(&directory, &mut random(1), 32 * MIB);
    let server = serve(directory, &path);
    let uri = server.uri();
    let mut verify = Command::new(&fio);
    verify.current_dir(server.store()).args(["--name=verify", "--ioengine=nbd", "--rw=randwrite"]);
    verify.args(["--bs=4k", "--iodepth=16", "--size=32M", "--verify=crc32c", "--do_verify=1"]);
    verify.args(["--fsync=64", "--refill_buffers", "--randseed=7", &format!("--uri={uri}")]);
    let output = verify.stdin(Stdio::null()).output().expect("fio");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && shown.contains("err= 0"), "{shown}");
    let commands = [
        "write -f -P 17 1M 3M",
        "write -P 18 4097 511",
        "write -z 2M 1M",
        "write -z -u 5M 1M",
        "read -P 17 1M 1M",
        "read -P 18 4097 511",
        "read -P 0 2M 1M",
        "read -P 0 5M 1M",
        "discard 3M 64k",
        "flush",
    ];
    let mut words = vec!["-f", "raw"];
    commands.iter().for_each(|command| words.extend(["-c", command]));
    words.push(&uri);
    let shown = run(&qemu, &words).expect("qemu-io");
    assert!(!shown.contains("failed") && !shown.contains("error"), "{shown}");
}
