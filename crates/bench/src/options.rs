//! What the user asks for, from its words to checked values.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use zpager_command::size;

use crate::rivals::RivalName;
use crate::workloads::own::Own;
use crate::workloads::{WORKLOADS, Workload};

/// How much memory a comparison gives in all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Memory {
    /// So many bytes.
    Bytes(u64),
    /// A share of the workload's own unlimited peak.
    Percent(f64),
}

impl Memory {
    /// Bytes for a workload with this peak.
    #[must_use]
    pub fn of(self, peak_bytes: u64) -> u64 {
        match self {
            Memory::Bytes(bytes) => bytes,
            Memory::Percent(percent) => (peak_bytes as f64 * percent / 100.0) as u64,
        }
    }
}

impl FromStr for Memory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_suffix('%') {
            Some(number) => match number.parse::<f64>() {
                Ok(percent) if percent > 0.0 && percent.is_finite() => Ok(Memory::Percent(percent)),
                _ => Err(format!("'{text}' is not a share, such as 50%")),
            },
            None => match size::parse(text) {
                Some(bytes @ 1..) => Ok(Memory::Bytes(bytes)),
                _ => Err(format!(
                    "'{text}' is not a size, such as 256M or 1.5G, nor a share, such as 50%"
                )),
            },
        }
    }
}

/// A factor for the size of workloads.
fn scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(scale) if scale > 0.0 && scale <= 64.0 => Ok(scale),
        _ => Err(format!("'{text}' is not a scale: more than 0, at most 64")),
    }
}

/// A workload by its name.
fn workload(text: &str) -> Result<&'static dyn Workload, String> {
    WORKLOADS.into_iter().find(|workload| workload.name() == text).ok_or_else(|| {
        let names: Vec<_> = WORKLOADS.iter().map(|workload| workload.name()).collect();
        format!("there is no workload '{text}'; there are {}", names.join(", "))
    })
}

/// A workload that the user chose.
#[derive(Clone, Copy)]
pub struct Chosen(pub(crate) &'static dyn Workload);

impl std::fmt::Debug for Chosen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.name())
    }
}

impl FromStr for Chosen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        workload(text).map(Chosen)
    }
}

/// What workloads are made of, and where things go.
#[derive(Debug, Clone, Args)]
pub struct CommonOptions {
    /// Workloads, separated by commas; all of them without this option
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub workload: Vec<Chosen>,
    /// Also write the figures as JSON to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Where swap files and zpager's store go: a directory on a disk
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub swap_dir: PathBuf,
    /// Size of the workloads, 1 for the documented one
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = scale)]
    pub scale: f64,
    /// Seed of the workloads' inputs
    #[arg(long, env = "ZPAGER_SEED", default_value_t = 1)]
    pub seed: u64,
    /// The zpager command to measure [default: this one]
    #[arg(long, value_name = "PATH")]
    pub zpager: Option<PathBuf>,
    /// The C file that `compile` compiles [default: SQLite's amalgamation, or a made one]
    #[arg(long, value_name = "FILE")]
    pub c_source: Option<PathBuf>,
    /// A program of your own with its arguments, in place of the workloads
    #[arg(
        last = true,
        value_name = "PROGRAM",
        conflicts_with_all = ["workload", "scale", "c_source"]
    )]
    pub program: Vec<OsString>,
}

impl CommonOptions {
    /// The program of the user's own, if there is one.
    pub(crate) fn own(&self) -> Option<Own> {
        Own::new(self.program.clone())
    }

    /// The workloads that were chosen, where there is no program of the user's own.
    pub(crate) fn workloads<'a>(&self, own: Option<&'a Own>) -> Vec<&'a dyn Workload> {
        match (own, self.workload.as_slice()) {
            (Some(own), _) => vec![own],
            (None, []) => WORKLOADS.to_vec(),
            (None, chosen) => chosen.iter().map(|chosen| chosen.0 as _).collect(),
        }
    }
}

/// Options of `zpager bench run`.
#[derive(Debug, Clone, Args)]
pub struct RunOptions {
    /// What is run where
    #[command(flatten)]
    pub common: CommonOptions,
    /// What the workloads are run under, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "none,disk,zswap,zram,zpager")]
    pub rivals: Vec<RivalName>,
    /// Program, pool and metadata together: a size, or a share of the workload's own peak
    #[arg(long, value_name = "SIZE|PERCENT", default_value = "50%")]
    pub memory: Memory,
    /// Runs of each workload under each rival
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Give swap files and zpager's store a disk of their own that does so many reads and so many
    /// writes a second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub disk_iops: Option<u32>,
    /// When a run is killed [default: 30 s and 30 times as long as without a limit, on a slow disk
    /// ten times that]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub time_out: Option<u64>,
}

/// Options of `zpager bench overhead`.
#[derive(Debug, Clone, Args)]
pub struct OverheadOptions {
    /// What is run where
    #[command(flatten)]
    pub common: CommonOptions,
    /// Pairs of runs, one free and one under zpager
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub pairs: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn memory_is_a_size_or_a_share() {
        assert_eq!("256M".parse(), Ok(Memory::Bytes(256 << 20)));
        assert_eq!("1.5G".parse(), Ok(Memory::Bytes(3 << 29)));
        assert_eq!("64KiB".parse(), Ok(Memory::Bytes(64 << 10)));
        assert_eq!("4096".parse(), Ok(Memory::Bytes(4096)));
        assert_eq!("50%".parse(), Ok(Memory::Percent(50.0)));
        assert_eq!(Memory::Percent(25.0).of(400), 100);
        assert_eq!(Memory::Bytes(7).of(400), 7);
        for wrong in ["", "%", "0", "-1M", "0%", "M", "half", "1Q", "nan%", "inf", "1e30G"] {
            assert!(wrong.parse::<Memory>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_a_panic(text in ".*") {
            if let Ok(Memory::Bytes(bytes)) = text.parse::<Memory>() {
                prop_assert!(bytes > 0);
            }
        }
    }

    #[test]
    fn an_unknown_workload_is_answered_with_the_known_ones() {
        let answer = "sorts".parse::<Chosen>().expect_err("unknown");
        assert!(answer.contains("faults-random") && answer.contains("compile"), "{answer}");
        assert_eq!("sort".parse::<Chosen>().expect("known").0.name(), "sort");
    }

    #[test]
    fn a_scale_is_a_positive_number() {
        assert_eq!(scale("0.5"), Ok(0.5));
        for wrong in ["0", "-1", "65", "nan", "x"] {
            assert!(scale(wrong).is_err(), "{wrong}");
        }
    }
}
