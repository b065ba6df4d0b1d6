//! References to the store that relatives by fork have in common.
//!
//! Each process counts its own in the clusters' words, and may note them where others can give them back
//! for one that was killed.

use zpager_pool::SpaceSource;
use zpager_store::{Blocks, References};

use super::{Cache, Store};
use crate::coder::Coder;
use crate::entry::State;
use crate::index::PAGE_NUMBER_END;

impl<M: SpaceSource + Copy, B: Blocks, C: Coder> Cache<M, B, C> {
    /// Counts every reference of this cache to the store once more, for a child that gets a copy of
    /// it. [`Cache::flush`] was called.
    pub fn share_spilled(&mut self) {
        self.writer.share();
        self.each_reference(|store, cluster| store.clusters.add_reference(cluster));
    }

    /// Takes the references of [`Self::share_spilled`] away where no child came to be.
    pub fn unshare_spilled(&self) {
        self.each_reference(|store, cluster| {
            store.clusters.drop_reference(cluster, &store.blocks);
        });
    }

    /// Has the references to spilled pages noted where others can give them back. A child has to
    /// do so before it uses its copy.
    pub fn note_references(&mut self, references: References<'static>) {
        self.held.note_in(references);
    }

    /// Where they are noted.
    pub fn references(&self) -> References<'static> {
        self.held.noted()
    }

    /// Gives all references to the store back: the cache is not used any more.
    pub fn give_back_spilled(&mut self) {
        let Some(store) = &self.store else { return };
        // Nothing else may write to a cluster while a write to it goes on; what failed is of no
        // use any more.
        let _ = self.writer.settle(store);
        let noted = self.held.noted();
        if noted.is_there() {
            noted.give_back(store.clusters, &store.blocks);
            self.writer.unwritten().for_each(|cluster| {
                store.clusters.drop_reference(cluster, &store.blocks);
            });
        } else {
            self.unshare_spilled();
        }
    }

    fn each_reference(&self, act: impl Fn(&Store<B>, u32)) {
        let Some(store) = &self.store else { return };
        let mut at = 0;
        while let Some(page) = self.index.next_known(at, PAGE_NUMBER_END) {
            if let State::Spilled { place, .. } | State::Clean { place, .. } =
                self.index.get(page).state()
            {
                act(store, place.cluster());
            }
            at = page + 1;
        }
        at = 0;
        while self.copied > 0
            && let Some(page) = self.index.next_note(at)
        {
            self.pooled_copy(page).iter().for_each(|place| act(store, place.cluster()));
            at = page + 1;
        }
        self.writer.unwritten().for_each(|cluster| act(store, cluster));
    }
}
