//! A page's way out of RAM and back: same-filled, compressed, raw, spilled.
//!
//! Source: castro (2003), 2.3 (order of leaving), zswap (2012) (same-filled
//! pages, incompressible pages), cervera (1999), 3 (many pages a write, read
//! only the blocks that hold the page).
//!
//! Out: a page is looked at for equal words, goes through the codec, and lies in
//! the pool until it is the oldest. In: the bytes are decoded and freed; only what
//! came from the store may stay there too ([`copies`]). Incompressible pages lie raw in the pool and leave it
//! first, as RAM gains nothing by holding them so; once there are many, more of them
//! leave for the store at once.

mod cleaning;
mod common;
mod condensing;
mod copies;
mod early;
mod gathering;
mod kept;
mod lists;
mod reading;
mod recoding;
mod relatives;
mod rules;
mod shelf;
mod spilling;
mod taking;
#[cfg(test)]
mod tests;
mod writer;

use core::marker::PhantomData;

use zpager_codec::{CodecId, PAGE_BYTES, Page, scratch_bytes};
use zpager_policy::{Design, Lists};
use zpager_pool::{AnyPool, Handle, Pool, Space, SpaceSource};
use zpager_store::{
    Around, BLOCK_BYTES, Blocks, CLUSTER_BYTES, Clusters, CommonPages, Errno, Place, Seal,
};

use crate::coder::{Codecs, Coder};
use crate::coding::Coding;
use crate::entry::{Entry, PageNumber, State};
use crate::fills::Fills;
use crate::held::Held;
use crate::index::Index;
use crate::order::{Order, Ordered, Pages};
pub use cleaning::Cleaned;
use cleaning::Waiting;
pub(crate) use condensing::Condensed;
use condensing::{Condensing, Seeking};
use early::Lent;
pub use kept::{Content, Seen};
use recoding::Recoder;
use rules::{Rules, reserve_pool};
use shelf::Shelf;
use spilling::Pause;
use writer::Writer;

/// Bytes of the pool for each entry that the order has room for.
const POOL_BYTES_PER_ORDERED: usize = 32;
/// Bytes of raw pages that the pool holds before others leave for the store at once, as the program could have them
/// resident instead: they may be all there are.
const RAW_BYTES_KEPT: usize = 512 * 1024;
/// Shortest write to the store.
const WRITE_BYTES_MIN: usize = 128 * 1024;
/// Longest read from the store.
const READ_BYTES: usize = 128 * 1024;

/// The way to a store.
#[derive(Debug, Clone, Copy)]
pub struct Store<B> {
    /// Where the bytes go.
    pub blocks: B,
    /// How the space is handed out.
    pub clusters: Clusters<'static>,
}

/// What became of a page that was swapped out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    /// All words are equal; it takes nothing but its entry.
    SameFilled,
    /// In the pool, in so many bytes of a codec.
    Compressed(CodecId, usize),
    /// In the pool as it was.
    Incompressible,
    /// Nowhere: the pool has no room. The page is still the caller's.
    NoRoom,
}

/// What a run of pages that came back cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reads {
    /// Pages that came back, from the first on.
    pub pages: usize,
    /// Those of them that came from the store.
    pub spilled_pages: usize,
    /// Those of them that were in the store, and came from RAM, where they were as well.
    pub shelved_pages: usize,
    /// Reads from the store.
    pub reads: u32,
    /// Bytes read from the store.
    pub read_bytes: usize,
}

impl Reads {
    /// Counts pages that were in the store, and whether they came from RAM all the same.
    fn count_stored(&mut self, pages: usize, is_shelved: bool) {
        match is_shelved {
            true => self.shelved_pages += pages,
            false => self.spilled_pages += pages,
        }
    }
}

/// Why a page did not come back; its bytes are lost to the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// The store could not be read.
    Io(Errno),
    /// What came back is not what was swapped out.
    Corrupt,
}

