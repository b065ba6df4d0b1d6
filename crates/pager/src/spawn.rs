//! Children: threads, forked processes, and those in between.
//!
//! A child that shares this memory begins on a block of its own, arms itself and
//! returns into the program through a copy of its parent's signal frame. A child
//! with a copy of the memory goes on in the same handler as its parent: it opens
//! its own userfaultfd, registers every region again (the kernel forgets a
//! child's), and only then returns to the program, so it never sees an absent page
//! as zeros.
//!
//! Spilled pages are counted once more before the fork, so that neither side can
//! free what the other still needs (cervera's swap_map).
//!
//! A child that shares this memory and is killed, or runs another program, does not
//! say so; its block and its holds are freed once the kernel says that it shares no
//! more (kcmp(2)), at the latest when it has been waited for.
//!
//! Where the process itself ends, is killed, or runs another program, beside such a child that it does not wait
//! for, that one is its heir: what it has of the run goes on in the heir's name
//! ([`leave_to_heir`](zpager_wire::Processes::leave_to_heir)). The first child that has said by what it is known
//! is named before it runs anything of the program, so that who buries the process knows it.
//!
//! Bad case: such a child that is killed while it is in the pager itself, in the middle
//! of its work. All who share this memory are ended. And where all of them but one in a pid
//! namespace of its own are killed too, that one waits for the lock in vain.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use zpager_cache::PAGE_NUMBER_END;
use zpager_sys::signal::{Context, Info, Place, fpstate_bytes};
use zpager_sys::syscall::{self, nr};
use zpager_sys::{Errno, dispatch, process, signal};
use zpager_wire::{EventKind, ProcessSlot};

use crate::account::{CHILD_BYTES, Published, count};
use crate::assembly::{Clone, clone_onto_frame, restorer};
use crate::calls::{IS_LEAVING, Outcome};
use crate::fault::fail;
use crate::hold::pages_of;
use crate::identity::{self, Identity};
use crate::late_signals::Earlier;
use crate::maps;
use crate::own::OneStore;
use crate::parked::Parked;
use crate::process::Process;
use crate::sharing::ACCOUNT;
use crate::threads::{IS_SHARED, Thread, UNKNOWN};

const CLONE_VM: usize = 0x100;
const CLONE_FILES: usize = 0x400;
const CLONE_SIGHAND: usize = 0x800;
const CLONE_VFORK: usize = 0x4000;
const CLONE_THREAD: usize = 0x1_0000;
const CLONE_CHILD_CLEARTID: usize = 0x20_0000;
const CLONE_CHILD_SETTID: usize = 0x100_0000;
/// The child would be without our handlers. Kernels before 5.5 refuse it, and libc does without then.
const CLONE_CLEAR_SIGHAND: usize = 1 << 32;
const SIGCHLD: usize = 17;
/// Words of `struct clone_args` that matter here, and its length in all versions so far.
const ARGS_WORDS: usize = 11;
const EAGAIN: Errno = Errno(11);
const EFAULT: Errno = Errno(14);
const EINVAL: Errno = Errno(22);
/// How often a child is waited for that has not said yet what the run calls it, and how long each time.
const SAYING_NAPS_MAX: u32 = 2000;
const SAYING_NAP_NANOSECONDS: u64 = 500_000;

/// A clone in the terms of both its calls.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    flags: usize,
    /// The child's stack pointer, 0 for the parent's.
    stack_pointer: usize,
    /// Where its stack begins, and how long it is; 0 where only the pointer is known.
    stack_start: usize,
    stack_bytes: usize,
}

/// A child that shares this memory, ready to be made without the lock.
pub(crate) struct Spawn {
    call: Clone,
    frame: usize,
    child: &'static mut Thread,
    waits: bool,
    /// The slot of the process whose memory is lent to another one.
    lends: Option<&'static ProcessSlot>,
}

