//! The disk that swap files and zpager's store lie on: what is read and written there, and a slow
//! one (`--disk-iops`). Source: Documentation/admin-guide/cgroup-v1/blkio-controller.rst,
//! cgroup-v2.rst and iostats.rst of the Linux kernel.
//!
//! The slow disk is a loop device over a file in the user's directory, made anew for each run, with
//! direct I/O, so that nothing of it is kept in RAM. It is limited by the block cgroup and is the
//! only device that is: the machine's own disks stay as fast as they are. Cgroup version 2 charges
//! what is swapped out to the program's group. Version 1 charges it to the root group and reads to
//! the program's; so there both are limited, each to the same figure.
//!
//! Bad for: throughput, which the file system below the loop device lessens for all rivals alike.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::changes::{Changes, OWN_PREFIX};
use crate::group::{Group, Hierarchy};
use crate::machine::Machine;

/// Bytes of a sector in the kernel's statistics, whatever the disk's own are.
const SECTOR_BYTES: u64 = 512;
/// The limits of a group in the blkio controller of version 1.
const V1_LIMITS: [&str; 2] =
    ["blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device"];
/// What a file system takes for itself, at most.
const FILE_SYSTEM_BYTES: u64 = 64 << 20;

/// What went to a disk and came from it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// Reads, neighbours that the kernel merged being one.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes, neighbours that the kernel merged being one.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

impl Traffic {
    /// What the disk has done since the machine started on which `directory` lies, with all
    /// programs; nothing where the kernel does not say, as of file systems on several disks.
    pub(crate) fn so_far(machine: &Machine, directory: &Path) -> Option<Self> {
        let number = fs::metadata(directory).ok()?.dev();
        let (major, minor) = (nix::sys::stat::major(number), nix::sys::stat::minor(number));
        Self::read(&machine.read(&format!("/sys/dev/block/{major}:{minor}/stat")).ok()?)
    }

    fn read(text: &str) -> Option<Self> {
        let mut fields = text.split_whitespace().map(str::parse);
        // Reads, merged, sectors, milliseconds, and the same of writes.
        let mut pair = || {
            let count = fields.next()?.ok()?;
            let sectors: u64 = fields.nth(1)?.ok()?;
            fields.next();
            Some((count, sectors * SECTOR_BYTES))
        };
        let ((reads, read_bytes), (writes, written_bytes)) = (pair()?, pair()?);
        Some(Traffic { reads, read_bytes, writes, written_bytes })
    }

    /// What has come to it since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Traffic {
            reads: self.reads.saturating_sub(before.reads),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            writes: self.writes.saturating_sub(before.writes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
        }
    }
}

/// How a slow disk is made.
#[derive(Debug)]
pub(crate) struct SlowDisk {
    /// Reads, and writes, a second.
    iops: u32,
    /// The blkio controller of version 1; nothing where the memory cgroups limit disks themselves.
    blkio: Option<PathBuf>,
    /// The file below it.
    image: PathBuf,
    /// Where it is mounted.
    mount: PathBuf,
}

impl SlowDisk {
    /// A disk of so many operations a second, whose file goes to `directory`.
    ///
    /// # Errors
    /// When the kernel cannot limit disks.
    pub(crate) fn find(
        changes: &mut Changes,
        hierarchy: &Hierarchy,
        directory: &Path,
        iops: u32,
    ) -> Result<Self> {
        let blkio = match hierarchy {
            Hierarchy::V2(mount) => {
                changes.enable_controller(mount, "io")?;
                None
            }
            Hierarchy::V1(_) => {
                let mounted = Hierarchy::mounted_v1(changes.machine(), "blkio");
                Some(mounted.map_or_else(|| changes.mount_controller("blkio"), Ok)?)
            }
        };
        let own = |what: &str| directory.join(format!("{OWN_PREFIX}-{what}"));
        Ok(SlowDisk { iops, blkio, image: own("disk.img"), mount: own("disk") })
    }

    /// Where it is mounted during a run.
    pub(crate) fn directory(&self) -> &Path {
        &self.mount
    }

    /// What each run changes, for the user to read before it does.
    pub(crate) fn announcement(&self) -> String {
        let whom = match &self.blkio {
            Some(_) => "the run's cgroup and the root one (blkio, version 1)",
            None => "the run's cgroup (io.max)",
        };
        format!(
            "makes a disk (ext4 on a loop device over {}) and limits it to {} reads and {} writes \
             a second for {whom}; no other disk is limited",
            self.image.display(),
            self.iops,
            self.iops
        )
    }

