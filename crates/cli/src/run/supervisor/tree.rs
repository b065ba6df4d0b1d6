//! The processes of a run, and how much anonymous and shared memory they hold together.
//!
//! All descendants of the supervisor belong: as their subreaper (prctl(2)) it keeps
//! also those whose parent has ended. Sources: proc(5), `statm`, `stat`, `task/TID/children`,
//! `smaps_rollup`, `loadavg`.
//!
//! A look costs a few microseconds a process as long as no process was created
//! anywhere since the last one. Bad for trees of thousands of processes.

use std::collections::{BTreeMap, BTreeSet};

use libc::pid_t;
use zpager_sys::process::value_bytes;

use crate::proc_text;
use crate::run::enter::{auxiliary_of, share_memory, threads_share_memory};
use crate::run::living::{living_thread, stat_of};

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;

/// The most processes followed.
const MAX_PROCESSES: usize = 1 << 16;

/// How many siblings are compared on each side of a process by its id: those that have one memory were made
/// one after the other as a rule.
const NEXT_SIBLINGS: usize = 8;

/// The descendants of a process.
#[derive(Debug)]
pub(crate) struct Tree {
    root: pid_t,
    /// Children of the root that are no part of the run.
    outsiders: Vec<pid_t>,
    /// Each process's parent.
    parents: BTreeMap<pid_t, pid_t>,
    /// The newest process id when `parents` was read.
    newest: Option<String>,
}

impl Tree {
    /// The descendants of `root`, which is not one itself.
    pub(crate) fn below(root: pid_t) -> Self {
        Tree { root, outsiders: Vec::new(), parents: BTreeMap::new(), newest: None }
    }

    /// Leaves out children of the root, which have none themselves.
    pub(crate) fn without(self, outsiders: Vec<pid_t>) -> Self {
        Tree { outsiders, ..self }
    }

    /// Finds the descendants; whether there can be new ones since the last time.
    pub(crate) fn refresh(&mut self) -> bool {
        let newest = newest_process();
        if newest.is_some() && newest == self.newest {
            return false;
        }
        self.newest = newest;
        self.parents = descendants(self.root);
        for pid in &self.outsiders {
            self.parents.remove(pid);
        }
        true
    }

    /// The processes as last found, each with its parent; some may be gone.
    pub(crate) fn processes(&self) -> impl Iterator<Item = (pid_t, pid_t)> {
        self.parents.iter().map(|(pid, parent)| (*pid, *parent))
    }

    /// Whether a process was there when last looked.
    pub(crate) fn contains(&self, pid: pid_t) -> bool {
        self.parents.contains_key(&pid)
    }

    /// Those of `pids`, and maybe others, whose memory another process of the tree has for its own: neither can be
    /// entered then. It is its parent or a child, or had the same parent, which has ended.
    pub(crate) fn sharing(&self, pids: impl IntoIterator<Item = pid_t>) -> BTreeSet<pid_t> {
        let (mut sharing, mut compared) = (BTreeSet::new(), BTreeSet::new());
        // A thread of each is looked up once, as that takes far longer than to compare two.
        let mut threads = BTreeMap::new();
        for pid in pids {
            for other in self.relatives(pid) {
                if compared.insert((pid.min(other), pid.max(other))) {
                    let [first, second] = [pid, other]
                        .map(|of| *threads.entry(of).or_insert_with(|| living_thread(of)));
                    if threads_share_memory(first, second) == Some(true) {
                        sharing.extend([pid, other]);
                    }
                }
            }
        }
        sharing
    }

    /// Those that may have the memory of a process.
    fn relatives(&self, pid: pid_t) -> impl Iterator<Item = pid_t> {
        let parent = self.parents.get(&pid).copied().filter(|parent| *parent != self.root);
        let children = self.processes().filter(move |(_, parent)| *parent == pid);
        parent.into_iter().chain(children.map(|(child, _)| child)).chain(self.next_siblings(pid))
    }

    /// Those by whose ids a process is, where they have the same parent.
    fn next_siblings(&self, pid: pid_t) -> impl Iterator<Item = pid_t> {
        let parent = self.parents.get(&pid).copied();
        let before = self.parents.range(..pid).rev();
        let after = self.parents.range(pid + 1..);
        let is_sibling = move |(_, of): &(&pid_t, &pid_t)| Some(**of) == parent;
        let before = before.filter(is_sibling).take(NEXT_SIBLINGS);
        before.chain(after.filter(is_sibling).take(NEXT_SIBLINGS)).map(|(other, _)| *other)
    }

