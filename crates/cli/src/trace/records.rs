//! What the agents tell, put together into the records of a trace.
//!
//! An agent tells that a page came and, later, how it was when it left; a trace has one record
//! of both, in the order in which the pages of a process came. So a record waits until all
//! before it are whole. Of several processes each has its own order, and their records are
//! mixed in the order in which they became whole: those of a process that sleeps come late.
//!
//! Invariants: each process has a number of its own as long as it is there; what waits is bounded by
//! [`WAITING_MAX`] for each process, beyond which the oldest record goes out as far as it is known.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, Write};

use libc::pid_t;
use zpager_sim::trace::{self, PROCESS_SHIFT, Reference, Writer};
use zpager_wire::{Contents, Message};

/// Most records of a process that wait.
const WAITING_MAX: usize = 1 << 16;
/// Pages of a process, none of which is left when it ends.
const PROCESS_PAGES: u64 = 1 << PROCESS_SHIFT;

/// A record that waits.
#[derive(Debug)]
enum Waiting {
    /// A page that came, and whether it was written and what it was when it left.
    Reference { page: u64, is_fresh: bool, left: Option<(bool, Contents)> },
    /// Pages that were given back.
    Release { first: u64, pages: u64 },
}

/// What is known of a process.
#[derive(Debug)]
struct Process {
    /// Its number in the trace.
    number: u16,
    waiting: VecDeque<Waiting>,
}

/// How much was recorded.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    /// References.
    pub(super) references: u64,
    /// Those of them to pages that came fresh.
    pub(super) fresh: u64,
    /// Programs and forked children.
    pub(super) processes: u64,
}

/// Writes what the agents tell.
#[derive(Debug)]
pub(super) struct Records<W> {
    writer: Writer<W>,
    processes: BTreeMap<pid_t, Process>,
    numbers: BTreeSet<u16>,
    next_number: u16,
    counts: Counts,
}

impl<W: Write> Records<W> {
    /// Of no process yet.
    pub(super) fn new(writer: Writer<W>) -> Self {
        Records {
            writer,
            processes: BTreeMap::new(),
            numbers: BTreeSet::new(),
            next_number: 0,
            counts: Counts::default(),
        }
    }

    /// What was written so far.
    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// The processes that have not ended, each with its number.
    pub(super) fn processes(&self) -> Vec<(pid_t, u16)> {
        self.processes.iter().map(|(&pid, process)| (pid, process.number)).collect()
    }

    /// Takes what process `pid` tells.
    ///
    /// # Errors
    /// What could not be written, or more processes at a time than there are numbers.
    pub(super) fn take(&mut self, pid: pid_t, message: Message) -> io::Result<()> {
        if message == Message::Began {
            self.end(pid)?;
        }
        if !self.processes.contains_key(&pid) {
            let number = self.free_number().ok_or_else(|| {
                io::Error::other("more processes at a time than a trace has numbers for")
            })?;
            let process = Process { number, waiting: VecDeque::new() };
            self.processes.insert(pid, process);
            self.counts.processes += 1;
        }
        let process = self.processes.get_mut(&pid).expect("inserted where it was missing");
        match message {
            Message::Began => {}
            Message::Ended => return self.end(pid),
            Message::Came { page, is_fresh } => process.came(page, is_fresh),
            Message::Left { page, is_written, contents } => {
                process.left(page, (is_written, contents));
            }
            Message::Released { first, pages } => process.released(first, pages),
        }
        process.write_whole(&mut self.writer, &mut self.counts)
    }

    /// The lowest number from the last one on that no process has.
    fn free_number(&mut self) -> Option<u16> {
        let mut numbers = (0..=u16::MAX).map(|step| self.next_number.wrapping_add(step));
        let number = numbers.find(|number| !self.numbers.contains(number))?;
        self.numbers.insert(number);
        self.next_number = number.wrapping_add(1);
        Some(number)
    }

