//! What a program can run under: nothing, the kernel's own ways to swap, zpager.
//! One file a rival.

mod disk;
mod none;
mod zpager;
mod zram;
mod zswap;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::ValueEnum;

use crate::changes::Changes;
use crate::group::{Allowance, Hierarchy};
use crate::limit::Target;
use crate::machine::Machine;
use crate::process::{Finished, Program};
use crate::workloads::Output;
pub(crate) use zpager::Statistics;

/// The rivals by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RivalName {
    /// No limit: the program alone.
    None,
    /// A swap file, nothing compressed.
    Disk,
    /// A swap file with the kernel's compressed cache before it.
    Zswap,
    /// The kernel's compressed block device.
    Zram,
    /// zpager.
    Zpager,
}

impl RivalName {
    /// The rival of that name.
    pub(crate) fn rival(self) -> &'static dyn Rival {
        match self {
            RivalName::None => &none::None,
            RivalName::Disk => &disk::Disk,
            RivalName::Zswap => &zswap::Zswap,
            RivalName::Zram => &zram::Zram,
            RivalName::Zpager => &zpager::Zpager,
        }
    }
}

/// What every rival may need of its surroundings.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    /// Where swap files go.
    pub swap_directory: PathBuf,
    /// The zpager command.
    pub zpager: PathBuf,
    /// The memory controller.
    pub hierarchy: Hierarchy,
    /// Where the run's own files go.
    pub work_directory: PathBuf,
}

impl Surroundings {
    /// The file that zpager's statistics go to.
    fn statistics_path(&self) -> PathBuf {
        self.work_directory.join("zpager.json")
    }
}

/// How much one run may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    /// What program, pool and metadata may take together.
    pub total_bytes: u64,
    /// The part of it that the rival is given: see [`crate::limit`].
    pub given_bytes: u64,
    /// The program's unlimited peak: how much there may be to swap.
    pub need_bytes: u64,
    /// Whether this run only serves to find the share.
    pub is_search: bool,
}

/// How a program is run under a rival.
#[derive(Debug)]
pub(crate) struct Arrangement {
    /// The command, with whatever the rival puts before it.
    pub program: Program,
    /// What its cgroup is allowed.
    pub allowance: Allowance,
}

/// The pool that a rival keeps outside the program's cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pool {
    /// There is none, or the kernel charges it to the program.
    Charged,
    /// The memory of a zram device.
    Zram {
        /// The number in its name.
        number: u32,
    },
    /// zswap's, of which the machine held this much before.
    Zswap {
        /// What others hold.
        before_bytes: u64,
    },
}

impl Pool {
    /// Bytes held now; of a zram device the highest it ever held.
    pub(crate) fn sample_bytes(self, machine: &Machine) -> u64 {
        match self {
            Pool::Charged => 0,
            Pool::Zram { number } => zram::peak_bytes(machine, number),
            Pool::Zswap { before_bytes } => {
                machine.meminfo_bytes("Zswap").saturating_sub(before_bytes)
            }
        }
    }
}

/// What one run showed, in the same terms for every rival.
#[derive(Debug, Clone, Default)]
pub(crate) struct Account {
    /// Highest physical memory: program, pool and metadata.
    pub peak_bytes: u64,
    /// What was held beyond the share.
    pub extra_bytes: u64,
    /// Faults for which a page had to be brought back.
    pub faults: u64,
    /// What zpager says of the run.
    pub statistics: Option<Statistics>,
}

/// One way to run a program in less memory than it needs.
pub(crate) trait Rival: Sync {
    /// What the user calls it.
    fn name(&self) -> &'static str;

    /// What it changes on the machine, for the user to read before it does.
    fn changes(&self, surroundings: &Surroundings) -> Vec<String>;

    /// Changes the machine for one run; the caller takes it back after the run.
    ///
    /// # Errors
    /// When the machine cannot do this: the reason is reported instead of figures.
    fn set_up(
        &self,
        changes: &mut Changes,
        surroundings: &Surroundings,
        terms: Terms,
    ) -> Result<SetUp>;

    /// How `program` is started on these terms: the cgroup is given the share, and may swap.
    fn arrange(&self, program: &Program, _: &Surroundings, terms: Terms) -> Arrangement {
        Arrangement {
            program: program.clone(),
            allowance: Allowance { limit_bytes: Some(terms.given_bytes), may_swap: true },
        }
    }

    /// The accounts of a run: cgroup and pool together.
    ///
    /// # Errors
    /// When they cannot be read.
    fn account(&self, finished: &Finished<Output>, _: &Surroundings) -> Result<Account> {
        Ok(Account {
            peak_bytes: finished.group_peak_bytes + finished.sampled_peak_bytes,
            extra_bytes: finished.sampled_peak_bytes,
            faults: finished.major_faults,
            statistics: None,
        })
    }

    /// The sum that is sought for its share.
    fn target(&self, total_bytes: u64) -> Target {
        Target { total_bytes, tolerance_bytes: total_bytes / 100, first_bytes: total_bytes }
    }

    /// Whether it keeps a pool of the kernel's, so that another such rival's share
    /// is a good first guess at its own.
    fn has_kernel_pool(&self) -> bool {
        false
    }

    /// Whether it holds anything beyond its share, so that the share has to be sought.
    fn seeks_share(&self) -> bool {
        true
    }
}

/// What [`Rival::set_up`] gives.
#[derive(Debug)]
pub(crate) struct SetUp {
    /// The pool to be watched.
    pub pool: Pool,
    /// What a reader of the figures has to know of the rival here.
    pub note: String,
}

/// Room for everything the program may swap out, and a share for what the kernel allots ahead.
pub(crate) fn swap_size_bytes(terms: Terms) -> u64 {
    (terms.need_bytes * 3 / 2 + (64 << 20)).next_multiple_of(4096)
}

/// zswap stands before every swap area of the machine: off, unless it is the rival.
fn switch_zswap(changes: &mut Changes, value: &str) -> Result<()> {
    if changes.machine().has(zswap::ENABLED) {
        changes.set_switch(zswap::ENABLED, value)?;
    }
    Ok(())
}

fn swap_file_text(directory: &Path) -> String {
    format!("makes a swap file in {} and swaps to it", directory.display())
}
