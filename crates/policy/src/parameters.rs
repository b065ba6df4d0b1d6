//! What can be set of each design, and what may be set: one table for the command line, its help,
//! the documentation and the settings that travel to the agent.
//!
//! Source: the papers, each in its own words. Where a paper leaves a number to the reader the
//! table says `ours`.
//!
//! A value is a number whatever its kind: bytes, percent, a count, the number of a name. So the
//! settings of a run are plain words that mean the same in every process ([`Settings::to_words`]).
//!
//! Invariant: a parameter stands in [`PARAMETERS`] at the place of its [`Key`], and its design is
//! the part of its name before the dot.

use zpager_codec::CodecId;

use crate::adaptive::Variant;
use crate::ahead::WINDOW_MAX;
use crate::designs::DesignId;
use crate::replacement::ResidentsRule;

/// The value of a parameter that is left to zpager.
pub const AUTO: u64 = u64::MAX;

/// The parameters, in the order of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the table says what each is")]
pub enum Key {
    CerveraCodec,
    CerveraCache,
    CerveraThreshold,
    CerveraVirtual,
    CerveraResidents,
    HpCodec,
    HpShare,
    HpBucket,
    HpResidents,
    CastroCodec,
    CastroCell,
    CastroVariant,
    CastroSwitch,
    CastroReleased,
    CastroDropped,
    CastroResidents,
    ZswapCodec,
    ZswapMaxPool,
    ZswapAcceptThreshold,
    ZswapSameFilled,
    ZswapMaxRatio,
    ZswapResidents,
    DefaultCodec,
    DefaultSplit,
    DefaultReadAhead,
    DefaultPointers,
    DefaultThreshold,
}

