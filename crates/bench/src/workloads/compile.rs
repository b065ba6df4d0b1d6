//! The C compiler on one very large translation unit: SQLite's amalgamation where
//! the machine has it, else a unit made from a seed. Trees and tables built up
//! function by function, kept to the end, and visited again by each optimisation.
//!
//! The output is the assembly text. GCC's driver starts the compiler proper with
//! vfork, so the memory is that of a child.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::Result;
use fastrand::Rng;

use super::{Job, Preparation, Workload, missing_command, plain_job, program};

/// Functions of the made unit at scale 1.
const FUNCTIONS: u64 = 1_000;
/// Functions that one function may call lie this close before it.
const CALL_DISTANCE: u64 = 200;

pub(super) struct Compile;

impl Workload for Compile {
    fn name(&self) -> &str {
        "compile"
    }

    fn about(&self) -> &str {
        "cc -O2 of SQLite's amalgamation, about 330 MiB, or of a made unit, 220 MiB"
    }

    fn missing(&self) -> Option<String> {
        missing_command("cc", "gcc")
    }

    fn prepare(&self, preparation: &Preparation) -> Result<Job> {
        let (source, note) = match (&preparation.c_source, amalgamation()) {
            (Some(path), _) => (fs::canonicalize(path)?, path.display().to_string()),
            // The amalgamation cannot be scaled.
            (None, Some(path)) if preparation.scale >= 1.0 => {
                (path, "SQLite's amalgamation".into())
            }
            _ => (make_unit(preparation)?, "a unit made from a seed".into()),
        };
        let argv = ["cc", "-O2", "-w", "-S", "-o", "-"].map(Into::into);
        let program = program(argv.into_iter().chain([source.clone().into()]));
        Ok(Job { note, ..plain_job(program, vec![source]) })
    }
}

/// SQLite in one file, as the source of the crate libsqlite3-sys in cargo's registry has it.
fn amalgamation() -> Option<PathBuf> {
    let cargo = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))?;
    let registries = fs::read_dir(cargo.join("registry/src")).ok()?;
    let mut found: Vec<PathBuf> = registries
        .flatten()
        .filter_map(|registry| fs::read_dir(registry.path()).ok())
        .flat_map(|crates| crates.flatten())
        .filter(|crate_| crate_.file_name().to_string_lossy().starts_with("libsqlite3-sys-"))
        .map(|crate_| crate_.path().join("sqlite3/sqlite3.c"))
        .filter(|path| path.is_file())
        .collect();
    found.sort();
    found.pop()
}

/// A C file of functions with loops, branches, tables and calls.
fn make_unit(preparation: &Preparation) -> Result<PathBuf> {
    let path = preparation.directory.join("unit.c");
    let mut random = Rng::with_seed(preparation.seed);
    let mut file = BufWriter::new(File::create(&path)?);
    writeln!(file, "struct node {{ struct node *next; long key, weight; double mean; }};")?;
    for number in 0..preparation.scaled(FUNCTIONS) {
        write_function(&mut file, number, &mut random)?;
    }
    file.flush()?;
    Ok(path)
}

fn write_function(file: &mut impl Write, number: u64, random: &mut Rng) -> Result<()> {
    writeln!(file, "static const int table{number}[] = {{")?;
    for _ in 0..random.u32(4..40) {
        write!(file, "{},", random.u16(..))?;
    }
    writeln!(file, "0}};\nlong work{number}(struct node *list, long a, long b) {{")?;
    writeln!(file, "  long sum = table{number}[a & 3];")?;
    for _ in 0..random.u32(6..24) {
        write_statement(file, number, random)?;
    }
    writeln!(file, "  return sum;\n}}")?;
    Ok(())
}

fn write_statement(file: &mut impl Write, number: u64, random: &mut Rng) -> Result<()> {
    let (x, y) = (random.u16(1..), random.u16(1..));
    match random.u8(..5) {
        0 => writeln!(file, "  for (long i = 0; i < b % {x} + 1; i++) sum += (a ^ i) * {y};")?,
        1 => writeln!(
            file,
            "  for (struct node *n = list; n; n = n->next) {{ \
             if (n->key > {x}) sum += n->weight / {y}; else n->mean += sum; }}"
        )?,
        2 => {
            write!(file, "  switch ((a + sum) % 7) {{")?;
            for label in 0..6 {
                write!(file, " case {label}: sum = sum * {} + b; break;", random.u16(..))?;
            }
            writeln!(file, " default: b -= {y}; }}")?;
        }
        3 if number > 0 => {
            let callee = number - random.u64(1..=number.min(CALL_DISTANCE));
            writeln!(file, "  if (sum & {x}) sum += work{callee}(list, sum, b - {y});")?;
        }
        _ => writeln!(file, "  a = (a << 3) ^ (b >> {}) ^ {x}; b += a * {y};", random.u8(1..20))?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_unit() {
        let unit = || {
            let directory = tempfile::tempdir().expect("a directory");
            let preparation = Preparation {
                directory: directory.path().into(),
                scale: 0.02,
                seed: 3,
                c_source: None,
            };
            fs::read_to_string(make_unit(&preparation).expect("made")).expect("read")
        };
        assert_eq!(unit(), unit());
        assert!(unit().contains("long work15("));
    }
}
