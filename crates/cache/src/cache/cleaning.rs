//! Making room in the store: what is alive in its emptiest clusters is gathered
//! into one, and they are free.
//!
//! Source: cervera (1999), 3: cleaning, which there empties buffers of compressed
//! pages; and the cleaner of log-structured file systems (Rosenblum and
//! Ousterhout, 1992), which takes the emptiest segments first.
//!
//! It is done when the store would have to grow although less than half of what
//! this process holds of it is alive. Clusters in which a relative holds records
//! are left alone: they would not become free. Copies of clean pages are not worth a move: those in
//! the emptiest clusters are given up.
//!
//! A store that is full has no cluster to gather into. What is alive in its
//! emptiest one goes back to the pool then, and the next spill has that cluster. It is
//! told to be full only when each of its clusters lacks less than a page, or the pool has no place for
//! what would come back; that is tried ever more seldom then.
//!
//! Bad for: a program whose spilled pages all die at the same rate, where what is
//! gathered today dies tomorrow; it writes at most twice. A full store that is nearly all alive: for
//! each page that goes there up to a cluster is read and written, which is less bad than a program
//! that does not fit.

use zpager_codec::Page;
use zpager_pool::{Pool, Space, SpaceSource};
use zpager_store::{Batch, Blocks, CLUSTER_BYTES, Place, ReadError, read_run};

use super::reading::RUN_MAX;
use super::{
    Cache, PAGE_BYTES, READ_BYTES, SpillError, Store, WRITE_BYTES_MIN, bytes_mut, slice_mut,
};
use crate::coder::Coder;
use crate::entry::{Entry, PageNumber, State};
use crate::index::PAGE_NUMBER_END;

/// Classes of clusters by how much of them is alive, the emptiest first.
const CLASSES: usize = 64;
/// Classes whose clusters are gathered, up to half full, and those from which a full store is helped.
const GATHERED_CLASSES: usize = CLASSES / 2;
const RESTORED_CLASSES: usize = CLASSES - PAGE_BYTES * CLASSES / CLUSTER_BYTES;
/// Records in the emptiest clusters that one walk over the index finds.
const FOUND_MAX: usize = WRITE_BYTES_MIN / 16;
/// Tries not made after a walk found nothing, and at most after several in a row that were to help a full
/// store.
const FUTILE_PAUSE: u32 = 64;
const FULL_PAUSE_MAX: u32 = 4096;
/// At most this part of what is held is found with one walk.
const FOUND_PART: usize = 8;

/// What one cleaning moved, and read for it whether something was moved or not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Pages whose records were gathered or taken back.
    pub pages: usize,
    /// Reads from the store.
    pub reads: u32,
    /// Bytes read from the store.
    pub read_bytes: usize,
}

/// A record in one of the emptiest clusters, in the order of their places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Found {
    place: Place,
    page: PageNumber,
}

/// What was found and not yet moved.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    next: usize,
    end: usize,
    /// Tries to gather, and to help a full store, that are not made after nothing was found, as
    /// looking costs a walk.
    pauses: [u32; 2],
    /// The latter after the last walk for nothing; 0 after one that was not.
    last_full_pause: u32,
}

impl Waiting {
    /// Room for what is found.
    pub(super) const BYTES: usize = FOUND_MAX * size_of::<Found>();

    /// RAM that it takes now.
    pub(super) fn metadata_bytes(&self) -> usize {
        if self.end > 0 { Self::BYTES } else { 0 }
    }

    fn pause(&mut self, is_full: bool) -> &mut u32 {
        &mut self.pauses[usize::from(is_full)]
    }

    /// Begins the pause after a walk for nothing.
    fn begin_pause(&mut self, is_full: bool) {
        let mut pause = FUTILE_PAUSE;
        if is_full {
            pause = (self.last_full_pause * 2).clamp(FUTILE_PAUSE, FULL_PAUSE_MAX);
            self.last_full_pause = pause;
        }
        *self.pause(is_full) = pause;
    }
}

/// The clusters of a class.
#[derive(Clone, Copy, Default)]
struct Class {
    clusters: usize,
    records: usize,
    bytes: usize,
}

