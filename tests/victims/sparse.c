/*
 * Much address space with little in it: 64 GiB of which a run of pages here and
 * there is touched, and thousands of small mappings with guard pages between them.
 * What the pager keeps must follow what is used, not what is mapped.
 */
#include "victim.h"

#define WIDE_BYTES (64ul << 30)
#define WIDE_PAGES (WIDE_BYTES / PAGE_BYTES)
#define RUNS 700
#define RUN_PAGES 16
#define SMALL 6000
#define SMALL_PAGES 3

/* First page of a run; runs do not overlap in part. */
static size_t run_draw(struct random *random) {
    return below(random, WIDE_PAGES / RUN_PAGES) * RUN_PAGES;
}

static void wide(uint64_t tag) {
    char *area = mmap(NULL, WIDE_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(area != MAP_FAILED);
    struct random random = {tag};
    for (int i = 0; i < RUNS; i++) {
        size_t page = run_draw(&random);
        pages_fill(area + page * PAGE_BYTES, RUN_PAGES, page);
    }
    random.state = tag;
    for (int i = 0; i < RUNS; i++) {
        size_t page = run_draw(&random);
        pages_check(area + page * PAGE_BYTES, RUN_PAGES, page);
    }
    CHECK(madvise(area, WIDE_BYTES / 2, MADV_DONTNEED) == 0);
    random.state = tag;
    for (int i = 0; i < RUNS; i++) {
        size_t page = run_draw(&random);
        if (page < WIDE_PAGES / 2)
            zeros_check(area + page * PAGE_BYTES, RUN_PAGES * PAGE_BYTES);
        else
            pages_check(area + page * PAGE_BYTES, RUN_PAGES, page);
    }
    CHECK(munmap(area, WIDE_BYTES) == 0);
    note(draw(&random));
}

static void small(uint64_t tag) {
    static char *areas[SMALL];
    for (size_t i = 0; i < SMALL; i++) {
        areas[i] = pages_map(SMALL_PAGES + 1);
        CHECK(mprotect(areas[i] + SMALL_PAGES * PAGE_BYTES, PAGE_BYTES, PROT_NONE) == 0);
        pages_fill(areas[i], SMALL_PAGES, tag + i * SMALL_PAGES);
    }
    for (size_t i = 0; i < SMALL; i += 2)
        CHECK(munmap(areas[i], (SMALL_PAGES + 1) * PAGE_BYTES) == 0);
    for (size_t i = 1; i < SMALL; i += 2) {
        pages_check(areas[i], SMALL_PAGES, tag + i * SMALL_PAGES);
        CHECK(munmap(areas[i], (SMALL_PAGES + 1) * PAGE_BYTES) == 0);
    }
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    wide(tag);
    small(tag);
    wide(tag + 1);
    return victim_end();
}
