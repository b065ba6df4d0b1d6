//! The word that says where a page is.
//!
//! ```text
//! bits 0..3   state
//! resident    3      whether it is write-protected      4      whether it may be part of a huge page
//!             8..24  turn of the clock at which it came in  24..56 frame  61..63 heat
//! clean       3..7   codec   7..54 place in the store       54..56 heat  56..64 turn at which it came in
//! same-filled 8..40  number of the value                    56..61 left  61..63 heat
//! compressed  3..7   codec   7..19 length - 1  20..56 handle  56..61 left  61..63 heat
//!             19     whether it is in the profit list          63     mark of its order
//!             by one of two states where the page is in the store as well, by the other where it is not
//! spilled     3..7   codec   7..60 place in the store
//! ```
//! Zero is a page that was never written or was given back by the program, so
//! that an index of fresh RAM is right as it is.

use zpager_codec::CodecId;
use zpager_policy::List;
use zpager_pool::Handle;
use zpager_store::{CommonPage, Place};

/// Number of a page of address space: its address over 4096.
pub type PageNumber = u64;

/// One page's entry in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Entry(u64);

/// What an entry says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Nothing is known: reads as zeros where the page is managed.
    Absent,
    /// In RAM, uncompressed, mapped by the program.
    Resident {
        /// Turn of the clock at which it came in, modulo 2^16.
        turn: u16,
        /// What the caller knows it by where it shares it with another process; 0 for none.
        frame: u32,
    },
    /// In RAM, uncompressed, mapped by the program, and in the store as it is: nobody has written it
    /// since it came from there, and nobody can without a fault.
    Clean {
        /// Turn of the clock at which it came in, modulo 2^8.
        turn: u8,
        /// What made the bytes in the store.
        codec: CodecId,
        /// Where they are, at a place of [`Entry::can_be_clean`].
        place: Place,
    },
    /// Every word is equal; kept here alone.
    SameFilled {
        /// Number of the value among the fills.
        fill: u32,
    },
    /// In the pool.
    Compressed {
        /// What made the bytes.
        codec: CodecId,
        /// How many bytes.
        len: usize,
        /// Where they are.
        handle: Handle,
    },
    /// In the store.
    Spilled {
        /// What made the bytes.
        codec: CodecId,
        /// Where they are, and how many.
        place: Place,
    },
}

/// What is remembered of a page while it is in RAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct History {
    /// When it left resident memory, modulo [`History::TIMES`], in units of the caller's.
    pub left: u8,
    /// How often it was wanted again soon, at most [`History::HEAT_MAX`].
    pub heat: u8,
}

impl History {
    /// Times that are told apart.
    pub const TIMES: u8 = 1 << (HEAT_AT - LEFT_AT);
    /// The hottest.
    pub const HEAT_MAX: u8 = 3;
}

const TAG_BITS: u32 = 3;
const RESIDENT: u64 = 1;
const SAME_FILLED: u64 = 2;
const COMPRESSED: u64 = 3;
const SPILLED: u64 = 4;
const CLEAN: u64 = 5;
/// Of a note: the page is one that relatives have too.
const COMMON: u64 = 6;
/// Compressed, and there is a note of it.
const NOTED: u64 = 7;
/// Bits of the tag by which resident pages, clean or not, are told from all others.
const IN_RAM_BITS: u64 = 3;
const PROTECTED: u64 = 1 << TAG_BITS;
const MAY_BE_HUGE: u64 = 1 << (TAG_BITS + 1);
const CODEC_AT: u32 = 3;
const LEN_AT: u32 = 7;
const LIST_AT: u32 = 19;
const PROFIT: u64 = 1 << LIST_AT;
const HANDLE_AT: u32 = 20;
const VALUE_AT: u32 = 8;
const FRAME_AT: u32 = 24;
const LEFT_AT: u32 = 56;
const HEAT_AT: u32 = 61;
const HISTORY: u64 = (1 << MARK_AT) - (1 << LEFT_AT);
const CLEAN_HEAT: u64 = (History::HEAT_MAX as u64) << CLEAN_HEAT_AT;
const MARK_AT: u32 = 63;
const MARK: u64 = 1 << MARK_AT;
const TURN_AT: u32 = 56;
const CLEAN_HEAT_AT: u32 = 54;

const _: () = assert!(CLEAN & IN_RAM_BITS == RESIDENT);
const _: () = assert!(SAME_FILLED & IN_RAM_BITS != RESIDENT);
const _: () = assert!(COMPRESSED & IN_RAM_BITS != RESIDENT);
const _: () = assert!(SPILLED & IN_RAM_BITS != RESIDENT);
const _: () = assert!(NOTED & IN_RAM_BITS != RESIDENT);
const _: () = assert!(CommonPage::BITS + TAG_BITS <= u64::BITS);
const _: () = assert!(HANDLE_AT + Handle::BITS <= LEFT_AT && LEN_AT + Place::BITS <= 64);

