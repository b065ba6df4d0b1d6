/*
 * Programs that are gone in a moment, one after the other, from a process whose
 * memory is mostly swapped out: whoever looks after the processes of a run comes
 * upon them at every point of their start.
 */
#include "victim.h"

#define PAGES (40 * MIB_PAGES)
#define EXECUTIONS 200
#define ARGUMENTS 2400ul
#define FIRST 3 /* before those: a shell, and what it does */

/* A program with thousands of arguments, each on a page of its own that is swapped out. */
static void arguments(void) {
    char *strings = pages_map(ARGUMENTS), **list = pages_map(16);
    list[0] = "sh";
    list[1] = "-c";
    list[2] = "test $# = 2399 && shift 2398 && test \"$1\" = argument-2399";
    for (size_t i = 0; i < ARGUMENTS; i++) {
        list[FIRST + i] = strings + i * PAGE_BYTES;
        sprintf(list[FIRST + i], "argument-%zu", i);
    }
    list[FIRST + ARGUMENTS] = NULL;
    press();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        execv("/bin/sh", list);
        _exit(98);
    }
    CHECK_CHILD(child);
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    char *memory = pages_map(PAGES);
    pages_fill(memory, PAGES, tag);
    for (size_t i = 0; i < EXECUTIONS; i++) {
        pages_check(memory + i * 50 * PAGE_BYTES, 50, tag + i * 50);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            execl("/bin/true", "true", NULL);
            _exit(98);
        }
        CHECK_CHILD(child);
    }
    pages_check(memory, PAGES, tag);
    CHECK(munmap(memory, PAGES * PAGE_BYTES) == 0);
    ballast_make(28);
    arguments();
    return victim_end();
}
