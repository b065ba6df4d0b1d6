//! What the kernel reads and writes in each call: the table of pointers.
//!
//! Source: the system call's manual pages and include/linux/syscalls.h. A call
//! that is not in the table has every argument that points into managed memory
//! held for [`UNKNOWN_BYTES`].

use zpager_sys::PAGE_BYTES;
use zpager_sys::signal::Context;
use zpager_sys::syscall::nr;

use super::Outcome;
use crate::hold::{Sure, Window};
use crate::process::Process;
use crate::threads::Thread;

/// What an argument is.
#[derive(Debug, Clone, Copy)]
enum Argument {
    /// A number, or a pointer that the kernel only passes on.
    Value,
    /// Points to so many bytes.
    Fixed(usize),
    /// Points to as many bytes as another argument says.
    Bytes(usize),
    /// The same, and at most so many, however many more there are.
    AtMost(usize, usize),
    /// Points to a word, and as many bytes behind it as another argument says.
    WordAndBytes(usize),
    /// Points to an array: bytes an element, argument with the number.
    Array(usize, usize),
    /// Points to a set of file descriptors, as many as another argument says.
    Set(usize),
    /// Points to a string.
    Text,
    /// Points to a length (four bytes), which another argument's buffer has.
    Length,
    /// Points to a buffer whose length another argument points to.
    BytesAt(usize),
    /// Points to a message header.
    Message,
    /// Points to as many bytes as another argument's bytes have pages.
    ByteAPage(usize),
    /// Points to a buffer's pointer and length, as `pselect6` has them of its signal mask; at most so long.
    BufferAt(usize),
    /// Points to a `struct sigevent`, which has a pointer to a message where a thread is to be notified.
    Event,
    /// Points to an array of `struct futex_waitv`, each with the address of a futex: as many as another
    /// argument says, or two.
    Waiters(Option<usize>),
}

use Argument::{
    Array, AtMost, BufferAt, ByteAPage, Bytes, BytesAt, Event, Fixed, Length, Message, Set, Text,
    Value, Waiters, WordAndBytes,
};

/// What an argument of an unknown call is taken to point to.
pub(super) const UNKNOWN_BYTES: usize = 4096;
/// Longest a buffer can be that a pointed-to length names.
const BUFFER_BYTES_MAX: usize = 1 << 20;
const MESSAGE_BYTES: usize = 56;
/// `struct sigevent`, and of `mq_notify` what it points to (`NOTIFY_COOKIE_LEN`).
const EVENT_BYTES: usize = 64;
const COOKIE_BYTES: usize = 32;
const SIGEV_THREAD: usize = 2;
/// `PATH_MAX`.
const PATH_BYTES_MAX: usize = 4096;
/// `XATTR_SIZE_MAX`, and `XATTR_LIST_MAX`.
const ATTRIBUTE_BYTES_MAX: usize = 65536;
/// A set of as many processors as Linux can be built for.
const PROCESSORS_BYTES_MAX: usize = 8192 / 8;
/// `struct futex_waitv`, most of them, and a futex with the number of its node.
const WAITER_BYTES: usize = 24;
const WAITERS_MAX: usize = 128;
const FUTEX_BYTES: usize = 8;
const TIME: Argument = Fixed(16);
const MASK: Argument = Fixed(8);
const STAT: Argument = Fixed(144);
const INFO: Argument = Fixed(128);