/// What values there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Bytes, from the first to the second.
    Bytes(u64, u64),
    /// Percent, from the first to the second, of what the third says.
    Percent(u64, u64, &'static str),
    /// A count, from the first to the second, of what the third says.
    Count(u64, u64, &'static str),
    /// One of these, in bytes.
    OneOf(&'static [u64]),
    /// On or off, 1 or 0.
    Switch,
    /// One of these names, by its place.
    Name(&'static [&'static str]),
    /// The name of a codec, by its number.
    Codec,
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    /// Which one it is.
    pub key: Key,
    /// By what name it is set: `design.parameter`.
    pub name: &'static str,
    /// What values there are.
    pub kind: Kind,
    /// Whether its value may be left to zpager.
    pub may_be_auto: bool,
    /// Its value where none was set.
    pub default: u64,
    /// What it is.
    pub meaning: &'static str,
    /// Where it comes from: paper and section.
    pub source: &'static str,
}

/// The value is not one of the parameter's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfRange;

const KIB: u64 = 1 << 10;
const GIB: u64 = 1 << 30;

const ON: u64 = 1;

const VARIANTS: &[&str] = &[Variant::ALL[0].name(), Variant::ALL[1].name(), Variant::ALL[2].name()];
const RESIDENTS: &[&str] =
    &[ResidentsRule::ALL[0].name(), ResidentsRule::ALL[1].name(), ResidentsRule::ALL[2].name()];

const RESIDENTS_MEANING: &str = "which resident pages leave";

/// A row without `auto`.
const fn row(
    key: Key,
    name: &'static str,
    kind: Kind,
    default: u64,
    meaning: &'static str,
    source: &'static str,
) -> Parameter {
    Parameter { key, name, kind, may_be_auto: false, default, meaning, source }
}

/// A row for what is `auto` where it is not set.
const fn auto(
    key: Key,
    name: &'static str,
    kind: Kind,
    meaning: &'static str,
    source: &'static str,
) -> Parameter {
    Parameter { key, name, kind, may_be_auto: true, default: AUTO, meaning, source }
}

const fn codec(key: Key, name: &'static str, default: CodecId, source: &'static str) -> Parameter {
    row(key, name, Kind::Codec, default as u64, "what compresses the pages", source)
}

const fn residents(key: Key, name: &'static str, source: &'static str) -> Parameter {
    let default = ResidentsRule::Lru as u64;
    row(key, name, Kind::Name(RESIDENTS), default, RESIDENTS_MEANING, source)
}

/// How many parameters there are.
pub const PARAMETERS_COUNT: usize = 27;

/// The table.
pub static PARAMETERS: [Parameter; PARAMETERS_COUNT] = [
    codec(Key::CerveraCodec, "cervera.codec", CodecId::Lzo, "cervera 3"),
    row(
        Key::CerveraCache,
        "cervera.cache",
        Kind::Bytes(64 * KIB, 64 * GIB),
        1024 * KIB,
        "size of the pool, which the program does not get",
        "cervera 3.6, 4.3: 256K to 4M on 64M",
    ),
    row(
        Key::CerveraThreshold,
        "cervera.threshold",
        Kind::Percent(1, 100, "the buffers"),
        50,
        "so many full buffers are written together",
        "cervera 3.4, 4.3: 1 to 70 %, best 10 to 20 %",
    ),
    row(
        Key::CerveraVirtual,
        "cervera.virtual",
        Kind::Percent(100, 10_000, "the store's blocks"),
        200,
        "most pages that may be swapped out, if there is a store limit",
        "cervera 3.6, 4.4",
    ),
    residents(
        Key::CerveraResidents,
        "cervera.residents",
        "the LRU of Linux 2.0, as far as it can be seen",
    ),
    codec(Key::HpCodec, "hp.codec", CodecId::Wk4x4, "hp 5"),
    row(
        Key::HpShare,
        "hp.share",
        Kind::Percent(0, 90, "the budget"),
        25,
        "size of the pool, which the program does not get",
        "hp 3, 5: 0 to 75 %, best 10 to 30 %",
    ),
    row(
        Key::HpBucket,
        "hp.bucket",
        Kind::OneOf(&[64, 128, 256, 512, 1024, 2048]),
        256,
        "bytes of the pieces in which compressed pages lie",
        "hp 3: 256",
    ),
    residents(Key::HpResidents, "hp.residents", "the LRU of Linux 2.2, as far as it can be seen"),
    codec(Key::CastroCodec, "castro.codec", CodecId::Lzo, "castro 4.3, 4.4: LZO, or WKdm for swap"),
    row(
        Key::CastroCell,
        "castro.cell",
        Kind::OneOf(&[1, 2, 4]),
        2,
        "neighbouring pages of a cell",
        "castro 2.3.3, 4.4",
    ),
    row(
        Key::CastroVariant,
        "castro.variant",
        Kind::Name(VARIANTS),
        Variant::Reference as u64,
        "reads in a row from the expense list before it locks and shrinks",
        "castro 3, 4.4; sluggish: ours, 4 and 6",
    ),
    row(
        Key::CastroSwitch,
        "castro.switch",
        Kind::Switch,
        ON,
        "stop compressing clean pages while they do not come back (--clean-cache)",
        "castro 2.3.4",
    ),
    row(
        Key::CastroReleased,
        "castro.released",
        Kind::Count(1, 1000, "pages"),
        8,
        "clean pages released for each one read back before that stops",
        "castro 2.3.4; the number is ours",
    ),
    row(
        Key::CastroDropped,
        "castro.dropped",
        Kind::Percent(1, 100, "the reads"),
        50,
        "reads of pages dropped lately before it starts again",
        "castro 2.3.4; the number is ours",
    ),
    residents(
        Key::CastroResidents,
        "castro.residents",
        "castro 2.3.2: the LRU of Linux 2.4, as far as it can be seen",
    ),
    codec(Key::ZswapCodec, "zswap.codec", CodecId::Lzo, "zswap patch: compressor"),
    row(
        Key::ZswapMaxPool,
        "zswap.max_pool_percent",
        Kind::Percent(0, 100, "the budget"),
        20,
        "most that the pool may hold",
        "zswap patch: max_pool_percent",
    ),
    row(
        Key::ZswapAcceptThreshold,
        "zswap.accept_threshold_percent",
        Kind::Percent(0, 100, "that most"),
        90,
        "to which a full pool shrinks before it takes pages again",
        "mm/zswap.c of Linux 5.7",
    ),
    row(
        Key::ZswapSameFilled,
        "zswap.same_filled",
        Kind::Switch,
        ON,
        "keep pages of one repeated word in the index alone",
        "mm/zswap.c of Linux 4.16",
    ),
    row(
        Key::ZswapMaxRatio,
        "zswap.max_compression_ratio",
        Kind::Percent(1, 100, "a page"),
        80,
        "a page of which more is left goes to the store as it is",
        "zswap patch: max_compression_ratio",
    ),
    residents(Key::ZswapResidents, "zswap.residents", "the LRU of Linux, as far as it can be seen"),
    auto(
        Key::DefaultCodec,
        "default.codec",
        Kind::Codec,
        "what compresses the pages; auto: the fastest here, lz4 and zstd where memory is short",
        "docs/codecs.md",
    ),
    auto(
        Key::DefaultSplit,
        "default.split",
        Kind::Percent(7, 93, "resident and compressed memory"),
        "what stays resident while there is a store; auto: by measured cost",
        "after castro 3",
    ),
    row(
        Key::DefaultReadAhead,
        "default.read_ahead",
        Kind::Count(1, WINDOW_MAX as u64, "pages"),
        WINDOW_MAX as u64,
        "most pages that come with one fault",
        "mm/readahead.c of Linux",
    ),
    row(
        Key::DefaultPointers,
        "default.pointers",
        Kind::Switch,
        ON,
        "read pages of the store to which pointers lead before they are wanted",
        "after Cooksey and others 2002",
    ),
    auto(
        Key::DefaultThreshold,
        "default.threshold",
        Kind::Percent(1, 100, "the pool's share"),
        "of more that is not in the store the oldest is written ahead of need; auto: of none",
        "after cervera 3.4",
    ),
];

impl Kind {
    /// Whether a value is one of them.
    pub fn admits(self, value: u64) -> bool {
        match self {
            Kind::Bytes(least, most)
            | Kind::Percent(least, most, _)
            | Kind::Count(least, most, _) => (least..=most).contains(&value),
            Kind::OneOf(values) => values.contains(&value),
            Kind::Switch => value <= ON,
            Kind::Name(names) => value < names.len() as u64,
            Kind::Codec => codec_of(value).is_some(),
        }
    }
}

fn codec_of(value: u64) -> Option<CodecId> {
    u8::try_from(value).ok().and_then(|number| CodecId::try_from(number).ok())
}

impl Parameter {
    /// The parameter that is called so.
    pub fn from_name(name: &str) -> Option<&'static Parameter> {
        PARAMETERS.iter().find(|parameter| parameter.name == name)
    }

    /// The parameters of one design, in the order of the table.
    pub fn of(design: DesignId) -> impl Iterator<Item = &'static Parameter> {
        PARAMETERS.iter().filter(move |parameter| parameter.design() == design)
    }

    /// The design that it belongs to.
    pub fn design(&self) -> DesignId {
        let design = self.name.split('.').next().and_then(DesignId::from_name);
        design.expect("a parameter's name begins with its design's")
    }

    /// Whether a value may be set.
    pub fn admits(&self, value: u64) -> bool {
        self.may_be_auto && value == AUTO || self.kind.admits(value)
    }
}

