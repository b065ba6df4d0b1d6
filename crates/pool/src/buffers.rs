//! A pool of buffers of one page, each filled once and used again when all its objects are gone.
//!
//! Source: cervera (Cervera, Cortes and Becerra, USENIX 1999), sections 3.1 (a buffer knows its
//! first free byte and how many pages it keeps), 3.3 (the room of a freed page is not used again
//! before the whole buffer is free, and nothing is compacted) and 3.4 (no page is split among
//! buffers; full buffers; cleaning). Unlike there, objects start at multiples of 16 bytes, buffers
//! take RAM only while they hold an object, and the writing is the owner's, who learns from
//! [`Buffers::should_clean`], [`Buffers::begin_cleaning`] and [`Buffers::is_being_cleaned`] what is due.
//! A page goes to the first buffer with room at its end, in the order of the array of buffers.
//!
//! Invariants:
//! - `held_bytes` = 4096 * buffers that hold an object;
//! - `tails` has the room at the end of every such buffer, unless the buffer is being cleaned: then
//!   it has none, and the buffer stands in `cleaning`;
//! - `buffers_by_tail` counts the buffers that hold an object by the room at their end.
//!
//! Cost: insert looks at 8 words a level of `tails` at most, of which there are 10 for the longest
//! space; whether to clean takes a look at 256 counts, and the choice a walk over all buffers.
//!
//! Bad for: objects longer than half a page, each of which has a buffer of its own; owners that
//! remove in another order than they insert, as a buffer stays whole for the last of its objects.

mod recent;
mod tails;
#[cfg(test)]
mod tests;

use crate::lists::{Frames, Links, List};
use crate::objects::{Objects, PAGE_BYTES, assert_length};
use crate::words::{Words, ram_bytes};
use crate::{Fragmentation, Handle, OBJECT_BYTES_MAX, Pool, Space, SpaceSource};
use recent::Recent;
use tails::Tails;

const GRAIN_BYTES: usize = Handle::GRAIN_BYTES;
/// Grains of a buffer.
const BUFFER_GRAINS: usize = PAGE_BYTES / GRAIN_BYTES;

/// What is known of one buffer.
#[derive(Debug, Clone, Copy, Default)]
struct Buffer {
    /// Grains up to the first that was never used.
    filled: usize,
    /// Grains of its objects.
    taken: usize,
    /// Whether the owner writes it out.
    cleaning: bool,
}

impl Buffer {
    fn unpack(word: u64) -> Self {
        Self {
            filled: word as usize & 0xffff,
            taken: (word >> 16) as usize & 0xffff,
            cleaning: word >> 63 != 0,
        }
    }

    fn pack(self) -> u64 {
        self.filled as u64 | (self.taken as u64) << 16 | u64::from(self.cleaning) << 63
    }

    /// Grains of room at the end.
    fn tail(self) -> usize {
        BUFFER_GRAINS - self.filled
    }
}

/// A [`Pool`] of buffers of one page that are filled once, as in cervera's swap cache.
#[derive(Debug)]
pub struct Buffers<S> {
    objects: Objects<S>,
    frames: Frames,
    links: Links<S>,
    buffers: Words<S>,
    tails: Tails<S>,
    buffers_by_tail: Words<S>,
    cleaning: List,
    recent: Recent,
    /// Bytes of the grains of all objects.
    taken_bytes: usize,
    payload_bytes: usize,
}

impl<S: Space> Buffers<S> {
    /// An empty pool whose objects lie in `space_bytes` of address space, which costs nothing
    /// until used. It is the most that the pool can come to hold.
    /// `None`: the source gave none, or more than a [`Handle`] can tell apart was asked for.
    pub fn reserve<Source: SpaceSource<Space = S>>(
        source: &Source,
        space_bytes: usize,
    ) -> Option<Self> {
        let pages = space_bytes.div_ceil(PAGE_BYTES);
        Some(Self {
            objects: Objects::reserve(source, pages)?,
            frames: Frames::new(pages),
            links: Links::reserve(source, pages)?,
            buffers: Words::reserve(source, pages)?,
            tails: Tails::reserve(source, pages)?,
            buffers_by_tail: Words::reserve(source, BUFFER_GRAINS)?,
            cleaning: List::default(),
            recent: Recent::default(),
            taken_bytes: 0,
            payload_bytes: 0,
        })
    }

    /// Where the objects lie.
    pub fn objects(&self) -> &S {
        self.objects.space()
    }

    /// Whether `threshold_percent` of all the buffers that there may be are full, that is, have
    /// less room at their end than the mean of the last 100 objects (cervera, 3.4). The paper
    /// tries 10 to 70. Not while a cleaning is going on.
    pub fn should_clean(&self, threshold_percent: usize) -> bool {
        if self.is_cleaning() {
            return false;
        }
        let buffers = self.frames.count().min(self.objects.limit_bytes() / PAGE_BYTES);
        self.full_buffers() * 100 >= buffers * threshold_percent && self.full_buffers() > 0
    }

    /// Buffers with less room at their end than the mean of the last 100 objects.
    pub fn full_buffers(&self) -> usize {
        let tails = 0..self.recent.mean_bytes().div_ceil(GRAIN_BYTES).min(BUFFER_GRAINS);
        tails.map(|tail| self.buffers_by_tail.get(tail) as usize).sum()
    }

