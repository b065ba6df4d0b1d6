//! Which page leaves, how big the pool may grow, what is fetched ahead. Pure:
//! numbers in, decisions out.
#![no_std]

mod ahead;
mod clock;
mod sample;
mod split;

pub use ahead::{Ahead, WINDOW_MAX, Window};
pub use clock::{Age, Clock, Found, Residents};
pub use sample::{SLOTS, Sample, Sampler};
pub use split::{Shares, Split, Step};
