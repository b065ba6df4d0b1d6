//! Every signal of a managed process goes through here.
//!
//! The kernel delivers each one that the program handles to [`on_signal`], on the
//! thread's block, with all signals blocked, and those of faults to `handle_fault` with none, as
//! long as nobody else has this memory ([`crate::resume`]). Dispatched calls and faults are served there.
//! Anything else is the program's: a frame as the kernel would have built it is put on
//! the stack where the program expects it, after that part of the stack has been brought
//! in, and the thread goes on in the program's handler.
//!
//! Invariants: SIGBUS, SIGSYS and SIGURG, and SIGSEGV with guard pages, are in no thread's real mask while it runs
//! the program, but for an `execve`, by which the next one inherits what this one
//! asked; what the program asked of them is pretended. The kernel's alternate
//! stack is the block's; what the program set is pretended as well.
//!
//! Bad case: that the program ignores one of them does not pass to what it executes
//! while another thread of it runs, which needs the pager's handler until it is gone.

use core::sync::atomic::Ordering::Relaxed;

use zpager_sys::dispatch::{AUDIT_ARCH_X86_64, SYS_USER_DISPATCH};
use zpager_sys::signal::{
    self, Action, AlternateStack, Context, Frame, Info, Mask, Place, Registers, SA_NOCLDSTOP,
    SA_NOCLDWAIT, SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_RESTART, SA_RESTORER, SA_SIGINFO,
    SI_KERNEL, SI_QUEUE, SIG_DFL, SIG_IGN, SIGBUS, SIGKILL, SIGNALS, SIGSEGV, SIGSTOP, SIGSYS,
    SIGURG, SS_AUTODISARM, SYS_SECCOMP, fpstate_bytes, is_ours, only, ours,
};
use zpager_sys::{Errno, process, processor};
use zpager_wire::{BRING_IN, CALL_THREAD, GIVE_BACK};

use crate::assembly::restorer;
use crate::calls;
use crate::fault::{Begun, Fault};
use crate::parked::{CARRIER, kinds};
use crate::process::Process;
use crate::resume::{handle_fault, postpone};
use crate::start::image;
use crate::stubs::{self, At};
use crate::threads::{Disturbed, IS_SHARED, Thread};

/// The pager's action for SIGSYS where an `execve` has failed ([`execution`](crate::assembly)); written when the
/// process begins to be managed.
pub(crate) static mut SIGSYS_ACTION: Action = Action { handler: 0, flags: 0, restorer: 0, mask: 0 };

const EINTR: isize = -4;
/// Flags that the kernel acts on, whatever the handler.
const KERNEL_FLAGS: u64 = SA_RESTART | SA_NOCLDSTOP | SA_NOCLDWAIT;
/// Trap, direction and resume flags, which a handler begins without.
const CLEARED_FLAGS: usize = 1 << 8 | 1 << 10 | 1 << 16;

/// What the kernel is told for a signal that the program handles as `asked`.
fn our_action(asked: &Action) -> Action {
    Action {
        handler: on_signal as *const () as usize,
        flags: asked.flags & KERNEL_FLAGS | SA_ONSTACK | SA_SIGINFO | SA_RESTORER,
        restorer: restorer as *const () as usize,
        mask: !0,
    }
}

/// The same for a signal that faults may raise, as long as nobody else has this memory: who is killed by a signal that
/// is not blocked would leave it as it is in the midst of a fault.
fn fault_action(asked: &Action) -> Action {
    let ours = our_action(asked);
    if IS_SHARED.load(Relaxed) {
        return ours;
    }
    let handler = handle_fault as *const () as usize;
    Action { handler, flags: ours.flags | SA_NODEFER, mask: 0, ..ours }
}

/// Takes over the handlers that the program has, and our own signals in any case.
///
/// # Errors
/// The kernel's.
pub(crate) fn take_over(actions: &mut [Action; SIGNALS + 1]) -> Result<(), Errno> {
    // SAFETY: nobody executes anything before the process is managed.
    unsafe { (&raw mut SIGSYS_ACTION).write(our_action(&Action::default())) };
    for signal in 1..=SIGNALS as u32 {
        if signal == SIGKILL || signal == SIGSTOP {
            continue;
        }
        // SAFETY: asks only.
        let asked = unsafe { signal::action(signal, None) }?;
        actions[signal as usize] = asked;
        if is_handler(&asked) || is_ours(signal) {
            install(signal, &asked)?;
        }
    }
    Ok(())
}

