//! Who we are, and the end.

use crate::PAGE_BYTES;
use crate::file::Fd;
use crate::futex;
use crate::syscall::{Errno, checked, nr};

/// What is read at once of what `/proc` says of a process, and what is kept of a line: it has as many numbers as
/// there are groups of the user, or pid namespaces, which are 32 at most.
const CHUNK_BYTES: usize = 1024;
const LINE_BYTES: usize = 512;
/// Room for the same in one line of numbers.
const STAT_BYTES: usize = 1024;
/// What `/proc` says of this process.
const OWN_STATUS: &[u8] = b"/proc/self/status\0";

/// The process.
pub fn pid() -> i32 {
    // SAFETY: asks, changes nothing.
    unsafe { checked(nr::__NR_getpid, []) }.unwrap_or(0) as i32
}

/// Whether ids are to this process what they are to the one that made it: it is not among the first of a
/// pid namespace (pid_namespaces(7)), to whom all others seem to be gone. Their parent has no number there.
pub fn sees_parent() -> bool {
    const NO_NUMBER: usize = 0;
    // SAFETY: asks, changes nothing.
    unsafe { checked(nr::__NR_getppid, []) }.is_ok_and(|parent| parent != NO_NUMBER)
}

/// Opens `/proc/self`, not what it leads to. Whoever has this reads by it ([`id_by`]) his own id in the pid
/// namespace of that `/proc`, in any namespace below it and whatever `/proc` he has himself.
///
/// # Errors
/// The kernel's.
pub fn open_link() -> Result<Fd, Errno> {
    Fd::open(b"/proc/self\0", nr::O_PATH | nr::O_NOFOLLOW)
}

/// The calling process's id in the pid namespace of what [`open_link`] has opened.
///
/// # Errors
/// The kernel's.
pub fn id_by(link: Fd) -> Result<i32, Errno> {
    read_id(link.0 as usize, b"\0")
}

/// The same in that of `/proc`.
///
/// # Errors
/// The kernel's.
pub fn id_by_proc() -> Result<i32, Errno> {
    const NO_DIRECTORY: usize = 0;
    read_id(NO_DIRECTORY, b"/proc/self\0")
}

/// What the kernel calls the calling process's pid namespace, an inode's number; `None` where `/proc` does
/// not tell.
pub fn namespace() -> Option<u64> {
    let mut text = [0; 32];
    // "pid:[NUMBER]"
    let text = read_link(0, b"/proc/self/ns/pid\0", &mut text).ok()?;
    text.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

fn read_id(directory: usize, path: &[u8]) -> Result<i32, Errno> {
    read_link(directory, path, &mut [0; 32])?.parse().map_err(|_| Errno(22))
}

/// What a symbolic link says, as far as there is room and it is text. `path` ends in a zero byte; where it is
/// empty, what the link is that `directory` was opened as.
///
/// # Errors
/// The kernel's.
pub fn read_link<'a>(directory: usize, path: &[u8], out: &'a mut [u8]) -> Result<&'a str, Errno> {
    debug_assert_eq!(path.last(), Some(&0));
    let arguments = [directory, path.as_ptr() as usize, out.as_mut_ptr() as usize, out.len()];
    // SAFETY: the path is a C string, and the kernel writes into `out` alone.
    let read = unsafe { checked(nr::__NR_readlinkat, arguments) }?;
    core::str::from_utf8(&out[..read]).map_err(|_| Errno(22))
}

/// The thread.
pub fn tid() -> i32 {
    // SAFETY: asks, changes nothing.
    unsafe { checked(nr::__NR_gettid, []) }.unwrap_or(0) as i32
}

/// The user as whom it acts.
pub fn user() -> u32 {
    // SAFETY: asks, changes nothing.
    unsafe { checked(nr::__NR_geteuid, []) }.unwrap_or(0) as u32
}

/// Whether thread `tid` of process `pid` still exists.
pub fn thread_exists(pid: i32, tid: i32) -> bool {
    // SAFETY: signal 0 only asks.
    let asked = unsafe { checked(nr::__NR_tgkill, [pid as usize, tid as usize, 0]) };
    asked != Err(Errno(3))
}

/// Whether process `pid` is there, or a zombie of it.
pub fn exists(pid: i32) -> bool {
    // SAFETY: signal 0 only asks.
    let asked = unsafe { checked(nr::__NR_kill, [pid as usize, 0]) };
    asked != Err(Errno(3))
}

