//! A moment, by the clock on the wall and by that of the processor.
//!
//! Source: clock_gettime(2), CLOCK_MONOTONIC, CLOCK_THREAD_CPUTIME_ID and CLOCK_PROCESS_CPUTIME_ID.

use rustix::time::{ClockId, clock_gettime};

/// When something began, on the thread that does it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    wall_ns: u64,
    cpu_ns: u64,
}

impl Moment {
    pub(crate) fn now() -> Self {
        Moment { wall_ns: read_ns(ClockId::Monotonic), cpu_ns: read_ns(ClockId::ThreadCPUTime) }
    }

    /// Time since then, and this thread's processor time.
    pub(crate) fn elapsed_ns(self) -> (u64, u64) {
        let now = Moment::now();
        (now.wall_ns.saturating_sub(self.wall_ns), now.cpu_ns.saturating_sub(self.cpu_ns))
    }
}

/// Processor time of all threads of this process so far.
pub(crate) fn server_ns() -> u64 {
    read_ns(ClockId::ProcessCPUTime)
}

fn read_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
