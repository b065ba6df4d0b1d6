//! A block device as a store: only one that nobody uses and that holds nothing.
//!
//! Source: open(2), `O_EXCL` of a block device, by which mounts, swap areas and layered devices
//! claim theirs; the superblocks of the file systems, as wipefs(8) looks for them.
//!
//! Invariant: the first and the last MiB are never written. So a device that was empty before a run
//! is so afterwards for everybody who looks for signatures, whatever pages were on it.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use zpager_store::BLOCK_BYTES;

use super::{OpenStore, refusal};
use crate::failure::Failure;
use crate::proc_text;
use crate::size;

/// What is left alone at either end.
const MARGIN_BYTES: u64 = 1 << 20;

/// Where a signature lies, and what it says: from the start of the device.
const SIGNATURES: [(&str, usize, &[u8]); 32] = [
    ("an ext file system", 0x438, &[0x53, 0xef]),
    ("an XFS file system", 0, b"XFSB"),
    ("a Btrfs file system", 0x1_0040, b"_BHRfS_M"),
    ("an F2FS file system", 0x400, &[0x10, 0x20, 0xf5, 0xf2]),
    ("an EROFS file system", 0x400, &[0xe2, 0xe1, 0xf5, 0xe0]),
    ("a SquashFS file system", 0, b"hsqs"),
    ("a JFS file system", 0x8000, b"JFS1"),
    ("a NILFS file system", 0x406, &[0x34, 0x34]),
    ("a ReiserFS file system", 0x1_0034, b"ReIsEr"),
    ("an OCFS2 file system", 0x2000, b"OCFSV2"),
    ("a GFS2 file system", 0x1_0000, &[0x01, 0x16, 0x19, 0x70]),
    ("an ISO 9660 file system", 0x8001, b"CD001"),
    ("a UDF file system", 0x8001, b"BEA01"),
    ("an NTFS file system", 3, b"NTFS    "),
    ("an exFAT file system", 3, b"EXFAT   "),
    ("an APFS file system", 0x20, b"NXSB"),
    ("an HFS+ file system", 0x400, b"H+"),
    ("a bcache or bcachefs device", 0x1018, &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca]),
    ("a swap area", 4096 - 10, b"SWAPSPACE2"),
    ("a swap area", 8192 - 10, b"SWAPSPACE2"),
    ("a swap area", 16_384 - 10, b"SWAPSPACE2"),
    ("a swap area", 65_536 - 10, b"SWAPSPACE2"),
    ("a hibernated system", 4096 - 10, b"S1SUSPEND"),
    ("a LUKS volume", 0, b"LUKS\xba\xbe"),
    ("an LVM volume", 0x200, b"LABELONE"),
    ("an LVM volume", 0, b"LABELONE"),
    ("a part of a RAID", 0, &[0xfc, 0x4e, 0x2b, 0xa9]),
    ("a part of a RAID", 0x1000, &[0xfc, 0x4e, 0x2b, 0xa9]),
    ("a DRBD volume", 0x3f1, b"DRBD"),
    ("a partition table", 512, b"EFI PART"),
    ("a partition table", 4096, b"EFI PART"),
    ("a partition table or a FAT file system", 510, &[0x55, 0xaa]),
];

/// Signatures anywhere in the last MiB, at whole blocks.
const SIGNATURES_AT_END: [(&str, &[u8]); 1] = [("a part of a RAID", &[0xfc, 0x4e, 0x2b, 0xa9])];

/// ZFS has a ring of uberblocks of 1 KiB between the first 128 and 256 KiB.
const ZFS: &[u8] = &[0x0c, 0xb1, 0xba, 0x00];

