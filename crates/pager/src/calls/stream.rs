//! Large transfers with pipes and stream sockets, in pieces that the program's
//! thread makes one after the other: with its own mask, so that signals
//! interrupt it as ever, and with no more than a piece held at a time.
//!
//! Each piece is made from a stub that leads to the trap of [`stubs`], where the
//! thread enters the pager again. What the call returns is what the kernel would
//! have: a write goes on until all is written, a read takes what is there and
//! waits only for its first byte, or for all with `MSG_WAITALL`, and whatever
//! ends a piece early ends the call. Ancillary data go with the first piece; a
//! receiver that has got some gets nothing more with the same call.
//!
//! Sources: recv(2), send(2), pipe(7), epoll(7) (a short read says that there is
//! no more), and `unix_stream_read_generic`, which ends a call at passed rights.
//!
//! Bad case: an error of the socket that comes between two pieces of a write or
//! of a read of all. The call returns what was done, and the error is not told
//! again by the next one.

use zpager_sys::signal::{Context, Registers};
use zpager_sys::syscall::{self, nr};

use super::Outcome;
use super::socket_options::socket_option;
use super::transfer::{CALL_BYTES_MAX, VECTOR_BYTES, VECTORS_MAX};
use crate::hold::{Sure, Window};
use crate::process::Process;
use crate::stubs;
use crate::threads::Thread;

/// Vectors of one piece.
const PIECE_VECTORS: usize = 64;
const EINVAL: isize = -22;
const EFAULT: isize = -14;
const EINTR: isize = -4;
const EOPNOTSUPP: isize = -95;
const RWF_NOWAIT: usize = 8;
const SO_TYPE: usize = 3;
const SO_PROTOCOL: usize = 38;
const SOCK_STREAM: u64 = 1;
const IPPROTO_SCTP: u64 = 132;
const MSG_OOB: usize = 1;
const MSG_PEEK: usize = 2;
const MSG_TRUNC: usize = 0x20;
const MSG_DONTWAIT: usize = 0x40;
const MSG_WAITALL: usize = 0x100;
const MSG_ERRQUEUE: usize = 0x2000;
const MSG_NOSIGNAL: usize = 0x4000;
pub(super) const MSG_ZEROCOPY: usize = 0x400_0000;
/// Flags of calls that are made whole: they look, or count, or are about one message.
const WHOLE: usize = MSG_OOB | MSG_PEEK | MSG_TRUNC | MSG_ERRQUEUE | MSG_ZEROCOPY;
/// Longest name of a socket (`struct sockaddr_storage`).
const NAME_BYTES_MAX: usize = 128;
/// Words of `struct msghdr`.
const NAME: usize = 0;
const NAME_BYTES: usize = 1;
const VECTORS: usize = 2;
const VECTOR_COUNT: usize = 3;
const CONTROL: usize = 4;
const CONTROL_BYTES: usize = 5;
const FLAGS: usize = 6;

/// What a descriptor is, as far as transfers go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Descriptor {
    /// A regular file, of so many bytes, or a block device or /dev/zero, which do not say.
    File(usize),
    /// A pipe.
    Pipe,
    /// A socket without borders between messages.
    StreamSocket,
    /// A socket whose calls are one message each.
    MessageSocket,
    /// Terminals, other devices, and what has no name.
    Other,
}

