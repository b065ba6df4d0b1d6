//! One stopped thread: what it was doing, a call into the agent or the kernel, and back.
//!
//! Everything that can be read of a thread is read before any thread of its
//! process is entered: afterwards its memory may be swapped out, and only the
//! process itself can reach it. Invariant: after [`StoppedThread::release`] the
//! thread's registers, vector state and pending signals are what they would have
//! been, and SIGSYS, SIGBUS and SIGURG are unblocked.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use libc::{c_int, c_long, pid_t, siginfo_t, user_regs_struct};
use zpager_sys::process::field;
use zpager_wire::{ENDED, Entry, sequences_guess};

use super::At;
use super::ptrace::{self, Report, RseqConfiguration};
use super::restart::{CONTINUED_BY_KERNEL, registers_interrupted, registers_to_go_on};
use crate::proc_text;
use crate::run::living::is_ending;

/// How long one entry may take: the agent walks the page tables of the whole process.
const ENTRY_LIMIT: Duration = Duration::from_secs(30);

/// How long to sleep between two looks at a thread that runs in the agent.
const LOOK_INTERVAL: Duration = Duration::from_micros(50);

/// How often to see whether it was killed meanwhile.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Flags at the entry: the reserved bit and interrupts on, no direction, no single step.
const ENTRY_FLAGS: u64 = 0x202;

/// Signals that a fault raises. They stay unblocked in an entry: a fault at a blocked signal kills
/// the process without a word.
const FAULTS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];

/// Signals that stop a process (signal(7)).
const STOPS: [c_int; 4] = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// The bit of a signal in a mask.
const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// Why a thread could not be entered or read.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It ended meanwhile.
    Gone,
    /// The agent refused, with this error number.
    Refused(i32),
    /// The agent did not come back in time.
    Lost,
    /// The system refused a request.
    System(io::Error),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ESRCH) => Trouble::Gone,
            _ => Trouble::System(error),
        }
    }
}

/// A thread that stands still and belongs to this tracer.
pub(crate) struct StoppedThread {
    tid: pid_t,
    /// Those with which it stopped, and with which it goes on.
    stopped: user_regs_struct,
    registers: user_regs_struct,
    /// The agent manages it.
    is_managed: bool,
    /// Where its area of restartable sequences is, and its bytes.
    sequences: [u64; 2],
    /// The signals that the program handles.
    handled: u64,
    vector_state: Vec<u8>,
    mask: u64,
    /// Signals that came while it was stopped, in their order.
    signals: Vec<siginfo_t>,
    /// What a fault of its own raised just before it stopped is the first of them.
    has_fault: bool,
    /// It has run since.
    has_run: bool,
}

impl StoppedThread {
    /// Reads a thread of process `pid` that stopped with `report`.
    ///
    /// # Errors
    /// The thread is gone or cannot be read.
    pub(crate) fn read(pid: pid_t, tid: pid_t, report: Report) -> Result<Self, Trouble> {
        let mut signals = Vec::new();
        if let Report::Signal(_) = report {
            signals.push(ptrace::signal_information(tid)?);
        }
        let mut registers = ptrace::registers(tid)?;
        let sequences = match ptrace::rseq_configuration(tid) {
            Ok(RseqConfiguration { area, area_bytes, .. }) => {
                leave_restartable_sequence(tid, area, &mut registers);
                [area, area_bytes.into()]
            }
            Err(_) => sequences_guess(registers.fs_base),
        };
        let mask = ptrace::signal_mask(tid)?;
        // Which thread takes what was sent to the process is decided when they go on.
        let Sent { own, handled, .. } = Sent::to(pid, tid);
        let handler_comes = (own | bits(&signals)) & handled & !mask != 0;
        Ok(StoppedThread {
            tid,
            stopped: registers,
            registers: registers_to_go_on(&registers, handler_comes),
            is_managed: false,
            sequences,
            handled,
            vector_state: ptrace::vector_state(tid)?,
            mask,
            signals,
            has_fault: false,
            has_run: false,
        })
    }

