//! The helper's thread that reads parts of clusters.
//!
//! What is asked for while the server does not answer is asked again until it does, or nobody waits
//! any more: the page is lost for good otherwise. What the server says it does not have is lost at
//! once.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use redis::{Pipeline, Value};
use zpager_sys::Errno;
use zpager_wire::{Kind, Requests, Taken};

use crate::helper::TICK;
use crate::kept::Kept;
use crate::link::Link;

const EIO: Errno = Errno(5);
const ENODATA: Errno = Errno(61);
const ETIMEDOUT: Errno = Errno(110);
/// Longest sleep while the way is broken and somebody waits.
const BROKEN_NAP: Duration = Duration::from_millis(10);

/// A request that is waited for, at most until then.
struct Waiting {
    taken: Taken,
    until: Instant,
}

/// The thread.
pub(crate) struct Reader<'a> {
    pub(crate) requests: Requests<'a>,
    pub(crate) kept: &'a Kept<'a>,
    pub(crate) link: Link<'a>,
}

impl Reader<'_> {
    /// Answers requests until `ends` is set.
    pub(crate) fn run(&mut self, ends: &AtomicBool) {
        let mut waiting: Vec<Waiting> = Vec::new();
        while !ends.load(Relaxed) {
            let seen = self.requests.bell(Kind::Read);
            let until =
                Instant::now() + 2 * Duration::from_nanos(self.requests.remote.patience_ns());
            // No more than there are slots.
            while let Some(taken) = self.requests.take(Kind::Read) {
                waiting.push(Waiting { taken, until });
            }
            let is_open = self.link.open();
            if !waiting.is_empty() && is_open {
                waiting = self.read(waiting);
            } else {
                let nap = if waiting.is_empty() { TICK } else { BROKEN_NAP };
                self.requests.sleep(Kind::Read, seen, nap.as_nanos() as u64);
            }
            waiting = self.without_given_up(waiting);
        }
        for request in waiting {
            self.requests.finish(request.taken, Err(ETIMEDOUT));
        }
    }

    /// Reads for all that wait; gives those whose answer did not come.
    fn read(&mut self, waiting: Vec<Waiting>) -> Vec<Waiting> {
        let mut commands = Pipeline::new();
        let mut asked = Vec::with_capacity(waiting.len());
        for request in waiting {
            // In this order: the writer forgets what is of no worth before it takes the word of it
            // away, and it may not have come to that while it waits for the server.
            let is_discarded = self.requests.is_discarded(request.taken.cluster);
            let found = self.kept.find(request.taken.cluster).filter(|_| !is_discarded);
            let Some(name) = found else {
                self.fail(request.taken, ENODATA);
                continue;
            };
            let (first, bytes) = (request.taken.start, request.taken.bytes);
            commands.cmd("GETRANGE").arg(self.kept.key(name)).arg(first).arg(first + bytes - 1);
            asked.push(request);
        }
        let mut answers = self.link.ask(&commands).into_iter();
        let mut unanswered = Vec::new();
        for request in asked {
            match answers.next() {
                Some(answer) => self.give(request.taken, answer),
                None => unanswered.push(request),
            }
        }
        unanswered
    }

    /// Ends a request with what the server gave.
    fn give(&self, taken: Taken, answer: Result<Value, Errno>) {
        match answer {
            // Nobody asks for what lies behind a value's end alone: there is no such key any more.
            Ok(Value::BulkString(data)) if data.is_empty() => {
                self.requests.remote.counts.lost_clusters.fetch_add(1, Relaxed);
                self.fail(taken, ENODATA);
            }
            Ok(Value::BulkString(data)) if data.len() <= taken.bytes => {
                let counts = &self.requests.remote.counts;
                counts.reads.fetch_add(1, Relaxed);
                counts.read_bytes.fetch_add(data.len() as u64, Relaxed);
                self.requests.copy_in(&taken, &data);
                self.requests.finish(taken, Ok(()));
            }
            Ok(_) => self.fail(taken, EIO),
            Err(error) => self.fail(taken, error),
        }
    }

    /// Ends what nobody waits for any more, or has waited for too long.
    fn without_given_up(&self, waiting: Vec<Waiting>) -> Vec<Waiting> {
        let now = Instant::now();
        let mut wanted = Vec::new();
        for request in waiting {
            match self.requests.is_wanted(&request.taken) && now < request.until {
                true => wanted.push(request),
                false => self.fail(request.taken, ETIMEDOUT),
            }
        }
        wanted
    }

    fn fail(&self, taken: Taken, error: Errno) {
        self.requests.remote.counts.failures.fetch_add(1, Relaxed);
        self.requests.finish(taken, Err(error));
    }
}
