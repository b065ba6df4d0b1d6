//! Where the kernel's switches are: every path under `/proc`, `/sys` and `/run`
//! is looked up below one root, so that a test can stand a directory in for the
//! machine.

use std::fs;
use std::io;
use std::path::PathBuf;

/// The machine whose switches are read and written.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    root: PathBuf,
}

impl Machine {
    /// This machine.
    pub(crate) fn real() -> Self {
        Self::at("/")
    }

    /// A machine whose files lie below `root`.
    pub(crate) fn at(root: impl Into<PathBuf>) -> Self {
        Machine { root: root.into() }
    }

    /// Where `absolute` (which starts with a slash) lies.
    pub(crate) fn path(&self, absolute: &str) -> PathBuf {
        self.root.join(absolute.trim_start_matches('/'))
    }

    /// Whether there is such a file.
    pub(crate) fn has(&self, absolute: &str) -> bool {
        self.path(absolute).exists()
    }

    /// The text of a small file, without white space at its ends.
    ///
    /// # Errors
    /// As reading the file.
    pub(crate) fn read(&self, absolute: &str) -> io::Result<String> {
        Ok(fs::read_to_string(self.path(absolute))?.trim().to_owned())
    }

    /// Writes a switch.
    ///
    /// # Errors
    /// As writing the file; a kernel switch refuses a value with an error.
    pub(crate) fn write(&self, absolute: &str, value: &str) -> io::Result<()> {
        fs::write(self.path(absolute), value)
    }

    /// The value in bytes of one line of `/proc/meminfo`, or 0 where the kernel has no such line.
    pub(crate) fn meminfo_bytes(&self, name: &str) -> u64 {
        let text = self.read("/proc/meminfo").unwrap_or_default();
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
            .map_or(0, |kib| kib * 1024)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_lines_are_in_kibibytes() {
        let root = tempfile::tempdir().expect("a directory");
        fs::create_dir(root.path().join("proc")).expect("proc");
        fs::write(root.path().join("proc/meminfo"), "Zswap:   12 kB\nZswapped:  40 kB\n")
            .expect("meminfo");
        let machine = Machine::at(root.path());
        assert_eq!(machine.meminfo_bytes("Zswap"), 12 * 1024);
        assert_eq!(machine.meminfo_bytes("Zswapped"), 40 * 1024);
        assert_eq!(machine.meminfo_bytes("Zs"), 0);
    }
}
