//! A small NBD client, and a `zpager device serve` to talk to.
//!
//! The client knows of the protocol what a test needs (NetworkBlockDevice/nbd, doc/proto.md), and
//! nothing of zpager's own code for it.

use std::fs::Permissions;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::job::until;
use crate::places;

/// Longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(60);

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;

/// A server, killed when the value is dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    directory: TempDir,
    /// What it said once it was ready.
    pub greeting: String,
}

impl Server {
    /// A server with these flags, the socket aside, in a directory of its own.
    ///
    /// # Panics
    /// It does not serve.
    pub fn start(flags: &str) -> Server {
        Self::start_in(private(), flags)
    }

    /// The same in this directory. `STORE` among the flags stands for a directory of the store's.
    ///
    /// # Panics
    /// As [`Self::start`].
    pub fn start_in(directory: TempDir, flags: &str) -> Server {
        let mut command = Command::new(places::zpager());
        command.args(["device", "serve", "--quiet"]).stdin(Stdio::null());
        Self::start_command(directory, command, flags)
    }

    /// The same by a command that takes these flags, the socket among them.
    ///
    /// # Panics
    /// As [`Self::start`].
    pub fn start_command(directory: TempDir, mut command: Command, flags: &str) -> Server {
        let store = directory.path().join("store");
        std::fs::create_dir_all(&store).expect("a directory for the store");
        let flags = flags.replace("STORE", store.to_str().expect("UTF-8"));
        command.args(flags.split_whitespace());
        command.arg("--socket").arg(directory.path().join("socket"));
        command.stdout(Stdio::piped());
        let mut child = command.spawn().expect("zpager starts");
        let mut greeting = String::new();
        let out = child.stdout.take().expect("a pipe");
        BufReader::new(out).read_line(&mut greeting).expect("a line");
        assert!(greeting.starts_with("zpager: "), "no greeting: {greeting:?}");
        Server { child, directory, greeting: greeting.trim_end().to_owned() }
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// Its address for other clients.
    pub fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket().display())
    }

    /// Where its store is.
    pub fn store(&self) -> PathBuf {
        self.directory.path().join("store")
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A line of `/proc/PID/status`, in bytes.
    ///
    /// # Panics
    /// There is none.
    pub fn memory_bytes(&self, key: &str) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("status");
        let line = text.lines().find(|line| line.starts_with(key)).expect("the line");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("KiB") << 10
    }

    /// A new client.
    ///
    /// # Panics
    /// It is not let in.
    pub fn client(&self, structured: bool) -> Client {
        let stream = UnixStream::connect(self.socket()).expect("a server");
        Client::greet(Box::new(stream), structured).expect("let in")
    }

    /// Does `zpager device WORDS --socket ...`.
    ///
    /// # Panics
    /// zpager does not start.
    pub fn control(&self, words: &str) -> Output {
        control(&self.socket(), words)
    }

    /// A figure of its status.
    ///
    /// # Panics
    /// There is none.
    pub fn figure(&self, name: &str) -> u64 {
        let output = self.control("status --json");
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let found = status.get(name).or_else(|| status["counters"].get(name));
        found.and_then(serde_json::Value::as_u64).unwrap_or_else(|| panic!("{name}: {status}"))
    }

    /// Waits until no client is connected.
    ///
    /// # Panics
    /// Some stay for longer than 20 seconds.
    pub fn wait_until_left(&self) {
        until(Duration::from_secs(20), "no client is connected", || {
            self.figure("connections") == 0
        });
    }

    /// Kills it by SIGKILL and gives its directory, as it left it.
    ///
    /// # Panics
    /// It ended before.
    pub fn kill(mut self) -> TempDir {
        self.child.kill().expect("alive");
        self.child.wait().expect("a child");
        // The rest of the value is as it was made.
        std::mem::replace(&mut self.directory, places::scratch())
    }

    /// Waits for its end; gives whether it was a success.
    ///
    /// # Panics
    /// It takes too long.
    pub fn wait(&mut self) -> bool {
        let ending = crate::job::wait(&mut self.child, ANSWER_MAX);
        ending.expect("still serving") == crate::Ending::Exited(0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A new directory that nobody else can reach.
///
/// # Panics
/// The disk refuses it.
pub fn private() -> TempDir {
    let directory = places::scratch();
    let mode = Permissions::from_mode(0o700);
    std::fs::set_permissions(directory.path(), mode).expect("its owner may");
    directory
}

/// A `zpager device serve` that is handed this socket as a service manager does, as descriptor 3 of
/// `descriptors`.
pub fn activated(socket: OwnedFd, descriptors: usize) -> Command {
    let mut command = Command::new("sh");
    // The number of the process is known to itself alone.
    command.args(["-c", r#"LISTEN_PID=$$ exec "$0" device serve --quiet "$@" 3<&0 </dev/null"#]);
    command.arg(places::zpager()).env("LISTEN_FDS", descriptors.to_string());
    command.stdin(Stdio::from(socket));
    command
}

/// Does `zpager device WORDS --socket SOCKET`.
///
/// # Panics
/// zpager does not start.
pub fn control(socket: &Path, words: &str) -> Output {
    let mut command = Command::new(places::zpager());
    command.arg("device").args(words.split_whitespace()).arg("--socket").arg(socket);
    command.stdin(Stdio::null()).output().expect("zpager starts")
}

/// What a client reads from and writes to.
pub trait Connection: Read + Write + Send {
    /// Ends waiting for good.
    ///
    /// # Errors
    /// The system's.
    fn set_limit(&self) -> io::Result<()>;
}

impl Connection for UnixStream {
    fn set_limit(&self) -> io::Result<()> {
        self.set_read_timeout(Some(ANSWER_MAX)).and(self.set_write_timeout(Some(ANSWER_MAX)))
    }
}

impl Connection for TcpStream {
    fn set_limit(&self) -> io::Result<()> {
        self.set_read_timeout(Some(ANSWER_MAX)).and(self.set_write_timeout(Some(ANSWER_MAX)))
    }
}

/// A client in the transmission phase.
pub struct Client {
    stream: Box<dyn Connection>,
    structured: bool,
    cookie: u64,
    /// The size of the device.
    pub size_bytes: u64,
}

/// An answer is the protocol's error number, or the connection is broken.
pub type Answer<T> = io::Result<Result<T, u32>>;

impl Client {
    /// Does the handshake.
    ///
    /// # Errors
    /// The server is gone or refuses.
    pub fn greet(mut stream: Box<dyn Connection>, structured: bool) -> io::Result<Client> {
        stream.set_limit()?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        stream.write_all(&3u32.to_be_bytes())?;
        let mut client = Client { stream, structured, cookie: 0, size_bytes: 0 };
        if structured {
            client.option(8, &[])?;
            assert_eq!(client.reply()?.0, 1, "structured replies");
        }
        client.option(7, &[0; 6])?;
        loop {
            match client.reply()? {
                (1, _) => return Ok(client),
                (3, info) if info[..2] == [0, 0] => {
                    client.size_bytes = u64::from_be_bytes(info[2..10].try_into().expect("8"));
                }
                (3, _) => {}
                (other, _) => panic!("NBD_OPT_GO is answered by {other:#x}"),
            }
        }
    }

    fn option(&mut self, number: u32, data: &[u8]) -> io::Result<()> {
        self.stream.write_all(b"IHAVEOPT")?;
        self.stream.write_all(&number.to_be_bytes())?;
        self.stream.write_all(&(data.len() as u32).to_be_bytes())?;
        self.stream.write_all(data)
    }

    fn reply(&mut self) -> io::Result<(u32, Vec<u8>)> {
        let mut head = [0; 20];
        self.stream.read_exact(&mut head)?;
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("4"));
        let mut data = vec![0; word(16) as usize];
        self.stream.read_exact(&mut data)?;
        Ok((word(12), data))
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// The server is gone.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The header of a request.
    pub fn header(command: u16, cookie: u64, offset_bytes: u64, bytes: u32) -> Vec<u8> {
        let (magic, flags) = (0x2560_9513_u32.to_be_bytes(), [0, 0]);
        let (command, cookie) = (command.to_be_bytes(), cookie.to_be_bytes());
        let (offset, bytes) = (offset_bytes.to_be_bytes(), bytes.to_be_bytes());
        [&magic[..], &flags, &command, &cookie, &offset, &bytes].concat()
    }

    fn ask(&mut self, command: u16, offset_bytes: u64, bytes: u32) -> io::Result<()> {
        self.cookie += 1;
        self.stream.write_all(&Self::header(command, self.cookie, offset_bytes, bytes))
    }

    /// The head of an answer: whether it is a chunk, its words.
    fn head(&mut self) -> io::Result<(bool, u32)> {
        let mut head = [0; 16];
        self.stream.read_exact(&mut head)?;
        let magic = u32::from_be_bytes(head[..4].try_into().expect("4"));
        let cookie = u64::from_be_bytes(head[8..].try_into().expect("8"));
        assert_eq!(cookie, self.cookie, "an answer to something else");
        let word = u32::from_be_bytes(head[4..8].try_into().expect("4"));
        match magic {
            0x6744_6698 => Ok((false, word)),
            0x668e_33ef => Ok((true, word)),
            other => panic!("an answer that begins with {other:#x}"),
        }
    }

    fn done(&mut self) -> Answer<()> {
        let (is_chunk, error) = self.head()?;
        assert!(!is_chunk, "a chunk for what is no read");
        Ok(if error == 0 { Ok(()) } else { Err(error) })
    }

    /// Reads.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn read(&mut self, offset_bytes: u64, bytes: u32) -> Answer<Vec<u8>> {
        self.ask(READ, offset_bytes, bytes)?;
        let mut data = vec![0; bytes as usize];
        if !self.structured {
            let (is_chunk, error) = self.head()?;
            assert!(!is_chunk, "a chunk that was not agreed on");
            if error != 0 {
                return Ok(Err(error));
            }
            self.stream.read_exact(&mut data)?;
            return Ok(Ok(data));
        }
        let (mut covered, mut outcome) = (0, Ok(()));
        loop {
            let (is_chunk, word) = self.head()?;
            assert!(is_chunk, "a read is answered in chunks");
            let mut length = [0; 4];
            self.stream.read_exact(&mut length)?;
            let mut payload = vec![0; u32::from_be_bytes(length) as usize];
            self.stream.read_exact(&mut payload)?;
            match word & 0xffff {
                0 => assert!(payload.is_empty()),
                1 => {
                    let at = u64::from_be_bytes(payload[..8].try_into().expect("8"));
                    let at = (at - offset_bytes) as usize;
                    data[at..at + payload.len() - 8].copy_from_slice(&payload[8..]);
                    covered += payload.len() - 8;
                }
                0x8001 => {
                    outcome = Err(u32::from_be_bytes(payload[..4].try_into().expect("4")));
                }
                other => panic!("a chunk of type {other}"),
            }
            if word >> 16 & 1 != 0 {
                break;
            }
        }
        assert!(outcome.is_err() || covered == data.len(), "{covered} of {bytes} bytes");
        Ok(outcome.map(|()| data))
    }

    /// Writes.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn write(&mut self, offset_bytes: u64, data: &[u8]) -> Answer<()> {
        self.ask(WRITE, offset_bytes, data.len() as u32)?;
        self.stream.write_all(data)?;
        self.done()
    }

    /// Trims.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn trim(&mut self, offset_bytes: u64, bytes: u32) -> Answer<()> {
        self.ask(TRIM, offset_bytes, bytes)?;
        self.done()
    }

    /// Writes zeros.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn write_zeroes(&mut self, offset_bytes: u64, bytes: u32) -> Answer<()> {
        self.ask(WRITE_ZEROES, offset_bytes, bytes)?;
        self.done()
    }

    /// Flushes.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn flush(&mut self) -> Answer<()> {
        self.ask(FLUSH, 0, 0)?;
        self.done()
    }

    /// Leaves as the protocol has it.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn leave(mut self) -> io::Result<()> {
        self.ask(DISCONNECT, 0, 0)?;
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest)?;
        assert!(rest.is_empty(), "an answer to a farewell");
        Ok(())
    }
}
