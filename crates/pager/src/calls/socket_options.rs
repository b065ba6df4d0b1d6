//! What the kernel says of a socket of the program's.
//!
//! Source: getsockopt(2), socket(7).

use zpager_sys::syscall::{self, nr};

/// The level of options that all sockets have.
pub(super) const SOL_SOCKET: usize = 1;

/// An option of all sockets, whose bytes fill as many words from the lowest on; `None` where `fd` is no socket.
pub(super) fn socket_option<const WORDS: usize>(fd: usize, name: usize) -> Option<[u64; WORDS]> {
    let (mut value, mut bytes) = ([0u64; WORDS], size_of::<[u64; WORDS]>() as u32);
    let (at, length) = ((&raw mut value) as usize, (&raw mut bytes) as usize);
    // SAFETY: the kernel writes the value, no more than it has room for, and its length.
    let asked =
        unsafe { syscall::call(nr::__NR_getsockopt, [fd, SOL_SOCKET, name, at, length, 0]) };
    (asked == 0).then_some(value)
}
