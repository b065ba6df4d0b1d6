//! `execve` and `execveat`: what the next program of the process begins with.
//!
//! It gets the program's own limits, not those that have room for the pager
//! ([`zpager_sys::limits`]), and the two variables by which the agent comes in and
//! finds its run, where the program has left them out of the environment that it
//! passes: a program started with a cleared environment is of the run as well.
//! One that names another run's is left as it is, and one that may not open the agent does not get its
//! name: its loader would complain, and the supervisor gives the agent to it. Nor does one that is to be traced
//! ([`super::tracees`]).
//!
//! What it runs may be linked statically: no agent comes into that by itself, so the
//! supervisor is told, and looks at it as soon as it runs.
//!
//! The next program also inherits which signals are blocked, ignored and pending; of those that are ours
//! the kernel is told only now.
//!
//! The call is made from a stub that leads to the trap: where it fails, the
//! registers, the limits and the signals are as before. The new list lies in the thread's
//! record, as a child that only shares this memory comes here too.
//!
//! Bad case: an environment of more variables than the record has places for;
//! that program is not managed, and the user is told.

use zpager_sys::Errno;
use zpager_sys::file::Fd;
use zpager_sys::signal::{Context, Registers};
use zpager_sys::syscall::nr;
use zpager_sys::{limits, process};
use zpager_wire::{CONTROL_VARIABLE, EventKind};

use super::Outcome;
use crate::hold::{Sure, Window};
use crate::identity;
use crate::process::Process;
use crate::start::{PATH_BYTES, control_path, descriptor_path};
use crate::stubs;
use crate::threads::Thread;

const E2BIG: Errno = Errno(7);
const ROOT: u32 = 0;
const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// Most variables of an environment that can be completed.
const VARIABLES_MAX: usize = 1000;
/// Longest list of preloaded objects, as long as the loader's own bound on a path.
const PRELOAD_BYTES_MAX: usize = 4096;
/// The name of the control variable and its value.
const CONTROL_BYTES_MAX: usize = PATH_BYTES + 32;

/// An environment in the making.
#[repr(C)]
pub(crate) struct Environment {
    list: [usize; VARIABLES_MAX + 3],
    preload: [u8; PRELOAD_BYTES_MAX],
    control: [u8; CONTROL_BYTES_MAX],
}

/// What a list of variables has of the two.
#[derive(Default)]
struct Seen {
    variables: usize,
    /// Which one is the loader's, if it is there.
    preload: Option<usize>,
    /// Its length.
    preload_bytes: usize,
    has_agent: bool,
    has_control: bool,
    has_other_control: bool,
}

impl Process {
    /// `execve` (the environment is the third argument), `execveat` (the fourth).
    pub(super) fn execute(&mut self, thread: &mut Thread, context: &mut Context) -> Outcome {
        let [first, second, third, fourth, ..] = context.registers.arguments();
        let is_at = context.registers.rax as u32 == nr::__NR_execveat;
        let (path, list, variables) =
            if is_at { (second, third, fourth) } else { (first, second, third) };
        let sure = Sure::of(thread, context);
        self.hold_string(thread, Some(sure), path);
        self.hold_strings(thread, sure, list);
        self.hold_strings(thread, sure, variables);
        self.hold_robust(thread);
        let completed = self.complete(thread, sure, variables);
        if !thread.keeps_limits {
            limits::give_back();
        }
        self.become_heirs();
        if thread.is_of(self) {
            self.bury_children();
            self.name_heir();
            self.stop_answering();
            // Nobody would take what a server was asked for.
            self.settle_foretold();
            self.record_window();
        } else {
            self.name_heir_beside(thread.sharer);
        }
        self.control.call_supervisor();
        self.hand_signals_over(thread, context);
        self.put_carrier_down(context);
        thread.executing = Some(context.registers);
        thread.be_traced_in_program(path, is_at);
        let registers = &mut context.registers;
        let place = if is_at { &mut registers.r10 } else { &mut registers.rdx };
        *place = completed.unwrap_or(variables);
        thread.call = registers.rax;
        registers.rip = stubs::to_execution();
        Outcome::Arranged
    }

    /// Whether the thread was in an `execve`, which has failed, or has not been made yet: its
    /// registers are its own again.
    pub(crate) fn end_execution(&mut self, thread: &mut Thread, context: &mut Context) -> bool {
        let Some(before) = thread.executing.take() else { return false };
        if !thread.keeps_limits {
            limits::apply();
        }
        if thread.is_of(self) {
            self.answer();
        }
        self.name_heir_beside(self.sharer);
        self.take_back_signals(context);
        self.announce(thread);
        let registers = &context.registers;
        let rax = stubs::execution_result(registers);
        let (eflags, fpstate) = (registers.eflags, registers.fpstate);
        context.registers = Registers { rax, eflags, fpstate, ..before };
        true
    }

