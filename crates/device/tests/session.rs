//! Sessions of the protocol, byte by byte: what a client sends and what it is answered.

use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use zpager_device::nbd::{Command, Ended, Export, REQUEST_BYTES, Request, Socket, serve_client};
use zpager_device::{CleanCache, Device, Disk, Setup, Target, Worker};
use zpager_policy::{DesignId, Settings};
use zpager_pool::Heap;
use zpager_seed::random;
use zpager_store::{Errno, Memory};

const SIZE_BYTES: u64 = 1 << 20;
const MAGIC_OPTION: &[u8] = b"IHAVEOPT";

/// A client that has sent all it has to say.
struct Script<'a> {
    sent: &'a [u8],
    answered: &'a mut Vec<u8>,
}

impl Read for Script<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.sent.read(buffer)
    }
}

impl Write for Script<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.answered.write(data)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Socket for Script<'_> {
    fn wait(&self, limit: Option<Duration>, _: Option<BorrowedFd<'_>>) -> bool {
        if let Some(limit) = limit.filter(|_| self.sent.is_empty()) {
            std::thread::sleep(limit);
        }
        !self.sent.is_empty()
    }
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let (number, bytes) = (number.to_be_bytes(), (data.len() as u32).to_be_bytes());
    [MAGIC_OPTION, &number, &bytes, data].concat()
}

/// The data of `NBD_OPT_INFO` and `NBD_OPT_GO`.
fn info(name: &str, wanted: &[u16]) -> Vec<u8> {
    let words: Vec<u8> = wanted.iter().flat_map(|word| word.to_be_bytes()).collect();
    let (name_bytes, count) =
        ((name.len() as u32).to_be_bytes(), (wanted.len() as u16).to_be_bytes());
    [&name_bytes, name.as_bytes(), &count, &words].concat()
}

fn request(command: Command, offset_bytes: u64, bytes: u32) -> [u8; REQUEST_BYTES] {
    Request { command, flags: 0, cookie: 0x1122, offset_bytes, bytes }.to_bytes()
}

type Small = Device<Heap, Memory>;

fn device() -> Small {
    let settings = Settings::of(DesignId::Default);
    let (memory_bytes, memory_bytes_max) = (8 << 20, 8 << 20);
    let ahead_bytes = None;
    let setup =
        Setup { size_bytes: SIZE_BYTES, memory_bytes, memory_bytes_max, ahead_bytes, settings };
    Device::new(Heap, &setup, None).expect("heap")
}

/// Serves a client of a new device that sends this after its flags; gives how it ended and what it
/// was answered after the greeting.
fn talk(client_flags: u32, sent: &[&[u8]]) -> (Ended, Vec<u8>) {
    let device = device();
    let mut worker = device.connect().expect("room");
    talk_to(&device, &mut worker, client_flags, sent)
}

fn talk_to<T: Target>(
    device: &T,
    worker: &mut Worker,
    client_flags: u32,
    sent: &[&[u8]],
) -> (Ended, Vec<u8>) {
    let export = Export { name: "swap".to_owned(), size_bytes: SIZE_BYTES };
    let sent = [&client_flags.to_be_bytes()[..], &sent.concat()].concat();
    let mut answered = Vec::new();
    let script = Script { sent: &sent, answered: &mut answered };
    let ended = serve_client(script, device, worker, &export, || {});
    assert_eq!(answered[..18], *b"NBDMAGICIHAVEOPT\0\x03");
    (ended, answered.split_off(18))
}

/// An answer to an option.
fn reply(number: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let magic = 0x0003_e889_0455_65a9_u64.to_be_bytes();
    let (number, kind) = (number.to_be_bytes(), kind.to_be_bytes());
    [&magic[..], &number, &kind, &(data.len() as u32).to_be_bytes(), data].concat()
}

fn simple(error: u32) -> Vec<u8> {
    let cookie = 0x1122_u64.to_be_bytes();
    [&0x6744_6698_u32.to_be_bytes()[..], &error.to_be_bytes(), &cookie].concat()
}

fn chunk(flags: u16, kind: u16, data: &[u8]) -> Vec<u8> {
    let cookie = 0x1122_u64.to_be_bytes();
    let (flags, kind, bytes) = (flags.to_be_bytes(), kind.to_be_bytes(), data.len() as u32);
    [&0x668e_33ef_u32.to_be_bytes()[..], &flags, &kind, &cookie, &bytes.to_be_bytes(), data]
        .concat()
}

/// What is said of the export: flush, FUA, trim, write-zeroes, several connections.
const FLAGS: u16 = 0b1_0110_1101;

fn export_info(number: u32) -> Vec<u8> {
    let export = [&[0, 0][..], &SIZE_BYTES.to_be_bytes(), &FLAGS.to_be_bytes()].concat();
    let sizes = [0, 3, 0, 0, 0, 1, 0, 0, 0x10, 0, 2, 0, 0, 0];
    [reply(number, 3, &export), reply(number, 3, &sizes)].concat()
}

