//! The server: its address, and what of it can be found out before a program is started.
//!
//! A Redis or Valkey server by itself, or a node of a cluster, whose masters then have the run's keys
//! among them. One that evicts keys when its memory is full (`maxmemory-policy`) would lose pages,
//! whatever it evicts: the run's keys expire, so that also the policies for keys that expire take them.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::{Client, Connection, ConnectionAddr, ErrorKind, IntoConnectionInfo, RedisError, Value};

use crate::advice::{advice, reason};
use crate::nodes::NODES_MAX;
use crate::read_time::{ReadTime, ReadsBegan};
use crate::slots::{Address, Range, SLOT_DRAWS_MAX, ranges, slot_of};

/// How an address begins.
const SCHEMES: [&str; 7] = [
    "redis://",
    "rediss://",
    "redis+unix://",
    "unix://",
    "valkey://",
    "valkeys://",
    "valkey+unix://",
];

/// What would be right in place of what is no address.
const EXPECTED: &str =
    "give redis://HOST[:PORT][/DB], rediss://HOST[:PORT][/DB] or redis+unix:///PATH";

/// How long the server may take for an answer before the program is started.
pub(crate) const CHECK_TIME: Duration = Duration::from_secs(5);
/// The key of the trial write is gone by itself after so many seconds.
const TRIAL_EXPIRY_SECONDS: u64 = 10;

/// Whether `text` is meant as the address of a server.
pub fn is_address(text: &str) -> bool {
    SCHEMES.iter().any(|scheme| text.starts_with(scheme))
}

/// A server, not connected to.
#[derive(Debug)]
pub struct Server {
    client: Client,
    shown: String,
}

/// What a server is.
#[derive(Debug)]
pub(crate) enum Layout {
    Alone,
    /// A node of a cluster with such masters.
    Cluster(Vec<Range>),
}

/// What a server, or the masters of a cluster, said of themselves.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Bytes that they can take together, as far as they tell.
    pub room_bytes: Option<u64>,
    /// The policy by which one of them evicts keys when its memory is full.
    pub evicts_by: Option<String>,
    /// How long a part of a value took to come, from the one that took longest.
    pub read: ReadTime,
}

impl Server {
    /// The server of an address.
    ///
    /// # Errors
    /// What is wrong with the address, and what would be right, without the address.
    pub fn at(address: &str) -> Result<Self, String> {
        let wrong = |error: &RedisError| format!("{}: {EXPECTED}", reason(error));
        let info = address.into_connection_info().map_err(|error| wrong(&error))?;
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let shown = shown(info.addr());
        Ok(Server { client: Client::open(info).map_err(|error| wrong(&error))?, shown })
    }

