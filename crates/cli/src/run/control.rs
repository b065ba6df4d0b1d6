//! The mapping that the supervisor and all agents share ([`zpager_wire::Control`], and behind it
//! [`zpager_wire::Tables`]).

use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};

use zpager_wire::{Control, Settings, Tables};

use crate::failure::Failure;
use crate::shared::Shared;

/// The control block, mapped and shared.
#[derive(Debug)]
pub(crate) struct SharedControl(Shared<Control>);

impl SharedControl {
    /// Makes a control block with these settings.
    ///
    /// # Errors
    /// The system has no memory or no descriptor left.
    pub(crate) fn new(settings: Settings) -> Result<Self, Failure> {
        let length_bytes = Control::mapping_bytes(settings.most_bytes);
        // In its place at once: a copy would take a good part of a small stack.
        let make = |place: &mut _| Control::write(place, settings);
        Shared::make(make, length_bytes, "zpager-control", "control block").map(SharedControl)
    }

    /// The frames of the run.
    pub(crate) fn tables(&self) -> Tables<'_> {
        // SAFETY: the mapping was made that long in `new`, and zero.
        unsafe { Tables::behind(self) }
    }
}

impl Deref for SharedControl {
    type Target = Control;

    fn deref(&self) -> &Control {
        &self.0
    }
}

impl AsFd for SharedControl {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn a_second_mapping_sees_the_same_block() {
        let settings = Settings { budget_bytes: 1 << 30, supervisor_pid: 7, ..Settings::NONE };
        let control = SharedControl::new(settings).expect("a control block");
        assert!(control.is_compatible());
        control.usage.peak_bytes.store(77, Relaxed);
        let mut bytes = vec![0u8; size_of::<Control>()];
        let read = rustix::io::pread(&control, &mut bytes[..], 0).expect("read");
        assert_eq!(read, bytes.len());
        let offset = std::mem::offset_of!(Control, usage)
            + std::mem::offset_of!(zpager_wire::Usage, peak_bytes);
        assert_eq!(bytes[offset], 77);
    }
}