/// What is noted of what a parent has held for its child.
enum ChildHolds {
    Noted,
    NotNoted,
    /// It was taken away with what the parent had, which was killed.
    Lost,
}

impl Process {
    /// `clone`, `clone3`, `fork`, `vfork`.
    pub(crate) fn spawn(&mut self, thread: &mut Thread, context: &mut Context) -> Outcome {
        let Some(wanted) = self.wanted(thread, context) else { return Outcome::of(Err(EFAULT)) };
        if wanted.flags & CLONE_CLEAR_SIGHAND != 0 {
            return Outcome::of(Err(EINVAL));
        }
        if wanted.flags & CLONE_VM == 0 {
            return self.fork(thread, context, &wanted);
        }
        match self.lend(thread, context, &wanted) {
            Ok(spawn) => Outcome::Spawn(spawn),
            Err(error) => Outcome::of(Err(error)),
        }
    }

    /// Prepares a child that shares this memory.
    fn lend(
        &mut self,
        thread: &mut Thread,
        context: &Context,
        wanted: &Wanted,
    ) -> Result<Spawn, Errno> {
        let number = context.registers.rax;
        self.unmanage(pages_of(wanted.stack_start, wanted.stack_bytes));
        self.bury_children();
        let is_seen = thread.is_seen.load(Relaxed);
        let sharer = if wanted.flags & CLONE_THREAD == 0 { self.sharers } else { thread.sharer };
        let child = self.threads.claim(self.pid, sharer, is_seen).ok_or(EAGAIN)?;
        self.sharers += u32::from(sharer == self.sharers);
        let waits = wanted.flags & CLONE_VFORK != 0;
        if wanted.flags & CLONE_THREAD == 0 {
            child.pid = 0;
            child.child_pid.store(if waits { 0 } else { UNKNOWN }, Relaxed);
            child.lender = (!waits).then_some(self.slot);
        }
        child.pretended_mask = thread.pretended_mask;
        child.ignored = self.ignored_by(thread);
        let shares_actions = wanted.flags & CLONE_SIGHAND != 0;
        child.has_own_actions = !shares_actions || thread.has_other_actions(self);
        self.shares_actions |= shares_actions && wanted.flags & CLONE_THREAD == 0;
        if waits {
            child.alternate = thread.alternate;
        }
        let mut begins = *context;
        begins.registers.rax = 0;
        if wanted.stack_pointer != 0 {
            begins.registers.rsp = wanted.stack_pointer;
        }
        begins.stack = child.stack();
        // SAFETY: the kernel's own frame; the child's block is nobody's yet.
        let frame = unsafe {
            let bytes = match begins.registers.fpstate {
                0 => 0,
                address => fpstate_bytes(address),
            };
            let place = Place::below(child.stack_end(), false, bytes);
            place.write(restorer as *const () as usize, &begins, &Info::of(0, 0)) as usize
        };
        let call = if number == nr::__NR_vfork as usize {
            let flags = CLONE_VM | CLONE_VFORK | SIGCHLD;
            Clone { number: nr::__NR_clone as usize, arguments: [flags, 0, 0, 0, 0, 0] }
        } else {
            Clone { number, arguments: context.registers.arguments() }
        };
        let lends = (wanted.flags & CLONE_THREAD == 0).then_some(self.slot);
        if lends.is_some() {
            self.begin_sharing()?;
        }
        Ok(Spawn { call, frame, child, waits, lends })
    }

    /// Another process is about to get this memory: from now on who serves a fault is not to be killed in its midst.
    fn begin_sharing(&mut self) -> Result<(), Errno> {
        if !IS_SHARED.swap(true, Relaxed) {
            self.install_for_faults()?;
        }
        self.slot.is_lent.fetch_add(1, Relaxed);
        Ok(())
    }

    /// One to whom this memory was lent has left it. Where it was the last one, a fault is gone back from without the
    /// kernel again.
    fn end_sharing(&mut self) {
        if self.slot.is_lent.load(Relaxed) == 0 && IS_SHARED.swap(false, Relaxed) {
            let installed = self.install_for_faults();
            IS_SHARED.store(installed.is_err(), Relaxed);
        }
    }

