//! A filter of system calls that the program installs for itself.
//!
//! It holds for the pager's calls as well. One that lets all of those pass is the program's affair.
//! Before any other the process leaves management: all of its memory comes in, the kernel has the
//! program's signal handlers, mask and alternate stack again, and from the call itself on nothing is
//! dispatched. The user is told. A program that begins under such a filter is not managed at all
//! ([`crate::start`]). So does a process leave that gives the kernel memory by a ring ([`super::rings`]).
//!
//! Of several threads each goes on where it is. One that waits for the pager finds none
//! ([`Outcome::Left`]) and has its call made, its access or its signal once more, by the kernel alone. One
//! that is in the midst of a call that ends in the pager, or is being started, is waited for; one that is
//! there for its call's time alone ([`super::time_limits`]) is called out of it.
//!
//! Sources: seccomp(2); Documentation/userspace-api/seccomp_filter.rst; include/uapi/linux/filter.h.
//!
//! Bad cases: a filter of a child that only shares its parent's memory is not looked at, nor one of a
//! process with a thread that does not come out of such a call, and has to let the pager's calls pass. A
//! filter that the kernel refuses: the process has left management all the same. Since Linux 6.12
//! `rt_sigreturn` does not change the alternate stack on which it is called: the program's handlers go on
//! on the thread's block, until it sets a stack again. So do those of other threads on every kernel, and
//! what they block of the pager's signals is not blocked. One that decides by a call's arguments is taken
//! not to let it pass.

use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use zpager_sys::file::Fd;
use zpager_sys::signal::{self, Context, SIGNALS, is_ours};
use zpager_sys::syscall::nr;
use zpager_sys::{Errno, PAGE_BYTES, dispatch, limits, process};
use zpager_wire::EventKind;

use super::{Outcome, tracees};
use crate::identity;
use crate::parked::{CARRIER, call};
use crate::process::Process;
use crate::signals::is_handler;
use crate::stubs;
use crate::threads::Thread;

const ENOMEM: Errno = Errno(12);
/// Modes of `prctl(PR_SET_SECCOMP)`; `seccomp` has them one lower.
const STRICT: usize = 1;
const FILTER: usize = 2;
/// `struct sock_fprog`, and most instructions of one.
const PROGRAM_BYTES: usize = 16;
const INSTRUCTIONS_MAX: usize = 4096;
/// One past the last page that a program can have.
const PAGES_END: u64 = 1 << 35;
/// Pages that leave management at a time.
const LEAVING_PAGES: u64 = 256;
/// How often other threads are waited for, and how long each time, in nanoseconds.
const TURNS_MAX: u32 = 500;
pub(super) const TURN_NANOSECONDS: u64 = 1_000_000;

/// Set while a thread waits for others to come out of what stands in the way of leaving. Nobody begins then what
/// only keeps a call's time ([`Thread::keep_time`]).
pub(crate) static IS_LEAVING: AtomicBool = AtomicBool::new(false);

/// What an instruction does, as far as it is followed.
const LOAD_FIELD: u16 = 0x20;
const LOAD_NUMBER: u16 = 0x00;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER: u16 = 0x25;
const JUMP_NOT_LESS: u16 = 0x35;
const JUMP_BITS: u16 = 0x45;
const RETURN: u16 = 0x06;
/// Fields of `struct seccomp_data`, and what the second one is here.
const FIELD_CALL: u32 = 0;
const FIELD_MACHINE: u32 = 4;
const MACHINE: u32 = 0xc000_003e;
const RETURN_ALLOW: u32 = 0x7fff_0000;
const RETURN_LOG: u32 = 0x7ffc_0000;
const RETURN_ACTION: u32 = 0xffff_0000;

/// The calls that the pager makes for itself.
const OWN_CALLS: [u32; 41] = [
    nr::__NR_clock_gettime,
    nr::__NR_close,
    nr::__NR_fallocate,
    nr::__NR_fcntl,
    nr::__NR_fstat,
    nr::__NR_fstatfs,
    nr::__NR_futex,
    nr::__NR_geteuid,
    nr::__NR_getpid,
    nr::__NR_getppid,
    nr::__NR_getsockopt,
    nr::__NR_gettid,
    nr::__NR_io_getevents,
    nr::__NR_io_setup,
    nr::__NR_io_submit,
    nr::__NR_ioctl,
    nr::__NR_kcmp,
    nr::__NR_kill,
    nr::__NR_lseek,
    nr::__NR_madvise,
    nr::__NR_mincore,
    nr::__NR_mmap,
    nr::__NR_mprotect,
    nr::__NR_munmap,
    nr::__NR_nanosleep,
    nr::__NR_openat,
    nr::__NR_prctl,
    nr::__NR_pread64,
    nr::__NR_prlimit64,
    nr::__NR_process_vm_readv,
    nr::__NR_process_vm_writev,
    nr::__NR_pwrite64,
    nr::__NR_read,
    nr::__NR_readlinkat,
    nr::__NR_rt_sigaction,
    nr::__NR_rt_sigprocmask,
    nr::__NR_rt_sigqueueinfo,
    nr::__NR_rt_tgsigqueueinfo,
    nr::__NR_sigaltstack,
    nr::__NR_tgkill,
    nr::__NR_userfaultfd,
];

