//! The designs: named sets of choices, four of which reproduce published systems.
//!
//! Source: cervera (Cervera, Cortes and Becerra, USENIX 1999), hp (Roy, Kumar and Prvulovic, 2001),
//! castro (Castro, do Lago and Da Silva, 2003), zswap (Jennings, 2012), and our own, which has to
//! beat them all. What of a design can be set is in [`PARAMETERS`](crate::PARAMETERS).
//!
//! A design says what each part of the engine is; the parts say how they work.

use zpager_codec::CodecId;

use crate::adaptive::{Adaptive, Variant};
use crate::cleaning::Cleaning;
use crate::density::DENSE_CODEC;
use crate::fixed::Fixed;
use crate::limit::Limit;
use crate::parameters::{AUTO, Key, Settings};
use crate::replacement::ResidentsRule;
use crate::size::Size;
use crate::split::Split;
use crate::switch::Evidence;

/// What castro's pool owes is written when there is so much of it: a cluster of the store.
const WRITE_BYTES: usize = 256 << 10;

/// Which design; the number travels between processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum DesignId {
    /// Compressed swap in buffers.
    Cervera = 0,
    /// A block device that compresses.
    Hp = 1,
    /// The adaptive compressed cache.
    Castro = 2,
    /// Linux' compressed swap cache.
    Zswap = 3,
    /// Ours.
    Default = 4,
}

impl DesignId {
    /// Every design, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::Cervera, Self::Hp, Self::Castro, Self::Zswap, Self::Default];

    /// The name by which a user chooses the design.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cervera => "cervera",
            Self::Hp => "hp",
            Self::Castro => "castro",
            Self::Zswap => "zswap",
            Self::Default => "default",
        }
    }

    /// The design that [`name`](Self::name) calls so.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|id| id.name() == name)
    }

    /// The parameter that names its codec.
    pub const fn codec_key(self) -> Key {
        match self {
            Self::Cervera => Key::CerveraCodec,
            Self::Hp => Key::HpCodec,
            Self::Castro => Key::CastroCodec,
            Self::Zswap => Key::ZswapCodec,
            Self::Default => Key::DefaultCodec,
        }
    }

    /// The parameter that says when pages are written before their room is needed.
    pub const fn threshold_key(self) -> Option<Key> {
        match self {
            Self::Cervera => Some(Key::CerveraThreshold),
            Self::Default => Some(Key::DefaultThreshold),
            Self::Hp | Self::Castro | Self::Zswap => None,
        }
    }

    /// Who described it, and where.
    pub const fn source(self) -> &'static str {
        match self {
            Self::Cervera => {
                "Cervera and others, Improving Application Performance through Swap Compression, 1999"
            }
            Self::Hp => {
                "Roy and others, Improving System Performance with Compressed Memory, HPL-2001-111"
            }
            Self::Castro => "Castro and others, Adaptive Compressed Caching, 2003",
            Self::Zswap => "Jennings, zswap: compressed swap caching, patch of 2012; mm/zswap.c",
            Self::Default => "zpager's own",
        }
    }
}

/// Where compressed pages lie in RAM: a pool of zpager-pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolKind {
    /// Size classes in slabs.
    SizeClasses,
    /// Buffers of a page, filled in order.
    Buffers,
    /// Chains of buckets of so many bytes.
    Buckets(usize),
    /// Cells of so many neighbouring pages.
    Cells(usize),
}

/// Which compressed pages leave for the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    /// Those that came first, and raw ones before them.
    RawThenOldest,
    /// Those that came first.
    Oldest,
    /// Those in full buffers, together.
    FullBuffers,
    /// Those used least recently: a page that is read leaves the pool, so that is when it came.
    LeastRecent,
}

/// How pages lie in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreLayout {
    /// Compressed, one behind the other, over the bounds of blocks.
    Packed,
    /// Compressed, several a block, none over the bound of two.
    Blocks,
    /// Compressed, a block each.
    Padded,
    /// Uncompressed, a block each.
    Plain,
}

/// What is read for a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadPath {
    /// The page wanted, and those that are expected to be wanted next.
    Ahead,
    /// The page wanted alone; what else its blocks hold is forgotten.
    Alone,
}

/// What becomes of a page that the store has, unchanged, when it leaves resident memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CleanPages {
    /// It is compressed as any other.
    Compressed,
    /// It is compressed while that is found worth while, and dropped otherwise.
    Switched(Evidence),
    /// It is dropped. One that comes back stays in the store until it is written, where that pays
    /// ([`Copies`](crate::Copies)).
    Kept,
}

