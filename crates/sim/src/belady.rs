//! The pseudo-design `belady`: what could be done if the future were known.
//!
//! Source: Belady, A study of replacement algorithms (1966): the page that is wanted last leaves
//! first. Here it does so twice, from resident memory into the pool and from the pool into the
//! store, with the same codec as the design it is compared with, no waste in the pool, and pages
//! of a write always together. With a fault come those neighbours in the same case that are
//! wanted before a page that is resident: they would have to come anyway.
//!
//! A share of the budget stays resident while something may be spilled, as in the engine. Which
//! share is best is not known beforehand: the caller tries [`SHARES`] and takes the best.
//!
//! Pages that are never wanted again leave first, but they are compressed and written as others
//! are: a real system cannot know that nobody will ask for them.
//!
//! Memory: eight bytes a reference for [`Future`], a quarter of a byte for each of the two sets.

use std::io::Read;
use std::ops::Range;

use zpager_codec::CodecId;
use zpager_store::CLUSTER_BYTES;

use crate::contents::{Size, Sizes};
use crate::cost::{COSTS, Disk, codec_costs, is_near};
use crate::disk::Arm;
use crate::outcome::Outcome;
use crate::replay::{Lost, Memory, ReplayError};
use crate::survey::{Layout, Survey};
use crate::times::Times;
use crate::trace::{Event, Reader, Reference, SIZE_MAX};

/// Shares of the budget that may stay resident, in parts of [`SHARE_PARTS`].
pub const SHARES: [u64; 6] = [1, 2, 4, 8, 12, 15];
/// See [`SHARES`].
pub const SHARE_PARTS: u64 = 16;

const PAGE_BYTES: u64 = 4096;
/// What is known of a page, in bytes.
const ENTRY_BYTES: u64 = 8;
/// Most pages that come with one fault.
const WINDOW_MAX: u64 = 64;
/// Soon is within as many references as this part of the resident pages. What comes much before it
/// is wanted sends away pages that would be missed, where waiting would find others to send.
const SOON_PART: u64 = 4;
/// Where no write ever ends, and how far reads are apart: they come from anywhere.
const FAR_BYTE: u64 = 1 << 61;
/// See [`FAR_BYTE`].
const APART_BYTES: u64 = 1 << 24;
/// Pages that are lifted together.
const LIFT_PAGES: u64 = 32;
/// A page that does not become shorter than this is kept raw.
const COMPRESSED_BYTES_MAX: u16 = 4096 * 15 / 16;

/// When each reference's page is referenced next.
#[derive(Debug)]
pub struct Future {
    /// Of each page, its first reference.
    first: Vec<u32>,
    /// Of each reference, the next one of its page; for the last one, the number of references plus
    /// the page's number, so that all are different.
    next: Vec<u32>,
    /// Of each reference, its page.
    page_at: Vec<u32>,
}

impl Future {
    /// Reads a trace of which the survey was taken.
    ///
    /// # Errors
    /// [`ReplayError`]; [`ReplayError::TooLong`] for four thousand million references or more.
    pub fn read(mut reader: Reader<impl Read>, survey: &Survey) -> Result<Self, ReplayError> {
        let never = |page: u64| u32::try_from(survey.references + page).ok();
        if never(survey.layout.end()).is_none() {
            return Err(ReplayError::TooLong);
        }
        let mut lookup = survey.layout.lookup();
        let mut last = vec![None; survey.layout.end() as usize];
        let mut future = Future {
            first: (0..survey.layout.end()).filter_map(never).collect(),
            next: Vec::with_capacity(survey.references as usize),
            page_at: Vec::with_capacity(survey.references as usize),
        };
        while let Some(event) = reader.next_event()? {
            let Event::Reference(reference) = event else { continue };
            let page = lookup.number(reference.page).ok_or(ReplayError::Changed)?;
            let now = future.next.len() as u32;
            match last[page as usize].replace(now) {
                Some(before) => future.next[before as usize] = now,
                None => future.first[page as usize] = now,
            }
            future.next.push(never(page).ok_or(ReplayError::TooLong)?);
            future.page_at.push(page as u32);
        }
        match future.next.len() as u64 == survey.references {
            true => Ok(future),
            false => Err(ReplayError::Changed),
        }
    }

    /// The page that is wanted at a time.
    fn page(&self, time: u32) -> u64 {
        match self.page_at.get(time as usize) {
            Some(page) => (*page).into(),
            None => u64::from(time) - self.page_at.len() as u64,
        }
    }

    /// One past the last time.
    fn end(&self) -> u32 {
        (self.page_at.len() + self.first.len()) as u32
    }
}

/// Where a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tier {
    Absent,
    Resident,
    SameFilled,
    /// In the pool, in so many bytes.
    Compressed(u16),
    /// In the store, in so many bytes.
    Spilled(u16),
}

