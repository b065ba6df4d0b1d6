//! The servers of a run: one by itself, or the masters of a cluster, and which of them has a slot.
//!
//! A server by itself is the one node that has all slots. Each node has two threads, one for each kind
//! of requests, so that one that does not answer holds up nobody who needs another. What a thread has
//! and another node is asked for it leaves in that node's tray.
//!
//! Writes go to the nodes in turn: to the one that was given the fewest, of those that answer, have
//! refused nothing of late and are not waited for.
//!
//! Invariants: nodes are added and never taken away, up to a bound; a number of one stays its own.
//!
//! Bad case: masters of very different sizes; the small ones are tried, and refuse, once a pause.

use std::collections::VecDeque;
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use zpager_wire::{Kind, Requests, Taken};

use crate::kept::Name;
use crate::slots::{Address, Range, Redirection, SLOTS};

/// Masters of a cluster that are used, at most.
pub(crate) const NODES_MAX: usize = 128;
/// How long a node that refused a write comes last.
const REFUSAL_PAUSE: Duration = Duration::from_secs(1);
/// In place of a node's number.
const NOBODY: u16 = u16::MAX;

/// A read that is waited for, at most until then.
pub(crate) struct Waiting {
    pub(crate) taken: Taken,
    pub(crate) until: Instant,
    /// Whether the node was named for this one, by the one that has its slot.
    pub(crate) is_sent: bool,
}

/// A key that is to be removed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Removal {
    pub(crate) name: Name,
    /// As of [`Waiting`].
    pub(crate) is_sent: bool,
}

/// One server.
pub(crate) struct Node {
    pub(crate) number: usize,
    /// `None` of the server that the user named, which is no cluster's.
    pub(crate) address: Option<Address>,
    is_open: [AtomicBool; 2],
    /// Whether its writer waits for answers.
    is_busy: AtomicBool,
    writes: AtomicU64,
    refused_at: Mutex<Option<Instant>>,
    slots: AtomicUsize,
    reads_tray: Mutex<Vec<Waiting>>,
    writes_tray: Mutex<Vec<Taken>>,
    removals: Mutex<VecDeque<Removal>>,
}

impl Node {
    fn new(number: usize, address: Option<Address>) -> Self {
        Node {
            number,
            address,
            is_open: Default::default(),
            is_busy: AtomicBool::new(false),
            writes: AtomicU64::new(0),
            refused_at: Mutex::default(),
            slots: AtomicUsize::new(0),
            reads_tray: Mutex::default(),
            writes_tray: Mutex::default(),
            removals: Mutex::default(),
        }
    }

    /// Whether it answers requests of a kind, as far as is known.
    pub(crate) fn is_open(&self, kind: Kind) -> bool {
        self.is_open[kind as usize].load(SeqCst)
    }

    /// Whether it has no slot, and so no key.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.load(Relaxed) == 0
    }

    /// Says whether its writer waits for answers.
    pub(crate) fn set_busy(&self, is_busy: bool) {
        self.is_busy.store(is_busy, SeqCst);
    }

    /// It was given a write.
    pub(crate) fn count_write(&self) {
        self.writes.fetch_add(1, Relaxed);
    }

    /// It has refused a write.
    pub(crate) fn note_refusal(&self) {
        *locked(&self.refused_at) = Some(Instant::now());
    }

    fn refuses(&self) -> bool {
        locked(&self.refused_at).is_some_and(|at| at.elapsed() < REFUSAL_PAUSE)
    }

    /// What other threads have left for it.
    pub(crate) fn take_reads(&self) -> Vec<Waiting> {
        std::mem::take(&mut locked(&self.reads_tray))
    }

    /// The same of writes.
    pub(crate) fn take_writes(&self) -> Vec<Taken> {
        std::mem::take(&mut locked(&self.writes_tray))
    }

    /// The same of so many keys to be removed.
    pub(crate) fn take_removals(&self, most: usize) -> Vec<Removal> {
        let mut removals = locked(&self.removals);
        let count = removals.len().min(most);
        removals.drain(..count).collect()
    }

    /// Leaves it a key that is to be removed.
    pub(crate) fn leave_removal(&self, removal: Removal) {
        locked(&self.removals).push_back(removal);
    }
}

