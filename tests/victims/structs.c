/*
 * Every system call that takes a string or a struct, with that argument alone
 * on an absent page. Each check allots its arguments first; then the ballast
 * presses all of them out; then the calls are made, one fault a pointer.
 */
#include "victim.h"
#include <dirent.h>
#include <asm/ldt.h>
#include <linux/fs.h>
#include <linux/fsmap.h>
#include <linux/netlink.h>
#include <linux/stat.h>
#include <mqueue.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>

#define SLOTS 4096
#ifndef PR_GET_AUXV
#define PR_GET_AUXV 0x41555856
#endif

static char *slots;
static size_t next_slot;

/* A page of its own for one argument; neighbours are left unused so that nothing comes with it. */
static void *slot(void) {
    CHECK(next_slot < SLOTS);
    char *page = slots + next_slot * PAGE_BYTES;
    next_slot += 3;
    memset(page, 0x5a, PAGE_BYTES);
    return page;
}

/* A string that lies across the border of two pages. */
static char *string(const char *text) {
    char *start = (char *)slot() + PAGE_BYTES - strlen(text) / 2;
    strcpy(start, text);
    return start;
}

static void *copy(const void *value, size_t bytes) {
    return memcpy(slot(), value, bytes);
}
#define COPY(type, ...) ((type *)copy(&(type){__VA_ARGS__}, sizeof(type)))

static int file;

static void paths(void) {
    char *name = string("structs-file"), *link = string("structs-link"),
         *other = string("structs-new");
    char *directory = string("structs-directory"), *mode = string("w"), *cwd = slot(),
         *before = slot();
    char *target = slot(), *real = slot(), *dot = string("."), *up = string(".."),
         *fifo = string("structs-fifo");
    struct stat *a = slot(), *b = slot(), *c = slot();
    struct statx *x = slot();
    struct statfs *fs = slot();
    struct timespec *times =
        copy((struct timespec[2]){{1000, 5}, {2000, 7}}, 2 * sizeof(struct timespec));
    (void)mode;
    CHECK(syscall(SYS_getcwd, before, PAGE_BYTES) > 0);
    press();
    int fd = open(name, O_CREAT | O_TRUNC | O_RDWR, 0640);
    CHECK(fd >= 0 && write(fd, "contents", 8) == 8);
    CHECK(stat(name, a) == 0 && a->st_size == 8 && (a->st_mode & 0777) == 0640);
    CHECK(fstat(fd, b) == 0 && b->st_ino == a->st_ino);
    CHECK(symlink(name, link) == 0 && lstat(link, c) == 0 && S_ISLNK(c->st_mode));
    CHECK(readlink(link, target, PAGE_BYTES) == 12 && memcmp(target, "structs-file", 12) == 0);
    press();
    CHECK(syscall(SYS_statx, AT_FDCWD, name, 0, STATX_SIZE, x) == 0 && x->stx_size == 8);
    CHECK(statfs(dot, fs) == 0 && fs->f_bsize > 0);
    CHECK(utimensat(AT_FDCWD, name, times, 0) == 0 && stat(name, a) == 0
          && a->st_mtim.tv_sec == 2000);
    CHECK(access(name, R_OK) == 0 && truncate(name, 100) == 0 && chmod(name, 0600) == 0);
    press();
    CHECK(mkdir(directory, 0700) == 0 && chdir(directory) == 0);
    CHECK(syscall(SYS_getcwd, cwd, PAGE_BYTES) > 0
          && strcmp(strrchr(cwd, '/') + 1, "structs-directory") == 0);
    CHECK(chdir(up) == 0 && rmdir(directory) == 0);
    CHECK(realpath(link, real) && strcmp(strrchr(real, '/') + 1, "structs-file") == 0);
    CHECK(mknod(fifo, S_IFIFO | 0600, 0) == 0 && unlink(fifo) == 0);
    press();
    CHECK(rename(name, other) == 0 && linkat(AT_FDCWD, other, AT_FDCWD, name, 0) == 0);
    CHECK(stat(other, b) == 0 && b->st_nlink == 2);
    CHECK(unlink(name) == 0 && unlink(other) == 0 && unlinkat(AT_FDCWD, link, 0) == 0);
    CHECK(open(name, O_RDONLY) == -1 && errno == ENOENT);
    file = fd;
    note(a->st_size);
}

