//! By which ids this process is known: by one to itself and its namespace, and by one to the run.
//!
//! In a pid namespace of its own a process is 1, 2 and so on, and numbers of others mean nothing there. The
//! run knows all of its processes by their ids in the supervisor's namespace. A process reads that of
//! itself by a descriptor of the supervisor's `/proc/self`, which it keeps for its children: such a link
//! reads as the id of whoever reads it, also in a sandbox with a `/proc` of its own or without any.
//!
//! Source: pid_namespaces(7); fs/proc/self.c of Linux.
//!
//! Invariant: what is noted here is of the process whose memory this is. A child that shares it for a while
//! has other ids, and may be in a namespace of its own: whoever goes by ids asks first whether those that the
//! calling thread knows are the run's ([`Process::sees_run`](crate::process::Process)).

use core::sync::atomic::{
    AtomicI32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use zpager_sys::file::Fd;
use zpager_sys::{Errno, process};
use zpager_wire::{Known, LINK, ProcessSlot};

use crate::start::{kept, passed};

const ENOENT: Errno = Errno(2);
/// The supervisor's namespace of process ids, and one of which `/proc` does not tell.
const SUPERVISORS: u64 = 0;
const UNKNOWN: u64 = u64::MAX;

static RUN_PID: AtomicI32 = AtomicI32::new(0);
static NAMESPACE: AtomicU64 = AtomicU64::new(SUPERVISORS);
/// The descriptor by which it reads what the run calls it, or -1.
static KEPT_LINK: AtomicI32 = AtomicI32::new(-1);

/// By what a process is known to others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity {
    /// What the run calls it.
    run_pid: i32,
    /// The namespace of its own ids.
    namespace: u64,
}

impl Identity {
    /// The calling process's, which is known so.
    fn of(known: Known) -> Self {
        let namespace = match known.is_nested {
            true => process::namespace().unwrap_or(UNKNOWN),
            false => SUPERVISORS,
        };
        Identity { run_pid: known.run_pid, namespace }
    }

    /// The calling process's, which need not be the one that is noted. `is_seen`: its ids are what they are to
    /// that one.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn look(is_seen: bool) -> Result<Self, Errno> {
        let is_nested = is_nested() || !is_seen;
        let run_pid = if is_nested { process::id_by(Fd(link()))? } else { process::pid() };
        Ok(Identity::of(Known { run_pid, is_nested }))
    }

    /// What the run calls it.
    pub(crate) fn run_pid(self) -> i32 {
        self.run_pid
    }

    /// This memory is that process's from now on.
    pub(crate) fn become_noted(self) {
        RUN_PID.store(self.run_pid, Relaxed);
        NAMESPACE.store(self.namespace, Release);
    }
}

/// What the run calls this process.
pub(crate) fn run_pid() -> i32 {
    RUN_PID.load(Relaxed)
}

/// What the run calls who asks.
pub(crate) fn asking_pid() -> i32 {
    process::id_by(Fd(link())).unwrap_or_else(|_| run_pid())
}

/// Whether its ids are others than the run's.
pub(crate) fn is_nested() -> bool {
    NAMESPACE.load(Acquire) != SUPERVISORS
}

/// That descriptor.
pub(crate) fn link() -> i32 {
    KEPT_LINK.load(Relaxed)
}

/// Whether the caller's `/proc` is the supervisor's: what that has is found there by its id.
pub(crate) fn shares_proc() -> bool {
    process::id_by_proc().is_ok_and(|pid| process::id_by(Fd(link())) == Ok(pid))
}

/// This process is known so.
pub(crate) fn become_known(known: Known) {
    Identity::of(known).become_noted();
}

/// Opens the link, or takes what the supervisor has passed of it.
///
/// # Errors
/// The kernel's; `ENOENT` where `/proc` is another one.
pub(crate) fn open_link() -> Result<(), Errno> {
    if link() >= 0 {
        return Ok(());
    }
    let opened = passed(LINK).unwrap_or_else(process::open_link)?;
    if process::id_by(opened) != Ok(run_pid()) {
        opened.close();
        return Err(ENOENT);
    }
    KEPT_LINK.store(kept(opened).0, Relaxed);
    Ok(())
}

/// Has others of its namespace find the process by its slot, which is `pid` to itself.
pub(crate) fn tell(slot: &ProcessSlot, pid: i32) {
    slot.own_pid.store(pid, Relaxed);
    slot.namespace.store(NAMESPACE.load(Relaxed), Release);
}

/// Whether a slot is of the process that is `pid` to this one.
pub(crate) fn is_of(slot: &ProcessSlot, pid: i32) -> bool {
    match NAMESPACE.load(Relaxed) {
        SUPERVISORS => slot.pid.load(Relaxed) == pid,
        UNKNOWN => false,
        own => slot.namespace.load(Acquire) == own && slot.own_pid.load(Relaxed) == pid,
    }
}
