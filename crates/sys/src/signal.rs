//! Signals as the kernel sees them: actions, masks, alternate stacks, and the
//! frame that it builds on a stack when it delivers one.
//!
//! Source: arch/x86/include/uapi/asm/{sigcontext,ucontext,signal}.h and
//! arch/x86/kernel/signal_64.c (`x64_setup_rt_frame`).

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::syscall::{Errno, checked, nr};

/// An instruction that there is not.
pub const SIGILL: u32 = 4;
/// A breakpoint.
pub const SIGTRAP: u32 = 5;
/// The bad-memory signal that userfaultfd sends.
pub const SIGBUS: u32 = 7;
/// Ends a process: no handler, and no mask that holds it.
pub const SIGKILL: u32 = 9;
/// Stops one in the same way.
pub const SIGSTOP: u32 = 19;
/// A division by zero, and the like.
pub const SIGFPE: u32 = 8;
/// By which the processes of a run call each other's pagers. Its default is to do nothing: one that
/// comes when its process has become another program may not end that.
pub const SIGURG: u32 = 23;
/// The signal that Syscall User Dispatch sends.
pub const SIGSYS: u32 = 31;
/// What an access that may not be is answered with, and a signal for which there is no room.
pub const SIGSEGV: u32 = 11;
/// Code of a SIGSEGV that the processor's protection keys are the cause of.
pub const SEGV_PKUERR: i32 = 4;
/// Highest signal number.
pub const SIGNALS: usize = 64;

/// Handler value: the default action.
pub const SIG_DFL: usize = 0;
/// Handler value: ignored.
pub const SIG_IGN: usize = 1;
/// Run on the alternate stack.
pub const SA_ONSTACK: u64 = 0x0800_0000;
/// Back to the default action when delivered.
pub const SA_RESETHAND: u64 = 0x8000_0000;
/// The signal itself is not blocked while it is handled.
pub const SA_NODEFER: u64 = 0x4000_0000;
/// Three-argument handler.
pub const SA_SIGINFO: u64 = 4;
/// A restorer is given.
pub const SA_RESTORER: u64 = 0x0400_0000;
/// Interrupted calls are made again.
pub const SA_RESTART: u64 = 0x1000_0000;
/// Of SIGCHLD: none for children that stop.
pub const SA_NOCLDSTOP: u64 = 1;
/// Of SIGCHLD: children that end leave nothing to wait for.
pub const SA_NOCLDWAIT: u64 = 2;
/// Addresses of faults keep their tags.
const SA_EXPOSE_TAGBITS: u64 = 0x800;
/// All flags that the kernel keeps of what it is asked for: it forgets the others.
pub const SA_KEPT: u64 = SA_NOCLDSTOP
    | SA_NOCLDWAIT
    | SA_SIGINFO
    | SA_EXPOSE_TAGBITS
    | SA_RESTORER
    | SA_ONSTACK
    | SA_RESTART
    | SA_NODEFER
    | SA_RESETHAND;
/// `ss_flags`: no alternate stack.
pub const SS_DISABLE: i32 = 2;
/// `ss_flags`: on it now.
pub const SS_ONSTACK: i32 = 1;
/// `ss_flags`: taken off while a handler runs, whichever stack that is on.
pub const SS_AUTODISARM: i32 = 1 << 31;

/// A set of signals, bit `n - 1` for signal `n`.
pub type Mask = u64;

/// The set of one signal.
pub const fn only(signal: u32) -> Mask {
    1 << (signal - 1)
}

/// The signals by which the kernel calls the pager: blocked, they would end the process.
pub const FORCED: Mask = only(SIGBUS) | only(SIGSYS);

/// The signals that are never in a thread's real mask while it is managed by userfaultfd.
const OURS: Mask = FORCED | only(SIGURG);

/// Those of this process. An atomic word, as an instruction of ours reads it, too.
pub static OURS_NOW: AtomicU64 = AtomicU64::new(OURS);

/// The signals that are never in a thread's real mask while it is managed.
#[inline]
pub fn ours() -> Mask {
    OURS_NOW.load(Relaxed)
}

/// Whether a signal is one of them.
#[inline]
pub fn is_ours(signal: u32) -> bool {
    ours() & only(signal) != 0
}