    /// Chooses what to write out: all full buffers, or the one that holds most if none is full.
    /// They get no more objects; each is free again when its owner has removed all those it has.
    /// `false`: the pool is empty.
    pub fn begin_cleaning(&mut self) -> bool {
        self.end_cleaning();
        let mean_bytes = self.recent.mean_bytes();
        let mut fullest = None;
        for frame in 0..self.frames.touched() {
            let buffer = self.buffer(frame);
            if buffer.taken == 0 {
                continue;
            }
            if buffer.tail() * GRAIN_BYTES < mean_bytes {
                self.set_cleaning(frame, true);
            }
            fullest = fullest.max(Some((buffer.taken, frame)));
        }
        if let (None, Some((_, frame))) = (self.cleaning.head(), fullest) {
            self.set_cleaning(frame, true);
        }
        self.cleaning.head().is_some()
    }

    /// Whether there are buffers that are to be written out.
    pub fn is_cleaning(&self) -> bool {
        self.cleaning.head().is_some()
    }

    /// Whether the object lies in a buffer that is to be written out.
    pub fn is_being_cleaned(&self, handle: Handle) -> bool {
        self.buffer(handle.offset_bytes() / PAGE_BYTES).cleaning
    }

    /// Ends the cleaning; buffers with objects that were not removed are used again.
    pub fn end_cleaning(&mut self) {
        for _ in 0..self.frames.touched() {
            let Some(frame) = self.cleaning.head() else { break };
            self.set_cleaning(frame, false);
        }
    }

    /// Begins or ends the cleaning of one buffer.
    fn set_cleaning(&mut self, frame: usize, cleaning: bool) {
        let buffer = Buffer { cleaning, ..self.buffer(frame) };
        self.set_buffer(frame, buffer);
        if cleaning {
            self.links.push(&mut self.cleaning, frame);
            self.tails.set(frame, 0);
        } else {
            self.links.unlink(&mut self.cleaning, frame);
            self.tails.set(frame, buffer.tail());
        }
    }

    fn buffer(&self, frame: usize) -> Buffer {
        Buffer::unpack(self.buffers.get(frame))
    }

    fn set_buffer(&mut self, frame: usize, buffer: Buffer) {
        self.buffers.set(frame, buffer.pack());
    }

    /// An empty buffer that holds RAM from now on.
    fn start(&mut self) -> Option<usize> {
        if !self.objects.may_hold(1) {
            return None;
        }
        let frame = self.frames.take(&mut self.links)?;
        self.objects.hold(1);
        self.set_buffer(frame, Buffer::default());
        Some(frame)
    }

    /// Gives the RAM of a buffer without objects back.
    fn end(&mut self, frame: usize, buffer: Buffer) {
        if buffer.cleaning {
            self.set_cleaning(frame, false);
        }
        self.count(buffer.tail(), -1);
        self.tails.set(frame, 0);
        self.set_buffer(frame, Buffer::default());
        self.frames.give_back(&mut self.links, frame);
        self.objects.release(frame, 1);
    }

    /// Counts a buffer in or out whose end has room for `tail` grains.
    fn count(&mut self, tail: usize, change: i64) {
        let buffers = self.buffers_by_tail.get(tail);
        self.buffers_by_tail.set(tail, buffers.wrapping_add_signed(change));
    }

    /// Puts an object at the end of a buffer that has room there; its offset in bytes.
    fn append(&mut self, frame: usize, bytes: &[u8]) -> usize {
        let before = self.buffer(frame);
        let grains = bytes.len().div_ceil(GRAIN_BYTES);
        let filled = before.filled + grains;
        let after = Buffer { filled, taken: before.taken + grains, ..before };
        if before.filled > 0 {
            self.count(before.tail(), -1);
        }
        self.count(after.tail(), 1);
        self.set_buffer(frame, after);
        self.tails.set(frame, after.tail());
        let offset_bytes = frame * PAGE_BYTES + before.filled * GRAIN_BYTES;
        self.objects.write(offset_bytes, bytes);
        offset_bytes
    }
}

impl<S: Space> Pool for Buffers<S> {
    fn insert(&mut self, bytes: &[u8]) -> Option<Handle> {
        assert_length(bytes.len());
        let grains = bytes.len().div_ceil(GRAIN_BYTES);
        let frame = match self.tails.first_with(grains) {
            Some(frame) => frame,
            None => self.start()?,
        };
        let offset_bytes = self.append(frame, bytes);
        self.recent.add(bytes.len());
        self.taken_bytes += grains * GRAIN_BYTES;
        self.payload_bytes += bytes.len();
        Some(Handle::at(offset_bytes))
    }

    fn read<'a>(
        &'a self,
        handle: Handle,
        len: usize,
        _gathered: &'a mut [u8; OBJECT_BYTES_MAX],
    ) -> &'a [u8] {
        self.objects.read(handle.offset_bytes(), len)
    }

    #[inline]
    fn prefetch(&self, handle: Handle, len: usize) {
        self.objects.prefetch(handle.offset_bytes(), len);
    }

    fn remove(&mut self, handle: Handle, len: usize) {
        let (frame, grains) = (handle.offset_bytes() / PAGE_BYTES, len.div_ceil(GRAIN_BYTES));
        let before = self.buffer(frame);
        assert!(grains <= before.taken, "the object was removed before");
        let after = Buffer { taken: before.taken - grains, ..before };
        self.set_buffer(frame, after);
        if after.taken == 0 {
            self.end(frame, after);
        }
        self.taken_bytes -= grains * GRAIN_BYTES;
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
        let touched = self.frames.touched();
        ram_bytes(touched * Links::<S>::FRAME_WORDS)
            + ram_bytes(touched)
            + self.tails.metadata_bytes(touched)
            + ram_bytes(if touched > 0 { BUFFER_GRAINS } else { 0 })
    }

    fn fragmentation(&self) -> Fragmentation {
        Fragmentation {
            internal_bytes: self.taken_bytes - self.payload_bytes,
            external_bytes: self.held_bytes() - self.taken_bytes,
            largest_free_bytes: self.tails.longest() * GRAIN_BYTES,
        }
    }
}
