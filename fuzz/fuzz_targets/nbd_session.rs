//! Arbitrary bytes from a client of the device: at the handshake, and as requests with any fields
//! and data after one. The server answers or ends the connection; it does not panic, and what it
//! answers does not grow without bound.
#![no_main]

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::time::Duration;
use std::mem::ManuallyDrop;

use libfuzzer_sys::fuzz_target;
use zpager_device::nbd::{Command, Export, REQUEST_BYTES, Request, Socket, serve_client};
use zpager_device::{Device, Setup, Target, Worker};
use zpager_policy::{DesignId, Settings};
use zpager_pool::Heap;
use zpager_store::Memory;

const SIZE_BYTES: u64 = 256 << 10;
/// `NBD_OPT_GO` for the default export, after the client's flags.
const GO: &[u8] = b"\0\0\0\x03IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0";
/// The same with structured replies.
const GO_STRUCTURED: &[u8] =
    b"\0\0\0\x03IHAVEOPT\0\0\0\x08\0\0\0\0IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0";

struct Script<'a> {
    sent: &'a [u8],
    answered_bytes: usize,
}

impl Read for Script<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.sent.read(buffer)
    }
}

impl Write for Script<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.answered_bytes += data.len();
        Ok(data.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Socket for &mut Script<'_> {
    fn wait(&self, limit: Option<Duration>, _: Option<BorrowedFd<'_>>) -> bool {
        if let Some(limit) = limit.filter(|_| self.sent.is_empty()) {
            std::thread::sleep(limit);
        }
        !self.sent.is_empty()
    }
}

type Small = Device<Heap, Memory>;

thread_local! {
    // Never dropped: a device's tables live as long as the process, and what names them must too.
    static SERVED: ManuallyDrop<RefCell<(Small, Option<Worker>)>> =
        ManuallyDrop::new(RefCell::new(served()));
}

fn served() -> (Small, Option<Worker>) {
    let settings = Settings::of(DesignId::Default);
    let (memory_bytes, memory_bytes_max) = (8 << 20, 8 << 20);
    let ahead_bytes = None;
    let setup =
        Setup { size_bytes: SIZE_BYTES, memory_bytes, memory_bytes_max, ahead_bytes, settings };
    let device = Device::new(Heap, &setup, None).expect("heap");
    let worker = device.connect();
    (device, worker)
}

fuzz_target!(|data: &[u8]| {
    serve(data);
    for greeting in [GO, GO_STRUCTURED] {
        serve(&[greeting, data].concat());
        serve(&[greeting, &requests(data)].concat());
    }
});

/// Requests whose fields are taken from `data`, near the device, with data where they belong.
fn requests(data: &[u8]) -> Vec<u8> {
    let mut sent = Vec::new();
    for fields in data.chunks_exact(8).take(64) {
        let word = |at: usize| u64::from(u16::from_be_bytes([fields[at], fields[at + 1]]));
        let command = match fields[0] % 7 {
            0 => Command::Read,
            1 | 2 => Command::Write,
            3 => Command::Flush,
            4 => Command::Trim,
            5 => Command::WriteZeroes,
            _ => Command::Unknown(word(0) as u16),
        };
        let flags = u16::from(fields[1] % 4);
        let (offset_bytes, bytes) = (word(2) * 5, word(4) as u32);
        let request = Request { command, flags, cookie: word(6), offset_bytes, bytes };
        let header: [u8; REQUEST_BYTES] = request.to_bytes();
        assert_eq!(Request::parse(&header), Ok(request));
        sent.extend_from_slice(&header);
        if command == Command::Write {
            sent.extend((0..bytes).map(|at| fields[at as usize % fields.len()]));
        }
    }
    sent
}

fn serve(sent: &[u8]) {
    SERVED.with(|served| {
        let (device, worker) = &mut *served.borrow_mut();
        let worker = worker.as_mut().expect("connected");
        let export = Export { name: "zpager".to_owned(), size_bytes: SIZE_BYTES };
        let mut script = Script { sent, answered_bytes: 0 };
        serve_client(&mut script, device, worker, &export, || {});
        // A header has the device read at most once.
        let requests = sent.len() / REQUEST_BYTES + 1;
        assert!(script.answered_bytes <= requests * (SIZE_BYTES as usize + 1024) + (64 << 10));
        let status = device.status();
        assert!(status.held_bytes <= status.memory_bytes);
    });
}
