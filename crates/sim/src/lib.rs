//! Traces of page references, and their replay through the compressed cache.
//!
//! [`trace`] is the file format: what a program referenced, in order, with what each page
//! compressed to. It can be written and read in bounded memory however long it is. A first pass
//! over it ([`survey()`]) numbers the pages; then a [`Memory`] serves all of its references
//! ([`replay()`]) and tells what that came to ([`Outcome`]). Time is modelled ([`cost`]), so that
//! an outcome depends on the trace and the flags alone.

mod arena;
mod belady;
mod compressed;
mod contents;
pub mod cost;
mod disk;
mod lengths;
mod outcome;
mod replay;
mod survey;
mod times;
pub mod trace;
mod uncompressed;

pub use belady::{Belady, Bound, Future, SHARE_PARTS, SHARES};
pub use compressed::{Compressed, Setup};
pub use outcome::Outcome;
pub use replay::{Lost, Memory, ReplayError, replay};
pub use survey::{Layout, Survey, survey};
pub use uncompressed::Uncompressed;
