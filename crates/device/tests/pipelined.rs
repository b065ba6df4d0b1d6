//! Clients of the protocol that have many requests under way at a time, of which those that want the store
//! are answered late: each read gives what its blocks are, in whatever order the answers come.
//!
//! The seed is taken from ZPAGER_SEED, or fixed; it is printed.

mod versions;

use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use versions::{BLOCK_BYTES, BLOCKS, MIB, WARM_BLOCKS, device, fill, store_file, version_of};
use zpager_device::nbd::{Command, Ended, Export, REQUEST_BYTES, Request, serve_client};
use zpager_device::{Arena, CleanCache, DiskFile, Setup, Target, Worker};
use zpager_policy::{DesignId, Settings};
use zpager_seed::{Random, random};

const CLIENTS: u64 = 2;
const STEPS: u32 = 6000;
/// More than a connection lets wait.
const UNDER_WAY_MAX: usize = 100;
/// Blocks of a request: as many as the kernel reads ahead, more than a piece.
const REQUEST_BLOCKS_MAX: u64 = 40;

const OPTION_EXPORT_NAME: u32 = 1;
const OPTION_STRUCTURED_REPLY: u32 = 8;
const CHUNK_DONE: u16 = 1;
const CHUNK_OFFSET_DATA: u16 = 1;

/// A request that is not answered yet.
struct UnderWay {
    command: Command,
    first: u64,
    /// What its blocks are, as far as is known.
    versions: Vec<u32>,
    /// What came of it.
    data: Vec<u8>,
}

/// What a thread of its own takes of the server, so that neither waits for the other to take what it sends.
struct Incoming {
    some: Receiver<Vec<u8>>,
    data: VecDeque<u8>,
}

impl Incoming {
    fn of(stream: &UnixStream) -> Self {
        let (taken, some) = channel();
        let mut stream = stream.try_clone().expect("a descriptor");
        thread::spawn(move || {
            let mut data = vec![0; 64 << 10];
            while let Ok(bytes @ 1..) = stream.read(&mut data) {
                let _ = taken.send(data[..bytes].to_vec());
            }
        });
        Incoming { some, data: VecDeque::new() }
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        while self.data.len() < bytes.len() {
            self.data.extend(self.some.recv().expect("an answer"));
        }
        let count = bytes.len();
        let taken = self.data.drain(..count);
        bytes.iter_mut().zip(taken).for_each(|(to, from)| *to = from);
    }
}

/// It alone uses its blocks: those of its half.
struct Client<'a> {
    stream: &'a UnixStream,
    incoming: Incoming,
    first_block: u64,
    structured: bool,
    may_trim: bool,
    random: Random,
    /// Of its own blocks what they are.
    versions: Vec<u32>,
    under_way: HashMap<u64, UnderWay>,
    next_cookie: u64,
    /// Reads that were answered before one that was asked for earlier.
    overtakes: u64,
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let (number, bytes) = (number.to_be_bytes(), (data.len() as u32).to_be_bytes());
    [b"IHAVEOPT", &number[..], &bytes, data].concat()
}

