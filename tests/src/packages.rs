//! Programs that a test needs and that a machine may lack.
//!
//! `tests/packages` lists the Debian packages. Where one is missing the test
//! says so and passes: a user's machine need not have Java.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The program's path, looked for along `PATH`; says that the test is skipped where it is missing.
pub fn program(name: &str, package: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/usr/games")])
        .map(|directory| directory.join(name))
        .find(|file| file.is_file());
    if found.is_none() {
        println!("skipped: {package} missing");
    }
    found
}

/// The distribution's own Python where it can import `module`.
pub fn python(module: &str, package: &str) -> Option<PathBuf> {
    let python = Path::new("/usr/bin/python3");
    let found = python.is_file()
        && succeeds(Command::new(python).args(["-c", &format!("import {module}")]));
    if !found {
        println!("skipped: {package} missing");
    }
    found.then(|| python.to_owned())
}

/// Whether a command runs and ends with status 0.
fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}
