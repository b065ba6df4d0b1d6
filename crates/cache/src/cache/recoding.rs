//! Compressing a page once more when it leaves RAM for the store, by a codec that takes more time and
//! leaves fewer bytes.
//!
//! Source: [`zpager_policy::Recompression`], which decides where the user has not.
//!
//! A page whose denser form is shorter by an eighth leaves in that, and its entry names the codec, which it
//! keeps wherever it goes from there: back into a program, as a clean copy, to another cluster, back to the
//! pool of a full store. So may one that the pool's codec did not make shorter.
//!
//! Invariants: the denser codec has a scratch of its own, as codecs that keep their state there make
//! it anew after each other's use. Until a page is tried or read that scratch takes no RAM.
//!
//! Bad for: a small budget, of which the scratch takes a part; there pages are compressed once more
//! only if the user says so.

use zpager_codec::{CodecId, Corrupt, PAGE_BYTES, Page, scratch_bytes};
use zpager_policy::{Coded, Fetched, PageKind, Recompression, StoreCodec};
use zpager_pool::{Space, SpaceSource};
use zpager_store::{BLOCK_BYTES, Blocks, CLUSTER_BYTES};

use super::{Cache, SpillError, bytes_mut, outputs};
use crate::coder::Coder;

/// By itself it is done where the scratch takes at most this part of the pool's bound.
const SCRATCH_PART: usize = 256;
/// The part of its bytes that a page is shorter by, or else it is kept as it was.
const GAIN_PART: usize = 8;
/// The store is nearly full when it has less than this part of its clusters left.
const SCARCE_PART: u64 = 8;

/// The denser codec, and what it works in.
pub(super) struct Recoder<S> {
    pub(super) codec: CodecId,
    /// A page for what the codec writes, then its scratch.
    space: S,
    /// Whether pages that leave are compressed once more at all.
    recodes: bool,
    /// Decides where the user has not.
    rule: Option<Recompression>,
    /// The time, in ticks of any length.
    pub(super) ticks: fn() -> u64,
    /// Whether the space holds RAM.
    is_held: bool,
}

/// A page that is tried.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    kind: PageKind,
    began_ticks: u64,
}

/// What decodes a run of pages that come from the store.
pub(super) struct Decoder {
    scratch: &'static mut [u8],
    /// The denser codec, and its scratch.
    dense: Option<(CodecId, &'static mut [u8])>,
    /// The time, if it is to be known how long each codec takes.
    ticks: Option<fn() -> u64>,
    decoded_plain: Coded,
    decoded_dense: Coded,
    began_ticks: u64,
}

impl Decoder {
    /// As [`Coder::decompress`].
    pub(super) fn decode<C: Coder>(
        &mut self,
        codec: CodecId,
        data: &[u8],
        page: &mut C::Page,
    ) -> Result<(), Corrupt> {
        let began = self.now();
        let (scratch, decoded) = match &mut self.dense {
            Some((dense, scratch)) if *dense == codec => (scratch, &mut self.decoded_dense),
            _ => (&mut self.scratch, &mut self.decoded_plain),
        };
        let outcome = C::decompress(codec, data, page, scratch);
        decoded.pages += 1;
        decoded.ticks += self.ticks.map_or(0, |ticks| ticks().saturating_sub(began));
        outcome
    }

    fn now(&self) -> u64 {
        self.ticks.map_or(0, |ticks| ticks())
    }
}

impl<S: Space> Recoder<S> {
    /// One that does nothing by itself. `None` when `source` has no room.
    pub(super) fn idle<M: SpaceSource<Space = S>>(
        source: &M,
        codec: CodecId,
        ticks: fn() -> u64,
    ) -> Option<Self> {
        let space = source.reserve(PAGE_BYTES + scratch_bytes(codec))?;
        Some(Recoder { codec, space, recodes: false, rule: None, ticks, is_held: false })
    }

    /// The page that the codec writes to, and its scratch, which the caller is about to use.
    pub(super) fn parts(&mut self) -> (&'static mut [u8], &'static mut [u8]) {
        self.is_held = true;
        // SAFETY: the space is this cache's alone, and what is written there is used before the
        // next call.
        unsafe { parts(&self.space) }
    }

