//! What bringing pages back would read first of the store, so that it can be read before
//! ([`zpager_store::Early`]).
//!
//! What lies in RAM on its way to the store, or because it was read around, is not to be read at all. Whole
//! clusters are read around pages early only by who asks for that.

use zpager_pool::SpaceSource;
use zpager_store::{Blocks, CLUSTER_BYTES, Early, Expected, Place};

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
    /// It is used in place of a cluster that would be read around it by now.
    pub(super) is_enough: bool,
}

impl<M: SpaceSource + Copy, B: Blocks, C: Coder> Cache<M, B, C> {
    /// Longest read of [`Cache::swap_in`], in bytes.
    pub const READ_BYTES: usize = READ_BYTES;

    /// What bringing back at most `most` pages from `first` on would read first into a buffer of
    /// `buffer_bytes`: the records of so many pages in a row, the first of those that are in the store.
    /// `None` where nothing would be read, or it does not pay to read it early.
    pub fn plan_read(&self, first: PageNumber, most: usize, buffer_bytes: usize) -> Option<Early> {
        let state = |at: usize| self.index.get(first + at as u64).state();
        let is_back = |at: &usize| {
            matches!(state(*at), State::Absent | State::Resident { .. } | State::Clean { .. })
        };
        let is_spilled = |at: &usize| matches!(state(*at), State::Spilled { .. });
        let at = (0..most).take_while(|at| !is_back(at)).find(is_spilled)?;
        let (early, expected) = self.plan_at(first + at as u64, most - at, buffer_bytes)?;
        (expected == Expected::Alone).then_some(early)
    }

    /// As [`Cache::plan_read`] where `first` is in the store: what is read around it, too, as a cluster.
    pub fn plan_wide(&self, first: PageNumber, most: usize, buffer_bytes: usize) -> Option<Early> {
        let (early, expected) = self.plan_at(first, most, buffer_bytes)?;
        match expected {
            Expected::Copied => None,
            Expected::Alone => Some(early),
            Expected::Whole => {
                let clusters = self.store.as_ref()?.clusters;
                let start_bytes = early.cluster() as u64 * CLUSTER_BYTES as u64;
                let left_bytes = self.writer.end_bytes().checked_sub(start_bytes)?;
                let bytes = left_bytes.min(CLUSTER_BYTES as u64) as usize;
                let whole = Early::whole(clusters, early.cluster(), bytes);
                Some(if whole.contains(&early) { whole } else { early })
            }
        }
    }

    /// What the first read would be for pages from `first` on, which is in the store, and what would become
    /// of it. `None` where what is wanted lies in RAM on its way there.
    fn plan_at(
        &self,
        first: PageNumber,
        most: usize,
        buffer_bytes: usize,
    ) -> Option<(Early, Expected)> {
        let clusters = self.store.as_ref()?.clusters;
        let mut places = [Place::from_raw(0); RUN_MAX];
        let mut codecs = [CodecId::Copy; RUN_MAX];
        let count = self.spilled_run(first, most.min(RUN_MAX), &mut places, &mut codecs);
        let places = &places[..count];
        let first_place = *places.first()?;
        let early = Early::of(clusters, places, buffer_bytes);
        let is_here = self.is_shelved(first_place)
            || self.writer.unwritten().any(|cluster| cluster == early.cluster());
        let expected = match self.around_bytes {
            0 => Expected::Alone,
            _ => self.around_state.expect(clusters, early.cluster(), early.end_in_cluster()),
        };
        (!is_here).then_some((early, expected))
    }

    /// Has `data`, which was read early, be used for what is wanted until [`Cache::end_read`].
    pub fn begin_read(&mut self, early: Early, data: &'static [u8]) {
        self.lent = Lent { read: Some((early, data)), was_used: false, is_enough: false };
    }

    /// Notes that what [`Cache::plan_wide`] gave was read.
    pub fn note_wide(&mut self, early: &Early) {
        if self.around_bytes > 0 && !early.is_whole() {
            self.around_state.note_alone(early.cluster(), self.around_bytes / CLUSTER_BYTES);
        }
    }

    /// As [`Cache::begin_read`], for what [`Cache::plan_wide`] gave.
    pub fn begin_wide(&mut self, early: Early, data: &'static [u8]) {
        let is_enough = !early.is_whole();
        self.lent = Lent { read: Some((early, data)), was_used: false, is_enough };
    }

    /// Nothing was read early any more. Gives whether it was used.
    pub fn end_read(&mut self) -> bool {
        core::mem::take(&mut self.lent).was_used
    }
}
