//! Going back from a fault that was served, without the kernel.
//!
//! A handler returns by `rt_sigreturn`, to have the kernel restore the registers, the mask and the alternate stack.
//! That takes a third of what the kernel needs to deliver a fault and to return from it, and most of it is the
//! call as such. After a fault the registers are as they were, but for those that a function may change, and a thread
//! restores them as well. So a fault's signal is delivered with no signal blocked: then there is no mask to restore.
//!
//! A signal that comes while its thread serves a fault is kept in the thread's record, with all others blocked from
//! then on. It comes where the thread goes back to, once that is due; the kernel takes the thread there. One that comes
//! on the way back comes at once, as if it had come when the thread was there.
//!
//! Sources: Intel SDM volume 2, XRSTOR, and IRET to the same privilege; arch/x86/kernel/signal_64.c.
//!
//! Invariants:
//! - whoever serves a fault holds what no handler asks for that finds its thread's stack pointer on its block;
//! - from [`leave`] on nothing changes in the context at `rbx`, and at [`LAST_AT`] the registers are what they were but
//!   for those that `iretq` takes from the stack.
//!
//! Not while another process may have this memory: a signal that ends one of them would do so in the midst of a
//! fault, of which nobody knows how far it came.

use core::arch::naked_asm;
use core::mem::offset_of;
use core::sync::atomic::Ordering::Relaxed;

use zpager_sys::processor;
use zpager_sys::signal::{
    self, Action, Context, Info, Registers, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, is_extended,
};

use crate::signals::handle;
use crate::threads::{BLOCK_BYTES, IS_SHARED, Thread};

/// Signals by which the kernel tells a thread what is wrong with what it does.
const CAUSED: [u32; 5] = [SIGILL, SIGBUS, SIGFPE, SIGSEGV, SIGSYS];

/// Where the last instruction of [`leave`] lies in it.
const LAST_AT: usize = 192;
/// The segments of every program in 64-bit mode.
const CODE_SEGMENT: usize = 0x33;
const STACK_SEGMENT: usize = 0x2b;

/// How a thread goes back.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Return {
    /// By `rt_sigreturn`, once what was postponed has been served.
    Kernel,
    /// The same without the kernel.
    Direct,
    /// By `rt_sigreturn`, to the handler that it has interrupted.
    Interrupted,
}

/// Where a thread is that goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaving {
    /// What it goes back to is in the context at `rbx`.
    ByContext,
    /// Its registers are what they were, but for those that `iretq` takes from the stack.
    ByStack,
}

/// The handler of SIGBUS, and of SIGSEGV where that is ours, in which no signal is blocked.
///
/// # Safety
/// The kernel calls it with a signal, on the thread's block.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn handle_fault() {
    naked_asm!(
        "push rbx",
        "mov rbx, rdx",
        "call {on_fault}",
        "jmp {leave}",
        on_fault = sym on_fault,
        leave = sym leave,
    )
}

/// What [`handle_fault`] calls.
extern "C" fn on_fault(signal: i32, info: &Info, context: &mut Context) -> Return {
    processor::allow_unaligned();
    // SAFETY: the kernel runs this on the thread's block.
    let thread = unsafe { Thread::current() };
    if postpone(thread, info, context) {
        Return::Interrupted
    } else if handle(thread, signal, info, context) && may_go_back(&context.registers) {
        Return::Direct
    } else {
        Return::Kernel
    }
}

/// What was postponed comes now, in the thread whose fault with this context was served.
extern "C" fn serve_postponed(context: &mut Context) {
    // SAFETY: as above.
    let thread = unsafe { Thread::current() };
    let info = thread.postponed;
    thread.has_postponed = false;
    handle(thread, info.signal, &info, context);
}

/// Whether a signal came while its thread was serving a fault, and is kept until that is done. One that came while
/// it goes back comes where it goes back to.
pub(crate) fn postpone(thread: &mut Thread, info: &Info, context: &mut Context) -> bool {
    while thread.stack().holds(context.registers.rsp) {
        match leaving(context.registers.rip) {
            Some(Leaving::ByStack) => {
                let taken = context.registers.rsp as *const [usize; 5];
                // SAFETY: what `iretq` takes, on the thread's block.
                let [rip, _, eflags, rsp, _] = unsafe { *taken };
                context.registers = Registers { rip, eflags, rsp, ..context.registers };
            }
            Some(Leaving::ByContext) => {
                // SAFETY: the context that it goes back to, above on its block.
                let outer = unsafe { &*(context.registers.rbx as *const Context) };
                (context.registers, context.mask) = (outer.registers, outer.mask);
            }
            None => {
                keep(thread, info);
                context.mask = !0;
                return true;
            }
        }
    }
    false
}