    /// The thread's id.
    pub(crate) fn tid(&self) -> pid_t {
        self.tid
    }

    /// Where the thread was in its program.
    pub(crate) fn instruction(&self) -> u64 {
        self.registers.rip
    }

    /// Whether it makes the call anew in which it stopped.
    fn is_made_anew(&self) -> bool {
        self.registers.rip != self.stopped.rip
    }

    /// Bytes done of a transfer that it makes anew once it is managed, or 0.
    fn begun_bytes(&self) -> u64 {
        let done = self.stopped.rax.cast_signed().max(0).cast_unsigned();
        if self.is_made_anew() { done } else { 0 }
    }

    /// Whether it stopped in futex(2), or where the kernel continues that after an earlier stop.
    pub(crate) fn is_in_futex(&self) -> bool {
        let call = self.stopped.orig_rax.cast_signed();
        [libc::SYS_futex, libc::SYS_restart_syscall].contains(&call)
    }

    /// Has the thread run the agent's entry. It stays stopped until its release.
    ///
    /// # Errors
    /// The agent refused or did not come back, or the thread is gone.
    pub(super) fn enter(&mut self, at: At, entry: Entry) -> Result<(), Trouble> {
        let own = [self.registers.rsp, self.registers.fs_base, self.mask];
        self.enter_with(at, entry, own)?;
        self.is_managed = true;
        // No thread of a managed process may block what the agent lives by.
        self.mask &= !zpager_sys::signal::ours();
        [&mut self.stopped, &mut self.registers].into_iter().for_each(forget_call);
        Ok(())
    }

    /// The same, with what [`Entry`]'s protocol has in `rdx`, `rcx` and `r8`.
    ///
    /// # Errors
    /// As [`Self::enter`].
    pub(super) fn enter_with(
        &mut self,
        at: At,
        entry: Entry,
        [third, fourth, fifth]: [u64; 3],
    ) -> Result<(), Trouble> {
        let [sequences_start, sequences_bytes] = self.sequences;
        let answer = self.run_from(user_regs_struct {
            rip: at.entry,
            rdi: entry as u64,
            rsi: at.known.to_word(),
            rdx: third,
            rcx: fourth,
            r8: fifth,
            r9: at.passed,
            r10: sequences_start,
            r11: sequences_bytes,
            rax: self.begun_bytes(),
            ..self.registers
        })?;
        match i32::try_from(answer.cast_signed()) {
            Ok(0) => Ok(()),
            Ok(error) => Err(Trouble::Refused(-error)),
            Err(_) => Err(Trouble::Lost),
        }
    }

    /// Has the thread make a system call at `site`, where a `syscall` is that ends as an entry; gives its result.
    ///
    /// # Errors
    /// The error that the call gave, or the thread is gone or did not come back.
    pub(crate) fn call(
        &mut self,
        site: u64,
        number: c_long,
        arguments: [u64; 6],
    ) -> Result<u64, Trouble> {
        /// What the kernel gives for errors, negated.
        const ERRORS: std::ops::RangeInclusive<i64> = 1..=4095;
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let rax = number.cast_unsigned();
        let called =
            user_regs_struct { rip: site, rax, rdi, rsi, rdx, r10, r8, r9, ..self.registers };
        let result = self.run_from(called)?;
        match result.cast_signed().wrapping_neg() {
            error if ERRORS.contains(&error) => Err(Trouble::Refused(error as i32)),
            _ => Ok(result),
        }
    }

    /// Lets the thread run with these registers to its end; gives what it answers there.
    fn run_from(&mut self, registers: user_regs_struct) -> Result<u64, Trouble> {
        let faults = FAULTS.iter().fold(0, |mask, signal| mask | bit(*signal));
        // Not in a system call: nothing to restart.
        let registers = user_regs_struct { eflags: ENTRY_FLAGS, orig_rax: u64::MAX, ..registers };
        self.has_run = true;
        ptrace::set_registers(self.tid, &registers)?;
        ptrace::set_signal_mask(self.tid, !faults)?;
        self.run_to_end(registers.rip)
    }