static void directories(void) {
    char *directory = string("structs-entries"), *entries = pages_map(32);
    press();
    CHECK(mkdir(directory, 0700) == 0);
    int at = open(directory, O_RDONLY | O_DIRECTORY);
    CHECK(at >= 0);
    for (int i = 0; i < 500; i++) {
        char *name = (char *)slots + (SLOTS - 8) * PAGE_BYTES;
        sprintf(name, "an-entry-with-a-long-name-%d", i);
        int fd = openat(at, name, O_CREAT | O_WRONLY, 0600);
        CHECK(fd >= 0);
        close(fd);
    }
    memset(entries, 0x5a, 32 * PAGE_BYTES);
    press();
    long n, count = 0;
    while ((n = syscall(SYS_getdents64, at, entries, 32 * PAGE_BYTES)) > 0)
        for (long i = 0; i < n; i += ((struct dirent64 *)(entries + i))->d_reclen)
            count += strncmp(((struct dirent64 *)(entries + i))->d_name, "an-entry", 8) == 0;
    CHECK(n == 0 && count == 500);
    for (int i = 0; i < 500; i++) {
        char name[64];
        sprintf(name, "an-entry-with-a-long-name-%d", i);
        CHECK(unlinkat(at, name, 0) == 0);
    }
    close(at);
    CHECK(rmdir(directory) == 0);
    note(count);
}

static void clocks(void) {
    struct timespec *now = slot(), *then = slot(), *wait = COPY(struct timespec, 0, 2000000),
                    *left = slot();
    struct timeval *day = slot();
    struct itimerspec *setting = COPY(struct itimerspec, {0, 0}, {50, 0}), *old = slot();
    struct itimerval *interval = COPY(struct itimerval, {0, 0}, {100, 0}), *old_interval = slot();
    struct tms *times_used = slot();
    struct rusage *usage = slot();
    struct sigevent *event = COPY(struct sigevent, .sigev_notify = SIGEV_NONE);
    int *timer = slot();
    press();
    CHECK(raw(SYS_clock_gettime, CLOCK_MONOTONIC, (long)now, 0, 0, 0, 0) == 0);
    CHECK(raw(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, (long)wait, (long)left, 0, 0) == 0);
    CHECK(raw(SYS_clock_gettime, CLOCK_MONOTONIC, (long)then, 0, 0, 0, 0) == 0);
    int64_t slept_ns = (then->tv_sec - now->tv_sec) * 1000000000ll + then->tv_nsec - now->tv_nsec;
    CHECK(slept_ns >= 2000000);
    CHECK(raw(SYS_gettimeofday, (long)day, 0, 0, 0, 0, 0) == 0 && day->tv_sec > 1000000);
    CHECK(raw(SYS_nanosleep, (long)wait, (long)left, 0, 0, 0, 0) == 0);
    CHECK(syscall(SYS_timer_create, CLOCK_MONOTONIC, event, timer) == 0);
    CHECK(syscall(SYS_timer_settime, *timer, 0, setting, old) == 0 && old->it_value.tv_sec == 0);
    press();
    CHECK(syscall(SYS_timer_gettime, *timer, old) == 0 && old->it_value.tv_sec >= 1);
    CHECK(syscall(SYS_timer_delete, *timer) == 0);
    CHECK(setitimer(ITIMER_VIRTUAL, interval, old_interval) == 0
          && old_interval->it_value.tv_sec == 0);
    CHECK(getitimer(ITIMER_VIRTUAL, old_interval) == 0 && old_interval->it_value.tv_sec > 90);
    interval->it_value.tv_sec = 0;
    CHECK(setitimer(ITIMER_VIRTUAL, interval, NULL) == 0);
    CHECK(times(times_used) != -1 && getrusage(RUSAGE_SELF, usage) == 0 && usage->ru_maxrss > 0);
    int fd = timerfd_create(CLOCK_MONOTONIC, 0);
    setting->it_value = (struct timespec){0, 1000000};
    uint64_t *expirations = slot();
    press();
    CHECK(timerfd_settime(fd, 0, setting, old) == 0 && read(fd, expirations, 8) == 8
          && *expirations == 1);
    CHECK(timerfd_gettime(fd, old) == 0);
    close(fd);
}

