//! The functions of libc before which this object stands: those by which a program fills much memory in one
//! call, and the one by which it makes a process, which is taken to fill any memory.
//!
//! Each sees how much that is, has the pager asked where it is much ([`zpager_pager::before_large_call`]),
//! and goes on to the one behind it by a jump, so that the call is the program's own: its return address, its
//! stack, and its being ended by pthread_cancel(3) are what they would be. Up to the bound that takes seven
//! instructions or eight.
//!
//! Invariant: [`NEXT`] has the address of the function behind, or 0 before it was looked for.

use core::arch::naked_asm;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use zpager_pager::{Fills, LARGE_BYTES, before_large_call};

use crate::next;

/// Declares the functions: each with what it fills, and how that is computed into `r11`.
macro_rules! interpose {
    ($($name:ident: $fills:ident, $($line:literal)+;)+) => {
        /// Their order in [`NEXT`].
        #[allow(non_camel_case_types, reason = "they are the functions' names")]
        enum Place { $($name),+ }

        const NAMES: &[&core::ffi::CStr] = &[$(
            match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!(),
            }
        ),+];

        $(
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            extern "C" fn $name() {
                naked_asm!(
                    ".cfi_startproc",
                    $($line,)+
                    "cmp r11, [rip + {large}]",
                    "ja 3f",
                    "2:",
                    "mov r11, [rip + {next} + 8 * {place}]",
                    "test r11, r11",
                    "jz 4f",
                    "jmp r11",
                    "3:",
                    "mov eax, {fills}",
                    "call {ask}",
                    "jmp 2b",
                    "4:",
                    "call {look}",
                    "mov r11, [rip + {next} + 8 * {place}]",
                    "test r11, r11",
                    "jz 5f",
                    "jmp r11",
                    // Who calls what no library has is told that it failed.
                    "5:",
                    "mov rax, -1",
                    "ret",
                    ".cfi_endproc",
                    large = sym LARGE_BYTES,
                    next = sym NEXT,
                    place = const Place::$name as usize,
                    fills = const Fills::$fills as u32,
                    ask = sym ask,
                    look = sym look,
                )
            }
        )+
    };
}

interpose! {
    read: Read, "mov r11, rdx";
    pread: Read, "mov r11, rdx";
    pread64: Read, "mov r11, rdx";
    __read_chk: Read, "mov r11, rdx";
    __pread_chk: Read, "mov r11, rdx";
    __pread64_chk: Read, "mov r11, rdx";
    fread: Objects, "mov r11, rsi" "imul r11, rdx";
    fread_unlocked: Objects, "mov r11, rsi" "imul r11, rdx";
    __fread_chk: ObjectsInRoom, "mov r11, rdx" "imul r11, rcx";
    __fread_unlocked_chk: ObjectsInRoom, "mov r11, rdx" "imul r11, rcx";
    mmap: Mapping, "mov r11, rsi";
    mmap64: Mapping, "mov r11, rsi";
    madvise: Advice, "mov r11, rsi";
    fork: Process, "mov r11, -1";
}

/// Where each of them is behind this object.
static NEXT: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];

/// Declares a function that calls another one with what `eax` is and where the arguments are, which it keeps.
macro_rules! keep_arguments {
    ($(#[$about:meta])* $name:ident calls $called:ident) => {
        $(#[$about])*
        #[unsafe(naked)]
        extern "C" fn $name() {
            naked_asm!(
                ".cfi_startproc",
                "push r9",
                ".cfi_adjust_cfa_offset 8",
                "push r8",
                ".cfi_adjust_cfa_offset 8",
                "push rcx",
                ".cfi_adjust_cfa_offset 8",
                "push rdx",
                ".cfi_adjust_cfa_offset 8",
                "push rsi",
                ".cfi_adjust_cfa_offset 8",
                "push rdi",
                ".cfi_adjust_cfa_offset 8",
                "mov edi, eax",
                "mov rsi, rsp",
                "call {called}",
                "pop rdi",
                ".cfi_adjust_cfa_offset -8",
                "pop rsi",
                ".cfi_adjust_cfa_offset -8",
                "pop rdx",
                ".cfi_adjust_cfa_offset -8",
                "pop rcx",
                ".cfi_adjust_cfa_offset -8",
                "pop r8",
                ".cfi_adjust_cfa_offset -8",
                "pop r9",
                ".cfi_adjust_cfa_offset -8",
                "ret",
                ".cfi_endproc",
                called = sym $called,
            )
        }
    };
}

keep_arguments! {
    /// Has the pager asked about what `eax` fills.
    ask calls before_large_call
}
keep_arguments! {
    /// Looks for all functions.
    look calls find_all
}

/// Looks for all of them: before the program begins, or when another library calls one before that.
pub(crate) extern "C" fn find_all() {
    let note = |place: usize, address| {
        // Several objects may have it.
        let _ = NEXT[place].compare_exchange(0, address, Relaxed, Relaxed);
    };
    // SAFETY: the loader calls what begins a library without its locks, and a library libc's functions.
    unsafe { next::find(find_all as *const () as usize, NAMES, note) }
}