impl Client<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.incoming.fill(&mut bytes);
        bytes
    }

    fn greet(&mut self) {
        self.take::<18>();
        self.stream.write_all(&3u32.to_be_bytes()).expect("flags");
        if self.structured {
            self.stream.write_all(&option(OPTION_STRUCTURED_REPLY, b"")).expect("an option");
            self.take::<20>();
        }
        self.stream.write_all(&option(OPTION_EXPORT_NAME, b"")).expect("an option");
        self.take::<10>();
    }

    /// A range of blocks of which none is under way.
    fn any_range(&mut self, most: u64) -> Option<(u64, u64)> {
        let half = BLOCKS / CLIENTS;
        let bound = if self.random.u8(..) < 128 { WARM_BLOCKS / CLIENTS } else { half };
        let first = self.random.u64(..bound);
        let count = (1 + self.random.u64(..most)).min(half - first);
        let first = self.first_block + first;
        let is_apart = |other: &UnderWay| {
            other.first + other.versions.len() as u64 <= first || first + count <= other.first
        };
        self.under_way.values().all(is_apart).then_some((first, count))
    }

    fn ask(&mut self, command: Command, first: u64, count: u64, data: &[u8]) {
        let (cookie, bytes) = (self.next_cookie, (count * BLOCK_BYTES) as u32);
        let (flags, offset_bytes) = (0, first * BLOCK_BYTES);
        let request: [u8; REQUEST_BYTES] =
            Request { command, flags, cookie, offset_bytes, bytes }.to_bytes();
        self.next_cookie += 1;
        let from = (first - self.first_block) as usize;
        let versions = self.versions[from..from + count as usize].to_vec();
        self.under_way.insert(cookie, UnderWay { command, first, versions, data: Vec::new() });
        self.stream.write_all(&[&request, data].concat()).expect("a server");
    }

    fn write(&mut self, first: u64, count: u64) {
        let mut data = vec![0; (count * BLOCK_BYTES) as usize];
        for (block, data) in (first..).zip(data.chunks_mut(BLOCK_BYTES as usize)) {
            let version = &mut self.versions[(block - self.first_block) as usize];
            *version += 1;
            fill(data, block, *version);
        }
        self.ask(Command::Write, first, count, &data);
    }

    /// Takes one answer.
    fn answer(&mut self) {
        let magic = u32::from_be_bytes(self.take());
        let (cookie, is_done) = match magic {
            0x6744_6698 => {
                assert_eq!(self.take::<4>(), [0; 4], "an error");
                let cookie = u64::from_be_bytes(self.take());
                let asked = &self.under_way[&cookie];
                if asked.command == Command::Read {
                    let mut data = vec![0; asked.versions.len() * BLOCK_BYTES as usize];
                    self.incoming.fill(&mut data);
                    self.under_way.get_mut(&cookie).expect("asked").data = data;
                }
                (cookie, true)
            }
            0x668e_33ef => {
                let (flags, kind) =
                    (u16::from_be_bytes(self.take()), u16::from_be_bytes(self.take()));
                let cookie = u64::from_be_bytes(self.take());
                assert_eq!(kind, CHUNK_OFFSET_DATA, "an error");
                let bytes = u32::from_be_bytes(self.take()) as usize - 8;
                let at = u64::from_be_bytes(self.take());
                let asked = &self.under_way[&cookie];
                assert_eq!(at, asked.first * BLOCK_BYTES + asked.data.len() as u64, "in order");
                let mut data = vec![0; bytes];
                self.incoming.fill(&mut data);
                self.under_way.get_mut(&cookie).expect("asked").data.extend(data);
                (cookie, flags & CHUNK_DONE != 0)
            }
            _ => panic!("no answer: {magic:x}"),
        };
        if is_done {
            let asked = self.under_way.remove(&cookie).expect("asked");
            self.overtakes += u64::from(self.under_way.keys().any(|other| *other < cookie));
            self.check(&asked);
        }
    }

    fn check(&self, asked: &UnderWay) {
        if asked.command != Command::Read {
            return;
        }
        let blocks = asked.data.chunks(BLOCK_BYTES as usize);
        assert_eq!(blocks.len(), asked.versions.len(), "all of it");
        for ((block, data), known) in (asked.first..).zip(blocks).zip(&asked.versions) {
            assert_eq!(version_of(data, block), *known, "block {block}");
        }
    }

    fn step(&mut self) {
        let most = if self.random.u8(..) < 200 { 3 } else { REQUEST_BLOCKS_MAX };
        let Some((first, count)) = self.any_range(most) else { return };
        match self.random.u8(..8) {
            0 | 1 => self.write(first, count),
            2 => {
                let from = (first - self.first_block) as usize;
                self.versions[from..from + count as usize].fill(0);
                // A disk may keep what is trimmed.
                let is_trim = self.may_trim && self.random.u8(..) < 128;
                let how = if is_trim { Command::Trim } else { Command::WriteZeroes };
                self.ask(how, first, count, b"");
            }
            _ => self.ask(Command::Read, first, count, b""),
        }
    }

    fn run(mut self) -> u64 {
        self.greet();
        for first in (0..BLOCKS / CLIENTS).step_by(16) {
            self.write(self.first_block + first, 16);
            self.answer();
        }
        for _ in 0..STEPS {
            self.step();
            let goes_on = self.under_way.len() < UNDER_WAY_MAX && self.random.u8(..) < 200;
            while !goes_on && self.under_way.len() > UNDER_WAY_MAX / 2 {
                self.answer();
            }
        }
        let last = self.next_cookie;
        self.next_cookie += 1;
        let bytes = Request {
            command: Command::Disconnect,
            flags: 0,
            cookie: last,
            offset_bytes: 0,
            bytes: 0,
        };
        self.stream.write_all(&bytes.to_bytes()).expect("a server");
        while !self.under_way.is_empty() {
            self.answer();
        }
        self.overtakes
    }
}

