//! The cgroup in which a program runs: its memory limit and what the kernel
//! counts there. Source: Documentation/admin-guide/cgroup-v1/memory.rst and
//! cgroup-v2.rst of the Linux kernel.
//!
//! A group is made anew for every run, so that its peaks and counts are the run's.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::changes::{Changes, OWN_PREFIX};
use crate::machine::Machine;

/// How long killed processes may take to leave their group.
const EMPTYING: Duration = Duration::from_secs(30);

/// Where the memory controller is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Hierarchy {
    /// Version 1, with the directory it is mounted on.
    V1(PathBuf),
    /// Version 2, with the directory it is mounted on.
    V2(PathBuf),
}

/// What a hierarchy's files are called.
struct Names {
    limit: &'static str,
    usage: &'static str,
    peak: &'static str,
    oom: &'static str,
    unlimited: &'static str,
}

const V1_NAMES: Names = Names {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    peak: "memory.max_usage_in_bytes",
    oom: "memory.oom_control",
    unlimited: "-1",
};

const V2_NAMES: Names = Names {
    limit: "memory.max",
    usage: "memory.current",
    peak: "memory.peak",
    oom: "memory.events",
    unlimited: "max",
};

impl Hierarchy {
    /// Finds the memory controller; mounts it where the kernel has it but nothing is mounted.
    ///
    /// # Errors
    /// When the kernel has no memory controller, or does not give it to this user.
    pub(crate) fn find(changes: &mut Changes) -> Result<Self> {
        match Self::mounted(changes.machine()) {
            Some(hierarchy) => {
                if let Hierarchy::V2(mount) = &hierarchy {
                    changes.enable_controller(mount, "memory")?;
                }
                Ok(hierarchy)
            }
            None => {
                let mount = changes.mount_controller("memory").context("no memory cgroup here")?;
                Ok(Hierarchy::V1(mount))
            }
        }
    }

    /// The hierarchy that is mounted and has the memory controller.
    fn mounted(machine: &Machine) -> Option<Self> {
        let v1 = Self::mounted_v1(machine, "memory").map(Hierarchy::V1);
        v1.or_else(|| Self::mounted_v2(machine, "memory").map(Hierarchy::V2))
    }

    /// Where a controller of version 1 is mounted.
    pub(crate) fn mounted_v1(machine: &Machine, controller: &str) -> Option<PathBuf> {
        find_mount(machine, "cgroup", |_, options| {
            options.split(',').any(|option| option == controller)
        })
    }

    /// Where version 2 is mounted, if it has this controller.
    fn mounted_v2(machine: &Machine, controller: &str) -> Option<PathBuf> {
        find_mount(machine, "cgroup2", |mount, _| {
            let controllers = machine.read(&format!("{mount}/cgroup.controllers"));
            controllers.is_ok_and(|names| names.split(' ').any(|name| name == controller))
        })
    }

    fn mount(&self) -> &Path {
        match self {
            Hierarchy::V1(mount) | Hierarchy::V2(mount) => mount,
        }
    }

    fn names(&self) -> &'static Names {
        match self {
            Hierarchy::V1(_) => &V1_NAMES,
            Hierarchy::V2(_) => &V2_NAMES,
        }
    }

    /// Whether the kernel charges zswap's pool to the program's group.
    /// Version 2 does, version 1 does not; neither charges zram's.
    pub(crate) fn charges_zswap(&self) -> bool {
        matches!(self, Hierarchy::V2(_))
    }
}

/// What a group is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allowance {
    /// The hard limit, or none.
    pub limit_bytes: Option<u64>,
    /// Whether the kernel may swap the group's pages.
    pub may_swap: bool,
}

/// One cgroup.
#[derive(Debug)]
pub(crate) struct Group {
    hierarchy: Hierarchy,
    directory: PathBuf,
    /// The group of its processes in another hierarchy of version 1.
    other_directory: Option<PathBuf>,
}

impl Group {
    /// Makes the group; it goes when `changes` are taken back.
    ///
    /// # Errors
    /// When the group cannot be made or limited.
    pub(crate) fn make(
        changes: &mut Changes,
        hierarchy: &Hierarchy,
        allowance: Allowance,
    ) -> Result<Self> {
        let name = format!("{OWN_PREFIX}-{}", std::process::id());
        let directory = hierarchy.mount().join(name);
        changes.make_group(&directory)?;
        let group = Group { hierarchy: hierarchy.clone(), directory, other_directory: None };
        group.allow(allowance)?;
        Ok(group)
    }