    /// Where it is, without the password.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Whether it is reached within this machine, whose memory it takes then.
    pub fn is_local(&self) -> bool {
        match self.client.get_connection_info().addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => {
                let is_loopback = |ip: std::net::IpAddr| ip.is_loopback();
                host == "localhost" || host.parse().is_ok_and(is_loopback)
            }
            ConnectionAddr::Unix(_) => true,
            _ => false,
        }
    }

    /// Finds out whether the server would take clusters, or each master of its cluster: it is asked what
    /// it has, and a value is written, read and removed.
    ///
    /// # Errors
    /// Why it does not, and what would be right.
    pub fn check(&self) -> Result<Found, String> {
        let mut connection = self.connect(None, CHECK_TIME).map_err(|error| self.advice(&error))?;
        let layout = self.layout(&mut connection, None).map_err(|error| self.advice(&error))?;
        let ranges = match layout {
            Layout::Cluster(ranges) if !ranges.is_empty() => ranges,
            // Of a cluster that has no slots the node itself says what is wrong.
            _ => return check_node(&mut connection, |_| true).map_err(|error| self.advice(&error)),
        };
        let mut masters: Vec<&Address> = ranges.iter().map(|range| &range.master).collect();
        masters.sort();
        masters.dedup();
        let mut all = Found { room_bytes: Some(0), ..Found::default() };
        for master in masters.into_iter().take(NODES_MAX) {
            all.add(self.check_master(master, &ranges)?);
        }
        Ok(all)
    }

    fn check_master(&self, master: &Address, all: &[Range]) -> Result<Found, String> {
        let is_its_own =
            |slot| all.iter().any(|it| it.master == *master && it.slots.contains(&slot));
        let checked = self
            .connect(Some(master), CHECK_TIME)
            .and_then(|mut connection| check_node(&mut connection, is_its_own));
        let (host, port) = master;
        checked.map_err(|error| format!("its master {host}:{port}: {}", self.advice(&error)))
    }

    fn advice(&self, error: &RedisError) -> String {
        let address = self.client.get_connection_info().addr();
        advice(error, matches!(address, ConnectionAddr::TcpTls { .. }))
    }

    /// Asks a node, the one that the user named unless its address is given, where slots are.
    pub(crate) fn layout(
        &self,
        connection: &mut Connection,
        address: Option<&Address>,
    ) -> Result<Layout, RedisError> {
        let asked = redis::cmd("CLUSTER").arg("SLOTS").query::<Value>(connection);
        match asked {
            Ok(answer) => match ranges(&answer, self.host_of(address)) {
                Some(ranges) => Ok(Layout::Cluster(ranges)),
                None => Err((ErrorKind::Parse, "the slots of a cluster are not told").into()),
            },
            // It is in no cluster, or does not know the command; or a user of it may not ask, who learns
            // by way of its refusals then.
            Err(error) if matches!(error.code(), Some("ERR" | "NOPERM")) => Ok(Layout::Alone),
            Err(error) => Err(error),
        }
    }

    /// The host of an address, or of the one that the user named.
    pub(crate) fn host_of<'a>(&'a self, address: Option<&'a Address>) -> &'a str {
        match (address, self.client.get_connection_info().addr()) {
            (Some((host, _)), _) => host,
            (None, ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. }) => host,
            _ => "localhost",
        }
    }

    /// The same server's node.
    fn client_of(&self, (host, port): &Address) -> Result<Client, RedisError> {
        let info = self.client.get_connection_info().clone();
        let address = match info.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
                host: host.clone(),
                port: *port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(host.clone(), *port),
        };
        Client::open(info.set_addr(address))
    }

    /// Connects, to that node if one is given, which takes `time` at most but for the finding of the
    /// host's address; so does each answer.
    pub(crate) fn connect(
        &self,
        address: Option<&Address>,
        time: Duration,
    ) -> Result<Connection, RedisError> {
        let connection = match address {
            Some(address) => self.client_of(address)?.get_connection_with_timeout(time)?,
            None => self.client.get_connection_with_timeout(time)?,
        };
        connection.set_read_timeout(Some(time))?;
        connection.set_write_timeout(Some(time))?;
        Ok(connection)
    }
}

impl Found {
    /// Adds what another master said.
    fn add(&mut self, other: Found) {
        self.room_bytes = self
            .room_bytes
            .zip(other.room_bytes)
            .map(|(all_bytes, its_bytes)| all_bytes.saturating_add(its_bytes));
        self.evicts_by = self.evicts_by.take().or(other.evicts_by);
        self.read = self.read.max(other.read);
    }
}

fn shown(address: &ConnectionAddr) -> String {
    match address {
        ConnectionAddr::Tcp(host, port) => format!("redis://{host}:{port}"),
        ConnectionAddr::TcpTls { host, port, .. } => format!("rediss://{host}:{port}"),
        ConnectionAddr::Unix(path) => format!("redis+unix://{}", path.display()),
        _ => "redis".into(),
    }
}

/// Finds out whether a node would take clusters whose slot is `wanted`.
fn check_node(
    connection: &mut Connection,
    wanted: impl Fn(u16) -> bool,
) -> Result<Found, RedisError> {
    let found = look(connection)?;
    let read = try_out(connection, wanted)?;
    Ok(Found { read, ..found })
}

/// Asks what the server has.
fn look(connection: &mut Connection) -> Result<Found, RedisError> {
    let asked: Result<String, _> = redis::cmd("INFO").query(connection);
    match asked {
        Ok(text) => Ok(found(&text)),
        // A user of the server may be allowed no more than to use it.
        Err(error) if error.code() == Some("NOPERM") => Ok(Found::default()),
        Err(error) => Err(error),
    }
}

/// What INFO says of memory.
fn found(info: &str) -> Found {
    let fields: BTreeMap<&str, &str> =
        info.lines().filter_map(|line| line.trim_end().split_once(':')).collect();
    let number = |name: &str| fields.get(name).and_then(|text| text.parse::<u64>().ok());
    let most_bytes = number("maxmemory").filter(|&bytes| bytes > 0);
    let whole_bytes = most_bytes.or_else(|| number("total_system_memory").filter(|&all| all > 0));
    let used_bytes = number("used_memory").unwrap_or(0);
    let policy = fields.get("maxmemory_policy").filter(|&&policy| policy != "noeviction");
    Found {
        room_bytes: whole_bytes.map(|bytes| bytes.saturating_sub(used_bytes)),
        evicts_by: policy.filter(|_| most_bytes.is_some()).map(|&policy| policy.to_owned()),
        read: ReadTime::default(),
    }
}

