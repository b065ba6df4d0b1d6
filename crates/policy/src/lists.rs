//! Which compressed pages are there only because they are compressed.
//!
//! Source: castro (2003), 3 and figure 4. Without a compressed cache the RAM that it takes would
//! hold pages as they are: the youngest of those it keeps, as many as it takes pages of RAM. They
//! are the expense list: they would not have been missed. All older ones are the profit list: they
//! would have been read from the store. Both follow the order in which pages were compressed, so
//! one border tells them apart.
//!
//! A page has one bit, [`List`], kept beside its entry by whoever keeps the order, so that a read
//! knows its list at once. When pages come or leave, or the pool takes more or less RAM, the
//! border moves by as many pages, whose bits change; at most [`MOVES_MAX`] at a time, so that a
//! fault never waits for all of them.
//!
//! Invariants: every page in the order before the border is in the profit list, every other one
//! in the expense list, of which there are `expense_pages`.
//!
//! Cost: a step to a neighbour in the order and one changed entry for each page by which the
//! border moves.
//!
//! Bad case: pools whose RAM grows and shrinks by much at once, which the border follows late.

/// Most pages by which the border moves at a time.
pub const MOVES_MAX: usize = 64;

/// What a page is counted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// Without compression it would be resident.
    Expense,
    /// Without compression it would be in the store.
    Profit,
}

/// The compressed pages in the order in which they came, each at a position. Positions grow with
/// every page, and have gaps where pages have left.
pub trait Line {
    /// Position of the youngest page before `position`.
    fn before(&self, position: u64) -> Option<u64>;
    /// Position of the oldest page at `position` or after it.
    fn at_or_after(&self, position: u64) -> Option<u64>;
    /// Notes the list of the page at `position`.
    fn set_list(&mut self, position: u64, list: List);
}

/// The border between the two lists.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lists {
    /// The position at which the expense list begins.
    border: u64,
    expense_pages: usize,
}

impl Lists {
    /// Notes a page at the young end of the line; its list is the one given.
    pub fn entered(&mut self) -> List {
        self.expense_pages += 1;
        List::Expense
    }

    /// Notes that a page left the line, whose list was `list`.
    pub fn left(&mut self, list: List) {
        if list == List::Expense {
            self.expense_pages -= 1;
        }
    }

    /// Pages in the expense list.
    pub fn expense_pages(&self) -> usize {
        self.expense_pages
    }

    /// Where the expense list begins.
    pub fn border(&self) -> u64 {
        self.border
    }

    /// Notes that positions were given out anew, and where the border is now.
    pub fn renumbered(&mut self, border: u64) {
        self.border = border;
    }

    /// Moves the border towards where it should be for a pool that takes `pool_bytes` of RAM.
    pub fn settle(&mut self, line: &mut impl Line, pool_bytes: usize) {
        let wanted = pool_bytes / crate::shares::PAGE_BYTES;
        for _ in 0..MOVES_MAX {
            let moved = match self.expense_pages {
                pages if pages > wanted => self.give_oldest(line),
                pages if pages < wanted => self.take_youngest(line),
                _ => return,
            };
            if !moved {
                return;
            }
        }
    }

    /// Makes the oldest page of the expense list the youngest of the profit list.
    fn give_oldest(&mut self, line: &mut impl Line) -> bool {
        let Some(oldest) = line.at_or_after(self.border) else { return false };
        line.set_list(oldest, List::Profit);
        self.border = oldest + 1;
        self.expense_pages -= 1;
        true
    }

    /// Makes the youngest page of the profit list the oldest of the expense list.
    fn take_youngest(&mut self, line: &mut impl Line) -> bool {
        let Some(youngest) = line.before(self.border) else { return false };
        line.set_list(youngest, List::Expense);
        self.border = youngest;
        self.expense_pages += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    impl Line for BTreeMap<u64, List> {
        fn before(&self, position: u64) -> Option<u64> {
            self.range(..position).next_back().map(|(&at, _)| at)
        }
        fn at_or_after(&self, position: u64) -> Option<u64> {
            self.range(position..).next().map(|(&at, _)| at)
        }
        fn set_list(&mut self, position: u64, list: List) {
            *self.get_mut(&position).expect("a page is there") = list;
        }
    }

    /// Figure 4: of eight pages in the RAM of three, the youngest three are expense.
    #[test]
    fn as_many_of_the_youngest_as_the_pool_takes_pages_are_expense() {
        let (mut lists, mut line) = (Lists::default(), BTreeMap::new());
        for position in 0..8 {
            line.insert(position, lists.entered());
        }
        lists.settle(&mut line, 3 * 4096);
        let expense: std::vec::Vec<u64> =
            line.iter().filter(|(_, list)| **list == List::Expense).map(|(&at, _)| at).collect();
        assert_eq!(expense, [5, 6, 7]);
    }

    #[derive(Debug, Clone)]
    enum Change {
        Enter,
        Leave(usize),
        Ram(usize),
        Renumber,
    }

    fn changes() -> impl Strategy<Value = Change> {
        prop_oneof![
            4 => Just(Change::Enter),
            3 => any::<usize>().prop_map(Change::Leave),
            2 => (0usize..40).prop_map(Change::Ram),
            1 => Just(Change::Renumber),
        ]
    }

    proptest! {
        #[test]
        fn the_lists_are_those_of_a_sorted_line(
            changes in prop::collection::vec(changes(), 1..300),
        ) {
            let (mut lists, mut line) = (Lists::default(), BTreeMap::new());
            let (mut next, mut pages) = (0, 0);
            for change in changes {
                match change {
                    Change::Enter => {
                        line.insert(next, lists.entered());
                        next += 1;
                    }
                    Change::Leave(which) => {
                        let at = line.keys().nth(which % line.len().max(1)).copied();
                        if let Some(list) = at.and_then(|at| line.remove(&at)) {
                            lists.left(list);
                        }
                    }
                    Change::Ram(to) => pages = to,
                    Change::Renumber => {
                        let border = line.range(..lists.border()).count() as u64;
                        line = (0..).zip(line.into_values()).collect();
                        next = line.len() as u64;
                        lists.renumbered(border);
                    }
                }
                lists.settle(&mut line, pages * 4096 + 4095);
                let expense = line.len().min(pages);
                prop_assert_eq!(lists.expense_pages(), expense);
                for (rank, list) in line.values().rev().enumerate() {
                    prop_assert_eq!(*list == List::Expense, rank < expense);
                }
            }
        }
    }
}
