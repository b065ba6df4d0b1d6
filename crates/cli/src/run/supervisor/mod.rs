//! Staying with the program from its start to its end.
//!
//! One loop: it sleeps in sigtimedwait(2) until a signal comes or something is
//! due; a second thread only wakes it ([`calls`]). The program is a child in
//! the same process group and on the same terminal, so job control treats the two
//! as one. While the tree is far from
//! its budget the loop only looks how large it is ([`watch`]); once it has come near,
//! the running processes are entered ([`entries`]) and share the budget ([`shares`]), which may follow
//! what there is ([`follow`]). Before that they ask for calls that fill much at once ([`large_calls`]). What
//! shared memory the tree has besides is told ([`shared`]).

mod beginners;
mod calls;
mod entries;
mod events;
mod follow;
mod large_calls;
mod pace;
mod shared;
mod shares;
pub(crate) mod signals;
pub(crate) mod tree;
mod watch;

use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use libc::{c_int, pid_t};

pub(crate) use shares::is_gone;
pub(crate) use tree::{Tree, children_of};

use super::config::Configuration;
use super::enter::Entrance;
use super::program::not_started;
use super::remote::Helper;
use super::report::{Ended, Notices, PoolSeen};
use super::session::Session;
use super::status::Exit;
use super::stores::probe::Probe;
use crate::failure::{Failure, OrFail};
use crate::size;
use crate::trace::Recording;
use entries::{Entries, Scope};
use events::Told;
use follow::Follow;
use large_calls::LargeCalls;
use shared::SharedMemory;
use shares::{Shares, is_full};
use signals::Signals;
use watch::{Look, Watch};

/// Before more space is given back to disks, where it is much.
const PUNCHING_PAUSE: Duration = Duration::from_millis(20);

/// Starts the program and stays with it until it ends, and records it if it is to be recorded.
///
/// # Errors
/// The program could not be started.
pub(crate) fn run(
    session: &Session,
    configuration: &Configuration,
    notices: &mut Notices,
    mut recording: Option<&mut Recording<'_>>,
) -> Result<Ended, Failure> {
    // Descendants whose parent ends stay in the tree.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .or_fail("becoming the reaper of the program's descendants")?;
    let signals = Signals::block();
    let entrance = Entrance::new(&session.agent, &session.control)?;
    let started = Instant::now();
    session.control.beginners.admit(1);
    let program = start(session.command(&configuration.program, signals), configuration)?;
    // Only now: the program has the priority that the user gave.
    watch::come_soon();
    let mut supervisor = Supervisor::new(session, program, entrance, notices);
    let beside = || recording.as_mut().map(|recording| recording.step());
    let exit = calls::during(&session.control, || supervisor.stay_with(signals, beside));
    supervisor.told.tell(&session.control.events, supervisor.notices);
    // What outlives the program waits for nobody.
    session.control.beginners.admit(u32::MAX);
    Ok(Ended {
        exit,
        elapsed: started.elapsed(),
        budget_range_bytes: supervisor
            .follow
            .map_or(session.budget.bytes..=session.budget.bytes, |follow| follow.range_bytes()),
        peak_unmanaged_bytes: supervisor.watch.peak_bytes(),
        peak_shared_bytes: supervisor.shared_memory.peak_bytes(),
        expected_read_ns: supervisor.probe.told_ns(),
        pool: supervisor.pool,
    })
}

/// Starts the program and gives its process id.
fn start(mut command: Command, configuration: &Configuration) -> Result<pid_t, Failure> {
    // The child is waited for by its id, and dropping the handle leaves it alone.
    match command.spawn() {
        Ok(child) => Ok(child.id().cast_signed()),
        Err(error) => Err(not_started(&configuration.program.file, &error)),
    }
}

/// How near the budget is.
#[derive(Debug, PartialEq, Eq)]
enum Phase {
    /// Far: nothing is managed.
    Watching,
    /// Near, and processes that run without being managed have to be entered.
    Entering,
    /// Every program manages itself from its start, but for those into which no loader brings the
    /// agent, which have to be entered.
    FromStart,
}

/// What the supervisor knows of a running tree.
struct Supervisor<'a> {
    session: &'a Session,
    program: pid_t,
    notices: &'a mut Notices,
    phase: Phase,
    tree: Tree,
    watch: Watch,
    follow: Option<Follow>,
    large_calls: LargeCalls,
    shared_memory: SharedMemory,
    entries: Entries,
    shares: Shares,
    probe: Probe,
    told: Told,
    pool: PoolSeen,
}

impl<'a> Supervisor<'a> {
    fn new(
        session: &'a Session,
        program: pid_t,
        entrance: Entrance,
        notices: &'a mut Notices,
    ) -> Self {
        let from_start = session.control.settings.from_start != 0;
        Supervisor {
            session,
            program,
            notices,
            phase: if from_start { Phase::FromStart } else { Phase::Watching },
            tree: Tree::below(std::process::id().cast_signed())
                .without(session.helpers.iter().map(Helper::pid).collect()),
            watch: Watch::new(session.budget.bytes),
            follow: Follow::from(&session.budget),
            large_calls: LargeCalls::default(),
            shared_memory: SharedMemory::beside(session.budget.bytes),
            entries: Entries::new(entrance, if from_start { Scope::Agentless } else { Scope::All }),
            shares: Shares::default(),
            probe: Probe::Idle,
            told: Told::default(),
            pool: PoolSeen::default(),
        }
    }

