//! One queue of a device: a thread that waits for requests, does them and gives them back.
//!
//! Source: Linux, Documentation/block/ublk.rst ("Data plane") and include/uapi/linux/ublk_cmd.h. Each of
//! the queue's tags has one io_uring command at the driver at any time, which ends when there is a
//! request of that tag; the next one of the tag carries the answer. The request's data is read and
//! written through the character device (`UBLK_F_USER_COPY`), so that no request has a buffer of its
//! own: they all use the worker's.
//!
//! Nothing is allocated while it serves: the rings and the table of requests are mapped before.
//!
//! Invariant: a request's descriptor stays as it is until it is answered.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::null_mut;
use std::thread;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, types};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::control::both_ways;
use crate::late::Late;
use crate::reads::{Made, READS_MAX, RETRY_PAUSE, Reads, Waiting, is_short_of_memory};
use crate::target::{Refused, Target};
use crate::worker::{PIECE_BYTES, Worker};

const FETCH_REQ: u32 = both_ways(0x20, COMMAND_BYTES as u32);
const COMMIT_AND_FETCH_REQ: u32 = both_ways(0x21, COMMAND_BYTES as u32);
const COMMAND_BYTES: usize = 16;

/// Where tables of requests begin that have room for the longest queue.
const TAGS_MAX: usize = 4096;
const PAGE_BYTES: usize = 4096;
const SECTOR_BYTES: u64 = 512;

/// Where the data of a request is in the character device.
const DATA_OFFSET: u64 = 0x8000_0000;
const TAG_SHIFT: u32 = 25;
const QUEUE_SHIFT: u32 = 41;

const OP_READ: u8 = 0;
const OP_WRITE: u8 = 1;
const OP_FLUSH: u8 = 2;
const OP_DISCARD: u8 = 3;
const OP_WRITE_ZEROES: u8 = 5;
const F_FUA: u32 = 1 << 13;
const F_NOUNMAP: u32 = 1 << 15;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const EOPNOTSUPP: i32 = 95;
const ETIME: i32 = 62;

/// `struct ublksrv_io_desc`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Request {
    op_flags: u32,
    sectors: u32,
    start_sector: u64,
    address: u64,
}

impl Request {
    fn operation(&self) -> u8 {
        self.op_flags as u8
    }

    fn has(&self, flag: u32) -> bool {
        self.op_flags & flag != 0
    }

    fn offset_bytes(&self) -> u64 {
        self.start_sector * SECTOR_BYTES
    }

    fn bytes(&self) -> u64 {
        u64::from(self.sectors) * SECTOR_BYTES
    }

    fn is_within(&self, size_bytes: u64) -> bool {
        let end_bytes = self.offset_bytes().checked_add(self.bytes());
        end_bytes.is_some_and(|end_bytes| end_bytes <= size_bytes)
    }
}

/// The kernel's table of a queue's requests, mapped.
struct Table {
    base: *const Request,
    depth: u16,
}

impl Table {
    fn map(file: &File, queue: u16, depth: u16) -> io::Result<Table> {
        let queue_bytes = (TAGS_MAX * size_of::<Request>()).next_multiple_of(PAGE_BYTES);
        let offset = u64::from(queue) * queue_bytes as u64;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping that replaces nothing.
        let base =
            unsafe { mmap(null_mut(), Self::bytes(depth), ProtFlags::READ, flags, file, offset) }?;
        Ok(Table { base: base.cast(), depth })
    }

    fn bytes(depth: u16) -> usize {
        (usize::from(depth) * size_of::<Request>()).next_multiple_of(PAGE_BYTES)
    }

    fn get(&self, tag: u16) -> Request {
        assert!(tag < self.depth);
        // SAFETY: within the mapping; the kernel writes it before it hands the request over.
        unsafe { self.base.add(usize::from(tag)).read_volatile() }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, which nobody borrows any more.
        let _ = unsafe { munmap(self.base.cast_mut().cast(), Self::bytes(self.depth)) };
    }
}

/// A queue.
pub(super) struct Queue<'a> {
    file: &'a File,
    number: u16,
    depth: u16,
    table: Table,
    /// Tags that wait for the store, and the ring.
    reads: Reads<u16>,
    /// Tags whose answers wait.
    late: Late,
}

