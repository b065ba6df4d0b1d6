//! GNU sort of a shuffled text that it holds in memory: one large buffer of
//! lines, and pointers into it that go everywhere. Text compresses well; the
//! order of access is hard on any replacement.

use std::fs::File;
use std::io::{BufWriter, Write};

use anyhow::Result;
use fastrand::Rng;

use super::text::Words;
use super::{Job, Preparation, Workload, missing_command, plain_job, program};

/// Lines at scale 1.
const LINES: u64 = 2_650_000;

pub(super) struct Sort;

impl Workload for Sort {
    fn name(&self) -> &str {
        "sort"
    }

    fn about(&self) -> &str {
        "GNU sort of 2.65 million shuffled lines in memory, about 260 MiB"
    }

    fn missing(&self) -> Option<String> {
        missing_command("sort", "coreutils")
    }

    fn prepare(&self, preparation: &Preparation) -> Result<Job> {
        let input = preparation.directory.join("lines.txt");
        let words = Words::new(preparation.seed);
        let mut random = Rng::with_seed(preparation.seed);
        let mut file = BufWriter::new(File::create(&input)?);
        let lines = preparation.scaled(LINES);
        for _ in 0..lines {
            for _ in 0..random.u32(4..10) {
                write!(file, "{} ", words.pick(&mut random))?;
            }
            writeln!(file, "{}", random.u32(..1_000_000))?;
        }
        file.into_inner()?.sync_all()?;
        // -S larger than the need: everything is held in memory, nothing in temporary files.
        let argv = ["sort", "-S", "4G", "--parallel=1"].map(Into::into);
        let program = program(argv.into_iter().chain([input.clone().into()]));
        Ok(plain_job(program, vec![input]))
    }
}
