//! Where compressed pages lie in RAM.
//!
//! [`Pool`] is what every pool offers; [`SizeClasses`] is the pool of the default design, and
//! [`Buckets`] is that of a published one.
//! Pools make no system call and have no allocator: their memory comes from a [`SpaceSource`].
#![no_std]

mod buckets;
mod lists;
mod objects;
mod pool;
mod size_classes;
mod space;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod words;

pub use buckets::Buckets;
pub use pool::*;
pub use size_classes::SizeClasses;
pub use space::*;
