//! The mapping that the supervisor and all agents share ([`zpager_wire::Control`], and behind it
//! [`zpager_wire::Tables`]).
//!
//! It lives in a memfd: it has no name that could be left behind, and an agent
//! reaches it through `/proc/PID/fd/N` of the supervisor.

use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};
use zpager_wire::{Control, Settings, Tables};

use crate::failure::{Failure, OrFail};

/// The control block, mapped and shared.
#[derive(Debug)]
pub(crate) struct SharedControl {
    mapped: NonNull<Control>,
    length_bytes: usize,
    memory: OwnedFd,
}

impl SharedControl {
    /// Makes a control block with these settings.
    ///
    /// # Errors
    /// The system has no memory or no descriptor left.
    pub(crate) fn new(settings: Settings) -> Result<Self, Failure> {
        let length_bytes = Control::mapping_bytes(settings.budget_bytes);
        let memory = rustix::fs::memfd_create("zpager-control", MemfdFlags::CLOEXEC)
            .or_fail("making the shared control block")?;
        rustix::fs::ftruncate(&memory, length_bytes as u64)
            .or_fail("sizing the shared control block")?;
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
        .or_fail("mapping the shared control block")?;
        let mapped = NonNull::new(address.cast::<Control>()).expect("mmap gives no null");
        // SAFETY: the mapping is writable, page-aligned and longer than a `Control`, and nobody else
        // has it yet.
        unsafe { mapped.write(Control::new(settings)) };
        Ok(SharedControl { mapped, length_bytes, memory })
    }
}

impl SharedControl {
    /// The frames of the run.
    pub(crate) fn tables(&self) -> Tables<'_> {
        // SAFETY: the mapping was made that long in `new`, and zero.
        unsafe { Tables::behind(self) }
    }
}

impl Deref for SharedControl {
    type Target = Control;

    fn deref(&self) -> &Control {
        // SAFETY: the block was written in `new` and stays mapped as long as `self`; whatever
        // changes after that is atomic, in this and every other process.
        unsafe { self.mapped.as_ref() }
    }
}

impl AsFd for SharedControl {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

impl Drop for SharedControl {
    fn drop(&mut self) {
        // SAFETY: the mapping is this object's own and no reference to it outlives the object.
        // Failure would only leave it mapped.
        let _ = unsafe { rustix::mm::munmap(self.mapped.as_ptr().cast(), self.length_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;
    use zpager_wire::DESIGN_WORDS;

    #[test]
    fn a_second_mapping_sees_the_same_block() {
        let settings = Settings {
            budget_bytes: 1 << 30,
            store_limit_bytes: 0,
            design: [0; DESIGN_WORDS],
            supervisor_pid: 7,
            store_fd: -1,
            clusters_fd: -1,
            agent_fd: -1,
            ring_fd: -1,
            from_start: 0,
            lift_by_copy: 0,
            store_direct: 0,
        };
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