/// What went to the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outgoing {
    /// Pages that left for it. They are in RAM still until the write of their cluster has ended.
    pub pages: usize,
    /// Pages that left the pool without a write, as they were in the store.
    pub copied_pages: usize,
    /// How long those that left for it are together, as they are kept there.
    pub page_bytes: usize,
    /// Those of them that were compressed once more for it, and how many bytes that saved.
    pub recompressed_pages: usize,
    /// See `recompressed_pages`.
    pub recompressed_saved_bytes: usize,
    /// Writes, of which the last may go on.
    pub writes: usize,
    /// Bytes written.
    pub bytes: usize,
    /// Where the store ends, as far as this process knows.
    pub end_bytes: u64,
    /// Why pages that were to leave at once are in the pool.
    pub refused: Option<SpillError>,
}

impl Outgoing {
    pub(crate) const NONE: Outgoing = Outgoing {
        pages: 0,
        copied_pages: 0,
        page_bytes: 0,
        recompressed_pages: 0,
        recompressed_saved_bytes: 0,
        writes: 0,
        bytes: 0,
        end_bytes: 0,
        refused: None,
    };
}

/// Why nothing was written to the store. Every page is where it was, or in RAM on its way there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpillError {
    /// There is no store.
    NoStore,
    /// The pool holds too little for a write that pays, or nothing has to be done.
    Nothing,
    /// The store may not grow further.
    Full,
    /// The write failed.
    Io(Errno),
}

/// The tiers of one process.
pub struct Cache<M: SpaceSource, B, C = Codecs> {
    /// What is known of every page.
    pub index: Index<M>,
    pool: AnyPool<M::Space>,
    /// What leaves in the order in which it came: all of the pool, or all but raw pages.
    compressed: Order<M::Space>,
    raw: Order<M::Space>,
    compressed_pages: usize,
    raw_pages: usize,
    fills: Fills<M::Space>,
    rules: Rules,
    /// How bytes are made of pages.
    coding: Coding,
    /// Which pages are there only because they are compressed.
    lists: Lists,
    scratch: M::Space,
    /// What compresses pages once more that leave for the store.
    recoder: Option<Recoder<M::Space>>,
    /// Whether that compresses pages for the pool, too.
    condensing: Option<Condensing>,
    seeking: Option<Seeking>,
    /// What a codec wrote, before the pool takes it; then an object that lies in pieces in the pool.
    output: M::Space,
    store: Option<Store<B>>,
    writer: Writer<M::Space>,
    /// What is in RAM of the store, where pages are written before they have to leave.
    shelf: Option<Shelf<M::Space>>,
    /// Whether what is written now is put there.
    shelves: bool,
    blocks: M::Space,
    lent: Lent,
    /// Clusters that are read around in, as many as the pool is large enough for.
    around: Option<M::Space>,
    around_state: Around,
    /// How much of that may be used.
    around_bytes: usize,
    /// What is held of each cluster.
    held: Held<M::Space>,
    /// Where pages are in the store that relatives have too.
    common: CommonPages<'static>,
    /// What cleaning found.
    found: M::Space,
    waiting: Waiting,
    pause: Pause,
    /// Pages of the pool that are in the store as well: their notes in the index say where.
    copied: usize,
    /// Clean pages, and the turn at which the last of them came.
    copies: usize,
    copies_turn: u16,
    /// Whether a page may be protected.
    has_protected: bool,
    /// What [`Clusters::wanted`] was.
    wanted: u64,
    /// Pages that come back from the store and keep no copies there, as it was full.
    copies_pause: usize,
    /// Whether clusters may be filled little by little.
    keeps_buffers: bool,
    /// Bytes of raw pages that the pool holds before others leave for the store at once.
    raw_bytes_kept: usize,
    /// Why the store did not take a page that was to leave at once.
    refused: Option<SpillError>,
    /// Whether the codec's buffers hold RAM, and how much the store's do.
    has_coded: bool,
    read_bytes_max: usize,
    coder: PhantomData<C>,
}

