//! The helper process of a remote store: `zpager remote-helper`, which the command starts itself.
//!
//! It holds nothing of the command's but its standard input and error, so that whoever waits for the
//! end of another file is not held up by it.

use std::io::{BufRead, Read};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use zpager_remote::{EXPIRY, Server, serve};
use zpager_wire::{Control, Remote, Requests};

use super::remote::{Orders, is_used};
use crate::failure::{Failure, OrFail};
use crate::shared::Shared;

/// Longest line of orders.
const ORDERS_BYTES_MAX: u64 = 64 * 1024;

/// Does what the line on standard input says, until standard input ends and no process of the run is
/// left.
///
/// # Errors
/// It was not started by the command, or cannot open what it needs.
pub(crate) fn main() -> Result<ExitCode, Failure> {
    close_all_others();
    let mut input = std::io::stdin().lock();
    let mut line = String::new();
    (&mut input).take(ORDERS_BYTES_MAX).read_line(&mut line).or_fail("standard input")?;
    let orders: Orders =
        serde_json::from_str(&line).or_fail("this command is for zpager's own use")?;
    drop(input);
    let server = Server::at(&orders.address).map_err(Failure::own)?;
    // SAFETY: the command has made both before it started this process.
    let (remote, control) = unsafe {
        (
            Shared::<Remote>::open(&orders.requests, "requests")?,
            Shared::<Control>::open(&orders.control, "control block")?,
        )
    };
    // SAFETY: the mapping is as long as the command made it.
    let requests = unsafe { Requests::behind(&remote) };
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            has_ended.store(true, Relaxed);
        });
        let is_over = || has_ended.load(Relaxed) && !is_used(&control);
        serve(&server, requests, &orders.run, EXPIRY, is_over);
    });
    Ok(ExitCode::SUCCESS)
}

/// Closes what was inherited beside the three standard files.
fn close_all_others() {
    // SAFETY: nothing has been opened here so far.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
}
