//! Whether two processes have one memory, as a child of vfork(2) has its parent's: only one of them could be entered.
//!
//! kcmp(2) tells. Where a sandbox forbids that, as containers do by default, what of the memory two processes see in
//! common does: the filter of a core dump is the memory's, so a change by way of one of them is there for the other one
//! too, if they have the same. It is taken back at once.
//!
//! Sources: kcmp(2); core(5), `/proc/PID/coredump_filter` (fs/proc/base.c, `proc_coredump_filter_write`).
//!
//! Bad case: a process that forks, or dumps core, in the few microseconds between has the change in its child, or in
//! what is dumped: of files in persistent memory (DAX), which are shared.

use std::fs;

use libc::{c_int, pid_t};

use crate::proc_text;
use crate::run::living::living_thread;

/// Compare the memory of two processes.
const KCMP_VM: c_int = 1;

/// What is changed for a moment: whether pages of shared files in persistent memory are dumped.
const CHANGED_BIT: u32 = 1 << 8;

/// Whether two processes share their memory; `None` when the kernel does not tell.
pub(crate) fn share_memory(first: pid_t, second: pid_t) -> Option<bool> {
    threads_share_memory(living_thread(first), living_thread(second))
}

/// The same, by a living thread of each.
pub(crate) fn threads_share_memory(first: pid_t, second: pid_t) -> Option<bool> {
    // SAFETY: kcmp(2) reads nothing but its arguments.
    match unsafe { libc::syscall(libc::SYS_kcmp, first, second, KCMP_VM, 0, 0) } {
        0 => Some(true),
        1.. => Some(false),
        _ => have_one_filter(first, second),
    }
}

/// The same by their filters of core dumps.
pub(super) fn have_one_filter(first: pid_t, second: pid_t) -> Option<bool> {
    let (before, other) = (filter_of(first)?, filter_of(second)?);
    if before != other {
        return Some(false);
    }
    set_filter(first, before ^ CHANGED_BIT)?;
    let seen = filter_of(second);
    set_filter(first, before)?;
    Some(seen? == before ^ CHANGED_BIT)
}

fn filter_of(pid: pid_t) -> Option<u32> {
    let text = proc_text::read(path_of(pid)).ok()?;
    u32::from_str_radix(text.trim(), 16).ok()
}

fn set_filter(pid: pid_t, filter: u32) -> Option<()> {
    fs::write(path_of(pid), format!("{filter:#x}")).ok()
}

fn path_of(pid: pid_t) -> String {
    format!("/proc/{pid}/coredump_filter")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What both ways tell of this process and a copy of it, while that is there.
    fn told_of_copy() -> [Option<bool>; 2] {
        // SAFETY: the child only waits to be killed.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "a child");
        if child == 0 {
            loop {
                // SAFETY: touches no memory.
                unsafe { libc::pause() };
            }
        }
        let own = std::process::id().cast_signed();
        let told = [share_memory(own, child), have_one_filter(own, child)];
        // SAFETY: the child of before, which nobody else waits for.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        told
    }

    #[test]
    fn a_copy_is_told_from_the_same_memory_and_filters_stay() {
        let own = std::process::id().cast_signed();
        let before = filter_of(own).expect("a filter");
        assert_eq!(told_of_copy(), [Some(false); 2]);
        // Threads have one memory as well as the children of vfork(2).
        let other = std::thread::spawn(|| {
            // SAFETY: asks only.
            let tid = unsafe { libc::syscall(libc::SYS_gettid) } as pid_t;
            have_one_filter(std::process::id().cast_signed(), tid)
        });
        assert_eq!(other.join().expect("it ends"), Some(true));
        assert_eq!(filter_of(own), Some(before));
        assert_eq!(have_one_filter(own, 0), None);
    }
}
