//! Whether the kernel uses a process's memory for a virtual machine that it has had since before it was to be
//! managed, or by threads of its own.
//!
//! The memory that a machine was given is in no system call afterwards, and its guest would fail where pages are
//! away. Threads of the kernel's in a process, which serve such machines (KVM's since Linux 6.13, vhost's since
//! 6.4) and rings, never come to run the program: they stop as others do, and cannot be entered.
//!
//! Sources: Documentation/virt/kvm/api.rst; proc(5), `flags` of `stat`; include/linux/sched.h,
//! kernel/vhost_task.c of Linux.

use libc::pid_t;

use crate::run::living::{stat_of, threads_of};

/// What the mapping of a virtual processor's state is called, up to its number.
const PROCESSOR: &str = "anon_inode:kvm-vcpu";
/// `PF_IO_WORKER` and `PF_USER_WORKER`.
const WORKER: u64 = 0x10 | 0x4000;
/// Where the flags are behind the name.
const FLAGS_FIELD: usize = 6;

/// Whether it does.
pub(super) fn uses_memory(pid: pid_t, maps: &str) -> bool {
    maps.lines().any(|line| line.contains(PROCESSOR))
        || threads_of(pid).is_ok_and(|threads| threads.into_iter().any(|tid| is_worker(pid, tid)))
}

/// Whether a thread is the kernel's.
fn is_worker(pid: pid_t, tid: pid_t) -> bool {
    let flags = || stat_of(pid, tid)?.split(' ').nth(FLAGS_FIELD)?.parse().ok();
    flags().is_some_and(|flags: u64| flags & WORKER != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_not_machines() {
        let own = std::process::id().cast_signed();
        assert!(!uses_memory(own, "7f10-8f10 rw-s 00000000 00:0e 3      anon_inode:[io_uring]"));
        assert!(uses_memory(own, "7f10-8f10 rw-s 00000000 00:0e 3      anon_inode:kvm-vcpu:0"));
    }
}
