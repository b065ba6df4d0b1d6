//! Clusters of spilled pages in the memory of another machine: the helper's side.
//!
//! A program's agent has no way to a network of its own. It puts requests into a mapping that it
//! shares with a helper ([`zpager_wire::Requests`]), a process outside of the program, which keeps
//! each cluster of pages as the value of one key of a Redis or Valkey server, or of one of the masters
//! where servers form a cluster. The values are the clusters as they are.
//!
//! [`Server`] is where that is, and what of it can be found out before a program is started;
//! [`serve`] does the work.

mod advice;
mod helper;
mod kept;
mod link;
mod nodes;
mod read_time;
mod reader;
mod server;
mod slots;
mod survey;
mod writer;

pub use helper::{EXPIRY, serve};
pub use read_time::{ReadTime, ReadsBegan};
pub use server::{Found, Server, is_address};
