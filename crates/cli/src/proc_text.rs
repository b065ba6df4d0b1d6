//! Files of `/proc` as text.
//!
//! They are lines of text but for the names in them, which are what somebody gave: those of files in `maps`,
//! `mountinfo` and `swaps`, those of threads in `stat` and `status`, where the kernel cuts them after 15
//! bytes. None of them may keep the rest from being read.
//!
//! Sources: proc(5), proc_pid_mountinfo(5); seq_path(), by which Linux writes blanks and backslashes of a
//! name as three octal digits.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// What most of them say at the most. The kernel says of none how long it is, and to find out by little parts takes
/// several times as long as to read one.
const USUAL_BYTES: usize = 4096;

/// What a file says.
///
/// # Errors
/// What the system refused.
pub(crate) fn read_bytes(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    // A whole file would be asked first how long it is, and where reading has come to.
    File::open(path)?.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The same as text, with U+FFFD in place of what is no text.
///
/// # Errors
/// What the system refused.
pub(crate) fn read(path: impl AsRef<Path>) -> io::Result<String> {
    let text = String::from_utf8(read_bytes(path)?);
    Ok(text.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// The devices and files that the kernel swaps to.
pub(crate) fn swap_areas() -> Vec<PathBuf> {
    areas(&read_bytes("/proc/swaps").unwrap_or_default())
}

fn areas(swaps: &[u8]) -> Vec<PathBuf> {
    let lines = swaps.split(|byte| *byte == b'\n').skip(1);
    let names = lines.filter_map(|line| line.split(u8::is_ascii_whitespace).next());
    names.filter(|name| !name.is_empty()).map(unescaped).collect()
}

/// A name of which blanks and backslashes are written as `\040` and the like.
pub(crate) fn unescaped(name: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name;
    while let [first, behind @ ..] = rest {
        match *rest {
            [b'\\', high @ b'0'..=b'3', middle @ b'0'..=b'7', low @ b'0'..=b'7', ..] => {
                bytes.push((high - b'0') << 6 | (middle - b'0') << 3 | (low - b'0'));
                rest = &rest[4..];
            }
            _ => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn what_is_no_text_keeps_nothing_from_being_read() {
        let file = std::env::temp_dir().join(format!("zpager-proc-{}", std::process::id()));
        std::fs::write(&file, b"7 (n\xffme) S 1\n").expect("written");
        assert_eq!(read(&file).expect("read"), "7 (n\u{fffd}me) S 1\n");
        std::fs::remove_file(&file).expect("removed");
        assert!(read("/nowhere/at/all").is_err());
    }

    #[test]
    fn names_are_what_they_were() {
        for (name, expected) in [
            (&b"/a"[..], &b"/a"[..]),
            (b"/a\\040b\\134040", b"/a b\\040"),
            (b"/\xff\\011\\012", b"/\xff\t\n"),
            (b"\\04", b"\\04"),
            (b"\\400\\", b"\\400\\"),
        ] {
            assert_eq!(unescaped(name), Path::new(OsStr::from_bytes(expected)));
        }
    }

    #[test]
    fn swap_areas_are_found() {
        let swaps = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
                     /dev/dm-1                               partition\t999420\t\t0\t\t-2\n\
                     /var/swap\\040file  file\t\t1024\t\t0\t\t-3\n";
        assert_eq!(areas(swaps.as_bytes()), ["/dev/dm-1", "/var/swap file"].map(PathBuf::from));
        assert!(areas(b"").is_empty());
    }
}
