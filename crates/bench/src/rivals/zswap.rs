//! zswap: the kernel's compressed cache before a swap file, with `lz4` where the
//! kernel has it and the kernel's own choice where not. Source:
//! Documentation/admin-guide/mm/zswap.rst of the Linux kernel.
//!
//! Cgroup version 2 charges its pool to the program; version 1 does not, and then
//! the program's limit is lowered by it. Bad on random faults into a pool that
//! overflows to a slow disk, because what leaves the pool is decompressed again.

use anyhow::{Result, bail};

use super::{Pool, Rival, SetUp, Surroundings, Terms, swap_file_text, swap_size_bytes};
use crate::changes::Changes;

/// The main switch.
pub(super) const ENABLED: &str = "/sys/module/zswap/parameters/enabled";
const COMPRESSOR: &str = "/sys/module/zswap/parameters/compressor";
const CODEC: &str = "lz4";

pub(super) struct Zswap;

impl Rival for Zswap {
    fn name(&self) -> &'static str {
        "zswap"
    }

    fn changes(&self, surroundings: &Surroundings) -> Vec<String> {
        let switches = "switches zswap on, with lz4 where the kernel has it";
        vec![swap_file_text(&surroundings.swap_directory), switches.into()]
    }

    fn set_up(
        &self,
        changes: &mut Changes,
        surroundings: &Surroundings,
        terms: Terms,
    ) -> Result<SetUp> {
        if !changes.machine().has(ENABLED) {
            bail!("the kernel has no zswap");
        }
        // A kernel without this codec refuses it and keeps its own, which the note tells.
        let _ = changes.set_switch(COMPRESSOR, CODEC);
        let codec = changes.machine().read(COMPRESSOR)?;
        let pool = if surroundings.hierarchy.charges_zswap() {
            Pool::Charged
        } else {
            Pool::Zswap { before_bytes: changes.machine().meminfo_bytes("Zswap") }
        };
        changes.set_switch(ENABLED, "Y")?;
        changes.add_swap_file(&surroundings.swap_directory, swap_size_bytes(terms))?;
        Ok(SetUp { pool, note: codec })
    }

    fn has_kernel_pool(&self) -> bool {
        true
    }
}