/// All nodes, and the slots that they have.
struct Map {
    nodes: Vec<Arc<Node>>,
    /// The number of the node that has a slot.
    owners: Vec<u16>,
}

/// The servers of a run.
pub(crate) struct Nodes<'a> {
    requests: Requests<'a>,
    map: RwLock<Map>,
    /// Taken by who says whether any of them answers.
    up: Mutex<()>,
    /// Whether the slots may be elsewhere than was said.
    is_doubted: AtomicBool,
    /// Keys that are to be removed and were not yet.
    removals: AtomicUsize,
}

impl<'a> Nodes<'a> {
    /// The masters of a cluster.
    pub(crate) fn of_cluster(requests: Requests<'a>, ranges: &[Range]) -> Self {
        let nodes = Nodes::new(requests, Vec::new(), NOBODY);
        nodes.update(ranges);
        nodes
    }

    /// A server by itself.
    pub(crate) fn alone(requests: Requests<'a>) -> Self {
        let node = Node::new(0, None);
        node.slots.store(SLOTS.into(), Relaxed);
        Nodes::new(requests, vec![Arc::new(node)], 0)
    }

    fn new(requests: Requests<'a>, nodes: Vec<Arc<Node>>, owner: u16) -> Self {
        let map = RwLock::new(Map { nodes, owners: vec![owner; SLOTS.into()] });
        let (up, is_doubted, removals) = Default::default();
        Nodes { requests, map, up, is_doubted, removals }
    }

    /// Those from this number on.
    pub(crate) fn since(&self, first: usize) -> Vec<Arc<Node>> {
        self.read().nodes[first..].to_vec()
    }

    /// The number of the node that has a slot.
    pub(crate) fn owner(&self, slot: u16) -> Option<usize> {
        let owner = self.read().owners[usize::from(slot)];
        (owner != NOBODY).then_some(owner.into())
    }

    /// The node that has a slot.
    pub(crate) fn owning(&self, slot: u16) -> Option<Arc<Node>> {
        let map = self.read();
        map.nodes.get(usize::from(map.owners[usize::from(slot)])).cloned()
    }

    /// Which slots are where, as a node tells. Those that it does not name nobody has.
    pub(crate) fn update(&self, ranges: &[Range]) {
        let mut map = self.write();
        map.owners.fill(NOBODY);
        for range in ranges {
            let owner = map.number_of(&range.master).unwrap_or(NOBODY);
            let (first, last) =
                (usize::from(*range.slots.start()), usize::from(*range.slots.end()));
            if first <= last {
                map.owners[first..=last].fill(owner);
            }
        }
        map.count_slots();
        drop(map);
        self.tell_up();
    }

    /// A node has sent somebody elsewhere; gives where, if that node is used.
    pub(crate) fn learn(&self, redirection: &Redirection) -> Option<Arc<Node>> {
        self.doubt();
        let mut map = self.write();
        let number = map.number_of(&redirection.master)?;
        if !redirection.is_once {
            map.owners[usize::from(redirection.slot)] = number;
            map.count_slots();
        }
        map.nodes.get(usize::from(number)).cloned()
    }

    /// The slots may be elsewhere than was said.
    pub(crate) fn doubt(&self) {
        self.is_doubted.store(true, Relaxed);
    }

    /// Whether that was said since this was asked.
    pub(crate) fn take_doubt(&self) -> bool {
        self.is_doubted.swap(false, Relaxed)
    }

    /// Says whether a node answers requests of a kind.
    pub(crate) fn set_open(&self, node: &Node, kind: Kind, is_open: bool) {
        if node.is_open[kind as usize].swap(is_open, SeqCst) != is_open {
            self.tell_up();
        }
    }