/// Asks what a descriptor is.
pub(super) fn descriptor(fd: usize) -> Descriptor {
    const MODE_WORD: usize = 6;
    const DEVICE_WORD: usize = 10;
    const BYTES_WORD: usize = 12;
    /// /dev/zero and /dev/full, by major and minor number: what is not to wait ends there as soon as another
    /// thread wants the processor.
    const ZEROS: [u32; 2] = [1 << 8 | 5, 1 << 8 | 7];
    const TYPE_MASK: u32 = 0o170_000;
    let mut status = [0u32; 36];
    let arguments = [fd, status.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: struct stat has 144 bytes.
    if unsafe { syscall::call(nr::__NR_fstat, arguments) } != 0 {
        return Descriptor::Other;
    }
    match status[MODE_WORD] & TYPE_MASK {
        0o100_000 | 0o060_000 => {
            let [low, high] = [status[BYTES_WORD], status[BYTES_WORD + 1]];
            Descriptor::File((u64::from(high) << u32::BITS | u64::from(low)) as usize)
        }
        0o020_000 if ZEROS.contains(&status[DEVICE_WORD]) => Descriptor::File(0),
        0o010_000 => Descriptor::Pipe,
        0o140_000 if is_stream(fd) => Descriptor::StreamSocket,
        0o140_000 => Descriptor::MessageSocket,
        _ => Descriptor::Other,
    }
}

fn is_stream(fd: usize) -> bool {
    socket_option(fd, SO_TYPE) == Some([SOCK_STREAM])
        && socket_option(fd, SO_PROTOCOL) != Some([IPPROTO_SCTP])
}

fn is_readable(fd: usize) -> bool {
    const POLLIN: u64 = 1;
    let mut asked = fd as u32 as u64 | POLLIN << 32;
    // SAFETY: one struct pollfd, of eight bytes.
    let ready = unsafe { syscall::call(nr::__NR_poll, [(&raw mut asked) as usize, 1, 0, 0, 0, 0]) };
    ready == 1 && asked >> 48 & POLLIN != 0
}

/// Whether what a call of this number gives may be a part of what it would have done without a signal.
pub(crate) fn may_give_part(number: usize) -> bool {
    const CALLS: [u32; 5] =
        [nr::__NR_write, nr::__NR_writev, nr::__NR_sendto, nr::__NR_sendmsg, nr::__NR_recvfrom];
    CALLS.contains(&(number as u32))
}

/// A call that is made in pieces, between two of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Continued {
    /// The program's registers at the call; its `rip` is behind the `syscall`, and 0 while there is no call.
    before: Registers,
    descriptor: Descriptor,
    /// The vector in which the next piece begins, and how much of it is done.
    vector: usize,
    within_bytes: usize,
    /// Bytes done, and asked for with the piece that is under way.
    done_bytes: usize,
    asked_bytes: usize,
    /// A signal of the pager's own may have ended the piece early.
    is_disturbed: bool,
    /// The descriptor cannot be read without waiting: it is asked first (pipes before Linux 6.4).
    is_asked_first: bool,
    /// `struct msghdr` of the piece.
    header: [usize; 7],
    /// Length of the program's buffer for ancillary data.
    control_bytes: usize,
    /// What the kernel said about the whole message: lengths and flags.
    said: Option<[usize; 3]>,
    vectors: [[usize; 2]; PIECE_VECTORS],
}

impl Continued {
    /// Of which nothing is done.
    fn new(context: &Context, descriptor: Descriptor, header: [usize; 7]) -> Self {
        Continued {
            before: context.registers,
            descriptor,
            vector: 0,
            within_bytes: 0,
            done_bytes: 0,
            asked_bytes: 0,
            is_disturbed: false,
            is_asked_first: false,
            header,
            control_bytes: header[CONTROL_BYTES],
            said: None,
            vectors: [[0; 2]; PIECE_VECTORS],
        }
    }

    /// Whether it would have done more, and nothing but the bytes that it did tells how far it came.
    fn can_be_gone_on_with(&self) -> bool {
        let is_stream = self.descriptor == Descriptor::StreamSocket;
        let is_plain = self.flags() & WHOLE == 0;
        match self.number() {
            nr::__NR_write | nr::__NR_writev => is_stream || self.descriptor == Descriptor::Pipe,
            nr::__NR_sendto | nr::__NR_sendmsg => is_stream && is_plain,
            nr::__NR_recvfrom => {
                let has_name = self.before.arguments()[4] != 0;
                is_stream && is_plain && self.wants_all() && !has_name
            }
            _ => false,
        }
    }

    fn number(&self) -> u32 {
        self.before.rax as u32
    }

    fn reads(&self) -> bool {
        matches!(
            self.number(),
            nr::__NR_read | nr::__NR_readv | nr::__NR_recvfrom | nr::__NR_recvmsg
        )
    }

    fn flags(&self) -> usize {
        let arguments = self.before.arguments();
        match self.number() {
            nr::__NR_recvfrom | nr::__NR_sendto => arguments[3],
            nr::__NR_recvmsg | nr::__NR_sendmsg => arguments[2],
            _ => 0,
        }
    }

    fn is_message(&self) -> bool {
        matches!(self.number(), nr::__NR_recvmsg | nr::__NR_sendmsg)
    }

    /// Whether it waits for more than what is there.
    fn wants_all(&self) -> bool {
        !self.reads() || self.flags() & MSG_WAITALL != 0
    }

    /// Whether a descriptor that has to be asked has nothing more to read.
    fn finds_nothing(&self) -> bool {
        self.is_asked_first && !is_readable(self.before.arguments()[0])
    }

