//! `zpager bench`: crates/bench does it; whether its results can be written is found out before.
//!
//! The file of results is put in the place of another as long as the bench runs, which is for plain
//! files alone: whatever else has that name stays as it is.

use std::path::PathBuf;
use std::process::ExitCode;

use zpager_bench::{Action, BenchCommand};

use crate::failure::Failure;
use crate::result_file::{self, Target};

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

/// The file that is put in the place of `file`; a link leads to it.
fn check_json(file: PathBuf) -> Result<PathBuf, Failure> {
    result_file::check("--json", &file).map_err(Failure::own)?;
    match Target::of(&file) {
        Target::Replaced(file) => Ok(file),
        Target::InPlace(file) => Err(Failure::own(format!(
            "--json {}: no plain file, as one that is replaced has to be: give one",
            file.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_files_are_replaced() {
        for (name, said) in [
            ("/nowhere/at/all", "/nowhere/at/all"),
            ("/", "directory"),
            ("/dev/null", "no plain file"),
            ("/dev/stdout", "no plain file"),
        ] {
            let failure = check_json(name.into()).expect_err(name);
            assert!(failure.message.contains(said), "{failure:?}");
            assert_eq!((failure.status, failure.message.lines().count()), (125, 1));
        }
        assert_eq!(check_json("rows.json".into()), Ok("rows.json".into()));
    }
}