/// `struct sock_filter`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    operand: u32,
}

impl Process {
    /// `seccomp`: operation, flags, argument.
    pub(super) fn seccomp_call(&mut self, thread: &mut Thread, context: &mut Context) -> Outcome {
        let [operation, flags, argument, ..] = context.registers.arguments();
        let mode = (operation as u32 as usize).wrapping_add(STRICT);
        // So libraries find out whether there is such a call: the kernel refuses it.
        if mode == STRICT && (flags as u32, argument) != (0, 0) {
            return Outcome::GoOn;
        }
        self.sandbox_call(thread, context, mode, argument)
    }

    /// A filter, or the mode in which hardly any call may be made.
    pub(super) fn sandbox_call(
        &mut self,
        thread: &mut Thread,
        context: &mut Context,
        mode: usize,
        program: usize,
    ) -> Outcome {
        // It need not let a call pass that can be done without.
        self.drops_parts = false;
        let leaves = match mode {
            STRICT => true,
            FILTER => self.is_obstacle(thread, program),
            _ => false,
        };
        if leaves { self.leave_for(thread, context, EventKind::Sandboxed) } else { Outcome::GoOn }
    }

    /// Takes the process out of management before a call, for what the user is told then; the call is refused
    /// where its memory does not fit RAM.
    pub(super) fn leave_for(
        &mut self,
        thread: &mut Thread,
        context: &mut Context,
        reason: EventKind,
    ) -> Outcome {
        if !thread.is_of(self) {
            return Outcome::GoOn;
        }
        IS_LEAVING.store(false, Relaxed);
        if !self.fits_memory() {
            return Outcome::Done(ENOMEM.as_result());
        }
        if self.threads.live().any(|other| !ptr::eq(other, thread) && other.is_in_midst()) {
            self.leaving_turns = (self.leaving_turns + 1) % TURNS_MAX;
            if self.leaving_turns == 0 {
                return Outcome::GoOn;
            }
            IS_LEAVING.store(true, Relaxed);
            let waiting = self.threads.live().filter(|other| other.waits_for_time_alone());
            waiting.for_each(|other| call(other));
            return Outcome::Later;
        }
        self.leave(thread, context, reason);
        context.registers.rip -= stubs::SYSCALL_BYTES;
        Outcome::Left
    }

    /// Whether there is such a program, and it may stand in the pager's way. What it lies in is held.
    fn is_obstacle(&mut self, thread: &mut Thread, program: usize) -> bool {
        self.hold(thread, program, PROGRAM_BYTES);
        let Some([length, start]) = self.peek_words(program) else { return false };
        let length = length as u16 as usize;
        let bytes = length * size_of::<Instruction>();
        if !(1..=INSTRUCTIONS_MAX).contains(&length) {
            return false;
        }
        self.hold(thread, start, bytes);
        let is_readable = (0..bytes)
            .step_by(PAGE_BYTES)
            .chain([bytes - 1])
            .all(|offset| self.peek(start.wrapping_add(offset), &mut [0]));
        if !is_readable || !start.is_multiple_of(align_of::<Instruction>()) {
            return is_readable;
        }
        // SAFETY: readable, by the probes, and nobody else runs in this memory.
        let instructions =
            unsafe { core::slice::from_raw_parts(start as *const Instruction, length) };
        let is_used = |call: u32| call != nr::__NR_userfaultfd || !self.is_guarded();
        !OWN_CALLS.iter().all(|&call| !is_used(call) || lets_pass(instructions, call))
    }

    /// Whether what is swapped out fits RAM besides what is there.
    fn fits_memory(&mut self) -> bool {
        let bytes = self.stored_bytes();
        bytes <= self.control.settings.budget_bytes || bytes <= process::free_memory_bytes() / 2
    }

    /// What is swapped out, in bytes.
    pub(super) fn stored_bytes(&mut self) -> u64 {
        self.engine.cache.stored_pages() as u64 * PAGE_BYTES as u64
    }

