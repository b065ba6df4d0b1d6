//! Pages of a program that is started for it: drawn while it runs, from all that it starts.
//!
//! Nobody knows beforehand when a program is at its largest, so it is drawn from again and again
//! as it grows, and what was drawn when it was largest is kept. Each drawing costs the program
//! nothing but the reading of its memory, and together they take a twentieth of the time at most
//! once it has stopped growing. Bad for programs of a few milliseconds, and for those whose peak is
//! shorter than that.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use libc::{c_int, pid_t};
use rustix::process::Signal;

use super::process::{self, Memory};
use super::sample::{Drawing, Sample};
use crate::failure::{Failure, OrFail};
use crate::file_limit;
use crate::run::program::{locate, not_started};
use crate::run::status::Exit;
use crate::run::supervisor::signals::{self, Signals};
use crate::run::supervisor::stop_with;
use crate::run::supervisor::tree::Tree;

/// How often it is looked how large the program is.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// How long a program that does not grow is left alone after a drawing: its contents may still
/// change.
const REST: Duration = Duration::from_secs(1);

/// How many times what a drawing took is rested after it at least.
const RESTS_PER_COST: u32 = 20;

/// Fewer pages than this are what the dynamic loader and the C library leave in any program.
const PAGES_MIN: u64 = 64;

/// Runs the program to its end and draws pages of it and of all that it starts.
///
/// # Errors
/// It cannot be run, or ends before it has memory to draw from. A signal that was sent to this
/// process and killed the program ends this process as well.
pub(super) fn take(words: &[OsString], drawing: Drawing) -> Result<Sample, Failure> {
    let file = locate(&words[0], std::env::var_os("PATH").as_deref())?;
    // Descendants whose parent ends stay in the tree.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .or_fail("becoming the reaper of the program's descendants")?;
    let signals = Signals::block();
    let program = start(&file, words, signals)?;
    let mut watch = Watch::new(drawing);
    let exit = watch.stay_with(program, signals);
    // What the program was sent and outlived must not end this process.
    while let Some(info) = signals.wait(Duration::ZERO) {
        watch.taken.insert(info.si_signo);
    }
    signals.restore();
    if let Exit::Signal(signal) = exit
        && watch.taken.contains(&signal)
    {
        exit.leave();
        return Err(Failure::own("interrupted"));
    }
    let name = words[0].display();
    let kept = watch.kept.filter(|kept| kept.sample.offered_pages >= PAGES_MIN);
    let mut sample = kept.map(|kept| kept.sample).ok_or_else(|| {
        Failure::own(format!(
            "{name}: {} with hardly any memory, or before it could be looked at: give it more to do, \
             or take a process that stays with --pid",
            ending(exit)
        ))
    })?;
    if exit != Exit::Code(0) {
        sample.notes.push(format!("{name}: {}", ending(exit)));
    }
    Ok(sample)
}

fn ending(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("ended with status {code}"),
        Exit::Signal(signal) => format!("killed by signal {signal}"),
    }
}

/// Starts the program and gives its process id.
fn start(file: &std::path::Path, words: &[OsString], signals: Signals) -> Result<pid_t, Failure> {
    let mut command = Command::new(file);
    command.arg0::<&OsStr>(&words[0]).args(&words[1..]);
    let starter = rustix::process::getpid();
    let prepare = move || {
        signals.restore();
        file_limit::give_back();
        // A program whose zpager was killed ends too.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        match rustix::process::getppid() == Some(starter) {
            true => Ok(()),
            false => Err(io::Error::from(io::ErrorKind::Interrupted)),
        }
    };
    // SAFETY: the closure allocates nothing and makes only system calls, which is all that may be
    // done between fork(2) and execve(2).
    unsafe { command.pre_exec(prepare) };
    match command.spawn() {
        // It is waited for by its id, and dropping the handle leaves it alone.
        Ok(child) => Ok(child.id().cast_signed()),
        Err(error) => Err(not_started(file, &error)),
    }
}

/// What was drawn when the program was largest.
struct Kept {
    sample: Sample,
    /// The anonymous memory of the tree then.
    tree_bytes: u64,
    drawn: Instant,
    cost: Duration,
}

/// The look at a running program.
struct Watch {
    drawing: Drawing,
    tree: Tree,
    kept: Option<Kept>,
    /// The signals that came to this process.
    taken: BTreeSet<c_int>,
}

impl Watch {
    fn new(drawing: Drawing) -> Self {
        let tree = Tree::below(std::process::id().cast_signed());
        Watch { drawing, tree, kept: None, taken: BTreeSet::new() }
    }