    /// Lets the thread run from `start` until the end of the entry. Signals that are meant for
    /// the program are kept; those that a fault raised belong to the entry, but for one that the
    /// program had just raised, as a managed thread a call to be dispatched: that one comes before
    /// anything has run.
    fn run_to_end(&mut self, start: u64) -> Result<u64, Trouble> {
        let deadline = Instant::now() + ENTRY_LIMIT;
        let mut delivered = 0;
        loop {
            ptrace::go_on(self.tid, delivered)?;
            delivered = 0;
            match wait_for_stop(self.tid, deadline)? {
                Report::Signal(signal) => {
                    let information = ptrace::signal_information(self.tid)?;
                    let is_fault = FAULTS.contains(&signal) && information.si_code > 0;
                    let is_own = signal == libc::SIGTRAP && information.si_code == libc::SI_TKILL;
                    let registers = ptrace::registers(self.tid)?;
                    if is_fault && !self.has_fault && registers.rip == start {
                        self.has_fault = true;
                        self.signals.insert(0, information);
                    } else if is_own && registers.r15 == u64::from(ENDED) {
                        return Ok(registers.r12);
                    } else if is_fault {
                        delivered = signal;
                    } else {
                        self.signals.push(information);
                    }
                }
                Report::Gone => return Err(Trouble::Gone),
                Report::Halted | Report::Nothing => {}
            }
        }
    }

    /// Puts the thread back to where it was and lets it go on by itself, with the signals that
    /// came meanwhile.
    pub(super) fn release(mut self, pid: pid_t, common: &mut Common) {
        let sent = Sent::to(pid, self.tid);
        if (sent.own | common.sent) & bit(libc::SIGCONT) != 0 {
            // It came after them: a stop that is sent takes a continuation back.
            self.signals.retain(|information| !STOPS.contains(&information.si_signo));
        }
        let takes = self.handled & !self.mask;
        let handler_comes = (sent.own | common.left | bits(&self.signals)) & takes != 0;
        common.left &= !takes;
        if self.begun_bytes() > 0 {
            // The agent knows how much is done, also where a handler comes.
            self.registers = if self.is_managed { self.registers } else { self.stopped };
        } else if self.is_made_anew() && handler_comes {
            self.registers = registers_interrupted(&self.stopped);
        } else if !self.has_run && self.stopped.rax.cast_signed() == CONTINUED_BY_KERNEL {
            // The kernel still knows how much of its time is left.
            self.registers = self.stopped;
        }
        // A thread that is gone refuses all of this, and needs none of it.
        let _ = self.put_back();
        let (first, rest) = match self.signals.split_first() {
            None => (0, &[][..]),
            Some((first, rest)) => {
                // When this fails the signal still comes, with its sender unknown.
                let _ = ptrace::set_signal_information(self.tid, first);
                (first.si_signo, rest)
            }
        };
        // While it still stands: it may ask for what is pending as soon as it goes on.
        rest.iter().for_each(|information| send(pid, self.tid, information));
        let _ = ptrace::detach(self.tid, first);
    }

    fn put_back(&self) -> io::Result<()> {
        ptrace::set_vector_state(self.tid, &self.vector_state)?;
        ptrace::set_registers(self.tid, &self.registers)?;
        ptrace::set_signal_mask(self.tid, self.mask)
    }
}

/// Sends a signal on to a thread: as it came where it was queued by a process, of which the kernel allows it
/// (rt_tgsigqueueinfo(2)).
fn send(pid: pid_t, tid: pid_t, information: &siginfo_t) {
    let signal = information.si_signo;
    // SAFETY: sending a signal; the ids are those of a thread that this process has just held.
    unsafe {
        if libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, tid, signal, information) != 0 {
            libc::syscall(libc::SYS_tgkill, pid, tid, signal);
        }
    }
}

