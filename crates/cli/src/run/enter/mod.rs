//! Entering running programs: the agent that lies in their image is made to manage
//! them, between two of their instructions. A program into which no loader has brought the agent
//! is given it before ([`place`]), and one that may not open what the supervisor holds is passed
//! that ([`pass`]).
//!
//! A process is stopped as a whole, the agent's entry ([`zpager_wire::Entry`]) is
//! called in each of its threads, and all go on where they were. Sources: ptrace(2),
//! signal(7). Several processes stand still together until the last of them is entered: one that
//! went on before could fill what the memory of the others, which is not counted yet, has taken.
//! Bad for programs with thousands of threads: all stand still while they are entered one after
//! the other.

mod caller;
mod hold;
mod layout;
mod loading;
mod machines;
mod memories;
mod pass;
mod place;
mod ptrace;
mod restart;
mod rings;
#[cfg(test)]
mod tests;
mod thread;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use libc::{c_int, pid_t};
use zpager_sys::process::Confinement;
use zpager_wire::{CONTROL_VARIABLE, Control, Entry, Known, LINK, MAPS, PAGEMAP};

use super::control::SharedControl;
use super::image;
use super::linkage::Linkage;
use super::living::{living_thread, proc_file};
use super::session::own_path;
use super::supervisor::{Tree, children_of};
use crate::failure::{Failure, OrFail};
use crate::proc_text;
use caller::Caller;
use hold::{Hold, Stopping, Stragglers};
use layout::Layout;
use loading::Credentials;
pub(crate) use memories::{share_memory, threads_share_memory};
use pass::Handed;
use place::Given;
use ptrace::Report;
use thread::{StoppedThread, Trouble};

/// How `/proc` names files that are memory (memfd_create(2)).
const MEMORY_FILE: &str = "/memfd:";

/// `AT_BASE`: where the dynamic loader is (getauxval(3)).
const AT_BASE: u64 = 7;

/// `AT_SECURE`: whether the program has more privileges than who started it.
const AT_SECURE: u64 = 23;

/// Processes, what they forked until they stood still, what that forked until then, and so on.
const GENERATIONS_MAX: usize = 8;

/// What became of an attempt to enter a process.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is managed from now on; these children it had made before.
    Entered { children: Vec<pid_t> },
    /// It was managed already.
    Managed,
    /// It cannot be entered at the moment; nothing was changed.
    Later,
    /// Nor can this one, as one of its threads sleeps where it cannot be stopped.
    Asleep,
    /// It is gone.
    Gone,
    /// The agent is not in its image, for now or for ever, and is not to be brought by anybody but a
    /// loader.
    NoAgent,
    /// It is confined so that it cannot be managed.
    Sandboxed,
    /// It has an io_uring, by which the kernel uses memory that may be absent then ([`rings`]).
    HasRing,
    /// It has a virtual machine, or a thread of the kernel's ([`machines`]).
    HasMachine,
    /// No process can be entered here ([`is_permitted`]): it is managed if a loader brings the agent.
    NotPermitted,
    /// It cannot be managed, for this error number; it goes on without zpager.
    Impossible(i32),
    /// The agent failed inside it and left it in no state to go on.
    Broken,
}

/// How far the agent is in the image of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    Absent,
    /// It is there, and was not called so far, or has found no run.
    Mapped,
    /// It was called, and has found this run.
    Begun,
}

/// Enters processes of one run.
#[derive(Debug)]
pub(crate) struct Entrance {
    /// The agent's file, by which it is found in a process's mappings.
    agent_inode: u64,
    control_inode: u64,
    agent_fd: RawFd,
    agent_path: String,
    layout: Layout<'static>,
    control_fd: RawFd,
    control_path: String,
    /// Everything that a process opens of this one.
    descriptors: Vec<RawFd>,
    /// What this process is confined by, and what it is for others.
    own: Confinement,
    own_files: [Option<PathBuf>; 2],
    credentials: Option<Credentials>,
    stragglers: Stragglers,
    /// How often several processes were entered together.
    turns: u32,
}

