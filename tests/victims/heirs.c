/* A process ends, and children that it made with CLONE_VM go on with its memory. */
#include "victim.h"
#include <sched.h>

#define HEIRS 3
#define PAGES (26 * MIB_PAGES)
#define STACK_PAGES 16

static char *pages, *stacks;
static pid_t parent;
static int result[2], turn[2];
static uint64_t tag;

/* One after the other, so that each of them ends as the last but so many. */
static int go_on_alone(void *argument) {
    (void)argument;
    char byte;
    while (raw(SYS_getppid, 0, 0, 0, 0, 0, 0) == parent)
        raw(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
    if (raw(SYS_read, turn[0], (long)&byte, 1, 0, 0, 0) != 1)
        raw(SYS_exit_group, 97, 0, 0, 0, 0, 0);
    for (int round = 0; round < 2; round++) {
        pages_check(pages, PAGES, tag);
        pages_fill(pages, PAGES, ++tag);
    }
    uint64_t said = mix(tag);
    raw(SYS_write, turn[1], (long)&byte, 1, 0, 0, 0);
    raw(SYS_write, result[1], (long)&said, sizeof said, 0, 0, 0);
    raw(SYS_exit_group, 0, 0, 0, 0, 0, 0);
    return 0;
}

static void leave_to_heirs(void) {
    parent = getpid();
    pages = pages_map(PAGES);
    stacks = pages_map(HEIRS * STACK_PAGES);
    pages_fill(pages, PAGES, tag);
    CHECK(pipe(turn) == 0 && write(turn[1], "x", 1) == 1);
    for (uintptr_t heir = 0; heir < HEIRS; heir++) {
        char *stack_end = stacks + (heir + 1) * STACK_PAGES * PAGE_BYTES;
        CHECK(clone(go_on_alone, stack_end, CLONE_VM | SIGCHLD, NULL) > 0);
    }
    _exit(0);
}

int main(int argc, char **argv) {
    tag = mix(victim_start(argc, argv));
    CHECK(pipe(result) == 0);
    for (int round = 0; round < 3; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            leave_to_heirs();
        CHECK_CHILD(child);
        for (int heir = 0; heir < HEIRS; heir++) {
            uint64_t said;
            CHECK(read(result[0], &said, sizeof said) == sizeof said);
            CHECK(said == mix(tag + 2 * (heir + 1)));
            note(said);
        }
    }
    return victim_end();
}