    /// The call of the next piece, whose vectors are laid out.
    fn call(&mut self, vectors: usize) -> (u32, [usize; 6]) {
        let [fd, ..] = self.before.arguments();
        let at = self.vectors.as_ptr() as usize;
        let goes_on = self.done_bytes > 0;
        if self.descriptor != Descriptor::StreamSocket {
            let number = if self.reads() { nr::__NR_readv } else { nr::__NR_writev };
            return match self.reads() && goes_on && !self.is_asked_first {
                true => (nr::__NR_preadv2, [fd, at, vectors, usize::MAX, 0, RWF_NOWAIT]),
                false => (number, [fd, at, vectors, 0, 0, 0]),
            };
        }
        (self.header[VECTORS], self.header[VECTOR_COUNT]) = (at, vectors);
        (self.header[CONTROL_BYTES], self.header[FLAGS]) = (self.control_bytes, 0);
        if goes_on {
            (self.header[NAME], self.header[NAME_BYTES]) = (0, 0);
            if !self.reads() {
                (self.header[CONTROL], self.header[CONTROL_BYTES]) = (0, 0);
            }
        }
        let mut flags = self.flags();
        if self.reads() {
            flags |= if goes_on && !self.wants_all() { MSG_DONTWAIT } else { 0 };
        } else {
            // A peer that goes away after a part of it has been sent is told by the next call.
            flags |= if goes_on { MSG_NOSIGNAL } else { 0 };
        }
        let number = if self.reads() { nr::__NR_recvmsg } else { nr::__NR_sendmsg };
        (number, [fd, self.header.as_ptr() as usize, flags, 0, 0, 0])
    }
}

impl Process {
    /// `sendto`, `recvfrom`, `sendmsg`, `recvmsg`.
    pub(super) fn socket_call(&mut self, thread: &mut Thread, context: &mut Context) -> Outcome {
        let [fd, at, length, flags, name, name_bytes] = context.registers.arguments();
        let number = context.registers.rax as u32;
        let is_message = matches!(number, nr::__NR_recvmsg | nr::__NR_sendmsg);
        let mut header = [0; 7];
        let (bytes, flags) = if is_message {
            let words = self.read_words(thread, context, at);
            let Some(words) = words else { return self.plain_call(thread, context) };
            header = words;
            header[NAME_BYTES] &= u32::MAX as usize;
            let mut window = Window::new(Some(Sure::of(thread, context)));
            (self.managed_bytes(&mut window, header[VECTORS], header[VECTOR_COUNT]), length)
        } else {
            (header[NAME], header[NAME_BYTES]) = (name, name_bytes);
            (if self.is_managed(at, length) { length } else { 0 }, flags)
        };
        self.note_flags(flags);
        let is_whole = bytes <= self.piece_bytes() || flags & WHOLE != 0;
        if is_whole || descriptor(fd) != Descriptor::StreamSocket {
            return self.plain_call(thread, context);
        }
        if number == nr::__NR_recvfrom && name != 0 {
            // A stream has one peer: the name comes as well with a call of its own, after the data.
            header[NAME_BYTES] = match self.peek_words::<1>(name_bytes) {
                Some([bytes]) => bytes & u32::MAX as usize,
                None => return self.plain_call(thread, context),
            };
        }
        self.begin_pieces(thread, context, Descriptor::StreamSocket, header)
    }

    /// Begins a call in pieces.
    pub(super) fn begin_pieces(
        &mut self,
        thread: &mut Thread,
        context: &mut Context,
        descriptor: Descriptor,
        header: [usize; 7],
    ) -> Outcome {
        thread.continued = Some(Continued::new(context, descriptor, header));
        self.next_piece(thread, context);
        Outcome::Arranged
    }

    /// Goes on with a call that had done so much when the thread was stopped, to be managed from then on: the stop
    /// ended it, as a signal does, but no signal comes to the program.
    pub(super) fn go_on_with_pieces(
        &mut self,
        thread: &mut Thread,
        context: &mut Context,
        done_bytes: usize,
    ) -> Outcome {
        let [fd, at, ..] = context.registers.arguments();
        let header = match context.registers.rax as u32 {
            nr::__NR_sendmsg => self.peek_words(at).unwrap_or([0; 7]),
            _ => [0; 7],
        };
        let mut continued = Continued::new(context, descriptor(fd), header);
        continued.done_bytes = done_bytes;
        if !continued.can_be_gone_on_with() {
            return Outcome::Done(done_bytes as isize);
        }
        thread.continued = Some(continued);
        self.advance(thread, done_bytes);
        self.next_piece(thread, context);
        Outcome::Arranged
    }

    /// Goes on with a call that has been made at `site` and has done a part, as far as is seen, when a signal of the
    /// pager's own came: nothing of the program's own has, so it is told of the whole.
    pub(crate) fn go_on_with_rest(
        &mut self,
        thread: &mut Thread,
        context: &mut Context,
        site: usize,
    ) {
        let done_bytes = context.registers.rax;
        (context.registers.rax, context.registers.rip) = (thread.call, site);
        if let Outcome::Done(result) = self.go_on_with_pieces(thread, context, done_bytes) {
            context.registers.rax = result as usize;
        }
    }