    /// Draws when it is due until the program ends.
    fn stay_with(&mut self, program: pid_t, signals: Signals) -> Exit {
        loop {
            if let Some(info) = signals.wait(LOOK_INTERVAL) {
                self.taken.insert(info.si_signo);
                signals::pass_on(&info, program);
            }
            if let Some(exit) = look_after(program) {
                return exit;
            }
            self.look();
        }
    }

    fn look(&mut self) {
        self.tree.refresh();
        let tree_bytes = self.tree.anonymous_bytes().map(|(_, bytes)| bytes).sum();
        let began = Instant::now();
        let is_due = match &self.kept {
            None => true,
            Some(kept) => is_due(kept.tree_bytes, tree_bytes, began - kept.drawn, kept.cost),
        };
        if !is_due {
            return;
        }
        let memories: Vec<Memory> =
            self.tree.processes().filter_map(|(pid, _)| Memory::open(pid).ok()).collect();
        // A process that ends meanwhile is drawn from no more; the program's end is seen elsewhere.
        let Ok(sample) = process::draw(&memories, self.drawing) else { return };
        let cost = began.elapsed();
        match &mut self.kept {
            Some(kept) if !is_better(&kept.sample, &sample) => {
                (kept.drawn, kept.cost) = (Instant::now(), cost);
            }
            kept => {
                let largest_bytes = kept.as_ref().map_or(0, |kept| kept.tree_bytes).max(tree_bytes);
                *kept =
                    Some(Kept { sample, tree_bytes: largest_bytes, drawn: Instant::now(), cost });
            }
        }
    }
}

/// Whether to draw again: the program has grown by a quarter, or has its old size after a rest.
fn is_due(kept_bytes: u64, now_bytes: u64, since: Duration, cost: Duration) -> bool {
    let has_grown = now_bytes >= kept_bytes + kept_bytes / 4 && now_bytes > kept_bytes;
    let has_rested = since >= REST.max(cost * RESTS_PER_COST);
    has_grown || has_rested && is_as_large(kept_bytes, now_bytes)
}

/// Whether a sample is to be kept instead of another: it is from as much, and was not cut short by the
/// end of a process.
fn is_better(kept: &Sample, now: &Sample) -> bool {
    is_as_large(kept.offered_pages, now.offered_pages)
        && is_as_large(kept.drawn_pages() as u64, now.drawn_pages() as u64)
}

/// Whether a size is another, but for the little by which one look differs from the next.
fn is_as_large(kept: u64, now: u64) -> bool {
    now >= kept - kept / 16
}

/// Takes note of children that stopped or ended; gives the program's end.
fn look_after(program: pid_t) -> Option<Exit> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is written in full when a process is reported.
        let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG | libc::WUNTRACED) };
        if pid <= 0 {
            return None;
        }
        if pid == program {
            if let Some(exit) = Exit::from_wait(status) {
                return Some(exit);
            }
            stop_with(status);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn drawn_again_when_grown_or_rested() {
        assert!(is_due(100 * MIB, 125 * MIB, MS, MS));
        assert!(!is_due(100 * MIB, 124 * MIB, MS, MS));
        assert!(is_due(100 * MIB, 100 * MIB, REST, MS));
        assert!(is_due(100 * MIB, 94 * MIB, REST, MS));
        assert!(!is_due(100 * MIB, 90 * MIB, REST, MS), "what is smaller is not kept");
        assert!(
            !is_due(100 * MIB, 100 * MIB, REST, 100 * MS),
            "a drawing of 100 ms, a rest of 2 s"
        );
        assert!(is_due(100 * MIB, 100 * MIB, 2 * REST, 100 * MS));
        assert!(!is_due(0, 0, MS, MS));
    }

    #[test]
    fn what_was_cut_short_is_not_kept() {
        let sample = |offered_pages, same_filled_pages| Sample {
            offered_pages,
            same_filled_pages,
            ..Sample::default()
        };
        let kept = sample(5000, 1000);
        assert!(is_better(&kept, &sample(6000, 1000)));
        assert!(is_better(&kept, &sample(4800, 1000)));
        assert!(!is_better(&kept, &sample(4000, 1000)));
        assert!(!is_better(&kept, &sample(6000, 500)));
    }

    #[test]
    fn a_program_that_is_not_there_is_told() {
        let drawing = Drawing { pages_max: 1, seed: 1 };
        let status = |name: &str| take(&[name.into()], drawing).err().expect(name).status;
        assert_eq!(status("/nowhere/program"), 127);
        assert_eq!(status("/etc/passwd"), 126);
    }
}
