//! Descriptors from which a program reads signals of ours.
//!
//! The kernel never has such a signal pending: it is parked ([`crate::parked`]).
//! So that poll(2) and a read that waits see it all the same, the descriptor is
//! made for [`CARRIER`] instead, a real-time signal that is pending for the process
//! as long as something is parked that can be read. A read takes first what is
//! parked, and puts it in the place of a carrier that the kernel gives.
//!
//! Invariant: no thread has the carrier unblocked for long: one in which it comes
//! blocks it and sends it again ([`Process::announce`]).
//!
//! Source: signalfd(2).
//!
//! Bad case: a program that besides wants signal 64 for itself. Where it has a
//! handler for that, it reads none of ours. All descriptors of a process are taken
//! to be for the same ones of ours; and none of ours can be read from one after an
//! `execve`.

use zpager_sys::process;
use zpager_sys::signal::{self, Context, Info, Mask, SI_TKILL, SI_USER, only, ours};
use zpager_sys::syscall::{self, nr};

use super::Outcome;
use crate::parked::CARRIER;
use crate::process::Process;
use crate::stubs;
use crate::threads::Thread;

const EFAULT: isize = -14;
const EINTR: isize = -4;
const MASK_BYTES: usize = 8;
/// `struct signalfd_siginfo`.
const RECORD_BYTES: usize = 128;
const RECORD_WORDS: usize = RECORD_BYTES / size_of::<u32>();

impl Process {
    /// `signalfd`, `signalfd4`: descriptor, mask, its length, flags.
    pub(super) fn signal_fd_call(&mut self, thread: &mut Thread, context: &Context) -> Outcome {
        let [fd, mask, bytes, flags, ..] = context.registers.arguments();
        self.hold_to_read(thread, mask, MASK_BYTES);
        let Some([asked]) = self.peek_words::<1>(mask).filter(|_| bytes == MASK_BYTES) else {
            return Outcome::GoOn;
        };
        let taken = asked as Mask & ours();
        if taken == 0 || !self.take_carrier() {
            return Outcome::GoOn;
        }
        let mask = asked as Mask & !ours() | only(CARRIER);
        let arguments = [fd, (&raw const mask) as usize, bytes, flags, 0, 0];
        // SAFETY: the program's own call; the kernel only reads the mask.
        let result = unsafe { syscall::call(context.registers.rax as u32, arguments) };
        if result >= 0 {
            self.fd_signals |= taken;
            self.announce(thread);
        }
        Outcome::Done(result)
    }

    /// A read of signals, if `fd` is such a descriptor.
    pub(super) fn signal_read(
        &mut self,
        thread: &mut Thread,
        context: &mut Context,
    ) -> Option<Outcome> {
        let [fd, at, bytes, ..] = context.registers.arguments();
        let is_read = context.registers.rax as u32 == nr::__NR_read;
        if self.fd_signals == 0 || !is_read || !Self::is_signal_fd(fd) {
            return None;
        }
        self.hold(thread, at, bytes.min(self.piece_bytes()));
        let mut read = 0;
        while bytes - read >= RECORD_BYTES
            && let Some((signal, info)) = self.take_parked(thread, self.fd_signals)
        {
            if process::poke(at + read, &record_of(signal, &info)).is_err() {
                return Some(Outcome::Done(if read > 0 { read as isize } else { EFAULT }));
            }
            read += RECORD_BYTES;
        }
        if read > 0 {
            return Some(Outcome::Done(read as isize));
        }
        thread.watch(context);
        Some(Outcome::Arranged)
    }

    /// A read of signals has been made by the kernel: a carrier is not the program's. Gives false
    /// where there was nothing else, and the read has to be made again.
    pub(super) fn put_for_carrier(&mut self, thread: &mut Thread, context: &mut Context) -> bool {
        let registers = &context.registers;
        let read = registers.rax as isize;
        if registers.rax == 0 || read < RECORD_BYTES as isize {
            return true;
        }
        // The highest signal comes last.
        let last = registers.rsi + registers.rax - RECORD_BYTES;
        if self.peek_words::<1>(last).is_none_or(|[word]| word as u32 != CARRIER) {
            return true;
        }
        let taken = self.take_parked(thread, self.fd_signals);
        self.announce(thread);
        if let Some((signal, info)) = taken {
            // It was written just now.
            let _ = process::poke(last, &record_of(signal, &info));
            return true;
        }
        context.registers.rax -= RECORD_BYTES;
        context.registers.rax > 0
    }

    /// The kernel's part of a read is over: the registers are the program's again, or it is made
    /// once more. False where the thread was in none.
    pub(super) fn end_signal_read(&mut self, thread: &mut Thread, context: &mut Context) -> bool {
        let is_read = |before: &signal::Registers| before.rax as u32 == nr::__NR_read;
        if !thread.watched.as_ref().is_some_and(is_read) {
            return false;
        }
        if self.put_for_carrier(thread, context) {
            return self.end_watched(thread, context);
        }
        (context.registers.rax, context.registers.rip) = (thread.call, stubs::to_trap());
        true
    }

    /// The same when a signal has come meanwhile.
    pub(crate) fn cut_signal_read(&mut self, thread: &mut Thread, context: &mut Context) {
        let is_read = |before: &signal::Registers| before.rax as u32 == nr::__NR_read;
        if thread.watched.as_ref().is_some_and(is_read) && !self.put_for_carrier(thread, context) {
            context.registers.rax = EINTR as usize;
        }
    }

    /// Has the carrier for ourselves; false where the program uses it.
    fn take_carrier(&mut self) -> bool {
        let asked = self.actions[CARRIER as usize];
        !crate::signals::is_handler(&asked) && crate::signals::install(CARRIER, &asked).is_ok()
    }

    /// Of the calling thread's descriptors, which need not be its process's.
    fn is_signal_fd(fd: usize) -> bool {
        const OWN: &[u8] = b"/proc/thread-self/fd/";
        let (mut path, mut target) = ([0; OWN.len() + 11], [0u8; 32]);
        path[..OWN.len()].copy_from_slice(OWN);
        process::write_decimal(fd as i32, &mut path[OWN.len()..]);
        process::read_link(0, &path, &mut target) == Ok("anon_inode:[signalfd]")
    }

    /// Before another program begins, which has no use for the carrier.
    pub(crate) fn put_carrier_down(&mut self, context: &mut Context) {
        if self.fd_signals != 0 {
            signal::take(CARRIER);
            context.mask &= !only(CARRIER);
        }
    }
}

/// A parked signal as the kernel would tell it.
fn record_of(signal: u32, info: &Info) -> [u32; RECORD_WORDS] {
    let mut record = [0; RECORD_WORDS];
    (record[0], record[1], record[2]) = (signal, info.errno as u32, info.code as u32);
    // Who sent it: process and user.
    (record[3], record[4]) = (info.words[0] as u32, (info.words[0] >> 32) as u32);
    if info.code < 0 && info.code != SI_TKILL || info.code == SI_USER {
        let value = if info.code == SI_USER { 0 } else { info.words[1] };
        record[11] = value as u32;
        (record[12], record[13]) = (value as u32, (value >> 32) as u32);
    }
    record
}
