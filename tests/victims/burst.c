/*
 * Many processes at once, which each fill a little: together more than there is. Each waits then until all have
 * had time to fill theirs, and checks it. With `execute` each is a program of its own; with `common` each has what
 * its parent filled before, fills nothing, and checks a part of that.
 */
#include "victim.h"

#define PROCESSES 60
#define PAGES (4 * MIB_PAGES)
/* By that the budget comes near, just before the first is forked. */
#define COMMON_PAGES (75 * MIB_PAGES)
#define CHECKED_PAGES (MIB_PAGES / 4)

static char *common;

static int use(uint64_t seed) {
    char *pages = common ? common : pages_map(PAGES);
    if (!common)
        pages_fill(pages, PAGES, seed);
    CHECK(usleep(300000) == 0);
    pages_check(pages, common ? CHECKED_PAGES : PAGES, seed);
    return 0;
}

int main(int argc, char **argv) {
    uint64_t seed = victim_start(argc, argv);
    int executes = argc > 2 && strcmp(argv[2], "execute") == 0;
    if (argc > 2 && strcmp(argv[2], "common") == 0) {
        common = pages_map(COMMON_PAGES);
        pages_fill(common, COMMON_PAGES, mix(seed));
    } else if (argc > 2 && !executes) {
        return use(mix(seed));
    }
    pid_t children[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        CHECK(children[i] >= 0);
        if (children[i] == 0) {
            char text[32];
            snprintf(text, sizeof text, "%llu", (unsigned long long)seed + i);
            if (!executes)
                _exit(use(mix(common ? seed : seed + i)));
            execl("/proc/self/exe", argv[0], text, "child", (char *)NULL);
            _exit(98);
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        CHECK_CHILD(children[i]);
        note(mix(seed + i));
    }
    return victim_end();
}
