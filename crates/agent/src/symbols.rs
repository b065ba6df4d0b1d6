//! The symbols that compilers and the zstd library assume. Hidden, so that the
//! program's own are neither replaced nor used.
//!
//! `malloc` never gives anything: zstd's contexts lie in memory of ours. The
//! personality is named by unwind tables, which nobody reads as no panic unwinds.

use core::arch::global_asm;

use zpager_sys::hidden_function;

zpager_sys::memory_functions!("");

global_asm!(
    hidden_function!("malloc"),
    "xor eax, eax",
    "ret",
    hidden_function!("free"),
    "ret",
    hidden_function!("rust_eh_personality"),
    hidden_function!("_Unwind_Resume"),
    "ud2",
);