/// Whether a signal is one of ours by which the kernel tells of a fault.
fn is_of_fault(signal: u32) -> bool {
    matches!(signal, SIGBUS | SIGSEGV) && is_ours(signal)
}

pub(crate) fn is_handler(action: &Action) -> bool {
    action.handler != SIG_DFL && action.handler != SIG_IGN
}

/// Has the kernel call the pager for a signal for which the program asked so.
pub(crate) fn install(signal: u32, asked: &Action) -> Result<(), Errno> {
    let mut ours = if is_of_fault(signal) { fault_action(asked) } else { our_action(asked) };
    // What the program does not handle interrupts nothing.
    if !is_handler(asked) {
        ours.flags |= SA_RESTART;
    }
    // SAFETY: the handler finds the thread's block from its stack, which every managed thread has.
    unsafe { signal::action(signal, Some(&ours)) }.map(|_| ())
}

impl Process {
    /// Has the kernel call the pager for faults as it is to now ([`fault_action`]).
    pub(crate) fn install_for_faults(&self) -> Result<(), Errno> {
        [SIGBUS, SIGSEGV]
            .into_iter()
            .filter(|&signal| is_of_fault(signal))
            .try_for_each(|signal| install(signal, &self.actions[signal as usize]))
    }

    /// `rt_sigaction`: notes what the program asks, and tells the kernel what it has to know.
    pub(crate) fn set_action(&mut self, signal: u32, asked: &Action) -> Result<(), Errno> {
        let is_carrier = signal == CARRIER && self.fd_signals != 0;
        let outcome = if is_handler(asked) || is_ours(signal) || is_carrier {
            install(signal, asked)
        } else {
            // SAFETY: the default action or none.
            unsafe { signal::action(signal, Some(asked)) }.map(|_| ())
        };
        outcome.map(|()| self.actions[signal as usize] = *asked)
    }
}

impl Process {
    /// Those of our signals that the process of a thread ignores.
    pub(crate) fn ignored_by(&self, thread: &Thread) -> Mask {
        if thread.has_other_actions(self) {
            return thread.ignored;
        }
        let is_ignored = |&signal: &u32| self.actions[signal as usize].handler == SIG_IGN;
        kinds().filter(is_ignored).fold(0, |mask, signal| mask | only(signal))
    }

    /// Before another program begins: what it inherits of our signals is what this one has asked of them. They
    /// come to nobody before that program begins, or this one goes on ([`Process::take_back_signals`]).
    pub(crate) fn hand_signals_over(&mut self, thread: &mut Thread, context: &mut Context) {
        if !self.shares_actions && !self.threads.has_beside(thread) {
            let ignored = self.ignored_by(thread);
            for signal in kinds().filter(|&signal| ignored & only(signal) != 0) {
                let ignores = Action { handler: SIG_IGN, ..Action::default() };
                // SAFETY: nobody but this thread needs the handler, which does not until it has it back.
                let _ = unsafe { signal::action(signal, Some(&ignores)) };
            }
        }
        context.mask |= thread.pretended_mask;
        self.unpark(thread);
    }

    /// The other program has not begun.
    pub(crate) fn take_back_signals(&mut self, context: &mut Context) {
        context.mask &= !ours();
        for signal in kinds() {
            // As it was accepted before.
            let _ = install(signal, &self.actions[signal as usize]);
        }
    }
}

/// The handler that the kernel knows for all signals but those of faults.
pub(crate) extern "C" fn on_signal(signal: i32, info: &Info, context: &mut Context) {
    processor::allow_unaligned();
    // SAFETY: the kernel runs this on the thread's block.
    let thread = unsafe { Thread::current() };
    if !postpone(thread, info, context) {
        handle(thread, signal, info, context);
    }
}

