//! The swap file: where it is made, how large it may grow, and its cluster map, with the
//! processes' references behind it.
//!
//! The file has no name from the moment it exists (open(2), `O_TMPFILE`), so it
//! is gone with the last process that holds it, however that ends. A directory on
//! a tmpfs is bad for it: what is written there takes the RAM it should free.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use rustix::fs::{AtFlags, CWD, MemfdFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::process::Resource;
use zpager_store::{BLOCK_BYTES, Clusters, References};
use zpager_wire::MAX_PROCESSES;

use super::config::StoreChoice;
use super::report::Notices;
use crate::failure::Failure;

/// The largest limit taken when the user gives none.
const MAX_DEFAULT_BYTES: u64 = 1 << 40;

/// File systems that keep files in RAM: tmpfs and ramfs (statfs(2)).
const RAM_FILE_SYSTEMS: [i64; 2] = [0x0102_1994, 0x8584_58f6];

/// An open swap file without a name.
#[derive(Debug)]
pub(crate) struct StoreFile {
    /// The file.
    pub(crate) file: OwnedFd,
    /// What the store knows of its clusters ([`Clusters`]) and of who holds them ([`References`]),
    /// shared by the agents.
    pub(crate) clusters: OwnedFd,
    /// How large the file may grow.
    pub(crate) limit_bytes: u64,
    /// Whether offsets, lengths and buffers have to be multiples of 4096.
    pub(crate) direct: bool,
}

/// Opens the swap file that `choice` asks for; `None` when there is none to be had or wanted.
///
/// # Errors
/// The directory that the user named cannot be used.
pub(crate) fn open(
    choice: &StoreChoice,
    limit_bytes: Option<u64>,
    notices: &mut Notices,
) -> Result<Option<StoreFile>, Failure> {
    match choice {
        StoreChoice::None => Ok(None),
        StoreChoice::Directory(directory) => {
            let store =
                open_in(directory, limit_bytes).map_err(|error| refusal(directory, error))?;
            if is_in_ram(directory) {
                notices.warn(&format!(
                    "--store {}: a tmpfs: spilled pages stay in RAM and are not counted in the \
                     budget; a directory on a disk frees it",
                    directory.display()
                ));
            }
            Ok(Some(store))
        }
        StoreChoice::FirstOf(directories) => Ok(open_first(directories, limit_bytes, notices)),
    }
}

/// Takes the first directory on a disk in which a file can be made.
fn open_first(
    directories: &[std::path::PathBuf],
    limit_bytes: Option<u64>,
    notices: &mut Notices,
) -> Option<StoreFile> {
    let on_disk = directories.iter().filter(|directory| !is_in_ram(directory));
    for (index, directory) in on_disk.enumerate() {
        let Ok(store) = open_in(directory, limit_bytes) else { continue };
        if index > 0 || directories.first() != Some(directory) {
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

fn refusal(directory: &Path, error: Errno) -> Failure {
    let shown = directory.display();
    Failure::own(format!(
        "--store {shown}: {error}: give a directory that can be written, or --store none"
    ))
}

fn is_in_ram(directory: &Path) -> bool {
    rustix::fs::statfs(directory).is_ok_and(|found| RAM_FILE_SYSTEMS.contains(&found.f_type))
}

/// Makes the file and its map.
fn open_in(directory: &Path, limit_bytes: Option<u64>) -> Result<StoreFile, Errno> {
    let limit_bytes = match limit_bytes {
        Some(limit_bytes) => limit_bytes,
        None => default_limit_bytes(directory)?,
    };
    let (file, direct) = match open_unnamed(directory, OFlags::DIRECT) {
        Ok(file) if takes_direct(&file) => (file, true),
        _ => (open_unnamed(directory, OFlags::empty())?, false),
    };
    let clusters = rustix::fs::memfd_create("zpager-clusters", MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&clusters, map_bytes(limit_bytes))?;
    lengthen(&file, limit_bytes);
    Ok(StoreFile { file, clusters, limit_bytes, direct })
}

/// Gives the file its length, without any space: a write that lengthens it would be waited for. What
/// refuses that, such as the limit of files, costs speed alone.
fn lengthen(file: &OwnedFd, limit_bytes: u64) {
    let allowed = rustix::process::getrlimit(Resource::Fsize).current;
    let _ = rustix::fs::ftruncate(file, limit_bytes.min(allowed.unwrap_or(u64::MAX)));
}

/// Length of the map. Where files may not be as long as all tables of references, there are none.
fn map_bytes(limit_bytes: u64) -> u64 {
    let (all_bytes, _) = References::place(limit_bytes, MAX_PROCESSES);
    match rustix::process::getrlimit(Resource::Fsize).current {
        Some(most_bytes) if most_bytes < all_bytes => {
            (Clusters::words_for(limit_bytes) * size_of::<AtomicU64>()) as u64
        }
        _ => all_bytes,
    }
}

/// Nine tenths of what the file system has free.
fn default_limit_bytes(directory: &Path) -> Result<u64, Errno> {
    let found = rustix::fs::statvfs(directory)?;
    let free_bytes = found.f_bavail.saturating_mul(found.f_frsize);
    Ok((free_bytes - free_bytes / 10).min(MAX_DEFAULT_BYTES))
}

/// A file without a name, or one that loses its name at once where the file system has no `O_TMPFILE`.
fn open_unnamed(directory: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
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
    #[repr(align(4096))]
    struct Block([u8; BLOCK_BYTES]);
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
    use std::path::PathBuf;
    use zpager_store::CLUSTER_BYTES;

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
    fn the_cluster_map_covers_the_limit() {
        let limit_bytes = 10 * CLUSTER_BYTES as u64;
        let store = open_in(&std::env::temp_dir(), Some(limit_bytes)).expect("a store");
        let map_bytes = rustix::fs::fstat(&store.clusters).expect("stat").st_size;
        assert!(map_bytes >= (Clusters::words_for(limit_bytes) * 8) as i64);
        let (offset, bytes) = References::place(limit_bytes, MAX_PROCESSES - 1);
        assert_eq!(map_bytes as u64, offset + bytes as u64);
        let file = rustix::fs::fstat(&store.file).expect("stat");
        assert_eq!((file.st_size, file.st_blocks), (limit_bytes as i64, 0));
    }

    #[test]
    fn a_named_directory_that_cannot_be_used_is_refused() {
        let mut notices = Notices::new(true);
        let choice = StoreChoice::Directory(PathBuf::from("/nowhere/at/all"));
        let failure = open(&choice, None, &mut notices).expect_err("refused");
        assert_eq!(failure.status, 125);
        assert!(failure.message.contains("--store none"), "{failure:?}");
    }

    #[test]
    fn without_a_disk_there_is_no_store() {
        let mut notices = Notices::new(true);
        let choice = StoreChoice::FirstOf(vec!["/nowhere".into(), "/dev/shm".into()]);
        assert!(open(&choice, None, &mut notices).expect("no error").is_none());
    }
}
