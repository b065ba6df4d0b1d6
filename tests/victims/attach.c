/*
 * Shared memory attached in the place of managed memory (SHM_REMAP), which is
 * somebody else's then; and private memory in its place again.
 */
#include "victim.h"
#include <sys/ipc.h>
#include <sys/shm.h>

#define BIG_PAGES (12 * MIB_PAGES)
#define FIRST (3 * MIB_PAGES)
#define SEGMENT_PAGES (2 * MIB_PAGES)
#define SEGMENT_BYTES (SEGMENT_PAGES * PAGE_BYTES)

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    note(tag);
    ballast_make(28);
    int segment = shmget(IPC_PRIVATE, SEGMENT_BYTES, 0600);
    CHECK(segment >= 0);
    char *big = pages_map(BIG_PAGES), *within = big + FIRST * PAGE_BYTES;
    pages_fill(big, BIG_PAGES, tag);
    press();
    CHECK(shmat(segment, within, 0) == (void *)-1 && errno == EINVAL);
    pages_check(within, SEGMENT_PAGES, tag + FIRST);
    /* Not at a page's start: rounded down. */
    CHECK(shmat(segment, within + 100, SHM_REMAP | SHM_RND) == within);
    CHECK(shmctl(segment, IPC_RMID, NULL) == 0);
    zeros_check(within, SEGMENT_BYTES);
    pages_fill(within, SEGMENT_PAGES, tag + 1);
    press();
    pages_check(within, SEGMENT_PAGES, tag + 1);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        pages_check(within, SEGMENT_PAGES, tag + 1);
        pages_check(big, FIRST, tag);
        pages_fill(within, SEGMENT_PAGES, tag + 2);
        _exit(0);
    }
    CHECK_CHILD(child);
    press();
    pages_check(within, SEGMENT_PAGES, tag + 2);
    pages_check(big, FIRST, tag);
    size_t behind = FIRST + SEGMENT_PAGES;
    pages_check(big + behind * PAGE_BYTES, BIG_PAGES - behind, tag + behind);
    CHECK(shmdt(within) == 0);
    CHECK(mmap(within, SEGMENT_BYTES, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0)
          == within);
    zeros_check(within, SEGMENT_BYTES);
    pages_fill(within, SEGMENT_PAGES, tag + 3);
    press();
    pages_check(within, SEGMENT_PAGES, tag + 3);
    return victim_end();
}
