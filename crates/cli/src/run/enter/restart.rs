//! Making an interrupted system call anew after a thread was entered.
//!
//! Stopping a thread interrupts the call it sleeps in. Most calls end with a code
//! by which the kernel restarts them when the registers come back as they were
//! (Linux arch/x86/kernel/signal.c, `arch_do_signal_or_restart`). Two kinds are not
//! restarted by it and have to be made anew here, by going back to the `syscall`
//! instruction: those that the kernel continues by `restart_syscall`, whose state
//! the entry may have overwritten, and those that give EINTR after every stop
//! (signal(7), "interruption of system calls by stop signals"). A timeout that is
//! relative starts again from its whole length.
//!
//! A transfer that was half done ends with what was done, which no signal of the program's explains to it. It is
//! made anew as well, and the agent told how much is done ([`zpager_wire::Entry`]): only the agent can go on
//! with the rest, or end the call with that, and only once it manages the thread.

use libc::{c_long, user_regs_struct};

/// `-EINTR`.
const INTERRUPTED: i64 = -4;
/// `-ERESTART_RESTARTBLOCK` (Linux include/linux/errno.h).
pub(super) const CONTINUED_BY_KERNEL: i64 = -516;
/// Length of the `syscall` instruction.
const SYSCALL_BYTES: u64 = 2;

/// Calls that give EINTR after every stop before they have done anything.
const ENDED_BY_STOPS: [c_long; 23] = [
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_epoll_wait,
    libc::SYS_io_getevents,
    libc::SYS_io_uring_enter,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Calls that may have done a part, of which the agent does the rest.
const HALF_DONE: [c_long; 5] =
    [libc::SYS_recvfrom, libc::SYS_sendmsg, libc::SYS_sendto, libc::SYS_write, libc::SYS_writev];

/// Whether a thread has stopped with a part of a transfer done, as far as its registers tell.
fn is_half_done(stopped: &user_regs_struct) -> bool {
    let call = stopped.orig_rax.cast_signed();
    let has_vectors = call == libc::SYS_writev || call == libc::SYS_sendmsg;
    HALF_DONE.contains(&call)
        && stopped.rax.cast_signed() > 0
        && (has_vectors || stopped.rax < stopped.rdx)
}

/// The registers with which a stopped thread shall go on, given those with which it stopped and
/// whether a handler of the program's own is about to run (the call then ends as it does without
/// zpager).
pub(crate) fn registers_to_go_on(
    stopped: &user_regs_struct,
    handler_comes: bool,
) -> user_regs_struct {
    let call = stopped.orig_rax.cast_signed();
    let made_anew = match stopped.rax.cast_signed() {
        CONTINUED_BY_KERNEL => true,
        INTERRUPTED => ENDED_BY_STOPS.contains(&call),
        _ => is_half_done(stopped),
    };
    if call < 0 || handler_comes || !made_anew {
        return *stopped;
    }
    user_regs_struct {
        rip: stopped.rip - SYSCALL_BYTES,
        rax: stopped.orig_rax,
        orig_rax: u64::MAX,
        ..*stopped
    }
}

/// The same where a handler of the program's own is about to run by now, and ends the call.
pub(crate) fn registers_interrupted(stopped: &user_regs_struct) -> user_regs_struct {
    user_regs_struct { rax: INTERRUPTED.cast_unsigned(), orig_rax: u64::MAX, ..*stopped }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED_BYTES: i64 = 100;

    fn stopped(call: i64, result: i64) -> user_regs_struct {
        // SAFETY: a `user_regs_struct` is numbers only.
        let zero: user_regs_struct = unsafe { std::mem::zeroed() };
        user_regs_struct {
            rip: 0x1002,
            orig_rax: call.cast_unsigned(),
            rax: result.cast_unsigned(),
            rdx: ASKED_BYTES.cast_unsigned(),
            rsp: 7,
            ..zero
        }
    }

    #[test]
    fn which_calls_are_made_anew() {
        let epoll = libc::SYS_epoll_wait;
        let table = [
            (libc::SYS_nanosleep, CONTINUED_BY_KERNEL, false, true),
            (libc::SYS_nanosleep, CONTINUED_BY_KERNEL, true, false),
            (epoll, INTERRUPTED, false, true),
            (epoll, INTERRUPTED, true, false),
            (epoll, 3, false, false),
            (libc::SYS_close, INTERRUPTED, false, false),
            (libc::SYS_read, -512, false, false),
            (libc::SYS_read, 5, false, false),
            (libc::SYS_write, 5, false, true),
            (libc::SYS_write, 5, true, false),
            (libc::SYS_write, ASKED_BYTES, false, false),
            (libc::SYS_writev, ASKED_BYTES, false, true),
            (libc::SYS_write, 0, false, false),
            (libc::SYS_write, -32, false, false),
            (-1, CONTINUED_BY_KERNEL, false, false),
            (-1, INTERRUPTED, false, false),
        ];
        for (call, result, handler_comes, made_anew) in table {
            let before = stopped(call, result);
            let after = registers_to_go_on(&before, handler_comes);
            assert_eq!(after.rip == 0x1000, made_anew, "call {call}, result {result}");
            assert_eq!(after.rsp, 7);
            if made_anew {
                assert_eq!((after.rax.cast_signed(), after.orig_rax), (call, u64::MAX));
            } else {
                assert_eq!((after.rax, after.orig_rax), (before.rax, before.orig_rax));
            }
        }
    }

    #[test]
    fn the_list_has_no_double() {
        let mut sorted = ENDED_BY_STOPS.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), ENDED_BY_STOPS.len());
    }
}
