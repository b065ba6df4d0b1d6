//! The helper's threads that read parts of clusters: one for each node.
//!
//! What is asked for while the node that has it does not answer is asked again until it does, or nobody
//! waits any more: the page is lost for good otherwise. Who has another copy, and waits for nothing, is
//! told at once, by whichever thread comes to it. What a node says it does not have is lost at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use redis::{Pipeline, Value};
use zpager_sys::Errno;
use zpager_wire::{Kind, Requests, Taken};

use crate::helper::TICK;
use crate::kept::{Kept, Name};
use crate::link::{Answer, Link};
use crate::nodes::{Node, Nodes, Waiting};
use crate::slots::Redirection;

const EIO: Errno = Errno(5);
const ENODATA: Errno = Errno(61);
const ETIMEDOUT: Errno = Errno(110);
const EHOSTDOWN: Errno = Errno(112);
/// Longest sleep while the way is broken and somebody waits.
const BROKEN_NAP: Duration = Duration::from_millis(10);

/// A thread.
pub(crate) struct Reader<'a> {
    pub(crate) requests: Requests<'a>,
    pub(crate) kept: &'a Kept<'a>,
    pub(crate) nodes: &'a Nodes<'a>,
    pub(crate) node: Arc<Node>,
    pub(crate) link: Link<'a>,
}

impl Reader<'_> {
    /// Answers requests until `ends` is set.
    pub(crate) fn run(&mut self, ends: &AtomicBool) {
        let mut waiting: Vec<Waiting> = Vec::new();
        while !ends.load(Relaxed) {
            let seen = self.requests.bell(Kind::Read);
            self.collect(&mut waiting);
            if !self.link.is_open() {
                // Connecting takes time.
                waiting = self.place(waiting);
            }
            let is_open = self.link.open();
            waiting = self.place(waiting);
            let reads = is_open && !waiting.is_empty();
            if reads {
                waiting = self.read(waiting);
            }
            if !reads || !waiting.is_empty() {
                let nap = if waiting.is_empty() { TICK } else { BROKEN_NAP };
                self.requests.sleep(Kind::Read, seen, nap.as_nanos() as u64);
            }
            waiting = self.without_given_up(waiting);
        }
        for request in waiting.into_iter().chain(self.node.take_reads()) {
            self.requests.finish(request.taken, Err(ETIMEDOUT));
        }
    }

    /// Takes what this node has, what nobody has, and what has to be refused.
    fn collect(&self, waiting: &mut Vec<Waiting>) {
        waiting.extend(self.node.take_reads());
        let patience = Duration::from_nanos(self.requests.remote.patience_ns());
        let until = Instant::now() + 2 * patience;
        let is_ours = |cluster, is_patient: bool| match self.owner(cluster) {
            Some(owner) => {
                owner.number == self.node.number || !is_patient && !owner.is_open(Kind::Read)
            }
            None => true,
        };
        // No more than there are slots.
        while let Some(taken) = self.requests.take_where(Kind::Read, is_ours) {
            waiting.push(Waiting { taken, until, is_sent: false });
        }
    }

    /// The node that has a cluster.
    fn owner(&self, cluster: u32) -> Option<Arc<Node>> {
        self.kept.find(cluster).and_then(|name| self.nodes.owning(name.slot))
    }

    /// Gives each to the node that has it, and gives back what this one has, and what is in a slot that
    /// no node has now.
    fn place(&self, waiting: Vec<Waiting>) -> Vec<Waiting> {
        let mut own = Vec::with_capacity(waiting.len());
        for request in waiting {
            let Some(name) = self.held(request.taken.cluster) else {
                self.requests.finish(request.taken, Err(ENODATA));
                continue;
            };
            let owner = self.nodes.owning(name.slot).filter(|_| !request.is_sent);
            let node = owner.as_ref().unwrap_or(&self.node);
            if !request.taken.is_patient && !node.is_open(Kind::Read) {
                self.fail(request.taken, EHOSTDOWN);
            } else if node.number == self.node.number {
                own.push(request);
            } else {
                self.nodes.leave_read(node, request);
            }
        }
        own
    }

    /// Reads for all that wait; gives those whose answer did not come.
    fn read(&mut self, waiting: Vec<Waiting>) -> Vec<Waiting> {
        let mut commands = Pipeline::new();
        let mut asked = Vec::with_capacity(waiting.len());
        // Those of slots that no node has now.
        let mut unplaced = Vec::new();
        for request in waiting {
            let Some(name) = self.held(request.taken.cluster) else {
                self.requests.finish(request.taken, Err(ENODATA));
                continue;
            };
            if request.is_sent {
                commands.cmd("ASKING");
            } else if self.nodes.owner(name.slot).is_none() {
                unplaced.push(request);
                continue;
            }
            let (first, bytes) = (request.taken.start, request.taken.bytes);
            commands.cmd("GETRANGE").arg(self.kept.key(name)).arg(first).arg(first + bytes - 1);
            asked.push((request, name));
        }
        let mut answers = self.link.ask(&commands).into_iter();
        let mut unanswered = unplaced;
        for (mut request, name) in asked {
            if request.is_sent {
                answers.next();
            }
            // What was sent once is asked of the one who has the slot the next time.
            request.is_sent = false;
            match answers.next() {
                Some(Answer::Elsewhere(redirection)) => self.send_on(request, &redirection),
                Some(Answer::Given(value)) => self.give(request.taken, name, value),
                Some(Answer::Refused(error)) => self.fail(request.taken, error),
                None => unanswered.push(request),
            }
        }
        unanswered
    }

    /// The name of what is held of a cluster and was not discarded. Who asks for another one may have
    /// seen it before a thread beside it has dropped it, which is no failure of the server, or it was
    /// noted as lost.
    fn held(&self, cluster: u32) -> Option<Name> {
        // In this order: the writers forget what is of no worth before they take the word of it away,
        // and they may not have come to that while they wait for a server.
        let is_discarded = self.requests.is_discarded(cluster);
        self.kept.find(cluster).filter(|_| !is_discarded)
    }

    /// Gives a request to the node that another one named.
    fn send_on(&self, mut request: Waiting, redirection: &Redirection) {
        match self.nodes.learn(redirection) {
            Some(node) => {
                request.is_sent = redirection.is_once;
                self.nodes.leave_read(&node, request);
            }
            None => self.fail(request.taken, EIO),
        }
    }

    /// Ends a request for a part of what has this name with what the node gave.
    fn give(&self, taken: Taken, name: Name, value: Value) {
        match value {
            // Nobody asks for what lies behind a value's end alone: there is no such key any more.
            Value::BulkString(data) if data.is_empty() && self.held(name.cluster) != Some(name) => {
                self.requests.finish(taken, Err(ENODATA));
            }
            Value::BulkString(data) if data.is_empty() => {
                self.requests.remote.counts.lost_clusters.fetch_add(1, Relaxed);
                self.fail(taken, ENODATA);
            }
            Value::BulkString(data) if data.len() <= taken.bytes => {
                let counts = &self.requests.remote.counts;
                counts.reads.fetch_add(1, Relaxed);
                counts.read_bytes.fetch_add(data.len() as u64, Relaxed);
                self.requests.copy_in(&taken, &data);
                self.requests.finish(taken, Ok(()));
            }
            _ => self.fail(taken, EIO),
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
