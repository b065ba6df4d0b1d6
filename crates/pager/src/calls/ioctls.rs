//! `ioctl`: its number says how long its argument is, but not what that points to.
//!
//! Memory that the program registers with a userfaultfd of its own leaves management first, as it
//! would be refused: a range has one such descriptor.
//!
//! Sources: ioctl(2), ioctl_userfaultfd(2), netdevice(7), ioctl_fiemap(2).
//!
//! What it points to is not known but for a few: words of the argument that are addresses of managed
//! memory are taken for pointers ([`super::pointed`]).
//!
//! Bad cases: memory in which the program has touched pages in order before it registers it: those
//! that came with them, as zeros, are there. An argument of a device that points to more memory
//! than is guessed: the call fails with `EFAULT` where that is swapped out.

use zpager_sys::signal::Context;

use super::Outcome;
use super::shapes::UNKNOWN_BYTES;
use crate::hold::pages_of;
use crate::process::Process;
use crate::threads::Thread;

const UFFDIO_REGISTER: usize = 0xc020_aa00;
const UFFDIO_COPY: usize = 0xc028_aa03;
const UFFDIO_MOVE: usize = 0xc028_aa05;
const SIOCGIFCONF: usize = 0x8912;
const FS_IOC_FIEMAP: usize = 0xc020_660b;
/// `struct fiemap` without its extents, and one of them.
const FIEMAP_BYTES: usize = 32;
const EXTENT_BYTES: usize = 56;

impl Process {
    /// `ioctl`: descriptor, number, argument.
    pub(super) fn control_device_call(
        &mut self,
        thread: &mut Thread,
        context: &Context,
    ) -> Outcome {
        let [_, request, argument, ..] = context.registers.arguments();
        // The kernel takes 32 bits of it, and some libc's sign them.
        let request = request as u32 as usize;
        self.note_request(request);
        self.hold(thread, argument, argument_bytes(request));
        match request {
            UFFDIO_REGISTER => {
                if let Some([start, bytes]) = self.peek_words(argument) {
                    self.unmanage(pages_of(start, bytes));
                }
            }
            UFFDIO_COPY => {
                if let Some([_, from, bytes]) = self.peek_words(argument) {
                    self.hold(thread, from, bytes);
                }
            }
            UFFDIO_MOVE => {
                if let Some([_, from, bytes]) = self.peek_words(argument) {
                    self.unmanage(pages_of(from, bytes));
                }
            }
            SIOCGIFCONF => {
                if let Some([length, buffer]) = self.peek_words(argument) {
                    self.hold(thread, buffer, length as u32 as usize);
                }
            }
            FS_IOC_FIEMAP => {
                // Start, length, flags and mapped extents, room for extents.
                if let Some([_, _, _, room]) = self.peek_words(argument) {
                    let extents = room as u32 as usize;
                    let bytes = extents.saturating_mul(EXTENT_BYTES);
                    self.hold(thread, argument, FIEMAP_BYTES.saturating_add(bytes));
                }
            }
            _ => self.hold_pointed(thread, argument, argument_bytes(request)),
        }
        Outcome::GoOn
    }
}

/// Bytes that an `ioctl` takes, as its number says, if it says so.
fn argument_bytes(request: usize) -> usize {
    const SIZE_AT: u32 = 16;
    const SIZE_MASK: usize = (1 << 14) - 1;
    match request >> SIZE_AT & SIZE_MASK {
        0 => UNKNOWN_BYTES,
        bytes => bytes,
    }
}
