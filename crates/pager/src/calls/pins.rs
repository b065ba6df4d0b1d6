//! Who may come to have pages of the program beyond a call, and write them: asynchronous direct
//! transfers, devices that take memory by its address, sockets with a ring of buffers.
//!
//! `UFFDIO_MOVE` refuses such a page; what drops pages would part it from the one that the program
//! sees ([`crate::stretches`]). Which pages those are cannot be seen, so the process is taken to have
//! some from the first call on that may lead to them, or from the start of its management where it
//! has a device mapped.
//!
//! Sources: Documentation/core-api/pin_user_pages.rst; Documentation/userspace-api/ioctl/ioctl-number.rst;
//! Documentation/networking/af_xdp.rst.
//!
//! Bad case: a program that makes a harmless request of a device which is not in the table; its pages
//! leave by moves alone.

use super::Outcome;
use crate::process::Process;
use crate::threads::Thread;
use zpager_sys::signal::Context;

/// What a request's second byte says it is for, of requests that keep no memory: terminals and
/// descriptors, sockets, files and their systems, block devices, namespaces, userfaultfd, events of
/// the processor.
const HARMLESS: [u8; 11] = [b'T', 0x89, b'f', b'X', b'v', b'r', 0x12, 0x94, 0xb7, 0xaa, b'$'];
/// `SOL_XDP`.
const SOCKET_LEVEL_XDP: usize = 283;

impl Process {
    /// Notes what a request to a device may do.
    pub(super) fn note_request(&mut self, request: usize) {
        self.may_pin |= !HARMLESS.contains(&((request >> 8) as u8));
    }

    /// `setsockopt`: descriptor, level, and what is set.
    pub(super) fn socket_option_call(
        &mut self,
        thread: &mut Thread,
        context: &mut Context,
    ) -> Outcome {
        let [_, level, ..] = context.registers.arguments();
        self.may_pin |= level == SOCKET_LEVEL_XDP;
        self.plain_call(thread, context)
    }
}