/// Writes a value whose slot is `wanted`, reads a part of it and removes it; gives how long the read took.
fn try_out(
    connection: &mut Connection,
    wanted: impl Fn(u16) -> bool,
) -> Result<ReadTime, RedisError> {
    let mut keys =
        (0..SLOT_DRAWS_MAX).map(|at| format!("zpager:trial:{}:{at}", std::process::id()));
    let Some(key) = keys.find(|key| wanted(slot_of(key))) else {
        return Ok(ReadTime::default());
    };
    let set = |connection: &mut Connection| {
        let mut command = redis::cmd("SET");
        command.arg(&key).arg("zpager").arg("EX").arg(TRIAL_EXPIRY_SECONDS);
        command.query::<()>(connection)
    };
    set(connection)?;
    let began = ReadsBegan::now();
    let part: Vec<u8> = redis::cmd("GETRANGE").arg(&key).arg(1).arg(3).query(connection)?;
    let read = began.read_time(1);
    redis::cmd("EXPIRE").arg(&key).arg(TRIAL_EXPIRY_SECONDS).query::<()>(connection)?;
    redis::cmd("UNLINK").arg(&key).query::<()>(connection)?;
    match part == b"pag" {
        true => Ok(read),
        false => Err((ErrorKind::Parse, "a value came back as another").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_from_directories() {
        for text in ["redis://h", "rediss://h:1/2", "unix:///s", "redis+unix:///s", "valkey://h"] {
            assert!(is_address(text), "{text}");
        }
        for text in ["/var/tmp", "redis", "none", "redis:/x", "http://h"] {
            assert!(!is_address(text), "{text}");
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        let server = Server::at("rediss://me:secret@example.org/3").expect("an address");
        assert_eq!(server.shown(), "rediss://example.org:6379");
        assert!(!server.is_local());
        let server = Server::at("redis+unix:///run/r.sock?pass=secret").expect("an address");
        assert_eq!(server.shown(), "redis+unix:///run/r.sock");
        assert!(server.is_local());
        assert!(Server::at("redis://[::1]:7000").expect("an address").is_local());
    }

    #[test]
    fn a_node_is_reached_as_the_server_is() {
        let server = Server::at("rediss://h:7000").expect("an address");
        let node = ("n".to_owned(), 1);
        assert_eq!((server.host_of(None), server.host_of(Some(&node))), ("h", "n"));
        let there = server.client_of(&node).expect("a client");
        assert_eq!(shown(there.get_connection_info().addr()), "rediss://n:1");
    }

    #[test]
    fn what_is_no_address_is_told_in_one_line() {
        for text in
            ["redis://", "redis://h/x", "rediss://h/#insecure?", "redis://h:99999", "unix://"]
        {
            let told = Server::at(text).expect_err(text);
            assert!(told.contains(EXPECTED) && !told.contains('\n'), "{text}: {told}");
        }
    }

    #[test]
    fn room_and_eviction_are_read() {
        let info = "# Memory\r\nused_memory:1000\r\ntotal_system_memory:9000\r\nmaxmemory:0\r\n\
                    maxmemory_policy:allkeys-lru\r\n";
        assert_eq!(found(info), Found { room_bytes: Some(8000), ..Found::default() });
        let limited = info.replace("maxmemory:0", "maxmemory:1500");
        let evicts_by = Some("allkeys-lru".to_owned());
        assert_eq!(found(&limited), Found { room_bytes: Some(500), evicts_by, ..Found::default() });
        let keeps = limited.replace("allkeys-lru", "noeviction");
        assert_eq!(found(&keeps), Found { room_bytes: Some(500), ..Found::default() });
        assert_eq!(found(""), Found::default());
    }
    #[test]
    fn the_room_of_masters_is_added() {
        let read = ReadTime { ticks: 300, ns: 100 };
        let found = |room_bytes, policy: Option<&str>| Found {
            room_bytes,
            evicts_by: policy.map(str::to_owned),
            read,
        };
        let mut all = found(Some(0), None);
        all.add(Found { read: ReadTime { ticks: 60, ns: 20 }, ..found(Some(5), None) });
        all.add(found(Some(7), Some("allkeys-lru")));
        assert_eq!(all, found(Some(12), Some("allkeys-lru")));
        all.add(found(None, None));
        assert_eq!(all, found(None, Some("allkeys-lru")));
    }
}