static void waiting(void) {
    struct pollfd *polls = slot();
    fd_set *readable = slot(), *writable = slot(), *failed = slot();
    struct timeval *limit = COPY(struct timeval, 1, 0);
    struct timespec *precise = COPY(struct timespec, 1, 0);
    sigset_t *none = slot();
    struct epoll_event *change = slot(), *events = slot();
    int *fds = slot(), *ready = slot();
    uint64_t *counter = slot();
    press();
    CHECK(pipe2(fds, O_CLOEXEC | O_NONBLOCK) == 0 && write(fds[1], "some bytes", 10) == 10);
    CHECK(ioctl(fds[0], FIONREAD, ready) == 0 && *ready == 10);
    polls[0] = (struct pollfd){fds[0], POLLIN, 0};
    polls[1] = (struct pollfd){fds[1], POLLOUT, 0};
    sigemptyset(none);
    memset(readable, 0, sizeof *readable);
    memset(writable, 0, sizeof *writable);
    memset(failed, 0, sizeof *failed);
    FD_SET(fds[0], readable);
    FD_SET(fds[1], writable);
    press();
    CHECK(raw(SYS_poll, (long)polls, 2, 1000, 0, 0, 0) == 2 && polls[0].revents == POLLIN);
    CHECK(ppoll(polls, 2, precise, none) == 2);
    CHECK(select(fds[1] + 1, readable, writable, failed, limit) == 2 && FD_ISSET(fds[0], readable));
    CHECK(pselect(fds[1] + 1, readable, writable, failed, precise, none) == 2);
    press();
    int epoll = epoll_create1(0);
    *change = (struct epoll_event){EPOLLIN, {.u64 = 77}};
    press();
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fds[0], change) == 0);
    CHECK(epoll_wait(epoll, events, 64, 1000) == 1 && events[0].data.u64 == 77);
    press();
    CHECK(epoll_pwait(epoll, events, 64, 1000, none) == 1 && events[0].events == EPOLLIN);
    press();
    CHECK(syscall(SYS_epoll_pwait2, epoll, events, 64, precise, none, 8) == 1
          || errno == ENOSYS); /* before Linux 5.11 */
    int counting = eventfd(0, 0);
    *counter = 5;
    press();
    CHECK(write(counting, counter, 8) == 8 && read(counting, counter, 8) == 8 && *counter == 5);
    close(fds[0]), close(fds[1]), close(epoll), close(counting);
}

static void sockets(void) {
    struct sockaddr_in *name = COPY(struct sockaddr_in, .sin_family = AF_INET), *bound = slot(),
                       *peer = slot();
    socklen_t *length = COPY(socklen_t, sizeof *bound),
              *peer_length = COPY(socklen_t, sizeof *peer);
    int *value = COPY(int, 1), *found = slot(), *pair = slot();
    struct ifconf *interfaces = COPY(struct ifconf, PAGE_BYTES, {slot()});
    socklen_t *found_length = COPY(socklen_t, sizeof *found);
    name->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    press();
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
        client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(listener >= 0 && client >= 0);
    CHECK(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, value, sizeof *value) == 0);
    CHECK(getsockopt(listener, SOL_SOCKET, SO_REUSEADDR, found, found_length) == 0 && *found == 1);
    CHECK(bind(listener, (struct sockaddr *)name, sizeof *name) == 0 && listen(listener, 5) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)bound, length) == 0 && bound->sin_port != 0);
    press();
    CHECK(connect(client, (struct sockaddr *)bound, sizeof *bound) == 0);
    int server = accept4(listener, (struct sockaddr *)peer, peer_length, SOCK_CLOEXEC);
    CHECK(server >= 0 && peer->sin_family == AF_INET && *peer_length == sizeof *peer);
    press();
    *length = sizeof *bound;
    CHECK(getpeername(server, (struct sockaddr *)bound, length) == 0
          && bound->sin_port == peer->sin_port);
    press();
    CHECK(ioctl(listener, SIOCGIFCONF, interfaces) == 0
          && interfaces->ifc_len % sizeof(struct ifreq) == 0);
    press();
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0 && write(pair[0], "x", 1) == 1);
    close(pair[0]), close(pair[1]), close(listener), close(client), close(server);
}

