//! The programs that are run under every rival. One file a workload; each says
//! what its memory is like and what its output proves.
//!
//! Inputs are made once a session from a seed, so all rivals get the same bytes.

mod capture;
mod compile;
pub(crate) mod faults;
mod fft;
mod objects;
pub(crate) mod own;
mod python;
mod redis;
pub(crate) mod sor;
mod sort;
mod text;

use std::ffi::OsString;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use anyhow::Result;
use xxhash_rust::xxh3::Xxh3;

use crate::process::{Program, Running};

/// All workloads, in the order in which they are listed and run.
pub(crate) const WORKLOADS: [&dyn Workload; 13] = [
    &faults::RANDOM,
    &faults::RANDOM_THREADED,
    &faults::RANDOM_SYNTHETIC,
    &faults::SEQUENTIAL,
    &faults::SEQUENTIAL_SYNTHETIC,
    &faults::INCOMPRESSIBLE,
    &faults::INCOMPRESSIBLE_THREADED,
    &sort::Sort,
    &fft::Fft,
    &sor::Sor,
    &objects::Objects,
    &redis::Redis,
    &compile::Compile,
];

/// A program and its input.
pub(crate) trait Workload: Sync {
    /// What the user calls it.
    fn name(&self) -> &str;

    /// What it does and about how much memory it takes, in one line.
    fn about(&self) -> &str;

    /// What has to be installed before it can run here, if anything.
    fn missing(&self) -> Option<String>;

    /// Makes the input.
    ///
    /// # Errors
    /// When it cannot be made.
    fn prepare(&self, preparation: &Preparation) -> Result<Job>;
}

/// From what inputs are made.
#[derive(Debug, Clone)]
pub(crate) struct Preparation {
    /// Where they go: an empty directory of this workload's own.
    pub directory: PathBuf,
    /// 1 for the documented size.
    pub scale: f64,
    /// The seed of everything random.
    pub seed: u64,
    /// The source file that `compile` compiles, if the user named one.
    pub c_source: Option<PathBuf>,
}

impl Preparation {
    /// `count` at this scale, at least 1.
    fn scaled(&self, count: u64) -> u64 {
        ((count as f64 * self.scale) as u64).max(1)
    }

    /// The side of a square whose area grows with the scale.
    fn scaled_side(&self, side: u64) -> u64 {
        ((side as f64 * self.scale.sqrt()) as u64).max(16)
    }
}

/// What a driver does with a running program.
pub(crate) type Drive = Box<dyn Fn(Running<'_>) -> Result<Output> + Send + Sync>;

/// A workload that is ready to run.
pub(crate) struct Job {
    /// The command.
    pub program: Program,
    /// Files it reads, to be in the page cache before it starts.
    pub inputs: Vec<PathBuf>,
    /// Reads or drives the program and gives what it put out.
    pub drive: Drive,
    /// What a reader of the figures has to know.
    pub note: String,
}

/// What a program put out.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Output {
    /// XXH3-128 of the output; equal for equal outputs.
    pub digest: u128,
    /// Measured from within, where the program does that.
    pub passes: Option<Passes>,
}

/// Page accesses that were timed by the program itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Passes {
    /// Pages visited.
    pub accesses: u64,
    /// Time for all of them.
    pub seconds: f64,
    /// Faults the kernel served, of both kinds.
    pub kernel_faults: u64,
    /// By what the time is divided to give the time of a fault.
    pub divisor: Divisor,
}

/// By what the time of passes is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Divisor {
    /// Faults: on random access each fault brings one page that is needed.
    Faults,
    /// Pages visited: on sequential access pages come ahead of their faults.
    Accesses,
}

/// A job whose output is the program's standard output.
fn plain_job(program: Program, inputs: Vec<PathBuf>) -> Job {
    Job { program, inputs, drive: Box::new(digest_output), note: String::new() }
}

/// Reads all of the standard output.
fn digest_output(mut running: Running<'_>) -> Result<Output> {
    let mut hasher = Xxh3::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match running.stdout.read(&mut buffer) {
            Ok(0) => return Ok(Output { digest: hasher.digest128(), passes: None }),
            Ok(length) => hasher.update(&buffer[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A command without additions to the environment but those that make its output the same everywhere.
fn program(argv: impl IntoIterator<Item = OsString>) -> Program {
    let environment = vec![
        ("LC_ALL", "C".into()),
        ("PYTHONHASHSEED", "0".into()),
        ("PYTHONDONTWRITEBYTECODE", "1".into()),
    ];
    Program { argv: argv.into_iter().collect(), environment, directory: None }
}

/// The full path of a command on the user's search path.
fn find_command(name: impl AsRef<Path>) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(&name)).find(|path| path.is_file())
}

fn missing_command(name: &str, package: &str) -> Option<String> {
    find_command(name).is_none().then(|| format!("needs {name} (package {package})"))
}

/// Reads a file through, so that it is in the page cache and charged to the bench.
///
/// # Errors
/// As reading the file.
pub(crate) fn warm(path: &Path) -> std::io::Result<u64> {
    std::io::copy(&mut std::fs::File::open(path)?, &mut std::io::sink())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = WORKLOADS.iter().map(|workload| workload.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), WORKLOADS.len());
    }

    #[test]
    fn the_scale_never_makes_nothing() {
        let preparation =
            Preparation { directory: PathBuf::new(), scale: 1e-6, seed: 1, c_source: None };
        assert_eq!(preparation.scaled(100), 1);
        assert_eq!(preparation.scaled_side(2048), 16);
    }
}
