//! Every system call of the program.
//!
//! A call that only reads or writes memory is let go on once its buffers are
//! held ([`shapes`], [`pointed`]). Calls that change memory ([`memory`], [`attach`]), signals
//! ([`signal_calls`], [`signal_fds`]), or the process ([`process_calls`]) are made here, under
//! the lock, so that what is known and what is true change together. What begins
//! another program is prepared first ([`execute`]), and what waits with a mask of its own
//! ([`waits`], [`time_limits`]). Who asks to be traced is later ([`tracees`]). Large transfers go in pieces ([`transfer`],
//! [`stream`], [`messages`]), others are asked for and go on behind the program's back ([`requests`]).

mod across;
mod attach;
mod descriptors;
mod execute;
mod ioctls;
mod kills;
mod lent;
mod memory;
mod messages;
mod neighbours;
mod pins;
mod pointed;
mod process_calls;
mod requests;
pub(crate) mod rings;
mod sandbox;
mod shapes;
mod signal_calls;
mod signal_fds;
mod socket_options;
mod stream;
mod time_limits;
mod tracees;
mod transfer;
mod waits;

use zpager_sys::signal::Context;
use zpager_sys::syscall::{self, nr};
use zpager_sys::{Errno, process};

use crate::account::count;
use crate::process::Process;
use crate::spawn::Spawn;
use crate::stubs;
use crate::threads::{Disturbed, Thread};
use across::Across;
pub(crate) use execute::Environment;
pub(crate) use messages::Messages;
use requests::Submission;
pub(crate) use sandbox::IS_LEAVING;
pub(crate) use stream::{Continued, may_give_part};
pub(crate) use time_limits::TimeLimit;
use transfer::Pieces;
pub(crate) use waits::may_wait;

/// What is to be done about a call.
pub(crate) enum Outcome {
    /// The program's thread makes it itself.
    GoOn,
    /// It is done; this is its result.
    Done(isize),
    /// The thread's registers say what it does next.
    Arranged,
    /// It is made in pieces, without the lock.
    Transfer(Pieces),
    /// The same, between this process and another or itself.
    Across(Across),
    /// Requests that are submitted in parts, without the lock.
    Submission(Submission),
    /// It makes a child that shares this memory, without the lock.
    Spawn(Spawn),
    /// It ends the process: nobody else of it may enter the pager again.
    End,
    /// It is made once more in a while, as other threads stand in its way.
    Later,
    /// The process has left management.
    Left,
}

impl Outcome {
    /// It is done, or has failed.
    pub(crate) fn of(result: Result<usize, Errno>) -> Outcome {
        Outcome::Done(match result {
            Ok(value) => value as isize,
            Err(error) => error.as_result(),
        })
    }
}

/// A call of a 32-bit program, by `int 0x80`: it fails, as with a kernel that does not know such calls. Its
/// numbers and arguments are others, and it could change memory as those can.
pub(crate) fn refuse_foreign(thread: &mut Thread, context: &mut Context) {
    context.registers.rax = match core::mem::take(&mut thread.begun_bytes) {
        0 => process_calls::ENOSYS.as_result() as usize,
        // It was made before this thread was managed, and only had a number like those of transfers.
        result => result,
    };
}

/// Serves a call that was dispatched. `context` stands behind the program's `syscall`.
pub(crate) fn dispatch(thread: &mut Thread, context: &mut Context) {
    let number = context.registers.rax;
    // From now on it is told from one that is yet to be served.
    context.registers.rcx = 0;
    let is_behind_trap = stubs::is_behind_trap(context.registers.rip);
    // A call may have to be made again, with what it holds.
    if !is_behind_trap || thread.watched.is_none() && !waits::is_interrupted(context) {
        thread.let_go();
    }
    let mut guard = Process::lock(thread.number());
    let Some(process) = guard.as_mut() else {
        // It has left management meanwhile: the kernel serves the call.
        context.registers.rip -= stubs::SYSCALL_BYTES;
        return;
    };
    count(&process.control.counters.dispatched_calls, 1);
    if is_behind_trap && process.wait_again(thread, context) {
        return;
    }
    (thread.temporary_mask, thread.socket_until_ns) = (None, None);
    thread.disturbed = Disturbed::No;
    if is_behind_trap {
        let is_ended = process.end_execution(thread, context)
            || process.end_signal_read(thread, context)
            || process.end_watched(thread, context)
            || process.messages_done(thread, context);
        if !is_ended {
            process.piece_done(thread, context);
        }
        return;
    }
    thread.time_limit = None;
    let outcome = match core::mem::take(&mut thread.begun_bytes) {
        0 => process.call(thread, context),
        done_bytes => process.go_on_with_pieces(thread, context, done_bytes),
    };
    match outcome {
        Outcome::GoOn => {
            let is_made_again =
                waits::is_made_again(number as u32) || process.is_timed_transfer(thread, context);
            let repeats = Some(number as u32).filter(|_| is_made_again);
            let stub = stubs::for_site(context.registers.rip, repeats);
            drop(guard);
            go_on(thread, context, number, stub);
        }
        Outcome::Arranged => {}
        Outcome::Done(result) => context.registers.rax = result as usize,
        Outcome::Transfer(pieces) => {
            drop(guard);
            context.registers.rax = pieces.transfer(thread) as usize;
        }
        Outcome::Across(across) => {
            drop(guard);
            context.registers.rax = across.transfer(thread) as usize;
        }
        Outcome::Submission(submission) => {
            drop(guard);
            context.registers.rax = submission.submit(thread) as usize;
        }
        Outcome::Spawn(spawn) => {
            drop(guard);
            context.registers.rax = spawn.make() as usize;
        }
        Outcome::End => {
            core::mem::forget(guard);
            go_on(thread, context, number, None);
        }
        Outcome::Later => {
            drop(guard);
            process::nap(sandbox::TURN_NANOSECONDS);
            context.registers.rip -= stubs::SYSCALL_BYTES;
        }
        Outcome::Left => Process::vacate(guard),
    }
}

