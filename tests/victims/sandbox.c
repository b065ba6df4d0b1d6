/*
 * Filters of system calls that a program installs for itself: what the program is left with is its
 * own affair, and no call that it may not make is made for it. Each in a child, whose memory has left
 * RAM: a filter that forbids little, one that forbids all but what is named, the mode that forbids
 * nearly everything; with handlers, blocked signals and a stack for them; a program begun under a
 * filter; a filter for some threads or all, of which others compute, wait and read much meanwhile; and one of a child
 * that has asked to be traced.
 */
#include "victim.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>

#define PAGES (4 * MIB_PAGES)

static char *memory;
static uint64_t tag;
static volatile sig_atomic_t handled;
static char *main_stack;

/* On a stack of its own, whichever that is. */
static void on_signal(int signal) {
    char here;
    (void)signal;
    handled += labs(&here - main_stack) > 64 * (long)PAGE_BYTES ? 1 : 100;
}

enum { BY_CALL, BY_PRCTL, FOR_ALL_THREADS };

static void install(struct sock_filter *instructions, size_t count, int how) {
    struct sock_fprog *program = pages_map(1);
    struct sock_filter *there = pages_map(2);
    /* Across the border of two pages. */
    there = memcpy((char *)there + PAGE_BYTES - 8, instructions, count * sizeof *there);
    *program = (struct sock_fprog){count, there};
    press();
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    unsigned flags = how == FOR_ALL_THREADS ? SECCOMP_FILTER_FLAG_TSYNC : 0;
    if (how == BY_PRCTL)
        CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program) == 0);
    else
        CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, program) == 0);
}

#define LOAD_CALL BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define GIVE(what) BPF_STMT(BPF_RET | BPF_K, what)
#define ON(call, what) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), GIVE(what)

static void allow_all_but(int how) {
    struct sock_filter instructions[] = {
        LOAD_CALL,
        ON(SYS_getpgrp, SECCOMP_RET_ERRNO | 77),
        GIVE(SECCOMP_RET_ALLOW),
    };
    install(instructions, COUNT(instructions), how);
}

/* What no thread of such a child calls by itself. */
static void forbid_rare_calls(int how) {
    struct sock_filter instructions[] = {
        LOAD_CALL,
        ON(SYS_ioctl, SECCOMP_RET_KILL_PROCESS),
        ON(SYS_pread64, SECCOMP_RET_KILL_PROCESS),
        ON(SYS_process_vm_readv, SECCOMP_RET_KILL_PROCESS),
        ON(SYS_process_vm_writev, SECCOMP_RET_KILL_PROCESS),
        ON(SYS_prctl, SECCOMP_RET_KILL_PROCESS),
        ON(SYS_rt_tgsigqueueinfo, SECCOMP_RET_KILL_PROCESS),
        ON(SYS_sigaltstack, SECCOMP_RET_KILL_PROCESS),
        ON(SYS_userfaultfd, SECCOMP_RET_KILL_PROCESS),
        ON(SYS_getpgrp, SECCOMP_RET_ERRNO | 77),
        GIVE(SECCOMP_RET_ALLOW),
    };
    install(instructions, COUNT(instructions), how);
}

/* What the rest of such a child needs, as a careful program would allow it. */
static void forbid_all_but(unsigned action) {
    struct sock_filter instructions[] = {
        LOAD_CALL,
        ON(SYS_read, SECCOMP_RET_ALLOW),
        ON(SYS_write, SECCOMP_RET_ALLOW),
        ON(SYS_exit_group, SECCOMP_RET_ALLOW),
        ON(SYS_rt_sigreturn, SECCOMP_RET_ALLOW),
        ON(SYS_newfstatat, SECCOMP_RET_ALLOW),
        ON(SYS_munmap, SECCOMP_RET_ALLOW),
        ON(SYS_mmap, SECCOMP_RET_ALLOW),
        ON(SYS_brk, SECCOMP_RET_ALLOW),
        ON(SYS_getpid, SECCOMP_RET_ALLOW),
        ON(SYS_gettid, SECCOMP_RET_ALLOW),
        ON(SYS_tgkill, SECCOMP_RET_ALLOW),
        ON(SYS_rt_sigprocmask, SECCOMP_RET_ALLOW),
        ON(SYS_getpgrp, SECCOMP_RET_ERRNO | 77),
        GIVE(action),
    };
    install(instructions, COUNT(instructions), 0);
}