/// Names of choices, and what they mean.
macro_rules! words {
    ($kind:ty { $($choice:pat => $name:literal, $meaning:literal;)+ }) => {
        impl $kind {
            /// The choice in a word or two.
            pub const fn name(&self) -> &'static str {
                match self { $($choice => $name,)+ }
            }

            /// The choice in a few words.
            pub const fn meaning(&self) -> &'static str {
                match self { $($choice => $meaning,)+ }
            }
        }
    };
}

words!(PoolKind {
    PoolKind::SizeClasses => "size classes", "slabs of places of one size each";
    PoolKind::Buffers => "buffers", "of a page each, filled in order, used again when empty";
    PoolKind::Buckets(_) => "buckets", "pages in pieces, chained";
    PoolKind::Cells(_) => "cells", "neighbouring pages, best fit by the space at the end, compacted";
});
words!(Size {
    Size::Split(_) => "split", "moves with measured cost and benefit";
    Size::Cleaning(_) => "cleaning", "fixed; written when a part of the buffers is full";
    Size::Fixed(_) => "fixed", "a fixed share of memory";
    Size::Adaptive(_) => "adaptive", "grows while it is worth it: expense and profit lists";
    Size::Limit(_) => "limit", "grows up to a limit, then shrinks to a part of it";
});
words!(ResidentsRule {
    ResidentsRule::Clock => "clock", "those resident for long that were not wanted back soon before";
    ResidentsRule::Lru => "lru", "those whose last known use is longest ago";
    ResidentsRule::Arrival => "arrival", "those that came in first";
});
words!(Leaving {
    Leaving::RawThenOldest => "raw, oldest", "incompressible pages, then those that came first";
    Leaving::Oldest => "oldest", "those that came first";
    Leaving::FullBuffers => "full buffers", "those in full buffers, together";
    Leaving::LeastRecent => "lru", "those used least recently: whatever is read leaves";
});
words!(StoreLayout {
    StoreLayout::Packed => "packed", "compressed, one behind the other";
    StoreLayout::Blocks => "blocks", "compressed, several a block, none split";
    StoreLayout::Padded => "padded", "compressed, a block each";
    StoreLayout::Plain => "plain", "uncompressed, a block each";
});
words!(ReadPath {
    ReadPath::Ahead => "ahead", "the page, and those expected to be wanted next";
    ReadPath::Alone => "alone", "the page; what else its block holds is forgotten";
});
words!(CleanPages {
    CleanPages::Compressed => "as others", "compressed as any other";
    CleanPages::Switched(_) => "switched", "dropped while they do not come back; for the device's --clean-cache alone";
    CleanPages::Kept => "kept", "left in the store until written, and dropped";
});

/// What a design is made of, with the values that were set.
#[derive(Debug, Clone, Copy)]
pub struct Design {
    /// Which one.
    pub id: DesignId,
    /// What compresses pages.
    pub codec: CodecId,
    /// What compresses pages instead where memory is short: a process's ([`DensePool`](crate::DensePool)),
    /// or a block device's blocks ([`Density`](crate::Density)).
    pub dense_codec: Option<CodecId>,
    /// What makes pages shorter of which `codec` leaves much, where memory is short
    /// ([`Repeats`](crate::Repeats)).
    pub repeats_codec: Option<CodecId>,
    /// Most bytes of a compressed page; of what stays longer the page is kept as it is.
    pub compressed_bytes_max: usize,
    /// Whether pages of one repeated word take no room.
    pub same_filled: bool,
    /// Where compressed pages lie.
    pub pool: PoolKind,
    /// How large the pool is.
    pub size: Size,
    /// Which resident pages leave.
    pub residents: ResidentsRule,
    /// Which compressed pages leave.
    pub leaving: Leaving,
    /// How pages lie in the store.
    pub layout: StoreLayout,
    /// Most pages that may be swapped out, in percent of the store's blocks; `None`: no limit.
    pub virtual_percent: Option<usize>,
    /// What is read for a fault.
    pub read_path: ReadPath,
    /// Most pages that come with one fault.
    pub read_ahead_pages: usize,
    /// Whether pages of the store are read before they are wanted, where pointers lead to them.
    pub reads_by_pointers: bool,
    /// What becomes of clean pages.
    pub clean_pages: CleanPages,
    /// Of the pool's share so much may hold pages that the store has not; what is older is written
    /// before its room is needed.
    pub write_ahead_percent: Option<usize>,
}