static void processes(void) {
    struct utsname *names = slot();
    cpu_set_t *cpus = slot();
    struct rlimit *limit = slot(), *old = slot();
    struct sysinfo *system_now = slot();
    siginfo_t *information = slot();
    struct rusage *usage = slot();
    int *status = slot(), *parameter = COPY(int, 0);
    char *thread_name = string("named"), *read_name = slot(), *bytes = slot();
    gid_t *groups = slot();
    sigset_t *pending = slot(), *set = slot(), *old_set = slot();
    stack_t *stack = slot();
    struct sigaction *action = slot(), *old_action = slot();
    unsigned *cpu = slot(), *node = slot();
    /* More than what most options of prctl write, across the border of two pages. */
    unsigned long *vector = memset((char *)slot() + PAGE_BYTES - 256, 1, 512);
    press();
    CHECK(uname(names) == 0 && strcmp(names->sysname, "Linux") == 0);
    CHECK(syscall(SYS_sched_getaffinity, 0, sizeof *cpus, cpus) > 0);
    CHECK(sched_setaffinity(0, sizeof *cpus, cpus) == 0);
    CHECK(prlimit(0, RLIMIT_CORE, NULL, limit) == 0);
    limit->rlim_cur = 0;
    CHECK(prlimit(0, RLIMIT_CORE, limit, old) == 0 && getrlimit(RLIMIT_CORE, old) == 0
          && old->rlim_cur == 0);
    CHECK(sysinfo(system_now) == 0 && system_now->totalram > 0);
    press();
    CHECK(prctl(PR_SET_NAME, thread_name) == 0 && prctl(PR_GET_NAME, read_name) == 0);
    CHECK(strcmp(read_name, "named") == 0);
    if (prctl(PR_GET_AUXV, vector, 512, 0, 0) > 0)
        CHECK(getauxval(vector[0]) == vector[1] && vector[33] != 0x0101010101010101);
    else
        CHECK(errno == EINVAL); /* before Linux 6.4 */
    CHECK(syscall(SYS_getrandom, bytes, PAGE_BYTES, 0) == (long)PAGE_BYTES);
    CHECK(getgroups(256, groups) >= 0 && sched_getparam(0, (struct sched_param *)parameter) == 0);
    CHECK(syscall(SYS_getcpu, cpu, node, NULL) == 0 && *cpu < 4096);
    sigemptyset(set);
    sigaddset(set, SIGUSR2);
    press();
    CHECK(sigprocmask(SIG_BLOCK, set, old_set) == 0 && sigismember(old_set, SIGUSR2) == 0);
    CHECK(raise(SIGUSR2) == 0 && sigpending(pending) == 0 && sigismember(pending, SIGUSR2) == 1);
    struct timespec *limit_time = COPY(struct timespec, 1, 0);
    press();
    CHECK(sigtimedwait(set, information, limit_time) == SIGUSR2
          && information->si_signo == SIGUSR2);
    CHECK(sigaltstack(NULL, stack) == 0 && (stack->ss_flags & SS_DISABLE));
    memset(action, 0, sizeof *action);
    action->sa_handler = SIG_IGN;
    press();
    CHECK(sigaction(SIGUSR1, action, old_action) == 0 && old_action->sa_handler == SIG_DFL);
    CHECK(sigaction(SIGUSR1, NULL, old_action) == 0 && old_action->sa_handler == SIG_IGN);
    press();
    pid_t child = fork();
    if (child == 0)
        _exit(7);
    CHECK(waitid(P_PID, child, information, WEXITED | WNOWAIT) == 0 && information->si_status == 7);
    press();
    CHECK(wait4(child, status, 0, usage) == child && WEXITSTATUS(*status) == 7);
    note(WEXITSTATUS(*status));
}

static void terminals_and_signals(void) {
    sigset_t *set = slot();
    struct signalfd_siginfo *information = slot();
    struct winsize *window = slot();
    sigemptyset(set);
    sigaddset(set, SIGUSR2);
    press();
    int fd = signalfd(-1, set, SFD_CLOEXEC);
    CHECK(fd >= 0 && raise(SIGUSR2) == 0);
    press();
    CHECK(read(fd, information, sizeof *information) == sizeof *information);
    CHECK(information->ssi_signo == SIGUSR2);
    close(fd);
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    if (terminal >= 0) { /* a container may have no /dev/ptmx */
        *window = (struct winsize){25, 80, 0, 0};
        press();
        CHECK(ioctl(terminal, TIOCSWINSZ, window) == 0);
        window->ws_row = 0;
        press();
        CHECK(ioctl(terminal, TIOCGWINSZ, window) == 0 && window->ws_row == 25);
        close(terminal);
    }
}

