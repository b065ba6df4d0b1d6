//! The few instructions that no compiler can be asked for: returning from a
//! signal, cloning onto another stack, running another program, and being entered
//! from outside.

use core::arch::naked_asm;

use zpager_sys::signal::{OURS_NOW, SIGSYS};

use zpager_wire::ENDED;

use crate::signals::SIGSYS_ACTION;
use crate::stubs::TRAP;

/// Where the kernel returns to after one of our signal handlers: `rt_sigreturn`.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn restorer() {
    naked_asm!("mov eax, 15", "syscall")
}

/// A system call that makes a child: its number and its arguments.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clone {
    pub(crate) number: usize,
    pub(crate) arguments: [usize; 6],
}

/// Makes a child that shares this memory. The child calls `begin(frame)` on the
/// stack below `frame`, a signal frame, and then returns through the frame.
///
/// # Safety
/// `call` is a clone with `CLONE_VM`; `frame` lies at the top of a stack that
/// nobody else uses and describes the state in which the child is to go on.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn clone_onto_frame(
    call: &Clone,
    frame: usize,
    begin: extern "C" fn(usize),
) -> isize {
    naked_asm!(
        "push r12",
        "push r13",
        "push r14",
        "mov r12, rsi",
        "mov r13, rdx",
        "mov rax, [rdi]",
        "mov rsi, [rdi + 16]",
        "mov rdx, [rdi + 24]",
        "mov r10, [rdi + 32]",
        "mov r8, [rdi + 40]",
        "mov r9, [rdi + 48]",
        "mov rdi, [rdi + 8]",
        "syscall",
        "test rax, rax",
        "jz 2f",
        "pop r14",
        "pop r13",
        "pop r12",
        "ret",
        // The child: whatever stack the kernel gave it is not to be touched.
        "2:",
        "mov rsp, r12",
        "and rsp, -16",
        "mov rdi, r12",
        "call r13",
        "lea rsp, [r12 + 8]",
        "mov eax, 15",
        "syscall",
    )
}

/// How long [`execution`] is, at the most.
pub(crate) const EXECUTION_BYTES: usize = 64;
/// Where its call has been made, and from where on its result is in `rbx`.
pub(crate) const EXECUTION_MADE: usize = 2;
pub(crate) const EXECUTION_KEPT: usize = 5;

/// Makes an `execve`, for which the registers are set, and where that fails goes on at the trap with its result.
/// What the next program inherits is in force meanwhile: our signals may be blocked and ignored, and before the
/// trap is dispatched SIGSYS has our handler again and none of them is blocked.
///
/// # Safety
/// A thread of the program comes here by its registers, which the trap gives back.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn execution() {
    naked_asm!(
        "2:",
        "syscall",
        "mov rbx, rax",
        // rt_sigaction(SIGSYS, SIGSYS_ACTION, NULL, 8)
        "mov eax, 13",
        "mov edi, {sigsys}",
        "lea rsi, [rip + {action}]",
        "xor edx, edx",
        "mov r10d, 8",
        "syscall",
        // rt_sigprocmask(SIG_UNBLOCK, OURS_NOW, NULL, 8)
        "mov eax, 14",
        "mov edi, 1",
        "lea rsi, [rip + {ours}]",
        "syscall",
        "mov rax, rbx",
        "jmp [rip + {trap}]",
        ".fill {bytes} - (. - 2b), 1, 0xcc",
        sigsys = const SIGSYS,
        action = sym SIGSYS_ACTION,
        ours = sym OURS_NOW,
        trap = sym TRAP,
        bytes = const EXECUTION_BYTES,
    )
}

const ENTRY_STACK_BYTES: usize = 1 << 20;

#[repr(align(4096))]
struct EntryStack(#[allow(dead_code)] [u8; ENTRY_STACK_BYTES]);

/// The stack on which the supervisor has this image run, one thread at a time, and on which a process begins to
/// be managed: the program's own may be a small one. Who leaves it gives it back.
static mut ENTRY_STACK: EntryStack = EntryStack([0; ENTRY_STACK_BYTES]);

/// Calls `work` with `argument` on that stack.
///
/// # Safety
/// Nobody else runs on it: no other thread has entered this image, and the supervisor enters none of a process
/// of which a thread is in it.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn call_on_entry_stack(argument: usize, work: extern "C" fn(usize)) {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "lea rsp, [rip + {stack} + {bytes}]",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        // madvise(ENTRY_STACK, ENTRY_STACK_BYTES, MADV_DONTNEED)
        "mov eax, 28",
        "lea rdi, [rip + {stack}]",
        "mov esi, {bytes}",
        "mov edx, 4",
        "syscall",
        "ret",
        stack = sym ENTRY_STACK,
        bytes = const ENTRY_STACK_BYTES,
    )
}

/// Where the supervisor enters a stopped thread; see [`zpager_wire::Entry`].
///
/// # Safety
/// Only the supervisor may go here, with all threads of the process stopped and
/// the registers as documented at [`zpager_wire::Entry`].
#[unsafe(naked)]
pub unsafe extern "C" fn enter() {
    naked_asm!(
        "lea rsp, [rip + {stack} + {bytes}]",
        "cld",
        // Twice: the stack is aligned at the call.
        "push rax",
        "push rax",
        "push r11",
        "push r10",
        "call {entered}",
        "mov r12, rax",
        // madvise(ENTRY_STACK, ENTRY_STACK_BYTES, MADV_DONTNEED)
        "mov eax, 28",
        "lea rdi, [rip + {stack}]",
        "mov esi, {bytes}",
        "mov edx, 4",
        "syscall",
        // tgkill(getpid(), gettid(), SIGTRAP)
        "mov eax, 39",
        "syscall",
        "mov edi, eax",
        "mov eax, 186",
        "syscall",
        "mov esi, eax",
        "mov edx, 5",
        "mov r15d, {ended}",
        "2:",
        "mov eax, 234",
        "syscall",
        "jmp 2b",
        stack = sym ENTRY_STACK,
        bytes = const ENTRY_STACK_BYTES,
        entered = sym crate::start::entered,
        ended = const ENDED,
    )
}