    /// Has the thread make the next piece, or ends the call where there is none.
    fn next_piece(&mut self, thread: &mut Thread, context: &mut Context) {
        let Some(mut continued) = thread.continued else { return };
        thread.let_go();
        let vectors = match self.lay_out(thread, &mut continued) {
            Ok(vectors) => vectors,
            Err(error) => return self.end_pieces(thread, context, error),
        };
        if continued.asked_bytes == 0 || continued.finds_nothing() {
            return self.end_pieces(thread, context, 0);
        }
        self.hold(thread, continued.header[NAME], NAME_BYTES_MAX);
        self.hold(thread, continued.header[CONTROL], continued.control_bytes);
        // The kernel reads the vectors and the header in the thread's record.
        let continued = thread.continued.insert(continued);
        let (number, arguments) = continued.call(vectors);
        let registers = &mut context.registers;
        [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9] =
            arguments;
        (registers.rax, registers.rip) = (number as usize, stubs::to_trap());
        thread.call = number as usize;
    }

    /// Lays the vectors of the next piece out and holds what they name; gives how many.
    fn lay_out(&mut self, thread: &mut Thread, continued: &mut Continued) -> Result<usize, isize> {
        let [_, at, length, ..] = continued.before.arguments();
        let list = match continued.number() {
            nr::__NR_readv | nr::__NR_writev => Some((at, length)),
            _ if continued.is_message() => {
                let words: [usize; 7] = self.peek_words(at).ok_or(EFAULT)?;
                Some((words[VECTORS], words[VECTOR_COUNT]))
            }
            _ => None,
        };
        if list.is_some_and(|(_, count)| count > VECTORS_MAX) {
            return Err(EINVAL);
        }
        let most = self.piece_bytes().min(CALL_BYTES_MAX - continued.done_bytes);
        let mut laid_out = 0;
        let mut sum = 0;
        let mut within = continued.within_bytes;
        let mut window = Window::new(None);
        for vector in continued.vector.. {
            let found = match list {
                None if vector == 0 => Some([at, length]),
                Some((list, count)) if vector < count => {
                    let place = list + vector * VECTOR_BYTES;
                    Some(self.peek_words_through(&mut window, place).ok_or(EFAULT)?)
                }
                _ => None,
            };
            let Some([address, bytes]) = found else { break };
            if laid_out == PIECE_VECTORS || sum == most {
                break;
            }
            let part = (bytes - within.min(bytes)).min(most - sum);
            if part > 0 {
                self.hold(thread, address.wrapping_add(within), part);
                continued.vectors[laid_out] = [address.wrapping_add(within), part];
                laid_out += 1;
                sum += part;
            }
            within = 0;
        }
        continued.asked_bytes = sum;
        Ok(laid_out)
    }

    /// A piece has been made.
    pub(super) fn piece_done(&mut self, thread: &mut Thread, context: &mut Context) {
        let result = context.registers.rax as isize;
        let goes_on = self.count_piece(thread, result);
        if goes_on {
            self.next_piece(thread, context);
        } else {
            self.end_pieces(thread, context, result);
        }
    }

    /// Counts what a piece did; gives whether another one follows.
    fn count_piece(&mut self, thread: &mut Thread, result: isize) -> bool {
        let Some(continued) = thread.continued.as_mut() else { return false };
        if result <= 0 {
            let lacks_nowait =
                result == EOPNOTSUPP && continued.reads() && continued.done_bytes > 0;
            return lacks_nowait && !core::mem::replace(&mut continued.is_asked_first, true);
        }
        let is_first = continued.done_bytes == 0;
        let (done, asked) = (result as usize, continued.asked_bytes);
        continued.done_bytes += done;
        let got_control = continued.reads()
            && continued.descriptor == Descriptor::StreamSocket
            && continued.note_said(is_first);
        let is_disturbed = core::mem::take(&mut continued.is_disturbed);
        let is_cut_short = done < asked && !(is_disturbed && continued.wants_all());
        self.advance(thread, done);
        !got_control && !is_cut_short
    }