/// What was chosen for a run: a design, and the value of every parameter of every design.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    design: DesignId,
    values: [u64; PARAMETERS_COUNT],
}

impl Settings {
    /// Words of [`Self::to_words`].
    pub const WORDS: usize = 1 + PARAMETERS_COUNT;

    /// A design with the defaults of all parameters.
    pub fn of(design: DesignId) -> Self {
        Settings { design, values: PARAMETERS.each_ref().map(|parameter| parameter.default) }
    }

    /// The design.
    pub fn design(&self) -> DesignId {
        self.design
    }

    /// The value of a parameter.
    pub fn get(&self, key: Key) -> u64 {
        self.values[key as usize]
    }

    /// Sets a parameter.
    ///
    /// # Errors
    /// The value is none of the parameter's; nothing was changed.
    pub fn set(&mut self, key: Key, value: u64) -> Result<(), OutOfRange> {
        if !PARAMETERS[key as usize].admits(value) {
            return Err(OutOfRange);
        }
        self.values[key as usize] = value;
        Ok(())
    }

    /// As words for memory that processes share.
    pub fn to_words(self) -> [u64; Self::WORDS] {
        let mut words = [self.design as u64; Self::WORDS];
        words[1..].copy_from_slice(&self.values);
        words
    }

    /// What [`Self::to_words`] wrote.
    ///
    /// # Errors
    /// [`OutOfRange`] where it did not write that.
    pub fn from_words(words: &[u64; Self::WORDS]) -> Result<Self, OutOfRange> {
        let design = DesignId::ALL.get(usize::try_from(words[0]).map_err(|_| OutOfRange)?);
        let mut settings = Settings::of(*design.ok_or(OutOfRange)?);
        for (parameter, &value) in PARAMETERS.iter().zip(&words[1..]) {
            settings.set(parameter.key, value)?;
        }
        Ok(settings)
    }

