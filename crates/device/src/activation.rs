//! What a service manager hands over and is told: a socket that it listens at already, and that the
//! server serves.
//!
//! Source: sd_listen_fds(3) and sd_notify(3). The environment says how many descriptors there are,
//! from 3 on, and for which process; and where a line can be sent to.
//!
//! Invariant: a socket that is taken is one that only this machine's own user can reach, as those
//! that the server makes itself ([`crate::sockets`]): a Unix socket, whose directory is checked as
//! any other's, or a TCP socket at a loopback address.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process;

use rustix::net::sockopt::{socket_acceptconn, socket_type};
use rustix::net::{AddressFamily, SocketType, getsockname};

/// The first descriptor that is handed over.
const FIRST: RawFd = 3;

/// A socket that somebody else made, and listens at.
#[derive(Debug)]
pub enum Passed {
    /// A Unix socket, and where it is.
    Unix(UnixListener, PathBuf),
    /// A TCP socket at this address, which is a loopback one.
    Tcp(TcpListener, SocketAddr),
}

impl Passed {
    /// The socket that was handed to this process, if one was.
    ///
    /// # Errors
    /// What was handed over is not what clients can connect to, in one line.
    pub fn find() -> Result<Option<Passed>, String> {
        let value = |name| env::var(name).ok();
        match count(value("LISTEN_PID"), value("LISTEN_FDS"), process::id()) {
            0 => Ok(None),
            1 => duplicate()
                .map_err(|error| error.to_string())
                .and_then(Self::check)
                .map(Some)
                .map_err(|why| format!("LISTEN_FDS: descriptor {FIRST}: {why}")),
            more => Err(format!("LISTEN_FDS={more}: more than the one socket of the device")),
        }
    }

    fn check(socket: OwnedFd) -> Result<Passed, String> {
        let is_listening = socket_type(&socket).is_ok_and(|kind| kind == SocketType::STREAM)
            && socket_acceptconn(&socket).unwrap_or(false);
        if !is_listening {
            return Err("not a stream socket that somebody listens at".to_owned());
        }
        let refused = |error: io::Error| error.to_string();
        match getsockname(&socket).map_err(|error| refused(error.into()))?.address_family() {
            AddressFamily::UNIX => {
                let listener = UnixListener::from(socket);
                let address = listener.local_addr().map_err(refused)?;
                let path = address.as_pathname().map(Path::to_owned);
                path.map(|path| Passed::Unix(listener, path))
                    .ok_or_else(|| "a Unix socket without a path: give it one".to_owned())
            }
            AddressFamily::INET | AddressFamily::INET6 => {
                let listener = TcpListener::from(socket);
                let address = listener.local_addr().map_err(refused)?;
                match address.ip().is_loopback() {
                    true => Ok(Passed::Tcp(listener, address)),
                    false => {
                        Err(format!("{address}: others could reach it: give a loopback address"))
                    }
                }
            }
            _ => Err("neither a Unix socket nor one of TCP".to_owned()),
        }
    }
}

/// How many descriptors are there for process `own`.
fn count(pid: Option<String>, descriptors: Option<String>, own: u32) -> usize {
    let number = |text: Option<String>| text.and_then(|text| text.parse::<usize>().ok());
    match number(pid) == Some(own as usize) {
        true => number(descriptors).unwrap_or(0),
        // They were for who started this one.
        false => 0,
    }
}

/// A descriptor of its own for the first socket, so that it does not matter who else knows of that.
fn duplicate() -> io::Result<OwnedFd> {
    // SAFETY: a number to the kernel, which says so where it is no open descriptor.
    unsafe { BorrowedFd::borrow_raw(FIRST) }.try_clone_to_owned()
}

/// Tells who started the server that clients can connect, if that wants to know.
pub(crate) fn tell_ready() {
    let Some(place) = env::var_os("NOTIFY_SOCKET") else { return };
    // The server serves whether anybody listens or not.
    let _ = tell(&place, b"READY=1\n");
}

/// Sends a line to a datagram socket; a name that begins with @ is none of the file system.
fn tell(place: &OsStr, line: &[u8]) -> io::Result<usize> {
    let address = match place.as_bytes() {
        [b'@', name @ ..] => UnixAddress::from_abstract_name(name)?,
        _ => UnixAddress::from_pathname(place)?,
    };
    UnixDatagram::unbound()?.send_to_addr(line, &address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn descriptors_are_for_the_process_that_is_named() {
        let table = [
            (Some("7"), Some("1"), 1),
            (Some("7"), Some("2"), 2),
            (Some("8"), Some("1"), 0),
            (Some("7"), None, 0),
            (None, Some("1"), 0),
            (Some("7"), Some("-1"), 0),
            (Some(""), Some(""), 0),
        ];
        for (pid, descriptors, expected) in table {
            let text = |text: Option<&str>| text.map(str::to_owned);
            assert_eq!(count(text(pid), text(descriptors), 7), expected, "{pid:?} {descriptors:?}");
        }
    }

    #[test]
    fn a_socket_that_nobody_else_reaches_is_taken() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let unix = UnixListener::bind(&path).expect("free");
        let found = Passed::check(unix.into()).expect("sound");
        assert!(matches!(found, Passed::Unix(_, at) if at == path));
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
        let own = tcp.local_addr().expect("one");
        assert!(matches!(Passed::check(tcp.into()), Ok(Passed::Tcp(_, at)) if at == own));
    }

    #[test]
    fn what_clients_cannot_connect_to_is_refused() {
        let file = tempfile::tempfile().expect("a file");
        let (stream, _) = UnixStream::pair().expect("a pair");
        let datagram = UnixDatagram::unbound().expect("a socket");
        let name = format!("zpager-device-{}", process::id());
        let nameless = UnixAddress::from_abstract_name(name).expect("short");
        let nameless = UnixListener::bind_addr(&nameless).expect("free");
        let table: [(OwnedFd, &str); 5] = [
            (file.into(), "listens"),
            (stream.into(), "listens"),
            (datagram.into(), "listens"),
            (nameless.into(), "path"),
            (TcpListener::bind("0.0.0.0:0").expect("a port").into(), "loopback"),
        ];
        for (socket, word) in table {
            let why = Passed::check(socket).expect_err(word);
            assert!(why.contains(word), "{why}");
        }
    }

    #[test]
    fn who_wants_to_know_is_told() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("notify");
        let name = format!("@zpager-notify-{}", process::id());
        let nameless = UnixAddress::from_abstract_name(&name[1..]).expect("short");
        let table = [
            (UnixDatagram::bind(&path).expect("free"), path.as_os_str()),
            (UnixDatagram::bind_addr(&nameless).expect("free"), OsStr::new(&name)),
        ];
        for (socket, place) in table {
            tell(place, b"READY=1\n").expect("somebody listens");
            let mut line = [0; 16];
            let bytes = socket.recv(&mut line).expect("a line");
            assert_eq!(&line[..bytes], b"READY=1\n");
        }
    }
}