impl<M: SpaceSource + Copy, B: Blocks, C: Coder> Cache<M, B, C> {
    /// An empty cache of a design, whose pool can grow to about `pool_bytes_max`. `None` when
    /// `source` has no room.
    pub fn new(
        source: M,
        design: &Design,
        pool_bytes_max: usize,
        store: Option<Store<B>>,
    ) -> Option<Self> {
        let order_bytes = pool_bytes_max / POOL_BYTES_PER_ORDERED * size_of::<u64>() + (1 << 20);
        let scratch_length =
            CodecId::ALL.iter().map(|&id| scratch_bytes(id)).max().unwrap_or(0).max(BLOCK_BYTES);
        let clusters = store.as_ref().map_or(0, |store| store.clusters.total_clusters());
        let held_bytes = Held::bytes_for(clusters).max(BLOCK_BYTES);
        let seal = store.as_ref().map_or(Seal::Checksum, |store| store.clusters.seal());
        let rules = Rules::new(design);
        let shelf = match design.write_ahead_percent.filter(|_| store.is_some()) {
            Some(_) => Some(Shelf::reserve(&source, pool_bytes_max, clusters)?),
            None => None,
        };
        Some(Cache {
            index: Index::new(source)?,
            pool: reserve_pool(&source, design.pool, pool_bytes_max)?,
            compressed: Order::new(source.reserve(order_bytes)?, rules.pages_in_order),
            raw: Order::new(source.reserve(order_bytes)?, Pages::Raw),
            compressed_pages: 0,
            raw_pages: 0,
            fills: Fills::new(source.reserve(Fills::BYTES)?),
            rules,
            coding: Coding::new(design),
            lists: Lists::default(),
            scratch: source.reserve(scratch_length)?,
            recoder: None,
            condensing: None,
            seeking: None,
            output: source.reserve(2 * BLOCK_BYTES)?,
            store,
            writer: Writer::new(
                [source.reserve(CLUSTER_BYTES)?, source.reserve(CLUSTER_BYTES)?],
                design.layout,
                seal,
            ),
            shelf,
            shelves: false,
            blocks: source.reserve(READ_BYTES)?,
            lent: Lent::default(),
            around: match rules.around_bytes(pool_bytes_max) {
                0 => None,
                bytes => Some(source.reserve(bytes)?),
            },
            around_state: Around::NEW,
            around_bytes: rules.around_bytes(pool_bytes_max),
            held: Held::new(source.reserve(held_bytes)?, design.layout, seal),
            common: CommonPages::NONE,
            found: source.reserve(Waiting::BYTES)?,
            waiting: Waiting::default(),
            pause: Pause::NONE,
            copied: 0,
            copies: 0,
            copies_turn: 0,
            has_protected: false,
            wanted: 0,
            copies_pause: 0,
            keeps_buffers: true,
            raw_bytes_kept: RAW_BYTES_KEPT,
            refused: None,
            has_coded: false,
            read_bytes_max: 0,
            coder: PhantomData,
        })
    }

    /// In a copy of the cache in another process: buffers are empty, and tables cost RAM of the
    /// process's own where they are written from now on.
    pub fn become_copy(&mut self) {
        for buffer in [&self.scratch, &self.output, &self.blocks] {
            buffer.release(0, buffer.bytes());
        }
        self.writer.trim(0);
        self.trim_recoder(0);
        self.forget_around();
        self.shelf.iter_mut().for_each(Shelf::clear);
        self.has_coded = false;
        self.read_bytes_max = 0;
        self.held.become_copy();
        self.fills.become_copy();
        self.compressed.become_copy();
        self.raw.become_copy();
    }

    /// Whether clusters may be filled little by little, so that pages that do not shrink leave at
    /// once, for which a buffer is kept.
    pub fn keep_buffers(&mut self, keep: bool) {
        self.keeps_buffers = keep;
    }

    /// Gives back those of the store's buffers that grew longer than `bytes_max` and hold nothing.
    pub fn trim_buffers(&mut self, bytes_max: usize) {
        self.writer.trim(bytes_max);
        self.trim_recoder(bytes_max);
        if self.read_bytes_max > bytes_max {
            self.blocks.release(0, self.blocks.bytes());
            self.read_bytes_max = 0;
        }
        if CLUSTER_BYTES > bytes_max {
            self.forget_around();
        }
    }

