//! The program alone, without a limit: what the others are compared with, and
//! where the program's own peak and the right output come from.

use anyhow::Result;

use super::{Account, Arrangement, Pool, Rival, SetUp, Surroundings, Terms};
use crate::changes::Changes;
use crate::group::Allowance;
use crate::process::{Finished, Program};
use crate::workloads::Output;

pub(super) struct None;

impl Rival for None {
    fn name(&self) -> &'static str {
        "none"
    }

    fn changes(&self, _: &Surroundings) -> Vec<String> {
        Vec::new()
    }

    fn set_up(&self, _: &mut Changes, _: &Surroundings, _: Terms) -> Result<SetUp> {
        Ok(SetUp { pool: Pool::Charged, note: String::new() })
    }

    fn arrange(&self, program: &Program, _: &Surroundings, _: Terms) -> Arrangement {
        let allowance = Allowance { limit_bytes: Option::None, may_swap: false };
        Arrangement { program: program.clone(), allowance }
    }

    fn account(&self, finished: &Finished<Output>, _: &Surroundings) -> Result<Account> {
        Ok(Account {
            peak_bytes: finished.group_peak_bytes,
            faults: finished.major_faults,
            ..Account::default()
        })
    }

    fn seeks_share(&self) -> bool {
        false
    }
}
