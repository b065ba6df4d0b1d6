//! The helper of a run: threads for the ways to each node, until the run is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use zpager_sys::{Errno, process};
use zpager_wire::{Kind, Requests};

use crate::kept::Kept;
use crate::link::{Link, Ways};
use crate::nodes::{Node, Nodes};
use crate::reader::Reader;
use crate::server::{Layout, Server};
use crate::survey;
use crate::writer::Writer;

/// How long a server keeps what is not refreshed: what a run leaves behind whose machine lost its
/// power, and how long the two may not reach each other. Each key is refreshed several times in it.
pub const EXPIRY: Duration = Duration::from_secs(1800);

/// How often the threads look for what nobody wakes them for.
pub(crate) const TICK: Duration = Duration::from_millis(50);
/// Longest time for the removal of the keys when the run is over.
const REMOVAL_TIME: Duration = Duration::from_secs(10);
const EHOSTDOWN: Errno = Errno(112);

/// Answers the requests of the run of this name until `is_over`, then removes its keys. What is
/// asked of a server may take half of the agents' patience.
pub fn serve(
    server: &Server,
    requests: Requests<'_>,
    run: &str,
    expiry: Duration,
    mut is_over: impl FnMut() -> bool,
) {
    if let Some((nodes, layout)) = survey::first(server, requests, &mut is_over) {
        let counts = &requests.remote.counts;
        let kept = Kept::new(run, counts);
        let time = Duration::from_nanos(requests.remote.patience_ns() / 2);
        let ways = Ways { server, nodes: &nodes, counts, kept: &kept, time };
        let is_cluster = matches!(layout, Layout::Cluster(_));
        Helper { requests, ways, expiry, is_cluster }.serve(is_over);
    }
    requests.close();
}

/// What all threads use.
#[derive(Clone, Copy)]
struct Helper<'a> {
    requests: Requests<'a>,
    ways: Ways<'a>,
    expiry: Duration,
    is_cluster: bool,
}

impl<'a> Helper<'a> {
    fn serve(self, is_over: impl FnMut() -> bool) {
        let ends = AtomicBool::new(false);
        let mut writers = std::thread::scope(|scope| {
            if self.is_cluster {
                scope.spawn(|| survey::run(self.ways.server, self.ways.nodes, &ends));
            }
            let writers = self.start_threads_until(is_over, scope, &ends);
            ends.store(true, Relaxed);
            // A panic ends the process.
            writers.into_iter().filter_map(|writer| writer.join().ok()).collect::<Vec<_>>()
        });
        self.remove_all(&mut writers);
    }

    /// Starts the threads of each node that comes to be known, until `is_over`.
    fn start_threads_until<'s>(
        self,
        mut is_over: impl FnMut() -> bool,
        scope: &'s Scope<'s, '_>,
        ends: &'s AtomicBool,
    ) -> Vec<ScopedJoinHandle<'s, Writer<'a>>>
    where
        'a: 's,
    {
        let mut writers = Vec::new();
        while !is_over() {
            for node in self.ways.nodes.since(writers.len()) {
                let mut reader = self.reader(node.clone());
                scope.spawn(move || reader.run(ends));
                let mut writer = self.writer(node);
                writers.push(scope.spawn(move || {
                    writer.run(ends);
                    writer
                }));
            }
            self.requests.free_all_of(|pid| !process::exists(pid));
            std::thread::sleep(TICK);
        }
        writers
    }

    fn reader(self, node: Arc<Node>) -> Reader<'a> {
        let link = Link::new(self.ways, node.clone(), Kind::Read);
        Reader { requests: self.requests, kept: self.ways.kept, nodes: self.ways.nodes, node, link }
    }

    fn writer(self, node: Arc<Node>) -> Writer<'a> {
        let link = Link::new(self.ways, node.clone(), Kind::Write);
        Writer::new(self.requests, self.ways.kept, self.ways.nodes, node, link, self.expiry)
    }

    /// Refuses what is to be written still, and removes all keys of the run.
    fn remove_all(self, writers: &mut [Writer<'a>]) {
        while let Some(taken) = self.requests.take(Kind::Write) {
            self.requests.finish(taken, Err(EHOSTDOWN));
        }
        let nodes: &Nodes<'_> = self.ways.nodes;
        (0..self.ways.kept.end())
            .filter_map(|cluster| self.ways.kept.remove(cluster))
            .for_each(|name| nodes.discard(name));
        writers.iter_mut().for_each(Writer::discard_doubtful);
        let deadline = Instant::now() + REMOVAL_TIME;
        std::thread::scope(|scope| {
            for writer in writers {
                scope.spawn(move || writer.remove_all(deadline));
            }
        });
    }
}