    /// Whether a call of clone(2) or clone3(2) begins what will run in this memory beside the caller.
    pub(crate) fn begins_thread(&mut self, context: &Context) -> bool {
        let registers = &context.registers;
        let flags = match registers.rax as u32 {
            nr::__NR_clone => registers.rdi,
            _ => self.peek_words(registers.rdi).map_or(0, |[flags]: [usize; 1]| flags),
        };
        flags & (CLONE_VM | CLONE_VFORK) == CLONE_VM
    }

    /// What the call asks for; its pointers are held.
    fn wanted(&mut self, thread: &mut Thread, context: &Context) -> Option<Wanted> {
        let registers = &context.registers;
        let none = Wanted { flags: 0, stack_pointer: 0, stack_start: 0, stack_bytes: 0 };
        match registers.rax as u32 {
            nr::__NR_fork => Some(none),
            nr::__NR_vfork => Some(Wanted { flags: CLONE_VM | CLONE_VFORK, ..none }),
            nr::__NR_clone => {
                self.hold(thread, registers.rdx, size_of::<i32>());
                self.hold(thread, registers.r10, size_of::<i32>());
                self.spare_child_id(registers.rdi, registers.r10);
                Some(Wanted { flags: registers.rdi, stack_pointer: registers.rsi, ..none })
            }
            _ => {
                let bytes = registers.rsi.min(ARGS_WORDS * size_of::<usize>());
                self.hold(thread, registers.rdi, bytes);
                let words: [usize; 8] = self.peek_words(registers.rdi)?;
                let [flags, pidfd, child_id, parent_id, _, stack_start, stack_bytes, _] = words;
                for pointer in [pidfd, child_id, parent_id] {
                    self.hold(thread, pointer, size_of::<i32>());
                }
                self.spare_child_id(flags, child_id);
                Some(Wanted {
                    flags,
                    stack_pointer: if stack_start == 0 { 0 } else { stack_start + stack_bytes },
                    stack_start,
                    stack_bytes,
                })
            }
        }
    }

    /// Frees what children have left that shared this memory. Gives whether there were any.
    pub(crate) fn bury_children(&self) -> bool {
        if self.slot.is_lent.load(Relaxed) == 0 || !self.caller_is_seen() {
            return false;
        }
        let buried = self.threads.bury_children();
        self.slot.is_lent.fetch_sub(buried, Relaxed);
        if buried > 0 {
            self.name_heir_beside(self.sharer);
        }
        buried > 0
    }

    /// The process ends, and a child goes on with its memory: what it has of the run is that child's
    /// from now on. False where there is none, or it is not known yet.
    pub(crate) fn pass_on(&mut self) -> bool {
        self.name_heir();
        let is_left = self.control.processes.leave_to_heir(self.slot, identity::run_pid());
        self.become_heirs();
        is_left
    }

    /// Says who goes on with this memory, now that the process ends or runs another program.
    pub(crate) fn name_heir(&mut self) {
        let heir = self.threads.heir().and_then(identity_of);
        self.slot.heir.store(heir.map_or(0, Identity::run_pid), Relaxed);
    }

    /// Names an heir anew, which is not the process with this number. A child that has not said yet by what
    /// it is known names itself when it does.
    pub(crate) fn name_heir_beside(&self, sharer: u32) {
        self.slot.unname_heir();
        let may_be = |child: &&mut Thread| {
            child.child_pid.load(Relaxed) != 0
                && child.has_said.load(SeqCst)
                && child.sharer != sharer
        };
        if let Some(heir) = self.threads.live().find(may_be) {
            self.slot.name_heir(heir.identity.run_pid());
        }
    }

