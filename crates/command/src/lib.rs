//! What the `zpager` commands have in common, the ones that are crates of their own among them: how a person is
//! told something, and what none of them is ended by.

pub mod file_limit;
pub mod size;
pub mod stderr;
