/*
 * Programs that are gone in a moment, one after the other, from a process whose
 * memory is mostly swapped out: whoever looks after the processes of a run comes
 * upon them at every point of their start.
 */
#include "victim.h"

#define PAGES (40 * MIB_PAGES)
#define EXECUTIONS 200

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    char *memory = pages_map(PAGES);
    pages_fill(memory, PAGES, tag);
    for (size_t i = 0; i < EXECUTIONS; i++) {
        pages_check(memory + i * 50 * PAGE_BYTES, 50, tag + i * 50);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            execl("/bin/true", "true", NULL);
            _exit(98);
        }
        CHECK_CHILD(child);
    }
    pages_check(memory, PAGES, tag);
    return victim_end();
}
