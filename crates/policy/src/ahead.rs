//! Fetching ahead of faults that come in order.
//!
//! Source: the window of mm/readahead.c, without its second, asynchronous part:
//! a fault at the page that follows the last window doubles it, any other fault
//! takes it back to one page.
//!
//! Bad case: strides of more than a page.

/// Most pages fetched for one fault.
pub const WINDOW_MAX: usize = 64;

/// What is expected of one stream of faults.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ahead {
    next_page: u64,
    window: usize,
}

impl Ahead {
    /// How many pages to bring in for a fault at `page`.
    pub fn window(&mut self, page: u64) -> usize {
        let in_order = page == self.next_page && self.window > 0;
        self.window = if in_order { (self.window * 2).min(WINDOW_MAX) } else { 1 };
        self.window
    }

    /// Notes that `pages` pages from `page` on are there now.
    pub fn fetched(&mut self, page: u64, pages: usize) {
        self.next_page = page + pages as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_doubles_in_order_and_collapses_otherwise() {
        let mut ahead = Ahead::default();
        let mut page = 100;
        for expected in [1, 2, 4, 8, 16, 32, 64, 64] {
            assert_eq!(ahead.window(page), expected);
            ahead.fetched(page, expected);
            page += expected as u64;
        }
        assert_eq!(ahead.window(7), 1);
    }

    #[test]
    fn a_window_cut_short_goes_on_from_where_it_ended() {
        let mut ahead = Ahead::default();
        assert_eq!(ahead.window(10), 1);
        ahead.fetched(10, 1);
        assert_eq!(ahead.window(11), 2);
        ahead.fetched(11, 1);
        assert_eq!(ahead.window(12), 4);
    }
}