/// Serves a signal; whether it was a fault that is served, so that the context is as it was.
pub(crate) fn handle(thread: &mut Thread, signal: i32, info: &Info, context: &mut Context) -> bool {
    let in_program = stubs::at(context.registers.rip).is_none();
    let is_caused = is_caused(info, &context.registers, in_program);
    if signal as u32 == SIGSYS && !is_caused && is_call_lost(&context.registers) {
        context.registers.rip -= stubs::SYSCALL_BYTES;
    }
    match signal as u32 {
        SIGSYS if is_caused && info.code == SYS_USER_DISPATCH => {
            // Which architecture's call it is stands behind its number.
            match info.words[1] >> u32::BITS {
                AUDIT_ARCH_X86_64 => calls::dispatch(thread, context),
                _ => calls::refuse_foreign(thread, context),
            }
        }
        SIGURG => {
            let ours = [GIVE_BACK, BRING_IN, CALL_THREAD];
            let is_ours = info.code == SI_QUEUE && ours.contains(&info.words[1]);
            let is_elsewhere = Process::with(|process| {
                // One of the program's own may have taken the place of one of ours.
                process.serve_run(thread);
                let is_elsewhere = !is_ours && process.deliver(thread, info, false, context);
                process.deliver_parked(thread, context) || is_elsewhere
            });
            if is_elsewhere != Some(true) {
                go_on_undisturbed(thread, context);
            }
            if is_elsewhere.is_none() && !is_ours {
                process::raise(SIGURG);
            }
        }
        CARRIER if info.code == SI_QUEUE && info.words[1] == CALL_THREAD => {
            context.mask |= only(CARRIER);
            Process::with(|process| process.announce(thread));
            // Under a mask that unblocks it, it would only come again.
            if thread.temporary_mask.is_none() || thread.watched.is_some() {
                go_on_undisturbed(thread, context);
            }
        }
        SIGBUS | SIGSEGV if is_caused && in_program && serve(thread, info, context) => return true,
        _ if thread.be_traced_at(info, &mut context.registers) => {}
        signal => {
            let deliver = |process: &mut Process| process.deliver(thread, info, is_caused, context);
            match Process::with(deliver) {
                Some(true) => {}
                Some(false) if is_ours(signal) => go_on_undisturbed(thread, context),
                Some(false) => {}
                // The process has left management by now: it comes once more, to whom the kernel has for
                // it. What the thread did to cause it does so again.
                None if is_caused => {}
                None => process::raise(signal),
            }
        }
    }
    false
}

/// Whether a thread with these registers has just caused a signal by what it did, of those that are ours. A process
/// may send itself whatever it likes, also what it was told before of such a signal (rt_sigqueueinfo(2)), so the
/// kernel's own words about the last fault, or the place of the call, have to be the same. Where it has just made a
/// call it has not faulted.
fn is_caused(info: &Info, registers: &Registers, in_program: bool) -> bool {
    let place = info.words[0];
    info.code > 0
        && match info.signal as u32 {
            signal if !is_ours(signal) => false,
            SIGBUS | SIGSEGV if !in_program => false,
            SIGBUS | SIGSEGV if registers.trap == PAGE_FAULT => registers.cr2 == place,
            SIGBUS => BUS_TRAPS.contains(&registers.trap),
            SIGSEGV => !BUS_TRAPS.contains(&registers.trap),
            SIGSYS => registers.rip == place,
            _ => false,
        }
}

/// Whether a thread with these registers has made a call that was to be dispatched, of which a SIGSYS that it was sent
/// took the place: the kernel keeps one of each kind. A call leaves where it was made in `rcx`, and the flags in `r11`.
/// One that has been served does not ([`calls::dispatch`]).
fn is_call_lost(registers: &Registers) -> bool {
    let is_made = registers.rcx == registers.rip && registers.r11 == registers.eflags;
    // SAFETY: the process is managed.
    let undispatched = unsafe { image() }.range();
    is_made && !undispatched.contains(&registers.rip)
}

/// What the processor calls a page fault, and what else raises SIGBUS: a segment that is not present, such a stack,
/// and what is not aligned.
const PAGE_FAULT: usize = 14;
const BUS_TRAPS: [usize; 3] = [11, 12, 17];

/// The bit of a page fault's error code that says that it was a write.
const FAULT_WRITE: usize = 1 << 1;

