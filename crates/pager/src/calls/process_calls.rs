//! Calls about the process and its threads.

use core::sync::atomic::Ordering::Relaxed;

use zpager_sys::processor::{self, PR_SET_TSC, PR_TSC_SIGSEGV};
use zpager_sys::signal::Context;
use zpager_sys::syscall::nr;
use zpager_sys::{Errno, limits, process};
use zpager_wire::EventKind;

use super::Outcome;
use crate::hold::{Sure, Window};
use crate::identity;
use crate::process::Process;
use crate::threads::Thread;
use crate::unmanage::{ROBUST_HEAD_BYTES, robust_list_head};

const EFAULT: Errno = Errno(14);
pub(super) const ENOSYS: Errno = Errno(38);
const EINVAL: Errno = Errno(22);
/// Longest path or argument, and most arguments, that the kernel takes.
const STRING_BYTES_MAX: usize = 128 * 1024;
const STRINGS_MAX: usize = 1 << 16;
const PR_SET_SYSCALL_USER_DISPATCH: usize = 59;
const PR_SET_NAME: usize = 15;
const PR_SET_SECCOMP: usize = 22;
const PR_GET_NAME: usize = 16;
/// `PR_SET_VMA`, which gives memory a name.
const PR_SET_VMA: usize = 0x5356_4d41;
const OPTION_BYTES: usize = 1024;
/// Most entries of a list of robust mutexes that the kernel looks at.
const ROBUST_MAX: usize = 2048;

impl Process {
    pub(super) fn process_call(&mut self, thread: &mut Thread, context: &mut Context) -> Outcome {
        let arguments = context.registers.arguments();
        let [first, second, third, ..] = arguments;
        match context.registers.rax as u32 {
            nr::__NR_clone | nr::__NR_clone3
                if self.is_without_file() && self.begins_thread(context) =>
            {
                self.leave_for(thread, context, EventKind::NoMemoryFile)
            }
            nr::__NR_clone | nr::__NR_clone3 | nr::__NR_fork | nr::__NR_vfork => {
                self.spawn(thread, context)
            }
            nr::__NR_execve | nr::__NR_execveat => self.execute(thread, context),
            nr::__NR_getrlimit => self.limit_call(thread, [0, first, 0, second]),
            nr::__NR_setrlimit => self.limit_call(thread, [0, first, second, 0]),
            nr::__NR_prlimit64 => self.limit_call(thread, [first, second, third, arguments[3]]),
            nr::__NR_exit if self.threads.is_alone(thread) => self.end(thread),
            nr::__NR_exit => {
                thread.ends();
                self.hold_robust(thread);
                Outcome::GoOn
            }
            nr::__NR_exit_group => self.end(thread),
            nr::__NR_close_range => self.close_range(first, second, third),
            nr::__NR_set_robust_list => {
                self.spare(first, ROBUST_HEAD_BYTES);
                Outcome::GoOn
            }
            nr::__NR_set_tid_address => {
                self.spare(first, size_of::<i32>());
                Outcome::GoOn
            }
            nr::__NR_rseq => {
                self.spare(first, second);
                Outcome::GoOn
            }
            // Its requests name buffers in memory that it reads without a call: programs do without.
            nr::__NR_io_uring_setup => Outcome::Done(ENOSYS.as_result()),
            nr::__NR_prctl if first == PR_SET_SECCOMP => {
                self.sandbox_call(thread, context, second, third)
            }
            nr::__NR_prctl => self.control_call(thread, arguments),
            _ => Outcome::GoOn,
        }
    }

    /// Holds the robust mutexes of a thread that ends until it is gone, or has become another
    /// program: the kernel goes through their list then, and would stop at the first that it cannot
    /// read.
    ///
    /// Source: Documentation/locking/robust-futexes.rst, `exit_robust_list`.
    pub(super) fn hold_robust(&mut self, thread: &mut Thread) {
        let head = robust_list_head();
        if head == 0 {
            return;
        }
        let Some([mut entry, offset, pending]) = self.peek_words(head) else { return };
        self.hold_futex(thread, pending, offset);
        for _ in 0..ROBUST_MAX {
            // The last bit tells the kind of futex.
            let place = entry & !1;
            if place == head || place == 0 {
                return;
            }
            self.hold_futex(thread, entry, offset);
            match self.peek_words(place) {
                Some([next]) => entry = next,
                None => return,
            }
        }
    }

    /// Holds an entry of a list of robust mutexes, and its futex.
    fn hold_futex(&mut self, thread: &mut Thread, entry: usize, offset: usize) {
        let place = entry & !1;
        if place != 0 {
            // The kernel writes to the futex, which may share the entry's page.
            self.hold_once(thread, place, Self::hold);
            self.hold_once(thread, place.wrapping_add(offset), Self::hold);
        }
    }

