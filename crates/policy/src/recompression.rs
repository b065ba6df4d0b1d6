//! Whether pages that leave RAM for the store are compressed once more, by a codec that takes more
//! time and leaves fewer bytes.
//!
//! That costs the codec's time for each page that leaves, and what its decoder takes longer for each
//! that comes back. It saves the time of the store that goes with bytes: waiting for writes; of reads
//! as long as they may be all, as more pages come with each; of short ones what the difference
//! between long and short ones says that bytes take. Both sides are measured as the program runs, in
//! ticks of the caller's, and compared over the same pages. Some pages in a row are always tried, so
//! that it is known what it would cost and save. A store that is nearly full is spared bytes whatever
//! the time.
//!
//! Pages that the pool's codec does not shrink are judged for themselves: pictures and sound become
//! shorter, and what is packed already does not. Of the store's time each kind has its part by bytes.
//!
//! Source: two tiers of which the one behind takes a denser codec: recompression in Linux's zram
//! (Documentation/admin-guide/blockdev/zram.rst). There the user decides when.
//!
//! Bad for: a disk that several processes wait for in turns, each of which knows its own waiting
//! alone; and a program whose pages come back one at a time from a disk that takes few orders and
//! many bytes, where it saves time with writes alone.

use zpager_codec::CodecId;

/// What compresses pages once more that leave RAM for the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StoreCodec {
    /// Nothing: they leave as they lie in the pool.
    #[default]
    None,
    /// [`StoreCodec::AUTO`], where it saves time or the store is nearly full ([`Recompression`]).
    Auto,
    /// This one, wherever it makes a page shorter by an eighth.
    Always(CodecId),
}

impl StoreCodec {
    /// The codec that [`StoreCodec::Auto`] means. Those that leave fewer bytes take more time for
    /// each byte less.
    pub const AUTO: CodecId = CodecId::Zstd;
    const AUTO_BYTE: u8 = u8::MAX;

    /// The codec that pages may be compressed with.
    pub fn codec(self) -> Option<CodecId> {
        match self {
            StoreCodec::None => None,
            StoreCodec::Auto => Some(Self::AUTO),
            StoreCodec::Always(codec) => Some(codec),
        }
    }

    /// A byte that says the same; 0 for none.
    pub fn to_byte(self) -> u8 {
        match self {
            StoreCodec::None => CodecId::Copy as u8,
            StoreCodec::Auto => Self::AUTO_BYTE,
            StoreCodec::Always(codec) => codec as u8,
        }
    }

    /// What [`StoreCodec::to_byte`] gave; `None` for any other byte.
    pub fn from_byte(byte: u8) -> Option<Self> {
        match (byte, CodecId::try_from(byte)) {
            (Self::AUTO_BYTE, _) => Some(StoreCodec::Auto),
            (_, Ok(CodecId::Copy)) => Some(StoreCodec::None),
            (_, Ok(codec)) => Some(StoreCodec::Always(codec)),
            (_, Err(_)) => None,
        }
    }
}

/// Pages that leave between two decisions.
const TERM_PAGES: u32 = 1024;
/// The first of a term are tried.
const TRIED_PAGES: u32 = 8;
/// Of terms in which it would by far not pay, one in so many has pages that are tried.
const FAR_TERMS: u32 = 8;
/// By far: it saves less than this part of what it costs.
const FAR_PART: u64 = 8;
/// It begins when it saves so much more than it costs, in parts of what it costs, and ends when less.
const MARGIN_PART: u64 = 4;
/// Reads of so many bytes are as long as they may be.
const LONG_READ_BYTES: u64 = 64 << 10;
/// So many pages that were tried, or came back, and later ones count for more.
const AGED_PAGES: u64 = 64;
/// What a page takes counts as so many times the mean at most: a program is stopped now and then, and
/// on a busy machine often. One that waits for a disk has the processor when it wants it.
const OUTLIER: u64 = 3;
/// A store that is to be spared at all is spared at least this part of the bytes.
const SPARED_PART: u64 = 16;

/// Which part of `whole` is `part`, in 1024th; `None` where there is no whole.
fn part_1024(part: u64, whole: u64) -> Option<u64> {
    part.saturating_mul(1024).checked_div(whole)
}

/// So many 1024th of a number.
fn times_1024(number: u64, parts_1024: u64) -> u64 {
    number.saturating_mul(parts_1024) / 1024
}

