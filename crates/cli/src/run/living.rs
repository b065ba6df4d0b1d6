//! The thread by which the kernel is asked about a process: its first one, and another where that has ended.
//!
//! A first thread may end before the others do (pthread_exit(3)) and is a zombie until they have, one that has
//! neither memory nor descriptors: `maps` of such a process is empty, `statm` is zeros, a link names nothing.
//! Any other thread has what the process has, and `/proc` knows it by its own id. Sources: proc(5), pthread_exit(3).

use std::fs::read_dir;
use std::io;

use libc::pid_t;

use crate::proc_text;

/// A thread of a process that has not ended; its first one where there is none or `/proc` does not tell.
pub(crate) fn living_thread(pid: pid_t) -> pid_t {
    if !is_ending(pid, pid) {
        return pid;
    }
    let threads = threads_of(pid).unwrap_or_default();
    threads.into_iter().find(|tid| !is_ending(pid, *tid)).unwrap_or(pid)
}

/// The ids of a process's threads, also of those that have ended and are still there.
///
/// # Errors
/// It is gone, or `/proc` does not tell.
pub(crate) fn threads_of(pid: pid_t) -> io::Result<Vec<pid_t>> {
    let folder = read_dir(format!("/proc/{pid}/task"))?;
    Ok(folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// A file of a process in `/proc`, as a living thread has it.
pub(crate) fn proc_file(pid: pid_t, name: &str) -> String {
    format!("/proc/{}/{name}", living_thread(pid))
}

/// Whether a thread is a zombie or gone.
pub(crate) fn is_ending(pid: pid_t, tid: pid_t) -> bool {
    matches!(state_of(pid, tid), None | Some('Z' | 'X'))
}

/// A thread's state as proc(5) names it in `stat`; `None` when it is gone.
pub(crate) fn state_of(pid: pid_t, tid: pid_t) -> Option<char> {
    stat_of(pid, tid)?.chars().next()
}

/// A thread's `stat` behind its name; `None` when it is gone.
pub(crate) fn stat_of(pid: pid_t, tid: pid_t) -> Option<String> {
    let stat = proc_text::read(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    Some(stat.rsplit_once(") ")?.1.to_owned())
}
