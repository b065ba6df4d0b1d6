//! Traces of page references.
//!
//! [`trace`] is the file format: what a program referenced, in order, with what each page
//! compressed to. It can be written and read in bounded memory however long it is.

pub mod trace;
