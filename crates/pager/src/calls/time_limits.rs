//! For how long a call still waits that a signal of the pager's own has ended.
//!
//! Such a call is made again as if nothing had come ([`crate::signals`]). With the time that it was given at
//! first it would begin to wait anew, and never end where relatives ask for room more often. So it is noted when
//! its time is over. What is left then stands in the thread's record, to which the register of the call that is
//! made again points; it ends in the trap, which gives the program its registers back.
//!
//! The kernel itself writes what is left over the time that `select`, `pselect6` and `ppoll` were given, and over
//! that of a `nanosleep` which was told to put it there: such a one gets back what it asked for, as it will see
//! no wait that was cut short. Moments are not times, and a processor's time does not go on while a thread waits.
//!
//! A call about a socket that has a time limit has no place for what is left: that is set for all who use the
//! socket. Made again it waits for all of it, from the first signal of ours on, and is ended by the first one that
//! comes after that, as the kernel would have ended it.
//!
//! Sources: signal(7), socket(7), restart_syscall(2), nanosleep(2).
//!
//! Bad case: such a call on a socket waits for up to twice the time, and until the next signal.

use core::sync::atomic::Ordering::Relaxed;

use zpager_sys::futex::{SECOND_NS, now_ns, time};
use zpager_sys::process;
use zpager_sys::signal::{Context, Registers};
use zpager_sys::syscall::nr;

use super::sandbox::IS_LEAVING;
use super::socket_options::socket_option;
use crate::process::Process;
use crate::stubs::SYSCALL_BYTES;
use crate::threads::Thread;

const MILLISECOND_NS: u64 = 1_000_000;
/// What a `futex` call is about, without its flags.
pub(super) const FUTEX_OPERATION: u32 = 0x7f;
const SO_RCVTIMEO: usize = 20;
const SO_SNDTIMEO: usize = 21;
const EAGAIN: isize = -11;
const EINPROGRESS: isize = -115;

/// `struct timespec`.
type Time = [u64; 2];

/// Where a call is told for how long it waits at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// An argument, in milliseconds.
    Milliseconds(usize),
    /// What an argument points to.
    Time(usize),
}

/// When a call's wait is over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeLimit {
    place: Place,
    until_ns: u64,
    asked: Time,
    /// What the kernel is given when the call is made again.
    left: Time,
}

/// Where the call `number` has its limit, if it has one.
fn place(number: u32, arguments: &[usize; 6]) -> Option<Place> {
    let place = match number {
        nr::__NR_poll => Place::Milliseconds(2),
        nr::__NR_epoll_wait | nr::__NR_epoll_pwait => Place::Milliseconds(3),
        nr::__NR_nanosleep => Place::Time(0),
        nr::__NR_clock_nanosleep if is_passing_time(arguments) => Place::Time(2),
        nr::__NR_rt_sigtimedwait => Place::Time(2),
        nr::__NR_epoll_pwait2 | nr::__NR_semtimedop => Place::Time(3),
        nr::__NR_futex if arguments[1] as u32 & FUTEX_OPERATION == nr::FUTEX_WAIT => Place::Time(3),
        nr::__NR_io_getevents | nr::__NR_io_pgetevents => Place::Time(4),
        _ => return None,
    };
    match place {
        Place::Milliseconds(at) => (arguments[at] as i32 > 0).then_some(place),
        Place::Time(at) => (arguments[at] != 0).then_some(place),
    }
}

/// Which of a socket's times limits the call `number` if it is about one.
fn time_option(number: u32) -> Option<usize> {
    match number {
        nr::__NR_read
        | nr::__NR_readv
        | nr::__NR_recvfrom
        | nr::__NR_recvmsg
        | nr::__NR_recvmmsg
        | nr::__NR_accept
        | nr::__NR_accept4 => Some(SO_RCVTIMEO),
        nr::__NR_write
        | nr::__NR_writev
        | nr::__NR_sendto
        | nr::__NR_sendmsg
        | nr::__NR_sendmmsg
        | nr::__NR_connect => Some(SO_SNDTIMEO),
        _ => None,
    }
}

