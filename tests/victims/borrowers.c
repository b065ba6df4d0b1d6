/*
 * Children that have this memory and are in a namespace of process ids of their own: one that is waited for,
 * as one that is about to run another program is, and one beside which its parent goes on. Each has threads,
 * forked children and such that have this memory, too, beside relatives with memory of their own, which all
 * miss pages. Where the sandbox forbids namespaces, only the memory is checked.
 */
#include "victim.h"
#include <sched.h>
#include <sys/uio.h>

#define PAGES (6 * MIB_PAGES)
#define RELATIVES 2
#define LEAVES 3
#define STACK_PAGES 16
/* One that nobody has in the namespace of who looks from outside, as a rule. */
#define FAR_ID 32700

static char *memory, *stacks;
static uint64_t tag;
static int until[2];
static int leaves_ended;

struct clone_arguments {
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_bytes, tls, set_tid, set_tid_size;
};

static char *stack_end(int number) {
    return stacks + (number + 1) * STACK_PAGES * PAGE_BYTES;
}

/* A relative goes through pages of its own until the run is over. */
static void be_relative(int number) {
    char *own = pages_map(PAGES);
    uint64_t own_tag = mix(tag + number);
    CHECK(close(until[1]) == 0 && fcntl(until[0], F_SETFL, O_NONBLOCK) == 0);
    char byte;
    pages_fill(own, PAGES, own_tag);
    do
        pages_check(own, PAGES, own_tag);
    while (read(until[0], &byte, 1) != 0);
    pages_check(memory, PAGES, tag);
    _exit(0);
}

static int be_leaf(void *is_thread) {
    pages_check(memory, PAGES, tag);
    if (!is_thread)
        raw(SYS_exit_group, 0, 0, 0, 0, 0, 0);
    __atomic_add_fetch(&leaves_ended, 1, __ATOMIC_RELEASE);
    raw(SYS_exit, 0, 0, 0, 0, 0, 0);
    return 0;
}

static void wait_raw(long child) {
    int status = -1;
    CHECK(child > 0 && raw(SYS_wait4, child, (long)&status, 0, 0, 0, 0) == child && status == 0);
}

/* A child with a copy of the memory, and with an id that means somebody else or nobody elsewhere. */
static void have_child(void) {
    uint64_t id = FAR_ID;
    struct clone_arguments arguments = {
        .exit_signal = SIGCHLD, .set_tid = (uintptr_t)&id, .set_tid_size = 1};
    long child = raw(SYS_clone3, (long)&arguments, sizeof arguments, 0, 0, 0, 0);
    if (child == 0) {
        char *own = pages_map(PAGES);
        for (int round = 0; round < 3; round++) {
            pages_check(memory, PAGES, tag);
            pages_fill(own, PAGES, tag + round);
            pages_check(own, PAGES, tag + round);
        }
        raw(SYS_exit_group, 0, 0, 0, 0, 0, 0);
    }
    wait_raw(child);
}

/* Its own memory, by its id. */
static void look(void) {
    struct iovec local = {stacks, PAGE_BYTES}, remote = {memory, PAGE_BYTES};
    CHECK(raw(SYS_process_vm_readv, 1, (long)&local, 1, (long)&remote, 1, 0) == (long)PAGE_BYTES);
    page_check(stacks, tag);
}

static int borrow(void *argument) {
    (void)argument;
    CHECK(raw(SYS_getpid, 0, 0, 0, 0, 0, 0) == 1);
    pages_check(memory, PAGES, tag);
    have_child();
    leaves_ended = 0;
    for (int leaf = 1; leaf <= LEAVES; leaf++) {
        int flags = CLONE_VM | CLONE_THREAD | CLONE_SIGHAND | CLONE_FILES | CLONE_FS | CLONE_SYSVSEM;
        CHECK(clone(be_leaf, stack_end(leaf), flags, memory) > 0);
    }
    while (__atomic_load_n(&leaves_ended, __ATOMIC_ACQUIRE) < LEAVES)
        raw(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
    for (int leaf = 1; leaf <= LEAVES; leaf++)
        wait_raw(clone(be_leaf, stack_end(leaf), CLONE_VM | SIGCHLD, NULL));
    look();
    pages_check(memory, PAGES, tag);
    raw(SYS_exit_group, 0, 0, 0, 0, 0, 0);
    return 0;
}

int main(int argc, char **argv) {
    tag = mix(victim_start(argc, argv));
    ballast_make(16);
    memory = pages_map(PAGES);
    stacks = pages_map((LEAVES + 1) * STACK_PAGES);
    pages_fill(memory, PAGES, tag);
    CHECK(pipe(until) == 0);
    pid_t relatives[RELATIVES];
    for (int i = 0; i < RELATIVES; i++) {
        relatives[i] = fork();
        CHECK(relatives[i] >= 0);
        if (relatives[i] == 0)
            be_relative(i);
    }
    for (int round = 0; round < 4; round++) {
        int waits = round % 2 ? CLONE_VFORK : 0;
        int flags = CLONE_VM | CLONE_NEWPID | SIGCHLD | waits;
        pid_t child = clone(borrow, stack_end(0), flags, NULL);
        CHECK(child > 0 || errno == EPERM);
        int status = 0;
        for (long ended = 0; child > 0 && ended == 0;) {
            press();
            ended = raw(SYS_wait4, child, (long)&status, WNOHANG, 0, 0, 0);
        }
        CHECK(status == 0);
        pages_check(memory, PAGES, tag);
    }
    CHECK(close(until[1]) == 0);
    for (int i = 0; i < RELATIVES; i++)
        CHECK_CHILD(relatives[i]);
    note(tag);
    return victim_end();
}