impl Entrance {
    /// Prepares for processes that have loaded this agent or are given it, to be of the run with
    /// this control block.
    ///
    /// # Errors
    /// The agent's file cannot be examined, or is not what can be put into a process.
    pub(crate) fn new(agent: &OwnedFd, control: &SharedControl) -> Result<Self, Failure> {
        let found = rustix::fs::fstat(agent).or_fail("examining the agent's file")?;
        let block = rustix::fs::fstat(control).or_fail("examining the control block's file")?;
        let layout = Layout::of(image::AGENT).map_err(|why| {
            Failure::own(format!("this build's agent cannot be put into programs: it has {why}"))
        })?;
        let control_fd = control.as_fd().as_raw_fd();
        Ok(Entrance {
            agent_inode: found.st_ino,
            control_inode: block.st_ino,
            agent_fd: agent.as_raw_fd(),
            agent_path: own_path(agent),
            layout,
            control_fd,
            control_path: own_path(control),
            descriptors: control.settings.descriptors().chain([control_fd]).collect(),
            own: Confinement::own(),
            own_files: files_of(std::process::id().cast_signed()),
            credentials: Credentials::of(std::process::id().cast_signed()),
            stragglers: Stragglers::default(),
            turns: 0,
        })
    }

    /// Enters processes of a tree, in which the agent was seen to be so far; gives what became of each, in no order.
    ///
    /// While they stand still no file of theirs is opened: one of them may be who serves it (fuse(4)).
    pub(crate) fn enter(
        &mut self,
        pids: &[(pid_t, Presence)],
        tree: &mut Tree,
        control: &Control,
    ) -> Vec<(pid_t, Outcome)> {
        let mut outcomes = Vec::new();
        if pids.is_empty() {
            return outcomes;
        }
        let stopping = self.begin_stopping(pids, control, &mut outcomes);
        let mut holds = self.stop(stopping, tree, control, &mut outcomes);
        let is_turn = holds.len() > 1;
        if is_turn {
            self.turns = self.turns.wrapping_add(1).max(1);
            control.kin_turn.store(self.turns, Relaxed);
        }
        for (hold, pid, program) in &mut holds {
            let entered = self
                .enter_held(*pid, program, hold)
                .and_then(|at| if is_turn { share(hold, at) } else { Ok(()) });
            if entered == Err(Outcome::Broken) {
                // SAFETY: it is held, and cannot go on.
                unsafe { libc::kill(*pid, libc::SIGKILL) };
            }
            let children = || children_of(*pid).unwrap_or_default();
            let outcome =
                entered.map_or_else(|other| other, |()| Outcome::Entered { children: children() });
            outcomes.push((*pid, outcome));
        }
        control.kin_turn.store(0, Relaxed);
        holds.into_iter().for_each(|(hold, ..)| hold.release());
        outcomes
    }

    /// Asks those to stop that can be entered, as far as that shows before.
    fn begin_stopping(
        &mut self,
        pids: &[(pid_t, Presence)],
        control: &Control,
        outcomes: &mut Vec<(pid_t, Outcome)>,
    ) -> Vec<(Stopping, pid_t, Program)> {
        let is_absent = |(_, seen): &(pid_t, Presence)| *seen == Presence::Absent;
        let (absent, present): (Vec<_>, Vec<_>) = pids.iter().copied().partition(is_absent);
        // Their files are looked at, too, so all of that comes before anybody is stopped.
        let examined: Vec<_> =
            absent.into_iter().map(|(pid, _)| (pid, self.examine(pid, control))).collect();
        // Those that have the agent fill memory until they are asked to stop, so little is looked at before.
        let mut stopping = Vec::new();
        let mut begin = |stragglers: &mut Stragglers, pid, program| match program {
            Ok(program) => stopping.push((Stopping::begin(pid, stragglers), pid, program)),
            Err(outcome) => outcomes.push((pid, outcome)),
        };
        for (pid, _) in present {
            let program = self.recognise(pid, control);
            begin(&mut self.stragglers, pid, program);
        }
        for (pid, program) in examined {
            begin(&mut self.stragglers, pid, program);
        }
        stopping
    }

