//! Pages of a real program: the heap of a CPython process that holds a table of
//! records, read through `/proc/PID/maps` and `/proc/PID/mem` (proc(5)).
//!
//! Pages of zeros are left out: most of them were never used, and every rival
//! keeps them for nothing. Nothing else is chosen.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::objects::SCRIPT;
use super::{Preparation, python};

const PAGE_BYTES: usize = 4096;

/// About how many bytes of pages one record of the table takes.
const RECORD_BYTES: u64 = 800;

/// Writes at least `wanted_bytes` of pages to `path` where the process has so many, and gives
/// how many pages were written.
///
/// # Errors
/// When the process cannot be started or read.
pub(super) fn capture(preparation: &Preparation, wanted_bytes: u64, path: &Path) -> Result<u64> {
    let records = wanted_bytes / RECORD_BYTES + 1000;
    let program = python::script(preparation, SCRIPT, "random", &[records, 0, preparation.seed])?;
    let mut child = Command::new(&program.argv[0])
        .args(&program.argv[1..])
        .envs(program.environment)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let captured = wait_and_copy(&mut child, wanted_bytes, path);
    // Its input ends, and so does it; should it not, it is of no more use.
    drop(child.stdin.take());
    let _ = child.kill();
    child.wait()?;
    captured
}

fn wait_and_copy(child: &mut Child, wanted_bytes: u64, path: &Path) -> Result<u64> {
    let stdout = child.stdout.take().context("no pipe")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    ensure!(line.trim() == "ready", "the Python program did not build its table");
    let maps = fs::read_to_string(format!("/proc/{}/maps", child.id()))?;
    let mut memory = File::open(format!("/proc/{}/mem", child.id()))?;
    let mut pages = BufWriter::new(File::create(path)?);
    let mut count = 0;
    for (start, end) in maps.lines().filter_map(private_memory) {
        memory.seek(SeekFrom::Start(start))?;
        for _ in 0..(end - start) / PAGE_BYTES as u64 {
            let mut page = [0; PAGE_BYTES];
            memory.read_exact(&mut page).context("cannot read the memory of a child")?;
            if page.iter().any(|&byte| byte != 0) {
                pages.write_all(&page)?;
                count += 1;
            }
            if count * PAGE_BYTES as u64 >= wanted_bytes {
                pages.flush()?;
                return Ok(count);
            }
        }
    }
    pages.flush()?;
    ensure!(count > 0, "the Python program has no memory of its own");
    Ok(count)
}

/// The address range of a line of `maps` that is private, writable memory without a file.
fn private_memory(line: &str) -> Option<(u64, u64)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (range, access, inode) = (fields.first()?, fields.get(1)?, fields.get(4)?);
    let is_heap = fields.get(5).is_none_or(|name| *name == "[heap]");
    if *access != "rw-p" || *inode != "0" || !is_heap {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_private_memory_without_a_file_is_taken() {
        let taken = |line| private_memory(line).is_some();
        assert!(taken("7f0000000000-7f0000001000 rw-p 00000000 00:00 0"));
        assert!(taken("55d000000000-55d000021000 rw-p 00000000 00:00 0    [heap]"));
        assert!(!taken("7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0   [stack]"));
        assert!(!taken("7f0000000000-7f0000001000 r--p 00000000 00:00 0"));
        assert!(!taken("7f0000000000-7f0000001000 rw-p 00001000 08:01 77  /usr/lib/libc.so.6"));
        assert_eq!(private_memory("1000-3000 rw-p 00000000 00:00 0"), Some((0x1000, 0x3000)));
    }
}
