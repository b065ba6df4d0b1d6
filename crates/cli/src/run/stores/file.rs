//! A swap file: where it is made, and how large it may grow.
//!
//! The file has no name from the moment it exists (open(2), `O_TMPFILE`), so it
//! is gone with the last process that holds it, however that ends. A directory on
//! a tmpfs is bad for it: what is written there takes the RAM it should free. One on
//! another machine is no place for it at all: the server's pauses would be the program's.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::process::Resource;
use zpager_store::BLOCK_BYTES;

use super::{Block, OpenStore};
use crate::failure::Failure;
use crate::proc_text;
use crate::run::report::Notices;

/// The largest limit taken when the user gives none.
pub(super) const MAX_DEFAULT_BYTES: u64 = 1 << 40;

/// File systems that keep files in RAM: tmpfs and ramfs (statfs(2)).
const RAM_FILE_SYSTEMS: [u32; 2] = [0x0102_1994, 0x8584_58f6];

/// File systems that keep files on another machine: NFS, SMB, CIFS, SMB 2, AFS of two kinds, Coda,
/// Ceph, 9P, NCP, OCFS2, GFS2 and Lustre (statfs(2), linux/magic.h).
const NETWORK_FILE_SYSTEMS: [u32; 13] = [
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x5346_414f,
    0x6b41_4653,
    0x7375_7245,
    0x00c3_6400,
    0x0102_1997,
    0x564c,
    0x7461_636f,
    0x0116_1970,
    0x0bd0_0bd0,
];

/// FUSE, behind which anything may lie: what the file system is called says more.
const FUSE: u32 = 0x6573_5546;
const NETWORK_FUSE: [&str; 14] = [
    "sshfs",
    "glusterfs",
    "ceph",
    "s3fs",
    "gcsfuse",
    "goofys",
    "rclone",
    "davfs",
    "curlftpfs",
    "mfs",
    "juicefs",
    "seaweedfs",
    "blobfuse",
    "gvfsd-fuse",
];

/// Where the files of a directory are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whereabouts {
    /// On a disk, as far as is known.
    Disk,
    /// In RAM.
    Ram,
    /// On another machine.
    Network,
    /// Nowhere: the kernel makes them up.
    Kernel,
}

/// Makes a swap file in a directory that the user named.
///
/// # Errors
/// The directory cannot be used.
pub(super) fn open(
    directory: &Path,
    limit_bytes: Option<u64>,
    notices: &mut Notices,
) -> Result<OpenStore, Failure> {
    open_for("--store", "--store none", directory, limit_bytes, notices)
}

/// Makes the file of the second copy of what a server keeps.
///
/// # Errors
/// The directory cannot be used.
pub(super) fn open_mirror(
    directory: &Path,
    limit_bytes: u64,
    notices: &mut Notices,
) -> Result<OpenStore, Failure> {
    open_for("--store-mirror", "leave it out", directory, Some(limit_bytes), notices)
}

/// The same for what `flag` names; `otherwise` is what to do where there is no such directory.
fn open_for(
    flag: &str,
    otherwise: &str,
    directory: &Path,
    limit_bytes: Option<u64>,
    notices: &mut Notices,
) -> Result<OpenStore, Failure> {
    let shown = directory.display();
    let refused = |why: &str| Err(Failure::own(format!("{flag} {shown}: {why}, or {otherwise}")));
    let store = open_in(directory, limit_bytes);
    match (whereabouts(directory), store) {
        (Whereabouts::Network, _) => refused(
            "on a network file system, whose server may fail or need memory itself: give a \
             directory on a disk of this machine",
        ),
        (Whereabouts::Kernel, Err(_)) => refused(
            "a file system of the kernel's own, which takes no files: give a directory on a disk, \
             such as /var/tmp",
        ),
        (_, Err(error)) => refused(&format!("{error}: give a directory that can be written")),
        (whereabouts, Ok(store)) => {
            if whereabouts == Whereabouts::Ram {
                notices.warn(&format!(
                    "{flag} {shown}: a tmpfs: spilled pages stay in RAM and are not counted in the \
                     budget; a directory on a disk frees it"
                ));
            }
            Ok(store)
        }
    }
}

