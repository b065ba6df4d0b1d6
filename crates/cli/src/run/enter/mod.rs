//! Entering running programs: the agent that lies in their image is made to manage
//! them, between two of their instructions.
//!
//! A process is stopped as a whole, the agent's entry ([`zpager_wire::Entry`]) is
//! called in each of its threads, and all go on where they were. Sources: ptrace(2),
//! signal(7). Bad for programs with thousands of threads: all stand still while they
//! are entered one after the other.

mod hold;
mod ptrace;
mod restart;
#[cfg(test)]
mod tests;
mod thread;

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use libc::{c_int, pid_t};
use zpager_sys::process::Confinement;
use zpager_wire::Entry;

use super::image;
use super::supervisor::children_of;
use crate::failure::{Failure, OrFail};
use hold::{Hold, Stragglers};
use ptrace::Report;
use thread::Trouble;

/// `KCMP_VM`: compare the memory of two processes (kcmp(2)).
const KCMP_VM: c_int = 1;

/// `AT_BASE`: where the dynamic loader is (getauxval(3)).
const AT_BASE: u64 = 7;

/// What became of an attempt to enter a process.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is managed from now on; these children it had made before.
    Entered { children: Vec<pid_t> },
    /// It was managed already.
    Managed,
    /// It cannot be entered at the moment; nothing was changed.
    Later,
    /// It is gone.
    Gone,
    /// The agent is not in its image, for now or for ever.
    NoAgent,
    /// It is confined so that it cannot be managed.
    Sandboxed,
    /// It cannot be managed, for this error number; it goes on without zpager.
    Impossible(i32),
    /// The agent failed inside it and left it in no state to go on.
    Broken,
}

/// Enters processes of one run.
#[derive(Debug)]
pub(crate) struct Entrance {
    /// The agent's file, by which it is found in a process's mappings.
    agent_inode: u64,
    /// What this process is confined by.
    own: Confinement,
    stragglers: Stragglers,
}

impl Entrance {
    /// Prepares for processes that have loaded this agent.
    ///
    /// # Errors
    /// The agent's file cannot be examined.
    pub(crate) fn new(agent: &OwnedFd) -> Result<Self, Failure> {
        let found = rustix::fs::fstat(agent).or_fail("examining the agent's file")?;
        let (own, stragglers) = (Confinement::own(), Stragglers::default());
        Ok(Entrance { agent_inode: found.st_ino, own, stragglers })
    }

    /// Whether a process is confined by more than this one.
    pub(crate) fn is_sandboxed(&self, pid: pid_t) -> bool {
        let status = std::fs::read(format!("/proc/{pid}/status")).unwrap_or_default();
        Confinement::of(&status).exceeds(self.own)
    }

    /// Enters a process, with the agent's entry at `entry_offset` of its image.
    pub(crate) fn enter(&mut self, pid: pid_t, entry_offset: u64) -> Outcome {
        // A process without the agent is not even stopped.
        match maps_of(pid) {
            Ok(maps) if base_of(&maps, self.agent_inode).is_none() => return Outcome::NoAgent,
            Ok(_) => {}
            Err(trouble) => return outcome_of(trouble),
        }
        let mut hold = match Hold::stop(pid, &mut self.stragglers) {
            Ok(hold) => hold,
            Err(trouble) => return outcome_of(trouble),
        };
        let entered = self.enter_held(pid, &mut hold, entry_offset);
        hold.release();
        match entered {
            Ok(children) => Outcome::Entered { children },
            Err(outcome) => outcome,
        }
    }

    /// Enters a process that stands still; gives the children that it has made so far.
    fn enter_held(
        &self,
        pid: pid_t,
        hold: &mut Hold,
        entry_offset: u64,
    ) -> Result<Vec<pid_t>, Outcome> {
        let maps = maps_of(pid).map_err(outcome_of)?;
        let base = base_of(&maps, self.agent_inode).ok_or(Outcome::NoAgent)?;
        if self.is_in_passage(pid, &maps, hold) {
            return Err(Outcome::Later);
        }
        enter_all(hold, base + entry_offset)?;
        Ok(children_of(pid).unwrap_or_default())
    }

    /// Whether a held process is at a point where the agent must not be called: inside the agent,
    /// which may be about to manage the process by itself, or still in the hands of the dynamic
    /// loader, which may not have relocated the agent yet.
    fn is_in_passage(&self, pid: pid_t, maps: &str, hold: &Hold) -> bool {
        let inode_at = |address: u64| {
            let found = mappings(maps).find(|found| (found.start..found.end).contains(&address));
            found.map_or(0, |found| found.inode)
        };
        let loader_inode = loader_of(pid).map_or(0, inode_at);
        let mut inodes = hold.threads.iter().map(|thread| inode_at(thread.instruction()));
        inodes.any(|inode| inode == self.agent_inode || (inode == loader_inode && inode != 0))
    }

    /// Lets go of threads that stopped only after the attempt they were to stop for.
    pub(crate) fn release_stragglers(&mut self) {
        self.stragglers.release_stopped();
    }

    /// Whether a wait status is about a thread of such an attempt, which is then dealt with.
    pub(crate) fn take(&mut self, pid: pid_t, status: c_int) -> bool {
        self.stragglers.take(pid, status)
    }

