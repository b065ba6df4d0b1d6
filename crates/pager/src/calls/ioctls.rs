//! `ioctl`: its number says how long its argument is, but not what that points to.
//!
//! Memory that the program registers with a userfaultfd of its own leaves management first, as it
//! would be refused: a range has one such descriptor. So does what a device goes on using after the
//! call by its address: that of a virtual machine, of devices that are given to it, of vhost. The
//! kernel brings none of it in, but reports an error.
//!
//! Sources: ioctl(2), ioctl_userfaultfd(2), netdevice(7), ioctl_fiemap(2), ioctl_fideduperange(2),
//! ioctl_getfsmap(2), include/uapi/linux/btrfs.h; Documentation/virt/kvm/api.rst;
//! include/uapi/linux/vhost_types.h, vfio.h, iommufd.h.
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
use crate::hold::{Sure, pages_of};
use crate::process::Process;
use crate::threads::Thread;

const UFFDIO_REGISTER: usize = 0xc020_aa00;
const UFFDIO_COPY: usize = 0xc028_aa03;
const UFFDIO_MOVE: usize = 0xc028_aa05;
const SIOCGIFCONF: usize = 0x8912;
const KVM_SET_USER_MEMORY_REGION: usize = 0x4020_ae46;
const KVM_SET_USER_MEMORY_REGION2: usize = 0x40a0_ae49;
const VFIO_IOMMU_MAP_DMA: usize = 0x3b71;
const IOMMU_IOAS_MAP: usize = 0x3b85;
const VHOST_SET_MEM_TABLE: usize = 0x4008_af03;
/// `struct vhost_memory` without its regions, one of them, and most of them.
const TABLE_BYTES: usize = 8;
const REGION_BYTES: usize = 32;
const REGIONS_MAX: usize = 1 << 16;

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
            UFFDIO_REGISTER => self.unmanage_named(argument, 0, 1),
            UFFDIO_COPY => {
                if let Some([_, from, bytes]) = self.peek_words(argument) {
                    self.hold(thread, from, bytes);
                }
            }
            UFFDIO_MOVE => self.unmanage_named(argument, 1, 2),
            KVM_SET_USER_MEMORY_REGION | KVM_SET_USER_MEMORY_REGION2 => {
                self.unmanage_named(argument, 3, 2);
            }
            VFIO_IOMMU_MAP_DMA => self.unmanage_named(argument, 1, 3),
            IOMMU_IOAS_MAP => self.unmanage_named(argument, 2, 3),
            VHOST_SET_MEM_TABLE => self.unmanage_table(thread, argument),
            SIOCGIFCONF => {
                if let Some([length, buffer]) = self.peek_words(argument) {
                    self.hold(thread, buffer, length as u32 as usize);
                }
            }
            _ => match BEHIND.iter().find(|behind| behind.request == request) {
                Some(behind) => self.hold_behind(thread, argument, behind),
                None => {
                    let sure = Sure::of(thread, context);
                    self.hold_pointed(thread, sure, argument, argument_bytes(request));
                }
            },
        }
        Outcome::GoOn
    }

    /// The memory that two of the first words of a struct name: its start and its bytes.
    fn unmanage_named(&mut self, argument: usize, start_at: usize, bytes_at: usize) {
        if let Some(words) = self.peek_words::<4>(argument) {
            self.unmanage(pages_of(words[start_at], words[bytes_at]));
        }
    }

    /// `struct vhost_memory`: the number of regions, and each of them: where it is in the guest, how long,
    /// where it is here.
    fn unmanage_table(&mut self, thread: &mut Thread, table: usize) {
        let Some([count]) = self.peek_words(table) else { return };
        let count = (count as u32 as usize).min(REGIONS_MAX);
        self.hold(thread, table, TABLE_BYTES + count * REGION_BYTES);
        for region in 0..count {
            let place = table.saturating_add(TABLE_BYTES + region * REGION_BYTES);
            let Some([_, bytes, start]) = self.peek_words(place) else { return };
            self.unmanage(pages_of(start, bytes));
        }
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