    /// Waits until they stand still, and those that they have forked until then; gives those that can be entered.
    fn stop(
        &mut self,
        mut stopping: Vec<(Stopping, pid_t, Program)>,
        tree: &mut Tree,
        control: &Control,
        outcomes: &mut Vec<(pid_t, Outcome)>,
    ) -> Vec<(Hold, pid_t, Program)> {
        let mut holds = Vec::new();
        for generation in 1..=GENERATIONS_MAX {
            for (stopping, pid, program) in stopping.drain(..) {
                match stopping.finish(&mut self.stragglers).map_err(outcome_of) {
                    Ok(hold) => holds.push((hold, pid, program)),
                    // The kernel may not let its own threads in a process be stopped.
                    Err(Outcome::Impossible(error)) => {
                        let outcome = used_by_kernel_now(pid);
                        outcomes.push((pid, outcome.unwrap_or(Outcome::Impossible(error))));
                    }
                    Err(outcome) => outcomes.push((pid, outcome)),
                }
            }
            // Until it stood still it can have made another one, that has its memory or is its copy.
            tree.refresh();
            if generation < GENERATIONS_MAX {
                let forked = self.forked_by(&holds, outcomes, tree);
                stopping = self.begin_stopping(&forked, control, outcomes);
            }
            if stopping.is_empty() {
                break;
            }
        }
        let sharing = tree.sharing(holds.iter().map(|(_, pid, _)| *pid));
        let hinders = |pid: pid_t| match sharing.contains(&pid) {
            true => Some(Outcome::Later),
            false => used_by_kernel_now(pid),
        };
        let enterable = holds.into_iter().filter_map(|(hold, pid, program)| match hinders(pid) {
            None => Some((hold, pid, program)),
            Some(outcome) => {
                hold.release();
                outcomes.push((pid, outcome));
                None
            }
        });
        enterable.collect()
    }

    /// Those that held processes have forked and that were not tried so far: what they have in common with their
    /// parents would be counted again if they were entered later.
    fn forked_by(
        &self,
        holds: &[(Hold, pid_t, Program)],
        tried: &[(pid_t, Outcome)],
        tree: &Tree,
    ) -> Vec<(pid_t, Presence)> {
        let held: BTreeSet<pid_t> = holds.iter().map(|(_, pid, _)| *pid).collect();
        let tried: BTreeSet<pid_t> = tried.iter().map(|(pid, _)| *pid).collect();
        let is_new = |pid: &pid_t| !held.contains(pid) && !tried.contains(pid);
        let made = tree.processes().filter(|(pid, parent)| is_new(pid) && held.contains(parent));
        // What a parent runs is looked up once, however many it has forked.
        let mut programs = BTreeMap::new();
        let forked = made.filter(|(pid, parent)| {
            let program = programs.entry(*parent).or_insert_with(|| auxiliary_of(*parent));
            auxiliary_of(*pid) == *program
        });
        let seen = forked.map(|(pid, _)| (pid, self.presence_in(pid)));
        // To put the agent into a program takes a look at its file, which somebody who is held may serve.
        seen.filter(|(_, presence)| *presence != Presence::Absent).collect()
    }

    /// Looks at a process that has no agent and is to be entered, and whether it can be.
    fn examine(&self, pid: pid_t, control: &Control) -> Result<Program, Outcome> {
        let program = self.recognise(pid, control)?;
        let maps = maps_of(pid).map_err(outcome_of)?;
        if let Some(outcome) = used_by_kernel(pid, &maps) {
            return Err(outcome);
        }
        // A loader has brought it meanwhile, and the program may be managed, and in calls that a stop cuts short.
        if base_of(&maps, self.agent_inode).is_some() {
            return Err(Outcome::Later);
        }
        let finds_agent = files_of(pid) == self.own_files || self.is_found_from(pid);
        let without_agent = WithoutAgent::of(pid, finds_agent);
        match self.may_be_given(pid, &without_agent, &maps) {
            true => Ok(Program { without_agent: Some(without_agent), ..program }),
            false => Err(Outcome::NoAgent),
        }
    }

