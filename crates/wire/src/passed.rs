//! Descriptors that the supervisor has passed to a process which may not open them by itself, being
//! another user's or having given its capabilities up (ptrace(2), "Ptrace access mode checking").

use crate::Settings;

/// Descriptors that can be passed to one process.
pub const PASSED_MAX: usize = 32;

/// What a process's own `/proc/PID/pagemap` is called in the supervisor, which does not keep it: one that
/// has changed its user may not open it any more (proc(5)).
pub const PAGEMAP: i32 = i32::MAX;

/// And its own `/proc/PID/maps`: where it is there may be no `/proc`.
pub const MAPS: i32 = PAGEMAP - 1;

/// And the supervisor's `/proc/self`, not what that leads to: by it a process reads its id in the supervisor's
/// pid namespace.
pub const LINK: i32 = MAPS - 1;

/// One of them.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// What it is in the supervisor.
    pub theirs: i32,
    /// And in the process.
    pub own: i32,
}

/// The table that [`Entry`](crate::Entry)'s protocol has in `r9`, alone in a page of shared memory. The
/// agent closes what it names and gives the page back when it has managed the process, or, where it is
/// entered with others, has shared with them ([`Entry::Share`](crate::Entry::Share)).
#[repr(C)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passed {
    pairs: [Pair; PASSED_MAX],
}

impl Passed {
    /// A table of these; of more than [`PASSED_MAX`] the first.
    pub fn new(pairs: impl IntoIterator<Item = Pair>) -> Self {
        let mut table = Passed { pairs: [Pair { theirs: -1, own: -1 }; PASSED_MAX] };
        table.pairs.iter_mut().zip(pairs).for_each(|(place, pair)| *place = pair);
        table
    }

    /// Its bytes in memory.
    pub fn to_bytes(&self) -> [u8; size_of::<Passed>()] {
        let mut bytes = [0; size_of::<Passed>()];
        let words = self.pairs.iter().flat_map(|pair| [pair.theirs, pair.own]);
        for (place, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *place = word.to_ne_bytes();
        }
        bytes
    }

    /// All of them.
    pub fn pairs(&self) -> impl Iterator<Item = Pair> {
        self.pairs.iter().copied().take_while(|pair| pair.own >= 0)
    }

    /// What a descriptor of the supervisor is here.
    pub fn own(&self, theirs: i32) -> Option<i32> {
        self.pairs().find(|pair| pair.theirs == theirs).map(|pair| pair.own)
    }
}

impl Settings {
    /// The supervisor's descriptors that a process opens.
    pub fn descriptors(&self) -> impl Iterator<Item = i32> {
        let stores = self.stores().map(|store| store.fd);
        let servers = self.servers().flat_map(|server| [server.fd, server.mirror.fd]);
        let others = [self.clusters_fd, self.agent_fd, self.ring_fd];
        stores.chain(servers).chain(others).filter(|fd| *fd >= 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{STORES_MAX, ServerSettings, StoreSettings};

    #[test]
    fn a_descriptor_is_found_by_what_it_is_elsewhere() {
        let table = Passed::new([(7, 3), (9, 4)].map(|(theirs, own)| Pair { theirs, own }));
        assert_eq!([7, 9, 3, -1].map(|theirs| table.own(theirs)), [Some(3), Some(4), None, None]);
        assert_eq!(Passed::new([]).pairs().count(), 0);
        let bytes = table.to_bytes();
        let first = [7, 3, 9, 4, -1, -1].map(i32::to_ne_bytes);
        assert_eq!(bytes.as_chunks::<4>().0[..first.len()], first);
        assert!(size_of::<Passed>() <= 4096, "it is alone in a page");
    }

    #[test]
    fn all_descriptors_of_a_run_have_a_place() {
        let store = StoreSettings { fd: 5, ..StoreSettings::NONE };
        let server = ServerSettings { mirror: store, fd: 6, place: 0 };
        let most = Settings {
            servers: [server; STORES_MAX],
            clusters_fd: 1,
            agent_fd: 2,
            ring_fd: 3,
            ..Settings::NONE
        };
        // And the control block.
        assert_eq!(most.descriptors().count() + 1, 2 * STORES_MAX + 4);
        let files = Settings { stores: [store; STORES_MAX], ..most };
        assert!(files.descriptors().count() + 4 <= PASSED_MAX, "also if all were of both kinds");
        assert_eq!(Settings::NONE.descriptors().count(), 0);
    }
}
