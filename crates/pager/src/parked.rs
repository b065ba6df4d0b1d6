//! Signals of ours that were sent to the program while it blocks them.
//!
//! They are in no thread's real mask, so the kernel delivers what the program
//! believes to be blocked. It is parked here until a thread of the program
//! unblocks it, waits for it ([`calls::waits`](crate::calls)) or reads it from a
//! descriptor ([`calls::signal_fds`](crate::calls)): one of each kind for the
//! process and one for each thread, as the kernel keeps them. What is sent to the
//! process comes in whichever thread the kernel chose; where another one can take
//! it, that is called with a SIGURG of ours. Before another program begins it is
//! given back to the kernel, which keeps it for that one.
//!
//! Source: signal(7); kernel/signal.c of Linux (`complete_signal`, `legacy_queue`).
//!
//! Bad case: what pthread_sigqueue(3) sends to one thread counts as the process's,
//! as nothing in it says whose it is.

use core::sync::atomic::Ordering::Relaxed;

use zpager_sys::signal::{
    self, Context, Info, Mask, SI_TKILL, SIGBUS, SIGSEGV, SIGSYS, SIGURG, is_ours, only, ours,
};
use zpager_wire::CALL_THREAD;

use crate::process::Process;
use crate::threads::Thread;

/// All that may be ours, in the order in which the kernel gives them out.
const KINDS: [u32; 4] = [SIGBUS, SIGSEGV, SIGSYS, SIGURG];

/// Those that are.
pub(crate) fn kinds() -> impl Iterator<Item = u32> {
    KINDS.into_iter().filter(|&signal| is_ours(signal))
}

/// What tells descriptors for signals that something is parked: the highest real-time signal,
/// blocked for real in every thread ([`calls::signal_fds`](crate::calls)).
pub(crate) const CARRIER: u32 = 64;

/// At most one signal of each kind.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    infos: [Option<Info>; KINDS.len()],
}

impl Parked {
    /// Which there are.
    pub(crate) fn mask(&self) -> Mask {
        let parked = KINDS.iter().zip(&self.infos).filter(|(_, info)| info.is_some());
        parked.fold(0, |mask, (&signal, _)| mask | only(signal))
    }

    /// Parks a signal, unless one of its kind is there.
    fn put(&mut self, signal: u32, info: &Info) {
        let mut places = KINDS.iter().zip(&mut self.infos);
        if let Some((_, place)) = places.find(|(kind, _)| **kind == signal) {
            place.get_or_insert(*info);
        }
    }

    /// Takes the first of `signals`.
    fn take(&mut self, signals: Mask) -> Option<(u32, Info)> {
        let mut places = KINDS.iter().zip(&mut self.infos);
        places.find_map(|(&kind, place)| match signals & only(kind) {
            0 => None,
            _ => place.take().map(|info| (kind, info)),
        })
    }
}

impl Process {
    /// What the thread would get, did it not block it.
    pub(crate) fn parked_for(&self, thread: &Thread) -> Mask {
        let of_process = if thread.takes_for(self) { self.parked.mask() } else { 0 };
        thread.parked.mask() | of_process
    }

    /// Keeps a signal that came in a thread that blocks it.
    pub(crate) fn park(&mut self, thread: &mut Thread, signal: u32, info: &Info) {
        if info.code == SI_TKILL || !thread.takes_for(self) {
            thread.parked.put(signal, info);
        } else {
            self.parked.put(signal, info);
            let mut others = self.threads.live().filter(|other| other.is_of(self));
            if let Some(taker) = others.find(|other| other.takes(signal)) {
                call(taker);
            }
        }
        self.announce(thread);
    }

    /// Takes the first of `signals` that is parked for the thread.
    pub(crate) fn take_parked(
        &mut self,
        thread: &mut Thread,
        signals: Mask,
    ) -> Option<(u32, Info)> {
        let of_process = if thread.takes_for(self) { signals } else { 0 };
        let taken = thread.parked.take(signals).or_else(|| self.parked.take(of_process));
        if self.fd_signals != 0 && self.parked_for(thread) & self.fd_signals == 0 {
            signal::take(CARRIER);
        }
        taken
    }

    /// Has the kernel keep what is parked and the thread blocks: in truth, once it is back.
    pub(crate) fn unpark(&mut self, thread: &mut Thread) {
        let tid = thread.tid.load(Relaxed).abs();
        while let Some((signal, info)) = thread.parked.take(thread.pretended_mask) {
            signal::send_on(thread.pid, Some(tid), signal, &info);
        }
        let of_process = if thread.takes_for(self) { thread.pretended_mask } else { 0 };
        while let Some((signal, info)) = self.parked.take(of_process) {
            signal::send_on(thread.pid, None, signal, &info);
        }
    }

    /// Delivers what the thread does not block any more, or waits for. Gives whether it goes on elsewhere.
    pub(crate) fn deliver_parked(&mut self, thread: &mut Thread, context: &mut Context) -> bool {
        let mut is_elsewhere = false;
        for signal in kinds() {
            let wanted = !thread.blocked(context).mask | thread.waits_for;
            if let Some((_, info)) = self.take_parked(thread, wanted & only(signal)) {
                is_elsewhere |= self.deliver(thread, &info, false, context);
            }
        }
        is_elsewhere
    }

    /// Has the thread deliver what is parked for it, when it is back in the program, where it does
    /// not block that.
    pub(crate) fn call_for_parked(&self, thread: &Thread) {
        if self.parked_for(thread) & !thread.pretended_mask != 0 {
            call(thread);
        }
    }

    /// The program's mask of our signals.
    pub(crate) fn pretend_mask(&mut self, thread: &mut Thread, mask: Mask) {
        thread.pretended_mask = mask & ours();
        self.call_for_parked(thread);
    }

    /// Has descriptors for signals tell that there is something to read.
    pub(crate) fn announce(&self, thread: &Thread) {
        let is_parked = self.parked_for(thread) & self.fd_signals != 0;
        if is_parked && signal::pending() & only(CARRIER) == 0 {
            // Without it a reader waits for the next one.
            let _ = signal::queue(self.pid, CARRIER, CALL_THREAD);
        }
    }
}

/// Has a thread look at what is parked, or else be interrupted.
pub(crate) fn call(thread: &Thread) {
    signal::queue_for_thread(thread.pid, thread.tid.load(Relaxed), SIGURG, CALL_THREAD);
}

impl Thread {
    /// Whether what is sent to `process` can come in it: also while it is about to end.
    fn takes_for(&self, process: &Process) -> bool {
        self.sharer == process.sharer
    }

    /// Whether it can take a signal that was sent to its process.
    fn takes(&self, signal: u32) -> bool {
        let blocked = self.temporary_mask.unwrap_or(self.pretended_mask);
        (self.waits_for | !blocked) & only(signal) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_each_kind_is_kept_and_the_first_one() {
        let info = |code| Info::of(0, code);
        let mut parked = Parked::default();
        parked.put(SIGURG, &info(1));
        parked.put(SIGURG, &info(2));
        parked.put(SIGBUS, &info(3));
        parked.put(CARRIER, &info(4));
        assert_eq!(parked.mask(), only(SIGURG) | only(SIGBUS));
        assert_eq!(parked.take(only(SIGSYS)).map(|(signal, _)| signal), None);
        let taken = [(); 3].map(|()| parked.take(!0).map(|(signal, info)| (signal, info.code)));
        assert_eq!(taken, [Some((SIGBUS, 3)), Some((SIGURG, 1)), None]);
    }
}