/* A string that begins in memory which nobody manages, and goes on in memory that is swapped out. */
static void strings_across(void) {
    char *pages = pages_map(32), *border = pages + 16 * PAGE_BYTES;
    CHECK(mmap(pages, 16 * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED,
               -1, 0)
          == pages);
    strcpy(border - 5, "/dev/null");
    press();
    int fd = open(border - 5, O_RDONLY);
    CHECK(fd >= 0);
    close(fd);
}

/* Structs with an array behind them: it begins on a page of its own. */
static void arrays_behind(void) {
    char *border = (char *)pages_map(48) + 16 * PAGE_BYTES;
    struct file_dedupe_range *same = (void *)(border - sizeof *same);
    *same = (struct file_dedupe_range){.src_length = PAGE_BYTES, .dest_count = 1};
    same->info[0].dest_fd = -1;
    press();
    CHECK(ioctl(file, FIDEDUPERANGE, same) == 0 || errno != EFAULT);
    struct fsmap_head *map = (void *)(border + 8 * PAGE_BYTES - sizeof *map);
    memset(map, 0, sizeof *map);
    map->fmh_count = 128;
    memset(&map->fmh_keys[1], 0xff, sizeof map->fmh_keys[1]);
    map->fmh_keys[1].fmr_reserved[0] = map->fmh_keys[1].fmr_reserved[1] =
        map->fmh_keys[1].fmr_reserved[2] = 0;
    memset(map->fmh_recs, 0x5a, 128 * sizeof map->fmh_recs[0]);
    press();
    CHECK(ioctl(file, FS_IOC_GETFSMAP, map) == 0 || errno != EFAULT);
}

/* Structs that point to further memory, and buffers of many pages. */
static void pointed(void) {
    enum { SET_ATTRIBUTE_AT = 463, GET_ATTRIBUTE_AT = 464 };
    struct attribute {
        uint64_t value;
        uint32_t bytes, flags;
    };
    struct user_desc *segment = COPY(struct user_desc, .entry_number = 8000, .limit = 1);
    /* Queues are the machine's: of several that run at once each has its own. */
    char name[32];
    snprintf(name, sizeof name, "structs-queue-%d", getpid());
    char *segments = pages_map(32), *value = slot(), *found = slot(), *cookie = slot(),
         *queue = string(name);
    memset(segments, 0x5a, 32 * PAGE_BYTES);
    struct attribute *written = COPY(struct attribute, (uint64_t)value, 100, 0),
                     *read = COPY(struct attribute, (uint64_t)found, PAGE_BYTES, 0);
    char *attribute = string("user.structs"), *none = string("");
    struct sigevent *event = slot();
    press();
    long r = syscall(SYS_modify_ldt, 1, segment, sizeof *segment);
    if (r == 0) { /* a kernel may be built without them */
        press();
        CHECK(syscall(SYS_modify_ldt, 0, segments, 65536) == 65536);
    }
    press();
    r = raw(SET_ATTRIBUTE_AT, file, (long)none, AT_EMPTY_PATH, (long)attribute, (long)written,
            sizeof *written);
    CHECK(r == 0 || r == -ENOSYS || r == -EOPNOTSUPP); /* before Linux 6.13 */
    if (r == 0) {
        press();
        CHECK(raw(GET_ATTRIBUTE_AT, file, (long)none, AT_EMPTY_PATH, (long)attribute, (long)read,
                  sizeof *read)
              == 100);
        CHECK(memcmp(found, value, 100) == 0);
    }
    press();
    int mq = syscall(SYS_mq_open, queue, O_CREAT | O_RDWR, 0600, NULL);
    int answers = socket(AF_NETLINK, SOCK_RAW, 0);
    if (mq >= 0 && answers >= 0) {
        event->sigev_notify = SIGEV_THREAD;
        event->sigev_signo = answers;
        event->sigev_value.sival_ptr = cookie;
        press();
        CHECK(syscall(SYS_mq_notify, mq, event) == 0);
        CHECK(syscall(SYS_mq_unlink, queue) == 0);
    }
    close(mq), close(answers);
}