/// Which codec, on what disk, with how much memory.
#[derive(Debug, Clone, Copy)]
pub struct Bound {
    /// Resident pages, pool and metadata together.
    pub budget_bytes: u64,
    /// Parts of the budget, of [`SHARE_PARTS`], that stay resident while something may be spilled.
    pub share: u64,
    /// What makes pages shorter; `None` for no pool.
    pub codec: Option<CodecId>,
    /// Where the codec stands among the trace's.
    pub column: usize,
    /// What the store is on.
    pub disk: Disk,
    /// Whether pages come ahead of their use.
    pub is_ahead: bool,
}

/// The memory of one who knows the future.
#[derive(Debug)]
pub struct Belady<'a> {
    layout: &'a Layout,
    future: &'a Future,
    bound: Bound,
    sizes: Sizes,
    tiers: Vec<Tier>,
    /// When each page is wanted next.
    wanted_at: Vec<u32>,
    /// The same of all that are resident, and of all in the pool.
    resident: Times,
    pooled: Times,
    /// Whether faults are served: the program came near its budget.
    is_managed: bool,
    resident_pages: u64,
    pool_bytes: u64,
    known_pages: u64,
    /// Bytes spilled since the last write, and where the next one begins.
    unwritten_bytes: u64,
    end_byte: u64,
    arm: Arm,
    outcome: Outcome,
}

impl<'a> Belady<'a> {
    /// Nothing resident.
    pub fn new(layout: &'a Layout, future: &'a Future, bound: Bound) -> Self {
        let columns = if bound.codec.is_some() { vec![bound.column] } else { Vec::new() };
        Belady {
            layout,
            future,
            bound,
            sizes: Sizes::new(layout.end(), columns),
            tiers: vec![Tier::Absent; layout.end() as usize],
            wanted_at: future.first.clone(),
            resident: Times::new(future.end()),
            pooled: Times::new(future.end()),
            is_managed: false,
            resident_pages: 0,
            pool_bytes: 0,
            known_pages: 0,
            unwritten_bytes: 0,
            end_byte: 0,
            arm: Arm::new(bound.disk),
            outcome: Outcome::default(),
        }
    }

    fn fault(&mut self, page: u64) {
        let is_fresh = self.tiers[page as usize] == Tier::Absent;
        let (first, end) = self.window(page, is_fresh);
        let entry_bytes = if is_fresh { ENTRY_BYTES } else { 0 };
        self.make_room((end - first) * (PAGE_BYTES + entry_bytes));
        self.outcome.ledger.fault(end - first);
        let mut read_bytes = 0;
        for came in first..end {
            read_bytes += self.take(came);
            self.arrive(came);
            if is_fresh && came != page {
                self.sizes.come_as_zeros(came);
            }
        }
        match (is_fresh, read_bytes) {
            (true, _) => self.outcome.fresh_faults += 1,
            (false, 0) => self.outcome.compressed_hits += 1,
            (false, bytes) => {
                self.outcome.spilled_faults += 1;
                self.read(bytes);
            }
        }
        self.outcome.swapped_in_pages += if is_fresh { 0 } else { end - first };
    }

    /// The pages around `page` that are in the same case and wanted soon, and before one that is
    /// resident.
    fn window(&self, page: u64, is_fresh: bool) -> (u64, u64) {
        let (mut first, mut end) = (page, page + 1);
        if !self.bound.is_ahead {
            return (first, end);
        }
        let soon = self.outcome.references + self.resident_pages / SOON_PART;
        let latest = self.resident.last().unwrap_or(0).min(soon as u32);
        let region = self.layout.region(page);
        let is_worth = |page: u64| {
            let tier = self.tiers[page as usize];
            tier != Tier::Resident
                && (tier == Tier::Absent) == is_fresh
                && self.wanted_at[page as usize] < latest
        };
        while end < region.end && end - first < WINDOW_MAX && is_worth(end) {
            end += 1;
        }
        while first > region.start && end - first < WINDOW_MAX && is_worth(first - 1) {
            first -= 1;
        }
        (first, end)
    }

    /// Takes a page out of its tier; gives the bytes that have to be read for it.
    fn take(&mut self, page: u64) -> u64 {
        let tier = std::mem::replace(&mut self.tiers[page as usize], Tier::Absent);
        match tier {
            Tier::Absent => self.known_pages += 1,
            Tier::Resident | Tier::SameFilled => {}
            Tier::Compressed(bytes) => {
                self.pooled.remove(self.wanted_at[page as usize]);
                self.pool_bytes -= u64::from(bytes);
                self.decompress(bytes);
            }
            Tier::Spilled(bytes) => {
                self.decompress(bytes);
                return bytes.into();
            }
        }
        0
    }

    fn decompress(&mut self, bytes: u16) {
        let Some(codec) = self.bound.codec else { return };
        let codec = if bytes == SIZE_MAX { CodecId::Copy } else { codec };
        self.outcome.ledger.coding_ns += codec_costs(codec).decompress_ns;
    }

    fn arrive(&mut self, page: u64) {
        self.tiers[page as usize] = Tier::Resident;
        self.resident.insert(self.wanted_at[page as usize]);
        self.resident_pages += 1;
        self.outcome.peak_bytes = self.outcome.peak_bytes.max(self.held_bytes());
    }

    fn held_bytes(&self) -> u64 {
        self.resident_pages * PAGE_BYTES + self.pool_bytes + self.known_pages * ENTRY_BYTES
    }

