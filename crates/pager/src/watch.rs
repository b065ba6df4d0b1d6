//! By what the kernel tells of accesses to pages that are not there: userfaultfd, or guard pages where that is
//! forbidden ([`crate::guarded`]).

use zpager_sys::file::Fd;
use zpager_sys::guards::OwnMemory;
use zpager_sys::userfaultfd::Userfaultfd;
use zpager_sys::{Errno, limits, signal};
use zpager_wire::{Control, Watching};

const EOPNOTSUPP: Errno = Errno(95);

/// One of a process.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Watch {
    Userfaultfd(Userfaultfd),
    /// With the process's memory file, unless it may not open that, having changed its user.
    Guards(Option<OwnMemory>),
}

impl Watch {
    /// Opens what the run watches by, at a descriptor where programs seldom look.
    pub(crate) fn open(watching: Watching) -> Result<Self, Errno> {
        match watching {
            Watching::Userfaultfd => {
                limits::with_descriptors(Userfaultfd::open).map(Watch::Userfaultfd)
            }
            Watching::Guards => {
                signal::watch_by_guards();
                Ok(Watch::Guards(limits::with_descriptors(OwnMemory::open).ok()))
            }
        }
    }

    /// Whether there is such a call at all, which an emulator need not know. Guards are madvise(2).
    pub(crate) fn is_known(control: &Control) -> bool {
        control.settings.watching == Watching::Guards as u8 || Userfaultfd::is_known()
    }

    /// Opens the same for a copy of the process.
    pub(crate) fn open_anew(&self) -> Result<Self, Errno> {
        Watch::open(match self {
            Watch::Userfaultfd(_) => Watching::Userfaultfd,
            Watch::Guards(_) => Watching::Guards,
        })
    }

    /// The descriptor that the process keeps for it, or -1.
    pub(crate) fn fd(&self) -> Fd {
        match self {
            Watch::Userfaultfd(uffd) => uffd.fd(),
            Watch::Guards(memory) => memory.map_or(Fd(-1), |memory| memory.fd()),
        }
    }

    /// Closes it, where there is one.
    pub(crate) fn close(&self) {
        if self.fd().0 >= 0 {
            self.fd().close();
        }
    }

    pub(crate) fn is_by_guards(&self) -> bool {
        matches!(self, Watch::Guards(_))
    }

    /// [`Userfaultfd::register`]. Guards take nothing beforehand, and pages cannot be moved.
    pub(crate) fn register(&self, start: usize, bytes: usize) -> Result<bool, Errno> {
        match self {
            Watch::Userfaultfd(uffd) => uffd.register(start, bytes),
            Watch::Guards(_) => Ok(false),
        }
    }

    /// [`Userfaultfd::copy`]; not with guards.
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn copy(
        &self,
        target: usize,
        source: *const u8,
        bytes: usize,
        protect: bool,
    ) -> Result<usize, Errno> {
        match self {
            // SAFETY: the caller's promise.
            Watch::Userfaultfd(uffd) => unsafe { uffd.copy(target, source, bytes, protect) },
            Watch::Guards(_) => Err(EOPNOTSUPP),
        }
    }

    /// [`Userfaultfd::move_pages`]; not with guards.
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn move_pages(
        &self,
        target: usize,
        source: usize,
        bytes: usize,
    ) -> Result<usize, Errno> {
        match self {
            // SAFETY: the caller's promise.
            Watch::Userfaultfd(uffd) => unsafe { uffd.move_pages(target, source, bytes) },
            Watch::Guards(_) => Err(EOPNOTSUPP),
        }
    }

    /// [`Userfaultfd::write_protect`]. With guards nothing is told of writes: what would have to be is refused.
    pub(crate) fn write_protect(
        &self,
        start: usize,
        bytes: usize,
        protect: bool,
    ) -> Result<(), Errno> {
        match self {
            Watch::Userfaultfd(uffd) => uffd.write_protect(start, bytes, protect),
            Watch::Guards(_) if protect => Err(EOPNOTSUPP),
            Watch::Guards(_) => Ok(()),
        }
    }
}
