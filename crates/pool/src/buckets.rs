//! A pool of buckets: objects are cut into pieces of one length, which lie wherever there is room.
//!
//! Source: hp (Roy, Kumar and Prvulovic, HPL-2001-111, 2001), section 3: memory carved into
//! buckets of 256 bytes, the free ones chained, and a compressed page known by the start of its
//! chain and its length. Unlike there, the chains lie in a table outside the buckets, so that a
//! page kept as it is takes 16 of them and no more; they may have another length; the free ones are
//! known by page, so that a page of free ones can be given back; and memory is held as it is needed, up to the limit.
//!
//! Invariants:
//! - `held_bytes` = `bucket_bytes` * (buckets of objects + `free_buckets`) = the pages that are
//!   not released;
//! - a page with free and taken buckets stands in `roomy`, one with free ones only in none, as it
//!   is released;
//! - an object's buckets are those of its chain, as many as its length takes, the last of which
//!   links to nothing that is read.
//!
//! Cost: every operation takes at most as many steps as an object has buckets, 16 of 256 bytes.
//! Nothing is ever moved: every free bucket serves every object.
//!
//! Bad for: readers, as an object has to be gathered from its pieces; objects little longer than
//! a multiple of a bucket, which lose most of their last bucket; pools that shrink, as a page is
//! given back only when all of its buckets are free and nothing can be moved.

#[cfg(test)]
mod tests;

use crate::lists::{Frames, Links, List};
use crate::objects::{Objects, PAGE_BYTES, assert_length};
use crate::words::{Words, ram_bytes};
use crate::{Fragmentation, Handle, OBJECT_BYTES_MAX, Pool, Space, SpaceSource};

/// Lengths that buckets may have: a page has 2 to 64 of them.
const BUCKET_BYTES: core::ops::RangeInclusive<usize> = PAGE_BYTES / 64..=PAGE_BYTES / 2;

/// A [`Pool`] in which an object is a chain of buckets, as in hp's driver, where they have 256 bytes.
#[derive(Debug)]
pub struct Buckets<S> {
    objects: Objects<S>,
    /// A power of two.
    bucket_bytes: usize,
    pages: Frames,
    links: Links<S>,
    /// Pages with free and taken buckets.
    roomy: List,
    /// One word a page: one bit a bucket, set while it is free.
    free: Words<S>,
    /// One half of a word a bucket: the bucket that follows in its object.
    chain: Words<S>,
    /// Free buckets in the pages that are held.
    free_buckets: usize,
    payload_bytes: usize,
}

impl<S: Space> Buckets<S> {
    /// An empty pool whose objects lie in `space_bytes` of address space, which costs nothing
    /// until used. It is the most that the pool can come to hold.
    /// `None`: the source gave none, more than a [`Handle`] can tell apart was asked for, or
    /// buckets whose length is not a power of two from 64 to 2048.
    pub fn reserve<Source: SpaceSource<Space = S>>(
        source: &Source,
        space_bytes: usize,
        bucket_bytes: usize,
    ) -> Option<Self> {
        if !BUCKET_BYTES.contains(&bucket_bytes) || !bucket_bytes.is_power_of_two() {
            return None;
        }
        let pages = space_bytes.div_ceil(PAGE_BYTES);
        Some(Self {
            objects: Objects::reserve(source, pages)?,
            bucket_bytes,
            pages: Frames::new(pages),
            links: Links::reserve(source, pages)?,
            roomy: List::default(),
            free: Words::reserve(source, pages)?,
            chain: Words::reserve(source, pages * (PAGE_BYTES / bucket_bytes) / 2)?,
            free_buckets: 0,
            payload_bytes: 0,
        })
    }

    /// Where the objects lie.
    pub fn objects(&self) -> &S {
        self.objects.space()
    }

    /// Buckets of a page.
    fn page_buckets(&self) -> usize {
        PAGE_BYTES / self.bucket_bytes
    }

    /// A page whose buckets are all free, one bit each.
    fn all_free(&self) -> u64 {
        u64::MAX >> (64 - self.page_buckets())
    }

