//! What is told on standard error: nobody has to read it, and nothing waits for it.
//!
//! Source: poll(2), by which a pipe that takes one more page, or a terminal that is not stopped, is
//! told from others; pipe(7), a write of at most `PIPE_BUF` bytes to such a pipe does not block.
//!
//! Invariant: a line that cannot be written is dropped. Neither a program nor a device depends on it. What
//! names come in is shown as one line, whatever characters they have: a terminal takes no orders from them.

use std::fmt::Display;
use std::io::stderr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

/// How long whoever reads a full pipe may take to make room.
const PATIENCE: Duration = Duration::from_millis(50);
/// So much is written at once (`PIPE_BUF`).
const PIECE_BYTES: usize = 4096;

/// Nobody made room the last time, and is not waited for again.
static IS_STUCK: AtomicBool = AtomicBool::new(false);

/// Tells a line, which is zpager's.
pub fn tell(line: impl Display) {
    write(&format!("zpager: {}\n", shown(&line.to_string())));
}

/// A line as it can be shown: with escapes in place of control characters.
fn shown(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    for character in line.chars() {
        match character.is_control() {
            true => shown.extend(character.escape_default()),
            false => shown.push(character),
        }
    }
    shown
}

/// Writes `text` as far as standard error takes it.
pub fn write(text: &str) {
    let mut rest = text.as_bytes();
    while !rest.is_empty() && takes_more() {
        let piece = &rest[..rest.len().min(PIECE_BYTES)];
        let Ok(written @ 1..) = retry_on_intr(|| rustix::io::write(stderr(), piece)) else {
            return;
        };
        rest = &rest[written..];
    }
}

/// Whether a write does not block, or will not any more soon.
fn takes_more() -> bool {
    let patience = if IS_STUCK.load(Relaxed) { Duration::ZERO } else { PATIENCE };
    let patience = Timespec::try_from(patience).expect("a short time");
    let stderr = stderr();
    let mut asked = [PollFd::new(&stderr, PollFlags::OUT)];
    // What cannot be asked is tried.
    let takes = retry_on_intr(|| poll(&mut asked, Some(&patience))) != Ok(0);
    IS_STUCK.store(!takes, Relaxed);
    takes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        let table = [
            ("", ""),
            ("a name: what is wrong", "a name: what is wrong"),
            ("näme \\ \"quoted\"", "näme \\ \"quoted\""),
            ("two\nlines\r\n", "two\\nlines\\r\\n"),
            ("\x1b[31mred\x7f\u{9b}2J", "\\u{1b}[31mred\\u{7f}\\u{9b}2J"),
        ];
        for (line, expected) in table {
            assert_eq!(shown(line), expected);
        }
    }
}
