//! The helper of a run: a thread for each way to the server, until the run is over.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use zpager_sys::process;
use zpager_wire::{Kind, Requests};

use crate::kept::Kept;
use crate::link::Link;
use crate::reader::Reader;
use crate::server::Server;
use crate::writer::Writer;

/// How long the server keeps what is not refreshed: what a run leaves behind whose machine lost its
/// power, and how long the two may not reach each other. Each key is refreshed several times in it.
pub const EXPIRY: Duration = Duration::from_secs(1800);

/// How often the threads look for what nobody wakes them for.
pub(crate) const TICK: Duration = Duration::from_millis(50);
/// Longest time for the removal of the keys when the run is over.
const REMOVAL_TIME: Duration = Duration::from_secs(10);

/// Answers the requests of the run of this name until `is_over`, then removes its keys. What is
/// asked of the server may take half of the agents' patience.
pub fn serve(
    server: &Server,
    requests: Requests<'_>,
    run: &str,
    expiry: Duration,
    mut is_over: impl FnMut() -> bool,
) {
    let kept = Kept::new(run, &requests.remote.counts);
    let time = Duration::from_nanos(requests.remote.patience_ns() / 2);
    let link = |kind| Link::new(server, kept.no_key(), requests, kind, time);
    let ends = AtomicBool::new(false);
    let mut writer = Writer::new(requests, &kept, link(Kind::Write), expiry);
    let mut reader = Reader { requests, kept: &kept, link: link(Kind::Read) };
    std::thread::scope(|scope| {
        scope.spawn(|| writer.run(&ends));
        scope.spawn(|| reader.run(&ends));
        while !is_over() {
            requests.free_all_of(|pid| !process::exists(pid));
            std::thread::sleep(TICK);
        }
        ends.store(true, Relaxed);
    });
    writer.remove_all(Instant::now() + REMOVAL_TIME);
    requests.close();
}
