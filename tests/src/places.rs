//! Where the command under test is, and where tests may put files.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// The `zpager` command: `$ZPAGER`, or `target/release/zpager` of this workspace.
///
/// # Panics
/// There is none: it has to be built first.
pub fn zpager() -> PathBuf {
    let path = std::env::var_os("ZPAGER").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/zpager"),
        PathBuf::from,
    );
    assert!(
        path.is_file(),
        "{} is not there: `make build` makes it, or let ZPAGER name another",
        path.display()
    );
    path.canonicalize().expect("the path of a file that is there")
}

/// A directory beside the test binaries, so on the disk that holds the build and not on a tmpfs.
pub(crate) fn kept() -> PathBuf {
    let binary = std::env::current_exe().expect("the path of this test");
    let directory = binary.parent().expect("the directory of this test").join("zpager-tests");
    std::fs::create_dir_all(&directory).expect("a directory beside the tests");
    directory
}

/// A new empty directory, removed when the value is dropped.
///
/// # Panics
/// The disk refuses it.
pub fn scratch() -> TempDir {
    tempfile::tempdir_in(kept()).expect("a scratch directory beside the tests")
}

/// The way to every open file of a process that lies in `directory`, nameless ones too.
///
/// # Panics
/// There is no such process.
pub fn open_files_in(pid: u32, directory: &Path) -> Vec<PathBuf> {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("a process");
    let links = descriptors.map(|entry| entry.expect("an entry").path());
    links
        .filter(|link| std::fs::read_link(link).is_ok_and(|target| target.starts_with(directory)))
        .collect()
}
