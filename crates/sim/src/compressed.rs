//! The designs: a trace through the engine that `zpager run` has, driven as the pager drives it.
//!
//! What the pager does by system calls is counted here and costs modelled time, which is also what
//! the engine is told that things took. The budget is kept as in `zpager run`: resident pages, pool
//! and metadata together, with what a process's tables take.
//!
//! As in a run, a program is left alone until it comes near its budget. One thing is not as in a
//! run: regions are what the trace references, not what was mapped.

use std::ops::Range;
use std::sync::atomic::AtomicU64;

use zpager_cache::{
    BATCH_PAGES, Cache, Departed, Engine, Entry, Leavers, PageNumber, Placed, Run, Store,
};
use zpager_codec::{CodecId, Page, SCRATCH_ALIGN_BYTES, compress, scratch_bytes};
use zpager_policy::{
    Ahead, Design, ReadTicks, SLOTS, Sample, Sampler, Settings, Shares, Step, StoreLayout,
};
use zpager_store::{CLUSTER_BYTES, Clusters};

use crate::arena::Arena;
use crate::contents::Sizes;
use crate::cost::{COSTS, Disk, codec_costs, is_near};
use crate::disk::DiskBlocks;
use crate::lengths::{Identity, Lengths, LengthsPage, SEAL, coding_ns};
use crate::outcome::Outcome;
use crate::replay::{Lost, Memory};
use crate::survey::Layout;
use crate::trace::Reference;

const PAGE_BYTES: usize = 4096;
/// Most pages lifted in one go.
const LIFT_PAGES: usize = 32;
/// Steps of one search for room.
const STEPS_MAX: u32 = 1 << 16;
/// Steps in a row that gave nothing.
const FUTILE_MAX: u32 = 8;
/// What the tables of a process with one thread and few regions take, as the pager counts them.
const FIXED_BYTES: usize = (24 + 6 + 1) * PAGE_BYTES + SLOTS * size_of::<Sample>();
/// Store for each page of the trace: what it takes as it is, twice.
const STORE_PAGE_BYTES: u64 = 2 * 4104;

/// Which design, with how much memory.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Resident pages, pool and metadata together.
    pub budget_bytes: u64,
    /// The design and its parameters.
    pub settings: Settings,
    /// Where the codec stands among the trace's.
    pub column: usize,
    /// The same of the denser codec, if the design has one and the trace its sizes.
    pub dense_column: Option<usize>,
    /// The same of the second codec.
    pub repeats_column: Option<usize>,
    /// What the store is on.
    pub disk: Disk,
}

/// An engine and the memory that it manages.
pub struct Compressed<'a> {
    layout: &'a Layout,
    engine: Engine<Arena, DiskBlocks, Lengths>,
    blocks: DiskBlocks,
    design: Design,
    /// Where the last fault was.
    region: Range<PageNumber>,
    ahead: Ahead,
    /// What else compresses pages, and where it stands among `sizes`.
    others: [Option<(CodecId, usize)>; 2],
    sizes: Sizes,
    /// Bytes of a page of zeros, should the codec get one.
    zeros_bytes: u16,
    /// How often each page was written.
    versions: Vec<u32>,
    budget_bytes: u64,
    /// Whether faults are served: the program came near its budget.
    is_managed: bool,
    resident_pages: u64,
    /// Pages on their way in, and the most that there ever were.
    incoming: Vec<LengthsPage>,
    incoming_pages_max: usize,
    outcome: Outcome,
}

/// All resident pages may leave.
struct Everything<'a> {
    layout: &'a Layout,
    resident_pages: u64,
}

impl Leavers for Everything<'_> {
    fn range(&self, from: PageNumber) -> Option<Range<PageNumber>> {
        (from < self.layout.end()).then(|| 0..self.layout.end())
    }

    fn may_leave(&self, _: PageNumber, _: u32) -> Result<(), PageNumber> {
        Ok(())
    }

    fn count(&self) -> u64 {
        self.resident_pages
    }
}

