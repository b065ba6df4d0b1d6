//! A recording while the program runs: the ring is emptied into the trace now and then, often
//! enough that agents seldom find it full.

use std::cell::Cell;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use libc::pid_t;
use zpager_sim::trace::{Header, Writer};
use zpager_wire::Messages;

use super::output::Output;
use super::progress::Progress;
use super::records::Records;
use crate::failure::{Failure, OrFail};
use crate::run::supervisor::is_gone;

/// Between two looks into the ring: a small part of the time in which agents fill it.
const INTERVAL: Duration = Duration::from_millis(2);

/// Between two looks for processes that ended without a word.
const ENDS_INTERVAL: Duration = Duration::from_millis(250);

/// Messages taken before anything else is looked at.
const MESSAGES_MAX: u32 = 1 << 16;

/// A trace in the making.
#[derive(Debug)]
pub(crate) struct Recording<'a> {
    messages: Messages<'a>,
    file: &'a Path,
    /// Until something could not be written, or read.
    records: Result<Records<Output>, Failure>,
    written_bytes: Rc<Cell<u64>>,
    progress: Progress,
    ends_due: Instant,
    /// Who was writing when it was last looked.
    owner: Option<pid_t>,
}

impl<'a> Recording<'a> {
    /// Makes the file and writes its header.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn begin(
        messages: Messages<'a>,
        file: &'a Path,
        header: &Header,
        quiet: bool,
    ) -> Result<Self, Failure> {
        let written_bytes = Rc::new(Cell::new(0));
        let writer = Output::create(file, written_bytes.clone())
            .and_then(|output| Writer::new(output, header))
            .map_err(|error| Failure::arguments(refusal(file, &error)))?;
        Ok(Recording {
            messages,
            file,
            records: Ok(Records::new(writer)),
            written_bytes,
            progress: Progress::new(quiet),
            ends_due: Instant::now() + ENDS_INTERVAL,
            owner: None,
        })
    }

    /// Takes what the agents told; gives the time until it is to be called again.
    pub(crate) fn step(&mut self) -> Duration {
        self.free_ring();
        if Instant::now() >= self.ends_due {
            self.end_processes();
            self.ends_due = Instant::now() + ENDS_INTERVAL;
        }
        let is_more = self.take_all();
        if let Ok(records) = &self.records {
            self.progress.step(records.counts(), self.written_bytes.get());
        }
        if is_more { Duration::ZERO } else { INTERVAL }
    }

    /// Takes what is in the ring, as long as the trace can be written; gives whether there is more.
    fn take_all(&mut self) -> bool {
        for _ in 0..MESSAGES_MAX {
            let Ok(records) = &mut self.records else { return false };
            let taken = match self.messages.take() {
                Ok(None) => return false,
                Ok(Some((pid, message))) => {
                    records.take(pid, message).map_err(|error| refusal(self.file, &error))
                }
                Err(_) => Err("the program has written over what zpager shares with it".to_owned()),
            };
            if let Err(why) = taken {
                self.give_up(why);
            }
        }
        true
    }

    /// Nothing more is recorded; the program goes on.
    fn give_up(&mut self, why: String) {
        self.messages.close();
        self.records = Err(Failure::own(format!("no trace was recorded: {why}")));
    }

    /// Frees the ring of a process that was killed while it wrote.
    fn free_ring(&mut self) {
        let owner = self.messages.owner();
        if let Some(pid) = owner
            && owner == self.owner
            && is_gone(pid)
        {
            self.messages.disown(pid);
        }
        self.owner = owner;
    }

    /// Notes which processes ended without a word, after all that they told.
    fn end_processes(&mut self) {
        let Ok(records) = &self.records else { return };
        let gone: Vec<_> =
            records.processes().into_iter().filter(|(pid, _)| is_gone(*pid)).collect();
        if gone.is_empty() {
            return;
        }
        while self.take_all() {}
        let Ok(records) = &mut self.records else { return };
        let now = records.processes();
        // Another may have the id by now, which has begun then.
        let ends = gone.into_iter().filter(|one| now.contains(one));
        let outcome: io::Result<()> = ends.map(|(pid, _)| pid).try_for_each(|pid| records.end(pid));
        if let Err(error) = outcome {
            self.give_up(refusal(self.file, &error));
        }
    }

    /// The program has ended: takes the rest and gives the file its name.
    ///
    /// # Errors
    /// The trace could not be written, and there is no file.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        self.messages.close();
        while self.take_all() {}
        let (output, counts) =
            self.records?.finish().or_fail(format_args!("--output {}", self.file.display()))?;
        output.keep().or_fail(format_args!("--output {}", self.file.display()))?;
        self.progress.finish(counts, self.written_bytes.get(), self.file);
        Ok(())
    }
}

fn refusal(file: &Path, error: &io::Error) -> String {
    let file = file.display();
    format!("--output {file}: {error}: give a file in a directory with room that can be written")
}