impl Entry {
    /// A page that reads as zeros.
    pub const ABSENT: Entry = Entry(0);

    /// The entry that says `state`.
    #[inline]
    pub fn new(state: State) -> Entry {
        Entry(match state {
            State::Absent => 0,
            State::Resident { turn, frame } => {
                RESIDENT | u64::from(turn) << VALUE_AT | u64::from(frame) << FRAME_AT
            }
            State::Clean { turn, codec, place } => {
                debug_assert!(Entry::can_be_clean(place));
                CLEAN
                    | (codec as u64) << CODEC_AT
                    | place.raw() << LEN_AT
                    | u64::from(turn) << TURN_AT
            }
            State::SameFilled { fill } => SAME_FILLED | u64::from(fill) << VALUE_AT,
            State::Compressed { codec, len, handle } => {
                COMPRESSED
                    | (codec as u64) << CODEC_AT
                    | (len as u64 - 1) << LEN_AT
                    | handle.raw() << HANDLE_AT
            }
            State::Spilled { codec, place } => {
                SPILLED | (codec as u64) << CODEC_AT | place.raw() << LEN_AT
            }
        })
    }

    /// What the entry says.
    #[inline]
    pub fn state(self) -> State {
        match self.tag() {
            RESIDENT => State::Resident {
                turn: (self.0 >> VALUE_AT) as u16,
                frame: (self.0 >> FRAME_AT) as u32,
            },
            CLEAN => State::Clean {
                turn: (self.0 >> TURN_AT) as u8,
                codec: self.codec(),
                place: Place::from_raw((self.0 & ((1 << CLEAN_HEAT_AT) - 1)) >> LEN_AT),
            },
            SAME_FILLED => State::SameFilled { fill: (self.0 >> VALUE_AT) as u32 },
            COMPRESSED | NOTED => State::Compressed {
                codec: self.codec(),
                len: ((self.0 >> LEN_AT) as usize & ((1 << (LIST_AT - LEN_AT)) - 1)) + 1,
                handle: Handle::from_raw((self.0 & ((1 << LEFT_AT) - 1)) >> HANDLE_AT),
            },
            SPILLED => {
                State::Spilled { codec: self.codec(), place: Place::from_raw(self.0 >> LEN_AT) }
            }
            _ => State::Absent,
        }
    }

    #[inline]
    fn codec(self) -> CodecId {
        let number = (self.0 >> CODEC_AT) as u8 & 0xf;
        CodecId::try_from(number).expect("an entry names a codec that exists")
    }

    /// Whether a resident page whose bytes lie at `place` has room for that in its entry: everywhere
    /// in the first 256 GiB of the store.
    pub fn can_be_clean(place: Place) -> bool {
        place.raw() >> (CLEAN_HEAT_AT - LEN_AT) == 0
    }

    /// The same entry with another history; of a page in the store, whose place takes the room, the same,
    /// or with the heat alone where it is clean.
    #[must_use]
    pub fn with_history(self, history: History) -> Entry {
        let heat = u64::from(history.heat.min(History::HEAT_MAX));
        match self.tag() {
            SPILLED => self,
            CLEAN => Entry(self.0 & !CLEAN_HEAT | heat << CLEAN_HEAT_AT),
            _ => {
                let left = u64::from(history.left % History::TIMES);
                Entry(self.0 & !HISTORY | left << LEFT_AT | heat << HEAT_AT)
            }
        }
    }

    /// What is remembered of the page: nothing unless it is in RAM.
    #[inline]
    pub fn history(self) -> History {
        match self.tag() {
            RESIDENT | SAME_FILLED | COMPRESSED | NOTED => History {
                left: (self.0 >> LEFT_AT) as u8 % History::TIMES,
                heat: (self.0 >> HEAT_AT) as u8 & History::HEAT_MAX,
            },
            CLEAN => History { left: 0, heat: (self.0 >> CLEAN_HEAT_AT) as u8 & History::HEAT_MAX },
            _ => History::default(),
        }
    }

    /// Where the bytes of a compressed page lie; `None` of another one.
    #[inline]
    pub(crate) fn handle(self) -> Option<Handle> {
        let raw = (self.0 & ((1 << LEFT_AT) - 1)) >> HANDLE_AT;
        matches!(self.tag(), COMPRESSED | NOTED).then(|| Handle::from_raw(raw))
    }

    /// The same entry of a compressed page, whose bytes lie at `handle` now.
    pub(crate) fn at(self, handle: Handle) -> Entry {
        let bits = ((1 << Handle::BITS) - 1) << HANDLE_AT;
        Entry(self.0 & !bits | handle.raw() << HANDLE_AT)
    }