/// Whether process `pid`, another one, has this memory. One that has ended or runs another program
/// has not; where the kernel does not tell (kcmp(2)), one that exists and is no zombie has.
pub fn shares_memory(pid: i32) -> bool {
    const KCMP_VM: usize = 1;
    let arguments = [tid() as usize, pid as usize, KCMP_VM, 0, 0];
    // SAFETY: compares, changes nothing.
    match unsafe { checked(nr::__NR_kcmp, arguments) } {
        Ok(order) => order == 0,
        Err(Errno(3)) => false,
        Err(_) => exists(pid) && !is_zombie(pid),
    }
}

/// Whether process `pid` has ended and nobody has waited for it so far. False where `/proc` does
/// not tell.
fn is_zombie(pid: i32) -> bool {
    let (mut path, mut stat) = ([0; 32], [0; 64]);
    path[..6].copy_from_slice(b"/proc/");
    let mut end = 6 + write_decimal(pid, &mut path[6..]);
    path[end..end + 6].copy_from_slice(b"/stat\0");
    end += 6;
    let Ok(file) = Fd::open(&path[..end], nr::O_RDONLY) else { return false };
    let read = file.read(&mut stat).unwrap_or(0);
    file.close();
    // The name, in brackets, may have brackets too; it has 15 bytes at most.
    let state = stat[..read].iter().rposition(|&byte| byte == b')').and_then(|at| stat.get(at + 2));
    matches!(state, Some(b'Z' | b'X'))
}

/// Writes a number that is not negative in decimal digits, at most ten; gives how many.
pub fn write_decimal(number: i32, out: &mut [u8]) -> usize {
    let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
    let mut rest = number;
    for place in out[..digits].iter_mut().rev() {
        *place = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    digits
}

/// Sends `signal` to the calling thread.
pub fn raise(signal: u32) {
    // SAFETY: what the signal does to this process is what the caller wants.
    let _ = unsafe { checked(nr::__NR_tgkill, [pid() as usize, tid() as usize, signal as usize]) };
}

/// Whether a descriptor is this process's own pidfd. False where the kernel does not tell one pidfd
/// from another (before Linux 6.9).
pub fn is_own_descriptor(fd: usize) -> bool {
    const SELF_THREAD: i32 = -10000;
    const SELF_PROCESS: i32 = -10001;
    if [SELF_THREAD, SELF_PROCESS].contains(&(fd as i32)) {
        return true;
    }
    // SAFETY: a descriptor of our own, which is closed below.
    let Ok(own) = (unsafe { checked(nr::__NR_pidfd_open, [pid() as usize, 0]) }) else {
        return false;
    };
    let is_same = pidfd_identity(own).is_some_and(|identity| pidfd_identity(fd) == Some(identity));
    Fd(own as i32).close();
    is_same
}

/// Device and inode of a pidfd, where it has an inode of its own.
fn pidfd_identity(fd: usize) -> Option<[u64; 2]> {
    const PID_FS_MAGIC: u64 = 0x5049_4446;
    let (mut system, mut status) = ([0u64; 15], [0u64; 18]);
    // SAFETY: struct statfs has 120 bytes, struct stat 144.
    let asked = unsafe {
        checked(nr::__NR_fstatfs, [fd, system.as_mut_ptr() as usize])
            .and_then(|_| checked(nr::__NR_fstat, [fd, status.as_mut_ptr() as usize]))
    };
    (asked.is_ok() && system[0] == PID_FS_MAGIC).then_some([status[0], status[1]])
}

/// Gives `each` the lines of the file at `path`, which ends with a zero byte, of long ones the beginning; none where
/// it cannot be read.
fn each_line(path: &[u8], mut each: impl FnMut(&[u8])) {
    let Ok(file) = Fd::open(path, nr::O_RDONLY) else { return };
    let (mut chunk, mut line, mut length) = ([0; CHUNK_BYTES], [0; LINE_BYTES], 0);
    while let Ok(read @ 1..) = file.read(&mut chunk) {
        for &byte in &chunk[..read] {
            if byte == b'\n' {
                each(&line[..length]);
                length = 0;
            } else if length < LINE_BYTES {
                line[length] = byte;
                length += 1;
            }
        }
    }
    file.close();
}

/// The beginning of the file at `path`, which ends with a zero byte, in `text`; nothing where it cannot be read.
fn own_file<'a>(path: &[u8], text: &'a mut [u8]) -> &'a [u8] {
    let Ok(file) = Fd::open(path, nr::O_RDONLY) else { return &[] };
    let read = file.read(text).unwrap_or(0);
    file.close();
    &text[..read]
}