    fn allow(&self, allowance: Allowance) -> Result<()> {
        let names = self.hierarchy.names();
        let limit = allowance.limit_bytes.map_or(names.unlimited.into(), |bytes| bytes.to_string());
        self.write(names.limit, &limit).context("cannot limit the cgroup's memory")?;
        if allowance.may_swap {
            return Ok(());
        }
        match self.hierarchy {
            Hierarchy::V2(_) => self.write_if_there("memory.swap.max", "0"),
            // Swappiness 0 of a group keeps its pages out of swap altogether.
            Hierarchy::V1(_) => self.write_if_there("memory.swappiness", "0"),
        }
    }

    fn write(&self, name: &str, value: &str) -> io::Result<()> {
        fs::write(self.directory.join(name), value)
    }

    /// A kernel built without swap has no switches for it.
    fn write_if_there(&self, name: &str, value: &str) -> Result<()> {
        match self.write(name, value) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot write {name} of the cgroup"))
            }
            _ => Ok(()),
        }
    }

    fn read_bytes(&self, name: &str) -> u64 {
        let text = fs::read_to_string(self.directory.join(name)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    /// One number of a file of `name value` lines, 0 where it is missing.
    fn read_field(&self, file: &str, field: &str) -> u64 {
        let text = fs::read_to_string(self.directory.join(file)).unwrap_or_default();
        field_of(&text, field)
    }

    /// The group's directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Has the processes join a group of another hierarchy too.
    pub(crate) fn join_also(&mut self, directory: PathBuf) {
        self.other_directory = Some(directory);
    }

    /// The files through which a process joins the group by writing `0` to each.
    ///
    /// # Errors
    /// As opening the files.
    pub(crate) fn doors(&self) -> io::Result<Vec<fs::File>> {
        let directories = [Some(&self.directory), self.other_directory.as_ref()];
        let open = |directory: &PathBuf| {
            fs::OpenOptions::new().write(true).open(directory.join("cgroup.procs"))
        };
        directories.into_iter().flatten().map(open).collect()
    }

    /// Bytes charged now.
    pub(crate) fn usage_bytes(&self) -> u64 {
        self.read_bytes(self.hierarchy.names().usage)
    }

    /// The most bytes that were ever charged; 0 on a kernel that does not count it (before 5.19,
    /// version 2), where the highest [`Group::usage_bytes`] has to do.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.read_bytes(self.hierarchy.names().peak)
    }

    /// Bytes charged now that the kernel cannot drop without swapping: anonymous and shared
    /// memory, and the kernel's own for this group (page tables, stacks).
    pub(crate) fn unreclaimable_bytes(&self) -> u64 {
        let text = fs::read_to_string(self.directory.join("memory.stat")).unwrap_or_default();
        match self.hierarchy {
            Hierarchy::V1(_) => {
                let kernel_bytes = self.read_bytes("memory.kmem.usage_in_bytes");
                field_of(&text, "rss") + field_of(&text, "shmem") + kernel_bytes
            }
            Hierarchy::V2(_) => {
                ["anon", "shmem", "kernel"].iter().map(|name| field_of(&text, name)).sum()
            }
        }
    }

    /// Major faults of all processes that were ever in the group.
    pub(crate) fn major_faults(&self) -> u64 {
        self.read_field("memory.stat", "pgmajfault")
    }

    /// How many processes the kernel killed because the limit could not be held.
    pub(crate) fn oom_kills(&self) -> u64 {
        self.read_field(self.hierarchy.names().oom, "oom_kill")
    }

    /// Kills every process in the group and waits until they are gone.
    ///
    /// # Errors
    /// When they do not go.
    pub(crate) fn kill_all(&self) -> Result<()> {
        empty(&self.directory)
    }
}

/// The first mount of a kind of file system of which `fits` is true, given its directory and options.
fn find_mount(
    machine: &Machine,
    kind: &str,
    mut fits: impl FnMut(&str, &str) -> bool,
) -> Option<PathBuf> {
    let mounts = machine.read("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (mount, found, options) = (fields.next()?, fields.next()?, fields.next()?);
        (found == kind && fits(mount, options)).then(|| machine.path(mount))
    })
}

fn field_of(text: &str, field: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(' '))
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or(0)
}

