//! How much memory the cgroups above this process still allow.
//!
//! Version 1 and 2, every ancestor that can be seen, also from inside a
//! container, where the mount shows only a part of the tree. Sources: cgroups(7),
//! proc(5) on mountinfo, Linux Documentation/admin-guide/cgroup-v2.rst and
//! cgroup-v1/memory.rst.

use std::fs::read_to_string;
use std::path::{Component, Path, PathBuf};

use crate::proc_text::{self, unescaped};

/// Limits from here on mean "none": version 1 writes the largest multiple of a page below 2^63.
const UNLIMITED_BYTES: u64 = 1 << 60;

/// Deepest nesting followed.
const MAX_DEPTH: usize = 64;

/// What one limited cgroup still allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Room {
    /// Its limit less what its processes hold and could not give back.
    pub(crate) bytes: u64,
    /// The same, if the file cache that is in use went, too.
    pub(crate) most_bytes: u64,
    /// Its limit.
    pub(crate) limit_bytes: u64,
    /// Its directory.
    pub(crate) group: PathBuf,
}

/// The files of one version's memory controller.
#[derive(Debug, PartialEq, Eq)]
struct Version {
    file_system: &'static str,
    limits: &'static [&'static str],
    usage: &'static str,
    /// Keys in `memory.stat` of the file cache that the kernel reclaims first, and of that in use.
    reclaimable: [&'static str; 2],
}

const V1: Version = Version {
    file_system: "cgroup",
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    reclaimable: ["total_inactive_file", "total_active_file"],
};

const V2: Version = Version {
    file_system: "cgroup2",
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    reclaimable: ["inactive_file", "active_file"],
};

/// The memory cgroups of this process, of each version the innermost and the topmost that can be
/// seen.
#[derive(Debug)]
pub(crate) struct Groups(Vec<(&'static Version, PathBuf, PathBuf)>);

impl Groups {
    /// Finds them.
    pub(crate) fn find() -> Self {
        let groups = proc_text::read("/proc/self/cgroup").unwrap_or_default();
        let mounts = proc_text::read("/proc/self/mountinfo").unwrap_or_default();
        let found = [&V1, &V2].into_iter().filter_map(|version| {
            let (leaf, top) = locate(version, &groups, &mounts)?;
            Some((version, leaf, top))
        });
        Groups(found.collect())
    }

    /// What every limited one still allows.
    pub(crate) fn rooms(&self) -> Vec<Room> {
        self.0.iter().flat_map(|(version, leaf, top)| rooms_between(version, leaf, top)).collect()
    }
}

/// The rooms of `leaf` and its ancestors up to `top`.
fn rooms_between(version: &Version, leaf: &Path, top: &Path) -> Vec<Room> {
    leaf.ancestors()
        .take_while(|group| group.starts_with(top))
        .take(MAX_DEPTH)
        .filter_map(|group| room_of(version, group))
        .collect()
}

fn room_of(version: &Version, group: &Path) -> Option<Room> {
    let read = |name: &str| read_to_string(group.join(name)).ok();
    let limits = version.limits.iter().filter_map(|name| read(name));
    let limit_bytes = limits.filter_map(|text| limit_of(&text)).min()?;
    let usage_bytes = read(version.usage).and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let stat = read("memory.stat").unwrap_or_default();
    let [idle_bytes, used_bytes] = version.reclaimable.map(|key| stat_of(&stat, key));
    let held_bytes = u64::saturating_sub(usage_bytes, idle_bytes);
    Some(Room {
        bytes: limit_bytes.saturating_sub(held_bytes),
        most_bytes: limit_bytes.saturating_sub(held_bytes.saturating_sub(used_bytes)),
        limit_bytes,
        group: group.to_owned(),
    })
}

/// The limit that a file holds, if it limits anything.
fn limit_of(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|bytes| *bytes < UNLIMITED_BYTES)
}

/// One value of `memory.stat`; 0 when it is not there.
fn stat_of(stat: &str, key: &str) -> u64 {
    let value = stat.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

/// The directory of this process's memory cgroup, and the topmost one that can be seen.
fn locate(version: &Version, groups: &str, mounts: &str) -> Option<(PathBuf, PathBuf)> {
    let path = path_of(version, groups)?;
    let (root, top) = mounts.lines().find_map(|line| mount_of(version, line))?;
    // Outside the part that is mounted, the mount's top is the nearest ancestor to be seen.
    let below = Path::new(path).strip_prefix(&root).unwrap_or(Path::new(""));
    let mut inner = below.components();
    let plain = inner.all(|part| matches!(part, Component::Normal(_)));
    let leaf =
        if plain { top.components().chain(below.components()).collect() } else { top.clone() };
    Some((leaf, top))
}

/// This process's path in the hierarchy, from a line `4:memory:/path` or `0::/path`.
fn path_of<'a>(version: &Version, groups: &'a str) -> Option<&'a str> {
    groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let found = match version.file_system {
            "cgroup" => controllers.split(',').any(|name| name == "memory"),
            _ => controllers.is_empty(),
        };
        found.then_some(path)
    })
}

