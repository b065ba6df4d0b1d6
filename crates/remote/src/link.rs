//! One way to a node: a connection that is opened anew when it broke.
//!
//! Invariants: an answer is never taken for that to another command: after anything but a plain
//! refusal, or a word where else to ask, the connection is given up. Attempts to open it are apart by a
//! pause that grows up to a bound.
//!
//! Bad case: a server that takes longer for a batch than it is given; what it was to do is tried
//! again on a new connection.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use redis::{Connection, Pipeline, RedisError, Value};
use zpager_sys::Errno;
use zpager_wire::{Kind, RemoteCounts};

use crate::kept::Kept;
use crate::nodes::{Node, Nodes};
use crate::server::Server;
use crate::slots::{Redirection, redirection};

/// Bounds of the pause between two attempts to connect.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Longest time for an attempt.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);

const ENOSPC: Errno = Errno(28);
const EROFS: Errno = Errno(30);
const EIO: Errno = Errno(5);
const EACCES: Errno = Errno(13);

/// Refusals that pass by themselves, as while a server reads its file or a cluster misses a master:
/// the way is as good as broken.
const PASSING: [&str; 4] = ["LOADING", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN"];

/// What a node said to a command.
#[derive(Debug)]
pub(crate) enum Answer {
    Given(Value),
    Refused(Errno),
    /// Another node has the key's slot.
    Elsewhere(Redirection),
}

/// What all ways of a run have in common.
#[derive(Clone, Copy)]
pub(crate) struct Ways<'a> {
    pub(crate) server: &'a Server,
    pub(crate) nodes: &'a Nodes<'a>,
    pub(crate) counts: &'a RemoteCounts,
    pub(crate) kept: &'a Kept<'a>,
    /// How long a node may take to answer.
    pub(crate) time: Duration,
}

/// The way of one kind of requests to one node.
pub(crate) struct Link<'a> {
    ways: Ways<'a>,
    node: Arc<Node>,
    kind: Kind,
    connection: Option<Connection>,
    was_open: bool,
    retry_at: Instant,
    pause: Duration,
}

impl<'a> Link<'a> {
    /// Not open yet.
    pub(crate) fn new(ways: Ways<'a>, node: Arc<Node>, kind: Kind) -> Self {
        let (retry_at, pause) = (Instant::now(), PAUSE_MIN);
        Link { ways, node, kind, connection: None, was_open: false, retry_at, pause }
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
        match self.connect() {
            Ok(connection) => {
                if self.was_open {
                    self.ways.counts.reconnects.fetch_add(1, Relaxed);
                }
                (self.connection, self.was_open, self.pause) = (Some(connection), true, PAUSE_MIN);
                self.ways.nodes.set_open(&self.node, self.kind, true);
            }
            Err(_) => self.give_up(),
        }
        self.is_open()
    }

    fn connect(&self) -> Result<Connection, RedisError> {
        let time = self.ways.time.min(CONNECT_TIME_MAX);
        let mut connection = self.ways.server.connect(self.node.address.as_ref(), time)?;
        let mut look = redis::cmd("GETRANGE");
        look.arg(self.no_key()).arg(0).arg(0);
        match look.query::<Vec<u8>>(&mut connection) {
            // A node that knows who has the key is as well as the one that has it.
            Err(refusal) if refusal.redirect_node().is_none() => Err(refusal),
            _ => Ok(connection),
        }
    }

    /// A key under which there is nothing, of the node's own if it has a slot: a cluster may lack those
    /// of others.
    fn no_key(&self) -> String {
        let Ways { kept, nodes, .. } = self.ways;
        let is_own = |slot| nodes.owner(slot) == Some(self.node.number);
        let name = if self.node.is_empty() { None } else { kept.next_name(0, is_own) };
        name.map_or_else(|| kept.no_key(), |name| kept.key(name))
    }

    /// Has the node do `commands` and gives its answers, in order: fewer of them when the way broke,
    /// and the others may be done or not.
    pub(crate) fn ask(&mut self, commands: &Pipeline) -> Vec<Answer> {
        let mut answers = Vec::with_capacity(commands.len());
        let Some(connection) = self.connection.as_mut().filter(|_| !commands.is_empty()) else {
            // An empty message the client takes for a broken connection.
            return answers;
        };
        let own_host = self.ways.server.host_of(self.node.address.as_ref());
        let deadline = Instant::now() + self.ways.time;
        if connection.send_packed_command(&commands.get_packed_pipeline()).is_ok() {
            let each = std::iter::from_fn(|| answer(connection, own_host, deadline));
            answers.extend(each.take(commands.len()));
        }
        if answers.len() < commands.len() {
            self.give_up();
        }
        answers
    }

    fn give_up(&mut self) {
        self.connection = None;
        self.ways.nodes.set_open(&self.node, self.kind, false);
        if !self.node.is_empty() {
            self.ways.nodes.doubt();
        }
        self.retry_at = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}

/// The next answer; `None` when it did not come, or is none.
fn answer(connection: &mut Connection, own_host: &str, deadline: Instant) -> Option<Answer> {
    let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
    connection.set_read_timeout(Some(left)).ok()?;
    match connection.recv_response() {
        Ok(Value::ServerError(error)) => refusal(&RedisError::from(error), own_host),
        Ok(value) => Some(Answer::Given(value)),
        Err(error) if error.is_io_error() => None,
        Err(error) => refusal(&error, own_host),
    }
}

/// What a refusal means for the program; `None` where it passes.
fn refusal(error: &RedisError, own_host: &str) -> Option<Answer> {
    if let Some(redirection) = redirection(error, own_host) {
        return Some(Answer::Elsewhere(redirection));
    }
    let code = error.code().filter(|code| !PASSING.contains(code))?;
    Some(Answer::Refused(match code {
        "OOM" => ENOSPC,
        "READONLY" | "MISCONF" => EROFS,
        "NOPERM" | "NOAUTH" => EACCES,
        _ => EIO,
    }))
}
