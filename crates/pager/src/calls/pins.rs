//! Who may come to have pages of the program beyond a call, and write them: asynchronous direct
//! transfers, devices that take memory by its address, sockets with a ring of buffers.
//!
//! `UFFDIO_MOVE` refuses such a page; what drops pages would part it from the one that the program
//! sees ([`crate::stretches`]), and by guards such a process gives no pages any more. Which pages those are
//! cannot be seen, so the process is taken to have some from the first call on that may lead to them, or from
//! the start of its management where it has a device mapped.
//!
//! Sources: Documentation/core-api/pin_user_pages.rst; Documentation/userspace-api/ioctl/ioctl-number.rst;
//! Documentation/networking/af_xdp.rst.
//!
//! Bad case: a program that makes a harmless request of a device which is not in the table; its pages
//! leave by moves alone.

use crate::process::Process;

/// What a request's second byte says it is for, of requests that keep no memory: terminals and
/// descriptors, sockets, files and their systems, block devices, namespaces, userfaultfd, events of
/// the processor.
const HARMLESS: [u8; 11] = [b'T', 0x89, b'f', b'X', b'v', b'r', 0x12, 0x94, 0xb7, 0xaa, b'$'];
/// The same of virtual machines, of devices that are given to them, and of vhost: what they keep is named in requests
/// that are known, and leaves management with these ([`super::ioctls`]).
const NAMED: [u8; 3] = [0xae, b';', 0xaf];
pub(super) const SOL_XDP: usize = 283;

impl Process {
    /// Notes what a request to a device may do.
    pub(super) fn note_request(&mut self, request: usize) {
        let keeps_memory = keeps_memory(request);
        self.may_pin |= keeps_memory;
        self.may_pin_unseen |= keeps_memory && !NAMED.contains(&kind(request));
    }

    /// Notes what an option of a socket, of such a level, may do.
    pub(super) fn note_option(&mut self, level: usize) {
        self.may_pin |= level == SOL_XDP;
    }
}

/// Whether memory that a request of this number names may be kept when it is over.
fn keeps_memory(request: usize) -> bool {
    !HARMLESS.contains(&kind(request))
}

/// What a request is for, as its second byte says.
fn kind(request: usize) -> u8 {
    (request >> 8) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_may_keep_memory_are_told_from_those_of_terminals_and_files() {
        // TCGETS, FIONREAD, SIOCGIFCONF, FS_IOC_FIEMAP, FICLONE, BLKGETSIZE64, UFFDIO_COPY, NS_GET_USERNS.
        let harmless =
            [0x5401, 0x541b, 0x8912, 0xc020_660b, 0x4004_9409, 0x8008_1272, 0xc028_aa03, 0xb701];
        assert!(!harmless.into_iter().any(keeps_memory));
        // RDMA_VERBS_IOCTL, VIDIOC_QBUF, KVM_SET_USER_MEMORY_REGION, VFIO_IOMMU_MAP_DMA, SG_IO, UDMABUF_CREATE.
        let keeping = [0xc018_1b01, 0xc058_560f, 0x4020_ae46, 0x3b71, 0x2285, 0x4018_7542];
        assert!(keeping.into_iter().all(keeps_memory));
    }
}
