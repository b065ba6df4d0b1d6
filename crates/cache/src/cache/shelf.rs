//! Pages that are in the store and in RAM as well: clusters that were written before their RAM was
//! needed.
//!
//! Source: cervera (1999), 3: cleaning, which empties buffers before they are wanted; here what was
//! written stays readable until then, as the clean pages of a page cache do. To make room the oldest
//! cluster is forgotten, which takes no write.
//!
//! A page there is spilled to all who ask its entry; a read of its cluster finds the cluster here.
//! So nothing has to be kept for a page, and what is read is checked as what comes from the store.
//!
//! Invariants: a cluster is here only while this process holds records in it, so that it is not
//! claimed anew meanwhile, and its bytes stay what they are. The oldest has the lowest position; the
//! position modulo the number of slots is its slot.
//!
//! Bad for: a cluster of which most pages have come back, which takes the RAM of all of it until
//! its turn comes.

use zpager_pool::{Space, SpaceSource};
use zpager_store::{BLOCK_BYTES, CLUSTER_BYTES};

/// Where nothing is.
const NONE: u32 = 0;

/// What lies in a slot.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Slot {
    /// One more than the cluster's number, or [`NONE`].
    name: u32,
    bytes: u32,
}

/// The clusters.
pub(super) struct Shelf<S> {
    /// A slot of a cluster's length for each of `slots`.
    space: S,
    slots: S,
    /// For each cluster of the store one more than its slot, or [`NONE`].
    places: S,
    /// Positions of the oldest, and of the next.
    head: usize,
    tail: usize,
    /// Clusters that were ever here lie below.
    end: u32,
    held_bytes: usize,
}

impl<S: Space> Shelf<S> {
    /// An empty shelf of at most `bytes_max`, for a store of so many clusters. `None` when `source`
    /// has no room.
    pub(super) fn reserve(
        source: &impl SpaceSource<Space = S>,
        bytes_max: usize,
        clusters: usize,
    ) -> Option<Self> {
        let slots = (bytes_max / CLUSTER_BYTES).clamp(1, clusters.max(1));
        Some(Shelf {
            space: source.reserve(slots * CLUSTER_BYTES)?,
            slots: source.reserve((slots * size_of::<Slot>()).next_multiple_of(BLOCK_BYTES))?,
            places: source.reserve((clusters.max(1) * 4).next_multiple_of(BLOCK_BYTES))?,
            head: 0,
            tail: 0,
            end: 0,
            held_bytes: 0,
        })
    }

    fn capacity(&self) -> usize {
        self.space.bytes() / CLUSTER_BYTES
    }

    fn slot_mut(&mut self, at: usize) -> &mut Slot {
        assert!(at < self.slots.bytes() / size_of::<Slot>());
        // SAFETY: within the space, by the assertion; any bytes make a slot, and zeros an empty one.
        unsafe { &mut *self.slots.base().cast::<Slot>().add(at) }
    }

    fn place_mut(&mut self, cluster: u32) -> &mut u32 {
        assert!((cluster as usize) < self.places.bytes() / size_of::<u32>());
        // SAFETY: within the space, by the assertion.
        unsafe { &mut *self.places.base().cast::<u32>().add(cluster as usize) }
    }

    /// Puts a cluster here that was written, or is on its way, as `data`; the oldest goes where there
    /// is no slot.
    pub(super) fn put(&mut self, cluster: u32, data: &[u8]) {
        self.forget(cluster);
        if self.tail - self.head == self.capacity() {
            self.forget_oldest();
        }
        let at = self.tail % self.capacity();
        // SAFETY: the slot lies within the space, is empty, and longer than what is written.
        unsafe {
            let to = self.space.base().add(at * CLUSTER_BYTES);
            to.copy_from_nonoverlapping(data.as_ptr(), data.len().min(CLUSTER_BYTES));
        }
        *self.slot_mut(at) = Slot { name: cluster + 1, bytes: data.len() as u32 };
        *self.place_mut(cluster) = at as u32 + 1;
        self.end = self.end.max(cluster + 1);
        self.tail += 1;
        self.held_bytes += data.len().next_multiple_of(BLOCK_BYTES);
    }

