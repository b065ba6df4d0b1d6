//! The symbols that compilers and the zstd library assume. Hidden, so that the
//! program's own are neither replaced nor used.
//!
//! The memory functions use the string instructions, which are fast on every
//! processor with ERMS for the sizes that occur here, pages above all. `malloc`
//! never gives anything: zstd's contexts lie in memory of ours. The personality
//! is named by unwind tables, which nobody reads as no panic unwinds.

use core::arch::global_asm;

global_asm!(
    ".macro zpager_function name",
    ".globl \\name",
    ".hidden \\name",
    ".type \\name, @function",
    "\\name:",
    ".endm",
    "zpager_function memcpy",
    "mov rax, rdi",
    "mov rcx, rdx",
    "rep movsb",
    "ret",
    "zpager_function memmove",
    "mov rax, rdi",
    "mov rcx, rdx",
    "mov r8, rdi",
    "sub r8, rsi",
    "cmp r8, rdx",
    "jb 2f",
    "rep movsb",
    "ret",
    // The target begins within the source: from the end.
    "2:",
    "lea rdi, [rdi + rcx - 1]",
    "lea rsi, [rsi + rcx - 1]",
    "std",
    "rep movsb",
    "cld",
    "ret",
    "zpager_function memset",
    "mov r8, rdi",
    "mov eax, esi",
    "mov rcx, rdx",
    "rep stosb",
    "mov rax, r8",
    "ret",
    "zpager_function bcmp",
    "zpager_function memcmp",
    "xor eax, eax",
    "xor ecx, ecx",
    "3:",
    "cmp rcx, rdx",
    "je 4f",
    "movzx eax, byte ptr [rdi + rcx]",
    "movzx r8d, byte ptr [rsi + rcx]",
    "inc rcx",
    "sub eax, r8d",
    "je 3b",
    "4:",
    "ret",
    "zpager_function malloc",
    "xor eax, eax",
    "ret",
    "zpager_function free",
    "ret",
    "zpager_function rust_eh_personality",
    "zpager_function _Unwind_Resume",
    "ud2",
);
