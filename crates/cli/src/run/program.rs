//! Finding the program and seeing before it starts whether it can be managed.
//!
//! The agent comes in through the dynamic loader (ld.so(8), `LD_PRELOAD`), so the
//! file that the kernel will execute must not run in secure-execution mode: the loader
//! then drops the agent. Into a statically linked program the supervisor puts it, where
//! it may trace its children.
//! Scripts are followed as execve(2) does, to the interpreter of their first line.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, StatVfsMountFlags};
use rustix::process::{getegid, geteuid, getuid};

use super::enter;
use super::linkage::Linkage;
use crate::failure::Failure;

/// How often the kernel follows `#!` from one script to the next (Linux fs/exec.c, `exec_binprm`).
const MAX_SCRIPTS: usize = 5;

/// The longest `#!` line that the kernel reads (`BINPRM_BUF_SIZE`).
const SCRIPT_LINE_BYTES: usize = 256;

/// A program that can be started and managed.
#[derive(Debug)]
pub(crate) struct Program {
    /// The file to execute.
    pub(crate) file: PathBuf,
    /// The name by which the user called it: its `argv[0]`.
    pub(crate) name: OsString,
    /// Its arguments.
    pub(crate) arguments: Vec<OsString>,
}

impl Program {
    /// Finds `words[0]` in `path` and checks it.
    ///
    /// # Errors
    /// 127 when it is not found, 126 when it cannot be run, 125 when it cannot be managed.
    pub(crate) fn find(words: Vec<OsString>, path: Option<&OsStr>) -> Result<Self, Failure> {
        let mut words = words.into_iter();
        let Some(name) = words.next().filter(|name| !name.is_empty()) else {
            return Err(Failure::own(
                "no program to run: name one after `--`, as in `zpager run -- sort FILE`",
            ));
        };
        let file = locate(&name, path)?;
        check_manageable(&file)?;
        Ok(Program { file, name, arguments: words.collect() })
    }
}

/// What execvp(3) would execute for `name`.
///
/// # Errors
/// 127 when it is not found, 126 when it cannot be run.
pub(crate) fn locate(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, Failure> {
    if name.as_bytes().contains(&b'/') {
        let file = PathBuf::from(name);
        return match reason_not_to_execute(&file) {
            None => Ok(file),
            Some(reason) => Err(refusal(&file, reason)),
        };
    }
    let mut seen: Option<(PathBuf, Reason)> = None;
    for folder in std::env::split_paths(path.unwrap_or(OsStr::new("/usr/bin:/bin"))) {
        let file = folder.join(name);
        match reason_not_to_execute(&file) {
            None => return Ok(file),
            // A folder of others' is no place to look.
            Some(Reason::Missing | Reason::Unreachable(_)) => {}
            Some(reason) => seen = seen.or(Some((file, reason))),
        }
    }
    match seen {
        Some((file, reason)) => Err(refusal(&file, reason)),
        None => Err(Failure::not_found(format!(
            "{}: not found in PATH: check the name, or give the program's path",
            name.display()
        ))),
    }
}

/// What it means that `file` was not started: whether the system had nothing to start it with, which
/// is zpager's own failure, or would not execute it.
pub(crate) fn not_started(file: &Path, error: &io::Error) -> Failure {
    let file = file.display();
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE | libc::EAGAIN | libc::ENOMEM) | None => {
            Failure::own(format!("{file}: cannot be started: {error}"))
        }
        Some(libc::ENOENT) => Failure::not_found(format!("{file}: {error}")),
        Some(_) => {
            Failure::cannot_run(format!("{file}: {error}: give a program that this machine runs"))
        }
    }
}

/// Why execve(2) would refuse a file.
#[derive(Debug)]
enum Reason {
    Missing,
    Unreachable(io::Error),
    Directory,
    Denied,
}

