//! Where compressed pages go when RAM is short.
//!
//! A store is a row of blocks, read and written through [`Blocks`], that is handed out in
//! [`Clusters`] to all processes of a run; several [`Stores`] are such a row together. Records are
//! gathered into a [`Batch`], one large write, and come back by [`read()`] or [`read_run`], each
//! verified by its [`Seal`].
//!
//! The crate makes no system call and has no allocator.
#![no_std]

mod around;
mod batch;
mod behind;
mod blocks;
mod cipher;
mod clusters;
mod common;
mod early;
#[cfg(any(test, feature = "faulting"))]
mod faulting;
#[cfg(any(test, feature = "faulting"))]
mod memory;
mod place;
mod read;
mod record;
mod references;
mod stores;
#[cfg(test)]
mod tests;

pub use around::{Around, Expected, ReadAround, WINDOWS_MAX};
pub use batch::Batch;
pub use behind::{Behind, ReadBehind};
pub use blocks::{BLOCK_BYTES, Blocks, CLUSTER_BYTES, COPIES_MAX, Errno};
pub use cipher::{Cipher, KEY_BYTES};
pub use clusters::Clusters;
pub use common::{CommonPage, CommonPages, CommonRecord};
pub use early::{Early, FilePlace, ReadEarly};
#[cfg(any(test, feature = "faulting"))]
pub use faulting::Faulting;
#[cfg(any(test, feature = "faulting"))]
pub use memory::Memory;
pub use place::Place;
pub use read::{READ_BYTES_MIN, ReadError, Transfer, read, read_run};
pub use record::{RECORD_BYTES_MAX, Seal};
pub use references::References;
pub use stores::{STORES_MAX, Stores, row_bytes};
