//! The helper's thread that writes clusters, removes what is of no worth, and keeps the rest from
//! expiring.
//!
//! All of it that is due goes to the server as one batch. A write whose answer does not come is
//! refused at once, as its pages are in RAM still; it may reach the server later, under a key that
//! nobody asks for, which is removed once the server answers again, and expires otherwise.
//!
//! Bad case: a server that evicts; its losses are noticed here, or when they are read.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use redis::{Pipeline, Value};
use zpager_sys::Errno;
use zpager_wire::{Kind, Requests, Taken};

use crate::helper::TICK;
use crate::kept::{Kept, Name};
use crate::link::Link;

const EHOSTDOWN: Errno = Errno(112);
const EIO: Errno = Errno(5);
/// Keys that are removed by one command.
const REMOVED_MAX: usize = 512;
/// Keys whose expiry is put off in one batch, at most.
const REFRESHED_MAX: usize = 4096;
/// Keys that may come to be on the server late, and are remembered until the end.
const DOUBTFUL_MAX: usize = 1024;
/// How often in an expiry's time each key is refreshed.
const REFRESHES: u32 = 3;

/// The thread.
pub(crate) struct Writer<'a> {
    requests: Requests<'a>,
    kept: &'a Kept<'a>,
    link: Link<'a>,
    expiry: Duration,
    /// Keys to be removed.
    worthless: VecDeque<Name>,
    /// Keys of writes that were not answered.
    doubtful: VecDeque<Name>,
    /// The next cluster that is refreshed, and when the last batch of them was.
    refreshed: u32,
    refreshed_at: Instant,
}

/// What a command of a batch was for.
enum Errand {
    /// So many of the keys to be removed.
    Remove(usize),
    Write(Taken, Name),
    Refresh(Name),
}

impl<'a> Writer<'a> {
    /// With nothing to do.
    pub(crate) fn new(
        requests: Requests<'a>,
        kept: &'a Kept<'a>,
        link: Link<'a>,
        expiry: Duration,
    ) -> Self {
        Writer {
            requests,
            kept,
            link,
            expiry,
            worthless: VecDeque::new(),
            doubtful: VecDeque::new(),
            refreshed: 0,
            refreshed_at: Instant::now(),
        }
    }

    /// Answers requests until `ends` is set.
    pub(crate) fn run(&mut self, ends: &AtomicBool) {
        while !ends.load(Relaxed) {
            let seen = self.requests.bell(Kind::Write);
            self.collect_worthless();
            let is_open = self.link.open();
            let did_something = if is_open { self.do_batch() } else { self.refuse_all() };
            if !did_something {
                self.requests.sleep(Kind::Write, seen, TICK.as_nanos() as u64);
            }
        }
    }

    /// Removes all keys of the run, and tries to until `deadline`.
    pub(crate) fn remove_all(&mut self, deadline: Instant) {
        self.refuse_all();
        self.worthless.extend((0..self.kept.end()).filter_map(|cluster| self.kept.remove(cluster)));
        self.worthless.append(&mut self.doubtful);
        while !self.worthless.is_empty() && Instant::now() < deadline {
            if !self.link.open() {
                std::thread::sleep(TICK);
                continue;
            }
            let mut commands = Pipeline::new();
            let errands = self.remove_some(&mut commands).into_iter().collect();
            self.carry_out(&commands, errands);
        }
    }

    fn collect_worthless(&mut self) {
        let (kept, worthless) = (self.kept, &mut self.worthless);
        self.requests.take_discarded(kept.end(), |cluster| worthless.extend(kept.remove(cluster)));
    }

    /// Refuses what is to be written; whether there was anything.
    fn refuse_all(&mut self) -> bool {
        let mut did_something = false;
        while let Some(taken) = self.requests.take(Kind::Write) {
            self.fail(taken, EHOSTDOWN);
            did_something = true;
        }
        did_something
    }

    /// Has the server do what is due; whether there was anything.
    fn do_batch(&mut self) -> bool {
        let mut commands = Pipeline::new();
        let mut errands: Vec<Errand> = Vec::new();
        // First, as it makes room.
        errands.extend(self.remove_some(&mut commands));
        self.write_all(&mut commands, &mut errands);
        self.refresh_some(&mut commands, &mut errands);
        let did_something = !errands.is_empty();
        self.carry_out(&commands, errands);
        did_something
    }