/// Has SIGSEGV be one of them, by which guard pages are noticed. Before anything is managed.
pub fn watch_by_guards() {
    OURS_NOW.store(OURS | only(SIGSEGV), Relaxed);
}

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Action {
    /// Address of the handler, or [`SIG_DFL`], [`SIG_IGN`].
    pub handler: usize,
    /// `SA_*`.
    pub flags: u64,
    /// Address of the code that makes `rt_sigreturn`.
    pub restorer: usize,
    /// Blocked while the handler runs.
    pub mask: Mask,
}

/// `stack_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AlternateStack {
    /// Lowest address.
    pub start: usize,
    /// `SS_*`.
    pub flags: i32,
    /// Length.
    pub bytes: usize,
}

impl AlternateStack {
    /// No alternate stack.
    pub const NONE: Self = AlternateStack { start: 0, flags: SS_DISABLE, bytes: 0 };

    /// Whether a thread with this stack pointer is on it. One that is taken off for handlers nobody is
    /// on: it may be in use, but then it is not set.
    pub fn is_used_at(&self, stack_pointer: usize) -> bool {
        self.flags & SS_AUTODISARM == 0 && self.holds(stack_pointer)
    }

    /// Whether a stack pointer lies on it.
    pub fn holds(&self, stack_pointer: usize) -> bool {
        stack_pointer > self.start && stack_pointer - self.start <= self.bytes
    }
}

/// `siginfo_t`: the words that are looked at, and the rest.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Info {
    /// Signal number.
    pub signal: i32,
    /// `si_errno`.
    pub errno: i32,
    /// `si_code`.
    pub code: i32,
    _padding: i32,
    /// The union: of a fault, the first word is the address; of a queued signal, the second is the value.
    pub words: [usize; 14],
}

impl Info {
    /// Of a signal of which there is nothing else to tell.
    pub fn of(signal: u32, code: i32) -> Info {
        Info { signal: signal as i32, errno: 0, code, _padding: 0, words: [0; 14] }
    }
}

/// `struct sigcontext` of x86-64: the interrupted thread's registers.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)] // The names are the registers'.
pub struct Registers {
    pub r8: usize,
    pub r9: usize,
    pub r10: usize,
    pub r11: usize,
    pub r12: usize,
    pub r13: usize,
    pub r14: usize,
    pub r15: usize,
    pub rdi: usize,
    pub rsi: usize,
    pub rbp: usize,
    pub rbx: usize,
    pub rdx: usize,
    pub rax: usize,
    pub rcx: usize,
    pub rsp: usize,
    pub rip: usize,
    pub eflags: usize,
    pub segments: usize,
    pub error: usize,
    pub trap: usize,
    pub old_mask: usize,
    pub cr2: usize,
    /// Address of the floating-point state within the frame, or 0 for the initial state.
    pub fpstate: usize,
    pub reserved: [usize; 8],
}

impl Registers {
    /// The arguments of a system call.
    pub fn arguments(&self) -> [usize; 6] {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9]
    }

    /// The register of one of these arguments.
    pub fn argument_mut(&mut self, at: usize) -> &mut usize {
        match at {
            0 => &mut self.rdi,
            1 => &mut self.rsi,
            2 => &mut self.rdx,
            3 => &mut self.r10,
            4 => &mut self.r8,
            _ => &mut self.r9,
        }
    }
}

/// `struct ucontext` as the kernel lays it out.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Context {
    /// `uc_flags`.
    pub flags: usize,
    /// `uc_link`.
    pub link: usize,
    /// The alternate stack, restored by `rt_sigreturn`.
    pub stack: AlternateStack,
    /// Registers.
    pub registers: Registers,
    /// The mask, restored by `rt_sigreturn`.
    pub mask: Mask,
}

/// `struct rt_sigframe`: what lies at the stack pointer when a handler begins.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Frame {
    /// Where the handler returns to.
    pub restorer: usize,
    /// The interrupted state.
    pub context: Context,
    /// The signal's particulars.
    pub info: Info,
}

/// `FP_XSTATE_MAGIC1`, at `sw_reserved` in the legacy area.
const XSTATE_MAGIC: u32 = 0x4650_5853;
const SOFTWARE_BYTES_AT: usize = 464;
const LEGACY_BYTES: usize = 512;
/// More than any x86-64 processor's state with AMX; a frame that says more is not one.
const FPSTATE_BYTES_MAX: usize = 16384;
const RED_ZONE_BYTES: usize = 128;