impl<'a> Queue<'a> {
    /// The queue of this number, which has the kernel hand its requests over to this thread, with so many
    /// pages of buffers for what requests wait for.
    pub(super) fn new(
        file: &'a File,
        number: u16,
        depth: u16,
        buffer_pages: usize,
    ) -> io::Result<Queue<'a>> {
        let table = Table::map(file, number, depth)?;
        let ring = IoUring::new(u32::from(depth) + READS_MAX as u32)?;
        let reads = Reads::with_ring(Some(ring), buffer_pages);
        let mut queue = Queue { file, number, depth, table, reads, late: Late::new() };
        (0..depth).for_each(|tag| queue.push(FETCH_REQ, tag, 0));
        queue.ring().submit()?;
        Ok(queue)
    }

    fn ring(&mut self) -> &mut IoUring {
        self.reads.ring().expect("there is no queue without one")
    }

    /// Has a command be submitted with the next wait: that of a tag, of which there is one at a time.
    fn push(&mut self, code: u32, tag: u16, result: i32) {
        // The fields of `struct ublksrv_io_cmd`; there is no buffer.
        let mut command = [0; COMMAND_BYTES];
        command[..2].copy_from_slice(&self.number.to_ne_bytes());
        command[2..4].copy_from_slice(&tag.to_ne_bytes());
        command[4..8].copy_from_slice(&result.to_ne_bytes());
        let file = types::Fd(self.file.as_raw_fd());
        let entry = opcode::UringCmd16::new(file, code).cmd(command).build();
        let entry = entry.user_data(tag.into());
        // SAFETY: the command has no argument besides itself.
        let is_pushed = unsafe { self.ring().submission().push(&entry) };
        assert!(is_pushed.is_ok(), "an entry for each tag");
    }

    /// Serves until the device is stopped.
    pub(super) fn serve<T: Target + ?Sized>(mut self, target: &T, worker: &mut Worker) {
        let mut waiting = self.depth;
        while waiting > 0 {
            while let Some(Duration::ZERO) = self.late.pause(Instant::now()) {
                let tag = self.late.pop().expect("the first waits no longer") as u16;
                let bytes = self.table.get(tag).bytes();
                self.push(COMMIT_AND_FETCH_REQ, tag, bytes as i32);
            }
            if self.wait().is_err() {
                return;
            }
            while let Some((mark, result)) = self.next() {
                if self.reads.note(mark, result) {
                    continue;
                }
                // Anything else is that the device goes.
                match result {
                    0 => self.request(Waiting::new(mark as u16), target, worker),
                    _ => waiting -= 1,
                }
            }
            while let Some(waiting) = self.reads.pop() {
                self.request(waiting, target, worker);
            }
        }
    }

    /// Whether something has ended in the ring that was not taken.
    fn has_more(&mut self) -> bool {
        !self.ring().completion().is_empty()
    }

    /// What has ended in the ring, and how: a command of a tag, or a read.
    fn next(&mut self) -> Option<(u64, i32)> {
        self.ring().completion().next().map(|done| (done.user_data(), done.result()))
    }

    /// Waits for a request, or until an answer has waited its time.
    fn wait(&mut self) -> io::Result<()> {
        let waited = match self.late.pause(Instant::now()) {
            None => self.ring().submit_and_wait(1),
            Some(pause) => {
                let limit = types::Timespec::from(pause);
                let limit = types::SubmitArgs::new().timespec(&limit);
                self.ring().submitter().submit_with_args(1, &limit)
            }
        };
        match waited {
            Err(error) if is_short_of_memory(&error) => {
                thread::sleep(RETRY_PAUSE);
                Ok(())
            }
            Err(error)
                if error.kind() != ErrorKind::Interrupted
                    && error.raw_os_error() != Some(ETIME) =>
            {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Does a request and answers it, or has it or the answer wait.
    fn request<T: Target + ?Sized>(
        &mut self,
        mut waiting: Waiting<u16>,
        target: &T,
        worker: &mut Worker,
    ) {
        let tag = waiting.request;
        let request = self.table.get(tag);
        let (offset_bytes, bytes) = (request.offset_bytes(), request.bytes() as usize);
        if request.operation() == OP_READ && request.is_within(target.size_bytes()) {
            let has_more = self.has_more();
            let plan = |made: &Made<'_>| target.plan(offset_bytes, bytes, made);
            // There is a place for each tag.
            let Some(given_back) = self.reads.put_off(waiting, has_more, plan) else { return };
            waiting = given_back;
        }
        let result = match self.perform(&waiting, &request, target, worker) {
            Ok(bytes) => bytes as i32,
            Err(error) => -error,
        };
        let has_more = waiting.is_alone && self.has_more();
        self.reads.finish(&waiting, has_more);
        let pause = worker.take_pause();
        if result > 0 && !pause.is_zero() {
            self.late.push(Instant::now(), pause, tag.into());
        } else {
            self.push(COMMIT_AND_FETCH_REQ, tag, result);
        }
    }

    /// Does a request; gives how many bytes it read or wrote, or the error's number.
    fn perform<T: Target + ?Sized>(
        &self,
        waiting: &Waiting<u16>,
        request: &Request,
        target: &T,
        worker: &mut Worker,
    ) -> Result<u64, i32> {
        let (offset_bytes, bytes) = (request.offset_bytes(), request.bytes());
        if !request.is_within(target.size_bytes()) {
            return Err(EIO);
        }
        let data_at = DATA_OFFSET
            + (u64::from(self.number) << QUEUE_SHIFT)
            + (u64::from(waiting.request) << TAG_SHIFT);
        let done = match request.operation() {
            OP_READ | OP_WRITE if bytes > PIECE_BYTES as u64 => return Err(EIO),
            OP_READ => {
                let made = self.reads.made(waiting.own, true);
                let data = target.read_with(worker, offset_bytes, bytes as usize, &made);
                let data = data.map_err(number)?;
                self.file.write_all_at(data, data_at).map_err(|_| EIO)?;
                return Ok(bytes);
            }
            OP_WRITE => {
                let slot = worker.slot(offset_bytes, bytes as usize);
                self.file.read_exact_at(slot, data_at).map_err(|_| EIO)?;
                target.write(worker, offset_bytes, bytes as usize).map(|()| bytes)
            }
            OP_FLUSH => return target.flush(worker).map(|()| 0).map_err(number),
            OP_DISCARD => target.trim(offset_bytes, bytes).map(|()| 0),
            OP_WRITE_ZEROES => {
                let may_free = !request.has(F_NOUNMAP);
                target.write_zeroes(worker, offset_bytes, bytes, may_free).map(|()| 0)
            }
            _ => return Err(EOPNOTSUPP),
        };
        if request.has(F_FUA) && done.is_ok() {
            target.flush(worker).map_err(number)?;
        }
        done.map_err(number)
    }
}

fn number(refused: Refused) -> i32 {
    match refused {
        Refused::NoSpace => ENOSPC,
        Refused::Io => EIO,
    }
}
