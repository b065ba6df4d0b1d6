//! Disk swap: a swap file, with zswap off. Bad on everything but the rarest
//! faults; good only where pages do not compress.

use anyhow::Result;

use super::{
    Pool, Rival, SetUp, Surroundings, Terms, swap_file_text, swap_size_bytes, switch_zswap,
};
use crate::changes::Changes;

pub(super) struct Disk;

impl Rival for Disk {
    fn name(&self) -> &'static str {
        "disk"
    }

    fn changes(&self, surroundings: &Surroundings) -> Vec<String> {
        vec![swap_file_text(&surroundings.swap_directory), "switches zswap off".into()]
    }

    fn set_up(
        &self,
        changes: &mut Changes,
        surroundings: &Surroundings,
        terms: Terms,
    ) -> Result<SetUp> {
        switch_zswap(changes, "N")?;
        changes.add_swap_file(&surroundings.swap_directory, swap_size_bytes(terms))?;
        Ok(SetUp { pool: Pool::Charged, note: String::new() })
    }

    fn seeks_share(&self) -> bool {
        false
    }
}
