//! Ctrl-C and its kin: they set a flag, and the bench ends where it next looks.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

static SIGNAL: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// Takes the signals that ask a program to end.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn listen() -> Result<()> {
    let flag = SIGNAL.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_usize(signal, Arc::clone(flag), signal as usize)
            .context("cannot take signals")?;
    }
    Ok(())
}

/// The signal that asked the bench to end, if one did.
pub(crate) fn signal() -> Option<usize> {
    let number = SIGNAL.get()?.load(Relaxed);
    (number != 0).then_some(number)
}

/// Fails once the bench was asked to end.
///
/// # Errors
/// When it was.
pub(crate) fn check() -> Result<()> {
    match signal() {
        Some(number) => bail!("interrupted by signal {number}"),
        None => Ok(()),
    }
}
