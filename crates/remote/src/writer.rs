//! The helper's threads that write clusters, remove what is of no worth, and keep the rest from
//! expiring: one for each node.
//!
//! All of it that is due goes to the node as one batch. A write that the node refuses, or does not
//! answer, goes to another one under another name; where there is none it is refused at once, as its
//! pages are in RAM still. What was not answered may reach the node later, under a key that nobody asks
//! for, which is removed once the node answers again, and expires otherwise.
//!
//! Bad case: a server that evicts; its losses are noticed here, or when they are read.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use redis::{Pipeline, Value};
use zpager_sys::Errno;
use zpager_wire::{Kind, Requests, Taken};

use crate::helper::TICK;
use crate::kept::{Kept, Name};
use crate::link::{Answer, Link};
use crate::nodes::{Node, Nodes, Removal};

const EHOSTDOWN: Errno = Errno(112);
const EIO: Errno = Errno(5);
/// Keys that are removed in one batch, at most.
const REMOVED_MAX: usize = 512;
/// Keys whose expiry is put off in one batch, at most.
const REFRESHED_MAX: usize = 4096;
/// Keys that may come to be on the server late, and are remembered until the end.
const DOUBTFUL_MAX: usize = 1024;
/// How often in an expiry's time each key is refreshed.
const REFRESHES: u32 = 3;
/// How often a thread looks whether the others have removed their keys.
const END_NAP: Duration = Duration::from_millis(5);

/// A thread.
pub(crate) struct Writer<'a> {
    requests: Requests<'a>,
    kept: &'a Kept<'a>,
    nodes: &'a Nodes<'a>,
    node: Arc<Node>,
    link: Link<'a>,
    expiry: Duration,
    /// Keys of writes that were not answered.
    doubtful: VecDeque<Name>,
    /// The next cluster that is refreshed, and when the last batch of them was.
    refreshed: u32,
    refreshed_at: Instant,
}

/// What a command of a batch was for.
enum Errand {
    /// Nothing by itself: the next one is for a key that is on its way to this node.
    Asking,
    Remove(Removal),
    Write(Taken, Name),
    Refresh(Name),
}

/// Commands, and what they are for.
#[derive(Default)]
struct Batch {
    commands: Pipeline,
    errands: Vec<Errand>,
}

impl<'a> Writer<'a> {
    /// With nothing to do.
    pub(crate) fn new(
        requests: Requests<'a>,
        kept: &'a Kept<'a>,
        nodes: &'a Nodes<'a>,
        node: Arc<Node>,
        link: Link<'a>,
        expiry: Duration,
    ) -> Self {
        let (doubtful, refreshed, refreshed_at) = (VecDeque::new(), 0, Instant::now());
        Writer { requests, kept, nodes, node, link, expiry, doubtful, refreshed, refreshed_at }
    }

    /// Answers requests until `ends` is set.
    pub(crate) fn run(&mut self, ends: &AtomicBool) {
        while !ends.load(Relaxed) {
            let seen = self.requests.bell(Kind::Write);
            self.collect_worthless();
            let is_open = self.link.open();
            let did_something = if is_open { self.do_batch() } else { self.pass_on() };
            if !did_something {
                self.requests.sleep(Kind::Write, seen, TICK.as_nanos() as u64);
            }
        }
        for taken in self.node.take_writes() {
            self.fail(taken, EHOSTDOWN);
        }
    }

    /// Leaves what may be on the server late for removal.
    pub(crate) fn discard_doubtful(&mut self) {
        self.doubtful.drain(..).for_each(|name| self.nodes.discard(name));
    }

    /// Removes this node's keys, and tries to until `deadline` or until all nodes' are removed, as
    /// some may be left for this one meanwhile.
    pub(crate) fn remove_all(&mut self, deadline: Instant) {
        while self.nodes.has_removals() && Instant::now() < deadline {
            let mut batch = Batch::default();
            if self.link.open() {
                self.remove_some(&mut batch);
            } else {
                self.move_removals();
            }
            if !self.carry_out(batch) {
                std::thread::sleep(END_NAP);
            }
        }
    }