    /// Adds a page of free buckets.
    fn start_page(&mut self) -> Option<()> {
        if !self.objects.may_hold(1) {
            return None;
        }
        let page = self.pages.take(&mut self.links)?;
        self.objects.hold(1);
        self.free.set(page, self.all_free());
        self.links.push(&mut self.roomy, page);
        self.free_buckets += self.page_buckets();
        Some(())
    }

    /// Takes a free bucket; the caller has seen to it that there is one.
    fn take(&mut self) -> usize {
        let page = self.roomy.head().expect("a free bucket that was counted");
        let free = self.free.get(page);
        let left = free & (free - 1);
        self.free.set(page, left);
        if left == 0 {
            self.links.unlink(&mut self.roomy, page);
        }
        self.free_buckets -= 1;
        page * self.page_buckets() + free.trailing_zeros() as usize
    }

    /// Makes a bucket free, and gives its page back if it was the last.
    fn give_back(&mut self, bucket: usize) {
        let page = bucket / self.page_buckets();
        let before = self.free.get(page);
        let after = before | 1 << (bucket % self.page_buckets());
        debug_assert_ne!(before, after, "the object was removed before");
        self.free.set(page, after);
        self.free_buckets += 1;
        if before == 0 {
            self.links.push(&mut self.roomy, page);
        }
        if after == self.all_free() {
            self.end_page(page);
        }
    }

    /// Gives the RAM of a page without objects back.
    fn end_page(&mut self, page: usize) {
        self.links.unlink(&mut self.roomy, page);
        self.pages.give_back(&mut self.links, page);
        self.objects.release(page, 1);
        self.free_buckets -= self.page_buckets();
    }

    /// The first bucket of an object.
    fn first_of(&self, handle: Handle) -> usize {
        handle.offset_bytes() / self.bucket_bytes
    }

    fn next(&self, bucket: usize) -> usize {
        self.chain.half(bucket) as usize
    }
}

impl<S: Space> Pool for Buckets<S> {
    fn insert(&mut self, bytes: &[u8]) -> Option<Handle> {
        assert_length(bytes.len());
        if self.free_buckets < bytes.len().div_ceil(self.bucket_bytes) {
            self.start_page()?;
        }
        let first = self.take();
        let mut bucket = first;
        for (at, piece) in bytes.chunks(self.bucket_bytes).enumerate() {
            if at > 0 {
                let next = self.take();
                self.chain.set_half(bucket, next as u32);
                bucket = next;
            }
            self.objects.write(bucket * self.bucket_bytes, piece);
        }
        self.payload_bytes += bytes.len();
        Some(Handle::at(first * self.bucket_bytes))
    }

    fn read<'a>(
        &'a self,
        handle: Handle,
        len: usize,
        gathered: &'a mut [u8; OBJECT_BYTES_MAX],
    ) -> &'a [u8] {
        let mut bucket = self.first_of(handle);
        for piece in gathered[..len].chunks_mut(self.bucket_bytes) {
            piece.copy_from_slice(self.objects.read(bucket * self.bucket_bytes, piece.len()));
            bucket = self.next(bucket);
        }
        &gathered[..len]
    }

    fn remove(&mut self, handle: Handle, len: usize) {
        let mut bucket = self.first_of(handle);
        for _ in 0..len.div_ceil(self.bucket_bytes) {
            let next = self.next(bucket);
            self.give_back(bucket);
            bucket = next;
        }
        self.payload_bytes -= len;
    }

    fn set_limit_bytes(&mut self, limit_bytes: usize) {
        self.objects.set_limit_bytes(limit_bytes);
    }

    fn held_bytes(&self) -> usize {
        self.objects.held_bytes()
    }

    fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    fn metadata_bytes(&self) -> usize {
        let pages = self.pages.touched();
        ram_bytes(pages * Links::<S>::FRAME_WORDS)
            + ram_bytes(pages)
            + ram_bytes(pages * self.page_buckets() / 2)
    }

    fn fragmentation(&self) -> Fragmentation {
        let external_bytes = self.free_buckets * self.bucket_bytes;
        Fragmentation {
            internal_bytes: self.held_bytes() - external_bytes - self.payload_bytes,
            external_bytes,
            largest_free_bytes: external_bytes.min(OBJECT_BYTES_MAX),
        }
    }
}
