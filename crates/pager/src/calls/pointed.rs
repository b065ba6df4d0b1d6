//! Calls of many kinds, whose argument may be a number, a buffer, or a struct with pointers to
//! further memory: `ptrace`, `setsockopt`, `keyctl`, `semctl`, `bpf`.
//!
//! Where a kind is known what it points to is held whole. Of what is not known, a device's argument
//! too ([`super::ioctls`]), each word that is an address of managed memory is taken for a pointer and
//! held for [`UNKNOWN_BYTES`]: a number that looks like one costs a page that comes for nothing.
//!
//! Sources: ptrace(2), socket(7), keyctl(2), semctl(2), bpf(2), include/uapi/linux/bpf.h.
//!
//! Bad case: a pointer to more than [`UNKNOWN_BYTES`] in a kind that is not known, or in a struct that
//! a struct points to: the call fails with `EFAULT` where that is swapped out.

use zpager_sys::signal::Context;
use zpager_sys::syscall::nr;

use super::Outcome;
use super::pins::SOL_XDP;
use super::shapes::UNKNOWN_BYTES;
use super::socket_options::SOL_SOCKET;
use super::tracees::PTRACE_TRACEME;
use super::transfer::VECTOR_BYTES;
use crate::hold::{Sure, Window, pages_of};
use crate::process::Process;
use crate::threads::Thread;

/// Most words of a struct that are looked at.
const WORDS_MAX: usize = 32;

const PTRACE_GETREGSET: usize = 0x4204;
const PTRACE_SETREGSET: usize = 0x4205;

const SO_ATTACH_FILTER: usize = 26;
const SO_ATTACH_REUSEPORT_CBPF: usize = 51;
const XDP_UMEM_REG: usize = 4;
/// `struct sock_filter`, `struct bpf_insn`.
const INSTRUCTION_BYTES: usize = 8;

const BPF_PROG_LOAD: usize = 5;
/// The words of its struct: type and number of instructions, where they are, level and length of
/// the log, where that is.
const PROGRAM_WORDS: usize = 6;

/// Longest payload of a key. What stands for a length may be a pointer in some operations.
const KEY_BYTES_MAX: usize = 1 << 20;

/// Most semaphores of a set.
const SEMAPHORES_MAX: usize = 32_000;
const GETALL: usize = 13;
const SETALL: usize = 17;

/// The upper half of a word.
fn upper(word: usize) -> usize {
    word >> u32::BITS
}

impl Process {
    pub(super) fn pointed_call(&mut self, thread: &mut Thread, context: &Context) -> Outcome {
        let arguments = context.registers.arguments();
        let [first, second, third, fourth, fifth, _] = arguments;
        match context.registers.rax as u32 {
            nr::__NR_ptrace => return self.trace_call(thread, arguments),
            nr::__NR_setsockopt => {
                let sure = Sure::of(thread, context);
                self.hold_option(thread, sure, [second, third, fourth, fifth]);
            }
            nr::__NR_semctl => self.hold(thread, fourth, semaphores_bytes(third)),
            nr::__NR_bpf => {
                let sure = Sure::of(thread, context);
                self.hold_program(thread, sure, [first, second, third]);
            }
            // `keyctl`: operation, and for most of them a key, a buffer and its length.
            _ => {
                self.hold(thread, third, fourth.clamp(UNKNOWN_BYTES, KEY_BYTES_MAX));
                [second, fourth].into_iter().for_each(|at| self.hold(thread, at, UNKNOWN_BYTES));
            }
        }
        Outcome::GoOn
    }

    /// `ptrace`: request, process, address, data.
    fn trace_call(&mut self, thread: &mut Thread, arguments: [usize; 6]) -> Outcome {
        let [request, _, at, data, ..] = arguments;
        match request {
            PTRACE_TRACEME => return self.ask_to_be_traced(thread),
            PTRACE_GETREGSET | PTRACE_SETREGSET => {
                self.hold(thread, data, VECTOR_BYTES);
                self.hold_vectors(thread, &mut Window::new(None), [data, 1], false);
            }
            // An address of the other process costs a page that comes for nothing.
            _ => [at, data].into_iter().for_each(|at| self.hold(thread, at, UNKNOWN_BYTES)),
        }
        Outcome::GoOn
    }

    /// An option of a socket: level, name, value, length.
    fn hold_option(&mut self, thread: &mut Thread, sure: Sure, option: [usize; 4]) {
        let [level, name, value, bytes] = option;
        self.note_option(level);
        self.hold(thread, value, bytes);
        match (level, name) {
            (SOL_SOCKET, SO_ATTACH_FILTER | SO_ATTACH_REUSEPORT_CBPF) => {
                if let Some([count, filter]) = self.peek_words(value) {
                    self.hold(thread, filter, count as u16 as usize * INSTRUCTION_BYTES);
                }
            }
            // A ring of packets, whose pages the kernel keeps from then on.
            (SOL_XDP, XDP_UMEM_REG) => {
                if let Some([start, bytes]) = self.peek_words(value) {
                    self.unmanage(pages_of(start, bytes));
                }
            }
            _ => self.hold_pointed(thread, sure, value, bytes),
        }
    }

    /// `bpf`: command, attributes, their length.
    fn hold_program(&mut self, thread: &mut Thread, sure: Sure, [command, at, bytes]: [usize; 3]) {
        self.hold(thread, at, bytes);
        self.hold_pointed(thread, sure, at, bytes);
        if command == BPF_PROG_LOAD
            && let Some([kind, instructions, _, log_kind, log, _]) =
                self.peek_words::<PROGRAM_WORDS>(at)
        {
            self.hold(thread, instructions, upper(kind).saturating_mul(INSTRUCTION_BYTES));
            self.hold(thread, log, upper(log_kind));
        }
    }

    /// Holds what the words of a struct seem to point to.
    pub(super) fn hold_pointed(
        &mut self,
        thread: &mut Thread,
        sure: Sure,
        at: usize,
        bytes: usize,
    ) {
        let words = (bytes / size_of::<usize>()).min(WORDS_MAX);
        let mut window = Window::new(Some(sure));
        for word in 0..words {
            let place = at.saturating_add(word * size_of::<usize>());
            let Some([pointer]) = self.peek_words_through(&mut window, place) else { return };
            self.hold(thread, pointer, UNKNOWN_BYTES);
        }
    }
}

/// Bytes that a command of `semctl` takes.
fn semaphores_bytes(command: usize) -> usize {
    match command & 0xff {
        GETALL | SETALL => SEMAPHORES_MAX * size_of::<u16>(),
        _ => UNKNOWN_BYTES,
    }
}
