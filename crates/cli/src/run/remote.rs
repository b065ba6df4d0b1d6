//! A store on another machine, and the helper process that speaks to its server.
//!
//! The helper is this very command, started again. It is no part of the run: it has a session of its
//! own, so that a terminal's signals do not reach it, and it is not managed or counted. It learns
//! what to do from its standard input, whose end tells it that this process has ended, however that
//! came; it then waits for the run's other processes, removes the run's keys and ends. So neither a
//! key nor a process is left behind; of a machine that lost its power the keys expire.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use libc::pid_t;
use rustix::process::{Pid, WaitOptions};
use serde::{Deserialize, Serialize};
use zpager_remote::{ReadTime, Server};
use zpager_store::{CLUSTER_BYTES, Place};
use zpager_wire::{Remote, RemoteCounts, Requests};

use super::config::MIN_STORE_BYTES;
use super::control::SharedControl;
use super::report::Notices;
use super::session::{own_path, random};
use super::stores::choice::ServerChoice;
use super::supervisor::is_gone;
use crate::failure::{Failure, OrFail};
use crate::shared::Shared;
use crate::size;

/// The hidden command of the helper.
pub(crate) const COMMAND: &str = "remote-helper";
/// How long the helper may take to connect once the server has been found to answer.
const START_TIME: Duration = Duration::from_secs(30);
/// How long the helper may take to remove the keys, of whose trying it gives up earlier.
const END_TIME: Duration = Duration::from_secs(15);
/// How often this process looks whether the helper has ended.
const LOOK: Duration = Duration::from_millis(2);

/// What the helper is told: one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Orders {
    /// The server's address.
    pub(super) address: String,
    /// The run's name, which no other run has.
    pub(super) run: String,
    /// Paths by which the helper opens the mappings.
    pub(super) requests: String,
    pub(super) control: String,
}

/// A server's memory as the store of a run.
#[derive(Debug)]
pub(crate) struct RemoteStore {
    address: String,
    /// How long a read took before the program was started.
    read: ReadTime,
    shared: Shared<Remote>,
}

/// What a server would take.
pub(crate) struct Offer {
    /// Its address.
    address: String,
    patience: Duration,
    read: ReadTime,
    /// Bytes that it may be given.
    pub(crate) limit_bytes: u64,
}

/// Finds out whether the server that was chosen can keep pages.
///
/// # Errors
/// Why it cannot.
pub(crate) fn ask(
    choice: &ServerChoice,
    limit_bytes: Option<u64>,
    most_bytes: u64,
    notices: &mut Notices,
) -> Result<Offer, Failure> {
    let server = Server::at(&choice.address);
    let server = server.map_err(|reason| Failure::own(format!("--store: {reason}")))?;
    let refused = |reason: String| Failure::own(format!("--store {}: {reason}", server.shown()));
    let found = server.check().map_err(refused)?;
    if let Some(policy) = found.evicts_by {
        let what = format!("evicts keys when its memory is full (maxmemory-policy {policy})");
        if choice.mirror.is_none() {
            return Err(refused(format!(
                "{what}, which loses pages: set it to noeviction, or give --store-mirror DIR"
            )));
        }
        notices.warn(&format!(
            "--store {}: {what}: pages that it evicts come from the mirror",
            server.shown()
        ));
    }
    let room_bytes = found.room_bytes.unwrap_or(u64::MAX);
    if room_bytes < MIN_STORE_BYTES {
        return Err(refused(format!(
            "its memory is full ({} left): raise its maxmemory, or give --store DIR",
            size::display(room_bytes)
        )));
    }
    if server.is_local() {
        notices.warn(&format!(
            "--store {}: on this machine: spilled pages stay in its RAM and are not counted in the \
             budget; a server on another machine frees it",
            server.shown()
        ));
    }
    let offered_bytes = (room_bytes - room_bytes / 10).min(most_bytes);
    let limit_bytes = limit_bytes.unwrap_or(offered_bytes);
    Ok(Offer {
        address: choice.address.clone(),
        patience: choice.patience,
        read: found.read,
        limit_bytes,
    })
}

impl RemoteStore {
    /// Makes the mapping in which the agents ask for clusters.
    ///
    /// # Errors
    /// The system has no memory or no descriptor left.
    pub(crate) fn new(offer: Offer) -> Result<Self, Failure> {
        let limit_bytes = offer.limit_bytes.min(Place::STORE_BYTES_MAX);
        let clusters = (limit_bytes / CLUSTER_BYTES as u64) as u32;
        let patience_ns = offer.patience.as_nanos() as u64;
        let remote = Remote::new(clusters, CLUSTER_BYTES as u32, patience_ns);
        let length_bytes = remote.mapping_bytes();
        let shared = Shared::new(remote, length_bytes, "zpager-remote", "requests")?;
        Ok(RemoteStore { address: offer.address, read: offer.read, shared })
    }

