//! Hash slots: which of a cluster's masters has a key.
//!
//! Source: the Redis cluster specification. A key's slot is the CRC-16/XMODEM of its name, or of the part
//! of it in braces, which no key here has. Each master has some of the slots, and tells which master has
//! the others.

use std::ops::RangeInclusive;

use crc::{CRC_16_XMODEM, Crc};
use redis::{RedisError, Value};

/// Slots of a cluster.
pub(crate) const SLOTS: u16 = 16384;
/// Keys among which one with a certain slot is all but surely found.
pub(crate) const SLOT_DRAWS_MAX: usize = 16 * SLOTS as usize;
const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// A master of a cluster: host and port.
pub(crate) type Address = (String, u16);

/// Slots that lie one behind the other, and their master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) slots: RangeInclusive<u16>,
    pub(crate) master: Address,
}

/// Another master than the one that was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Redirection {
    pub(crate) slot: u16,
    pub(crate) master: Address,
    /// For this one key, which is on its way there with its slot.
    pub(crate) is_once: bool,
}

/// The slot of a key.
pub(crate) fn slot_of(key: &str) -> u16 {
    CRC.checksum(key.as_bytes()) % SLOTS
}

/// What a node answers to CLUSTER SLOTS, whose host is `own_host` for who asks; `None` for anything else.
pub(crate) fn ranges(answer: &Value, own_host: &str) -> Option<Vec<Range>> {
    let Value::Array(items) = answer else { return None };
    items.iter().map(|item| range(item, own_host)).collect()
}

fn range(item: &Value, own_host: &str) -> Option<Range> {
    let Value::Array(parts) = item else { return None };
    let [first, last, Value::Array(master), ..] = &parts[..] else { return None };
    let [host, port, ..] = &master[..] else { return None };
    let number = |value: &Value| match value {
        Value::Int(number) => u16::try_from(*number).ok(),
        _ => None,
    };
    let host = match host {
        Value::BulkString(host) => str::from_utf8(host).ok()?,
        Value::Nil => "",
        _ => return None,
    };
    let slots = number(first)?..=number(last)?.min(SLOTS - 1);
    Some(Range { slots, master: (known(host, own_host), number(port)?) })
}

/// Where a refusal sends who asked a node on `own_host`.
pub(crate) fn redirection(refusal: &RedisError, own_host: &str) -> Option<Redirection> {
    let (node, slot) = refusal.redirect_node()?;
    let (host, port) = node.rsplit_once(':')?;
    let master = (known(host, own_host), port.parse().ok()?);
    let is_once = refusal.code() == Some("ASK");
    (slot < SLOTS).then_some(Redirection { slot, master, is_once })
}

/// Where a node knows no name of another one it is that by which it was reached itself.
fn known(host: &str, own_host: &str) -> String {
    if host.is_empty() { own_host.to_owned() } else { host.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(answer: &str) -> Value {
        redis::parse_redis_value(answer.as_bytes()).expect("an answer")
    }

    #[test]
    fn keys_have_the_slots_of_the_specification() {
        assert_eq!(slot_of("123456789"), 0x31C3);
        assert_eq!(slot_of("foo"), 12182);
    }

    #[test]
    fn slots_are_where_a_cluster_says() {
        let answer = parsed(
            "*2\r\n*3\r\n:0\r\n:99\r\n*2\r\n$1\r\nh\r\n:7000\r\n\
             *4\r\n:100\r\n:16383\r\n*3\r\n$-1\r\n:7001\r\n$2\r\nid\r\n*2\r\n$1\r\nr\r\n:7002\r\n",
        );
        let range = |slots, host: &str, port| Range { slots, master: (host.into(), port) };
        let expected = [range(0..=99, "h", 7000), range(100..=16383, "own", 7001)];
        assert_eq!(ranges(&answer, "own").as_deref(), Some(&expected[..]));
        assert_eq!(ranges(&parsed("*0\r\n"), "own"), Some(vec![]));
        for strange in ["+OK\r\n", "*1\r\n:1\r\n", "*1\r\n*1\r\n:1\r\n"] {
            assert_eq!(ranges(&parsed(strange), "own"), None, "{strange}");
        }
    }

    #[test]
    fn a_key_is_where_a_node_says() {
        let sent = |answer: &str| match parsed(answer) {
            Value::ServerError(error) => redirection(&RedisError::from(error), "own"),
            other => panic!("{other:?}"),
        };
        let to = |host: &str, is_once| {
            Some(Redirection { slot: 3999, master: (host.into(), 6381), is_once })
        };
        assert_eq!(sent("-MOVED 3999 10.0.0.7:6381\r\n"), to("10.0.0.7", false));
        assert_eq!(sent("-ASK 3999 ::1:6381\r\n"), to("::1", true));
        assert_eq!(sent("-MOVED 3999 :6381\r\n"), to("own", false));
        for strange in ["-MOVED 3999 h\r\n", "-MOVED 16384 h:1\r\n", "-MOVED\r\n", "-ERR no\r\n"] {
            assert_eq!(sent(strange), None, "{strange}");
        }
    }
}
