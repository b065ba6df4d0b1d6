//! Pages that relatives have too since a fork: one record in the store serves all of them.
//!
//! Each relative compresses such a page for itself, as the pool is its own, with a note of the name by which all of
//! them know it; where there are so many that RAM would not gain by that, it leaves for the store at once. Who is the
//! first to have it leave for the store tells where it lies ([`CommonPages`]). The others have it be there without a
//! write, whether it is in their pools by then or has just been lifted.
//!
//! Source: the swap cache of Linux (mm/swap_state.c), see [`CommonPages`].
//!
//! Invariants: what is found is held before anything else is done with it, so that its cluster lives on. Who gives a
//! page's name has compared its content. A page of the pool has its name in its note, and loses it when it leaves the
//! pool, however it does. No process has two pages of one name, so that it holds each record once.
//!
//! Bad for: pages that all relatives give at about the same time, which all of them write: a record is there for
//! others only once the write of its cluster has ended.

use zpager_codec::CodecId;
use zpager_policy::StoreLayout;
use zpager_pool::SpaceSource;
use zpager_store::{Blocks, CommonPage, CommonPages, CommonRecord, Place};

use super::{Cache, Placed};
use crate::coder::Coder;
use crate::entry::{Entry, PageNumber, State};

impl<M: SpaceSource + Copy, B: Blocks, C: Coder> Cache<M, B, C> {
    /// Has pages that relatives have too be looked up there, and be noted.
    pub fn know_common(&mut self, common: CommonPages<'static>) {
        self.common = common;
    }

    /// Has a resident page that leaves, and that relatives have by this name, be in the store alone, if one of them
    /// has put it there; false where none has, or the store fails at present.
    pub fn leave_for_common(&mut self, page: PageNumber, name: CommonPage) -> bool {
        debug_assert!(matches!(self.index.get(page).state(), State::Resident { .. }));
        if self.is_store_failing() {
            return false;
        }
        let Some((codec, place)) = self.hold_common(name) else { return false };
        self.enter(page, State::Spilled { codec, place });
        true
    }

    /// Has a resident page, that so many relatives have by this name that as many compressed copies would take as much
    /// as it does, leave for the store at once; `None` where the store does not take it, or it takes nothing in RAM, or
    /// the design has all pages go to the pool.
    pub fn spill_common(
        &mut self,
        page: PageNumber,
        contents: &C::Page,
        name: CommonPage,
    ) -> Option<Placed> {
        let has_way = self.rules.leaves_raw && self.rules.layout != StoreLayout::Plain;
        let may_leave = has_way && self.store.is_some() && self.pause.left == 0;
        if !may_leave || self.coding.fill::<C>(contents).is_some() {
            return None;
        }
        let coded = self.compress(contents);
        let (codec, bytes) = coded.unwrap_or((CodecId::Copy, C::raw(contents)));
        let place = self.leave_at_once(page, codec, bytes)?;
        self.tell(name, codec, place);
        Some(coded.map_or(Placed::Incompressible, |_| Placed::Compressed(codec, bytes.len())))
    }

    /// Notes the name by which relatives have a page that has just left. Where it is on its way to the store already
    /// they are told.
    pub fn name_common(&mut self, page: PageNumber, name: CommonPage) {
        let entry = self.index.get(page);
        match entry.state() {
            State::Compressed { .. } if !entry.has_note() => {
                let has_note = self.index.set_note(page, Entry::of_common(name));
                self.replace_entry(page, entry.with_note(has_note));
            }
            State::Spilled { codec, place } => self.tell(name, codec, place),
            _ => {}
        }
    }

    /// The name by which relatives have a page of the pool.
    pub fn common_name(&self, page: PageNumber) -> Option<CommonPage> {
        self.index.note(page).common()
    }

    /// Whether a page of the pool is in the store already, its own copy or that of a relative.
    pub(super) fn needs_no_write(&self, page: PageNumber) -> bool {
        let is_known = |name| self.common.find(name).is_some();
        self.index.get(page).has_note()
            && (self.pooled_copy(page).is_some() || self.common_name(page).is_some_and(is_known))
    }

    /// Has a page of the pool be in the store alone, if a relative has put it there; false where not.
    pub(super) fn leave_by_relative(&mut self, page: PageNumber) -> bool {
        let pooled = self.index.get(page);
        let name = if pooled.has_note() { self.common_name(page) } else { None };
        let Some((codec, place)) = name.and_then(|name| self.hold_common(name)) else {
            return false;
        };
        self.forget_note(page);
        self.leave_pool(pooled);
        self.enter(page, State::Spilled { codec, place });
        true
    }

    /// Tells relatives where a page is that has just left the pool, where it had a note.
    pub(super) fn tell_relatives(&mut self, page: PageNumber, codec: CodecId, place: Place) {
        if let Some(name) = self.common_name(page) {
            self.forget_note(page);
            self.tell(name, codec, place);
        }
    }

    /// Notes where a common page is, to which this cache has a reference.
    fn tell(&self, name: CommonPage, codec: CodecId, place: Place) {
        let Some(store) = &self.store else { return };
        let generation = store.clusters.generation(place.cluster());
        self.common.note(name, CommonRecord { place, kind: codec as u8, generation });
    }

    /// Takes a reference to the record of a common page, if a relative has put it into the store.
    fn hold_common(&mut self, name: CommonPage) -> Option<(CodecId, Place)> {
        let CommonRecord { place, kind, generation } = self.common.find(name)?;
        let codec = CodecId::try_from(kind).ok()?;
        let clusters = self.store.as_ref()?.clusters;
        if !clusters.hold(place.cluster(), generation) {
            return None;
        }
        self.held.add(place);
        self.writer.know_end(place);
        Some((codec, place))
    }
}