/// Keeps a signal until the fault that the thread serves is served: no other one comes until then.
fn keep(thread: &mut Thread, info: &Info) {
    signal::set_mask(!0);
    let signal = info.signal as u32;
    if CAUSED.contains(&signal) && info.code > 0 {
        // SAFETY: the default action needs no handler. What is wrong here comes again.
        let _ = unsafe { signal::action(signal, Some(&Action::default())) };
    } else if thread.has_postponed {
        signal::send_on(thread.pid, Some(thread.tid.load(Relaxed).abs()), signal, info);
    } else {
        (thread.has_postponed, thread.postponed) = (true, *info);
    }
}

/// Whether a thread may go on with these registers without the kernel's help.
fn may_go_back(registers: &Registers) -> bool {
    const SEGMENTS: usize = STACK_SEGMENT << 48 | CODE_SEGMENT;
    const SEGMENTS_MASK: usize = 0xffff << 48 | 0xffff;
    const NESTED_TASK: usize = 1 << 14;
    registers.segments & SEGMENTS_MASK == SEGMENTS
        && registers.eflags & NESTED_TASK == 0
        && registers.fpstate != 0
        && !IS_SHARED.load(Relaxed)
        && !processor::has_shadow_stack()
        // SAFETY: the kernel's own frame.
        && unsafe { is_extended(registers.fpstate) }
}

/// Whether that address is of the way back.
fn leaving(address: usize) -> Option<Leaving> {
    match address.wrapping_sub(leave as *const () as usize) {
        LAST_AT => Some(Leaving::ByStack),
        ..LAST_AT => Some(Leaving::ByContext),
        _ => None,
    }
}

/// Where a thread's registers lie from its context on.
macro_rules! register {
    ($name:ident) => {
        offset_of!(Context, registers) + offset_of!(Registers, $name)
    };
}

/// How a thread goes back: by the kernel, or as [`Return`] says.
///
/// # Safety
/// For [`handle_fault`], with a [`Return`] in `al`.
#[unsafe(naked)]
unsafe extern "C" fn leave() {
    naked_asm!(
        "2:",
        "cmp al, {interrupted}",
        "je 4f",
        "mov rcx, rsp",
        "and rcx, {block}",
        "cmp byte ptr [rcx + {postponed}], 0",
        "jne {late}",
        "cmp al, {direct}",
        "jne 4f",
        "mov rcx, [rbx + {fpstate}]",
        "mov eax, -1",
        "mov edx, -1",
        "xrstor64 [rcx]",
        "push {stack_segment}",
        "push qword ptr [rbx + {rsp}]",
        "push qword ptr [rbx + {eflags}]",
        "push {code_segment}",
        "push qword ptr [rbx + {rip}]",
        "push qword ptr [rbx + {rbx}]",
        "mov r8, [rbx + {r8}]",
        "mov r9, [rbx + {r9}]",
        "mov r10, [rbx + {r10}]",
        "mov r11, [rbx + {r11}]",
        "mov r12, [rbx + {r12}]",
        "mov r13, [rbx + {r13}]",
        "mov r14, [rbx + {r14}]",
        "mov r15, [rbx + {r15}]",
        "mov rdi, [rbx + {rdi}]",
        "mov rsi, [rbx + {rsi}]",
        "mov rbp, [rbx + {rbp}]",
        "mov rdx, [rbx + {rdx}]",
        "mov rax, [rbx + {rax}]",
        "mov rcx, [rbx + {rcx}]",
        "jmp 3f",
        "4:",
        "mov rsp, rbx",
        "mov eax, 15",
        "syscall",
        ".fill {last_at} - 1 - (. - 2b), 1, 0xcc",
        "3:",
        "pop rbx",
        "iretq",
        interrupted = const Return::Interrupted as u8,
        direct = const Return::Direct as u8,
        block = const -(BLOCK_BYTES as isize),
        postponed = const offset_of!(Thread, has_postponed),
        late = sym leave_late,
        last_at = const LAST_AT,
        stack_segment = const STACK_SEGMENT,
        code_segment = const CODE_SEGMENT,
        fpstate = const register!(fpstate),
        rip = const register!(rip),
        rsp = const register!(rsp),
        eflags = const register!(eflags),
        r8 = const register!(r8),
        r9 = const register!(r9),
        r10 = const register!(r10),
        r11 = const register!(r11),
        r12 = const register!(r12),
        r13 = const register!(r13),
        r14 = const register!(r14),
        r15 = const register!(r15),
        rdi = const register!(rdi),
        rsi = const register!(rsi),
        rbp = const register!(rbp),
        rbx = const register!(rbx),
        rdx = const register!(rdx),
        rax = const register!(rax),
        rcx = const register!(rcx),
    )
}

/// A signal was postponed, with which all came to be blocked.
///
/// # Safety
/// For [`leave`].
#[unsafe(naked)]
unsafe extern "C" fn leave_late() {
    naked_asm!(
        "mov rdi, rbx",
        "call {serve}",
        "mov al, {kernel}",
        "jmp {leave}",
        serve = sym serve_postponed,
        kernel = const Return::Kernel as u8,
        leave = sym leave,
    )
}
