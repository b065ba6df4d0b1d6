//! Writes and reads that the kernel does while the thread goes on.
//!
//! Source: io_submit(2), include/uapi/linux/aio_abi.h. It goes on only where the file was opened
//! with `O_DIRECT` and the transfer lies within its length; elsewhere the call waits for it. io_uring
//! is no way here: its workers would be threads of the program, and a request that ends while the
//! thread sleeps in a call wakes it. Of 100 calls of epoll_wait(2) beside a read 100 failed with EINTR,
//! with `IORING_SETUP_COOP_TASKRUN` too; with `RWF_NOWAIT`, which needs no worker, reads of 1 MiB fail
//! (Linux 6.18).
//!
//! A context belongs to an address space: a forked child has none, and an `execve` waits for the
//! transfer and ends the context. The kernel maps a ring for it where it finds room, which may be a
//! hole that the program has just made; the ring is moved away from there at once, and the context
//! is known by its new address (fs/aio.c, `aio_ring_mremap`).
//!
//! Bad for: processes that end soon. At the end of an address space that has contexts the kernel waits for a grace
//! period of RCU, some 30 ms (`exit_aio`). So their owner is told when one [pays](Transfers::pays): once that long was
//! spent on waiting.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::file::Fd;
use crate::mapping::Mapping;
use crate::syscall::{Errno, checked, nr};

/// `IOCB_CMD_PREAD` and `IOCB_CMD_PWRITE`.
const READ: u16 = 0;
const WRITE: u16 = 1;
/// No context made so far.
const NONE: usize = 0;
/// None is to be had.
const REFUSED: usize = usize::MAX;
/// More than the ring of a context of few requests takes, on up to a thousand processors.
const RING_BYTES_MAX: usize = 512 * 1024;
/// `struct aio_ring` before its events, and one of these.
const RING_HEAD_BYTES: usize = 32;
const EVENT_BYTES: usize = size_of::<Event>();
/// `AIO_RING_MAGIC`, the fifth word of a `struct aio_ring` (fs/aio.c), behind head and tail.
const RING_MAGIC: u32 = 0xa10a_10a1;
/// What contexts cost at the end of their address space: 20 to 40 ms.
const END_TICKS: u64 = 1 << 26;
const EINTR: Errno = Errno(4);
const EAGAIN: Errno = Errno(11);

/// Most reads that are begun at once.
pub const BEGUN_MAX: usize = 16;

/// A read of the whole of a buffer that is to be begun.
#[derive(Debug, Clone, Copy)]
pub struct Read {
    /// By which it is known.
    pub number: u32,
    /// The file, opened with `O_DIRECT`.
    pub fd: Fd,
    /// Where in the file.
    pub offset: u64,
    /// Where to.
    pub buffer: *mut [u8],
}

impl Read {
    /// None at all.
    pub const NONE: Read = Read {
        number: 0,
        fd: Fd(-1),
        offset: 0,
        buffer: core::ptr::slice_from_raw_parts_mut(core::ptr::null_mut(), 0),
    };
}

/// `struct iocb`, little-endian.
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    key: u32,
    flags: i32,
    operation: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    more_flags: u32,
    event_fd: u32,
}

impl Request {
    /// A transfer of these bytes.
    fn new(operation: u16, number: u32, (fd, offset): (Fd, u64), buffer: *const [u8]) -> Self {
        Request {
            data: u64::from(number) << NUMBER_SHIFT | buffer.len() as u64,
            operation,
            fd: fd.0 as u32,
            buffer: buffer.addr() as u64,
            bytes: buffer.len() as u64,
            offset: offset as i64,
            ..Request::default()
        }
    }
}

/// Behind the bytes of a request, in what comes back with its end, stands its number.
const NUMBER_SHIFT: u32 = 32;

/// `struct io_event`.
#[repr(C)]
struct Event {
    data: u64,
    request: u64,
    result: i64,
    more_result: i64,
}

impl Event {
    const NONE: Event = Event { data: 0, request: 0, result: 0, more_result: 0 };

    /// Whether all bytes of the request were transferred.
    fn is_whole(&self) -> bool {
        self.result == i64::from(self.data as u32)
    }
}

/// A context of this address space, made when it is first wanted, and its ring.
#[derive(Debug)]
struct Ring {
    context: AtomicUsize,
    /// Where rings are moved to.
    place: AtomicUsize,
}

impl Ring {
    const fn new() -> Self {
        Ring { context: AtomicUsize::new(NONE), place: AtomicUsize::new(NONE) }
    }

    fn is_made(&self) -> bool {
        self.context.load(Relaxed) != NONE
    }

