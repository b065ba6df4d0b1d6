/*
 * A process ends, runs another program, or is killed, and children that it made with CLONE_VM go on with its
 * memory, which another process reads by their ids.
 */
#include "victim.h"
#include <sched.h>
#include <sys/uio.h>

#define HEIRS 3
#define PAGES (26 * MIB_PAGES)
#define STACK_PAGES 16
#define KCMP_VM 1
/* Longer than until a process that was killed is noticed. */
#define NOTICED_US 300000

enum { ENDS, RUNS_ANOTHER, IS_KILLED, WAYS };

static char *pages, *stacks;
static pid_t parent;
static pid_t heirs[HEIRS];
static int result[2], seen[2];
static int begun;
static uint64_t tag;

struct result {
    uint64_t said;
    pid_t pid;
    char *pages;
};

/* One after the other, so that each of them ends as the last but so many. */
static int go_on_alone(void *number) {
    char byte;
    long own = raw(SYS_getpid, 0, 0, 0, 0, 0, 0);
    pid_t *before = number ? &heirs[(uintptr_t)number - 1] : &parent;
    __atomic_fetch_add(&begun, 1, __ATOMIC_SEQ_CST);
    while (raw(SYS_kcmp, own, *before, KCMP_VM, 0, 0, 0) == 0)
        raw(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
    for (int round = 0; round < 2; round++) {
        pages_check(pages, PAGES, tag);
        pages_fill(pages, PAGES, ++tag);
    }
    struct result mine = {mix(tag), own, pages};
    raw(SYS_write, result[1], (long)&mine, sizeof mine, 0, 0, 0);
    raw(SYS_read, seen[0], (long)&byte, 1, 0, 0, 0);
    if ((uintptr_t)number == HEIRS - 1)
        raw(SYS_munmap, (long)pages, PAGES * PAGE_BYTES, 0, 0, 0, 0);
    raw(SYS_exit_group, 0, 0, 0, 0, 0, 0);
    return 0;
}

static void leave_to_heirs(int way) {
    parent = getpid();
    pages = pages_map(PAGES);
    stacks = pages_map(HEIRS * STACK_PAGES);
    pages_fill(pages, PAGES, tag);
    for (uintptr_t heir = 0; heir < HEIRS; heir++) {
        char *stack_end = stacks + (heir + 1) * STACK_PAGES * PAGE_BYTES;
        heirs[heir] = clone(go_on_alone, stack_end, CLONE_VM | SIGCHLD, (void *)heir);
        CHECK(heirs[heir] > 0);
    }
    if (way == RUNS_ANOTHER)
        execl("/bin/sleep", "sleep", "0.2", NULL);
    while (way == IS_KILLED && __atomic_load_n(&begun, __ATOMIC_SEQ_CST) < HEIRS)
        usleep(200);
    if (way == IS_KILLED)
        kill(getpid(), SIGKILL);
    _exit(way);
}

/* Some of an heir's memory, by its id, which the run knows once its parent has ended. */
static void look_at(const struct result *heir, uint64_t heirs_tag) {
    size_t count = MIB_PAGES / 2;
    char *to = pages_map(count);
    struct iovec local = {to, count * PAGE_BYTES}, remote = {heir->pages, count * PAGE_BYTES};
    CHECK(process_vm_readv(heir->pid, &local, 1, &remote, 1, 0) == (ssize_t)(count * PAGE_BYTES));
    pages_check(to, count, heirs_tag);
    CHECK(munmap(to, count * PAGE_BYTES) == 0);
}

int main(int argc, char **argv) {
    tag = mix(victim_start(argc, argv));
    CHECK(pipe(result) == 0 && pipe(seen) == 0);
    for (int round = 0; round < 2 * WAYS; round++) {
        int way = round % WAYS;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            leave_to_heirs(way);
        if (way == IS_KILLED)
            CHECK(wait_for(child) == SIGKILL && usleep(NOTICED_US) == 0);
        for (int heir = 0; heir < HEIRS; heir++) {
            struct result its;
            uint64_t its_tag = tag + 2 * (heir + 1);
            CHECK(read(result[0], &its, sizeof its) == sizeof its);
            CHECK(its.said == mix(its_tag));
            if (way == ENDS)
                look_at(&its, its_tag);
            CHECK(write(seen[1], "x", 1) == 1);
            note(its.said);
        }
        if (way != IS_KILLED)
            CHECK_CHILD(child);
    }
    return victim_end();
}
