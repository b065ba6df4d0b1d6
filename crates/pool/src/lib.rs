//! Where compressed pages lie in RAM.
//!
//! [`Pool`] is what every pool offers; [`SizeClasses`] is the pool of the default design.
//! Pools make no system call and have no allocator: their memory comes from a [`SpaceSource`].
#![no_std]

mod pool;
mod size_classes;
mod space;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod words;

pub use pool::*;
pub use size_classes::SizeClasses;
pub use space::*;