/// Length of the floating-point state at `address`, with what the kernel wrote behind it.
///
/// # Safety
/// `address` is the `fpstate` of a frame that the kernel built and that is readable.
pub unsafe fn fpstate_bytes(address: usize) -> usize {
    let at = (address + SOFTWARE_BYTES_AT) as *const u32;
    // SAFETY: the legacy area of 512 bytes is always there.
    let (magic, extended_bytes) = unsafe { (at.read_unaligned(), at.add(1).read_unaligned()) };
    if magic == XSTATE_MAGIC {
        (extended_bytes as usize).clamp(LEGACY_BYTES, FPSTATE_BYTES_MAX)
    } else {
        LEGACY_BYTES
    }
}

/// Whether the floating-point state at `address` is as XSAVE lays it out.
///
/// # Safety
/// As for [`fpstate_bytes`].
pub unsafe fn is_extended(address: usize) -> bool {
    // SAFETY: the legacy area of 512 bytes is always there.
    unsafe { ((address + SOFTWARE_BYTES_AT) as *const u32).read_unaligned() == XSTATE_MAGIC }
}

/// Where a frame goes on a stack, and how much of the stack it takes.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// Address of the [`Frame`]; `rsp` of the handler.
    pub frame: usize,
    /// Address of the floating-point state, 0 if there is none.
    pub fpstate: usize,
    /// Length of the floating-point state.
    pub fpstate_bytes: usize,
    /// First byte above.
    pub end: usize,
}

impl Place {
    /// Room for a frame below `top`; below the red zone as well when `top` is a live stack pointer.
    pub fn below(top: usize, is_live: bool, fpstate_bytes: usize) -> Place {
        let end = if is_live { top - RED_ZONE_BYTES } else { top };
        let fpstate = (end - fpstate_bytes) & !63;
        let frame = ((fpstate - size_of::<Frame>()) & !15) - 8;
        Place { frame, fpstate: if fpstate_bytes > 0 { fpstate } else { 0 }, fpstate_bytes, end }
    }

    /// Writes a frame with `context`'s state there.
    ///
    /// # Safety
    /// `frame..end` is writable and nobody else's; `context` and the state it
    /// points to are readable.
    pub unsafe fn write(&self, restorer: usize, context: &Context, info: &Info) -> *mut Frame {
        let frame = self.frame as *mut Frame;
        // SAFETY: the caller's promise; the areas were laid out not to overlap.
        unsafe {
            if self.fpstate != 0 {
                let source = context.registers.fpstate as *const u8;
                source.copy_to_nonoverlapping(self.fpstate as *mut u8, self.fpstate_bytes);
            }
            frame.write(Frame { restorer, context: *context, info: *info });
            (*frame).context.registers.fpstate = self.fpstate;
        }
        frame
    }
}

/// Sets or asks the action of a signal.
///
/// # Errors
/// `EINVAL` for a signal that has none.
///
/// # Safety
/// A handler in `new` is code that may run whenever the signal comes.
pub unsafe fn action(signal: u32, new: Option<&Action>) -> Result<Action, Errno> {
    let mut old = Action::default();
    let new = new.map_or(0, |action| core::ptr::from_ref(action) as usize);
    let arguments = [signal as usize, new, (&raw mut old) as usize, 8];
    // SAFETY: both structs are the kernel's layout; the rest is the caller's promise.
    unsafe { checked(nr::__NR_rt_sigaction, arguments) }.map(|_| old)
}

/// Replaces the calling thread's mask and gives the old one.
pub fn set_mask(mask: Mask) -> Mask {
    let mut old: Mask = 0;
    const SET: usize = 2;
    let arguments = [SET, (&raw const mask) as usize, (&raw mut old) as usize, 8];
    // SAFETY: both words are ours.
    let _ = unsafe { checked(nr::__NR_rt_sigprocmask, arguments) };
    old
}

/// The signals that are pending for the calling thread and its process, and blocked.
pub fn pending() -> Mask {
    let mut set: Mask = 0;
    // SAFETY: the kernel writes one word.
    let _ = unsafe { checked(nr::__NR_rt_sigpending, [(&raw mut set) as usize, 8]) };
    set
}