    /// The same entry of a compressed page, of which there is a note, or is none.
    pub(crate) fn with_note(self, has_note: bool) -> Entry {
        debug_assert!(matches!(self.tag(), COMPRESSED | NOTED));
        let tag = if has_note { NOTED } else { COMPRESSED };
        Entry(self.0 & !((1 << TAG_BITS) - 1) | tag)
    }

    /// Whether the page is compressed, and a note says where it is in the store as well, or by which name relatives
    /// have it.
    #[inline]
    pub fn has_note(self) -> bool {
        self.tag() == NOTED
    }

    /// The note of a page that relatives have too.
    pub(crate) fn of_common(page: CommonPage) -> Entry {
        Entry(COMMON | page.raw() << TAG_BITS)
    }

    /// The name by which relatives have the page, where this is the note of such a one.
    pub(crate) fn common(self) -> Option<CommonPage> {
        if self.tag() == COMMON { CommonPage::from_raw(self.0 >> TAG_BITS) } else { None }
    }

    /// The same entry of a compressed page with the mark set or not.
    pub(crate) fn with_mark(self, mark: bool) -> Entry {
        Entry(if mark { self.0 | MARK } else { self.0 & !MARK })
    }

    /// Whether the entry of a compressed page has the mark.
    pub(crate) fn mark(self) -> bool {
        self.0 & MARK != 0
    }

    /// The same entry of a compressed page, counted to another list.
    pub(crate) fn with_list(self, list: List) -> Entry {
        match list {
            List::Expense => Entry(self.0 & !PROFIT),
            List::Profit => Entry(self.0 | PROFIT),
        }
    }

    /// What a compressed page is counted to: at first the expense list.
    pub(crate) fn list(self) -> List {
        if self.0 & PROFIT != 0 { List::Profit } else { List::Expense }
    }

    /// Whether the page is in RAM, uncompressed.
    #[inline]
    pub fn is_resident(self) -> bool {
        self.0 & IN_RAM_BITS == RESIDENT
    }

    /// Whether it is, and in no frame, and cannot be written without a fault: it is clean, or was.
    pub fn is_protected(self) -> bool {
        self.tag() == CLEAN || self.0 & (PROTECTED | (PROTECTED - 1)) == PROTECTED | RESIDENT
    }

    /// The same entry of a resident page that is not clean, write-protected or not.
    #[must_use]
    pub fn with_protection(self, protected: bool) -> Entry {
        debug_assert!(self.tag() == RESIDENT);
        Entry(if protected { self.0 | PROTECTED } else { self.0 & !PROTECTED })
    }

    /// The same entry of a resident page that is not clean, and may be part of a huge page or is none.
    #[must_use]
    pub fn with_doubt(self, may_be_huge: bool) -> Entry {
        debug_assert!(self.tag() == RESIDENT);
        Entry(if may_be_huge { self.0 | MAY_BE_HUGE } else { self.0 & !MAY_BE_HUGE })
    }

    /// Whether it is resident and was there before it was managed, so that the kernel may have it as
    /// a part of a huge page.
    #[inline]
    pub fn may_be_huge(self) -> bool {
        self.tag() == RESIDENT && self.0 & MAY_BE_HUGE != 0
    }

    /// The turn at which a resident page came in, if it is `now`; of a clean page one of the last 256.
    #[inline]
    pub fn arrival(self, now: u16) -> Option<u16> {
        match self.tag() {
            RESIDENT => Some((self.0 >> VALUE_AT) as u16),
            CLEAN => {
                let turn = (self.0 >> TURN_AT) as u8;
                Some(now.wrapping_sub(u16::from((now as u8).wrapping_sub(turn))))
            }
            _ => None,
        }
    }

    /// The frame of a resident page; 0 for none.
    #[inline]
    pub fn frame(self) -> u32 {
        match self.tag() {
            RESIDENT => (self.0 >> FRAME_AT) as u32,
            _ => 0,
        }
    }

    #[inline]
    fn tag(self) -> u64 {
        self.0 & ((1 << TAG_BITS) - 1)
    }

