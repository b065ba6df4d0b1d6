//! How far a recording has come: a line on stderr that is written over on a terminal, and one every
//! few seconds elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use super::records::Counts;
use crate::size;
use crate::stderr;

/// Between two lines on a terminal, and elsewhere.
const TERMINAL_INTERVAL: Duration = Duration::from_millis(500);
const LINES_INTERVAL: Duration = Duration::from_secs(5);

/// Has a terminal forget the line that it shows.
const OVER: &str = "\r\x1b[K";

/// Where the lines go, and when the next is due.
#[derive(Debug)]
pub(super) struct Progress {
    quiet: bool,
    is_terminal: bool,
    began: Instant,
    due: Instant,
}

impl Progress {
    /// From now on; nothing is told if `quiet`.
    pub(super) fn new(quiet: bool) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let began = Instant::now();
        Progress { quiet, is_terminal, began, due: began + interval(is_terminal) }
    }

    /// Tells how far it has come, if that is due.
    pub(super) fn step(&mut self, counts: Counts, written_bytes: u64) {
        let now = Instant::now();
        if self.quiet || now < self.due {
            return;
        }
        self.due = now + interval(self.is_terminal);
        let line = line(counts, written_bytes, now - self.began);
        match self.is_terminal {
            true => stderr::write(&format!("{OVER}zpager: {line}")),
            false => stderr::tell(line),
        }
    }

    /// Tells what was recorded.
    pub(super) fn finish(&self, counts: Counts, written_bytes: u64, file: &std::path::Path) {
        if self.quiet {
            return;
        }
        if self.is_terminal {
            stderr::write(OVER);
        }
        let line = line(counts, written_bytes, self.began.elapsed());
        stderr::tell(format_args!("{line}, in {}", file.display()));
    }
}

fn interval(is_terminal: bool) -> Duration {
    if is_terminal { TERMINAL_INTERVAL } else { LINES_INTERVAL }
}

fn line(counts: Counts, written_bytes: u64, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64();
    let each_second = counts.references as f64 / seconds.max(0.001);
    let Counts { references, fresh, .. } = counts;
    let written = size::display(written_bytes);
    format!(
        "{seconds:.1} s, {references} references, {each_second:.0} a second, {fresh} pages, {written}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_figures_are_in_the_line() {
        let counts = Counts { references: 3000, fresh: 40, processes: 1 };
        let text = line(counts, 5 << 20, Duration::from_millis(1500));
        assert_eq!(text, "1.5 s, 3000 references, 2000 a second, 40 pages, 5.0 MiB");
    }
}