fn reason_not_to_execute(file: &Path) -> Option<Reason> {
    let metadata = match file.metadata() {
        Ok(metadata) => metadata,
        Err(error) => {
            return Some(match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => Reason::Missing,
                _ => Reason::Unreachable(error),
            });
        }
    };
    if metadata.is_dir() {
        return Some(Reason::Directory);
    }
    let allowed = rustix::fs::accessat(CWD, file, Access::EXEC_OK, AtFlags::EACCESS).is_ok();
    (!allowed || !metadata.is_file()).then_some(Reason::Denied)
}

fn refusal(file: &Path, reason: Reason) -> Failure {
    let file = file.display();
    match reason {
        Reason::Missing => Failure::not_found(format!("{file}: no such program: check the path")),
        Reason::Unreachable(error) => {
            Failure::cannot_run(format!("{file}: {error}: give a path that leads to a program"))
        }
        Reason::Directory => {
            Failure::cannot_run(format!("{file}: a directory: name a program inside it"))
        }
        Reason::Denied => Failure::cannot_run(format!(
            "{file}: not executable: allow it with chmod +x, or name its interpreter first"
        )),
    }
}

/// Follows scripts to the file that the kernel executes, and checks that the agent can be loaded into it.
fn check_manageable(program: &Path) -> Result<(), Failure> {
    let mut file = program.to_owned();
    for _ in 0..=MAX_SCRIPTS {
        let head = read_head(&file)?;
        match script_interpreter(&head) {
            Some(interpreter) => {
                if let Some(reason) = reason_not_to_execute(&interpreter) {
                    let refused = refusal(&interpreter, reason);
                    let message =
                        format!("{}: its interpreter: {}", file.display(), refused.message);
                    return Err(Failure { message, ..refused });
                }
                file = interpreter;
            }
            None => {
                check_object(&file, &head)?;
                return check_privileges(&file);
            }
        }
    }
    let program = program.display();
    Err(Failure::cannot_run(format!("{program}: scripts interpreted by scripts, without an end")))
}

fn read_head(file: &Path) -> Result<Vec<u8>, Failure> {
    let mut head = Vec::new();
    let read = File::open(file)
        .and_then(|open| open.take(SCRIPT_LINE_BYTES as u64).read_to_end(&mut head));
    match read {
        Ok(_) => Ok(head),
        Err(error) => Err(Failure::own(format!(
            "{}: cannot be read to see whether it can be managed: {error}: allow reading it",
            file.display()
        ))),
    }
}

/// The interpreter that a script's first line names.
fn script_interpreter(head: &[u8]) -> Option<PathBuf> {
    let line = head.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?;
    let name = line.split(|byte| matches!(byte, b' ' | b'\t')).find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(name)))
}

/// Refuses everything but a program for x86-64 into which the agent can be brought.
fn check_object(file: &Path, head: &[u8]) -> Result<(), Failure> {
    let shown = file.display();
    if !head.starts_with(b"\x7fELF") {
        return Err(Failure::cannot_run(format!(
            "{shown}: neither an ELF program nor a script that begins with #!: name its interpreter first"
        )));
    }
    match File::open(file).as_ref().map_or(Linkage::Foreign, Linkage::of) {
        Linkage::Dynamic => Ok(()),
        Linkage::Static if enter::is_permitted() => Ok(()),
        Linkage::Static => Err(Failure::own(format!(
            "{shown}: statically linked, so the agent has to be put into it by ptrace, which is not \
             permitted here: allow ptrace in the sandbox, or use a dynamically linked build"
        ))),
        Linkage::Library => Err(Failure::own(format!(
            "{shown}: a shared object or a dynamic loader, not a program: name the program itself"
        ))),
        Linkage::Foreign => Err(Failure::own(format!(
            "{shown}: not a 64-bit program for x86-64: use a build for this machine's 64-bit mode"
        ))),
    }
}

