/*
 * Guard pages (Linux 6.13): installed early, amid memory that leaves RAM, and below a stack that
 * grows towards them.
 */
#include "victim.h"
#include <setjmp.h>

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif

#define AREA_PAGES (8 * MIB_PAGES)
#define GUARD_AT (4 * MIB_PAGES)
#define GUARD_PAGES 64ul
#define GUARD_BYTES (GUARD_PAGES * PAGE_BYTES)

static sigjmp_buf back;

static void on_fault(int signal) {
    siglongjmp(back, signal);
}

static void guarded_check(char *page) {
    int caught = sigsetjmp(back, 1);
    if (caught == 0) {
        *(volatile char *)page = 1;
        CHECK(!"a guard page can be written");
    }
    CHECK(caught == SIGSEGV);
}

static void around_check(char *area, uint64_t tag) {
    pages_check(area, GUARD_AT, tag);
    pages_check(area + (GUARD_AT + GUARD_PAGES) * PAGE_BYTES, AREA_PAGES - GUARD_AT - GUARD_PAGES,
                tag + GUARD_AT + GUARD_PAGES);
}

/* Writes pages downwards, as a stack does, and stops right above the guard. */
static void grow_down(uint64_t tag) {
    char *area = pages_map(AREA_PAGES);
    CHECK(madvise(area, PAGE_BYTES, MADV_GUARD_INSTALL) == 0);
    for (size_t page = AREA_PAGES - 1; page > 0; page--)
        page_fill(area + page * PAGE_BYTES, tag + page);
    guarded_check(area);
    press();
    guarded_check(area);
    pages_check(area + PAGE_BYTES, AREA_PAGES - 1, tag + 1);
    CHECK(munmap(area, AREA_PAGES * PAGE_BYTES) == 0);
}

#define EVERY 64ul
#define RUN 8ul

/* Guards that may be there before anybody manages the memory around them. */
static char *install_early(void) {
    char *area = pages_map(AREA_PAGES);
    for (size_t page = EVERY - RUN; page < AREA_PAGES; page += EVERY)
        if (madvise(area + page * PAGE_BYTES, RUN * PAGE_BYTES, MADV_GUARD_INSTALL) != 0)
            return NULL;
    return area;
}

/* Pages written in order up to the guards, and on behind them. */
static void early_check(char *area, uint64_t tag) {
    for (size_t page = 0; page < AREA_PAGES; page++)
        if (page % EVERY < EVERY - RUN)
            page_fill(area + page * PAGE_BYTES, tag + page);
    for (int round = 0; round < 2; round++) {
        for (size_t page = 0; page < AREA_PAGES; page++) {
            if (page % EVERY < EVERY - RUN)
                page_check(area + page * PAGE_BYTES, tag + page);
            else
                guarded_check(area + page * PAGE_BYTES);
        }
        press();
    }
    /* What is no guard any more is memory as any other. */
    CHECK(madvise(area, AREA_PAGES * PAGE_BYTES, MADV_GUARD_REMOVE) == 0);
    for (size_t page = EVERY - RUN; page < AREA_PAGES; page += EVERY) {
        zeros_check(area + page * PAGE_BYTES, RUN * PAGE_BYTES);
        pages_fill(area + page * PAGE_BYTES, RUN, tag + page);
    }
    press();
    pages_check(area, AREA_PAGES, tag);
    CHECK(munmap(area, AREA_PAGES * PAGE_BYTES) == 0);
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    char *early = install_early();
    ballast_make(32);
    CHECK(signal(SIGSEGV, on_fault) != SIG_ERR);
    if (early)
        early_check(early, tag + 2 * AREA_PAGES);
    char *area = pages_map(AREA_PAGES);
    pages_fill(area, AREA_PAGES, tag);
    press();
    char *guard = area + GUARD_AT * PAGE_BYTES;
    if (madvise(guard, GUARD_BYTES, MADV_GUARD_INSTALL) != 0) {
        CHECK(errno == EINVAL); /* an older kernel */
        return victim_end();
    }
    for (int round = 0; round < 2; round++) {
        around_check(area, tag);
        for (size_t i = 0; i < GUARD_PAGES; i++)
            guarded_check(guard + i * PAGE_BYTES);
        press();
    }
    CHECK(madvise(guard, GUARD_BYTES, MADV_GUARD_REMOVE) == 0);
    zeros_check(guard, GUARD_BYTES);
    pages_fill(guard, GUARD_PAGES, tag + GUARD_AT);
    press();
    pages_check(area, AREA_PAGES, tag);
    grow_down(tag + AREA_PAGES);
    return victim_end();
}
