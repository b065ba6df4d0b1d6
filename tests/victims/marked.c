/*
 * Memory that the program marks before there is much of it, for its children or to stay in RAM: what a child
 * finds is as the marks say, and what is locked does not leave. With `all` everything is locked, what comes too.
 */
#include "victim.h"

#define AREA_PAGES MIB_PAGES
#define AREA_BYTES (AREA_PAGES * PAGE_BYTES)

static unsigned char resident[AREA_PAGES];

static char *marked(int advice, uint64_t tag) {
    char *area = pages_map(AREA_PAGES);
    CHECK(madvise(area, AREA_BYTES, advice) == 0);
    pages_fill(area, AREA_PAGES, tag);
    return area;
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    if (argc > 2 && mlockall(MCL_CURRENT | MCL_FUTURE) == 0)
        printf("locked\n");
    char *wiped = marked(MADV_WIPEONFORK, tag), *kept = marked(MADV_NORMAL, tag + AREA_PAGES);
    char *dropped = marked(MADV_DONTFORK, tag), *locked = marked(MADV_NORMAL, tag + 1);
    int is_locked = mlock(locked, AREA_BYTES) == 0;
    ballast_make(40);
    for (int round = 0; round < 2; round++) {
        press();
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            CHECK(mincore(dropped, AREA_BYTES, resident) == -1 && errno == ENOMEM);
            zeros_check(wiped, AREA_BYTES);
            pages_check(kept, AREA_PAGES, tag + AREA_PAGES);
            press();
            zeros_check(wiped, AREA_BYTES);
            _exit(0);
        }
        CHECK(wait_for(child) == 0);
        pages_check(wiped, AREA_PAGES, tag);
        pages_check(dropped, AREA_PAGES, tag);
    }
    press();
    CHECK(mincore(locked, AREA_BYTES, resident) == 0);
    for (size_t page = 0; is_locked && page < AREA_PAGES; page++)
        CHECK(resident[page] & 1);
    pages_check(locked, AREA_PAGES, tag + 1);
    return victim_end();
}