/// Lets the registers of a thread that stopped behind a call not look as if the call was still to be dispatched: the
/// kernel has served it, and a SIGSYS that comes now is not in its place.
fn forget_call(registers: &mut user_regs_struct) {
    if registers.rcx == registers.rip && registers.r11 == registers.eflags {
        // A call changes it, so that nobody counts on it.
        registers.rcx = 0;
    }
}

/// Waits until a thread that runs stops or ends.
fn wait_for_stop(tid: pid_t, deadline: Instant) -> Result<Report, Trouble> {
    let mut next_check = Instant::now() + CHECK_INTERVAL;
    loop {
        let report = ptrace::look(tid);
        let now = Instant::now();
        if report != Report::Nothing {
            return Ok(report);
        } else if now > deadline {
            return Err(Trouble::Lost);
        } else if now > next_check {
            // The end of a first thread is not told before that of the others, which are held.
            if is_ending(tid, tid) {
                return Ok(Report::Gone);
            }
            next_check = now + CHECK_INTERVAL;
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// Signals that were sent to a process as a whole and are not delivered, while its threads go on one by one:
/// each is taken by one of them, the first that may.
pub(super) struct Common {
    sent: u64,
    /// What none of those that have gone on takes.
    left: u64,
}

impl Common {
    /// Those of a process.
    pub(super) fn of(pid: pid_t) -> Self {
        let sent = Sent::to(pid, pid).common;
        Common { sent, left: sent }
    }
}

/// Signals of a thread, as bits (proc(5)).
struct Sent {
    /// Sent to it, and not delivered.
    own: u64,
    /// The same of its process.
    common: u64,
    /// Handled by the program.
    handled: u64,
}

impl Sent {
    fn to(pid: pid_t, tid: pid_t) -> Self {
        let status = proc_text::read_bytes(format!("/proc/{pid}/task/{tid}/status"));
        let status = status.unwrap_or_default();
        let set = |name: &[u8]| u64::from_str_radix(field(&status, name).trim(), 16).unwrap_or(0);
        Sent { own: set(b"SigPnd:"), common: set(b"ShdPnd:"), handled: set(b"SigCgt:") }
    }
}

fn bits(signals: &[siginfo_t]) -> u64 {
    signals.iter().fold(0, |all, found| all | bit(found.si_signo))
}

/// Takes a thread out of a restartable sequence as the kernel does when it is interrupted there
/// (Linux kernel/rseq.c): the kernel sees only the entry's address and would let it go on.
fn leave_restartable_sequence(tid: pid_t, area: u64, registers: &mut user_regs_struct) {
    /// Offset of `rseq_cs` in `struct rseq`.
    const DESCRIPTOR_OFFSET: u64 = 8;
    /// Offsets in `struct rseq_cs`, as indexes of 8-byte words.
    const START: usize = 1;
    const LENGTH: usize = 2;
    const ABORT: usize = 3;
    if area == 0 {
        return;
    }
    let Ok(memory) = File::open(format!("/proc/{tid}/mem")) else { return };
    let words = |address: u64| -> Option<[u64; 4]> {
        let mut bytes = [0u8; 32];
        memory.read_exact_at(&mut bytes, address).ok()?;
        let (words, _) = bytes.as_chunks::<8>();
        Some([words[0], words[1], words[2], words[3]].map(u64::from_ne_bytes))
    };
    let Some([descriptor, ..]) = words(area + DESCRIPTOR_OFFSET) else { return };
    if descriptor == 0 {
        return;
    }
    let Some(sequence) = words(descriptor) else { return };
    if registers.rip.wrapping_sub(sequence[START]) < sequence[LENGTH] {
        registers.rip = sequence[ABORT];
        registers.orig_rax = u64::MAX;
    }
}