    fn trim_recoder(&mut self, bytes_max: usize) {
        if let Some(recoder) = &mut self.recoder {
            recoder.trim(bytes_max);
        }
    }

    /// Has the buffers take all the RAM that they may come to need, so that using one takes none.
    pub fn touch_buffers(&mut self) {
        let around = self.around.iter().map(|around| (around, self.around_bytes));
        let whole = |buffer| (buffer, Space::bytes(buffer));
        let store_buffers =
            self.writer.buffers().iter().chain([&self.blocks]).map(whole).chain(around);
        let coding_buffers = [&self.scratch, &self.output].into_iter().map(whole);
        let has_store = self.store.is_some();
        for (buffer, bytes) in coding_buffers.chain(store_buffers.filter(|_| has_store)) {
            for offset in (0..bytes).step_by(BLOCK_BYTES) {
                // SAFETY: within the space, which is this cache's alone; it stays what it is.
                unsafe {
                    let byte = buffer.base().add(offset);
                    byte.write_volatile(byte.read_volatile());
                }
            }
        }
    }

    /// Has pages that do not shrink stay in the pool until room is wanted, where its RAM is of no use to anybody
    /// else meanwhile. They are still the first to leave.
    pub fn keep_raw(&mut self) {
        self.raw_bytes_kept = usize::MAX;
    }

    /// Has clusters that are read around in take no more than `bytes`, and no more than went with the pool's bound.
    pub fn bound_around(&mut self, bytes: usize) {
        let reserved_bytes = self.around.as_ref().map_or(0, Space::bytes);
        self.around_bytes = bytes.min(reserved_bytes) / CLUSTER_BYTES * CLUSTER_BYTES;
        if self.around_state.used_bytes() > self.around_bytes {
            self.forget_around();
        }
    }

    fn forget_around(&mut self) {
        if let Some(around) = self.around.as_ref().filter(|_| self.around_state.used_bytes() > 0) {
            around.release(0, self.around_state.used_bytes());
        }
        self.around_state.forget();
    }

    /// RAM of the buffers that were used.
    fn buffer_bytes(&self) -> usize {
        let pages = |bytes: usize| bytes.next_multiple_of(BLOCK_BYTES);
        let coding_bytes = self.coding.scratch_bytes() + 2 * BLOCK_BYTES;
        pages(if self.has_coded { coding_bytes } else { 0 })
            + self.recoder.as_ref().map_or(0, Recoder::held_bytes)
            + self.writer.held_bytes()
            + pages(self.read_bytes_max)
            + self.around_state.used_bytes()
    }

    /// RAM that the buffers may come to take beyond what they take now.
    pub fn unused_buffer_bytes(&self) -> usize {
        let store_bytes = 2 * CLUSTER_BYTES + READ_BYTES + self.around_bytes + Waiting::BYTES;
        let most_bytes = self.coding.scratch_bytes().next_multiple_of(BLOCK_BYTES)
            + 2 * BLOCK_BYTES
            + self.recoder.as_ref().map_or(0, Recoder::bytes)
            + if self.store.is_some() { store_bytes } else { 0 };
        most_bytes.saturating_sub(self.buffer_bytes() + self.waiting.metadata_bytes())
    }

    /// Where the pool's objects lie.
    pub fn objects(&self) -> &M::Space {
        self.pool.objects()
    }

    /// RAM that the pool holds, with what it wastes.
    pub fn pool_bytes(&self) -> usize {
        self.pool.held_bytes()
    }

    /// Sum of the lengths of what lies in the pool.
    pub fn payload_bytes(&self) -> usize {
        self.pool.payload_bytes()
    }

    /// RAM of everything else: index, orders, descriptors, buffers.
    pub fn metadata_bytes(&self) -> usize {
        self.inherited_bytes()
            + self.compressed.metadata_bytes()
            + self.raw.metadata_bytes()
            + self.fills.touched_bytes()
            + self.shelf.as_ref().map_or(0, Shelf::metadata_bytes)
            + self.buffer_bytes()
    }