    /// Moves the place where the next piece begins.
    fn advance(&mut self, thread: &mut Thread, bytes: usize) {
        let Some(continued) = thread.continued.as_mut() else { return };
        let [_, at, _, ..] = continued.before.arguments();
        let mut rest = bytes;
        let list = match continued.number() {
            nr::__NR_readv | nr::__NR_writev => Some(at),
            _ if continued.is_message() => self.peek_words::<7>(at).map(|words| words[VECTORS]),
            _ => None,
        };
        let Some(list) = list else {
            continued.within_bytes += bytes;
            return;
        };
        let mut window = Window::new(None);
        for _ in 0..VECTORS_MAX {
            let place = list + continued.vector * VECTOR_BYTES;
            let words = self.peek_words_through(&mut window, place);
            let Some([_, length]) = words else { return };
            let left = length - continued.within_bytes.min(length);
            if rest < left {
                continued.within_bytes += rest;
                return;
            }
            rest -= left;
            continued.vector += 1;
            continued.within_bytes = 0;
            if rest == 0 {
                return;
            }
        }
    }

    /// Ends a call in pieces: the program's registers are its own again, and have the result.
    fn end_pieces(&mut self, thread: &mut Thread, context: &mut Context, result: isize) {
        let Some(continued) = thread.continued.take() else { return };
        let flags = context.registers.eflags;
        context.registers = Registers {
            rax: match continued.done_bytes {
                0 => result as usize,
                done => done,
            },
            eflags: flags,
            fpstate: context.registers.fpstate,
            ..continued.before
        };
        if let Some(said) = continued.said {
            self.tell_said(thread, &continued, said);
        }
    }

    /// Writes what the kernel said about a received message where the program looks for it.
    fn tell_said(&mut self, thread: &mut Thread, continued: &Continued, said: [usize; 3]) {
        let [name_bytes, control_bytes, flags] = said;
        let arguments = continued.before.arguments();
        if continued.number() == nr::__NR_recvfrom {
            if arguments[4] != 0 {
                self.tell(thread, arguments[5], name_bytes as u32);
            }
            return;
        }
        if !continued.is_message() {
            return;
        }
        let header = arguments[1];
        let word = size_of::<usize>();
        if self.peek_words::<1>(header).is_some_and(|[name]| name != 0) {
            self.tell(thread, header + NAME_BYTES * word, name_bytes as u32);
        }
        self.tell(thread, header + CONTROL_BYTES * word, control_bytes as u64);
        self.tell(thread, header + FLAGS * word, flags as u32);
    }

    fn tell<T: Copy>(&mut self, thread: &mut Thread, address: usize, value: T) {
        self.hold(thread, address, size_of::<T>());
        // Where the program has taken the memory away meanwhile, nobody waits for it.
        let _ = zpager_sys::process::poke(address, &value);
    }

    /// A signal of the program's came: in its terms the call is to be made yet, or done.
    pub(crate) fn interrupt_pieces(
        &mut self,
        thread: &mut Thread,
        context: &mut Context,
        is_made: bool,
    ) {
        if is_made {
            let result = context.registers.rax as isize;
            self.count_piece(thread, result);
            return self.end_pieces(thread, context, result);
        }
        let Some(continued) = thread.continued.as_ref() else { return };
        if continued.done_bytes > 0 {
            return self.end_pieces(thread, context, EINTR);
        }
        // The kernel makes it again: from the program's own instruction.
        let before = continued.before;
        self.end_pieces(thread, context, before.rax as isize);
        context.registers.rip = before.rip - stubs::SYSCALL_BYTES;
    }
}

impl Continued {
    /// Notes what the kernel said about a received message; gives whether it came with ancillary data.
    fn note_said(&mut self, is_first: bool) -> bool {
        let [_, name_bytes, _, _, _, control_bytes, flags] = self.header;
        // What the kernel takes from the length given is what it has written.
        let got_control = self.header[CONTROL] != 0 && control_bytes != 0;
        let mut said = self.said.unwrap_or([0; 3]);
        if is_first {
            said[0] = name_bytes as u32 as usize;
        }
        said[1] = control_bytes;
        said[2] |= flags as u32 as usize;
        self.said = Some(said);
        got_control
    }
}

impl Thread {
    /// A signal of the program's came before it has gone on with what was begun before it was managed: that ends
    /// the call.
    pub(crate) fn end_begun(&mut self, context: &mut Context) {
        let done_bytes = core::mem::take(&mut self.begun_bytes);
        if done_bytes > 0 {
            context.registers.rax = done_bytes;
            context.registers.rip += stubs::SYSCALL_BYTES;
        }
    }

    /// After a signal of the pager's own: a piece may have been cut short by it alone.
    pub(crate) fn note_disturbed(&mut self) {
        if let Some(continued) = self.continued.as_mut() {
            continued.is_disturbed = true;
        }
        if let Some(messages) = self.messages.as_mut() {
            messages.is_disturbed = true;
        }
    }
}