    fn make_room(&mut self, bytes: u64) {
        let Bound { budget_bytes, share, .. } = self.bound;
        while self.held_bytes() + bytes > budget_bytes {
            let has_few = self.resident_pages * PAGE_BYTES * SHARE_PARTS < budget_bytes * share;
            let gave = match has_few {
                true => self.spill() || self.swap_out(),
                false => self.swap_out() || self.spill(),
            };
            if !gave {
                break;
            }
        }
    }

    /// Swaps out the resident page that is wanted last; lifting it is counted as if it were one of a batch.
    fn swap_out(&mut self) -> bool {
        let Some(time) = self.resident.last() else { return false };
        self.resident.remove(time);
        self.resident_pages -= 1;
        let page = self.future.page(time);
        self.outcome.swapped_out_pages += 1;
        self.outcome.ledger.moving_ns += COSTS.lift_call_ns / LIFT_PAGES + COSTS.lift_page_ns;
        self.tiers[page as usize] = match self.bound.codec {
            Some(codec) => self.compress(page, time, codec),
            None => self.write(SIZE_MAX),
        };
        true
    }

    fn compress(&mut self, page: u64, time: u32, codec: CodecId) -> Tier {
        let size = self.sizes.get(page, 0);
        if size == Size::SameFilled {
            self.outcome.same_filled_pages += 1;
            return Tier::SameFilled;
        }
        self.outcome.ledger.coding_ns += codec_costs(codec).compress_ns;
        match size {
            Size::Bytes(bytes) if bytes <= COMPRESSED_BYTES_MAX => {
                self.pool_bytes += u64::from(bytes);
                self.pooled.insert(time);
                Tier::Compressed(bytes)
            }
            // RAM gains nothing by holding it so.
            _ => {
                self.outcome.incompressible_pages += 1;
                self.write(SIZE_MAX)
            }
        }
    }

    /// Writes the page of the pool that is wanted last to the store.
    fn spill(&mut self) -> bool {
        let Some(time) = self.pooled.last() else { return false };
        self.pooled.remove(time);
        let page = self.future.page(time);
        if let Tier::Compressed(bytes) = self.tiers[page as usize] {
            self.pool_bytes -= u64::from(bytes);
            self.tiers[page as usize] = self.write(bytes);
        }
        true
    }

    /// The program gave a page back.
    fn forget(&mut self, page: u64) {
        let wanted_at = self.wanted_at[page as usize];
        match std::mem::replace(&mut self.tiers[page as usize], Tier::Absent) {
            Tier::Absent => return,
            Tier::Resident => {
                self.resident.remove(wanted_at);
                self.resident_pages -= 1;
            }
            Tier::Compressed(bytes) => {
                self.pooled.remove(wanted_at);
                self.pool_bytes -= u64::from(bytes);
            }
            Tier::SameFilled | Tier::Spilled(_) => {}
        }
        self.known_pages -= 1;
        self.sizes.forget(page);
    }

    /// Counts a write for every full cluster.
    fn write(&mut self, bytes: u16) -> Tier {
        self.unwritten_bytes += u64::from(bytes);
        if self.unwritten_bytes >= CLUSTER_BYTES as u64 {
            self.arm.set_own_ns(self.outcome.ledger.total_ns());
            self.arm.begin_write(self.end_byte, self.unwritten_bytes);
            self.end_byte += self.unwritten_bytes;
            self.unwritten_bytes = 0;
        }
        Tier::Spilled(bytes)
    }

    /// One read for all pages of a fault, of the blocks that they fill, from anywhere.
    fn read(&mut self, bytes: u64) {
        self.arm.set_own_ns(self.outcome.ledger.total_ns());
        let offset_bytes = FAR_BYTE + self.arm.traffic.reads * APART_BYTES;
        self.arm.read(offset_bytes, bytes.next_multiple_of(PAGE_BYTES));
    }
}

impl Memory for Belady<'_> {
    #[inline]
    fn reference(&mut self, page: u64, reference: &Reference<'_>) -> Result<(), Lost> {
        let now = self.outcome.references as usize;
        self.outcome.references += 1;
        match self.tiers[page as usize] {
            Tier::Resident => self.outcome.resident_hits += 1,
            _ if self.is_managed => self.fault(page),
            _ => {
                self.outcome.fresh_faults += 1;
                self.known_pages += 1;
                self.arrive(page);
                self.is_managed = is_near(self.held_bytes(), self.bound.budget_bytes);
            }
        }
        self.sizes.note(page, reference);
        self.resident.remove(now as u32);
        let next = self.future.next[now];
        self.wanted_at[page as usize] = next;
        self.resident.insert(next);
        Ok(())
    }

    fn release(&mut self, pages: Range<u64>) {
        pages.for_each(|page| self.forget(page));
    }

    fn outcome(&self) -> Outcome {
        let mut arm = self.arm.clone();
        if self.unwritten_bytes > 0 {
            arm.begin_write(self.end_byte, self.unwritten_bytes);
        }
        self.outcome.with(arm.traffic)
    }
}
