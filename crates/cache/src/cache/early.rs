//! What bringing pages back would read first of the store, so that it can be read before
//! ([`zpager_store::Early`]).
//!
//! Only reads are made early that bring what is wanted and no more: what lies in RAM on its way to the
//! store, or because it was read around, is not to be read at all, and what is read around is many pages'
//! affair.

use zpager_pool::SpaceSource;
use zpager_store::{Blocks, Early, Place};

use super::reading::RUN_MAX;
use super::{Cache, READ_BYTES};
use crate::coder::Coder;
use crate::entry::{PageNumber, State};
use zpager_codec::CodecId;

/// What was read early.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lent {
    pub(super) read: Option<(Early, &'static [u8])>,
    pub(super) was_used: bool,
}

impl<M: SpaceSource + Copy, B: Blocks, C: Coder> Cache<M, B, C> {
    /// Longest read of [`Cache::swap_in`], in bytes.
    pub const READ_BYTES: usize = READ_BYTES;

    /// What bringing back at most `most` pages from `first` on would read first into a buffer of
    /// `buffer_bytes`: the records of so many pages in a row, the first of those that are in the store.
    /// `None` where nothing would be read, or it does not pay to read it early.
    pub fn plan_read(&self, first: PageNumber, most: usize, buffer_bytes: usize) -> Option<Early> {
        let store = self.store.as_ref()?;
        let state = |at: usize| self.index.get(first + at as u64).state();
        let is_back = |at: &usize| {
            matches!(state(*at), State::Absent | State::Resident { .. } | State::Clean { .. })
        };
        let is_spilled = |at: &usize| matches!(state(*at), State::Spilled { .. });
        let at = (0..most).take_while(|at| !is_back(at)).find(is_spilled)?;
        let mut places = [Place::from_raw(0); RUN_MAX];
        let mut codecs = [CodecId::Copy; RUN_MAX];
        let (from, left) = (first + at as u64, (most - at).min(RUN_MAX));
        let count = self.spilled_run(from, left, &mut places, &mut codecs);
        let early = Early::of(store.clusters, &places[..count], buffer_bytes);
        let is_here = self.is_shelved(places[0])
            || self.writer.unwritten().any(|cluster| cluster == early.cluster());
        let end = early.end_in_cluster();
        let is_around =
            self.around_bytes > 0 && self.around_state.serves(store.clusters, early.cluster(), end);
        (!is_here && !is_around).then_some(early)
    }

    /// Has `data`, which was read early, be used for what is wanted until [`Cache::end_read`].
    pub fn begin_read(&mut self, early: Early, data: &'static [u8]) {
        self.lent = Lent { read: Some((early, data)), was_used: false };
    }

    /// Nothing was read early any more. Gives whether it was used.
    pub fn end_read(&mut self) -> bool {
        core::mem::take(&mut self.lent).was_used
    }
}