    /// In another address space: the context is not there.
    fn forget(&self) {
        if self.context.load(Relaxed) != REFUSED {
            self.context.store(NONE, Relaxed);
        }
    }

    /// The context, for at least so many requests at a time.
    fn context(&self, requests: usize) -> Result<usize, Errno> {
        if !self.is_made() {
            self.context.store(self.make_context(requests).unwrap_or(REFUSED), Relaxed);
        }
        match self.context.load(Relaxed) {
            REFUSED => Err(EAGAIN),
            context => Ok(context),
        }
    }

    fn make_context(&self, requests: usize) -> Result<usize, Errno> {
        if self.place.load(Relaxed) == NONE {
            self.place.store(Mapping::reserve(RING_BYTES_MAX)?.start(), Relaxed);
        }
        let mut context = NONE;
        // SAFETY: the kernel maps memory of its own choice and writes one word.
        unsafe { checked(nr::__NR_io_setup, [requests, (&raw mut context) as usize]) }?;
        // SAFETY: the ring begins at the context's address; its second word counts its events.
        let events = unsafe { (context as *const u32).add(1).read_volatile() };
        let bytes = RING_HEAD_BYTES + events as usize * EVENT_BYTES;
        let bytes = bytes.next_multiple_of(crate::PAGE_BYTES);
        let flags = (nr::MREMAP_MAYMOVE | nr::MREMAP_FIXED) as usize;
        let arguments = [context, bytes, bytes, flags, self.place.load(Relaxed)];
        let moved = match bytes {
            // SAFETY: the place is zpager's own, and as long.
            ..=RING_BYTES_MAX => unsafe { checked(nr::__NR_mremap, arguments) },
            _ => Err(EAGAIN),
        };
        moved.inspect_err(|_| {
            // SAFETY: nothing goes on in it.
            let _ = unsafe { checked(nr::__NR_io_destroy, [context]) };
        })
    }

    /// Whether a request has ended and was not asked for, so that asking does not wait. Where the ring is not one
    /// that is known it says so, too.
    fn has_events(&self) -> bool {
        let context = self.context.load(Relaxed);
        if context == NONE || context == REFUSED {
            return true;
        }
        // SAFETY: the ring begins at the context's address, with six words that the kernel writes.
        let [_, _, head, tail, magic, _] = unsafe { (context as *const [u32; 6]).read_volatile() };
        magic != RING_MAGIC || head != tail
    }
}

/// Transfers of this address space, one at a time.
#[derive(Debug)]
pub struct Transfers {
    ring: Ring,
    /// For how long others that were waited for took in this address space.
    waited_ticks: AtomicU64,
}

impl Transfers {
    /// No context is made before the first transfer.
    pub const fn new() -> Self {
        Transfers { ring: Ring::new(), waited_ticks: AtomicU64::new(0) }
    }

    /// Whether it is worth its price that transfers go on: there is a context, or as much time was spent on others.
    pub fn pays(&self) -> bool {
        self.ring.is_made() || self.waited_ticks.load(Relaxed) >= END_TICKS
    }

    /// A transfer that was made in another way, and waited for, took so long.
    pub fn note_waited(&self, ticks: u64) {
        self.waited_ticks.fetch_add(ticks, Relaxed);
    }

    /// In another address space: the context is not there.
    pub fn forget(&self) {
        self.ring.forget();
        self.waited_ticks.store(0, Relaxed);
    }

    /// Begins a write; true if it goes on, false if it is done.
    ///
    /// # Errors
    /// The kernel's; nothing goes on, and some of the data may have been written.
    ///
    /// # Safety
    /// No transfer goes on. Until this one is settled `data` stays where and as it is.
    pub unsafe fn begin_write(&self, fd: Fd, offset: u64, data: &[u8]) -> Result<bool, Errno> {
        let context = self.ring.context(1)?;
        // SAFETY: the kernel only reads the data.
        unsafe { submit(context, &[Request::new(WRITE, 0, (fd, offset), data)]) }?;
        // What cannot be written at all is known by now.
        match outcome(context, false) {
            Err(EAGAIN) => Ok(true),
            ended => ended.map(|()| false),
        }
    }

    /// Begins to read the whole of `buffer`, which is to be settled.
    ///
    /// # Errors
    /// The kernel's; nothing goes on.
    ///
    /// # Safety
    /// No transfer goes on. Until this one is settled nobody else uses the buffer.
    pub unsafe fn begin_read(&self, fd: Fd, offset: u64, buffer: &mut [u8]) -> Result<(), Errno> {
        let context = self.ring.context(1)?;
        // SAFETY: the kernel writes only within the buffer.
        unsafe { submit(context, &[Request::new(READ, 0, (fd, offset), buffer)]) }.map(|_| ())
    }

