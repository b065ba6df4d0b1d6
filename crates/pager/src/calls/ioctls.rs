//! `ioctl`: its number says how long its argument is, but not what that points to.
//!
//! Memory that the program registers with a userfaultfd of its own leaves management first, as it
//! would be refused: a range has one such descriptor.
//!
//! Sources: ioctl(2), ioctl_userfaultfd(2), netdevice(7), ioctl_fiemap(2), ioctl_fideduperange(2),
//! ioctl_getfsmap(2), include/uapi/linux/btrfs.h.
//!
//! What it points to, and what lies behind it, is not known but for a few: words of the argument that are addresses of managed
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

/// A struct with an array behind it.
struct Behind {
    request: usize,
    /// Where in the struct the number of elements is, and what of the word there.
    count_at: usize,
    count_mask: usize,
    struct_bytes: usize,
    element_bytes: usize,
}

impl Behind {
    const fn new(request: usize, count: [usize; 2], bytes: [usize; 2]) -> Behind {
        let ([count_at, count_mask], [struct_bytes, element_bytes]) = (count, bytes);
        Behind { request, count_at, count_mask, struct_bytes, element_bytes }
    }
}

const U16: usize = u16::MAX as usize;
const U32: usize = u32::MAX as usize;
/// `FS_IOC_FIEMAP`, `FS_IOC_GETFSMAP`, `FIDEDUPERANGE`, `BTRFS_IOC_TREE_SEARCH_V2`.
const BEHIND: [Behind; 4] = [
    Behind::new(0xc020_660b, [24, U32], [32, 56]),
    Behind::new(0xc0c0_583b, [8, U32], [192, 64]),
    Behind::new(0xc018_9436, [16, U16], [24, 32]),
    Behind::new(0xc070_9411, [104, usize::MAX], [112, 1]),
];

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
            _ => match BEHIND.iter().find(|behind| behind.request == request) {
                Some(behind) => self.hold_behind(thread, argument, behind),
                None => self.hold_pointed(thread, argument, argument_bytes(request)),
            },
        }
        Outcome::GoOn
    }

    /// Holds the array behind a struct.
    fn hold_behind(&mut self, thread: &mut Thread, argument: usize, behind: &Behind) {
        if let Some([word]) = self.peek_words(argument.saturating_add(behind.count_at)) {
            let bytes = (word & behind.count_mask).saturating_mul(behind.element_bytes);
            self.hold(thread, argument, bytes.saturating_add(behind.struct_bytes));
        }
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
