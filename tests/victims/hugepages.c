/* Transparent huge pages, filled before there is pressure and asked for again under it. */
#include "victim.h"
#include <linux/mman.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define HUGE_BYTES (2ul << 20)
#define AREA_BYTES (64ul << 20)
#define AREA_PAGES (AREA_BYTES / PAGE_BYTES)

static char *aligned_map(size_t bytes) {
    char *start =
        mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(start != MAP_FAILED);
    char *aligned = (char *)(((uintptr_t)start + HUGE_BYTES - 1) & -HUGE_BYTES);
    CHECK(madvise(aligned, bytes, MADV_HUGEPAGE) == 0 || errno == EINVAL);
    return aligned;
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    char *first = aligned_map(AREA_BYTES);
    pages_fill(first, AREA_PAGES, tag);
    pages_check(first, AREA_PAGES, tag);
    char *second = aligned_map(AREA_BYTES / 2);
    pages_fill(second, AREA_PAGES / 2, tag + AREA_PAGES);
    /* A huge page broken by its first half going, a hole in another, one moved. */
    CHECK(madvise(first, HUGE_BYTES / 2, MADV_DONTNEED) == 0);
    CHECK(munmap(first + 3 * HUGE_BYTES + 5 * PAGE_BYTES, 7 * PAGE_BYTES) == 0);
    char *moved = mremap(first + 8 * HUGE_BYTES, 2 * HUGE_BYTES, 2 * HUGE_BYTES,
                         MREMAP_MAYMOVE | MREMAP_FIXED, second + 10 * HUGE_BYTES);
    CHECK(moved == second + 10 * HUGE_BYTES);
    (void)madvise(second, AREA_BYTES / 2, MADV_COLLAPSE); /* since Linux 6.1; may refuse */
    for (int round = 0; round < 2; round++) {
        zeros_check(first, HUGE_BYTES / 2);
        pages_check(first + HUGE_BYTES / 2, 2 * 512 + 256, tag + 256);
        pages_check(first + 10 * HUGE_BYTES, AREA_PAGES - 10 * 512, tag + 10 * 512);
        pages_check(second, 10 * 512, tag + AREA_PAGES);
        pages_check(moved, 2 * 512, tag + 8 * 512);
    }
    note_bytes(moved, 4096);
    return victim_end();
}