static void offsets(void) {
    off_t *from = COPY(off_t, 0), *to = COPY(off_t, 0);
    int out = open(".", O_TMPFILE | O_RDWR, 0600);
    CHECK(out >= 0 && ftruncate(file, 3 * PAGE_BYTES) == 0 && pwrite(file, "moved", 5, 0) == 5);
    press();
    CHECK(copy_file_range(file, from, out, to, PAGE_BYTES, 0) == (ssize_t)PAGE_BYTES);
    CHECK(*from == (off_t)PAGE_BYTES && *to == (off_t)PAGE_BYTES);
    press();
    *from = 0;
    press();
    int fds[2];
    CHECK(pipe(fds) == 0 && splice(out, from, fds[1], NULL, 5, 0) == 5 && *from == 5);
    char *bytes = slot();
    press();
    CHECK(read(fds[0], bytes, PAGE_BYTES) == 5 && memcmp(bytes, "moved", 5) == 0);
    note_bytes(bytes, 5);
    close(fds[0]), close(fds[1]), close(out), close(file);
}

#define LONG_PAGES (32 * MIB_PAGES)

/* Buffers of far more than the kernel fills: of them only that is brought in. */
static void long_buffers(void) {
    char *many = pages_map(LONG_PAGES), *link = string("structs-long");
    size_t bytes = LONG_PAGES * PAGE_BYTES;
    CHECK(symlink("structs-nowhere", link) == 0);
    press();
    CHECK(readlink(link, many, bytes) == 15 && memcmp(many, "structs-nowhere", 15) == 0);
    CHECK(readlinkat(AT_FDCWD, link, many, bytes) == 15 && unlink(link) == 0);
    CHECK(syscall(SYS_getcwd, many, bytes) > 0 && many[0] == '/');
    CHECK(syscall(SYS_flistxattr, file, many, bytes) >= 0 || errno == EOPNOTSUPP);
    CHECK(syscall(SYS_sched_getaffinity, 0, bytes, many) > 0);
    CHECK(munmap(many, bytes) == 0);
}

static void bad_addresses(void) {
    CHECK(syscall(SYS_stat, address(16), address(16)) == -1 && errno == EFAULT);
    CHECK(syscall(SYS_uname, address(16)) == -1 && errno == EFAULT);
    CHECK(syscall(SYS_pipe2, address(16), 0) == -1 && errno == EFAULT);
    CHECK(syscall(SYS_poll, address(16), 3, 0) == -1 && errno == EFAULT);
    CHECK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, address(16), NULL, 8) == -1 && errno == EFAULT);
    CHECK(syscall(SYS_rt_sigaction, SIGUSR1, address(16), NULL, 8) == -1 && errno == EFAULT);
    CHECK(syscall(SYS_sigaltstack, address(16), NULL) == -1 && errno == EFAULT);
    CHECK(syscall(SYS_execve, address(16), address(16), NULL) == -1 && errno == EFAULT);
}

/* Masks in memory that is managed and may not be written or read, across its border, and where there is none. */
static void bad_masks(void) {
    char *memory = pages_map(3);
    uint64_t mask = 1u << (SIGUSR1 - 1), none = 0, found;
    char *border = memory + 2 * PAGE_BYTES - sizeof mask / 2;
    memcpy(memory, &mask, sizeof mask);
    memcpy(border, &mask, sizeof mask);
    press();
    CHECK(mprotect(memory, 2 * PAGE_BYTES, PROT_READ) == 0);
    press();
    CHECK(raw(SYS_rt_sigprocmask, SIG_SETMASK, (long)&none, 0, 8, 0, 0) == 0);
    CHECK(raw(SYS_rt_sigprocmask, SIG_BLOCK, 0, (long)memory, 8, 0, 0) == -EFAULT);
    CHECK(raw(SYS_rt_sigprocmask, SIG_BLOCK, 0, (long)border, 8, 0, 0) == -EFAULT);
    CHECK(raw(SYS_rt_sigprocmask, SIG_SETMASK, (long)memory, (long)&found, 8, 0, 0) == 0);
    CHECK(found == 0);
    CHECK(raw(SYS_rt_sigprocmask, SIG_UNBLOCK, (long)border, (long)&found, 8, 0, 0) == 0);
    CHECK(found == mask);
    CHECK(raw(SYS_rt_sigaction, SIGUSR1, 0, (long)memory, 8, 0, 0) == -EFAULT);
    CHECK(raw(SYS_rt_sigpending, (long)memory, 8, 0, 0, 0, 0) == -EFAULT);
    CHECK(mprotect(memory, PAGE_BYTES, PROT_NONE) == 0);
    CHECK(raw(SYS_rt_sigprocmask, SIG_BLOCK, (long)memory, 0, 8, 0, 0) == -EFAULT);
    CHECK(munmap(memory, 3 * PAGE_BYTES) == 0);
    CHECK(raw(SYS_rt_sigprocmask, SIG_BLOCK, (long)memory, 0, 8, 0, 0) == -EFAULT);
    CHECK(raw(SYS_rt_sigprocmask, SIG_BLOCK, 0, (long)memory, 8, 0, 0) == -EFAULT);
}