    /// Whether the next program can open the agent. Without the supervisor it finds nothing. One that this
    /// process begins as another user, or in a user namespace of its own, may not open what the supervisor
    /// has, and one with another `/proc` does not find it: they are given it by the supervisor. What another
    /// user may do now with the rights of root it may not any more then.
    fn is_open_to_next(&self, agent: &[u8]) -> bool {
        if !self.sees_run() && !identity::shares_proc() {
            return false;
        }
        let owner = Fd::open(agent, nr::O_RDONLY).and_then(|agent| {
            let owner = agent.owner();
            agent.close();
            owner
        });
        let user = process::user();
        owner.is_ok_and(|owner| user == ROOT || user == owner)
    }

    /// The list of variables with those that are missing, or without what is of no use; `None` where it is
    /// right as it is.
    fn complete(&mut self, thread: &mut Thread, sure: Sure, variables: usize) -> Option<usize> {
        let mut agent = [0; PATH_BYTES];
        let settings = &self.control.settings;
        let bytes = descriptor_path(settings.supervisor_pid, settings.agent_fd, &mut agent);
        let seen = self.look_at(thread, sure, variables, &agent[..bytes])?;
        if seen.has_other_control {
            return None;
        }
        let is_open = !thread.asks_to_be_traced && self.is_open_to_next(&agent[..=bytes]);
        let is_right = if is_open { seen.has_agent && seen.has_control } else { !seen.has_agent };
        if is_right {
            return None;
        }
        if !is_open {
            return thread.environment.leave_out(&seen, &agent[..bytes]);
        }
        if seen.variables > VARIABLES_MAX {
            self.note(EventKind::NotManaged, E2BIG.0 as u64, 0);
            return None;
        }
        let environment = &mut thread.environment;
        let mut count = seen.variables;
        if !seen.has_agent {
            let length = preload(&mut environment.preload, &agent[..bytes], seen.preload_bytes);
            let Some(()) = length else {
                self.note(EventKind::NotManaged, E2BIG.0 as u64, 0);
                return None;
            };
            let at = seen.preload.unwrap_or(count);
            environment.list[at] = environment.preload.as_ptr() as usize;
            count += usize::from(seen.preload.is_none());
        }
        if !seen.has_control {
            let name = CONTROL_VARIABLE.as_bytes();
            let place = &mut environment.control;
            place[..name.len()].copy_from_slice(name);
            place[name.len()] = b'=';
            place[name.len() + 1..][..PATH_BYTES].copy_from_slice(&control_path());
            environment.list[count] = place.as_ptr() as usize;
            count += 1;
        }
        environment.list[count] = 0;
        Some(environment.list.as_ptr() as usize)
    }

    /// Goes through the variables and copies the list; `None` where it cannot be read.
    fn look_at(
        &mut self,
        thread: &mut Thread,
        sure: Sure,
        variables: usize,
        agent: &[u8],
    ) -> Option<Seen> {
        let mut seen = Seen::default();
        let (mut words, mut texts) = (Window::new(Some(sure)), Window::new(Some(sure)));
        let name = CONTROL_VARIABLE.as_bytes();
        while variables != 0 && seen.variables <= VARIABLES_MAX {
            let place = variables + seen.variables * size_of::<usize>();
            let [string] = self.peek_words_through(&mut words, place)?;
            if string == 0 {
                break;
            }
            let at = seen.variables;
            thread.environment.list[at] = string;
            seen.variables += 1;
            let mut text = [0; CONTROL_BYTES_MAX];
            let length = self.peek_text(&mut texts, string, &mut text)?;
            if let Some(value) = text[..length].strip_prefix(name)
                && let Some(value) = value.strip_prefix(b"=")
            {
                let control = control_path();
                let ours = control.split(|&byte| byte == 0).next().unwrap_or(&[]);
                seen.has_control = value == ours;
                seen.has_other_control = value != ours;
            } else if text[..length].starts_with(PRELOAD) && seen.preload.is_none() {
                let place = &mut thread.environment.preload;
                let length = self.peek_text(&mut texts, string, place)?;
                let value = &thread.environment.preload[PRELOAD.len()..length];
                seen.has_agent = value.split(|byte| b": ".contains(byte)).any(|one| one == agent);
                (seen.preload, seen.preload_bytes) = (Some(at), length);
            }
        }
        Some(seen)
    }