/// For how long the call `number` about `fd` waits at most, where that is a socket with such a limit.
pub(super) fn socket_limit_ns(number: u32, fd: usize) -> Option<u64> {
    const MICROSECOND_NS: u64 = 1000;
    // A `struct timeval`.
    let [seconds, microseconds] = socket_option::<2>(fd, time_option(number)?)?;
    let limit_ns = seconds.saturating_mul(SECOND_NS).saturating_add(microseconds * MICROSECOND_NS);
    (limit_ns != 0).then_some(limit_ns)
}

/// Whether a `clock_nanosleep` is about some time, not a moment, by a clock that goes on meanwhile.
fn is_passing_time([clock, flags, ..]: &[usize; 6]) -> bool {
    let clocks = [
        nr::CLOCK_REALTIME,
        nr::CLOCK_MONOTONIC,
        nr::CLOCK_BOOTTIME,
        nr::CLOCK_REALTIME_ALARM,
        nr::CLOCK_BOOTTIME_ALARM,
        nr::CLOCK_TAI,
    ];
    *flags as u32 & nr::TIMER_ABSTIME == 0 && clocks.contains(&(*clock as u32))
}

/// Where a call has its time that is told to put what is left of it there.
pub(super) fn slept_in_place(number: u32, arguments: &[usize; 6]) -> Option<usize> {
    let (asked, left) = match number {
        nr::__NR_nanosleep => (arguments[0], arguments[1]),
        nr::__NR_clock_nanosleep => (arguments[2], arguments[3]),
        _ => return None,
    };
    (asked == left).then_some(asked)
}

/// Nanoseconds of a time that the kernel would take and that ends.
fn nanoseconds([seconds, nanoseconds]: Time) -> Option<u64> {
    let whole = seconds.checked_mul(SECOND_NS).filter(|_| nanoseconds < SECOND_NS)?;
    whole.checked_add(nanoseconds)
}

impl Process {
    /// When the wait is over of a call that is about to be made.
    pub(super) fn time_limit(&mut self, thread: &Thread, context: &Context) -> Option<TimeLimit> {
        let arguments = context.registers.arguments();
        let place = place(context.registers.rax as u32, &arguments)?;
        let asked = match place {
            Place::Milliseconds(at) => time(u64::from(arguments[at] as u32) * MILLISECOND_NS),
            Place::Time(at) => {
                self.read_words(thread, context, arguments[at])?.map(|word| word as u64)
            }
        };
        let until_ns = now_ns().checked_add(nanoseconds(asked)?)?;
        Some(TimeLimit { place, until_ns, asked, left: [0; 2] })
    }
}

impl Thread {
    /// Has a call that was ended by a signal of ours, and is about to be made again, wait for no longer than it
    /// was to. `site` is where the program made it, if its registers are as they were.
    pub(crate) fn keep_time(&mut self, context: &mut Context, site: Option<usize>) {
        if IS_LEAVING.load(Relaxed) {
            return self.wait_unwatched(context);
        }
        let is_watched = self.watched.is_some();
        let Some(limit) = &mut self.time_limit else { return };
        let left_ns = limit.until_ns.saturating_sub(now_ns());
        limit.left = time(left_ns);
        let (argument, value) = match limit.place {
            // So that it does not end before.
            Place::Milliseconds(at) => (at, left_ns.div_ceil(MILLISECOND_NS) as usize),
            Place::Time(at) => (at, limit.left.as_ptr() as usize),
        };
        if !is_watched {
            let Some(site) = site else { return };
            context.registers.rip = site;
            self.watch(context);
        }
        self.put_back_time();
        *context.registers.argument_mut(argument) = value;
    }

    /// Ends a call on a socket that was ended by a signal of ours, instead of its being made again, if its time is
    /// over; false where it is not.
    pub(crate) fn end_by_socket_time(&mut self, registers: &mut Registers) -> bool {
        let number = self.call as u32;
        let until_ns = *self.socket_until_ns.get_or_insert_with(|| {
            let limit_ns = socket_limit_ns(number, registers.rdi).unwrap_or(u64::MAX);
            now_ns().saturating_add(limit_ns)
        });
        let is_over = until_ns != u64::MAX && now_ns() >= until_ns;
        if is_over {
            let result = if number == nr::__NR_connect { EINPROGRESS } else { EAGAIN };
            registers.rax = result as usize;
        }
        is_over
    }