/// Refuses a program that starts with more privileges than its caller: ld.so(8) ignores
/// `LD_PRELOAD` then.
fn check_privileges(file: &Path) -> Result<(), Failure> {
    let Ok(metadata) = file.metadata() else { return Ok(()) };
    if !gains_privileges(file, &metadata) || privileges_are_off(file) {
        return Ok(());
    }
    Err(Failure::own(format!(
        "{}: runs with more privileges than its caller (set-uid, set-gid or file capabilities), so \
         the agent cannot be loaded: run it as its owner, or a copy without them",
        file.display()
    )))
}

fn gains_privileges(file: &Path, metadata: &std::fs::Metadata) -> bool {
    const SET_UID: u32 = 0o4000;
    const SET_GID_EXECUTABLE: u32 = 0o2010;
    let mode = metadata.mode();
    let uid = mode & SET_UID != 0 && metadata.uid() != geteuid().as_raw();
    let gid =
        mode & SET_GID_EXECUTABLE == SET_GID_EXECUTABLE && metadata.gid() != getegid().as_raw();
    // Root has every capability already; for others any on the file is a gain.
    let capable = !getuid().is_root()
        && rustix::fs::getxattr(file, "security.capability", &mut [0u8; 64]).is_ok();
    uid || gid || capable
}

/// Whether the mount or the process forbids the gain.
fn privileges_are_off(file: &Path) -> bool {
    let mount = rustix::fs::statvfs(file)
        .is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::NOSUID));
    mount || rustix::thread::no_new_privs().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_lines_of_scripts() {
        let table: [(&[u8], Option<&str>); 7] = [
            (b"#!/bin/sh\necho", Some("/bin/sh")),
            (b"#! /usr/bin/env python3\n", Some("/usr/bin/env")),
            (b"#!\t/bin/sh -e", Some("/bin/sh")),
            (b"#!\n", None),
            (b"#!", None),
            (b"echo", None),
            (b"\x7fELF", None),
        ];
        for (head, interpreter) in table {
            assert_eq!(script_interpreter(head), interpreter.map(PathBuf::from), "{head:?}");
        }
    }

    #[test]
    fn what_the_system_lacks_is_no_failure_of_the_program() {
        let status =
            |error| not_started(Path::new("/p"), &io::Error::from_raw_os_error(error)).status;
        assert_eq!([libc::EMFILE, libc::EAGAIN].map(status), [125; 2]);
        assert_eq!([libc::ENOEXEC, libc::EACCES, libc::ENOENT].map(status), [126, 126, 127]);
    }

    #[test]
    fn what_is_not_reached_is_told_from_what_is_not_there() {
        let folder = std::env::temp_dir().join(format!("zpager-reached-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let circle = folder.join("circle");
        std::os::unix::fs::symlink(&circle, &circle).expect("a link");
        let status =
            |name: &OsStr| locate(name, Some(folder.as_os_str())).expect_err("none").status;
        assert_eq!(status(circle.as_os_str()), 126);
        assert_eq!(status(folder.join("nothing").as_os_str()), 127);
        assert_eq!(["circle", "nothing"].map(|name| status(OsStr::new(name))), [127; 2]);
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn scripts_are_followed_and_loops_end() {
        let folder = std::env::temp_dir().join(format!("zpager-scripts-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let script = |name: &str, text: String| {
            use std::os::unix::fs::PermissionsExt;
            let file = folder.join(name);
            std::fs::write(&file, text).expect("a script");
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&file, mode).expect("executable");
            file
        };
        let plain = script("plain", "#!/bin/sh\n".into());
        let nested = script("nested", format!("#!{}\n", plain.display()));
        let endless = script("endless", format!("#!{}\n", folder.join("endless").display()));
        let orphan = script("orphan", "#!/nowhere/sh\n".into());
        let text = script("text", "hello\n".into());
        assert_eq!(check_manageable(&plain), Ok(()));
        assert_eq!(check_manageable(&nested), Ok(()));
        let status = |file: &Path| check_manageable(file).expect_err("refused").status;
        assert_eq!(status(&endless), 126);
        assert_eq!(status(&orphan), 127);
        assert_eq!(status(&text), 126);
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