    fn collect_worthless(&self) {
        let _one_at_a_time = self.kept.lock_lives();
        let discard = |cluster| self.discard(self.kept.remove(cluster));
        self.requests.take_discarded(self.kept.end(), discard);
    }

    fn discard(&self, name: Option<Name>) {
        if let Some(name) = name {
            self.nodes.discard(name);
        }
    }

    /// Gives what this node was to write to others while it does not answer; refuses all where none
    /// does. Whether there was anything.
    fn pass_on(&mut self) -> bool {
        self.move_removals();
        let mut did_something = false;
        for taken in self.node.take_writes() {
            self.hand_over(taken, EHOSTDOWN);
            did_something = true;
        }
        while !self.nodes.is_any_open(Kind::Write)
            && let Some(taken) = self.requests.take(Kind::Write)
        {
            self.fail(taken, EHOSTDOWN);
            did_something = true;
        }
        did_something
    }

    /// Gives the keys of slots that this node has no more to the nodes that have them, if it has none
    /// at all.
    fn move_removals(&self) {
        if self.node.is_empty() {
            let removals = self.node.take_removals(REMOVED_MAX).into_iter();
            let own = removals.filter_map(|removal| self.placed(removal));
            own.for_each(|removal| self.node.leave_removal(removal));
        }
    }

    /// Has the node do what is due; whether there was anything.
    fn do_batch(&mut self) -> bool {
        let mut batch = Batch::default();
        // First, as it makes room.
        self.remove_some(&mut batch);
        self.write_all(&mut batch);
        self.refresh_some(&mut batch);
        self.carry_out(batch)
    }

    fn remove_some(&self, batch: &mut Batch) {
        let removals = self.node.take_removals(REMOVED_MAX).into_iter();
        for removal in removals.filter_map(|removal| self.placed(removal)) {
            if removal.is_sent {
                batch.commands.cmd("ASKING");
                batch.errands.push(Errand::Asking);
            }
            batch.commands.cmd("UNLINK").arg(self.kept.key(removal.name));
            batch.errands.push(Errand::Remove(removal));
        }
    }

    /// Gives a key to be removed back if it is this node's, or leaves it to the node that has its slot.
    fn placed(&self, removal: Removal) -> Option<Removal> {
        match self.nodes.owning(removal.name.slot) {
            _ if removal.is_sent => Some(removal),
            Some(owner) if owner.number == self.node.number => Some(removal),
            owner => {
                owner.as_ref().unwrap_or(&self.node).leave_removal(removal);
                None
            }
        }
    }

    fn write_all(&mut self, batch: &mut Batch) {
        let mut writes = self.node.take_writes();
        let handed_over = writes.len();
        // No more than there are slots, as their answers come afterwards.
        while self.nodes.is_turn(&self.node)
            && let Some(taken) = self.requests.take(Kind::Write)
        {
            self.node.count_write();
            writes.push(taken);
        }
        let has_taken = writes.len() > handed_over;
        for taken in writes {
            self.write(taken, batch);
        }
        // It is another one's turn now.
        self.node.set_busy(!batch.errands.is_empty());
        if has_taken {
            self.requests.ring(Kind::Write);
        }
    }

    fn write(&mut self, taken: Taken, batch: &mut Batch) {
        let lives = self.kept.lock_lives();
        let cluster = taken.cluster;
        self.requests.forget_discarded(cluster, || self.discard(self.kept.remove(cluster)));
        drop(lives);
        let is_ours = |slot| self.nodes.owner(slot) == Some(self.node.number);
        // None where the node has lost its slots just now.
        let Some(name) = self.kept.next_name(cluster, is_ours) else {
            return self.hand_over(taken, EHOSTDOWN);
        };
        let mut data = vec![0; taken.bytes];
        self.requests.copy_out(&taken, &mut data);
        let command = batch.commands.cmd("SET").arg(self.kept.key(name)).arg(&data[..]);
        command.arg("EX").arg(self.expiry.as_secs());
        batch.errands.push(Errand::Write(taken, name));
    }