static void go_on(void) {
    pages_check(memory, PAGES, tag);
    pages_fill(memory + 100 * PAGE_BYTES, 300, tag + 5);
    char *more = pages_map(64);
    pages_fill(more, 64, tag + 9);
    pages_check(memory + 100 * PAGE_BYTES, 300, tag + 5);
    pages_check(more, 64, tag + 9);
    CHECK(munmap(more, 64 * PAGE_BYTES) == 0);
    CHECK(raw(SYS_getpgrp, 0, 0, 0, 0, 0, 0) == -77);
    /* One that was blocked, and one on the stack that was set. */
    sigset_t set;
    CHECK(handled == 0);
    sigemptyset(&set);
    CHECK(sigprocmask(SIG_SETMASK, &set, NULL) == 0 && handled == 1);
    CHECK(raise(SIGUSR1) == 0 && handled == 2);
    sigaddset(&set, SIGURG);
    CHECK(sigprocmask(SIG_SETMASK, &set, NULL) == 0 && raise(SIGURG) == 0 && handled == 2);
    sigemptyset(&set);
    CHECK(sigprocmask(SIG_SETMASK, &set, NULL) == 0 && handled == 3);
}

/* Handlers, a stack for them, and a signal that waits. */
static void prepare(void) {
    stack_t stack = {.ss_sp = pages_map(16), .ss_size = 16 * PAGE_BYTES};
    CHECK(sigaltstack(&stack, NULL) == 0);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGURG, &action, NULL) == 0);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGURG);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0 && raise(SIGURG) == 0 && handled == 0);
}

static atomic_int stops;
static int signal_pipe[2], time_pipe[2];

static void *computes(void *place) {
    uint64_t turn = 0;
    do {
        pages_check(place, 64, tag + turn);
        pages_fill(place, 64, tag + ++turn);
        CHECK(getppid() > 0);
    } while (!stops);
    pages_check(place, 64, tag + turn);
    return NULL;
}

static void *waits(void *place) {
    char byte;
    CHECK(read(signal_pipe[0], &byte, 1) == 1 && byte == 'x');
    pages_check(place, 64, tag);
    return NULL;
}

/* For a minute, where nothing else ends it. */
static void *waits_for_a_time(void *place) {
    struct epoll_event event = {.events = EPOLLIN};
    int epoll = epoll_create1(0);
    CHECK(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, time_pipe[0], &event) == 0);
    CHECK(epoll_wait(epoll, &event, 1, 60000) == 1);
    pages_check(place, 64, tag);
    return NULL;
}

static void *reads_much(void *place) {
    int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    do {
        memset(place, 1, 512 * PAGE_BYTES);
        CHECK(read(fd, place, 512 * PAGE_BYTES) == 512 * PAGE_BYTES);
        for (size_t byte = 0; byte < 512 * PAGE_BYTES; byte += 64)
            CHECK(((char *)place)[byte] == 0);
    } while (!stops);
    return NULL;
}

static void *filters(void *how) {
    forbid_rare_calls((int)(long)how);
    CHECK(raw(SYS_getpgrp, 0, 0, 0, 0, 0, 0) == -77);
    return NULL;
}

