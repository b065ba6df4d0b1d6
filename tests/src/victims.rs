//! Compiling the victims: small C programs, one a hazard, that check themselves.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::job::Job;
use crate::packages::program;
use crate::places;

/// How every victim is compiled.
const COMPILER_FLAGS: [&str; 7] =
    ["-O2", "-pthread", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-std=gnu11"];

/// The seed of victims: `$ZPAGER_SEED`, or 1.
pub fn seed() -> String {
    std::env::var("ZPAGER_SEED").unwrap_or_else(|_| "1".to_owned())
}

/// A job that runs the victim `name` with the seed.
pub fn job(name: &str) -> Job {
    job_of(name, build(name, &[]))
}

/// A job that runs a victim of this name, compiled to `program`, with the seed.
fn job_of(name: &str, program: PathBuf) -> Job {
    let seed = seed();
    println!("victim {name}, ZPAGER_SEED={seed}");
    Job::new(program).argument(seed)
}

/// How a victim is linked that no dynamic loader prepares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whole {
    /// At the addresses that it was linked for.
    Static,
    /// At any address.
    StaticPie,
    /// With the C library musl.
    Musl,
}

/// The same with the victim linked statically; `None`, with a word, where what that takes is missing.
pub fn whole_job(name: &str, whole: Whole) -> Option<Job> {
    let flags = match whole {
        Whole::Static | Whole::Musl => ["-static"],
        Whole::StaticPie => ["-static-pie"],
    };
    if whole == Whole::Musl {
        program("musl-gcc", "musl-tools")?;
        return Some(job_of(name, build_with("musl-gcc", name, &flags)));
    }
    Some(job_of(name, build(name, &flags)))
}

/// A job that runs a victim whose dynamic loader is its C library, musl; `None`, with a word, where what
/// that takes is missing.
pub fn musl_job(name: &str) -> Option<Job> {
    program("musl-gcc", "musl-tools")?;
    Some(job_of(name, build_with("musl-gcc", name, &[])))
}

/// Compiles `victims/NAME.c` unless that was done before, and gives the path of the program.
///
/// # Panics
/// The compiler is missing or refuses the file.
pub fn build(name: &str, more_flags: &[&str]) -> PathBuf {
    build_with("cc", name, more_flags)
}

/// The same with the compiler `compiler`.
fn build_with(compiler: &str, name: &str, more_flags: &[&str]) -> PathBuf {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("victims");
    let source = directory.join(name).with_extension("c");
    let key = key_of(compiler, &[&source, &directory.join("victim.h")], more_flags);
    let program = places::kept().join(format!("{name}-{key:016x}"));
    if !program.is_file() {
        compile(compiler, &source, &program, more_flags);
    }
    program
}

/// Names the contents that a compiled victim is made of.
fn key_of(compiler: &str, sources: &[&Path], more_flags: &[&str]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (compiler, COMPILER_FLAGS, more_flags).hash(&mut hasher);
    for source in sources {
        let text = fs::read(source);
        text.unwrap_or_else(|error| panic!("{}: {error}", source.display())).hash(&mut hasher);
    }
    hasher.finish()
}

/// Compiles to a name of its own first, so that tests may run at the same time.
fn compile(compiler: &str, source: &Path, program: &Path, more_flags: &[&str]) {
    let scratch = places::scratch();
    let fresh = scratch.path().join("victim");
    let mut command = Command::new(compiler);
    command.args(COMPILER_FLAGS).args(more_flags).arg("-o").arg(&fresh).arg(source);
    let output = command.output();
    let output =
        output.unwrap_or_else(|error| panic!("{compiler}: {error}: it is in the package gcc"));
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {messages}", source.display());
    fs::rename(&fresh, program).expect("the compiled victim takes its place");
}
