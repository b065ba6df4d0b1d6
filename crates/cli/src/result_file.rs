//! A file of results: it is written whole or not at all.
//!
//! A plain file is written beside its place and renamed (rename(2) is atomic); what
//! is no plain file, such as a terminal or a pipe, is written in place.
//!
//! Invariant: until it is whole, a plain file has a name that this process made. It may lie where others
//! can make names too, as in `/tmp`: what has that name already is neither followed nor written to.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD};

use crate::failure::{Failure, OrFail};

/// Longest name in a directory (`NAME_MAX`).
const NAME_BYTES_MAX: usize = 255;

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

/// The file, while it is written.
#[derive(Debug)]
pub(crate) struct ResultFile {
    file: File,
    /// The name that a plain one has until it is whole, and the one that it has then.
    names: Option<(PathBuf, PathBuf)>,
}

impl ResultFile {
    /// Makes the file.
    ///
    /// # Errors
    /// What the system refused.
    pub(crate) fn create(file: &Path) -> io::Result<Self> {
        let (file, names) = match Target::of(file) {
            Target::InPlace(file) => (OpenOptions::new().append(true).open(file)?, None),
            Target::Replaced(file) => {
                let unfinished = unfinished_name(&file, std::process::id());
                // One of this id that was killed may have left it.
                let _ = std::fs::remove_file(&unfinished);
                (File::create_new(&unfinished)?, Some((unfinished, file)))
            }
        };
        Ok(ResultFile { file, names })
    }

    /// Gives the whole file its name.
    ///
    /// # Errors
    /// What the system refused; what was there is as it was then.
    pub(crate) fn keep(mut self) -> io::Result<()> {
        if let Some((unfinished, name)) = &self.names {
            std::fs::rename(unfinished, name)?;
            self.names = None;
        }
        Ok(())
    }
}

impl Write for ResultFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for ResultFile {
    fn drop(&mut self) {
        if let Some((unfinished, _)) = &self.names {
            // Failure leaves a file that nobody takes for a whole one.
            let _ = std::fs::remove_file(unfinished);
        }
    }
}

/// What a file is called until it is whole: `.NAME.ID`, with as much of its name as there is room for.
fn unfinished_name(file: &Path, id: u32) -> PathBuf {
    let end = format!(".{id}");
    let name = file.file_name().unwrap_or_default().as_bytes();
    let kept = name.len().min(NAME_BYTES_MAX - 1 - end.len());
    let unfinished = [b".", &name[..kept], end.as_bytes()].concat();
    parent_of(file).join(OsStr::from_bytes(&unfinished))
}

/// The directory that holds `file`.
fn parent_of(file: &Path) -> &Path {
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
    match file.symlink_metadata() {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.to_string()),
        _ => {}
    }
    let written = match Target::of(file) {
        Target::InPlace(file) => file,
        Target::Replaced(file) => parent_of(&file).to_owned(),
    };
    rustix::fs::accessat(CWD, &written, Access::WRITE_OK, AtFlags::EACCESS)
        .map_err(|error| error.to_string())
}

/// [`check`] of a file that is not to take the place of what is read, which `read` names.
///
/// # Errors
/// It cannot be written, or is that file.
pub(crate) fn check_beside(flag: &str, file: &Path, read: Option<&Path>) -> Result<(), Failure> {
    check(flag, file).map_err(Failure::arguments)?;
    match read.is_some_and(|read| is_one(file, read)) {
        true => Err(Failure::arguments(format!(
            "{flag} {}: that is what is to be read: give a file of its own",
            file.display()
        ))),
        false => Ok(()),
    }
}

