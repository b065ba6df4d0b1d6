//! One way to the server: a connection that is opened anew when it broke.
//!
//! Invariants: an answer is never taken for that to another command: after anything but a plain
//! refusal the connection is given up. Attempts to open it are apart by a pause that grows up to a
//! bound.
//!
//! Bad case: a server that takes longer for a batch than it is given; what it was to do is tried
//! again on a new connection.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use redis::{Connection, Pipeline, RedisError, Value};
use zpager_sys::Errno;
use zpager_wire::{Kind, Requests};

use crate::server::{Node, Server};

/// Bounds of the pause between two attempts to connect.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Longest time for an attempt.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);

const ENOSPC: Errno = Errno(28);
const EROFS: Errno = Errno(30);
const EIO: Errno = Errno(5);
const EACCES: Errno = Errno(13);

/// Refusals that pass by themselves, as while a server reads its file or is replaced, or by another
/// node of the cluster: the way is as good as broken.
const PASSING: [&str; 6] = ["LOADING", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN", "MOVED", "ASK"];

/// The way of one kind of requests.
pub(crate) struct Link<'a> {
    server: &'a Server,
    /// The node of a cluster that has the run's keys, if that is not the one that the user named.
    node: Option<Node>,
    /// A key of the run under which there is nothing.
    no_key: String,
    requests: Requests<'a>,
    kind: Kind,
    /// How long the server may take to answer.
    time: Duration,
    connection: Option<Connection>,
    was_open: bool,
    retry_at: Instant,
    pause: Duration,
}

impl<'a> Link<'a> {
    /// Not open yet.
    pub(crate) fn new(
        server: &'a Server,
        no_key: String,
        requests: Requests<'a>,
        kind: Kind,
        time: Duration,
    ) -> Self {
        let (retry_at, pause) = (Instant::now(), PAUSE_MIN);
        Link {
            server,
            node: None,
            no_key,
            requests,
            kind,
            time,
            connection: None,
            was_open: false,
            retry_at,
            pause,
        }
    }

    /// Whether the way is open.
    pub(crate) fn is_open(&self) -> bool {
        self.connection.is_some()
    }

    /// Opens the way if it is not, and the pause after the last attempt is over; whether it is open.
    pub(crate) fn open(&mut self) -> bool {
        if self.is_open() || Instant::now() < self.retry_at {
            return self.is_open();
        }
        let time = self.time.min(CONNECT_TIME_MAX);
        let opened = self.server.connect(self.node.as_ref(), time).and_then(|mut connection| {
            let mut look = redis::cmd("GETRANGE");
            look.arg(&self.no_key).arg(0).arg(0).query::<Vec<u8>>(&mut connection)?;
            Ok(connection)
        });
        match opened {
            Ok(connection) => {
                if self.was_open {
                    self.requests.remote.counts.reconnects.fetch_add(1, Relaxed);
                }
                (self.connection, self.was_open, self.pause) = (Some(connection), true, PAUSE_MIN);
                self.requests.set_up(self.kind, true);
            }
            Err(refusal) => {
                // Of a node that does not answer the one that the user named may know more.
                self.node = self.server.node_of(&refusal);
                self.give_up();
            }
        }
        self.is_open()
    }

    /// Has the server do `commands` and gives their answers, in order: fewer of them when the way
    /// broke, and the others may be done or not.
    pub(crate) fn ask(&mut self, commands: &Pipeline) -> Vec<Result<Value, Errno>> {
        let mut answers = Vec::with_capacity(commands.len());
        let Some(connection) = self.connection.as_mut().filter(|_| !commands.is_empty()) else {
            // An empty message the client takes for a broken connection.
            return answers;
        };
        let deadline = Instant::now() + self.time;
        if connection.send_packed_command(&commands.get_packed_pipeline()).is_ok() {
            let each = std::iter::from_fn(|| answer(connection, deadline));
            answers.extend(each.take(commands.len()));
        }
        if answers.len() < commands.len() {
            self.give_up();
        }
        answers
    }

    fn give_up(&mut self) {
        self.connection = None;
        self.requests.set_up(self.kind, false);
        self.retry_at = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}

/// The next answer; `None` when it did not come, or is none.
fn answer(connection: &mut Connection, deadline: Instant) -> Option<Result<Value, Errno>> {
    let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
    connection.set_read_timeout(Some(left)).ok()?;
    match connection.recv_response() {
        Ok(Value::ServerError(error)) => refusal(error.code()),
        Ok(value) => Some(Ok(value)),
        Err(error) => refusal(code(&error)?),
    }
}

fn code(error: &RedisError) -> Option<&str> {
    if error.is_io_error() { None } else { error.code() }
}

/// What a refusal means for the program; `None` where it passes.
fn refusal(code: &str) -> Option<Result<Value, Errno>> {
    if PASSING.contains(&code) {
        return None;
    }
    Some(Err(match code {
        "OOM" => ENOSPC,
        "READONLY" | "MISCONF" => EROFS,
        "NOPERM" | "NOAUTH" => EACCES,
        _ => EIO,
    }))
}
