//! Processes of the run that want the supervisor to look after them: one is about to run another program, or has
//! asked a relative that it cannot signal.
//!
//! Each says so through the control block ([`Control::calls`]). The supervisor's thread sleeps until a
//! signal comes, so another thread sleeps on that count and signals it.
//!
//! Invariant: a change of the count is told of after it was made; several may be told of at once.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::thread;

use zpager_sys::{futex, process};
use zpager_wire::Control;

use super::signals;

/// Longest sleep: the count wakes, not the time.
const SLEEP_NS: u64 = 3_600_000_000_000;
/// The stack of a thread that calls nothing deep.
const STACK_BYTES: usize = 64 << 10;

/// Does `work`, which waits for signals in this thread, and tells it of calls meanwhile.
pub(super) fn during<T>(control: &Control, work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    let waiting = process::tid();
    thread::scope(|scope| {
        let teller = thread::Builder::new().stack_size(STACK_BYTES);
        // Where there can be no thread, what is executed is come upon by and by.
        let _ = teller.spawn_scoped(scope, || tell(control, &is_over, waiting));
        let _end = End { control, is_over: &is_over };
        work()
    })
}

/// The end of the work, also by a panic.
struct End<'a> {
    control: &'a Control,
    is_over: &'a AtomicBool,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        self.control.call_supervisor();
    }
}

/// Signals thread `waiting` until the work is over.
fn tell(control: &Control, is_over: &AtomicBool, waiting: i32) {
    let mut seen = 0;
    loop {
        let count = control.calls.load(Acquire);
        if is_over.load(Relaxed) {
            return;
        }
        if count != seen {
            signals::tell_of_call(waiting);
        }
        seen = count;
        futex::wait(&control.calls, seen, SLEEP_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::super::signals::{Signals, is_call};
    use super::*;
    use std::time::Duration;
    use zpager_wire::Settings;

    #[test]
    fn what_is_executed_is_told_of_and_what_is_over_ends() {
        let control = Control::new(Settings::NONE);
        let signals = Signals::block();
        let told = during(&control, || {
            control.call_supervisor();
            signals.wait(Duration::from_secs(60))
        });
        assert!(told.is_some_and(|info| is_call(&info)));
        signals.restore();
    }
}
