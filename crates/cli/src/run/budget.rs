//! How many bytes the program and zpager may take together.
//!
//! `auto` is the tightest of what the machine has available (proc(5),
//! `MemAvailable`) and what each memory cgroup above this process still allows
//! ([`super::cgroup`]), less a reserve for what zpager does not manage: text,
//! stacks, file mappings, the page cache, and the rest of the container. While the program runs
//! the budget follows what there is ([`super::supervisor`]).

use std::fmt;
use std::path::PathBuf;

use zpager_sys::process::value_bytes;

use super::cgroup::{Groups, Room};
use super::config::{Memory, check_budget};
use crate::failure::{Failure, OrFail};
use crate::proc_text;

/// The smallest reserve.
const MIN_RESERVE_BYTES: u64 = 64 << 20;

/// The reserve is this part of what is there, where that is more than the smallest.
const RESERVE_DIVISOR: u64 = 10;

/// A budget and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Budget {
    /// The physical bytes that resident pages, pool and zpager's own data may take together.
    pub(crate) bytes: u64,
    /// What it may become: `bytes`, or with `auto` all that there is but for a reserve, once others leave it.
    pub(crate) most_bytes: u64,
    /// What was left beside them; 0 where the user asked for a budget.
    pub(crate) reserve_bytes: u64,
    /// What decided it.
    pub(crate) source: Source,
}

/// What decided a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// The user.
    Asked,
    /// What the machine has available.
    Machine,
    /// What a cgroup still allows.
    Cgroup(PathBuf),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Asked => f.write_str("--memory"),
            Source::Machine => f.write_str("the machine's available memory"),
            Source::Cgroup(group) => write!(f, "the cgroup {}", group.display()),
        }
    }
}

/// Settles the budget of a run.
///
/// # Errors
/// Nothing says how much there is, or it is below what the agent needs.
pub(crate) fn choose(memory: Memory) -> Result<Budget, Failure> {
    match memory {
        Memory::Bytes(bytes) => {
            let source = Source::Asked;
            Ok(Budget { bytes, most_bytes: bytes, reserve_bytes: 0, source })
        }
        Memory::Auto => {
            let text = proc_text::read("/proc/meminfo").or_fail("reading /proc/meminfo")?;
            let total_bytes = value_bytes(&text, "MemTotal:").unwrap_or(0);
            let Some(available_bytes) = machine_available_bytes(&text) else {
                return Err(Failure::own("/proc/meminfo has no MemAvailable: give --memory SIZE"));
            };
            automatic([available_bytes, total_bytes], Groups::find().rooms())
        }
    }
}

/// The tightest of the machine's and the cgroups' room, less the reserve.
fn automatic(
    [machine_bytes, machine_total_bytes]: [u64; 2],
    groups: Vec<Room>,
) -> Result<Budget, Failure> {
    let limits = groups.iter().map(|room| room.limit_bytes);
    let limit_bytes = limits.fold(machine_total_bytes, u64::min);
    let machine = (machine_bytes, Source::Machine);
    let groups = groups.into_iter().map(|room| (room.bytes, Source::Cgroup(room.group)));
    let (room_bytes, source) =
        std::iter::once(machine).chain(groups).min_by_key(|(bytes, _)| *bytes).expect("not empty");
    let reserve_bytes = reserve_of(room_bytes);
    let bytes = room_bytes.saturating_sub(reserve_bytes);
    check_budget(bytes).map_err(|failure| {
        Failure::own(format!("--memory auto, by {source}: {}", failure.message))
    })?;
    let most_bytes = limit_bytes.saturating_sub(reserve_of(limit_bytes)).max(bytes);
    Ok(Budget { bytes, most_bytes, reserve_bytes, source })
}

/// What is left of so much for what zpager does not manage.
pub(crate) fn reserve_of(room_bytes: u64) -> u64 {
    MIN_RESERVE_BYTES.max(room_bytes / RESERVE_DIVISOR)
}

/// What may be had at this moment besides what is held, at the most: the tightest of all there is.
/// `None` where the machine does not say.
pub(crate) fn room_bytes(groups: &Groups) -> Option<u64> {
    let machine_bytes = machine_available_bytes(&proc_text::read("/proc/meminfo").ok()?)?;
    let groups = groups.rooms().into_iter().map(|room| room.most_bytes);
    Some(groups.fold(machine_bytes, u64::min))
}

/// `MemAvailable` of `/proc/meminfo`.
fn machine_available_bytes(meminfo: &str) -> Option<u64> {
    value_bytes(meminfo, "MemAvailable:")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Of a group with 20 MiB in use.
    fn room(bytes: u64, group: &str) -> Room {
        let limit_bytes = bytes + 20 * MIB;
        Room { bytes, most_bytes: bytes, limit_bytes, group: group.into() }
    }

    #[test]
    fn meminfo_is_read() {
        let text = "MemTotal:       24683520 kB\nMemAvailable:   1048576 kB\nBuffers: 1 kB\n";
        assert_eq!(machine_available_bytes(text), Some(1 << 30));
        assert_eq!(machine_available_bytes("MemTotal: 5 kB\n"), None);
        assert_eq!(machine_available_bytes("MemAvailable: lots kB\n"), None);
    }

    #[test]
    fn the_tightest_room_counts_less_the_reserve() {
        let machine = [10_000 * MIB, 20_000 * MIB];
        let free = automatic(machine, vec![]).expect("enough");
        let [bytes, most_bytes, reserve_bytes] = [9000, 18_000, 1000].map(|mib| mib * MIB);
        assert_eq!(free, Budget { bytes, most_bytes, reserve_bytes, source: Source::Machine });
        let groups = vec![room(5000 * MIB, "/a"), room(256 * MIB, "/a/b"), room(400 * MIB, "/c")];
        let tight = automatic(machine, groups).expect("enough");
        let [bytes, most_bytes, reserve_bytes] = [192, 212, 64].map(|mib| mib * MIB);
        let source = Source::Cgroup("/a/b".into());
        assert_eq!(tight, Budget { bytes, most_bytes, reserve_bytes, source });
    }

    #[test]
    fn no_room_is_said_with_its_cause() {
        let failure =
            automatic([1000 * MIB; 2], vec![room(70 * MIB, "/full")]).expect_err("too tight");
        assert_eq!(failure.status, 125);
        assert!(failure.message.contains("/full"), "{failure:?}");
    }
}