    /// `getrlimit`, `setrlimit`, `prlimit64`: process, resource, new and old limit.
    fn limit_call(&mut self, thread: &mut Thread, arguments: [usize; 4]) -> Outcome {
        let [pid, resource, new, old] = arguments;
        for pointer in [new, old] {
            self.hold(thread, pointer, size_of::<limits::Limit>());
        }
        let is_own = pid as u32 == 0 || pid as i32 == self.pid;
        let Some(before) = limits::shown(resource).filter(|_| is_own) else {
            return Outcome::GoOn;
        };
        if !thread.is_of(self) {
            // A child that only shares this memory has limits of its own.
            thread.keeps_limits |= new != 0;
            return Outcome::GoOn;
        }
        if new != 0 {
            let Some([soft, hard]) = self.peek_words(new) else {
                return Outcome::Done(EFAULT.as_result());
            };
            if let Err(error) = limits::set(resource, [soft as u64, hard as u64]) {
                return Outcome::Done(error.as_result());
            }
        }
        let told = old == 0 || process::poke(old, &before).is_ok();
        Outcome::Done(if told { 0 } else { EFAULT.as_result() })
    }

    fn control_call(&mut self, thread: &mut Thread, arguments: [usize; 6]) -> Outcome {
        let [option, pointer, third, _, fifth, _] = arguments;
        match option {
            PR_SET_SYSCALL_USER_DISPATCH => return Outcome::Done(EINVAL.as_result()),
            PR_SET_TSC if pointer == PR_TSC_SIGSEGV => processor::leave_time_stamps(),
            PR_SET_NAME | PR_GET_NAME => self.hold(thread, pointer, 16),
            PR_SET_VMA => self.hold_string(thread, None, fifth),
            // Options that write do so to a word or a small struct.
            _ => [pointer, third].into_iter().for_each(|at| self.hold(thread, at, OPTION_BYTES)),
        }
        Outcome::GoOn
    }

    /// Holds a string in the program's memory, up to its zero byte.
    pub(super) fn hold_string(&mut self, thread: &mut Thread, sure: Option<Sure>, address: usize) {
        self.hold_string_through(&mut Window::new(sure), thread, address);
    }

    fn hold_string_through(&mut self, window: &mut Window, thread: &mut Thread, address: usize) {
        let mut bytes = 0;
        // Nothing has to be held of a string that no managed memory can be in.
        while self.is_managed(address.saturating_add(bytes), STRING_BYTES_MAX.saturating_sub(bytes))
        {
            let at = address.saturating_add(bytes);
            if bytes == 0 || at.is_multiple_of(zpager_sys::PAGE_BYTES) {
                self.hold_once(thread, at, Self::hold_to_read);
            }
            match self.peek_through(window, at) {
                Some(part) if !part.contains(&0) => bytes += part.len(),
                _ => return,
            }
        }
    }

    /// Holds a list of strings, up to a word of zero, and the strings.
    pub(super) fn hold_strings(&mut self, thread: &mut Thread, sure: Sure, list: usize) {
        let (mut words, mut text) = (Window::new(Some(sure)), Window::new(Some(sure)));
        for at in 0..STRINGS_MAX {
            let place = list + at * size_of::<usize>();
            if list == 0 {
                return;
            }
            self.hold_once(thread, place, Self::hold_to_read);
            match self.peek_words_through(&mut words, place) {
                Some([string @ (1..)]) => self.hold_string_through(&mut text, thread, string),
                _ => return,
            }
        }
    }

    /// Holds the page of a string or a list's entry, once a page.
    fn hold_once(
        &mut self,
        thread: &mut Thread,
        place: usize,
        hold: fn(&mut Self, &mut Thread, usize, usize),
    ) {
        let page = (place / zpager_sys::PAGE_BYTES) as u64;
        if !thread.held().iter().any(|&(start, end)| start <= page && page < end) {
            hold(self, thread, place, 1);
            thread.join_last();
        }
    }

    /// The process ends: what it held of the run is given back.
    fn end(&mut self, thread: &mut Thread) -> Outcome {
        self.hold_robust(thread);
        self.become_heirs();
        if !thread.is_of(self) {
            self.name_heir_beside(thread.sharer);
            thread.ends();
            return Outcome::GoOn;
        }
        self.bury_children();
        if self.pass_on() {
            thread.ends();
            return Outcome::GoOn;
        }
        self.record_end();
        // Whoever shares this memory still goes on with what is in it or spilled of it.
        if self.slot.is_lent.load(Relaxed) == 0 {
            self.engine.cache.give_back_spilled();
            self.slot.has_noted.store(0, Relaxed);
            if self.control.processes.count() > 1 {
                self.free_memory();
            }
        }
        self.publish();
        self.control.retire(&self.tables, self.slot, identity::run_pid());
        if self.shares_descriptors && self.threads.is_alone(thread) {
            // The parent would keep it. Nobody touches managed memory any more.
            self.watch.close();
        }
        Outcome::End
    }
}