    /// Whether nothing is known of the page.
    #[inline]
    pub fn is_absent(self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn states() -> impl Strategy<Value = State> {
        let codec = prop::sample::select(CodecId::ALL.to_vec());
        prop_oneof![
            Just(State::Absent),
            (any::<u16>(), any::<u32>()).prop_map(|(turn, frame)| State::Resident { turn, frame }),
            any::<u32>().prop_map(|fill| State::SameFilled { fill }),
            (any::<u8>(), codec.clone(), 0u64..1 << (CLEAN_HEAT_AT - LEN_AT)).prop_map(
                |(turn, codec, raw)| State::Clean { turn, codec, place: Place::from_raw(raw) }
            ),
            (codec.clone(), 1usize..=4096, 0u64..1 << Handle::BITS).prop_map(
                |(codec, len, raw)| {
                    State::Compressed { codec, len, handle: Handle::from_raw(raw) }
                }
            ),
            (codec, 0u64..1 << Place::BITS)
                .prop_map(|(codec, raw)| State::Spilled { codec, place: Place::from_raw(raw) }),
        ]
    }

    proptest! {
        #[test]
        fn an_entry_says_what_was_put_in(state in states()) {
            prop_assert_eq!(Entry::new(state).state(), state);
        }

        #[test]
        fn a_mark_and_a_history_change_nothing_else(
            raw in 0u64..1 << Handle::BITS,
            moved in 0u64..1 << Handle::BITS,
            left in 0..History::TIMES,
            heat in 0..=History::HEAT_MAX,
            mark: bool,
            profit: bool,
        ) {
            let list = if profit { List::Profit } else { List::Expense };
            let [handle, moved] = [raw, moved].map(Handle::from_raw);
            let history = History { left, heat };
            let of = |handle| State::Compressed { codec: CodecId::Lz4, len: 4096, handle };
            let entry = Entry::new(of(handle)).with_history(History { left: !left, heat: !heat });
            let entry = entry.with_mark(!mark).with_history(history).with_list(list).with_mark(mark);
            let said = |entry: Entry| (entry.state(), entry.mark(), entry.history(), entry.list());
            prop_assert_eq!(said(entry), (of(handle), mark, history, list));
            let entry = entry.at(moved);
            prop_assert_eq!(said(entry), (of(moved), mark, history, list));
            let noted = entry.with_note(true);
            prop_assert_eq!(said(noted), said(entry));
            prop_assert!(noted.has_note() && !entry.has_note() && !noted.is_resident());
            prop_assert_eq!((noted.handle(), noted.with_note(false)), (entry.handle(), entry));
        }

        #[test]
        fn a_note_has_the_name_of_a_common_page(number in 1u64..1 << CommonPage::BITS) {
            let page = CommonPage::from_raw(number);
            let note = Entry::of_common(page.expect("a name"));
            prop_assert_eq!((note.common(), note.state()), (page, State::Absent));
            prop_assert!(!note.is_absent() && !note.is_resident() && note.handle().is_none());
        }

        #[test]
        fn a_spilled_page_has_none(raw in 0u64..1 << Place::BITS, left in 0..History::TIMES) {
            let state = State::Spilled { codec: CodecId::Copy, place: Place::from_raw(raw) };
            let entry = Entry::new(state).with_history(History { left, heat: 1 });
            prop_assert_eq!((entry.state(), entry.history()), (state, History::default()));
        }

        #[test]
        fn a_page_is_protected_where_it_is_said(turn: u16, frame: u32, heat in 0..=History::HEAT_MAX) {
            let state = State::Resident { turn, frame };
            let entry = Entry::new(state).with_history(History { left: 0, heat });
            let protected = entry.with_protection(true);
            prop_assert!(!entry.is_protected() && protected.is_protected());
            prop_assert_eq!((protected.state(), protected.history()), (state, entry.history()));
            prop_assert_eq!(protected.with_protection(false), entry);
            let doubted = protected.with_doubt(true);
            prop_assert!(!protected.may_be_huge() && doubted.may_be_huge() && doubted.is_protected());
            prop_assert_eq!((doubted.state(), doubted.history()), (state, entry.history()));
            prop_assert_eq!(doubted.with_doubt(false), protected);
        }

        #[test]
        fn only_resident_pages_are_protected(state in states()) {
            let entry = Entry::new(state);
            prop_assert_eq!(entry.is_protected(), matches!(state, State::Clean { .. }));
            prop_assert_eq!(entry.is_resident(), entry.arrival(0).is_some());
        }

        #[test]
        fn the_turn_and_the_heat_of_a_clean_page_are_known(
            turn: u16,
            age in 0u16..256,
            raw in 0u64..1 << (CLEAN_HEAT_AT - LEN_AT),
            heat in 0..=History::HEAT_MAX,
        ) {
            let state =
                State::Clean { turn: turn as u8, codec: CodecId::Copy, place: Place::from_raw(raw) };
            let clean = Entry::new(state).with_history(History { left: 9, heat: !heat });
            let clean = clean.with_history(History { left: 9, heat });
            prop_assert_eq!(clean.arrival(turn.wrapping_add(age)), Some(turn));
            prop_assert_eq!((clean.state(), clean.history()), (state, History { left: 0, heat }));
        }

        #[test]
        fn a_resident_page_has_a_history(turn: u16, frame: u32, heat in 0..=History::HEAT_MAX) {
            let history = History { left: 0, heat };
            let entry = Entry::new(State::Resident { turn, frame }).with_history(history);
            prop_assert_eq!((entry.state(), entry.history()), (State::Resident { turn, frame }, history));
        }
    }
}