    /// What of that a copy in another process counts as its own from the start ([`Cache::become_copy`]).
    pub fn inherited_bytes(&self) -> usize {
        self.index.metadata_bytes()
            + self.pool.metadata_bytes()
            + self.held.metadata_bytes()
            + self.waiting.metadata_bytes()
            + size_of::<Self>()
            - size_of::<Index<M>>()
            + self.index.leaves_bytes()
    }

    /// RAM of compressed pages: the pool, and what was written of it ahead.
    pub fn ram_bytes(&self) -> usize {
        self.pool_bytes() + self.shelf_bytes()
    }

    /// RAM of pages that are in the store as well ([`Cache::spill_ahead`]), in whole clusters.
    pub fn shelf_bytes(&self) -> usize {
        self.shelf.as_ref().map_or(0, Shelf::held_bytes)
    }

    /// Bytes of the pages that lie in the pool as they were.
    pub fn raw_bytes(&self) -> usize {
        self.raw_pages * PAGE_BYTES
    }

    /// Pages that lie in the pool.
    pub fn pooled_pages(&self) -> usize {
        self.compressed_pages + self.raw_pages
    }

    /// Pages that lie in the store, without those on their way there and those that a parent has
    /// there too.
    pub fn stored_pages(&mut self) -> usize {
        let own_records = self.held.own_records();
        let unwritten = self.writer.unwritten().map(|cluster| self.held.records(cluster) as usize);
        own_records.saturating_sub(unwritten.sum())
    }

    /// Whether there is a store.
    pub fn has_store(&self) -> bool {
        self.store.is_some()
    }

    /// What lies behind the store.
    pub fn store_blocks(&self) -> Option<&B> {
        self.store.as_ref().map(|store| &store.blocks)
    }