const PAGE_BYTES: usize = crate::shares::PAGE_BYTES;

/// A codec's output that is as long as the page is no gain.
const SHORTER: usize = PAGE_BYTES - 1;

impl Design {
    /// The design that was chosen, for a process that may take `budget_bytes`.
    pub fn new(settings: &Settings, budget_bytes: usize) -> Design {
        match settings.design() {
            DesignId::Cervera => cervera(settings),
            DesignId::Hp => hp(settings, budget_bytes),
            DesignId::Castro => castro(settings),
            DesignId::Zswap => zswap(settings, budget_bytes),
            DesignId::Default => default(settings),
        }
    }
}

fn cervera(settings: &Settings) -> Design {
    let cache_bytes = settings.number(Key::CerveraCache);
    let threshold_percent = settings.number(Key::CerveraThreshold);
    Design {
        id: DesignId::Cervera,
        codec: settings.codec(),
        dense_codec: None,
        repeats_codec: None,
        compressed_bytes_max: SHORTER,
        same_filled: false,
        pool: PoolKind::Buffers,
        size: Size::Cleaning(Cleaning::new(cache_bytes, threshold_percent)),
        residents: settings.residents(Key::CerveraResidents),
        leaving: Leaving::FullBuffers,
        layout: StoreLayout::Blocks,
        virtual_percent: Some(settings.number(Key::CerveraVirtual)),
        read_path: ReadPath::Alone,
        read_ahead_pages: 1,
        reads_by_pointers: false,
        clean_pages: CleanPages::Compressed,
        write_ahead_percent: None,
    }
}

fn hp(settings: &Settings, budget_bytes: usize) -> Design {
    let share_percent = settings.number(Key::HpShare);
    Design {
        id: DesignId::Hp,
        codec: settings.codec(),
        dense_codec: None,
        repeats_codec: None,
        compressed_bytes_max: SHORTER,
        same_filled: false,
        pool: PoolKind::Buckets(settings.number(Key::HpBucket)),
        size: Size::Fixed(Fixed::of_share(share_percent, budget_bytes)),
        residents: settings.residents(Key::HpResidents),
        leaving: Leaving::LeastRecent,
        layout: StoreLayout::Plain,
        virtual_percent: None,
        read_path: ReadPath::Alone,
        read_ahead_pages: 1,
        reads_by_pointers: false,
        clean_pages: CleanPages::Compressed,
        write_ahead_percent: None,
    }
}

fn castro(settings: &Settings) -> Design {
    let variant = Variant::ALL[settings.number(Key::CastroVariant)];
    let evidence = Evidence {
        released_per_reclaimed: settings.number(Key::CastroReleased) as u32,
        dropped_percent: settings.number(Key::CastroDropped) as u32,
    };
    Design {
        id: DesignId::Castro,
        codec: settings.codec(),
        dense_codec: None,
        repeats_codec: None,
        compressed_bytes_max: SHORTER,
        same_filled: false,
        pool: PoolKind::Cells(settings.number(Key::CastroCell)),
        size: Size::Adaptive(Adaptive::new(variant, WRITE_BYTES)),
        residents: settings.residents(Key::CastroResidents),
        leaving: Leaving::Oldest,
        layout: StoreLayout::Padded,
        virtual_percent: None,
        read_path: ReadPath::Alone,
        read_ahead_pages: 1,
        reads_by_pointers: false,
        clean_pages: match settings.get(Key::CastroSwitch) {
            0 => CleanPages::Compressed,
            _ => CleanPages::Switched(evidence),
        },
        write_ahead_percent: None,
    }
}

fn zswap(settings: &Settings, budget_bytes: usize) -> Design {
    let max_pool_percent = settings.number(Key::ZswapMaxPool);
    let accept_threshold_percent = settings.number(Key::ZswapAcceptThreshold);
    Design {
        id: DesignId::Zswap,
        codec: settings.codec(),
        dense_codec: None,
        repeats_codec: None,
        compressed_bytes_max: part_of_page(settings.number(Key::ZswapMaxRatio)),
        same_filled: settings.get(Key::ZswapSameFilled) != 0,
        pool: PoolKind::SizeClasses,
        size: Size::Limit(Limit::new(max_pool_percent, accept_threshold_percent, budget_bytes)),
        residents: settings.residents(Key::ZswapResidents),
        leaving: Leaving::RawThenOldest,
        layout: StoreLayout::Plain,
        virtual_percent: None,
        read_path: ReadPath::Alone,
        read_ahead_pages: 1,
        reads_by_pointers: false,
        clean_pages: CleanPages::Compressed,
        write_ahead_percent: None,
    }
}

