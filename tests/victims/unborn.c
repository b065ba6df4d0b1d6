/*
 * Processes that are killed again and again in the middle of a fork, alone or with the child: what
 * they had is given back, and who is left has room for all of its memory.
 */
#include "victim.h"

#define KILLED 40
#define KILLED_PAGES (6 * MIB_PAGES)
#define LEFT_PAGES (8 * MIB_PAGES)

static void fork_for_ever(uint64_t tag) {
    CHECK(setpgid(0, 0) == 0);
    char *memory = pages_map(KILLED_PAGES);
    for (size_t i = 0; i < KILLED_PAGES; i++)
        memcpy(memory + i * PAGE_BYTES, &tag, sizeof tag);
    for (;;) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            _exit(0);
        CHECK_CHILD(child);
    }
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    for (int i = 0; i < KILLED; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            fork_for_ever(tag);
        usleep(30000 + mix(tag + i) % 20000);
        CHECK(kill(i % 2 ? child : -child, SIGKILL) == 0);
        CHECK(WIFSIGNALED(wait_for(child)));
    }
    need_room(LEFT_PAGES, tag);
    note(tag);
    return victim_end();
}
