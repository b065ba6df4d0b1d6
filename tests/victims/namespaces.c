/*
 * Processes in a namespace of process ids of their own, where they are 1, 2 and so on: by unshare and
 * fork, by clone, with children and threads of theirs, and with a look at their own memory by the id
 * that they have there. Where the sandbox forbids namespaces, only the memory is checked.
 */
#include "victim.h"
#include <sched.h>
#include <sys/uio.h>

#define PAGES (4 * MIB_PAGES)

static char *memory;
static uint64_t tag;

/* Its own memory, by its id. */
static void look(void) {
    char *to = pages_map(32);
    press();
    struct iovec local = {to, 32 * PAGE_BYTES}, remote = {memory + 64 * PAGE_BYTES, 32 * PAGE_BYTES};
    CHECK(process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 32 * (ssize_t)PAGE_BYTES);
    pages_check(to, 32, tag + 64);
    CHECK(munmap(to, 32 * PAGE_BYTES) == 0);
}

static void *be_thread(void *argument) {
    (void)argument;
    press();
    pages_check(memory, PAGES, tag);
    look();
    return NULL;
}

static void be_first(int depth) {
    CHECK(getpid() == 1 && getppid() == 0);
    look();
    pages_check(memory, PAGES, tag);
    pages_fill(memory + 500 * PAGE_BYTES, 100, tag + 3);
    press();
    pthread_t thread;
    pages_fill(memory + 500 * PAGE_BYTES, 100, tag + 500);
    CHECK(pthread_create(&thread, NULL, be_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            CHECK(getppid() == 1);
            look();
            pages_check(memory, PAGES, tag);
            _exit(0);
        }
        CHECK_CHILD(child);
    }
    if (depth > 0) {
        pid_t child = raw(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0, 0);
        CHECK(child >= 0);
        if (child == 0) {
            be_first(depth - 1);
            _exit(0);
        }
        CHECK_CHILD(child);
    }
    pages_check(memory, PAGES, tag);
}

int main(int argc, char **argv) {
    tag = mix(victim_start(argc, argv));
    ballast_make(28);
    memory = pages_map(PAGES);
    pages_fill(memory, PAGES, tag);
    press();
    pid_t child = raw(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0, 0);
    CHECK(child >= 0 || child == -EPERM);
    if (child == 0) {
        be_first(1);
        _exit(0);
    }
    if (child > 0)
        CHECK_CHILD(child);
    look();
    if (unshare(CLONE_NEWPID) == 0) {
        child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            be_first(1);
            _exit(0);
        }
        CHECK_CHILD(child);
    }
    pages_check(memory, PAGES, tag);
    note(tag);
    return victim_end();
}