    /// What is known of the store's clusters, where there is one.
    pub fn clusters(&self) -> Option<Clusters<'static>> {
        self.store.as_ref().map(|store| store.clusters)
    }

    /// How bytes are made of pages, for who makes some beside the cache while it
    /// [is not dense](Cache::is_dense).
    pub fn coding(&self) -> Coding {
        self.coding
    }

    /// Takes the resident page `number`, whose bytes are `page`, into the cache.
    pub fn swap_out(&mut self, number: PageNumber, page: &C::Page) -> Placed {
        self.swap_out_made(number, page, None)
    }

    /// The same with what was made of the page by a [`Coding`] like this cache's, if something was.
    pub fn swap_out_made(
        &mut self,
        number: PageNumber,
        page: &C::Page,
        made: Option<Content<'_>>,
    ) -> Placed {
        let is_noted = self.note_copy(number);
        let placed = self.place_made(number, page, made);
        if is_noted {
            self.settle_copy(number);
        }
        placed
    }

    /// Has a page be in a tier that was resident.
    fn place_made(
        &mut self,
        number: PageNumber,
        page: &C::Page,
        made: Option<Content<'_>>,
    ) -> Placed {
        let filled = || self.coding.fill::<C>(page).map(Content::Filled);
        match made.or_else(filled) {
            Some(Content::Coded(codec, bytes)) => {
                self.compare_codecs(page);
                return self.place_coded(number, codec, bytes);
            }
            Some(Content::Filled(word)) if self.place_filled(number, word) => {
                return Placed::SameFilled;
            }
            Some(Content::Filled(_)) | None => {}
        }
        match self.compress(page) {
            Some((codec, bytes)) => self.place_coded(number, codec, bytes),
            None => self.place_coded(number, CodecId::Copy, C::raw(page)),
        }
    }

    /// Enters a page of which all words equal `word`; false when there is no place for the value.
    fn place_filled(&mut self, number: PageNumber, word: u64) -> bool {
        let fill = self.fills.add(word);
        if let Some(fill) = fill {
            self.enter(number, State::SameFilled { fill });
        }
        fill.is_some()
    }

    /// Keeps what a codec made of a page, or the page as it is.
    fn place_coded(&mut self, number: PageNumber, codec: CodecId, bytes: &[u8]) -> Placed {
        let is_raw = codec == CodecId::Copy;
        match is_raw && self.leave_raw(number, bytes) || self.place(number, codec, bytes) {
            false => Placed::NoRoom,
            true if is_raw => Placed::Incompressible,
            true => Placed::Compressed(codec, bytes.len()),
        }
    }

    /// Has a page that does not shrink leave for the store at once, where RAM gains nothing by holding
    /// it; false where it is to stay, or the store does not take it.
    fn leave_raw(&mut self, number: PageNumber, bytes: &[u8]) -> bool {
        let is_due = self.rules.leaves_raw
            && self.keeps_buffers
            && self.pause.left == 0
            && self.raw_bytes() + PAGE_BYTES > self.raw_bytes_kept;
        if !is_due || self.store.is_none() {
            return false;
        }
        let dense = self.recode_raw(bytes);
        let (codec, leaving) = dense.unwrap_or((CodecId::Copy, bytes));
        let left = self.leave_at_once(number, codec, leaving).is_some();
        if left && dense.is_some() {
            self.writer.count_recompressed(bytes.len() - leaving.len());
        }
        left
    }

    /// Has a page leave for the store past the pool; `None` where the store does not take it.
    fn leave_at_once(&mut self, number: PageNumber, codec: CodecId, bytes: &[u8]) -> Option<Place> {
        let pushed = self.push(bytes).inspect_err(|&error| {
            self.begin_pause(error);
            self.refused = Some(error);
        });
        let place = pushed.ok()?;
        self.enter_spilled(number, codec, place);
        Some(place)
    }

    fn enter_spilled(&mut self, number: PageNumber, codec: CodecId, place: Place) {
        self.enter(number, State::Spilled { codec, place });
        self.held.add(place);
        self.writer.count_page(place);
    }

    /// Has a whole cluster be read with the first read in it, while that pays, or not.
    pub fn set_sweeping(&mut self, is_sweeping: bool) {
        self.around_state.set_sweeping(is_sweeping);
    }

    /// Whether something was written or refused since [`Cache::take_outgoing`].
    pub(crate) fn has_outgoing(&self) -> bool {
        self.refused.is_some() || self.writer.has_written()
    }

    /// What went to the store since the last call.
    pub fn take_outgoing(&mut self) -> Outgoing {
        Outgoing { refused: self.refused.take(), ..self.writer.take_outgoing() }
    }

    fn enter(&mut self, number: PageNumber, state: State) {
        self.replace_entry(number, Entry::new(state));
    }

    /// Replaces the entry of a page that has one.
    pub(crate) fn replace_entry(&mut self, number: PageNumber, entry: Entry) {
        let entered = self.index.set(number, entry);
        debug_assert!(entered, "a page that was known has room in the index");
    }

    /// Puts a page's bytes into the pool and its order.
    fn place(&mut self, number: PageNumber, codec: CodecId, bytes: &[u8]) -> bool {
        let Some(handle) = self.pool.insert(bytes) else { return false };
        if !self.line_up(number, codec, bytes.len(), handle) {
            self.pool.remove(handle, bytes.len());
            return false;
        }
        *self.pages_in_pool(codec) += 1;
        self.compact_if_due();
        true
    }

    /// How many pages there are in the pool that are raw, or are not, as those of the codec.
    fn pages_in_pool(&mut self, codec: CodecId) -> &mut usize {
        match codec {
            CodecId::Copy => &mut self.raw_pages,
            _ => &mut self.compressed_pages,
        }
    }

    /// The order in which pages of the codec leave, and how many wait there.
    fn order_of(&mut self, codec: CodecId) -> (&mut Order<M::Space>, usize) {
        match (self.compressed.pages, codec) {
            (Pages::All, _) => (&mut self.compressed, self.raw_pages + self.compressed_pages),
            (_, CodecId::Copy) => (&mut self.raw, self.raw_pages),
            (_, _) => (&mut self.compressed, self.compressed_pages),
        }
    }

    /// Enters a page that lies in the pool, at the end of its order. False when that is full, and
    /// nothing has changed.
    fn line_up(&mut self, number: PageNumber, codec: CodecId, len: usize, handle: Handle) -> bool {
        self.sweep_if_due(codec);
        let (order, _) = self.order_of(codec);
        if !order.push(Ordered::new(number, handle)) {
            return false;
        }
        let entry = Entry::new(State::Compressed { codec, len, handle }).with_mark(order.mark());
        let entry = entry.with_list(self.lists.entered());
        self.replace_entry(number, entry);
        true
    }

    /// Sweeps the codec's order if too much of it is stale.
    fn sweep_if_due(&mut self, codec: CodecId) {
        let (order, live) = self.order_of(codec);
        if order.should_sweep(live) {
            let is_raw = order.pages == Pages::Raw;
            let order = if is_raw { &mut self.raw } else { &mut self.compressed };
            sweep(order, &mut self.index, |_, _| None);
        }
    }

    /// Compacts a pool with too much to gain. Where others have most of it too nothing is gained: what is left
    /// stays in RAM for them, and what is moved is copied.
    fn compact_if_due(&mut self) {
        if self.pool.should_compact() && 2 * self.objects().shared_bytes() <= self.pool.held_bytes()
        {
            self.compact();
        }
    }

    /// Moves what lies in sparse slabs, so that the pool gives RAM back. The orders know every handle.
    fn compact(&mut self) {
        if !self.pool.begin_compaction() {
            return;
        }
        let (index, pool) = (&mut self.index, &mut self.pool);
        for order in [&mut self.compressed, &mut self.raw] {
            sweep(order, index, |handle, len| pool.relocate(handle, len));
        }
        self.pool.end_compaction();
    }

    /// Drops whatever is known of a page: its tier's bytes are free, its entry is absent.
    pub fn forget(&mut self, number: PageNumber) {
        let entry = self.index.get(number);
        let cleared = self.index.set(number, Entry::ABSENT);
        debug_assert!(cleared, "clearing needs no room");
        self.free(number, entry);
    }

    /// Frees what page `number` took of its tier, whose entry was `gone`, and says something else now.
    fn free(&mut self, number: PageNumber, gone: Entry) {
        match gone.state() {
            State::Absent | State::Resident { .. } => {}
            State::SameFilled { fill } => self.fills.remove(fill),
            State::Compressed { codec, .. } => {
                if gone.has_note() {
                    self.free_note(number);
                }
                self.leave_pool(gone);
                self.sweep_if_due(codec);
            }
            State::Spilled { place, .. } => self.free_record(place),
            State::Clean { place, .. } => {
                self.copies -= 1;
                self.free_record(place);
            }
        }
    }

    fn free_record(&mut self, place: Place) {
        if self.let_go(place) {
            self.pause.left = 0;
        }
    }

    /// Gives the reference to a record back; whether its cluster is free by that.
    fn let_go(&mut self, place: Place) -> bool {
        let Some(store) = &self.store else { return false };
        self.held.remove(place);
        if let Some(shelf) = &mut self.shelf
            && self.held.records(place.cluster()) == 0
        {
            shelf.forget(place.cluster());
        }
        store.clusters.drop_reference(place.cluster(), &store.blocks)
    }

    /// Has page `to`, of which nothing is known, be what page `from` was; `from` is absent
    /// afterwards. False when the index has no room for `to`, and nothing has changed.
    #[must_use]
    pub fn rename(&mut self, from: PageNumber, to: PageNumber) -> bool {
        debug_assert!(self.index.get(to).is_absent(), "what is there would be lost");
        let entry = self.index.get(from);
        if !self.index.set(to, entry) {
            return false;
        }
        let cleared = self.index.set(from, Entry::ABSENT);
        debug_assert!(cleared, "clearing needs no room");
        if let State::Compressed { codec, len, handle } = entry.state() {
            // A full order leaves the page where it is for good; only its turn to leave is lost.
            if self.line_up(to, codec, len, handle) {
                self.lists.left(entry.list());
            }
        }
        if entry.has_note() {
            self.rename_note(from, to);
        }
        true
    }

    /// Compressed pages that are in the pool, the oldest first.
    pub fn oldest(&self) -> impl Iterator<Item = PageNumber> {
        self.oldest_but(0)
    }

    /// The same without so many of the oldest, about.
    pub fn oldest_but(&self, pages: usize) -> impl Iterator<Item = PageNumber> {
        let waiting =
            |ordered: &Ordered| in_pool(&self.index, *ordered, self.compressed.pages).is_some();
        self.compressed.iter_from(pages).filter(waiting).map(Ordered::page)
    }

    /// How many pages [`Cache::oldest`] has, and some that it leaves out.
    pub fn ordered_pages(&self) -> usize {
        self.compressed.len()
    }

    /// Frees what a page whose entry was `pooled` took of the pool.
    fn leave_pool(&mut self, pooled: Entry) {
        if let State::Compressed { codec, len, handle } = pooled.state() {
            self.pool.remove(handle, len);
            self.lists.left(pooled.list());
            *self.pages_in_pool(codec) -= 1;
        }
    }
}

