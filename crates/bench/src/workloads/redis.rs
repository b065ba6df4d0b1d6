//! A real redis-server, filled and read back over its Unix socket, every value
//! checked: small allocations of jemalloc, keys hashed all over them, and almost
//! no locality. The client is the bench itself, outside the server's cgroup.
//!
//! The protocol is RESP (redis.io, "Redis serialization protocol"), of which only
//! SET, GET and SHUTDOWN are spoken, in batches.

use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use fastrand::Rng;
use xxhash_rust::xxh3::Xxh3;

use super::text::Words;
use super::{Job, Output, Preparation, Workload, missing_command, program};
use crate::process::Running;

/// Keys at scale 1.
const KEYS: u64 = 400_000;
/// How many commands travel together.
const BATCH: u64 = 64;
/// How often each key is read back.
const READS: u64 = 2;
/// A server that does not answer for so long is not going to.
const PATIENCE: Duration = Duration::from_secs(600);

pub(super) struct Redis;

impl Workload for Redis {
    fn name(&self) -> &str {
        "redis"
    }

    fn about(&self) -> &str {
        "redis-server filled with 400,000 values and read back twice, about 230 MiB"
    }

    fn missing(&self) -> Option<String> {
        missing_command("redis-server", "redis-server")
    }

    fn prepare(&self, preparation: &Preparation) -> Result<Job> {
        let socket = preparation.directory.join("socket");
        let options = ["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"];
        let argv = ["redis-server".into()].into_iter().chain(options.map(Into::into));
        let program = program(argv.chain([socket.clone().into()]));
        let values = Values {
            words: Words::new(preparation.seed),
            seed: preparation.seed,
            keys: preparation.scaled(KEYS),
        };
        Ok(Job {
            program,
            inputs: Vec::new(),
            drive: Box::new(move |running| drive(&values, &socket, &running)),
            note: String::new(),
        })
    }
}

/// What the server is filled with; each value follows from its number.
struct Values {
    words: Words,
    seed: u64,
    keys: u64,
}

impl Values {
    fn key(number: u64) -> String {
        format!("session:{number:08}")
    }

    fn value(&self, number: u64) -> String {
        let mut random = Rng::with_seed(self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut value = format!(r#"{{"user":{number},"token":"{:016x}","path":""#, random.u64(..));
        for _ in 0..random.u32(20..90) {
            value.push_str(self.words.pick(&mut random));
            value.push(' ');
        }
        value.push_str("\"}");
        value
    }
}

fn drive(values: &Values, socket: &Path, running: &Running<'_>) -> Result<Output> {
    let mut connection = Connection::open(&socket.to_path_buf(), running)?;
    for first in (0..values.keys).step_by(BATCH as usize) {
        let batch = first..(first + BATCH).min(values.keys);
        for number in batch.clone() {
            connection.send(&["SET", &Values::key(number), &values.value(number)])?;
        }
        for _ in batch {
            connection.expect_ok()?;
        }
    }
    let mut hasher = Xxh3::new();
    let mut random = Rng::with_seed(values.seed);
    let mut order: Vec<u64> = (0..values.keys).collect();
    for _ in 0..READS {
        random.shuffle(&mut order);
        for batch in order.chunks(BATCH as usize) {
            for &number in batch {
                connection.send(&["GET", &Values::key(number)])?;
            }
            for &number in batch {
                let value = connection.bulk()?;
                ensure!(value == values.value(number).as_bytes(), "value {number} is wrong");
                hasher.update(&value);
            }
        }
    }
    connection.send(&["SHUTDOWN", "NOSAVE"])?;
    // The server answers by closing the connection.
    let _ = connection.line();
    Ok(Output { digest: hasher.digest128(), passes: None })
}

struct Connection {
    answers: BufReader<UnixStream>,
    commands: BufWriter<UnixStream>,
}

impl Connection {
    /// Connects as soon as the server listens.
    fn open(socket: &PathBuf, running: &Running<'_>) -> Result<Self> {
        while !running.has_ended.load(Relaxed) {
            if let Ok(stream) = UnixStream::connect(socket) {
                stream.set_read_timeout(Some(PATIENCE))?;
                return Ok(Connection {
                    answers: BufReader::with_capacity(1 << 17, stream.try_clone()?),
                    commands: BufWriter::with_capacity(1 << 17, stream),
                });
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        bail!("the server ended before it listened")
    }

    /// Queues a command; it leaves when the first answer is asked for.
    fn send(&mut self, words: &[&str]) -> Result<()> {
        write!(self.commands, "*{}\r\n", words.len())?;
        for word in words {
            write!(self.commands, "${}\r\n{word}\r\n", word.len())?;
        }
        Ok(())
    }

    fn line(&mut self) -> Result<String> {
        self.commands.flush()?;
        let mut line = String::new();
        self.answers.read_line(&mut line).context("the server does not answer")?;
        ensure!(line.ends_with("\r\n"), "the server closed the connection");
        Ok(line)
    }

    fn expect_ok(&mut self) -> Result<()> {
        let line = self.line()?;
        ensure!(line == "+OK\r\n", "the server answered {}", line.trim());
        Ok(())
    }

    fn bulk(&mut self) -> Result<Vec<u8>> {
        let line = self.line()?;
        let length = line.strip_prefix('$').and_then(|length| length.trim().parse::<usize>().ok());
        let length = length.with_context(|| format!("the server answered {}", line.trim()))?;
        let mut value = vec![0; length + 2];
        self.answers.read_exact(&mut value)?;
        value.truncate(length);
        Ok(value)
    }
}
