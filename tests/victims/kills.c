/*
 * Processes that share this memory, in the middle of a call with a large buffer, when they are
 * killed or become other programs: what the call kept in RAM for them may leave it again.
 */
#include "victim.h"
#include <sched.h>

#define BUFFER_PAGES 150ul
#define CHILDREN 60
#define STACK_PAGES 16

static char *buffers;
static int fds[2];
static char *const arguments[] = {(char *)"true", NULL};

static char *buffer(int child) {
    return buffers + child * BUFFER_PAGES * PAGE_BYTES;
}

/* Waits in a read for what never comes. */
static int wait_and_be_killed(void *child) {
    raw(SYS_read, fds[0], (long)child, BUFFER_PAGES * PAGE_BYTES, 0, 0, 0);
    raw(SYS_exit_group, 97, 0, 0, 0, 0, 0);
    return 0;
}

static int become_another(void *child) {
    uint64_t *word = child;
    raw(SYS_write, fds[1], (long)word, 0, 0, 0, 0);
    raw(SYS_execve, (long)"/bin/true", (long)arguments, (long)(arguments + 1), 0, 0, 0);
    raw(SYS_exit_group, 96, 0, 0, 0, 0, 0);
    return 0;
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    ballast_make(24);
    buffers = pages_map(CHILDREN * BUFFER_PAGES);
    pages_fill(buffers, CHILDREN * BUFFER_PAGES, tag);
    char *stack = mmap(NULL, STACK_PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    CHECK(stack != MAP_FAILED && pipe(fds) == 0);
    char *stack_end = stack + STACK_PAGES * PAGE_BYTES;
    for (int child = 0; child < CHILDREN; child++) {
        if (child % 10 == 9) {
            pid_t pid = clone(become_another, stack_end, CLONE_VM | SIGCHLD, buffer(child));
            CHECK(pid > 0);
            CHECK_CHILD(pid);
            continue;
        }
        pid_t pid = clone(wait_and_be_killed, stack_end, CLONE_VM | SIGCHLD, buffer(child));
        CHECK(pid > 0);
        until_asleep(pid);
        CHECK(kill(pid, SIGKILL) == 0);
        CHECK(wait_for(pid) == SIGKILL);
        if (child % 8 == 0)
            press();
    }
    press();
    pages_check(buffers, CHILDREN * BUFFER_PAGES, tag);
    note(tag);
    return victim_end();
}