    /// Has the call be made by the program's own instruction, with all of its time, if only that led it to the trap:
    /// the process leaves management, and there is no trap then.
    fn wait_unwatched(&mut self, context: &mut Context) {
        if self.waits_for_time_alone()
            && let Some(before) = self.watched.take()
        {
            let fpstate = context.registers.fpstate;
            context.registers = Registers { fpstate, ..before };
            context.registers.rip -= SYSCALL_BYTES;
        }
    }

    /// Whether it is in a call that leads to the trap for no other reason than its time.
    pub(super) fn waits_for_time_alone(&self) -> bool {
        let has_mask = self.temporary_mask.is_some() || self.waits_for != 0;
        self.watched.is_some() && self.time_limit.is_some() && !has_mask
    }

    /// What is left of its time was written over what a call was given, if it was told so. So it was, too, where the
    /// kernel began to end it for a signal which somebody else took then, and went on: it ends as if nothing had come.
    pub(super) fn put_back_time(&self) {
        let (Some(limit), Some(before)) = (&self.time_limit, &self.watched) else { return };
        if let Some(address) = slept_in_place(self.call as u32, &before.arguments()) {
            // What the kernel writes to in a call is held until it has ended.
            let _ = process::poke(address, &limit.asked);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is passed where there is a limit.
    const ANY: usize = 1 << 20;

    #[test]
    fn limits_are_where_the_kernel_looks_for_them() {
        let futex = |operation: u32| [ANY, operation as usize, 7, ANY, 0, 0];
        let sleep = |clock: u32, flags: u32| [clock as usize, flags as usize, ANY, 0, 0, 0];
        let cases = [
            (nr::__NR_poll, [ANY, 1, 250, 0, 0, 0], Some(Place::Milliseconds(2))),
            (nr::__NR_poll, [ANY, 1, 0, 0, 0, 0], None),
            (nr::__NR_poll, [ANY, 1, u32::MAX as usize, 0, 0, 0], None),
            (nr::__NR_epoll_wait, [3, ANY, 1, 1, 0, 0], Some(Place::Milliseconds(3))),
            (nr::__NR_nanosleep, [ANY, 0, 0, 0, 0, 0], Some(Place::Time(0))),
            (nr::__NR_clock_nanosleep, sleep(nr::CLOCK_MONOTONIC, 0), Some(Place::Time(2))),
            (nr::__NR_clock_nanosleep, sleep(nr::CLOCK_MONOTONIC, nr::TIMER_ABSTIME), None),
            (nr::__NR_clock_nanosleep, sleep(nr::CLOCK_PROCESS_CPUTIME_ID, 0), None),
            (nr::__NR_futex, futex(nr::FUTEX_WAIT | nr::FUTEX_PRIVATE_FLAG), Some(Place::Time(3))),
            (nr::__NR_futex, futex(nr::FUTEX_WAIT_BITSET), None),
            (nr::__NR_semtimedop, [0, ANY, 1, 0, 0, 0], None),
            (nr::__NR_io_getevents, [ANY, 1, 1, ANY, ANY, 0], Some(Place::Time(4))),
            (nr::__NR_read, [0, ANY, 1, 0, 0, 0], None),
        ];
        for (number, arguments, expected) in cases {
            assert_eq!(place(number, &arguments), expected, "{number} {arguments:?}");
        }
    }

    #[test]
    fn who_sleeps_in_place_is_known() {
        let cases = [
            (nr::__NR_nanosleep, [ANY, ANY, 7, 8, 0, 0], Some(ANY)),
            (nr::__NR_nanosleep, [ANY, 0, ANY, ANY, 0, 0], None),
            (nr::__NR_clock_nanosleep, [7, 8, ANY, ANY, 0, 0], Some(ANY)),
            (nr::__NR_clock_nanosleep, [ANY, ANY, ANY, 0, 0, 0], None),
            (nr::__NR_poll, [ANY; 6], None),
        ];
        for (number, arguments, expected) in cases {
            assert_eq!(slept_in_place(number, &arguments), expected, "{number} {arguments:?}");
        }
    }

    #[test]
    fn times_that_end_are_counted() {
        assert_eq!(nanoseconds([2, 5]), Some(2_000_000_005));
        assert_eq!(nanoseconds([0, SECOND_NS]), None);
        assert_eq!(nanoseconds([u64::MAX, 0]), None);
        assert_eq!(time(2_000_000_005), [2, 5]);
    }
}