/// Opens a device for this run alone.
///
/// # Errors
/// It is in use, holds something, is too small, or cannot be written.
pub(super) fn open(name: &Path, limit_bytes: Option<u64>) -> Result<OpenStore, Failure> {
    let refused = |why: &str| Err(refusal(name, why));
    let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, name, flags, Mode::empty())
        .map_err(|error| refusal(name, &why_closed(name, error)))?;
    let (Ok(device_bytes), Ok(found)) = (rustix::fs::seek(&file, SeekFrom::End(0)), look(name))
    else {
        return refused("the device cannot be read: give one that can");
    };
    if let Some(found) = found {
        let shown = name.display();
        return refused(&format!(
            "holds {found}, which would be lost: give an empty block device (wipefs -a {shown} \
             empties one)"
        ));
    }
    let room_bytes = device_bytes.saturating_sub(2 * MARGIN_BYTES);
    if limit_bytes.is_some_and(|limit_bytes| limit_bytes > room_bytes) {
        let room = size::display(room_bytes);
        return refused(&format!("has room for {room}: give it no larger size"));
    }
    let limit_bytes = limit_bytes.unwrap_or(room_bytes);
    // The agents open it anew, by way of the kernel's cache where its blocks are larger than ours.
    let direct = takes_blocks(&file);
    Ok(OpenStore { file, directory: None, limit_bytes, start_bytes: MARGIN_BYTES, direct })
}

/// Why a device could not be opened, and what would be right.
fn why_closed(name: &Path, error: Errno) -> String {
    let in_use = || (error == Errno::BUSY).then(|| "in use".to_owned());
    match use_of(name).or_else(in_use) {
        Some(used) => format!("{used}: give a block device that nothing else uses"),
        None => format!("{error}: give a block device that this user can write"),
    }
}

/// Whether blocks of ours are whole blocks of the device's.
fn takes_blocks(file: &OwnedFd) -> bool {
    rustix::fs::ioctl_blksszget(file).is_ok_and(|bytes| bytes as usize <= BLOCK_BYTES)
}

/// What the device is used for, if it is mounted or swapped to.
pub(crate) fn use_of(name: &Path) -> Option<String> {
    let number = rustix::fs::stat(name).ok()?.st_rdev;
    let device = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    let mounts = proc_text::read("/proc/self/mountinfo").unwrap_or_default();
    let mounted = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let is_it = fields.nth(2)? == device;
        is_it.then(|| fields.nth(1))?
    });
    let is_number =
        |area: PathBuf| rustix::fs::stat(area).is_ok_and(|found| found.st_rdev == number);
    let is_swap = proc_text::swap_areas().into_iter().any(is_number);
    match mounted {
        Some(directory) => Some(format!("mounted on {directory}")),
        None => is_swap.then(|| "a swap area in use".to_owned()),
    }
}

/// What a device holds, if anything is known that it may hold.
fn look(name: &Path) -> std::io::Result<Option<&'static str>> {
    let file = File::open(name)?;
    let device_bytes = rustix::fs::seek(&file, SeekFrom::End(0))?;
    let margin_bytes = MARGIN_BYTES.min(device_bytes);
    let mut margins =
        [0, device_bytes - margin_bytes].map(|at| (at, vec![0; margin_bytes as usize]));
    for (at, bytes) in &mut margins {
        file.read_exact_at(bytes, *at)?;
    }
    let [(_, head), (_, tail)] = margins;
    Ok(signature(&head, &tail))
}

