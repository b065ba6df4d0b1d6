//! The kernel's own way to a block device in user space: /dev/ublkbN, without a socket in between.
//!
//! Source: Linux, Documentation/block/ublk.rst. A device has some queues, each of them a thread's
//! ([`queue`]); it is made, started, stopped and deleted by commands ([`control`]).
//!
//! Of a server that is killed the kernel takes the device away: whoever waits gets errors. A device
//! that the kernel swaps to is gone with what is on it then, and so is the name by which swapoff(8)
//! could leave it.

mod control;
mod queue;

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

pub(crate) use control::Control;
use control::Shape;
use queue::Queue;

use crate::target::Target;
use crate::worker::{PIECE_BYTES, Worker};

/// Most queues.
const QUEUES_MAX: usize = 4;
/// Requests of each.
const DEPTH: u16 = 64;
/// Stack of a queue's thread.
const STACK_BYTES: usize = 256 << 10;
/// How long the character device may take to appear.
const OPEN_TRIES: u32 = 100;
const OPEN_PAUSE: Duration = Duration::from_millis(50);

/// A device, and the threads that serve it.
pub(crate) struct Ublk {
    control: Box<Control>,
    number: u32,
    threads: Vec<JoinHandle<()>>,
}

/// Where a device is.
fn block_device(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkb{number}"))
}

/// Whether a device is swapped to or mounted.
pub(crate) fn is_in_use(device: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    openat(CWD, device, flags, Mode::empty()).is_err_and(|error| error == Errno::BUSY)
}

impl Ublk {
    /// Makes a device of this number, or of any, and has threads serve it, each of which calls `ended`
    /// at its end.
    ///
    /// # Errors
    /// What kept it from being made, in one line; there is no device then.
    pub(crate) fn start<T: Target + Send + Sync + ?Sized + 'static>(
        mut control: Box<Control>,
        number: Option<u32>,
        target: &Arc<T>,
        has_cache: bool,
        ended: impl Fn() + Clone + Send + 'static,
    ) -> Result<Ublk, String> {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<Worker> =
            (0..processors.min(QUEUES_MAX)).map_while(|_| target.connect()).collect();
        let shape = Shape {
            number,
            queues: workers.len() as u16,
            depth: DEPTH,
            request_bytes: PIECE_BYTES as u32,
            size_bytes: target.size_bytes(),
            has_cache,
        };
        let number =
            control.add(&shape).map_err(|error| match (shape.number, error.raw_os_error()) {
                (Some(number), Some(libc::EEXIST)) => {
                    format!("--ublk {number}: there is such a device: give another number, or none")
                }
                _ => format!("--ublk: a device cannot be made: {error}"),
            })?;
        let mut ublk = Ublk { control, number, threads: Vec::new() };
        match ublk.run(workers, target, ended) {
            Ok(()) => Ok(ublk),
            Err(why) => {
                ublk.end();
                Err(format!("--ublk: /dev/ublkc{number}: {why}"))
            }
        }
    }

    fn run<T: Target + Send + Sync + ?Sized + 'static>(
        &mut self,
        workers: Vec<Worker>,
        target: &Arc<T>,
        ended: impl Fn() + Clone + Send + 'static,
    ) -> Result<(), String> {
        let file = Arc::new(open(self.number).map_err(|error| error.to_string())?);
        let (ready, all_ready) = channel();
        let queues = workers.len();
        for (queue, worker) in (0..).zip(workers) {
            let (file, target) = (Arc::clone(&file), Arc::clone(target));
            let (ready, ended) = (ready.clone(), ended.clone());
            let serving = move || {
                serve(&file, queue, &*target, worker, &ready);
                drop(file);
                ended();
            };
            let thread = thread::Builder::new().stack_size(STACK_BYTES).spawn(serving);
            self.threads.push(thread.map_err(|error| error.to_string())?);
        }
        for _ in 0..queues {
            all_ready.recv().map_err(|_| "a queue's thread is gone")??;
        }
        self.control.start(self.number).map_err(|error| error.to_string())
    }

    /// Where it is.
    pub(crate) fn path(&self) -> PathBuf {
        block_device(self.number)
    }

    /// Takes the device from whoever uses it, once what goes on has ended.
    pub(crate) fn end(mut self) {
        // Where the kernel refuses it the device is gone already.
        let _ = self.control.stop(self.number);
        for thread in self.threads {
            let _ = thread.join();
        }
        let _ = self.control.delete(self.number);
    }
}

/// Opens the character device, which takes a moment to appear.
fn open(number: u32) -> std::io::Result<File> {
    let path = format!("/dev/ublkc{number}");
    let mut tries = 0;
    loop {
        match OpenOptions::new().read(true).write(true).open(&path) {
            Err(_) if tries < OPEN_TRIES => {
                tries += 1;
                thread::sleep(OPEN_PAUSE);
            }
            opened => return opened,
        }
    }
}

/// Serves a queue until the device is stopped; tells `ready` once it does.
fn serve<T: Target + ?Sized>(
    file: &File,
    number: u16,
    target: &T,
    mut worker: Worker,
    ready: &Sender<Result<(), String>>,
) {
    match Queue::new(file, number, DEPTH, target.buffer_pages()) {
        Ok(queue) => {
            worker.touch();
            let _ = ready.send(Ok(()));
            queue.serve(target, &mut worker);
        }
        Err(error) => {
            let _ = ready.send(Err(error.to_string()));
        }
    }
    target.disconnect(worker);
}
