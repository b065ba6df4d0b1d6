//! Who is connected, so that a handshake has an end and the server too.

use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};

/// Most clients at a time.
const CONNECTIONS_MAX: usize = 16;
/// Within this time a client has said what it wants.
const HANDSHAKE_MAX: Duration = Duration::from_secs(30);

struct Connection {
    number: u64,
    socket: OwnedFd,
    since: Instant,
    is_agreed: bool,
}

/// The connections.
#[derive(Default)]
pub(crate) struct Connections {
    list: Mutex<Vec<Connection>>,
    left: Condvar,
}

impl Connections {
    fn list(&self) -> MutexGuard<'_, Vec<Connection>> {
        // A panic ends the process, so nobody ever finds the lock poisoned.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a connection, of which `socket` is a second descriptor; false when there are too many.
    pub(crate) fn enter(&self, number: u64, socket: OwnedFd) -> bool {
        let mut list = self.list();
        let has_room = list.len() < CONNECTIONS_MAX;
        if has_room {
            list.push(Connection { number, socket, since: Instant::now(), is_agreed: false });
        }
        has_room
    }

    /// Notes that the handshake is done.
    pub(crate) fn agreed(&self, number: u64) {
        for connection in self.list().iter_mut().filter(|connection| connection.number == number) {
            connection.is_agreed = true;
        }
    }

    /// Takes a connection out.
    pub(crate) fn leave(&self, number: u64) {
        self.list().retain(|connection| connection.number != number);
        self.left.notify_all();
    }

    /// Clients that use the device.
    pub(crate) fn users(&self) -> usize {
        self.list().iter().filter(|connection| connection.is_agreed).count()
    }

    /// Ends handshakes that take too long.
    pub(crate) fn end_slow(&self) {
        let is_slow = |connection: &&Connection| {
            !connection.is_agreed && connection.since.elapsed() > HANDSHAKE_MAX
        };
        self.list().iter().filter(is_slow).for_each(end);
    }

    /// Ends all of them, and waits for their threads, though not for long.
    pub(crate) fn end_all(&self, wait_max: Duration) {
        let list = self.list();
        list.iter().for_each(end);
        let waited = self.left.wait_timeout_while(list, wait_max, |list| !list.is_empty());
        // Those that are not gone end with the process.
        drop(waited);
    }
}

/// Has the connection's thread find its socket closed.
fn end(connection: &Connection) {
    // It may be gone already.
    let _ = shutdown(&connection.socket, Shutdown::Both);
}