/* One thread installs a filter beside others. */
static void beside_threads(int how, int is_first) {
    void *(*const work[])(void *) = {computes, waits, waits_for_a_time, reads_much, computes};
    pthread_t threads[COUNT(work)], other;
    CHECK(pipe(signal_pipe) == 0 && pipe(time_pipe) == 0);
    char *places[COUNT(work)];
    for (size_t i = 0; i < COUNT(work); i++) {
        places[i] = pages_map(512);
        pages_fill(places[i], 64, tag);
        CHECK(pthread_create(&threads[i], NULL, work[i], places[i]) == 0);
    }
    press();
    if (is_first) {
        filters((void *)(long)how);
    } else {
        CHECK(pthread_create(&other, NULL, filters, (void *)(long)how) == 0);
        CHECK(pthread_join(other, NULL) == 0);
    }
    pages_check(memory, PAGES, tag);
    CHECK(write(signal_pipe[1], "xx", 2) == 2 && write(time_pipe[1], "x", 1) == 1);
    CHECK(pthread_create(&other, NULL, waits, places[1]) == 0);
    CHECK(pthread_join(other, NULL) == 0);
    stops = 1;
    for (size_t i = 0; i < COUNT(work); i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    if (is_first)
        go_on();
}

enum { TRACED = 9, WAYS };

/* It stops at each of its signals, which it is given then. */
static void trace(pid_t child) {
    int status, stops_seen = 0;
    CHECK(waitpid(child, &status, 0) == child);
    for (; WIFSTOPPED(status); stops_seen++) {
        CHECK(WSTOPSIG(status) == SIGUSR1 || WSTOPSIG(status) == SIGURG);
        CHECK(ptrace(PTRACE_CONT, child, NULL, WSTOPSIG(status)) == 0);
        CHECK(waitpid(child, &status, 0) == child);
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0 && stops_seen == 3);
}

static void child_of(int way, char *self) {
    prepare();
    press();
    switch (way) {
    case 0:
    case 1:
        allow_all_but(way);
        press();
        pid_t grandchild = fork();
        CHECK(grandchild >= 0);
        if (grandchild == 0) {
            pages_check(memory, PAGES, tag);
            _exit(0);
        }
        CHECK_CHILD(grandchild);
        break;
    case 2:
        forbid_all_but(SECCOMP_RET_KILL_PROCESS);
        break;
    case 3:
        forbid_all_but(SECCOMP_RET_ERRNO | EPERM);
        CHECK(raw(SYS_madvise, (long)memory, PAGE_BYTES, MADV_DONTNEED, 0, 0, 0) == -EPERM);
        break;
    case 4:
        allow_all_but(0);
        execl(self, self, "again", NULL);
        _exit(98);
    case 5:
        CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0) == 0);
        pages_check(memory, PAGES, tag);
        raw(SYS_exit, 0, 0, 0, 0, 0, 0);
        _exit(98);
    case 6:
    case 7:
    case 8:
        beside_threads(way == 8 ? BY_CALL : FOR_ALL_THREADS, way != 7);
        _exit(0);
    case TRACED:
        CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
        forbid_all_but(SECCOMP_RET_ERRNO | EPERM);
        break;
    }
    go_on();
    _exit(0);
}

/* What is no filter changes nothing: so libraries find out what there is. */
static void be_refused(void) {
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, NULL) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, "") == -1 && errno == EINVAL);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL) == -1 && errno == EFAULT);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 1, NULL) == -1 && errno == EFAULT);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, address(16)) == -1 && errno == EFAULT);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "refused") == 0) {
        be_refused();
        ballast_make(28);
        press();
        be_refused();
        press();
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "again") == 0) {
        CHECK(raw(SYS_getpgrp, 0, 0, 0, 0, 0, 0) == -77);
        ballast_make(28);
        press();
        CHECK(raw(SYS_getpgrp, 0, 0, 0, 0, 0, 0) == -77);
        return 0;
    }
    tag = mix(victim_start(argc, argv));
    main_stack = (char *)&argc;
    ballast_make(28);
    memory = pages_map(PAGES);
    pages_fill(memory, PAGES, tag);
    for (int way = 0; way < WAYS; way++) {
        press();
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            child_of(way, argv[0]);
        if (way == TRACED)
            trace(child);
        else
            CHECK_CHILD(child);
        pages_check(memory, PAGES, tag);
        note(way);
    }
    be_refused();
    press();
    pages_check(memory, PAGES, tag);
    return victim_end();
}