    /// What is known of a process that has the agent and is to be entered, unless it is confined.
    fn recognise(&self, pid: pid_t, control: &Control) -> Result<Program, Outcome> {
        let confinement = Confinement::of(&status_of(living_thread(pid)));
        if confinement.filters > self.own.filters {
            return Err(Outcome::Sandboxed);
        } else if !is_permitted() {
            return Err(Outcome::NotPermitted);
        }
        Ok(Program {
            is_nested: confinement.ids > self.own.ids,
            waits_with_call: control.large_calls.has_of(pid),
            without_agent: None,
        })
    }

    /// How far the agent is in the image of a process.
    pub(crate) fn presence_in(&self, pid: pid_t) -> Presence {
        let maps = maps_of(pid).unwrap_or_default();
        let is_control = |found: Mapping<'_>| {
            found.inode == self.control_inode && found.name.starts_with(MEMORY_FILE)
        };
        match base_of(&maps, self.agent_inode) {
            None => Presence::Absent,
            Some(_) if mappings(&maps).any(is_control) => Presence::Begun,
            Some(_) => Presence::Mapped,
        }
    }

    /// Whether the agent's path is the agent's for a process, too, which may have a `/proc` of its own or none.
    fn is_found_from(&self, pid: pid_t) -> bool {
        let found = std::fs::metadata(proc_file(pid, &format!("root{}", self.agent_path)));
        found.is_ok_and(|found| found.ino() == self.agent_inode)
    }

    /// Enters a process that stands still; gives where.
    fn enter_held(&self, pid: pid_t, program: &Program, hold: &mut Hold) -> Result<At, Outcome> {
        // What has the agent finds out by itself whether `/proc` is this process's. In another one the agent's
        // path may be somebody else's.
        let without_agent = program.without_agent.as_ref();
        if without_agent.is_none_or(|found| found.finds_agent)
            || self.presence_in(pid) != Presence::Absent
        {
            match self.enter_with(pid, program, hold, None) {
                // By what it is it may not open what this process holds, or does not even see it.
                Err(Outcome::Impossible(libc::EACCES | libc::ENOENT)) => {}
                entered => return entered,
            }
        }
        let handed = self.with_caller(pid, hold, |caller| self.pass(pid, caller))?;
        self.enter_with(pid, program, hold, Some(&handed))
    }

    /// The same for one that has been passed what it may not open, which it gives back.
    fn enter_with(
        &self,
        pid: pid_t,
        program: &Program,
        hold: &mut Hold,
        handed: Option<&Handed>,
    ) -> Result<At, Outcome> {
        let base = self.base_in(pid, program, hold, handed);
        if let (Err(_), Some(handed)) = (&base, handed) {
            self.with_caller(pid, hold, |caller| {
                handed.take_back(caller);
                Ok(())
            })?;
        }
        let at = At {
            entry: base? + self.layout.entry,
            passed: handed.map_or(0, Handed::table_address),
            known: program.known(pid),
        };
        enter_all(hold, at)?;
        Ok(at)
    }

    /// Where the agent is in a held process, which is given it if it has none.
    fn base_in(
        &self,
        pid: pid_t,
        program: &Program,
        hold: &mut Hold,
        handed: Option<&Handed>,
    ) -> Result<u64, Outcome> {
        let maps = maps_of(pid).map_err(outcome_of)?;
        let base = base_of(&maps, self.agent_inode);
        if let Some(base) = base {
            let is_in_passage = self.is_in_passage(program, &maps, base, hold);
            return if is_in_passage { Err(Outcome::Later) } else { Ok(base) };
        }
        match &program.without_agent {
            Some(found) if found.is_in(pid) && self.may_be_given(pid, found, &maps) => {
                self.give(pid, program, &maps, hold, handed)
            }
            // It has begun another one until it stood still.
            Some(_) => Err(Outcome::NoAgent),
            None => Err(Outcome::Later),
        }
    }

    /// Puts the agent into a held process that has none; gives where.
    fn give(
        &self,
        pid: pid_t,
        program: &Program,
        maps: &str,
        hold: &mut Hold,
        handed: Option<&Handed>,
    ) -> Result<u64, Outcome> {
        let thread = hold.threads.first_mut().expect("a hold has a thread");
        let Entrance { layout, agent_fd, agent_path, control_fd, .. } = self;
        let given = Given {
            layout,
            agent_fd: *agent_fd,
            agent_path,
            control_fd: *control_fd,
            known: program.known(pid),
            handed,
        };
        place::place(thread, maps, given).map_err(outcome_of_calls)
    }

    /// Passes a held process what it may not open.
    fn pass(&self, pid: pid_t, caller: &mut Caller<'_>) -> Result<Handed, Trouble> {
        let descriptors = self.descriptors.iter();
        // SAFETY: the session has them open for longer than it has processes entered.
        let borrow = |descriptor| unsafe { BorrowedFd::borrow_raw(descriptor) };
        let descriptors = descriptors.map(|descriptor| (*descriptor, borrow(*descriptor)));
        let link = File::options().read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW).clone();
        let own = [
            (PAGEMAP, File::open(proc_file(pid, "pagemap"))),
            (MAPS, File::open(proc_file(pid, "maps"))),
            (LINK, link.open("/proc/self")),
        ];
        let own = own.iter().filter_map(|(name, file)| Some((*name, file.as_ref().ok()?.as_fd())));
        Handed::give(pid, caller, &descriptors.chain(own).collect::<Vec<_>>())
    }

    /// Has a thread of a held process make system calls.
    fn with_caller<R>(
        &self,
        pid: pid_t,
        hold: &mut Hold,
        work: impl FnOnce(&mut Caller<'_>) -> Result<R, Trouble>,
    ) -> Result<R, Outcome> {
        let maps = maps_of(pid).map_err(outcome_of)?;
        let thread = hold.threads.first_mut().expect("a hold has a thread");
        let mut caller = Caller::begin(thread, &maps).map_err(outcome_of)?;
        let outcome = work(&mut caller);
        let ended = caller.end();
        outcome.and_then(|result| ended.map(|()| result)).map_err(outcome_of_calls)
    }

    /// Whether a process without this agent is to be given it, and is of this run: one into which no
    /// loader brings it, but for those that run with more privileges than who started them.
    fn may_be_given(&self, pid: pid_t, program: &WithoutAgent, maps: &str) -> bool {
        let variables = loading::variables_of(pid);
        let holder = self.credentials.as_ref();
        let is_left = match program.linkage {
            Linkage::Static => true,
            Linkage::Dynamic => {
                !program.finds_agent || !loading::brings(pid, &variables, &self.agent_path, holder)
            }
            Linkage::Library | Linkage::Foreign => false,
        };
        is_left && !has_any_agent(maps) && !self.is_of_another_run(&variables)
    }

    /// Whether variables name the control block of another run.
    fn is_of_another_run(&self, variables: &[u8]) -> bool {
        let named = loading::values(variables, CONTROL_VARIABLE).next();
        named.is_some_and(|path| path != self.control_path.as_bytes())
    }

    /// Whether a held process is at a point where the agent at `base` must not be called: inside it, as
    /// it may be about to manage the process by itself, or before the loader has prepared it. Where it waits
    /// with a large call for this entry, who sleeps in it is no other.
    fn is_in_passage(&self, program: &Program, maps: &str, base: u64, hold: &Hold) -> bool {
        let agent = base..base + self.layout.span_bytes;
        let waits = |thread: &StoppedThread| program.waits_with_call && thread.is_in_futex();
        let mut inside = hold.threads.iter().filter(|thread| agent.contains(&thread.instruction()));
        inside.any(|thread| !waits(thread)) || !loading::is_prepared(maps, base, &self.layout)
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

/// The mounts and the root directory of a process, as the kernel names them: no file of its own is looked at.
fn files_of(pid: pid_t) -> [Option<PathBuf>; 2] {
    ["ns/mnt", "root"].map(|link| std::fs::read_link(proc_file(pid, link)).ok())
}

/// What the kernel says of a thread; nothing where it is gone.
fn status_of(tid: pid_t) -> Vec<u8> {
    proc_text::read_bytes(format!("/proc/{tid}/status")).unwrap_or_default()
}

/// The mappings of a process. One that was killed has none before it is gone; nor has a first thread that has ended.
fn maps_of(pid: pid_t) -> Result<String, Trouble> {
    let maps_of = |thread| proc_text::read(format!("/proc/{thread}/maps"));
    let maps = match maps_of(pid) {
        Ok(maps) if maps.is_empty() => maps_of(living_thread(pid)),
        maps => maps,
    };
    match maps {
        Ok(maps) if maps.is_empty() => Err(Trouble::Gone),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Trouble::Gone),
        maps => Ok(maps?),
    }
}

/// What it is that has the kernel use a process's memory without a call, if there is such a thing.
fn used_by_kernel(pid: pid_t, maps: &str) -> Option<Outcome> {
    if rings::uses_memory(pid, maps) {
        return Some(Outcome::HasRing);
    }
    machines::uses_memory(pid, maps).then_some(Outcome::HasMachine)
}

/// The same, where its mappings are still to be read.
fn used_by_kernel_now(pid: pid_t) -> Option<Outcome> {
    maps_of(pid).ok().and_then(|maps| used_by_kernel(pid, &maps))
}

fn outcome_of(trouble: Trouble) -> Outcome {
    match trouble {
        Trouble::Gone => Outcome::Gone,
        Trouble::Lost => Outcome::Asleep,
        Trouble::Refused(libc::EALREADY) => Outcome::Managed,
        // The loader has not called it yet, or it has found no run.
        Trouble::Refused(libc::ENOTCONN) => Outcome::NoAgent,
        Trouble::Refused(error) => Outcome::Impossible(error),
        Trouble::System(error) => Outcome::Impossible(error.raw_os_error().unwrap_or(libc::EIO)),
    }
}

/// The same while a thread of the process makes system calls, for which its code is written over.
fn outcome_of_calls(trouble: Trouble) -> Outcome {
    match trouble {
        Trouble::Lost => Outcome::Broken,
        trouble => outcome_of(trouble),
    }
}

/// Where a process is entered.
#[derive(Debug, Clone, Copy)]
struct At {
    /// The entry's address.
    entry: u64,
    /// That of the table of what it was passed, or 0.
    passed: u64,
    known: Known,
}

/// Calls the entry in every thread of a held process.
fn enter_all(hold: &mut Hold, at: At) -> Result<(), Outcome> {
    let (first, others) = hold.threads.split_first_mut().expect("a hold has a thread");
    match first.enter(at, Entry::Process) {
        Ok(()) => {}
        Err(Trouble::Lost) => return Err(Outcome::Broken),
        Err(trouble) => return Err(outcome_of(trouble)),
    }
    for thread in others {
        match thread.enter(At { passed: 0, ..at }, Entry::Thread) {
            Ok(()) | Err(Trouble::Gone) => {}
            // The process is managed and this thread's system calls would meet absent pages.
            Err(_) => return Err(Outcome::Broken),
        }
    }
    Ok(())
}

/// Has a process that was entered with others count what it has in common with them, in any of its threads.
fn share(hold: &mut Hold, at: At) -> Result<(), Outcome> {
    for thread in &mut hold.threads {
        match thread.enter(at, Entry::Share) {
            Ok(()) => return Ok(()),
            Err(Trouble::Gone) => {}
            Err(_) => return Err(Outcome::Broken),
        }
    }
    Err(Outcome::Gone)
}

/// The program that a process runs.
#[derive(Debug)]
struct Program {
    /// It runs in a pid namespace below this process's.
    is_nested: bool,
    /// It asks for a large call, and is not managed therefore.
    waits_with_call: bool,
    /// What is known of one that has no agent.
    without_agent: Option<WithoutAgent>,
}

impl Program {
    /// What the process that runs it is called.
    fn known(&self, run_pid: pid_t) -> Known {
        Known { run_pid, is_nested: self.is_nested }
    }
}

/// A program into which no loader has brought the agent.
#[derive(Debug)]
struct WithoutAgent {
    /// What the kernel told it when it began (getauxval(3)), addresses that are drawn at random among
    /// that: no other one was told the same.
    auxiliary: Vec<u8>,
    /// How it is linked, for one that the agent can be put into: with more privileges than who started
    /// it has, it is [`Linkage::Foreign`].
    linkage: Linkage,
    /// Its loader would find the agent where its variables say.
    finds_agent: bool,
}

impl WithoutAgent {
    /// Looks at what a process runs, in its file, too.
    fn of(pid: pid_t, finds_agent: bool) -> Self {
        let auxiliary = auxiliary_of(pid);
        let linkage = linkage_of(pid, &auxiliary);
        WithoutAgent { auxiliary, linkage, finds_agent }
    }

    /// Whether a process runs it, still.
    fn is_in(&self, pid: pid_t) -> bool {
        auxiliary_of(pid) == self.auxiliary
    }
}

/// How the program of a process is linked, by its file and by what the kernel told it.
fn linkage_of(pid: pid_t, auxiliary: &[u8]) -> Linkage {
    let file = File::open(proc_file(pid, "exe"));
    let is_whole = value_in(auxiliary, AT_BASE) == Some(0);
    match file.map_or(Linkage::Foreign, |file| Linkage::of(&file)) {
        _ if value_in(auxiliary, AT_SECURE) != Some(0) => Linkage::Foreign,
        Linkage::Static if !is_whole => Linkage::Foreign,
        linkage => linkage,
    }
}

/// What the kernel told the program of a process when it began ([`WithoutAgent::auxiliary`]); nothing where it is
/// gone.
pub(crate) fn auxiliary_of(pid: pid_t) -> Vec<u8> {
    proc_text::read_bytes(proc_file(pid, "auxv")).unwrap_or_default()
}

/// A value of what the kernel told a program.
fn value_in(auxiliary: &[u8], key: u64) -> Option<u64> {
    let (pairs, _) = auxiliary.as_chunks::<16>();
    // Key and value, eight bytes each.
    let mut pairs = pairs.iter().map(|pair| u128::from_ne_bytes(*pair));
    pairs.find(|pair| *pair as u64 == key).map(|pair| (pair >> 64) as u64)
}

/// Whether a process has an agent, of this run or another one; not one that is only emulated in it.
fn has_any_agent(maps: &str) -> bool {
    mappings(maps).any(|found| found.is_code && is_agent_name(found.name))
}

fn is_agent_name(name: &str) -> bool {
    name.strip_prefix(MEMORY_FILE).is_some_and(|name| name.starts_with(image::NAME))
}

/// One line of `/proc/PID/maps`.
#[derive(Debug, PartialEq, Eq)]
struct Mapping<'a> {
    start: u64,
    end: u64,
    offset: u64,
    inode: u64,
    name: &'a str,
    is_writable: bool,
    /// Private, and its instructions can be run.
    is_code: bool,
}

