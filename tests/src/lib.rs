//! Shared helpers of the end-to-end tests.
//!
//! A test runs a program twice, free and under `zpager run`, and compares what
//! can be seen from outside: standard output, the way it ended, the files it
//! made. The command under test is the one that `ZPAGER` names, or else
//! `target/release/zpager`. Victims, the C programs in `victims/`, are compiled
//! once and kept beside the test binaries.

pub mod job;
pub mod nbd;
pub mod packages;
pub mod places;
pub mod setup;
pub mod stats;
pub mod text;
pub mod victims;

pub use job::{Ending, Job, Managed, Outcome, compare};
pub use setup::{Lift, Setup, Start, Store};
pub use stats::Stats;