/// The arguments of a call, as far as they are pointers; `None` for a call that is not known.
fn shape(number: u32) -> Option<&'static [Argument]> {
    Some(match number {
        nr::__NR_open
        | nr::__NR_creat
        | nr::__NR_chdir
        | nr::__NR_rmdir
        | nr::__NR_unlink
        | nr::__NR_chmod
        | nr::__NR_chown
        | nr::__NR_lchown
        | nr::__NR_access
        | nr::__NR_mkdir
        | nr::__NR_truncate
        | nr::__NR_mknod
        | nr::__NR_chroot
        | nr::__NR_umount2
        | nr::__NR_swapon
        | nr::__NR_swapoff
        | nr::__NR_acct => &[Text],
        nr::__NR_stat | nr::__NR_lstat => &[Text, STAT],
        nr::__NR_statfs => &[Text, Fixed(120)],
        nr::__NR_fstat => &[Value, STAT],
        nr::__NR_fstatfs => &[Value, Fixed(120)],
        nr::__NR_newfstatat => &[Value, Text, STAT],
        nr::__NR_statx => &[Value, Text, Value, Value, Fixed(256)],
        nr::__NR_openat
        | nr::__NR_unlinkat
        | nr::__NR_mkdirat
        | nr::__NR_mknodat
        | nr::__NR_fchmodat
        | nr::__NR_fchownat
        | nr::__NR_faccessat
        | nr::__NR_faccessat2
        | nr::__NR_fchmodat2
        | nr::__NR_inotify_add_watch => &[Value, Text],
        nr::__NR_openat2 => &[Value, Text, Bytes(3)],
        nr::__NR_rename | nr::__NR_link | nr::__NR_symlink | nr::__NR_pivot_root => &[Text, Text],
        nr::__NR_renameat | nr::__NR_renameat2 | nr::__NR_linkat => &[Value, Text, Value, Text],
        nr::__NR_symlinkat => &[Text, Value, Text],
        nr::__NR_readlink => &[Text, AtMost(2, PATH_BYTES_MAX)],
        nr::__NR_readlinkat => &[Value, Text, AtMost(3, PATH_BYTES_MAX)],
        nr::__NR_utime => &[Text, Fixed(16)],
        nr::__NR_utimes => &[Text, Fixed(32)],
        nr::__NR_utimensat | nr::__NR_futimesat => &[Value, Text, Fixed(32)],
        nr::__NR_getcwd => &[AtMost(1, PATH_BYTES_MAX)],
        nr::__NR_getdents | nr::__NR_getdents64 => &[Value, Bytes(2)],
        nr::__NR_mount => &[Text, Text, Text, Value, Text],
        nr::__NR_setxattr | nr::__NR_lsetxattr | nr::__NR_getxattr | nr::__NR_lgetxattr => {
            &[Text, Text, AtMost(3, ATTRIBUTE_BYTES_MAX)]
        }
        nr::__NR_fsetxattr | nr::__NR_fgetxattr => &[Value, Text, AtMost(3, ATTRIBUTE_BYTES_MAX)],
        nr::__NR_listxattr | nr::__NR_llistxattr => &[Text, AtMost(2, ATTRIBUTE_BYTES_MAX)],
        nr::__NR_flistxattr => &[Value, AtMost(2, ATTRIBUTE_BYTES_MAX)],
        nr::__NR_removexattr | nr::__NR_lremovexattr => &[Text, Text],
        nr::__NR_fremovexattr => &[Value, Text],
        nr::__NR_setxattrat | nr::__NR_getxattrat => {
            &[Value, Text, Value, Text, BufferAt(ATTRIBUTE_BYTES_MAX)]
        }
        nr::__NR_listxattrat => &[Value, Text, Value, AtMost(4, ATTRIBUTE_BYTES_MAX)],
        nr::__NR_removexattrat => &[Value, Text, Value, Text],
        nr::__NR_statmount => &[Fixed(64), Bytes(2)],
        nr::__NR_listmount => &[Fixed(64), Array(8, 2)],
        nr::__NR_memfd_create => &[Text],
        nr::__NR_pipe | nr::__NR_pipe2 => &[Fixed(8)],
        nr::__NR_poll => &[Array(8, 1)],
        nr::__NR_ppoll => &[Array(8, 1), Value, TIME, MASK],
        nr::__NR_select => &[Value, Set(0), Set(0), Set(0), TIME],
        nr::__NR_pselect6 => &[Value, Set(0), Set(0), Set(0), TIME, BufferAt(8)],
        nr::__NR_epoll_ctl => &[Value, Value, Value, Fixed(12)],
        nr::__NR_epoll_wait => &[Value, Array(12, 2)],
        nr::__NR_epoll_pwait => &[Value, Array(12, 2), Value, Value, MASK],
        nr::__NR_epoll_pwait2 => &[Value, Array(12, 2), Value, TIME, MASK],
        nr::__NR_io_setup => &[Value, Fixed(8)],
        nr::__NR_io_getevents => &[Value, Value, Value, Array(32, 2), TIME],
        nr::__NR_io_pgetevents => &[Value, Value, Value, Array(32, 2), TIME, BufferAt(8)],
        nr::__NR_io_cancel => &[Value, Fixed(64), Fixed(32)],
        nr::__NR_fcntl => &[Value, Value, Fixed(32)],
        nr::__NR_sendfile => &[Value, Value, Fixed(8)],
        nr::__NR_splice | nr::__NR_copy_file_range => &[Value, Fixed(8), Value, Fixed(8)],
        nr::__NR_futex => &[Fixed(4), Value, Value, TIME, Fixed(4)],
        nr::__NR_futex_waitv => &[Waiters(Some(1)), Value, Value, TIME],
        nr::__NR_futex_requeue => &[Waiters(None)],
        nr::__NR_nanosleep => &[TIME, TIME],
        nr::__NR_clock_nanosleep => &[Value, Value, TIME, TIME],
        nr::__NR_clock_gettime | nr::__NR_clock_getres | nr::__NR_clock_settime => &[Value, TIME],
        nr::__NR_clock_adjtime => &[Value, Fixed(208)],
        nr::__NR_adjtimex => &[Fixed(208)],
        nr::__NR_gettimeofday | nr::__NR_settimeofday => &[TIME, Fixed(8)],
        nr::__NR_time => &[Fixed(8)],
        nr::__NR_times => &[Fixed(32)],
        nr::__NR_getitimer => &[Value, Fixed(32)],
        nr::__NR_setitimer => &[Value, Fixed(32), Fixed(32)],
        nr::__NR_timer_create => &[Value, Fixed(64), Fixed(4)],
        nr::__NR_timer_settime => &[Value, Value, Fixed(32), Fixed(32)],
        nr::__NR_timer_gettime => &[Value, Fixed(32)],
        nr::__NR_timerfd_settime => &[Value, Value, Fixed(32), Fixed(32)],
        nr::__NR_timerfd_gettime => &[Value, Fixed(32)],
        nr::__NR_socketpair => &[Value, Value, Value, Fixed(8)],
        nr::__NR_connect | nr::__NR_bind => &[Value, Bytes(2)],
        nr::__NR_accept | nr::__NR_accept4 | nr::__NR_getsockname | nr::__NR_getpeername => {
            &[Value, BytesAt(2), Length]
        }
        nr::__NR_sendto => &[Value, Bytes(2), Value, Value, Bytes(5)],
        nr::__NR_recvfrom => &[Value, Bytes(2), Value, Value, BytesAt(5), Length],
        nr::__NR_sendmsg | nr::__NR_recvmsg => &[Value, Message],
        nr::__NR_getsockopt => &[Value, Value, Value, BytesAt(4), Length],
        nr::__NR_uname => &[Fixed(390)],
        nr::__NR_sysinfo => &[Fixed(112)],
        nr::__NR_getrusage => &[Value, Fixed(144)],
        nr::__NR_wait4 => &[Value, Fixed(4), Value, Fixed(144)],
        nr::__NR_waitid => &[Value, Value, INFO, Value, Fixed(144)],
        nr::__NR_getgroups | nr::__NR_setgroups => &[Value, Array(4, 0)],
        nr::__NR_getresuid | nr::__NR_getresgid => &[Fixed(4), Fixed(4), Fixed(4)],
        nr::__NR_capget | nr::__NR_capset => &[Fixed(8), Fixed(24)],
        nr::__NR_sethostname | nr::__NR_setdomainname => &[Bytes(1)],
        nr::__NR_sched_setaffinity | nr::__NR_sched_getaffinity => {
            &[Value, Value, AtMost(1, PROCESSORS_BYTES_MAX)]
        }
        nr::__NR_sched_setparam | nr::__NR_sched_getparam => &[Value, Fixed(4)],
        nr::__NR_sched_setscheduler => &[Value, Value, Fixed(4)],
        nr::__NR_sched_rr_get_interval => &[Value, TIME],
        nr::__NR_sched_setattr => &[Value, Fixed(64)],
        nr::__NR_sched_getattr => &[Value, Bytes(2)],
        nr::__NR_getcpu => &[Fixed(4), Fixed(4)],
        nr::__NR_modify_ldt => &[Value, Bytes(2)],
        nr::__NR_init_module => &[Bytes(1), Value, Text],
        nr::__NR_finit_module => &[Value, Text],
        nr::__NR_arch_prctl => &[Value, Fixed(8)],
        nr::__NR_rt_sigsuspend => &[MASK],
        nr::__NR_rt_sigtimedwait => &[MASK, INFO, TIME],
        nr::__NR_rt_sigqueueinfo => &[Value, Value, INFO],
        nr::__NR_rt_tgsigqueueinfo => &[Value, Value, Value, INFO],
        nr::__NR_pidfd_send_signal => &[Value, Value, INFO],
        nr::__NR_mincore => &[Value, Value, ByteAPage(1)],
        nr::__NR_get_robust_list => &[Value, Fixed(8), Fixed(8)],
        nr::__NR_add_key => &[Text, Text, Bytes(3)],
        nr::__NR_request_key => &[Text, Text, Text],
        nr::__NR_move_pages => &[Value, Value, Array(8, 1), Array(4, 1), Array(4, 1)],
        nr::__NR_syslog => &[Value, Bytes(2)],
        nr::__NR_semop => &[Value, Array(6, 2)],
        nr::__NR_semtimedop => &[Value, Array(6, 2), Value, TIME],
        nr::__NR_msgsnd | nr::__NR_msgrcv => &[Value, WordAndBytes(2), Value],
        nr::__NR_mq_open => &[Text, Value, Value, Fixed(64)],
        nr::__NR_mq_unlink => &[Text],
        nr::__NR_mq_notify => &[Value, Event],
        nr::__NR_mq_timedsend => &[Value, Bytes(2), Value, Value, TIME],
        nr::__NR_mq_timedreceive => &[Value, Bytes(2), Value, Fixed(4), TIME],
        nr::__NR_getpid
        | nr::__NR_gettid
        | nr::__NR_getppid
        | nr::__NR_getuid
        | nr::__NR_geteuid
        | nr::__NR_getgid
        | nr::__NR_getegid
        | nr::__NR_sched_yield
        | nr::__NR_dup
        | nr::__NR_socket
        | nr::__NR_listen
        | nr::__NR_shutdown
        | nr::__NR_kill
        | nr::__NR_tkill
        | nr::__NR_tgkill
        | nr::__NR_ftruncate
        | nr::__NR_fsync
        | nr::__NR_fdatasync
        | nr::__NR_flock
        | nr::__NR_umask
        | nr::__NR_epoll_create1
        | nr::__NR_io_destroy
        | nr::__NR_eventfd2
        | nr::__NR_munlock
        | nr::__NR_munlockall
        | nr::__NR_msync
        | nr::__NR_pause
        | nr::__NR_fadvise64
        | nr::__NR_fallocate
        | nr::__NR_close
        | nr::__NR_dup2
        | nr::__NR_dup3
        | nr::__NR_membarrier
        | nr::__NR_shmget
        | nr::__NR_shmdt
        | nr::__NR_getpgrp
        | nr::__NR_setsid
        | nr::__NR_setpgid => &[],
        _ => return None,
    })
}