    /// Puts off the expiry of as many keys as is due since the last time.
    fn refresh_some(&mut self, batch: &mut Batch) {
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
        let names = self.kept.find_all(self.refreshed, due).into_iter();
        for name in names.filter(|name| self.nodes.owner(name.slot) == Some(self.node.number)) {
            let command = batch.commands.cmd("EXPIRE").arg(self.kept.key(name));
            command.arg(self.expiry.as_secs());
            batch.errands.push(Errand::Refresh(name));
        }
        self.refreshed += due as u32;
        self.refreshed_at = Instant::now();
    }

    /// Sends a batch and does what its answers ask for; whether there was anything in it.
    fn carry_out(&mut self, batch: Batch) -> bool {
        if batch.errands.is_empty() {
            return false;
        }
        self.node.set_busy(true);
        let mut answers = self.link.ask(&batch.commands).into_iter();
        self.node.set_busy(false);
        for errand in batch.errands {
            let answer = answers.next();
            match errand {
                Errand::Asking => {}
                Errand::Remove(removal) => self.end_removal(removal, answer),
                Errand::Write(taken, name) => self.end_write(taken, name, answer),
                Errand::Refresh(name) => self.end_refresh(name, answer),
            }
        }
        true
    }

    fn end_removal(&self, mut removal: Removal, answer: Option<Answer>) {
        removal.is_sent = false;
        match answer {
            Some(Answer::Given(_) | Answer::Refused(_)) => self.nodes.note_removal(),
            Some(Answer::Elsewhere(redirection)) => match self.nodes.learn(&redirection) {
                Some(node) => {
                    removal.is_sent = redirection.is_once;
                    node.leave_removal(removal);
                }
                None => self.nodes.note_removal(),
            },
            None => self.node.leave_removal(removal),
        }
    }

    fn end_write(&mut self, taken: Taken, name: Name, answer: Option<Answer>) {
        match answer {
            Some(Answer::Given(Value::Okay)) => self.note(taken, name),
            Some(Answer::Given(_)) => self.fail(taken, EIO),
            Some(Answer::Refused(error)) => {
                self.node.note_refusal();
                self.hand_over(taken, error);
            }
            Some(Answer::Elsewhere(redirection)) => {
                // Under another name, as nothing was written: to any node.
                self.nodes.learn(&redirection);
                self.hand_over(taken, EHOSTDOWN);
            }
            None => {
                self.doubt(name);
                self.hand_over(taken, EHOSTDOWN);
            }
        }
    }

    fn end_refresh(&self, name: Name, answer: Option<Answer>) {
        match answer {
            Some(Answer::Given(Value::Int(0))) => self.note_loss(name),
            // It is refreshed in time where it is by then.
            Some(Answer::Elsewhere(redirection)) => drop(self.nodes.learn(&redirection)),
            _ => {}
        }
    }

    /// A cluster is on the server.
    fn note(&self, taken: Taken, name: Name) {
        let lives = self.kept.lock_lives();
        if !self.requests.is_wanted(&taken) {
            // The cluster may be of another life by now, and on another node.
            self.nodes.discard(name);
            return self.fail(taken, EHOSTDOWN);
        }
        let counts = &self.requests.remote.counts;
        counts.writes.fetch_add(1, Relaxed);
        counts.written_bytes.fetch_add(taken.bytes as u64, Relaxed);
        self.discard(self.kept.add(name, taken.bytes));
        drop(lives);
        self.requests.finish(taken, Ok(()));
    }

    /// A key is gone that nobody has removed.
    fn note_loss(&self, name: Name) {
        let _one_at_a_time = self.kept.lock_lives();
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
        self.nodes.discard(name);
    }

    /// Gives a write to another node, or refuses it.
    fn hand_over(&self, taken: Taken, error: Errno) {
        if !self.requests.is_wanted(&taken) {
            return self.fail(taken, error);
        }
        if let Err(taken) = self.nodes.hand_over(taken) {
            self.fail(taken, error);
        }
    }

    fn fail(&self, taken: Taken, error: Errno) {
        self.requests.remote.counts.failures.fetch_add(1, Relaxed);
        self.requests.finish(taken, Err(error));
    }
}