    /// Waits for signals and does what is due until the program ends. `beside` does what is to be
    /// done besides, and gives the time until it is called again, if it has anything to do.
    fn stay_with(
        &mut self,
        signals: Signals,
        mut beside: impl FnMut() -> Option<Duration>,
    ) -> Exit {
        let mut due = Instant::now();
        loop {
            let (follow_pause, is_over) = self.follow();
            if is_over || Instant::now() >= due {
                due = Instant::now() + self.step();
            }
            let pause = beside().unwrap_or(Duration::MAX).min(follow_pause);
            let pause = pause.min(due.saturating_duration_since(Instant::now()));
            match signals.wait(pause) {
                Some(info) if signals::is_call(&info) => {
                    self.entries.expect_execution();
                    due = Instant::now();
                }
                Some(info) => signals::pass_on(&info, self.program),
                None => {}
            }
            if let Some(exit) = self.look_after() {
                return exit;
            }
        }
    }

    /// Moves a budget that follows what there is; gives the time until that is to be looked at again, and
    /// whether the run was seen to have more than what the budget has become.
    fn follow(&mut self) -> (Duration, bool) {
        let Some(follow) = &mut self.follow else { return (Duration::MAX, false) };
        let control = &self.session.control;
        let has_looked = follow.step(control, || match self.phase {
            Phase::Watching => self.watch.sum_bytes(),
            Phase::Entering | Phase::FromStart => self.entries.pending_bytes(),
        });
        self.watch.set_budget(control.budget_bytes.load(Relaxed));
        (follow.pause(), has_looked && follow.has_fallen() && is_full(control))
    }

    /// Tells of shared memory once it is much, where the budget does not make room for it.
    fn look_at_shared_memory(&mut self) {
        let was_much = self.shared_memory.peak_bytes() > 0;
        self.shared_memory.step(&self.tree);
        let bytes = self.shared_memory.peak_bytes();
        if bytes > 0 && !was_much && self.follow.is_none() {
            self.notices.warn(&format!(
                "the program has {} of shared memory, which is not managed: that comes on top of the \
                 budget",
                size::display(bytes)
            ));
        }
    }

    /// Does what is due; gives the time until something is due again.
    fn step(&mut self) -> Duration {
        self.look_at_shared_memory();
        let control = &self.session.control;
        if self.phase == Phase::Watching {
            let coming_bytes = self.large_calls.coming_bytes(&control.large_calls);
            match self.watch.look(&mut self.tree, coming_bytes) {
                Look::Far(pause) => {
                    self.large_calls.let_go(&control.large_calls);
                    let beginners = &control.beginners;
                    beginners.admit(self.watch.admit(beginners.left()));
                    return pause;
                }
                Look::Perhaps(pause) => {
                    // To find out may take long where much is in common, as of many that are forked one by one.
                    control.beginners.admit(1);
                    return pause;
                }
                Look::Near => {
                    control.pressure.store(1, Relaxed);
                    // They manage themselves.
                    control.beginners.admit(u32::MAX);
                    self.phase = Phase::Entering;
                    self.entries.begin(&self.tree);
                }
            }
        }
        let retry = match self.phase {
            Phase::Entering | Phase::FromStart => self.entries.step(&mut self.tree, control),
            Phase::Watching => None,
        };
        let asked = control.large_calls.asked();
        asked
            .filter(|(_, asked)| !self.entries.is_awaited(asked.pid))
            .for_each(|(question, _)| question.answer());
        let has_fallen = self.follow.as_ref().is_some_and(Follow::has_fallen);
        let mut pause = self.shares.step(control, &control.tables(), has_fallen);
        if let Some(stores) = &self.session.stores {
            self.probe.step(stores, self.program, &control.expected_reads);
            control.processes.free_left(|process, is_lent| stores.give_back(process, is_lent));
            if stores.punch_free() {
                pause = pause.min(PUNCHING_PAUSE);
            }
        }
        self.pool.look(&control.usage);
        self.told.tell(&control.events, self.notices);
        retry.map_or(pause, |retry| retry.min(pause))
    }

    /// Takes note of children that stopped or ended; gives the program's end.
    fn look_after(&mut self) -> Option<Exit> {
        loop {
            let mut status = 0;
            // SAFETY: `status` is written in full when a process is reported.
            let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG | libc::WUNTRACED) };
            if pid <= 0 {
                return None;
            }
            if self.session.close_remote(pid) {
                self.notices.warn(
                    "the helper that speaks to a server has ended: the server takes no pages any \
                     more, and what it has of them cannot be had from there",
                );
                continue;
            }
            let taken = self.entries.take(pid, status);
            if pid == self.program {
                if let Some(exit) = Exit::from_wait(status) {
                    return Some(exit);
                }
                if !taken {
                    stop_with(status);
                }
            }
        }
    }
}

/// Follows the program into a stop that the terminal or a user's Ctrl-Z caused.
pub(crate) fn stop_with(status: c_int) {
    let by = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
    if libc::WIFSTOPPED(status) && by.contains(&libc::WSTOPSIG(status)) {
        signals::stop_too();
    }
}