/// The same of the files of a comparison, a picture and rows.
///
/// # Errors
/// One of them cannot be written, or two of the three are one.
pub(crate) fn check_both(
    plot: Option<&Path>,
    json: Option<&Path>,
    read: Option<&Path>,
) -> Result<(), Failure> {
    for (flag, file) in [("--plot", plot), ("--json", json)] {
        file.map_or(Ok(()), |file| check_beside(flag, file, read))?;
    }
    match plot.is_some() && plot == json {
        true => {
            Err(Failure::arguments("--plot and --json name one file: give each a file of its own"))
        }
        false => Ok(()),
    }
}

/// Whether two names are of one plain file that is there.
fn is_one(a: &Path, b: &Path) -> bool {
    let of_file = |path: &Path| {
        let found = path.metadata().ok().filter(|found| found.is_file());
        found.map(|found| (found.dev(), found.ino()))
    };
    of_file(a).is_some_and(|file| of_file(b) == Some(file))
}

/// Writes `text` to `file`, which `flag` names.
///
/// # Errors
/// What the system refused; a plain file is then as it was.
pub(crate) fn write(flag: &str, file: &Path, text: &str) -> Result<(), Failure> {
    let written = ResultFile::create(file).and_then(|mut open| {
        open.write_all(text.as_bytes())?;
        open.keep()
    });
    written.or_fail(format_args!("{flag} {}: not written", file.display()))
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
            write("--json", name, text).expect("replaced");
            assert_eq!(std::fs::read_to_string(&file).expect("read"), text);
        }
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_dir(&folder).expect("listed").count(), 2);
        assert!(write("--json", &folder.join("no/s.json"), "{}\n").is_err());
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    /// What cannot be written in the end is refused at the start.
    #[test]
    fn names_may_be_as_long_as_names_are() {
        let folder = std::env::temp_dir().join(format!("zpager-names-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let named = |bytes: &[u8]| folder.join(OsStr::from_bytes(bytes));
        for longest in [vec![b'n'; NAME_BYTES_MAX], vec![0xff; NAME_BYTES_MAX]] {
            let file = named(&longest);
            assert_eq!(check("--json", &file), Ok(()));
            write("--json", &file, "{}\n").expect("written");
            assert_eq!(std::fs::read_to_string(&file).expect("read"), "{}\n");
        }
        assert_eq!(std::fs::read_dir(&folder).expect("listed").count(), 2);
        let longer = check("--json", &named(&[b'n'; NAME_BYTES_MAX + 1])).expect_err("too long");
        assert!(longer.contains("too long"), "{longer}");
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    /// Whoever may make names in the directory knows which one is used until the file is whole.
    #[test]
    fn a_link_in_the_way_is_not_followed() {
        let folder = std::env::temp_dir().join(format!("zpager-link-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (file, precious) = (folder.join("s.json"), folder.join("precious"));
        std::fs::write(&precious, "of somebody else").expect("written");
        let unfinished = folder.join(format!(".s.json.{}", std::process::id()));
        std::os::unix::fs::symlink(&precious, &unfinished).expect("a link");
        write("--json", &file, "{}\n").expect("written");
        assert_eq!(std::fs::read_to_string(&precious).expect("read"), "of somebody else");
        assert!(!file.is_symlink());
        assert_eq!(std::fs::read_to_string(&file).expect("read"), "{}\n");
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn what_is_read_is_not_replaced() {
        let folder = std::env::temp_dir().join(format!("zpager-read-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (read, link, other) = (folder.join("read"), folder.join("link"), folder.join("other"));
        std::fs::write(&read, "a trace").expect("written");
        std::os::unix::fs::symlink(&read, &link).expect("a link");
        for (file, is_refused) in [(&read, true), (&link, true), (&other, false)] {
            assert_eq!(
                check_beside("--output", file, Some(&read)).is_err(),
                is_refused,
                "{file:?}"
            );
            assert_eq!(check_both(None, Some(file), Some(&read)).is_err(), is_refused, "{file:?}");
            assert!(check_both(Some(file), None, None).is_ok(), "{file:?}");
        }
        let nothing = Path::new("/dev/null");
        assert!(check_beside("--json", nothing, Some(nothing)).is_ok());
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