    /// Process `pid` is over: what waits goes out as far as it is known, and it has no pages any more.
    ///
    /// # Errors
    /// What could not be written.
    pub(super) fn end(&mut self, pid: pid_t) -> io::Result<()> {
        let Some(mut process) = self.processes.remove(&pid) else { return Ok(()) };
        self.numbers.remove(&process.number);
        process.released(0, PROCESS_PAGES);
        process.write_whole(&mut self.writer, &mut self.counts)
    }

    /// Ends every process and the trace; gives what it was written to.
    ///
    /// # Errors
    /// What could not be written.
    pub(super) fn finish(mut self) -> io::Result<(W, Counts)> {
        for (pid, _) in self.processes() {
            self.end(pid)?;
        }
        Ok((self.writer.finish()?, self.counts))
    }
}

impl Process {
    fn came(&mut self, page: u64, is_fresh: bool) {
        self.waiting.push_back(Waiting::Reference { page, is_fresh, left: None });
    }

    fn left(&mut self, page: u64, how: (bool, Contents)) {
        let stays = self.waiting.iter_mut().find_map(|waiting| match waiting {
            Waiting::Reference { page: of, left, .. } if *of == page && left.is_none() => {
                Some(left)
            }
            _ => None,
        });
        match stays {
            Some(left) => *left = Some(how),
            // The record of its coming could not wait any longer.
            None => {
                let reference = Waiting::Reference { page, is_fresh: false, left: Some(how) };
                self.waiting.push_back(reference);
            }
        }
    }

    /// What is given back while it is in the window never leaves it.
    fn released(&mut self, first: u64, pages: u64) {
        for waiting in &mut self.waiting {
            if let Waiting::Reference { page, left: left @ None, .. } = waiting
                && page.checked_sub(first).is_some_and(|at| at < pages)
            {
                *left = Some((false, Contents::Unchanged));
            }
        }
        self.waiting.push_back(Waiting::Release { first, pages });
    }