/// Serves a fault; false when it is the program's own affair.
fn serve(thread: &mut Thread, info: &Info, context: &Context) -> bool {
    let address = info.words[0];
    thread.let_go();
    let is_write = context.registers.error & FAULT_WRITE != 0;
    let begin = |process: &mut Process| {
        let error = context.registers.error;
        let is_of_guard = || process.may_be_of_guard(info.code, address, error);
        match info.signal as u32 == SIGSEGV && !is_of_guard() {
            true => Begun::Fault(Fault::Served(false)),
            false => process.begin_fault(thread, address, is_write),
        }
    };
    let fault = match Process::with_beside_flights(begin) {
        Some(Begun::Departs(departure)) => {
            departure.carry_out();
            let serve = |process: &mut Process| process.serve_departed(thread, address, is_write);
            Process::with_beside_flights(serve)
        }
        Some(Begun::Fault(fault)) => Some(fault),
        None => None,
    };
    let is_served = match fault {
        Some(Fault::Served(is_served)) => is_served,
        Some(Fault::Reads(mut pending)) => {
            pending.read();
            let fault = (address, is_write);
            let serve = |process: &mut Process| process.serve_read(thread, fault, pending);
            Process::with_beside_flights(serve) == Some(true)
        }
        Some(Fault::Flies(flight)) => {
            if !flight.land() {
                // Who takes the lock puts in what is stranded.
                Process::with(|_| ());
            }
            true
        }
        None => false,
    };
    if is_served {
        thread.foreign_fault = (0, 0);
        return true;
    }
    // Memory that left management between the fault and now is there: only a second fault is a real one.
    let fault = (address, context.registers.rip);
    let is_second = thread.foreign_fault == fault;
    thread.foreign_fault = if is_second { (0, 0) } else { fault };
    !is_second
}

/// After a signal of ours the program sees no interrupted call, and no part of one.
fn go_on_undisturbed(thread: &mut Thread, context: &mut Context) {
    let at = stubs::at(context.registers.rip);
    if let Some(At::Done(site)) = at
        && context.registers.rax as isize > 0
        && calls::may_give_part(thread.call)
    {
        // A process that has left management meanwhile is told of the part.
        let _ = Process::with(|process| process.go_on_with_rest(thread, context, site));
        return;
    }
    let registers = &mut context.registers;
    let (stub, site) = match at {
        Some(At::Call(_) | At::Piece(false)) if thread.disturbed == Disturbed::No => {
            thread.disturbed = Disturbed::Restarted;
            return;
        }
        Some(At::Done(site)) => (stubs::call_before(registers.rip), Some(site)),
        Some(At::Piece(true)) => {
            thread.note_disturbed();
            (stubs::piece_before(registers.rip), None)
        }
        _ => (None, None),
    };
    if registers.rax as isize == EINTR
        && let Some(stub) = stub
        && !thread.end_by_socket_time(registers)
    {
        registers.rip = stub;
        registers.rax = thread.call;
        thread.disturbed = Disturbed::Ended;
        thread.keep_time(context, site);
    }
}

impl Process {
    /// What the run wants of this process. Of several signals that come at the same time the
    /// kernel keeps one, so what is to be done is not in the signal.
    pub(crate) fn serve_run(&mut self, thread: &mut Thread) {
        self.serve_request(thread);
        if self.is_asked() {
            self.give_back();
        }
    }

    /// Has the thread go on in the program's handler for a signal, which it `is_caused` by itself or
    /// was sent, or with the call that waited for it. False where it goes on as if nothing had come.
    pub(crate) fn deliver(
        &mut self,
        thread: &mut Thread,
        info: &Info,
        is_caused: bool,
        context: &mut Context,
    ) -> bool {
        let signal = info.signal as u32;
        let is_waited_for = !is_caused && thread.waits_for & only(signal) != 0;
        if is_waited_for && self.end_wait(thread, signal, info, context) {
            return true;
        }
        let blocked = thread.blocked(context);
        if blocked.mask & only(signal) & ours() != 0 {
            if is_caused {
                // As in the kernel: a fault whose signal is blocked cannot be handled.
                self.act_by_default(signal, &Action::default(), true);
            } else {
                self.park(thread, signal, info);
            }
            return false;
        }
        let action = self.actions[signal as usize];
        if !is_handler(&action) {
            self.act_by_default(signal, &action, is_caused);
            return false;
        }
        // Of a call that was not made yet only the signals end the wait that its mask lets through.
        let is_ended = blocked.is_made || thread.pretended_mask & only(signal) != 0;
        let temporary = blocked.temporary.filter(|_| is_ended);
        let ends_wait = temporary.is_some() || thread.ends_disturbed(&context.registers, &action);
        if ends_wait {
            context.registers.rax = EINTR as usize;
        }
        // In the program's terms: a call that the kernel makes again is dispatched again.
        match stubs::at(context.registers.rip) {
            Some(At::Call(address)) if ends_wait => {
                context.registers.rip = address + stubs::SYSCALL_BYTES;
            }
            Some(At::Call(address) | At::Done(address)) => context.registers.rip = address,
            Some(At::Piece(is_made)) => self.interrupt(thread, context, is_made || ends_wait),
            None => thread.end_begun(context),
        }
        let told = if is_caused { told(info, context) } else { *info };
        self.enter(thread, signal, &told, context, temporary)
    }