    /// RAM that it takes once it was used.
    pub(super) fn bytes(&self) -> usize {
        (PAGE_BYTES + scratch_bytes(self.codec)).next_multiple_of(BLOCK_BYTES)
    }

    /// RAM that it takes.
    pub(super) fn held_bytes(&self) -> usize {
        if self.is_held { self.bytes() } else { 0 }
    }

    /// Gives the space back if more than `bytes_max`.
    pub(super) fn trim(&mut self, bytes_max: usize) {
        if self.is_held && self.bytes() > bytes_max {
            self.space.release(0, self.space.bytes());
            self.is_held = false;
        }
    }

    /// Whether a page that leaves, of which `codec` has made so many bytes, is tried.
    pub(super) fn begin(&mut self, codec: CodecId, bytes: usize) -> Option<Attempt> {
        if !self.recodes || codec == self.codec {
            return None;
        }
        let kind = if codec == CodecId::Copy { PageKind::Raw } else { PageKind::Coded };
        let is_tried = self.rule.as_mut().is_none_or(|rule| rule.leaves(kind, bytes));
        is_tried.then(|| Attempt { kind, began_ticks: self.now().unwrap_or(0) })
    }

    /// What the codec makes of `page`, which would leave in so many bytes else, if that is shorter.
    pub(super) fn recode<C: Coder>(
        &mut self,
        attempt: Attempt,
        bytes: usize,
        page: &Page,
    ) -> Option<&'static [u8]> {
        let (output, scratch) = self.parts();
        let output = &mut output[..bytes - bytes.div_ceil(GAIN_PART)];
        let len = C::recompress(self.codec, page, output, scratch);
        if let Some(rule) = &mut self.rule {
            let ticks = (self.ticks)().saturating_sub(attempt.began_ticks);
            rule.tried(attempt.kind, bytes, len.unwrap_or(bytes), ticks);
        }
        len.map(|len| &output[..len])
    }

    /// The time, where it is to be known how long something takes.
    fn now(&self) -> Option<u64> {
        self.rule.map(|_| (self.ticks)())
    }
}

/// The page that a denser codec writes to, and its scratch.
///
/// # Safety
/// As [`bytes_mut`].
unsafe fn parts<'a>(space: &impl Space) -> (&'a mut [u8], &'a mut [u8]) {
    // SAFETY: the caller's promise.
    unsafe { bytes_mut(space, space.bytes()) }.split_at_mut(PAGE_BYTES)
}

impl<M: SpaceSource + Copy, B: Blocks, C: Coder> Cache<M, B, C> {
    /// Has pages that leave RAM for the store be compressed once more as `codec` says, nothing having
    /// left so far. `ticks` is the time, for [`StoreCodec::Auto`]. `pool_bytes_max` and `source` are those of
    /// [`Cache::new`]. `None` when `source` has no room, and nothing has changed.
    pub fn recompress(
        &mut self,
        source: M,
        codec: StoreCodec,
        pool_bytes_max: usize,
        ticks: fn() -> u64,
    ) -> Option<()> {
        let is_auto = codec == StoreCodec::Auto;
        let Some(codec) = codec.codec().filter(|_| self.store.is_some()) else { return Some(()) };
        if is_auto && pool_bytes_max < scratch_bytes(codec) * SCRATCH_PART {
            return Some(());
        }
        let mut recoder = Recoder::idle(&source, codec, ticks)?;
        recoder.recodes = true;
        recoder.rule = is_auto.then(|| {
            let mut rule = Recompression::default();
            rule.begin(ticks());
            rule
        });
        self.recoder = Some(recoder);
        Some(())
    }

