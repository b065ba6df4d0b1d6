//! Passing descriptors to a stopped process that may not open them by itself: one that is another
//! user's or has given its capabilities up may not open `/proc/PID/fd/N` of the supervisor (ptrace(2),
//! "Ptrace access mode checking").
//!
//! One of its threads is made to make a pair of sockets; the supervisor takes a copy of the one and
//! sends the descriptors by it, and the thread receives them by the other. Sources: pidfd_getfd(2),
//! unix(7), recvmsg(2), cmsg(3). Invariant: a process to which nothing could be passed is as it was.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, RawFd};

use libc::pid_t;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use zpager_wire::{PASSED_MAX, Pair, Passed};

use super::caller::Caller;
use super::layout::PAGE_BYTES;
use super::thread::Trouble;
use crate::run::living::living_thread;

/// Where things lie in the page that the process has for this, behind the table.
const SOCKETS_AT: u64 = 1024;
const MESSAGE_AT: u64 = 1088;
const PART_AT: u64 = 1152;
const BYTE_AT: u64 = 1216;
const CONTROL_AT: u64 = 2048;

/// The descriptor is to be of a thread that is not its process's first (pidfd_open(2), since Linux 6.9).
const PIDFD_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::PIDFD_THREAD);

/// A control message (cmsg(3)): its header, and as many descriptors as there can be.
const HEADER_BYTES: usize = 16;
const CONTROL_BYTES: usize = HEADER_BYTES + PASSED_MAX * size_of::<RawFd>();

/// Descriptors that a process has copies of.
#[derive(Debug)]
pub(super) struct Handed {
    /// A page of shared memory in the process, which is never managed; the table is at its begin.
    page: u64,
    table: Passed,
}

impl Handed {
    /// Gives the process of `caller` copies of `descriptors`, each by its name in the table.
    ///
    /// # Errors
    /// What the kernel refused, or the process is gone.
    pub(super) fn give(
        pid: pid_t,
        caller: &mut Caller<'_>,
        descriptors: &[(RawFd, BorrowedFd<'_>)],
    ) -> Result<Self, Trouble> {
        let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let flags = (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as u64;
        let arguments = [0, PAGE_BYTES, protection, flags, u64::MAX, 0];
        let page = caller.call(libc::SYS_mmap, arguments)?;
        let mut handed = Handed { page, table: Passed::new([]) };
        match handed.pass(pid, caller, descriptors) {
            Ok(()) => Ok(handed),
            Err(trouble) => {
                handed.take_back(caller);
                Err(trouble)
            }
        }
    }

    /// Where the table of [`Entry`](zpager_wire::Entry)'s protocol is.
    pub(super) fn table_address(&self) -> u64 {
        self.page
    }

    /// What a descriptor of this process is there.
    pub(super) fn own(&self, descriptor: RawFd) -> Option<u64> {
        self.table.own(descriptor).map(word)
    }

    /// Leaves the process as it was, which may be gone.
    pub(super) fn take_back(&self, caller: &mut Caller<'_>) {
        for pair in self.table.pairs() {
            let _ = caller.call(libc::SYS_close, [word(pair.own)]);
        }
        let _ = caller.call(libc::SYS_munmap, [self.page, PAGE_BYTES]);
    }

    fn pass(
        &mut self,
        pid: pid_t,
        caller: &mut Caller<'_>,
        descriptors: &[(RawFd, BorrowedFd<'_>)],
    ) -> Result<(), Trouble> {
        let (names, descriptors): (Vec<_>, Vec<_>) = descriptors.iter().copied().unzip();
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        let sockets = self.page + SOCKETS_AT;
        caller.call(libc::SYS_socketpair, [word(libc::AF_UNIX), word(kind), 0, sockets])?;
        let sockets = caller.read::<8>(sockets)?;
        let [own, theirs] = [0, 4].map(|at| descriptor_at(&sockets, at));
        let received = send(pid, theirs, &descriptors).and_then(|()| self.receive(caller, own));
        for socket in [own, theirs] {
            caller.call(libc::SYS_close, [word(socket)])?;
        }
        let pairs = names.into_iter().zip(received?);
        self.table = Passed::new(pairs.map(|(theirs, own)| Pair { theirs, own }));
        // Short of its limit of descriptors it has received fewer (unix(7)).
        if self.table.pairs().count() < descriptors.len() {
            return Err(Trouble::Refused(libc::EMFILE));
        }
        Ok(caller.write(self.page, &self.table.to_bytes())?)
    }

    /// Has the process receive what was sent; gives what its descriptors are.
    fn receive(&self, caller: &mut Caller<'_>, socket: RawFd) -> Result<Vec<RawFd>, Trouble> {
        let at = |offset: u64| self.page + offset;
        let part = [at(BYTE_AT), 1];
        // `struct msghdr`: a name and its length, the parts and their number, the control messages and
        // their length, flags.
        let message = [0, 0, at(PART_AT), 1, at(CONTROL_AT), CONTROL_BYTES as u64, 0];
        let bytes =
            |words: &[u64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        caller.write(at(PART_AT), &bytes(&part))?;
        caller.write(at(MESSAGE_AT), &bytes(&message))?;
        let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
        caller.call(libc::SYS_recvmsg, [word(socket), at(MESSAGE_AT), word(flags)])?;
        let control = caller.read::<CONTROL_BYTES>(at(CONTROL_AT))?;
        let (header, descriptors) = control.split_at(HEADER_BYTES);
        let length =
            u64::from_ne_bytes(*header.first_chunk().expect("a header is longer")) as usize;
        let own = length.saturating_sub(HEADER_BYTES).min(descriptors.len());
        let places = (0..own).step_by(size_of::<RawFd>());
        Ok(places.map(|at| descriptor_at(descriptors, at)).collect())
    }
}

/// Sends descriptors by a copy of what is `socket` in a process.
fn send(pid: pid_t, socket: RawFd, descriptors: &[BorrowedFd<'_>]) -> Result<(), Trouble> {
    let living = living_thread(pid);
    let flags = if living == pid { PidfdFlags::empty() } else { PIDFD_THREAD };
    let living = Pid::from_raw(living).ok_or(Trouble::Gone)?;
    let process = pidfd_open(living, flags).map_err(io::Error::from)?;
    let socket = pidfd_getfd(process, socket, PidfdGetfdFlags::empty()).map_err(io::Error::from)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED_MAX))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    if !message.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Trouble::Refused(libc::E2BIG));
    }
    sendmsg(socket, &[IoSlice::new(&[0])], &mut message, SendFlags::NOSIGNAL)
        .map_err(io::Error::from)?;
    Ok(())
}

fn descriptor_at(bytes: &[u8], at: usize) -> RawFd {
    bytes[at..].first_chunk().map_or(-1, |bytes| RawFd::from_ne_bytes(*bytes))
}

/// What a system call has of a C integer.
fn word(integer: i32) -> u64 {
    i64::from(integer).cast_unsigned()
}
