//! One client, from its greeting to its end.

use std::io::{self, ErrorKind};
use std::thread;
use std::time::{Duration, Instant};

use super::REQUEST_DATA_BYTES_MAX;
use super::negotiation::{Agreed, Export, negotiate};
use super::request::{Command, ErrorNumber, REQUEST_BYTES, Request};
use super::stream::{Socket, Stream};
use crate::late::Late;
use crate::reads::{Made, RETRY_PAUSE, Reads, Set, Waiting};
use crate::target::{Refused, Target};
use crate::worker::Worker;

const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const CHUNK_MAGIC: u32 = 0x668e_33ef;
const CHUNK_DONE: u16 = 1 << 0;
const CHUNK_NONE: u16 = 0;
const CHUNK_OFFSET_DATA: u16 = 1;
const CHUNK_ERROR: u16 = 1 << 15 | 1;

/// How a client left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It said so, or wanted no more than to ask.
    Disconnected,
    /// It went, or sent what nobody understands.
    Broken,
}

/// One client in the transmission phase.
struct Session<'a, S, T: ?Sized> {
    stream: Stream<S>,
    target: &'a T,
    worker: &'a mut Worker,
    agreed: Agreed,
    late: Late,
    reads: Reads<Request>,
}

/// Serves a client until it is gone. `on_agreed` is called once the handshake is done.
pub fn serve_client<S: Socket, T: Target + ?Sized>(
    socket: S,
    target: &T,
    worker: &mut Worker,
    export: &Export,
    on_agreed: impl FnOnce(),
) -> Ended {
    let mut stream = Stream::new(socket);
    let agreed = match negotiate(&mut stream, export) {
        Ok(Some(agreed)) => agreed,
        Ok(None) => return Ended::Disconnected,
        Err(_) => return Ended::Broken,
    };
    on_agreed();
    let reads = Reads::new(target.buffer_pages());
    let mut session = Session { stream, target, worker, agreed, late: Late::new(), reads };
    loop {
        match session.request() {
            Ok(true) => {}
            Ok(false) => return Ended::Disconnected,
            Err(_) => return Ended::Broken,
        }
    }
}

impl From<Refused> for ErrorNumber {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NoSpace => ErrorNumber::NoSpace,
            Refused::Io => ErrorNumber::Io,
        }
    }
}

