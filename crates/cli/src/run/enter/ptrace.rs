//! The ptrace(2) requests that entering a thread takes, each with its one type.
//!
//! Every request but [`seize`] and [`interrupt`] wants the thread to be stopped;
//! the kernel answers `ESRCH` when it is not, or is gone.

use std::io;
use std::mem::{MaybeUninit, size_of};

use libc::{c_int, c_uint, c_void, iovec, pid_t, siginfo_t, user_regs_struct};

/// `NT_X86_XSTATE` (Linux include/uapi/linux/elf.h).
const NT_X86_XSTATE: usize = 0x202;
/// `NT_PRSTATUS`.
const NT_PRSTATUS: usize = 1;
/// `PTRACE_SETSIGMASK`; `PTRACE_GETSIGMASK` is in libc.
const PTRACE_SETSIGMASK: c_uint = 0x420b;
/// Bytes of the kernel's signal set.
const SIGNAL_SET_BYTES: usize = 8;
/// More than the largest state that XSAVE knows (AMX's tiles are 8 KiB of it).
const MAX_XSTATE_BYTES: usize = 16 << 10;

/// Where a thread's restartable sequences are registered: `struct ptrace_rseq_configuration`.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct RseqConfiguration {
    /// Address of the thread's `struct rseq`, or 0.
    pub(crate) area: u64,
    /// How many bytes that has.
    pub(crate) area_bytes: u32,
    signature: u32,
    flags: u32,
    padding: u32,
}

/// Makes a request whose address and data are numbers or pointers.
fn request(
    request: c_uint,
    tid: pid_t,
    address: *mut c_void,
    data: *mut c_void,
) -> io::Result<usize> {
    // SAFETY: the callers below pass the pointers that the request expects, valid for the call.
    let answer = unsafe { libc::ptrace(request, tid, address, data) };
    usize::try_from(answer).map_err(|_| io::Error::last_os_error())
}

fn number(value: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(value)
}

/// Becomes the thread's tracer without stopping it; the thread dies with this process.
pub(crate) fn seize(tid: pid_t) -> io::Result<()> {
    let options = number(libc::PTRACE_O_EXITKILL as usize);
    request(libc::PTRACE_SEIZE, tid, number(0), options).map(drop)
}

/// Asks a seized thread to stop.
pub(crate) fn interrupt(tid: pid_t) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, number(0), number(0)).map(drop)
}

/// Lets a stopped thread go on, with `signal` delivered unless it is 0.
pub(crate) fn go_on(tid: pid_t, signal: c_int) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, number(0), number(signal as usize)).map(drop)
}

/// Lets a stopped thread go on without a tracer, with `signal` delivered unless it is 0.
pub(crate) fn detach(tid: pid_t, signal: c_int) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, number(0), number(signal as usize)).map(drop)
}

/// The thread's general registers.
pub(crate) fn registers(tid: pid_t) -> io::Result<user_regs_struct> {
    let mut registers = MaybeUninit::<user_regs_struct>::zeroed();
    let bytes = size_of::<user_regs_struct>();
    let filled =
        transfer(libc::PTRACE_GETREGSET, tid, NT_PRSTATUS, registers.as_mut_ptr().cast(), bytes)?;
    if filled != bytes {
        return Err(io::Error::from(io::ErrorKind::Unsupported));
    }
    // SAFETY: the kernel filled all of it, and any bytes are a `user_regs_struct`.
    Ok(unsafe { registers.assume_init() })
}

/// Gives the thread general registers.
pub(crate) fn set_registers(tid: pid_t, registers: &user_regs_struct) -> io::Result<()> {
    let start = std::ptr::from_ref(registers).cast_mut().cast();
    transfer(libc::PTRACE_SETREGSET, tid, NT_PRSTATUS, start, size_of::<user_regs_struct>())
        .map(drop)
}

/// The thread's vector and floating-point state, as XSAVE lays it out.
pub(crate) fn vector_state(tid: pid_t) -> io::Result<Vec<u8>> {
    let mut state = vec![0u8; MAX_XSTATE_BYTES];
    let start = state.as_mut_ptr().cast();
    let filled = transfer(libc::PTRACE_GETREGSET, tid, NT_X86_XSTATE, start, state.len())?;
    state.truncate(filled);
    Ok(state)
}

/// Gives the thread vector and floating-point state.
pub(crate) fn set_vector_state(tid: pid_t, state: &[u8]) -> io::Result<()> {
    let start = state.as_ptr().cast_mut().cast();
    transfer(libc::PTRACE_SETREGSET, tid, NT_X86_XSTATE, start, state.len()).map(drop)
}

/// Moves a register set between the thread and `start`; gives its length in bytes.
fn transfer(
    direction: c_uint,
    tid: pid_t,
    set: usize,
    start: *mut c_void,
    bytes: usize,
) -> io::Result<usize> {
    let mut vector = iovec { iov_base: start, iov_len: bytes };
    request(direction, tid, number(set), std::ptr::from_mut(&mut vector).cast())?;
    Ok(vector.iov_len)
}

/// A word of the thread's memory. The C library's `ptrace` would take the kernel's answer for its own.
pub(crate) fn word(tid: pid_t, address: u64) -> io::Result<u64> {
    let mut word = 0u64;
    // SAFETY: the kernel writes one word to where the last argument points.
    let answer = unsafe {
        libc::syscall(libc::SYS_ptrace, libc::PTRACE_PEEKTEXT, tid, address, &raw mut word)
    };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(word) }
}

/// Writes a word of the thread's memory, also where the thread itself may not write.
pub(crate) fn set_word(tid: pid_t, address: u64, word: u64) -> io::Result<()> {
    let [address, word] = [address, word].map(|value| number(value as usize));
    request(libc::PTRACE_POKETEXT, tid, address, word).map(drop)
}