    /// Waits for the transfer that goes on.
    ///
    /// # Errors
    /// Why not all of it was done; `EIO` where the kernel does not say.
    pub fn settle(&self) -> Result<(), Errno> {
        outcome(self.ring.context.load(Relaxed), true)
    }

    /// Whether the transfer that was begun, and is not settled, has ended, so that [`Transfers::settle`] does
    /// not wait. Where the ring is not one that is known it says so, too.
    pub fn has_ended(&self) -> bool {
        self.ring.has_events()
    }
}

/// Reads of this address space, up to `N` at a time, each known by a number.
#[derive(Debug)]
pub struct Reads<const N: usize> {
    ring: Ring,
}

impl<const N: usize> Reads<N> {
    /// No context is made before the first read.
    pub const fn new() -> Self {
        Reads { ring: Ring::new() }
    }

    /// In another address space: none of them goes on here.
    pub fn forget(&self) {
        self.ring.forget();
    }

    /// Begins so many reads, at most [`BEGUN_MAX`], with one call, so that the disk is told of all of them at once
    /// (include/linux/blkdev.h, `blk_plug`); gives how many of them go on, from the first on.
    ///
    /// # Errors
    /// The kernel's, of the first; none goes on.
    ///
    /// # Safety
    /// With these no more than `N` go on, each with a number of its own. Until one was among those that have ended
    /// nobody else uses its buffer.
    pub unsafe fn begin(&self, reads: &[Read]) -> Result<usize, Errno> {
        let context = self.ring.context(N)?;
        let mut requests: [Request; BEGUN_MAX] = Default::default();
        for (request, read) in requests.iter_mut().zip(reads) {
            *request = Request::new(READ, read.number, (read.fd, read.offset), read.buffer);
        }
        let count = reads.len().min(BEGUN_MAX);
        // SAFETY: the kernel writes only within the buffers.
        unsafe { submit(context, &requests[..count]) }
    }

    /// Whether some have ended that were not given yet, so that [`Reads::ended`] gives them without waiting.
    pub fn have_ended(&self) -> bool {
        self.ring.is_made() && self.ring.has_events()
    }

    /// Gives those that have ended since, by their numbers, and whether all was read. With `waits` it waits for one;
    /// one goes on then.
    ///
    /// # Errors
    /// The kernel's; what goes on is not known then.
    pub fn ended(&self, waits: bool, mut each: impl FnMut(u32, bool)) -> Result<(), Errno> {
        let mut events = [const { Event::NONE }; N];
        let context = self.ring.context.load(Relaxed);
        for event in get_events(context, waits, &mut events)? {
            each((event.data >> NUMBER_SHIFT) as u32, event.is_whole());
        }
        Ok(())
    }
}

impl<const N: usize> Default for Reads<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl Default for Transfers {
    fn default() -> Self {
        Self::new()
    }
}

/// Has the kernel begin some transfers, at most [`BEGUN_MAX`]; gives how many of them it has begun.
///
/// # Safety
/// It may do each of them until that has ended.
unsafe fn submit(context: usize, requests: &[Request]) -> Result<usize, Errno> {
    let mut places = [core::ptr::null(); BEGUN_MAX];
    for (place, request) in places.iter_mut().zip(requests) {
        *place = core::ptr::from_ref(request);
    }
    let arguments = [context, requests.len(), places.as_ptr().addr()];
    // SAFETY: the kernel copies the requests; the caller's promise.
    unsafe { checked(nr::__NR_io_submit, arguments) }
}

/// Those of the context's requests that have ended, as many as there is room for; with `waits` at least one.
fn get_events(context: usize, waits: bool, events: &mut [Event]) -> Result<&[Event], Errno> {
    let (place, most) = (events.as_mut_ptr() as usize, events.len());
    // SAFETY: the kernel writes at most so many events.
    let ask =
        || unsafe { checked(nr::__NR_io_getevents, [context, usize::from(waits), most, place, 0]) };
    let mut answer = ask();
    while answer == Err(EINTR) {
        answer = ask();
    }
    answer.map(|count| &events[..count])
}