impl<S: Socket, T: Target + ?Sized> Session<'_, S, T> {
    /// Does one request; false when it was the last.
    ///
    /// # Errors
    /// The client is gone, or what follows cannot be understood.
    fn request(&mut self) -> io::Result<bool> {
        self.wait_for_request()?;
        let header: [u8; REQUEST_BYTES] = self.stream.take_array()?;
        let request = Request::parse(&header).map_err(|_| ErrorKind::InvalidData)?;
        let checked = request.check(self.target.size_bytes());
        match request.command {
            Command::Disconnect => {
                while !self.reads.is_idle() {
                    self.wait_for_reads()?;
                    self.go_on_reading()?;
                }
                while let Some(cookie) = self.late.pop() {
                    put_simple(&mut self.stream, cookie, 0)?;
                }
                self.stream.flush()?;
                return Ok(false);
            }
            Command::Write if request.bytes > REQUEST_DATA_BYTES_MAX => {
                return Err(ErrorKind::InvalidData.into());
            }
            Command::Write => self.write(&request, checked)?,
            _ if checked.is_err() => self.answer(&request, checked)?,
            Command::Read => self.begin_reading(Waiting::new(request))?,
            Command::Flush => {
                let outcome = self.target.flush(self.worker);
                self.end(&request, outcome)?;
            }
            Command::Trim => {
                let done = self.target.trim(request.offset_bytes, u64::from(request.bytes));
                self.end(&request, done)?;
            }
            Command::WriteZeroes => {
                let (offset_bytes, bytes) = (request.offset_bytes, u64::from(request.bytes));
                let (target, may_free) = (self.target, request.may_free());
                let done = target.write_zeroes(self.worker, offset_bytes, bytes, may_free);
                self.end(&request, done)?;
            }
            Command::Unknown(_) => self.answer(&request, Err(ErrorNumber::Invalid))?,
        }
        Ok(true)
    }

    /// Gives the answers that have waited their time, and those for which something had to be read, until
    /// the client sends something.
    fn wait_for_request(&mut self) -> io::Result<()> {
        loop {
            self.go_on_reading()?;
            let pause = self.answer_late()?;
            if self.reads.is_full() {
                self.wait_for_reads()?;
            } else if self.stream.has_input() || self.reads.is_idle() && pause.is_none() {
                return Ok(());
            } else {
                let pause = match self.reads.submit() {
                    true => pause,
                    false => Some(RETRY_PAUSE),
                };
                let ended = self.reads.descriptor().filter(|_| !self.reads.is_idle());
                if self.stream.wait(pause, ended)? {
                    return Ok(());
                }
            }
        }
    }

    fn wait_for_reads(&mut self) -> io::Result<()> {
        if self.reads.wait() { Ok(()) } else { Err(ErrorKind::Other.into()) }
    }

    /// Gives the answers that have waited their time; how long the next one has to wait.
    fn answer_late(&mut self) -> io::Result<Option<Duration>> {
        while let Some(pause) = self.late.pause(Instant::now()) {
            if !pause.is_zero() {
                return Ok(Some(pause));
            }
            let cookie = self.late.pop().expect("the first waits no longer");
            put_simple(&mut self.stream, cookie, 0)?;
        }
        Ok(None)
    }

    /// Gives answers until one more can wait.
    fn make_place(&mut self) -> io::Result<()> {
        while let Some(pause) = self.answer_late()?.filter(|_| self.late.is_full()) {
            self.stream.flush()?;
            thread::sleep(pause);
        }
        Ok(())
    }

    /// Takes all of the data, and writes them as far as that succeeds.
    fn write(&mut self, request: &Request, checked: Result<(), ErrorNumber>) -> io::Result<()> {
        if checked.is_err() {
            self.stream.skip(request.bytes as usize)?;
            return self.answer(request, checked);
        }
        let mut outcome = Ok(());
        let mut left = request.bytes as usize;
        let mut at_byte = request.offset_bytes;
        while left > 0 && outcome.is_ok() {
            let bytes = Worker::piece_bytes(at_byte, left);
            self.stream.take_data(self.worker.slot(at_byte, bytes))?;
            outcome = self.target.write(self.worker, at_byte, bytes);
            at_byte += bytes as u64;
            left -= bytes;
        }
        self.stream.skip(left)?;
        let pause = self.worker.take_pause();
        if pause.is_zero() || outcome.is_err() {
            return self.end(request, outcome);
        }
        if request.is_fua()
            && let Err(refused) = self.target.flush(self.worker)
        {
            return self.answer(request, Err(refused.into()));
        }
        self.make_place()?;
        self.late.push(Instant::now(), pause, request.cookie);
        Ok(())
    }

    /// Answers a request that changed something, once that is where the client wants it to be.
    fn end(&mut self, request: &Request, outcome: Result<(), Refused>) -> io::Result<()> {
        let outcome = match request.is_fua() {
            true => outcome.and_then(|()| self.target.flush(self.worker)),
            false => outcome,
        };
        self.answer(request, outcome.map_err(ErrorNumber::from))
    }

    /// Has a request wait for what is to be read for it, or answers it.
    fn begin_reading(&mut self, waiting: Waiting<Request>) -> io::Result<()> {
        let (target, request) = (self.target, waiting.request);
        let plan =
            |made: &Made<'_>| target.plan(request.offset_bytes, request.bytes as usize, made);
        let has_more = self.stream.has_input();
        let Some(waiting) = self.reads.put_off(waiting, has_more, plan) else { return Ok(()) };
        match self.agreed.structured {
            true => self.read_in_chunks(&request, waiting.own)?,
            false => self.read_at_once(&request, waiting.own)?,
        }
        // Before the client has the answer, and sends what it wants next.
        let has_more = waiting.is_alone && self.stream.is_ready();
        self.reads.finish(&waiting, has_more);
        Ok(())
    }

    /// Goes on with the requests for which all was read.
    fn go_on_reading(&mut self) -> io::Result<()> {
        if self.reads.is_idle() {
            return Ok(());
        }
        self.reads.note_ended();
        while let Some(waiting) = self.reads.pop() {
            self.begin_reading(waiting)?;
        }
        Ok(())
    }

    /// Each piece is a chunk, and an error another one.
    fn read_in_chunks(&mut self, request: &Request, own: Set) -> io::Result<()> {
        let mut left = request.bytes as usize;
        let mut at_byte = request.offset_bytes;
        if left == 0 {
            return self.chunk(request, CHUNK_DONE, CHUNK_NONE, 0);
        }
        while left > 0 {
            let bytes = Worker::piece_bytes(at_byte, left);
            let made = self.reads.made(own, at_byte == request.offset_bytes);
            match self.target.read_with(self.worker, at_byte, bytes, &made) {
                Ok(data) => {
                    let flags = if bytes == left { CHUNK_DONE } else { 0 };
                    put_chunk(
                        &mut self.stream,
                        request,
                        flags,
                        CHUNK_OFFSET_DATA,
                        (size_of::<u64>() + bytes) as u32,
                    )?;
                    self.stream.put(&at_byte.to_be_bytes())?;
                    self.stream.put(data)?;
                }
                Err(refused) => return self.answer(request, Err(refused.into())),
            }
            at_byte += bytes as u64;
            left -= bytes;
        }
        Ok(())
    }

    /// The answer begins with whether there was an error: one that comes later ends the connection,
    /// as the client must not take what there is for data.
    fn read_at_once(&mut self, request: &Request, own: Set) -> io::Result<()> {
        let mut left = request.bytes as usize;
        let mut at_byte = request.offset_bytes;
        if left == 0 {
            return self.answer(request, Ok(()));
        }
        while left > 0 {
            let bytes = Worker::piece_bytes(at_byte, left);
            let is_first = at_byte == request.offset_bytes;
            let made = self.reads.made(own, is_first);
            match self.target.read_with(self.worker, at_byte, bytes, &made) {
                Ok(data) => {
                    if is_first {
                        put_simple(&mut self.stream, request.cookie, 0)?;
                    }
                    self.stream.put(data)?;
                }
                Err(refused) if is_first => return self.answer(request, Err(refused.into())),
                Err(_) => return Err(ErrorKind::Other.into()),
            }
            at_byte += bytes as u64;
            left -= bytes;
        }
        Ok(())
    }

    /// Says how a request ended that is not answered by data.
    fn answer(&mut self, request: &Request, outcome: Result<(), ErrorNumber>) -> io::Result<()> {
        let is_chunk = self.agreed.structured && request.command == Command::Read;
        match outcome {
            Err(error) if is_chunk => {
                const LENGTH: usize = size_of::<u32>() + size_of::<u16>();
                self.chunk(request, CHUNK_DONE, CHUNK_ERROR, LENGTH as u32)?;
                self.stream.put(&(error as u32).to_be_bytes())?;
                self.stream.put(&0u16.to_be_bytes())
            }
            Err(error) => put_simple(&mut self.stream, request.cookie, error as u32),
            Ok(()) => put_simple(&mut self.stream, request.cookie, 0),
        }
    }

    fn chunk(&mut self, request: &Request, flags: u16, kind: u16, bytes: u32) -> io::Result<()> {
        put_chunk(&mut self.stream, request, flags, kind, bytes)
    }
}

fn put_simple<S: Socket>(stream: &mut Stream<S>, cookie: u64, error: u32) -> io::Result<()> {
    let mut header = [0; 16];
    header[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    header[4..8].copy_from_slice(&error.to_be_bytes());
    header[8..].copy_from_slice(&cookie.to_be_bytes());
    stream.put(&header)
}

/// The header of a chunk with so many bytes behind it.
fn put_chunk<S: Socket>(
    stream: &mut Stream<S>,
    request: &Request,
    flags: u16,
    kind: u16,
    bytes: u32,
) -> io::Result<()> {
    let mut header = [0; 20];
    header[..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
    header[4..6].copy_from_slice(&flags.to_be_bytes());
    header[6..8].copy_from_slice(&kind.to_be_bytes());
    header[8..16].copy_from_slice(&request.cookie.to_be_bytes());
    header[16..].copy_from_slice(&bytes.to_be_bytes());
    stream.put(&header)
}
