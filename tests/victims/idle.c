/*
 * A program that has most of the memory and waits, and one that it runs, which goes through little memory
 * again and again: `idle SEED`, and `idle SEED child`. Or a child that it forks does: `idle SEED fork`; beside
 * twelve more that wait: `idle SEED many`.
 */
#include "victim.h"
#include <spawn.h>

#define IDLE_PAGES (26 * MIB_PAGES)
#define BUSY_PAGES (8 * MIB_PAGES)
#define ROUNDS 60
#define WAITERS 12

extern char **environ;

/* Does not shrink. */
static uint64_t noise(uint64_t tag, size_t page, size_t index) {
    return mix(tag + page * PAGE_WORDS + index);
}

static void fill(char *area, size_t pages, uint64_t tag) {
    for (size_t page = 0; page < pages; page++)
        for (size_t i = 0; i < PAGE_WORDS; i++)
            ((uint64_t *)(area + page * PAGE_BYTES))[i] = noise(tag, page, i);
}

static void check(const char *area, size_t pages, uint64_t tag) {
    for (size_t page = 0; page < pages; page++)
        for (size_t i = 0; i < PAGE_WORDS; i++)
            CHECK(((const uint64_t *)(area + page * PAGE_BYTES))[i] == noise(tag, page, i));
}

static void be_busy(uint64_t tag) {
    char *area = pages_map(BUSY_PAGES);
    fill(area, BUSY_PAGES, tag);
    for (int round = 0; round < ROUNDS; round++)
        for (size_t page = 0; page < BUSY_PAGES; page++)
            CHECK(*(uint64_t *)(area + page * PAGE_BYTES) == noise(tag, page, 0));
    check(area, BUSY_PAGES, tag);
}

/* Forks children which wait until `go` has no writer any more, and then look at a part of what they have. */
static void begin_waiters(pid_t *waiters, const int *go, const char *area, uint64_t tag) {
    for (size_t i = 0; i < WAITERS; i++) {
        waiters[i] = fork();
        CHECK(waiters[i] >= 0);
        if (waiters[i] == 0) {
            char byte;
            close(go[1]);
            CHECK(read(go[0], &byte, 1) == 0);
            for (size_t page = i; page < IDLE_PAGES; page += 64)
                CHECK(*(const uint64_t *)(area + page * PAGE_BYTES) == noise(tag, page, 0));
            _exit(0);
        }
    }
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    const char *way = argc == 3 ? argv[2] : "";
    if (strcmp(way, "child") == 0) {
        be_busy(~tag);
        return victim_end();
    }
    char *area = pages_map(IDLE_PAGES);
    fill(area, IDLE_PAGES, tag);
    int go[2];
    CHECK(pipe(go) == 0);
    pid_t child, waiters[WAITERS];
    int has_waiters = strcmp(way, "many") == 0;
    if (has_waiters)
        begin_waiters(waiters, go, area, tag);
    if (has_waiters || strcmp(way, "fork") == 0) {
        child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            be_busy(~tag);
            check(area, IDLE_PAGES, tag);
            _exit(0);
        }
    } else {
        char *arguments[] = {argv[0], argv[1], "child", NULL};
        CHECK(posix_spawn(&child, argv[0], NULL, NULL, arguments, environ) == 0);
    }
    CHECK_CHILD(child);
    close(go[1]);
    for (size_t i = 0; has_waiters && i < WAITERS; i++)
        CHECK_CHILD(waiters[i]);
    check(area, IDLE_PAGES, tag);
    return victim_end();
}