/// Pages that went through a codec, and how long that took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Coded {
    /// How many.
    pub pages: u64,
    /// Ticks for all of them.
    pub ticks: u64,
}

impl Coded {
    fn mean(self) -> Option<u64> {
        self.ticks.checked_div(self.pages)
    }

    fn add(&mut self, more: Coded) {
        let most =
            self.mean().map_or(u64::MAX, |mean| mean.max(1).saturating_mul(OUTLIER * more.pages));
        self.pages += more.pages;
        self.ticks += more.ticks.min(most);
    }

    /// The mean stays, of which later pages may change half, once there are many.
    fn age(&mut self) {
        if self.pages >= AGED_PAGES {
            self.pages /= 2;
            self.ticks /= 2;
        }
    }
}

/// Reads from a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fetched {
    /// How many.
    pub reads: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Ticks that were waited for them.
    pub ticks: u64,
}

impl Fetched {
    fn add(&mut self, more: Fetched) {
        self.reads += more.reads;
        self.bytes += more.bytes;
        self.ticks += more.ticks;
    }

    fn halve(&mut self) {
        self.reads /= 2;
        self.bytes /= 2;
        self.ticks /= 2;
    }
}

/// What a page is that leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageKind {
    /// What the pool's codec made of it.
    Coded,
    /// As it is: that codec did not shrink it.
    Raw,
}

/// Pages that left, their bytes in the pool, and those of them that were written.
#[derive(Debug, Clone, Copy, Default)]
struct Left {
    pages: u64,
    bytes: u64,
    written_bytes: u64,
}

impl Left {
    fn halve(&mut self) {
        self.pages /= 2;
        self.bytes /= 2;
        self.written_bytes /= 2;
    }
}

/// What became of pages that were tried.
#[derive(Debug, Clone, Copy, Default)]
struct Tried {
    pages: u64,
    /// Those that became shorter.
    won_pages: u64,
    before_bytes: u64,
    after_bytes: u64,
    /// Those that were timed.
    timed: Coded,
    /// Of pages that came back, how those were decoded that had been in the pool so, and the others.
    plain: Coded,
    dense: Coded,
}

impl Tried {
    fn age(&mut self) {
        if self.pages >= AGED_PAGES {
            self.pages /= 2;
            self.won_pages /= 2;
            self.before_bytes /= 2;
            self.after_bytes /= 2;
        }
        self.timed.age();
        self.plain.age();
        self.dense.age();
    }

    /// Which part of the bytes the denser codec saves, in 1024th.
    fn saved_1024(&self) -> u64 {
        let saved_bytes = self.before_bytes - self.after_bytes;
        part_1024(saved_bytes, self.before_bytes).unwrap_or(0)
    }

    /// What it costs to have so many pages leave by it, and so many come back.
    fn cost_ticks(&self, left_pages: u64, came_pages: u64) -> Option<u64> {
        let try_ticks = self.timed.mean()?;
        let dense_ticks = self.dense.mean().unwrap_or(try_ticks / 2);
        let decode_ticks = dense_ticks.saturating_sub(self.plain.mean().unwrap_or(0));
        let won_1024 = part_1024(self.won_pages, self.pages)?;
        let came_ticks = times_1024(came_pages.saturating_mul(decode_ticks), won_1024);
        Some(left_pages.saturating_mul(try_ticks).saturating_add(came_ticks))
    }
}

/// What went to the store and came from it; what is older than a term counts half, and so on.
#[derive(Debug, Clone, Copy, Default)]
struct Traffic {
    /// Time passed.
    ticks: u64,
    came_pages: u64,
    /// Writes, and how long they were waited for.
    writes: u64,
    write_ticks: u64,
    short_reads: Fetched,
    long_reads: Fetched,
}

impl Traffic {
    fn halve(&mut self) {
        let counts =
            [&mut self.ticks, &mut self.came_pages, &mut self.writes, &mut self.write_ticks];
        counts.into_iter().for_each(|count| *count /= 2);
        self.short_reads.halve();
        self.long_reads.halve();
    }

    /// The time that goes with bytes.
    fn elastic_ticks(&self) -> u64 {
        let (short, long) = (self.short_reads, self.long_reads);
        self.written_ticks()
            + long.ticks
            + short.ticks.min(times_1024(short.bytes, self.byte_ticks_1024()))
    }