    /// How much it may hold, in bytes.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.shared.limit_bytes()
    }

    /// How long a read took before the program was started.
    pub(crate) fn read_time(&self) -> ReadTime {
        self.read
    }

    /// The requests.
    pub(crate) fn requests(&self) -> Requests<'_> {
        // SAFETY: the mapping was made that long in `new`, and zero.
        unsafe { Requests::behind(&self.shared) }
    }

    /// What the helper did.
    pub(crate) fn counts(&self) -> &RemoteCounts {
        &self.shared.counts
    }
}

impl AsRawFd for RemoteStore {
    fn as_raw_fd(&self) -> i32 {
        std::os::fd::AsFd::as_fd(&self.shared).as_raw_fd()
    }
}

/// The helper of a run.
#[derive(Debug)]
pub(crate) struct Helper {
    child: Child,
}

impl Helper {
    /// Starts the helper and waits until it is connected.
    ///
    /// # Errors
    /// It could not be started, or does not reach the server.
    pub(crate) fn start(store: &RemoteStore, control: &SharedControl) -> Result<Self, Failure> {
        let orders = Orders {
            address: store.address.clone(),
            run: random_name().or_fail("making a name for the run")?,
            requests: own_path(&store.shared),
            control: own_path(control),
        };
        let mut command = Command::new("/proc/self/exe");
        command.arg0("zpager").arg(COMMAND);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        // SAFETY: a system call and nothing else between fork(2) and execve(2).
        unsafe {
            command.pre_exec(|| {
                rustix::process::setsid()?;
                Ok(())
            });
        }
        let mut child = command.spawn().or_fail("starting the helper of the remote store")?;
        let mut line = serde_json::to_string(&orders).or_fail("the helper's orders")?;
        line.push('\n');
        let input = child.stdin.as_mut().expect("a pipe was asked for");
        input.write_all(line.as_bytes()).or_fail("telling the helper what to do")?;
        let mut helper = Helper { child };
        helper.wait_until_up(store.requests())?;
        Ok(helper)
    }

    fn wait_until_up(&mut self, requests: Requests<'_>) -> Result<(), Failure> {
        let deadline = Instant::now() + START_TIME;
        while !requests.wait_until_up(100_000_000) {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(Failure::own(format!("the helper of the remote store: {status}")));
            }
            if Instant::now() > deadline {
                return Err(Failure::own(
                    "the helper of the remote store does not reach the server: see whether it still \
                     answers, or give --store DIR",
                ));
            }
        }
        Ok(())
    }

    /// The process.
    pub(crate) fn pid(&self) -> pid_t {
        self.child.id().cast_signed()
    }

    /// Tells the helper that the run is over.
    pub(crate) fn tell_of_end(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Waits until it has removed the run's keys; does not wait where processes of the run go on and
    /// need it.
    pub(crate) fn wait_for_end(&self, control: &SharedControl) {
        let deadline = Instant::now() + END_TIME;
        while !is_used(control) && Instant::now() < deadline {
            // By its id, as it may have been waited for already.
            let pid = Pid::from_raw(self.pid()).expect("the id of a process");
            match rustix::process::waitpid(Some(pid), WaitOptions::NOHANG) {
                Ok(None) => std::thread::sleep(LOOK),
                _ => return,
            }
        }
    }
}

/// Whether a process of the run lives that may have pages in the store.
pub(super) fn is_used(control: &zpager_wire::Control) -> bool {
    let pids =
        control.processes.in_use().map(|slot| slot.pid.load(std::sync::atomic::Ordering::Relaxed));
    pids.into_iter().any(|pid| pid > 0 && !is_gone(pid))
}

/// A name that nobody else has.
fn random_name() -> rustix::io::Result<String> {
    let bytes = random::<16>()?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ() {
        let [first, second] = [(), ()].map(|()| random_name().expect("a name"));
        assert!(first.len() == 32 && first != second);
    }

    #[test]
    fn orders_are_one_line() {
        let [address, run, requests, control] =
            ["unix:///a b", "1", "/proc/1/fd/2", "x\ny"].map(str::to_owned);
        let orders = Orders { address, run, requests, control };
        let line = serde_json::to_string(&orders).expect("JSON");
        assert!(!line.contains('\n'));
        let read: Orders = serde_json::from_str(&line).expect("orders");
        assert_eq!((read.address, read.control), (orders.address, orders.control));
    }
}