/// What a status says under a name, colon included (proc(5)); nothing where it has no such line.
pub fn field<'a>(status: &'a [u8], name: &[u8]) -> &'a str {
    let mut lines = status.split(|&byte| byte == b'\n');
    let value = lines.find_map(|line| line.strip_prefix(name));
    value.and_then(|value| core::str::from_utf8(value).ok()).unwrap_or("")
}

/// What a process is confined by.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Confinement {
    /// Filters of system calls that hold for it (seccomp(2)).
    pub filters: u32,
    /// Process ids that it has, from that of `/proc` to its own (pid_namespaces(7)).
    pub ids: u32,
}

impl Confinement {
    /// This process's; none where `/proc` does not tell.
    pub fn own() -> Self {
        Confinement::at(OWN_STATUS)
    }

    /// The same by the file at `path`, which ends with a zero byte.
    fn at(path: &[u8]) -> Self {
        let mut found = Confinement::default();
        each_line(path, |line| found.note(line));
        found
    }

    /// What a process's status says (proc(5)).
    pub fn of(status: &[u8]) -> Self {
        let mut found = Confinement::default();
        status.split(|&byte| byte == b'\n').for_each(|line| found.note(line));
        found
    }

    /// Takes what a line of it says.
    fn note(&mut self, line: &[u8]) {
        if line.starts_with(b"Seccomp_filters:") {
            self.filters = field(line, b"Seccomp_filters:").trim().parse().unwrap_or(0);
        } else if line.starts_with(b"NSpid:") {
            self.ids = field(line, b"NSpid:").split_ascii_whitespace().count() as u32;
        }
    }
}

/// Whether this process has other threads than the calling one; not where `/proc` does not tell.
pub fn has_other_threads() -> bool {
    differs(b"Threads:", "1")
}

/// Whether another process traces this one (ptrace(2)); not where `/proc` does not tell.
pub fn is_traced() -> bool {
    differs(b"TracerPid:", "0")
}

/// Whether this process's status says something else under a name than this.
fn differs(name: &[u8], usual: &str) -> bool {
    let mut differs = false;
    each_line(OWN_STATUS, |line| {
        let value = field(line, name).trim();
        differs |= !value.is_empty() && value != usual;
    });
    differs
}

/// Whether who traces this process serves its brk(2) in the kernel's place, as proot does: the kernel knows
/// nothing of the memory below the break.
pub fn is_brk_emulated() -> bool {
    let mut text = [0; STAT_BYTES];
    let Some(start) = first_break(own_file(b"/proc/self/stat\0", &mut text)) else { return false };
    let start = start.next_multiple_of(PAGE_BYTES);
    // SAFETY: no memory is added or taken with 0.
    let now = unsafe { checked(nr::__NR_brk, [0]) }.unwrap_or(start);
    let is_mapped = || {
        let mut residence = 0u8;
        // SAFETY: the kernel writes a byte for the one page.
        let asked = unsafe {
            checked(nr::__NR_mincore, [start, PAGE_BYTES, (&raw mut residence) as usize])
        };
        asked.is_ok()
    };
    now.next_multiple_of(PAGE_BYTES) != start && !is_mapped()
}

/// Where `stat` says that the memory begins which brk(2) ends (proc(5), field 47).
fn first_break(stat: &[u8]) -> Option<usize> {
    // Of those behind the program's name, which may hold anything.
    const FIELD: usize = 44;
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    let fields = core::str::from_utf8(&stat[name_end + 1..]).ok()?;
    let start = fields.split_ascii_whitespace().nth(FIELD)?.parse().ok()?;
    (start > 0).then_some(start)
}