#[test]
fn options_are_answered_one_by_one() {
    let (ended, answered) = talk(
        3,
        &[
            &option(3, &[]),
            &option(3, &[1]),
            &option(5, &[]),
            &option(77, &[0; 5000]),
            &option(8, &[]),
            &option(6, &info("swap", &[1])),
            &option(6, &info("other", &[])),
            &option(6, &info("swap", &[1])[..9]),
            &option(7, &info("other", &[])),
            &option(7, &info("", &[3])),
            &request(Command::Disconnect, 0, 0),
        ],
    );
    let expected = [
        reply(3, 2, b"\0\0\0\x04swap"),
        reply(3, 1, &[]),
        reply(3, 1 << 31 | 3, &[]),
        reply(5, 1 << 31 | 1, &[]),
        reply(77, 1 << 31 | 9, &[]),
        reply(8, 1, &[]),
        export_info(6),
        reply(6, 3, b"\0\x01swap"),
        reply(6, 1, &[]),
        reply(6, 1 << 31 | 6, &[]),
        reply(6, 1 << 31 | 3, &[]),
        reply(7, 1 << 31 | 6, &[]),
        export_info(7),
        reply(7, 1, &[]),
    ];
    assert_eq!(answered, expected.concat());
    assert_eq!(ended, Ended::Disconnected);
}

#[test]
fn a_client_may_only_ask() {
    let (ended, answered) = talk(1, &[&option(2, &[])]);
    assert_eq!((ended, answered), (Ended::Disconnected, reply(2, 1, &[])));
}

#[test]
fn the_old_way_to_begin_works() {
    let begin = option(1, b"swap");
    let bye = request(Command::Disconnect, 0, 0);
    let head = [&SIZE_BYTES.to_be_bytes()[..], &FLAGS.to_be_bytes()].concat();
    let (ended, answered) = talk(3, &[&begin, &bye]);
    assert_eq!((ended, &answered), (Ended::Disconnected, &head));
    let (ended, answered) = talk(1, &[&begin, &bye]);
    assert_eq!((ended, answered), (Ended::Disconnected, [head, vec![0; 124]].concat()));
    let (ended, answered) = talk(1, &[&option(1, b"other"), &bye]);
    assert_eq!((ended, answered.len()), (Ended::Broken, 0));
}

#[test]
fn requests_are_answered_in_order() {
    let data = [7; 5000];
    let (ended, answered) = talk(
        3,
        &[
            &option(7, &info("", &[])),
            &request(Command::Write, 1000, 5000),
            &data,
            &request(Command::Read, 999, 3),
            &request(Command::Trim, 0, 4096),
            &request(Command::Read, 4094, 4),
            &request(Command::WriteZeroes, 4097, 100),
            &request(Command::Read, 4096, 2),
            &request(Command::Flush, 0, 0),
            &request(Command::Read, SIZE_BYTES - 1, 2),
            &request(Command::Write, SIZE_BYTES - 1, 2),
            &[1, 2],
            &request(Command::WriteZeroes, SIZE_BYTES, 1),
            &request(Command::Trim, u64::MAX, 4096),
            &request(Command::Unknown(5), 0, 1),
            &request(Command::Read, 0, 0),
            &request(Command::Disconnect, 0, 0),
        ],
    );
    let head = [export_info(7), reply(7, 1, &[])].concat();
    let expected = [
        simple(0),
        [simple(0), vec![0, 7, 7]].concat(),
        simple(0),
        [simple(0), vec![0, 0, 7, 7]].concat(),
        simple(0),
        [simple(0), vec![7, 0]].concat(),
        simple(0),
        simple(22),
        simple(28),
        simple(28),
        simple(22),
        simple(22),
        simple(0),
    ];
    assert_eq!(answered[head.len()..], expected.concat());
    assert_eq!(ended, Ended::Disconnected);
}

#[test]
fn reads_come_in_chunks_where_that_was_agreed_on() {
    let (_, answered) = talk(
        3,
        &[
            &option(8, &[]),
            &option(1, b""),
            &request(Command::Write, 65_536, 2),
            &[8, 9],
            &request(Command::Read, 4095, 65_536),
            &request(Command::Read, SIZE_BYTES, 1),
            &request(Command::Read, 0, 0),
        ],
    );
    let head_bytes = reply(8, 1, &[]).len() + 10;
    // A piece ends where sixteen blocks do.
    let first = [&4095u64.to_be_bytes()[..], &[0; 61_441]].concat();
    let mut second = [&65_536u64.to_be_bytes()[..], &[0; 4095]].concat();
    second[8..10].copy_from_slice(&[8, 9]);
    let expected = [
        simple(0),
        chunk(0, 1, &first),
        chunk(1, 1, &second),
        chunk(1, 1 << 15 | 1, &[0, 0, 0, 22, 0, 0]),
        chunk(1, 0, &[]),
    ];
    assert_eq!(answered[head_bytes..], expected.concat());
}

