//! The compressed cache: what is known of every page, and the tiers that hold
//! those which are not resident.
//!
//! [`Cache`] holds the pages of one process: an [`Index`] with one word a
//! page, the pool in RAM, the order in which pages were compressed, the values
//! of same-filled pages, and the way to the store. [`Engine`] adds the decisions:
//! which pages leave, where the border between the tiers is, what is fetched ahead.
//! A program's pages leave the cache when they come back ([`Engine::swap_in`]), but may stay in the
//! store until they are written ([`Engine::written`]); those of a block device stay and are replaced
//! ([`Engine::look`], [`Engine::replace`]).
//! Neither knows threads, clocks or system calls; the caller hands over RAM
//! ([`zpager_pool::SpaceSource`]) and a store ([`zpager_store::Blocks`]) and calls
//! from one thread at a time. What makes bytes of a page is a [`Coder`].
//!
//! Invariant: every page that is not resident is in exactly one tier, named by its entry, and of a
//! resident one only the store may have a copy, named there, too; changing the entry and freeing the
//! tier's bytes happen in one call.
#![no_std]

mod cache;
mod coder;
mod coding;
mod engine;
mod entry;
mod fills;
mod held;
mod index;
mod order;

pub use cache::{Cache, Cleaned, Content, Lost, Outgoing, Placed, Reads, Seen, SpillError, Store};
pub use coder::{Codecs, Coder};
pub use coding::Coding;
pub use engine::{BATCH_PAGES, Came, Departed, Engine, Leavers, Run, Written};
pub use entry::{Entry, History, PageNumber, State};
pub use index::{Index, PAGE_NUMBER_END};
