//! The server: its address, and what of it can be found out before a program is started.
//!
//! A Redis or Valkey server by itself, or a node of a cluster. A cluster keeps each key on one of its
//! nodes, by the part of its name in braces; all keys of a run have the same there, so that they are on
//! one node, and a node that is asked for another's keys says which has them. One that evicts keys when its memory is full
//! (`maxmemory-policy`) would lose pages, whatever it evicts: the run's keys expire, so that also
//! the policies for keys that expire take them.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::{Client, Connection, ConnectionAddr, ErrorKind, IntoConnectionInfo, RedisError};

use crate::advice::{advice, reason};

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

/// A node of a cluster: host and port.
pub(crate) type Node = (String, u16);

/// A server, not connected to.
#[derive(Debug)]
pub struct Server {
    client: Client,
    shown: String,
}

/// What a server said of itself.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    /// Bytes that it can take, as far as it tells.
    pub room_bytes: Option<u64>,
    /// The policy by which it evicts keys when its memory is full.
    pub evicts_by: Option<String>,
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

    /// Finds out whether the server would take clusters: it is asked what it has, and a value is
    /// written, read and removed.
    ///
    /// # Errors
    /// Why it does not, and what would be right.
    pub fn check(&self) -> Result<Found, String> {
        let checked = self.check_node(None).or_else(|error| match self.node_of(&error) {
            Some(node) => self.check_node(Some(&node)),
            None => Err(error),
        });
        let address = self.client.get_connection_info().addr();
        let by_tls = matches!(address, ConnectionAddr::TcpTls { .. });
        checked.map_err(|error| advice(&error, by_tls))
    }

    fn check_node(&self, node: Option<&Node>) -> Result<Found, RedisError> {
        let mut connection = self.connect(node, CHECK_TIME)?;
        let found = look(&mut connection)?;
        try_out(&mut connection)?;
        Ok(found)
    }

    /// The node of the cluster that has what another one was asked for.
    pub(crate) fn node_of(&self, refusal: &RedisError) -> Option<Node> {
        let (node, _slot) = refusal.redirect_node()?;
        let (host, port) = node.rsplit_once(':')?;
        let host = match self.client.get_connection_info().addr() {
            // Where a node knows no name of the other one it is that by which it was reached itself.
            ConnectionAddr::Tcp(own, _) | ConnectionAddr::TcpTls { host: own, .. }
                if host.is_empty() =>
            {
                own
            }
            _ => host,
        };
        Some((host.to_owned(), port.parse().ok()?))
    }

    /// The same server's node.
    fn client_of(&self, (host, port): &Node) -> Result<Client, RedisError> {
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
        node: Option<&Node>,
        time: Duration,
    ) -> Result<Connection, RedisError> {
        let connection = match node {
            Some(node) => self.client_of(node)?.get_connection_with_timeout(time)?,
            None => self.client.get_connection_with_timeout(time)?,
        };
        connection.set_read_timeout(Some(time))?;
        connection.set_write_timeout(Some(time))?;
        Ok(connection)
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

/// Asks what the server has.
fn look(connection: &mut Connection) -> Result<Found, RedisError> {
    let asked: Result<String, _> = redis::cmd("INFO").query(connection);
    match asked {
        Ok(text) => Ok(found(&text)),
        // A user of the server may be allowed no more than to use it.
        Err(error) if error.code() == Some("NOPERM") => {
            Ok(Found { room_bytes: None, evicts_by: None })
        }
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
    }
}

/// Writes a value, reads a part of it and removes it.
fn try_out(connection: &mut Connection) -> Result<(), RedisError> {
    let key = format!("zpager:trial:{}", std::process::id());
    let set = |connection: &mut Connection| {
        let mut command = redis::cmd("SET");
        command.arg(&key).arg("zpager").arg("EX").arg(TRIAL_EXPIRY_SECONDS);
        command.query::<()>(connection)
    };
    set(connection)?;
    let part: Vec<u8> = redis::cmd("GETRANGE").arg(&key).arg(1).arg(3).query(connection)?;
    redis::cmd("EXPIRE").arg(&key).arg(TRIAL_EXPIRY_SECONDS).query::<()>(connection)?;
    redis::cmd("UNLINK").arg(&key).query::<()>(connection)?;
    match part == b"pag" {
        true => Ok(()),
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
    fn a_node_is_where_a_cluster_says() {
        let refusal = |detail: &str| {
            let answer = format!("-MOVED {detail}\r\n");
            match redis::parse_redis_value(answer.as_bytes()) {
                Ok(redis::Value::ServerError(error)) => RedisError::from(error),
                other => panic!("{other:?}"),
            }
        };
        let server = Server::at("rediss://h:7000").expect("an address");
        let node = |detail: &str| server.node_of(&refusal(detail));
        assert_eq!(node("3999 10.0.0.7:6381"), Some(("10.0.0.7".into(), 6381)));
        assert_eq!(node("3999 ::1:6381"), Some(("::1".into(), 6381)));
        assert_eq!(node("3999 :6381"), Some(("h".into(), 6381)));
        assert_eq!(node("3999 h"), None);
        assert_eq!(node(""), None);
        let there = server.client_of(&("n".into(), 1)).expect("a client");
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
        assert_eq!(found(info), Found { room_bytes: Some(8000), evicts_by: None });
        let limited = info.replace("maxmemory:0", "maxmemory:1500");
        let evicts_by = Some("allkeys-lru".to_owned());
        assert_eq!(found(&limited), Found { room_bytes: Some(500), evicts_by });
        let keeps = limited.replace("allkeys-lru", "noeviction");
        assert_eq!(found(&keeps), Found { room_bytes: Some(500), evicts_by: None });
        assert_eq!(found(""), Found { room_bytes: None, evicts_by: None });
    }
}
