//! The NBD protocol, the server's side: fixed newstyle handshake, then requests.
//!
//! Source: the NBD protocol (NetworkBlockDevice/nbd, doc/proto.md). Names are those of that text.
//!
//! A client may send anything. What it sends is read into buffers of fixed length, lengths are
//! checked before they are used, and what cannot be answered ends its connection alone.

mod negotiation;
mod pause;
mod request;
mod session;
mod stream;

pub use negotiation::Export;
pub use request::{Command, ErrorNumber, Malformed, REQUEST_BYTES, Request};
pub use session::{Ended, serve_client};
pub use stream::Socket;

/// RAM of a connection's stream and of its thread.
pub(crate) const BUFFERS_BYTES: usize = stream::BUFFERS_BYTES + crate::late::BYTES + THREAD_BYTES;

/// What is touched of a thread's stack, about.
const THREAD_BYTES: usize = 32 << 10;

/// The longest request: what clients may send that do not ask for block sizes.
pub const REQUEST_DATA_BYTES_MAX: u32 = 32 << 20;

/// What this device can do.
mod flags {
    pub(super) const HAS_FLAGS: u16 = 1 << 0;
    pub(super) const SEND_FLUSH: u16 = 1 << 2;
    pub(super) const SEND_FUA: u16 = 1 << 3;
    pub(super) const SEND_TRIM: u16 = 1 << 5;
    pub(super) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(super) const CAN_MULTI_CONN: u16 = 1 << 8;

    pub(super) const TRANSMISSION: u16 =
        HAS_FLAGS | SEND_FLUSH | SEND_FUA | SEND_TRIM | SEND_WRITE_ZEROES | CAN_MULTI_CONN;
}
