//! Workloads, rivals and reports: `zpager bench`.
//!
//! The same work is run under the kernel's own ways to swap and under zpager, on
//! one machine, in one session, with the same total physical memory, and its
//! output is checked. What is measured and how is in `docs/benchmarks.md`.
//!
//! From the outside in: [`options`] are checked; `compare` and `overhead` plan
//! runs; `session` does one; `rivals` and `workloads` say what is run; `process`
//! and `group` run and measure it; `disk` counts and slows down what it is swapped to; `changes` is the only way in which the machine
//! is changed, and puts it back.

// Where nobody reads what is told, the machine must still be put back.
#![deny(clippy::print_stderr)]

mod changes;
mod compare;
mod disk;
mod group;
mod interrupt;
mod limit;
mod machine;
pub mod options;
mod overhead;
mod process;
mod report;
mod rivals;
mod session;
mod statistics;
mod workloads;

use std::fmt::Display;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use options::{OverheadOptions, RunOptions};
pub use rivals::RivalName;
pub use workloads::faults::TouchOptions;
pub use workloads::sor::SorOptions;
use zpager_command::{file_limit, stderr};

/// The exit status of zpager's own failures.
const FAILED: u8 = 125;

/// Compare zpager with the kernel's own swapping
#[derive(Debug, Clone, Args)]
pub struct BenchCommand {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// What the bench can do.
#[derive(Debug, Clone, Subcommand)]
pub enum Action {
    /// List the workloads and what they need
    List,
    /// Run workloads under zpager and its rivals, with the same memory
    Run(RunOptions),
    /// Run workloads with memory to spare, free and under zpager
    Overhead(OverheadOptions),
    /// The program of the faults workloads.
    #[command(hide = true)]
    Touch(TouchOptions),
    /// The program of the sor workload.
    #[command(hide = true)]
    Sor(SorOptions),
    /// The guardian of a bench.
    #[command(hide = true)]
    Restore,
}

/// Does what was asked and gives the exit status: 0, 125 with one line on the
/// standard error, or 128 and the number of the signal that interrupted it.
///
/// The command that calls this must take `bench` as the name of its subcommand:
/// the bench starts it again as a workload and as a guardian.
#[must_use]
pub fn main(command: BenchCommand) -> ExitCode {
    // The programs of the workloads have what the bench was started with.
    if !matches!(command.action, Action::Touch(_) | Action::Sor(_)) {
        file_limit::outlive();
    }
    let done = match &command.action {
        Action::List => list(),
        Action::Run(options) => compare::run(options),
        Action::Overhead(options) => overhead::run(options),
        Action::Touch(options) => workloads::faults::touch(options),
        Action::Sor(options) => workloads::sor::relax(options),
        Action::Restore => changes::guardian::wait_and_restore(),
    };
    let Err(error) = done else { return ExitCode::SUCCESS };
    stderr::tell(format_args!("{error:#}"));
    let signal = interrupt::signal().and_then(|number| u8::try_from(128 + number).ok());
    ExitCode::from(signal.unwrap_or(FAILED))
}

/// Tells a line, if anybody reads it: nothing waits for that, while the machine is changed.
fn tell(line: impl Display) {
    stderr::write(&format!("{line}\n"));
}

fn list() -> Result<()> {
    let lines = workloads::WORKLOADS.map(|workload| {
        let missing = workload.missing().map_or(String::new(), |missing| format!(" [{missing}]"));
        format!("{:<28} {}{missing}", workload.name(), workload.about())
    });
    report::print(&lines.join("\n"))
}
