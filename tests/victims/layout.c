/*
 * A program with a place for everything, as sanitizers make it: terabytes of
 * shadow memory, reserved and hardly touched, wherever neither the program nor
 * its shared objects lie. Whoever comes into it has to leave room for that, and
 * to find in no time what is there.
 */
#include "victim.h"

#define TEBI_BYTES (1ul << 40)
#define CLUSTERS 240
#define CLUSTER_PAGES 16

/* What compiler-rt's MemorySanitizer and ThreadSanitizer reserve on x86-64, programs left out. */
static const struct {
    uintptr_t start, end;
} reserved[] = {{0x010000000000, 0x550000000000}, {0x630000000000, 0x7b0000000000}};

static char *place(unsigned cluster) {
    uintptr_t bytes = reserved[0].end - reserved[0].start;
    return (char *)reserved[0].start + bytes / CLUSTERS * cluster / PAGE_BYTES * PAGE_BYTES;
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    for (unsigned i = 0; i < COUNT(reserved); i++) {
        size_t bytes = reserved[i].end - reserved[i].start;
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
        void *wanted = address(reserved[i].start);
        /* Where the kernel leaves more to chance than usual the program itself may lie there. */
        note(mmap(wanted, bytes, PROT_READ | PROT_WRITE, flags, -1, 0) == wanted);
    }
    for (unsigned i = 0; i < CLUSTERS; i++)
        pages_fill(place(i), CLUSTER_PAGES, tag + i * CLUSTER_PAGES);
    ballast_make(28);
    for (int round = 0; round < 3; round++) {
        press();
        for (unsigned i = 0; i < CLUSTERS; i++) {
            pages_check(place(i), CLUSTER_PAGES, tag + i * CLUSTER_PAGES);
            pages_fill(place(i), CLUSTER_PAGES, tag + (i + 1) * CLUSTER_PAGES);
        }
        tag += CLUSTER_PAGES;
        zeros_check(place(round) + TEBI_BYTES / 16, PAGE_BYTES);
    }
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (unsigned i = 0; i < CLUSTERS; i++)
            pages_check(place(i), CLUSTER_PAGES, tag + i * CLUSTER_PAGES);
        _exit(0);
    }
    CHECK_CHILD(child);
    return victim_end();
}