fn serve(device: &impl Target, stream: &UnixStream, mut worker: Worker) -> Ended {
    let export = Export { name: "swap".to_owned(), size_bytes: BLOCKS * BLOCK_BYTES };
    let ended = serve_client(stream, device, &mut worker, &export, || {});
    device.disconnect(worker);
    ended
}

/// Clients at the same time, of each of which some answers are later than others.
fn check(device: &(impl Target + Sync), structured: bool, may_trim: bool, seed: u64) {
    let mut random = random(seed);
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (server, client) = UnixStream::pair().expect("sockets");
            let worker = device.connect().expect("room");
            let random = random.fork();
            let serving = scope.spawn(move || serve(device, &server, worker));
            scope.spawn(move || {
                let client = Client {
                    stream: &client,
                    incoming: Incoming::of(&client),
                    first_block: number * (BLOCKS / CLIENTS),
                    structured,
                    may_trim,
                    random,
                    versions: vec![0; (BLOCKS / CLIENTS) as usize],
                    under_way: HashMap::new(),
                    next_cookie: 0,
                    overtakes: 0,
                };
                let overtakes = client.run();
                assert!(overtakes > 100, "all in turn: {overtakes}");
                assert_eq!(serving.join().expect("it goes on"), Ended::Disconnected);
            });
        }
    });
    assert!(device.status().held_bytes <= 10 * MIB, "{:?}", device.status());
}

fn check_device(structured: bool, seed: u64) {
    let device = device(DesignId::Default);
    check(&device, structured, true, seed);
    let counters = device.status().counters;
    assert!(counters.spilled_reads > u64::from(STEPS), "{counters:?}");
}

#[test]
fn answers_with_their_data_at_once() {
    check_device(false, 2005);
}

#[test]
fn answers_in_chunks() {
    check_device(true, 2006);
}

#[test]
fn what_a_clean_cache_reads_of_its_disk() {
    let file = store_file();
    rustix::fs::ftruncate(&file, BLOCKS * BLOCK_BYTES).expect("a disk");
    let setup = Setup {
        size_bytes: BLOCKS * BLOCK_BYTES,
        memory_bytes: 10 * MIB,
        memory_bytes_max: 10 * MIB,
        ahead_bytes: None,
        settings: Settings::of(DesignId::Default),
    };
    let cache = CleanCache::new(Arena, &setup, DiskFile::new(file)).expect("address space");
    check(&cache, false, false, 2008);
    let counters = cache.status().counters;
    assert!(counters.store_reads > u64::from(STEPS / 4), "{counters:?}");
    assert!(counters.hits > u64::from(STEPS / 4), "{counters:?}");
}

/// Of a client that goes while much of the store is being read for it nothing is left but its blocks.
#[test]
fn a_client_that_goes_in_the_midst() {
    let device = device(DesignId::Default);
    let mut worker = device.connect().expect("the first");
    for block in 0..BLOCKS {
        let at = block * BLOCK_BYTES;
        fill(worker.slot(at, BLOCK_BYTES as usize), block, 1);
        device.write(&mut worker, at, BLOCK_BYTES as usize).expect("room");
    }
    for round in 0..50 {
        let (server, client) = UnixStream::pair().expect("sockets");
        let worker = device.connect().expect("room");
        thread::scope(|scope| {
            let serving = scope.spawn(|| serve(&device, &server, worker));
            let mut client = Client {
                stream: &client,
                incoming: Incoming::of(&client),
                first_block: 0,
                structured: false,
                may_trim: true,
                random: random(2007 + round),
                versions: vec![1; BLOCKS as usize],
                under_way: HashMap::new(),
                next_cookie: 0,
                overtakes: 0,
            };
            client.greet();
            for _ in 0..60 {
                let first = client.random.u64(..BLOCKS - 4);
                client.ask(Command::Read, first, 4, b"");
            }
            client.answer();
            client.stream.shutdown(std::net::Shutdown::Both).expect("shut down");
            assert_eq!(serving.join().expect("it goes on"), Ended::Broken);
        });
    }
    for block in (0..BLOCKS).step_by(7) {
        let data = device.read(&mut worker, block * BLOCK_BYTES, BLOCK_BYTES as usize);
        assert_eq!(version_of(data.expect("there"), block), 1, "block {block}");
    }
    assert_eq!(device.status().connections, 1);
}