    /// Whether there are threads that have not stopped yet.
    pub(crate) fn has_stragglers(&self) -> bool {
        !self.stragglers.is_empty()
    }
}

/// The mappings of a process.
fn maps_of(pid: pid_t) -> Result<String, Trouble> {
    std::fs::read_to_string(format!("/proc/{pid}/maps")).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Trouble::Gone,
        _ => Trouble::from(error),
    })
}

fn outcome_of(trouble: Trouble) -> Outcome {
    match trouble {
        Trouble::Gone => Outcome::Gone,
        Trouble::Lost => Outcome::Later,
        Trouble::Refused(libc::EALREADY) => Outcome::Managed,
        Trouble::Refused(error) => Outcome::Impossible(error),
        Trouble::System(error) => Outcome::Impossible(error.raw_os_error().unwrap_or(libc::EIO)),
    }
}

/// Calls the entry in every thread of a held process.
fn enter_all(hold: &mut Hold, address: u64) -> Result<(), Outcome> {
    let (first, others) = hold.threads.split_first_mut().expect("a hold has a thread");
    match first.enter(address, Entry::Process) {
        Ok(()) => {}
        Err(Trouble::Lost) => return Err(Outcome::Broken),
        Err(trouble) => return Err(outcome_of(trouble)),
    }
    for thread in others {
        match thread.enter(address, Entry::Thread) {
            Ok(()) | Err(Trouble::Gone) => {}
            // The process is managed and this thread's system calls would meet absent pages.
            Err(_) => return Err(Outcome::Broken),
        }
    }
    Ok(())
}

/// Where the dynamic loader lies in a process.
fn loader_of(pid: pid_t) -> Option<u64> {
    let auxiliary = std::fs::read(format!("/proc/{pid}/auxv")).ok()?;
    let (pairs, _) = auxiliary.as_chunks::<16>();
    // Key and value, eight bytes each.
    let mut pairs = pairs.iter().map(|pair| u128::from_ne_bytes(*pair));
    pairs.find(|pair| *pair as u64 == AT_BASE).map(|pair| (pair >> 64) as u64)
}

/// One line of `/proc/PID/maps`.
#[derive(Debug, PartialEq, Eq)]
struct Mapping<'a> {
    start: u64,
    end: u64,
    offset: u64,
    inode: u64,
    name: &'a str,
}

/// The mappings of a process (proc(5)).
fn mappings(maps: &str) -> impl Iterator<Item = Mapping<'_>> {
    maps.lines().filter_map(|line| {
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
        let (start, end) = (hexadecimal(start)?, hexadecimal(end)?);
        let offset = hexadecimal(fields.nth(1)?)?;
        let inode = fields.nth(1)?.parse().ok()?;
        Some(Mapping { start, end, offset, inode, name: fields.next().unwrap_or("").trim() })
    })
}

/// Where the agent's image begins in a process.
fn base_of(maps: &str, agent_inode: u64) -> Option<u64> {
    let name = format!("/memfd:{}", image::NAME);
    mappings(maps)
        .filter(|found| found.inode == agent_inode && found.name.starts_with(&name))
        .filter(|found| found.offset == 0)
        .map(|found| found.start)
        .min()
}

/// Whether two processes share their memory, as a child of vfork(2) does with its parent; `None`
/// when the kernel does not tell.
pub(crate) fn share_memory(first: pid_t, second: pid_t) -> Option<bool> {
    // SAFETY: kcmp(2) reads nothing but its arguments.
    match unsafe { libc::syscall(libc::SYS_kcmp, first, second, KCMP_VM, 0, 0) } {
        0 => Some(true),
        1.. => Some(false),
        _ => None,
    }
}

/// Finds out by trying whether processes can be entered here: a seccomp filter or a security
/// module may forbid ptrace(2) or kcmp(2).
pub(crate) fn is_permitted() -> bool {
    // SAFETY: the child makes only system calls until it is killed.
    let child = match unsafe { libc::fork() } {
        -1 => return false,
        0 => loop {
            // SAFETY: pause has no arguments and touches no memory.
            unsafe { libc::pause() };
        },
        child => child,
    };
    let stopped = ptrace::seize(child)
        .and_then(|()| ptrace::interrupt(child))
        .is_ok_and(|()| stops_soon(child));
    let compared = share_memory(child, std::process::id().cast_signed()) == Some(false);
    // SAFETY: the child was not waited for to its end, so the id is its own.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), libc::__WALL);
    }
    stopped && compared
}

/// Waits for the stop of a thread that has nothing else to do; on a busy machine it has to come to
/// a processor first.
fn stops_soon(tid: pid_t) -> bool {
    const LIMIT: Duration = Duration::from_secs(5);
    const LOOK_INTERVAL: Duration = Duration::from_micros(50);
    let began = Instant::now();
    while began.elapsed() < LIMIT {
        match ptrace::look(tid) {
            Report::Halted => return true,
            Report::Nothing => std::thread::sleep(LOOK_INTERVAL),
            Report::Signal(_) | Report::Gone => return false,
        }
    }
    false
}