/// Root and mount point of a memory cgroup's line of mountinfo.
fn mount_of(version: &Version, line: &str) -> Option<(PathBuf, PathBuf)> {
    let (before, after) = line.split_once(" - ")?;
    let mut kind = after.split(' ');
    let (file_system, _, options) = (kind.next()?, kind.next()?, kind.next()?);
    let memory = version == &V2 || options.split(',').any(|option| option == "memory");
    if file_system != version.file_system || !memory {
        return None;
    }
    let mut fields = before.split(' ').skip(3);
    Some((unescaped(fields.next()?.as_bytes()), unescaped(fields.next()?.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1_MOUNT: &str =
        "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";
    const V2_MOUNT: &str =
        "41 31 0:38 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

    fn located(version: &Version, groups: &str, mounts: &str) -> Option<(String, String)> {
        let text = |path: PathBuf| path.to_str().expect("text").to_owned();
        locate(version, groups, mounts).map(|(leaf, top)| (text(leaf), text(top)))
    }

    fn pair(leaf: &str, top: &str) -> Option<(String, String)> {
        Some((leaf.to_owned(), top.to_owned()))
    }

    #[test]
    fn version_1_with_other_controllers_around() {
        let groups = "5:devices:/\n4:memory,hugetlb:/job/7\n0::/\n";
        let mounts = format!("32 31 0:29 / /c/cpu rw - cgroup cgroup rw,cpu\n{V1_MOUNT}");
        let expected = pair("/sys/fs/cgroup/memory/job/7", "/sys/fs/cgroup/memory");
        assert_eq!(located(&V1, groups, &mounts), expected);
        assert_eq!(located(&V1, "5:devices:/\n0::/\n", &mounts), None);
    }

    #[test]
    fn version_2() {
        let expected = pair("/sys/fs/cgroup/user.slice/a", "/sys/fs/cgroup");
        assert_eq!(located(&V2, "0::/user.slice/a\n", V2_MOUNT), expected);
        assert_eq!(located(&V2, "0::/user.slice/a\n", V1_MOUNT), None);
    }

    #[test]
    fn in_a_container_only_a_part_is_mounted() {
        let mount = "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let top = "/sys/fs/cgroup/memory";
        assert_eq!(located(&V1, "4:memory:/docker/abc\n", mount), pair(top, top));
        let inner = pair("/sys/fs/cgroup/memory/x", top);
        assert_eq!(located(&V1, "4:memory:/docker/abc/x\n", mount), inner);
        assert_eq!(located(&V1, "4:memory:/elsewhere\n", mount), pair(top, top));
        let namespaced = pair("/sys/fs/cgroup", "/sys/fs/cgroup");
        assert_eq!(located(&V2, "0::/../../x\n", V2_MOUNT), namespaced);
    }

    #[test]
    fn mount_points_with_blanks() {
        let mount = "1 2 0:3 / /a\\040b rw - cgroup2 none rw\n";
        assert_eq!(located(&V2, "0::/\n", mount), pair("/a b", "/a b"));
    }

    #[test]
    fn limits() {
        assert_eq!(limit_of("max\n"), None);
        assert_eq!(limit_of("9223372036854771712\n"), None);
        assert_eq!(limit_of("268435456\n"), Some(256 << 20));
        assert_eq!(limit_of(""), None);
        let stat = "cache 5\ninactive_file 4096\ntotal_inactive_file 8192\n";
        assert_eq!(stat_of(stat, "inactive_file"), 4096);
        assert_eq!(stat_of(stat, "total_inactive_file"), 8192);
        assert_eq!(stat_of(stat, "nothing"), 0);
    }

    #[test]
    fn every_ancestor_counts() {
        let top = std::env::temp_dir().join(format!("zpager-cgroup-{}", std::process::id()));
        let leaf = top.join("a/b");
        std::fs::create_dir_all(&leaf).expect("folders");
        let write = |group: &Path, name: &str, text: &str| {
            std::fs::write(group.join(name), text).expect("written");
        };
        write(&leaf, "memory.max", "max\n");
        write(&top.join("a"), "memory.max", "1000\n");
        write(&top.join("a"), "memory.high", "900\n");
        write(&top.join("a"), "memory.current", "500\n");
        write(&top.join("a"), "memory.stat", "anon 1\ninactive_file 300\nactive_file 50\n");
        write(&top, "memory.max", "5000\n");
        let rooms = rooms_between(&V2, &leaf, &top);
        let room =
            |bytes, most_bytes, limit_bytes, group| Room { bytes, most_bytes, limit_bytes, group };
        let expected = [room(700, 750, 900, top.join("a")), room(5000, 5000, 5000, top.clone())];
        assert_eq!(rooms, expected);
        std::fs::remove_dir_all(&top).expect("removed");
    }
}