    /// The process whose memory this was has left it to an heir, which has what that had of the run.
    pub(crate) fn become_heirs(&mut self) {
        let owner = self.slot.pid.load(Relaxed);
        if owner == identity::run_pid() || owner <= 0 {
            return;
        }
        let is_owner =
            |heir: &&mut Thread| heir.has_said.load(Acquire) && heir.identity.run_pid() == owner;
        if let Some(heir) = self.threads.live().find(is_owner) {
            heir.child_pid.store(0, Relaxed);
            (self.pid, self.sharer) = (heir.pid, heir.sharer);
            heir.identity.become_noted();
            identity::tell(self.slot, self.pid);
            self.slot.is_lent.fetch_sub(1, Relaxed);
            self.name_heir_beside(self.sharer);
        }
    }

    /// The kernel writes a thread's id when it begins and clears it when it ends, and nobody can bring
    /// the page in then.
    fn spare_child_id(&mut self, flags: usize, child_id: usize) {
        if flags & (CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID) != 0 && flags & CLONE_VM != 0 {
            self.spare(child_id, size_of::<i32>());
        }
    }

    /// A child with a copy of this memory. Gives what the call returns, in both.
    fn fork(&mut self, thread: &mut Thread, context: &mut Context, wanted: &Wanted) -> Outcome {
        let earlier = Earlier::look(context.mask);
        let registers = &context.registers;
        let mut arguments = registers.arguments();
        let mut args = [0usize; ARGS_WORDS];
        if registers.rax == nr::__NR_clone3 as usize {
            let words = registers.rsi.min(size_of_val(&args)) / size_of::<usize>();
            // SAFETY: the words are plain bytes.
            let bytes = unsafe {
                core::slice::from_raw_parts_mut(args.as_mut_ptr().cast::<u8>(), words * 8)
            };
            if !self.peek(registers.rdi, bytes) {
                return Outcome::of(Err(EFAULT));
            }
            // The child goes on on this stack until it returns to the program.
            (args[5], args[6]) = (0, 0);
            arguments = [args.as_ptr() as usize, words * 8, 0, 0, 0, 0];
        } else if registers.rax == nr::__NR_clone as usize {
            arguments[1] = 0;
        }
        self.make_room_bytes(CHILD_BYTES + self.engine.cache.inherited_bytes() as i64);
        // The child would have them too, and neither could move them.
        self.drop_spares(self.spare_pages);
        self.wait_for_room(CHILD_BYTES);
        if earlier.begins_again(thread, context.mask) {
            return Outcome::Later;
        }
        self.shares_descriptors |= wanted.flags & CLONE_FILES != 0;
        self.unborn = self.control.processes.claim(identity::run_pid());
        if self.asks_in_child {
            self.find_in_child();
        }
        // From here to the fork no page may leave or come.
        self.end_all_copies();
        self.flush_store();
        self.settle_foretold();
        self.engine.cache.share_spilled();
        self.share_with_child();
        // SAFETY: without CLONE_VM the child has its own copy of everything, this stack included.
        let result = unsafe { syscall::call(registers.rax as u32, arguments) };
        match result {
            0 => {
                if wanted.stack_pointer != 0 {
                    context.registers.rsp = wanted.stack_pointer;
                }
                self.begin_as_child(thread, wanted.flags & CLONE_FILES != 0);
            }
            error if error < 0 => {
                self.unshare_with_child();
                self.engine.cache.unshare_spilled();
            }
            child => {
                earlier.send_on(self, thread, child as i32);
                self.give_slot(child as i32);
            }
        }
        Outcome::Done(result)
    }

    /// The slot of a child is the child's to take; where that is killed before it has, who buries it finds the slot by
    /// its id. Nobody here knows that in a pid namespace: the slot is this process's then for as long as it lives.
    fn give_slot(&mut self, child_pid: i32) {
        if let Some(slot) = self.unborn.take()
            && self.sees_run()
        {
            self.control.processes.take_over(slot, identity::run_pid(), child_pid);
        }
    }

