//! The way back: same-filled pages, decoded ones, and runs of records from the store.
//!
//! Source: cervera (1999), 3: only the blocks that hold a page are read; neighbours that were swapped out
//! together come in one read.
//!
//! Invariant: a page that came back is in no tier, unless its copy in the store is kept.

use zpager_codec::CodecId;
use zpager_pool::{Handle, Pool, SpaceSource};
use zpager_store::{Blocks, Place, ReadAround, ReadBehind, ReadEarly, ReadError, read_run};

use super::{Cache, Lost, READ_BYTES, Reads, bytes_mut, outputs};
use crate::coder::Coder;
use crate::entry::{PageNumber, State};

/// Most pages of one read.
pub(super) const RUN_MAX: usize = 64;

impl<M: SpaceSource + Copy, B: Blocks, C: Coder> Cache<M, B, C> {
    /// Brings back pages from `first` on into `pages`, as many as are swapped
    /// out in a row. What came back is no longer in any tier; its entry is the
    /// caller's to replace. With `keep` what came from the store may still be there: its entry says
    /// so, and the caller either write-protects the page and calls [`Cache::keep_copy`], or
    /// [`Cache::forget`].
    ///
    /// # Errors
    /// [`Lost`] when the first page cannot be had; it is then absent.
    pub fn swap_in(
        &mut self,
        first: PageNumber,
        pages: &mut [C::Page],
        keep: bool,
    ) -> Result<Reads, Lost> {
        let mut reads = Reads::default();
        while reads.pages < pages.len() {
            let at = reads.pages;
            let number = first + at as u64;
            if at + 1 < pages.len() {
                self.prefetch(number + 1);
            }
            match self.index.get(number).state() {
                State::Absent | State::Resident { .. } | State::Clean { .. } => break,
                State::SameFilled { fill } => {
                    let word = self.fills.value(fill);
                    C::fill(word, &mut pages[at]);
                }
                State::Compressed { codec, len, handle } => {
                    if self.decode_pooled(codec, len, handle, &mut pages[at]).is_err() {
                        return if at == 0 { Err(self.lose(number)) } else { Ok(reads) };
                    }
                    if keep && self.keep_pooled_copy(number) {
                        self.sweep_if_due(codec);
                        reads.pages += 1;
                        continue;
                    }
                }
                State::Spilled { .. } => {
                    match self.read_spilled(number, &mut pages[at..], &mut reads, keep) {
                        Ok(()) => continue,
                        Err(_) if at > 0 => return Ok(reads),
                        Err(lost) => {
                            self.forget(number);
                            return Err(lost);
                        }
                    }
                }
            }
            self.forget(number);
            reads.pages += 1;
        }
        Ok(reads)
    }

    /// Asks the processor for what the page will be decoded from, where that lies in the pool. Memory that has not been
    /// used for long takes 0.4 us to come, half of what decoding takes else.
    #[inline]
    pub fn prefetch(&self, number: PageNumber) {
        if let State::Compressed { handle, len, .. } = self.index.get(number).state() {
            self.pool.prefetch(handle, len);
        }
    }

    pub(super) fn lose(&mut self, number: PageNumber) -> Lost {
        self.forget(number);
        Lost::Corrupt
    }

    pub(super) fn decode_pooled(
        &mut self,
        codec: CodecId,
        len: usize,
        handle: Handle,
        page: &mut C::Page,
    ) -> Result<(), Lost> {
        let scratch = self.scratch_of(codec);
        // SAFETY: the output is this cache's alone.
        let [_, pieces] = unsafe { outputs(&self.output) };
        let data = self.pool.read(handle, len, &mut pieces.0);
        C::decompress(codec, data, page, scratch).map_err(|_| Lost::Corrupt)
    }