impl<'a> Compressed<'a> {
    /// An empty engine. `None` when there is no memory for it.
    ///
    /// The table of the store's clusters, 8 bytes for 256 KiB, and the sampler's, 32 KiB, are never
    /// given back: the engine takes what lives as long as the process.
    pub fn new(layout: &'a Layout, setup: &Setup) -> Option<Self> {
        let store_bytes = (layout.end() * STORE_PAGE_BYTES).max(64 * CLUSTER_BYTES as u64);
        let words = Clusters::words_for(store_bytes);
        let words: &'static [AtomicU64] =
            (0..words).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak();
        let blocks = DiskBlocks::new(setup.disk);
        let store =
            Store { blocks: blocks.clone(), clusters: Clusters::new(words).with_seal(SEAL) };
        let budget_bytes = setup.budget_bytes as usize;
        let mut design = Design::new(&setup.settings, budget_bytes);
        design.dense_codec = design.dense_codec.filter(|_| setup.dense_column.is_some());
        design.repeats_codec = design.repeats_codec.filter(|_| setup.repeats_column.is_some());
        let mut cache = Cache::new(Arena, &design, budget_bytes, Some(store))?;
        if let Some(codec) = design.dense_codec {
            cache.condense(Arena, codec, coding_ns)?;
        }
        cache.seek_repeats(coding_ns);
        let dense_at = 1;
        let repeats_at = dense_at + usize::from(setup.dense_column.is_some());
        let slots = vec![Sample::default(); SLOTS].leak();
        let sampler = Sampler::new(slots, setup.budget_bytes / PAGE_BYTES as u64 * 2);
        let mut engine = Engine::new(cache, &design, sampler, setup.budget_bytes);
        let read_ns = |bytes| setup.disk.read_ns + setup.disk.transfer_ns(bytes as u64);
        let expected = ReadTicks { page: read_ns(PAGE_BYTES), cluster: read_ns(CLUSTER_BYTES) };
        engine.expect_reads(expected);
        Some(Compressed {
            layout,
            engine,
            blocks,
            design,
            region: 0..0,
            ahead: Ahead::default(),
            others: [
                design.dense_codec.map(|codec| (codec, dense_at)),
                design.repeats_codec.map(|codec| (codec, repeats_at)),
            ],
            sizes: Sizes::new(
                layout.end(),
                [Some(setup.column), setup.dense_column, setup.repeats_column]
                    .into_iter()
                    .flatten()
                    .collect(),
            ),
            zeros_bytes: zeros_bytes(design.codec),
            versions: vec![0; layout.end() as usize],
            budget_bytes: setup.budget_bytes,
            is_managed: false,
            resident_pages: 0,
            incoming: vec![LengthsPage::empty(); BATCH_PAGES],
            incoming_pages_max: 0,
            outcome: Outcome::default(),
        })
    }

    /// Modelled time so far.
    fn now_ns(&self) -> u64 {
        self.blocks.set_own_ns(self.outcome.ledger.total_ns());
        self.blocks.now_ns()
    }

    fn identity(&self, page: PageNumber) -> Identity {
        Identity::new(page, self.versions[page as usize])
    }

    /// A page comes as it would without zpager.
    fn come_unmanaged(&mut self, page: PageNumber) {
        self.outcome.fresh_faults += 1;
        self.arrive(page, 0);
        self.note_peak();
        self.is_managed = is_near(self.held_bytes(), self.budget_bytes);
    }

    fn fault(&mut self, page: PageNumber) -> Result<(), Lost> {
        if !self.region.contains(&page) {
            self.region = self.layout.region(page);
        }
        let region = self.region.clone();
        let (first, most) = self.engine.window(&mut self.ahead, page, region);
        let Run { pages, is_fresh } = self.engine.run(first, most);
        let began = self.engine.fault_began(self.now_ns());
        self.make_room(pages);
        let came = match is_fresh {
            true => {
                self.outcome.fresh_faults += 1;
                self.outcome.ledger.fault(pages as u64);
                self.come_fresh(first..first + pages as u64, page);
                pages
            }
            false => self.swap_in(first, pages, began)?,
        };
        self.ahead.fetched(first, came);
        self.note_peak();
        Ok(())
    }

