//! The memory functions that compilers assume, for code without a C library.
//!
//! Short stretches, which are by far the most, are moved by loads and stores that the processor keeps
//! in flight: where a page's compressed bytes go to memory that is in no cache, what follows need not
//! wait. Long ones use the string instructions, which are fast on every processor with ERMS.
//!
//! Source: ours; Intel 64 and IA-32 Architectures Optimization Reference Manual, section 3.7.6, for
//! where the string instructions pay.

/// Stretches up to so many bytes are moved by loads and stores.
#[doc(hidden)]
#[macro_export]
macro_rules! short_bytes_max {
    () => {
        "2048"
    };
}

/// Begins a function that is seen within its object alone.
#[doc(hidden)]
#[macro_export]
macro_rules! hidden_function {
    ($name:expr) => {
        concat!(
            ".globl ",
            $name,
            "\n.hidden ",
            $name,
            "\n.type ",
            $name,
            ", @function\n",
            $name,
            ":"
        )
    };
}

/// Defines `memcpy`, `memmove`, `memset`, `bcmp` and `memcmp`, hidden, each name behind `$prefix`.
#[macro_export]
macro_rules! memory_functions {
    ($prefix:literal) => {
        core::arch::global_asm!(
            $crate::hidden_function!(concat!($prefix, "memcpy")),
            "mov rax, rdi",
            "cmp rdx, 16",
            "jb 4f",
            concat!("cmp rdx, ", $crate::short_bytes_max!()),
            "ja 3f",
            // The last sixteen bytes are written last, over some that were written before.
            "movups xmm4, [rsi + rdx - 16]",
            "lea r8, [rdi + rdx - 16]",
            "sub rdx, 64",
            "jb 2f",
            "1:",
            "movups xmm0, [rsi]",
            "movups xmm1, [rsi + 16]",
            "movups xmm2, [rsi + 32]",
            "movups xmm3, [rsi + 48]",
            "movups [rdi], xmm0",
            "movups [rdi + 16], xmm1",
            "movups [rdi + 32], xmm2",
            "movups [rdi + 48], xmm3",
            "add rsi, 64",
            "add rdi, 64",
            "sub rdx, 64",
            "jae 1b",
            // Fewer than 64 bytes are left.
            "2:",
            "add rdx, 48",
            "js 5f",
            "6:",
            "movups xmm0, [rsi]",
            "movups [rdi], xmm0",
            "add rsi, 16",
            "add rdi, 16",
            "sub rdx, 16",
            "jae 6b",
            "5:",
            "movups [r8], xmm4",
            "ret",
            "3:",
            "mov rcx, rdx",
            "rep movsb",
            "ret",
            // Fewer than sixteen: the first and the last so many, which may overlap.
            "4:",
            "cmp edx, 8",
            "jae 8f",
            "cmp edx, 4",
            "jae 7f",
            "test edx, edx",
            "jz 9f",
            "movzx ecx, byte ptr [rsi]",
            "movzx r8d, byte ptr [rsi + rdx - 1]",
            "mov r9d, edx",
            "shr r9d, 1",
            "movzx r10d, byte ptr [rsi + r9]",
            "mov [rdi], cl",
            "mov [rdi + r9], r10b",
            "mov [rdi + rdx - 1], r8b",
            "9:",
            "ret",
            "8:",
            "mov rcx, [rsi]",
            "mov r8, [rsi + rdx - 8]",
            "mov [rdi], rcx",
            "mov [rdi + rdx - 8], r8",
            "ret",
            "7:",
            "mov ecx, [rsi]",
            "mov r8d, [rsi + rdx - 4]",
            "mov [rdi], ecx",
            "mov [rdi + rdx - 4], r8d",
            "ret",
            $crate::hidden_function!(concat!($prefix, "memmove")),
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
            $crate::hidden_function!(concat!($prefix, "memset")),
            "mov rax, rdi",
            "cmp rdx, 16",
            "jb 2f",
            concat!("cmp rdx, ", $crate::short_bytes_max!()),
            "ja 3f",
            "movzx ecx, sil",
            "mov r8, 0x0101010101010101",
            "imul rcx, r8",
            "movq xmm0, rcx",
            "punpcklqdq xmm0, xmm0",
            "lea r8, [rdi + rdx - 16]",
            "1:",
            "movups [rdi], xmm0",
            "add rdi, 16",
            "cmp rdi, r8",
            "jb 1b",
            "movups [r8], xmm0",
            "ret",
            "2:",
            "test edx, edx",
            "jz 4f",
            "mov [rdi], sil",
            "inc rdi",
            "dec edx",
            "jmp 2b",
            "3:",
            "mov r8, rdi",
            "mov eax, esi",
            "mov rcx, rdx",
            "rep stosb",
            "mov rax, r8",
            "4:",
            "ret",
            $crate::hidden_function!(concat!($prefix, "bcmp")),
            $crate::hidden_function!(concat!($prefix, "memcmp")),
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
        );
    };
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    memory_functions!("zpager_test_");

    unsafe extern "C" {
        fn zpager_test_memcpy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8;
        fn zpager_test_memmove(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8;
        fn zpager_test_memset(to: *mut u8, byte: i32, bytes: usize) -> *mut u8;
        fn zpager_test_memcmp(one: *const u8, other: *const u8, bytes: usize) -> i32;
    }

    /// All lengths around the borders between ways of moving.
    fn lengths() -> impl Iterator<Item = usize> {
        (0..300).chain(2000..2100).chain([4095, 4096, 4097])
    }

    /// Bytes that differ from their neighbours, with room around.
    fn bytes(seed: usize) -> Vec<u8> {
        (0..4400).map(|at| ((at * 7 + seed) % 251) as u8).collect()
    }

    #[test]
    fn copying_copies_all_and_no_more() {
        for length in lengths() {
            for (from_at, to_at) in [(0, 0), (1, 3), (16, 5), (63, 64)] {
                let (from, mut to) = (bytes(1), bytes(2));
                let mut expected = to.clone();
                expected[to_at..to_at + length].copy_from_slice(&from[from_at..from_at + length]);
                let target = to[to_at..].as_mut_ptr();
                // SAFETY: both stretches lie in their vectors.
                let gave = unsafe { zpager_test_memcpy(target, from[from_at..].as_ptr(), length) };
                assert!(gave == target && to == expected, "{length} from {from_at} to {to_at}");
            }
        }
    }

    #[test]
    fn moving_within_one_stretch_keeps_what_is_moved() {
        for length in lengths() {
            for (from_at, to_at) in [(0, 0), (0, 1), (1, 0), (40, 100), (100, 40)] {
                let mut all = bytes(3);
                let mut expected = all.clone();
                expected.copy_within(from_at..from_at + length, to_at);
                let base = all.as_mut_ptr();
                // SAFETY: both stretches lie in the vector.
                let gave =
                    unsafe { zpager_test_memmove(base.add(to_at), base.add(from_at), length) };
                assert!(gave == all[to_at..].as_mut_ptr(), "{length}");
                assert!(all == expected, "{length} from {from_at} to {to_at}");
            }
        }
    }

    #[test]
    fn filling_fills_all_and_no_more() {
        for length in lengths() {
            for at in [0, 1, 17] {
                let mut all = bytes(4);
                let mut expected = all.clone();
                expected[at..at + length].fill(0xa5);
                let target = all[at..].as_mut_ptr();
                // SAFETY: the stretch lies in the vector. Only the lowest byte counts.
                let gave = unsafe { zpager_test_memset(target, 0x7a5, length) };
                assert!(gave == target && all == expected, "{length} at {at}");
            }
        }
    }

    #[test]
    fn comparing_finds_the_first_difference() {
        let one = bytes(5);
        for length in [0, 1, 2, 15, 16, 100] {
            for at in 0..length {
                let mut other = one.clone();
                other[at] ^= 0x80;
                // SAFETY: both stretches lie in their vectors.
                let order =
                    unsafe { zpager_test_memcmp(one.as_ptr(), other.as_ptr(), length).signum() };
                assert_eq!(order, if one[at] < other[at] { -1 } else { 1 });
            }
            // SAFETY: as above.
            assert_eq!(unsafe { zpager_test_memcmp(one.as_ptr(), one.as_ptr(), length) }, 0);
        }
    }
}
