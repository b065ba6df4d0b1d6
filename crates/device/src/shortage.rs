//! Watches what is left of memory and store, so that the device slows and tells before it is full.
//!
//! A device may be larger than memory and store together. It runs short when less than an eighth of
//! both is left, counted for the worst case, data that do not shrink at all, and that is also less
//! than the device may still come to want. From then on what is written waits, the longer the less is
//! left: whoever swaps to it has time to free something, or somebody to give it more memory. It ends
//! with half as much more than there was when it began, so that it does not come and go.
//!
//! Source: the threshold of cervera (1999), section 3, and the watermarks of Linux, of which the
//! lower one has those wait who take.
//!
//! Invariant: a pause is never longer than [`PAUSE_MAX`].
//!
//! Bad case: data that shrink well on a device that is nearly full; it is slowed although all of it
//! will fit.

use std::time::Duration;

/// The part of memory and store of which less is short.
const LOW_PART: u64 = 8;
/// The longest pause for a piece of a request.
pub const PAUSE_MAX: Duration = Duration::from_millis(10);

/// What there is, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Memory and store.
    pub(crate) whole_bytes: u64,
    /// What is left of them.
    pub(crate) left_bytes: u64,
    /// What the device takes more where nothing in it shrinks.
    pub(crate) wanted_bytes: u64,
}

/// Whether it is short, and since it was started how often it came to that.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Shortage {
    pub(crate) is_short: bool,
    pub(crate) times: u64,
}

impl Room {
    /// Below this it is short.
    fn low_bytes(&self) -> u64 {
        (self.whole_bytes / LOW_PART).min(self.wanted_bytes)
    }

    /// From this on it is not any more.
    fn enough_bytes(&self) -> u64 {
        self.low_bytes() + self.low_bytes() / 2
    }
}

impl Shortage {
    /// Looks at what there is now.
    pub(crate) fn look(&mut self, room: Room) {
        let was_short = self.is_short;
        self.is_short = match was_short {
            true => room.left_bytes < room.enough_bytes(),
            false => room.left_bytes < room.low_bytes(),
        };
        self.times += u64::from(self.is_short && !was_short);
    }

    /// How long a piece that took room waits.
    pub(crate) fn pause(&self, room: Room) -> Duration {
        let (left_bytes, enough_bytes) = (room.left_bytes, room.enough_bytes());
        if !self.is_short || left_bytes >= enough_bytes {
            return Duration::ZERO;
        }
        let missing = (enough_bytes - left_bytes) as f64 / enough_bytes as f64;
        PAUSE_MAX.mul_f64(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(left_bytes: u64, wanted_bytes: u64) -> Room {
        Room { whole_bytes: 800, left_bytes, wanted_bytes }
    }

    #[test]
    fn it_begins_below_an_eighth_and_ends_above_half_more() {
        let mut shortage = Shortage::default();
        let table = [
            (800, false, 0),
            (100, false, 0),
            (99, true, 1),
            (0, true, 1),
            (149, true, 1),
            (150, false, 1),
            (100, false, 1),
            (1, true, 2),
        ];
        for (left_bytes, is_short, times) in table {
            shortage.look(room(left_bytes, 10_000));
            assert_eq!((shortage.is_short, shortage.times), (is_short, times), "{left_bytes} left");
        }
    }

    #[test]
    fn what_has_room_for_all_that_may_come_is_not_short() {
        let mut shortage = Shortage::default();
        shortage.look(room(10, 10));
        assert!(!shortage.is_short);
        shortage.look(room(10, 11));
        assert!(shortage.is_short);
        shortage.look(room(10, 0));
        assert!(!shortage.is_short);
    }

    #[test]
    fn pauses_grow_and_have_an_end() {
        let mut shortage = Shortage::default();
        assert_eq!(shortage.pause(room(0, 1000)), Duration::ZERO, "not short");
        shortage.look(room(99, 1000));
        let pauses: Vec<Duration> =
            (0..=150).rev().map(|left_bytes| shortage.pause(room(left_bytes, 1000))).collect();
        assert!(pauses.is_sorted(), "{pauses:?}");
        assert_eq!((pauses[0], pauses[150]), (Duration::ZERO, PAUSE_MAX));
    }
}
