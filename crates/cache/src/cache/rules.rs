//! What a cache does by its design.

use zpager_policy::{CleanPages, Design, DesignId, Leaving, PoolKind, ReadPath, StoreLayout};
use zpager_pool::{AnyPool, Buckets, Buffers, Cells, Handle, SizeClasses, Space, SpaceSource};
use zpager_store::{BLOCK_BYTES, CLUSTER_BYTES, WINDOWS_MAX};

use super::{PAGE_BYTES, WRITE_BYTES_MIN};
use crate::order::Pages;

/// Address space of size classes for each byte of RAM that they may hold.
const SIZE_CLASSES_FACTOR: usize = 4;
/// Clusters that are read around in take at most this part of the memory, and none of a small one,
/// where a cluster is worth more as pages.
const AROUND_PART: usize = 64;
const AROUND_BYTES_MIN: usize = 32 << 20;
/// Shortest address space of a pool: a batch of pages as they are, and some more.
const POOL_SPACE_BYTES_MIN: usize = 1 << 20;
/// Longest address space of a pool, in which handles still tell every place apart.
const POOL_SPACE_BYTES_MAX: usize = (Handle::GRAIN_BYTES << Handle::BITS) - PAGE_BYTES;

/// The choices of a design that the cache carries out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// Which pages leave in the order in which they came; the others leave before them.
    pub(super) pages_in_order: Pages,
    pub(super) layout: StoreLayout,
    /// Pages that do not shrink do not wait in the pool for their turn, once there are many.
    pub(super) leaves_raw: bool,
    /// Shortest write to the store.
    pub(super) write_bytes_min: usize,
    /// What is alive in sparse clusters is gathered before the store is full.
    pub(super) gathers: bool,
    /// The cluster around a page is read with it.
    pub(super) reads_around: bool,
    /// Pages that come back from the store may keep their copies there.
    pub(super) keeps_copies: bool,
    /// Most pages that may be in the store, in percent of its blocks.
    pub(super) virtual_percent: Option<usize>,
}

impl Rules {
    pub(super) fn new(design: &Design) -> Self {
        let is_default = design.id == DesignId::Default;
        Rules {
            pages_in_order: match design.leaving {
                Leaving::RawThenOldest => Pages::Compressed,
                _ => Pages::All,
            },
            layout: design.layout,
            leaves_raw: design.leaving == Leaving::RawThenOldest,
            // A pool of fixed size may be shorter than a write that pays.
            write_bytes_min: if is_default { WRITE_BYTES_MIN } else { 1 },
            // A store that has a slot for each page uses one again as soon as it is free. Here it lies
            // in a cluster with others, which would keep it until the store is full.
            gathers: is_default || design.layout == StoreLayout::Plain,
            keeps_copies: design.clean_pages == CleanPages::Kept,
            reads_around: design.read_path == ReadPath::Ahead,
            virtual_percent: design.virtual_percent,
        }
    }

    /// Most RAM for clusters that are read around in, where programs and pool have `memory_bytes`.
    pub(super) fn around_bytes(&self, memory_bytes: usize) -> usize {
        let pays = self.reads_around && memory_bytes >= AROUND_BYTES_MIN;
        let windows = (memory_bytes / AROUND_PART / CLUSTER_BYTES).min(WINDOWS_MAX);
        if pays { windows * CLUSTER_BYTES } else { 0 }
    }

    /// Most records that a store of so many clusters may have.
    pub(super) fn records_max(&self, clusters: usize) -> usize {
        let blocks = clusters * (CLUSTER_BYTES / BLOCK_BYTES);
        self.virtual_percent.map_or(usize::MAX, |percent| blocks * percent / 100)
    }
}

/// An empty pool that can grow to about `bytes_max`. `None` when `source` has no room.
pub(super) fn reserve_pool<S: Space>(
    source: &impl SpaceSource<Space = S>,
    kind: PoolKind,
    bytes_max: usize,
) -> Option<AnyPool<S>> {
    let bytes = bytes_max.clamp(POOL_SPACE_BYTES_MIN, POOL_SPACE_BYTES_MAX);
    Some(match kind {
        PoolKind::SizeClasses => {
            let bytes = bytes_max.saturating_mul(SIZE_CLASSES_FACTOR).min(POOL_SPACE_BYTES_MAX);
            AnyPool::SizeClasses(SizeClasses::reserve(source, bytes)?)
        }
        PoolKind::Buffers => AnyPool::Buffers(Buffers::reserve(source, bytes)?),
        PoolKind::Buckets(bucket_bytes) => {
            AnyPool::Buckets(Buckets::reserve(source, bytes, bucket_bytes)?)
        }
        PoolKind::Cells(pages) => AnyPool::Cells(Cells::reserve(source, bytes, pages)?),
    })
}
