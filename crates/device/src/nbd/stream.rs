//! A connection's bytes, read and written many requests at a time.
//!
//! Invariant: before it waits for the client it has sent all that the client may wait for.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::pause::Pause;

/// What is read or written at a time: some requests with a block of data each.
const BUFFER_BYTES: usize = 64 << 10;

/// RAM of both directions.
pub(super) const BUFFERS_BYTES: usize = 2 * BUFFER_BYTES;

/// What a client is at the other end of.
pub trait Socket: Read + Write {
    /// Waits until there is something to read here or from `other`, or for so long; gives whether there is
    /// here.
    fn wait(&self, limit: Option<Duration>, other: Option<BorrowedFd<'_>>) -> bool;
}

impl Socket for &UnixStream {
    fn wait(&self, limit: Option<Duration>, other: Option<BorrowedFd<'_>>) -> bool {
        wait(self.as_fd(), limit, other)
    }
}

impl Socket for &TcpStream {
    fn wait(&self, limit: Option<Duration>, other: Option<BorrowedFd<'_>>) -> bool {
        wait(self.as_fd(), limit, other)
    }
}

fn wait(socket: BorrowedFd<'_>, limit: Option<Duration>, other: Option<BorrowedFd<'_>>) -> bool {
    let limit = limit.map(|limit| Timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: limit.subsec_nanos().into(),
    });
    // Without another one the socket is looked at twice.
    let mut ready =
        [socket, other.unwrap_or(socket)].map(|it| PollFd::from_borrowed_fd(it, PollFlags::IN));
    // Interrupted it finds nothing, and whoever waits does so again.
    poll(&mut ready, limit.as_ref()).is_ok_and(|count| count > 0) && !ready[0].revents().is_empty()
}

/// A buffered connection.
#[derive(Debug)]
pub(super) struct Stream<S> {
    socket: S,
    input: Box<[u8]>,
    /// The part of the input that was read and not taken.
    start: usize,
    end: usize,
    output: Vec<u8>,
    pause: Pause,
}

impl<S: Socket> Stream<S> {
    pub(super) fn new(socket: S) -> Self {
        Stream {
            socket,
            input: vec![0; BUFFER_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            output: Vec::with_capacity(BUFFER_BYTES),
            pause: Pause::new(),
        }
    }

    /// Takes as many bytes as `data` is long.
    pub(super) fn take(&mut self, data: &mut [u8]) -> io::Result<()> {
        let mut done = self.take_buffered(data);
        while done < data.len() {
            done += self.receive(&mut data[done..])?;
        }
        Ok(())
    }

    /// Whether something was read that was not taken.
    pub(super) fn has_input(&self) -> bool {
        self.start < self.end
    }

    /// Whether the client has sent something.
    pub(super) fn is_ready(&self) -> bool {
        self.has_input() || self.socket.wait(Some(Duration::ZERO), None)
    }

    /// Sends what was put, and waits until the client sends something, or there is something to read from
    /// `other`, or for so long; gives whether the client did.
    pub(super) fn wait(
        &mut self,
        limit: Option<Duration>,
        other: Option<BorrowedFd<'_>>,
    ) -> io::Result<bool> {
        self.flush()?;
        Ok(self.socket.wait(limit, other))
    }

    /// Takes what the client is sending, some pages; it is let go on first.
    pub(super) fn take_data(&mut self, data: &mut [u8]) -> io::Result<()> {
        let mut done = self.take_buffered(data);
        while done < data.len() {
            self.flush()?;
            self.pause.sleep(data.len() - done);
            done += self.receive(&mut data[done..])?;
            self.pause.note(done == data.len());
        }
        Ok(())
    }

    /// Takes what was read already; gives how much that was.
    fn take_buffered(&mut self, data: &mut [u8]) -> usize {
        let step = (self.end - self.start).min(data.len());
        data[..step].copy_from_slice(&self.input[self.start..self.start + step]);
        self.start += step;
        step
    }

    /// Reads something and takes of it; nothing is buffered before.
    fn receive(&mut self, data: &mut [u8]) -> io::Result<usize> {
        self.flush()?;
        // What is long goes where it is wanted at once.
        if data.len() >= BUFFER_BYTES / 2 {
            return read(&mut self.socket, data);
        }
        self.end = read(&mut self.socket, &mut self.input)?;
        self.start = 0;
        Ok(self.take_buffered(data))
    }

    /// Takes an array.
    pub(super) fn take_array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut data = [0; N];
        self.take(&mut data)?;
        Ok(data)
    }

    /// Takes bytes and forgets them.
    pub(super) fn skip(&mut self, bytes: usize) -> io::Result<()> {
        let mut left = bytes;
        let mut data = [0; 4096];
        while left > 0 {
            let step = left.min(data.len());
            self.take(&mut data[..step])?;
            left -= step;
        }
        Ok(())
    }

    /// Has bytes be sent.
    pub(super) fn put(&mut self, data: &[u8]) -> io::Result<()> {
        if self.output.len() + data.len() > BUFFER_BYTES {
            self.flush()?;
        }
        if data.len() > BUFFER_BYTES {
            return self.socket.write_all(data);
        }
        self.output.extend_from_slice(data);
        Ok(())
    }

    /// Sends what was put.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if !self.output.is_empty() {
            self.socket.write_all(&self.output)?;
            self.output.clear();
        }
        Ok(())
    }
}

/// Reads something; an error at the end of the stream.
fn read(socket: &mut impl Read, data: &mut [u8]) -> io::Result<usize> {
    loop {
        match socket.read(data) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