    /// Takes the process out of management. From here on the kernel serves its threads as if there had
    /// never been a pager.
    fn leave(&mut self, thread: &mut Thread, context: &mut Context, reason: EventKind) {
        self.record_end();
        // What has come in is counted until its memory leaves management.
        let mut from = 0;
        while let Some(part) = self.regions.first_part(&(from..PAGES_END)) {
            // Terabytes that the program only reserved leave at once.
            let known =
                self.engine.cache.index.next_known(part.start, part.end).unwrap_or(part.end);
            from = part.end.min(known.max(part.start + LEAVING_PAGES));
            self.unmanage(part.start..from);
        }
        self.stop_answering();
        self.put_carrier_down(context);
        self.threads.live().for_each(|thread| thread.selector = dispatch::SELECTOR_ALLOW);
        if !self.threads.is_alone(thread) {
            // Where a call was about to be dispatched, or an access to fault, the signal is there by then.
            process::nap(TURN_NANOSECONDS);
        }
        for number in 1..=SIGNALS as u32 {
            let asked = self.actions[number as usize];
            let is_carrier = number == CARRIER && self.fd_signals != 0;
            let is_told = is_handler(&asked) || is_ours(number) || is_carrier;
            if is_told || tracees::may_be_handled(number, &asked) {
                // SAFETY: the program's own handler, or none.
                let _ = unsafe { signal::action(number, Some(&asked)) };
            }
        }
        // It gets no more signals of ours.
        thread.be_traced();
        while let Some((number, _)) = self.take_parked(thread, !0) {
            process::raise(number);
        }
        self.drop_spares(self.spare_pages);
        self.end_foretelling();
        self.engine.cache.give_back_spilled();
        self.slot.has_noted.store(0, Relaxed);
        self.publish();
        self.control.retire(&self.tables, self.slot, identity::run_pid());
        self.note(reason, 0, 0);
        limits::give_back();
        if !self.shares_descriptors {
            let own = self.own_descriptors();
            own.into_iter().filter(|fd| *fd >= 0).for_each(|fd| Fd(fd).close());
        }
        context.stack = thread.alternate;
        context.mask |= thread.pretended_mask;
    }
}

/// Whether a filter lets every call of this number pass, whatever its arguments.
fn lets_pass(instructions: &[Instruction], call: u32) -> bool {
    let mut at = 0;
    // What was loaded last, where it is known.
    let mut loaded = Some(0u32);
    // Jumps go forwards only.
    while let Some(&Instruction { code, if_true, if_false, operand }) = instructions.get(at) {
        at += 1;
        let jumps = |is_true: bool| usize::from(if is_true { if_true } else { if_false });
        match (code, loaded) {
            (LOAD_FIELD, _) => {
                loaded = match operand {
                    FIELD_CALL => Some(call),
                    FIELD_MACHINE => Some(MACHINE),
                    _ => None,
                }
            }
            (LOAD_NUMBER, _) => loaded = Some(operand),
            (RETURN, _) => return [RETURN_ALLOW, RETURN_LOG].contains(&(operand & RETURN_ACTION)),
            (JUMP, _) => at += operand as usize,
            (AND, Some(value)) => loaded = Some(value & operand),
            (JUMP_EQUAL, Some(value)) => at += jumps(value == operand),
            (JUMP_GREATER, Some(value)) => at += jumps(value > operand),
            (JUMP_NOT_LESS, Some(value)) => at += jumps(value >= operand),
            (JUMP_BITS, Some(value)) => at += jumps(value & operand != 0),
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn instruction(code: u16, operand: u32, if_true: u8, if_false: u8) -> Instruction {
        Instruction { code, if_true, if_false, operand }
    }

    /// What a filter with these instructions behind a load of the call's number gives.
    fn passes(rest: &[Instruction], call: u32) -> bool {
        let mut instructions = [instruction(RETURN, 0, 0, 0); 8];
        instructions[0] = instruction(LOAD_FIELD, FIELD_CALL, 0, 0);
        instructions[1..=rest.len()].copy_from_slice(rest);
        lets_pass(&instructions, call)
    }

    #[test]
    fn filters_are_followed() {
        let allow = instruction(RETURN, RETURN_ALLOW, 0, 0);
        let forbid = instruction(RETURN, 0x0005_0001, 0, 0);
        let denies = [instruction(JUMP_EQUAL, 16, 0, 1), forbid, allow];
        assert!(passes(&denies, 28) && !passes(&denies, 16));
        let allows = [instruction(JUMP_NOT_LESS, 200, 1, 0), allow, forbid];
        assert!(passes(&allows, 199) && !passes(&allows, 200));
        let greater = [instruction(JUMP_GREATER, 7, 1, 0), allow, forbid];
        assert!(passes(&greater, 7) && !passes(&greater, 8));
        let other_machine = [
            instruction(LOAD_FIELD, FIELD_MACHINE, 0, 0),
            instruction(JUMP_EQUAL, MACHINE, 1, 0),
            forbid,
            instruction(JUMP, 1, 0, 0),
            forbid,
            allow,
        ];
        assert!(passes(&other_machine, 1));
        assert!(passes(&[instruction(RETURN, RETURN_LOG, 0, 0)], 1));
        assert!(!passes(&[instruction(RETURN, 0x7fc0_0000, 0, 0)], 1));
        assert!(!passes(&[forbid], 1) && !lets_pass(&[], 1));
    }

    #[test]
    fn what_depends_on_arguments_does_not_let_pass() {
        let allow = instruction(RETURN, RETURN_ALLOW, 0, 0);
        let looks = [instruction(LOAD_FIELD, 24, 0, 0), instruction(JUMP_EQUAL, 5, 0, 0), allow];
        assert!(!passes(&looks, 16));
        assert!(!passes(&[instruction(0x61, 0, 0, 0), allow], 16));
        // Bits alone, of what is known.
        let bits = [instruction(AND, 0xf, 0, 0), instruction(JUMP_BITS, 1, 0, 1), allow];
        assert!(passes(&bits, 17) && !passes(&bits, 16));
    }
}
