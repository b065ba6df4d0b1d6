/*
 * Processes that share one memory and are all the time in faults, and one of them is killed: a
 * child, by who made it ("child"), or who made it, by somebody else ("parent"). What the others have is
 * right, or after the latter they are ended; none of them waits for what never comes.
 */
#include "victim.h"
#include <sched.h>

#define ROUNDS 30
#define SWEEPS 3
#define PAGES (26 * MIB_PAGES)
#define STACK_PAGES 16

static char *pages, *stack;
static int ends[2];
static uint64_t tag;
static volatile int is_sweeping;

/* Reads every page's first word, and writes it as it was. */
static void sweep(void) {
    for (size_t page = 0; page < PAGES; page++) {
        volatile uint64_t *word = (uint64_t *)(pages + page * PAGE_BYTES);
        uint64_t found = *word;
        if (found != page_word(tag + page, 0))
            raw(SYS_exit_group, 98, 0, 0, 0, 0, 0);
        *word = found;
    }
}

static int sweep_for_ever(void *argument) {
    (void)argument;
    for (;;) {
        is_sweeping = 1;
        sweep();
    }
    return 0;
}

static int sweep_for_a_while(void *argument) {
    (void)argument;
    is_sweeping = 1;
    for (int round = 0; round < SWEEPS; round++)
        sweep();
    raw(SYS_exit_group, 0, 0, 0, 0, 0, 0);
    return 0;
}

static pid_t sharer(int (*run)(void *)) {
    is_sweeping = 0;
    pid_t pid = clone(run, stack + STACK_PAGES * PAGE_BYTES, CLONE_VM | SIGCHLD, NULL);
    CHECK(pid > 0);
    while (!is_sweeping)
        usleep(200);
    return pid;
}

static void make(void) {
    pages = pages_map(PAGES);
    stack = pages_map(STACK_PAGES);
    pages_fill(pages, PAGES, tag);
}

static void child_is_struck(struct random *random) {
    make();
    for (int round = 0; round < ROUNDS; round++) {
        pid_t pid = sharer(sweep_for_ever);
        usleep(500 + below(random, 3000));
        CHECK(kill(pid, SIGKILL) == 0);
        CHECK(wait_for(pid) == SIGKILL);
        sweep();
    }
    pages_check(pages, PAGES, tag);
}

/* Until everybody has ended who has the pipe. */
static void parent_is_struck(struct random *random) {
    for (int round = 0; round < ROUNDS / 4; round++) {
        CHECK(pipe(ends) == 0);
        pid_t parent = fork();
        CHECK(parent >= 0);
        if (parent == 0) {
            CHECK(close(ends[0]) == 0);
            make();
            sharer(sweep_for_a_while);
            CHECK(write(ends[1], "x", 1) == 1);
            sweep_for_ever(NULL);
        }
        char byte;
        CHECK(close(ends[1]) == 0 && read(ends[0], &byte, 1) == 1);
        usleep(500 + below(random, 3000));
        CHECK(kill(parent, SIGKILL) == 0);
        CHECK(wait_for(parent) == SIGKILL);
        CHECK(read(ends[0], &byte, 1) == 0 && close(ends[0]) == 0);
    }
}

int main(int argc, char **argv) {
    struct random random = {victim_start(argc, argv)};
    tag = draw(&random);
    if (argc > 2 && strcmp(argv[2], "parent") == 0)
        parent_is_struck(&random);
    else
        child_is_struck(&random);
    note(tag);
    return victim_end();
}