    /// Tells the agents whether there is a node that answers, and the threads to look anew.
    fn tell_up(&self) {
        let _one_at_a_time = locked(&self.up);
        for kind in [Kind::Write, Kind::Read] {
            self.requests.set_up(kind, self.is_any_open(kind));
            self.requests.ring(kind);
        }
    }

    /// Whether there is a node that answers requests of a kind.
    pub(crate) fn is_any_open(&self, kind: Kind) -> bool {
        self.read().nodes.iter().any(|node| node.is_open(kind) && !node.is_empty())
    }

    /// Whether the next write is this node's to take, whose writer asks.
    pub(crate) fn is_turn(&self, node: &Node) -> bool {
        let map = self.read();
        let free = map.writers().filter(|node| !node.is_busy.load(SeqCst));
        let next = free.min_by_key(|node| (node.refuses(), node.writes.load(Relaxed)));
        next.is_some_and(|next| next.number == node.number)
    }

    /// Gives a write to a node that has refused nothing of late; gives it back where there is none.
    pub(crate) fn hand_over(&self, taken: Taken) -> Result<(), Taken> {
        let map = self.read();
        let willing = map.writers().filter(|node| !node.refuses());
        let next =
            willing.min_by_key(|node| (node.is_busy.load(SeqCst), node.writes.load(Relaxed)));
        let Some(node) = next else { return Err(taken) };
        node.count_write();
        locked(&node.writes_tray).push(taken);
        self.requests.ring(Kind::Write);
        Ok(())
    }

    /// Gives a read to a node.
    pub(crate) fn leave_read(&self, node: &Node, waiting: Waiting) {
        locked(&node.reads_tray).push(waiting);
        self.requests.ring(Kind::Read);
    }

    /// A key of these is to be removed; nobody is woken for that.
    pub(crate) fn discard(&self, name: Name) {
        // Where nobody has the slot the first looks who has it later.
        let owner = self.owning(name.slot).or_else(|| self.read().nodes.first().cloned());
        if let Some(node) = owner {
            self.removals.fetch_add(1, Relaxed);
            node.leave_removal(Removal { name, is_sent: false });
        }
    }

    /// A key was removed.
    pub(crate) fn note_removal(&self) {
        self.removals.fetch_sub(1, Relaxed);
    }

    /// Whether keys are to be removed.
    pub(crate) fn has_removals(&self) -> bool {
        self.removals.load(Relaxed) > 0
    }

    fn read(&self) -> RwLockReadGuard<'_, Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Map> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Map {
    /// The number of a master, which is added if it is new and there is room.
    fn number_of(&mut self, master: &Address) -> Option<u16> {
        let found = self.nodes.iter().position(|node| node.address.as_ref() == Some(master));
        let number = found.unwrap_or(self.nodes.len());
        if number == self.nodes.len() {
            if number == NODES_MAX {
                return None;
            }
            self.nodes.push(Arc::new(Node::new(number, Some(master.clone()))));
        }
        Some(number as u16)
    }

    fn count_slots(&self) {
        let mut counts = vec![0; self.nodes.len()];
        for owner in self.owners.iter().filter(|owner| **owner != NOBODY) {
            counts[usize::from(*owner)] += 1;
        }
        for (node, count) in self.nodes.iter().zip(counts) {
            node.slots.store(count, Relaxed);
        }
    }

    /// The nodes that can be given writes.
    fn writers(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.nodes.iter().filter(|node| node.is_open(Kind::Write) && !node.is_empty())
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::alloc::{Layout, alloc_zeroed};

    use zpager_wire::Remote;

    use super::*;

    /// Those of a mapping that stays until the test's end.
    fn requests() -> Requests<'static> {
        let remote = Remote::new(64, 4096, 1_000_000_000);
        let layout = Layout::from_size_align(remote.mapping_bytes(), 4096).expect("a layout");
        // SAFETY: the memory is long enough, aligned, zero, nobody else's and never freed.
        unsafe {
            let start = alloc_zeroed(layout).cast::<Remote>();
            start.write(remote);
            Requests::behind(&*start)
        }
    }

