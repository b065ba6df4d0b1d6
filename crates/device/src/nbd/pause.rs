//! On a machine of one processor: how long to leave it to a client that is sending.
//!
//! The kernel's driver sends a request's pages one by one. A server that waits for them in read(2) is
//! woken by each, and where it has real-time scheduling it takes the processor from the one who
//! sends: two switches of it for every page. One that sleeps while they are sent has them all at once.
//! Where there are more processors the sender goes on beside it.
//!
//! How long that takes is learned: longer whenever not everything had come, a little shorter whenever it
//! had.

use std::thread;
use std::time::Duration;

use zpager_codec::PAGE_BYTES;

/// Bounds of the time for one page.
const PAGE_NS_MIN: u64 = 500;
const PAGE_NS_MAX: u64 = 200_000;
/// What is taken off when all had come: this part.
const DECAY: u64 = 32;

/// The time that a client is left.
#[derive(Debug)]
pub(super) struct Pause {
    /// `None` where there are other processors.
    page_ns: Option<u64>,
}

impl Pause {
    pub(super) fn new() -> Self {
        let is_alone = thread::available_parallelism().is_ok_and(|count| count.get() == 1);
        Pause { page_ns: is_alone.then_some(PAGE_NS_MIN) }
    }

    /// Lets the client send so many bytes.
    pub(super) fn sleep(&self, bytes: usize) {
        if let Some(page_ns) = self.page_ns {
            let pages = bytes.div_ceil(PAGE_BYTES) as u64;
            thread::sleep(Duration::from_nanos(pages * page_ns));
        }
    }

    /// Learns whether all of them had come.
    pub(super) fn note(&mut self, had_all_come: bool) {
        if let Some(page_ns) = &mut self.page_ns {
            *page_ns = match had_all_come {
                true => (*page_ns - *page_ns / DECAY).max(PAGE_NS_MIN),
                false => (*page_ns * 2).min(PAGE_NS_MAX),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_learned_within_bounds() {
        let mut pause = Pause { page_ns: Some(PAGE_NS_MIN) };
        for _ in 0..100 {
            pause.note(false);
        }
        assert_eq!(pause.page_ns, Some(PAGE_NS_MAX));
        pause.note(true);
        assert!(pause.page_ns.is_some_and(|page_ns| page_ns < PAGE_NS_MAX));
        for _ in 0..1000 {
            pause.note(true);
        }
        assert_eq!(pause.page_ns, Some(PAGE_NS_MIN));
    }

    #[test]
    fn nobody_sleeps_beside_other_processors() {
        let mut pause = Pause { page_ns: None };
        pause.note(false);
        assert_eq!(pause.page_ns, None);
    }
}
