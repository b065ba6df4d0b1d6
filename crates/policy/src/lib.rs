//! Which page leaves, how big the pool may grow, what is fetched ahead. Pure:
//! numbers in, decisions out.
#![no_std]

mod adaptive;
mod ahead;
mod arrival;
mod cleaning;
mod clock;
mod common;
mod copies;
mod dense_pool;
mod density;
mod designs;
mod faster;
mod fixed;
mod give_way;
mod limit;
mod lists;
mod parameters;
mod pointers;
mod promotion;
mod recompression;
mod repeats;
mod replacement;
mod sample;
mod seeks;
mod shares;
mod size;
mod split;
mod switch;
mod tried;

pub use adaptive::{Adaptive, Change, Variant};
pub use ahead::{Ahead, WINDOW_MAX, Window};
pub use arrival::Arrival;
pub use cleaning::Cleaning;
pub use clock::{Age, Clock, Found, Residents};
pub use common::Common;
pub use copies::Copies;
pub use dense_pool::{DensePool, TRY_PAGES};
pub use density::{DENSE_CODEC, Density, Holding, TRY_EVERY};
pub use designs::{CleanPages, Design, DesignId, Leaving, PoolKind, ReadPath, StoreLayout};
pub use faster::{Alternative, Faster};
pub use fixed::Fixed;
pub use give_way::{GIVE_WAY_SLOTS, GiveWay, Standing};
pub use limit::Limit;
pub use lists::{Line, List, Lists, MOVES_MAX};
pub use parameters::{
    AUTO, Key, Kind, OutOfRange, PARAMETERS, PARAMETERS_COUNT, Parameter, Settings,
};
pub use pointers::{Cursor, DEPTH, NEAREST, Pointers, SOURCES};
pub use promotion::Promotion;
pub use recompression::{Coded, Fetched, PageKind, Recompression, StoreCodec};
pub use repeats::Repeats;
pub use replacement::{Replacement, ResidentsRule};
pub use sample::{SLOTS, Sample, Sampler};
pub use seeks::{ReadTicks, Seeks};
pub use shares::{Shares, Step};
pub use size::Size;
pub use split::{Loss, Prices, Split};
pub use switch::{DROPPED_MAX, Evidence, Switch, TERM};
pub use tried::{Choice, Made, Trials, Tried};