    /// Whether a process uses its parent's memory, as after vfork(2).
    fn borrows(&self, pid: pid_t, parent: pid_t) -> bool {
        parent != self.root && share_memory(pid, parent) == Some(true)
    }

    /// Anonymous bytes of each process. A page that several processes share after fork(2) counts for each of them,
    /// so the sum is an upper bound.
    pub(crate) fn anonymous_bytes(&self) -> impl Iterator<Item = (pid_t, u64)> {
        self.parents.keys().map(|pid| (*pid, anonymous_bytes_of(*pid)))
    }

    /// Bytes of pages that the kernel has made all processes so far: what it gave them and what it copied for who
    /// wrote what it had in common with others, but for huge pages; and what files gave them.
    pub(crate) fn faulted_bytes(&self) -> u64 {
        let faulted = |pid| ask(pid, "stat", of_stat).unwrap_or(0);
        self.parents.keys().copied().map(faulted).sum()
    }

    /// Anonymous bytes with every shared page counted once in all. The kernel walks all page tables for it, but for
    /// those of a process that is alone with its program: it has nothing in common with another one.
    pub(crate) fn proportional_bytes(&self) -> u64 {
        let mut of_programs = BTreeMap::<_, Vec<_>>::new();
        for (pid, parent) in self.processes() {
            of_programs.entry(auxiliary_of(pid)).or_default().push((pid, parent));
        }
        let bytes_of = |of_program: &Vec<(pid_t, pid_t)>| match of_program[..] {
            [(pid, _)] => anonymous_bytes_of(pid),
            _ => {
                let own = of_program.iter().filter(|(pid, parent)| !self.borrows(*pid, *parent));
                own.map(|(pid, _)| proportional_bytes_of(*pid)).sum()
            }
        };
        of_programs.values().map(bytes_of).sum()
    }

    /// Bytes of shared memory in all mappings of all processes together.
    pub(crate) fn shared_bytes_mapped(&self) -> u64 {
        let of = |pid| of_proc(pid, "status", "RssShmem:").unwrap_or(0);
        self.parents.keys().copied().map(of).sum()
    }

    /// The same with every page counted once; the kernel walks all page tables for it.
    pub(crate) fn shared_bytes(&self) -> u64 {
        let own = self.processes().filter(|(pid, parent)| !self.borrows(*pid, *parent));
        own.filter_map(|(pid, _)| of_proc(pid, "smaps_rollup", "Pss_Shmem:")).sum()
    }

    /// Whether a shared page can have been counted more than once.
    pub(crate) fn has_several(&self) -> bool {
        self.parents.len() > 1
    }
}

/// The process id that was given last in this namespace: the last field of `/proc/loadavg`.
fn newest_process() -> Option<String> {
    let text = proc_text::read("/proc/loadavg").ok()?;
    text.split_whitespace().nth(4).map(str::to_owned)
}

/// The parents of all descendants of `root`, found from the top down.
fn descendants(root: pid_t) -> BTreeMap<pid_t, pid_t> {
    let mut parents = BTreeMap::new();
    let mut open = vec![root];
    let mut scanned = None;
    while let Some(parent) = open.pop() {
        let children = children_of(parent).unwrap_or_else(|| {
            let all = scanned.get_or_insert_with(scan_parents);
            let own = all.iter().filter(|(_, of)| **of == parent);
            own.map(|(child, _)| *child).collect()
        });
        for child in children {
            if parents.len() < MAX_PROCESSES && parents.insert(child, parent).is_none() {
                open.push(child);
            }
        }
    }
    parents
}

/// The children of all threads of a process; `None` when the kernel does not list them.
pub(crate) fn children_of(pid: pid_t) -> Option<Vec<pid_t>> {
    let mut children = Vec::new();
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Some(children) };
    for thread in threads.flatten() {
        match proc_text::read(thread.path().join("children")) {
            Ok(list) => children.extend(list.split_whitespace().flat_map(str::parse::<pid_t>)),
            // The thread has ended, or there is no such file at all.
            Err(_) if thread.path().exists() => return None,
            Err(_) => {}
        }
    }
    Some(children)
}

/// The parents of all processes that can be seen.
fn scan_parents() -> BTreeMap<pid_t, pid_t> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return BTreeMap::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: pid_t| Some((pid, parent_of(pid)?))).collect()
}

