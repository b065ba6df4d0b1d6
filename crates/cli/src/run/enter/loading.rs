//! What a dynamic loader does about the agent: whether it brings it into a process, and whether it has
//! prepared one that it has brought.
//!
//! It brings it where the variables with which the program was begun name it, and the process may open
//! it; it is at it then or has done so. Otherwise it never does, wherever it is. Sources: ld.so(8);
//! ptrace(2), "Ptrace access mode checking"; capabilities(7); proc(5); ELF, `PT_GNU_RELRO`.
//!
//! Where the loader is the C library as well (musl) threads are in its code all the time, so where they
//! are says nothing.

use libc::pid_t;
use zpager_sys::process::field;

use super::layout::Layout;
use super::mappings;
use crate::proc_text;
use crate::run::living::proc_file;

/// The capability `CAP_SYS_PTRACE`.
const PTRACE: u64 = 1 << 19;

/// What decides whether a process may open what another one holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Credentials {
    /// The link that names the user namespace.
    namespace: std::path::PathBuf,
    /// The real, effective, saved and file system user, and group.
    users: [u32; 4],
    groups: [u32; 4],
    permitted: u64,
    effective: u64,
}

impl Credentials {
    /// Those of a process; `None` where they cannot be read.
    pub(super) fn of(pid: pid_t) -> Option<Self> {
        let namespace = std::fs::read_link(proc_file(pid, "ns/user")).ok()?;
        let status = proc_text::read(proc_file(pid, "status")).ok()?;
        Self::read(&status, namespace)
    }

    fn read(status: &str, namespace: std::path::PathBuf) -> Option<Self> {
        let field = |name: &str| field(status.as_bytes(), name.as_bytes());
        let ids = |name: &str| -> Option<[u32; 4]> {
            let numbers = field(name).split_ascii_whitespace().map(str::parse);
            numbers.collect::<Result<Vec<u32>, _>>().ok()?.try_into().ok()
        };
        let set = |name: &str| u64::from_str_radix(field(name).trim(), 16).ok();
        Some(Credentials {
            namespace,
            users: ids("Uid:")?,
            groups: ids("Gid:")?,
            permitted: set("CapPrm:")?,
            effective: set("CapEff:")?,
        })
    }

    /// Whether who has these may open a descriptor of `holder` by way of `/proc`.
    fn may_open(&self, holder: &Self) -> bool {
        let is_one = |[real, effective, saved, _]: [u32; 4], asking: u32| {
            [real, effective, saved].iter().all(|id| *id == asking)
        };
        let is_alike = is_one(holder.users, self.users[3]) && is_one(holder.groups, self.groups[3]);
        let has_all = holder.permitted & !self.effective == 0;
        let traces = self.effective & PTRACE != 0;
        self.namespace == holder.namespace && (is_alike && has_all || traces)
    }
}

/// The variables with which the program of a process was begun (proc(5)).
pub(super) fn variables_of(pid: pid_t) -> Vec<u8> {
    proc_text::read_bytes(proc_file(pid, "environ")).unwrap_or_default()
}