impl<M: SpaceSource + Copy, B: Blocks, C: Coder> Cache<M, B, C> {
    /// Whether so little of what is held of the store is alive that cleaning is worth a try.
    fn should_clean(&self) -> bool {
        let is_sparse = || self.held.is_sparse(self.writer.unfilled_bytes());
        self.store.is_some()
            && (self.rules.gathers && self.pause.left == 0 && is_sparse()
                || self.pause.is_of_full_store())
    }

    /// Gathers what is alive in the emptiest clusters into one, if the store would have to grow
    /// although much of it is dead; or takes it back into the pool, if the store is full. Nothing is lost where it fails.
    ///
    /// # Errors
    /// [`SpillError::Nothing`] when there is no need or nothing to gather, and nothing was moved; else as
    /// [`Cache::spill`].
    pub fn clean(&mut self, cleaned: &mut Cleaned) -> Result<(), SpillError> {
        if !self.should_clean() {
            return Err(SpillError::Nothing);
        }
        let pause = self.waiting.pause(self.pause.is_of_full_store());
        if *pause > 0 {
            *pause -= 1;
            return Err(SpillError::Nothing);
        }
        if !self.writer.fits(size_of::<Page>()) {
            self.finish_batch()?;
        }
        let batch = self.open_batch();
        if batch.is_some() && self.pause.is_of_full_store() {
            self.has_room_again();
            return Err(SpillError::Nothing);
        }
        // What was found is moved at once: much of it is dead when the store has to grow again.
        let mut outcome = self.move_found(batch, cleaned);
        if outcome == Err(SpillError::Nothing) {
            let grows_store = |batch: Batch| batch.start_bytes() >= self.writer.end_bytes();
            if batch.is_some_and(|batch| !grows_store(batch)) {
                return outcome;
            }
            match batch {
                // One cluster alone gives nothing that it does not take.
                Some(_) => self.find_emptiest(GATHERED_CLASSES, 2),
                None => self.find_emptiest(RESTORED_CLASSES, 1),
            }
            outcome = self.move_found(batch, cleaned);
        }
        if let Err(SpillError::Nothing | SpillError::Full) = outcome {
            self.waiting.begin_pause(batch.is_none());
            return Err(SpillError::Nothing);
        }
        if batch.is_none() {
            self.waiting.last_full_pause = 0;
        }
        outcome
    }

    /// Gathers what was found into the open batch, or takes it back where there is none. What that
    /// reads is counted in `cleaned` however it ends.
    fn move_found(
        &mut self,
        batch: Option<Batch>,
        cleaned: &mut Cleaned,
    ) -> Result<(), SpillError> {
        let mut outcome = Err(SpillError::Nothing);
        // Each turn passes over one record at least; all of a cluster's may be dead by now.
        while outcome == Err(SpillError::Nothing) && self.waiting.next < self.waiting.end {
            outcome = match batch {
                Some(_) => self.gather_alive(cleaned),
                None => self.restore(cleaned),
            };
        }
        if self.waiting.next == self.waiting.end && self.waiting.end > 0 {
            (self.waiting.next, self.waiting.end) = (0, 0);
            self.found.release(0, Waiting::BYTES);
        }
        outcome
    }