fn default(settings: &Settings) -> Design {
    let split = match settings.get(Key::DefaultSplit) {
        AUTO => Split::default(),
        percent => Split::at(percent as usize),
    };
    Design {
        id: DesignId::Default,
        codec: settings.codec(),
        dense_codec: settings.codec_set().is_none().then_some(DENSE_CODEC),
        repeats_codec: repeats_codec(settings),
        compressed_bytes_max: PAGE_BYTES * 15 / 16,
        same_filled: true,
        pool: PoolKind::SizeClasses,
        size: Size::Split(split),
        residents: ResidentsRule::Clock,
        leaving: Leaving::RawThenOldest,
        layout: StoreLayout::Packed,
        virtual_percent: None,
        read_path: ReadPath::Ahead,
        read_ahead_pages: settings.number(Key::DefaultReadAhead),
        reads_by_pointers: settings.get(Key::DefaultPointers) != 0,
        clean_pages: CleanPages::Kept,
        write_ahead_percent: match settings.get(Key::DefaultThreshold) {
            AUTO => None,
            percent => Some(percent as usize),
        },
    }
}

/// LZ4 beside `word`, where the user has named no codec.
fn repeats_codec(settings: &Settings) -> Option<CodecId> {
    let is_word = settings.codec_set().is_none() && settings.codec() == CodecId::Word;
    is_word.then_some(CodecId::Lz4)
}

/// So many percent of a page, less than all of it.
fn part_of_page(percent: usize) -> usize {
    (PAGE_BYTES * percent / 100).min(SHORTER)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn numbers_and_names_lead_back_to_their_designs() {
        for (at, id) in DesignId::ALL.into_iter().enumerate() {
            assert_eq!(id as usize, at);
            assert_eq!(DesignId::from_name(id.name()), Some(id));
            assert_eq!(Design::new(&Settings::of(id), 64 * MIB).id, id);
        }
        assert_eq!(DesignId::from_name("Castro"), None);
    }

    #[test]
    fn designs_are_what_their_papers_say() {
        let of = |id| Design::new(&Settings::of(id), 64 * MIB);
        let cervera = of(DesignId::Cervera);
        assert_eq!((cervera.codec, cervera.pool), (CodecId::Lzo, PoolKind::Buffers));
        assert_eq!(cervera.size.limit_bytes(), Some(MIB));
        let hp = of(DesignId::Hp);
        assert_eq!((hp.codec, hp.pool), (CodecId::Wk4x4, PoolKind::Buckets(256)));
        assert_eq!(hp.size.limit_bytes(), Some(16 * MIB));
        let castro = of(DesignId::Castro);
        assert_eq!((castro.codec, castro.pool), (CodecId::Lzo, PoolKind::Cells(2)));
        assert!(matches!(castro.clean_pages, CleanPages::Switched(_)));
        let zswap = of(DesignId::Zswap);
        assert_eq!((zswap.codec, zswap.compressed_bytes_max), (CodecId::Lzo, 3276));
        assert_eq!(zswap.size.limit_bytes(), Some(64 * MIB / 100 * 20 + 64 * MIB % 100 * 20 / 100));
        let ours = of(DesignId::Default);
        assert_eq!(ours.codec, CodecId::fastest());
    }

    #[test]
    fn what_was_set_is_what_is_built() {
        let mut settings = Settings::of(DesignId::Castro);
        let set = [
            (Key::CastroCell, 4),
            (Key::CastroSwitch, 0),
            (Key::CastroCodec, CodecId::Wkdm as u64),
            (Key::CastroResidents, ResidentsRule::Arrival as u64),
        ];
        for (key, value) in set {
            settings.set(key, value).expect("in range");
        }
        let castro = Design::new(&settings, 64 * MIB);
        assert_eq!((castro.codec, castro.pool), (CodecId::Wkdm, PoolKind::Cells(4)));
        assert_eq!(castro.residents, ResidentsRule::Arrival);
        assert_eq!(castro.clean_pages, CleanPages::Compressed);
    }
}
