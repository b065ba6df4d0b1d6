//! A block device over the compressed cache: the kernel, a virtual machine or any other client of
//! the NBD protocol swaps to it.
//!
//! Source: hp (2001), a block device that compresses what the kernel swaps out; cervera (1999) and
//! castro (2003) for the whole machine. There it is a part of the kernel, here a process: the blocks
//! are pages of the one engine ([`zpager_cache::Engine`]), none of which is ever resident.
//!
//! [`Device`] holds the blocks and keeps to its memory; nothing outlives the server, as it is a device
//! to swap to. [`CleanCache`] has compressed copies of blocks that are on a disk. Either is a
//! [`Target`]. [`nbd`] speaks with one client; [`serve`] has a thread for each of several, or one for each
//! queue of the kernel's ublk driver, and a control socket ([`control`]) beside the device's own.

mod activation;
mod clean;
mod connections;
pub mod control;
mod dense;
mod device;
mod disk;
mod encoder;
mod free_memory;
mod holes;
mod kept;
mod late;
mod moment;
pub mod nbd;
mod reads;
mod rehearsal;
mod samples;
mod server;
mod shortage;
mod sockets;
mod space;
mod starting;
mod statistics;
mod swap_file;
mod target;
mod ublk;
mod worker;
mod writers;

pub use activation::Passed;
pub use clean::CleanCache;
pub use device::{AHEAD_BYTES_MIN, Device, MEMORY_BYTES_MIN, SIZE_BYTES_MAX, Setup};
pub use disk::{Disk, DiskFile};
pub use reads::{Made, Plan};
pub use server::{Behind, Configuration, Listen, Warnings, serve};
pub use shortage::PAUSE_MAX;
pub use sockets::{control_path, default_socket};
pub use space::Arena;
pub use statistics::{Counters, Status};
pub use swap_file::{StoreParts, SwapFile};
pub use target::{Refused, Target};
pub use worker::Worker;
