//! Linux without libc: the only home of raw system calls.
//!
//! The agent runs inside other people's programs, in signal handlers, with the
//! program's memory partly absent. It may use neither the program's libc (whose
//! locks and memory are the program's) nor its thread-local storage. So every
//! system call is made here, by instructions that lie in the agent's own image,
//! which is also the range that Syscall User Dispatch lets through.
//!
//! x86-64 only: Syscall User Dispatch exists there.
#![no_std]

pub mod aio;
pub mod dispatch;
pub mod file;
pub mod futex;
pub mod guards;
pub mod limits;
pub mod lock;
pub mod mapping;
pub mod memory;
pub mod pagemap;
pub mod process;
pub mod processor;
pub mod signal;
pub mod syscall;
pub mod userfaultfd;

pub use syscall::{Errno, nr};

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
