//! What one process holds of each cluster of the store: how many records, and
//! how many bytes they take.
//!
//! The store's own count is of all processes; where the two are equal, no
//! relative has a record in the cluster, and whoever holds them may move them. The
//! records are noted for others to see, too, after they were counted in the store
//! and before they are not any more ([`References`]).
//!
//! Where each record has blocks of its own it takes all of them. What lies idle at the end of a block that
//! several share is not counted, as it is not noted who they are.
//!
//! One 32-bit word a cluster: its records (15 bits), the 8-byte grains that they
//! take (16 bits), and a mark for whoever goes through them.

use zpager_policy::StoreLayout;
use zpager_pool::Space;
use zpager_store::{BLOCK_BYTES, CLUSTER_BYTES, Place, References, Seal};

const GRAIN_BYTES: usize = 8;
const GRAINS: u32 = (1 << 16) - 1;
const RECORD: u32 = 1 << 16;
const RECORDS: u32 = (1 << 31) - RECORD;
const MARK: u32 = 1 << 31;
const PAGE_BYTES: usize = 4096;

const _: () = assert!(CLUSTER_BYTES / GRAIN_BYTES <= GRAINS as usize);

/// The words of all clusters, and their sums.
pub(crate) struct Held<S> {
    space: S,
    /// Clusters, of which one was ever held, lie below.
    end: u32,
    clusters: usize,
    records: usize,
    /// Of these, at most so many were a parent's before.
    inherited: usize,
    bytes: u64,
    noted: References<'static>,
    layout: StoreLayout,
    seal: Seal<'static>,
}

impl Held<()> {
    /// Room that a store of so many clusters takes.
    pub(crate) const fn bytes_for(clusters: usize) -> usize {
        clusters * size_of::<u32>()
    }
}

impl<S: Space> Held<S> {
    /// Nothing held, in `space`, which has room for all clusters, of records with this seal that lie so.
    pub(crate) fn new(space: S, layout: StoreLayout, seal: Seal<'static>) -> Self {
        Held {
            space,
            end: 0,
            clusters: 0,
            records: 0,
            inherited: 0,
            bytes: 0,
            noted: References::NONE,
            layout,
            seal,
        }
    }

    fn word(&mut self, cluster: u32) -> &mut u32 {
        assert!((cluster as usize) < self.space.bytes() / size_of::<u32>());
        // SAFETY: within the space, by the assertion, which is zero where it was not written.
        unsafe { &mut *self.space.base().cast::<u32>().add(cluster as usize) }
    }

    /// Has what is held noted there from now on, and all that is held already.
    pub(crate) fn note_in(&mut self, noted: References<'static>) {
        self.noted = noted;
        for cluster in 0..self.end {
            let records = self.records(cluster);
            if records > 0 {
                noted.note(cluster, records);
            }
        }
    }

    /// Where it is noted.
    pub(crate) fn noted(&self) -> References<'static> {
        self.noted
    }

    /// RAM of the words in use, and of as many where they are noted.
    pub(crate) fn metadata_bytes(&self) -> usize {
        let words_bytes = (self.end as usize * size_of::<u32>()).next_multiple_of(PAGE_BYTES);
        if self.noted.is_there() { 2 * words_bytes } else { words_bytes }
    }

    /// One past the highest cluster that was ever held.
    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    /// Clusters in which something is held.
    pub(crate) fn clusters(&self) -> usize {
        self.clusters
    }

    /// Whether less than half of the clusters held is taken by what is held of them, and by
    /// `unfilled_bytes` that will be.
    pub(crate) fn is_sparse(&self, unfilled_bytes: usize) -> bool {
        (self.bytes + unfilled_bytes as u64) * 2 < (self.clusters * CLUSTER_BYTES) as u64
    }

    /// Bytes that a record takes.
    pub(crate) fn bytes_of(&self, place: Place) -> usize {
        let bytes = self.seal.record_bytes(place.len());
        match self.layout {
            StoreLayout::Padded => bytes.next_multiple_of(BLOCK_BYTES),
            StoreLayout::Packed | StoreLayout::Plain | StoreLayout::Blocks => bytes,
        }
    }

    /// The most that one takes, with what may lie idle behind it.
    pub(crate) fn bytes_max(&self) -> usize {
        let bytes = self.seal.record_bytes(PAGE_BYTES);
        match self.layout {
            StoreLayout::Padded | StoreLayout::Blocks => bytes.next_multiple_of(BLOCK_BYTES),
            StoreLayout::Packed | StoreLayout::Plain => bytes,
        }
    }

    /// One record more.
    pub(crate) fn add(&mut self, place: Place) {
        let record_bytes = self.bytes_of(place);
        let grains = (record_bytes / GRAIN_BYTES) as u32;
        let word = self.word(place.cluster());
        let is_first = *word & RECORDS == 0;
        *word += RECORD + grains;
        self.clusters += usize::from(is_first);
        self.records += 1;
        self.bytes += record_bytes as u64;
        self.end = self.end.max(place.cluster() + 1);
        self.note(place.cluster());
    }

    /// One record less.
    pub(crate) fn remove(&mut self, place: Place) {
        let record_bytes = self.bytes_of(place);
        let grains = (record_bytes / GRAIN_BYTES) as u32;
        let word = self.word(place.cluster());
        debug_assert!(*word & RECORDS != 0 && *word & GRAINS >= grains, "nothing held there");
        *word -= RECORD + grains;
        let was_last = *word & RECORDS == 0;
        self.clusters -= usize::from(was_last);
        self.records -= 1;
        self.inherited = self.inherited.min(self.records);
        self.bytes -= record_bytes as u64;
        self.note(place.cluster());
    }

    fn note(&mut self, cluster: u32) {
        let records = self.records(cluster);
        self.noted.note(cluster, records);
    }

    /// What all of them take.
    pub(crate) fn all_bytes(&self) -> u64 {
        self.bytes
    }

    /// Records held of all clusters.
    pub(crate) fn all_records(&self) -> usize {
        self.records
    }

    /// In a copy: the parent has all that is held too.
    pub(crate) fn become_copy(&mut self) {
        self.inherited = self.records;
    }

    /// Records that no parent is known to have had, or fewer.
    pub(crate) fn own_records(&self) -> usize {
        self.records - self.inherited
    }

    /// Records held of a cluster.
    pub(crate) fn records(&mut self, cluster: u32) -> u32 {
        (*self.word(cluster) & RECORDS) / RECORD
    }

    /// Bytes that they take.
    pub(crate) fn record_bytes(&mut self, cluster: u32) -> usize {
        (*self.word(cluster) & GRAINS) as usize * GRAIN_BYTES
    }

    /// Marks a cluster, or takes its mark away.
    pub(crate) fn set_mark(&mut self, cluster: u32, mark: bool) {
        let word = self.word(cluster);
        *word = if mark { *word | MARK } else { *word & !MARK };
    }

    /// Whether a cluster is marked.
    pub(crate) fn is_marked(&mut self, cluster: u32) -> bool {
        *self.word(cluster) & MARK != 0
    }
}