/* What is read of a call before the kernel reads it: from memory that is read-only, PROT_NONE, or not there. */
static void bad_places(void) {
    char *memory = pages_map(3);
    int fds[2], length = 16;
    uint64_t *mask = (void *)(memory + PAGE_BYTES - sizeof *mask / 2);
    uint64_t *last = (void *)(memory + 2 * PAGE_BYTES - sizeof *last);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    int set = epoll_create1(0);
    struct epoll_event event;
    memset(mask, 0, sizeof *mask);
    memcpy(last, &length, sizeof length);
    press();
    CHECK(mprotect(memory, 2 * PAGE_BYTES, PROT_READ) == 0);
    press();
    uintptr_t asked[2] = {(uintptr_t)mask, sizeof *mask};
    CHECK(raw(SYS_ppoll, 0, 0, (long)&(struct timespec){0, 0}, (long)mask, 8, 0) == 0);
    CHECK(raw(SYS_pselect6, 0, 0, 0, 0, (long)&(struct timespec){0, 0}, (long)asked) == 0);
    CHECK(raw(SYS_epoll_pwait, set, (long)&event, 1, 0, (long)mask, 8) == 0);
    CHECK(ioctl(fds[0], FIONREAD, memory) == -1 && errno == EFAULT);
    CHECK(raw(SYS_getsockname, fds[0], (long)slot(), (long)last, 0, 0, 0) == -EFAULT);
    CHECK(munmap(memory + PAGE_BYTES, 2 * PAGE_BYTES) == 0);
    CHECK(raw(SYS_ppoll, 0, 0, (long)&(struct timespec){0, 0}, (long)mask, 8, 0) == -EFAULT);
    CHECK(raw(SYS_pselect6, 0, 0, 0, 0, (long)&(struct timespec){0, 0}, (long)asked) == -EFAULT);
    CHECK(raw(SYS_pselect6, 0, 0, 0, 0, (long)&(struct timespec){0, 0}, (long)last) == -EFAULT);
    CHECK(raw(SYS_epoll_pwait, set, (long)&event, 1, 0, (long)mask, 8) == -EFAULT);
    CHECK(raw(SYS_getsockname, fds[0], (long)slot(), (long)last, 0, 0, 0) == -EFAULT);
    CHECK(mprotect(memory, PAGE_BYTES, PROT_NONE) == 0);
    CHECK(ioctl(fds[0], FIONREAD, memory) == -1 && errno == EFAULT);
    CHECK(ioctl(fds[0], FIONREAD, last) == -1 && errno == EFAULT);
    CHECK(ioctl(fds[0], FIONREAD, &length) == 0 && length == 0);
    CHECK(munmap(memory, PAGE_BYTES) == 0);
    close(set);
    close(fds[0]);
    close(fds[1]);
}

int main(int argc, char **argv) {
    note(victim_start(argc, argv));
    umask(022);
    ballast_make(28);
    slots = pages_map(SLOTS);
    paths();
    directories();
    clocks();
    waiting();
    sockets();
    processes();
    terminals_and_signals();
    strings_across();
    arrays_behind();
    pointed();
    long_buffers();
    offsets();
    bad_addresses();
    bad_masks();
    bad_places();
    return victim_end();
}