/// The code of a signal that kill(2) sent.
pub const SI_USER: i32 = 0;
/// The code of a signal that [`queue`] sent.
pub const SI_QUEUE: i32 = -1;
/// The code of a signal that was sent to one thread.
pub const SI_TKILL: i32 = -6;
/// The code of a signal that the kernel sends for no cause that it could tell.
pub const SI_KERNEL: i32 = 0x80;
/// The code of a SIGSYS by which a filter of calls (seccomp) traps one.
pub const SYS_SECCOMP: i32 = 1;

/// Sends a signal to a process, as kill(2) does, if it is there and that is allowed.
pub fn send(pid: i32, signal: u32) {
    // SAFETY: what the signal does is what the caller wants.
    let _ = unsafe { checked(nr::__NR_kill, [pid as usize, signal as usize]) };
}

/// Sends `signal` with `value` to a process, as sigqueue(3) does. False where it is gone, or that is not allowed.
pub fn queue(pid: i32, signal: u32, value: usize) -> bool {
    let info = queued(signal, value);
    let arguments = [pid as usize, signal as usize, (&raw const info) as usize];
    // SAFETY: the kernel only reads the information.
    unsafe { checked(nr::__NR_rt_sigqueueinfo, arguments) }.is_ok()
}

/// The same for one thread of a process, if it is there.
pub fn queue_for_thread(pid: i32, tid: i32, signal: u32, value: usize) {
    let info = queued(signal, value);
    let arguments = [pid as usize, tid as usize, signal as usize, (&raw const info) as usize];
    // SAFETY: the kernel only reads the information.
    let _ = unsafe { checked(nr::__NR_rt_tgsigqueueinfo, arguments) };
}

/// Sends a signal to the calling process, or to the calling thread, as it came before.
pub fn send_on(pid: i32, tid: Option<i32>, signal: u32, info: &Info) {
    let [pid, signal, info] = [pid as usize, signal as usize, core::ptr::from_ref(info) as usize];
    // SAFETY: the kernel only reads the information.
    let sent = unsafe {
        match tid {
            None => checked(nr::__NR_rt_sigqueueinfo, [pid, signal, info]),
            Some(tid) => checked(nr::__NR_rt_tgsigqueueinfo, [pid, tid as usize, signal, info]),
        }
    };
    if sent.is_err() {
        // Only a process's first thread may say so of any sender.
        send(pid as i32, signal as u32);
    }
}

fn queued(signal: u32, value: usize) -> Info {
    let mut info = Info::of(signal, SI_QUEUE);
    info.words[0] = crate::process::pid() as usize;
    info.words[1] = value;
    info
}

/// Takes a signal away that is pending for the calling thread and blocked, if there is one.
pub fn take(signal: u32) -> Option<Info> {
    let mask = only(signal);
    let mut info = Info::of(signal, 0);
    let at_once = [0u64; 2];
    let [mask, info_at] = [(&raw const mask) as usize, (&raw mut info) as usize];
    // SAFETY: the kernel reads mask and time, and writes the information.
    let taken =
        unsafe { checked(nr::__NR_rt_sigtimedwait, [mask, info_at, at_once.as_ptr() as usize, 8]) };
    taken.is_ok().then_some(info)
}

/// Sets the calling thread's alternate stack and gives the old one.
///
/// # Errors
/// `EPERM` while the thread runs on the old one.
///
/// # Safety
/// The stack is memory that is used for nothing else while it is set.
pub unsafe fn set_alternate_stack(stack: &AlternateStack) -> Result<AlternateStack, Errno> {
    let mut old = AlternateStack::NONE;
    let arguments = [core::ptr::from_ref(stack) as usize, (&raw mut old) as usize];
    // SAFETY: both structs are the kernel's layout; the rest is the caller's promise.
    unsafe { checked(nr::__NR_sigaltstack, arguments) }.map(|_| old)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_the_kernel_s() {
        assert_eq!(size_of::<Context>(), 40 + 256 + 8);
        assert_eq!(size_of::<Info>(), 128);
        assert_eq!(size_of::<Frame>(), 8 + 304 + 128);
    }

    #[test]
    fn a_frame_is_aligned_as_a_call_would_leave_the_stack() {
        for top in 0x10_0000..0x10_0040 {
            let place = Place::below(top, true, 2696);
            assert_eq!(place.frame % 16, 8);
            assert_eq!(place.fpstate % 64, 0);
            assert!(place.frame + size_of::<Frame>() <= place.fpstate);
            assert!(place.fpstate + 2696 <= top - 128);
        }
    }
}
