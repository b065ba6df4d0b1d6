//! Where a cluster's slots are: found out at the start, and again when that is doubted.
//!
//! Any node can tell. One that answers is asked before the one that the user named, as that may be gone,
//! and those that do not answer are asked last.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use zpager_wire::{Kind, Requests};

use crate::helper::TICK;
use crate::nodes::{Node, Nodes};
use crate::server::{Layout, Server};
use crate::slots::Address;

/// How long a node may take to tell.
const TIME: Duration = Duration::from_secs(2);
/// Shortest time between two surveys.
const PAUSE: Duration = Duration::from_secs(1);

/// The nodes of the server that the user named, as soon as it tells; `None` when `is_over` before.
pub(crate) fn first<'a>(
    server: &Server,
    requests: Requests<'a>,
    mut is_over: impl FnMut() -> bool,
) -> Option<(Nodes<'a>, Layout)> {
    while !is_over() {
        let Ok(layout) = server.connect(None, TIME).and_then(|mut it| server.layout(&mut it, None))
        else {
            std::thread::sleep(TICK);
            continue;
        };
        let nodes = match &layout {
            Layout::Alone => Nodes::alone(requests),
            Layout::Cluster(ranges) => Nodes::of_cluster(requests, ranges),
        };
        return Some((nodes, layout));
    }
    None
}

/// Finds out where a cluster's slots are whenever that is doubted, until `ends` is set.
pub(crate) fn run(server: &Server, nodes: &Nodes<'_>, ends: &AtomicBool) {
    while !ends.load(Relaxed) {
        if nodes.take_doubt() {
            survey(server, nodes, ends);
            nap(PAUSE, ends);
        }
        nap(TICK, ends);
    }
}

fn survey(server: &Server, nodes: &Nodes<'_>, ends: &AtomicBool) {
    let all = nodes.since(0);
    let (open, closed): (Vec<_>, Vec<_>) = all.iter().partition(|node| node.is_open(Kind::Read));
    let asked = open.into_iter().map(address).chain([None]).chain(closed.into_iter().map(address));
    for address in asked.take_while(|_| !ends.load(Relaxed)) {
        let told = server
            .connect(address, TIME)
            .and_then(|mut connection| server.layout(&mut connection, address));
        if let Ok(Layout::Cluster(ranges)) = told {
            return nodes.update(&ranges);
        }
    }
    nodes.doubt();
}

fn address(node: &Arc<Node>) -> Option<&Address> {
    node.address.as_ref()
}

fn nap(time: Duration, ends: &AtomicBool) {
    let naps = time.as_nanos().div_ceil(TICK.as_nanos());
    for _ in 0..naps {
        if !ends.load(Relaxed) {
            std::thread::sleep(TICK);
        }
    }
}
