//! The ring that the supervisor and all agents of a recorded run share ([`zpager_wire::Ring`]).
//!
//! It lives in a memfd, as the control block does.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};
use zpager_codec::CodecId;
use zpager_wire::{Messages, Ring};

use crate::failure::{Failure, OrFail};

/// The ring, mapped and shared.
#[derive(Debug)]
pub(super) struct SharedRing {
    mapped: NonNull<Ring>,
    length_bytes: usize,
    memory: OwnedFd,
}

impl SharedRing {
    /// Makes an empty ring of at least `words` words.
    ///
    /// # Errors
    /// The system has no memory or no descriptor left.
    pub(super) fn new(window_pages: u32, codecs: &[CodecId], words: u64) -> Result<Self, Failure> {
        let numbers: Vec<u8> = codecs.iter().map(|&codec| codec as u8).collect();
        let ring = Ring::new(window_pages, &numbers, words);
        let length_bytes = ring.mapping_bytes();
        let memory = rustix::fs::memfd_create("zpager-ring", MemfdFlags::CLOEXEC)
            .or_fail("making the shared ring")?;
        rustix::fs::ftruncate(&memory, length_bytes as u64).or_fail("sizing the shared ring")?;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let address = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &memory,
                0,
            )
        }
        .or_fail("mapping the shared ring")?;
        let mapped = NonNull::new(address.cast::<Ring>()).expect("mmap gives no null");
        // SAFETY: the mapping is writable, page-aligned and longer than a `Ring`, and nobody else has it
        // yet.
        unsafe { mapped.write(ring) };
        Ok(SharedRing { mapped, length_bytes, memory })
    }

    /// What the agents tell.
    pub(super) fn messages(&self) -> Messages<'_> {
        // SAFETY: the ring was written in `new`, with room for its words behind it, and stays mapped as
        // long as `self`; whatever changes after that is atomic, in this and every other process.
        unsafe { Messages::behind(self.mapped.as_ref()) }
    }
}

impl AsFd for SharedRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

impl Drop for SharedRing {
    fn drop(&mut self) {
        // SAFETY: the mapping is this object's own and no reference to it outlives the object.
        // Failure would only leave it mapped.
        let _ = unsafe { rustix::mm::munmap(self.mapped.as_ptr().cast(), self.length_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zpager_wire::Message;

    #[test]
    fn what_is_told_in_one_mapping_is_heard_in_the_other() {
        let ring = SharedRing::new(16, &[CodecId::Word], 100).expect("a ring");
        assert!(ring.messages().put(3, &Message::Began, || false));
        assert_eq!(ring.messages().take(), Ok(Some((3, Message::Began))));
        assert_eq!(ring.messages().ring.codecs(), [CodecId::Word as u8]);
        assert!(rustix::fs::fstat(&ring).expect("its size").st_size as usize >= 100 * 8);
    }
}