    fn remove_some(&self, commands: &mut Pipeline) -> Option<Errand> {
        let count = self.worthless.len().min(REMOVED_MAX);
        if count == 0 {
            return None;
        }
        let keys: Vec<String> =
            self.worthless.iter().take(count).map(|&name| self.kept.key(name)).collect();
        commands.cmd("UNLINK").arg(keys);
        Some(Errand::Remove(count))
    }

    fn write_all(&mut self, commands: &mut Pipeline, errands: &mut Vec<Errand>) {
        let mut data = Vec::new();
        // No more than there are slots, as their answers come afterwards.
        while let Some(taken) = self.requests.take(Kind::Write) {
            let (kept, worthless) = (self.kept, &mut self.worthless);
            self.requests
                .forget_discarded(taken.cluster, || worthless.extend(kept.remove(taken.cluster)));
            let name = self.kept.next_name(taken.cluster);
            data.resize(taken.bytes, 0);
            self.requests.copy_out(&taken, &mut data);
            let command = commands.cmd("SET").arg(self.kept.key(name)).arg(&data[..]);
            command.arg("EX").arg(self.expiry.as_secs());
            errands.push(Errand::Write(taken, name));
        }
    }

    /// Puts off the expiry of as many keys as is due since the last time.
    fn refresh_some(&mut self, commands: &mut Pipeline, errands: &mut Vec<Errand>) {
        let period = self.expiry / REFRESHES;
        let elapsed = self.refreshed_at.elapsed();
        let end = self.kept.end();
        let due = u128::from(end) * elapsed.as_nanos() / period.as_nanos();
        let due = due.min(u128::from(end)).min(REFRESHED_MAX as u128) as usize;
        if due == 0 {
            return;
        }
        if self.refreshed >= end {
            self.refreshed = 0;
        }
        for name in self.kept.find_all(self.refreshed, due) {
            commands.cmd("EXPIRE").arg(self.kept.key(name)).arg(self.expiry.as_secs());
            errands.push(Errand::Refresh(name));
        }
        self.refreshed += due as u32;
        self.refreshed_at = Instant::now();
    }

    /// Sends a batch and does what its answers ask for.
    fn carry_out(&mut self, commands: &Pipeline, errands: Vec<Errand>) {
        let mut answers = self.link.ask(commands).into_iter();
        for errand in errands {
            match (errand, answers.next()) {
                (Errand::Remove(count), Some(_)) => drop(self.worthless.drain(..count)),
                (Errand::Write(taken, name), Some(Ok(Value::Okay))) => self.note(taken, name),
                (Errand::Write(taken, _), Some(answer)) => {
                    self.fail(taken, answer.err().unwrap_or(EIO));
                }
                (Errand::Write(taken, name), None) => {
                    self.doubt(name);
                    self.fail(taken, EHOSTDOWN);
                }
                (Errand::Refresh(name), Some(Ok(Value::Int(0)))) => self.note_loss(name),
                (Errand::Remove(_), None) | (Errand::Refresh(_), _) => {}
            }
        }
    }

    /// A cluster is on the server.
    fn note(&mut self, taken: Taken, name: Name) {
        let counts = &self.requests.remote.counts;
        counts.writes.fetch_add(1, Relaxed);
        counts.written_bytes.fetch_add(taken.bytes as u64, Relaxed);
        self.worthless.extend(self.kept.add(name, taken.bytes));
        self.requests.finish(taken, Ok(()));
    }

    /// A key is gone that nobody has removed.
    fn note_loss(&self, name: Name) {
        if self.kept.find(name.cluster) == Some(name) {
            self.kept.remove(name.cluster);
            self.requests.remote.counts.lost_clusters.fetch_add(1, Relaxed);
        }
    }

    /// Nobody knows whether the server has got a value, or will get it.
    fn doubt(&mut self, name: Name) {
        if self.doubtful.len() == DOUBTFUL_MAX {
            self.doubtful.pop_front();
        }
        self.doubtful.push_back(name);
        self.worthless.push_back(name);
    }

    fn fail(&self, taken: Taken, error: Errno) {
        self.requests.remote.counts.failures.fetch_add(1, Relaxed);
        self.requests.finish(taken, Err(error));
    }
}