    /// Has the thread, whose registers are in the program's terms, go on in the program's handler
    /// for a signal. It begins with the mask of the call that it ends, if that had one. False where
    /// there is no handler.
    pub(crate) fn enter(
        &mut self,
        thread: &mut Thread,
        signal: u32,
        info: &Info,
        context: &mut Context,
        temporary: Option<Mask>,
    ) -> bool {
        let action = self.actions[signal as usize];
        if !is_handler(&action) {
            self.act_by_default(signal, &action, false);
            return false;
        }
        thread.let_go();
        if action.flags & SA_RESETHAND != 0 {
            // The default action of a signal that had a handler is always accepted.
            let _ = self.set_action(signal, &Action { handler: SIG_DFL, ..action });
        }
        let Some(place) = self.frame_place(thread, &action, context) else {
            return self.enter_without_room(thread, signal, context, temporary);
        };
        self.hold(thread, place.frame, place.end - place.frame);
        let mut shown = *context;
        shown.stack = thread.alternate;
        shown.mask |= thread.pretended_mask;
        // SAFETY: the stack was brought in just now and is held; the context is the kernel's.
        let frame = unsafe { place.write(action.restorer, &shown, info) };
        if thread.alternate.flags & SS_AUTODISARM != 0 {
            thread.alternate = AlternateStack::NONE;
        }
        thread.temporary_mask = None;
        if let Some(mask) = temporary {
            (context.mask, thread.pretended_mask) = (mask & !ours(), mask & ours());
        }
        enter_handler(context, &action, signal, frame);
        thread.pretended_mask |= handler_mask(&action, signal) & ours();
        true
    }

    /// Has a call that leads to the trap be over, or be made by the program's own instruction.
    fn interrupt(&mut self, thread: &mut Thread, context: &mut Context, is_made: bool) {
        if is_made {
            self.cut_signal_read(thread, context);
        }
        if self.end_execution(thread, context) || self.end_watched(thread, context) {
            if !is_made {
                context.registers.rip -= stubs::SYSCALL_BYTES;
            }
        } else if !self.interrupt_messages(thread, context, is_made) {
            self.interrupt_pieces(thread, context, is_made);
        }
    }

    /// Where the frame for a handler goes; `None` where the alternate stack has no room for it.
    fn frame_place(&self, thread: &Thread, action: &Action, context: &Context) -> Option<Place> {
        let registers = &context.registers;
        let fpstate = match registers.fpstate {
            0 => 0,
            // SAFETY: the kernel's own frame.
            address => unsafe { fpstate_bytes(address) },
        };
        let alternate = &thread.alternate;
        let is_on_it = alternate.is_used_at(registers.rsp);
        let goes_there = action.flags & SA_ONSTACK != 0 && alternate.bytes > 0 && !is_on_it;
        let place = if goes_there {
            Place::below(alternate.start + alternate.bytes, false, fpstate)
        } else {
            Place::below(registers.rsp, true, fpstate)
        };
        let is_outside = (is_on_it || goes_there) && !alternate.holds(place.frame);
        (!is_outside).then_some(place)
    }

