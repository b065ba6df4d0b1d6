/*
 * A program that has most of the memory and waits, and one that it runs, which goes through little memory
 * again and again: `idle SEED`, and `idle SEED child`. Or a child that it forks does: `idle SEED fork`.
 */
#include "victim.h"
#include <spawn.h>

#define IDLE_PAGES (26 * MIB_PAGES)
#define BUSY_PAGES (8 * MIB_PAGES)
#define ROUNDS 60

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

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    const char *way = argc == 3 ? argv[2] : "";
    if (strcmp(way, "child") == 0) {
        be_busy(~tag);
        return victim_end();
    }
    char *area = pages_map(IDLE_PAGES);
    fill(area, IDLE_PAGES, tag);
    pid_t child;
    if (strcmp(way, "fork") == 0) {
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
    check(area, IDLE_PAGES, tag);
    return victim_end();
}