    /// What a cluster holds, if it is here.
    pub(super) fn find(&self, cluster: u32) -> Option<&[u8]> {
        if cluster >= self.end {
            return None;
        }
        // SAFETY: within the spaces, as `end` is, and a place that is not `NONE` names a slot.
        unsafe {
            let place = *self.places.base().cast::<u32>().add(cluster as usize);
            let at = place.checked_sub(1)? as usize;
            let slot = *self.slots.base().cast::<Slot>().add(at);
            debug_assert_eq!(slot.name, cluster + 1);
            let base = self.space.base().add(at * CLUSTER_BYTES);
            Some(core::slice::from_raw_parts(base, slot.bytes as usize))
        }
    }

    /// Has a cluster not be here.
    pub(super) fn forget(&mut self, cluster: u32) {
        if cluster >= self.end {
            return;
        }
        let place = core::mem::replace(self.place_mut(cluster), NONE);
        if place == NONE {
            return;
        }
        let at = place as usize - 1;
        let slot = core::mem::replace(self.slot_mut(at), Slot { name: NONE, bytes: 0 });
        let held_bytes = (slot.bytes as usize).next_multiple_of(BLOCK_BYTES);
        self.space.release(at * CLUSTER_BYTES, held_bytes);
        self.held_bytes -= held_bytes;
        while self.head < self.tail && self.slot_mut(self.head % self.capacity()).name == NONE {
            self.head += 1;
        }
    }

    /// Has the oldest cluster not be here; how many bytes that gives.
    pub(super) fn forget_oldest(&mut self) -> usize {
        let before_bytes = self.held_bytes;
        if self.head < self.tail {
            let oldest = self.slot_mut(self.head % self.capacity()).name;
            self.forget(oldest - 1);
        }
        before_bytes - self.held_bytes
    }

    /// Has nothing be here.
    pub(super) fn clear(&mut self) {
        while self.forget_oldest() > 0 {}
    }

    /// RAM of the clusters.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// RAM of what is known of them.
    pub(super) fn metadata_bytes(&self) -> usize {
        let slots_bytes = self.tail.min(self.capacity()) * size_of::<Slot>();
        slots_bytes.next_multiple_of(BLOCK_BYTES)
            + (self.end as usize * size_of::<u32>()).next_multiple_of(BLOCK_BYTES)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::collections::VecDeque;
    use std::vec;
    use zpager_pool::Heap;
    use zpager_seed::random;

    #[test]
    fn what_is_put_there_is_found_until_it_goes() {
        const CLUSTERS: u32 = 40;
        const SLOTS: usize = 5;
        let mut shelf =
            Shelf::reserve(&Heap, SLOTS * CLUSTER_BYTES, CLUSTERS as usize).expect("heap");
        let mut model: VecDeque<(u32, std::vec::Vec<u8>)> = VecDeque::new();
        let mut random = random(1999);
        for _ in 0..3000 {
            let cluster = random.u32(..CLUSTERS);
            match random.u32(..4) {
                0 => {
                    shelf.forget(cluster);
                    model.retain(|(there, _)| *there != cluster);
                }
                1 => {
                    let gone = model.pop_front().map_or(0, |(_, data)| data.len());
                    assert_eq!(shelf.forget_oldest(), gone);
                }
                _ => {
                    let blocks = random.usize(1..4);
                    let data = vec![random.u8(..); blocks * BLOCK_BYTES];
                    shelf.put(cluster, &data);
                    model.retain(|(there, _)| *there != cluster);
                    model.push_back((cluster, data));
                }
            }
            // With holes between them fewer than there are slots may be there: the oldest are gone.
            while model.len() > SLOTS
                || model.front().is_some_and(|(there, _)| shelf.find(*there).is_none())
            {
                model.pop_front();
            }
            for cluster in 0..CLUSTERS {
                let there = model.iter().find(|(number, _)| *number == cluster);
                assert_eq!(shelf.find(cluster), there.map(|(_, data)| &data[..]));
            }
            let held_bytes = model.iter().map(|(_, data)| data.len()).sum::<usize>();
            assert_eq!(shelf.held_bytes(), held_bytes);
        }
        shelf.clear();
        assert_eq!(shelf.held_bytes(), 0);
        assert!((0..CLUSTERS).all(|cluster| shelf.find(cluster).is_none()));
    }
}
