//! The disk that a device is a clean cache of: a block device or an image of one in a file, that
//! nobody else writes to.
//!
//! Source: open(2), `O_EXCL` of a block device, by which mounts, swap areas and layered devices claim
//! theirs. A file can be claimed from other servers alone (flock(2)); swap areas and loop devices that
//! lie in it are found in what the kernel tells of them.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, FileType, FlockOperation, Mode, OFlags, SeekFrom, flock, stat};
use rustix::io::Errno;
use zpager_codec::Page;
use zpager_device::{Disk, DiskFile, SIZE_BYTES_MAX};

use crate::failure::Failure;
use crate::proc_text;
use crate::run::stores::device::use_of;
use crate::size;

const BLOCK_BYTES: u64 = 4096;

/// What a disk may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Device,
    File,
}

/// A line about a disk that cannot be served: what is wrong, and what would be right.
fn refusal(name: &Path, why: &str) -> Failure {
    Failure::own(format!("--clean-cache {}: {why}", name.display()))
}

/// Opens a disk for this server alone; gives its size too.
///
/// # Errors
/// It is in use, is no disk, or cannot be written or read.
pub(super) fn open(name: &Path) -> Result<(DiskFile, u64), Failure> {
    let kind = kind_of(name)?;
    let used = match kind {
        Kind::Device => use_of(name),
        Kind::File => use_of_file(name),
    };
    if let Some(used) = used {
        return Err(refusal(name, &format!("{used}: give a disk that nothing else uses")));
    }
    let (file, direct) = open_alone(name, kind)?;
    let size_bytes = check_size(name, &file)?;
    let disk = DiskFile::new(file);
    let mut first = Page::ZERO;
    match disk.read_at(0, &mut first.0) {
        Ok(()) => Ok((disk, size_bytes)),
        // Its blocks are larger than ours.
        Err(_) if direct => {
            drop(disk);
            let disk = DiskFile::new(open_as(name, kind, OFlags::empty())?);
            Ok((disk, size_bytes))
        }
        Err(_) => Err(refusal(name, "it cannot be read: give a disk that can")),
    }
}

fn kind_of(name: &Path) -> Result<Kind, Failure> {
    let found = stat(name).map_err(|error| {
        refusal(name, &format!("{error}: give a block device or an image of a disk"))
    })?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::BlockDevice => Ok(Kind::Device),
        FileType::RegularFile => Ok(Kind::File),
        _ => Err(refusal(name, "neither a block device nor a file: give one of these")),
    }
}

/// Opens it past the kernel's cache, which would have all that this one has once more, where that can
/// be; gives whether it is so.
fn open_alone(name: &Path, kind: Kind) -> Result<(OwnedFd, bool), Failure> {
    match open_as(name, kind, OFlags::DIRECT) {
        Ok(file) => Ok((file, true)),
        Err(_) => Ok((open_as(name, kind, OFlags::empty())?, false)),
    }
}

fn open_as(name: &Path, kind: Kind, more: OFlags) -> Result<OwnedFd, Failure> {
    let alone = if kind == Kind::Device { OFlags::EXCL } else { OFlags::empty() };
    let flags = OFlags::RDWR | OFlags::CLOEXEC | alone | more;
    let file =
        rustix::fs::openat(CWD, name, flags, Mode::empty()).map_err(|error| match error {
            Errno::BUSY => refusal(name, "in use: give a disk that nothing else uses"),
            error => refusal(name, &format!("{error}: give a disk that this user can write")),
        })?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| refusal(name, "another program has locked it: give a disk of its own"))?;
    Ok(file)
}

fn check_size(name: &Path, file: &OwnedFd) -> Result<u64, Failure> {
    let size_bytes = rustix::fs::seek(file, SeekFrom::End(0)).unwrap_or(0);
    let why = if size_bytes == 0 || !size_bytes.is_multiple_of(BLOCK_BYTES) {
        format!("its size of {size_bytes} bytes is no multiple of 4096: give one of which it is")
    } else if size_bytes > SIZE_BYTES_MAX {
        format!("larger than {}, which is the most", size::display(SIZE_BYTES_MAX))
    } else {
        return Ok(size_bytes);
    };
    Err(refusal(name, &why))
}

/// What a file is used for, if it is swapped to or a loop device lies in it.
fn use_of_file(name: &Path) -> Option<String> {
    let identity = |path: &Path| stat(path).ok().map(|found| (found.st_dev, found.st_ino));
    let its = identity(name)?;
    if proc_text::swap_areas().iter().any(|area| identity(area) == Some(its)) {
        return Some("a swap area in use".to_owned());
    }
    let blocks = fs::read_dir("/sys/block").ok()?;
    blocks.flatten().find_map(|block| {
        let backing = fs::read_to_string(block.path().join("loop/backing_file")).ok()?;
        let is_it = identity(Path::new(backing.trim_end())) == Some(its);
        is_it.then(|| format!("in use by /dev/{}", block.file_name().to_string_lossy()))
    })
}