/// The mappings of a process (proc(5)).
fn mappings(maps: &str) -> impl Iterator<Item = Mapping<'_>> {
    maps.lines().filter_map(|line| {
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
        let (start, end) = (hexadecimal(start)?, hexadecimal(end)?);
        let how = fields.next()?.as_bytes();
        let is_writable = how.get(1) == Some(&b'w');
        let is_code = matches!(how, [_, _, b'x', b'p']);
        let offset = hexadecimal(fields.next()?)?;
        let inode = fields.nth(1)?.parse().ok()?;
        let name = fields.next().unwrap_or("").trim();
        // The page of the kernel's that cannot be written (vsyscall).
        let is_code = is_code && start <= i64::MAX as u64;
        Some(Mapping { start, end, offset, inode, name, is_writable, is_code })
    })
}

/// Where the agent's image begins in a process. QEMU has another one for the program that it emulates in its own
/// memory, of which nothing can be run.
fn base_of(maps: &str, agent_inode: u64) -> Option<u64> {
    let is_of_agent = |found: &Mapping<'_>| found.inode == agent_inode && is_agent_name(found.name);
    let mut base = None;
    mappings(maps).filter(is_of_agent).find_map(|found| {
        if found.offset == 0 {
            base = Some(found.start);
        }
        base.filter(|_| found.is_code)
    })
}

/// Whether processes can be entered here, which is found out once.
pub(crate) fn is_permitted() -> bool {
    static IS_PERMITTED: OnceLock<bool> = OnceLock::new();
    *IS_PERMITTED.get_or_init(try_entering)
}

/// Finds out by trying whether processes can be entered here: a seccomp filter or a security
/// module may forbid ptrace(2), or what tells whether two of them have one memory.
fn try_entering() -> bool {
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