/// How the only transfer ended; `EAGAIN` if it has not and is not waited for.
fn outcome(context: usize, waits: bool) -> Result<(), Errno> {
    match get_events(context, waits, &mut [Event::NONE])? {
        [] => Err(EAGAIN),
        [event, ..] if event.result < 0 => Err(Errno(-event.result as i32)),
        [event, ..] if event.is_whole() => Ok(()),
        _ => Err(Errno(5)),
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::os::fd::AsRawFd;
    use std::vec;

    #[test]
    fn what_is_begun_is_there_once_settled() {
        let directory = std::env::temp_dir();
        let path = directory.join(std::format!("zpager-aio-{}", std::process::id()));
        let file = std::fs::OpenOptions::new();
        let file = file.clone().read(true).write(true).create_new(true).open(&path).expect("file");
        std::fs::remove_file(&path).expect("unlinked");
        let (writes, reads) = (Transfers::new(), Transfers::new());
        let fd = Fd(file.as_raw_fd());
        for number in 1..=3u8 {
            let data = vec![number; 8192];
            // SAFETY: settled before the data are dropped.
            let goes_on = unsafe { writes.begin_write(fd, 4096, &data) };
            if goes_on.expect("written") {
                while !writes.has_ended() {
                    std::thread::yield_now();
                }
                writes.settle().expect("written");
            }
            let mut there = vec![0; 8192];
            // SAFETY: settled before the buffer is used.
            unsafe { reads.begin_read(fd, 4096, &mut there) }.expect("begun");
            while !reads.has_ended() {
                std::thread::yield_now();
            }
            reads.settle().expect("read");
            assert_eq!(there, data);
        }
        let mut beyond = vec![0; 8192];
        // SAFETY: as above.
        unsafe { reads.begin_read(fd, 8192, &mut beyond) }.expect("begun");
        assert_eq!(reads.settle(), Err(Errno(5)), "the file ends before");
    }

    #[test]
    fn reads_go_on_beside_each_other_and_are_told_by_their_numbers() {
        let contents: std::vec::Vec<u8> = (0..64u32 << 10).map(|at| (at / 4096) as u8).collect();
        let path = std::env::temp_dir().join(std::format!("zpager-reads-{}", std::process::id()));
        std::fs::write(&path, &contents).expect("written");
        let file = std::fs::File::open(&path).expect("there");
        std::fs::remove_file(&path).expect("unlinked");
        let (fd, reads) = (Fd(file.as_raw_fd()), Reads::<8>::new());
        assert!(!reads.have_ended(), "there is none");
        for turn in 0..20u64 {
            let mut buffers = vec![[0xffu8; 4096]; 8];
            let offset = |number: usize| (turn + 5 * number as u64) % 16 * 4096;
            let begin = |(number, buffer): (usize, &mut [u8; 4096])| Read {
                number: number as u32,
                fd,
                offset: offset(number),
                buffer: buffer as &mut [u8],
            };
            let wanted: std::vec::Vec<Read> = buffers.iter_mut().enumerate().map(begin).collect();
            let (first, others) = wanted.split_at(turn as usize % 9);
            for some in [first, others].into_iter().filter(|some| !some.is_empty()) {
                // SAFETY: all have ended before the buffers are looked at.
                assert_eq!(unsafe { reads.begin(some) }, Ok(some.len()));
            }
            let mut ended = 0u8;
            while ended != 0xff {
                let told = reads.ended(true, |number, is_whole| {
                    assert!(is_whole && ended & 1 << number == 0);
                    ended |= 1 << number;
                });
                told.expect("told");
            }
            assert!(!reads.have_ended());
            for (number, buffer) in buffers.iter().enumerate() {
                assert_eq!(buffer[..], contents[offset(number) as usize..][..4096]);
            }
        }
        let mut beyond = [0u8; 4096];
        let beyond = Read { number: 3, fd, offset: 62 << 10, buffer: &raw mut beyond };
        let closed = Read { fd: Fd(-1), ..beyond };
        // SAFETY: as above; nothing is read from what is not open.
        assert_eq!(unsafe { reads.begin(&[beyond, closed]) }, Ok(1));
        let told = reads.ended(true, |number, is_whole| assert_eq!((number, is_whole), (3, false)));
        told.expect("told");
        // SAFETY: nothing is read.
        assert_eq!(unsafe { reads.begin(&[closed]) }, Err(Errno(9)));
    }

    #[test]
    fn what_cannot_be_written_is_told() {
        let writes = Transfers::new();
        // SAFETY: nothing is written.
        let begun = unsafe { writes.begin_write(Fd(-1), 0, &[0; 4096]) };
        assert_eq!(begun, Err(Errno(9)));
        let null = std::fs::File::open("/dev/null").expect("null");
        // SAFETY: as above.
        let begun = unsafe { writes.begin_write(Fd(null.as_raw_fd()), 0, &[0; 4096]) };
        assert_eq!(begun, Err(Errno(9)), "opened for reading alone");
    }
}