#[test]
fn what_nobody_understands_ends_the_connection() {
    let go = option(7, &info("", &[]));
    let too_long = request(Command::Write, 0, (32 << 20) + 1);
    let table: [(&str, &[&[u8]]); 8] = [
        ("unknown flags", &[]),
        ("no option", &[b"GET / HTTP/1.1\r\n\r\n"]),
        ("half an option", &[&go[..go.len() - 1]]),
        ("a long option", &[&option(3, &vec![0; 70_000])]),
        ("no request", &[&go, &[0; REQUEST_BYTES]]),
        ("half a request", &[&go, &request(Command::Read, 0, 1)[..20]]),
        ("half the data", &[&go, &request(Command::Write, 0, 8192), &[1; 8191]]),
        ("too much data", &[&go, &too_long, &[1; 4096]]),
    ];
    for (what, sent) in table {
        let client_flags = if what == "unknown flags" { 4 } else { 3 };
        assert_eq!(talk(client_flags, sent).0, Ended::Broken, "{what}");
    }
    let many: Vec<u8> = (0..100).flat_map(|_| option(3, &[])).collect();
    assert_eq!(talk(3, &[&many]).0, Ended::Broken);
}

/// A disk of zeros, of which the next flush may fail.
#[derive(Default)]
struct Zeros {
    fails: AtomicBool,
}

impl Disk for Zeros {
    fn read_at(&self, _: u64, data: &mut [u8]) -> Result<(), Errno> {
        data.fill(0);
        Ok(())
    }
    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), Errno> {
        Ok(())
    }
    fn zero(&self, _: u64, _: u64, _: bool) -> Result<bool, Errno> {
        Ok(true)
    }
    fn sync(&self) -> Result<(), Errno> {
        if self.fails.swap(false, Ordering::Relaxed) { Err(Errno(5)) } else { Ok(()) }
    }
}

/// Writes that are to be there for good are told of another connection's flush that failed as flushes are.
#[test]
fn a_flush_that_fails_is_told_to_those_who_write_for_good() {
    const FUA: u16 = 1;
    let settings = Settings::of(DesignId::Default);
    let (memory_bytes, memory_bytes_max) = (8 << 20, 8 << 20);
    let ahead_bytes = None;
    let setup =
        Setup { size_bytes: SIZE_BYTES, memory_bytes, memory_bytes_max, ahead_bytes, settings };
    let cache = CleanCache::new(Heap, &setup, Zeros::default()).expect("heap");
    let [mut one, mut other] = [0; 2].map(|_| cache.connect().expect("room"));
    let go = option(7, &info("", &[]));
    let flush = request(Command::Flush, 0, 0);
    let last = |worker: &mut Worker, sent: &[&[u8]]| {
        let (_, answered) = talk_to(&cache, worker, 3, sent);
        answered[answered.len() - 16..].to_vec()
    };
    let zeroes = Request {
        command: Command::WriteZeroes,
        flags: FUA,
        cookie: 0x1122,
        offset_bytes: 0,
        bytes: 4096,
    };
    let write = Request { command: Command::Write, ..zeroes };
    cache.disk().fails.store(true, Ordering::Relaxed);
    assert_eq!(last(&mut one, &[&go, &flush]), simple(5));
    assert_eq!(last(&mut other, &[&go, &write.to_bytes(), &[1; 4096]]), simple(5));
    assert_eq!(last(&mut other, &[&go, &zeroes.to_bytes()]), simple(0));
    cache.disk().fails.store(true, Ordering::Relaxed);
    assert_eq!(last(&mut other, &[&go, &write.to_bytes(), &[1; 4096]]), simple(5));
    assert_eq!(last(&mut one, &[&go, &zeroes.to_bytes()]), simple(5));
    assert_eq!(last(&mut one, &[&go, &flush]), simple(0));
}

/// Sessions with some bytes changed, from a seed: the server answers or ends, and never panics.
#[test]
fn changed_sessions_do_no_harm() {
    let mut random = random(2001);
    let whole = [
        option(8, &[]),
        option(7, &info("swap", &[1, 3])),
        request(Command::Write, 100, 300).to_vec(),
        vec![1; 300],
        request(Command::Read, 0, 9000).to_vec(),
        request(Command::WriteZeroes, 50, 5000).to_vec(),
        request(Command::Trim, 0, 1 << 20).to_vec(),
        request(Command::Flush, 0, 0).to_vec(),
    ]
    .concat();
    let device = device();
    let mut worker = device.connect().expect("room");
    for _ in 0..3000 {
        let mut sent = whole.clone();
        for _ in 0..1 + random.usize(..4) {
            let at = random.usize(..sent.len());
            sent[at] = if random.bool() { random.u8(..) } else { sent[at] ^ 1 << random.u8(..8) };
        }
        sent.truncate(1 + random.usize(..2 * sent.len()));
        talk_to(&device, &mut worker, 3, &[&sent]);
    }
}
