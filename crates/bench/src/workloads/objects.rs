//! CPython with a large table of records as dictionaries: small objects spread
//! over the whole heap, and reference counts, so that reading writes. Scans,
//! look-ups of which most go to few records, and a sort.

use anyhow::Result;

use super::{Job, Preparation, Workload, plain_job, python};

/// Records at scale 1.
const RECORDS: u64 = 280_000;
/// Rounds of queries.
const ROUNDS: u64 = 1;

/// The script, which can also hold its table for its pages to be read.
pub(super) const SCRIPT: &str = include_str!("objects.py");

pub(super) struct Objects;

impl Workload for Objects {
    fn name(&self) -> &str {
        "objects"
    }

    fn about(&self) -> &str {
        "CPython building and querying a table of 280,000 records, about 190 MiB"
    }

    fn missing(&self) -> Option<String> {
        python::find("random").is_none().then(|| "needs Python 3 (package python3)".into())
    }

    fn prepare(&self, preparation: &Preparation) -> Result<Job> {
        let arguments = [preparation.scaled(RECORDS), ROUNDS, preparation.seed];
        let program = python::script(preparation, SCRIPT, "random", &arguments)?;
        Ok(plain_job(program, Vec::new()))
    }
}
