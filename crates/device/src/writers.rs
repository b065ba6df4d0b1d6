//! Which parts of a disk are being written, so that what is read meanwhile is not taken for what is
//! there.
//!
//! Invariant: of a [`Ticket`] that still holds, no write to its blocks was going on when it was given
//! and none has begun since; so what was read after that is what the disk has.
//!
//! Blocks of which a group is 16 share a counter with those of other groups. A ticket that is refused
//! for another group's sake costs a block that is not kept, and nothing else.

use std::ops::Range;

/// Blocks of a group.
const GROUP_BLOCKS: u64 = 16;
/// Counters.
const COUNTERS: usize = 1024;
/// Counters of the blocks of one piece.
const TICKET_COUNTERS: usize = 2;

#[derive(Debug, Clone, Copy, Default)]
struct Counter {
    /// Writes that are going on.
    active: u32,
    /// Writes that ever began.
    begun: u32,
}

/// The counters.
#[derive(Debug)]
pub(crate) struct Writers {
    counters: Box<[Counter]>,
}

/// How often the blocks of a piece had been written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket([u32; TICKET_COUNTERS]);

impl Writers {
    /// RAM that they take.
    pub(crate) const BYTES: usize = COUNTERS * size_of::<Counter>();

    /// Nothing is written.
    pub(crate) fn new() -> Self {
        Writers { counters: vec![Counter::default(); COUNTERS].into_boxed_slice() }
    }

    fn numbers(blocks: &Range<u64>) -> impl Iterator<Item = usize> + use<> {
        let groups = blocks.start / GROUP_BLOCKS..blocks.end.div_ceil(GROUP_BLOCKS);
        groups.map(|group| group as usize % COUNTERS)
    }

    /// A ticket for the blocks of a piece, unless they are being written.
    pub(crate) fn ticket(&self, blocks: &Range<u64>) -> Option<Ticket> {
        let is_quiet = Self::numbers(blocks).all(|number| self.counters[number].active == 0);
        is_quiet.then(|| self.begun(blocks))
    }

    fn begun(&self, blocks: &Range<u64>) -> Ticket {
        let mut ticket = Ticket([0; TICKET_COUNTERS]);
        for (begun, number) in ticket.0.iter_mut().zip(Self::numbers(blocks)) {
            *begun = self.counters[number].begun;
        }
        ticket
    }

    /// Whether a ticket of these blocks still holds.
    pub(crate) fn holds(&self, ticket: Option<Ticket>, blocks: &Range<u64>) -> bool {
        ticket.is_some() && self.ticket(blocks) == ticket
    }

    /// Notes that a write begins; of one to a piece gives the ticket that holds after its end if there
    /// was no other one at the same time.
    pub(crate) fn begin(&mut self, blocks: &Range<u64>) -> Option<Ticket> {
        let is_alone = self.ticket(blocks).is_some();
        for number in Self::numbers(blocks) {
            let counter = &mut self.counters[number];
            counter.active += 1;
            counter.begun = counter.begun.wrapping_add(1);
        }
        is_alone.then(|| self.begun(blocks))
    }

    /// Notes that a write has ended.
    pub(crate) fn end(&mut self, blocks: &Range<u64>) {
        for number in Self::numbers(blocks) {
            self.counters[number].active -= 1;
        }
    }

    /// Has no ticket hold that was given so far.
    pub(crate) fn void_all(&mut self) {
        for counter in &mut self.counters {
            counter.begun = counter.begun.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_holds_until_a_write_begins() {
        let mut writers = Writers::new();
        let (here, there) = (10..26, 40..41);
        let ticket = writers.ticket(&here);
        assert!(writers.holds(ticket, &here));
        writers.begin(&there);
        assert!(writers.holds(ticket, &here) && writers.ticket(&there).is_none());
        writers.begin(&(16..17));
        assert!(!writers.holds(ticket, &here) && writers.ticket(&here).is_none());
        writers.end(&(16..17));
        assert!(!writers.holds(ticket, &here), "it was written since");
        assert!(writers.holds(writers.ticket(&here), &here));
        writers.end(&there);
        let ticket = writers.ticket(&there);
        writers.void_all();
        assert!(!writers.holds(ticket, &there) && !writers.holds(None, &there));
    }

    #[test]
    fn a_long_write_is_counted_as_often_where_it_ends() {
        let mut writers = Writers::new();
        let all = 5..5 + 3 * COUNTERS as u64 * GROUP_BLOCKS;
        writers.begin(&all);
        assert!((0..COUNTERS).all(|at| writers.counters[at].active >= 3));
        writers.end(&all);
        assert!((0..COUNTERS).all(|at| writers.counters[at].active == 0));
    }

    #[test]
    fn of_two_writes_at_a_time_neither_was_alone() {
        let mut writers = Writers::new();
        let blocks = 3..4;
        let first = writers.begin(&blocks);
        assert!(first.is_some() && writers.begin(&blocks).is_none());
        writers.end(&blocks);
        assert!(!writers.holds(first, &blocks), "one goes on");
        writers.end(&blocks);
        assert!(!writers.holds(first, &blocks), "another one began after it");
        let next = writers.begin(&blocks);
        writers.end(&blocks);
        assert!(writers.holds(next, &blocks));
    }
}