/// Takes the first directory on a disk in which a file can be made.
pub(super) fn open_first(
    directories: &[PathBuf],
    limit_bytes: Option<u64>,
    notices: &mut Notices,
) -> Option<OpenStore> {
    let is_on_disk = |directory: &&PathBuf| whereabouts(directory) == Whereabouts::Disk;
    for directory in directories.iter().filter(is_on_disk) {
        let Ok(store) = open_in(directory, limit_bytes) else { continue };
        if directories.first() != Some(directory) {
            let shown = directory.display();
            notices.warn(&format!("the swap file goes to {shown}: /var/tmp cannot take it"));
        }
        return Some(store);
    }
    notices.warn(
        "no directory on a disk can take a swap file, so every page stays in RAM: name one with \
         --store DIR",
    );
    None
}

fn whereabouts(directory: &Path) -> Whereabouts {
    let Ok(found) = rustix::fs::statfs(directory) else { return Whereabouts::Disk };
    // The numbers have 32 bits, whatever the field has.
    let kind = found.f_type as u32;
    if RAM_FILE_SYSTEMS.contains(&kind) {
        Whereabouts::Ram
    } else if NETWORK_FILE_SYSTEMS.contains(&kind) || kind == FUSE && is_network_fuse(directory) {
        Whereabouts::Network
    } else if found.f_blocks == 0 {
        Whereabouts::Kernel
    } else {
        Whereabouts::Disk
    }
}

/// Whether the mount on which a directory lies is of a FUSE file system known to be remote.
fn is_network_fuse(directory: &Path) -> bool {
    let Ok(found) = rustix::fs::stat(directory) else { return false };
    let (major, minor) = (rustix::fs::major(found.st_dev), rustix::fs::minor(found.st_dev));
    let mounts = proc_text::read("/proc/self/mountinfo").unwrap_or_default();
    let kind = mounts.lines().find_map(|line| kind_of_mount(line, &format!("{major}:{minor}")));
    kind.is_some_and(|kind| {
        let name = kind.strip_prefix("fuse.").unwrap_or_default();
        NETWORK_FUSE.iter().any(|remote| name.starts_with(remote))
    })
}

/// The kind of file system of a line of mountinfo (proc(5)) if it is about this device.
fn kind_of_mount<'a>(line: &'a str, device: &str) -> Option<&'a str> {
    let (mount, source) = line.split_once(" - ")?;
    (mount.split(' ').nth(2)? == device).then(|| source.split(' ').next())?
}

/// Makes the file.
fn open_in(directory: &Path, limit_bytes: Option<u64>) -> Result<OpenStore, Errno> {
    let limit_bytes = match limit_bytes {
        Some(limit_bytes) => limit_bytes,
        None => default_limit_bytes(directory)?,
    };
    let (file, direct) = match open_unnamed(directory, OFlags::DIRECT) {
        Ok(file) if takes_direct(&file) => (file, true),
        _ => (open_unnamed(directory, OFlags::empty())?, false),
    };
    lengthen(&file, limit_bytes);
    Ok(OpenStore { file, directory: Some(directory.into()), limit_bytes, start_bytes: 0, direct })
}

/// Gives the file its length, without any space: a write that lengthens it would be waited for. What
/// refuses that, such as the limit of files, costs speed alone.
fn lengthen(file: &OwnedFd, limit_bytes: u64) {
    let allowed = rustix::process::getrlimit(Resource::Fsize).current;
    let _ = rustix::fs::ftruncate(file, limit_bytes.min(allowed.unwrap_or(u64::MAX)));
}

/// Nine tenths of what the file system has free.
fn default_limit_bytes(directory: &Path) -> Result<u64, Errno> {
    let found = rustix::fs::statvfs(directory)?;
    let free_bytes = found.f_bavail.saturating_mul(found.f_frsize);
    Ok((free_bytes - free_bytes / 10).min(MAX_DEFAULT_BYTES))
}

