//! What two codecs made of the same pages: a fast one, and one that leaves fewer bytes and takes more time;
//! and what is wanted of the latter.
//!
//! Older pages fade. Before some are known nothing is said.

/// The denser codec leaves pages shorter by this part at least, or is none.
const GAIN_PART: u64 = 8;
/// Pages of which both codecs made bytes before that says something, and from which on older ones
/// count half.
const TRIED_MIN: u64 = 16;
const TRIED_MAX: u64 = 256;

/// What is wanted of the denser codec at present.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Choice {
    /// It makes bytes of pages.
    pub is_dense: bool,
    /// Both codecs are tried with some.
    pub tries: bool,
}

/// Counts pages up to the next that both codecs are tried with.
#[derive(Debug, Clone, Copy, Default)]
pub struct Trials {
    untried: u32,
}

/// What a codec made of the pages that both were tried with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Made {
    /// Bytes of all of them.
    pub bytes: u64,
    /// Time that making bytes of them took, in the caller's unit.
    pub coding_ticks: u64,
    /// The same of making pages of the bytes, where that is measured.
    pub decoding_ticks: u64,
}

/// Pages that both codecs were tried with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tried {
    /// How many.
    pub pages: u64,
    /// The fast codec.
    pub fast: Made,
    /// The denser one.
    pub dense: Made,
}

impl Trials {
    /// Whether this page is the next: one in `every`, where that is wanted.
    pub fn is_next(&mut self, choice: Choice, every: u32) -> bool {
        self.untried += 1;
        let is_next = choice.tries && self.untried >= every;
        if is_next {
            self.untried = 0;
        }
        is_next
    }
}

impl Made {
    fn add(&mut self, more: Made) {
        self.bytes += more.bytes;
        self.coding_ticks += more.coding_ticks;
        self.decoding_ticks += more.decoding_ticks;
    }

    fn halve(&mut self) {
        let Made { bytes, coding_ticks, decoding_ticks } = self;
        for sum in [bytes, coding_ticks, decoding_ticks] {
            *sum /= 2;
        }
    }
}

impl Tried {
    /// Adds what else was tried; older pages count half once there are many.
    pub fn add(&mut self, more: Tried) {
        self.pages += more.pages;
        self.fast.add(more.fast);
        self.dense.add(more.dense);
        if self.pages > TRIED_MAX {
            self.pages /= 2;
            self.fast.halve();
            self.dense.halve();
        }
    }

    /// Whether enough pages were tried.
    pub(crate) fn is_known(&self) -> bool {
        self.pages >= TRIED_MIN
    }

    /// Whether it is known that the denser codec leaves pages no shorter.
    pub(crate) fn is_in_vain(&self) -> bool {
        let most_bytes = self.fast.bytes - self.fast.bytes / GAIN_PART;
        self.is_known() && self.dense.bytes > most_bytes
    }

    /// What so much of the denser codec's would be of the fast one's: bytes of pages, or pages of the
    /// same bytes the other way round.
    pub(crate) fn as_fast(&self, amount: u64) -> u64 {
        scale(amount, self.fast.bytes, self.dense.bytes)
    }

    /// What so much of the fast codec's would be of the denser one's.
    pub(crate) fn as_dense(&self, amount: u64) -> u64 {
        scale(amount, self.dense.bytes, self.fast.bytes)
    }

    /// What coding a page takes the denser codec longer.
    pub(crate) fn more_coding_ticks(&self) -> u64 {
        self.more_ticks(|made| made.coding_ticks)
    }

    /// The same of decoding one.
    pub(crate) fn more_decoding_ticks(&self) -> u64 {
        self.more_ticks(|made| made.decoding_ticks)
    }

    fn more_ticks(&self, ticks: impl Fn(&Made) -> u64) -> u64 {
        ticks(&self.dense).saturating_sub(ticks(&self.fast)) / self.pages.max(1)
    }
}

/// `amount` times one of two sums by the other; itself where nothing is known.
fn scale(amount: u64, times: u64, by: u64) -> u64 {
    let scaled = u128::from(amount) * u128::from(times);
    scaled.checked_div(u128::from(by)).map_or(amount, |scaled| scaled as u64)
}
