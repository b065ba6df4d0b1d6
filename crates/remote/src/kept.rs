//! Which clusters the server holds, and under which keys.
//!
//! Invariants: each write goes to a key of its own, whose name has a number that is never used
//! again. So a write that was given up and reaches a server late changes nothing that is held. A
//! cluster is held from the moment its write was answered, if somebody waits for that still, until it
//! is discarded, and while it is written once more, as by a parent and its child, under its name of
//! before. What is discarded is looked for, and what was written added, by one thread at a time.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use zpager_wire::RemoteCounts;

use crate::slots::{SLOT_DRAWS_MAX, slot_of};

/// The name of a value: the cluster, the number of the write, and the hash slot of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) cluster: u32,
    pub(crate) write: u64,
    pub(crate) slot: u16,
}

/// A cluster on a server; `write` is 0 where there is none.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    write: u64,
    bytes: u32,
    slot: u16,
}

impl Held {
    fn name(self, cluster: u32) -> Option<Name> {
        (self.write > 0).then_some(Name { cluster, write: self.write, slot: self.slot })
    }
}

/// All clusters of a run.
#[derive(Debug)]
pub(crate) struct Kept<'a> {
    run: &'a str,
    counts: &'a RemoteCounts,
    writes: AtomicU64,
    /// As long as the highest cluster that was ever held asks for.
    clusters: RwLock<Vec<Held>>,
    /// Taken by who looks for what was discarded, and by who adds.
    lives: Mutex<()>,
}

impl<'a> Kept<'a> {
    /// Nothing is held for the run of this name.
    pub(crate) fn new(run: &'a str, counts: &'a RemoteCounts) -> Self {
        let (clusters, lives) = Default::default();
        Kept { run, counts, writes: AtomicU64::new(0), clusters, lives }
    }

    /// The key of a value.
    pub(crate) fn key(&self, name: Name) -> String {
        self.key_of(name.cluster, name.write)
    }

    /// A key of the run under which there is nothing.
    pub(crate) fn no_key(&self) -> String {
        self.key_of(0, 0)
    }

    /// Without braces: its slot, and so the master of a cluster that has it, is by chance.
    fn key_of(&self, cluster: u32, write: u64) -> String {
        format!("zpager:{}:{cluster}:{write}", self.run)
    }

    /// A name for a write of a cluster, whose slot is `wanted`.
    pub(crate) fn next_name(&self, cluster: u32, wanted: impl Fn(u16) -> bool) -> Option<Name> {
        let draw = || {
            let write = self.writes.fetch_add(1, Relaxed) + 1;
            Name { cluster, write, slot: slot_of(&self.key_of(cluster, write)) }
        };
        std::iter::repeat_with(draw).take(SLOT_DRAWS_MAX).find(|name| wanted(name.slot))
    }

    /// Until this is dropped no other thread finds what is discarded, or adds.
    pub(crate) fn lock_lives(&self) -> MutexGuard<'_, ()> {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One past the highest cluster that was ever held.
    pub(crate) fn end(&self) -> u32 {
        self.read().len() as u32
    }

    /// Where a cluster is, if it is held.
    pub(crate) fn find(&self, cluster: u32) -> Option<Name> {
        self.read().get(cluster as usize).and_then(|held| held.name(cluster))
    }

    /// Those of so many clusters from `first` on that are held.
    pub(crate) fn find_all(&self, first: u32, clusters: usize) -> Vec<Name> {
        let all = self.read();
        let numbered = (first..).zip(all.iter().skip(first as usize)).take(clusters);
        numbered.filter_map(|(cluster, held)| held.name(cluster)).collect()
    }

    /// A server holds `bytes` under `name`; where one held the cluster before.
    pub(crate) fn add(&self, name: Name, bytes: usize) -> Option<Name> {
        let mut all = self.clusters.write().unwrap_or_else(PoisonError::into_inner);
        let at = name.cluster as usize;
        if all.len() <= at {
            all.resize(at + 1, Held::default());
        }
        let held = Held { write: name.write, bytes: bytes as u32, slot: name.slot };
        let before = std::mem::replace(&mut all[at], held);
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
        held.name(cluster)
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<Held>> {
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
        let [first, second, third] =
            [4, 4, 900].map(|cluster| kept.next_name(cluster, |_| true).expect("a name"));
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

    #[test]
    fn names_are_drawn_for_the_slots_that_are_wanted() {
        let counts = RemoteCounts::default();
        let kept = Kept::new("r", &counts);
        for slot in [0, 777, 16383] {
            let name = kept.next_name(5, |drawn| drawn == slot).expect("a name");
            assert_eq!((name.slot, slot_of(&kept.key(name))), (slot, slot));
            assert_ne!(kept.key(name), kept.no_key());
        }
        assert_eq!(kept.next_name(5, |_| false), None);
    }
}