/// The entry of a page that waits in an order of `pages`, and what it says, unless what the order
/// says of it is stale.
#[inline]
fn in_pool<M: SpaceSource>(
    index: &Index<M>,
    ordered: Ordered,
    pages: Pages,
) -> Option<(Entry, CodecId, usize, Handle)> {
    let entry = index.get(ordered.page());
    waits(entry, ordered, pages).map(|(codec, len, handle)| (entry, codec, len, handle))
}

/// What the entry of a page says that waits in an order of `pages`, unless what the order says of it
/// is stale.
#[inline]
fn waits(entry: Entry, ordered: Ordered, pages: Pages) -> Option<(CodecId, usize, Handle)> {
    // What is stale is known by this alone, without taking the entry apart.
    entry.handle().filter(|handle| ordered.is_at(*handle))?;
    match entry.state() {
        State::Compressed { codec, len, handle } if pages.have(codec) => Some((codec, len, handle)),
        _ => None,
    }
}

/// Drops what is stale from an order, and has `relocate` move the others' bytes.
fn sweep<M: SpaceSource>(
    order: &mut Order<M::Space>,
    index: &mut Index<M>,
    mut relocate: impl FnMut(Handle, usize) -> Option<Handle>,
) {
    let pages = order.pages;
    order.sweep(|ordered, mark| {
        let entry = index.known_mut(ordered.page())?;
        let (_, len, handle) = waits(*entry, ordered, pages)?;
        if entry.mark() == mark {
            return None;
        }
        let handle = relocate(handle, len).unwrap_or(handle);
        *entry = entry.at(handle).with_mark(mark);
        Some(Ordered::new(ordered.page(), handle))
    });
}

/// The first `bytes` of a space.
///
/// # Safety
/// Nothing else borrows the space for as long as the result lives.
unsafe fn bytes_mut<'a>(space: &impl Space, bytes: usize) -> &'a mut [u8] {
    // SAFETY: the caller's promise; the bytes are initialised, as a space is zero at first.
    unsafe { slice_mut(space, bytes) }
}

/// The first `count` values of a space.
///
/// # Safety
/// As [`bytes_mut`]; any bytes make a `T`, and `T` is aligned to at most a page.
unsafe fn slice_mut<'a, T>(space: &impl Space, count: usize) -> &'a mut [T] {
    assert!(count * size_of::<T>() <= space.bytes());
    // SAFETY: within the space, by the assertion; the rest is the caller's promise.
    unsafe { core::slice::from_raw_parts_mut(space.base().cast(), count) }
}

/// The two halves of the output space, a page each.
///
/// # Safety
/// As [`bytes_mut`].
unsafe fn outputs<'a>(output: &impl Space) -> &'a mut [Page; 2] {
    // SAFETY: the caller's promise; any bytes make a page.
    let pages = unsafe { slice_mut(output, 2) };
    pages.first_chunk_mut().expect("two of them")
}