/// A file without a name, or one that loses its name at once where the file system has no `O_TMPFILE`.
pub(super) fn open_unnamed(directory: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let mode = Mode::RUSR | Mode::WUSR;
    let flags = flags | OFlags::RDWR | OFlags::CLOEXEC | OFlags::EXCL;
    match rustix::fs::openat(CWD, directory, flags | OFlags::TMPFILE, mode) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => open_and_unlink(directory, flags, mode),
        other => other,
    }
}

fn open_and_unlink(directory: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let name = format!("zpager-{}.swap", std::process::id());
    let file =
        CString::new(directory.join(name).as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
    let open = rustix::fs::openat(CWD, &file, flags | OFlags::CREATE | OFlags::NOFOLLOW, mode)?;
    rustix::fs::unlink(&file)?;
    Ok(open)
}

/// Whether direct I/O in whole blocks works: as the file system says, or else by trying.
fn takes_direct(file: &OwnedFd) -> bool {
    let asked = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    match asked {
        Ok(found) if found.stx_mask & StatxFlags::DIOALIGN.bits() != 0 => {
            let fits = |align_bytes: u32| (1..=BLOCK_BYTES).contains(&(align_bytes as usize));
            fits(found.stx_dio_mem_align) && fits(found.stx_dio_offset_align)
        }
        _ => writes_direct(file),
    }
}

/// Writes one block, reads it back and takes it away again, which waits for the disk.
fn writes_direct(file: &OwnedFd) -> bool {
    let written = Block([0xa5; BLOCK_BYTES]);
    let mut read = Block([0; BLOCK_BYTES]);
    let whole = Ok(BLOCK_BYTES);
    rustix::io::pwrite(file.as_fd(), &written.0, 0) == whole
        && rustix::io::pread(file.as_fd(), &mut read.0, 0) == whole
        && read.0 == written.0
        && rustix::fs::ftruncate(file, 0).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_no_name_and_only_its_owner_may_open_it() {
        let directory = std::env::temp_dir();
        for file in [
            open_unnamed(&directory, OFlags::empty()).expect("unnamed"),
            open_and_unlink(
                &directory,
                OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC,
                Mode::RUSR | Mode::WUSR,
            )
            .expect("unlinked"),
        ] {
            let found = rustix::fs::fstat(&file).expect("stat");
            assert_eq!((found.st_nlink, found.st_mode & 0o777), (0, 0o600));
        }
    }

    #[test]
    fn asking_and_trying_agree_on_direct_writes() {
        let Ok(file) = open_unnamed(Path::new("/var/tmp"), OFlags::DIRECT) else { return };
        assert_eq!(takes_direct(&file), writes_direct(&file));
        assert_eq!(rustix::fs::fstat(&file).expect("stat").st_size, 0);
    }

    #[test]
    fn where_files_are_is_known() {
        for (directory, expected) in [
            ("/proc", Whereabouts::Kernel),
            ("/dev/shm", Whereabouts::Ram),
            ("/var/tmp", Whereabouts::Disk),
        ] {
            assert_eq!(whereabouts(Path::new(directory)), expected, "{directory}");
        }
        let line = "36 35 98:0 / /mnt rw,noatime master:1 - fuse.sshfs host:/ rw";
        assert_eq!(kind_of_mount(line, "98:0"), Some("fuse.sshfs"));
        assert_eq!(kind_of_mount(line, "98:1"), None);
        assert_eq!(kind_of_mount("36 35 98:0 / /mnt", "98:0"), None);
    }

    #[test]
    fn without_a_disk_there_is_no_store() {
        let mut notices = Notices::new(true);
        let directories = ["/nowhere".into(), "/dev/shm".into(), "/proc".into()];
        assert!(open_first(&directories, None, &mut notices).is_none());
    }
}
