//! Why a server does not take clusters, in one line, and what would be right.

use redis::{ErrorKind, RedisError};

use crate::server::CHECK_TIME;

const LOCAL: &str = "or give --store DIR";

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
    text.split_whitespace().collect::<Vec<_>>().join(" ").trim_end_matches('.').to_owned()
}