/// Has the program's thread make the call from its stub, or makes it here where there is none.
fn go_on(thread: &mut Thread, context: &mut Context, number: usize, stub: Option<usize>) {
    match stub {
        Some(stub) => {
            thread.call = number;
            context.registers.rip = stub;
        }
        None => {
            // SAFETY: the program's own call, with its buffers held.
            let result = unsafe { syscall::call(number as u32, context.registers.arguments()) };
            context.registers.rax = result as usize;
        }
    }
}

impl Process {
    fn call(&mut self, thread: &mut Thread, context: &mut Context) -> Outcome {
        let number = context.registers.rax as u32;
        if let Some(outcome) = self.be_traced_before(thread, context) {
            return outcome;
        }
        if let Some(outcome) = self.own_descriptor_call(number, context.registers.arguments()) {
            return outcome;
        }
        match number {
            nr::__NR_read..=nr::__NR_write
            | nr::__NR_pread64..=nr::__NR_writev
            | nr::__NR_preadv..=nr::__NR_pwritev
            | nr::__NR_preadv2..=nr::__NR_pwritev2 => self.transfer_call(thread, context),
            nr::__NR_lseek => self.seek_call(context),
            nr::__NR_getrandom => self.random_call(thread, context.registers.arguments()),
            nr::__NR_bpf
            | nr::__NR_keyctl
            | nr::__NR_ptrace
            | nr::__NR_semctl
            | nr::__NR_setsockopt => self.pointed_call(thread, context),
            nr::__NR_kill | nr::__NR_tkill | nr::__NR_tgkill => self.kill_call(thread, context),
            nr::__NR_shmat => self.attach(context.registers.arguments()),
            nr::__NR_sendto | nr::__NR_recvfrom | nr::__NR_sendmsg | nr::__NR_recvmsg => {
                self.socket_call(thread, context)
            }
            nr::__NR_sendmmsg | nr::__NR_recvmmsg => self.messages_call(thread, context),
            nr::__NR_seccomp => self.seccomp_call(thread, context),
            nr::__NR_vmsplice => self.splice_call(thread, context),
            nr::__NR_ioctl => self.control_device_call(thread, context),
            nr::__NR_io_submit => self.submit_call(thread, context),
            nr::__NR_io_uring_enter | nr::__NR_io_uring_register => self.ring_call(thread, context),
            nr::__NR_mmap
            | nr::__NR_munmap
            | nr::__NR_mremap
            | nr::__NR_mprotect
            | nr::__NR_pkey_mprotect
            | nr::__NR_madvise
            | nr::__NR_process_madvise
            | nr::__NR_brk
            | nr::__NR_mlock
            | nr::__NR_mlock2
            | nr::__NR_mlockall
            | nr::__NR_process_vm_readv
            | nr::__NR_process_vm_writev => self.memory_call(thread, context),
            nr::__NR_rt_sigaction
            | nr::__NR_rt_sigprocmask
            | nr::__NR_sigaltstack
            | nr::__NR_rt_sigpending
            | nr::__NR_rt_sigreturn => self.signal_call(thread, context),
            nr::__NR_signalfd | nr::__NR_signalfd4 => self.signal_fd_call(thread, context),
            nr::__NR_clone
            | nr::__NR_clone3
            | nr::__NR_fork
            | nr::__NR_vfork
            | nr::__NR_execve
            | nr::__NR_execveat
            | nr::__NR_getrlimit
            | nr::__NR_setrlimit
            | nr::__NR_prlimit64
            | nr::__NR_exit
            | nr::__NR_exit_group
            | nr::__NR_close_range
            | nr::__NR_set_robust_list
            | nr::__NR_set_tid_address
            | nr::__NR_rseq
            | nr::__NR_io_uring_setup
            | nr::__NR_prctl => self.process_call(thread, context),
            _ => self.plain_call(thread, context),
        }
    }
}