    /// What writes cost: waiting for them, or else reads that wait behind them, as long as another
    /// read, where the disk has hardly time between.
    fn written_ticks(&self) -> u64 {
        let read_ticks = self.short_reads.ticks + self.long_reads.ticks;
        let reads = self.short_reads.reads + self.long_reads.reads;
        let mean_ticks = read_ticks.checked_div(reads).unwrap_or(0);
        let busy_1024 = part_1024(read_ticks, self.ticks).unwrap_or(0).min(1024);
        self.write_ticks.max(times_1024(self.writes.saturating_mul(mean_ticks), busy_1024))
    }

    /// What a byte more takes of a read, in 1024th of a tick.
    fn byte_ticks_1024(&self) -> u64 {
        let mean = |sum: Fetched| Some((sum.ticks.checked_div(sum.reads)?, sum.bytes / sum.reads));
        let (Some(short), Some(long)) = (mean(self.short_reads), mean(self.long_reads)) else {
            return 0;
        };
        let more_ticks = long.0.saturating_sub(short.0);
        part_1024(more_ticks, long.1.saturating_sub(short.1)).unwrap_or(0)
    }
}

/// Pages of one kind.
#[derive(Debug, Clone, Copy, Default)]
struct OfKind {
    /// What is older than a term counts half, and so on.
    left: Left,
    tried: Tried,
    is_on: bool,
    /// It would by far not pay.
    is_far: bool,
    /// Pages that left in this term.
    pages: u32,
}

impl OfKind {
    /// Decides for the next term, with what these pages took of the store's time, if none of them had been compressed
    /// once more, and how many came back.
    fn decide(&mut self, plain_ticks: u64, came_pages: u64, is_scarce: bool) {
        let saved_1024 = self.tried.saved_1024();
        let gain = times_1024(plain_ticks, saved_1024);
        let cost = self.tried.cost_ticks(self.left.pages, came_pages).unwrap_or(u64::MAX);
        let margin = if self.is_on { 0 } else { cost / MARGIN_PART };
        let spares = saved_1024 * SPARED_PART >= 1024;
        self.is_on = spares && (is_scarce || gain > cost.saturating_add(margin));
        self.is_far = !spares || gain < cost / FAR_PART;
    }
}

/// Decides it, term by term.
#[derive(Debug, Clone, Copy, Default)]
pub struct Recompression {
    traffic: Traffic,
    /// By [`PageKind`].
    kinds: [OfKind; 2],
    terms: u32,
    /// When the term began.
    began_ticks: u64,
}

impl Recompression {
    /// Whether a page that leaves now, and takes `bytes` in the pool, is tried.
    pub fn leaves(&mut self, kind: PageKind, bytes: usize) -> bool {
        let of_kind = &mut self.kinds[kind as usize];
        of_kind.left.pages += 1;
        of_kind.left.bytes += bytes as u64;
        of_kind.left.written_bytes += bytes as u64;
        of_kind.pages += 1;
        let is_sample = of_kind.pages <= TRIED_PAGES;
        of_kind.is_on || is_sample && (!of_kind.is_far || self.terms.is_multiple_of(FAR_TERMS))
    }

    /// Notes that it was, of `before` bytes became `after`, no more, in so many ticks.
    pub fn tried(&mut self, kind: PageKind, before: usize, after: usize, ticks: u64) {
        let of_kind = &mut self.kinds[kind as usize];
        let tried = &mut of_kind.tried;
        tried.pages += 1;
        tried.won_pages += u64::from(after < before);
        tried.before_bytes += before as u64;
        tried.after_bytes += after as u64;
        of_kind.left.written_bytes -= (before - after) as u64;
        // The first of a term finds the codec's tables and code out of the processor's caches, as
        // they would not be if all pages were tried.
        if of_kind.pages > 1 || of_kind.is_on {
            tried.timed.add(Coded { pages: 1, ticks });
        }
    }

    /// Notes a write that was waited for in so many ticks.
    pub fn wrote(&mut self, ticks: u64) {
        self.traffic.writes += 1;
        self.traffic.write_ticks += ticks;
    }

    /// Notes pages that came back with these reads: `plain` as they had been in the pool, `dense`
    /// from the denser codec, with the ticks that decoding took.
    pub fn came(&mut self, fetched: Fetched, plain: Coded, dense: Coded) {
        let traffic = &mut self.traffic;
        let is_long = fetched.bytes >= fetched.reads.max(1) * LONG_READ_BYTES;
        let reads = if is_long { &mut traffic.long_reads } else { &mut traffic.short_reads };
        reads.add(fetched);
        traffic.came_pages += plain.pages + dense.pages;
        for of_kind in &mut self.kinds {
            of_kind.tried.plain.add(plain);
            of_kind.tried.dense.add(dense);
        }
    }

