//! The ring that the supervisor and all agents of a recorded run share ([`zpager_wire::Ring`]).
//!
//! It is a mapping of its own beside the control block.

use std::os::fd::{AsFd, BorrowedFd};

use zpager_codec::CodecId;
use zpager_wire::{Messages, Ring};

use crate::failure::Failure;
use crate::shared::Shared;

/// The ring, mapped and shared.
#[derive(Debug)]
pub(super) struct SharedRing(Shared<Ring>);

impl SharedRing {
    /// Makes an empty ring of at least `words` words.
    ///
    /// # Errors
    /// The system has no memory or no descriptor left.
    pub(super) fn new(window_pages: u32, codecs: &[CodecId], words: u64) -> Result<Self, Failure> {
        let numbers: Vec<u8> = codecs.iter().map(|&codec| codec as u8).collect();
        let ring = Ring::new(window_pages, &numbers, words);
        let length_bytes = ring.mapping_bytes();
        Shared::new(ring, length_bytes, "zpager-ring", "ring").map(SharedRing)
    }

    /// What the agents tell.
    pub(super) fn messages(&self) -> Messages<'_> {
        // SAFETY: the mapping was made with room for the ring's words behind it, and zero.
        unsafe { Messages::behind(&self.0) }
    }
}

impl AsFd for SharedRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
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
