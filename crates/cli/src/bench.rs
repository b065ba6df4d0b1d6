//! `zpager bench`: crates/bench does it; whether its results can be written is found out before.

use std::path::PathBuf;
use std::process::ExitCode;

use zpager_bench::{Action, BenchCommand};

use crate::failure::Failure;
use crate::run::stats_file::{self, Target};

/// Does what was asked and gives the exit status.
///
/// # Errors
/// The file of results cannot be written.
pub(crate) fn main(mut command: BenchCommand) -> Result<ExitCode, Failure> {
    let json = match &mut command.action {
        Action::Run(options) => &mut options.common.json,
        Action::Overhead(options) => &mut options.common.json,
        _ => &mut None,
    };
    *json = json.take().map(check_json).transpose()?;
    Ok(zpager_bench::main(command))
}

/// Where `file` is; a link leads there.
fn check_json(file: PathBuf) -> Result<PathBuf, Failure> {
    stats_file::check("--json", &file).map_err(Failure::own)?;
    let (Target::Replaced(file) | Target::InPlace(file)) = Target::of(&file);
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_written_is_found_out_before() {
        for (name, said) in [("/nowhere/at/all", "/nowhere/at/all"), ("/", "directory")] {
            let failure = check_json(name.into()).expect_err(name);
            assert!(failure.message.contains(said), "{failure:?}");
            assert_eq!((failure.status, failure.message.lines().count()), (125, 1));
        }
        for name in ["rows.json", "/dev/null"] {
            assert_eq!(check_json(name.into()), Ok(name.into()));
        }
    }
}