    /// Makes and mounts a disk with room for `size_bytes`, as fast as it is; gives its number.
    ///
    /// # Errors
    /// As [`Changes::add_disk`].
    pub(crate) fn insert(&self, changes: &mut Changes, size_bytes: u64) -> Result<String> {
        let size_bytes = size_bytes + size_bytes / 4 + FILE_SYSTEM_BYTES;
        changes.add_disk(&self.image, &self.mount, size_bytes).context("cannot make a slow disk")
    }

    /// Makes the disk slow for a group, and for the kernel when it swaps for it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn limit(
        &self,
        changes: &mut Changes,
        group: &mut Group,
        device: &str,
    ) -> Result<()> {
        // What was made on it is not the run's traffic.
        nix::unistd::syncfs(&File::open(&self.mount)?)?;
        let iops = self.iops;
        let Some(blkio) = &self.blkio else {
            let line = format!("{device} riops={iops} wiops={iops}");
            return fs::write(group.directory().join("io.max"), line)
                .context("the kernel cannot limit disks (CONFIG_BLK_DEV_THROTTLING)");
        };
        let name = group.directory().file_name().context("a group has a name")?;
        let directory = blkio.join(name);
        changes.make_group(&directory)?;
        for file in V1_LIMITS {
            changes.limit_device(&blkio.join(file), device, iops)?;
            fs::write(directory.join(file), format!("{device} {iops}"))?;
        }
        group.join_also(directory);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_read_from_a_disk_s_statistics() {
        let text = "  98926 21 2092490 13945   376935 793858 43536910 108409 0 116384 206825 2 0";
        let traffic = Traffic::read(text).expect("statistics");
        assert_eq!((traffic.reads, traffic.read_bytes), (98_926, 2_092_490 * 512));
        assert_eq!((traffic.writes, traffic.written_bytes), (376_935, 43_536_910 * 512));
        let more = Traffic { writes: 376_945, ..traffic };
        assert_eq!(more.since(traffic), Traffic { writes: 10, ..Traffic::default() });
        for wrong in ["", "1 2 3 4 5 6", "a b c d e f g h"] {
            assert_eq!(Traffic::read(wrong), None, "{wrong}");
        }
    }

    /// In plain directories, where every file the kernel would have can be written.
    #[test]
    fn a_limit_is_written_in_each_version_s_words_and_taken_back() {
        let root = tempfile::tempdir().expect("a directory");
        let [memory, blkio, mount] = ["memory", "blkio", "mount"].map(|name| {
            let path = root.path().join(name);
            fs::create_dir_all(&path).expect("a directory");
            path
        });
        fs::create_dir(root.path().join("run")).expect("run");
        let limits = V1_LIMITS.map(|file| blkio.join(file));
        for limit in &limits {
            fs::write(limit, "8:0 9000\n7:3 70\n").expect("limits");
        }
        let mut changes = Changes::open(Machine::at(root.path())).expect("a journal");
        let free = crate::group::Allowance { limit_bytes: None, may_swap: true };
        let told = |path: &Path| fs::read_to_string(path).expect("a limit");

        let slow = |blkio: Option<&PathBuf>| SlowDisk {
            iops: 150,
            blkio: blkio.cloned(),
            image: root.path().join("image"),
            mount: mount.clone(),
        };
        let hierarchy = Hierarchy::V1(memory.clone());
        let mut group = Group::make(&mut changes, &hierarchy, free).expect("a group");
        let mark = changes.mark();
        slow(Some(&blkio)).limit(&mut changes, &mut group, "7:3").expect("limited");
        let own = blkio.join(group.directory().file_name().expect("a name"));
        for (limit, file) in limits.iter().zip(V1_LIMITS) {
            assert_eq!((told(limit), told(&own.join(file))), ("7:3 150".into(), "7:3 150".into()));
            fs::remove_file(own.join(file)).expect("as the kernel does");
        }
        changes.take_back_to(mark).expect("taken back");
        assert_eq!(limits.each_ref().map(|limit| told(limit)), ["7:3 70"; 2]);
        assert!(!own.exists());

        slow(None).limit(&mut changes, &mut group, "7:3").expect("limited");
        assert_eq!(told(&group.directory().join("io.max")), "7:3 riops=150 wiops=150");
    }
}