    /// Writes the oldest records, up to one that is not whole.
    fn write_whole<W: Write>(
        &mut self,
        writer: &mut Writer<W>,
        counts: &mut Counts,
    ) -> io::Result<()> {
        let base = u64::from(self.number) << PROCESS_SHIFT;
        loop {
            let is_full = self.waiting.len() > WAITING_MAX;
            match self.waiting.front() {
                Some(&Waiting::Release { first, pages }) => writer.release(base + first, pages)?,
                Some(&Waiting::Reference { page, is_fresh, left }) if left.is_some() || is_full => {
                    let (is_written, contents) = left.unwrap_or((false, Contents::Unchanged));
                    let contents = match &contents {
                        Contents::Unchanged => trace::Contents::Unchanged,
                        Contents::SameFilled => trace::Contents::SameFilled,
                        Contents::Sizes(sizes) => trace::Contents::Sizes(sizes.as_slice()),
                    };
                    let page = base + page;
                    writer.reference(&Reference { page, is_fresh, is_written, contents })?;
                    counts.references += 1;
                    counts.fresh += u64::from(is_fresh);
                }
                _ => return Ok(()),
            }
            self.waiting.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zpager_sim::trace::{Event, Header, Reader};
    use zpager_wire::Sizes;

    fn records() -> Records<Vec<u8>> {
        let header = Header {
            page_bytes: 4096,
            window_pages: 8,
            origin: String::new(),
            command: Vec::new(),
            codecs: vec!["lz4".into()],
        };
        Records::new(Writer::new(Vec::new(), &header).expect("a header"))
    }

    /// Ends the trace and gives each record in a line.
    fn lines(records: Records<Vec<u8>>) -> Vec<String> {
        let (bytes, _) = records.finish().expect("written");
        let mut reader = Reader::new(&bytes[..]).expect("a trace");
        let mut lines = Vec::new();
        while let Some(event) = reader.next_event().expect("a record") {
            lines.push(match event {
                Event::Release { first, pages } => {
                    format!("{} release {:x} {pages:x}", first >> 36, first & ((1 << 36) - 1))
                }
                Event::Reference(Reference { page, is_fresh, is_written, contents }) => format!(
                    "{} {:x} {}{}{contents:?}",
                    page >> 36,
                    page & ((1 << 36) - 1),
                    if is_fresh { "fresh " } else { "" },
                    if is_written { "written " } else { "" },
                ),
            });
        }
        lines
    }

    fn came(page: u64, is_fresh: bool) -> Message {
        Message::Came { page, is_fresh }
    }

    fn left(page: u64, size: u16) -> Message {
        let contents = Contents::Sizes(Sizes::of(&[size], |_, size| size));
        Message::Left { page, is_written: true, contents }
    }

    fn take_all(records: &mut Records<Vec<u8>>, messages: &[(pid_t, Message)]) {
        for &(pid, message) in messages {
            records.take(pid, message).expect("written");
        }
    }

    #[test]
    fn records_are_in_the_order_in_which_pages_came() {
        let mut records = records();
        let messages = [Message::Began, came(1, true), came(2, false), left(2, 20), left(1, 10)];
        take_all(&mut records, &messages.map(|message| (7, message)));
        let expected =
            ["0 1 fresh written Sizes([10])", "0 2 written Sizes([20])", "0 release 0 1000000000"];
        assert_eq!(lines(records), expected);
    }

    #[test]
    fn what_is_given_back_waits_for_what_came_before() {
        let mut records = records();
        let released = Message::Released { first: 2, pages: 1 };
        let messages =
            [came(1, false), came(2, true), released, came(2, true), left(1, 10), left(2, 20)];
        take_all(&mut records, &messages.map(|message| (7, message)));
        let expected = [
            "0 1 written Sizes([10])",
            "0 2 fresh Unchanged",
            "0 release 2 1",
            "0 2 fresh written Sizes([20])",
            "0 release 0 1000000000",
        ];
        assert_eq!(lines(records), expected);
    }

    #[test]
    fn processes_have_numbers_and_give_them_back() {
        let mut records = records();
        take_all(
            &mut records,
            &[
                (5, Message::Began),
                (6, Message::Began),
                (6, came(9, true)),
                (5, came(9, true)),
                (5, left(9, 1)),
                (5, Message::Ended),
                (6, Message::Began),
                (6, came(8, true)),
            ],
        );
        assert_eq!(records.processes(), [(6, 2)]);
        assert_eq!(records.counts().processes, 3);
        let expected = [
            "0 9 fresh written Sizes([1])",
            "0 release 0 1000000000",
            "1 9 fresh Unchanged",
            "1 release 0 1000000000",
            "2 8 fresh Unchanged",
            "2 release 0 1000000000",
        ];
        assert_eq!(lines(records), expected);
    }

    #[test]
    fn a_number_in_use_is_not_given_again() {
        let mut records = records();
        records.take(1, Message::Began).expect("written");
        records.next_number = u16::MAX;
        take_all(&mut records, &[(2, Message::Began), (3, Message::Began)]);
        assert_eq!(records.processes(), [(1, 0), (2, u16::MAX), (3, 1)]);
    }

    #[test]
    fn there_is_no_number_for_one_more() {
        let mut records = records();
        records.numbers = (0..=u16::MAX).collect();
        assert!(records.take(1, Message::Began).is_err());
        records.numbers.remove(&70);
        records.take(1, Message::Began).expect("written");
        assert_eq!(records.processes(), [(1, 70)]);
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut records = records();
        let pages = WAITING_MAX as u64 + 10;
        for page in 0..pages {
            records.take(7, came(page, false)).expect("written");
        }
        assert_eq!(records.processes[&7].waiting.len(), WAITING_MAX);
        records.take(7, left(0, 33)).expect("written");
        let lines = lines(records);
        assert_eq!(lines.len() as u64, pages + 2);
        assert_eq!(lines[0], "0 0 Unchanged");
        assert_eq!(lines[pages as usize], "0 0 written Sizes([33])");
    }
}