impl Process {
    /// A call that changes nothing that is known here.
    pub(super) fn plain_call(&mut self, thread: &mut Thread, context: &mut Context) -> Outcome {
        let arguments = context.registers.arguments();
        match shape(context.registers.rax as u32) {
            Some(shape) => {
                let sure = Sure::of(thread, context);
                for (at, argument) in shape.iter().enumerate() {
                    self.hold_argument(thread, sure, *argument, arguments[at], &arguments);
                }
                self.waiting_call(thread, context)
            }
            None => {
                for argument in arguments {
                    self.hold(thread, argument, UNKNOWN_BYTES);
                }
                Outcome::GoOn
            }
        }
    }

    fn hold_argument(
        &mut self,
        thread: &mut Thread,
        sure: Sure,
        argument: Argument,
        pointer: usize,
        arguments: &[usize; 6],
    ) {
        if pointer == 0 {
            return;
        }
        match argument {
            Value => {}
            Fixed(bytes) => self.hold(thread, pointer, bytes),
            Bytes(at) => self.hold(thread, pointer, arguments[at]),
            AtMost(at, most) => self.hold(thread, pointer, arguments[at].min(most)),
            WordAndBytes(at) => {
                self.hold(thread, pointer, arguments[at].saturating_add(size_of::<usize>()));
            }
            Array(bytes, at) => {
                let count = arguments[at] as u32 as usize;
                self.hold(thread, pointer, count.saturating_mul(bytes));
            }
            Set(at) => {
                let bits = arguments[at] as u32 as usize;
                self.hold(thread, pointer, bits.next_multiple_of(64) / 8);
            }
            Text => self.hold_string(thread, Some(sure), pointer),
            Length => self.hold(thread, pointer, size_of::<u32>()),
            BytesAt(at) => {
                let mut length = [0u8; 4];
                let mut window = Window::new(Some(sure));
                if arguments[at] != 0 && self.copy_through(&mut window, arguments[at], &mut length)
                {
                    let bytes = u32::from_ne_bytes(length) as usize;
                    self.hold(thread, pointer, bytes.min(BUFFER_BYTES_MAX));
                }
            }
            Message => self.hold_message(thread, sure, pointer),
            ByteAPage(at) => self.hold(thread, pointer, arguments[at].div_ceil(PAGE_BYTES)),
            BufferAt(most) => {
                self.hold(thread, pointer, 16);
                if let Some([buffer @ (1..), bytes]) = self.peek_words(pointer) {
                    self.hold(thread, buffer, (bytes as u32 as usize).min(most));
                }
            }
            Event => {
                self.hold(thread, pointer, EVENT_BYTES);
                if let Some([cookie, kind]) = self.peek_words(pointer)
                    && kind >> u32::BITS == SIGEV_THREAD
                {
                    self.hold(thread, cookie, COOKIE_BYTES);
                }
            }
            Waiters(at) => {
                let count = at.map_or(2, |at| arguments[at] as u32 as usize).min(WAITERS_MAX);
                self.hold_waiters(thread, sure, pointer, count);
            }
        }
    }

