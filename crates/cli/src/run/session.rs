//! What the agents of one run need from outside: the control block, the swap
//! file, the agent's own object, and the environment that leads a program to them.
//!
//! All of it is descriptors of the supervisor, closed on exec and reached as
//! `/proc/PID/fd/N`: a program that closes every descriptor it does not know
//! loses nothing, and nothing has a name in any file system.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use libc::pid_t;
use rustix::process::Signal;
use rustix::rand::GetRandomFlags;
use zpager_sys::process::Confinement;
use zpager_wire::{
    CONTROL_VARIABLE, STORES_MAX, ServerSettings, Settings, StoreKey, StoreSettings, Watching,
};

use super::budget::{self, Budget};
use super::config::{Configuration, check_pool};
use super::control::SharedControl;
use super::enter;
use super::image;
use super::outer;
use super::program::Program;
use super::remote::{Helper, RemoteStore};
use super::report::Notices;
use super::stores::choice::name_source;
use super::stores::{self, OpenStores};
use super::supervisor::signals::Signals;
use crate::failure::{Failure, OrFail};
use crate::file_limit;

/// What pages are watched by where nothing better may be used.
const FORBIDDEN: &str = "userfaultfd is forbidden here, so guard pages stand in for it, which takes up to three \
                         times as long: allow it in the container's seccomp profile, or start it with \
                         none (--security-opt seccomp=unconfined)";

/// Budgets below this are managed from the program's start: it is used up before a supervisor
/// that looks now and then can act.
const MIN_WATCHED_BUDGET_BYTES: u64 = 64 << 20;

/// Everything that one run holds open.
#[derive(Debug)]
pub(crate) struct Session {
    /// The block shared with the agents.
    pub(crate) control: SharedControl,
    /// The budget and where it came from.
    pub(crate) budget: Budget,
    /// The stores, if there are any. The agents open them through this process.
    pub(crate) stores: Option<OpenStores>,
    /// The processes that speak to the servers, in their order.
    pub(crate) helpers: Vec<Helper>,
    /// The agent's shared object.
    pub(crate) agent: OwnedFd,
}

impl Session {
    /// Makes and opens everything. `ring` is that of a run that is recorded, and outlives the session.
    ///
    /// # Errors
    /// What could not be had.
    pub(crate) fn set_up(
        configuration: &Configuration,
        watching: Watching,
        ring: Option<BorrowedFd<'_>>,
        notices: &mut Notices,
    ) -> Result<Self, Failure> {
        let budget = budget::choose(configuration.memory)?;
        check_pool(&configuration.design, budget.bytes)?;
        let stores = stores::open(&configuration.store, configuration.store_limit_bytes, notices)
            .map_err(|failure| name_source(failure, configuration.store_has_flag))?;
        let agent = image::unpack()?;
        if watching == Watching::Guards {
            zpager_sys::signal::watch_by_guards();
            if configuration.watching.is_none() {
                notices.warn(FORBIDDEN);
            }
        }
        let from_start = has_to_manage_from_start(configuration, &budget, notices);
        let confinement = Confinement::own();
        let control = SharedControl::new(Settings {
            budget_bytes: budget.bytes,
            most_bytes: budget.most_bytes,
            store_limit_bytes: stores.as_ref().map_or(0, |stores| stores.limit_bytes),
            stores: stores.as_ref().map_or([StoreSettings::NONE; STORES_MAX], OpenStores::settings),
            servers: stores
                .as_ref()
                .map_or([ServerSettings::NONE; STORES_MAX], OpenStores::server_settings),
            design: configuration.design.to_words(),
            supervisor_pid: std::process::id().cast_signed(),
            clusters_fd: stores.as_ref().map_or(-1, |stores| stores.clusters.as_raw_fd()),
            agent_fd: agent.as_raw_fd(),
            ring_fd: ring.map_or(-1, |ring| ring.as_raw_fd()),
            filters: confinement.filters,
            ids: confinement.ids,
            from_start: from_start.into(),
            lifting: configuration.lifting as u8,
            watching: watching as u8,
            store_codec: configuration.store_codec.to_byte(),
            store_encrypt: configuration.store_encrypt.into(),
            store_key: if configuration.store_encrypt { make_key()? } else { StoreKey::default() },
        })?;
        let servers = stores.iter().flat_map(|stores| &stores.servers);
        let helpers = servers.map(|server| Helper::start(&server.remote, &control));
        let helpers = helpers.collect::<Result<_, _>>()?;
        Ok(Session { control, budget, stores, helpers, agent })
    }