/// Kills until no process is left: one that forks meanwhile is met in the next round.
fn empty(directory: &Path) -> Result<()> {
    let deadline = Instant::now() + EMPTYING;
    loop {
        let members = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
        if members.trim().is_empty() {
            return Ok(());
        }
        for pid in members.lines().filter_map(|line| line.parse().ok()) {
            // A process that has just gone is what is wanted.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        if Instant::now() > deadline {
            bail!("processes in {} cannot be killed", directory.display());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Kills what is in a group and removes it, if it is there.
///
/// # Errors
/// When it cannot be removed.
pub(crate) fn remove(directory: &Path) -> Result<()> {
    let deadline = Instant::now() + EMPTYING;
    loop {
        empty(directory)?;
        match fs::remove_dir(directory) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            // A killed process leaves its group a moment after it is gone from the list.
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(mounts: &str) -> (tempfile::TempDir, Machine) {
        let root = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(root.path().join("proc/self")).expect("proc");
        fs::write(root.path().join("proc/self/mounts"), mounts).expect("mounts");
        let machine = Machine::at(root.path());
        (root, machine)
    }

    #[test]
    fn the_hierarchy_with_the_memory_controller_is_taken() {
        let mixed = "cgroup /cg/cpu cgroup rw,cpu 0 0\ncgroup /cg/memory cgroup rw,memory 0 0\n\
                     cgroup2 /cg/unified cgroup2 rw 0 0\n";
        let (root, mixed) = machine(mixed);
        assert_eq!(Hierarchy::mounted(&mixed), Some(Hierarchy::V1(root.path().join("cg/memory"))));

        let (root, unified) = machine("cgroup2 /cg cgroup2 rw,nsdelegate 0 0\n");
        assert_eq!(Hierarchy::mounted(&unified), None);
        fs::create_dir(root.path().join("cg")).expect("cg");
        unified.write("/cg/cgroup.controllers", "cpu io memory pids\n").expect("controllers");
        assert_eq!(Hierarchy::mounted(&unified), Some(Hierarchy::V2(root.path().join("cg"))));
    }

    /// A group in a plain directory, where every file the kernel would have can be written.
    fn group(
        version: fn(PathBuf) -> Hierarchy,
        allowance: Allowance,
    ) -> (tempfile::TempDir, Group) {
        let (root, machine) = machine("");
        fs::create_dir(root.path().join("run")).expect("run");
        let hierarchy = version(root.path().into());
        let mut changes = Changes::open(machine).expect("a journal");
        let group = Group::make(&mut changes, &hierarchy, allowance).expect("a group");
        (root, group)
    }

    fn told(group: &Group, name: &str) -> Option<String> {
        fs::read_to_string(group.directory.join(name)).ok()
    }

    #[test]
    fn an_allowance_is_written_in_each_version_s_words() {
        let limited = Allowance { limit_bytes: Some(4096), may_swap: false };
        let free = Allowance { limit_bytes: None, may_swap: true };
        let (_root, group_1) = group(Hierarchy::V1, limited);
        assert_eq!(told(&group_1, "memory.limit_in_bytes").as_deref(), Some("4096"));
        assert_eq!(told(&group_1, "memory.swappiness").as_deref(), Some("0"));
        let (_root, group_2) = group(Hierarchy::V2, limited);
        assert_eq!(told(&group_2, "memory.max").as_deref(), Some("4096"));
        assert_eq!(told(&group_2, "memory.swap.max").as_deref(), Some("0"));
        let (_root, group_1) = group(Hierarchy::V1, free);
        assert_eq!(told(&group_1, "memory.limit_in_bytes").as_deref(), Some("-1"));
        assert_eq!(told(&group_1, "memory.swappiness"), None);
        let (_root, group_2) = group(Hierarchy::V2, free);
        assert_eq!(told(&group_2, "memory.max").as_deref(), Some("max"));
        assert_eq!(told(&group_2, "memory.swap.max"), None);
    }

    #[test]
    fn counts_are_read_in_each_version_s_words() {
        let free = Allowance { limit_bytes: None, may_swap: true };
        let (_root, group_1) = group(Hierarchy::V1, free);
        let statistics = "rss 10\nshmem 20\npgmajfault 3\n";
        group_1.write("memory.stat", statistics).expect("written");
        group_1.write("memory.kmem.usage_in_bytes", "5\n").expect("written");
        group_1.write("memory.max_usage_in_bytes", "99\n").expect("written");
        group_1.write("memory.oom_control", "under_oom 0\noom_kill 2\n").expect("written");
        assert_eq!((group_1.unreclaimable_bytes(), group_1.peak_bytes()), (35, 99));
        assert_eq!((group_1.major_faults(), group_1.oom_kills()), (3, 2));

        let (_root, group_2) = group(Hierarchy::V2, free);
        let statistics = "anon 10\nkernel 5\nshmem 20\npgmajfault 3\n";
        group_2.write("memory.stat", statistics).expect("written");
        group_2.write("memory.current", "98\n").expect("written");
        group_2.write("memory.events", "oom 1\noom_kill 2\n").expect("written");
        assert_eq!((group_2.unreclaimable_bytes(), group_2.peak_bytes()), (35, 0));
        assert_eq!((group_2.usage_bytes(), group_2.major_faults()), (98, 3));
        assert_eq!(group_2.oom_kills(), 2);
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "pgmajfault 12\nrss_huge 7\nrss 5\ntotal_rss 99\n";
        assert_eq!(field_of(text, "rss"), 5);
        assert_eq!(field_of(text, "pgmajfault"), 12);
        assert_eq!(field_of(text, "anon"), 0);
    }
}