    /// Pages come as zeros, `wanted` among them, of which the trace says what it becomes.
    fn come_fresh(&mut self, pages: Range<PageNumber>, wanted: PageNumber) {
        for page in pages {
            self.arrive(page, 0);
            if page != wanted {
                self.sizes.come_as_zeros(page);
            }
        }
    }

    /// Brings back pages from `first` on; gives how many.
    fn swap_in(&mut self, first: PageNumber, pages: usize, began: u64) -> Result<usize, Lost> {
        self.incoming_pages_max = self.incoming_pages_max.max(pages);
        let (asked_ns, coding_began_ns) = (self.now_ns(), coding_ns());
        let incoming = &mut self.incoming[..pages];
        let came = self.engine.swap_in(first, incoming, true).map_err(|_| Lost { page: first })?;
        let coding_ns = coding_ns() - coding_began_ns;
        let read_ns = self.now_ns() - asked_ns;
        self.outcome.ledger.coding_ns += coding_ns;
        self.outcome.ledger.fault(came.reads.pages as u64);
        self.outcome.swapped_in_pages += came.reads.pages as u64;
        for (at, page) in (first..).take(came.reads.pages).enumerate() {
            if !self.incoming[at].may_be(self.identity(page), self.sizes.get(page, 0)) {
                return Err(Lost { page });
            }
            self.arrive(page, came.heats[at]);
        }
        if came.is_from_store() {
            self.outcome.spilled_faults += 1;
            self.engine.read_store(&came, read_ns + coding_ns);
        } else {
            self.outcome.compressed_hits += 1;
            self.engine.served(&came, began, self.now_ns());
        }
        Ok(came.reads.pages)
    }

    fn arrive(&mut self, page: PageNumber, heat: u8) {
        if self.engine.arrive(page, heat) {
            self.resident_pages += 1;
        }
    }

    /// A page is written, which it is told of by a fault if the store has it as it was: a trace does
    /// not say that it was not read before.
    #[inline]
    fn written(&mut self, page: PageNumber) {
        self.versions[page as usize] = self.versions[page as usize].wrapping_add(1);
        if self.engine.cache.index.get(page).is_protected() {
            self.outcome.ledger.write_fault();
            self.engine.written(page, COSTS.protect_call_ns);
        }
    }

    fn held_bytes(&self) -> u64 {
        let cache = &self.engine.cache;
        let own_bytes = FIXED_BYTES + self.incoming_pages_max * PAGE_BYTES;
        let own_bytes = own_bytes + self.engine.unused_bytes();
        let cache_bytes = cache.ram_bytes() + cache.metadata_bytes() + own_bytes;
        self.resident_pages * PAGE_BYTES as u64 + cache_bytes as u64
    }

    fn note_peak(&mut self) {
        self.outcome.peak_bytes = self.outcome.peak_bytes.max(self.held_bytes());
    }

    fn shares(&self) -> Shares {
        Shares {
            resident_bytes: self.resident_pages as usize * PAGE_BYTES,
            pool_bytes: self.engine.cache.ram_bytes(),
            raw_bytes: self.engine.cache.raw_bytes(),
            has_store: self.engine.cache.has_store(),
        }
    }

    /// Makes room for so many more resident pages, as far as that is possible.
    fn make_room(&mut self, pages: usize) {
        let mut futile = 0;
        for _ in 0..STEPS_MAX {
            let wanted_bytes = pages * PAGE_BYTES + self.engine.more_room_bytes();
            if self.held_bytes() + wanted_bytes as u64 <= self.budget_bytes {
                break;
            }
            let [step, instead] = self.engine.steps(&self.shares());
            let gave = self.take(step) || self.take(instead);
            futile = if gave { 0 } else { futile + 1 };
            if futile == FUTILE_MAX {
                break;
            }
        }
        self.engine.found_room();
    }

    /// Does a step; false when it gave nothing.
    fn take(&mut self, step: Step) -> bool {
        match step {
            Step::SwapOut => self.swap_out(),
            Step::Spill => self.spill(),
            Step::Nothing => false,
        }
    }

