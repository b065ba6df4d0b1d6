/*
 * Children that hold much of the store when they are killed, end, or become other programs: the
 * store has the room for those that come after them.
 */
#include "victim.h"

#define BIG_PAGES (48 * MIB_PAGES)
#define ROUNDS 12

static char *self;

/* Nothing of it shrinks, so that most of it is in the store. */
static void fill(char *big, uint64_t tag) {
    for (size_t i = 0; i < BIG_PAGES; i++)
        for (size_t j = 0; j < PAGE_WORDS; j++)
            ((uint64_t *)(big + i * PAGE_BYTES))[j] = mix(tag + i * PAGE_WORDS + j);
}

static void check(char *big, uint64_t tag) {
    for (size_t i = 0; i < BIG_PAGES; i++)
        for (size_t j = 0; j < PAGE_WORDS; j++)
            CHECK(((uint64_t *)(big + i * PAGE_BYTES))[j] == mix(tag + i * PAGE_WORDS + j));
}

static void leave(int round, char *seed) {
    char *big = pages_map(BIG_PAGES);
    uint64_t tag = mix(round * 1000000007ull);
    fill(big, tag);
    check(big, tag);
    if (round % 3 == 0)
        CHECK(kill(getpid(), SIGKILL) == 0);
    if (round % 3 == 1)
        execl(self, self, seed, "after", NULL);
    /* A child of a child has all of it too, and is killed. */
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        fill(big, tag + 1);
        CHECK(kill(getpid(), SIGKILL) == 0);
    }
    CHECK(wait_for(child) == SIGKILL);
    check(big, tag);
    _exit(0);
}

int main(int argc, char **argv) {
    note(victim_start(argc, argv));
    self = argv[0];
    if (argc > 2)
        return victim_end();
    for (int round = 0; round < ROUNDS; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            leave(round, argv[1]);
        CHECK(wait_for(child) == (round % 3 == 0 ? SIGKILL : 0));
        usleep(400000); /* until the dead are found */
    }
    return victim_end();
}
