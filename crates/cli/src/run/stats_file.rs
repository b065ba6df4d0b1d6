//! Writing a file of results whole or not at all.
//!
//! A plain file is written beside its place and renamed (rename(2) is atomic); what
//! is no plain file, such as a terminal or a pipe, is written in place.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD};

/// How a file is written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// By appending to what is there.
    InPlace(PathBuf),
    /// By putting another file in its place.
    Replaced(PathBuf),
}

impl Target {
    /// How `file` has to be written. A link is followed; what lies in `/dev` or `/proc` may be a
    /// descriptor of this process that leads to a plain file, and is not replaced.
    pub(crate) fn of(file: &Path) -> Self {
        let device = file.starts_with("/dev") && !file.starts_with("/dev/shm");
        let descriptor = device || file.starts_with("/proc");
        let plain = !file.exists() || file.is_file();
        match plain && !descriptor {
            true => Target::Replaced(file.canonicalize().unwrap_or_else(|_| file.to_owned())),
            false => Target::InPlace(file.to_owned()),
        }
    }
}

/// The directory that holds `file`.
pub(crate) fn parent_of(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Finds out before any work whether `file`, which `flag` names, can be written after it.
///
/// # Errors
/// One line that says why not, and what would be right.
pub(crate) fn check(flag: &str, file: &Path) -> Result<(), String> {
    why_not(file).map_err(|why| {
        let file = file.display();
        format!("{flag} {file}: {why}: give a file in a directory that can be written")
    })
}

fn why_not(file: &Path) -> Result<(), String> {
    if file.is_dir() || file.as_os_str().as_bytes().ends_with(b"/") {
        return Err("a directory".into());
    }
    if file.file_name().is_none() {
        return Err("not a file name".into());
    }
    let written = match Target::of(file) {
        Target::InPlace(file) => file,
        Target::Replaced(file) => parent_of(&file).to_owned(),
    };
    rustix::fs::accessat(CWD, &written, Access::WRITE_OK, AtFlags::EACCESS)
        .map_err(|error| error.to_string())
}

/// Writes `text` to `file`.
///
/// # Errors
/// What the system refused; a plain file is then as it was.
pub(crate) fn write(file: &Path, text: &str) -> io::Result<()> {
    match Target::of(file) {
        Target::InPlace(file) => {
            OpenOptions::new().append(true).open(file)?.write_all(text.as_bytes())
        }
        Target::Replaced(file) => replace(&file, text),
    }
}

fn replace(file: &Path, text: &str) -> io::Result<()> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = parent_of(file).join(format!(".{name}.{}", std::process::id()));
    let written = File::create(&unfinished)
        .and_then(|mut open| open.write_all(text.as_bytes()))
        .and_then(|()| std::fs::rename(&unfinished, file));
    if written.is_err() {
        // It may not even have been made.
        let _ = std::fs::remove_file(&unfinished);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_also_through_a_link() {
        let folder = std::env::temp_dir().join(format!("zpager-stats-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (file, link) = (folder.join("s.json"), folder.join("link"));
        std::fs::write(&file, "what was there, and longer than what comes").expect("written");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        for (name, text) in [(&file, "{}\n"), (&link, "[]\n")] {
            write(name, text).expect("replaced");
            assert_eq!(std::fs::read_to_string(&file).expect("read"), text);
        }
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_dir(&folder).expect("listed").count(), 2);
        assert!(write(&folder.join("no/s.json"), "{}\n").is_err());
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn descriptors_and_devices_are_written_in_place() {
        for name in ["/dev/stdout", "/dev/null", "/proc/self/fd/1"] {
            assert_eq!(Target::of(Path::new(name)), Target::InPlace(name.into()));
        }
        let shared = "/dev/shm/s.json";
        assert_eq!(Target::of(Path::new(shared)), Target::Replaced(shared.into()));
        assert_eq!(parent_of(Path::new("s.json")), Path::new("."));
    }
}