/// The thread's blocked signals; bit n is signal n + 1.
pub(crate) fn signal_mask(tid: pid_t) -> io::Result<u64> {
    let mut mask = 0u64;
    let data = std::ptr::from_mut(&mut mask).cast();
    request(libc::PTRACE_GETSIGMASK, tid, number(SIGNAL_SET_BYTES), data)?;
    Ok(mask)
}

/// Sets the thread's blocked signals.
pub(crate) fn set_signal_mask(tid: pid_t, mask: u64) -> io::Result<()> {
    let data = std::ptr::from_ref(&mask).cast_mut().cast();
    request(PTRACE_SETSIGMASK, tid, number(SIGNAL_SET_BYTES), data).map(drop)
}

/// The signal at which the thread is stopped.
pub(crate) fn signal_information(tid: pid_t) -> io::Result<siginfo_t> {
    let mut information = MaybeUninit::<siginfo_t>::zeroed();
    request(libc::PTRACE_GETSIGINFO, tid, number(0), information.as_mut_ptr().cast())?;
    // SAFETY: the kernel filled all of it, and any bytes are a `siginfo_t`.
    Ok(unsafe { information.assume_init() })
}

/// Replaces the signal at which the thread is stopped.
pub(crate) fn set_signal_information(tid: pid_t, information: &siginfo_t) -> io::Result<()> {
    let data = std::ptr::from_ref(information).cast_mut().cast();
    request(libc::PTRACE_SETSIGINFO, tid, number(0), data).map(drop)
}

/// Where the thread's restartable sequences are registered (Linux 5.13).
pub(crate) fn rseq_configuration(tid: pid_t) -> io::Result<RseqConfiguration> {
    let mut configuration = RseqConfiguration::default();
    let data = std::ptr::from_mut(&mut configuration).cast();
    let bytes = number(size_of::<RseqConfiguration>());
    request(libc::PTRACE_GET_RSEQ_CONFIGURATION, tid, bytes, data)?;
    Ok(configuration)
}

/// What waitpid(2) tells of one traced thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// Nothing new.
    Nothing,
    /// It stopped on the tracer's request, or with its whole process.
    Halted,
    /// It stopped because this signal is about to be delivered.
    Signal(c_int),
    /// It is gone.
    Gone,
}

impl Report {
    /// The signal, or 0.
    pub(crate) fn signal(self) -> c_int {
        if let Report::Signal(signal) = self { signal } else { 0 }
    }
}

/// Looks whether a traced thread has stopped, without waiting. That it has ended is left for whoever
/// waits for the program: it is told once, and with it how the program ended.
pub(crate) fn look(tid: pid_t) -> Report {
    // Stops of traced threads are told whatever is asked for (Linux kernel/exit.c).
    match told_of(tid, libc::WEXITED | libc::WNOWAIT) {
        Told::Nothing => Report::Nothing,
        Told::Ended => Report::Gone,
        Told::Stopped(_) => match told_of(tid, libc::WSTOPPED) {
            Told::Stopped(by) => report_of(by << 8 | STOPPED),
            // It was killed in between, which the next look tells.
            Told::Nothing | Told::Ended => Report::Nothing,
        },
    }
}

/// Takes note of the end of a traced thread that is not its process's first, if it has ended: nobody else does,
/// and an execve(2) of another thread of the process waits for that.
pub(crate) fn reap(tid: pid_t) {
    // A stop would be told as well, and be told no more.
    if let Told::Ended = told_of(tid, libc::WEXITED | libc::WNOWAIT) {
        told_of(tid, libc::WEXITED);
    }
}

/// The lowest byte of the wait status of a stopped thread.
const STOPPED: c_int = 0x7f;

/// What waitid(2) tells of a thread.
enum Told {
    Nothing,
    /// It has stopped; the rest of its wait status.
    Stopped(c_int),
    /// It has ended, or is no thread to wait for.
    Ended,
}

fn told_of(tid: pid_t, of: c_int) -> Told {
    let flags = of | libc::WNOHANG | libc::__WALL;
    // SAFETY: all zeros are valid, and what is told is written there; the fields that are read are
    // those of SIGCHLD.
    unsafe {
        let mut told: siginfo_t = std::mem::zeroed();
        match libc::waitid(libc::P_PID, tid.cast_unsigned(), &raw mut told, flags) {
            0 if told.si_pid() == 0 => Told::Nothing,
            0 if matches!(told.si_code, libc::CLD_TRAPPED | libc::CLD_STOPPED) => {
                Told::Stopped(told.si_status())
            }
            _ => Told::Ended,
        }
    }
}

/// Reads a wait status of a traced thread.
pub(crate) fn report_of(status: c_int) -> Report {
    if !libc::WIFSTOPPED(status) {
        Report::Gone
    } else if status >> 16 == libc::PTRACE_EVENT_STOP {
        Report::Halted
    } else {
        Report::Signal(libc::WSTOPSIG(status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_statuses_of_traced_threads() {
        assert_eq!(report_of(0), Report::Gone);
        assert_eq!(report_of(9), Report::Gone);
        assert_eq!(report_of(0x7f | libc::SIGTRAP << 8), Report::Signal(libc::SIGTRAP));
        let halted = libc::PTRACE_EVENT_STOP << 16 | libc::SIGTRAP << 8 | 0x7f;
        assert_eq!(report_of(halted), Report::Halted);
        let stopped = libc::PTRACE_EVENT_STOP << 16 | libc::SIGSTOP << 8 | 0x7f;
        assert_eq!(report_of(stopped), Report::Halted);
    }
}