    /// As the kernel does: a SIGSEGV comes in place of a signal for whose frame there is no room, and is
    /// the end where it cannot be handled.
    fn enter_without_room(
        &mut self,
        thread: &mut Thread,
        signal: u32,
        context: &mut Context,
        temporary: Option<Mask>,
    ) -> bool {
        let info = Info::of(SIGSEGV, SI_KERNEL);
        let mask = context.mask | thread.pretended_mask;
        let is_open = signal != SIGSEGV && mask & only(SIGSEGV) == 0;
        if is_open && is_handler(&self.actions[SIGSEGV as usize]) {
            return self.enter(thread, SIGSEGV, &info, context, temporary);
        }
        context.mask &= !only(SIGSEGV);
        self.act_by_default(SIGSEGV, &Action::default(), true);
        true
    }

    /// A signal of ours that came though the program has no handler.
    fn act_by_default(&mut self, signal: u32, action: &Action, is_caused: bool) {
        if signal == SIGURG || action.handler == SIG_IGN && !is_caused {
            return;
        }
        // SAFETY: the default action needs no handler.
        let _ = unsafe { signal::action(signal, Some(&Action::default())) };
        // Pending until the handler returns; one that was caused comes again by itself as well.
        process::raise(signal);
    }
}

/// What the program is told of a signal, to which its registers are shown: a call that a filter of its own
/// traps was made where it made it.
fn told(info: &Info, context: &Context) -> Info {
    let mut told = *info;
    if info.signal as u32 == SIGSYS && info.code == SYS_SECCOMP {
        told.words[0] = context.registers.rip;
    }
    told
}

fn handler_mask(action: &Action, signal: u32) -> Mask {
    action.mask | if action.flags & SA_NODEFER == 0 { only(signal) } else { 0 }
}

/// Changes what the kernel will restore into the handler's first state.
fn enter_handler(context: &mut Context, action: &Action, signal: u32, frame: *mut Frame) {
    context.mask = (context.mask | handler_mask(action, signal)) & !ours();
    let registers = &mut context.registers;
    registers.rsp = frame as usize;
    registers.rip = action.handler;
    registers.rdi = signal as usize;
    // SAFETY: addresses within the frame that was written just now.
    unsafe {
        registers.rsi = (&raw const (*frame).info) as usize;
        registers.rdx = (&raw const (*frame).context) as usize;
    }
    registers.rax = 0;
    registers.eflags &= !CLEARED_FLAGS;
    // No state to restore: a handler begins with the initial one.
    registers.fpstate = 0;
}

/// What a thread blocks of our signals.
pub(crate) struct Blocked {
    pub(crate) mask: Mask,
    /// The mask of the call in which it waits, or is about to.
    temporary: Option<Mask>,
    /// It has waited already.
    is_made: bool,
}

impl Thread {
    /// What is blocked where the thread stands.
    pub(crate) fn blocked(&self, context: &Context) -> Blocked {
        let is_interrupted = context.registers.rax as isize == EINTR;
        let is_made = match stubs::at(context.registers.rip) {
            Some(At::Done(_) | At::Piece(true)) if is_interrupted => Some(true),
            Some(At::Call(_) | At::Piece(false)) => Some(false),
            _ => None,
        };
        let temporary = self.temporary_mask.filter(|_| is_made.is_some());
        let is_made = is_made == Some(true);
        let mask = match temporary {
            Some(mask) if is_made => mask,
            Some(mask) => mask & self.pretended_mask,
            None => self.pretended_mask,
        };
        Blocked { mask, temporary, is_made }
    }

    /// Whether it is about to make a call again, after a signal of ours, that a signal with an action ends.
    fn ends_disturbed(&self, registers: &Registers, action: &Action) -> bool {
        let is_again = match stubs::at(registers.rip) {
            Some(At::Call(_)) => true,
            Some(At::Piece(is_made)) => !is_made && self.executing.is_none(),
            _ => false,
        };
        is_again
            && match self.disturbed {
                Disturbed::No => false,
                Disturbed::Restarted => {
                    action.flags & SA_RESTART == 0
                        && calls::may_wait(self.call as u32, &registers.arguments())
                }
                Disturbed::Ended => true,
            }
    }

    /// Whether it is of a child that shares the memory of `process`, but not its actions.
    pub(crate) fn has_other_actions(&self, process: &Process) -> bool {
        self.has_own_actions && !self.is_of(process)
    }

    /// Whether this is a thread of `process` itself, not a child that shares its memory.
    pub(crate) fn is_of(&self, process: &Process) -> bool {
        self.sharer == process.sharer && self.tid.load(Relaxed) > 0
    }
}