    /// `struct futex_waitv`: value, address, flags.
    fn hold_waiters(&mut self, thread: &mut Thread, sure: Sure, list: usize, count: usize) {
        self.hold(thread, list, count * WAITER_BYTES);
        let mut window = Window::new(Some(sure));
        for waiter in 0..count {
            let place = list.saturating_add(waiter * WAITER_BYTES);
            let words = self.peek_words_through(&mut window, place);
            let Some([_, futex]) = words else { return };
            self.hold(thread, futex, FUTEX_BYTES);
        }
    }

    /// `struct msghdr`: name, name length, vectors, their number, control data, their length, flags.
    fn hold_message(&mut self, thread: &mut Thread, sure: Sure, message: usize) {
        self.hold(thread, message, MESSAGE_BYTES);
        let mut window = Window::new(Some(sure));
        if let Some(header) = self.peek_words_through(&mut window, message) {
            self.hold_named(thread, &mut window, header);
        }
    }

    /// Holds what the header of a message names; its vectors are read through the window.
    pub(super) fn hold_named(
        &mut self,
        thread: &mut Thread,
        window: &mut Window,
        header: [usize; 7],
    ) {
        let [name, name_bytes, vectors, count, control, control_bytes, _] = header;
        self.hold(thread, name, name_bytes as u32 as usize);
        self.hold_vectors(thread, window, [vectors, count], false);
        self.hold(thread, control, control_bytes);
    }
}
