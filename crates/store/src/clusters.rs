//! Which clusters of a store are free, shared by all processes that write to it.
//!
//! Source: the swap_map of Linux, by which cervera (1999) counts the pages alive in a block of
//! several; here the count is of records alive in a cluster, over all processes, so that a forked
//! child's and its parent's references both hold.
//!
//! One 64-bit word a cluster: its generation (32 bits), whether it is owned (1 bit), whether its
//! blocks were kept when it became free (1 bit), whether what it holds is in the store (1 bit), its live
//! references (29 bits). The life of a cluster:
//! ```text
//! free: owned 0, references 0
//!   claim:   owned 1, references 0, generation + 1     being written by one process
//!   publish: owned 1, references n                     n records alive
//!   written: owned 1, references n, written 1          others may have references who had none
//!   drop of the last reference: owned 1, references 0  being given back by that process
//!   release: owned 0, references 0                     free
//! ```
//! Giving blocks back and allocating them again costs more than the write between. So free clusters
//! keep theirs for whoever claims them next, 256 MiB at most; the holes of all others are punched. A hole
//! costs more than a millisecond where the file system tells the disk of it at once (ext4 with `discard` and
//! no journal), and a large one little more than a small one, so a run has it done by somebody for whom no
//! program waits ([`Clusters::punch_later`]), neighbours together.
//!
//! A second word a cluster says to which spare cluster it has moved, because its own could not be
//! written ([`Stores`](crate::Stores)): 0, or one more than the number of that. The word of a spare
//! cluster says in the same way which one before it failed as well, and is to be freed with it.
//!
//! The generation lets a record of the cluster's earlier life be noticed, and never comes twice.
//! Every operation is one atomic step a word, so no process ever waits for another, and a process
//! may be killed between any two. What it had claimed and not published, or was giving back, is
//! lost to the run, at most a cluster for each thread that was in the middle of it. Its references
//! are given back by others, as far as it has noted them ([`References`](crate::References)). No
//! other process's records are ever touched.
//!
//! Bad for: a store that is nearly full, where each claim looks at every word.

use crate::{Blocks, CLUSTER_BYTES, Place, Seal};
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

const OWNED: u64 = 1 << 31;
const KEPT: u64 = 1 << 30;
const WRITTEN: u64 = 1 << 29;
const REFERENCES: u64 = WRITTEN - 1;
const STATE: u64 = OWNED | REFERENCES;
const GENERATION_SHIFT: u32 = 32;
const GENERATION_MAX: u64 = u64::MAX >> GENERATION_SHIFT;

/// In the word that counts the clusters with kept blocks: all free ones keep theirs, for now.
const LATER: u64 = 1 << 63;
/// Clusters of one hole at most, which nobody can claim meanwhile.
const HOLE_MAX: usize = 64;

/// Words before the clusters'.
pub(crate) const HEAD_WORDS: usize = 3;

/// The clusters of one store.
///
/// The first word is a hint: no cluster below it is likely to be free. The second counts the free
/// clusters that have kept their blocks, the third how often one was wanted and none was free.
#[derive(Debug, Clone, Copy)]
pub struct Clusters<'a> {
    hint: &'a AtomicU64,
    kept: &'a AtomicU64,
    wanted: &'a AtomicU64,
    words: &'a [AtomicU64],
    moved: &'a [AtomicU64],
    seal: Seal<'a>,
}

impl<'a> Clusters<'a> {
    /// Free clusters that keep their blocks.
    pub const KEPT_MAX: usize = 1024;

    /// Words that [`Clusters::new`] wants for a store of `store_bytes`, rounded down to clusters.
    pub const fn words_for(store_bytes: u64) -> usize {
        let bytes =
            if store_bytes < Place::STORE_BYTES_MAX { store_bytes } else { Place::STORE_BYTES_MAX };
        HEAD_WORDS + 2 * (bytes / CLUSTER_BYTES as u64) as usize
    }

    /// A store described by `words`, at least three, which were zero when the run began and are
    /// shared by all processes of the run. Its records have checksums.
    pub fn new(words: &'a [AtomicU64]) -> Self {
        let ([hint, kept, wanted], words) =
            words.split_first_chunk().expect("the words before the clusters'");
        let (words, moved) = words.split_at(words.len() / 2);
        debug_assert!(words.len() as u64 <= Place::STORE_BYTES_MAX / CLUSTER_BYTES as u64);
        Self { hint, kept, wanted, words, moved, seal: Seal::Checksum }
    }

    /// The same with records of this seal, which is that of every process.
    #[must_use]
    pub fn with_seal(self, seal: Seal<'a>) -> Self {
        Self { seal, ..self }
    }