    /// Writes the open batch, as [`super::Writer::finish`], and notes how long that was waited for.
    pub(super) fn finish_timed(&mut self) -> Result<(), SpillError> {
        let store = self.store.as_ref().ok_or(SpillError::NoStore)?;
        let began = self.recoder.as_ref().and_then(Recoder::now);
        let finished = self.writer.finish(store).map_err(SpillError::Io);
        if let (Ok(Some((cluster, data))), Some(shelf), true) =
            (&finished, &mut self.shelf, self.shelves)
        {
            shelf.put(*cluster, data);
        }
        let finished = finished.map(drop);
        if let (Some(began), Some(recoder)) = (began, &mut self.recoder)
            && let Some(rule) = &mut recoder.rule
        {
            rule.wrote((recoder.ticks)().saturating_sub(began));
        }
        finished
    }

    /// Decides whether pages are compressed once more, if it is time to.
    pub(super) fn decide_recompression(&mut self) {
        let Some(store) = &self.store else { return };
        let Some(recoder) = &mut self.recoder else { return };
        let Some(rule) = recoder.rule.as_mut().filter(|rule| rule.is_due()) else { return };
        let bytes = (store.clusters.total_clusters() * CLUSTER_BYTES) as u64;
        let is_scarce = self.writer.end_bytes() > bytes - bytes / SCARCE_PART;
        rule.decide((recoder.ticks)(), is_scarce);
    }

    /// The denser form of a page that leaves as it is, if it has one and is tried.
    pub(super) fn recode_raw(&mut self, bytes: &[u8]) -> Option<(CodecId, &'static [u8])> {
        self.decide_recompression();
        let attempt = self.recoder()?.begin(CodecId::Copy, bytes.len())?;
        // SAFETY: the buffers are this cache's alone, and the page lies elsewhere.
        let [plain, _] = unsafe { outputs(&self.output) };
        C::expand(CodecId::Copy, bytes, plain, &mut []).ok()?;
        let recoder = self.recoder.as_mut()?;
        Some((recoder.codec, recoder.recode::<C>(attempt, bytes.len(), plain)?))
    }

    /// What compresses pages once more that leave for the store now.
    pub(super) fn recoder(&mut self) -> Option<&mut Recoder<M::Space>> {
        let keeps_buffers = self.keeps_buffers;
        self.recoder.as_mut().filter(|recoder| keeps_buffers || recoder.rule.is_none())
    }

    /// The scratch for what `codec` made.
    pub(super) fn scratch_of(&mut self, codec: CodecId) -> &'static mut [u8] {
        match &mut self.recoder {
            Some(recoder) if recoder.codec == codec => recoder.parts().1,
            _ => {
                self.has_coded = true;
                // SAFETY: the scratch is this cache's alone, and each caller uses it for itself.
                unsafe { bytes_mut(&self.scratch, self.scratch.bytes()) }
            }
        }
    }

    /// What decodes pages that come from the store now.
    pub(super) fn decoder(&self) -> Decoder {
        let recoder = self.recoder.as_ref();
        let now = recoder.and_then(Recoder::now);
        // SAFETY: the scratches are this cache's alone, and the caller uses no other meanwhile.
        let (scratch, dense) = unsafe {
            let dense = recoder.map(|recoder| (recoder.codec, parts(&recoder.space).1));
            (bytes_mut(&self.scratch, self.scratch.bytes()), dense)
        };
        Decoder {
            scratch,
            dense,
            ticks: recoder.filter(|_| now.is_some()).map(|recoder| recoder.ticks),
            decoded_plain: Coded::default(),
            decoded_dense: Coded::default(),
            began_ticks: now.unwrap_or(0),
        }
    }

    /// Notes what it decoded, with so many bytes of so many reads.
    pub(super) fn decoded(&mut self, decoder: &Decoder, reads: u32, bytes: usize) {
        let (plain, dense) = (decoder.decoded_plain, decoder.decoded_dense);
        self.has_coded |= plain.pages > 0;
        let Some(recoder) = &mut self.recoder else { return };
        recoder.is_held |= dense.pages > 0;
        if let Some(rule) = &mut recoder.rule {
            let passed_ticks = decoder.now().saturating_sub(decoder.began_ticks);
            let ticks = passed_ticks.saturating_sub(plain.ticks + dense.ticks);
            let fetched = Fetched { reads: reads.into(), bytes: bytes as u64, ticks };
            rule.came(fetched, plain, dense);
        }
    }
}