    fn found(&self) -> &'static mut [Found] {
        // SAFETY: the space is this cache's alone, and each caller uses it for itself.
        unsafe { slice_mut(&self.found, FOUND_MAX) }
    }

    /// Finds the records of the emptiest clusters of the first classes, if there are so many of them.
    fn find_emptiest(&mut self, classes: usize, least: usize) {
        (self.waiting.next, self.waiting.end) = (0, 0);
        if self.mark_emptiest(classes) >= least {
            let found = self.found();
            let mut at = 0;
            while let Some(page) = self.index.next_known(at, PAGE_NUMBER_END) {
                at = page + 1;
                match self.index.get(page).state() {
                    State::Spilled { place, .. }
                        if self.held.is_marked(place.cluster()) && self.waiting.end < FOUND_MAX =>
                    {
                        found[self.waiting.end] = Found { place, page };
                        self.waiting.end += 1;
                    }
                    State::Clean { place, .. } if self.held.is_marked(place.cluster()) => {
                        self.give_up(page);
                    }
                    _ => {}
                }
            }
            found[..self.waiting.end].sort_unstable();
            self.give_up_pooled_where(|cache, place| cache.held.is_marked(place.cluster()));
        }
        (0..self.held.end()).for_each(|cluster| self.held.set_mark(cluster, false));
    }

    /// The class of a cluster that can be cleaned.
    fn class(&mut self, cluster: u32, classes: usize) -> Option<usize> {
        let records = self.held.records(cluster);
        let references = self.store.as_ref()?.clusters.references(cluster);
        if records == 0 || records != references {
            return None;
        }
        let class = self.held.record_bytes(cluster) * CLASSES / CLUSTER_BYTES;
        (class < classes).then_some(class)
    }

    /// Marks the emptiest clusters, as many as one walk can find the records of; gives how many.
    fn mark_emptiest(&mut self, most: usize) -> usize {
        let mut classes = [Class::default(); CLASSES];
        for cluster in 0..self.held.end() {
            if let Some(class) = self.class(cluster, most) {
                classes[class].clusters += 1;
                classes[class].records += self.held.records(cluster) as usize;
                classes[class].bytes += self.held.record_bytes(cluster);
            }
        }
        let bytes_max = (self.held.clusters() * CLUSTER_BYTES / FOUND_PART).max(CLUSTER_BYTES);
        let (mut records, mut bytes, mut last) = (0, 0, CLASSES);
        for (class, sum) in classes.iter().enumerate() {
            records += sum.records;
            bytes += sum.bytes;
            if records > FOUND_MAX || bytes > bytes_max {
                // This class has more than there is room for: some of its clusters.
                records -= sum.records;
                bytes -= sum.bytes;
                last = class;
                break;
            }
        }
        let mut marked = 0;
        for cluster in 0..self.held.end() {
            let Some(class) = self.class(cluster, most) else { continue };
            if class > last {
                continue;
            }
            if class == last {
                records += self.held.records(cluster) as usize;
                bytes += self.held.record_bytes(cluster);
                if records > FOUND_MAX || bytes > bytes_max {
                    records -= self.held.records(cluster) as usize;
                    bytes -= self.held.record_bytes(cluster);
                    continue;
                }
            }
            self.held.set_mark(cluster, true);
            marked += 1;
        }
        marked
    }

    /// Moves what was found, as much as fits the open batch.
    fn gather_alive(&mut self, cleaned: &mut Cleaned) -> Result<(), SpillError> {
        // SAFETY: the buffer is this cache's alone.
        let read_buffer = unsafe { bytes_mut(&self.blocks, READ_BYTES) };
        let found = self.found();
        let before = cleaned.pages;
        loop {
            let mut run = [Found { place: Place::from_raw(0), page: 0 }; RUN_MAX];
            let room_bytes = CLUSTER_BYTES - self.writer.open_bytes();
            let taken = self.take_run(found, &mut run, room_bytes);
            if taken == 0 {
                break;
            }
            let store = self.store.as_ref().ok_or(SpillError::NoStore)?;
            let places: [Place; RUN_MAX] = core::array::from_fn(|at| run[at].place);
            let mut moved = [(0, Place::from_raw(0)); RUN_MAX];
            let mut count = 0;
            // What is alive in a cluster that is not written yet is not found.
            let (blocks, writer) = (&store.blocks, &mut self.writer);
            let each = |at: usize, data: Result<&[u8], ReadError>| {
                // What cannot be read stays where it is, to be told to the program that wants it.
                let place = data.ok().and_then(|data| writer.push(store, data).ok());
                if let Some(place) = place {
                    moved[count] = (run[at].page, place);
                    count += 1;
                }
            };
            let transfer = read_run(blocks, store.clusters, &places[..taken], read_buffer, each);
            cleaned.reads += transfer.reads;
            cleaned.read_bytes += transfer.bytes;
            cleaned.pages += count;
            moved[..count].iter().for_each(|&(page, place)| self.move_record(page, place));
        }
        if cleaned.pages == before {
            return Err(SpillError::Nothing);
        }
        if self.waiting.next < self.waiting.end {
            self.finish_batch()?;
        }
        Ok(())
    }

    /// Takes what is alive in one cluster back into the pool. [`SpillError::Full`]: that has no room for it.
    fn restore(&mut self, cleaned: &mut Cleaned) -> Result<(), SpillError> {
        // SAFETY: the buffer is this cache's alone.
        let read_buffer = unsafe { bytes_mut(&self.blocks, READ_BYTES) };
        let found = self.found();
        let before = cleaned.pages;
        let mut cluster = None;
        let mut has_room = true;
        while has_room {
            let mut run = [Found { place: Place::from_raw(0), page: 0 }; RUN_MAX];
            let next = found[..self.waiting.end].get(self.waiting.next);
            let is_next = next.is_some_and(|next| {
                *cluster.get_or_insert(next.place.cluster()) == next.place.cluster()
            });
            let taken = if is_next { self.take_run(found, &mut run, CLUSTER_BYTES) } else { 0 };
            if taken == 0 && !is_next {
                break;
            }
            let store = self.store.as_ref().ok_or(SpillError::NoStore)?;
            let places: [Place; RUN_MAX] = core::array::from_fn(|at| run[at].place);
            let mut back = [(0, Entry::ABSENT); RUN_MAX];
            let mut restored = 0;
            let transfer = read_run(
                &store.blocks,
                store.clusters,
                &places[..taken],
                read_buffer,
                |at, data| {
                    let Ok(data) = data else { return };
                    let page = run[at].page;
                    let State::Spilled { codec, .. } = self.index.get(page).state() else { return };
                    let Some(handle) = self.pool.insert(data) else {
                        has_room = false;
                        return;
                    };
                    let pooled = Entry::new(State::Compressed { codec, len: data.len(), handle });
                    back[restored] = (page, pooled);
                    restored += 1;
                },
            );
            cleaned.reads += transfer.reads;
            cleaned.read_bytes += transfer.bytes;
            for &(page, pooled) in &back[..restored] {
                cleaned.pages += usize::from(self.come_back(page, pooled));
            }
        }
        if cleaned.pages > before {
            self.has_room_again();
            Ok(())
        } else if has_room {
            Err(SpillError::Nothing)
        } else {
            // The others wait until the pool has: to find them again costs a walk.
            Err(SpillError::Full)
        }
    }

    /// The store is not full any more, and nobody needs to be told that it was.
    fn has_room_again(&mut self) {
        self.pause.left = 0;
        self.refused = self.refused.filter(|&error| error != SpillError::Full);
    }

    /// Has a spilled page's entry say that it is in the pool, where its bytes are already; false
    /// where there is no room in the order, and nothing has changed.
    fn come_back(&mut self, page: PageNumber, pooled: Entry) -> bool {
        let State::Compressed { codec, len, handle } = pooled.state() else { return false };
        let State::Spilled { place, .. } = self.index.get(page).state() else { return false };
        if !self.line_up(page, codec, len, handle) {
            self.pool.remove(handle, len);
            return false;
        }
        *self.pages_in_pool(codec) += 1;
        self.let_go(place);
        true
    }

    /// Takes records of one cluster that are where they were found, in at most `room_bytes`.
    fn take_run(&mut self, found: &[Found], run: &mut [Found], room_bytes: usize) -> usize {
        let (mut taken, mut bytes) = (0, 0);
        while self.waiting.next < self.waiting.end && taken < run.len() {
            let next = found[self.waiting.next];
            if taken > 0 && next.place.cluster() != run[0].place.cluster() {
                break;
            }
            let record_bytes = self.held.bytes_of(next.place);
            if bytes + record_bytes > room_bytes {
                break;
            }
            self.waiting.next += 1;
            let cluster = next.place.cluster();
            let is_there = matches!(
                self.index.get(next.page).state(),
                State::Spilled { place, .. } if place == next.place
            );
            let is_own = self.store.as_ref().is_some_and(|store: &Store<B>| {
                store.clusters.references(cluster) == self.held.records(cluster)
            });
            if is_there && is_own {
                run[taken] = next;
                taken += 1;
                bytes += record_bytes;
            }
        }
        taken
    }

    /// Has a page's entry say that its record lies at `to` now.
    fn move_record(&mut self, page: PageNumber, to: Place) {
        let State::Spilled { codec, place } = self.index.get(page).state() else { return };
        self.let_go(place);
        self.held.add(to);
        self.enter(page, State::Spilled { codec, place: to });
    }
}
