/*
 * Thousands of children that are killed as soon as they are made, many before their first instruction:
 * the run keeps nothing for them, and their parent has room for all of its memory.
 */
#include "victim.h"

#define CHILDREN 2500
#define SHARED_PAGES (4 * MIB_PAGES)
#define LEFT_PAGES (18 * MIB_PAGES)

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    char *shared = pages_map(SHARED_PAGES);
    pages_fill(shared, SHARED_PAGES, tag);
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            for (;;)
                pause();
        CHECK(kill(child, SIGKILL) == 0);
        CHECK(WIFSIGNALED(wait_for(child)));
    }
    pages_check(shared, SHARED_PAGES, tag);
    CHECK(munmap(shared, SHARED_PAGES * PAGE_BYTES) == 0);
    need_room(LEFT_PAGES, tag);
    note(tag);
    return victim_end();
}
