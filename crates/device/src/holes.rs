//! Disks have back what is free in the device's stores, beside those who serve blocks: a thread's work, as a
//! hole may take as long as many reads ([`Clusters::punch_later`]).

use std::io;
use std::thread;
use std::time::Duration;

use zpager_store::{Clusters, Stores};

use crate::swap_file::{StoreParts, SwapFile};

/// Before it is looked for free space.
const PAUSE: Duration = Duration::from_millis(250);
/// Before each hole: the file system lets nobody write to the file, or read from it, in the meantime.
const HOLE_PAUSE: Duration = Duration::from_millis(5);

/// The stores of a device, as one who only gives space back has them.
pub(crate) struct Holes {
    clusters: Clusters<'static>,
    stores: Stores<'static, SwapFile>,
}

impl Holes {
    /// For the stores in `row`, of which the clusters are `clusters`.
    ///
    /// # Errors
    /// There are no descriptors left for it.
    pub(crate) fn new(clusters: Clusters<'static>, row: &[StoreParts]) -> io::Result<Self> {
        clusters.punch_later();
        let again = |store: &StoreParts| {
            let file = SwapFile::new(store.file.try_clone()?, store.start_bytes);
            Ok((store.limit_bytes, file))
        };
        let row = row.iter().map(again).collect::<io::Result<Vec<_>>>()?;
        Ok(Holes { clusters, stores: Stores::new(clusters, row) })
    }

    /// Gives back what is free, for ever.
    pub(crate) fn go_on_punching(&self) {
        let goes_on = || {
            thread::sleep(HOLE_PAUSE);
            true
        };
        loop {
            thread::sleep(PAUSE);
            self.clusters.punch_free(&self.stores, goes_on);
        }
    }
}
