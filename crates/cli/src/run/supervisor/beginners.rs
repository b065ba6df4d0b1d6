//! How many programs may begin until the next look ([`zpager_wire::Beginners`]), and what new processes count for.
//!
//! Many that begin at the same time hold next to nothing when they are looked at, fill the budget before the next
//! look, and keep the processors busy, so that it comes late. So a new one is taken to hold a little at the least,
//! and only as many begin until the next look as there is room for if each fills several times as much. A script
//! runs far more commands in that time, but one after the other: where those end that began, more may.
//!
//! Source: load control: P. J. Denning, The Working Set Model for Program Behavior (1968), where a program is
//! begun if there is room for what it will use.
//!
//! Bad case: programs that fill far more than they are taken to, all of them in the same few milliseconds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use libc::pid_t;

/// How long a process is new, and what it is taken to hold then, which is at the most this part of the threshold.
const NEW_TIME: Duration = Duration::from_millis(100);
const NEW_BYTES: u64 = 2 << 20;
const NEW_PART: u64 = 32;

/// How many times as much it may fill until the next look.
const FILLING_FACTOR: u64 = 8;

/// Twice as many as before may begin, up to so many times as many as at first, where all came and less than this
/// part stayed.
const STAYING_PART: u32 = 4;
const TIMES_MAX: u32 = 8;

/// The processes that began lately.
#[derive(Debug)]
pub(super) struct Beginners {
    /// All that there were at the last look, and since when.
    known: BTreeMap<pid_t, Instant>,
    /// How many of them were new.
    new: u32,
    /// How many more might begin, and how many times as many that was as at first.
    admitted: u32,
    times: u32,
}

impl Default for Beginners {
    fn default() -> Self {
        Beginners { known: BTreeMap::new(), new: 0, admitted: 0, times: 1 }
    }
}

impl Beginners {
    /// The sum of what processes hold, of which each is given with that, and what the new ones are taken to hold more.
    pub(super) fn look(
        &mut self,
        processes: impl Iterator<Item = (pid_t, u64)>,
        threshold_bytes: u64,
        now: Instant,
    ) -> (u64, u64) {
        let before = std::mem::take(&mut self.known);
        self.new = 0;
        let (mut sum_bytes, mut more_bytes) = (0, 0);
        for (pid, bytes) in processes {
            let since = before.get(&pid).copied().unwrap_or(now);
            self.known.insert(pid, since);
            sum_bytes += bytes;
            if now - since < NEW_TIME {
                self.new += 1;
                more_bytes += new_bytes(threshold_bytes).saturating_sub(bytes);
            }
        }
        (sum_bytes, more_bytes)
    }

    /// How many programs may begin until the next look where the threshold is so far away, and of those that might
    /// since the last one so many are `left`.
    pub(super) fn admit(&mut self, threshold_bytes: u64, distance_bytes: u64, left: u32) -> u32 {
        // There is always one of a script.
        let have_stayed = self.new.saturating_sub(1).saturating_mul(STAYING_PART) > self.admitted;
        self.times = match left {
            _ if have_stayed => 1,
            0 => (self.times * 2).min(TIMES_MAX),
            // None has come.
            _ if left >= self.admitted => 1,
            _ => self.times,
        };
        let filling_bytes = new_bytes(threshold_bytes) * FILLING_FACTOR;
        let count = 1 + distance_bytes / filling_bytes.max(1);
        self.admitted = u32::try_from(count).unwrap_or(u32::MAX).saturating_mul(self.times);
        self.admitted
    }
}

/// What a new process is taken to hold.
fn new_bytes(threshold_bytes: u64) -> u64 {
    NEW_BYTES.min(threshold_bytes / NEW_PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const THRESHOLD_BYTES: u64 = 96 * MIB;

    #[test]
    fn few_begin_at_once_and_more_where_they_end_soon() {
        let mut beginners = Beginners::default();
        let mut admit = |mib, left| beginners.admit(THRESHOLD_BYTES, mib * MIB, left);
        assert_eq!(admit(96, 1), 7);
        let admitted = [0, 0, 0, 0, 5, 24].map(|left| admit(32, left));
        assert_eq!(admitted, [6, 12, 24, 24, 24, 3], "the last time none had come");
        assert_eq!(admit(0, 0), 2);
    }

    #[test]
    fn where_those_stay_that_began_no_more_do() {
        let (now, mut beginners) = (Instant::now(), Beginners::default());
        beginners.admit(THRESHOLD_BYTES, 32 * MIB, 1);
        let mut admit = |processes: i32, milliseconds| {
            let processes = (0..processes).map(|pid| (pid, MIB));
            beginners.look(processes, THRESHOLD_BYTES, now + Duration::from_millis(milliseconds));
            beginners.admit(THRESHOLD_BYTES, 32 * MIB, 0)
        };
        assert_eq!([admit(2, 0), admit(3, 1)], [3, 3]);
        assert_eq!(admit(3, 120), 6, "they are not new any more");
    }

    #[test]
    fn what_is_new_counts_for_a_little_at_the_least() {
        let (now, mut beginners) = (Instant::now(), Beginners::default());
        let mut look = |processes: &[(pid_t, u64)], milliseconds| {
            let now = now + Duration::from_millis(milliseconds);
            let processes = processes.iter().map(|(pid, mib)| (*pid, mib * MIB));
            let (sum_bytes, more_bytes) = beginners.look(processes, THRESHOLD_BYTES, now);
            (sum_bytes / MIB, more_bytes / MIB)
        };
        assert_eq!(look(&[(7, 5), (8, 1), (9, 0)], 0), (6, 3));
        assert_eq!(look(&[(7, 5), (8, 1), (10, 0)], 99), (6, 3));
        assert_eq!(look(&[(7, 5), (8, 1), (10, 0)], 100), (6, 2));
        assert_eq!(look(&[(9, 0)], 101), (0, 2), "another one, of the same number");
        assert_eq!(new_bytes(3 * MIB), 96 << 10, "where there is little");
    }
}