    /// Whether enough pages have left for a decision.
    pub fn is_due(&self) -> bool {
        self.kinds.iter().map(|kind| kind.pages).sum::<u32>() >= TERM_PAGES
    }

    /// Decides for the next term. `is_scarce` says that the store is nearly full.
    pub fn decide(&mut self, now_ticks: u64, is_scarce: bool) {
        let traffic = &mut self.traffic;
        traffic.ticks += now_ticks.saturating_sub(self.began_ticks);
        let elastic_ticks = traffic.elastic_ticks();
        let sum = |of: fn(&Left) -> u64| self.kinds.iter().map(|kind| of(&kind.left)).sum::<u64>();
        let (pages, written_bytes) = (sum(|left| left.pages), sum(|left| left.written_bytes));
        for kind in &mut self.kinds {
            let part = |part, whole| part_1024(part, whole).unwrap_or(0);
            let plain_ticks = times_1024(elastic_ticks, part(kind.left.bytes, written_bytes));
            let came_pages = times_1024(traffic.came_pages, part(kind.left.pages, pages));
            kind.decide(plain_ticks, came_pages, is_scarce);
            kind.left.halve();
            kind.tried.age();
        }
        traffic.halve();
        self.begin(now_ticks);
    }

    /// Begins a term.
    pub fn begin(&mut self, now_ticks: u64) {
        self.began_ticks = now_ticks;
        self.kinds.iter_mut().for_each(|kind| kind.pages = 0);
        self.terms = self.terms.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store and a program, in ns: what is waited for.
    #[derive(Clone, Copy)]
    struct Setting {
        kind: PageKind,
        /// Each read or write, and each byte of it.
        order_ns: u64,
        byte_ps: u64,
        /// What the program does between, for each page.
        work_ns: u64,
        /// Bytes of a page in the pool, and by the denser codec.
        page_bytes: u64,
        dense_bytes: u64,
        /// Pages that come with a read, if they fit it; 0 where none come back.
        together: u64,
        /// Whether writes are waited for.
        waits: bool,
    }

    const CLUSTER_BYTES: u64 = 256 << 10;
    const TRY_NS: u64 = 15_000;
    const DENSE_NS: u64 = 6000;
    const PLAIN_NS: u64 = 1000;

    /// An NVMe disk, and a heap.
    const FAST: Setting = Setting {
        kind: PageKind::Coded,
        order_ns: 80_000,
        byte_ps: 500,
        work_ns: 5000,
        page_bytes: 1600,
        dense_bytes: 1000,
        together: 8,
        waits: true,
    };

    /// How many of the pages that left were tried, in ten thousand.
    fn tried_of_ten_thousand(rule: &mut Recompression, setting: Setting, scarce: bool) -> u64 {
        let mut now = 0;
        let (mut tried, mut open_bytes, mut to_come) = (0, 0, 0);
        for _ in 0..100_000 {
            if rule.is_due() {
                rule.decide(now, scarce);
            }
            now += setting.work_ns;
            let tries = rule.leaves(setting.kind, setting.page_bytes as usize);
            let mut bytes = setting.page_bytes;
            if tries {
                rule.tried(setting.kind, bytes as usize, setting.dense_bytes as usize, TRY_NS);
                bytes = setting.dense_bytes;
                (tried, now) = (tried + 1, now + TRY_NS);
            }
            open_bytes += bytes;
            if open_bytes >= CLUSTER_BYTES {
                let taken_ns = setting.order_ns + CLUSTER_BYTES * setting.byte_ps / 1000;
                open_bytes -= CLUSTER_BYTES;
                rule.wrote(if setting.waits { taken_ns } else { 1000 });
                now += if setting.waits { taken_ns } else { 1000 };
            }
            to_come += 1;
            let together = setting.together.min(CLUSTER_BYTES / bytes);
            if together > 0 && to_come >= together {
                to_come -= together;
                let read_bytes = together * bytes;
                let ticks = setting.order_ns + read_bytes * setting.byte_ps / 1000;
                let (plain, dense) = if tries { (0, together) } else { (together, 0) };
                let coded = |pages, ns| Coded { pages, ticks: pages * ns };
                let fetched = Fetched { reads: 1, bytes: read_bytes, ticks };
                rule.came(fetched, coded(plain, PLAIN_NS), coded(dense, DENSE_NS));
                now += ticks + plain * PLAIN_NS + dense * DENSE_NS;
            }
        }
        tried / 10
    }

    fn tried(setting: Setting) -> u64 {
        tried_of_ten_thousand(&mut Recompression::default(), setting, false)
    }

    #[test]
    fn a_fast_disk_gets_pages_as_they_are() {
        assert!(tried(FAST) <= 20);
        assert!(tried(Setting { together: 0, ..FAST }) <= 20);
        assert!(tried(Setting { waits: false, ..FAST }) <= 20);
    }

    #[test]
    fn a_slow_disk_is_spared_bytes() {
        let slow = Setting { byte_ps: 100_000, ..FAST };
        assert!(tried(slow) >= 9800);
        assert!(tried(Setting { together: 0, ..slow }) >= 9800);
        // A hundred orders a second.
        let few = Setting { order_ns: 10_000_000, together: u64::MAX, ..FAST };
        assert!(tried(few) >= 9800);
        // Of writes that nobody waits for, but that reads wait behind.
        assert!(tried(Setting { waits: false, ..few }) >= 9800);
    }

    #[test]
    fn pages_that_come_one_at_a_time_do_not_pay_by_what_a_read_takes() {
        let far = Setting { order_ns: 1_000_000, together: 1, waits: false, ..FAST };
        assert!(tried(far) <= 200);
    }

    #[test]
    fn what_the_denser_codec_does_not_shrink_is_left_alone() {
        let random = Setting { byte_ps: 100_000, dense_bytes: 1600, ..FAST };
        assert!(tried(random) <= 20);
        let rule = &mut Recompression::default();
        assert!(tried_of_ten_thousand(rule, random, true) <= 20);
    }

    #[test]
    fn each_kind_is_judged_for_itself() {
        let slow = Setting { byte_ps: 100_000, ..FAST };
        let film = Setting { kind: PageKind::Raw, page_bytes: 4096, dense_bytes: 2600, ..slow };
        let packed = Setting { dense_bytes: 4096, ..film };
        let rule = &mut Recompression::default();
        assert!(tried_of_ten_thousand(rule, packed, false) <= 20);
        assert!(tried_of_ten_thousand(rule, slow, false) >= 9000);
        assert!(tried_of_ten_thousand(rule, packed, false) <= 20);
        assert!(tried_of_ten_thousand(rule, film, false) >= 8500);
        assert!(tried(Setting { byte_ps: FAST.byte_ps, ..film }) <= 20);
        let rule = &mut Recompression::default();
        assert!(tried_of_ten_thousand(rule, Setting { byte_ps: 0, ..film }, true) >= 9800);
    }

    #[test]
    fn a_store_that_is_nearly_full_is_spared_bytes() {
        let rule = &mut Recompression::default();
        assert!(tried_of_ten_thousand(rule, FAST, true) >= 9800);
        assert!(tried_of_ten_thousand(rule, FAST, false) <= 400);
    }

    #[test]
    fn a_disk_that_becomes_slow_or_fast_is_noticed() {
        let slow = Setting { byte_ps: 100_000, ..FAST };
        let rule = &mut Recompression::default();
        assert!(tried_of_ten_thousand(rule, FAST, false) <= 20);
        assert!(tried_of_ten_thousand(rule, slow, false) >= 9000);
        assert!(tried_of_ten_thousand(rule, FAST, false) <= 2500);
    }

    #[test]
    fn a_try_that_was_interrupted_weighs_little() {
        let slow = Setting { byte_ps: 100_000, ..FAST };
        let rule = &mut Recompression::default();
        assert!(tried_of_ten_thousand(rule, slow, false) >= 9800);
        assert!(rule.leaves(PageKind::Coded, 1600));
        rule.tried(PageKind::Coded, 1600, 1000, 60_000_000_000);
        assert!(tried_of_ten_thousand(rule, slow, false) >= 9800);
    }

    #[test]
    fn a_byte_says_it() {
        let all = CodecId::ALL.into_iter().skip(1).map(StoreCodec::Always);
        for codec in all.chain([StoreCodec::None, StoreCodec::Auto]) {
            assert_eq!(StoreCodec::from_byte(codec.to_byte()), Some(codec));
        }
        assert_eq!(StoreCodec::from_byte(0), Some(StoreCodec::None));
        assert_eq!(StoreCodec::from_byte(CodecId::ALL.len() as u8), None);
    }
}