    fn swap_out(&mut self) -> bool {
        let mut victims = [0; LIFT_PAGES];
        let resident_pages = self.resident_pages;
        let everything = Everything { layout: self.layout, resident_pages };
        let count = self.engine.choose(&everything, &mut victims);
        let victims = &victims[..count];
        self.outcome.ledger.lift(victims);
        let mut departed = Departed::default();
        let mut left = count;
        let began_ns = self.now_ns();
        for &page in victims {
            if self.engine.drop_clean(page, &mut departed) {
                self.resident_pages -= 1;
                continue;
            }
            let identity = self.identity(page);
            let others =
                self.others.map(|other| other.map(|(codec, at)| (codec, self.sizes.get(page, at))));
            let leaving = &mut self.incoming[0];
            leaving.set(identity, self.sizes.get(page, 0), others, self.zeros_bytes);
            let heat = self.engine.cache.index.get(page).history().heat;
            let coding_began_ns = coding_ns();
            self.resident_pages -= 1;
            let mut placed = self.engine.swap_out(page, leaving, &mut departed);
            if placed == Placed::NoRoom && self.spill() {
                placed = self.engine.swap_out(page, &self.incoming[0], &mut departed);
            }
            self.outcome.ledger.coding_ns += coding_ns() - coding_began_ns;
            if placed == Placed::NoRoom {
                let emptied = self.engine.cache.index.set(page, Entry::ABSENT);
                debug_assert!(emptied, "clearing needs no room");
                self.arrive(page, heat);
                left -= 1;
            }
        }
        self.engine.left(&departed, self.now_ns() - began_ns);
        self.outcome.swapped_out_pages += departed.pages as u64;
        self.outcome.same_filled_pages += departed.same_filled as u64;
        self.outcome.incompressible_pages += departed.incompressible as u64;
        // What left for the store at once is counted there.
        self.engine.departed();
        left > 0
    }

    fn spill(&mut self) -> bool {
        let began_ns = self.now_ns();
        let raw_bytes = self.engine.cache.raw_bytes();
        let written = self.engine.spill();
        if let (Ok(pages), StoreLayout::Plain) = (written.outcome, self.design.layout) {
            let raw_pages = raw_bytes.saturating_sub(self.engine.cache.raw_bytes()) / PAGE_BYTES;
            let expand_ns = codec_costs(self.design.codec).decompress_ns;
            self.outcome.ledger.coding_ns += pages.saturating_sub(raw_pages) as u64 * expand_ns;
        }
        self.engine.spilled(&written, self.now_ns() - began_ns);
        written.outcome.is_ok()
    }
}

/// What a page of zeros shrinks to.
fn zeros_bytes(codec: CodecId) -> u16 {
    let mut scratch = vec![0; scratch_bytes(codec) + SCRATCH_ALIGN_BYTES];
    let start = scratch.as_ptr().align_offset(SCRATCH_ALIGN_BYTES);
    let length = compress(codec, &Page::ZERO, &mut [0; PAGE_BYTES], &mut scratch[start..]);
    length.unwrap_or(PAGE_BYTES) as u16
}

impl Memory for Compressed<'_> {
    #[inline]
    fn reference(&mut self, page: u64, reference: &Reference<'_>) -> Result<(), Lost> {
        self.outcome.references += 1;
        match self.engine.cache.index.get(page).is_resident() {
            true => self.outcome.resident_hits += 1,
            false if self.is_managed => self.fault(page)?,
            false => self.come_unmanaged(page),
        }
        if reference.is_written {
            self.written(page);
        }
        self.sizes.note(page, reference);
        Ok(())
    }

    fn release(&mut self, pages: Range<u64>) {
        let mut from = pages.start;
        while let Some(page) = self.engine.cache.index.next_known(from, pages.end) {
            if self.engine.cache.index.get(page).is_resident() {
                self.resident_pages -= 1;
            }
            self.engine.cache.forget(page);
            self.sizes.forget(page);
            from = page + 1;
        }
        self.engine.cache.index.release_absent(pages.start, pages.end);
    }

    fn outcome(&self) -> Outcome {
        self.outcome.with(self.blocks.traffic())
    }
}