    /// Brings back the run of spilled pages that begins with `first`, in as few reads as it takes.
    pub(super) fn read_spilled(
        &mut self,
        first: PageNumber,
        pages: &mut [C::Page],
        reads: &mut Reads,
        keep: bool,
    ) -> Result<(), Lost> {
        let mut places = [Place::from_raw(0); RUN_MAX];
        let mut codecs = [CodecId::Copy; RUN_MAX];
        let count = self.spilled_run(first, pages.len().min(RUN_MAX), &mut places, &mut codecs);
        let is_shelved = self.is_shelved(places[0]);
        let mut decoder = self.decoder();
        let (reads_before, bytes_before) = (reads.reads, reads.read_bytes);
        let mut good = 0;
        let mut failure = None;
        self.read_records(&places[..count], reads, |at, outcome| {
            if failure.is_some() || at != good {
                return;
            }
            let decoded = outcome.map_err(lost).and_then(|data| {
                decoder.decode::<C>(codecs[at], data, &mut pages[at]).map_err(|_| Lost::Corrupt)
            });
            match decoded {
                Ok(()) => good += 1,
                Err(lost) => failure = Some(lost),
            }
        })?;
        let (reads_made, read_bytes) =
            (reads.reads - reads_before, reads.read_bytes - bytes_before);
        self.decoded(&decoder, reads_made, read_bytes);
        for (number, &place) in (first..).zip(&places[..good]) {
            if !keep || !self.may_keep(place) {
                self.forget(number);
            }
        }
        reads.pages += good;
        reads.count_stored(good, is_shelved);
        match failure {
            Some(lost) if good == 0 => Err(lost),
            _ => Ok(()),
        }
    }

    /// Reads records of one cluster, ascending, in as few reads as it takes, and hands each to `each`
    /// with its index.
    pub(super) fn read_records(
        &mut self,
        places: &[Place],
        reads: &mut Reads,
        each: impl FnMut(usize, Result<&[u8], ReadError>),
    ) -> Result<(), Lost> {
        let store = self.store.as_ref().ok_or(Lost::Corrupt)?;
        // SAFETY: the read buffer is this cache's alone.
        let buffer = unsafe { bytes_mut(&self.blocks, READ_BYTES) };
        let clusters = store.clusters;
        let shelved = places.first().and_then(|place| self.find_shelved(*place));
        if let Some(shelved) = shelved {
            let blocks = ReadBehind::new(&store.blocks, [Some(shelved), None]);
            read_run(&blocks, clusters, places, buffer, each);
            return Ok(());
        }
        let early = ReadEarly::new(&store.blocks, clusters, self.lent.read);
        let is_around = self.around_bytes > 0 && !self.lent.is_enough;
        let transfer = match self.around.as_ref().filter(|_| is_around) {
            Some(around) => {
                // SAFETY: the space is this cache's alone.
                let around = unsafe { bytes_mut(around, self.around_bytes) };
                let (end_bytes, state) = (self.writer.end_bytes(), &mut self.around_state);
                let around = ReadAround::new(&early, clusters, end_bytes, around, state);
                // A cluster that is not written yet is not to be read around in.
                let blocks = self.writer.reading(&around);
                read_run(&blocks, clusters, places, buffer, each);
                around.transfer()
            }
            None => {
                let blocks = self.writer.reading(&early);
                read_run(&blocks, clusters, places, buffer, each)
            }
        };
        self.lent.was_used |= early.was_used();
        self.read_bytes_max = self.read_bytes_max.max(transfer.bytes.min(READ_BYTES));
        reads.reads += transfer.reads;
        reads.read_bytes += transfer.bytes;
        Ok(())
    }

    /// Collects neighbours that lie in one cluster in ascending order; gives how many.
    pub(super) fn spilled_run(
        &self,
        first: PageNumber,
        most: usize,
        places: &mut [Place; RUN_MAX],
        codecs: &mut [CodecId; RUN_MAX],
    ) -> usize {
        for at in 0..most {
            let State::Spilled { codec, place } = self.index.get(first + at as u64).state() else {
                return at;
            };
            let follows = |before: Place| before.cluster() == place.cluster() && before < place;
            if at > 0 && !follows(places[at - 1]) {
                return at;
            }
            places[at] = place;
            codecs[at] = codec;
        }
        most
    }

    /// What the cluster of a record is, where it is in RAM as well.
    pub(super) fn find_shelved(&self, place: Place) -> Option<(u32, &[u8])> {
        let data = self.shelf.as_ref()?.find(place.cluster())?;
        Some((place.cluster(), data))
    }

    pub(super) fn is_shelved(&self, place: Place) -> bool {
        self.find_shelved(place).is_some()
    }
}

pub(super) fn lost(error: ReadError) -> Lost {
    match error {
        ReadError::Io(errno) => Lost::Io(errno),
        ReadError::Corrupt => Lost::Corrupt,
    }
}
