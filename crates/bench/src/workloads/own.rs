//! A program of the user's own, as a shell would start it: in the working directory and with the environment
//! that the bench was started with. Only its standard input is empty, as each run would need it anew.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::unistd::{AccessFlags, access};

use super::{Job, Preparation, Workload, find_command, plain_job};
use crate::process::Program;

/// The program and its arguments.
pub(crate) struct Own {
    argv: Vec<OsString>,
    name: String,
}

impl Own {
    /// The workload that a command line of at least a program is.
    pub(crate) fn new(argv: Vec<OsString>) -> Option<Own> {
        let path = Path::new(argv.first()?);
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Some(Own { argv, name })
    }

    /// Where the program is, by its path or on the user's search path.
    fn find(&self) -> Option<PathBuf> {
        let path = Path::new(&self.argv[0]);
        let has_directory = path.components().count() > 1 || path.is_absolute();
        let found = if has_directory { Some(path.to_owned()) } else { find_command(path) };
        found.filter(|path| path.is_file() && access(path, AccessFlags::X_OK).is_ok())
    }
}

impl Workload for Own {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> &str {
        "a program of the user's own"
    }

    fn missing(&self) -> Option<String> {
        let path = self.argv[0].display();
        self.find()
            .is_none()
            .then(|| format!("{path}: no program that can be run: give the path of one"))
    }

    fn prepare(&self, _: &Preparation) -> Result<Job> {
        let directory = std::env::current_dir().context("the working directory")?;
        let program = Program {
            argv: self.argv.clone(),
            environment: Vec::new(),
            directory: Some(directory),
        };
        Ok(plain_job(program, Vec::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(line: &str) -> Own {
        Own::new(line.split(' ').map(OsString::from).collect()).expect("a program")
    }

    #[test]
    fn a_program_is_found_as_a_shell_finds_it() {
        for line in ["sh", "/bin/sh -c true"] {
            assert_eq!((own(line).name(), own(line).missing()), ("sh", None));
        }
        for line in ["no-such-program", "./sh", "/bin", "..", "/etc/passwd", ""] {
            let missing = own(line).missing().expect(line);
            assert!(missing.starts_with(&format!("{line}: no program")), "{missing}");
        }
        assert!(Own::new(Vec::new()).is_none());
    }
}