    fn master(port: u16) -> Address {
        ("h".to_owned(), port)
    }

    fn range(first: u16, last: u16, port: u16) -> Range {
        Range { slots: first..=last, master: master(port) }
    }

    /// Three masters that answer.
    fn cluster(requests: Requests<'_>) -> Nodes<'_> {
        let ranges = [range(0, 99, 1), range(100, 199, 2), range(200, 16383, 3)];
        let nodes = Nodes::of_cluster(requests, &ranges);
        for node in nodes.since(0) {
            nodes.set_open(&node, Kind::Write, true);
        }
        nodes
    }

    fn turns(nodes: &Nodes<'_>) -> Vec<usize> {
        let all = nodes.since(0).into_iter();
        all.filter(|node| nodes.is_turn(node)).map(|node| node.number).collect()
    }

    #[test]
    fn slots_have_the_master_that_was_told_last() {
        let nodes = cluster(requests());
        let owner_of = |slot| nodes.owning(slot).and_then(|node| node.address.clone());
        assert_eq!(owner_of(150), Some(master(2)));
        assert!(!nodes.take_doubt());
        let sent = |is_once| Redirection { slot: 150, master: master(4), is_once };
        let fourth = nodes.learn(&sent(true)).expect("a node");
        assert_eq!((owner_of(150), fourth.number, fourth.is_empty()), (Some(master(2)), 3, true));
        nodes.learn(&sent(false));
        assert_eq!((owner_of(150), owner_of(151)), (Some(master(4)), Some(master(2))));
        assert!(!fourth.is_empty() && nodes.take_doubt());
        nodes.update(&[range(0, 199, 4)]);
        assert_eq!((owner_of(0), owner_of(200)), (Some(master(4)), None));
        assert_eq!((nodes.since(0).len(), nodes.owner(200)), (4, None));
        assert!(nodes.since(0)[..3].iter().all(|node| node.is_empty()));
    }

    #[test]
    fn no_more_masters_are_used_than_the_bound() {
        let nodes = cluster(requests());
        let ranges: Vec<Range> = (0..200).map(|at| range(at, at, 1000 + at)).collect();
        nodes.update(&ranges);
        assert_eq!(nodes.since(0).len(), NODES_MAX);
        assert_eq!((nodes.owner(124), nodes.owner(125)), (Some(127), None));
    }

    #[test]
    fn writes_are_taken_in_turn_by_those_who_can() {
        let nodes = cluster(requests());
        let all = nodes.since(0);
        assert_eq!(turns(&nodes), [0]);
        all[0].count_write();
        assert_eq!(turns(&nodes), [1]);
        all[1].set_busy(true);
        assert_eq!(turns(&nodes), [2]);
        all[2].note_refusal();
        assert_eq!(turns(&nodes), [0]);
        nodes.set_open(&all[0], Kind::Write, false);
        // Rather one that has refused than none.
        assert_eq!(turns(&nodes), [2]);
        nodes.update(&[range(0, 16383, 1)]);
        assert_eq!(turns(&nodes), [] as [usize; 0]);
        assert!(!nodes.is_any_open(Kind::Write));
    }

    #[test]
    fn a_write_is_handed_to_one_that_has_refused_nothing() {
        let requests = requests();
        let nodes = cluster(requests);
        let all = nodes.since(0);
        all[0].note_refusal();
        all[1].set_busy(true);
        requests.begin_write(1, 5, b"data").expect("a ticket");
        let taken = requests.take(Kind::Write).expect("a write");
        assert!(nodes.hand_over(taken).is_ok());
        let taken = all[2].take_writes().pop().expect("the write");
        all[1..].iter().for_each(|node| node.note_refusal());
        assert!(nodes.hand_over(taken).is_err());
    }
}