    /// What tells whether a record is what was written.
    pub fn seal(&self) -> Seal<'a> {
        self.seal
    }

    /// Has no free cluster keep its blocks, as those on another machine are paid for. Called before
    /// anything is claimed.
    pub fn keep_none(&self) {
        self.kept.store(Self::KEPT_MAX as u64, Ordering::Relaxed);
    }

    /// Has every free cluster keep its blocks until [`Clusters::punch_free`]. Called before anything is claimed.
    pub fn punch_later(&self) {
        self.kept.store(LATER, Ordering::Relaxed);
    }

    /// Gives the blocks of those free clusters back to `blocks` that are more than may keep them, the highest
    /// first, one hole after the other while `goes_on`; whether some are left.
    pub fn punch_free(&self, blocks: &impl Blocks, mut goes_on: impl FnMut() -> bool) -> bool {
        let mut end = self.words.len();
        loop {
            let excess = self.excess();
            if excess == 0 {
                return false;
            }
            if !goes_on() {
                return true;
            }
            let Some(last) = (0..end).rev().find(|&at| self.try_take_kept(at)) else {
                return false;
            };
            let lowest = last.saturating_sub(excess.min(HOLE_MAX) - 1);
            let before = (lowest..last).rev().take_while(|&at| self.try_take_kept(at)).count();
            end = last - before;
            let clusters = before + 1;
            blocks.punch((end * CLUSTER_BYTES) as u64, (clusters * CLUSTER_BYTES) as u64);
            (end..end + clusters).for_each(|at| self.release(at as u32));
        }
    }

    /// How many free clusters keep blocks that are not to.
    fn excess(&self) -> usize {
        let kept = self.kept.load(Ordering::Relaxed);
        if kept & LATER == 0 {
            0
        } else {
            ((kept & !LATER) as usize).saturating_sub(Self::KEPT_MAX)
        }
    }

    /// Takes a free cluster that has kept its blocks, to give them back.
    fn try_take_kept(&self, cluster: usize) -> bool {
        let word = &self.words[cluster];
        let free = word.load(Ordering::Relaxed);
        if free & STATE != 0 || free & KEPT == 0 {
            return false;
        }
        let taken = (free & !KEPT) | OWNED;
        let take = word.compare_exchange(free, taken, Ordering::Acquire, Ordering::Relaxed);
        if take.is_ok() {
            self.kept.fetch_sub(1, Ordering::Relaxed);
        }
        take.is_ok()
    }

    /// Takes a free cluster, a low one so that the file stays short. `None`: all are in use, or have
    /// been claimed as often as their generation can count.
    ///
    /// It is this process's alone until [`Clusters::publish`] or [`Clusters::release`].
    pub fn claim(&self) -> Option<u32> {
        let hint = self.hint.load(Ordering::Relaxed);
        let start = (hint as usize).min(self.words.len());
        // The hint may be too high after a race or a kill, so what lies below it is tried last.
        let cluster = (start..self.words.len()).chain(0..start).find(|&at| self.try_claim(at))?;
        // Fails when another process moved the hint meanwhile, whose word is as good.
        let next = cluster as u64 + 1;
        let _ = self.hint.compare_exchange(hint, next, Ordering::Relaxed, Ordering::Relaxed);
        Some(cluster as u32)
    }

    /// Tells the processes that have records here without need that a cluster was wanted and none
    /// was free.
    pub fn want(&self) {
        self.wanted.fetch_add(1, Ordering::Relaxed);
    }

    /// A number that changes with each [`Clusters::want`].
    pub fn wanted(&self) -> u64 {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Takes a free cluster of this range, as [`Clusters::claim`] does.
    pub(crate) fn claim_in(&self, clusters: Range<u32>) -> Option<u32> {
        clusters.into_iter().find(|&at| self.try_claim(at as usize))
    }

    /// Where a cluster lies instead of in its own place.
    pub(crate) fn moved(&self, cluster: u32) -> Option<u32> {
        let to = self.moved.get(cluster as usize)?.load(Ordering::Acquire);
        to.checked_sub(1).map(|to| to as u32)
    }

    /// Has an owned cluster, which was found to have moved to `before`, lie in `spare`, which has a
    /// reference for it. False: another process has moved it meanwhile.
    ///
    /// What it lay in before is free when the cluster is and not sooner: somebody may read there.
    pub(crate) fn move_to(&self, cluster: u32, before: Option<u32>, spare: u32) -> bool {
        let word = |moved: Option<u32>| moved.map_or(0, |moved| u64::from(moved) + 1);
        self.moved[spare as usize].store(word(before), Ordering::Relaxed);
        let (expected, new) = (word(before), word(Some(spare)));
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        let moved = self.moved[cluster as usize].compare_exchange(expected, new, success, failure);
        if moved.is_err() {
            self.moved[spare as usize].store(0, Ordering::Relaxed);
        }
        moved.is_ok()
    }

    fn try_claim(&self, cluster: usize) -> bool {
        let word = &self.words[cluster];
        let free = word.load(Ordering::Relaxed);
        if free & STATE != 0 || free >> GENERATION_SHIFT == GENERATION_MAX {
            return false;
        }
        let claimed = ((free & !KEPT) + (1 << GENERATION_SHIFT)) | OWNED;
        let claim = word.compare_exchange(free, claimed, Ordering::Acquire, Ordering::Relaxed);
        if claim.is_ok() && free & KEPT != 0 {
            self.kept.fetch_sub(1, Ordering::Relaxed);
        }
        claim.is_ok()
    }

    /// Says that `records` records (at least one) are alive in a claimed cluster.
    pub fn publish(&self, cluster: u32, records: u32) {
        debug_assert!(records > 0);
        let before = self.word(cluster).fetch_add(u64::from(records), Ordering::Release);
        debug_assert_eq!(before & STATE, OWNED, "published without a claim");
    }

    /// Gives a claimed cluster back without publishing it.
    pub fn release(&self, cluster: u32) {
        let before = self.word(cluster).fetch_and(!(OWNED | WRITTEN), Ordering::Release);
        debug_assert_eq!(before & STATE, OWNED, "released without a claim");
        self.hint.fetch_min(u64::from(cluster), Ordering::Relaxed);
    }

    /// Counts one more reference to a record of a cluster in which one is alive, as a fork makes
    /// for every spilled page.
    pub fn add_reference(&self, cluster: u32) {
        let before = self.word(cluster).fetch_add(1, Ordering::Relaxed);
        debug_assert!(before & OWNED != 0 && before & REFERENCES != 0, "no reference to add to");
        debug_assert!(before & REFERENCES != REFERENCES, "too many references");
    }

    /// Says that all that a cluster holds in this life of it is in the store. The caller has a reference.
    pub fn note_written(&self, cluster: u32) {
        self.word(cluster).fetch_or(WRITTEN, Ordering::Release);
    }

    /// Counts one more reference to a record of a cluster in its life of this generation, for somebody who has none.
    /// False where that is over, or does not exist, or the cluster is not in the store yet.
    #[must_use]
    pub fn hold(&self, cluster: u32, generation: u32) -> bool {
        let Some(word) = self.words.get(cluster as usize) else { return false };
        let is_alive = |word: u64| {
            word >> GENERATION_SHIFT == u64::from(generation)
                && word & (OWNED | WRITTEN) == OWNED | WRITTEN
                && !matches!(word & REFERENCES, 0 | REFERENCES)
        };
        let more = |word: u64| is_alive(word).then_some(word + 1);
        word.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).is_ok()
    }

    /// Counts one reference less. With the last one the cluster's space is given back to `blocks`
    /// and the cluster is free: `true`.
    pub fn drop_reference(&self, cluster: u32, blocks: &impl Blocks) -> bool {
        self.drop_references(cluster, 1, blocks)
    }

    /// The same for several references.
    pub fn drop_references(&self, cluster: u32, references: u32, blocks: &impl Blocks) -> bool {
        let references = u64::from(references);
        let before = self.word(cluster).fetch_sub(references, Ordering::AcqRel);
        debug_assert!(
            before & OWNED != 0 && before & REFERENCES >= references,
            "no reference to drop"
        );
        if before & REFERENCES != references {
            return false;
        }
        // Still owned: nobody claims it before the hole is punched, or it is marked.
        let spare = self.moved[cluster as usize].swap(0, Ordering::AcqRel).checked_sub(1);
        if let Some(spare) = spare {
            // And with that the one before it, if there was one: as many as stores failed.
            self.drop_reference(spare as u32, blocks);
            blocks.punch(u64::from(cluster) * CLUSTER_BYTES as u64, CLUSTER_BYTES as u64);
        } else if is_kept(self.kept.fetch_add(1, Ordering::Relaxed)) {
            self.word(cluster).fetch_or(KEPT, Ordering::Relaxed);
        } else {
            self.kept.fetch_sub(1, Ordering::Relaxed);
            blocks.punch(u64::from(cluster) * CLUSTER_BYTES as u64, CLUSTER_BYTES as u64);
        }
        self.release(cluster);
        true
    }

    /// References alive in a cluster, over all processes.
    pub fn references(&self, cluster: u32) -> u32 {
        (self.word(cluster).load(Ordering::Relaxed) & REFERENCES) as u32
    }

    /// Clusters that are not free. Looks at every word: for statistics.
    pub fn used_clusters(&self) -> usize {
        self.words.iter().filter(|word| word.load(Ordering::Relaxed) & STATE != 0).count()
    }

    /// All clusters, free or not.
    pub fn total_clusters(&self) -> usize {
        self.words.len()
    }

    /// How many times the cluster was claimed. Constant as long as the caller has a reference to
    /// it or owns it; 0 for a cluster that does not exist.
    pub fn generation(&self, cluster: u32) -> u32 {
        let word = self.words.get(cluster as usize);
        word.map_or(0, |word| (word.load(Ordering::Relaxed) >> GENERATION_SHIFT) as u32)
    }

    fn word(&self, cluster: u32) -> &AtomicU64 {
        &self.words[cluster as usize]
    }
}

/// Whether one more free cluster keeps its blocks where this was counted.
fn is_kept(kept: u64) -> bool {
    kept & LATER != 0 || kept < Clusters::KEPT_MAX as u64
}
