//! zram: a block device in compressed RAM as the only swap area. Source:
//! Documentation/admin-guide/blockdev/zram.rst of the Linux kernel.
//!
//! The kernel charges its memory to nobody, so the program's limit is lowered by
//! it. What the device holds besides (a table of 16 bytes or more a page of its
//! size) is not counted, to zram's advantage. Bad where pages do not compress,
//! because it has nowhere else to put them.

use anyhow::{Context, Result};

use super::{Pool, Rival, SetUp, Surroundings, Terms, swap_size_bytes, switch_zswap};
use crate::changes::Changes;
use crate::machine::Machine;

pub(super) struct Zram;

/// The codec that zpager's default is compared with.
const CODEC: &str = "lz4";

impl Rival for Zram {
    fn name(&self) -> &'static str {
        "zram"
    }

    fn changes(&self, _: &Surroundings) -> Vec<String> {
        vec!["adds a zram device (lz4) and swaps to it".into(), "switches zswap off".into()]
    }

    fn set_up(&self, changes: &mut Changes, _: &Surroundings, terms: Terms) -> Result<SetUp> {
        switch_zswap(changes, "N")?;
        let number = changes.add_zram()?;
        let machine = changes.machine().clone();
        let switch = |name: &str| format!("/sys/block/zram{number}/{name}");
        // A kernel without this codec keeps its own choice, which the note tells.
        let _ = machine.write(&switch("comp_algorithm"), CODEC);
        let codec = chosen(&machine.read(&switch("comp_algorithm"))?);
        machine
            .write(&switch("disksize"), &swap_size_bytes(terms).to_string())
            .context("cannot size the zram device")?;
        changes.swap_on(&machine.path(&format!("/dev/zram{number}")))?;
        Ok(SetUp { pool: Pool::Zram { number }, note: codec })
    }

    fn has_kernel_pool(&self) -> bool {
        true
    }
}

/// The word in brackets of a list like `lzo [lz4] zstd`.
fn chosen(list: &str) -> String {
    let words = list.split_whitespace();
    let chosen = words.into_iter().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    chosen.unwrap_or(list).to_owned()
}

/// The most memory the device ever held: the fifth figure of its `mm_stat`.
pub(super) fn peak_bytes(machine: &Machine, number: u32) -> u64 {
    let text = machine.read(&format!("/sys/block/zram{number}/mm_stat")).unwrap_or_default();
    text.split_whitespace().nth(4).and_then(|field| field.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_codec_is_in_brackets() {
        assert_eq!(chosen("lzo-rle lzo [lz4]"), "lz4");
        assert_eq!(chosen("[lzo-rle] lzo lz4"), "lzo-rle");
        assert_eq!(chosen("lz4"), "lz4");
    }

    #[test]
    fn the_peak_is_the_fifth_figure() {
        let root = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(root.path().join("sys/block/zram5")).expect("directories");
        let machine = Machine::at(root.path());
        let text = "    4096       64    20480        0 45285376        0        0        0\n";
        machine.write("/sys/block/zram5/mm_stat", text).expect("mm_stat");
        assert_eq!(peak_bytes(&machine, 5), 45_285_376);
        assert_eq!(peak_bytes(&machine, 6), 0);
    }
}