/// What the first and the last MiB of a device say that it holds.
fn signature(head: &[u8], tail: &[u8]) -> Option<&'static str> {
    let at_start = SIGNATURES.into_iter().find_map(|(name, at, magic)| {
        let is_there = head.get(at..).is_some_and(|bytes| bytes.starts_with(magic));
        is_there.then_some(name)
    });
    let zfs = || {
        let uberblocks = head.get(128 << 10..256 << 10)?;
        let is_zfs = uberblocks.chunks(1 << 10).any(|block| block.starts_with(ZFS));
        is_zfs.then_some("a part of a ZFS pool")
    };
    let at_end = || {
        let mut blocks = tail.chunks(BLOCK_BYTES);
        SIGNATURES_AT_END
            .into_iter()
            .find_map(|(name, magic)| blocks.any(|block| block.starts_with(magic)).then_some(name))
    };
    at_start.or_else(zfs).or_else(at_end)
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn every_signature_is_found_and_nothing_where_there_is_none() {
        let empty = vec![0; MARGIN_BYTES as usize];
        assert_eq!(signature(&empty, &empty), None);
        assert_eq!(signature(&[], &[]), None);
        for (name, at, magic) in SIGNATURES {
            let mut head = empty.clone();
            head[at..at + magic.len()].copy_from_slice(magic);
            assert_eq!(signature(&head, &empty), Some(name));
            assert_eq!(signature(&head[..at + magic.len() - 1], &empty), None, "{name}: cut off");
        }
        let mut head = empty.clone();
        head[(200 << 10)..(200 << 10) + 4].copy_from_slice(ZFS);
        assert_eq!(signature(&head, &empty), Some("a part of a ZFS pool"));
        let mut tail = empty.clone();
        let at = tail.len() - (64 << 10);
        tail[at..at + 4].copy_from_slice(SIGNATURES_AT_END[0].1);
        assert_eq!(signature(&empty, &tail), Some("a part of a RAID"));
    }

    /// Makes a device over a file with `mkfs`'s tools where that may be done.
    struct Loop {
        image: std::path::PathBuf,
        device: String,
    }

    impl Loop {
        fn make(name: &str, mebibytes: u64) -> Option<Self> {
            let image = Path::new("/var/tmp").join(format!("zpager-{}-{name}", std::process::id()));
            File::create(&image).ok()?.set_len(mebibytes << 20).ok()?;
            let tool = run("losetup", &["--find", "--show", image.to_str()?]);
            match tool {
                Some(device) => Some(Loop { image, device }),
                None => {
                    let _ = std::fs::remove_file(&image);
                    println!("skipped: no loop devices here");
                    None
                }
            }
        }
    }

    impl Drop for Loop {
        fn drop(&mut self) {
            run("losetup", &["--detach", &self.device]);
            let _ = std::fs::remove_file(&self.image);
        }
    }

    fn run(tool: &str, arguments: &[&str]) -> Option<String> {
        let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
        let output =
            std::process::Command::new(tool).args(arguments).env("PATH", path).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Opens a device that was closed: a child of another test has it too until it runs its program.
    fn reopen(name: &Path, limit_bytes: u64) -> Result<OpenStore, Failure> {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            match open(name, Some(limit_bytes)) {
                Err(failure) if failure.message.contains("in use") && Instant::now() < until => {
                    sleep(Duration::from_millis(1));
                }
                outcome => return outcome,
            }
        }
    }

    #[test]
    fn an_empty_device_is_taken_for_one_run_alone() {
        let Some(device) = Loop::make("empty", 8) else { return };
        let name = Path::new(&device.device);
        let store = open(name, None).expect("a store");
        assert_eq!((store.limit_bytes, store.start_bytes), (6 << 20, 1 << 20));
        assert!(open(name, None).expect_err("taken").message.contains("in use"));
        drop(store);
        assert_eq!(reopen(name, 3 << 20).expect("a store").limit_bytes, 3 << 20);
        assert!(reopen(name, 7 << 20).expect_err("too large").message.contains("6.0 MiB"));
    }

    #[test]
    fn a_device_that_holds_something_or_is_used_is_refused() {
        for (tool, arguments, said) in [
            ("mkfs.ext4", &["-q"] as &[&str], "an ext file system"),
            ("mkswap", &[], "a swap area"),
        ] {
            let Some(device) = Loop::make(tool, 8) else { return };
            if run(tool, &[arguments, &[&device.device]].concat()).is_none() {
                println!("skipped: no {tool} here");
                continue;
            }
            let failure = open(Path::new(&device.device), None).expect_err(tool);
            assert!(failure.message.contains(said), "{failure:?}");
            assert!(failure.message.contains("wipefs"), "{failure:?}");
            assert_eq!((failure.status, failure.message.lines().count()), (125, 1));
        }
    }
}
