//! A process that waits for the bench to end and then takes back what the bench
//! did not: after a panic (which aborts), a SIGKILL, or a crash.
//!
//! It is the same command again, in a process group of its own so that no
//! terminal signal reaches it. Its standard input is a pipe whose other end only
//! the bench holds: the kernel closes it however the bench ends. Its standard
//! output is the journal itself, which keeps the lock on it until the guardian
//! is done.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use nix::fcntl::{Flock, FlockArg};

use super::{Changes, Mark, read_journal};
use crate::machine::Machine;
use crate::tell;

/// The waiting process.
#[derive(Debug)]
pub(crate) struct Guardian {
    child: Child,
}

impl Guardian {
    /// Starts a guardian over `changes`.
    ///
    /// # Errors
    /// When the command cannot be started again.
    pub(crate) fn start(changes: &Changes) -> Result<Self> {
        let child = Command::new(std::env::current_exe()?)
            .args(["bench", "restore"])
            .stdin(Stdio::piped())
            .stdout(changes.shared_lock()?)
            .process_group(0)
            .spawn()
            .context("cannot start the guardian")?;
        Ok(Guardian { child })
    }

    /// Lets the guardian go, after everything has been taken back.
    pub(crate) fn dismiss(mut self) {
        drop(self.child.stdin.take());
        // It has nothing to say: whatever it had to take back is in the journal.
        let _ = self.child.wait();
    }
}

/// The guardian's own life: waits for the bench's end, then takes back what is in the journal.
///
/// # Errors
/// When the journal cannot be read, or something cannot be taken back.
pub(crate) fn wait_and_restore() -> Result<()> {
    // Ends when the bench does; nothing is ever written into this pipe.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    let journal = std::os::fd::AsFd::as_fd(&std::io::stdout()).try_clone_to_owned()?;
    let journal = std::fs::File::from(journal);
    // The lock came with the open file; the bench may have given it up as it ended.
    let Ok(journal) = Flock::lock(journal, FlockArg::LockExclusiveNonblock) else { return Ok(()) };
    let made = read_journal(&journal)?;
    if made.is_empty() {
        return Ok(());
    }
    tell(format_args!("zpager: the bench ended early: taking back {} changes", made.len()));
    let mut changes = Changes { machine: Machine::real(), journal, made };
    changes.take_back_to(Mark::BOTTOM)
}