    /// Asks what the program advised about its children before it was managed; the kernel has it. Without
    /// `/proc` they are taken to get a copy of everything.
    fn find_in_child(&mut self) {
        self.asks_in_child = false;
        let _ = maps::each_in_child(|line, in_child| {
            if !in_child.is_copied() {
                self.regions.set_in_child(pages_of(line.start, line.end - line.start), in_child);
            }
        });
    }

    /// Makes the copy of a process a process of its own.
    fn begin_as_child(&mut self, thread: &mut Thread, shares_descriptors: bool) {
        self.pid = process::pid();
        let parent = identity::run_pid();
        match Identity::look(thread.is_seen.load(Relaxed) && process::sees_parent()) {
            Ok(identity) => identity.become_noted(),
            Err(error) => fail(error, 0),
        }
        let holds = self.take_slot(parent);
        self.is_child = true;
        // It was the parent that wanted to.
        IS_LEAVING.store(false, Relaxed);
        // Before anything is dropped: what this memory has noted so far is its parent's.
        self.note_references();
        self.end_sharing();
        self.published = Published::default();
        count(&self.control.counters.managed_processes, 1);
        self.record_forked();
        thread.pid = self.pid;
        self.sharer = thread.sharer;
        thread.tid.store(process::tid(), Relaxed);
        thread.is_seen.store(true, Relaxed);
        self.threads.keep_only(thread);
        self.shares_actions = false;
        // Nothing is pending for a child.
        (self.parked, thread.parked) = (Parked::default(), Parked::default());
        thread.asks_to_be_traced = false;
        self.shares_descriptors = shares_descriptors;
        if !shares_descriptors {
            // First, as there may be no other descriptor left.
            self.watch.close();
        }
        match self.watch.open_anew() {
            Ok(watch) => self.watch = watch,
            Err(error) => fail(error, 0),
        }
        if let Err(error) = self.watch.register(self.staging.start(), self.staging.bytes()) {
            fail(error, self.staging.start());
        }
        match holds {
            ChildHolds::Noted => {}
            ChildHolds::NotNoted => self.note_holds(),
            ChildHolds::Lost => self.hold_anew(),
        }
        self.register_copies();
        self.empty_buffers();
        self.publish();
        self.arm(thread);
    }

    /// Takes the slot that the parent has claimed, or claims one.
    fn take_slot(&mut self, parent: i32) -> ChildHolds {
        let unborn = self.unborn.take();
        let pid = identity::run_pid();
        // The parent may have given it already.
        let is_own = |slot: &&ProcessSlot| {
            self.control.processes.take_over(slot, parent, pid) || slot.pid.load(Relaxed) == pid
        };
        let taken = unborn.filter(is_own);
        self.slot = taken.unwrap_or_else(|| claim_slot(self.control));
        identity::tell(self.slot, self.pid);
        ACCOUNT.set_holds(self.tables.holds_of(self.control, self.slot));
        match (unborn, taken) {
            (_, Some(_)) => ChildHolds::Noted,
            (None, _) => ChildHolds::NotNoted,
            (Some(_), None) => ChildHolds::Lost,
        }
    }

    /// Buffers of the pager are empty between two calls; the child's cost RAM once they are used.
    fn empty_buffers(&mut self) {
        self.engine.cache.become_copy();
        OneStore::become_copy();
        self.early.become_copy();
        self.foretold.become_copy();
        self.flights.trim();
        self.departures.trim();
        self.incoming.release(0, self.incoming.bytes());
        self.incoming_pages_max = 0;
    }

    /// Registers what the child has a copy of, and forgets what it has not.
    fn register_copies(&mut self) {
        let mut from = 0;
        while let Some(region) = self.regions.first_part(&(from..PAGE_NUMBER_END)) {
            from = region.end;
            if !region.in_child.is_copied() {
                self.disown(region.pages());
                self.forget(region.pages());
            }
            if !region.in_child.is_dropped {
                self.register_again(&region);
            } else if !self.regions.remove(region.pages()) {
                fail(EAGAIN, 0);
            }
        }
    }