fn parent_of(pid: pid_t) -> Option<pid_t> {
    stat_of(pid, pid)?.split(' ').nth(1)?.parse().ok()
}

/// Anonymous bytes of one process, as far as it can be seen.
pub(super) fn anonymous_bytes_of(pid: pid_t) -> u64 {
    ask(pid, "statm", of_statm).unwrap_or(0)
}

/// What a file of a process says. What says nothing of memory has ended, or only its first thread has.
fn ask(pid: pid_t, file: &str, read: impl Fn(&str) -> Option<u64>) -> Option<u64> {
    let of = |thread: pid_t| read(&proc_text::read(format!("/proc/{thread}/{file}")).ok()?);
    of(pid).or_else(|| of(living_thread(pid)))
}

/// Resident less shared pages: what is neither file nor shared memory. `None` where there is no memory at all.
fn of_statm(statm: &str) -> Option<u64> {
    let mut fields = statm.split(' ');
    fields.next().filter(|all| *all != "0")?;
    let resident: u64 = fields.next()?.parse().ok()?;
    let shared: u64 = fields.next()?.parse().ok()?;
    Some(resident.saturating_sub(shared) * PAGE_BYTES)
}

/// Pages that faults have brought, `minflt`, as bytes.
fn of_stat(stat: &str) -> Option<u64> {
    let (_, behind_name) = stat.rsplit_once(") ")?;
    let faults: u64 = behind_name.split(' ').nth(7)?.parse().ok()?;
    Some(faults * PAGE_BYTES)
}

/// The process's part of every page it has; its anonymous bytes where the kernel does not tell.
fn proportional_bytes_of(pid: pid_t) -> u64 {
    of_proc(pid, "smaps_rollup", "Pss_Anon:").unwrap_or_else(|| anonymous_bytes_of(pid))
}

/// The bytes that a file of a process says after `key`.
fn of_proc(pid: pid_t, file: &str, key: &str) -> Option<u64> {
    ask(pid, file, |text| value_bytes(text, key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn files_of_proc_are_read() {
        assert_eq!(of_statm("1000 300 100 5 0 9 0\n"), Some(200 * 4096));
        assert_eq!(of_statm("1000 100 300 5 0 9 0\n"), Some(0));
        assert_eq!(of_statm("0 0 0 0 0 0 0\n"), None);
        assert_eq!(of_statm(""), None);
        let rollup = "7f-8f ---p 0 00:00 0 [rollup]\nRss: 900 kB\nPss_Anon:   300 kB\n";
        assert_eq!(value_bytes(rollup, "Pss_Anon:"), Some(300 << 10));
        assert_eq!(value_bytes("Rss: 900 kB\n", "Pss_Anon:"), None);
    }

    #[test]
    fn faults_stand_behind_the_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 25 6000 8 9 2 1 4 3 20 0 1 0 100 9000 50";
        assert_eq!(of_stat(stat), Some(25 * PAGE_BYTES));
        assert_eq!(of_stat("7 (a) S 1"), None);
    }

    #[test]
    fn children_and_grandchildren_are_found() {
        let mut child = Command::new("/bin/sh")
            .args(["-c", "sleep 100 & echo ready; read line; kill $!"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let pid = child.id().cast_signed();
        let mut ready = [0u8; 6];
        let output = child.stdout.as_mut().expect("a pipe");
        std::io::Read::read_exact(output, &mut ready).expect("the shell is ready");
        let own = std::process::id().cast_signed();
        let mut tree = Tree::below(own);
        assert!(tree.refresh());
        assert_eq!(tree.parents.get(&pid), Some(&own));
        let grandchild = tree.parents.iter().find(|(_, parent)| **parent == pid);
        assert!(grandchild.is_some(), "{tree:?}");
        assert_eq!(scan_parents().get(&pid), Some(&own));
        assert!(tree.sharing([pid]).is_empty());
        let mut without = Tree::below(own).without(vec![pid]);
        assert!(without.refresh() && !without.contains(pid) && tree.contains(pid));
        // Not compared: the counters of statm lag behind by a batch a processor.
        assert!(tree.anonymous_bytes().any(|(_, bytes)| bytes > 0));
        assert!(tree.faulted_bytes() > 0);
        assert!(tree.proportional_bytes() > 0);
        assert!(anonymous_bytes_of(own) > 0);
        drop(child.stdin.take());
        child.wait().expect("the shell ends");
    }
}
