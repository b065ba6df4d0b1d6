//! The CPython interpreter, and scripts that travel inside the command.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Result;

use super::{Preparation, program};
use crate::process::Program;

/// The first interpreter on the search path, or the system's, that imports `module`.
///
/// The path is the interpreter's own, because what is on the search path may be
/// a script that chooses among interpreters.
pub(super) fn find(module: &str) -> Option<PathBuf> {
    ["python3", "/usr/bin/python3"].iter().find_map(|name| {
        let script = format!("import sys, {module}; print(sys.executable)");
        let output =
            Command::new(name).args(["-c", &script]).stderr(Stdio::null()).output().ok()?;
        let path = String::from_utf8(output.stdout).ok()?;
        (output.status.success() && !path.trim().is_empty()).then(|| path.trim().into())
    })
}

/// A run of `script` with `arguments`; `module` is what it imports.
///
/// # Errors
/// When there is no interpreter, or the script cannot be written.
pub(super) fn script(
    preparation: &Preparation,
    script: &str,
    module: &str,
    arguments: &[u64],
) -> Result<Program> {
    let interpreter =
        find(module).ok_or_else(|| anyhow::anyhow!("no Python 3 that imports {module}"))?;
    let path = preparation.directory.join("script.py");
    fs::write(&path, script)?;
    let arguments = arguments.iter().map(|argument| OsString::from(argument.to_string()));
    Ok(program([interpreter.into(), path.into()].into_iter().chain(arguments)))
}