    /// Has the calling thread's system calls dispatched.
    pub(crate) fn arm(&self, thread: &Thread) {
        // SAFETY: SIGSYS has our handler and is not blocked when the thread is back in its program.
        let armed = unsafe { dispatch::enable(self.image.range(), &raw const thread.selector) };
        if let Err(error) = armed {
            fail(error, 0);
        }
        self.answer();
    }
}

/// A slot for this process; without a free one it is managed and not counted.
pub(crate) fn claim_slot(control: &'static zpager_wire::Control) -> &'static ProcessSlot {
    static UNCOUNTED: ProcessSlot = ProcessSlot::new();
    let pid = identity::run_pid();
    match control.processes.claim(pid) {
        Some(slot) => {
            identity::tell(slot, process::pid());
            slot
        }
        None => {
            control.events.note(EventKind::NotManaged, pid, EAGAIN.0 as u64, 0);
            &UNCOUNTED
        }
    }
}

/// By what a child that shares this memory is known: only it can say, which it does first of all.
fn identity_of(child: &Thread) -> Option<Identity> {
    let child_pid = child.child_pid.load(Relaxed);
    for _ in 0..SAYING_NAPS_MAX {
        if child.has_said.load(Acquire) {
            return Some(child.identity);
        }
        if !process::shares_memory(child_pid) {
            break;
        }
        process::nap(SAYING_NAP_NANOSECONDS);
    }
    None
}

impl Spawn {
    /// Makes the child; gives what the call returns to the parent.
    pub(crate) fn make(self) -> isize {
        // The id stays "claimed" until the child has said its own.
        // SAFETY: prepared above: a call with CLONE_VM and a frame on the child's own block.
        let result = unsafe { clone_onto_frame(&self.call, self.frame, begin) };
        if result < 0 || self.waits {
            // A child that was waited for has left this memory.
            Process::leave_behind(self.child.number());
            self.child.child_pid.store(0, Relaxed);
            self.child.release();
            if let Some(slot) = self.lends {
                slot.is_lent.fetch_sub(1, Relaxed);
                Process::with(Process::end_sharing);
            }
        } else if self.lends.is_some() {
            // The block is its own until then, whatever has become of it.
            self.child.child_pid.store(result as i32, Release);
        }
        result
    }
}

/// The first thing that a child does which shares this memory.
extern "C" fn begin(_frame: usize) {
    // SAFETY: runs on the child's block.
    let thread = unsafe { Thread::current() };
    let is_process = thread.pid == 0;
    thread.tid.store(process::tid(), Relaxed);
    // So far it is what it is for who made this one.
    let is_seen = thread.is_seen.load(Relaxed) && (!is_process || process::sees_parent());
    thread.is_seen.store(is_seen, Relaxed);
    thread.pid = process::pid();
    // Who is waited for inherits nothing.
    let is_heir = thread.child_pid.load(Relaxed) != 0;
    if is_heir && let Ok(identity) = Identity::look(is_seen) {
        thread.identity = identity;
        thread.has_said.store(true, SeqCst);
        // That of one that was killed before this one was known is another process's.
        let is_lenders = |slot: &&ProcessSlot| slot.pid.load(Relaxed) == identity::run_pid();
        if let Some(slot) = thread.lender.filter(is_lenders) {
            slot.name_heir(identity.run_pid());
        }
    }
    // SAFETY: the block's stack is this thread's; all signals are blocked until the frame is restored,
    // which also sets the alternate stack again.
    let _ = unsafe { signal::set_alternate_stack(&thread.stack()) };
    // SAFETY: the image is the same for all threads and does not change.
    let image = unsafe { crate::start::image() };
    // SAFETY: as in `arm`; without the lock, which the parent of a vforked child may not wait for.
    if unsafe { dispatch::enable(image.range(), &raw const thread.selector) }.is_err() {
        crate::fault::die();
    }
}