    /// The design's codec; `auto` is the fastest on this processor.
    pub fn codec(&self) -> CodecId {
        self.codec_set().unwrap_or_else(CodecId::fastest)
    }

    /// The same; `None` for `auto`.
    pub(crate) fn codec_set(&self) -> Option<CodecId> {
        codec_of(self.get(self.design.codec_key()))
    }

    /// A rule's parameter.
    pub(crate) fn residents(&self, key: Key) -> ResidentsRule {
        ResidentsRule::ALL[self.get(key) as usize]
    }

    /// A parameter that is a size, a count or percent.
    pub(crate) fn number(&self, key: Key) -> usize {
        self.get(key) as usize
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_parameter_stands_at_its_key_under_a_name_of_its_own() {
        let mut names = BTreeSet::new();
        for (at, parameter) in PARAMETERS.iter().enumerate() {
            assert_eq!(parameter.key as usize, at, "{}", parameter.name);
            assert!(names.insert(parameter.name), "{} twice", parameter.name);
            assert!(parameter.admits(parameter.default), "{}", parameter.name);
            assert!(!parameter.meaning.is_empty() && !parameter.source.is_empty());
            let (design, rest) = parameter.name.split_once('.').expect("design.parameter");
            assert_eq!(parameter.design().name(), design);
            assert!(!rest.contains('.'), "{}", parameter.name);
            assert_eq!(
                Parameter::from_name(parameter.name).map(|found| found.key),
                Some(parameter.key)
            );
        }
        assert!(Parameter::from_name("cervera").is_none());
    }

    #[test]
    fn ranges_are_ranges() {
        for parameter in &PARAMETERS {
            if let Kind::Bytes(least, most)
            | Kind::Percent(least, most, _)
            | Kind::Count(least, most, _) = parameter.kind
            {
                assert!(least < most, "{}", parameter.name);
                assert!(parameter.admits(least) && parameter.admits(most), "{}", parameter.name);
                assert!(!parameter.admits(most + 1), "{}", parameter.name);
                assert!(least == 0 || !parameter.admits(least - 1), "{}", parameter.name);
            }
            assert_eq!(parameter.admits(AUTO), parameter.may_be_auto, "{}", parameter.name);
        }
    }

    #[test]
    fn what_is_out_of_range_is_refused_and_changes_nothing() {
        let mut settings = Settings::of(DesignId::Cervera);
        assert_eq!(settings.set(Key::CerveraThreshold, 0), Err(OutOfRange));
        assert_eq!(settings.set(Key::CastroCell, 3), Err(OutOfRange));
        assert_eq!(settings.set(Key::HpCodec, AUTO), Err(OutOfRange));
        assert_eq!(settings, Settings::of(DesignId::Cervera));
        assert_eq!(settings.set(Key::CastroCell, 4), Ok(()));
        assert_eq!(settings.get(Key::CastroCell), 4);
    }

    proptest! {
        #[test]
        fn words_travel_and_wrong_ones_are_refused(
            design in prop::sample::select(DesignId::ALL.to_vec()),
            changes in prop::collection::vec((0..PARAMETERS_COUNT, any::<u16>()), 0..40),
            at in 0..Settings::WORDS,
            wrong: u64,
        ) {
            let mut settings = Settings::of(design);
            for (at, value) in changes {
                let before = settings;
                let admitted = PARAMETERS[at].admits(value.into());
                let outcome = settings.set(PARAMETERS[at].key, value.into());
                prop_assert_eq!(outcome.is_ok(), admitted);
                prop_assert!(admitted || settings == before);
            }
            let mut words = settings.to_words();
            prop_assert_eq!(Settings::from_words(&words), Ok(settings));
            words[at] = wrong;
            let is_right = match at {
                0 => wrong < DesignId::ALL.len() as u64,
                _ => PARAMETERS[at - 1].admits(wrong),
            };
            prop_assert_eq!(Settings::from_words(&words).is_ok(), is_right);
        }
    }
}
