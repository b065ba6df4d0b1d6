//! Which page leaves, how big the pool may grow, what is fetched ahead. Pure:
//! numbers in, decisions out.
#![no_std]

mod ahead;
mod arrival;
mod clock;
mod lru;
mod sample;
mod second_chance;
mod split;

pub use ahead::{Ahead, WINDOW_MAX, Window};
pub use arrival::Arrival;
pub use clock::{Age, Clock, Found, Residents};
pub use lru::Lru;
pub use sample::{SLOTS, Sample, Sampler};
pub use second_chance::{SecondChance, WAITING_MAX};
pub use split::{Shares, Split, Step};