    /// The memory of each server.
    pub(crate) fn remotes(&self) -> impl Iterator<Item = &RemoteStore> {
        self.stores.iter().flat_map(|stores| &stores.servers).map(|server| &server.remote)
    }

    /// Has nobody wait for the helper that was this process and has ended; whether there was one.
    pub(crate) fn close_remote(&self, helper: pid_t) -> bool {
        let ended = self.helpers.iter().position(|it| it.pid() == helper);
        let remote = ended.and_then(|at| self.remotes().nth(at));
        remote.inspect(|remote| remote.requests().close()).is_some()
    }

    /// The run is over: has nothing of it be left on a server.
    pub(crate) fn end(&mut self) {
        self.helpers.iter_mut().for_each(Helper::tell_of_end);
        self.helpers.iter().for_each(|helper| helper.wait_for_end(&self.control));
    }

    /// The program's command, ready to be started with the agent in it.
    pub(crate) fn command(&self, program: &Program, signals: Signals) -> Command {
        let mut command = Command::new(&program.file);
        command.arg0(&program.name).args(&program.arguments);
        command.env("LD_PRELOAD", preload(&own_path(&self.agent), std::env::var_os("LD_PRELOAD")));
        command.env(CONTROL_VARIABLE, own_path(&self.control));
        let supervisor = rustix::process::getpid();
        let prepare = move || {
            signals.restore();
            file_limit::give_back();
            // A program whose zpager was killed ends too, as it would have without zpager.
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            match rustix::process::getppid() == Some(supervisor) {
                true => Ok(()),
                false => Err(io::Error::from(io::ErrorKind::Interrupted)),
            }
        };
        // SAFETY: the closure allocates nothing and makes only system calls, which is all that may
        // be done between fork(2) and execve(2).
        unsafe { command.pre_exec(prepare) };
        command
    }
}

/// A key that nobody had before.
///
/// # Errors
/// The kernel has none.
pub(crate) fn make_key() -> Result<StoreKey, Failure> {
    random().or_fail("making the key of the store").map(StoreKey)
}

/// Bytes that nobody can guess.
pub(super) fn random<const BYTES: usize>() -> rustix::io::Result<[u8; BYTES]> {
    // So many come whole (getrandom(2)).
    const { assert!(BYTES <= 256) };
    let mut bytes = [0; BYTES];
    rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(bytes)
}

/// What the dynamic loader shall preload: the agent, then what it preloads at present, without the
/// agent of another zpager around this one. A program has one agent, that of the nearest zpager.
fn preload(agent: &str, present: Option<OsString>) -> OsString {
    let mut list = OsString::from(agent);
    let others = outer::without_agents(&present.unwrap_or_default());
    if !others.is_empty() {
        list.push(":");
        list.push(others);
    }
    list
}

/// Whether programs have to be managed from their first instruction.
fn has_to_manage_from_start(
    configuration: &Configuration,
    budget: &Budget,
    notices: &mut Notices,
) -> bool {
    let small = budget.bytes < MIN_WATCHED_BUDGET_BYTES;
    if configuration.from_start.unwrap_or(small) {
        return true;
    }
    let permitted = enter::is_permitted();
    if !permitted {
        notices.warn(
            "ptrace is not permitted here, so programs are managed from their start, which costs \
             time also while they fit: allow ptrace in the sandbox",
        );
    }
    !permitted
}

/// The path by which another process opens a descriptor of this one.
pub(super) fn own_path(descriptor: &impl std::os::fd::AsFd) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), descriptor.as_fd().as_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_runs_have_the_same_key() {
        let [one, other] = [make_key(), make_key()].map(|key| key.expect("a key").0);
        assert!(one != other && one != [0; 32] && other != [0; 32]);
    }

    #[test]
    fn what_the_user_preloads_stays_and_another_agent_goes() {
        let agent = "/proc/7/fd/5";
        let table = [
            (None, agent.to_owned()),
            (Some(""), agent.to_owned()),
            (Some("/a.so"), format!("{agent}:/a.so")),
            (Some("/a.so b.so"), format!("{agent}:/a.so:b.so")),
            (Some("/proc/3/fd/5"), agent.to_owned()),
            (Some("/proc/3/fd/5:/a.so"), format!("{agent}:/a.so")),
            (Some("/proc/self/fd/5"), format!("{agent}:/proc/self/fd/5")),
        ];
        for (present, expected) in table {
            let present = present.map(OsString::from);
            assert_eq!(preload(agent, present.clone()), OsString::from(expected), "{present:?}");
        }
    }
}
