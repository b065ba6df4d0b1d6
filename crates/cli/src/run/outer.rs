//! Getting out of the hands of another zpager, in whose run this one was begun.
//!
//! What is managed may have no Syscall User Dispatch of its own, and who manages programs has to try it. So
//! this very command begins anew, as one of a run that nobody has: the other zpager leaves that alone, with a
//! warning.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use zpager_wire::CONTROL_VARIABLE;

use crate::file_limit;

/// What the variable names that is no control block.
const NOBODYS: &str = "none";

/// Begins this command anew, out of the other run. Comes back where that is done already, or fails.
pub(super) fn leave() {
    if std::env::var_os(CONTROL_VARIABLE).is_some_and(|named| named == NOBODYS) {
        return;
    }
    let mut arguments = std::env::args_os();
    let mut command = Command::new("/proc/self/exe");
    command.arg0(arguments.next().unwrap_or_default()).args(arguments);
    command.env(CONTROL_VARIABLE, NOBODYS);
    let preloaded = without_agents(&std::env::var_os("LD_PRELOAD").unwrap_or_default());
    if preloaded.is_empty() {
        command.env_remove("LD_PRELOAD");
    } else {
        command.env("LD_PRELOAD", preloaded);
    }
    file_limit::give_back();
    // Only an error comes back: then it is told that there is no dispatch.
    let _ = command.exec();
    file_limit::outlive();
}

/// The objects of a list for the dynamic loader that are no zpager's agent.
pub(super) fn without_agents(list: &OsStr) -> OsString {
    let objects = list.as_bytes().split(|byte| b": ".contains(byte));
    let others: Vec<&[u8]> =
        objects.filter(|object| !object.is_empty() && !is_agent_path(object)).collect();
    OsStr::from_bytes(&others.join(&b':')).to_owned()
}

/// Whether a path has the form that a descriptor of another process has.
fn is_agent_path(path: &[u8]) -> bool {
    let parts = str::from_utf8(path).unwrap_or_default().strip_prefix("/proc/");
    let numbers = parts.and_then(|parts| parts.split_once("/fd/"));
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    numbers.is_some_and(|(pid, descriptor)| is_number(pid) && is_number(descriptor))
}