    /// Copies a string up to its zero byte, or as much as there is room for; gives its length.
    fn peek_text(&mut self, window: &mut Window, address: usize, out: &mut [u8]) -> Option<usize> {
        let mut length = 0;
        while length < out.len() {
            let part = self.peek_through(window, address.checked_add(length)?)?;
            let part = &part[..part.len().min(out.len() - length)];
            out[length..length + part.len()].copy_from_slice(part);
            if let Some(end) = part.iter().position(|&byte| byte == 0) {
                return Some(length + end);
            }
            length += part.len();
        }
        Some(length)
    }
}

impl Environment {
    /// The list without the agent's name; `None` where it is too long.
    fn leave_out(&mut self, seen: &Seen, agent: &[u8]) -> Option<usize> {
        let at = seen.preload.filter(|_| seen.variables <= VARIABLES_MAX)?;
        let end = seen.variables;
        self.list[end] = 0;
        if drop_object(self.preload.get_mut(..=seen.preload_bytes)?, agent) > PRELOAD.len() {
            self.list[at] = self.preload.as_ptr() as usize;
        } else {
            self.list.copy_within(at + 1..=end, at);
        }
        Some(self.list.as_ptr() as usize)
    }
}

/// Takes an object out of those that `text` names, which ends in a zero byte; gives its new length.
fn drop_object(text: &mut [u8], object: &[u8]) -> usize {
    let is_separator = |byte: &u8| b": \0".contains(byte);
    let (mut from, mut to) = (PRELOAD.len(), PRELOAD.len());
    while let Some(length) = text[from..].iter().position(is_separator) {
        let next = from + length + 1;
        if text[from..from + length] != *object {
            text.copy_within(from..next, to);
            to += next - from;
        }
        from = next;
    }
    // The last one ends the text, or the one before it does now.
    if to > PRELOAD.len() {
        to -= 1;
    }
    text[to] = 0;
    to
}

/// Puts the agent before the objects that `text`, so far `length` bytes long, names; `None` when
/// there is no room.
fn preload(text: &mut [u8; PRELOAD_BYTES_MAX], agent: &[u8], length: usize) -> Option<()> {
    let others = length.saturating_sub(PRELOAD.len());
    let from = PRELOAD.len() + agent.len();
    let end = from + 1 + others;
    if length == text.len() || end >= text.len() {
        return None;
    }
    text.copy_within(PRELOAD.len()..PRELOAD.len() + others, from + 1);
    text[..PRELOAD.len()].copy_from_slice(PRELOAD);
    text[PRELOAD.len()..from].copy_from_slice(agent);
    text[from] = if others > 0 { b':' } else { 0 };
    text[end] = 0;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(start: &[u8]) -> [u8; PRELOAD_BYTES_MAX] {
        let mut text = [b'x'; PRELOAD_BYTES_MAX];
        text[..start.len()].copy_from_slice(start);
        text
    }

    #[test]
    fn an_object_is_left_out() {
        let cases: [(&[u8], &[u8]); 6] = [
            (b"LD_PRELOAD=/a\0", b"LD_PRELOAD=\0"),
            (b"LD_PRELOAD=/a:/b.so\0", b"LD_PRELOAD=/b.so\0"),
            (b"LD_PRELOAD=/b.so /a\0", b"LD_PRELOAD=/b.so\0"),
            (b"LD_PRELOAD=/c:/a /b.so:/a\0", b"LD_PRELOAD=/c:/b.so\0"),
            (b"LD_PRELOAD=/aa:/\0", b"LD_PRELOAD=/aa:/\0"),
            (b"LD_PRELOAD=\0", b"LD_PRELOAD=\0"),
        ];
        for (before, after) in cases {
            let mut text = text(before);
            let length = drop_object(&mut text[..before.len()], b"/a");
            assert_eq!(&text[..=length], after);
        }
    }

    #[test]
    fn the_agent_comes_first() {
        let agent = b"/proc/7/fd/5";
        let cases: [(&[u8], &[u8]); 3] = [
            (b"", b"LD_PRELOAD=/proc/7/fd/5\0"),
            (b"LD_PRELOAD=", b"LD_PRELOAD=/proc/7/fd/5\0"),
            (b"LD_PRELOAD=/a.so b.so", b"LD_PRELOAD=/proc/7/fd/5:/a.so b.so\0"),
        ];
        for (before, after) in cases {
            let mut list = text(before);
            assert_eq!(preload(&mut list, agent, before.len()), Some(()));
            assert_eq!(&list[..after.len()], after);
        }
        assert_eq!(preload(&mut text(PRELOAD), agent, PRELOAD_BYTES_MAX - 8), None);
    }
}
