//! Which clusters the server holds, and under which keys.
//!
//! Invariants: each write goes to a key of its own, whose name has a number that is never used
//! again. So a write that was given up and reaches the server late changes nothing that is held. A
//! cluster is held from the moment its write was answered until it is discarded, and while it is
//! written once more, as by a parent and its child, under its name of before.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock};

use zpager_wire::RemoteCounts;

/// The name of a value: the cluster and the number of the write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) cluster: u32,
    pub(crate) write: u64,
}

/// A cluster on the server; `write` is 0 where there is none.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    write: u64,
    bytes: u32,
}

/// All clusters of a run.
#[derive(Debug)]
pub(crate) struct Kept<'a> {
    run: &'a str,
    counts: &'a RemoteCounts,
    writes: AtomicU64,
    /// As long as the highest cluster that was ever held asks for.
    clusters: RwLock<Vec<Held>>,
}

impl<'a> Kept<'a> {
    /// Nothing is held for the run of this name.
    pub(crate) fn new(run: &'a str, counts: &'a RemoteCounts) -> Self {
        Kept { run, counts, writes: AtomicU64::new(0), clusters: RwLock::default() }
    }

    /// The key of a value. A cluster of servers keeps all that have the same in braces on one of them.
    pub(crate) fn key(&self, name: Name) -> String {
        format!("zpager:{{{}}}:{}:{}", self.run, name.cluster, name.write)
    }

    /// A key of the run under which there is nothing.
    pub(crate) fn no_key(&self) -> String {
        self.key(Name { cluster: 0, write: 0 })
    }

    /// A name for a write of a cluster.
    pub(crate) fn next_name(&self, cluster: u32) -> Name {
        Name { cluster, write: self.writes.fetch_add(1, Relaxed) + 1 }
    }

    /// One past the highest cluster that was ever held.
    pub(crate) fn end(&self) -> u32 {
        self.read().len() as u32
    }

    /// Where a cluster is, if it is held.
    pub(crate) fn find(&self, cluster: u32) -> Option<Name> {
        let held = self.read().get(cluster as usize).copied().unwrap_or_default();
        (held.write > 0).then_some(Name { cluster, write: held.write })
    }

    /// Those of so many clusters from `first` on that are held.
    pub(crate) fn find_all(&self, first: u32, clusters: usize) -> Vec<Name> {
        let all = self.read();
        let numbered = (first..).zip(all.iter().skip(first as usize)).take(clusters);
        let held = numbered.filter(|(_, held)| held.write > 0);
        held.map(|(cluster, held)| Name { cluster, write: held.write }).collect()
    }

    /// The server holds `bytes` under `name`; where it held the cluster before.
    pub(crate) fn add(&self, name: Name, bytes: usize) -> Option<Name> {
        let mut all = self.clusters.write().unwrap_or_else(PoisonError::into_inner);
        let at = name.cluster as usize;
        if all.len() <= at {
            all.resize(at + 1, Held::default());
        }
        let before =
            std::mem::replace(&mut all[at], Held { write: name.write, bytes: bytes as u32 });
        let bytes = bytes as u64;
        let held_bytes = self.counts.held_bytes.fetch_add(bytes, Relaxed) + bytes;
        self.counts.peak_bytes.fetch_max(held_bytes, Relaxed);
        self.left(name.cluster, before)
    }

    /// A cluster is held no more; where it was.
    pub(crate) fn remove(&self, cluster: u32) -> Option<Name> {
        let mut all = self.clusters.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(all.get_mut(cluster as usize)?);
        self.left(cluster, before)
    }

    /// The server need not hold any more what it held.
    fn left(&self, cluster: u32, held: Held) -> Option<Name> {
        self.counts.held_bytes.fetch_sub(held.bytes.into(), Relaxed);
        (held.write > 0).then_some(Name { cluster, write: held.write })
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Vec<Held>> {
        self.clusters.read().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_found_where_it_was_written_last() {
        let counts = RemoteCounts::default();
        let kept = Kept::new("r", &counts);
        let [first, second, third] = [4, 4, 900].map(|cluster| kept.next_name(cluster));
        assert_eq!(kept.find(4), None);
        assert_eq!(kept.add(first, 100), None);
        assert_eq!(kept.add(second, 200), Some(first));
        assert_eq!(kept.add(third, 1000), None);
        assert_eq!(kept.find(4), Some(second));
        assert_ne!(kept.key(first), kept.key(second));
        assert_eq!(kept.end(), 901);
        assert_eq!(kept.find_all(0, 900), [second]);
        assert_eq!(kept.find_all(5, 1000), [third]);
        assert_eq!((kept.remove(7), kept.remove(5000)), (None, None));
        assert_eq!(counts.held_bytes.load(Relaxed), 1200);
        assert_eq!(kept.remove(900), Some(third));
        assert_eq!(counts.held_bytes.load(Relaxed), 200);
        assert_eq!(counts.peak_bytes.load(Relaxed), 1200);
    }
}
