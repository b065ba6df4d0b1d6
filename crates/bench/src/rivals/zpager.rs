//! zpager: the program under `zpager run`, inside a cgroup whose hard limit is
//! the total and which may not swap, so that every byte is counted by the kernel
//! and none can be had for free.
//!
//! zpager is given the total less what it does not manage: the kernel's memory
//! for the process, its stacks and private file pages, the command itself. While
//! the share is sought there is no hard limit, so that an overrun is measured
//! instead of killed.

use std::ffi::OsString;
use std::fs;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::{Account, Arrangement, Pool, Rival, SetUp, Surroundings, Terms};
use crate::changes::Changes;
use crate::group::Allowance;
use crate::limit::Target;
use crate::process::{Finished, Program};
use crate::workloads::Output;

pub(super) struct Zpager;

/// What is used here of the object that `zpager run --stats` writes.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Statistics {
    /// What it was given.
    pub budget_bytes: u64,
    /// Highest sum of resident managed pages, pool and metadata.
    pub peak_bytes: u64,
    /// Managed address space.
    pub managed_bytes: u64,
    /// System calls that were seen.
    pub dispatched_calls: u64,
    /// Faults by where the page was.
    pub faults: Faults,
}

/// Faults by where the page was.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Faults {
    /// In the pool, or same-filled.
    pub compressed: u64,
    /// In the store.
    pub spilled: u64,
}

impl Statistics {
    /// Of a peak in all, what is not within the share: what zpager does not manage, and what it
    /// took over its budget.
    fn beyond_share(&self, peak_bytes: u64) -> u64 {
        peak_bytes.saturating_sub(self.peak_bytes.min(self.budget_bytes))
    }
}

impl Rival for Zpager {
    fn name(&self) -> &'static str {
        "zpager"
    }

    fn changes(&self, _: &Surroundings) -> Vec<String> {
        Vec::new()
    }

    fn set_up(&self, _: &mut Changes, surroundings: &Surroundings, _: Terms) -> Result<SetUp> {
        // An earlier run's figures must not be taken for this one's.
        let _ = fs::remove_file(surroundings.statistics_path());
        Ok(SetUp { pool: Pool::Charged, note: String::new() })
    }

    fn arrange(&self, program: &Program, surroundings: &Surroundings, terms: Terms) -> Arrangement {
        let limit_bytes = (!terms.is_search).then_some(terms.total_bytes);
        Arrangement {
            program: under_zpager(program, surroundings, terms.given_bytes),
            allowance: Allowance { limit_bytes, may_swap: false },
        }
    }

    /// The measured runs have a hard limit at the total, so the sum lies well below it: at the
    /// highest sum that is taken there is still room for what the sum does not count. Program text
    /// needs some, or the kernel reads it again and again, and samples miss the highest moment.
    fn target(&self, total_bytes: u64) -> Target {
        let margin_bytes = (total_bytes / 60).max(1 << 20);
        let aim_bytes = total_bytes.saturating_sub(margin_bytes);
        Target { total_bytes: aim_bytes, tolerance_bytes: margin_bytes / 2, first_bytes: aim_bytes }
    }

    fn account(&self, finished: &Finished<Output>, surroundings: &Surroundings) -> Result<Account> {
        let statistics = read_statistics(surroundings)?;
        Ok(Account {
            peak_bytes: finished.group_peak_bytes,
            extra_bytes: statistics.beyond_share(finished.unreclaimable_peak_bytes),
            faults: statistics.faults.compressed + statistics.faults.spilled,
            statistics: Some(statistics),
        })
    }
}

/// `program` under `zpager run` with this budget.
pub(crate) fn under_zpager(
    program: &Program,
    surroundings: &Surroundings,
    budget_bytes: u64,
) -> Program {
    let mut argv: Vec<OsString> = vec![surroundings.zpager.clone().into(), "run".into()];
    argv.extend(["--memory".into(), budget_bytes.to_string().into()]);
    argv.extend(["--store".into(), surroundings.swap_directory.clone().into()]);
    argv.extend(["--stats".into(), surroundings.statistics_path().into()]);
    argv.extend(["--quiet".into(), "--".into()]);
    argv.extend(program.argv.iter().cloned());
    Program { argv, ..program.clone() }
}

/// The statistics of the last run under zpager.
///
/// # Errors
/// When the run left none.
pub(crate) fn read_statistics(surroundings: &Surroundings) -> Result<Statistics> {
    let path = surroundings.statistics_path();
    let text = fs::read_to_string(&path).context("zpager left no statistics")?;
    serde_json::from_str(&text).context("zpager's statistics are not as expected")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_that_is_taken_leaves_room_below_the_hard_limit() {
        for total_bytes in [8_u64 << 20, 129 << 20, 4 << 30] {
            let target = Zpager.target(total_bytes);
            let highest_bytes = target.total_bytes + target.tolerance_bytes;
            assert!(total_bytes - highest_bytes >= (total_bytes / 121).max(512 << 10));
            assert!(target.first_bytes <= highest_bytes);
        }
    }

    #[test]
    fn statistics_are_read_among_other_keys() {
        let statistics = statistics(1, 2);
        assert_eq!((statistics.budget_bytes, statistics.peak_bytes), (1, 2));
        assert_eq!(statistics.faults.compressed + statistics.faults.spilled, 13);
    }

    #[test]
    fn what_zpager_takes_over_its_budget_is_beyond_its_share() {
        assert_eq!(statistics(100, 101).beyond_share(106), 6);
        assert_eq!(statistics(100, 40).beyond_share(46), 6);
    }

    fn statistics(budget_bytes: u64, peak_bytes: u64) -> Statistics {
        let text = format!(
            r#"{{"budget_bytes": {budget_bytes}, "peak_bytes": {peak_bytes}, "managed_bytes": 3,
            "codec": "lz4", "dispatched_calls": 4,
            "faults": {{"fresh": 5, "compressed": 6, "spilled": 7}}}}"#
        );
        serde_json::from_str(&text).expect("statistics")
    }
}
