//! Where compressed pages lie in RAM.
//!
//! [`Pool`] is what every pool offers; [`SizeClasses`] is the pool of the default design, and
//! [`Buckets`], [`Buffers`] and [`Cells`] are those of published ones. [`AnyPool`] is one of them.
//! Pools make no system call and have no allocator: their memory comes from a [`SpaceSource`].
#![no_std]

mod any;
mod buckets;
mod buffers;
mod cells;
mod lists;
mod objects;
mod pool;
mod prefetch;
mod size_classes;
mod space;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod words;

pub use any::AnyPool;
pub use buckets::Buckets;
pub use buffers::Buffers;
pub use cells::Cells;
pub use pool::*;
pub use size_classes::SizeClasses;
pub use space::*;