/// The values of a variable, which may be there more than once.
pub(super) fn values<'a>(variables: &'a [u8], name: &str) -> impl Iterator<Item = &'a [u8]> {
    let variables = variables.split(|byte| *byte == 0);
    variables.filter_map(move |variable| variable.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

/// Whether the loader of a process that was begun with these variables brings the agent, which `holder`
/// holds at this path.
pub(super) fn brings(
    pid: pid_t,
    variables: &[u8],
    path: &str,
    holder: Option<&Credentials>,
) -> bool {
    names(variables, path)
        && match (Credentials::of(pid), holder) {
            (Some(asking), Some(holder)) => asking.may_open(holder),
            _ => true,
        }
}

/// Whether variables have the loader preload what is at a path.
fn names(variables: &[u8], path: &str) -> bool {
    let objects = |list: &[u8]| {
        list.split(|byte| b": ".contains(byte)).any(|object| object == path.as_bytes())
    };
    values(variables, "LD_PRELOAD").any(objects)
}

/// Whether the agent that begins at `base` is relocated: what is only read then is sealed last. Before
/// anything of it is in its place a loader maps the whole of it to be read, its end as well.
pub(super) fn is_prepared(maps: &str, base: u64, layout: &Layout) -> bool {
    let is_writable = |at: u64| {
        let found = mappings(maps).find(|found| (found.start..found.end).contains(&(base + at)));
        found.map(|found| found.is_writable)
    };
    let is_sealed = layout.sealed.is_empty() || is_writable(layout.sealed.start) == Some(false);
    is_sealed && is_writable(layout.span_bytes - 1) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(user: u32, capabilities: u64) -> Credentials {
        let status = format!(
            "Name:\tx\nUid:\t{user}\t{user}\t{user}\t{user}\nGid:\t7\t7\t7\t7\nCapInh:\t0\n\
             CapPrm:\t{capabilities:016x}\nCapEff:\t{capabilities:016x}\n"
        );
        Credentials::read(&status, "user:[1]".into()).expect("a status")
    }

    #[test]
    fn who_may_open_what_another_one_holds() {
        let (root, all) = (0, 0x1ff_ffff_ffff);
        let holder = credentials(root, all);
        assert!(credentials(root, all).may_open(&holder));
        assert!(!credentials(root, 0).may_open(&holder), "without what the holder has");
        assert!(!credentials(1000, 0).may_open(&holder));
        assert!(credentials(root, 0).may_open(&credentials(root, 0)));
        assert!(credentials(1000, PTRACE).may_open(&holder));
        assert!(!credentials(1000, all & !PTRACE).may_open(&holder));
        let elsewhere = Credentials { namespace: "user:[2]".into(), ..credentials(root, all) };
        assert!(!elsewhere.may_open(&holder));
        let partly = Credentials { users: [0, 0, 1000, 0], ..credentials(root, 0) };
        assert!(!credentials(root, 0).may_open(&partly));
        let own = std::process::id().cast_signed();
        let own = Credentials::of(own).expect("its own");
        assert!(own.may_open(&own));
        assert_eq!(Credentials::read("Name:\tx\n", "user:[1]".into()), None);
    }

    #[test]
    fn variables_name_what_is_preloaded() {
        let path = "/proc/7/fd/5";
        assert!(names(b"A=1\0LD_PRELOAD=/a.so:/proc/7/fd/5\0", path));
        assert!(names(b"LD_PRELOAD=/proc/7/fd/5 /a.so", path));
        assert!(!names(b"LD_PRELOAD=/proc/7/fd/55\0", path));
        assert!(!names(b"X=LD_PRELOAD=/proc/7/fd/5\0LD_PRELOAD=\0", path) && !names(b"", path));
    }

    #[test]
    fn an_image_is_prepared_once_it_is_sealed() {
        let layout = Layout::of(crate::run::image::AGENT).expect("the agent");
        let base = 0x7f00_0000_0000u64;
        let (sealed, end) = (layout.sealed.clone(), layout.span_bytes);
        assert!(!sealed.is_empty() && sealed.end < end, "it has something to seal, and more");
        let maps = |pieces: &[(u64, u64, &str)]| -> String {
            let line = |(start, end, how): &(u64, u64, &str)| {
                format!("{:x}-{:x} {how} 0 0:0 1 /a\n", base + start, base + end)
            };
            pieces.iter().map(line).collect()
        };
        let is_prepared = |pieces: &[_]| is_prepared(&maps(pieces), base, &layout);
        assert!(is_prepared(&[(sealed.start, sealed.end, "r--p"), (sealed.end, end, "rw-p")]));
        assert!(!is_prepared(&[(sealed.start, end, "rw-p")]), "not sealed");
        assert!(!is_prepared(&[(0, end, "r--p")]), "not mapped but as a whole");
        assert!(!is_prepared(&[(sealed.start, sealed.end, "r--p")]) && !is_prepared(&[]));
    }
}
