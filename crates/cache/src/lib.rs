//! The compressed cache: what is known of every page, and the tiers that hold
//! those which are not resident.
//!
//! [`Cache`] is the whole engine of one process: an [`Index`] with one word a
//! page, the pool in RAM, the order in which pages were compressed, the values
//! of same-filled pages, and the way to the store. It knows neither threads nor
//! clocks nor system calls; the caller hands it RAM ([`zpager_pool::SpaceSource`])
//! and a store ([`zpager_store::Blocks`]) and calls it from one thread at a time.
//!
//! Invariant: every page that is not resident is in exactly one tier, named by
//! its entry; changing the entry and freeing the tier's bytes happen in one call.
#![no_std]

mod cache;
mod entry;
mod fills;
mod held;
mod index;
mod order;

pub use cache::{Cache, Cleaned, Lost, Placed, Reads, SpillError, Store, Written};
pub use entry::{Entry, History, PageNumber, State};
pub use index::{Index, PAGE_NUMBER_END};