/// A value in kB of `status`, `smaps_rollup` or `/proc/meminfo` (proc(5)), in bytes. `name` is all that
/// stands before it.
pub fn value_bytes(text: &str, name: &str) -> Option<u64> {
    let value = field(text.as_bytes(), name.as_bytes()).trim();
    value.strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// RAM that nobody has, in bytes.
pub fn free_memory_bytes() -> u64 {
    const FREE: usize = 5;
    const UNIT: usize = 13;
    // `struct sysinfo`: 112 bytes, in whole words but for the unit in the 14th.
    let mut information = [0u64; 14];
    // SAFETY: the kernel writes the struct.
    match unsafe { checked(nr::__NR_sysinfo, [information.as_mut_ptr() as usize]) } {
        Ok(_) => information[FREE].saturating_mul(u64::from(information[UNIT] as u32)),
        Err(_) => 0,
    }
}

/// Sleeps.
pub fn nap(nanoseconds: u64) {
    let time = futex::time(nanoseconds);
    // SAFETY: the kernel only reads the two words.
    let _ = unsafe { checked(nr::__NR_nanosleep, [time.as_ptr() as usize, 0]) };
}

/// Ends the process.
pub fn exit_group(status: i32) -> ! {
    loop {
        // SAFETY: ends everything.
        let _ = unsafe { checked(nr::__NR_exit_group, [status as usize]) };
    }
}

/// A part of memory as the kernel takes it: where, and how many bytes (`struct iovec`).
pub type Part = [usize; 2];

/// Writes a value, as its bytes are, into memory of this very process that may not be mapped.
///
/// # Errors
/// `EFAULT` where a part is not writable.
pub fn poke<T: Copy>(address: usize, value: &T) -> Result<(), Errno> {
    // SAFETY: a value is readable.
    unsafe { poke_bytes(address, core::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// Writes `bytes` from `source` into memory of this very process that may not be mapped.
///
/// # Errors
/// `EFAULT` where a part is not writable.
///
/// # Safety
/// `source` is readable for `bytes`.
pub unsafe fn poke_bytes(address: usize, source: *const u8, bytes: usize) -> Result<(), Errno> {
    let from = [source as usize, bytes];
    // SAFETY: the kernel only reads the source; what it writes is the program's, which asked for it.
    let copied = unsafe { across(nr::__NR_process_vm_writev, from, &[[address, bytes]]) };
    all_of(copied, bytes)
}

/// Reads memory of this very process that may not be mapped.
///
/// # Errors
/// `EFAULT` where a part is not readable.
pub fn peek(address: usize, out: &mut [u8]) -> Result<(), Errno> {
    let ours = [out.as_mut_ptr() as usize, out.len()];
    // SAFETY: the kernel writes into `out` alone.
    let copied = unsafe { across(nr::__NR_process_vm_readv, ours, &[[address, out.len()]]) };
    all_of(copied, out.len())
}

/// Reads parts of this very process's memory to `out`, one behind the other, as far as they are
/// readable; gives how many bytes that were.
///
/// # Safety
/// `out` is the caller's to write, for as many bytes as the parts have together.
pub unsafe fn gather(parts: &[Part], out: *mut u8) -> usize {
    let ours = [out as usize, parts.iter().map(|[_, bytes]| bytes).sum()];
    // SAFETY: the caller's promise.
    unsafe { across(nr::__NR_process_vm_readv, ours, parts) }.unwrap_or(0)
}

/// Gives the pages of parts of this very process's memory back with one call (`MADV_DONTNEED`);
/// gives how many bytes were, of the parts in their order: none where the kernel does not do that
/// (before Linux 6.14).
///
/// # Safety
/// The program must not miss what they hold.
pub unsafe fn drop_parts(parts: &[Part]) -> usize {
    // SAFETY: the caller's promise.
    unsafe { advise_parts(parts, nr::MADV_DONTNEED as usize) }
}

/// Gives advice about parts of this very process's memory with one call; gives for how many bytes it was taken, of
/// the parts in their order.
///
/// # Safety
/// What the advice changes is the caller's to change.
pub(crate) unsafe fn advise_parts(parts: &[Part], advice: usize) -> usize {
    /// `PIDFD_SELF_THREAD`.
    const SELF: i32 = -10000;
    let arguments = [SELF as usize, parts.as_ptr() as usize, parts.len(), advice, 0];
    // SAFETY: the caller's promise.
    unsafe { checked(nr::__NR_process_madvise, arguments) }.unwrap_or(0)
}

/// Copies between memory of ours and parts that may not be mapped, by way of the kernel; gives how
/// many bytes, in the order of the parts.
///
/// # Safety
/// What `number` writes to is the caller's to write.
unsafe fn across(number: u32, ours: Part, theirs: &[Part]) -> Result<usize, Errno> {
    let (local, remote) = (ours.as_ptr() as usize, theirs.as_ptr() as usize);
    // SAFETY: the caller's promise.
    unsafe { checked(number, [tid() as usize, local, 1, remote, theirs.len(), 0]) }
}

/// Whether so many bytes were copied.
fn all_of(copied: Result<usize, Errno>, bytes: usize) -> Result<(), Errno> {
    if copied? == bytes { Ok(()) } else { Err(Errno(14)) }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn values_in_kb_are_read() {
        let text = "MemTotal:  9000 kB\nMemFree:   100 kB\nHugePages_Total:  7\nBad: 1x kB\n";
        assert_eq!(value_bytes(text, "MemFree:"), Some(100 << 10));
        for name in ["Free:", "HugePages_Total:", "Bad:"] {
            assert_eq!(value_bytes(text, name), None, "{name}");
        }
    }

    #[test]
    fn a_status_says_what_confines_a_process() {
        let status = b"Name:\tx\nNSpid:\t77\t1\nSeccomp:\t2\nSeccomp_filters:\t13\nGroups:\t\n";
        let found = Confinement::of(status);
        assert_eq!(found, Confinement { filters: 13, ids: 2 });
        assert_eq!(Confinement::of(b"Name:\tx\nSeccomp:\t2\n"), Confinement::default());
        let own = Confinement::own();
        assert_eq!(own, Confinement::of(&std::fs::read("/proc/self/status").expect("readable")));
        assert!(own.ids > 0);
    }

    /// A user may be in some hundreds of groups, or in thousands.
    #[test]
    fn what_stands_behind_a_long_line_is_found() {
        let groups: std::string::String =
            (0..3000).map(|group| std::format!("{} ", 1_000_000_000 + group)).collect();
        let status =
            std::format!("Name:\tx\nGroups:\t{groups}\nNSpid:\t7\t1\nSeccomp_filters:\t3\n");
        let file = std::env::temp_dir().join(std::format!("zpager-status-{}", pid()));
        std::fs::write(&file, &status).expect("written");
        let path = std::format!("{}\0", file.display());
        assert_eq!(Confinement::at(path.as_bytes()), Confinement { filters: 3, ids: 2 });
        assert_eq!(Confinement::of(status.as_bytes()), Confinement { filters: 3, ids: 2 });
        std::fs::remove_file(&file).expect("removed");
    }

    #[test]
    fn the_first_break_is_found_behind_any_name() {
        let mut stat = std::string::String::from("7 (a) b) (c) S");
        (4..=52).for_each(|field| stat += &std::format!(" {}", field * 1000));
        assert_eq!(first_break(stat.as_bytes()), Some(47_000));
        for text in ["", "7 (a) S 1", "7 a S"] {
            assert_eq!(first_break(text.as_bytes()), None, "{text}");
        }
        assert!(first_break(&std::fs::read("/proc/self/stat").expect("readable")).is_some());
        assert!(!is_brk_emulated());
    }

    #[test]
    fn a_process_reads_its_id_by_a_link() {
        let link = open_link().expect("/proc");
        assert_eq!([id_by(link), id_by_proc()], [Ok(pid()); 2]);
        link.close();
        assert_eq!(id_by(link), Err(Errno(9)));
        let shown = std::fs::read_link("/proc/self/ns/pid").expect("/proc");
        assert_eq!(shown.to_str(), namespace().map(|it| std::format!("pid:[{it}]")).as_deref());
    }

    #[test]
    fn some_memory_is_free() {
        assert!(free_memory_bytes() > 0);
    }

    #[test]
    fn numbers_are_written() {
        for number in [0, 7, 10, 99, 4_194_304, i32::MAX] {
            let mut out = [0; 10];
            let length = write_decimal(number, &mut out);
            assert_eq!(std::str::from_utf8(&out[..length]), Ok(std::format!("{number}").as_str()));
        }
    }

    #[test]
    fn another_process_has_another_descriptor() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat");
        let open = |pid: i32| {
            // SAFETY: a new descriptor.
            unsafe { checked(nr::__NR_pidfd_open, [pid as usize, 0]) }.expect("a descriptor")
        };
        let (own, other) = (open(pid()), open(child.id() as i32));
        assert_eq!(is_own_descriptor(own), pidfd_identity(own).is_some());
        assert!(!is_own_descriptor(other) && !is_own_descriptor(0));
        assert!(is_own_descriptor(-10000isize as usize));
        [own, other].into_iter().for_each(|fd| Fd(fd as i32).close());
        drop(child.stdin.take());
        child.wait().expect("its status");
    }

    #[test]
    fn a_child_that_has_ended_is_a_zombie_until_it_is_waited_for() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat");
        let pid = child.id() as i32;
        assert!(!is_zombie(pid) && exists(pid) && !shares_memory(pid));
        drop(child.stdin.take());
        while !is_zombie(pid) {
            nap(1_000_000);
        }
        assert!(exists(pid) && !shares_memory(pid));
        child.wait().expect("its status");
        assert!(!is_zombie(pid));
    }
}
