//! Why a server does not take clusters, in one line, and what would be right.

use redis::{ErrorKind, RedisError};

use crate::server::CHECK_TIME;

const LOCAL: &str = "or give --store DIR";
/// How the standard library begins when a host's address is not found.
const NO_ADDRESS: &str = "failed to lookup address information: ";

/// What a server that was asked by TLS or not did wrong, and what would be right.
pub(crate) fn advice(error: &RedisError, by_tls: bool) -> String {
    let reason = reason(error);
    let right = match (error.code(), error.kind()) {
        (Some("NOAUTH" | "WRONGPASS"), _) | (_, ErrorKind::AuthenticationFailed) => {
            return format!("{reason}: give the password, as in redis://[USER]:PASSWORD@HOST");
        }
        (Some("NOPERM"), _) => {
            "allow the user SET, GETRANGE, EXPIRE and UNLINK of zpager:*, and in a cluster CLUSTER SLOTS"
        }
        (Some("OOM"), _) => "raise the server's maxmemory",
        (Some("CLUSTERDOWN"), _) => "see redis-cli --cluster check",
        (Some("MOVED" | "ASK"), _) => {
            return format!(
                "sends keys to another node ({reason}): allow the user CLUSTER SLOTS, {LOCAL}"
            );
        }
        (Some("READONLY"), _) => "name the primary",
        (Some(_), _) => "see the server's log",
        (None, ErrorKind::Io) if error.is_timeout() => return no_answer(by_tls),
        (None, ErrorKind::Io) if let Some(why) = reason.strip_prefix(NO_ADDRESS) => {
            return format!("unknown host ({why}): check its name, {LOCAL}");
        }
        (None, ErrorKind::Io) => way(error, &reason, by_tls),
        (None, _) => {
            return format!("does not answer as a Redis server does ({reason}): name one, {LOCAL}");
        }
    };
    format!("{reason}: {right}, {LOCAL}")
}

fn no_answer(by_tls: bool) -> String {
    let seconds = CHECK_TIME.as_secs();
    let (server, right) = match by_tls {
        true => ("Redis server with TLS", "redis://HOST or --store DIR"),
        false => ("Redis server", "--store DIR"),
    };
    format!("no answer within {seconds} s: is it a {server}? If not, give {right}")
}

/// What would be right where the way to the server is not.
fn way(error: &RedisError, reason: &str, by_tls: bool) -> &'static str {
    let was_cut = error.is_connection_dropped() && !error.is_connection_refusal();
    if reason.contains("not valid for name") {
        "name the server as its certificate does"
    } else if reason.contains("UnknownIssuer") || reason.contains("BadSignature") {
        // The latter where another authority of the same name is trusted.
        "name the file of the authority that signed it in SSL_CERT_FILE"
    } else if reason.contains("peer certificate") {
        "give the server one that is valid"
    } else if reason.contains("PEM") {
        "name a file of certificates in SSL_CERT_FILE"
    } else if was_cut && !by_tls {
        "give rediss://HOST where it speaks TLS"
    } else {
        "start a Redis server there"
    }
}

/// An error in one line.
pub(crate) fn reason(error: &RedisError) -> String {
    let text = match (error.kind(), error.detail()) {
        (ErrorKind::Io, _) | (_, None) => error.to_string(),
        (_, Some(detail)) => detail.to_owned(),
    };
    // The client adds the name that the kind has in it.
    let kind = format!(" - {:?}", error.kind());
    let text = text.strip_suffix(&kind).unwrap_or(&text);
    text.split_whitespace().collect::<Vec<_>>().join(" ").trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn each_way_that_is_wrong_is_told_apart() {
        let told = |error: io::Error| advice(&RedisError::from(error), false);
        let unknown = told(io::Error::other(format!("{NO_ADDRESS}Name or service not known")));
        let right = "unknown host (Name or service not known): check its name, or give --store DIR";
        assert_eq!(unknown, right);
        let refused = told(io::Error::from_raw_os_error(111));
        assert!(
            refused.contains("refused") && refused.contains("start a Redis server"),
            "{refused}"
        );
    }

    #[test]
    fn what_is_no_address_is_told_in_words() {
        let cases = ["redis://", "redis://h/x", "redis://h:99999", "redis+unix://", "redis://[::1"];
        for address in cases {
            let told = crate::Server::at(address).expect_err(address);
            assert!(!told.contains("Invalid") || told.contains("Invalid database"), "{told}");
            assert!(!told.contains("Config") && told.contains("give redis://HOST"), "{told}");
        }
    }
}
